use super::*;
use proptest::prelude::*;

fn record(key: Option<&'static str>, value: Option<&'static str>) -> Record {
    Record { key: key.map(Bytes::from), value: value.map(Bytes::from) }
}

fn any_record() -> impl Strategy<Value = Record> {
    let field = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200));
    (field(), field()).prop_map(|(key, value)| Record { key: key.map(Bytes::from), value: value.map(Bytes::from) })
}

fn stamped(records: &[Record], base: Offset, epoch: Epoch) -> Bytes {
    let mut batch = build(records, 1_700_000_000_000);
    stamp(&mut batch, base, epoch).expect("what was built can be stamped");
    batch.freeze()
}

/// Calls everything that takes untrusted bytes; none of it may panic.
fn read_everything(bytes: &[u8]) {
    let shared = Bytes::copy_from_slice(bytes);
    let _ = header(bytes);
    let _ = check(bytes);
    let _ = records(&shared);
    let _ = control(&shared);
    let count = split(&shared).count();
    assert!(count <= bytes.len() / HEADER_BYTES + 1, "a batch has a header");
    let _ = stamp(&mut bytes.to_vec(), 7, Epoch(1));
}

/// The layout is Kafka's to the byte: this is the batch of one record, key "k", value "v", that KIP-98's layout gives.
#[test]
fn the_bytes_are_those_of_the_layout() {
    let batch = stamped(&[record(Some("k"), Some("v"))], 258, Epoch(3));
    let mut wanted = Vec::new();
    wanted.extend(258i64.to_be_bytes());
    wanted.extend(58i32.to_be_bytes());
    wanted.extend(3i32.to_be_bytes());
    wanted.push(2);
    wanted.extend([0; 4]);
    wanted.extend([0, 0, 0, 0, 0, 0]);
    wanted.extend(1_700_000_000_000i64.to_be_bytes());
    wanted.extend(1_700_000_000_000i64.to_be_bytes());
    wanted.extend([0xff; 14]);
    wanted.extend(1i32.to_be_bytes());
    wanted.extend([16, 0, 0, 0, 2, b'k', 2, b'v', 0]);
    let crc = crc32c::crc32c(&wanted[21..]);
    wanted[17..21].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(&batch[..], &wanted[..]);
}

#[test]
fn stamping_several_batches_numbers_them_one_behind_the_other() {
    let mut bytes = build(&[record(None, Some("a")), record(None, Some("b"))], 1);
    bytes.unsplit(build(&[record(None, None)], 2));
    assert_eq!(stamp(&mut bytes, 10, Epoch(4)), Ok(13));
    let bytes = bytes.freeze();
    let headers: Vec<_> = split(&bytes)
        .map(|batch| {
            let (header, batch) = batch.expect("both were stamped");
            assert_eq!(check(&batch), Ok(header));
            (header.base, header.epoch, header.count, header.control)
        })
        .collect();
    assert_eq!(headers, [(10, Epoch(4), 2, false), (12, Epoch(4), 1, false)]);
}

#[test]
fn a_failed_stamp_changes_nothing() {
    let mut bytes = build(&[record(None, Some("a"))], 1).to_vec();
    bytes.extend([0; 70]);
    let before = bytes.clone();
    assert_eq!(stamp(&mut bytes, 0, Epoch(0)), Err(BatchError::Malformed("its version is not 2")));
    assert_eq!(bytes, before);
    let mut bytes = build(&[record(None, Some("a"))], 1);
    assert!(stamp(&mut bytes, i64::MAX as u64, Epoch(0)).is_err());
    assert!(stamp(&mut bytes, 0, Epoch(u32::MAX)).is_err());
    assert_eq!(bytes, build(&[record(None, Some("a"))], 1));
    assert!(stamp(&mut [], 0, Epoch(0)).is_err());
}

#[test]
fn a_batch_that_was_not_stamped_has_records_but_no_header() {
    let batch = build(&[record(Some("k"), None)], 1).freeze();
    assert_eq!(records(&batch), Ok(vec![record(Some("k"), None)]));
    assert_eq!(header(&batch), Err(BatchError::Malformed("it was not stamped with an epoch")));
}

