//! The same log in a real folder.

use std::path::Path;

use crate::common::{LOG_ID, batches, stamped};
use highwater_log::{FileIo, Io, IoFile, Log, LogStore, Options, control, durable_replace};

fn open(path: &Path) -> Log<FileIo> {
    let options = Options { segment_bytes: 64 << 10, zero_bytes: 8 << 10, cache_bytes: 1000, create: true };
    Log::open(FileIo::open(path).expect("the folder opens"), options, LOG_ID).expect("the log opens")
}

fn flush(log: &mut Log<FileIo>) {
    let job = log.begin_flush().expect("there is something to flush");
    // As in a node: the job runs on another thread, and the log goes on meanwhile.
    let done = std::thread::spawn(move || job.run()).join().expect("the job does not panic");
    log.finish_flush(done).expect("the disk works");
}

#[test]
fn a_log_in_a_folder_comes_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a").join("log");
    let mut log = open(&path);
    let mut wanted = Vec::new();
    for base in 0..40 {
        let batch = stamped(base, 1, 1, 5000);
        log.append(&batch).expect("the disk works");
        wanted.push(batch);
        if base % 7 == 0 {
            flush(&mut log);
        }
    }
    log.cut(37).expect("the disk works");
    wanted.truncate(37);
    assert_eq!(batches(&log, 20_000).expect("the disk works"), wanted);
    drop(log);
    let log = open(&path);
    assert!(!log.recovered().clean);
    assert_eq!(batches(&log, 20_000).expect("the disk works"), wanted);
    log.close().expect("the disk works");
    let log = open(&path);
    assert!(log.recovered().clean);
    assert_eq!(batches(&log, 1).expect("the disk works"), wanted);
}

#[test]
fn a_folder_is_one_process_alone_but_may_be_looked_at() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut log = open(folder.path());
    log.append(&stamped(0, 1, 1, 10)).expect("the disk works");
    let error = FileIo::open(folder.path()).expect_err("it is in use");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert!(error.to_string().contains("in use"), "{error}");
    let io = FileIo::inspect(folder.path()).expect("it can be looked at");
    let verified = highwater_log::dump::verify(&io).expect("it reads").expect("it is there");
    assert_eq!(verified.shape.end, 1);
}

#[test]
fn other_small_files_are_replaced_the_same_way() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let io = FileIo::open(folder.path()).expect("the folder opens");
    for payload in [&b"one"[..], b"another"] {
        durable_replace(&io, "node", &control::seal(*b"a-node's", 1, payload)).expect("the disk works");
        let file = io.open("node").expect("it is there");
        let mut bytes = vec![0; 100];
        let read = file.read_at(0, &mut bytes).expect("the disk works");
        assert_eq!(control::open(*b"a-node's", &bytes[..read]), Ok((1, payload)));
    }
    assert_eq!(io.list().expect("the disk works"), ["node"]);
}
