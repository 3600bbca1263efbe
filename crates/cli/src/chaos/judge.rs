//! `highwater chaos check` and `report`: from files to one report. Nothing is asked of any node.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use highwater_history::{Figures, Findings, History};

use super::report::Report;
use crate::args::{CheckArgs, JudgeArgs};
use crate::output::{document, line};

/// Runs the command.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut whole = Report::default();
    for file in &args.files {
        whole.merge(read(file, &args.judge)?);
    }
    give(&whole, &args.judge)
}

/// Judges a history, or reads a report.
fn read(file: &Path, args: &JudgeArgs) -> anyhow::Result<Report> {
    if is_json(file) {
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let report = serde_json::from_slice(&bytes);
        return report.with_context(|| {
            format!("{} is no report of `highwater chaos --report FILE.json`; histories end in .jsonl", file.display())
        });
    }
    judge(file, args)
}

/// Judges a history.
pub(crate) fn judge(file: &Path, args: &JudgeArgs) -> anyhow::Result<Report> {
    let open = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let history = History::read(BufReader::with_capacity(1 << 20, open))
        .map_err(|reason| anyhow!("{} cannot be judged: {reason}", file.display()))?;
    let findings = Findings::of(&history, args.search_max);
    Ok(Report { findings, figures: Figures::of(&history) })
}

/// Prints a report, writes it where that was asked for, and says by the exit code what it comes to.
pub(crate) fn give(report: &Report, args: &JudgeArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.report {
        let text = if is_json(file) { report.json() + "\n" } else { report.markdown() };
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if args.json {
        document(&report.document());
    } else {
        line(report.text().trim_end());
    }
    Ok(if report.is_clean(args.allow_undecided) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "json")
}
