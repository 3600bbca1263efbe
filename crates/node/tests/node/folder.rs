//! Data folders that must not be used, each refused by name and left as it was.

use std::fs;
use std::path::Path;

use highwater_node::{Config, StartError};
use highwater_wire::NodeId;
use tempfile::TempDir;

use crate::{Started, refused};

/// A folder in which a node ran and stopped.
fn used() -> (TempDir, Config) {
    let folder = TempDir::new().expect("a temporary folder");
    let config = Config::single(folder.path().join("data"));
    let started = Started::with(config.clone());
    started.sql("CREATE TABLE t (a)").expect("a table");
    drop(started);
    (folder, config)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("the file is there");
    bytes[at] ^= 0x10;
    fs::write(path, bytes).expect("the file is written");
}

#[test]
fn two_processes_do_not_share_a_folder() {
    let folder = TempDir::new().expect("a temporary folder");
    let config = Config::single(folder.path().join("data"));
    let first = Started::with(config.clone());
    assert!(matches!(refused(config.clone()), StartError::InUse(_)));
    drop(first);
    Started::with(config);
}

#[test]
fn another_nodes_or_clusters_folder_is_refused() {
    let (_folder, config) = used();
    let error = refused(Config { node: Some(NodeId(7)), ..config.clone() });
    assert!(matches!(error, StartError::OtherNode { found: 1, wanted: 7, .. }), "{error}");
    let error = refused(Config { cluster: Some(1), ..config.clone() });
    assert!(matches!(error, StartError::OtherCluster { wanted: 1, .. }), "{error}");
    Started::with(Config { node: Some(NodeId(1)), ..config }).count("t");
}

#[test]
fn a_flipped_byte_in_a_file_of_the_nodes_is_found() {
    for name in ["node", "key", "logs"] {
        let (folder, config) = used();
        let file = folder.path().join("data").join(name);
        let length = fs::metadata(&file).expect("the file is there").len() as usize;
        for at in [0, 9, length / 2, length - 1] {
            flip(&file, at);
            let error = refused(config.clone());
            assert!(
                matches!(&error, StartError::Damaged { file: found, .. } if *found == file),
                "{name} byte {at}: {error}"
            );
            flip(&file, at);
        }
        Started::with(config).count("t");
    }
}

#[test]
fn a_missing_file_is_not_taken_for_a_new_folder() {
    let (folder, config) = used();
    let data = folder.path().join("data");
    fs::rename(data.join("node"), data.join("gone")).expect("renamed");
    assert!(matches!(refused(config.clone()), StartError::NodeFileMissing { .. }));
    fs::rename(data.join("gone"), data.join("node")).expect("renamed");

    fs::rename(data.join("meta"), data.join("gone")).expect("renamed");
    let error = refused(config.clone());
    assert!(matches!(&error, StartError::Host { .. }) && error.to_string().contains("meta"), "{error}");
    fs::remove_dir_all(data.join("meta")).expect("an empty folder was made");
    fs::rename(data.join("gone"), data.join("meta")).expect("renamed");
    Started::with(config).count("t");
}

#[test]
fn a_lost_log_of_a_database_stops_that_database_and_says_so() {
    let (folder, config) = used();
    fs::remove_dir_all(folder.path().join("data/db/main/log")).expect("the log goes");
    let started = Started::with(config);
    let view = || started.runtime.block_on(started.node.view()).expect("the node answers");
    let begun = std::time::Instant::now();
    let halted = loop {
        if let Some(reason) = view().host.partitions.first().and_then(|partition| partition.status.halted.clone()) {
            break reason;
        }
        assert!(begun.elapsed() < crate::PATIENCE, "the database is not refused: {:?}", view().host.partitions);
        std::thread::yield_now();
    };
    assert!(halted.contains("log"), "{halted}");
}
