use bytes::BytesMut;
use highwater_wire::{Incarnation, LogId, NodeId, PeerId};

use super::*;
use crate::secret::Secrets;

fn secret(name: &str) -> Secret {
    Secret::parse(&format!("0123456789abcdefghijkl-{name}")).expect("a secret")
}

fn node(id: u32, cluster: u64, secrets: &[Secret]) -> Introduction {
    let me = PeerId { node: NodeId(id), log: LogId(u64::from(id) + 100) };
    let secrets = Secrets::new(secrets.to_vec()).expect("secrets");
    Introduction::new(cluster, me, Incarnation { starts: 3, random: 9 }, Some(secrets))
}

const ONE: [u8; 32] = [1; 32];
const TWO: [u8; 32] = [2; 32];

/// What came of an exchange at both ends: the dialler's first, with everything that each of them sent.
struct Outcome {
    dialler: Result<Proven, PeerRefused>,
    acceptor: Result<Proven, PeerRefused>,
    by_dialler: Vec<u8>,
    by_acceptor: Vec<u8>,
}

/// Carries bytes to and fro, one at a time, until neither end says anything more.
fn exchange(dialler: &Introduction, acceptor: &Introduction, exported: ([u8; 32], [u8; 32]), wanted: u32) -> Outcome {
    let (mut dials, first) = Handshake::dialling(dialler, exported.0, NodeId(wanted));
    let mut accepts = Handshake::accepting(acceptor, exported.1);
    let (mut by_dialler, mut by_acceptor) = (first.clone(), Vec::new());
    let mut to_acceptor = first;
    let mut outcomes = (None, None);
    loop {
        let mut to_dialler = Vec::new();
        feed(&mut accepts, &to_acceptor, &mut to_dialler, &mut outcomes.1);
        by_acceptor.extend(&to_dialler);
        to_acceptor = Vec::new();
        feed(&mut dials, &to_dialler, &mut to_acceptor, &mut outcomes.0);
        by_dialler.extend(&to_acceptor);
        if to_acceptor.is_empty() {
            break;
        }
    }
    let ended = |outcome: Option<Result<Proven, PeerRefused>>| outcome.unwrap_or(Err(PeerRefused::Unanswered));
    Outcome { dialler: ended(outcomes.0), acceptor: ended(outcomes.1), by_dialler, by_acceptor }
}

fn feed(end: &mut Handshake<'_>, bytes: &[u8], out: &mut Vec<u8>, outcome: &mut Option<Result<Proven, PeerRefused>>) {
    let mut received = BytesMut::new();
    for byte in bytes {
        if outcome.is_some() {
            return;
        }
        received.extend_from_slice(&[*byte]);
        *outcome = end.received(&mut received, out).transpose();
    }
}

#[test]
fn two_nodes_with_one_secret_know_each_other() {
    let (one, two) = (node(1, 7, &[secret("a")]), node(2, 7, &[secret("a")]));
    let outcome = exchange(&one, &two, (ONE, ONE), 2);
    let (at_dialler, at_acceptor) = (outcome.dialler.expect("proven"), outcome.acceptor.expect("proven"));
    assert_eq!((at_dialler.node(), at_acceptor.node()), (NodeId(2), NodeId(1)));
    assert_eq!(at_acceptor.hello.log, LogId(101));
    assert_eq!(at_acceptor.secret, Some(secret("a")));
}

#[test]
fn secrets_change_while_both_know_both() {
    for (dialler, acceptor) in [("a", "ab"), ("ba", "ab"), ("ab", "ba"), ("b", "ba")] {
        let list = |names: &str| names.chars().map(|name| secret(&name.to_string())).collect::<Vec<_>>();
        let (one, two) = (node(1, 7, &list(dialler)), node(2, 7, &list(acceptor)));
        let outcome = exchange(&one, &two, (ONE, ONE), 2);
        assert!(outcome.dialler.is_ok() && outcome.acceptor.is_ok(), "{dialler} {acceptor}");
    }
}

#[test]
fn a_stranger_hears_nothing() {
    let (one, two) = (node(1, 7, &[secret("a")]), node(2, 7, &[secret("b")]));
    let outcome = exchange(&one, &two, (ONE, ONE), 2);
    assert!(matches!(outcome.acceptor, Err(PeerRefused::WrongSecret)));
    assert_eq!(outcome.by_acceptor, b"", "nothing is said to whoever has not proven the secret");
    assert_eq!(outcome.by_dialler.len(), 40, "a code alone, which names nobody");
    for first in [&b"GET / HTTP/1.1\r\n"[..], b"HWPEER\r\n", b"\0", b"HWPROOF2"] {
        let mut out = Vec::new();
        let mut received = BytesMut::from(first);
        let outcome = Handshake::accepting(&two, ONE).received(&mut received, &mut out);
        assert!(matches!(outcome, Err(PeerRefused::WrongSecret)) && out.is_empty());
    }
}

