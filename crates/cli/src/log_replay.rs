//! `highwater log replay`: a database out of the log of a stopped node, without a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use highwater_node::replay;
use serde_json::json;

use crate::output::{document, line};

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The folder of a database's log: DATA/db/NAME/log.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// The SQLite file to make. It must not be there yet.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Stop at this offset, at which a transaction must end, instead of at the end of the log.
    #[arg(long, value_name = "OFFSET")]
    pub(crate) upto: Option<u64>,
    /// Print exactly one JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let done = replay(&args.folder, &args.to, args.upto)?;
    let epoch = done.epoch.map(|epoch| epoch.0);
    let all_committed = done.offset <= done.committed;
    if args.json {
        document(&json!({
            "file": args.to, "offset": done.offset, "epoch": epoch, "log_end": done.end,
            "known_committed": done.committed, "all_known_committed": all_committed,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let of_epoch = epoch.map_or_else(String::new, |epoch| format!(", whose last entry is of epoch {epoch}"));
    line(&format!("{} holds the database as of offset {}{of_epoch}", args.to.display(), done.offset));
    line(&if done.offset < done.end {
        format!("the log goes on to offset {}", done.end)
    } else {
        "this is the whole log".to_string()
    });
    line(&if all_committed {
        "everything in it is known to be committed".to_string()
    } else {
        format!(
            "below offset {} everything is known to be committed; this log alone does not tell of the rest. Of several replicas' logs, take the one whose last \
             entry has the greatest epoch, and of those the longest: it holds all that was acknowledged",
            done.committed
        )
    });
    line("import it into a new cluster with `highwater db import`");
    Ok(ExitCode::SUCCESS)
}
