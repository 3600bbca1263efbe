//! What SQLite's extensions do, and long lists of large values, do not run past their deadline by more than a second either.

#![expect(clippy::print_stdout, reason = "it tells how long things took")]

mod common;

use std::time::Duration;

use common::Bench;
use common::timed::{BEYOND, DEADLINE, timed};

/// Tables as large as they may be for what is asked of them.
const TABLES: [&str; 21] = [
    "CREATE VIRTUAL TABLE f USING fts5(x)",
    "INSERT INTO f VALUES(replace(hex(zeroblob(2000000)), '00', 'a '))",
    "CREATE VIRTUAL TABLE many USING fts5(x, y)",
    "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 100000)
     INSERT INTO many SELECT iif(v % 2, 'a', 'b') || ' c', 'd' || v FROM n",
    "CREATE VIRTUAL TABLE words USING fts5vocab(f, 'row')",
    "CREATE VIRTUAL TABLE places USING fts5vocab(f, 'instance')",
    "CREATE VIRTUAL TABLE three USING fts5(x, tokenize = 'trigram')",
    "INSERT INTO three VALUES(replace(hex(zeroblob(500000)), '00', 'abcdefghijk '))",
    "CREATE VIRTUAL TABLE g USING fts4(x)",
    "INSERT INTO g VALUES(replace(hex(zeroblob(2000000)), '00', 'a '))",
    "CREATE VIRTUAL TABLE g_words USING fts4aux(g)",
    "CREATE VIRTUAL TABLE g_many USING fts4(x, y)",
    "INSERT INTO g_many SELECT x, y FROM many",
    "CREATE VIRTUAL TABLE r USING rtree(id, low, high)",
    "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < 20000)
     INSERT INTO r SELECT v, v, v + 1000 FROM n",
    "CREATE TABLE h(k TEXT PRIMARY KEY, v)",
    "INSERT INTO h VALUES('long', replace(hex(zeroblob(8000000)), '0', 'a'))",
    "INSERT INTO h VALUES('array', '[' || replace(hex(zeroblob(3900000)), '0', '1,') || '1]')",
    "INSERT INTO h VALUES('deep', replace(hex(zeroblob(900)), '00', '[') || '1' || replace(hex(zeroblob(900)), '00', ']'))",
    "INSERT INTO h SELECT 'object', '{\"' || replace(hex(zeroblob(4000000)), '00', 'a') || '\":['
     || replace(hex(zeroblob(2000000)), '00', '1,') || '1]}'",
    "INSERT INTO h SELECT 'nested', '{\"' || replace(hex(zeroblob(2000000)), '00', 'a') || '\":' || v || '}' FROM h
     WHERE k = 'deep'",
];

/// A text repeated, and what comes around it, as SQL.
fn repeated(before: &str, text: &str, count: u32, after: &str) -> String {
    format!("'{before}' || replace(hex(zeroblob({count})), '00', '{text}') || '{after}'")
}

fn none_is_late(statements: &[String]) {
    let bench = Bench::leader();
    for sql in TABLES {
        bench.run(&[sql]).unwrap_or_else(|failed| panic!("{sql}: {failed}"));
    }
    let mut slowest = (Duration::ZERO, String::new());
    let mut late = Vec::new();
    for sql in statements {
        let session = bench.database.session();
        let took = timed(&session, sql);
        bench.publish();
        let shown: String = sql.chars().take(150).collect();
        if took > slowest.0 {
            slowest = (took, shown.clone());
        }
        if took > DEADLINE + BEYOND {
            late.push((took, shown));
        }
    }
    println!("the slowest: {slowest:?}");
    assert!(late.is_empty(), "{late:#?}");
}

