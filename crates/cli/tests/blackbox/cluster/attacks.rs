//! Somebody without the cluster's secret, on the port where nodes come in, and between two nodes: he learns nothing, proves nothing, and moves nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::{Cluster, IDS, PATIENCE, wait_for};

const SECRET: &str = "qm5x-H2rT9bVwK7dLc3zPfYs8aGjN4eU";
const LINK: &[u8] = b"highwater-link/1";
const FORWARD: &[u8] = b"highwater-forward/1";
/// The bytes of the dialler's first code, with what it begins with.
const PROOF_BYTES: usize = 40;

type Client = StreamOwned<ClientConnection, TcpStream>;
type Server = StreamOwned<ServerConnection, TcpStream>;

/// Whoever attacks does not care about certificates.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the node accepts connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    stream
}

/// TLS with a node, as a dialling node has it.
fn dial(address: SocketAddr, protocol: &[u8]) -> Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("highwater-node").expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a connection"), connect(address))
}

/// TLS with a node that dials, as an accepting node has it.
fn accept(stream: TcpStream) -> Server {
    let made = rcgen::generate_simple_self_signed(["impostor".to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .expect("a certificate with its key");
    config.alpn_protocols = vec![LINK.to_vec(), FORWARD.to_vec()];
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    StreamOwned::new(ServerConnection::new(Arc::new(config)).expect("a connection"), stream)
}

/// Everything that comes until the other end has ended the connection.
fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&chunk[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the node keeps a connection that it should have ended")
            }
            Err(_) => return all,
        }
    }
}

/// An impostor in the place of one node, as another one reaches it: its connections are given out as they come.
fn impostor(address: SocketAddr) -> Receiver<TcpStream> {
    let listener = wait_for("the address is free", || TcpListener::bind(address).ok());
    let (given, taken) = channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            if given.send(stream).is_err() {
                return;
            }
        }
    });
    taken
}

/// A cluster in which node 3 is down, an impostor takes its connections, and rows can be counted.
fn besieged() -> (Cluster, Receiver<TcpStream>) {
    let mut cluster = Cluster::start(&["--cluster-secret", SECRET, "--log", "info"]);
    cluster.write(1, "CREATE TABLE kept (v)");
    cluster.stop_node(3);
    wait_for("the two others serve", || (cluster.leader_of_two() != 3).then_some(()));
    let taken = impostor(cluster.addresses[&3]);
    (cluster, taken)
}

impl Cluster {
    /// Who leads as nodes 1 and 2 have it; 3 for nobody.
    fn leader_of_two(&self) -> u32 {
        let leader = |id| self.main(id).and_then(|main| main["leader"].as_u64()).unwrap_or(3) as u32;
        if leader(1) == leader(2) { leader(1) } else { 3 }
    }

    fn goes_on(&self, leader: u32) {
        self.write(1, "INSERT INTO kept VALUES (1)");
        self.write(2, "INSERT INTO kept VALUES (1)");
        assert_eq!(self.leader_of_two(), leader, "nobody had to lead in another's place");
    }
}

#[test]
fn nothing_is_said_to_whoever_has_not_proven_the_secret() {
    let cluster = Cluster::start(&["--cluster-secret", SECRET]);
    let leader = cluster.roles().leader;
    for id in IDS {
        let address = cluster.addresses[&id];
        for opening in [&b"HWPEER\r\n"[..], &[&b"HWPEER\r\n"[..], &[0; 78]].concat()] {
            let mut stream = connect(address);
            stream.write_all(opening).expect("it can be sent");
            assert_eq!(rest(&mut stream), b"", "a hello without TLS is answered by nothing");
        }
        for protocol in [LINK, FORWARD] {
            for said in [
                &b"HWPEER\r\n"[..],
                b"GET /status HTTP/1.1\r\nhost: a\r\n\r\n",
                &[&b"HWPROOF1"[..], &[7; 32]].concat(),
                &[0; 4096],
                &[&b"HWPROOF1"[..], &[0xff; 65536]].concat(),
            ] {
                let mut stream = dial(address, protocol);
                // The node may have refused the first bytes before the last were sent.
                let _ = stream.write_all(said);
                assert_eq!(rest(&mut stream), b"", "{}", String::from_utf8_lossy(said));
            }
        }
        // One that says nothing is given up, and one whose TLS is none is ended.
        let mut silent = dial(address, LINK);
        silent.conn.complete_io(&mut silent.sock).expect("TLS is agreed on with anybody");
        assert_eq!(rest(&mut silent), b"");
        let mut broken = connect(address);
        broken.write_all(&[0x16, 3, 1, 0xff, 0xff, 1, 2, 3]).expect("it can be sent");
        assert!(!String::from_utf8_lossy(&rest(&mut broken)).contains("highwater"));
    }
    cluster.write(1, "CREATE TABLE kept (v)");
    assert_eq!(cluster.roles().leader, leader);
    assert!(cluster.log(1).contains("not let in among the nodes"), "it is logged:\n{}", cluster.log(1));
}

