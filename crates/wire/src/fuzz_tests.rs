//! Bytes from sockets and disks that nobody sent or wrote, with their checksums put right where that gets them further.

use bytes::{Bytes, BytesMut};
use highwater_fuzz::fuzz;

use crate::batch::{self, Control, Record};
use crate::codec::{self, Hello, VERSION_MAX, VERSION_MIN};
use crate::ids::{Epoch, Incarnation, LogId, NodeId, PartitionId, PeerId, Rank, StreamId, Version};
use crate::message::{Body, CommitRule, Envelope, Lead, Sender, Set};
use crate::record::{Kind, RecordHeader, RequestedAck};

fn peer(node: u32) -> PeerId {
    PeerId { node: NodeId(node), log: LogId(0xfeed_0000 + u64::from(node)) }
}

fn incarnation() -> Incarnation {
    Incarnation { starts: 3, random: 0x1234_5678_9abc_def0 }
}

fn batches() -> Vec<Vec<u8>> {
    let record = |key: Option<&'static [u8]>, value: Option<&'static [u8]>| Record {
        key: key.map(Bytes::from_static),
        value: value.map(Bytes::from_static),
    };
    let configuration = Control::Configuration(vec![peer(1), peer(2), peer(3)]);
    let mut all = vec![
        batch::build(&[record(None, Some(b"value")), record(Some(b"key"), None)], 1_700_000_000_000),
        batch::build(&[record(Some(b""), Some(b""))], -1),
        batch::build_control(&Control::EpochStart, 5),
        batch::build_control(&configuration, 5),
    ];
    for bytes in &mut all {
        batch::stamp(bytes, 7, Epoch(3)).expect("what was built can be stamped");
    }
    let mut samples: Vec<Vec<u8>> = all.iter().map(|bytes| bytes.to_vec()).collect();
    samples.push(samples.concat());
    samples
}

fn envelopes() -> Vec<Vec<u8>> {
    let lead = Lead {
        leader: peer(1),
        incarnation: incarnation(),
        replicas: vec![peer(1), peer(2)],
        set: Set { rule: CommitRule::Isr { min: 2 }, members: vec![peer(1), peer(2)] },
        version: Version(9),
        lossy: None,
    };
    let rank = Rank { last_epoch: Some(Epoch(1)), leo: 77 };
    let batches = Bytes::from(batches().remove(0));
    let bodies = [
        Body::Heartbeat { leaving: true },
        Body::Lead(lead),
        Body::Promise { ballot: 4, rank },
        Body::Batch { stream: StreamId(7), base: 7, batches, hw: 3, start: 0 },
        Body::Register { incarnations: vec![incarnation(); 3], address: "127.0.0.1:8080".into() },
    ];
    let sender = Sender { peer: peer(2), incarnation: incarnation() };
    let encoded = bodies.into_iter().map(|body| {
        let mut out = BytesMut::new();
        let envelope = Envelope { partition: PartitionId(1), sender, epoch: Some(Epoch(4)), body };
        codec::encode(&envelope, VERSION_MAX, &mut out).expect("a sample is not too long");
        out.to_vec()
    });
    encoded.collect()
}