#[test]
fn full_text_search_is_not_late() {
    let mut statements: Vec<String> = [
        "SELECT length(highlight(f, 0, '<', '>')) FROM f WHERE f MATCH 'a'",
        "SELECT length(highlight(f, 0, replace(hex(zeroblob(1000000)), '0', '<'), '>')) FROM f WHERE f MATCH 'a'",
        "SELECT length(snippet(f, 0, '<', '>', '...', 64)) FROM f WHERE f MATCH 'a'",
        "SELECT length(snippet(f, 0, '<', '>', '', 64)) FROM f WHERE f MATCH 'a OR \"a a\" OR \"a a a\" OR a OR a OR a'",
        "SELECT bm25(f) FROM f WHERE f MATCH 'a'",
        "SELECT count(*) FROM many WHERE many MATCH 'a AND b'",
        "SELECT count(*) FROM many WHERE many MATCH 'c NOT c'",
        "SELECT count(*) FROM many WHERE many MATCH 'd*'",
        "SELECT count(*) FROM places a, places b",
        "SELECT * FROM words",
        "SELECT * FROM g_words",
        "SELECT length(offsets(g)) FROM g WHERE g MATCH 'a'",
        "SELECT length(snippet(g, '<', '>', '...', -1, 64)) FROM g WHERE g MATCH 'a OR b OR aa'",
        "SELECT length(matchinfo(g)) FROM g WHERE g MATCH 'a'",
        "SELECT count(*) FROM g_many WHERE g_many MATCH 'a AND b'",
        "SELECT count(*) FROM g WHERE g MATCH 'a NEAR/1000000 a NEAR/1000000 a'",
    ]
    .map(str::to_string)
    .into();
    let asks = [
        ("f", "", "a OR ", 3_000_000, "a"),
        ("f", "", "z OR ", 100_000, "a"),
        ("f", "", "a AND ", 2_600_000, "a"),
        ("f", "", "a* OR ", 2_500_000, "a"),
        ("f", "", "a NOT ", 2_500_000, "a"),
        ("f", "", "(", 16_000_000, ""),
        ("f", "", "q ", 8_000_000, "q"),
        ("f", "{", "x ", 8_000_000, "}:a"),
        ("f", "\"", "a ", 8_000_000, "\""),
        ("f", "NEAR(", "q ", 8_000_000, ", 1000000)"),
        ("f", "NEAR(", "a ", 8, ", 1000000)"),
        ("three", "\"", "abc", 1_000_000, "\""),
        ("g", "", "a OR ", 1_000, "a"),
        // Read to its end in linear time: 2 s for 16 MiB.
        ("g", "", "a OR ", 1_000_000, "a"),
        ("g", "\"", "a ", 8_000_000, "\""),
        ("g", "", "(", 16_000_000, ""),
    ];
    for (table, before, text, count, after) in asks {
        let asked = repeated(before, text, count, after);
        statements.push(format!("SELECT count(*) FROM {table} WHERE {table} MATCH {asked}"));
    }
    let many = repeated("", "c OR ", 1_000, "c");
    statements.push(format!("SELECT rowid FROM many WHERE many MATCH {many} ORDER BY rank LIMIT 10"));
    for pattern in ["LIKE", "GLOB"] {
        statements.push(format!("SELECT count(*) FROM three WHERE x {pattern} {}", repeated("%", "abc", 15_000, "%")));
    }
    for table in ["f", "many", "g", "g_many"] {
        for command in ["integrity-check", "rebuild", "optimize"] {
            statements.push(format!("INSERT INTO {table}({table}) VALUES('{command}')"));
        }
    }
    statements.push("INSERT INTO f(f, rank) VALUES('merge', 1000000)".to_string());
    statements.push("INSERT INTO g(g) VALUES('merge=1000000,2')".to_string());
    none_is_late(&statements);
}

#[test]
fn trees_json_sorts_and_long_lists_are_not_late() {
    let v = |key: &str| format!("(SELECT v FROM h WHERE k = '{key}')");
    let counted =
        |count: u32| format!("WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < {count})");
    let mut statements = vec![
        "SELECT rtreecheck('r')".to_string(),
        "SELECT count(*) FROM r WHERE low > 0 AND high < 1000000".to_string(),
        "SELECT count(*) FROM r x, r y WHERE x.low <= y.high AND y.low <= x.high".to_string(),
        "SELECT * FROM dbstat".to_string(),
        "PRAGMA integrity_check".to_string(),
        format!("SELECT count(*) FROM json_each({}, '$[#-1]')", v("array")),
        format!("SELECT count(*) FROM json_each({}, {})", v("array"), repeated("$", "[0]", 5_000_000, "")),
        "SELECT pow(v, 2), sin(v), ln(v), atan2(v, v), mod(v, v), v % v, v * v, -v, ~v, v << v, round(v) FROM h"
            .to_string(),
        "SELECT CAST(replace(v, 'a', '9') AS REAL) FROM h WHERE k = 'long'".to_string(),
        format!(
            "{} SELECT count(*) FROM (SELECT h.v || n.v FROM n, h WHERE k = 'long' ORDER BY 1 LIMIT -1 OFFSET 3)",
            counted(60)
        ),
        format!("{} SELECT count(DISTINCT h.v || n.v) FROM n, h WHERE k = 'long'", counted(100_000)),
        format!("{} SELECT json_group_array(v) FROM n", counted(10_000_000)),
    ];
    for key in ["array", "object", "nested", "deep"] {
        for function in ["json_each", "json_tree"] {
            statements.push(format!(
                "SELECT count(*), max(length(fullkey)), max(length(path)), max(length(value)) FROM {function}({})",
                v(key)
            ));
        }
    }
    for aggregate in ["group_concat(v, '')", "json_group_array(v)", "json_group_object(v, v)"] {
        statements.push(format!(
            "{} SELECT max(length(g)) FROM (SELECT {aggregate} OVER (ORDER BY v ROWS BETWEEN 1000000 PRECEDING AND CURRENT ROW) g FROM n)",
            counted(2_000_000)
        ));
    }
    // No jump lies between the values of a list, where SQLite would look whether it was interrupted.
    for call in ["length(upper(v || ?))", "instr(v, 'b?')", "length(hex(substr(v, ?)))", "length(replace(v, 'b', ?))"] {
        let list: Vec<String> = (1..1_000).map(|number| call.replace('?', &number.to_string())).collect();
        statements.push(format!("SELECT 1 IN ({}) FROM h WHERE k = 'long'", list.join(",")));
    }
    none_is_late(&statements);
}
