//! What the liar says: each kind of message, with values that no honest node sends beside some that one might.
//!
//! What a proven peer may say that does move leaders (docs/fault-model.md) is said only where that is expected. Never said is what defeats any number of
//! honest copies: acknowledgements and votes that are lies and could be true, and that the receiver is an older copy.

use bytes::{Bytes, BytesMut};
use highwater_node::Status;
use highwater_wire::batch::{self, Control, Record};
use highwater_wire::check::EPOCH_JUMP_MAX;
use highwater_wire::{
    Body, CommitRule, Envelope, Epoch, Incarnation, Lead, LogId, NodeId, PartitionId, PeerId, Rank, Sender, Set,
    StreamId, Version,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Register,
    Registered,
    Heartbeat,
    PromiseRequest,
    Promise,
    Lead,
    WhoLeads,
    Open,
    Accept,
    Diverge,
    Batch,
    Ack,
    ChangeSet,
    Confirm,
    Confirmed,
    Stand,
    Vote,
    ReadIndex,
    ReadIndexAnswer,
    Refused,
    OlderCopy,
}

pub(crate) const KINDS: [Kind; 21] = [
    Kind::Register,
    Kind::Registered,
    Kind::Heartbeat,
    Kind::PromiseRequest,
    Kind::Promise,
    Kind::Lead,
    Kind::WhoLeads,
    Kind::Open,
    Kind::Accept,
    Kind::Diverge,
    Kind::Batch,
    Kind::Ack,
    Kind::ChangeSet,
    Kind::Confirm,
    Kind::Confirmed,
    Kind::Stand,
    Kind::Vote,
    Kind::ReadIndex,
    Kind::ReadIndexAnswer,
    Kind::Refused,
    Kind::OlderCopy,
];

/// In whose place whoever sends puts itself.
const NOBODY: Sender =
    Sender { peer: PeerId { node: NodeId(0), log: LogId(0) }, incarnation: Incarnation { starts: 0, random: 0 } };

/// Whether a node in that state may rightly act on the epoch that this names.
pub(crate) fn may_move(envelope: &Envelope, state: &Status) -> bool {
    let known = state.epoch.map_or(0, |epoch| epoch.0);
    let named = match &envelope.body {
        Body::Refused { promised } => [envelope.epoch, Some(*promised)],
        _ => [envelope.epoch, None],
    };
    // Somewhat more, since the epoch may have risen since.
    named.iter().flatten().any(|epoch| known < epoch.0 && epoch.0 <= known + EPOCH_JUMP_MAX + 100)
}

pub(crate) struct Says {
    random: u64,
    /// How often the greatest leap of epochs was made: they are not to be used up within one run.
    leaps: u32,
    /// The greatest stream that was opened in a way that a leader accepts.
    opened: u64,
}

impl Says {
    pub(crate) fn new(seed: u64) -> Says {
        Says { random: seed, leaps: 0, opened: 1 << 33 }
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }

    fn yes(&mut self) -> bool {
        self.next() & 1 == 0
    }

    fn number(&mut self, near: u64) -> u64 {
        let random = self.next();
        let far = [0, 1, 1 << 32, (1 << 62) - 1, 1 << 62, (1 << 62) + 1, 1 << 63, u64::MAX - 1, u64::MAX, random];
        let close = [near.saturating_sub(1), near, near + 1, near + 2];
        if self.yes() { self.pick(&far) } else { self.pick(&close) }
    }

    fn epoch(&mut self, state: &Status, moving: bool) -> Option<Epoch> {
        let known = state.epoch.map_or(0, |epoch| epoch.0);
        let leap = known + EPOCH_JUMP_MAX;
        let random = self.next() as u32;
        let mut values = vec![0, known.saturating_sub(1), known, known, known, leap + 200, 1 << 30, (1 << 30) + 1];
        values.extend([i32::MAX as u32 - 1, i32::MAX as u32, u32::MAX]);
        values.push(if random <= leap { known } else { random });
        if moving {
            values.extend([known + 1, known + 1, known + 2]);
            if self.leaps < 8 {
                values.push(leap);
            }
        }
        let value = self.pick(&values);
        self.leaps += u32::from(value == leap);
        (!self.next().is_multiple_of(16)).then_some(Epoch(value))
    }

    fn last_epoch(&mut self, state: &Status) -> Option<Epoch> {
        let known = state.epoch.map_or(0, |epoch| epoch.0);
        let value = self.pick(&[0, known.saturating_sub(1), known, known, known + 1, u32::MAX]);
        (!self.next().is_multiple_of(8)).then_some(Epoch(value))
    }

    fn incarnation(&mut self) -> Incarnation {
        Incarnation { starts: self.number(2), random: self.next() }
    }

    fn peer(&mut self, state: &Status) -> PeerId {
        let known: Vec<PeerId> = state.set.iter().flat_map(|set| &set.members).copied().chain(state.leader).collect();
        if self.yes() && !known.is_empty() {
            return self.pick(&known);
        }
        PeerId { node: NodeId(self.number(3) as u32), log: LogId(self.next()) }
    }

