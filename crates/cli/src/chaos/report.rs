//! What runs came to, for people and for scripts.

use std::collections::BTreeMap;
use std::fmt::Write;

use highwater_history::{Felt, Figures, Findings, LAWS, Spread};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::output::table;

/// The report of one run or of several.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) findings: Findings,
    pub(crate) figures: Figures,
}

/// A piece of it.
enum Piece {
    Title(&'static str),
    Line(String),
    /// Columns and rows; in text, numbers stand to the right.
    Table(Vec<&'static str>, Vec<Vec<Value>>),
}

impl Report {
    /// Adds another run's.
    pub(crate) fn merge(&mut self, other: Report) {
        self.findings.merge(other.findings);
        self.figures.merge(other.figures);
    }

    fn acknowledged(&self, level: &str) -> u64 {
        self.figures.acknowledged.get(level).copied().unwrap_or(0)
    }

    /// Whether every law holds, everything was decided or need not be, and something was acknowledged.
    pub(crate) fn is_clean(&self, allow_undecided: bool) -> bool {
        let held = self.findings.violations.is_empty() && (allow_undecided || self.findings.undecided.is_empty());
        held && self.acknowledged("committed") > 0
    }

    /// For people at a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for piece in self.pieces() {
            let _ = match piece {
                Piece::Title(title) => writeln!(text, "\n{title}"),
                Piece::Line(line) => writeln!(text, "{line}"),
                Piece::Table(columns, rows) => {
                    let columns: Vec<String> = columns.into_iter().map(str::to_string).collect();
                    writeln!(text, "{}", table(&columns, &rows))
                }
            };
        }
        text
    }

    /// For documents.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("# Chaos\n");
        for piece in self.pieces() {
            let _ = match piece {
                Piece::Title(title) => writeln!(text, "\n## {title}\n"),
                Piece::Line(line) => writeln!(text, "{line}  "),
                Piece::Table(columns, rows) => {
                    let _ = writeln!(text, "\n| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
                    for row in &rows {
                        let cells: Vec<String> = row.iter().map(cell).collect();
                        let _ = writeln!(text, "| {} |", cells.join(" | "));
                    }
                    writeln!(text)
                }
            };
        }
        text
    }