#[test]
fn what_a_node_says_to_an_impostor_is_of_no_use() {
    let (cluster, taken) = besieged();
    let leader = cluster.leader_of_two();
    let mut proofs = Vec::new();
    let mut try_all = |protocol_of: fn(&Server) -> Vec<u8>| {
        let stream = taken.recv_timeout(PATIENCE).expect("a node dials the impostor");
        let mut server = accept(stream);
        let mut proof = vec![0; PROOF_BYTES];
        server.read_exact(&mut proof).expect("the dialler's first code");
        let protocol = protocol_of(&server);
        // Relayed, as soon as it is there, to both nodes, over TLS connections of the impostor's own.
        for id in [1, 2] {
            let mut relay = dial(cluster.addresses[&id], &protocol);
            relay.write_all(&proof).expect("it can be sent");
            assert_eq!(rest(&mut relay), b"", "a relayed code is answered by nothing");
        }
        // Sent back to whoever said it, on the same connection: not a byte more comes.
        server.write_all(&proof).expect("it can be sent");
        assert_eq!(rest(&mut server), b"", "its own code is no proof to the dialler");
        proofs.push(proof);
    };
    for _ in 0..4 {
        try_all(|server| server.conn.alpn_protocol().expect("a protocol of nodes").to_vec());
    }
    assert!(proofs.windows(2).all(|pair| pair[0] != pair[1]), "no two codes are the same");
    // Replayed later.
    for proof in &proofs {
        let mut replay = dial(cluster.addresses[&1], LINK);
        replay.write_all(proof).expect("it can be sent");
        assert_eq!(rest(&mut replay), b"");
    }
    assert!(proofs.iter().all(|proof| proof.len() == PROOF_BYTES && proof.starts_with(b"HWPROOF1")));
    cluster.goes_on(leader);
}

#[test]
fn whoever_stands_between_two_nodes_sees_no_hello() {
    let (mut cluster, taken) = besieged();
    let leader = cluster.leader_of_two();
    // Node 3 lives at another address; what is dialled is a man in the middle, who has TLS with both ends.
    let own = crate::node::free_address();
    let mut command = cluster.serve(3);
    let listen = cluster.addresses[&3].to_string();
    let arguments: Vec<String> =
        command.get_args().map(|part| part.to_string_lossy().replace(&listen, &own.to_string())).collect();
    command = std::process::Command::new(crate::node::HIGHWATER);
    command.args(arguments);
    let process = crate::node::spawn_logged(&mut command, &cluster.folder_of(3));
    cluster.processes.insert(3, process);
    wait_for("node 3 listens", || TcpStream::connect(own).ok());
    for _ in 0..6 {
        let stream = taken.recv_timeout(PATIENCE).expect("a node dials");
        let mut from = accept(stream);
        let mut proof = vec![0; PROOF_BYTES];
        from.read_exact(&mut proof).expect("the dialler's first code");
        let mut to = dial(own, from.conn.alpn_protocol().expect("a protocol of nodes"));
        to.write_all(&proof).expect("it can be sent");
        assert_eq!(rest(&mut to), b"", "the real node 3 answers a relayed code by nothing");
        drop(from);
    }
    cluster.goes_on(leader);
    assert_eq!(cluster.rows(1, "", "SELECT count(*) FROM kept"), json!([[2]]));
}

#[test]
fn a_node_with_another_secret_or_none_is_refused_by_name() {
    let mut cluster = Cluster::start(&["--cluster-secret", SECRET]);
    cluster.write(1, "CREATE TABLE kept (v)");
    cluster.stop_node(3);
    for (secret, said) in [(Some("another-0123456789abcdefghijklmn"), "cluster secret"), (None, "cluster secret")] {
        let mut command = cluster.serve(3);
        let arguments: Vec<String> = command
            .get_args()
            .map(|part| part.to_string_lossy().into_owned())
            .filter(|part| part != "--cluster-secret" && part != SECRET)
            .chain(secret.into_iter().flat_map(|secret| ["--cluster-secret".to_owned(), secret.to_owned()]))
            .collect();
        command = std::process::Command::new(crate::node::HIGHWATER);
        command.args(arguments);
        let folder = cluster.folder.path().join(format!("other-{}", secret.is_some()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let process = crate::node::spawn_logged(&mut command, &folder);
        wait_for("it is told why it stays alone", || crate::node::log_of(&folder).contains(said).then_some(()));
        drop(process);
        // The others have connections to nobody in its place, and go on.
        cluster.write(1, "INSERT INTO kept VALUES (1)");
    }
    cluster.start_node(3);
    cluster.roles();
    assert_eq!(cluster.rows(3, "", "SELECT count(*) FROM kept"), json!([[2]]));
}
