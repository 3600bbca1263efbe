//! Real nodes with a peer that sends whatever can be sent.
//!
//! Three nodes form a cluster over loopback. The third stops, and the test takes its place: it says the third node's hello, registers as its next start, and sends
//! each kind of message with values at and beyond their bounds, just beside the state that the nodes are in, and at random. The two others go on: a
//! client's writes are acknowledged throughout, and all of them are there in the end.
//!
//! `HIGHWATER_HOSTILE_SECONDS` says for how long (10), `HIGHWATER_FUZZ_SEED` which values.

mod cluster;
mod liar;
mod says;

use std::io::Write;
use std::time::{Duration, Instant};

use highwater_wire::PartitionId;

use cluster::{Cluster, Leaders};
use liar::Liar;
use says::{KINDS, Kind, Says, may_move};

/// Messages of one kind in one round.
const MESSAGES: usize = 40;
/// A machine that is busy with other things may move a leader as well; a message that does so does it every time.
const ATTEMPTS: usize = 4;

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Sends messages of one kind to both nodes, about both partitions.
fn send(cluster: &Cluster, liar: &mut Liar, says: &mut Says, kind: Kind, moving: bool) -> usize {
    let mut sent = 0;
    for _ in 0..MESSAGES {
        for node in [1, 2] {
            for partition in [PartitionId::METADATA, PartitionId(1)] {
                let state = cluster.state(node, partition);
                let envelope = says.one(kind, partition, &state, moving);
                if moving || !may_move(&envelope, &state) {
                    liar.send(cluster, node, &envelope);
                    sent += 1;
                }
            }
        }
    }
    sent
}

/// That messages of this kind that no honest node sends, or that fit nothing, move no leader.
fn moves_nobody(cluster: &mut Cluster, liar: &mut Liar, says: &mut Says, kind: Kind) {
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let before: Leaders = cluster.leaders();
        send(cluster, liar, says, kind, false);
        // Whatever came of them has come by the time that two writes are acknowledged, one behind the other.
        cluster.write();
        cluster.write();
        let after = cluster.leaders();
        if before == after {
            return;
        }
        seen.push((before, after));
    }
    panic!("{kind:?} from a peer moves leaders: {seen:?}");
}

#[test]
fn fuzz_nodes_by_their_peer() {
    let until = Instant::now() + Duration::from_secs(asked("HIGHWATER_HOSTILE_SECONDS", 10));
    let mut says = Says::new(asked("HIGHWATER_FUZZ_SEED", 1));
    let mut cluster = Cluster::form();
    let mut liar = Liar::take_the_place_of_the_third(&mut cluster);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < until {
        for kind in KINDS.into_iter().chain([Kind::Open, Kind::Ack]) {
            moves_nobody(&mut cluster, &mut liar, &mut says, kind);
            cluster.goes_on();
        }
        for kind in KINDS {
            send(&cluster, &mut liar, &mut says, kind, true);
            cluster.write();
            cluster.goes_on();
        }
        liar.register(&cluster);
        rounds += 1;
    }
    cluster.nothing_is_lost();
    let (sent, acknowledged) = (liar.sent(), cluster.acknowledged());
    let _ = writeln!(std::io::stdout(), "{rounds} rounds, {sent} messages, {acknowledged} writes acknowledged");
}
