//! Registration (docs/protocol.md section 9), the coordinator's side.
//!
//! A registration that is already on record is accepted at once: that it was committed stays true. Any other is proposed, and answered only as
//! its command was applied. In particular nothing is *refused* by what this coordinator has applied so far: were it deposed, the record might
//! have moved on, and an honest node would be told that its folder is an older copy.
//!
//! A folder with another log id than the node's present one gets no answer as long as the present one's session lives: either the node's disk was
//! replaced, and its session ends shortly, or two processes go by one id, and the second waits for the first to end.

use highwater_wire::{Body, Incarnation, PartitionId, PeerId, Sender};

use crate::command::{Applied, Command, Void};
use crate::driver::{Action, Coordinator};
use crate::metadata::Metadata;

impl Coordinator {
    /// `Register` arrived.
    pub(crate) fn register(
        &mut self,
        sender: Sender,
        incarnations: &[Incarnation],
        address: &str,
        metadata: &Metadata,
        out: &mut Vec<Action>,
    ) {
        // What contradicts its own envelope was not sent by this version of the program, and gets no answer.
        if incarnations.last() != Some(&sender.incarnation) {
            return;
        }
        if metadata.incarnation(sender.peer) == Some(sender.incarnation) {
            self.sessions.heard(sender.peer.node, self.now);
            out.push(self.registration_answer(sender.peer, sender.incarnation, true));
            return;
        }
        let node = sender.peer.node;
        if metadata.node(node).is_some_and(|present| present.log != sender.peer.log) && self.sessions.alive(node) {
            return;
        }
        let key = (sender.peer, sender.incarnation);
        if self.registering.get(&key).is_none_or(|at| self.overdue(*at)) {
            self.registering.insert(key, self.now);
            out.push(Action::Propose(Command::RegisterNode {
                peer: sender.peer,
                incarnations: incarnations.to_vec(),
                address: address.to_owned(),
            }));
        }
    }

    /// A registration was committed and applied.
    pub(crate) fn registered(
        &mut self,
        peer: PeerId,
        incarnations: &[Incarnation],
        applied: Applied,
        out: &mut Vec<Action>,
    ) {
        let Some(incarnation) = incarnations.last() else { return };
        self.registering.remove(&(peer, *incarnation));
        assert!(
            matches!(applied, Applied::Done | Applied::Void(Void::OlderCopy)),
            "a registration is accepted or an older copy, not {applied:?}"
        );
        let accepted = applied == Applied::Done;
        if accepted {
            self.sessions.returns(peer.node, self.now);
            self.forget_promises(peer, *incarnation);
        }
        out.push(self.registration_answer(peer, *incarnation, accepted));
    }

    fn registration_answer(&self, peer: PeerId, incarnation: Incarnation, accepted: bool) -> Action {
        Action::Send(peer.node, self.envelope(PartitionId::METADATA, None, Body::Registered { incarnation, accepted }))
    }
}
