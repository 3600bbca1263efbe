//! What can be judged of a message by the message alone.
//!
//! Whoever sends knows the cluster's secret, but may be faulty, of an older build, or lie. The thread that receives calls [`check`] for each envelope
//! before anybody acts on it; what does not fit is refused, and its connection is closed. What only the receiver's state can judge is judged in `replica`,
//! `partition`, `coordinator` and `host`, with the same answer, an [`Unfit`].
//!
//! | Bound | Value | Reason |
//! |---|---|---|
//! | [`OFFSET_MAX`] | 2^62 | an offset plus any count of entries fits into `i64`, which batches hold |
//! | [`Epoch::MAX`] | 2^30 | batches hold epochs as `i32`; ballot numbers hold them in their upper half |
//! | [`STARTS_MAX`] | 2^30 | stream ids and questions hold starts in their upper half |
//! | [`COUNTER_MAX`] | 2^63 | versions, rounds, ballots, streams and questions can be counted on |
//! | [`EPOCH_JUMP_MAX`], [`STARTS_JUMP_MAX`] | 2^20 | judged where the last one is known |
//! | [`PEERS_MAX`] | 256 | replicas, members or voters of one partition |
//! | [`INCARNATIONS_MAX`] | 65,536 | starts since the last acknowledged registration |
//! | [`ADDRESS_BYTES_MAX`] | 255 | a host name and a port, printable |

use std::fmt::Debug;

use crate::batch;
use crate::ids::{Epoch, Incarnation, NodeId, Offset, PeerId, Rank};
use crate::message::{Body, CommitRule, Envelope, Lead};

/// The greatest offset that a message may name.
pub const OFFSET_MAX: Offset = 1 << 62;
/// The greatest start counter.
pub const STARTS_MAX: u64 = 1 << 30;
/// The greatest version, round, ballot number, stream id or number of a question.
pub const COUNTER_MAX: u64 = 1 << 63;
/// By how much a message may exceed the greatest epoch known of its partition: 2^20. A coordinator whose ballots fail counts one up at most every 9.6 seconds
/// in the long run, so a replica that was away meanwhile follows again after 116 days of that; voters that elect each other without rest, one every
/// 150 ms at most, take 43 hours. What is committed in the metadata raises what is known, by however much.
pub const EPOCH_JUMP_MAX: u32 = 1 << 20;
/// By how much a message may exceed the greatest start counter known of its sender's folder: 2^20, twelve days of one start every second.
pub const STARTS_JUMP_MAX: u64 = 1 << 20;
/// The most replicas, members or voters that a message may name.
pub const PEERS_MAX: usize = 256;
/// The most incarnations that a registration may state.
pub const INCARNATIONS_MAX: usize = 1 << 16;
/// The most bytes of an address.
pub const ADDRESS_BYTES_MAX: usize = 255;

/// Why a message is refused. No node that keeps the protocol sends such a one, however late it arrives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[error("{wanted}; found {found}")]
pub struct Unfit {
    /// What was wanted. A fixed text, by which repeated refusals are told apart from new ones.
    pub wanted: &'static str,
    /// What was found.
    pub found: String,
}

impl Unfit {
    /// A refusal that shows what was found.
    pub fn new(wanted: &'static str, found: impl Debug) -> Unfit {
        Unfit { wanted, found: format!("{found:?}") }
    }

    /// `Ok` if the condition holds.
    ///
    /// # Errors
    /// The refusal, if not.
    pub fn unless(holds: bool, wanted: &'static str, found: impl Debug) -> Result<(), Unfit> {
        if holds { Ok(()) } else { Err(Unfit::new(wanted, found)) }
    }
}

