use super::*;
use crate::batch;
use crate::ids::{Epoch, PartitionId, PeerId, Rank, StreamId, Version};
use crate::message::{Body, CommitRule, Lead, Sender, Set};
use bytes::Bytes;
use proptest::prelude::*;

fn peer(node: u32) -> PeerId {
    PeerId { node: NodeId(node), log: LogId(0xfeed_0000 + u64::from(node)) }
}

fn incarnation(starts: u64) -> Incarnation {
    Incarnation { starts, random: starts.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
}

fn envelope(body: Body) -> Envelope {
    Envelope {
        partition: PartitionId(1),
        sender: Sender { peer: peer(2), incarnation: incarnation(3) },
        epoch: Some(Epoch(4)),
        body,
    }
}

fn bodies() -> impl Strategy<Value = Body> {
    let lead = (any::<u64>(), proptest::collection::vec(any::<u32>(), 0..5)).prop_map(|(version, nodes)| {
        let replicas: Vec<_> = nodes.into_iter().map(peer).collect();
        Body::Lead(Lead {
            leader: peer(1),
            incarnation: incarnation(version),
            replicas: replicas.clone(),
            set: Set { rule: CommitRule::Isr { min: 2 }, members: replicas },
            version: Version(version),
            lossy: None,
        })
    });
    prop_oneof![
        Just(Body::Heartbeat { leaving: false }),
        lead,
        (any::<u64>(), any::<u64>())
            .prop_map(|(ballot, leo)| Body::Promise { ballot, rank: Rank { last_epoch: Some(Epoch(1)), leo } }),
        (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..500)).prop_map(|(base, bytes)| {
            Body::Batch { stream: StreamId(7), base, batches: Bytes::from(bytes), hw: base / 2, start: 0 }
        }),
        (".{0,40}", proptest::collection::vec(any::<u64>(), 0..4)).prop_map(|(address, starts)| Body::Register {
            incarnations: starts.into_iter().map(incarnation).collect(),
            address,
        }),
    ]
}

fn hello() -> Hello {
    Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        cluster: 0x1122_3344_5566_7788,
        node: NodeId(3),
        log: LogId(9),
        incarnation: incarnation(12),
        proof: b"proof".to_vec(),
    }
}

fn frame_of(version_and_envelope: &[u8]) -> BytesMut {
    let length = (version_and_envelope.len() as u32).to_be_bytes();
    let mut frame = BytesMut::new();
    frame.put_slice(&length);
    frame.put_u32(crc32c::crc32c(&length));
    frame.put_u32(checksum(length, version_and_envelope));
    frame.put_slice(version_and_envelope);
    frame
}

#[test]
fn a_batch_arrives_as_it_was_sent() {
    let record = batch::Record { key: None, value: Some(Bytes::from(vec![7; 100_000])) };
    let mut batches = batch::build(&[record], 5);
    batch::stamp(&mut batches, 9, Epoch(4)).expect("what was built can be stamped");
    let sent = envelope(Body::Batch { stream: StreamId(1), base: 9, batches: batches.freeze(), hw: 9, start: 0 });
    let mut connection = BytesMut::new();
    encode(&sent, VERSION_MAX, &mut connection).expect("it is below the bound");
    assert_eq!(decode(&mut connection, VERSION_MAX), Ok(Some(sent)));
    assert!(connection.is_empty());
}

#[test]
fn a_frame_that_is_too_long_is_refused_at_once_and_never_made() {
    for version in VERSION_MIN..=VERSION_MAX {
        let length = u32::MAX.to_be_bytes();
        let mut received = BytesMut::from(&length[..]);
        if version >= LENGTH_IS_CHECKED {
            received.put_u32(crc32c::crc32c(&length));
        }
        let refused = CodecError::TooLong { found: u32::MAX as usize, most: FRAME_BYTES_MAX };
        assert_eq!(decode(&mut received, version), Err(refused));
    }
    let mut out = BytesMut::from(&b"before"[..]);
    let huge = envelope(Body::Batch {
        stream: StreamId(1),
        base: 0,
        batches: Bytes::from(vec![0; FRAME_BYTES_MAX]),
        hw: 0,
        start: 0,
    });
    assert!(matches!(encode(&huge, VERSION_MAX, &mut out), Err(CodecError::TooLong { .. })));
    assert_eq!(&out[..], b"before");
}

#[test]
fn a_damaged_length_is_refused_before_anything_behind_it_is_waited_for() {
    let mut frame = BytesMut::new();
    encode(&envelope(Body::WhoLeads), VERSION_MAX, &mut frame).expect("it is small");
    for bit in 0..64 {
        let mut begun = BytesMut::from(&frame[..8]);
        begun[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(decode(&mut begun, VERSION_MAX), Err(CodecError::Checksum { .. })), "bit {bit}");
    }
    assert_eq!(decode(&mut BytesMut::from(&frame[..8]), VERSION_MAX), Ok(None));
}

