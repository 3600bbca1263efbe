//! `highwater status`.

use std::process::ExitCode;

use serde_json::Value;

use crate::args::StatusArgs;
use crate::client::Client;
use crate::output::{document, line, table};

/// Runs the command.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.cluster)?;
    let answer = match client.get("/status") {
        Ok(answer) => answer.document,
        Err(error) if args.cluster.json => {
            document(&error.document());
            return Err(error.into());
        }
        Err(error) => return Err(error.into()),
    };
    if args.cluster.json {
        document(&answer);
    } else {
        print(&answer);
    }
    Ok(ExitCode::SUCCESS)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn picked(rows: &[Value], names: &[&str]) -> Vec<Vec<Value>> {
    rows.iter().map(|row| names.iter().map(|name| short(&row[*name])).collect()).collect()
}

/// Lists as words, and fractions no longer than people read them.
fn short(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::String(items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        Value::Number(number) if number.is_f64() => {
            let rounded = (number.as_f64().unwrap_or_default() * 100.0).round() / 100.0;
            serde_json::Number::from_f64(rounded).map_or(Value::Null, Value::Number)
        }
        Value::Null => Value::String("-".into()),
        other => other.clone(),
    }
}

fn print(status: &Value) {
    let show = |names: &[&str], rows: &[Value]| {
        let columns: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
        line(&table(&columns, &picked(rows, names)));
    };
    show(&["node", "address", "alive", "this"], list(status, "nodes"));
    if let Some(reason) = status["halted"].as_str() {
        line(&format!("\nthe metadata's replica here has halted: {reason}"));
    }
    line("");
    let partitions = list(status, "partitions");
    show(
        &[
            "name",
            "leader",
            "epoch",
            "version",
            "commit_rule",
            "isr",
            "hw",
            "write_rate",
            "commit_ms_p50",
            "commit_ms_p99",
        ],
        partitions,
    );
    for partition in partitions {
        line(&format!("\nreplicas of {}", partition["name"].as_str().unwrap_or_default()));
        show(
            &["node", "leo", "hw", "applied", "in_sync", "lag_entries", "lag_ms", "ms_since_heard", "apply_rate"],
            list(partition, "replicas"),
        );
        if let Some(reason) = partition["halted"].as_str() {
            line(&format!("not serving: {reason}"));
        }
    }
}
