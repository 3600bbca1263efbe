//! Request bodies and batons that no client made.

use highwater_fuzz::fuzz;
use highwater_wire::{Incarnation, NodeId};

use crate::hrana::baton::Baton;
use crate::hrana::types::PipelineRequest;
use crate::plain::statements;

#[test]
fn fuzz_plain_requests() {
    let samples: Vec<Vec<u8>> = [
        r#"{"sql": "INSERT INTO t VALUES (?, ?, ?)", "args": [1, null, {"base64": "AAEC"}]}"#,
        r#"{"sql": "SELECT :a", "args": {"a": -1.5e3}}"#,
        r#"{"statements": [{"sql": "SELECT 1"}, {"sql": "SELECT ?", "args": ["x", true]}]}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    fuzz(
        &samples,
        |_| {},
        |input| match statements(input, 4) {
            Ok(statements) => {
                assert!((1..=4).contains(&statements.len()), "as many statements as allowed");
                format!("{:?}", statements.iter().map(|one| one.args.len().min(2)).collect::<Vec<_>>())
            }
            Err(failure) => format!("{failure:?}").chars().take(60).collect(),
        },
    );
}

#[test]
fn fuzz_pipelines() {
    let samples: Vec<Vec<u8>> = [
        r#"{"baton": null, "requests": [{"type": "execute", "stmt": {"sql": "SELECT ?", "args": [{"type": "integer", "value": "5"}], "want_rows": true}}, {"type": "close"}]}"#,
        r#"{"requests": [{"type": "batch", "batch": {"steps": [{"stmt": {"sql": "BEGIN"}}, {"condition": {"type": "and", "conds": [{"type": "ok", "step": 0}, {"type": "not", "cond": {"type": "is_autocommit"}}]}, "stmt": {"sql_id": 3, "named_args": [{"name": "a", "value": {"type": "blob", "base64": "AAEC"}}]}}]}}]}"#,
        r#"{"requests": [{"type": "store_sql", "sql_id": 1, "sql": "SELECT 1"}, {"type": "sequence", "sql_id": 1}, {"type": "describe", "sql": "SELECT 2"}, {"type": "get_autocommit"}]}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    fuzz(
        &samples,
        |_| {},
        |input| match serde_json::from_slice::<PipelineRequest>(input) {
            Ok(request) => format!("{:?}", request.requests.iter().map(std::mem::discriminant).collect::<Vec<_>>()),
            Err(error) => error.to_string(),
        },
    );
}

#[test]
fn fuzz_batons() {
    let key = [7; 32];
    let baton = Baton {
        node: NodeId(7),
        incarnation: Incarnation { starts: 3, random: u64::MAX },
        stream: 42,
        sequence: 1,
        in_transaction: true,
    };
    let sealed = baton.seal(&key);
    fuzz(
        &[sealed.clone().into_bytes()],
        |_| {},
        |input| {
            let Ok(text) = std::str::from_utf8(input) else { return "no text".to_owned() };
            match Baton::open(text, &key) {
                Some(opened) => {
                    assert!(opened == baton && text == sealed, "only what was sealed opens: {text:?}");
                    "opens".to_owned()
                }
                None => "refused".to_owned(),
            }
        },
    );
}
