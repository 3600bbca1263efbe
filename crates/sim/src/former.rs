//! Seeds that once broke a law; see `former-seeds.txt`.

use crate::options::Profile;

const LIST: &str = include_str!("../former-seeds.txt");

/// The seeds, each with its profile, in the order in which they were found.
///
/// # Errors
/// Says which line does not begin with a profile and a seed.
pub fn former_seeds() -> Result<Vec<(Profile, u64)>, String> {
    LIST.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(read).collect()
}

fn read(line: &str) -> Result<(Profile, u64), String> {
    let wrong = |what: String| format!("{what} in {line:?}; a line begins with a profile and a seed");
    let mut words = line.split_whitespace();
    let profile = words.next().unwrap_or_default().parse().map_err(wrong)?;
    let seed = words.next().unwrap_or_default().parse().map_err(|error| wrong(format!("{error}")))?;
    Ok((profile, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_readable_and_a_line_that_is_not_is_said() {
        assert!(former_seeds().is_ok(), "{:?}", former_seeds());
        assert_eq!(read("isr3 17 some-law: because"), Ok((Profile::Isr3, 17)));
        assert!(read("isr3 many").unwrap_err().contains("isr3 many"));
        assert!(read("seven 17").unwrap_err().contains("seven 17"));
    }
}
