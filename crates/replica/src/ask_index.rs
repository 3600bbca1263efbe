//! Linearizable reads at a follower: it asks the leader for an index, after the read arrived, and the read is answered from the state up to it.
//!
//! One question serves all reads that arrived before it was sent. Its number holds the start counter, so that an answer to an earlier process of this
//! node is not taken for one to this.

use highwater_wire::{Body, Offset, PeerId};

use crate::state::{Part, Reader, Replica};
use crate::{Effect, ReadError};

impl Replica {
    /// A linearizable read arrived here.
    pub(crate) fn read(&mut self, id: u64, out: &mut Vec<Effect>) {
        match &mut self.part {
            Part::Leader(_) => self.read_at_leader(Reader::Own(id), out),
            Part::Follower(following) => {
                following.waiting.push(id);
                self.ask_index(out);
            }
            Part::Idle | Part::Candidate { .. } => out.push(Effect::Read(id, Err(ReadError::NoLeader))),
        }
    }

    /// Asks for all waiting reads, unless a question is under way.
    fn ask_index(&mut self, out: &mut Vec<Effect>) {
        let Part::Follower(following) = &mut self.part else { panic!("a follower asks for an index") };
        if following.asking.is_some() || following.waiting.is_empty() {
            return;
        }
        self.last_question += 1;
        assert!(self.last_question < 1 << 32, "questions of one process are numbered by 32 bits");
        let number = (self.incarnation.starts << 32) | self.last_question;
        following.asking = Some((number, std::mem::take(&mut following.waiting)));
        self.repeat_question(out);
    }

    /// Sends the question under way, again if need be.
    pub(crate) fn repeat_question(&self, out: &mut Vec<Effect>) {
        let Part::Follower(following) = &self.part else { return };
        if let Some((id, reads)) = &following.asking {
            assert!(!reads.is_empty(), "a question serves somebody");
            self.send(following.leader.node, Body::ReadIndex { id: *id }, out);
        }
    }

    /// The answer of the leader, in the promised epoch.
    pub(crate) fn hear_index(&mut self, from: PeerId, number: u64, index: Option<Offset>, out: &mut Vec<Effect>) {
        let Some(following) = self.part.following_mut().filter(|following| following.leader == from) else { return };
        let Some((_, reads)) = following.asking.take_if(|(asked, _)| *asked == number) else { return };
        assert!(!reads.is_empty(), "a question serves somebody");
        for id in reads {
            out.push(Effect::Read(id, index.ok_or(ReadError::LeadershipLost)));
        }
        self.ask_index(out);
    }
}
