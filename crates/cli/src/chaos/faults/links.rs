//! Faults of the network between the nodes. Clients reach every node all the time.
//!
//! Each cut is one of three kinds: packets are lost in silence, connections break as well, or they are refused as if nobody listened.

use std::time::Duration;

use super::stage::{Stage, Why};
use crate::args::Fault;
use crate::net::{Cut, Net};

impl Stage<'_> {
    fn net(&self) -> &Net {
        self.cluster.net.as_ref().expect("a cluster that meets faults is put apart before it is started")
    }

    fn id(&self, index: usize) -> u32 {
        self.cluster.members[index].id
    }

    fn kind_of_cut(&mut self) -> Cut {
        *self.rng.pick(&[Cut::Silent, Cut::Silent, Cut::Broken, Cut::Refused])
    }

    /// Lets the network be as it is for a while, then heals it.
    fn last_and_heal(&mut self, place: usize, length: Duration, victims: &[usize]) -> anyhow::Result<()> {
        self.last(length, victims)?;
        self.net().heal();
        for index in victims {
            self.returns(*index, Why::Cut);
        }
        self.undone(place);
        Ok(())
    }
}

/// One node, or a minority, cut off from all others.
pub(super) fn partition(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let first = stage.victim();
    let (cut, length) = (stage.kind_of_cut(), stage.a_while());
    let mut minority = vec![first];
    let spare = (stage.len() - 1) / 2;
    while minority.len() < spare && stage.rng.percent(60) {
        let rest: Vec<usize> = stage.present().into_iter().filter(|index| !minority.contains(index)).collect();
        minority.push(*stage.rng.pick(&rest));
    }
    let with: String = minority[1..].iter().map(|index| format!("with {} ", stage.name(*index))).collect();
    let what = format!("cut off {with}from all others ({cut:?}) for {:.1} s", length.as_secs_f64());
    let place = stage.begins(Fault::Partition, first, what);
    for index in &minority {
        stage.leaves(*index, Why::Cut);
    }
    for one in &minority {
        for other in (0..stage.len()).filter(|other| !minority.contains(other)) {
            stage.net().part(stage.id(*one), stage.id(other), cut);
        }
    }
    stage.last_and_heal(place, length, &minority)
}

/// One node that the others do not hear, or that does not hear them.
pub(super) fn one_way(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let (cut, length, mute) = (stage.kind_of_cut(), stage.a_while(), stage.rng.percent(50));
    let how = if mute { "heard by nobody" } else { "deaf to all others" };
    let what = format!("{how} ({cut:?}) for {:.1} s", length.as_secs_f64());
    let place = stage.begins(Fault::OneWay, index, what);
    stage.leaves(index, Why::Cut);
    for other in (0..stage.len()).filter(|other| *other != index) {
        let (own, others) = (stage.id(index), stage.id(other));
        stage.net().cut(if mute { (own, others) } else { (others, own) }, cut);
    }
    stage.last_and_heal(place, length, &[index])
}

/// Two nodes that do not reach each other while all others reach both: often the database's leader and the metadata's. Everybody reaches a majority, so nobody is excused.
pub(super) fn partial(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let one = stage.victim();
    let roles = stage.roles();
    let rest: Vec<usize> = stage.present().into_iter().filter(|index| *index != one).collect();
    let drawn = *stage.rng.pick(&rest);
    let led = [roles.metadata, roles.database].into_iter().flatten().find(|index| rest.contains(index));
    let other = if stage.rng.percent(60) { led.unwrap_or(drawn) } else { drawn };
    let (cut, length) = (stage.kind_of_cut(), stage.a_while() * 2);
    let what = format!("parted from {} alone ({cut:?}) for {:.1} s", stage.name(other), length.as_secs_f64());
    let place = stage.begins(Fault::Partial, one, what);
    stage.net().part(stage.id(one), stage.id(other), cut);
    stage.last_and_heal(place, length, &[])
}
