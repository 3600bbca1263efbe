//! ISRs that shrink and grow, and changes of them that are in flight when their leader goes.

use std::collections::{BTreeMap, BTreeSet};

use highwater_replica::Role;
use highwater_wire::{Body, CommitRule, Version};

use super::{Mark, Watcher};
use crate::facts::{Facts, Observation, Place};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// The version that a leader wants replaced.
    in_flight: BTreeMap<Place, Version>,
}

impl Sets {
    /// Whether a change of that leader's is in flight: asked for, and the record as it was.
    fn ends(&mut self, facts: &Facts, place: Place) -> bool {
        let now = facts.records.get(&place.partition).map(|record| record.version);
        self.in_flight.remove(&place).is_some_and(|version| Some(version) == now)
    }
}

impl Watcher for Sets {
    fn look(&mut self, facts: &Facts, seen: &Observation, reached: &mut BTreeSet<Mark>) {
        match seen {
            Observation::Sent { from, envelope } => {
                if let Body::ChangeSet { version, .. } = envelope.body {
                    self.in_flight.insert(Place { partition: envelope.partition, node: *from }, version);
                }
            }
            Observation::Received { envelope, .. } => {
                let record = facts.records.get(&envelope.partition);
                if let (Body::ChangeSet { version, .. }, Some(record)) = (&envelope.body, record)
                    && *version != record.version
                {
                    reached.insert(Mark::ChangeLate);
                }
            }
            Observation::Recorded { partition, record } => {
                let before = facts.records.get(partition);
                let (now, CommitRule::Isr { min }) = (record.set.members.len(), record.set.rule) else { return };
                match before {
                    Some(before) if before.epoch == record.epoch && now < before.set.members.len() => {
                        reached.insert(Mark::IsrShrank);
                    }
                    Some(before) if before.epoch == record.epoch && now > before.set.members.len() => {
                        reached.insert(Mark::IsrGrew);
                    }
                    Some(before) if before.epoch < record.epoch && now == min as usize => {
                        reached.insert(Mark::IsrFloor);
                    }
                    _ => {}
                }
            }
            Observation::Role { role: Role::Leader { .. }, .. } => {}
            Observation::Role { place, .. } if self.ends(facts, *place) => {
                reached.insert(Mark::ChangeDeposed);
            }
            Observation::Crashed { node } => {
                let of_node: Vec<Place> = self.in_flight.keys().copied().filter(|place| place.node == *node).collect();
                for place in of_node {
                    if self.ends(facts, place) {
                        reached.insert(Mark::ChangeOrphaned);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::NodeId;

    use super::*;
    use crate::laws::testing::{PARTITION, envelope, recorded, take, three};

    #[test]
    fn a_change_in_flight_at_the_leaders_death_is_noticed_and_one_that_was_recorded_is_not() {
        let rule = CommitRule::Isr { min: 2 };
        let dies = |done: bool| {
            let (mut watcher, mut facts, mut reached) = (Sets::default(), three(rule), BTreeSet::new());
            let body = Body::ChangeSet { version: Version(1), members: Vec::new() };
            let sent = Observation::Sent { from: NodeId(1), envelope: envelope(1, 0, body) };
            watcher.look(&facts, &sent, &mut reached);
            if done {
                let record = recorded(PARTITION, rule, &[1, 2], 2);
                watcher.look(&facts, &record, &mut reached);
                take(&mut facts, &record);
            }
            watcher.look(&facts, &Observation::Crashed { node: NodeId(1) }, &mut reached);
            reached
        };
        assert_eq!(dies(false), BTreeSet::from([Mark::ChangeOrphaned]));
        assert_eq!(dies(true), BTreeSet::from([Mark::IsrShrank]));
    }
}