    fn peers(&mut self, state: &Status) -> Vec<PeerId> {
        let count = self.pick(&[0, 1, 2, 3, 3, 4, 257]);
        let mut peers: Vec<PeerId> = (0..count).map(|_| self.peer(state)).collect();
        if self.yes() {
            peers.sort_unstable();
            peers.dedup();
        }
        peers
    }

    fn lead(&mut self, state: &Status) -> Lead {
        let replicas = self.peers(state);
        let members = if self.yes() { replicas.clone() } else { self.peers(state) };
        let count = self.number(2) as u32;
        let rule = if self.yes() { CommitRule::Quorum { q: count } } else { CommitRule::Isr { min: count } };
        let leader = self.peer(state);
        Lead {
            leader,
            incarnation: self.incarnation(),
            replicas,
            set: Set { rule, members },
            version: Version(self.number(2)),
            lossy: self.last_epoch(state),
        }
    }

    fn batches(&mut self, base: u64, epoch: Option<Epoch>) -> Bytes {
        let mut all = BytesMut::new();
        for _ in 0..self.pick(&[0, 1, 2]) {
            let value = Bytes::from_static(b"not what any database writes");
            let mut one = if self.yes() {
                batch::build(&[Record { key: None, value: Some(value) }], 0)
            } else {
                batch::build_control(&Control::Configuration(Vec::new()), 0)
            };
            // What cannot be stamped is sent as it is.
            let _ = batch::stamp(&mut one, base, epoch.unwrap_or(Epoch(0)));
            if self.yes() {
                let at = (self.next() % one.len() as u64) as usize;
                one[at] ^= 1 << (self.next() % 8);
            }
            all.extend_from_slice(&one);
        }
        all.freeze()
    }

    /// One message of that kind; `sender` is put in by whoever sends it.
    pub(crate) fn one(&mut self, kind: Kind, partition: PartitionId, state: &Status, moving: bool) -> Envelope {
        let epoch = self.epoch(state, moving);
        let stream = StreamId(self.number((2 << 32) + 1));
        let rank = Rank { last_epoch: self.last_epoch(state), leo: self.number(state.end) };
        let (end, last_epoch) = (self.number(state.end), self.last_epoch(state));
        let (hw, start) = (self.number(state.hw), self.number(0));
        let body = match kind {
            Kind::Register => {
                let count = self.pick(&[0, 1, 3, 70_000]);
                let one = self.incarnation();
                Body::Register { incarnations: vec![one; count], address: "x".repeat(self.pick(&[0, 255, 256, 9000])) }
            }
            Kind::Registered => Body::Registered { incarnation: self.incarnation(), accepted: self.yes() },
            Kind::Heartbeat => Body::Heartbeat { leaving: self.yes() },
            Kind::PromiseRequest => Body::PromiseRequest { ballot: self.number(1) },
            Kind::Promise => Body::Promise { ballot: self.number(1 << 32), rank },
            Kind::Lead => Body::Lead(self.lead(state)),
            Kind::WhoLeads => Body::WhoLeads,
            Kind::Open if self.yes() => {
                self.opened += 1;
                let open = Body::Open { stream: StreamId(self.opened), end: 0, last_epoch: None };
                return Envelope { partition, sender: NOBODY, epoch: state.epoch, body: open };
            }
            Kind::Open => Body::Open { stream, end, last_epoch },
            Kind::Accept => Body::Accept { stream, end, last_epoch, hw, start },
            Kind::Diverge => {
                Body::Diverge { stream, end, last_epoch, epoch: self.last_epoch(state), stop: self.number(state.hw) }
            }
            Kind::Batch => {
                let base = self.number(state.end);
                Body::Batch { stream, base, batches: self.batches(base, epoch), hw, start }
            }
            Kind::Ack => {
                // Either committed already, or far beyond the end: a lie that could be true is not refused.
                let near = self.pick(&[0, 1, state.hw.saturating_sub(1), state.hw, state.end + 1000]);
                let leo = if self.yes() { near } else { self.pick(&[1 << 62, (1 << 62) + 1, u64::MAX]) };
                let stream = if self.yes() { StreamId(self.opened - self.next() % 4) } else { stream };
                Body::Ack { stream, leo, applied: self.number(state.hw) }
            }
            Kind::ChangeSet => Body::ChangeSet { version: Version(self.number(2)), members: self.peers(state) },
            Kind::Confirm => Body::Confirm { round: self.number(2) },
            Kind::Confirmed => Body::Confirmed { round: self.number(2) },
            Kind::Stand => Body::Stand { rank, pre: self.yes() },
            Kind::Vote => Body::Vote { granted: !moving && self.yes(), pre: self.yes() },
            Kind::ReadIndex => Body::ReadIndex { id: self.number(1 << 32) },
            Kind::ReadIndexAnswer => {
                let index = self.number(state.hw);
                Body::ReadIndexAnswer { id: self.number(1 << 32), index: self.yes().then_some(index) }
            }
            Kind::Refused => Body::Refused { promised: self.epoch(state, moving).unwrap_or(Epoch(0)) },
            Kind::OlderCopy => Body::OlderCopy { refused: self.incarnation(), newest: self.incarnation() },
        };
        Envelope { partition, sender: NOBODY, epoch, body }
    }
}