/// Puts length and checksums of one frame right.
fn repair_frame(input: &mut [u8]) {
    if input.len() < 12 {
        return;
    }
    let length = ((input.len() - 12) as u32).to_be_bytes();
    let of_length = crc32c::crc32c(&length);
    let checksum = crc32c::crc32c_append(of_length, &input[12..]);
    input[..4].copy_from_slice(&length);
    input[4..8].copy_from_slice(&of_length.to_be_bytes());
    input[8..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Puts length and checksum of the first batch right, as if it went to the end.
fn repair_batch(input: &mut [u8]) {
    if input.len() < batch::HEADER_BYTES {
        return;
    }
    let length = ((input.len() - 12) as u32).to_be_bytes();
    input[8..12].copy_from_slice(&length);
    let checksum = crc32c::crc32c(&input[21..]).to_be_bytes();
    input[17..21].copy_from_slice(&checksum);
}

fn repair_end(input: &mut [u8]) {
    let Some(covered) = input.len().checked_sub(4) else { return };
    let checksum = crc32c::crc32c(&input[..covered]).to_be_bytes();
    input[covered..].copy_from_slice(&checksum);
}

#[test]
fn fuzz_envelopes() {
    fuzz(&envelopes(), repair_frame, |input| {
        let mut received = BytesMut::from(input);
        match codec::decode(&mut received, VERSION_MAX) {
            Ok(Some(envelope)) => {
                let mut again = BytesMut::new();
                codec::encode(&envelope, VERSION_MAX, &mut again).expect("what was read can be written");
                let read = codec::decode(&mut again, VERSION_MAX).expect("what was written can be read");
                assert_eq!(read.as_ref(), Some(&envelope), "an envelope reads back as it was written");
                format!("{:?}", std::mem::discriminant(&envelope.body))
            }
            Ok(None) => {
                assert_eq!(received.len(), input.len(), "nothing is taken of a frame that is not there yet");
                "more is wanted".to_owned()
            }
            Err(error) => error.to_string(),
        }
    });
}

#[test]
fn fuzz_hellos() {
    let hello = Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        cluster: 0x1122_3344_5566_7788,
        node: NodeId(3),
        log: LogId(9),
        incarnation: incarnation(),
        proof: b"proof".to_vec(),
    };
    let samples = [hello.encode(), Hello { proof: Vec::new(), ..hello }.encode()];
    fuzz(&samples, repair_end, |input| match Hello::decode(&mut BytesMut::from(input)) {
        Ok(Some(hello)) => {
            let read = Hello::decode(&mut BytesMut::from(hello.encode().as_slice()));
            assert_eq!(read, Ok(Some(hello)), "a hello reads back as it was written");
            "a hello".to_owned()
        }
        Ok(None) => "more is wanted".to_owned(),
        Err(error) => error.to_string(),
    });
}

#[test]
fn fuzz_batches() {
    fuzz(&batches(), repair_batch, |input| {
        let bytes = Bytes::copy_from_slice(input);
        let mut words = Vec::new();
        let mut taken = 0;
        for part in batch::split(&bytes) {
            match part {
                Ok((header, one)) => {
                    assert_eq!(one.len(), header.size_bytes, "a batch is as long as its header says");
                    assert!(header.count >= 1, "a batch takes offsets");
                    taken += one.len();
                    words.push(match (batch::check(&one), batch::records(&one)) {
                        (Ok(_), Ok(records)) => {
                            assert_eq!(records.len() as u64, header.count, "as many records as offsets");
                            format!("records, {:?}", batch::control(&one).map(|control| control.is_some()))
                        }
                        (checked, read) => format!("{:?}, {:?}", checked.err(), read.err()),
                    });
                }
                Err(error) => words.push(error.to_string()),
            }
        }
        assert!(taken <= input.len(), "batches are taken from what is there");
        words.join("; ")
    });
}

#[test]
fn fuzz_records() {
    let samples: Vec<Vec<u8>> = [Kind::Row, Kind::Statement, Kind::Pages, Kind::Idempotency, Kind::Meta]
        .into_iter()
        .map(|kind| {
            let mut out = Vec::new();
            RecordHeader { kind, ends_transaction: true, ack: Some(RequestedAck::Leader) }.encode_into(&mut out);
            out.extend_from_slice(b"payload");
            out
        })
        .collect();
    fuzz(
        &samples,
        |_| {},
        |input| match RecordHeader::decode(input) {
            Ok((header, payload)) => {
                let mut again = Vec::new();
                header.encode_into(&mut again);
                again.extend_from_slice(payload);
                assert_eq!(again, input, "there is one way to write a record");
                format!("{:?}", header.kind)
            }
            Err(error) => error.to_string(),
        },
    );
}
