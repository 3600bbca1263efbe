//! A start that the true folder never had, registered in its name. The node is shut out as if its folder were an older copy, and `highwater node adopt` lets it in again.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::lost_folders::copy;
use super::{Cluster, IDS, wait_for};
use crate::node::HIGHWATER;

fn adopt(cluster: &Cluster, id: u32, starts: &str, random: &str) -> (bool, String) {
    let mut command = Command::new(HIGHWATER);
    command.args(["node", "adopt", "--data"]).arg(cluster.data(id)).args(["--starts", starts, "--random", random]);
    let output = command.output().expect("the binary can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

#[test]
fn a_node_that_was_shut_out_by_a_false_registration_is_let_in_again() {
    let mut cluster = Cluster::start(&[]);
    cluster.write(1, "CREATE TABLE kept (v)");
    let victim = cluster.roles().followers()[0];
    let other = IDS.into_iter().find(|id| *id != victim).expect("another");
    let data = cluster.data(victim);
    let place = |name: &str| data.with_file_name(name);

    // A copy of the folder registers the start, as somebody does who says hello in its name.
    cluster.stop_node(victim);
    copy(&data, &place("false"));
    fs::rename(&data, place("truth")).expect("it can be renamed");
    fs::rename(place("false"), &data).expect("it can be renamed");
    cluster.start_node(victim);
    cluster.roles();
    cluster.stop_node(victim);
    fs::remove_dir_all(&data).expect("it can be removed");
    fs::rename(place("truth"), &data).expect("it can be renamed");
    let before = cluster.log(victim).len();
    cluster.start_node(victim);
    wait_for("the true folder is refused", || {
        cluster.log(victim)[before..].contains("highwater node adopt").then_some(())
    });
    let (done, said) = adopt(&cluster, victim, "9", "1");
    assert!(!done && said.contains("is in use by another highwater process"), "{said}");
    cluster.stop_node(victim);

    let status = cluster.status(other).expect("it answers");
    let nodes = status["nodes"].as_array().expect("a list").clone();
    let shown = nodes.iter().find(|node| node["node"] == victim).expect("it is registered");
    let (starts, random) = (shown["starts"].to_string(), shown["random"].as_str().expect("digits").to_owned());
    for (starts, random, why) in
        [("0", "1", "a start has a number"), ("4000000000", "1", "a start has a number"), ("5", "xyz", "hexadecimal")]
    {
        let (done, said) = adopt(&cluster, victim, starts, random);
        assert!(!done && said.contains(why), "{said}");
    }
    let (done, said) = adopt(&cluster, victim, &starts, &random);
    assert!(done && said.contains("is not any more"), "{said}");
    let (done, said) = adopt(&cluster, victim, &starts, &random);
    assert!(done && said.contains("already"), "{said}");

    cluster.start_node(victim);
    cluster.roles();
    cluster.write(victim, "INSERT INTO kept VALUES (1)");
    assert_eq!(cluster.rows(victim, "", "SELECT count(*) FROM kept"), json!([[1]]));
    cluster.settle();
    cluster.verify();
}