    /// For this command, which can add reports up.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(&self.document()).expect("a report is made of strings, numbers and lists")
    }

    /// For scripts: what [`Report`] is read from, with the figures asked for most at the top.
    pub(crate) fn document(&self) -> Value {
        let count = |law| self.findings.count(law);
        json!({
            "clean": self.is_clean(false), "acknowledged": self.acknowledged("committed"), "lost": count("lost"),
            "acknowledged_leader": self.acknowledged("leader"), "lost_leader": self.findings.lost_leader,
            "duplicated": count("duplicated"), "phantom": count("phantom"), "unknown": self.findings.unknown,
            "recovery": recovery(&self.figures.faults).iter().map(|(group, times)| json!({"group": group, "count": times.len(),
                "median_ms": quantile(times, 0.5), "p90_ms": quantile(times, 0.9), "max_ms": quantile(times, 1.0)})).collect::<Vec<_>>(),
            "findings": self.findings, "figures": self.figures,
        })
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.runs(&mut pieces);
        self.laws(&mut pieces);
        self.faults(&mut pieces);
        self.ages(&mut pieces);
        self.operations(&mut pieces);
        pieces
    }

    fn runs(&self, pieces: &mut Vec<Piece>) {
        for run in &self.figures.runs {
            pieces.push(Piece::Line(format!("$ {}", run.command)));
        }
        let seconds: f64 = self.figures.runs.iter().map(|run| run.seconds).sum();
        let readings: u64 = self.figures.runs.iter().map(|run| run.readings).sum();
        let operations: u64 =
            self.figures.operations.values().map(|outcomes| outcomes.done + outcomes.failed + outcomes.unknown).sum();
        let faults = self.figures.faults.len();
        pieces.push(Piece::Line(format!(
            "{} runs, {seconds:.0} s, {operations} operations, {faults} faults, {readings} readings of replicas",
            self.figures.runs.len()
        )));
    }

    fn laws(&self, pieces: &mut Vec<Piece>) {
        let findings = &self.findings;
        pieces.push(Piece::Title("Acknowledged and lost"));
        let lost = [("committed", findings.count("lost")), ("leader", findings.lost_leader)];
        let row = |(level, lost): (&str, u64)| vec![json!(level), json!(self.acknowledged(level)), json!(lost)];
        pieces.push(Piece::Table(vec!["level", "rows acknowledged", "then lost"], lost.map(row).to_vec()));
        pieces.push(Piece::Line(format!(
            "Rows whose outcome stayed unknown: {}, of which {} are there.",
            findings.unknown, findings.unknown_there
        )));
        pieces.push(Piece::Title("Laws"));
        let rows = LAWS.iter().map(|(law, means)| vec![json!(law), json!(findings.count(law)), json!(means)]);
        pieces.push(Piece::Table(vec!["law", "violations", "what it means"], rows.collect()));
        for (law, violations) in &findings.violations {
            let examples = violations.examples.iter().map(|example| Piece::Line(format!("{law}: {example}")));
            pieces.extend(examples);
        }
        pieces.extend(findings.undecided.iter().map(|what| Piece::Line(format!("not decided: {what}"))));
    }

    fn faults(&self, pieces: &mut Vec<Piece>) {
        let faults = &self.figures.faults;
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        faults.iter().for_each(|fault| *kinds.entry(&fault.kind).or_default() += 1);
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        pieces.push(Piece::Title("Faults"));
        let kinds = if kinds.is_empty() { "none".into() } else { kinds.join(", ") };
        pieces.push(Piece::Line(format!("{} faults: {kinds}", faults.len())));
        pieces.push(Piece::Line(
            "From the fault to the acknowledgement of a write that was sent after it, in milliseconds:".into(),
        ));
        let columns = || vec!["fault", "times", "min", "median", "p90", "p99", "max"];
        let row = |(group, times): (String, Vec<f64>)| {
            let mut row = vec![json!(group), json!(times.len()), json!(round(times[0]))];
            row.extend([0.5, 0.9, 0.99, 1.0].map(|part| json!(round(quantile(&times, part)))));
            row
        };
        pieces.push(Piece::Table(columns(), recovery(faults).into_iter().map(row).collect()));
        let without = faults.iter().filter(|fault| fault.next_ms.is_none()).count();
        if without > 0 {
            pieces.push(Piece::Line(format!("After {without} of the faults nothing was acknowledged any more.")));
        }
        pieces.push(Piece::Line(
            "The longest time without any acknowledgement that began between the last one before the fault and the next fault, in milliseconds:".into(),
        ));
        let pauses = groups(faults, |fault| fault.pause_ms);
        pieces.push(Piece::Table(columns(), pauses.into_iter().map(row).collect()));
        pieces.push(Piece::Line(format!("The longest of all: {} ms.", round(self.figures.pause_ms_max))));
    }

    fn ages(&self, pieces: &mut Vec<Piece>) {
        pieces.push(Piece::Title("How old reads were"));
        pieces.push(Piece::Line("Milliseconds before the read began at which the oldest row was acknowledged that it does not show (0: none), and entries of the log behind the last one acknowledged. Through every node, the leader among them:".into()));
        let columns = [
            "freshness",
            "reads",
            "missed nothing",
            "ms p50",
            "p90",
            "p99",
            "p99.9",
            "max",
            "entries p50",
            "p99",
            "max",
        ];
        let part = |spread: &Spread, part: f64| json!(spread.quantile(part).map(round));
        let rows = self.figures.ages.iter().map(|(freshness, age)| {
            let mut row = vec![json!(freshness), json!(age.ms.count), json!(age.fresh)];
            row.extend([0.5, 0.9, 0.99, 0.999, 1.0].map(|at| part(&age.ms, at)));
            row.extend([0.5, 0.99, 1.0].map(|at| part(&age.entries, at)));
            row
        });
        pieces.push(Piece::Table(columns.to_vec(), rows.collect()));
    }

    fn operations(&self, pieces: &mut Vec<Piece>) {
        pieces.push(Piece::Title("Operations"));
        let rows = self.figures.operations.iter().map(|(kind, outcomes)| {
            vec![json!(kind), json!(outcomes.done), json!(outcomes.failed), json!(outcomes.unknown)]
        });
        pieces.push(Piece::Table(vec!["operation", "done", "failed", "unknown"], rows.collect()));
        let rows: Vec<_> = self.figures.codes.iter().map(|(code, count)| vec![json!(code), json!(count)]).collect();
        if !rows.is_empty() {
            pieces.push(Piece::Table(vec!["code", "times"], rows));
        }
    }
}

