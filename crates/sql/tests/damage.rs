//! The database file's checksums: what the process leaves behind between any two steps of a checkpoint is no damage, and any changed byte is.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{Bench, Log, of, quick, soon, statement, transaction};
use highwater_partition::StateMachine;
use highwater_sql::{Database, Options};

const MAIN: &str = "database.sqlite";
const WAL: &str = "database.sqlite-wal";
const MARKER: &str = "checkpoint";
const SUMS: [&str; 2] = ["sums.a", "sums.b"];
const PAGE: usize = 4096;

fn image(of: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir().unwrap();
    for file in fs::read_dir(of).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), image.path().join(file.file_name())).unwrap();
    }
    image
}

fn take(from: &Path, to: &Path, file: &str) {
    fs::copy(from.join(file), to.join(file)).unwrap();
}

fn set_aside(dir: &Path) -> bool {
    dir.join("database.sqlite.damaged").exists()
}

/// The file of sums that the second folder has another of.
fn newer_sums(before: &Path, after: &Path) -> &'static str {
    let differs = |name: &&&str| fs::read(before.join(name)).ok() != fs::read(after.join(name)).ok();
    let mut differing = SUMS.iter().filter(differs);
    let newer = differing.next().expect("a checkpoint writes new sums");
    assert!(differing.next().is_none(), "and only one file of them");
    newer
}

/// What became of an image: whether it was made anew. Its content must be right after what is missing was applied, and again after another start.
fn recovered(dir: &Path, log: &Arc<Log>, expected: (u64, [u8; 32])) -> bool {
    let hw = expected.0;
    let database = Database::open(dir, quick(), log.clone()).unwrap();
    let applied = database.applied();
    let anew = set_aside(dir);
    assert!(!anew || applied == 0, "made anew, it has applied {applied}");
    database.apply(applied, hw, &log.read(applied, hw), true).unwrap();
    database.publish(hw);
    assert_eq!(database.content_hash().unwrap(), expected);
    database.close().unwrap();
    drop(database);
    common::assert_sound(&dir.join(MAIN));
    if anew {
        fs::remove_file(dir.join("database.sqlite.damaged")).unwrap();
    }
    let again = Database::open(dir, quick(), log.clone()).unwrap();
    assert_eq!(again.applied(), hw);
    again.publish(hw);
    assert_eq!(again.content_hash().unwrap(), expected);
    assert!(!set_aside(dir), "what was mended is whole");
    anew
}

