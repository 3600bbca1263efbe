//! Events in words.

use highwater_wire::{Body, Envelope};

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
        Local::Fire(timeout) => format!("runs out of time: {timeout:?}"),
        Local::Stand => "has heard from no leader, would win, and stands".to_owned(),
        Local::Read => "is asked for a linearizable read".to_owned(),
    }
}

fn message(envelope: &Envelope) -> String {
    let from = match envelope.sender.peer.node.0 as usize {
        super::world::COORDINATOR => "the coordinator".to_owned(),
        node => format!("replica {node} (process {})", envelope.sender.incarnation.starts),
    };
    let epoch = envelope.epoch.map_or("no epoch".to_owned(), |epoch| format!("{epoch:?}"));
    let body = match &envelope.body {
        Body::PromiseRequest { .. } => "a request to promise".to_owned(),
        Body::Lead(lead) => {
            format!("that replica {} (process {}) leads", lead.leader.node, lead.incarnation.starts)
        }
        Body::Batch { stream, base, batches, hw, .. } if batches.is_empty() => {
            format!("an empty batch at {base} with HW {hw} on stream {}", stream.0)
        }
        Body::Batch { stream, base, hw, .. } => format!("entries from {base} on with HW {hw} on stream {}", stream.0),
        Body::Open { stream, end, last_epoch } => {
            format!("the opening of stream {} at {end} after {last_epoch:?}", stream.0)
        }
        Body::Accept { stream, hw, .. } => format!("the acceptance of stream {} with HW {hw}", stream.0),
        Body::Diverge { stream, epoch, stop, .. } => {
            format!("that stream {} diverges: {epoch:?} ends at {stop}", stream.0)
        }
        Body::Ack { stream, leo, .. } => format!("the acknowledgement of {leo} on stream {}", stream.0),
        body => format!("{body:?}"),
    };
    format!("from {from} in {epoch}: {body}")
}