/// Times until the next acknowledgement, in groups.
fn recovery(faults: &[Felt]) -> Vec<(String, Vec<f64>)> {
    groups(faults, |fault| fault.next_ms)
}

/// Times, sorted, in groups: by fault, and by what the victim led.
fn groups(faults: &[Felt], of: impl Fn(&Felt) -> Option<f64>) -> Vec<(String, Vec<f64>)> {
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for fault in faults {
        let led = match (fault.led, fault.led_metadata) {
            (true, true) => "leader of both",
            (true, false) => "leader of the database",
            (false, true) => "leader of the metadata",
            (false, false) => "leader of nothing",
        };
        if let Some(ms) = of(fault) {
            groups.entry(format!("{}, {led}", fault.kind)).or_default().push(ms);
        }
    }
    groups.values_mut().for_each(|times| times.sort_by(f64::total_cmp));
    groups.into_iter().collect()
}

/// The smallest of the sorted times that at least that part of them do not exceed.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    assert!(!sorted.is_empty() && (0.0..=1.0).contains(&part), "a quantile of something");
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// To three significant digits or so.
fn round(number: f64) -> f64 {
    if number < 100.0 { (number * 10.0).round() / 10.0 } else { number.round() }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.replace('|', "\\|").replace('\n', " "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn felt(kind: &str, led_metadata: bool, ms: f64) -> Felt {
        let (kind, what) = (kind.into(), String::new());
        Felt { kind, victim: 1, led: true, led_metadata, what, next_ms: Some(ms), pause_ms: None }
    }

    fn report() -> Report {
        let mut report = Report::default();
        report.figures.acknowledged.insert("committed".into(), 7);
        report.figures.faults = vec![felt("kill", true, 300.0), felt("kill", true, 100.0), felt("pause", false, 5.0)];
        report
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let times: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!((quantile(&times, 0.5), quantile(&times, 0.9), quantile(&times, 1.0)), (5.0, 9.0, 10.0));
        assert_eq!(quantile(&[7.0], 0.0), 7.0);
    }

    #[test]
    fn a_report_is_read_from_what_it_is_written_as_and_adds_up() {
        let mut whole: Report = serde_json::from_str(&report().json()).expect("a report");
        whole.merge(report());
        assert_eq!((whole.acknowledged("committed"), whole.figures.faults.len()), (14, 6));
        let text = whole.text();
        assert!(text.contains("6 faults: kill 4, pause 2"), "{text}");
        let markdown = whole.markdown();
        assert!(
            markdown.contains("|---|---|---|---|---|---|---|\n| kill, leader of both | 4 | 100.0 | 100.0 | 300.0 |"),
            "{markdown}"
        );
    }

    #[test]
    fn nothing_acknowledged_a_broken_law_or_an_open_question_is_not_clean() {
        assert!(report().is_clean(false));
        assert!(!Report::default().is_clean(false));
        let mut open = report();
        open.findings.undecided.push("a register".into());
        assert!(!open.is_clean(false) && open.is_clean(true));
        let mut broken = report();
        broken.findings.violations.insert("lost".into(), Default::default());
        assert!(!broken.is_clean(true));
    }
}