/// A database with a few dozen pages that has had a checkpoint and has written since.
fn bench_with_content() -> Bench {
    let bench = Bench::leader_with(Options { wal_bytes_checkpoint: 1, ..quick() });
    bench.run(&["CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "CREATE INDEX u ON t(b)"]).unwrap();
    for round in 0..4 {
        let insert = format!("INSERT INTO t(b) VALUES('{round}' || hex(zeroblob(3000)))");
        bench.run(&[&insert]).unwrap();
    }
    bench
}

#[test]
fn whatever_a_checkpoint_leaves_behind_when_it_is_cut_short_is_no_damage() {
    let bench = bench_with_content();
    let shrinks = ["DELETE FROM t WHERE a > 2", "UPDATE t SET b = 'x'"];
    let grows = ["INSERT INTO t(b) SELECT hex(zeroblob(5000)) FROM t", "INSERT INTO t(b) VALUES(7)"];
    for written in [&shrinks, &grows] {
        bench.run(written).unwrap();
        // The log is large enough at every write: a checkpoint is made by the next one, and this asks for it.
        let before = image(bench.dir.path());
        bench.database.checkpoint_if_due().unwrap();
        let after = image(bench.dir.path());
        let expected = bench.database.content_hash().unwrap();
        assert_steps(&before, &after, &bench.log, expected);
    }
    of(bench.database.session().execute(&statement("VACUUM"))).unwrap();
    bench.publish();
    let before = image(bench.dir.path());
    bench.database.checkpoint_if_due().unwrap();
    let after = image(bench.dir.path());
    let size = |dir: &tempfile::TempDir| fs::metadata(dir.path().join(MAIN)).unwrap().len();
    assert!(size(&after) < size(&before), "VACUUM makes the file smaller");
    assert_steps(&before, &after, &bench.log, bench.database.content_hash().unwrap());
}

#[test]
fn the_first_checkpoint_is_as_safe_as_the_others() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(hex(zeroblob(9000)))"]).unwrap();
    let before = image(bench.dir.path());
    let expected = bench.database.content_hash().unwrap();
    bench.database.close().unwrap();
    assert_steps(&before, &image(bench.dir.path()), &bench.log, expected);
}

/// Puts together what is on the disk after each step of a checkpoint, and within it.
fn assert_steps(before: &tempfile::TempDir, after: &tempfile::TempDir, log: &Arc<Log>, expected: (u64, [u8; 32])) {
    let (before, after) = (before.path(), after.path());
    let newer = newer_sums(before, after);
    assert_ne!(fs::read(before.join(MARKER)).unwrap(), fs::read(after.join(MARKER)).unwrap());
    let whole = |dir: &tempfile::TempDir, step: &str| {
        assert!(!recovered(dir.path(), log, expected), "{step} was taken for damage");
    };
    whole(&image(before), "nothing");

    // The newer sums, torn and whole, beside the older marker.
    let sums = fs::read(after.join(newer)).unwrap();
    for length in [0, 5, sums.len() / 2, sums.len()] {
        let step = image(before);
        fs::write(step.path().join(newer), &sums[..length]).unwrap();
        // The older ones still hold: nothing is taken as it is.
        let damaged = image(step.path());
        let mut bytes = fs::read(damaged.path().join(MAIN)).unwrap();
        bytes[PAGE + 77] ^= 1;
        fs::write(damaged.path().join(MAIN), bytes).unwrap();
        assert!(recovered(damaged.path(), log, expected), "damage beside {length} bytes of the newer sums");
        whole(&step, "a part of the newer sums");
    }

    // The marker, and any number of pages written back, from either end.
    let with_marker = image(before);
    take(after, with_marker.path(), newer);
    take(after, with_marker.path(), MARKER);
    whole(&image(with_marker.path()), "the marker");
    let (old, new) = (fs::read(before.join(MAIN)).unwrap(), fs::read(after.join(MAIN)).unwrap());
    let pages = old.len().min(new.len()) / PAGE;
    for cut in 0..=pages {
        for new_first in [true, false] {
            let step = image(with_marker.path());
            let (first, last) = if new_first { (&new, &old) } else { (&old, &new) };
            let bytes = [&first[..cut * PAGE], &last[cut * PAGE..]].concat();
            fs::write(step.path().join(MAIN), bytes).unwrap();
            whole(&step, "a part of the pages");
        }
    }

    // All of them, before and after SQLite's log was emptied.
    let written = image(with_marker.path());
    take(after, written.path(), MAIN);
    whole(&image(written.path()), "all pages");
    fs::write(written.path().join(WAL), b"").unwrap();
    whole(&written, "the log emptied");
    whole(&image(after), "everything");
}

#[test]
fn a_changed_byte_in_any_page_is_noticed_and_mended() {
    let bench = bench_with_content();
    bench.database.checkpoint_if_due().unwrap();
    let expected = bench.database.content_hash().unwrap();
    let killed = image(bench.dir.path());
    bench.database.close().unwrap();
    let stopped = image(bench.dir.path());
    for original in [&killed, &stopped] {
        let bytes = fs::read(original.path().join(MAIN)).unwrap();
        assert!(bytes.len() > 6 * PAGE, "{}", bytes.len());
        for page in 0..bytes.len() / PAGE {
            let damaged = image(original.path());
            let mut bytes = bytes.clone();
            bytes[page * PAGE + page * 37 % PAGE] ^= 0x20;
            fs::write(damaged.path().join(MAIN), bytes).unwrap();
            assert!(recovered(damaged.path(), &bench.log, expected), "page {page}");
        }
        for (what, bytes) in [
            ("cut short", bytes[..bytes.len() - PAGE].to_vec()),
            ("cut within a page", bytes[..bytes.len() - 9].to_vec()),
            ("emptied", Vec::new()),
            ("longer", [&bytes[..], &[0; PAGE]].concat()),
            ("something else", vec![7; bytes.len()]),
        ] {
            let damaged = image(original.path());
            fs::write(damaged.path().join(MAIN), bytes).unwrap();
            assert!(recovered(damaged.path(), &bench.log, expected), "{what}");
        }
        let gone = image(original.path());
        fs::remove_file(gone.path().join(MAIN)).unwrap();
        let database = Database::open(gone.path(), quick(), bench.log.clone()).unwrap();
        assert_eq!(database.applied(), 0, "a file that is gone is made anew");
    }
}

#[test]
fn damage_amid_a_checkpoint_is_noticed_too() {
    let bench = bench_with_content();
    bench.run(&["INSERT INTO t(b) VALUES(7)"]).unwrap();
    let before = image(bench.dir.path());
    bench.database.checkpoint_if_due().unwrap();
    let after = bench.dir.path();
    let expected = bench.database.content_hash().unwrap();
    let step = image(before.path());
    take(after, step.path(), newer_sums(before.path(), after));
    take(after, step.path(), MARKER);

    // In a page that the checkpoint does not write, and in one that it does, which is thereby as it should be.
    let (old, new) = (fs::read(before.path().join(MAIN)).unwrap(), fs::read(after.join(MAIN)).unwrap());
    let same = |page: &usize| old[page * PAGE..(page + 1) * PAGE] == new[page * PAGE..(page + 1) * PAGE];
    let mut written = 0;
    for page in 0..old.len().min(new.len()) / PAGE {
        let damaged = image(step.path());
        let mut bytes = old.clone();
        bytes[page * PAGE + 200] ^= 1;
        fs::write(damaged.path().join(MAIN), bytes).unwrap();
        let anew = recovered(damaged.path(), &bench.log, expected);
        assert!(anew || !same(&page), "page {page} was left damaged");
        written += usize::from(!anew);
    }
    assert!((1..old.len() / PAGE).contains(&written), "the test is about both kinds of pages: {written}");

    // In the log, which SQLite cuts there without a word.
    let damaged = image(step.path());
    let mut bytes = fs::read(damaged.path().join(WAL)).unwrap();
    bytes[32 + 24 + 100] ^= 1;
    fs::write(damaged.path().join(WAL), bytes).unwrap();
    assert!(recovered(damaged.path(), &bench.log, expected), "a part of the checkpoint is missing");
}

#[test]
fn a_running_database_tells_where_its_file_is_damaged() {
    let bench = bench_with_content();
    bench.database.checkpoint_if_due().unwrap();
    let path = bench.dir.path().join(MAIN);
    let expected = bench.database.content_hash().unwrap();
    let whole = fs::read(&path).unwrap();
    let flip = |page: usize| {
        use std::os::unix::fs::FileExt;
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[whole[page * PAGE + 50] ^ 1], (page * PAGE + 50) as u64).unwrap();
    };
    flip(5);
    let failed = bench.database.content_hash().unwrap_err();
    assert_eq!(failed.code, "DATABASE_DAMAGED");
    assert!(failed.message.contains("page 6 (bytes 20480 to 24576)"), "{failed}");
    assert!(failed.message.contains(&*path.to_string_lossy()) && failed.message.contains("Restart"), "{failed}");
    assert!(recovered(image(bench.dir.path()).path(), &bench.log, expected));
}

