//! A few registers that all swappers share: compare-and-set, set, and linearizable reads through any node.

use std::sync::atomic::Ordering;

use highwater_client::{Client, Transaction};
use highwater_history::{Answer as Told, Outcome, What};
use highwater_sim::rng::Rng;

use super::super::ask::{Node, Said, WAIT_MS};
use super::{Pace, Shared, outcome, returned};

/// How many registers there are.
pub(crate) const REGISTERS: u32 = 4;

/// Works on registers until told to stop.
pub(super) fn run(id: u32, number: u32, shared: &Shared<'_>, mut rng: Rng) -> anyhow::Result<()> {
    let mut client = shared.client(id)?;
    let nodes = Node::all(shared.urls);
    let mut pace = Pace::new(shared.every, rng.fork(1));
    // Each stays with its node, whether that leads, follows or is cut off.
    let node = &nodes[number as usize / 2 % nodes.len()];
    let keyed = number % 2 == 1;
    loop {
        pace.wait();
        if shared.stopped() {
            return Ok(());
        }
        let register = rng.below(u64::from(REGISTERS)) as u32;
        let last = &shared.registers[register as usize];
        let value = || shared.value.fetch_add(1, Ordering::Relaxed) + 1;
        let what = match rng.below(10) {
            0..4 => What::Get { register },
            4..6 => What::Set { register, value: value() },
            _ => What::Swap { register, expected: last.load(Ordering::Relaxed), value: value() },
        };
        let outcome = match &what {
            What::Get { .. } => direct(id, &what, node, shared),
            _ if keyed => through_client(id, &what, &mut client, shared),
            _ => direct(id, &what, node, shared),
        };
        let Outcome::Done { answer, .. } = outcome else { continue };
        match (&what, answer) {
            (What::Get { .. }, Some(Told::Value(value))) => last.store(value, Ordering::Relaxed),
            (What::Set { value, .. } | What::Swap { value, .. }, Some(Told::Changed(1))) => {
                last.store(*value, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

fn transaction(what: &What) -> Transaction {
    match what {
        What::Set { register, value } => {
            Transaction::of("UPDATE register SET value = ? WHERE id = ?", [(*value).into(), (*register).into()])
        }
        What::Swap { register, expected, value } => Transaction::of(
            "UPDATE register SET value = ? WHERE id = ? AND value = ?",
            [(*value).into(), (*register).into(), (*expected).into()],
        ),
        What::Get { register } => Transaction::of("SELECT value FROM register WHERE id = ?", [(*register).into()]),
        What::Row { .. } | What::Look { .. } => unreachable!("swappers work on registers alone"),
    }
}

fn direct(id: u32, what: &What, node: &Node, shared: &Shared<'_>) -> Outcome {
    let body = serde_json::to_vec(&transaction(what)).expect("a transaction is made of strings, numbers and lists");
    let op = shared.recorder.invoke(id, Some(node.id), what.clone(), None);
    let said = node.ask(&format!("wait_ms={WAIT_MS}"), &body, None);
    let reads = matches!(what, What::Get { .. });
    let outcome = outcome(&said, |results| match reads {
        true => results[0]["rows"][0][0].as_u64().map(Told::Value),
        false => results[0]["affected"].as_u64().map(Told::Changed),
    });
    shared.recorder.end(op, None, outcome.clone());
    if let Said::Done { position, .. } = &said
        && !reads
    {
        shared.note(position);
    }
    outcome
}

fn through_client(id: u32, what: &What, client: &mut Client, shared: &Shared<'_>) -> Outcome {
    let key = client.new_key();
    let op = shared.recorder.invoke(id, None, what.clone(), Some(&key));
    let answer = client.execute_with_key("main", &transaction(what), &key);
    let (sent, outcome) = returned(&answer, |answer| Some(Told::Changed(answer.results.first()?.affected)));
    shared.recorder.end(op, sent, outcome.clone());
    if let Ok(answer) = &answer {
        shared.note(&answer.position.to_string());
    }
    outcome
}
