//! `/status`: the cluster and every database, in the shape that scripts read.
//!
//! Each node knows its own replicas, and the leader what it hears of the others; so the others are asked, for a short time, and the pieces put together. Figures that
//! nobody told are null. `lag_ms` is an estimate: the lag in entries over the rate at which the
//! database is written, 0 where there is no lag.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use highwater_node::{NodeView, Rates, Registered, Role, Status};
use highwater_wire::{CommitRule, NodeId};
use serde_json::{Value, json};

use crate::app::App;
use crate::failure::Failure;
use crate::forward;
use crate::party::Party;

/// How long other nodes may take to say what they know.
const ASK_WAIT: Duration = Duration::from_millis(300);

/// The whole cluster's document.
pub(crate) async fn document(app: &Arc<App>, party: &Party, headers: &HeaderMap) -> Result<Value, Failure> {
    let mut ours = own_document(app).await?;
    let mut asked = tokio::task::JoinSet::new();
    for node in app.node.others() {
        let (app, party, headers) = (app.clone(), *party, headers.clone());
        asked.spawn(async move { forward::ask(&app, &party, node, "/status", &headers, ASK_WAIT).await.ok() });
    }
    let told: Vec<Value> = asked.join_all().await.into_iter().flatten().collect();
    merge(&mut ours, &told);
    Ok(ours)
}

/// Puts what other nodes told into this one's document: the leader's view of a partition, and of each replica what its own node says.
fn merge(ours: &mut Value, told: &[Value]) {
    let partition_of = |document: &Value, name: &Value| {
        document["partitions"].as_array().and_then(|all| all.iter().find(|one| one["name"] == *name).cloned())
    };
    let own_node = ours["node"].clone();
    for partition in ours["partitions"].as_array_mut().into_iter().flatten() {
        let own = partition.clone();
        let name = own["name"].clone();
        let leaders = told.iter().find(|document| {
            partition_of(document, &name).is_some_and(|theirs| {
                theirs["leader"] == document["node"] && theirs["epoch"].as_u64() >= own["epoch"].as_u64()
            })
        });
        if let Some(theirs) = leaders.and_then(|document| partition_of(document, &name)) {
            *partition = theirs;
        }
        for replica in partition["replicas"].as_array_mut().into_iter().flatten() {
            let node = replica["node"].clone();
            let says = match node == own_node {
                true => Some(own.clone()),
                false => told
                    .iter()
                    .find(|document| document["node"] == node)
                    .and_then(|document| partition_of(document, &name)),
            };
            let own_view = says.and_then(|theirs| {
                theirs["replicas"].as_array().and_then(|all| all.iter().find(|one| one["node"] == node).cloned())
            });
            for key in ["leo", "hw", "applied", "apply_rate", "lag_entries", "lag_ms"] {
                if let Some(view) = own_view.as_ref().filter(|view| replica[key].is_null() && !view[key].is_null()) {
                    replica[key] = view[key].clone();
                }
            }
        }
    }
}

/// What this node itself knows.
pub(crate) async fn own_document(app: &App) -> Result<Value, Failure> {
    let view = app.node.view().await?;
    Ok(json!({
        "node": app.node.id().0,
        "cluster": format!("{:016x}", app.node.cluster()),
        "registered": match view.host.registered {
            Registered::Accepted => "accepted",
            Registered::Waiting => "waiting",
            Registered::Refused => "refused",
        },
        "halted": app.node.halted(),
        "metadata_leader": view.host.metadata_leader.map(|node| node.0),
        "uptime_ms": app.node.started().elapsed().as_millis() as u64,
        "nodes": nodes(app, &view),
        "partitions": partitions(app, &view),
    }))
}

fn nodes(app: &App, view: &NodeView) -> Vec<Value> {
    let registered = view.host.nodes.iter().map(|node| {
        json!({
            "node": node.record.node.0,
            "address": node.record.address,
            "starts": node.record.incarnation.starts,
            "random": format!("{:016x}", node.record.incarnation.random),
            "alive": node.alive,
            "this": node.record.node == app.node.id(),
        })
    });
    registered.collect()
}

