//! Why a candidate that lacks a committed entry cannot win, under a majority of five.
//!
//! X was committed on A, B and C in epoch 3. A and B go away; D asks for the votes of C and E. Every majority of the five shares a replica with the
//! one that holds X, here C, and that one votes for nobody whose log is worse than its own.

use highwater_replica::{Input, Role, Timeout};
use highwater_wire::batch::{self, Control};
use highwater_wire::{Body, Epoch, Incarnation, PartitionId, Sender};

use super::Story;
use super::stage::{Stage, node, peer};

const ALL: [char; 5] = ['A', 'B', 'C', 'D', 'E'];
const EPOCH: Epoch = Epoch(3);
const NEXT: Epoch = Epoch(4);

/// Five voters; A leads epoch 3 and has committed X on those `holders`.
fn commit_x(story: &mut Story, holders: &[char]) -> Result<Stage, String> {
    let mut stage = Stage::new(PartitionId::METADATA, &ALL);
    let voters = ALL.iter().map(|one| peer(*one)).collect();
    let mut first = batch::build_control(&Control::Configuration(voters), -1);
    batch::stamp(&mut first, 0, Epoch(0)).map_err(|error| error.to_string())?;
    for one in ALL {
        stage.start(one, Some(&first), Some(Epoch(2)));
    }
    stage.step('A', Input::Timeout(Timeout::Election));
    stage.settle(&ALL);
    story.finds("A leads epoch 3, elected by all", stage.replica('A').leads(EPOCH), true)?;
    let cut_off: Vec<char> = ALL.into_iter().filter(|one| !holders.contains(one)).collect();
    let end = stage.propose('A', EPOCH, "X")?;
    for one in &cut_off {
        stage.cut_off(*one);
    }
    stage.settle(holders);
    story.say(format!("A appends X at offset {}; it reaches {holders:?} and not {cut_off:?}", end - 1));
    story.finds("HW", stage.replica('A').hw(), end)?;
    for one in holders {
        let held = stage.log(*one).last().cloned();
        story.finds(&format!("the last entry of {one}"), held, Some((3, "X".to_owned())))?;
    }
    for one in ALL {
        stage.cut_off(one);
    }
    Ok(stage)
}

/// C, D and E no longer hear from A.
fn silence(stage: &mut Stage) {
    for one in ['C', 'D', 'E'] {
        stage.step(one, Input::Timeout(Timeout::Silent));
        stage.step(one, Input::Disconnected(node('A')));
    }
    for gone in ['A', 'B'] {
        stage.crash(gone);
    }
}

pub(super) fn tell(story: &mut Story) -> Result<(), String> {
    story.act("Epoch 3: X is committed on a majority, A, B and C");
    let mut stage = commit_x(story, &['A', 'B', 'C'])?;
    story.act("A and B are gone; D wants to lead epoch 4 with C and E, another majority");
    silence(&mut stage);
    let shared: Vec<char> = ['A', 'B', 'C'].into_iter().filter(|one| ['C', 'D', 'E'].contains(one)).collect();
    story.finds("in both majorities", shared, vec!['C'])?;
    stage.step('D', Input::Timeout(Timeout::Election));
    let asked = stage.messages('D', 'C').into_iter().find_map(|body| match body {
        Body::Stand { rank, pre } => Some((rank, pre)),
        _ => None,
    });
    let (rank, pre) = asked.ok_or("D asks C before it stands")?;
    story.finds("D asks C whether it would win, before it raises any epoch", pre, true)?;
    story.finds("D's last entry is of epoch", rank.last_epoch, Some(EPOCH))?;
    story.say(format!("D's LEO: {}, C's LEO: {}", rank.leo, stage.replica('C').shape().flushed));
    stage.settle(&['C', 'D', 'E']);
    story.finds("D leads epoch 4", stage.replica('D').leads(NEXT), false)?;
    story.say("C refuses, so only D and E are for D: two of five.");

    story.say("Even if D stood without asking first, C would not vote for it:");
    let sender = Sender { peer: peer('D'), incarnation: Incarnation { starts: 1, random: 0 } };
    let stand = Body::Stand { rank, pre: false };
    let envelope =
        highwater_wire::Envelope { partition: PartitionId::METADATA, sender, epoch: Some(NEXT), body: stand };
    for voter in ['C', 'E'] {
        stage.step(voter, Input::Message(envelope.clone()));
    }
    let vote = |stage: &Stage, from| {
        stage.messages(from, 'D').into_iter().rev().find_map(|body| match body {
            Body::Vote { granted, pre: false } => Some(granted),
            _ => None,
        })
    };
    story.finds("E, which has no X either, votes for D", vote(&stage, 'E'), Some(true))?;
    story.finds("C, which has X, votes for D", vote(&stage, 'C').unwrap_or(false), false)?;

    story.act("The same with X on D as well");
    let mut stage = commit_x(story, &['A', 'B', 'C', 'D'])?;
    silence(&mut stage);
    stage.step('D', Input::Timeout(Timeout::Election));
    stage.settle(&['C', 'D', 'E']);
    let epoch = match stage.replica('D').role() {
        Role::Leader { epoch, .. } => Some(epoch),
        _ => None,
    };
    story.finds("D leads, with the votes of C and E, epoch", epoch, Some(NEXT))?;
    let entries = stage.log('D');
    story.finds("and holds X", entries.contains(&(3, "X".to_owned())), true)?;
    story.finds("as does E now", stage.log('E').contains(&(3, "X".to_owned())), true)?;
    story.finds("HW, through D's own first entry", stage.replica('D').hw(), entries.len() as u64)?;
    Ok(())
}
