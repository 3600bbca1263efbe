//! `highwater verify`.

use std::process::ExitCode;

use crate::args::VerifyArgs;
use crate::client::Client;
use crate::output::{document, line};

/// Runs the command: exit 0 and one hash if all replicas agree, 1 naming the one that differs.
pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.cluster)?;
    let answer = match client.get(&format!("/verify?db={}", args.db)) {
        Ok(answer) => answer.document,
        Err(error) => {
            if args.cluster.json {
                document(&error.document());
            }
            return Err(error.into());
        }
    };
    let agree = answer["agree"] == true;
    if args.cluster.json {
        document(&answer);
    } else if agree {
        line(answer["hash"].as_str().unwrap_or_default());
    } else {
        if let Some(problem) = answer["problem"].as_str() {
            line(problem);
        }
        for replica in answer["replicas"].as_array().into_iter().flatten() {
            match replica["reason"].as_str() {
                Some(reason) => line(&format!("node {}: {reason}", replica["node"])),
                None => {
                    line(&format!("node {} has {} at offset {}", replica["node"], replica["hash"], replica["offset"]))
                }
            }
        }
        for node in answer["differing"].as_array().into_iter().flatten() {
            line(&format!("node {node} differs"));
        }
    }
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
