//! `/verify`: the content hash of each replica at one offset.
//!
//! Each node hashes what its readers see. The hashes are compared where the offsets are the same; replicas that were caught at different ones are asked again, which
//! ends as soon as the database stands still for as long as a hash takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use highwater_wire::NodeId;
use serde_json::{Value, json};

use crate::app::App;
use crate::failure::Failure;
use crate::forward;
use crate::options::RequestOptions;
use crate::party::Party;
use crate::settle::before_reading;
use crate::work::Lane;

/// How long replicas that are at different offsets are asked again.
const COMPARE_WAIT: Duration = Duration::from_secs(30);
/// How long one node may take to hash.
const HASH_WAIT: Duration = Duration::from_secs(120);
/// Between two rounds.
const ROUND: Duration = Duration::from_millis(100);

/// One replica's hash, or why there is none.
struct Found {
    node: NodeId,
    result: Result<(u64, String), String>,
}

/// This node's own hash, for another node that compares.
pub(crate) async fn own_document(app: &Arc<App>, name: &str, party: &Party) -> Result<Value, Failure> {
    let (offset, hash) = hash_here(app, name, party).await?;
    Ok(json!({"database": name, "hash": hash, "offset": offset}))
}

/// The document for one database: whether all replicas agree, and each one's hash with the offset it is of.
pub(crate) async fn document(app: &Arc<App>, name: &str, party: &Party, headers: &HeaderMap) -> Result<Value, Failure> {
    let db = app.database(name)?;
    before_reading(&db, &RequestOptions::default(), true).await?;
    let replicas = app
        .node
        .view()
        .await?
        .host
        .records
        .iter()
        .find(|record| record.name == name)
        .map_or_else(|| vec![app.node.id()], |record| record.replicas.iter().map(|peer| peer.node).collect());
    let begun = Instant::now();
    loop {
        let found = round(app, name, party, headers, &replicas).await?;
        let offsets: Vec<u64> =
            found.iter().filter_map(|one| one.result.as_ref().ok()).map(|(offset, _)| *offset).collect();
        let comparable = offsets.windows(2).all(|pair| pair[0] == pair[1]);
        if comparable || begun.elapsed() > COMPARE_WAIT {
            return Ok(compared(name, &found, comparable));
        }
        // sleep: the replicas behind are catching up, at a pace that is theirs.
        tokio::time::sleep(ROUND).await;
    }
}

async fn round(
    app: &Arc<App>,
    name: &str,
    party: &Party,
    headers: &HeaderMap,
    replicas: &[NodeId],
) -> Result<Vec<Found>, Failure> {
    let path = format!("/verify?db={name}");
    // When the client leaves, these end, and with them what they asked the other nodes for.
    let mut others = tokio::task::JoinSet::new();
    for node in replicas.iter().copied().filter(|node| *node != app.node.id()) {
        let (app, path, headers) = (app.clone(), path.clone(), headers.clone());
        let asking = *party;
        others.spawn(async move {
            let result = forward::ask(&app, &asking, node, &path, &headers, HASH_WAIT).await.and_then(|document| {
                let offset = document["offset"].as_u64().ok_or("its answer has no offset")?;
                let hash = document["hash"].as_str().ok_or("its answer has no hash")?;
                Ok((offset, hash.to_string()))
            });
            Found { node, result }
        });
    }
    let mut found = vec![Found { node: app.node.id(), result: Ok(hash_here(app, name, party).await?) }];
    while let Some(other) = others.join_next().await {
        found.push(other.map_err(|error| {
            Failure::new(
                axum::http::StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL",
                format!("asking a node failed: {error}"),
            )
        })?);
    }
    found.sort_by_key(|one| one.node);
    Ok(found)
}

fn compared(name: &str, found: &[Found], comparable: bool) -> Value {
    let hashes: Vec<&(u64, String)> = found.iter().filter_map(|one| one.result.as_ref().ok()).collect();
    let all_there = hashes.len() == found.len();
    let agree = comparable && all_there && hashes.windows(2).all(|pair| pair[0] == pair[1]);
    let replicas: Vec<Value> = found
        .iter()
        .map(|one| match &one.result {
            Ok((offset, hash)) => json!({"node": one.node.0, "hash": hash, "offset": offset}),
            Err(reason) => json!({"node": one.node.0, "hash": null, "offset": null, "reason": reason}),
        })
        .collect();
    let problem = match (agree, comparable, all_there) {
        (true, ..) => None,
        (_, false, _) => Some(
            "the replicas could not be compared at one offset: the database was written all the time; verify again when it is quieter",
        ),
        (_, _, false) => Some("not every replica answered"),
        _ => Some("the replicas differ at one offset"),
    };
    json!({
        "database": name,
        "agree": agree,
        "hash": hashes.first().filter(|_| agree).map(|(_, hash)| hash),
        "offset": hashes.first().filter(|_| agree).map(|(offset, _)| offset),
        "problem": problem,
        "differing": differing(found),
        "replicas": replicas,
    })
}

/// The nodes whose hash is not the one that most replicas have at the same offset.
fn differing(found: &[Found]) -> Vec<u32> {
    let hashes: Vec<(u32, &(u64, String))> =
        found.iter().filter_map(|one| Some((one.node.0, one.result.as_ref().ok()?))).collect();
    let votes = |hash: &(u64, String)| hashes.iter().filter(|(_, other)| *other == hash).count();
    let Some(most) = hashes.iter().map(|(_, hash)| *hash).max_by_key(|hash| votes(hash)) else { return Vec::new() };
    hashes.iter().filter(|(_, hash)| hash.0 == most.0 && *hash != most).map(|(node, _)| *node).collect()
}

async fn hash_here(app: &Arc<App>, name: &str, party: &Party) -> Result<(u64, String), Failure> {
    let sql = app.database(name)?.sql()?.clone();
    let time = app.limits.transfer;
    let hashed = app
        .blocking(party, Lane::Read, move |work| sql.content_hash_within(work.allow_until(Instant::now() + time)))
        .await?;
    let (offset, hash) = hashed.map_err(|error| Failure::sql(error, None))?;
    Ok((offset, hash.iter().map(|byte| format!("{byte:02x}")).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(node: u32, offset: u64, hash: &str) -> Found {
        Found { node: NodeId(node), result: Ok((offset, hash.into())) }
    }

    #[test]
    fn the_replica_that_differs_is_named() {
        let all = [found(1, 9, "a"), found(2, 9, "b"), found(3, 9, "a")];
        let document = compared("main", &all, true);
        assert_eq!((&document["agree"], &document["differing"]), (&json!(false), &json!([2])));
        let all = [found(1, 9, "a"), found(2, 9, "a")];
        assert_eq!(compared("main", &all, true)["hash"], "a");
    }

    #[test]
    fn replicas_at_different_offsets_or_without_an_answer_do_not_agree() {
        let all = [found(1, 9, "a"), found(2, 8, "b")];
        assert_eq!(compared("main", &all, false)["agree"], false);
        let all = [found(1, 9, "a"), Found { node: NodeId(2), result: Err("gone".into()) }];
        let document = compared("main", &all, true);
        assert_eq!(document["agree"], false);
        assert!(document["problem"].as_str().is_some_and(|problem| problem.contains("not every replica")));
    }
}
