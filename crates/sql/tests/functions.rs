//! No SQL function runs past its deadline by more than a second, whatever it is given: each that `PRAGMA function_list` lists, with the largest values.

#![expect(clippy::print_stdout, reason = "it tells how long things took")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::Bench;
use common::timed::{BEYOND, DEADLINE, timed};
use highwater_sql::Value;

/// The greatest values, each made by a query: nearly 16 MiB.
const VALUES: [(&str, &str); 12] = [
    ("long", "replace(hex(zeroblob(8000000)), '0', 'a')"),
    ("long_b", "replace(hex(zeroblob(7900000)), '0', 'a') || 'b'"),
    ("half_b", "replace(hex(zeroblob(4000000)), '0', 'a') || 'b'"),
    ("blob", "zeroblob(16000000)"),
    ("wide", "replace(hex(zeroblob(2500000)), '0', '\u{e9}')"),
    ("pattern", "replace(hex(zeroblob(8000)), '00', '%a_')"),
    ("glob", "replace(hex(zeroblob(8000)), '00', '*[a-b]')"),
    ("array", "'[' || replace(hex(zeroblob(3900000)), '0', '1,') || '1]'"),
    ("object", "'{' || (SELECT group_concat('\"' || value || '\":1') FROM generate(1200000)) || '}'"),
    ("other", "'{' || (SELECT group_concat('\"x' || value || '\":1') FROM generate(1100000)) || '}'"),
    ("digits", "replace(hex(zeroblob(8000000)), '0', '9')"),
    ("format", "replace(hex(zeroblob(2600000)), '0', '%!s')"),
];

fn make(bench: &Bench) {
    let mut statements = vec!["CREATE TABLE h(k TEXT PRIMARY KEY, v)".to_string()];
    for (name, sql) in VALUES {
        let rows = |count: &str| {
            format!(
                "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < {count}) SELECT value FROM n)"
            )
        };
        let mut sql = sql.to_string();
        while let Some(at) = sql.find("generate(") {
            let end = at + sql[at..].find(')').unwrap();
            let count = sql[at + "generate(".len()..end].to_string();
            sql.replace_range(at..=end, &rows(&count));
        }
        statements.push(format!("INSERT INTO h VALUES('{name}', {sql})"));
    }
    for sql in &statements {
        bench.run(&[sql]).unwrap_or_else(|failed| panic!("{sql}: {failed}"));
    }
}

/// The functions that are called by name with values, and with how many.
fn functions(bench: &Bench) -> BTreeMap<String, BTreeSet<i64>> {
    let mut functions: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    for row in bench.rows("SELECT DISTINCT name, narg FROM pragma_function_list") {
        let [Value::Text(name), Value::Integer(count)] = &row[..] else { panic!("{row:?}") };
        functions.entry(name.clone()).or_default().insert(*count);
    }
    functions
}

#[test]
fn no_function_up_to_j_runs_past_its_deadline() {
    none_runs_past_its_deadline(|name| name < "json");
}

#[test]
fn no_function_of_json_runs_past_its_deadline() {
    none_runs_past_its_deadline(|name| name.starts_with("json"));
}

#[test]
fn no_function_from_k_on_runs_past_its_deadline() {
    none_runs_past_its_deadline(|name| name > "k");
}

/// One at a time, so that what is measured is the function.
static ALONE: Mutex<()> = Mutex::new(());

fn none_runs_past_its_deadline(is_asked: impl Fn(&str) -> bool) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = Bench::leader();
    make(&bench);
    let session = bench.database.session();
    let names: Vec<&str> = VALUES.iter().map(|(name, _)| *name).collect();
    let mut slowest = (Duration::ZERO, String::new());
    let mut late = Vec::new();
    let quoted = |name: &str| format!("\"{name}\"");
    let mut try_it = |function: &str, arguments: &[&str]| {
        let from: BTreeSet<&str> = arguments.iter().copied().filter(|name| names.contains(name)).collect();
        let tables: Vec<String> = from.iter().map(|name| format!("h AS {}", quoted(name))).collect();
        let wheres: Vec<String> = from.iter().map(|name| format!("{}.k = '{name}'", quoted(name))).collect();
        let values: Vec<String> = arguments
            .iter()
            .map(|name| if names.contains(name) { format!("{}.v", quoted(name)) } else { name.to_string() })
            .collect();
        let (from, wheres) = (tables.join(","), wheres.join(" AND "));
        let sql = match from.is_empty() {
            true => format!("SELECT typeof({function}({}))", values.join(",")),
            false => format!("SELECT typeof({function}({})) FROM {from} WHERE {wheres}", values.join(",")),
        };
        let took = timed(&session, &sql);
        if took > slowest.0 {
            slowest = (took, sql.clone());
        }
        if took > DEADLINE + BEYOND {
            late.push((took, sql));
        }
    };
    let math = [
        "acos", "ln", "sin", "log", "pow", "power", "mod", "ceil", "floor", "atan2", "exp", "sqrt", "trunc", "degrees",
        "radians", "pi",
    ];
    for (function, counts) in functions(&bench) {
        if !is_asked(&function) || math.contains(&function.as_str()) {
            continue;
        }
        for count in counts {
            match count {
                0 => try_it(&function, &[]),
                1 => names.iter().for_each(|a| try_it(&function, &[a])),
                2 => {
                    for b in ["long_b", "half_b", "other", "pattern", "wide", "'$[#-1]'"] {
                        try_it(&function, &["long", b]);
                    }
                    for a in ["object", "array", "blob"] {
                        for b in ["other", "long", "'$[#-1]'"] {
                            try_it(&function, &[a, b]);
                        }
                    }
                    try_it(&function, &["pattern", "long"]);
                    try_it(&function, &["glob", "long"]);
                    try_it(&function, &["half_b", "long"]);
                    try_it(&function, &["format", "long"]);
                }
                3 => {
                    for a in ["long", "array", "pattern"] {
                        for b in ["half_b", "long_b"] {
                            for c in ["long", "'x'"] {
                                try_it(&function, &[a, b, c]);
                            }
                        }
                    }
                }
                _ => {
                    for first in ["array", "object", "format"] {
                        for rest in ["'$[#-1]'", "'+1 day'", "object"] {
                            for many in [1, 7, 126] {
                                let mut arguments = vec![first];
                                arguments.extend(std::iter::repeat_n(rest, many));
                                try_it(&function, &arguments);
                            }
                        }
                    }
                }
            }
        }
    }
    println!("the slowest: {slowest:?}");
    assert!(late.is_empty(), "{late:#?}");
}