/// Judges an envelope by itself.
///
/// # Errors
/// The first thing that no honest node sends.
pub fn check(envelope: &Envelope) -> Result<(), Unfit> {
    check_incarnation(envelope.sender.incarnation)?;
    if let Some(epoch) = envelope.epoch {
        check_epoch(epoch)?;
    }
    match (&envelope.body, envelope.epoch) {
        (Body::Register { incarnations, address }, _) => {
            check_registration(envelope.sender.incarnation, incarnations, address)
        }
        (Body::Registered { incarnation, .. }, _) => check_incarnation(*incarnation),
        (Body::Heartbeat { .. } | Body::WhoLeads, _) => Ok(()),
        (Body::OlderCopy { refused, newest }, _) => {
            check_incarnation(*refused)?;
            check_incarnation(*newest)?;
            let later = refused != newest && newest.starts >= refused.starts;
            Unfit::unless(later, "an older copy is refused for a later start", (refused, newest))
        }
        (Body::Refused { promised }, _) => check_epoch(*promised),
        (Body::Vote { granted, .. }, None) => Unfit::unless(!granted, "a vote names its epoch", envelope.sender),
        (_, None) => Err(Unfit::new("this kind of message names an epoch", envelope.epoch)),
        (body, Some(epoch)) => check_in(epoch, body),
    }
}

/// What belongs to an epoch.
fn check_in(epoch: Epoch, body: &Body) -> Result<(), Unfit> {
    match body {
        Body::PromiseRequest { ballot } => counter(*ballot),
        Body::Promise { ballot, rank } => {
            counter(*ballot)?;
            check_rank(epoch, *rank)
        }
        Body::Stand { rank, .. } => check_rank(epoch, *rank),
        Body::Lead(lead) => check_lead(epoch, lead),
        Body::Open { stream, end, last_epoch } => {
            counter(stream.0)?;
            check_end(epoch, *end, *last_epoch)
        }
        Body::Accept { stream, end, last_epoch, hw, start } => {
            counter(stream.0)?;
            check_end(epoch, *end, *last_epoch)?;
            offset(*hw)?;
            offset(*start)
        }
        Body::Diverge { stream, end, last_epoch, epoch: theirs, stop } => {
            counter(stream.0)?;
            check_end(epoch, *end, *last_epoch)?;
            offset(*stop)?;
            let names = theirs <= last_epoch && theirs.is_some() == (*stop > 0);
            Unfit::unless(names, "logs part at the end of an epoch not above the one asked", (last_epoch, theirs, stop))
        }
        Body::Batch { stream, base, batches, hw, start } => {
            counter(stream.0)?;
            offset(*hw)?;
            offset(*start)?;
            check_batches(epoch, *base, batches)
        }
        Body::Ack { stream, leo, applied } => {
            counter(stream.0)?;
            offset(*leo)?;
            offset(*applied)
        }
        Body::ChangeSet { version, members } => {
            counter(version.0)?;
            check_peers(members)
        }
        Body::Confirm { round } | Body::Confirmed { round } => counter(*round),
        Body::ReadIndex { id } => counter(*id),
        Body::ReadIndexAnswer { id, index } => {
            counter(*id)?;
            offset(index.unwrap_or(0))
        }
        Body::Vote { .. } => Ok(()),
        Body::Register { .. }
        | Body::Registered { .. }
        | Body::Heartbeat { .. }
        | Body::WhoLeads
        | Body::Refused { .. }
        | Body::OlderCopy { .. } => Ok(()), // Judged without their epoch.
    }
}

fn check_registration(sender: Incarnation, incarnations: &[Incarnation], address: &str) -> Result<(), Unfit> {
    let many = incarnations.len();
    Unfit::unless(many <= INCARNATIONS_MAX, "a registration states at most 65,536 incarnations", many)?;
    let own = incarnations.last() == Some(&sender);
    Unfit::unless(own, "the last incarnation of a registration is its sender's", incarnations.last())?;
    let rises = incarnations.windows(2).all(|pair| pair[0].starts <= pair[1].starts);
    Unfit::unless(rises, "the incarnations of a registration come in the order of their starts", sender)?;
    Unfit::unless(check_address(address), "an address has at most 255 printable bytes", address.len())
}

/// Whether a node may state this address.
pub fn check_address(address: &str) -> bool {
    address.len() <= ADDRESS_BYTES_MAX && !address.chars().any(char::is_control)
}

