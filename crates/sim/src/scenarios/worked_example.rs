//! A failover and the truncation that it forces, under rule `isr`.
//!
//! Three replicas A, B, C; five entries of epoch 0, of which B has four and C three when A crashes. B is appointed in epoch 1 without A and appends
//! one entry; A comes back and must give up the one entry that only it had, though it never learns an HW that would tell it so: it asks about
//! epochs.

use highwater_coordinator::{PartitionRecord, Promised, choose};
use highwater_replica::{Input, Timeout};
use highwater_wire::{Body, CommitRule, Epoch, PartitionId, Set, Version};

use super::Story;
use super::stage::{Stage, name, node, peer};

const FIRST: Epoch = Epoch(0);
const SECOND: Epoch = Epoch(1);

fn isr(names: &[char]) -> Set {
    Set { rule: CommitRule::Isr { min: 2 }, members: names.iter().map(|name| peer(*name)).collect() }
}

/// The ranks promised to the coordinator since they were last looked at.
fn promises(stage: &mut Stage) -> std::collections::BTreeMap<highwater_wire::PeerId, Promised> {
    let heard = std::mem::take(&mut stage.to_coordinator).into_iter();
    heard
        .filter_map(|envelope| match envelope.body {
            Body::Promise { rank, .. } => {
                Some((envelope.sender.peer, Promised { incarnation: envelope.sender.incarnation, rank }))
            }
            _ => None,
        })
        .collect()
}

