//! The SQL functions of ours give the answers of SQLite's: compared with a plain connection on random and on awkward arguments.

mod common;

use common::{Bench, statement};
use highwater_sql::{Statement, Value};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rusqlite::types::Value as Theirs;

/// Each function with as many arguments as it takes.
const CALLS: [(&str, usize); 15] = [
    ("instr(?1, ?2)", 2),
    ("concat(?1, ?2, ?3)", 3),
    ("concat_ws(?1, ?2, ?3)", 3),
    ("replace(?1, ?2, ?3)", 3),
    ("trim(?1)", 1),
    ("trim(?1, ?2)", 2),
    ("ltrim(?1, ?2)", 2),
    ("rtrim(?1, ?2)", 2),
    ("unhex(?1, ?2)", 2),
    ("?1 LIKE ?2", 2),
    ("?1 GLOB ?2", 2),
    ("?1 LIKE ?2 ESCAPE ?3", 3),
    ("?1 LIKE ?2 ESCAPE '%'", 2),
    ("?1 LIKE ?2 ESCAPE '_'", 2),
    ("?1 GLOB '*' || ?2 || '*' || ?3", 3),
];

/// Pieces of which texts are made: what has a meaning to some function, characters of every length, and what is no UTF-8.
const PIECES: [&[u8]; 34] = [
    b"a",
    b"A",
    b"b",
    b"ab",
    b"%",
    b"_",
    b"*",
    b"?",
    b"[",
    b"]",
    b"^",
    b"-",
    b"[a-b]",
    b"[^a]",
    b"[]a]",
    b"\\",
    b" ",
    b"0",
    b"9f",
    b"F",
    b"\0",
    "\u{e9}".as_bytes(),
    "\u{c9}".as_bytes(),
    "\u{20ac}".as_bytes(),
    "\u{1f600}".as_bytes(),
    "\u{fffd}".as_bytes(),
    "\u{ffff}".as_bytes(),
    b"\x80",
    b"\xbf",
    b"\xc3",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf8\x88\x80\x80\x80",
];

fn argument() -> impl Strategy<Value = Theirs> {
    let bytes =
        proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..7).prop_map(|pieces| pieces.concat());
    prop_oneof![
        10 => bytes.clone().prop_map(|bytes| Theirs::Text(String::from_utf8_lossy(&bytes).into_owned())),
        6 => bytes.prop_map(Theirs::Blob),
        1 => Just(Theirs::Null),
        1 => (-200_i64..200).prop_map(Theirs::Integer),
        1 => proptest::sample::select(vec![0.5, -1.5, 1e300, 11.0]).prop_map(Theirs::Real),
    ]
}

fn ours(value: &Theirs) -> Value {
    match value {
        Theirs::Null => Value::Null,
        Theirs::Integer(value) => Value::Integer(*value),
        Theirs::Real(value) => Value::Real(*value),
        Theirs::Text(value) => Value::Text(value.clone()),
        Theirs::Blob(value) => Value::Blob(value.clone()),
    }
}

