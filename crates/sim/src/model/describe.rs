//! Events in words.

use highwater_replica::Timeout;
use highwater_wire::{Body, Envelope, StreamId};

use super::search::Search;
use super::world::{Action, Local};

pub(super) fn action(search: &Search, action: &Action) -> String {
    match action {
        Action::Appoint { epoch, leader, starts, set } => {
            format!(
                "the coordinator records replica {leader} (process {starts}) as leader of {epoch:?}, with the set {set:?}"
            )
        }
        Action::Change(number) => format!("the coordinator applies: {}", message(search.messages.get(*number))),
        Action::At(index, local) => format!("replica {index} {}", at(search, local)),
    }
}

fn at(search: &Search, local: &Local) -> String {
    match local {
        Local::Deliver(number) => format!("receives {}", message(search.messages.get(*number))),
        Local::Flush => "has flushed its whole log".to_owned(),
        Local::Crash(kept) => format!("crashes and starts again with a log of {kept}"),
        Local::Write(id) => format!("is given write {id}"),
        Local::Fire(Timeout::Lagging(member)) => format!("finds that replica {} does not keep up", member.node.0),
        Local::Fire(Timeout::Silent) => "gives its stream up as silent".to_owned(),
        Local::Fire(timeout) => format!("runs out of time: {timeout:?}"),
        Local::Stand => "has heard from no leader, would win, and stands".to_owned(),
        Local::Read(_) => "is asked for a linearizable read".to_owned(),
        Local::Look(_) => "is asked something, and answers from all it has executed".to_owned(),
        Local::Hold => "holds the answer computed last".to_owned(),
        Local::Turn => "has its machine do one thing that it was told".to_owned(),
    }
}

fn message(envelope: &Envelope) -> String {
    let from = match envelope.sender.peer.node.0 as usize {
        super::world::COORDINATOR => "the coordinator".to_owned(),
        node => format!("replica {node} (process {})", envelope.sender.incarnation.starts),
    };
    let epoch = envelope.epoch.map_or("no epoch".to_owned(), |epoch| format!("{epoch:?}"));
    let body = match &envelope.body {
        Body::PromiseRequest { ballot } => format!("a request to promise, ballot {ballot}"),
        Body::Promise { ballot, rank } => {
            format!(
                "a promise for ballot {ballot}, with {} durable entries, the last of {:?}",
                rank.leo, rank.last_epoch
            )
        }
        Body::ChangeSet { version, members } => {
            let members: Vec<u32> = members.iter().map(|member| member.node.0).collect();
            format!("a change of the set to {members:?} upon version {}", version.0)
        }
        Body::Lead(lead) => {
            let members: Vec<u32> = lead.set.members.iter().map(|member| member.node.0).collect();
            format!(
                "that replica {} (process {}) leads, with the set {members:?} at version {}",
                lead.leader.node.0, lead.incarnation.starts, lead.version.0
            )
        }
        Body::Batch { stream, base, batches, hw, .. } if batches.is_empty() => {
            format!("an empty batch at {base} with HW {hw} on stream {}", on(stream))
        }
        Body::Batch { stream, base, hw, .. } => format!("entries from {base} on with HW {hw} on stream {}", on(stream)),
        Body::Open { stream, end, last_epoch } => {
            format!("the opening of stream {} at {end} after {last_epoch:?}", on(stream))
        }
        Body::Accept { stream, hw, .. } => format!("the acceptance of stream {} with HW {hw}", on(stream)),
        Body::Diverge { stream, epoch, stop, .. } => {
            format!("that stream {} diverges: {epoch:?} ends at {stop}", on(stream))
        }
        Body::Ack { stream, leo, .. } => format!("the acknowledgement of {leo} on stream {}", on(stream)),
        body => format!("{body:?}"),
    };
    format!("from {from} in {epoch}: {body}")
}

/// A stream, with the process that opened it.
fn on(stream: &StreamId) -> String {
    format!("{} of process {}", stream.number(), stream.0 >> 32)
}
