//! SQLite's own test scripts, each over one Hrana stream of an empty database.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use serde_json::Value;

use crate::node::Node;
use crate::slt::{Record, Sort, parse};
use crate::{data, hrana};

/// How many records go into one pipeline.
const AT_ONCE: usize = 100;

/// What a script showed.
#[derive(Default)]
pub(crate) struct Outcome {
    checks: usize,
    failures: Vec<String>,
}

#[test]
fn scripts_of_the_evidence_kind() {
    run_scripts(|name| name.starts_with("evidence_"), 11, on_its_own);
}

#[test]
fn scripts_of_selects() {
    run_scripts(|name| name.starts_with("select"), 3, on_its_own);
}

#[test]
fn scripts_of_everything_else() {
    run_scripts(|name| !name.starts_with("select") && !name.starts_with("evidence_"), 1, on_its_own);
}

/// Gives a script a node that is started for it.
fn on_its_own(run: &dyn Fn(SocketAddr) -> Outcome) -> Outcome {
    let node = Node::start();
    run(node.address())
}

/// Runs every script whose name is wanted; at least `least` must be there. `give_node` is handed what runs one script on one stream of a node, and
/// gives it a node whose database is empty.
pub(crate) fn run_scripts(
    wanted: impl Fn(&str) -> bool,
    least: usize,
    mut give_node: impl FnMut(&dyn Fn(SocketAddr) -> Outcome) -> Outcome,
) {
    let Some(folder) = data::folder("sqllogictest") else { return };
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder can be listed")
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "test"))
        .filter(|path| wanted(&path.file_name().unwrap_or_default().to_string_lossy()))
        .collect();
    scripts.sort();
    assert!(scripts.len() >= least, "{} scripts in {}, at least {least} expected", scripts.len(), folder.display());
    let mut failures = Vec::new();
    for script in &scripts {
        let outcome = give_node(&|host| run_script(script, host));
        let name = script.file_name().unwrap_or_default().to_string_lossy();
        eprintln!("{name}: {} checks, {} failed", outcome.checks, outcome.failures.len());
        assert!(outcome.checks > 0, "{name} checks nothing");
        failures.extend(outcome.failures.into_iter().map(|failure| format!("{name}:{failure}")));
    }
    let shown: Vec<&String> = failures.iter().take(20).collect();
    assert!(failures.is_empty(), "{} checks failed, the first: {shown:#?}", failures.len());
}

fn run_script(script: &Path, host: SocketAddr) -> Outcome {
    let text = std::fs::read_to_string(script).expect("the script can be read");
    let mut stream = hrana::Stream::open(host);
    let mut labels = BTreeMap::new();
    let mut outcome = Outcome::default();
    for records in parse(&text).chunks(AT_ONCE) {
        let requests: Vec<Value> = records.iter().map(|(_, record)| hrana::execute(sql_of(record))).collect();
        let results = stream.pipeline(&requests);
        for ((line, record), result) in records.iter().zip(results) {
            outcome.checks += 1;
            if let Err(why) = check(record, &result, &mut labels) {
                outcome.failures.push(format!("{line}: {why}\n{}", sql_of(record)));
            }
        }
    }
    outcome
}

fn sql_of(record: &Record) -> &str {
    match record {
        Record::Statement { sql, .. } | Record::Query { sql, .. } => sql,
    }
}

/// Whether a result is what the record asks for.
fn check(
    record: &Record,
    result: &Result<Value, Value>,
    labels: &mut BTreeMap<String, Vec<String>>,
) -> Result<(), String> {
    match (record, result) {
        (Record::Statement { ok: true, .. }, Err(error)) => Err(format!("failed: {error}")),
        (Record::Statement { ok: false, .. }, Ok(_)) => Err("should have failed".to_owned()),
        (Record::Statement { .. }, _) => Ok(()),
        (Record::Query { .. }, Err(error)) => Err(format!("failed: {error}")),
        (Record::Query { types, sort, label, expected, .. }, Ok(response)) => {
            let values = values_of(&response["result"], types, *sort)?;
            let found = if expected.len() == 1 && expected[0].contains(" values hashing to ") {
                vec![summary(&values)]
            } else {
                values.clone()
            };
            if found != *expected {
                return Err(format!("expected {expected:?}, found {found:?}"));
            }
            if let Some(label) = label {
                let first = labels.entry(label.clone()).or_insert_with(|| values.clone());
                if *first != values {
                    return Err(format!("another query with the label {label} gave {first:?}, this one {values:?}"));
                }
            }
            Ok(())
        }
    }
}

