//! The stock JavaScript client, `@libsql/client`, unmodified: one script for each topic, run by Node.js against a node.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::data;
use crate::node::{Node, Process};

#[test]
fn execute() {
    run_alone("execute");
}

#[test]
fn batch() {
    run_alone("batch");
}

#[test]
fn transaction() {
    run_alone("transaction");
}

#[test]
fn multiple() {
    run_alone("multiple");
}

#[test]
fn migrate() {
    run_alone("migrate");
}

#[test]
fn constraints() {
    run_alone("constraints");
}

#[test]
fn idle() {
    run_alone("idle");
}

#[test]
fn restart() {
    run_alone("restart");
}

/// Runs a script against a node of its own, which is killed and started again if the script asks for a restart.
fn run_alone(topic: &str) {
    let mut node = Node::start();
    let url = node.url();
    let outcome = run_script(topic, &[&url], || {
        node.kill();
        node.restart();
    });
    outcome.unwrap_or_else(|why| panic!("{why} The node's log:\n{}", node.log()));
}

/// Runs a script with these words, the first of which is the URL of its node. `restart` is what happens when the script asks for a restart.
///
/// # Errors
/// That the script failed. Its own reason is on standard error.
pub(crate) fn run_script(topic: &str, words: &[&str], restart: impl FnMut()) -> Result<(), String> {
    run_script_with(&[], topic, words, restart)
}

/// The same with these variables in the script's environment.
///
/// # Errors
/// As for [`run_script`].
pub(crate) fn run_script_with(
    environment: &[(&str, &str)],
    topic: &str,
    words: &[&str],
    mut restart: impl FnMut(),
) -> Result<(), String> {
    let Some(folder) = installed() else { return Ok(()) };
    let child = Command::new("node")
        .arg(folder.join(format!("{topic}.mjs")))
        .args(words)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node can be started");
    let mut script = Process(child);
    let mut to_script = script.0.stdin.take().expect("it was piped");
    let from_script = BufReader::new(script.0.stdout.take().expect("it was piped"));
    for line in from_script.lines() {
        match line.expect("the script writes text").strip_prefix("ask: ") {
            Some("restart") => {
                restart();
                writeln!(to_script, "done: restart").expect("the script reads");
            }
            Some(other) => panic!("{topic} asks for {other:?}, which is not known here"),
            None => {}
        }
    }
    drop(to_script);
    let status = script.0.wait().expect("the script ends");
    if status.success() { Ok(()) } else { Err(format!("{topic} failed ({status}); its reason is above.")) }
}

/// The folder with the scripts and the client installed beside them, in the target folder; nothing, loudly, where there is no Node.js.
fn installed() -> Option<PathBuf> {
    for tool in ["node", "npm"] {
        let there = Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
        if !there {
            data::skip(&format!("{tool} is not installed"));
            return None;
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libsql");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libsql");
    fs::create_dir_all(&target).expect("the target folder can be written to");
    // Tests run side by side, in processes of their own under some runners: one installs, the others wait for it.
    let lock = File::create(target.join("lock")).expect("the target folder can be written to");
    lock.lock().expect("a file can be locked");
    let wanted = fs::read(source.join("package-lock.json")).expect("the lock file is part of the project");
    let stamp = target.join("installed");
    let up_to_date = fs::read(&stamp).is_ok_and(|installed| installed == wanted);
    for entry in fs::read_dir(&source).expect("the scripts are part of the project") {
        let path = entry.expect("the folder can be listed").path();
        let name = path.file_name().expect("an entry has a name").to_owned();
        if path.is_file() && !(up_to_date && same(&path, &target.join(&name))) {
            fs::copy(&path, target.join(&name)).expect("the target folder can be written to");
        }
    }
    if !up_to_date {
        let npm = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
        let status = Command::new("npm").args(npm).current_dir(&target).status().expect("npm can be started");
        assert!(status.success(), "`npm {}` failed in {}: is the registry in reach?", npm.join(" "), target.display());
        fs::write(&stamp, wanted).expect("the target folder can be written to");
    }
    Some(target)
}

/// Whether two files hold the same; a script that another test runs right now is not written over with what it already holds.
fn same(a: &Path, b: &Path) -> bool {
    match (fs::read(a), fs::read(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