fn check_lead(epoch: Epoch, lead: &Lead) -> Result<(), Unfit> {
    let members = &lead.set.members;
    check_incarnation(lead.incarnation)?;
    counter(lead.version.0)?;
    check_peers(&lead.replicas)?;
    check_peers(members)?;
    Unfit::unless(lead.lossy <= Some(epoch), "a lossy epoch on record is not a later one", lead.lossy)?;
    let within = members.iter().all(|member| lead.replicas.binary_search(member).is_ok());
    Unfit::unless(within, "members are replicas", members)?;
    let leads = members.binary_search(&lead.leader).is_ok();
    Unfit::unless(leads, "a leader is a member of its set", (lead.leader, members))?;
    let (CommitRule::Isr { min: count } | CommitRule::Quorum { q: count }) = lead.set.rule;
    let kept = count >= 1 && count as usize <= members.len();
    Unfit::unless(kept, "a commit rule counts from one to all members", (lead.set.rule, members.len()))?;
    let whole = matches!(lead.set.rule, CommitRule::Isr { .. }) || *members == lead.replicas;
    Unfit::unless(whole, "under quorum all replicas are members", (members.len(), lead.replicas.len()))
}

/// Whole batches that lie one behind the other from `base` on, of epochs that do not fall and are none above `epoch`. Their checksums are not looked at.
fn check_batches(epoch: Epoch, base: Offset, batches: &bytes::Bytes) -> Result<(), Unfit> {
    offset(base)?;
    let (mut next, mut last) = (base, None);
    for item in batch::split(batches) {
        let (header, _) = item.map_err(|error| Unfit::new("entries come as whole batches", error))?;
        let follows = header.base == next && Some(header.epoch) >= last && header.epoch <= epoch;
        Unfit::unless(follows, "batches follow each other in offsets and epochs", (next, header.base, header.epoch))?;
        next += header.count; // Both are far below 2^63: reading the header has checked their sum.
        last = Some(header.epoch);
    }
    offset(next)
}

/// The end of a log with the epoch of its last entry, as stated in `epoch`.
fn check_end(epoch: Epoch, end: Offset, last_epoch: Option<Epoch>) -> Result<(), Unfit> {
    offset(end)?;
    Unfit::unless(
        last_epoch.is_none() == (end == 0),
        "a log has a last epoch exactly if it has entries",
        (end, last_epoch),
    )?;
    Unfit::unless(last_epoch <= Some(epoch), "no log has entries of an epoch that was not entered", (last_epoch, epoch))
}

/// The rank of a log, stated to be elected or appointed in `epoch`, of which it has no entry yet.
fn check_rank(epoch: Epoch, rank: Rank) -> Result<(), Unfit> {
    check_end(epoch, rank.leo, rank.last_epoch)?;
    Unfit::unless(rank.last_epoch < Some(epoch), "an epoch that begins has no entries", (rank.last_epoch, epoch))
}

fn check_peers(peers: &[PeerId]) -> Result<(), Unfit> {
    Unfit::unless((1..=PEERS_MAX).contains(&peers.len()), "a partition has 1 to 256 peers", peers.len())?;
    let sorted = peers.windows(2).all(|pair| pair[0] < pair[1]);
    Unfit::unless(
        sorted,
        "peers are sorted and named once",
        peers.iter().map(|peer| peer.node).collect::<Vec<NodeId>>(),
    )
}

fn check_incarnation(incarnation: Incarnation) -> Result<(), Unfit> {
    Unfit::unless(incarnation.starts <= STARTS_MAX, "a folder was started at most 2^30 times", incarnation.starts)
}

fn check_epoch(epoch: Epoch) -> Result<(), Unfit> {
    Unfit::unless(epoch <= Epoch::MAX, "epochs are at most 2^30", epoch)
}

fn offset(offset: Offset) -> Result<(), Unfit> {
    Unfit::unless(offset <= OFFSET_MAX, "offsets are at most 2^62", offset)
}

fn counter(number: u64) -> Result<(), Unfit> {
    Unfit::unless(number <= COUNTER_MAX, "versions, rounds, ballots, streams and questions are at most 2^63", number)
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
