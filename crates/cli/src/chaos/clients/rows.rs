//! Rows that nobody else writes, each in one transaction with the tally.

use std::time::Duration;

use highwater_client::{Client, Transaction};
use highwater_history::{Ack, Answer as Told, Outcome, What};
use highwater_sim::rng::Rng;

use super::super::ask::{Node, Said, WAIT_MS};
use super::super::recorder::Recorder;
use super::{Pace, Shared, outcome, returned};

/// How many of a hundred acknowledged rows are asked for once more, with the same key, of any node.
const AGAIN_PERCENT: u64 = 5;

/// A row of which it is not known what became of it, and the key to ask with.
pub(crate) struct Doubt {
    client: u32,
    row: What,
    key: String,
}

/// The transaction that writes it.
fn transaction(row: &What) -> Transaction {
    let What::Row { writer, number, value, .. } = row else { unreachable!("rows alone are inserted") };
    Transaction::of(
        "INSERT INTO chaos (writer, number, value) VALUES (?, ?, ?)",
        [(*writer).into(), (*number).into(), (*value).into()],
    )
    .and("UPDATE tally SET count = count + 1, chain = (chain * 31 + ?) % 2147483647", [(*value).into()])
}

/// Writes one row after the other until told to stop.
pub(super) fn run(id: u32, shared: &Shared<'_>, mut rng: Rng) -> anyhow::Result<Vec<Doubt>> {
    let mut client = shared.client(id)?;
    let nodes = Node::all(shared.urls);
    let mut pace = Pace::new(shared.every, rng.fork(1));
    let mut doubts = Vec::new();
    let (keyed, by_leader) = (id % 4 != 3 && id % 8 != 1, id % 8 == 1);
    for number in 0.. {
        pace.wait();
        if shared.stopped() {
            break;
        }
        let ack = if by_leader { Ack::Leader } else { Ack::Committed };
        let row = What::Row { writer: id, number, value: rng.below(1 << 31) as u32, ack };
        if by_leader {
            leader_alone(id, &row, &nodes[(rng.next() % nodes.len() as u64) as usize], shared);
            continue;
        }
        let key = keyed.then(|| client.new_key());
        match write(id, &row, key.as_deref(), &mut client, shared.recorder) {
            Outcome::Done { position, .. } => {
                let epoch = position.epoch.map_or("-".into(), |epoch| epoch.to_string());
                shared.note(&format!("1:{epoch}:{}", position.offset));
                if let Some(key) = key.filter(|_| rng.percent(AGAIN_PERCENT)) {
                    repeat(id, &row, &key, &nodes[rng.below(nodes.len() as u64) as usize], shared);
                }
            }
            // What fails at once would fail a hundred thousand times.
            // sleep: a pause between attempts at something that may pass.
            Outcome::Failed { .. } => std::thread::sleep(Duration::from_millis(50)),
            Outcome::Unknown { .. } => doubts.extend(key.map(|key| Doubt { client: id, row, key })),
        }
    }
    Ok(doubts)
}

fn write(id: u32, row: &What, key: Option<&str>, client: &mut Client, recorder: &Recorder) -> Outcome {
    let transaction = transaction(row);
    let op = recorder.invoke(id, None, row.clone(), key);
    let answer = match key {
        Some(key) => client.execute_with_key("main", &transaction, key),
        None => client.execute_unkeyed("main", &transaction),
    };
    let (sent, outcome) =
        returned(&answer, |answer| Some(Told::Rowid(answer.results.first()?.last_insert_rowid as u64)));
    recorder.end(op, sent, outcome.clone());
    outcome
}

/// A row that is acknowledged as soon as the leader has it.
fn leader_alone(id: u32, row: &What, node: &Node, shared: &Shared<'_>) {
    direct(id, row, &format!("ack=leader&wait_ms={WAIT_MS}"), None, node, shared);
}

/// Asks again for what is done already.
fn repeat(id: u32, row: &What, key: &str, node: &Node, shared: &Shared<'_>) {
    direct(id, row, &format!("wait_ms={WAIT_MS}"), Some(key), node, shared);
}

fn direct(id: u32, row: &What, query: &str, key: Option<&str>, node: &Node, shared: &Shared<'_>) {
    let body = serde_json::to_vec(&transaction(row)).expect("a transaction is made of strings, numbers and lists");
    let op = shared.recorder.invoke(id, Some(node.id), row.clone(), key);
    let said: Said = node.ask(query, &body, key);
    let outcome = outcome(&said, |results| results[0]["last_insert_rowid"].as_u64().map(Told::Rowid));
    shared.recorder.end(op, None, outcome);
}

/// Asks about what is still unknown, with the same keys, which does nothing twice.
pub(crate) fn ask_again(doubts: &[Doubt], client: &mut Client, recorder: &Recorder) {
    for doubt in doubts {
        write(doubt.client, &doubt.row, Some(&doubt.key), client, recorder);
    }
}
