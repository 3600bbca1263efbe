//! `highwater node adopt`: the way back for a node in whose name somebody else has registered a start.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use highwater_node::adopt;
use highwater_wire::Incarnation;

use crate::output::line;

#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// The node's data folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: PathBuf,
    /// The number of the start, as the other nodes show it.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) starts: u64,
    /// The random part of the start, in hexadecimal digits, as the other nodes show it.
    #[arg(long, value_name = "HEX", value_parser = hexadecimal)]
    pub(crate) random: u64,
}

/// Runs the command.
pub(crate) fn run(args: &AdoptArgs) -> anyhow::Result<ExitCode> {
    let done = adopt(&args.data, Incarnation { starts: args.starts, random: args.random })?;
    let start = format!("start {} with random part {:016x}", args.starts, args.random);
    line(&if done.known {
        format!("{start} was among those of node {} already", done.node)
    } else {
        format!("{start} is among those of node {} now", done.node)
    });
    line(&format!("its next start is number {} (it was {})", done.starts + 1, done.starts_before + 1));
    if done.was_shut_out {
        line("it was shut out as an older copy of itself, and is not any more");
    }
    line("this is right only if the folder is the node's newest and was never put back from a copy");
    Ok(ExitCode::SUCCESS)
}

fn hexadecimal(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16)
        .map_err(|_| format!("up to 16 hexadecimal digits were wanted, and {text:?} is not that"))
}
