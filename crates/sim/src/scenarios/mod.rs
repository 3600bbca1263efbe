//! Short stories with a name, told with every number out of the real step functions and real logs. Each also asserts what it tells.

mod majority_intersection;
mod stage;
mod worked_example;

/// A story that can be told.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    tell: fn(&mut Story) -> Result<(), String>,
}

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "worked-example",
        about: "a failover under isr: what happens to entries that were not committed, and how the old leader rejoins",
        tell: worked_example::tell,
    },
    Scenario {
        name: "majority-intersection",
        about: "why a candidate without a committed entry cannot win: two majorities of five share a replica",
        tell: majority_intersection::tell,
    },
];

/// Tells the story of that name; `None` if there is none. An error is the story as far as it came, with what was wanted and what was found instead.
pub fn scenario(name: &str) -> Option<Result<String, String>> {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name)?;
    let mut story = Story { text: format!("{}: {}\n", scenario.name, scenario.about) };
    Some(match (scenario.tell)(&mut story) {
        Ok(()) => Ok(story.text),
        Err(wrong) => Err(format!("{}\n{wrong}\n", story.text)),
    })
}

/// A story as it is told.
#[derive(Debug, Default)]
pub(crate) struct Story {
    text: String,
}

impl Story {
    /// A heading.
    fn act(&mut self, title: &str) {
        self.text.push_str(&format!("\n{title}\n"));
    }

    /// A sentence.
    fn say(&mut self, sentence: impl AsRef<str>) {
        self.text.push_str(&format!("  {}\n", sentence.as_ref()));
    }

    /// Tells what was found, which must be what is wanted.
    fn finds<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: T, wanted: T) -> Result<(), String> {
        self.say(format!("{what}: {found:?}"));
        match found == wanted {
            true => Ok(()),
            false => Err(format!("{what}: wanted {wanted:?}, found {found:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_story_ends_as_it_should() {
        for one in SCENARIOS {
            let told = scenario(one.name).expect("it is in the list");
            assert!(told.is_ok(), "{}", told.unwrap_err());
        }
        assert!(scenario("no-such-story").is_none());
    }

    #[test]
    fn a_story_with_another_end_is_an_error() {
        let mut story = Story::default();
        assert!(story.finds("HW", 3, 3).is_ok());
        assert_eq!(story.finds("HW", 4, 3), Err("HW: wanted 3, found 4".to_owned()));
        assert!(story.text.contains("HW: 4"));
    }
}
