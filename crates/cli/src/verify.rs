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
        for replica in answer["replicas"].as_array().into_iter().flatten() {
            line(&format!("node {} has {} at offset {}", replica["node"], replica["hash"], replica["offset"]));
        }
    }
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
