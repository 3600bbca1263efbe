//! The laws, judged by what lies on the disks and by what was announced.
//!
//! | Law | Here |
//! |---|---|
//! | one leader for each epoch, ever | [`begins_to_lead`] |
//! | two logs with an entry of the same epoch at the same offset are equal up to it | [`logs_agree`] |
//! | what was committed never changes, and every later leader holds it when it starts | [`announces`], [`begins_to_lead`] |
//! | from its commit it is durable on what the rule names | [`durable_where_promised`] |
//! | HW covers only committed entries and is at most LEO; no cut below an HW once known | [`announces`], [`cuts`] |
//! | the leader's maximal set covers the recorded one | [`covers_record`] |
//! | a reconciliation round lowers (last epoch, end) | [`cuts`] |
//! | when a stream goes live, the follower's log is a prefix of the leader's | [`goes_live`] |
//! | whoever waits is answered once; a write said to be committed is; a linearizable read, and an answer that looked, sees all that was when it arrived, and nothing that is not | [`answers`] |
//! | a write said to have failed is in no log, ever | [`failed_is_nowhere`] |
//! | what readers see, and what a machine is told is committed, are the committed entries | [`shows`] |
//! | once a log was cut, its machine holds nothing of what was cut | [`machine_holds_the_log`] |
//! | once healed, the cluster serves again, also with one replica dead | `live`, from sampled states |
//!
//! What else the protocol promises belongs to the rule `leader` and to losses on purpose, which are not built.

use std::rc::Rc;

use highwater_partition::{Outcome, Ticket};
use highwater_replica::Role;
use highwater_wire::{CommitRule, Epoch};

use super::REPLICAS;
use super::disk::Disk;
use super::world::{Disks, Entry, Facts, Node, Reign, write_of};

type Verdict = Result<(), String>;

fn committed_before(facts: &Facts, epoch: Epoch) -> usize {
    facts.committed.iter().take_while(|(_, at)| *at < epoch).count()
}

/// Whether `log` begins with the first `count` committed entries.
pub(super) fn holds(log: &[Entry], facts: &Facts, count: usize) -> bool {
    log.len() >= count && log.iter().zip(&facts.committed).take(count).all(|(entry, (committed, _))| entry == committed)
}

pub(super) fn begins_to_lead(facts: &mut Facts, index: usize, starts: u64, epoch: Epoch, log: &[Entry]) -> Verdict {
    if let Some(reign) = facts.reigns.iter().find(|reign| reign.epoch == epoch) {
        return Err(format!("one leader for each epoch: replica {} led {epoch:?} before", reign.node));
    }
    if !holds(log, facts, committed_before(facts, epoch)) {
        return Err(format!(
            "every later leader holds what was committed: replica {index} begins {epoch:?} with {log:?}, committed is {:?}",
            facts.committed
        ));
    }
    facts.reigns.push(Reign { epoch, node: index, starts, log: log.to_vec() });
    facts.reigns.sort_by_key(|reign| reign.epoch);
    Ok(())
}

/// A replica announces HW `hw`.
pub(super) fn announces(facts: &mut Facts, index: usize, disk: &Disk, epoch: Epoch, hw: u64) -> Verdict {
    let count = hw as usize;
    if count > disk.durable() {
        return Err(format!("HW is at most LEO: replica {index} announces {hw} with {} durable", disk.durable()));
    }
    if !holds(disk.log(), facts, count.min(facts.committed.len())) {
        return Err(format!(
            "what was committed never changes: replica {index} announces {:?}, committed is {:?}",
            &disk.log()[..count],
            facts.committed
        ));
    }
    let known = facts.committed.len();
    facts.committed.extend(disk.log().iter().take(count).skip(known).map(|entry| (*entry, epoch)));
    facts.known_hw[index] = facts.known_hw[index].max(hw);
    for reign in &facts.reigns {
        if !holds(&reign.log, facts, committed_before(facts, reign.epoch)) {
            return Err(format!(
                "every later leader holds what was committed: replica {} began {:?} with {:?}, committed is {:?}",
                reign.node, reign.epoch, reign.log, facts.committed
            ));
        }
    }
    Ok(())
}

/// Replica `index` cut its log at `to`, which left `after` of `before`.
pub(super) fn cuts(facts: &Facts, index: usize, to: u64, before: &[Entry], after: &[Entry]) -> Verdict {
    let question = |log: &[Entry]| (log.last().map(|entry| entry.epoch), log.len());
    if question(after) >= question(before) {
        return Err(format!(
            "a reconciliation round lowers (last epoch, end): replica {index} went from {before:?} to {after:?}"
        ));
    }
    if to < facts.known_hw[index] {
        return Err(format!(
            "no cut below an HW once known: replica {index} cuts at {to} and had announced HW {}",
            facts.known_hw[index]
        ));
    }
    Ok(())
}

pub(super) fn logs_agree(disks: &Disks<'_>) -> Verdict {
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let (one, other) = (disks[a].log(), disks[b].log());
        let same_epoch = |offset: &usize| one[*offset].epoch == other[*offset].epoch;
        if let Some(last) = (0..one.len().min(other.len())).rev().find(same_epoch)
            && one[..=last] != other[..=last]
        {
            return Err(format!(
                "logs with an entry of one epoch at one offset are equal up to it: replica {a} has {one:?}, replica {b} {other:?}"
            ));
        }
    }
    Ok(())
}