fn partitions(app: &App, view: &NodeView) -> Vec<Value> {
    let mut documents: Vec<Value> = Vec::new();
    for record in &view.host.records {
        let here = view.partition(record.id);
        let rates = view.rates.get(&record.id).copied().unwrap_or_default();
        let database = app.node.database(&record.name).ok();
        let latency = |part| database.as_ref().and_then(|db| db.commit_latency().quantile_ms(part));
        let stopped = database.as_ref().and_then(|db| db.stopped().map(str::to_string));
        let leader = here
            .and_then(|status| status.leader.map(|peer| peer.node))
            .or(record.leader.as_ref().map(|(peer, _)| peer.node));
        let in_sync: Vec<u32> =
            in_sync(here, record.set.members.iter().map(|peer| peer.node), app.node.id(), record.set.rule);
        documents.push(json!({
            "name": record.name,
            "leader": leader.map(|node| node.0),
            "epoch": here.and_then(|status| status.epoch).map(|epoch| epoch.0),
            "version": record.version.0,
            "commit_rule": rule(record.set.rule),
            "isr": in_sync,
            "hw": here.map(|status| status.hw),
            "replicas": record.replicas.iter().map(|peer| replica(peer.node, here, app.node.id(), rates)).collect::<Vec<_>>(),
            "write_rate": rates.write,
            "commit_ms_p50": latency(0.5),
            "commit_ms_p99": latency(0.99),
            "halted": here.and_then(|status| status.halted.clone()).or(stopped),
        }));
    }
    documents
}

/// `isr:2`, `quorum:2`: as it is written in the contract.
fn rule(rule: CommitRule) -> String {
    match rule {
        CommitRule::Isr { min } => format!("isr:{min}"),
        CommitRule::Quorum { q } => format!("quorum:{q}"),
    }
}

/// Who keeps up: on record under `isr`; as the leader sees it under the other rules.
fn in_sync(here: Option<&Status>, members: impl Iterator<Item = NodeId>, me: NodeId, rule: CommitRule) -> Vec<u32> {
    match (rule, here) {
        (CommitRule::Quorum { .. }, Some(status)) if leads(status) => {
            let mut nodes: Vec<u32> = status.peers.iter().filter(|peer| peer.in_sync).map(|peer| peer.node.0).collect();
            nodes.push(me.0);
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        }
        _ => members.map(|node| node.0).collect(),
    }
}

fn leads(status: &Status) -> bool {
    matches!(status.role, Role::Leader { .. })
}

fn replica(node: NodeId, here: Option<&Status>, me: NodeId, rates: Rates) -> Value {
    let lag_ms = |entries: u64| match entries {
        0 => Some(0.0),
        _ if rates.write > 0.0 => Some((entries as f64 / rates.write * 1000.0).round()),
        _ => None,
    };
    if node == me {
        let Some(status) = here else {
            return json!({"node": node.0, "leo": null, "hw": null, "applied": null, "in_sync": false,
                "lag_entries": null, "lag_ms": null, "ms_since_heard": null, "apply_rate": null});
        };
        let lag = if leads(status) { 0 } else { status.hw.saturating_sub(status.applied) };
        return json!({
            "node": node.0, "leo": status.leo, "hw": status.hw, "applied": status.applied, "in_sync": status.halted.is_none(),
            "lag_entries": lag, "lag_ms": lag_ms(lag), "ms_since_heard": 0, "apply_rate": rates.apply,
        });
    }
    let peer = here.and_then(|status| status.peers.iter().find(|peer| peer.node == node).map(|peer| (status, peer)));
    match peer {
        Some((status, peer)) => {
            let lag = status.leo.saturating_sub(peer.leo);
            json!({
                "node": node.0, "leo": peer.leo, "hw": null, "applied": peer.applied, "in_sync": peer.in_sync,
                "lag_entries": lag, "lag_ms": lag_ms(lag), "ms_since_heard": peer.heard_ms_ago, "apply_rate": null,
            })
        }
        None => json!({"node": node.0, "leo": null, "hw": null, "applied": null, "in_sync": null,
            "lag_entries": null, "lag_ms": null, "ms_since_heard": null, "apply_rate": null}),
    }
}
