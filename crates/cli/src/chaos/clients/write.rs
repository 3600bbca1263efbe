//! Writes, through the Rust client or directly, and asking for them again.

use std::time::Instant;

use highwater_client::{Answer, Client, Error, Transaction};
use highwater_history::{Answer as Told, Outcome, Position, What};

use super::super::ask::{Node, Said, position};
use super::super::recorder::Recorder;
use super::Shared;

/// How many of a hundred acknowledged writes with a key are asked for once more, with the same key, of any node.
pub(super) const AGAIN_PERCENT: u64 = 5;

/// A write with a key of which it is not known what became of it.
pub(crate) struct Doubt {
    pub(super) client: u32,
    pub(super) what: What,
    pub(super) key: String,
}

/// The transaction that does it.
pub(super) fn transaction(what: &What) -> Transaction {
    match what {
        What::Row { writer, number, value, .. } => Transaction::of(
            "INSERT INTO chaos (writer, number, value) VALUES (?, ?, ?)",
            [(*writer).into(), (*number).into(), (*value).into()],
        )
        .and("UPDATE tally SET count = count + 1, chain = (chain * 31 + ?) % 2147483647", [(*value).into()]),
        What::Set { register, value } => {
            Transaction::of("UPDATE register SET value = ? WHERE id = ?", [(*value).into(), (*register).into()])
        }
        What::Swap { register, expected, value } => Transaction::of(
            "UPDATE register SET value = ? WHERE id = ? AND value = ?",
            [(*value).into(), (*register).into(), (*expected).into()],
        ),
        What::Get { .. } | What::Look { .. } => unreachable!("what reads is no write"),
    }
}

/// What the first statement's result says.
fn told(what: &What, affected: Option<u64>, last_insert_rowid: Option<u64>) -> Option<Told> {
    match what {
        What::Row { .. } => last_insert_rowid.map(Told::Rowid),
        _ => affected.map(Told::Changed),
    }
}

/// Writes through the Rust client, which looks for the leader and, with a key, tries until its deadline.
pub(super) fn through_client(
    id: u32,
    what: &What,
    key: Option<&str>,
    client: &mut Client,
    shared: &Shared<'_>,
) -> Outcome {
    let transaction = transaction(what);
    let op = shared.recorder.invoke(id, None, what.clone(), key);
    let answer = match key {
        Some(key) => client.execute_with_key("main", &transaction, key),
        None => client.execute_unkeyed("main", &transaction),
    };
    let (sent, outcome) = returned(what, &answer);
    let node = answer.as_ref().ok().and_then(|answer| (1..).zip(shared.urls).find(|(_, url)| **url == answer.url));
    shared.recorder.ended(op, sent, node.map(|(id, _)| id), outcome.clone());
    if let Ok(answer) = &answer {
        shared.note(&answer.position.to_string());
    }
    outcome
}

/// What the Rust client returned, with when the attempt left that was answered.
fn returned(what: &What, answer: &Result<Answer, Error>) -> (Option<Instant>, Outcome) {
    let at = |position: &highwater_client::Position| Position {
        epoch: position.epoch.map(|epoch| epoch.0),
        offset: position.offset,
    };
    match answer {
        Ok(answer) => {
            let first = answer.results.first();
            let told = first.and_then(|first| told(what, Some(first.affected), Some(first.last_insert_rowid as u64)));
            (Some(answer.sent), Outcome::Done { position: at(&answer.position), answer: told })
        }
        Err(Error::Unreadable { position, .. }) => (None, Outcome::Done { position: at(position), answer: None }),
        Err(Error::Failed(failed)) => (None, Outcome::Failed { code: failed.code.clone() }),
        Err(Error::Unknown { reason, .. }) => (None, Outcome::Unknown { code: code(reason).into() }),
    }
}

/// The server's code, with which the reason of an unknown outcome ends if a server said so.
fn code(reason: &str) -> &str {
    let last = reason.strip_suffix(')').and_then(|reason| reason.rsplit_once('(')).map(|(_, code)| code);
    let is_code = |code: &&str| code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let own = if reason.contains("no answer") { "NO_ANSWER" } else { "CONNECTION_BROKEN" };
    last.filter(is_code).unwrap_or(own)
}

/// Writes by asking one node, once. `query` is what follows the question mark.
pub(super) fn direct(
    id: u32,
    what: &What,
    query: &str,
    key: Option<&str>,
    node: &Node,
    recorder: &Recorder,
) -> (Outcome, Said) {
    let body = serde_json::to_vec(&transaction(what)).expect("a transaction is made of strings, numbers and lists");
    let op = recorder.invoke(id, Some(node.id), what.clone(), key);
    let said = node.ask(query, &body, key);
    let outcome = outcome(&said, |first| told(what, first["affected"].as_u64(), first["last_insert_rowid"].as_u64()));
    recorder.end(op, outcome.clone());
    (outcome, said)
}

/// What a node said, as an outcome. `told` reads the first statement's result.
pub(super) fn outcome(said: &Said, told: impl FnOnce(&serde_json::Value) -> Option<Told>) -> Outcome {
    match said {
        Said::Done { results, position: at } => match position(at) {
            Some(position) => Outcome::Done { position, answer: told(&results[0]) },
            None => Outcome::Unknown { code: "MALFORMED".into() },
        },
        Said::Failed(code) => Outcome::Failed { code: code.clone() },
        Said::Unknown(code) => Outcome::Unknown { code: code.clone() },
    }
}

/// Asks about what is still unknown, with the same keys, which does nothing twice.
pub(crate) fn ask_again(doubts: &[Doubt], client: &mut Client, shared: &Shared<'_>) {
    for doubt in doubts {
        through_client(doubt.client, &doubt.what, Some(&doubt.key), client, shared);
    }
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn codes_are_found_where_there_are_some() {
        assert_eq!(code("leadership was lost (LEADERSHIP_LOST)"), "LEADERSHIP_LOST");
        assert_eq!(code("an earlier attempt was not answered: it is (really) gone (NOT_LEADER)"), "NOT_LEADER");
        assert_eq!(code("http://127.0.0.1:1: Connection reset by peer (os error 104)"), "CONNECTION_BROKEN");
        assert_eq!(code("http://127.0.0.1:1: no answer in time"), "NO_ANSWER");
    }
}
