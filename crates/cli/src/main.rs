//! The `highwater` command.
//!
//! Exit codes: 0 for success; 1 for what went wrong, said on standard error; 2 for a wrong command line.

mod args;
mod bench;
mod chaos;
mod client;
mod cluster;
mod db;
mod dev;
mod log_dump;
mod log_replay;
mod model;
mod net;
mod node_adopt;
mod output;
mod process;
mod reload;
mod secret_files;
mod seeds;
mod serve;
mod serve_config;
mod sim;
mod sources;
mod sql;
mod status;
mod verify;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, LogCommand, NodeCommand};

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A library that is left to choose finds one; whatever else may have been linked in.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = match &cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Dev(args) => dev::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Chaos(args) => chaos::run(args),
        Command::Sql(args) => sql::run(args),
        Command::Status(args) => status::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Db(command) => db::run(command),
        Command::Sim(args) => sim::run(args),
        Command::Log(LogCommand::Dump(args)) => log_dump::run(args),
        Command::Log(LogCommand::Replay(args)) => log_replay::run(args),
        Command::Node(NodeCommand::Adopt(args)) => node_adopt::run(args),
        Command::Secret => secret(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // Without a standard error there is the exit code.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a new cluster secret.
fn secret() -> anyhow::Result<ExitCode> {
    let secret = highwater_node::Secret::generate();
    output::line(&secret.map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?);
    Ok(ExitCode::SUCCESS)
}