#[test]
fn control_batches_read_back_and_unknown_kinds_are_skipped() {
    let peer = |n| PeerId { node: NodeId(n), log: LogId(u64::from(n) << 40) };
    for wanted in
        [Control::EpochStart, Control::Configuration(vec![]), Control::Configuration(vec![peer(1), peer(2), peer(3)])]
    {
        let batch = build_control(&wanted, 5).freeze();
        assert_eq!(control(&batch), Ok(Some(wanted)));
        assert!(header(&stamped_of(&batch)).is_ok_and(|header| header.control));
    }
    let with_key = |key: &'static [u8]| {
        let key = Record { key: Some(Bytes::from_static(key)), value: None };
        build_with(&[key], 5, CONTROL).freeze()
    };
    assert_eq!(control(&with_key(&[0, 0, 0, 1])), Ok(None));
    assert_eq!(control(&with_key(&[0, 1, 0, 33])), Ok(None));
    assert!(control(&with_key(&[0, 0, 0])).is_err());
    assert!(control(&with_key(&[0, 0, 0, 33])).is_err());
    assert!(control(&build(&[record(None, None)], 5).freeze()).is_err());
}

fn stamped_of(batch: &Bytes) -> Bytes {
    let mut batch = BytesMut::from(&batch[..]);
    stamp(&mut batch, 0, Epoch(0)).expect("what was built can be stamped");
    batch.freeze()
}

#[test]
fn a_newer_configuration_is_an_error_and_not_skipped() {
    let record = Record { key: Some(Bytes::from_static(&[0, 0, 0, 33])), value: Some(Bytes::from_static(&[0, 1])) };
    assert_eq!(
        control(&build_with(&[record], 5, CONTROL).freeze()),
        Err(BatchError::Malformed("a control value is of a newer version"))
    );
}

/// Kafka's clients may add headers; they are read over.
#[test]
fn record_headers_are_read_over() {
    let mut cursor = Cursor { bytes: Bytes::from_static(&[0, 0, 0, 1, 2, b'v', 4, 2, b'h', 1, 0, 2, b'x']) };
    assert_eq!(cursor.record(0), Ok(record(None, Some("v"))));
    assert!(cursor.bytes.is_empty());
}

#[test]
fn a_batch_that_promises_more_records_than_it_has_bytes_allocates_nothing() {
    let mut bytes = build(&[record(None, Some("a"))], 1).to_vec();
    put(&mut bytes, at::LAST_OFFSET_DELTA, &(i32::MAX - 1).to_be_bytes());
    put(&mut bytes, at::RECORD_COUNT, &i32::MAX.to_be_bytes());
    assert!(header(&stamped_of(&Bytes::from(bytes.clone()))).is_ok());
    assert_eq!(
        records(&Bytes::from(bytes)),
        Err(BatchError::Malformed("it counts more records than its bytes can hold"))
    );
}

proptest! {
    #[test]
    fn records_read_back(list in proptest::collection::vec(any_record(), 1..20), base in 0..u64::MAX / 4, epoch in 0..=i32::MAX as u32) {
        let batch = stamped(&list, base, Epoch(epoch));
        let header = check(&batch).expect("it was built here");
        prop_assert_eq!(header.size_bytes, batch.len());
        prop_assert_eq!((header.base, header.epoch, header.count), (base, Epoch(epoch), list.len() as u64));
        prop_assert_eq!(records(&batch), Ok(list));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), magic: bool) {
        let mut bytes = bytes;
        if magic && bytes.len() > at::MAGIC {
            bytes[at::MAGIC] = MAGIC;
            bytes[at::LENGTH..at::LENGTH + 3].fill(0);
        }
        read_everything(&bytes);
    }

    #[test]
    fn mutated_batches_never_panic_and_a_changed_byte_under_the_crc_is_found(
        list in proptest::collection::vec(any_record(), 1..5), place: prop::sample::Index, flip in 1..=255u8, cut: prop::sample::Index,
    ) {
        let batch = stamped(&list, 3, Epoch(1));
        let mut mutated = batch.to_vec();
        let place = place.index(mutated.len());
        mutated[place] ^= flip;
        read_everything(&mutated);
        // Base and epoch lie outside the CRC by design; the log's frames and the codec's checksum protect them.
        if !(at::BASE..at::LENGTH).contains(&place) && !(at::EPOCH..at::MAGIC).contains(&place) {
            prop_assert!(check(&mutated).is_err(), "byte {place}");
        }
        read_everything(&batch[..cut.index(batch.len())]);
        prop_assert!(header(&batch[..cut.index(batch.len())]).is_err());
    }

    #[test]
    fn mutated_bodies_with_a_good_checksum_never_panic(list in proptest::collection::vec(any_record(), 1..5), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = stamped(&list, 3, Epoch(1)).to_vec();
        let body = bytes.len() - at::ATTRIBUTES;
        for (place, byte) in changes {
            bytes[at::ATTRIBUTES + place.index(body)] = byte;
        }
        let crc = crc32c::crc32c(&bytes[at::ATTRIBUTES..]);
        put(&mut bytes, at::CRC, &crc.to_be_bytes());
        read_everything(&bytes);
    }
}
