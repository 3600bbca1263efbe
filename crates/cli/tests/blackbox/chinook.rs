//! The Chinook sample database, loaded through `highwater sql --file`, whole and with the node killed at random moments.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tempfile::TempDir;

use crate::data;
use crate::node::{HIGHWATER, Node, Process, log_of};

/// How often the node is killed.
const KILLS: u32 = 10;

/// All rows of all tables.
const ROWS: u64 = 15_607;

/// What the script holds, wherever it was loaded from.
pub(crate) fn assert_complete(node: &Node) {
    assert_eq!(node.rows("SELECT count(*) FROM Track"), json!([[3503]]));
    assert_eq!(node.rows("SELECT count(*) FROM Invoice"), json!([[412]]));
    assert_eq!(node.rows("SELECT count(*) FROM InvoiceLine"), json!([[2240]]));
    assert_eq!(rows_of_all_tables(node), ROWS);
    assert_eq!(node.rows("PRAGMA foreign_key_check"), json!([]));
    assert_eq!(node.rows("PRAGMA integrity_check"), json!([["ok"]]));
    assert_eq!(node.rows("SELECT Name FROM Artist WHERE ArtistId = 6"), json!([["Ant\u{f4}nio Carlos Jobim"]]));
}

fn rows_of_all_tables(node: &Node) -> u64 {
    let tables = node.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'");
    let names = tables.as_array().expect("rows are a list").iter().filter_map(|row| row[0].as_str());
    let counts = names.map(|name| node.rows(&format!("SELECT count(*) FROM \"{name}\""))[0][0].as_u64().unwrap_or(0));
    counts.sum()
}

/// What a load came to.
enum Load {
    Complete,
    /// It broke off, and says how to go on: the line, and the name of the run.
    Broken {
        from_line: String,
        run: String,
    },
}

/// Runs `highwater sql --file`, going on with a run that broke off; `meanwhile` runs beside it.
fn load(
    node: &mut Node,
    script: &Path,
    going_on: Option<&(String, String)>,
    meanwhile: impl FnOnce(&mut Node),
) -> Load {
    let folder = TempDir::new().expect("a temporary folder");
    let stderr = fs::File::create(folder.path().join("log")).expect("the log can be made");
    let mut command = Command::new(HIGHWATER);
    command.args(["sql", "--retry", "0", "--url", &node.url(), "--file"]).arg(script);
    if let Some((from_line, run)) = going_on {
        command.args(["--from-line", from_line, "--run", run]);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
    let mut process = Process(child.expect("the binary can be started"));
    meanwhile(node);
    let status = process.0.wait().expect("the process ends");
    let said = log_of(folder.path());
    if status.success() {
        return Load::Complete;
    }
    let mut words = said.split_whitespace().skip_while(|word| *word != "--from-line");
    let from_line =
        words.nth(1).unwrap_or_else(|| panic!("a load that broke off says how to go on: {said}\n{}", node.log()));
    let run = words.nth(1).unwrap_or_else(|| panic!("a load that broke off names its run: {said}"));
    Load::Broken { from_line: from_line.to_owned(), run: run.to_owned() }
}

/// Loads a script into an empty database, and returns the content's hash and how long it took.
fn fresh_load(script: &Path) -> (String, Duration) {
    let mut node = Node::start();
    let begun = Instant::now();
    load_undisturbed(&mut node, script);
    let took = begun.elapsed();
    assert_complete(&node);
    (node.content_hash(), took)
}

/// Loads a script whole.
pub(crate) fn load_undisturbed(node: &mut Node, script: &Path) {
    let outcome = load(node, script, None, |_| {});
    assert!(matches!(outcome, Load::Complete), "nobody disturbed this load:\n{}", node.log());
}

/// Numbers that look random; the same seed gives the same ones.
struct Random(u64);

impl Random {
    fn new() -> Random {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.subsec_nanos());
        eprintln!("seed of the moments: {seed}");
        Random(u64::from(seed) | 1)
    }

    /// A moment between nothing and `end`.
    fn moment(&mut self, end: Duration) -> Duration {
        // Knuth's multiplier for 64 bits; the upper bits are the good ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        end.mul_f64((self.0 >> 40) as f64 / f64::from(1 << 24))
    }
}

/// Loads a script again and again, killing the node at random moments and going on after each restart, until it was killed `KILLS` times. `at_least` says how
/// many rows must be there when everything before a line is done.
fn load_with_kills(script: &Path, at_least: impl Fn(usize) -> u64) {
    let (hash, undisturbed) = fresh_load(script);
    let mut random = Random::new();
    let mut kills = 0;
    let mut loads = 0;
    while kills < KILLS {
        loads += 1;
        assert!(loads < 60, "only {kills} kills in {loads} loads: they end before the node is killed");
        let mut node = Node::start();
        let mut going_on = None;
        loop {
            // Most moments fall into what is left of the load, since it gets shorter each time.
            let moment = if kills < KILLS { Some(random.moment(undisturbed)) } else { None };
            let outcome = load(&mut node, script, going_on.as_ref(), |node| {
                if let Some(moment) = moment {
                    // sleep: a random moment is the point; nothing is waited for.
                    std::thread::sleep(moment);
                    node.kill();
                }
            });
            if moment.is_some() {
                node.restart();
            }
            match outcome {
                Load::Complete => break,
                Load::Broken { from_line, run } => {
                    assert!(moment.is_some(), "nobody disturbed this load:\n{}", node.log());
                    kills += 1;
                    let there = rows_of_all_tables(&node);
                    let done = at_least(from_line.parse().expect("a line is a number"));
                    assert!(there >= done, "{done} rows were acknowledged before line {from_line}, {there} are there");
                    going_on = Some((from_line, run));
                }
            }
        }
        assert_complete(&node);
        assert_eq!(node.content_hash(), hash, "the content differs from that of an undisturbed load");
    }
    eprintln!("{kills} kills in {loads} loads");
}

#[test]
fn the_script_loads_and_survives_kills() {
    let Some(folder) = data::folder("chinook") else { return };
    load_with_kills(&folder.join("chinook_sqlite.sql"), |_| 0);
}

/// The same rows with a statement for each, so that a load has many moments at which something was acknowledged and more is under way.
#[test]
fn row_by_row_the_script_loads_and_survives_kills() {
    let Some(folder) = data::folder("chinook") else { return };
    let script = fs::read_to_string(folder.join("chinook_sqlite.sql")).expect("the script can be read");
    let target = TempDir::new().expect("a temporary folder");
    let file = target.path().join("rows.sql");
    let rewritten = row_by_row(&script);
    fs::write(&file, &rewritten).expect("the script can be written");
    let is_row: Vec<bool> = rewritten.lines().map(|line| line.starts_with("INSERT INTO")).collect();
    assert_eq!(is_row.iter().filter(|row| **row).count() as u64, ROWS);
    load_with_kills(&file, |line| is_row[..line - 1].iter().filter(|row| **row).count() as u64);
}

/// Gives each row of an INSERT its own statement, on a line of its own. The script has one row to a line.
fn row_by_row(script: &str) -> String {
    let mut rewritten = String::new();
    let mut head = None;
    for line in script.lines() {
        let row = line.trim().trim_end_matches([',', ';']);
        match &head {
            _ if line.starts_with("INSERT INTO") => head = Some(line.trim_end()),
            Some(head) if row.starts_with('(') => writeln!(rewritten, "{head} {row};").expect("a string takes all"),
            _ => {
                head = None;
                rewritten.push_str(line);
                rewritten.push('\n');
            }
        }
    }
    rewritten
}
