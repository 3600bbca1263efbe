//! Data folders that are not as the node left them, and disks that are full. A node refuses, naming the file and what to do, or repairs from what is
//! whole; it never serves less than was acknowledged as if nothing were missing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::data;
use crate::http::Connection;
use crate::node::{HIGHWATER, Node, free_address, spawn_logged};

/// Rows written before a folder is damaged.
const ROWS: u64 = 200;

/// How the node of a damaged folder had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By SIGTERM, in good order: all of the log is known to have been flushed.
    Stopped,
    /// By SIGKILL. Damage to the very last flush cannot be told from a write that the crash tore, so one more write, which is not asked for later, is the last.
    Killed,
}

/// A node that has ended after `ROWS` acknowledged rows.
fn ended_node(end: End) -> Node {
    let mut node = Node::start();
    node.rows("CREATE TABLE kept (id INTEGER PRIMARY KEY, value TEXT)");
    let mut connection = Connection::open(node.address());
    for chunk in 0..ROWS / 20 {
        let one = |n: u64| json!({ "sql": "INSERT INTO kept (value) VALUES (?)", "args": [format!("row {}", chunk * 20 + n)] });
        let statements: Vec<Value> = (0..20).map(one).collect();
        let (status, answer) = connection.post("/db/main/sql", &json!({ "statements": statements }));
        assert_eq!(status, 200, "{answer}");
    }
    match end {
        End::Stopped => node.stop(),
        End::Killed => {
            // The metadata too has a last flush; after a restart it is one that takes office anew, and not the one that made the database.
            node.kill();
            node.restart();
            node.rows("CREATE TABLE last (a)");
            node.kill();
        }
    }
    node
}

/// Every file below a folder, by its path from there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("the data folder can be listed") {
            let path = entry.expect("the data folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).expect("the walk stays below the folder").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A copy of a folder as `data` in a new temporary one.
fn copy(folder: &Path) -> TempDir {
    let target = TempDir::new().expect("a temporary folder");
    for file in files(folder) {
        let to = target.path().join("data").join(&file);
        fs::create_dir_all(to.parent().expect("a file lies in a folder")).expect("the copy can be written");
        fs::copy(folder.join(&file), to).expect("the copy can be written");
    }
    target
}

/// What became of a node that was started on a damaged folder.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It serves everything that was acknowledged.
    Whole,
    /// It refuses to start, or to serve the database, and says why.
    Refused,
    /// It serves everything that was acknowledged, and says that it made the database file anew.
    Mended,
}

/// Starts a node on a folder and finds out. Anything but those fates fails the test.
fn fate_of(folder: TempDir, file: &Path, damage: &str) -> Fate {
    let address = free_address();
    let mut command = Command::new(HIGHWATER);
    command.arg("serve").arg("--data").arg(folder.path().join("data")).args(["--listen", &address.to_string()]);
    let mut process = spawn_logged(&mut command, folder.path());
    let log = || crate::node::log_of(folder.path());
    for _ in 0..12_000 {
        if let Some(status) = process.0.try_wait().expect("the process can be asked") {
            assert!(!status.success(), "{damage}: ended as if all were well");
            assert!(status.code().is_some_and(|code| code != 101), "{damage}: a panic is no clear error:\n{}", log());
            assert_names(file, &log(), damage);
            return Fate::Refused;
        }
        let all = br#"{"sql": "SELECT id, value FROM kept ORDER BY id"}"#;
        let asked = Connection::try_open(address).and_then(|mut c| c.try_request("POST", "/db/main/sql", &[], all));
        if let Ok(response) = asked {
            let answer = response.json();
            if response.status == 200 {
                let expected: Vec<Value> = (0..ROWS).map(|n| json!([n + 1, format!("row {n}")])).collect();
                let found = answer["results"][0]["rows"].as_array().expect("rows are a list");
                let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
                assert!(differs.is_none(), "{damage}: another row than was written is served: {differs:?}\n{}", log());
                assert_eq!(found.len(), expected.len(), "{damage}: acknowledged rows are missing\n{}", log());
                if log().contains("made anew from the log") {
                    assert_names(file, &log(), damage);
                    return Fate::Mended;
                }
                return Fate::Whole;
            }
            let message = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
            let waiting = answer["error"]["code"] == "DATABASE_UNKNOWN"
                || [" yet", "no leader is known"].iter().any(|hint| message.contains(hint));
            if !waiting {
                assert_names(file, &format!("{message}\n{}", log()), damage);
                return Fate::Refused;
            }
        }
        crate::node::pause();
    }
    panic!("{damage}: neither serves nor says why:\n{}", log());
}