#[test]
fn a_checkpoint_that_a_reader_keeps_from_ending_is_no_damage() {
    let bench = bench_with_content();
    let reader = bench.database.session();
    of(reader.execute(&statement("BEGIN"))).unwrap();
    of(reader.execute(&statement("SELECT count(*) FROM t"))).unwrap();
    let mut longest = 0;
    for round in 0..12 {
        let sql = if round % 4 == 2 {
            "DELETE FROM t WHERE a % 3 = 0"
        } else {
            "INSERT INTO t(b) SELECT b || 1 FROM t LIMIT 3"
        };
        bench.run(&[sql]).unwrap();
        bench.database.checkpoint_if_due().unwrap();
        let expected = bench.database.content_hash().unwrap();
        longest = longest.max(fs::metadata(bench.dir.path().join(WAL)).unwrap().len());
        assert!(!recovered(image(bench.dir.path()).path(), &bench.log, expected), "round {round}");
    }
    assert!(longest > 200_000, "the log was kept: {longest}");
    of(reader.execute(&statement("COMMIT"))).unwrap();
    bench.run(&["INSERT INTO t(b) VALUES(1)"]).unwrap();
    bench.database.checkpoint_if_due().unwrap();
    let expected = bench.database.content_hash().unwrap();
    assert!(!recovered(image(bench.dir.path()).path(), &bench.log, expected));
    assert!(fs::metadata(bench.dir.path().join(WAL)).unwrap().len() < 100_000, "the checkpoint ended");
}

