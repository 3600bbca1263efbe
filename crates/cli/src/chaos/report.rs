//! What a run came to, for people and for scripts.

use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::check::Found;
use super::faults::Inflicted;
use super::writer::{Fate, Writer};
use crate::args::{ChaosArgs, Fault};

/// A fault, and how long it was felt.
struct Felt {
    fault: Fault,
    victim: u32,
    led: bool,
    led_metadata: bool,
    what: String,
    /// Until it was undone.
    lasted_ms: Option<f64>,
    /// From the fault to the arrival of the first acknowledgement of what was sent after it; `None` if there was none.
    ms: Option<f64>,
    /// The longest time without any acknowledgement from the fault to the next fault, or to the end.
    pause_ms: Option<f64>,
}

/// The report.
pub(crate) struct Report {
    command: String,
    seconds: f64,
    acknowledged: u64,
    failed: u64,
    unknown: u64,
    once_unknown: u64,
    repeated: u64,
    failures: Vec<String>,
    faults: Vec<Felt>,
    found: Vec<Found>,
}

impl Report {
    pub(crate) fn new(
        args: &ChaosArgs,
        took: Duration,
        writers: &[Writer],
        faults: &[Inflicted],
        found: &[Found],
    ) -> Report {
        let fates = || writers.iter().flat_map(|writer| &writer.fates);
        let count = |is: fn(&Fate) -> bool| fates().filter(|fate| is(fate)).count() as u64;
        let mut failures: Vec<String> = fates()
            .filter_map(|fate| if let Fate::Failed(reason) = fate { Some(reason.clone()) } else { None })
            .collect();
        failures.sort();
        failures.dedup();
        failures.truncate(10);
        let acknowledged = || writers.iter().flat_map(|writer| &writer.acknowledged);
        let mut arrivals: Vec<Instant> = acknowledged().map(|one| one.at).collect();
        arrivals.sort();
        let felt = |(at, one): (usize, &Inflicted)| {
            let next = acknowledged().filter(|acknowledged| acknowledged.sent > one.at).map(|one| one.at).min();
            let ms = next.map(|next| milliseconds(one.at, next));
            let until = faults.get(at + 1).map(|next| next.at);
            let pause_ms = longest_pause(&arrivals, one.at, until);
            Felt {
                fault: one.fault,
                victim: one.victim,
                led: one.led,
                led_metadata: one.led_metadata,
                what: one.what.clone(),
                lasted_ms: one.until.map(|until| milliseconds(one.at, until)),
                ms,
                pause_ms,
            }
        };
        let kinds: Vec<String> = args.faults.0.iter().map(|fault| fault.name()).collect();
        Report {
            command: format!(
                "highwater chaos --nodes {} --seconds {} --writers {} --every {} --restart-after {} --faults {}",
                args.nodes,
                args.seconds,
                args.writers,
                args.kill_every,
                args.restart_after,
                kinds.join(",")
            ),
            seconds: took.as_secs_f64(),
            acknowledged: count(|fate| matches!(fate, Fate::Acknowledged)),
            failed: count(|fate| matches!(fate, Fate::Failed(_))),
            unknown: count(|fate| matches!(fate, Fate::Unknown { .. })),
            once_unknown: writers.iter().map(|writer| writer.once_unknown).sum(),
            repeated: writers.iter().map(|writer| writer.repeated).sum(),
            failures,
            faults: faults.iter().enumerate().map(felt).collect(),
            found: found.to_vec(),
        }
    }

    fn greatest(&self, of: impl Fn(&Found) -> u64) -> u64 {
        self.found.iter().map(of).max().unwrap_or(0)
    }

    /// Whether everything acknowledged is there once and nothing else is; and something was acknowledged.
    pub(crate) fn is_clean(&self) -> bool {
        self.acknowledged > 0 && self.greatest(|found| found.lost + found.duplicated + found.phantom) == 0
    }

