//! Three nodes in this process, and a client.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use highwater_node::tcp::Door;
use highwater_node::{Config, Node, Outcome, Status};
use highwater_sql::{Statement, Transaction, Value};
use highwater_wire::{CommitRule, NodeId, PartitionId, PeerId};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What is not there after this long has hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who leads what, in which epoch.
pub(crate) type Leaders = Vec<(PartitionId, Option<NodeId>, Option<u32>)>;

struct Served {
    node: Node,
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

pub(crate) struct Cluster {
    nodes: BTreeMap<u32, Served>,
    runtime: Runtime,
    /// The ids of the rows that were acknowledged.
    acknowledged: Vec<i64>,
    next: i64,
    _folder: TempDir,
}

impl Cluster {
    pub(crate) fn form() -> Cluster {
        let folder = TempDir::new().expect("a temporary folder");
        let listeners: Vec<TcpListener> =
            (0..3).map(|_| TcpListener::bind(("127.0.0.1", 0)).expect("a port")).collect();
        let addresses: BTreeMap<NodeId, String> = (1..)
            .zip(&listeners)
            .map(|(id, listener)| (NodeId(id), listener.local_addr().expect("its address").to_string()))
            .collect();
        let starting: Vec<_> = (1..)
            .zip(listeners)
            .map(|(id, listener)| {
                let mut config = Config::single(folder.path().join(id.to_string()));
                config.node = Some(NodeId(id));
                config.peers = addresses.clone();
                config.address = addresses[&NodeId(id)].clone();
                config.databases = vec![("main".to_owned(), CommitRule::Quorum { q: 2 })];
                std::thread::spawn(move || (id, serve(config, listener)))
            })
            .collect();
        let nodes = starting.into_iter().map(|start| start.join().expect("the node starts")).collect();
        let runtime = Runtime::new().expect("a runtime");
        let mut cluster = Cluster { nodes, runtime, acknowledged: Vec::new(), next: 0, _folder: folder };
        cluster.try_until_done("CREATE TABLE kept (id INTEGER PRIMARY KEY)");
        cluster
    }

    /// Stops the third node; returns who it was, and how often it was started.
    pub(crate) fn stop_third(&mut self) -> (PeerId, highwater_wire::Incarnation) {
        let third = self.nodes.remove(&3).expect("it runs");
        let me = self.runtime.block_on(third.node.view()).expect("it answers").host.me;
        third.node.stop();
        third.ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(third.address);
        (me.peer, me.incarnation)
    }

    pub(crate) fn address(&self, node: u32) -> SocketAddr {
        self.nodes[&node].address
    }

    pub(crate) fn number(&self) -> u64 {
        self.nodes[&1].node.cluster()
    }

    /// What that node says of its replica of a partition.
    pub(crate) fn state(&self, node: u32, partition: PartitionId) -> Status {
        let view = self.runtime.block_on(self.nodes[&node].node.view()).expect("the node answers");
        match partition {
            PartitionId::METADATA => view.host.metadata.expect("the cluster is formed"),
            id => view.partition(id).expect("the database is open").clone(),
        }
    }

