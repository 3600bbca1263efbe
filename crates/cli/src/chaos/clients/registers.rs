//! A few registers that all swappers share: compare-and-set, set, and linearizable reads through any node.

use std::sync::atomic::Ordering;

use highwater_history::{Answer as Told, Outcome, What};
use highwater_sim::rng::Rng;
use serde_json::json;

use super::super::ask::{Node, Said, WAIT_MS};
use super::write::{AGAIN_PERCENT, Doubt, direct, outcome, through_client};
use super::{Pace, Shared};

/// How many registers there are.
pub(crate) const REGISTERS: u32 = 4;

/// Works on registers until told to stop.
pub(super) fn run(id: u32, number: u32, shared: &Shared<'_>, mut rng: Rng) -> anyhow::Result<Vec<Doubt>> {
    let mut client = shared.client(id)?;
    let nodes = Node::all(shared.urls);
    let mut pace = Pace::new(shared.every, rng.fork(1));
    let mut doubts = Vec::new();
    // Each stays with its node, whether that leads, follows or is cut off.
    let node = &nodes[number as usize / 2 % nodes.len()];
    let keyed = number % 2 == 1;
    loop {
        pace.wait();
        if shared.stopped() {
            return Ok(doubts);
        }
        let register = rng.below(u64::from(REGISTERS)) as u32;
        let last = &shared.registers[register as usize];
        let value = || shared.value.fetch_add(1, Ordering::Relaxed) + 1;
        let what = match rng.below(10) {
            0..4 => {
                if let Some(value) = get(id, register, node, shared) {
                    last.store(value, Ordering::Relaxed);
                }
                continue;
            }
            4..6 => What::Set { register, value: value() },
            _ => What::Swap { register, expected: last.load(Ordering::Relaxed), value: value() },
        };
        let outcome = if keyed {
            let key = client.new_key();
            let outcome = through_client(id, &what, Some(&key), &mut client, shared);
            match outcome {
                Outcome::Done { .. } if rng.percent(AGAIN_PERCENT) => {
                    let any = &nodes[rng.below(nodes.len() as u64) as usize];
                    direct(id, &what, &format!("wait_ms={WAIT_MS}"), Some(&key), any, shared.recorder);
                }
                Outcome::Unknown { .. } => doubts.push(Doubt { client: id, what: what.clone(), key }),
                _ => {}
            }
            outcome
        } else {
            let (outcome, said) = direct(id, &what, &format!("wait_ms={WAIT_MS}"), None, node, shared.recorder);
            if let Said::Done { position, .. } = said {
                shared.note(&position);
            }
            outcome
        };
        if let (
            Outcome::Done { answer: Some(Told::Changed(1)), .. },
            What::Set { value, .. } | What::Swap { value, .. },
        ) = (outcome, &what)
        {
            last.store(*value, Ordering::Relaxed);
        }
    }
}

/// Reads a register, linearizably.
fn get(id: u32, register: u32, node: &Node, shared: &Shared<'_>) -> Option<u64> {
    let body = json!({"sql": "SELECT value FROM register WHERE id = ?", "args": [register]});
    let op = shared.recorder.invoke(id, Some(node.id), What::Get { register }, None);
    let said = node.ask(&format!("wait_ms={WAIT_MS}"), body.to_string().as_bytes(), None);
    let outcome = outcome(&said, |first| first["rows"][0][0].as_u64().map(Told::Value));
    shared.recorder.end(op, outcome.clone());
    if let Outcome::Done { answer: Some(Told::Value(value)), .. } = outcome { Some(value) } else { None }
}
