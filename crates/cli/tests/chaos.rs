//! `chaos` as a process: a minute of faults of every kind, judged by its history alone, and what becomes of the judgement if the history is another.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// The built binary.
const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");

/// Runs `chaos` with these arguments; returns whether it succeeded, its document, and what it said besides.
fn chaos(arguments: &[&str]) -> (bool, Value, String) {
    let output =
        Command::new(HIGHWATER).arg("chaos").args(arguments).arg("--json").output().expect("the binary starts");
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    let document = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {text:?}: {error}; {said}"));
    (output.status.success(), document, said)
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Writes the history anew, with one of its records changed: the first for which `change` says that it changed it.
fn changed(from: &Path, to: &Path, mut change: impl FnMut(&mut Value) -> bool) {
    let mut done = false;
    let text = std::fs::read_to_string(from).expect("the history can be read");
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).expect("every line is JSON");
            done = done || change(&mut record);
            record.to_string() + "\n"
        })
        .collect();
    assert!(done, "there is a record to change");
    std::fs::write(to, lines.concat()).expect("a history can be written");
}

#[test]
fn a_minute_of_every_fault_breaks_no_law_and_a_changed_history_does() {
    let folder = TempDir::new().expect("a temporary folder");
    let [history, report, other] = ["history.jsonl", "report.json", "other.jsonl"].map(|name| folder.path().join(name));
    let begin = ["--seconds", "60", "--every", "2", "--restart-after", "1", "--faults", "all"];
    let files = ["--history", path(&history), "--report", path(&report)];
    let (well, document, said) = chaos(&[&begin[..], &files[..]].concat());
    assert!(well, "{document:#}\n{said}");
    assert_eq!(document["clean"], true, "{document:#}");
    let acknowledged = document["acknowledged"].as_u64().expect("a count");
    let faults = document["figures"]["faults"].as_array().expect("a list of faults");
    assert!(acknowledged > 0 && !faults.is_empty(), "{document:#}");
    assert_eq!(document["figures"]["runs"][0]["readings"], 6, "three nodes and their three files");
    for kind in ["set", "compare-and-set", "linearizable read of a register", "session read of the rows"] {
        assert!(document["figures"]["operations"][kind]["done"].as_u64() > Some(0), "{kind}: {document:#}");
    }

    let (well, again, said) = chaos(&["check", path(&history)]);
    assert!(well && again == document, "a history is judged alike each time: {again:#}\n{said}");
    let (well, twice, _) = chaos(&["report", path(&history), path(&report)]);
    assert!(well, "{twice:#}");
    assert_eq!((&twice["acknowledged"], &twice["clean"]), (&json!(2 * acknowledged), &json!(true)));

    // A row less on one replica.
    changed(&history, &other, |record| {
        let rows = if record["of"] == "node 2" { record["rows"].as_array_mut() } else { None };
        rows.is_some_and(|rows| rows.pop().is_some())
    });
    let (well, document, _) = chaos(&["check", path(&other)]);
    assert!(!well && document["findings"]["violations"]["replicas"]["count"].as_u64() > Some(0), "{document:#}");

    // A register that was read as what it held long before. Nobody wrote 0 but the beginning, and by the end each has been written to.
    let gets = std::fs::read_to_string(&history).expect("the history can be read");
    let last = gets.lines().rfind(|line| line.contains(r#"{"value":"#)).expect("a read of a register");
    let op = serde_json::from_str::<Value>(last).expect("JSON")["op"].clone();
    changed(&history, &other, |record| {
        let is = record["record"] == "return" && record["op"] == op;
        if is {
            record["answer"] = json!({"value": 0});
        }
        is
    });
    let (well, document, _) = chaos(&["check", path(&other)]);
    assert!(!well && document["findings"]["violations"]["registers"]["count"] == 1, "{document:#}");

    // A history that was broken off.
    let whole = std::fs::read_to_string(&history).expect("the history can be read");
    let cut: Vec<&str> = whole.lines().take(100).collect();
    std::fs::write(&other, cut.join("\n")).expect("a history can be written");
    let (well, document, _) = chaos(&["check", path(&other)]);
    assert!(!well && document["findings"]["violations"]["whole"]["count"] == 1, "{document:#}");
}
