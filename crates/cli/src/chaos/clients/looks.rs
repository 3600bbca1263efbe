//! Reads of the rows, at every freshness.

use highwater_history::{Answer as Told, Freshness, Seen, TAIL, What};
use highwater_sim::rng::Rng;
use serde_json::{Value, json};

use super::super::ask::{Node, Said, WAIT_MS, position};
use super::write::outcome;
use super::{Pace, Shared};

/// How long a node is told to wait for a position, in milliseconds.
const POSITION_WAIT_MS: u64 = 500;

/// Reads until told to stop.
pub(super) fn run(id: u32, number: u32, shared: &Shared<'_>, mut rng: Rng) {
    let nodes = Node::all(shared.urls);
    let mut pace = Pace::new(shared.every, rng.fork(1));
    let freshness =
        [Freshness::Eventual, Freshness::Session, Freshness::AtLeast, Freshness::Linearizable][number as usize % 4];
    let body = serde_json::to_vec(&json!({ "sql": sql() })).expect("a request is made of strings");
    // What the session has seen.
    let mut session: Option<String> = None;
    loop {
        pace.wait();
        if shared.stopped() {
            return;
        }
        let least = match freshness {
            Freshness::Session => session.clone(),
            Freshness::AtLeast => shared.position.lock().expect("nobody panics with a position").clone(),
            Freshness::Linearizable | Freshness::Eventual => None,
        };
        // A session that stays with one node would see little.
        let at =
            if freshness == Freshness::Session { rng.below(nodes.len() as u64) as usize } else { number as usize / 4 };
        let node = &nodes[at % nodes.len()];
        let query = match (&least, freshness) {
            (_, Freshness::Linearizable) => format!("wait_ms={WAIT_MS}"),
            (None, _) => "freshness=eventual".into(),
            (Some(least), _) => format!("freshness=eventual&min_position={least}&wait_ms={POSITION_WAIT_MS}"),
        };
        let what = What::Look { freshness, least: least.as_deref().and_then(position) };
        let op = shared.recorder.invoke(id, Some(node.id), what, None);
        let said = node.ask(&query, &body, None);
        shared.recorder.end(op, outcome(&said, seen));
        if let Said::Done { position, .. } = said {
            session = Some(position);
        }
    }
}

/// One statement, so that all of it is of one state.
fn sql() -> String {
    let newest = format!("FROM chaos WHERE rowid > (SELECT coalesce(max(rowid), 0) FROM chaos) - {TAIL}");
    format!(
        "SELECT count, chain, (SELECT coalesce(max(rowid), 0) FROM chaos), (SELECT count(*) {newest}), \
         (SELECT coalesce(sum(value), 0) {newest}) FROM tally"
    )
}

fn seen(first: &Value) -> Option<Told> {
    let cell = |at: usize| first["rows"][0][at].as_u64();
    Some(Told::Seen(Seen { count: cell(0)?, chain: cell(1)?, rowid: cell(2)?, tail: cell(3)?, tail_sum: cell(4)? }))
}
