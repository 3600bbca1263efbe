//! What a node leaves lying about, and what it takes in: modes of files, secrets from files and their change while the node runs, core dumps, an end in time.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::http::Connection;
use crate::node::{HIGHWATER, Node, free_address, pause};

/// What a node does within some seconds it does within this, whatever the machine is busy with.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file that holds no certificate.
const NO_CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");

fn serve(arguments: &[&str]) -> Output {
    let folder = TempDir::new().expect("a folder");
    let mut command = Command::new(HIGHWATER);
    command.args(["serve", "--listen", &free_address().to_string(), "--data"]).arg(folder.path().join("data"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the binary can be started")
}

/// What a node that does not start says.
fn refusal(arguments: &[&str]) -> String {
    let output = serve(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

fn secret() -> String {
    let output = Command::new(HIGHWATER).arg("secret").output().expect("the binary can be started");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    text.strip_suffix('\n').expect("one line").to_string()
}

fn write(path: &Path, content: &str, mode: u32) {
    std::fs::write(path, content).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
}

fn status_with(node: &Node, token: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    Connection::open(node.address()).request("POST", "/db/main/sql", &headers, br#"{"sql": "SELECT 1"}"#).status
}

fn wait_until(what: &str, node: &Node, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}; the node says:\n{}", node.log());
        pause();
    }
}

/// Everything in a folder, and itself.
fn everything_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_path_buf()];
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(everything_in(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn a_nodes_files_are_its_own_whatever_the_umask_was() {
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    let address = free_address();
    let script = "umask 000; exec \"$0\" serve --listen \"$1\" --data \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, HIGHWATER, &address.to_string()]).arg(&data);
    let _process = crate::node::spawn_logged(&mut command, folder.path());
    let begun = Instant::now();
    let created = || {
        let mut connection = Connection::try_open(address).ok()?;
        let body = json!({"sql": "CREATE TABLE t (a)"}).to_string();
        let headers = [("content-type", "application/json")];
        let answer = connection.try_request("POST", "/db/main/sql", &headers, body.as_bytes()).ok()?;
        (answer.status == 200).then_some(())
    };
    while created().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the node serves:\n{}", crate::node::log_of(folder.path()));
        pause();
    }
    let found = everything_in(&data);
    assert!(found.len() > 5, "{found:?}");
    for path in found {
        // A file may go while it is looked at: a scratch file, or one that was replaced.
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        let wanted = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.mode() & 0o777, wanted, "{}", path.display());
    }
}

#[test]
fn what_others_may_enter_or_read_is_warned_of() {
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let tokens = folder.path().join("tokens");
    write(&tokens, "one\n", 0o640);
    let [wide, narrow] = ["wide.toml", "narrow.toml"].map(|name| folder.path().join(name));
    write(&wide, "tokens = [\"two\"]\n", 0o644);
    write(&narrow, "tokens = [\"two\"]\n", 0o600);
    for config in [&wide, &narrow] {
        let place = TempDir::new_in(folder.path()).expect("a folder");
        std::os::unix::fs::symlink(&data, place.path().join("data")).expect("a link");
        let arguments = ["--token-file", tokens.to_str().expect("text"), "--config", config.to_str().expect("text")];
        let mut node = Node::start_in(place, &arguments);
        let log = node.log();
        assert!(log.contains(&format!("run `chmod 700 {}`", node.data().display())), "{log}");
        assert!(log.contains(&format!("run `chmod 600 {}`", tokens.display())), "{log}");
        assert_eq!(log.contains(&format!("run `chmod 600 {}`", config.display())), *config == wide, "{log}");
        node.stop();
    }
    let node = Node::start();
    assert!(!node.log().contains("chmod"), "{}", node.log());
}

#[test]
fn tokens_are_read_again_on_a_signal_and_when_their_file_changes() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    write(&file, "# ours\nfirst\n", 0o600);
    let mut node = Node::start_with(&["--token-file", file.to_str().expect("text"), "--log", "info"]);
    assert_eq!([status_with(&node, "first"), status_with(&node, "second")], [200, 401]);
    // Replaced as a whole, as tools do.
    let new = folder.path().join("new");
    write(&new, "second\n", 0o600);
    std::fs::rename(&new, &file).expect("a new file");
    wait_until("the change is seen", &node, || status_with(&node, "second") == 200);
    assert_eq!(status_with(&node, "first"), 401);
    // An emptied file lets nobody in: it is not read.
    write(&file, "", 0o600);
    node.signal("HUP");
    wait_until("the emptied file is warned of", &node, || node.log().contains("the tokens stay as they are"));
    assert!(node.log().contains(file.to_str().expect("text")), "{}", node.log());
    assert_eq!([status_with(&node, "second"), status_with(&node, "")], [200, 401]);
    write(&file, "third\n", 0o600);
    node.signal("HUP");
    wait_until("the signal is heard", &node, || status_with(&node, "third") == 200);
    assert_eq!(status_with(&node, "second"), 401);
    assert!(node.log().contains("the tokens were read again and have changed"), "{}", node.log());
    assert!(!["first", "second", "third"].iter().any(|token| node.log().contains(token)), "{}", node.log());
    node.stop();
}

#[test]
fn a_client_takes_its_token_from_a_file() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("token");
    write(&file, "sesame\n", 0o644);
    let node = Node::start_with(&["--token", "sesame"]);
    let file = file.to_str().expect("text");
    for command in [&["sql", "-c", "SELECT 1"][..], &["status"], &["verify"]] {
        let output = node.run(&[command, &["--token-file", file]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("chmod 600"), "{said}");
    }
    let output = node.run(&["status", "--token-file", file, "--token", "sesame"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("give one"));
    let output = node.run(&["status", "--token-file", "/nonexistent"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent"));
}

#[test]
fn secrets_are_random_and_weak_ones_are_refused() {
    let (one, other) = (secret(), secret());
    assert!(one.len() >= 43 && one != other);
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("secret");
    let path = file.to_str().expect("text");
    let refused = refusal(&["--cluster-secret", "letmein"]);
    assert!(refused.contains("too weak") && refused.contains("`highwater secret`"), "{refused}");
    write(&file, &format!("{one}\nletmein\n"), 0o600);
    let refused = refusal(&["--cluster-secret-file", path]);
    assert!(refused.contains("too weak") && refused.contains("secret 2") && refused.contains(path), "{refused}");
    assert!(!refused.contains("letmein") && !refused.contains(&one), "a secret is never printed: {refused}");
    write(&file, &format!("{one}\n"), 0o600);
    let refused = refusal(&["--cluster-secret-file", path, "--cluster-secret", &other]);
    assert!(refused.contains("both given"), "{refused}");
    let mut node = Node::start_with(&["--cluster-secret-file", path]);
    node.stop();
}

#[test]
fn the_secret_of_a_cluster_changes_while_it_runs() {
    let folder = TempDir::new().expect("a folder");
    let (old, new) = (secret(), secret());
    let addresses = [free_address(), free_address(), free_address()];
    let peers: Vec<String> = (1..).zip(addresses).map(|(id, address)| format!("{id}={address}")).collect();
    let file = |id: usize| folder.path().join(format!("secret-{id}"));
    let launch = |(at, address)| {
        let id: usize = at + 1;
        write(&file(id), &old, 0o600);
        let (number, path) = (id.to_string(), file(id).display().to_string());
        let arguments = ["--id", &number, "--peers", &peers.join(","), "--cluster-secret-file", &path, "--token", "t"];
        let arguments = [&arguments[..], &["--log", "warn,highwater=info"]].concat();
        Node::launch(TempDir::new().expect("a folder"), address, &arguments)
    };
    let mut nodes: Vec<Node> = addresses.into_iter().enumerate().map(launch).collect();
    let create = |node: &Node, table: &str| {
        let body = json!({"sql": format!("CREATE TABLE {table} (a)")}).to_string();
        let headers = [("authorization", "Bearer t"), ("content-type", "application/json")];
        let answer = Connection::open(node.address()).request("POST", "/db/main/sql", &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{table}: {:?}", String::from_utf8_lossy(&answer.body));
    };
    nodes.iter_mut().for_each(Node::wait_until_ready);
    create(&nodes[0], "before");
    let rounds = [format!("{old}\n{new}\n"), format!("{new}\n{old}\n"), format!("{new}\n")];
    for (round, content) in rounds.iter().enumerate() {
        for (at, node) in nodes.iter().enumerate() {
            write(&folder.path().join("new"), content, 0o600);
            std::fs::rename(folder.path().join("new"), file(at + 1)).expect("a new file");
            node.signal("HUP");
            let read = || node.log().matches("the cluster secrets were read again and have changed").count() > round;
            wait_until("the new list is read", node, read);
            create(node, &format!("round_{round}_{at}"));
        }
    }
    // Who still proves itself by the old secret alone is not let in any more.
    nodes[2].stop();
    write(&file(3), &old, 0o600);
    nodes[2].launch_again();
    create(&nodes[0], "without_the_third");
    let refused = || nodes.iter().any(|node| node.log().contains("give all nodes the same"));
    wait_until("the old secret is refused", &nodes[2], refused);
    let ready = Connection::open(nodes[2].address()).request("GET", "/ready", &[], b"").status;
    assert_eq!(ready, 503, "{}", nodes[2].log());
    write(&file(3), &new, 0o600);
    nodes[2].signal("HUP");
    nodes[2].wait_until_ready();
    create(&nodes[2], "with_the_third");
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_touched() {
    let peers = format!("1={},2={},3={}", free_address(), free_address(), free_address());
    let refused = refusal(&["--id", "1", "--peers", &peers, "--token", "t"]);
    assert!(refused.contains("would protect nothing") && refused.contains("highwater secret"), "{refused}");
    for (arguments, wanted) in [
        (&["--token-file", "/nonexistent/tokens"][..], "/nonexistent/tokens"),
        (&["--tls-cert", "/nonexistent/cert"], "--tls-key"),
        (&["--tls-key", "/nonexistent/key"], "--tls-cert"),
        (&["--tls-cert", "/nonexistent/cert", "--tls-key", "/nonexistent/key"], "/nonexistent/cert"),
        (&["--tls-cert", "/dev/null", "--tls-key", "/dev/null"], "an ordinary file is wanted"),
        (&["--tls-cert", NO_CERTIFICATE, "--tls-key", NO_CERTIFICATE], "-----BEGIN CERTIFICATE-----"),
        (&["--cors-origin", "*"], "https://app.example"),
        (&["--token", " "], "everybody"),
    ] {
        let refused = refusal(arguments);
        assert!(refused.contains(wanted), "{arguments:?}: {refused}");
    }
}

#[test]
fn a_node_with_secrets_leaves_no_core_and_every_node_takes_the_files_it_may() {
    let limit = |node: &Node, name: &str| {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", node.pid())).expect("the limits");
        let line = limits.lines().find(|line| line.starts_with(name)).expect("the limit");
        let columns: Vec<String> = line[name.len()..].split_whitespace().map(str::to_string).collect();
        (columns[0].clone(), columns[1].clone())
    };
    let node = Node::start_with(&["--token", "t"]);
    assert_eq!(limit(&node, "Max core file size"), ("0".to_string(), "0".to_string()));
    let (soft, hard) = limit(&node, "Max open files");
    let most = hard.parse::<u64>().map_or(1 << 20, |hard| hard.min(1 << 20));
    assert_eq!(soft, most.to_string());
}

#[test]
fn a_statement_that_does_not_stop_does_not_keep_a_node_from_ending() {
    let mut node = Node::start();
    let sql = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c";
    let mut asking = Connection::open(node.address());
    let body = json!({ "sql": sql }).to_string();
    let head = format!(
        "POST /db/main/sql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    asking.send(head.as_bytes()).expect("the node takes it");
    let busy = |node: &Node| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.pid())).expect("the process runs");
        let fields: Vec<u64> =
            stat.rsplit(") ").next().unwrap_or_default().split(' ').map(|field| field.parse().unwrap_or(0)).collect();
        // The 14th and 15th field of all: ticks of a hundredth of a second in user and system mode.
        fields[11] + fields[12]
    };
    let before = busy(&node);
    wait_until("the statement runs", &node, || busy(&node) > before + 50);
    let begun = Instant::now();
    node.stop();
    assert!(begun.elapsed() < Duration::from_secs(25), "it took {:?}", begun.elapsed());
}
