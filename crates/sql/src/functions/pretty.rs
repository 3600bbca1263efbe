//! How much `json_pretty` would make of a text: it indents every line by the depth it is at, and SQLite looks at no limit before it has all of it.

/// SQLite's own limit on depth.
const DEPTH_MAX: u64 = 1000;

/// About how many bytes the indentation of a text takes; of JSONB, at most how many.
pub(crate) fn indentation(json: &[u8], is_blob: bool, indent_bytes: u64) -> u64 {
    if is_blob {
        return (json.len() as u64).saturating_mul(DEPTH_MAX).saturating_mul(indent_bytes);
    }
    let (mut depth, mut total, mut at) = (0_u64, 0_u64, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' | b'\'' => at = behind_string(json, at, *byte),
            b'/' if json.get(at) == Some(&b'/') => {
                at += json[at..].iter().position(|byte| *byte == b'\n').unwrap_or(json.len() - at);
            }
            b'/' if json.get(at) == Some(&b'*') => {
                at += 1;
                at += memchr::memmem::find(&json[at..], b"*/").map_or(json.len() - at, |end| end + 2);
            }
            b'[' | b'{' => {
                depth = (depth + 1).min(DEPTH_MAX);
                total += depth * indent_bytes;
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                total += depth * indent_bytes;
            }
            b',' => total += depth * indent_bytes,
            _ => {}
        }
    }
    total
}

/// Where a string ends whose quote was at the byte before.
fn behind_string(json: &[u8], mut at: usize, quote: u8) -> usize {
    while let Some(byte) = json.get(at) {
        at += match byte {
            b'\\' => 2,
            byte if *byte == quote => return at + 1,
            _ => 1,
        };
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_indentation_is_what_sqlite_makes() {
        let plain = rusqlite::Connection::open_in_memory().expect("memory");
        for json in [r#"[1,2,[3,{"a":"],\"[","b":[4]}]]"#, "{'x':1, /* [ ' */ y:[2] // {\n}", "[[[[5,6],7]]]"] {
            let pretty = |indent: &str| -> i64 {
                plain.query_row("SELECT length(json_pretty(?1, ?2))", [json, indent], |row| row.get(0)).expect("valid")
            };
            assert_eq!(indentation(json.as_bytes(), false, 3) as i64, pretty("   ") - pretty(""), "{json}");
        }
    }
}