#[test]
fn every_version_reads_its_own_frames() {
    let sent = envelope(Body::WhoLeads);
    let mut lengths = Vec::new();
    for version in VERSION_MIN..=VERSION_MAX {
        let mut frame = BytesMut::new();
        encode(&sent, version, &mut frame).expect("it is small");
        lengths.push(frame.len());
        assert_eq!(decode(&mut frame, version), Ok(Some(sent.clone())), "version {version}");
        assert!(frame.is_empty());
    }
    assert_eq!(lengths, [lengths[0], lengths[0], lengths[0] + 4]);
}

#[test]
fn what_is_no_envelope_is_an_error_though_its_checksum_holds() {
    let mut good = BytesMut::new();
    encode(&envelope(Body::Heartbeat { leaving: false }), VERSION_MAX, &mut good).expect("it is small");
    let body = &good[checksum_at(VERSION_MAX) + 4..];
    let mut with_more = body.to_vec();
    with_more.push(0);
    assert_eq!(
        decode(&mut frame_of(&with_more), VERSION_MAX),
        Err(CodecError::Malformed("1 bytes follow it".to_owned()))
    );
    let mut newer = body.to_vec();
    newer[0] = 2;
    assert_eq!(decode(&mut frame_of(&newer), VERSION_MAX), Err(CodecError::Encoding { found: 2 }));
    assert!(matches!(decode(&mut frame_of(&[]), VERSION_MAX), Err(CodecError::Malformed(_))));
    assert!(matches!(decode(&mut frame_of(&body[..body.len() - 1]), VERSION_MAX), Err(CodecError::Malformed(_))));
}

#[test]
fn a_stranger_is_told_by_its_first_wrong_byte() {
    for (received, known) in [(&b"HW"[..], true), (b"", true), (b"GET /", false), (b"HX", false)] {
        let answer = Hello::decode(&mut BytesMut::from(received));
        assert_eq!(answer == Ok(None), known, "{received:?}: {answer:?}");
        assert_eq!(matches!(answer, Err(CodecError::Magic { .. })), !known, "{received:?}");
    }
}

#[test]
fn two_ends_agree_on_the_greatest_version_both_speak() {
    let speaks = |version_min, version_max| Hello { version_min, version_max, ..hello() };
    assert_eq!(speaks(1, 3).agree(&speaks(2, 7)), Ok(3));
    assert_eq!(speaks(2, 7).agree(&speaks(1, 3)), Ok(3));
    assert_eq!(speaks(1, 1).agree(&speaks(1, 1)), Ok(1));
    let error = speaks(1, 2).agree(&speaks(3, 4)).expect_err("nothing in common");
    assert!(error.to_string().contains("upgrade the older one"));
    assert!(speaks(3, 4).agree(&speaks(1, 2)).is_err());
}

#[test]
fn a_hello_with_any_byte_changed_is_never_taken_for_another() {
    let sent = hello().encode();
    for place in 0..sent.len() {
        let mut changed = BytesMut::from(&sent[..]);
        changed[place] ^= 0x10;
        let answer = Hello::decode(&mut changed);
        assert!(!matches!(answer, Ok(Some(_))), "byte {place}: {answer:?}");
    }
    assert_eq!(Hello::decode(&mut BytesMut::from(&sent[..])), Ok(Some(hello())));
}

proptest! {
    /// Frames arrive in pieces of any size.
    #[test]
    fn frames_read_back_from_any_pieces(list in proptest::collection::vec(bodies(), 1..5), piece in 1..200usize) {
        let sent: Vec<_> = list.into_iter().map(envelope).collect();
        let mut bytes = BytesMut::from(&hello().encode()[..]);
        for envelope in &sent {
            encode(envelope, VERSION_MAX, &mut bytes).expect("they are small");
        }
        let (mut received, mut got, mut greeted) = (BytesMut::new(), Vec::new(), false);
        for piece in bytes.chunks(piece) {
            received.extend_from_slice(piece);
            if !greeted {
                greeted = Hello::decode(&mut received).expect("it is a hello").is_some();
            }
            while greeted && let Some(envelope) = decode(&mut received, VERSION_MAX).expect("they are frames") {
                got.push(envelope);
            }
        }
        prop_assert_eq!(got, sent);
        prop_assert!(received.is_empty());
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&mut BytesMut::from(&bytes[..]), VERSION_MAX);
        let _ = decode(&mut frame_of(&bytes), VERSION_MAX);
        let _ = Hello::decode(&mut BytesMut::from(&bytes[..]));
        let mut versioned = vec![FRAME_VERSION];
        versioned.extend(&bytes);
        let _ = decode(&mut frame_of(&versioned), VERSION_MAX);
        let mut greeting = HELLO_MAGIC.to_vec();
        greeting.extend(&bytes);
        let _ = Hello::decode(&mut BytesMut::from(&greeting[..]));
    }

    #[test]
    fn a_frame_with_a_byte_changed_is_never_a_message(body in bodies(), place: prop::sample::Index, flip in 1..=255u8) {
        let mut frame = BytesMut::new();
        encode(&envelope(body), VERSION_MAX, &mut frame).expect("it is small");
        let place = place.index(frame.len());
        frame[place] ^= flip;
        let answer = decode(&mut frame, VERSION_MAX);
        prop_assert!(!matches!(answer, Ok(Some(_))), "byte {}: {:?}", place, answer);
    }
}
