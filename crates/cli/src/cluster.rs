//! A cluster of node processes on the loopback, for `dev` and `chaos`.
//!
//! Each node is this binary's `serve`, in a process group of its own, so that an interrupt from the terminal reaches only the command, which ends its nodes in good
//! order. A command that is killed cannot do that: the kernel then kills its nodes with it. What a node writes to standard output and error goes to `node-N.log` beside
//! its data folder `node-N`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use highwater_client::fetch;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};
use serde_json::Value;

use crate::net::Net;

/// How long a node that was told to end may take before it is killed.
const END_MAX: Duration = Duration::from_secs(20);

/// How long an address that is in use is waited for.
const ADDRESS_WAIT: Duration = Duration::from_secs(2);

/// How long one look at a node may take.
const LOOK: Duration = Duration::from_secs(2);

/// A node of the cluster.
pub(crate) struct Member {
    pub(crate) id: u32,
    pub(crate) address: SocketAddr,
    /// Its data folder.
    pub(crate) data: PathBuf,
    log: PathBuf,
    /// Where this run's part of the log begins, in bytes.
    log_from: u64,
    child: Option<Child>,
}

/// The cluster. Dropping it kills what still runs.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    /// Where the nodes' folders and logs lie.
    pub(crate) folder: PathBuf,
    /// The network between them, if they reach each other through proxies.
    pub(crate) net: Option<Net>,
    /// What is logged, where that is not the default.
    pub(crate) log_filter: Option<&'static str>,
}

impl Member {
    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its process, if it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Sends a signal to its process, if it runs.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        // The child is not reaped as long as it is here, so the id is still its own.
        match self.pid().and_then(|pid| Pid::from_raw(pid as i32)) {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Err(io::Error::other(format!("node {} does not run", self.id))),
        }
    }

    /// SIGKILL, and waits until the process is gone. Returns how it ended, which tells one that had ended before by itself.
    pub(crate) fn kill(&mut self) -> io::Result<Option<ExitStatus>> {
        self.signal(Signal::KILL)?;
        self.wait()
    }

    /// SIGTERM; the process ends in its own time.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// SIGSTOP.
    pub(crate) fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits until its process has ended, if it runs.
    pub(crate) fn wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.as_mut().map(Child::wait).transpose()?;
        self.child = None;
        Ok(status)
    }

    /// How its process ended, if it has since this was last asked.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok().flatten()?;
        self.child = None;
        Some(status)
    }

    /// Whether it serves.
    pub(crate) fn is_ready(&self) -> bool {
        self.child.is_some() && fetch(&self.url(), "/ready", LOOK).is_ok_and(|(status, _)| status == 200)
    }

    /// Its `/status`: what it knows by itself.
    pub(crate) fn status(&self) -> Option<Value> {
        self.child.as_ref()?;
        let (status, body) = fetch(&self.url(), "/status?scope=node", LOOK).ok()?;
        serde_json::from_slice(&body).ok().filter(|_| status == 200)
    }

    /// What it wrote to its log since it was last started.
    pub(crate) fn said(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.log_from as usize..).unwrap_or_default()).into_owned()
    }

    /// The end of that.
    pub(crate) fn log_tail(&self) -> String {
        let text = self.said();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// `a signal, 9` or `code 1`, as people say how a process ended.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => format!("ended ({status})"),
    }
}

impl Cluster {
    /// The cluster in that folder, which is made if there is none, at these addresses. Nothing is started.
    pub(crate) fn new(folder: &Path, addresses: &[SocketAddr]) -> anyhow::Result<Cluster> {
        assert!(!addresses.is_empty(), "a cluster has a node");
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        // Nodes are told absolute paths, so that what is printed can be used from anywhere.
        let folder = folder.canonicalize().with_context(|| format!("cannot open the folder {}", folder.display()))?;
        let held = Cluster::held(&folder)?;
        if held != 0 && held != addresses.len() as u32 {
            bail!(
                "{} holds a cluster of {held} nodes, not of {}: give --nodes {held}, or another folder with --data",
                folder.display(),
                addresses.len()
            );
        }
        // All at once, so that the folder says how large its cluster is even if a start breaks off.
        for id in 1..=addresses.len() {
            let data = folder.join(format!("node-{id}"));
            std::fs::create_dir_all(&data).with_context(|| format!("cannot make the folder {}", data.display()))?;
        }
        let members = (1..).zip(addresses).map(|(id, address)| Member {
            id,
            address: *address,
            data: folder.join(format!("node-{id}")),
            log: folder.join(format!("node-{id}.log")),
            log_from: 0,
            child: None,
        });
        Ok(Cluster { members: members.collect(), folder, net: None, log_filter: None })
    }

