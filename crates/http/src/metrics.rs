//! `/metrics`, in the text form of OpenMetrics: what is counted here, and what the node says of itself when it is asked.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::app::App;
use crate::failure::Failure;

/// A face that clients use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Face {
    face: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DatabaseLabel {
    database: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaLabel {
    database: String,
    node: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuantileLabel {
    database: String,
    quantile: &'static str,
}

/// What is counted.
pub(crate) struct Metrics {
    /// Requests that arrived.
    pub(crate) requests: Family<Face, Counter>,
    /// Requests that were not answered as asked.
    pub(crate) failures: Family<Face, Counter>,
    /// Requests refused because too many were under way.
    pub(crate) overloaded: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics { requests: Family::default(), failures: Family::default(), overloaded: Counter::default() }
    }

    /// Counts a request on a face.
    pub(crate) fn count(&self, face: &'static str, failed: bool) {
        let face = Face { face };
        self.requests.get_or_create(&face).inc();
        if failed {
            self.failures.get_or_create(&face).inc();
        }
    }
}

/// The whole text.
pub(crate) async fn text(app: &App) -> Result<String, Failure> {
    let view = app.node.view().await?;
    let mut registry = Registry::with_prefix("highwater");
    let metrics = &app.metrics;
    registry.register("requests", "Requests that arrived", metrics.requests.clone());
    registry.register("request_failures", "Requests that were not answered as asked", metrics.failures.clone());
    registry.register("overloaded", "Requests refused because too many were under way", metrics.overloaded.clone());
    let streams: Gauge = Gauge::default();
    streams.set(app.streams.count() as i64);
    registry.register("streams_open", "Hrana streams that are open", streams);
    let open: Gauge = Gauge::default();
    open.set(app.requests.taken() as i64);
    registry.register("requests_open", "Requests under way", open);
    let answers: Gauge = Gauge::default();
    answers.set(app.answers.taken() as i64);
    registry.register_with_unit("answers", "Results that their clients have not taken yet", Unit::Bytes, answers);
    let cut_off = &app.lanes.cut_off;
    registry.register("cut_off_threads", "Threads whose work goes on past its deadline", cut_off.now.clone());
    registry.register(
        "cut_offs",
        "Requests answered while their work went on past its deadline",
        cut_off.total.clone(),
    );
    let (opened, ended, refused) = (
        Family::<ConnectionLabel, Gauge>::default(),
        Family::<ConnectionLabel, Counter>::default(),
        Family::<ConnectionLabel, Counter>::default(),
    );
    for (kind, counts) in (app.connections)() {
        let label = ConnectionLabel { kind };
        opened.get_or_create(&label).set(counts.open as i64);
        ended.get_or_create(&label).inc_by(counts.ended);
        refused.get_or_create(&label).inc_by(counts.refused);
    }
    registry.register("connections_open", "Connections that others have made to this node", opened);
    registry.register("connections_ended", "Connections that did nothing for too long or gave way to newcomers", ended);
    registry.register("connections_refused", "Connections that there was no room for", refused);
    let uptime: Gauge = Gauge::default();
    uptime.set(app.node.started().elapsed().as_secs() as i64);
    registry.register_with_unit("uptime", "Time since the process started", Unit::Seconds, uptime);

    let by_database = || Family::<DatabaseLabel, Gauge>::default();
    let (hw, end, epoch, leads, halted) = (by_database(), by_database(), by_database(), by_database(), by_database());
    let (in_sync, ahead) = (by_database(), by_database());
    let rates = Family::<DatabaseLabel, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
    let latency = Family::<QuantileLabel, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
    let lag = Family::<ReplicaLabel, Gauge>::default();
    let silent = Family::<ReplicaLabel, Gauge>::default();
    let flushes = Family::<DatabaseLabel, Counter>::default();
    for partition in &view.host.partitions {
        let ended = view.flushes.get(&partition.id).copied().unwrap_or_default();
        flushes.get_or_create(&DatabaseLabel { database: partition.name.clone() }).inc_by(ended);
        let status = &partition.status;
        let label = DatabaseLabel { database: partition.name.clone() };
        let is_leader = matches!(status.role, highwater_node::Role::Leader { .. });
        hw.get_or_create(&label).set(status.hw as i64);
        end.get_or_create(&label).set(status.leo as i64);
        epoch.get_or_create(&label).set(status.epoch.map_or(-1, |epoch| i64::from(epoch.0)));
        leads.get_or_create(&label).set(i64::from(is_leader));
        halted.get_or_create(&label).set(i64::from(status.halted.is_some()));
        if is_leader {
            let others = status.peers.iter().filter(|peer| peer.in_sync).count();
            in_sync.get_or_create(&label).set(others as i64 + 1);
        }
        let rate = view.rates.get(&partition.id).copied().unwrap_or_default();
        rates.get_or_create(&label).set(rate.write);
        for peer in &status.peers {
            let label = ReplicaLabel { database: partition.name.clone(), node: peer.node.0 };
            lag.get_or_create(&label).set(status.leo.saturating_sub(peer.leo) as i64);
            silent.get_or_create(&label).set(peer.heard_ms_ago as i64);
        }
        if let Ok(db) = app.node.database(&partition.name) {
            ahead.get_or_create(&label).set(db.bytes_ahead() as i64);
            for (quantile, part) in [("0.5", 0.5), ("0.99", 0.99)] {
                if let Some(ms) = db.commit_latency().quantile_ms(part) {
                    let label = QuantileLabel { database: partition.name.clone(), quantile };
                    latency.get_or_create(&label).set(ms / 1000.0);
                }
            }
        }
    }
    registry.register("high_watermark", "The high watermark", hw);
    registry.register("log_end_offset", "The log end offset here, durable", end);
    registry.register("leader_epoch", "The highest leader epoch promised or entered; -1 for none", epoch);
    registry.register("leads", "Whether this node leads the database", leads);
    registry.register("halted", "Whether the replica here has halted", halted);
    registry.register("log_flushes", "Flushes of the database's log that have ended here, each one fdatasync", flushes);
    registry.register("in_sync_replicas", "Replicas in sync, the leader included, as the leader sees it", in_sync);
    registry.register_with_unit("ahead", "Executed and not committed yet", Unit::Bytes, ahead);
    registry.register("write_rate", "Entries committed per second over the last ten seconds", rates);
    registry.register_with_unit(
        "commit_latency",
        "From the end of a write's execution to its acknowledgement, over the last one to two minutes",
        Unit::Seconds,
        latency,
    );
    registry.register("replica_lag_entries", "Entries a follower is behind the leader", lag);
    registry.register("replica_silent_milliseconds", "Time since a follower was last heard of", silent);

    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    Ok(text)
}
