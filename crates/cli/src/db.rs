//! `highwater db import` and `highwater db backup`.

use std::fs::{File, OpenOptions};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::json;

use crate::args::{DbCommand, TransferArgs};
use crate::client::Client;
use crate::output::{document, line};

/// Runs the command.
pub(crate) fn run(command: &DbCommand) -> anyhow::Result<ExitCode> {
    let (args, result) = match command {
        DbCommand::Import(args) => (args, import(args)),
        DbCommand::Backup(args) => (args, backup(args)),
    };
    if let Err(error) = &result
        && args.cluster.json
    {
        let refused = error.downcast_ref::<crate::client::ClientError>().map(crate::client::ClientError::document);
        document(&refused.unwrap_or_else(
            || json!({"error": {"code": "FILE", "message": format!("{error:#}"), "outcome": "failed"}}),
        ));
    }
    result
}

fn import(args: &TransferArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.cluster)?;
    let file = File::open(&args.file).with_context(|| format!("cannot open {}", args.file.display()))?;
    let wal = args.file.with_extension(match args.file.extension() {
        Some(extension) => format!("{}-wal", extension.to_string_lossy()),
        None => "-wal".to_string(),
    });
    if wal.metadata().is_ok_and(|wal| wal.len() > 0) {
        bail!(
            "{} has a write-ahead log beside it, which would be left out; close whoever uses it, or run: sqlite3 {} 'PRAGMA wal_checkpoint(TRUNCATE)'",
            args.file.display(),
            args.file.display()
        );
    }
    let answer = client.post_file(&format!("/db/{}/import", args.db), &file)?.document;
    if args.cluster.json {
        document(&answer);
    } else {
        line(&format!(
            "{} is the content of {:?} now, at {}",
            args.file.display(),
            args.db,
            answer["position"].as_str().unwrap_or_default()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn backup(args: &TransferArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.cluster)?;
    let (offset, mut reader) = client.get_bytes(&format!("/db/{}/backup", args.db))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.file)
        .with_context(|| format!("cannot make {}; a backup never replaces a file", args.file.display()))?;
    let copied = std::io::copy(&mut reader, &mut file).and_then(|bytes| file.sync_all().map(|()| bytes));
    let bytes = match copied {
        Ok(bytes) => bytes,
        Err(error) => {
            // Half a backup must not be taken for one.
            let _ = std::fs::remove_file(&args.file);
            return Err(error)
                .with_context(|| format!("the backup to {} broke off and was removed", args.file.display()));
        }
    };
    if args.cluster.json {
        document(&json!({"file": args.file, "bytes": bytes, "offset": offset}));
    } else {
        line(&format!(
            "{} holds {:?} as of offset {} ({bytes} bytes)",
            args.file.display(),
            args.db,
            offset.unwrap_or_default()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
