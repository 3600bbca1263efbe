//! Another folder in place of a node's own: an older copy of it, or an empty one. The cluster goes on, the node says what is wrong and takes no part, and with
//! its own folder back it takes part again.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{Cluster, IDS, PATIENCE, wait_for};
use crate::node::spawn_logged;

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a file can be copied")),
        }
    }
}

/// Writes one more row through a node, and expects all of them at another.
fn one_more(cluster: &Cluster, [at, other]: [u32; 2], rows: &mut u32) {
    cluster.write(at, "INSERT INTO kept VALUES (1)");
    *rows += 1;
    assert_eq!(cluster.rows(other, "", "SELECT count(*) FROM kept"), json!([[*rows]]));
}

/// That all three take part, the one that was away included, and agree.
fn all_take_part(cluster: &mut Cluster, back: u32, rows: u32) {
    cluster.roles();
    assert_eq!(cluster.rows(back, "", "SELECT count(*) FROM kept"), json!([[rows]]));
    cluster.settle();
    cluster.verify();
}

/// The process of a node that must not run ends by itself; returns what it said.
fn ends_by_itself(cluster: &mut Cluster, id: u32) -> String {
    let process = &mut cluster.processes.get_mut(&id).expect("it was started").0;
    let status = wait_for("the node ends", || process.try_wait().expect("it can be asked"));
    assert!(!status.success(), "a node that cannot start does not end well");
    cluster.processes.remove(&id);
    cluster.log(id)
}

#[test]
fn an_older_copy_of_a_folder_takes_no_part_until_the_true_one_is_back() {
    let mut cluster = Cluster::start(&[]);
    cluster.write(1, "CREATE TABLE kept (v)");
    let mut rows = 0;
    let roles = cluster.roles();
    let victim = roles.metadata;
    let [one, two] = IDS.into_iter().filter(|id| *id != victim).collect::<Vec<_>>().try_into().expect("two others");
    let data = cluster.data(victim);
    let place = |name: &str| data.with_file_name(name);

    cluster.stop_node(victim);
    copy(&data, &place("copy"));
    cluster.start_node(victim);
    cluster.roles();
    one_more(&cluster, [one, victim], &mut rows);
    cluster.stop_node(victim);
    fs::rename(&data, place("truth")).expect("it can be renamed");
    fs::rename(place("copy"), &data).expect("it can be renamed");

    // The second start would have more starts than the true folder ever had.
    for start in 0..2 {
        let before = cluster.log(victim).len();
        cluster.start_node(victim);
        wait_for("the copy is refused", || {
            cluster.log(victim)[before..].contains("is an older copy of itself").then_some(())
        });
        let status = wait_for("it shows so", || cluster.status(victim));
        assert_eq!(status["registered"], "refused", "start {start}: {status}");
        assert!(status["halted"].as_str().is_some_and(|halted| halted.contains("newest data folder back")), "{status}");
        for path in ["/ready", "/db/main/sql"] {
            let answer = match path {
                "/ready" => highwater_client::fetch(&cluster.url(victim), path, PATIENCE).expect("it answers"),
                _ => {
                    let response = cluster.try_sql(victim, "", "SELECT 1").expect("it answers");
                    (response.status, response.json().to_string().into_bytes())
                }
            };
            let said = String::from_utf8_lossy(&answer.1).into_owned();
            assert!(answer.0 == 503 && said.contains("older copy"), "{path}: {} {said}", answer.0);
        }
        one_more(&cluster, [one, two], &mut rows);
        cluster.stop_node(victim);
        one_more(&cluster, [two, one], &mut rows);
    }

    fs::rename(&data, place("copy")).expect("it can be renamed");
    fs::rename(place("truth"), &data).expect("it can be renamed");
    cluster.start_node(victim);
    all_take_part(&mut cluster, victim, rows);
}

#[test]
fn an_emptied_folder_joins_nothing_and_forms_no_cluster_of_its_own() {
    let mut cluster = Cluster::start(&[]);
    cluster.write(1, "CREATE TABLE kept (v)");
    let mut rows = 0;
    let roles = cluster.roles();
    let [one, two] = roles.followers();
    let victim = roles.leader;
    let truth = |cluster: &Cluster, id| cluster.data(id).with_file_name("truth");
    let take_away = |cluster: &Cluster, id| {
        fs::rename(cluster.data(id), truth(cluster, id)).expect("it can be renamed");
    };
    let give_back = |cluster: &Cluster, id| {
        fs::remove_dir_all(cluster.data(id)).expect("it can be removed");
        fs::rename(truth(cluster, id), cluster.data(id)).expect("it can be renamed");
    };

    cluster.stop_node(victim);
    take_away(&cluster, victim);
    cluster.start_node(victim);
    let said = ends_by_itself(&mut cluster, victim);
    assert!(said.contains("was emptied") && said.contains("own data folder back"), "{said}");
    one_more(&cluster, [one, two], &mut rows);
    give_back(&cluster, victim);
    cluster.start_node(victim);
    all_take_part(&mut cluster, victim, rows);

    // Two of three, who would be a majority: they wait for the third, and when it comes it knows better.
    for id in IDS {
        cluster.stop_node(id);
    }
    for id in [victim, one] {
        take_away(&cluster, id);
        let process = spawn_logged(cluster.serve(id).env("HIGHWATER_LOG", "info"), &cluster.folder_of(id));
        cluster.processes.insert(id, process);
    }
    for id in [victim, one] {
        wait_for("it waits for the third", || {
            let waiting = format!("waiting for node {two} (");
            let log = cluster.log(id);
            log.lines().any(|line| line.contains(&waiting) && line.contains("to form the cluster")).then_some(())
        });
    }
    cluster.start_node(two);
    for id in [victim, one] {
        let said = ends_by_itself(&mut cluster, id);
        assert!(said.contains("was emptied"), "{said}");
        give_back(&cluster, id);
        cluster.start_node(id);
    }
    all_take_part(&mut cluster, victim, rows);
}