    /// Puts a network between the nodes that can be cut. They must not have been started.
    pub(crate) fn put_apart(&mut self) -> anyhow::Result<()> {
        let nodes: BTreeMap<u32, SocketAddr> = self.members.iter().map(|member| (member.id, member.address)).collect();
        let ways = nodes.len() * (nodes.len() - 1);
        let mut free = free_addresses((nodes.len() + ways) as u32)?;
        free.retain(|address| !nodes.values().any(|node| node == address));
        let mut free = free.into_iter();
        self.net = Some(Net::new(&nodes, || free.next().expect("as many were asked for as there are ways and nodes")));
        Ok(())
    }

    /// How many nodes the cluster in that folder has; 0 if there is none.
    pub(crate) fn held(folder: &Path) -> anyhow::Result<u32> {
        let mut held = 0;
        while folder.join(format!("node-{}", held + 1)).try_exists().with_context(|| folder.display().to_string())? {
            held += 1;
        }
        Ok(held)
    }

    /// The arguments with which that node is started.
    pub(crate) fn arguments(&self, index: usize) -> Vec<String> {
        let member = &self.members[index];
        let mut arguments = vec!["serve".into(), "--id".into(), member.id.to_string(), "--data".into()];
        arguments.extend([member.data.display().to_string(), "--listen".into(), member.address.to_string()]);
        if self.members.len() > 1 {
            let address = |other: &Member| match &self.net {
                Some(net) if other.id != member.id => net.address((member.id, other.id)),
                _ => other.address,
            };
            let peers: Vec<String> =
                self.members.iter().map(|other| format!("{}={}", other.id, address(other))).collect();
            arguments.extend(["--peers".into(), peers.join(",")]);
        }
        arguments.extend(self.log_filter.iter().flat_map(|filter| ["--log".into(), (*filter).into()]));
        arguments
    }

    /// Starts a node. Must be called by a thread that lives as long as the cluster: the kernel ends the node with it.
    pub(crate) fn start(&mut self, index: usize) -> anyhow::Result<()> {
        assert!(self.members[index].child.is_none(), "a node is started once at a time");
        let arguments = self.arguments(index);
        let member = &mut self.members[index];
        let log = File::options().create(true).append(true).open(&member.log);
        let log = log.with_context(|| format!("cannot write {}", member.log.display()))?;
        member.log_from = log.metadata().map_or(0, |metadata| metadata.len());
        let mut command = Command::new(own_program());
        command
            .arg0("highwater")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let parent = getpid();
        // SAFETY: between fork and exec only two system calls are made, which take no lock and allocate nothing.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // A parent that died before that line sends nothing any more.
                if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
            });
        }
        member.child = Some(command.spawn().with_context(|| format!("node {} cannot be started", member.id))?);
        Ok(())
    }

    /// Starts all, once their addresses are free: nodes of a command that was just killed may be about to end.
    pub(crate) fn start_all(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        for member in &self.members {
            while let Err(error) = TcpListener::bind(member.address) {
                if error.kind() != io::ErrorKind::AddrInUse || begun.elapsed() > ADDRESS_WAIT {
                    bail!(
                        "node {} cannot listen at {}: {error}; give other ports with --port",
                        member.id,
                        member.address
                    );
                }
                // sleep: whoever has the address gives no sign when it is free, and may keep it for ever.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        (0..self.members.len()).try_for_each(|index| self.start(index))
    }

    /// Whether every node serves. An error if one has ended.
    pub(crate) fn all_ready(&mut self) -> anyhow::Result<bool> {
        for member in &mut self.members {
            if let Some(status) = member.ended() {
                bail!(
                    "node {} {} instead of becoming ready; its log ends:\n{}",
                    member.id,
                    ending(status),
                    member.log_tail()
                );
            }
        }
        Ok(self.members.iter().all(Member::is_ready))
    }

    /// Ends all in good order, and kills those that do not.
    pub(crate) fn stop(&mut self) {
        for member in &self.members {
            // One that is paused hears nothing else; one that is gone needs to hear nothing.
            let _ = member.resume();
            let _ = member.terminate();
        }
        let begun = Instant::now();
        while self.members.iter_mut().any(|member| member.ended().is_none() && member.child.is_some()) {
            if begun.elapsed() > END_MAX {
                return self.kill_all();
            }
            // sleep: several processes are waited for at once, with a limit.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill_all(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// This program's file; the kernel's name for it where it has been replaced since.
fn own_program() -> PathBuf {
    let own = std::env::current_exe().ok().filter(|path| path.exists());
    own.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Loopback addresses that nobody listens on, below the ports that the kernel gives to outgoing connections, so that a node that is started again finds its own free.
pub(crate) fn free_addresses(count: u32) -> anyhow::Result<Vec<SocketAddr>> {
    let first = 10_000 + (std::process::id() % 1000) as u16 * 20;
    let addresses = (first..32_000).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let free: Vec<SocketAddr> =
        addresses.filter(|address| TcpListener::bind(address).is_ok()).take(count as usize).collect();
    if free.len() < count as usize {
        bail!("there are not {count} free ports between {first} and 32000");
    }
    Ok(free)
}