/// That a message names the file, or at least the folder that it lies in, below the data folder; or says, in SQLite's words, what only SQLite can notice.
fn assert_names(file: &Path, said: &str, damage: &str) {
    if said.contains("database disk image is malformed") {
        return;
    }
    let within = file.parent().map(|folder| format!("data/{}", folder.display())).unwrap_or_default();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    assert!(said.contains(within.trim_end_matches('/')), "{damage}: the folder is not named in:\n{said}");
    let whole_log = ["log", "meta"].iter().any(|log| within.ends_with(log));
    assert!(whole_log || said.contains(&*name), "{damage}: the file is not named in:\n{said}");
}

#[test]
fn a_flipped_byte_in_each_kind_of_file_of_a_stopped_node() {
    flip_bytes(End::Stopped);
}

#[test]
fn a_flipped_byte_in_each_kind_of_file_of_a_killed_node() {
    flip_bytes(End::Killed);
}

/// Flips one byte at each of several places of each file, one at a time.
fn flip_bytes(end: End) {
    let node = ended_node(end);
    let original = node.data();
    let mut fates: BTreeMap<PathBuf, Vec<(usize, Fate)>> = BTreeMap::new();
    for file in files(&original) {
        let bytes = fs::read(original.join(&file)).expect("the file can be read");
        // The last byte that is not zero: behind it lies space that was only set aside.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        for at in places(used) {
            let folder = copy(&original);
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            fs::write(folder.path().join("data").join(&file), &damaged).expect("the copy can be written");
            let damage = format!("{end:?}, byte {at} of {} flipped in {}", bytes.len(), file.display());
            let fate = fate_of(folder, &file, &damage);
            assert_eq!(fate == Fate::Mended, file.ends_with("database.sqlite"), "{damage}: {fate:?}");
            fates.entry(file.clone()).or_default().push((at, fate));
        }
    }
    eprintln!("{end:?}: {fates:?}");
    let refused = fates.values().flatten().filter(|(_, fate)| *fate == Fate::Refused).count();
    assert!(refused >= 3, "hardly any damage was noticed: {fates:#?}");
}

/// Where bytes are flipped in a file of which so many are used.
fn places(used: usize) -> Vec<usize> {
    let mut places = vec![0, 9, used / 3, used / 2, used.saturating_sub(30), used.saturating_sub(1)];
    places.retain(|at| *at < used);
    places.sort_unstable();
    places.dedup();
    places
}

/// Removes each file, and cuts each to half its length.
#[test]
fn a_file_that_is_gone_or_shortened() {
    let node = ended_node(End::Killed);
    let original = node.data();
    for file in files(&original) {
        let folder = copy(&original);
        fs::remove_file(folder.path().join("data").join(&file)).expect("the copy can be changed");
        let gone = fate_of(folder, &file, &format!("{} removed", file.display()));
        let folder = copy(&original);
        let shortened = fs::File::options()
            .write(true)
            .open(folder.path().join("data").join(&file))
            .expect("the copy can be changed");
        let length = shortened.metadata().expect("a file has a length").len();
        shortened.set_len(length / 2).expect("the copy can be changed");
        let half = fate_of(folder, &file, &format!("{} cut to half of its {length} bytes", file.display()));
        eprintln!("{}: removed {gone:?}, half {half:?}", file.display());
        if file.ends_with("database.sqlite") {
            assert_eq!((gone, half), (Fate::Mended, Fate::Mended));
        }
    }
}

