//! The peer that is none: it says the third node's hello, and then what the test wants.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::BytesMut;
use highwater_wire::codec::{self, Hello, VERSION_MAX, VERSION_MIN};
use highwater_wire::{Body, Envelope, Incarnation, PartitionId, PeerId, Sender};

use crate::cluster::Cluster;

pub(crate) struct Liar {
    peer: PeerId,
    incarnations: Vec<Incarnation>,
    connections: BTreeMap<u32, (TcpStream, u16)>,
    sent: usize,
}

impl Liar {
    pub(crate) fn take_the_place_of_the_third(cluster: &mut Cluster) -> Liar {
        let (peer, last) = cluster.stop_third();
        let next = Incarnation { starts: last.starts + 1, random: 0x0dd };
        let mut liar = Liar { peer, incarnations: vec![last, next], connections: BTreeMap::new(), sent: 0 };
        liar.register(cluster);
        liar
    }

    /// The process that it says to be.
    pub(crate) fn sender(&self) -> Sender {
        let incarnation = *self.incarnations.last().expect("it was started");
        Sender { peer: self.peer, incarnation }
    }

    /// Registers, as the true node's next start would.
    pub(crate) fn register(&mut self, cluster: &Cluster) {
        let body = Body::Register { incarnations: self.incarnations.clone(), address: "127.0.0.1:1".to_owned() };
        for node in [1, 2] {
            for body in [body.clone(), Body::Heartbeat { leaving: false }] {
                let envelope = Envelope { partition: PartitionId::METADATA, sender: self.sender(), epoch: None, body };
                self.send(cluster, node, &envelope);
            }
        }
    }

    /// Sends, on a new connection if the last one was closed. What is sent into one that is being closed is lost, as anywhere.
    pub(crate) fn send(&mut self, cluster: &Cluster, node: u32, envelope: &Envelope) {
        let envelope = Envelope { sender: self.sender(), ..envelope.clone() };
        for _ in 0..3 {
            let (stream, version) =
                self.connections.entry(node).or_insert_with(|| connect(cluster, node, self.peer, self.incarnations[1]));
            let mut bytes = BytesMut::new();
            codec::encode(&envelope, *version, &mut bytes).expect("what is sent is not too long");
            if stream.write_all(&bytes).is_ok() {
                self.sent += 1;
                return;
            }
            self.connections.remove(&node);
        }
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent
    }
}

fn connect(cluster: &Cluster, node: u32, peer: PeerId, incarnation: Incarnation) -> (TcpStream, u16) {
    let mut stream = TcpStream::connect(cluster.address(node)).expect("the node listens");
    let ours = Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        cluster: cluster.number(),
        node: peer.node,
        log: peer.log,
        incarnation,
        proof: Vec::new(),
    };
    stream.write_all(&ours.encode()).expect("the node takes a hello");
    let mut received = BytesMut::new();
    let theirs = loop {
        if let Some(hello) = Hello::decode(&mut received).expect("the node says a hello") {
            break hello;
        }
        let mut chunk = [0; 256];
        let count = stream.read(&mut chunk).expect("the node answers");
        assert!(count > 0, "the node says its hello before it closes");
        received.extend_from_slice(&chunk[..count]);
    };
    let version = ours.agree(&theirs).expect("the same build");
    (stream, version)
}