#[test]
fn whoever_stands_between_two_nodes_cannot_pass_their_codes_on() {
    let (one, two) = (node(1, 7, &[secret("a")]), node(2, 7, &[secret("a")]));
    let outcome = exchange(&one, &two, (ONE, TWO), 2);
    assert!(outcome.dialler.is_err() && matches!(outcome.acceptor, Err(PeerRefused::WrongSecret)));
    assert_eq!(outcome.by_acceptor, b"");
}

#[test]
fn what_one_connection_heard_is_of_no_use_on_another() {
    let (one, two) = (node(1, 7, &[secret("a")]), node(2, 7, &[secret("a")]));
    let heard = exchange(&one, &two, (ONE, ONE), 2);
    // Replayed by a stranger on a connection of its own.
    let (mut out, mut outcome) = (Vec::new(), None);
    feed(&mut Handshake::accepting(&two, TWO), &heard.by_dialler, &mut out, &mut outcome);
    assert!(matches!(outcome, Some(Err(PeerRefused::WrongSecret))) && out.is_empty());
    // Sent back to whoever said it: the acceptor's bytes are no dialler's, and the other way round.
    let (mut out, mut outcome) = (Vec::new(), None);
    feed(&mut Handshake::accepting(&one, ONE), &heard.by_acceptor, &mut out, &mut outcome);
    assert!(matches!(outcome, Some(Err(PeerRefused::WrongSecret))) && out.is_empty());
    let (mut dials, first) = Handshake::dialling(&one, ONE, NodeId(2));
    let (mut out, mut outcome) = (Vec::new(), None);
    feed(&mut dials, &first, &mut out, &mut outcome);
    assert!(outcome.is_some_and(|outcome| outcome.is_err()) && out.is_empty());
}

#[test]
fn no_changed_byte_passes() {
    let (one, two) = (node(1, 7, &[secret("a")]), node(2, 7, &[secret("a")]));
    let heard = exchange(&one, &two, (ONE, ONE), 2);
    for at in 0..heard.by_dialler.len() {
        let mut changed = heard.by_dialler.clone();
        changed[at] ^= 1;
        let (mut out, mut outcome) = (Vec::new(), None);
        feed(&mut Handshake::accepting(&two, ONE), &changed, &mut out, &mut outcome);
        assert!(!matches!(outcome, Some(Ok(_))), "byte {at} of the dialler's");
    }
    for at in 0..heard.by_acceptor.len() {
        let mut changed = heard.by_acceptor.clone();
        changed[at] ^= 1;
        let (mut dials, _) = Handshake::dialling(&one, ONE, NodeId(2));
        let (mut out, mut outcome) = (Vec::new(), None);
        feed(&mut dials, &changed, &mut out, &mut outcome);
        assert!(!matches!(outcome, Some(Ok(_))), "byte {at} of the acceptor's");
    }
}

#[test]
fn a_proven_node_is_told_why_it_is_refused() {
    let (one, two) = (node(1, 7, &[secret("a")]), node(2, 8, &[secret("a")]));
    assert!(matches!(exchange(&one, &two, (ONE, ONE), 2).dialler, Err(PeerRefused::OtherCluster { .. })));
    let three = node(3, 7, &[secret("a")]);
    assert!(matches!(exchange(&one, &three, (ONE, ONE), 2).dialler, Err(PeerRefused::OtherNode { .. })));
    let same = node(1, 7, &[secret("a")]);
    assert!(matches!(exchange(&one, &same, (ONE, ONE), 2).dialler, Err(PeerRefused::SameId(_))));
    // A dialler that does not look for itself hears it by the verdict.
    let (mut accepts, mut out) = (Handshake::accepting(&two, ONE), Vec::new());
    let mut proof = MAGIC.to_vec();
    proof.extend(code(&secret("a"), &ONE, DIALS, &[]));
    assert!(matches!(accepts.received(&mut BytesMut::from(&proof[..]), &mut out), Ok(None)));
    let ours = one.hello();
    let joins = code(&secret("a"), &ONE, JOINS, &[&ours, &two.hello()]);
    let mut hello = BytesMut::from(&Hello { proof: joins, ..ours.clone() }.encode()[..]);
    let mut verdict = Vec::new();
    assert!(matches!(accepts.received(&mut hello, &mut verdict), Err(PeerRefused::OtherCluster { .. })));
    assert_eq!(verdict[0], 1);
}

#[test]
fn nobody_is_listened_to_without_end() {
    let two = node(2, 7, &[secret("a")]);
    let (mut accepts, mut out) = (Handshake::accepting(&two, ONE), Vec::new());
    let mut proof = MAGIC.to_vec();
    proof.extend(code(&secret("a"), &ONE, DIALS, &[]));
    accepts.received(&mut BytesMut::from(&proof[..]), &mut out).expect("proven so far");
    let mut endless = BytesMut::from(&out[..50]);
    endless[48..50].copy_from_slice(&1024u16.to_be_bytes());
    endless.extend_from_slice(&[0; 1000]);
    assert!(matches!(accepts.received(&mut endless, &mut Vec::new()), Ok(None)));
    endless.extend_from_slice(&[0; 2000]);
    assert!(accepts.received(&mut endless, &mut Vec::new()).is_err());
}
