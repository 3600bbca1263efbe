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
//! | a linearizable read sees everything acknowledged before it arrived | [`reads`] |
//! | once healed, the cluster serves again, also with one replica dead | `live`, from sampled states |
//!
//! What else the protocol promises belongs to the rule `leader` and to losses on purpose, which are not built.

use std::rc::Rc;

use highwater_replica::Role;
use highwater_wire::{CommitRule, Epoch};

use super::REPLICAS;
use super::world::{Entry, Facts, Node, Reign};

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
pub(super) fn announces(facts: &mut Facts, index: usize, node: &Node, hw: u64) -> Verdict {
    let count = hw as usize;
    if count > node.durable {
        return Err(format!("HW is at most LEO: replica {index} announces {hw} with {} durable", node.durable));
    }
    if !holds(&node.log, facts, count.min(facts.committed.len())) {
        return Err(format!(
            "what was committed never changes: replica {index} announces {:?}, committed is {:?}",
            &node.log[..count],
            facts.committed
        ));
    }
    let epoch = node.replica.promised().ok_or("HW without an epoch")?;
    let known = facts.committed.len();
    facts.committed.extend(node.log.iter().take(count).skip(known).map(|entry| (*entry, epoch)));
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

pub(super) fn logs_agree(nodes: &[Rc<Node>; REPLICAS]) -> Verdict {
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let (one, other) = (&nodes[a].log, &nodes[b].log);
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

pub(super) fn durable_where_promised(facts: &Facts, nodes: &[Rc<Node>; REPLICAS], rule: CommitRule) -> Verdict {
    let count = facts.committed.len();
    let holders: Vec<usize> = (0..REPLICAS).filter(|index| holds(nodes[*index].durable_log(), facts, count)).collect();
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
    if node.starts != starts || !node.replica.leads(epoch) {
        return Ok(());
    }
    let mut counted: Vec<usize> = node.replica.set().members.iter().map(|peer| peer.node.0 as usize).collect();
    counted.extend(node.replica.proposed().into_iter().flatten().map(|peer| peer.node.0 as usize));
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
    let Role::Follower { epoch, leader } = nodes[index].replica.role() else {
        return Err(format!("only followers have streams: replica {index}"));
    };
    let leader = &nodes[leader.node.0 as usize];
    // A leader that has left the epoch may have been cut since; what it held then can no longer be seen.
    if leader.replica.leads(epoch) && !leader.log.starts_with(&nodes[index].log) {
        return Err(format!(
            "a live stream's log is a prefix of the leader's: replica {index} has {:?}, its leader {:?}",
            nodes[index].log, leader.log
        ));
    }
    Ok(())
}

/// Read number `number` is given an index.
pub(super) fn reads(facts: &mut Facts, number: u64, index: u64) -> Verdict {
    let floor = facts.read_floors.remove(&number).ok_or("a read was answered twice")?;
    if index < floor {
        return Err(format!(
            "a linearizable read sees what was acknowledged before: its index is {index}, {floor} were committed when it arrived"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