pub(super) fn durable_where_promised(facts: &Facts, disks: &Disks<'_>, rule: CommitRule) -> Verdict {
    let count = facts.committed.len();
    let holders: Vec<usize> = (0..REPLICAS).filter(|index| holds(disks[*index].durable_log(), facts, count)).collect();
    let kept = match rule {
        CommitRule::Quorum { q } => holders.len() >= q as usize,
        CommitRule::Isr { min } => {
            facts.record.set.len() >= min as usize && facts.record.set.iter().all(|member| holders.contains(member))
        }
    };
    if !kept {
        return Err(format!(
            "what is committed is durable on what the rule names: {:?} is on replicas {holders:?}, the set is {:?}",
            facts.committed, facts.record.set
        ));
    }
    Ok(())
}

pub(super) fn covers_record(facts: &Facts, nodes: &[Rc<Node>; REPLICAS]) -> Verdict {
    let (Some(epoch), Some((leader, starts))) = (facts.record.epoch, facts.record.leader) else { return Ok(()) };
    let node = &nodes[leader];
    if node.starts != starts || !node.replica().leads(epoch) {
        return Ok(());
    }
    let mut counted: Vec<usize> = node.replica().set().members.iter().map(|peer| peer.node.0 as usize).collect();
    counted.extend(node.replica().proposed().into_iter().flatten().map(|peer| peer.node.0 as usize));
    if !facts.record.set.iter().all(|member| counted.contains(member)) {
        return Err(format!(
            "the leader's maximal set covers the recorded one: replica {leader} counts {counted:?}, recorded is {:?}",
            facts.record.set
        ));
    }
    Ok(())
}

/// Replica `index` has just accepted its stream.
pub(super) fn goes_live(nodes: &[Rc<Node>; REPLICAS], index: usize) -> Verdict {
    let Role::Follower { epoch, leader } = nodes[index].replica().role() else {
        return Err(format!("only followers have streams: replica {index}"));
    };
    let leader = &nodes[leader.node.0 as usize];
    // A leader that has left the epoch may have been cut since; what it held then can no longer be seen.
    if leader.replica().leads(epoch) && !leader.log().starts_with(nodes[index].log()) {
        return Err(format!(
            "a live stream's log is a prefix of the leader's: replica {index} has {:?}, its leader {:?}",
            nodes[index].log(),
            leader.log()
        ));
    }
    Ok(())
}

/// Replica `index` shows these entries to readers, or tells its machine that they are committed.
pub(super) fn shows(facts: &Facts, index: usize, shown: &[Entry]) -> Verdict {
    if shown.len() > facts.committed.len() || !holds(shown, facts, shown.len()) {
        return Err(format!(
            "readers are shown committed entries alone: replica {index} shows {shown:?}, committed is {:?}",
            facts.committed
        ));
    }
    Ok(())
}

/// A machine whose rewind is not under way holds the beginning of the log, or all of it.
pub(super) fn machine_holds_the_log(index: usize, log: &[Entry], machine: &[Entry]) -> Verdict {
    if !log.starts_with(machine) {
        return Err(format!(
            "a machine holds nothing that was cut from its log: that of replica {index} holds {machine:?}, the log {log:?}"
        ));
    }
    Ok(())
}

/// Replica `index` answers whoever waits with this ticket.
pub(super) fn answers(facts: &mut Facts, index: usize, ticket: Ticket, outcome: &Outcome) -> Verdict {
    let waiting = facts.waiting.remove(&ticket).filter(|waiting| waiting.node == index);
    let waiting = waiting.ok_or_else(|| format!("whoever waits is answered once: {ticket:?} waits no more"))?;
    match (write_of(ticket), outcome) {
        (Some(id), Outcome::Done(position)) => {
            let at = (position.offset as usize).checked_sub(1).and_then(|last| facts.committed.get(last));
            let it_is = |(entry, _): &(Entry, Epoch)| entry.id == id && Some(entry.epoch) == position.epoch;
            if !at.is_some_and(it_is) {
                return Err(format!(
                    "a write is acknowledged once it is committed: replica {index} acknowledges write {id} at {position:?}, committed is {:?}",
                    facts.committed
                ));
            }
        }
        (Some(id), Outcome::Refused(_)) => {
            facts.failed.insert(id);
        }
        (Some(_), Outcome::Unknown(_)) => {}
        (Some(id), Outcome::Truncated { .. }) if facts.committed.iter().all(|(entry, _)| entry.id != id) => {}
        (None, Outcome::Done(position)) if (position.offset as usize) < waiting.floor => {
            return Err(format!(
                "a linearizable read, or an answer that looked, sees what was acknowledged before: it is served at {position:?}, {} were committed when it arrived",
                waiting.floor
            ));
        }
        (None, Outcome::Done(_))
            if !facts.committed.iter().map(|(entry, _)| entry).take(waiting.saw.len()).eq(&waiting.saw) =>
        {
            return Err(format!(
                "an answer leaves once it saw only what is committed: it saw {:?}, committed is {:?}",
                waiting.saw, facts.committed
            ));
        }
        (None, Outcome::Done(_) | Outcome::Lost(_)) => {}
        _ => return Err(format!("an answer is of a kind that was asked for: {ticket:?} is answered {outcome:?}")),
    }
    Ok(())
}

/// A write said to have failed is in no log.
pub(super) fn failed_is_nowhere(facts: &Facts, disks: &Disks<'_>) -> Verdict {
    for (index, disk) in disks.iter().enumerate() {
        if let Some(entry) = disk.log().iter().find(|entry| facts.failed.contains(&entry.id)) {
            return Err(format!(
                "a write said to have failed has no effect, ever: replica {index} has {entry:?} in its log"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