    /// Who leads, once both nodes agree on it.
    pub(crate) fn leaders(&self) -> Leaders {
        let of = |node| -> Leaders {
            let shown = |partition| {
                let status = self.state(node, partition);
                (partition, status.leader.map(|peer| peer.node), status.epoch.map(|epoch| epoch.0))
            };
            [PartitionId::METADATA, PartitionId(1)].map(shown).to_vec()
        };
        let begun = Instant::now();
        loop {
            let (one, two) = (of(1), of(2));
            if one == two && one.iter().all(|(_, leader, _)| leader.is_some()) {
                return one;
            }
            assert!(begun.elapsed() < PATIENCE, "the two do not agree on leaders: {one:?}, {two:?}");
            // sleep: nobody tells when the two agree.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Writes a row through whoever leads, and has it acknowledged.
    pub(crate) fn write(&mut self) {
        let begun = Instant::now();
        loop {
            self.next += 1;
            let id = self.next;
            match self.try_sql(&format!("INSERT INTO kept VALUES ({id})")) {
                Ok(()) => return self.acknowledged.push(id),
                Err(why) => assert!(begun.elapsed() < PATIENCE, "no write is acknowledged: {why}"),
            }
        }
    }

    fn try_until_done(&mut self, sql: &str) {
        let begun = Instant::now();
        while let Err(why) = self.try_sql(sql) {
            assert!(begun.elapsed() < PATIENCE, "{sql}: {why}");
        }
    }

    /// One attempt at whoever leads.
    fn try_sql(&self, sql: &str) -> Result<(), String> {
        let mut why = "nobody leads".to_owned();
        for served in self.nodes.values() {
            let Ok(db) = served.node.database("main") else { continue };
            if db.leader() != Some(served.node.id()) {
                continue;
            }
            let Ok(machine) = db.sql() else { continue };
            let statement = Statement { sql: sql.to_owned(), ..Statement::default() };
            let transaction = Transaction { statements: vec![statement], key: None };
            let answer = machine.transaction(&transaction, Instant::now() + Duration::from_secs(5));
            if let Err(error) = answer.result {
                why = error.to_string();
                continue;
            }
            let Some(hold) = answer.hold else { return Ok(()) };
            match self.runtime.block_on(db.hold(hold, Default::default(), Duration::from_secs(5))) {
                Ok(Outcome::Done(_)) => return Ok(()),
                other => why = format!("{other:?}"),
            }
        }
        // sleep: an election takes some hundred milliseconds, and nobody tells here when it is over.
        std::thread::sleep(Duration::from_millis(5));
        Err(why)
    }

    /// That no node has stopped or halted.
    pub(crate) fn goes_on(&self) {
        for (id, served) in &self.nodes {
            assert_eq!((served.node.failed(), served.node.halted()), (None, None), "node {id}");
            for database in served.node.databases() {
                assert_eq!(database.stopped(), None, "node {id}");
            }
        }
    }

    /// That every row that was acknowledged is on both nodes.
    pub(crate) fn nothing_is_lost(&mut self) {
        self.write();
        for (node, served) in &self.nodes {
            let db = served.node.database("main").expect("it is there");
            let begun = Instant::now();
            let rows = loop {
                let read = self.runtime.block_on(db.read_index(PATIENCE));
                let statement =
                    Statement { sql: "SELECT id FROM kept".to_owned(), want_rows: true, ..Statement::default() };
                let transaction = Transaction { statements: vec![statement], key: None };
                let answer = db.sql().expect("it is open").transaction(&transaction, begun + PATIENCE);
                match (read, answer.result) {
                    (Ok(Outcome::Done(_)), Ok(results)) => break results[0].rows.clone(),
                    other => assert!(begun.elapsed() < PATIENCE, "no read: {other:?}"),
                }
            };
            let found: std::collections::BTreeSet<i64> = rows
                .iter()
                .map(|row| match row[0] {
                    Value::Integer(id) => id,
                    ref other => panic!("an id was written, and there is {other:?}"),
                })
                .collect();
            let lost: Vec<i64> = self.acknowledged.iter().copied().filter(|id| !found.contains(id)).collect();
            assert_eq!(lost, [] as [i64; 0], "acknowledged, and not on node {node}");
        }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }
}

/// Introduces the node to whoever dialled it, and serves that connection.
fn let_in(door: &Door, stream: TcpStream) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    stream.set_nonblocking(true).expect("a socket can be set");
    let introduced = runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::from_std(stream).expect("a socket");
        let introducing = door.introduce(&mut stream, BytesMut::new());
        let (proven, received) = tokio::time::timeout(Door::HELLO_WAIT, introducing).await.ok()?.ok()?;
        Some((stream.into_std().expect("a socket"), proven, received))
    });
    if let Some((stream, proven, received)) = introduced {
        stream.set_nonblocking(false).expect("a socket can be set");
        door.enter(stream, None, proven, received);
    }
}

fn serve(config: Config, listener: TcpListener) -> Served {
    let prepared = Node::prepare(config).expect("the folder is new");
    let door = prepared.door();
    let address = listener.local_addr().expect("its address");
    let ended = Arc::new(AtomicBool::new(false));
    let ends = ended.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if ends.load(Ordering::Acquire) {
                return;
            }
            let door = door.clone();
            std::thread::spawn(move || let_in(&door, stream));
        }
    });
    let pause = Duration::from_millis(10);
    let waits = |_: &BTreeMap<NodeId, String>| {
        // sleep: the other nodes are asked again after a pause.
        std::thread::sleep(pause);
        true
    };
    let node = prepared.run(waits).expect("the node starts").expect("nobody gives up");
    Served { node, address, ended }
}
