//! Records of the row log and files of checksums that nobody wrote.

use std::sync::Arc;

use highwater_fuzz::fuzz;
use highwater_log::FileIo;

use crate::ffi::ValueRef;
use crate::rowlog::{self, Reader, RowChange, RowRecord, UpdateKey};
use crate::sums;
use crate::wal::Marker;

fn values() -> Vec<ValueRef<'static>> {
    vec![ValueRef::Null, ValueRef::Integer(-5), ValueRef::Real(1.5), ValueRef::Text(b"text"), ValueRef::Blob(&[0, 255])]
}

fn rows() -> Vec<Vec<u8>> {
    let changes =
        vec![(1, ValueRef::Null, ValueRef::Integer(i64::MAX)), (3, ValueRef::Text(b"a"), ValueRef::Text(b""))];
    let all = [
        RowChange::Insert { rowid: Some(7), values: values() },
        RowChange::Insert { rowid: None, values: values() },
        RowChange::Delete { rowid: Some(-1), values: values() },
        RowChange::Update { key: UpdateKey::Rowid { old: 1, new: 2 }, changes: changes.clone() },
        RowChange::Update { key: UpdateKey::Columns(values()), changes },
    ];
    let written = all.into_iter().map(|change| {
        let mut out = Vec::new();
        rowlog::put_row(&mut out, &RowRecord { table: "table", change });
        out
    });
    written.collect()
}

#[test]
fn fuzz_rows() {
    fuzz(
        &rows(),
        |_| {},
        |input| match Reader(input).row() {
            Ok(row) => {
                let mut again = Vec::new();
                rowlog::put_row(&mut again, &row);
                let same = Reader(&again).row();
                // NaN is not equal to itself, and is written as it was read.
                assert_eq!(format!("{same:?}"), format!("{:?}", Ok::<_, rowlog::Malformed>(row.clone())));
                format!("{:?}", std::mem::discriminant(&row.change))
            }
            Err(error) => error.to_string(),
        },
    );
}

#[test]
fn fuzz_statements_and_sequences() {
    let mut statement = Vec::new();
    rowlog::put_statement(&mut statement, rowlog::OUTSIDE_TRANSACTION, "CREATE TABLE a (b)");
    let mut sequence = Vec::new();
    rowlog::put_sequence(&mut sequence, "table", rowlog::Sequence::Row((3, ValueRef::Integer(9))));
    let mut none = Vec::new();
    rowlog::put_sequence(&mut none, "table", rowlog::Sequence::None);
    fuzz(
        &[statement, sequence, none],
        |_| {},
        |input| {
            let statement = Reader(input).statement().map(|(flags, _)| flags).map_err(|error| error.to_string());
            let sequence = Reader(input)
                .sequence()
                .map(|(_, row)| row != rowlog::Sequence::None)
                .map_err(|error| error.to_string());
            format!("{statement:?} {sequence:?}")
        },
    );
}

#[test]
fn fuzz_sums() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = FileIo::inspect(folder.path()).expect("the folder can be opened");
    let files = crate::wal::Files::new(folder.path(), Arc::new(disk));
    let marker = Marker { salts: *b"saltsalt", frames: 3, applied: 9 };
    files.write_sums(0, &marker, &[1, 2, 3]).expect("the folder can be written");
    files.write_sums(1, &marker, &[]).expect("the folder can be written");
    let samples =
        ["sums.a", "sums.b"].map(|name| std::fs::read(folder.path().join(name)).expect("it was just written"));
    let repair = |input: &mut [u8]| {
        if let Some(covered) = input.len().checked_sub(4) {
            let checksum = crc32c::crc32c(&input[..covered]).to_be_bytes();
            input[covered..].copy_from_slice(&checksum);
        }
    };
    fuzz(&samples, repair, |input| match sums::decode(input) {
        Ok((_, pages)) => {
            assert!(pages.len() * 4 < input.len(), "every sum was there");
            "sums".to_owned()
        }
        Err(reason) => reason,
    });
}