pub(super) fn tell(story: &mut Story) -> Result<(), String> {
    let mut stage = Stage::new(PartitionId(1), &['A', 'B', 'C']);
    let all = ['A', 'B', 'C'];
    story.act("Epoch 0: A leads, the ISR is A, B, C");
    for one in all {
        stage.start(one, None, None);
        stage.coordinate(one, FIRST, Body::PromiseRequest { ballot: 1 });
    }
    stage.announce(&all, FIRST, 'A', &isr(&all), 2);
    stage.settle(&all);
    story.finds("A leads epoch 0", stage.replica('A').leads(FIRST), true)?;
    for value in ["a", "b", "c", "d", "e"] {
        stage.propose('A', FIRST, value)?;
    }
    stage.flush('A');
    story.say("A appends a, b, c, d, e and flushes them. The network is slow: four of them reach B, three reach C.");
    for (follower, entries) in [('B', 4), ('C', 3)] {
        for _ in 0..entries {
            stage.deliver('A', follower);
        }
        stage.flush(follower);
        while stage.deliver(follower, 'A') {}
    }
    let leo = |stage: &Stage| all.map(|one| stage.replica(one).shape().flushed);
    story.finds("LEO of A, B, C", leo(&stage), [5, 4, 3])?;
    story.finds("HW before the failure, the least LEO in the ISR", stage.replica('A').hw(), 3)?;

    story.act("A crashes, and the coordinator appoints anew");
    stage.crash('A');
    stage.to_coordinator.clear();
    for one in ['B', 'C'] {
        stage.coordinate(one, SECOND, Body::PromiseRequest { ballot: 2 });
    }
    let promised = promises(&mut stage);
    for (who, promise) in &promised {
        let last = promise.rank.last_epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
        story.say(format!(
            "{} promises epoch 1; its last entry is of epoch {last}, its LEO {}",
            name(who.node),
            promise.rank.leo
        ));
    }
    let record = PartitionRecord {
        id: PartitionId(1),
        name: "story".to_owned(),
        replicas: all.iter().map(|one| peer(*one)).collect(),
        set: isr(&all),
        leader: Some((peer('A'), stage.incarnation('A'))),
        epoch: Some(FIRST),
        version: Version(2),
        lossy: None,
    };
    let choice = choose(&record, &promised).ok_or("nobody may lead, though two members of the ISR promised")?;
    story.finds("chosen, the greatest rank", name(choice.leader.node), 'B')?;
    let names: Vec<char> = choice.members.iter().map(|member| name(member.node)).collect();
    story.finds("the ISR from now on, without A, which did not promise", names.clone(), vec!['B', 'C'])?;
    stage.announce(&['B', 'C'], SECOND, 'B', &isr(&names), 3);
    story.finds("B leads epoch 1", stage.replica('B').leads(SECOND), true)?;

    story.act("Epoch 1: B leads");
    stage.settle(&['B', 'C']);
    story.say("C opens a stream at offset 3 and gets d, which B had.");
    story.finds("HW: d is committed now, though A never committed it", stage.replica('B').hw(), 4)?;
    let end = stage.propose('B', SECOND, "x")?;
    story.finds("B appends x, the first entry of epoch 1, at offset", end - 1, 4)?;
    stage.settle(&['B', 'C']);
    story.finds("LEO of C", stage.replica('C').shape().flushed, 5)?;
    story.finds("HW", stage.replica('B').hw(), 5)?;

    story.act("A rejoins");
    stage.start('A', None, None);
    let before: Vec<_> = stage.log('A');
    story.finds("A's log as it comes back", before, pairs(&[(0, "a"), (0, "b"), (0, "c"), (0, "d"), (0, "e")]))?;
    stage.announce(&['A'], SECOND, 'B', &isr(&names), 3);
    say_messages(story, &stage, 'A', 'B');
    stage.deliver('A', 'B');
    say_messages(story, &stage, 'B', 'A');
    stage.settle(&all);
    let lost: Vec<(u32, String)> = stage.lost_tail('A').into_iter().map(|(_, epoch, value)| (epoch, value)).collect();
    story.finds("A drops into its lost tail", lost, pairs(&[(0, "e")]))?;
    let entries = stage.log('A');
    story.finds("A's log", entries, pairs(&[(0, "a"), (0, "b"), (0, "c"), (0, "d"), (1, "x")]))?;
    story.finds("the same as B's", stage.log('A') == stage.log('B'), true)?;
    story.finds("and as C's", stage.log('A') == stage.log('C'), true)?;

    // What the leader is asked to do at its heartbeats: A has reached HW, so it is proposed for the ISR.
    stage.step('B', Input::Timeout(Timeout::Heartbeat));
    let proposed = stage.to_coordinator.iter().rev().find_map(|envelope| match &envelope.body {
        Body::ChangeSet { members, .. } => Some(members.iter().map(|member| name(member.node)).collect::<Vec<_>>()),
        _ => None,
    });
    story.finds("B proposes the ISR", proposed, Some(all.to_vec()))?;
    stage.announce(&['B'], SECOND, 'B', &isr(&all), 4);
    stage.settle(&all);
    let members: Vec<char> = stage.replica('B').set().members.iter().map(|member| name(member.node)).collect();
    story.finds("it is recorded; the ISR", members, all.to_vec())?;
    story.finds("HW at the end", stage.replica('B').hw(), 5)?;
    story.finds("HW as A knows it", stage.replica('A').hw(), 5)?;
    assert_eq!(node('A').0, 1, "names and nodes agree");
    Ok(())
}

fn pairs(entries: &[(u32, &str)]) -> Vec<(u32, String)> {
    entries.iter().map(|(epoch, value)| (*epoch, (*value).to_owned())).collect()
}

/// Tells what is under way about the reconciliation.
fn say_messages(story: &mut Story, stage: &Stage, from: char, to: char) {
    for body in stage.messages(from, to) {
        match body {
            Body::Open { end, last_epoch, .. } => {
                let last = last_epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
                story.say(format!("{from} to {to}: my log ends at {end}, its last entry is of epoch {last}"));
            }
            Body::Diverge { epoch, stop, .. } => {
                let epoch = epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
                story.say(format!("{from} to {to}: my epoch {epoch} ends at {stop}; cut there and ask again"));
            }
            _ => {}
        }
    }
}