    /// The times felt, in groups: by fault, and by whether the victim led the metadata.
    fn groups(&self, of: impl Fn(&Felt) -> Option<f64>) -> Vec<(String, Vec<f64>)> {
        let mut groups = Vec::new();
        for fault in Fault::value_variants() {
            for led_metadata in [false, true] {
                let times = self.faults.iter().filter(|one| one.fault == *fault && one.led_metadata == led_metadata);
                let mut times: Vec<f64> = times.filter_map(&of).collect();
                times.sort_by(f64::total_cmp);
                if !times.is_empty() {
                    let also = if led_metadata { "the metadata's leader" } else { "not the metadata's leader" };
                    groups.push((format!("{}, {also}", fault.name()), times));
                }
            }
        }
        groups
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut put = |line: String| {
            let _ = writeln!(text, "{line}");
        };
        put(format!("$ {}", self.command));
        put(format!(
            "{} acknowledged in {:.1} s ({:.0} per second), {} failed, {} unknown ({} before they were asked about again), {} needed more than one attempt",
            self.acknowledged,
            self.seconds,
            self.acknowledged as f64 / self.seconds,
            self.failed,
            self.unknown,
            self.once_unknown,
            self.repeated
        ));
        let (lost, duplicated, phantom) =
            (self.greatest(|f| f.lost), self.greatest(|f| f.duplicated), self.greatest(|f| f.phantom));
        put(format!("lost {lost}, duplicated {duplicated}, phantom {phantom}"));
        for found in &self.found {
            put(format!(
                "  {}: {} rows, lost {}, duplicated {}, phantom {}, of the unknown {} there",
                found.of, found.rows, found.lost, found.duplicated, found.phantom, found.unknown_there
            ));
            found.examples.iter().for_each(|example| put(format!("    {example}")));
        }
        self.failures.iter().for_each(|failure| put(format!("  failed: {failure}")));
        let groups = [
            ("from the fault to the acknowledgement of a write sent after it", self.groups(|one| one.ms)),
            ("the longest time without any acknowledgement, until the next fault", self.groups(|one| one.pause_ms)),
        ];
        for (what, groups) in groups {
            put(format!("{what}, in milliseconds:"));
            for (group, times) in groups {
                put(format!(
                    "  {group}: {} times, min {:.0}, median {:.0}, p90 {:.0}, max {:.0}",
                    times.len(),
                    times[0],
                    quantile(&times, 0.5),
                    quantile(&times, 0.9),
                    times[times.len() - 1]
                ));
            }
        }
        for (at, one) in self.faults.iter().enumerate() {
            let also = match (one.led, one.led_metadata) {
                (true, true) => ", which led the database and the metadata",
                (true, false) => ", which led the database",
                (false, true) => ", which led the metadata",
                (false, false) => "",
            };
            let felt = one.ms.map_or("no write was acknowledged afterwards".into(), |ms| format!("{ms:.1} ms"));
            let pause = one.pause_ms.map_or_else(String::new, |ms| format!(", pause {ms:.1} ms"));
            put(format!("  {}. {} node {}{also}, {}: {felt}{pause}", at + 1, one.fault.name(), one.victim, one.what));
        }
        text.trim_end().to_string()
    }

    pub(crate) fn document(&self) -> Value {
        let groups = |groups: Vec<(String, Vec<f64>)>| -> Vec<Value> {
            let document = |(group, times): (String, Vec<f64>)| {
                json!({"group": group, "count": times.len(), "min_ms": times[0], "median_ms": quantile(&times, 0.5),
                    "p90_ms": quantile(&times, 0.9), "max_ms": times[times.len() - 1]})
            };
            groups.into_iter().map(document).collect()
        };
        let faults: Vec<Value> = self
            .faults
            .iter()
            .map(|one| {
                json!({"fault": one.fault.name(), "node": one.victim, "led": one.led, "led_metadata": one.led_metadata,
                    "what": one.what, "lasted_ms": one.lasted_ms, "next_acknowledged_ms": one.ms,
                    "pause_ms": one.pause_ms})
            })
            .collect();
        let replicas: Vec<Value> = self
            .found
            .iter()
            .map(|found| {
                json!({"of": found.of, "rows": found.rows, "lost": found.lost, "duplicated": found.duplicated,
                    "phantom": found.phantom, "unknown_there": found.unknown_there, "examples": found.examples})
            })
            .collect();
        json!({
            "command": self.command, "seconds": self.seconds, "acknowledged": self.acknowledged, "failed": self.failed,
            "unknown": self.unknown, "once_unknown": self.once_unknown, "repeated": self.repeated,
            "lost": self.greatest(|f| f.lost), "duplicated": self.greatest(|f| f.duplicated),
            "phantom": self.greatest(|f| f.phantom), "failures": self.failures, "replicas": replicas, "recovery": groups(self.groups(|one| one.ms)), "pauses": groups(self.groups(|one| one.pause_ms)),
            "faults": faults,
        })
    }
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}

/// The longest time between two of the sorted instants, of which the first lies at or before `from`, or is that; and the last not after `until`, if that is given. `None`
/// if there is none after `from`.
fn longest_pause(sorted: &[Instant], from: Instant, until: Option<Instant>) -> Option<f64> {
    let after = sorted.partition_point(|at| *at <= from);
    let end = until.map_or(sorted.len(), |until| sorted.partition_point(|at| *at <= until));
    let mut last = if after == 0 { from } else { sorted[after - 1] };
    let mut longest = None;
    for at in sorted.get(after..end)? {
        longest = longest.max(Some(at.duration_since(last)));
        last = *at;
    }
    longest.map(|pause| pause.as_secs_f64() * 1000.0)
}

/// The smallest of the sorted times that at least that part of them do not exceed.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    assert!(!sorted.is_empty() && (0.0..=1.0).contains(&part), "a quantile of something");
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_with_the_last_acknowledgement_before_the_fault() {
        let zero = Instant::now();
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let arrivals: Vec<Instant> = [10, 20, 90, 100, 500].into_iter().map(at).collect();
        assert_eq!(longest_pause(&arrivals, at(25), Some(at(200))), Some(70.0));
        assert_eq!(longest_pause(&arrivals, at(25), None), Some(400.0));
        assert_eq!(longest_pause(&arrivals, at(4), Some(at(20))), Some(10.0));
        assert_eq!(longest_pause(&arrivals, at(500), None), None);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let times: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!((quantile(&times, 0.5), quantile(&times, 0.9), quantile(&times, 1.0)), (5.0, 9.0, 10.0));
        assert_eq!(quantile(&[7.0], 0.0), 7.0);
    }
}