/// The log of one folder put into another, and a folder started as another node's.
#[test]
fn a_folder_of_another_cluster() {
    let ours = ended_node(End::Killed);
    let mut theirs = ended_node(End::Killed);
    // Each kind of file of theirs in place of ours.
    let mut refused = 0;
    for file in files(&theirs.data()) {
        let folder = copy(&ours.data());
        fs::copy(theirs.data().join(&file), folder.path().join("data").join(&file)).expect("the copy can be changed");
        let fate = fate_of(folder, &file, &format!("{} of another cluster", file.display()));
        refused += usize::from(fate == Fate::Refused);
    }
    assert!(refused >= 2, "foreign files were hardly noticed");

    theirs.restart();
    theirs.kill();
    let folder = theirs.into_folder();
    let address = free_address();
    let mut command = Command::new(HIGHWATER);
    command.arg("serve").arg("--data").arg(folder.path().join("data")).args([
        "--listen",
        &address.to_string(),
        "--id",
        "7",
    ]);
    let output = command.output().expect("the binary can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "a folder of node 1 was taken for node 7's");
    assert!(said.contains("belongs to node 1") && said.contains("node 7"), "{said}");
}

/// SQLite's files hold nothing that the log does not: without them the database is made anew.
#[test]
fn a_database_whose_sqlite_files_are_gone() {
    let mut node = ended_node(End::Killed);
    node.restart();
    let hash = node.content_hash();
    node.kill();
    fs::remove_dir_all(node.data().join("db/main/sql")).expect("the folder can be removed");
    node.restart();
    assert_eq!(node.content_hash(), hash);
}

/// A byte of the database file flipped under a running node: it says so when it is asked, naming the file and the page, and a restart mends it.
#[test]
fn a_flipped_byte_under_a_running_node() {
    let mut node = ended_node(End::Stopped);
    node.restart();
    let hash = node.content_hash();
    let file = fs::File::options().read(true).write(true).open(node.data().join("db/main/sql/database.sqlite"));
    let file = file.expect("the file can be opened");
    let mut byte = [0];
    let at = 4096 + 4000;
    file.read_exact_at(&mut byte, at).expect("the file can be read");
    file.write_all_at(&[byte[0] ^ 0x20], at).expect("the file can be written");

    let output = node.run(&["verify", "--json"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("database.sqlite") && said.contains("page 2 (bytes 4096 to 8192)"), "{said}");
    assert!(said.contains("Restart"), "{said}");

    node.kill();
    node.restart();
    assert_eq!(node.content_hash(), hash);
    assert!(node.log().contains("made anew from the log"), "{}", node.log());
    assert!(node.data().join("db/main/sql/database.sqlite.damaged").exists());
    node.stop();
    node.restart();
    assert_eq!(node.content_hash(), hash);
    assert_eq!(node.log().matches("made anew from the log").count(), 1, "{}", node.log());
}

/// Two processes on one folder: the second is refused and the first goes on.
#[test]
fn a_folder_that_is_in_use() {
    let node = Node::start();
    let output = Command::new(HIGHWATER)
        .arg("serve")
        .arg("--data")
        .arg(node.data())
        .args(["--listen", &free_address().to_string()])
        .output()
        .expect("the binary can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("in use"), "{said}");
    assert_eq!(node.rows("SELECT 1"), json!([[1]]));
}

/// A disk that fills up: writes are refused, reads go on, everything acknowledged stays, and service returns with the space.
#[test]
fn a_full_disk() {
    let Some(mount) = name_space() else { return };
    let folder = TempDir::new().expect("a temporary folder");
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("the folder can be made");
    let address = free_address();
    // A memory file system that only this process and its children see; `exec` keeps the process id.
    let script = r#"mount -t tmpfs -o size=96m tmpfs "$1" && exec "$2" serve --data "$1/data" --listen "$3""#;
    let mut command = Command::new(mount[0]);
    command.args(&mount[1..]).args(["sh", "-c", script, "sh"]).arg(&disk).arg(HIGHWATER).arg(address.to_string());
    let mut process = spawn_logged(&mut command, folder.path());
    let log = || crate::node::log_of(folder.path());
    wait_until("ready", || {
        assert!(process.0.try_wait().expect("the process can be asked").is_none(), "ended early:\n{}", log());
        status_of(address, "GET", "/ready", b"") == Some(200)
    });
    let ask = |sql: &str, value: &str| {
        Connection::open(address).post(
            "/db/main/sql",
            &json!({ "sql": sql, "args": if value.is_empty() { json!([]) } else { json!([value]) } }),
        )
    };
    let (status, answer) = ask("CREATE TABLE kept (id INTEGER PRIMARY KEY, value TEXT)", "");
    assert_eq!(status, 200, "{answer}");

    // Fill it, first by writing rows; `held` counts what was acknowledged, `unknown` what was neither acknowledged nor denied.
    let value = "x".repeat(1 << 20);
    let (mut held, mut unknown) = (0_u64, 0_u64);
    let refusal = loop {
        let (status, answer) = ask("INSERT INTO kept (value) VALUES (?)", &value);
        match (status, answer["error"]["outcome"].as_str()) {
            (200, _) => held += 1,
            (_, Some("failed")) => break answer,
            (_, Some("unknown")) => {
                unknown += 1;
                break answer;
            }
            _ => panic!("{status}: {answer}"),
        }
        assert!(held < 200, "the disk never fills");
    };
    assert!(held > 5, "hardly anything fits on the disk: {refusal}");
    let message = refusal["error"]["message"].as_str().unwrap_or_default().to_lowercase();
    assert!(["space", "full"].iter().any(|word| message.contains(word)), "the reason is named: {refusal}");
    assert!(
        process.0.try_wait().expect("the process can be asked").is_none(),
        "a full disk ended the node:\n{}",
        log()
    );

    // Reads go on.
    let (status, answer) = ask("SELECT count(*) FROM kept", "");
    assert_eq!(status, 200, "{answer}");
    let count = answer["results"][0]["rows"][0][0].as_u64().expect("a count is a number");
    assert!((held..=held + unknown).contains(&count), "{held} acknowledged, {unknown} unknown, {count} there");

    // More space, and service returns without anybody repairing data.
    let pid = process.0.id().to_string();
    let grown = Command::new("nsenter")
        .args(["--target", &pid, "--user", "--mount", "--preserve-credentials"])
        .args(["mount", "-o", "remount,size=256m"])
        .arg(&disk)
        .status()
        .expect("nsenter can be started");
    assert!(grown.success(), "the memory file system can be grown");
    wait_until("written again", || {
        let (status, answer) = ask("INSERT INTO kept (value) VALUES (?)", "small");
        assert!(status == 200 || !answer["error"]["outcome"].is_null(), "{answer}");
        unknown += u64::from(answer["error"]["outcome"] == "unknown");
        held += u64::from(status == 200);
        status == 200
    });
    let (_, answer) = ask("SELECT count(*) FROM kept", "");
    let count = answer["results"][0]["rows"][0][0].as_u64().expect("a count is a number");
    assert!((held..=held + unknown).contains(&count), "{held} acknowledged, {unknown} unknown, {count} there");
}

/// How to run a command in a mount name space of its own; nothing, loudly, where that is not allowed.
fn name_space() -> Option<Vec<&'static str>> {
    let command = vec!["unshare", "--map-root-user", "--mount"];
    let probe = Command::new(command[0]).args(&command[1..]).arg("true").stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| status.success()) {
        return Some(command);
    }
    data::skip("mount name spaces are not allowed here, so that no disk can be filled");
    None
}

fn status_of(address: std::net::SocketAddr, method: &str, path: &str, body: &[u8]) -> Option<u16> {
    Connection::try_open(address).and_then(|mut c| c.try_request(method, path, &[], body)).ok().map(|r| r.status)
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        crate::node::pause();
    }
    panic!("not {what} after a minute");
}