/// A result's values as text, in the order that is wanted.
fn values_of(result: &Value, types: &str, sort: Sort) -> Result<Vec<String>, String> {
    let rows = result["rows"].as_array().ok_or("a result without rows")?;
    let mut texts = Vec::new();
    for row in rows {
        let row = row.as_array().ok_or("a row that is no list")?;
        if row.len() != types.len() {
            return Err(format!("{} columns, {} expected", row.len(), types.len()));
        }
        let row: Result<Vec<String>, String> =
            row.iter().zip(types.chars()).map(|(value, kind)| text_of(value, kind)).collect();
        texts.push(row?);
    }
    if sort == Sort::Rows {
        texts.sort();
    }
    let mut values: Vec<String> = texts.into_iter().flatten().collect();
    if sort == Sort::Values {
        values.sort();
    }
    Ok(values)
}

/// A value as the scripts write it in a column of this type.
fn text_of(value: &Value, kind: char) -> Result<String, String> {
    let own = |name: &str| value[name].as_str().map(str::to_owned).ok_or(format!("a value without {name}: {value}"));
    let found = value["type"].as_str().ok_or(format!("a value without type: {value}"))?;
    match (kind, found) {
        (_, "null") => Ok("NULL".to_owned()),
        ('I', "integer") => own("value"),
        ('I', "float") => value["value"].as_f64().map(|real| format!("{}", real as i64)).ok_or("no number".to_owned()),
        ('I', "text") => Ok(format!("{}", leading_integer(&own("value")?))),
        ('R', "float") => value["value"].as_f64().map(|real| format!("{real:.3}")).ok_or("no number".to_owned()),
        ('R', "integer") => own("value").map(|digits| format!("{digits}.000")),
        ('R', "text") => Ok(format!("{:.3}", own("value")?.parse::<f64>().unwrap_or(0.0))),
        ('T', "text") => own("value").map(|text| match text.as_str() {
            "" => "(empty)".to_owned(),
            // Each byte on its own, as the scripts' first runner did.
            text => text.bytes().map(|b| if (b' '..=b'~').contains(&b) { char::from(b) } else { '@' }).collect(),
        }),
        ('T', "integer") => own("value"),
        ('T', "float") => value["value"].as_f64().map(|real| format!("{real:?}")).ok_or("no number".to_owned()),
        _ => Err(format!("a value of type {found} in a column of type {kind}")),
    }
}

/// The integer that a text begins with, as SQLite's cast reads it.
fn leading_integer(text: &str) -> i64 {
    let text = text.trim_start();
    let digits = text.char_indices().take_while(|(at, c)| c.is_ascii_digit() || (*at == 0 && "+-".contains(*c)));
    let end = digits.last().map_or(0, |(at, c)| at + c.len_utf8());
    text[..end].parse().unwrap_or(0)
}

/// The line that stands for many values: how many, and the hash of all of them, each followed by a line end.
fn summary(values: &[String]) -> String {
    let mut hash = Md5::new();
    for value in values {
        hash.update(value.as_bytes());
        hash.update(b"\n");
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} values hashing to {hex}", values.len())
}

#[test]
fn a_wrong_value_a_wrong_order_and_a_wrong_hash_are_noticed() {
    let query = |sort, expected: &[&str]| Record::Query {
        types: "I".to_owned(),
        sort,
        label: None,
        sql: String::new(),
        expected: expected.iter().map(|value| (*value).to_owned()).collect(),
    };
    let integer = |value: &str| serde_json::json!([{ "type": "integer", "value": value }]);
    let answer = Ok(serde_json::json!({ "result": { "rows": [integer("2"), integer("10")] } }));
    let holds = |record: &Record| check(record, &answer, &mut BTreeMap::new()).is_ok();
    assert!(holds(&query(Sort::No, &["2", "10"])));
    assert!(!holds(&query(Sort::No, &["10", "2"])));
    assert!(holds(&query(Sort::Rows, &["10", "2"])), "rows are ordered as text");
    assert!(!holds(&query(Sort::No, &["2", "11"])));
    // md5 of "2\n10\n".
    assert!(holds(&query(Sort::No, &["2 values hashing to 564736df50d545064ad684826e011c81"])));
    assert!(!holds(&query(Sort::No, &["2 values hashing to 00000000000000000000000000000000"])));
    assert!(!holds(&Record::Statement { ok: false, sql: String::new() }));
}