#[test]
fn sums_that_are_damaged_or_gone_are_made_again() {
    let bench = bench_with_content();
    bench.database.close().unwrap();
    let dir = bench.dir.path();
    let expected = {
        let copy = image(dir);
        let again = Database::open(copy.path(), quick(), bench.log.clone()).unwrap();
        again.publish(bench.log.end());
        again.content_hash().unwrap()
    };
    for name in SUMS {
        for change in [0, 1, 2] {
            let changed = image(dir);
            let path = changed.path().join(name);
            let mut bytes = fs::read(&path).unwrap();
            match change {
                0 => fs::remove_file(&path).unwrap(),
                1 => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                _ => {
                    bytes[40] ^= 1;
                    fs::write(&path, bytes).unwrap();
                }
            }
            assert!(!recovered(changed.path(), &bench.log, expected), "{name}, change {change}");
            // What was made again is of use.
            let mut bytes = fs::read(changed.path().join(MAIN)).unwrap();
            bytes[2 * PAGE + 9] ^= 1;
            fs::write(changed.path().join(MAIN), bytes).unwrap();
            assert!(recovered(changed.path(), &bench.log, expected), "{name}, change {change}");
        }
    }
}

#[test]
fn one_set_of_damaged_files_is_kept() {
    let bench = bench_with_content();
    bench.database.close().unwrap();
    let dir = image(bench.dir.path());
    for mark in [b'1', b'2'] {
        let mut bytes = fs::read(dir.path().join(MAIN)).unwrap();
        bytes[PAGE + 1] = mark;
        bytes[PAGE + 2] ^= 1;
        fs::write(dir.path().join(MAIN), bytes).unwrap();
        let database = Database::open(dir.path(), quick(), bench.log.clone()).unwrap();
        assert_eq!(database.applied(), 0);
        assert_eq!(fs::read(dir.path().join("database.sqlite.damaged")).unwrap()[PAGE + 1], mark);
        database.close().unwrap();
    }
    let mut names: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.contains("damaged"));
    names.sort();
    assert!(names.len() <= 5 && names.contains(&"checkpoint.damaged".to_string()), "{names:?}");
}

#[test]
fn a_damaged_frame_is_not_written_back() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    let expected = bench.database.content_hash().unwrap();
    let main = fs::read(bench.dir.path().join(MAIN)).unwrap();
    let mut bytes = fs::read(bench.dir.path().join(WAL)).unwrap();
    bytes[32 + 24 + 4000] ^= 1;
    fs::write(bench.dir.path().join(WAL), bytes).unwrap();
    let failed = bench.database.close().unwrap_err();
    assert!(failed.to_string().contains("frame 1 is not what SQLite wrote"), "{failed}");
    assert_eq!(fs::read(bench.dir.path().join(MAIN)).unwrap(), main);
    assert!(!recovered(image(bench.dir.path()).path(), &bench.log, expected), "the log of SQLite's is dropped");
    of(bench.database.transaction(&transaction(&["SELECT 1"]), soon())).unwrap_err();
}
