//! What may explain an expectation that did not hold: what the nodes say of themselves, and where their threads are.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use highwater_client::fetch;

use crate::cluster::{Cluster, Member};

/// How long a debugger may take with one process.
const DEBUGGER_MAX: Duration = Duration::from_secs(60);

/// How long a node may take to say something.
const LOOK: Duration = Duration::from_secs(2);

/// Puts everything that there is to see of the nodes into a folder beside theirs; returns where. What cannot be had is left out: this must not hide what it explains.
pub(super) fn keep(cluster: &Cluster, story: &[String]) -> String {
    let folder = cluster.folder.join("evidence");
    let missing = RefCell::new(Vec::new());
    let write = |name: String, text: String| {
        if let Err(error) = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(&name), text)) {
            missing.borrow_mut().push(format!("{name}: {error}"));
        }
    };
    write("faults".into(), story.join("\n"));
    // First what changes by itself; a debugger takes its time.
    for member in &cluster.members {
        for path in ["/status?scope=node", "/ready", "/metrics"] {
            let said = match fetch(&member.url(), path, LOOK) {
                Ok((status, body)) => format!("{status}\n{}", String::from_utf8_lossy(&body)),
                Err(error) => format!("no answer: {error}"),
            };
            let name = path.trim_start_matches('/').split('?').next().unwrap_or_default();
            write(format!("node-{}.{name}", member.id), said);
        }
    }
    for member in &cluster.members {
        if let Some(pid) = member.pid() {
            write(format!("node-{}.threads", member.id), threads(pid));
            let stacks = folder.join(format!("node-{}.stacks", member.id));
            if let Err(error) = debugger(pid, &stacks) {
                missing.borrow_mut().push(format!("stacks of node {}: {error}", member.id));
            }
        }
    }
    let missing = missing.into_inner();
    let missing = if missing.is_empty() { String::new() } else { format!(" (not {})", missing.join("; ")) };
    format!("what the nodes said and did is in {}{missing}", folder.display())
}

/// Every thread's name, state, and place in the kernel.
fn threads(pid: u32) -> String {
    let mut text = String::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return "the process is gone".into() };
    for task in tasks.flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let state = read("status").lines().find(|line| line.starts_with("State")).unwrap_or_default().to_string();
        let id = task.file_name().to_string_lossy().into_owned();
        text += &format!("{id} {} {state} in {}\n{}\n", read("comm").trim_end(), read("wchan"), read("stack"));
    }
    text
}

/// Every thread's stack, if a debugger is installed.
fn debugger(pid: u32, to: &Path) -> std::io::Result<()> {
    let file = fs::File::create(to)?;
    let mut command = Command::new("gdb");
    command.args(["-p", &pid.to_string(), "-batch", "-ex", "set pagination off", "-ex", "thread apply all backtrace"]);
    let mut child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > DEBUGGER_MAX {
            child.kill()?;
            child.wait()?;
            break;
        }
        // sleep: another process is waited for, with a limit.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Each node's view of the database, on one line.
pub(super) fn what_nodes_say(cluster: &Cluster) -> String {
    cluster.members.iter().map(what_one_says).collect::<Vec<_>>().join("; ")
}

fn what_one_says(member: &Member) -> String {
    let status = member.status().unwrap_or_default();
    let partitions = status["partitions"].as_array();
    let Some(partition) = partitions.and_then(|all| all.iter().find(|one| one["name"] == "main")) else {
        return format!("node {} says nothing", member.id);
    };
    let replicas = partition["replicas"].as_array().into_iter().flatten();
    let own = replicas.clone().find(|one| one["node"] == status["node"]).cloned().unwrap_or_default();
    let others: Vec<String> = replicas
        .filter(|one| one["node"] != status["node"] && !one["leo"].is_null())
        .map(|one| format!("node {} to {}", one["node"], one["leo"]))
        .collect();
    format!(
        "node {}: leader {}, epoch {}, LEO {}, HW {}, applied {}{}{}",
        member.id,
        partition["leader"],
        partition["epoch"],
        own["leo"],
        own["hw"],
        own["applied"],
        if others.is_empty() { "" } else { ", sees " },
        others.join(", ")
    )
}
