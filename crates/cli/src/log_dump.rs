//! `highwater log dump`: a log folder for people. Changes nothing, and may be used while a node runs.

use std::process::ExitCode;

use anyhow::{Context, bail};
use highwater_log::FileIo;
use highwater_log::dump::{Frame, Item, frames, lost_tails, verify};
use highwater_wire::batch;
use serde_json::{Value, json};

use crate::args::DumpArgs;
use crate::output::{document, line};

/// Runs the command.
pub(crate) fn run(args: &DumpArgs) -> anyhow::Result<ExitCode> {
    let io = FileIo::inspect(&args.folder).with_context(|| {
        format!("cannot look into {}; give the folder of one log: DATA/meta or DATA/db/NAME/log", args.folder.display())
    })?;
    let verdict = verify(&io);
    if let Ok(None) = verdict {
        bail!("{} holds no log; give the folder of one log: DATA/meta or DATA/db/NAME/log", args.folder.display());
    }
    let head = match &verdict {
        Ok(Some(found)) => json!({
            "log": found.log_id.to_string(), "start": found.shape.start, "end": found.shape.end,
            "flushed": found.shape.flushed, "generation": found.generation, "clean": found.clean, "torn": found.torn,
            "promised": found.hard.promised.map(|epoch| epoch.0), "hw_hint": found.hard.hw_hint.0,
            "epochs": found.shape.epochs.iter().map(|(epoch, first)| json!([epoch.0, first])).collect::<Vec<_>>(),
        }),
        Ok(None) => unreachable!("an empty folder was refused above"),
        Err(error) => json!({"damaged": error.to_string()}),
    };
    let tails: Vec<Value> = lost_tails(&io)?
        .iter()
        .map(|tail| json!({"offset": tail.offset, "generation": tail.generation, "file": tail.name}))
        .collect();
    let mut batches = Vec::new();
    if !args.json {
        line(&head.to_string());
    }
    for item in frames(&io)? {
        let described = match item.with_context(|| format!("{} cannot be read", args.folder.display()))? {
            Item::Frame(frame) => describe(&frame),
            Item::Damage { name, position, what } => json!({"file": name, "byte": position, "damage": what}),
        };
        if args.json { batches.push(described) } else { print(&described) }
    }
    if args.json {
        document(&json!({"log": head, "batches": batches, "lost_tails": tails}));
    } else {
        for tail in &tails {
            line(&format!("lost tail from offset {} on, in {}", tail["offset"], tail["file"]));
        }
    }
    match verdict {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => bail!("{error}. (The folder of one log is DATA/meta or DATA/db/NAME/log)"),
    }
}

fn describe(frame: &Frame) -> Value {
    let header = batch::header(&frame.batch).ok();
    let control = header.is_some_and(|header| header.control);
    let entries: Value = match batch::check(&frame.batch) {
        Err(error) => json!({"error": error.to_string()}),
        Ok(_) if control => match batch::control(&frame.batch) {
            Ok(control) => json!(format!("{control:?}")),
            Err(error) => json!({"error": error.to_string()}),
        },
        Ok(_) => match batch::records(&frame.batch) {
            Err(error) => json!({"error": error.to_string()}),
            Ok(records) => records
                .iter()
                .zip(frame.offset..)
                .map(|(record, offset)| {
                    json!({
                        "offset": offset,
                        "key": record.key.as_deref().map(readable),
                        "value": record.value.as_deref().map(readable),
                        "value_bytes": record.value.as_ref().map_or(0, |value| value.len()),
                    })
                })
                .collect(),
        },
    };
    json!({
        "file": frame.name, "byte": frame.position, "offset": frame.offset, "count": frame.count, "epoch": frame.epoch.0,
        "generation": frame.generation, "flushed_before": frame.flushed_before, "dead": frame.dead, "control": control,
        "timestamp_ms": header.map(|header| header.max_timestamp_ms), "bytes": frame.batch.len(), "entries": entries,
    })
}

/// The first bytes, as text where they are text.
fn readable(bytes: &[u8]) -> String {
    const SHOWN: usize = 96;
    let mut text: String = bytes[..bytes.len().min(SHOWN)].escape_ascii().to_string();
    if bytes.len() > SHOWN {
        text.push_str("...");
    }
    text
}

fn print(batch: &Value) {
    if let Some(damage) = batch["damage"].as_str() {
        line(&format!("{} byte {}: {damage}", batch["file"].as_str().unwrap_or_default(), batch["byte"]));
        return;
    }
    line(&format!(
        "{}..{} epoch {} generation {}{}{} ({} bytes at {} byte {})",
        batch["offset"],
        batch["offset"].as_u64().unwrap_or(0) + batch["count"].as_u64().unwrap_or(0),
        batch["epoch"],
        batch["generation"],
        if batch["control"] == true { " control" } else { "" },
        if batch["dead"] == true { " dead" } else { "" },
        batch["bytes"],
        batch["file"].as_str().unwrap_or_default(),
        batch["byte"],
    ));
    match &batch["entries"] {
        Value::Array(entries) => {
            for entry in entries {
                line(&format!("    {} {}", entry["offset"], entry["value"].as_str().unwrap_or("null")));
            }
        }
        other => line(&format!("    {other}")),
    }
}
