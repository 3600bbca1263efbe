//! The connections that other nodes have made to this one and proved, so that those of a node that misbehaves can be ended.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use highwater_wire::NodeId;

/// How often the same node's misbehaviour is logged.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// One node has at most so many at a time; the oldest gives way. It needs one, and a second for the moment in which it has lost the first.
const CONNECTIONS_MAX: usize = 4;

/// All of them.
#[derive(Default)]
pub(crate) struct Inbound {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    sockets: BTreeMap<(NodeId, u64), TcpStream>,
    /// When each reason was last logged of a node, and how often it came since. Reasons are a fixed number of texts.
    said: BTreeMap<(NodeId, String), (Instant, u64)>,
}

/// Keeps a connection listed for as long as it is served.
pub(crate) struct Listed<'a> {
    inbound: &'a Inbound,
    key: (NodeId, u64),
}

impl Inbound {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of this lock panics")
    }

    /// Lists a connection of that node's.
    pub(crate) fn list(self: &Arc<Self>, node: NodeId, socket: &TcpStream) -> std::io::Result<Listed<'_>> {
        let socket = socket.try_clone()?;
        let mut table = self.table();
        let own: Vec<(NodeId, u64)> = table.sockets.range((node, 0)..=(node, u64::MAX)).map(|(key, _)| *key).collect();
        if own.len() >= CONNECTIONS_MAX
            && let Some(oldest) = table.sockets.remove(&own[0])
        {
            end(&oldest);
        }
        let key = (node, table.next);
        table.next += 1;
        table.sockets.insert(key, socket);
        Ok(Listed { inbound: self, key })
    }

    /// Ends that node's connections, for a reason that is logged once a minute with how often it came.
    pub(crate) fn refuse(&self, node: NodeId, reason: &str) {
        let mut table = self.table();
        for (_, socket) in table.sockets.range((node, 0)..=(node, u64::MAX)) {
            end(socket);
        }
        let now = Instant::now();
        let (said, times) = table.said.entry((node, reason.to_owned())).or_insert((now, 0));
        *times += 1;
        if *times == 1 || now.duration_since(*said) >= SAY_AGAIN {
            tracing::warn!(
                node = node.0,
                reason,
                times = *times,
                "a node sent what no honest node sends: its connections are ended"
            );
            (*said, *times) = (now, 1);
        }
    }
}

/// That the other end may have ended it before is no matter.
fn end(socket: &TcpStream) {
    let _ = socket.shutdown(Shutdown::Both);
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.inbound.table().sockets.remove(&self.key);
    }
}
