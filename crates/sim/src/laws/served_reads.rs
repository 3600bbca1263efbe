//! A read is served from what readers on its node see: what was published there, by this process, reaches as far as the read was told.

use std::collections::BTreeMap;

use highwater_wire::Offset;

use super::Law;
use crate::facts::{Facts, Observation, Place};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ServedReads {
    published: BTreeMap<Place, Offset>,
}

impl Law for ServedReads {
    fn name(&self) -> &'static str {
        "a-served-read-is-published"
    }

    fn after(&mut self, _: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Published { place, at, .. } => {
                self.published.insert(*place, *at);
            }
            Observation::Crashed { node } => self.published.retain(|place, _| place.node != *node),
            Observation::ReadServed { place, at } => {
                let published = self.published.get(place);
                if published.is_none_or(|published| published < at) {
                    return Err(format!(
                        "node {} serves a read of partition {} from offset {at}, and readers there see {published:?}",
                        place.node, place.partition.0
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, NodeId};

    use super::*;
    use crate::laws::testing::{place, see, three};

    #[test]
    fn a_read_beyond_what_is_published_is_found() {
        let (mut law, mut facts) = (ServedReads::default(), three(CommitRule::Quorum { q: 2 }));
        let mut sees = |seen| see(&mut law, &mut facts, seen);
        assert!(sees(Observation::ReadServed { place: place(1), at: 0 }).is_err());
        assert!(sees(Observation::Published { place: place(1), at: 3, content: 0 }).is_ok());
        assert!(sees(Observation::ReadServed { place: place(1), at: 3 }).is_ok());
        assert!(sees(Observation::ReadServed { place: place(1), at: 4 }).is_err());
        assert!(sees(Observation::Crashed { node: NodeId(1) }).is_ok());
        assert!(sees(Observation::ReadServed { place: place(1), at: 3 }).is_err(), "another process published that");
    }
}