#[test]
fn ours_answer_as_those_of_sqlite() {
    let bench = Bench::leader();
    let plain = rusqlite::Connection::open_in_memory().unwrap();
    let check = |call: &str, arguments: &[Theirs]| {
        // Invalid text cannot be bound, so that blobs are made text; the hexadecimal form shows every byte of a result.
        for (wrap, shown) in [("?", "?"), ("CAST(? AS TEXT)", "?")] {
            let mut call = call.to_string();
            for at in 1..=arguments.len() {
                call = call.replace(&format!("?{at}"), &wrap.replace('?', &format!("?{at}")));
            }
            let sql = format!("SELECT typeof({call}), hex({call})").replace('\u{0}', shown);
            let expected: Result<(String, String), _> = plain
                .query_row(&sql, rusqlite::params_from_iter(arguments), |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(|error| match error {
                    rusqlite::Error::SqliteFailure(_, Some(message)) => message,
                    other => other.to_string(),
                });
            let asked = Statement { args: arguments.iter().map(ours).collect(), ..statement(&sql) };
            let transaction = highwater_sql::Transaction { statements: vec![asked], key: None };
            let found = bench.database.transaction(&transaction, common::soon()).result;
            let found = found.map_err(|error| error.message).map(|results| match &results[0].rows[0][..] {
                [Value::Text(kind), Value::Text(hex)] => (kind.clone(), hex.clone()),
                other => panic!("{other:?}"),
            });
            assert_eq!(found, expected, "{sql} of {arguments:?}");
        }
    };
    let config = Config { cases: 4_000, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let calls = proptest::sample::select(&CALLS[..]);
    let strategy = (calls, argument(), argument(), argument());
    runner
        .run(&strategy, |((call, count), a, b, c)| {
            check(call, &[a, b, c][..count]);
            Ok(())
        })
        .unwrap();
}

#[test]
fn like_and_glob_still_use_indexes() {
    let bench = Bench::leader();
    bench
        .run(&["CREATE TABLE t(a TEXT, b TEXT)", "CREATE INDEX ta ON t(a COLLATE NOCASE)", "CREATE INDEX tb ON t(b)"])
        .unwrap();
    let session = bench.database.session();
    let plan = |sql: &str| {
        let rows = session.execute(&statement(&format!("EXPLAIN QUERY PLAN {sql}"))).result.unwrap().rows;
        format!("{:?}", rows[0][3])
    };
    for (query, searches) in [
        ("SELECT 1 FROM t WHERE a LIKE 'x%'", true),
        ("SELECT 1 FROM t WHERE a LIKE 'x\\%%' ESCAPE '\\'", true),
        ("SELECT 1 FROM t WHERE b LIKE 'x%'", false),
        ("SELECT 1 FROM t WHERE b GLOB 'x*'", true),
        ("SELECT 1 FROM t WHERE a GLOB 'x*'", false),
    ] {
        assert_eq!(plan(query).contains("SEARCH"), searches, "{query}: {}", plan(query));
    }
    session.execute(&statement("PRAGMA case_sensitive_like=ON")).result.unwrap();
    assert_eq!(session.execute(&statement("SELECT 'a' LIKE 'A'")).result.unwrap().rows, [[Value::Integer(0)]]);
    assert!(plan("SELECT 1 FROM t WHERE b LIKE 'x%'").contains("SEARCH"));
    session.execute(&statement("PRAGMA case_sensitive_like=0")).result.unwrap();
    assert_eq!(session.execute(&statement("SELECT 'a' LIKE 'A'")).result.unwrap().rows, [[Value::Integer(1)]]);
    assert!(plan("SELECT 1 FROM t WHERE a LIKE 'x%'").contains("SEARCH"));
}

#[test]
fn json_is_bounded_where_it_is_too_much_and_else_what_it_was() {
    let bench = Bench::leader();
    let of = |sql: &str| match &bench.rows(&format!("SELECT {sql}"))[0][0] {
        Value::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(of("json_set('{}', '$.a', json_array(1, json('[2]')), '$.b', '[3]')"), r#"{"a":[1,[2]],"b":"[3]"}"#);
    assert_eq!(of("json(jsonb_object('x', jsonb_array(1, 2)))"), r#"{"x":[1,2]}"#);
    assert_eq!(of("json_extract('{\"a\":[7]}', '$.a', '$.b')"), "[[7],null]");
    assert_eq!(of("json_patch('{\"a\":1,\"b\":2}', '{\"b\":null}')"), r#"{"a":1}"#);
    let failed = |sql: &str| bench.run(&[sql]).unwrap_err().message;
    assert_eq!(failed("SELECT json_patch(1)"), "wrong number of arguments to function json_patch()");
    let huge = "'{\"x\":\"' || hex(zeroblob(4000000)) || '\"}'";
    let refused = failed(&format!("SELECT json_patch({huge}, {huge})"));
    assert!(refused.starts_with("json_patch was given too much"), "{refused}");
    let refused = failed(&format!("SELECT json_extract({huge}{})", ", '$.a'".repeat(100)));
    assert!(refused.starts_with("json_extract was given too much"), "{refused}");
    assert_eq!(
        bench.run(&[&format!("SELECT json_array(1{})", ",1".repeat(127))]).unwrap_err().message,
        "too many arguments on function json_array"
    );
}
