//! Rows that nobody else writes, each in one transaction with the tally.

use std::time::Duration;

use highwater_history::{Ack, Outcome, What};
use highwater_sim::rng::Rng;

use super::super::ask::{Node, WAIT_MS};
use super::write::{AGAIN_PERCENT, Doubt, direct, through_client};
use super::{Pace, Shared};

/// Writes one row after the other until told to stop.
pub(super) fn run(id: u32, shared: &Shared<'_>, mut rng: Rng) -> anyhow::Result<Vec<Doubt>> {
    let mut client = shared.client(id)?;
    let nodes = Node::all(shared.urls);
    let mut pace = Pace::new(shared.every, rng.fork(1));
    let mut doubts = Vec::new();
    let (by_leader, keyed) = (id % 8 == 1, id % 4 != 3);
    for number in 0.. {
        pace.wait();
        if shared.stopped() {
            break;
        }
        let ack = if by_leader { Ack::Leader } else { Ack::Committed };
        let what = What::Row { writer: id, number, value: rng.below(1 << 31) as u32, ack };
        let node = &nodes[rng.below(nodes.len() as u64) as usize];
        if by_leader {
            direct(id, &what, &format!("ack=leader&wait_ms={WAIT_MS}"), None, node, shared.recorder);
            continue;
        }
        let key = keyed.then(|| client.new_key());
        let outcome = through_client(id, &what, key.as_deref(), &mut client, shared);
        match (outcome, key) {
            (Outcome::Done { .. }, Some(key)) if rng.percent(AGAIN_PERCENT) => {
                direct(id, &what, &format!("wait_ms={WAIT_MS}"), Some(&key), node, shared.recorder);
            }
            (Outcome::Unknown { .. }, Some(key)) => doubts.push(Doubt { client: id, what, key }),
            // What fails at once would fail a hundred thousand times.
            // sleep: a pause between attempts at something that may pass.
            (Outcome::Failed { .. }, _) => std::thread::sleep(Duration::from_millis(50)),
            _ => {}
        }
    }
    Ok(doubts)
}
