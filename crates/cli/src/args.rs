//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A leader-follower replicated SQL database in one binary.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node. With no options: one node, database `main`, ./highwater-data, http://127.0.0.1:8080.
    Serve(ServeArgs),
    /// Run a cluster of several nodes on this machine, to try things out: prints where they are, then `ready`.
    Dev(DevArgs),
    /// Measure single-row writes at several numbers of clients, beside SQLite alone.
    Bench(BenchArgs),
    /// Write to a cluster of its own while its nodes, disks and network fail, and check that nothing acknowledged is lost, doubled or made up.
    Chaos(ChaosArgs),
    /// Run SQL: given with -c, from a file, or from standard input; a shell if that is a terminal.
    Sql(SqlArgs),
    /// Show nodes, databases, positions, lags and commit latencies.
    Status(StatusArgs),
    /// Compare the content of all replicas of a database. Exit 0 and one hash if they agree, 1 naming the one that differs.
    Verify(VerifyArgs),
    /// Take whole databases in and out.
    #[command(subcommand)]
    Db(DbCommand),
    /// Run the deterministic simulator: random seeds, one seed with its trace, a named scenario, or the exhaustive model.
    Sim(SimArgs),
    /// Look into a log folder, or take a database out of one.
    #[command(subcommand)]
    Log(LogCommand),
    /// Repair what a node remembers, while it does not run.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Print a new cluster secret: 256 random bits, for a file that --cluster-secret-file names on every node.
    Secret,
}

/// How to reach a cluster, and how to answer.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// A node of the cluster, with https:// where its clients speak TLS.
    #[arg(long, env = "HIGHWATER_URL", default_value = "http://127.0.0.1:8080", value_name = "http[s]://HOST:PORT")]
    pub(crate) url: String,
    /// With https://: a file with the certificates, as PEM text, that the node's must lead to [default: those that the system trusts].
    #[arg(long, env = "HIGHWATER_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// A client token, if the cluster wants one. The process list shows it, and the environment to whoever may see that; --token-file keeps it from both.
    #[arg(long, env = "HIGHWATER_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A file whose first line is that token; empty lines and those that begin with # are passed over.
    #[arg(long, env = "HIGHWATER_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print exactly one JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// A TOML file; what is also given on the command line wins, but tokens and origins add up. Keys: data, listen, advertise, id, peers, tokens, token_file,
    /// read_tokens, read_token_file, cluster_secret, cluster_secret_file, tls_cert, tls_key, allow_plain_http, cors_origins, databases.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// The data folder, made if there is none [default: ./highwater-data].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:8080]. Any but loopback needs tokens and a cluster secret.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// The node's id [default: what the folder says; 1 for a new folder].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) id: Option<u32>,
    /// Where clients and other nodes reach this node, if that is another address than it listens on.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// All nodes of the cluster, this one included, with their addresses: `1=HOST:PORT,2=HOST:PORT,3=HOST:PORT`, the same list on every node at the
    /// first start. Later starts need it only to change addresses.
    #[arg(long, value_name = "ID=HOST:PORT,...", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// A token whose bearers may do everything. May be given several times. The process list shows it to everybody on this machine, and the environment to
    /// whoever may see that; --token-file keeps it from both, and is read again when it changes.
    #[arg(long, env = "HIGHWATER_TOKENS", value_delimiter = ',', value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Vec<String>,
    /// A file with such tokens, one in a line; empty lines and those that begin with # are passed over. Read again on SIGHUP, and within some seconds of a
    /// change.
    #[arg(long, env = "HIGHWATER_TOKENS_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A token whose bearers may only read. May be given several times. It is seen as --token is; --read-token-file is better.
    #[arg(long, env = "HIGHWATER_READ_TOKENS", value_delimiter = ',', value_name = "TOKEN", hide_env_values = true)]
    pub(crate) read_token: Vec<String>,
    /// A file with tokens whose bearers may only read, as --token-file.
    #[arg(long, env = "HIGHWATER_READ_TOKENS_FILE", value_name = "FILE")]
    pub(crate) read_token_file: Option<PathBuf>,
    /// The secret that the cluster's nodes share; `highwater secret` makes one. The process list shows it to everybody on this machine, and the environment
    /// to whoever may see that; --cluster-secret-file keeps it from both, and is read again when it changes.
    #[arg(long, env = "HIGHWATER_CLUSTER_SECRET", value_name = "SECRET", hide_env_values = true)]
    pub(crate) cluster_secret: Option<String>,
    /// A file with that secret. Further lines are accepted from other nodes as well, at most 4 in all, so that the secret can be changed node by node. Read
    /// again on SIGHUP, and within some seconds of a change.
    #[arg(long, env = "HIGHWATER_CLUSTER_SECRET_FILE", value_name = "FILE")]
    pub(crate) cluster_secret_file: Option<PathBuf>,
    /// A file with the certificate by which clients know this node, as PEM text, the chain behind it included. With it clients speak TLS. Read again, with
    /// its key, as --token-file.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A file with the key of --tls-cert, as PEM text.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Let clients speak without TLS elsewhere than on the loopback. Whoever is on the way then reads tokens and data.
    #[arg(long)]
    pub(crate) allow_plain_http: bool,
    /// An origin (`https://app.example`) whose pages may send requests from a browser. May be given several times.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Vec<String>,
    /// What is logged to standard error: error, warn, info, debug, trace, or a filter such as `warn,highwater_node=debug`.
    #[arg(long, env = "HIGHWATER_LOG", default_value = "warn", value_name = "FILTER")]
    pub(crate) log: String,
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// How many nodes [default: as many as the folder holds; 3 for a new one].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=9))]
    pub(crate) nodes: Option<u32>,
    /// The folder of the nodes' data and logs. The same folder brings the same cluster back.
    #[arg(long, value_name = "FOLDER", default_value = "highwater-dev")]
    pub(crate) data: PathBuf,
    /// The first node's port; the others have the next ones.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,
    /// Start a node again that has ended.
    #[arg(long)]
    pub(crate) restart: bool,
    /// Print exactly one line on standard output, a JSON document, once the cluster is ready.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The database; a table `highwater_bench` is made in it, and dropped afterwards.
    #[arg(long, default_value = "main", value_name = "NAME")]
    pub(crate) db: String,
    /// How many clients write at the same time, each one row per request and one request after the other.
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', default_value = "1,16,64", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) clients: Vec<u32>,
    /// How long each is measured, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Where SQLite alone writes, in a folder that is removed afterwards: on the disk that the nodes write to, or the comparison says nothing.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) sqlite_in: PathBuf,
}

/// What is done to a node, to several, or to what connects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
    /// SIGKILL, and a start later.
    Kill,
    /// SIGSTOP, and SIGCONT later; for a moment or for long.
    Pause,
    /// SIGTERM, an end in good order, and a start later.
    Restart,
    /// One node, or all of them, killed again and again while they recover.
    Storm,
    /// SIGKILL to all nodes at once, and a start of all.
    KillAll,
    /// One node, or a minority, cut off from the others.
    Partition,
    /// One node that the others do not hear, or that does not hear them.
    OneWay,
    /// Two nodes that do not reach each other while all others reach both.
    Partial,
    /// The disk of a node, or those of all, full.
    FullDisk,
    /// A byte of some file of a node flipped while it is down.
    Flip,
    /// Some file of a node removed or shortened while it is down.
    Remove,
    /// An older copy of a node's data folder in place of the true one.
    Older,
    /// An empty data folder in place of the true one.
    Wiped,
}

/// The kinds of faults of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

impl std::str::FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Faults, String> {
        if text == "all" {
            return Ok(Faults(Fault::value_variants().to_vec()));
        }
        let faults = text.split(',').map(|name| Fault::from_str(name.trim(), true)).collect::<Result<_, _>>();
        faults.map(Faults).map_err(|_| {
            let names: Vec<String> = Fault::value_variants().iter().map(|fault| fault.name()).collect();
            format!("a list of faults, or all; the faults are {}", names.join(", "))
        })
    }
}

impl Fault {
    /// The name that it has on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ChaosArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ChaosCommand>,
    /// How many nodes the cluster has.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub(crate) nodes: u32,
    /// How long clients work, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) seconds: u64,
    /// How many clients write rows of their own.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) writers: u32,
    /// How many clients work on registers that all share: compare-and-set, set, and linearizable reads.
    #[arg(long, value_name = "NUMBER", default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) swappers: u32,
    /// How many clients read the rows through one node each, at every freshness.
    #[arg(long, value_name = "NUMBER", default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub(crate) readers: u32,
    /// How many operations a client begins in a second, if each is answered at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,
    /// How often there is a fault, in seconds: on average, from the end of one to the beginning of the next.
    #[arg(long = "every", alias = "kill-every", value_name = "SECONDS", default_value_t = 5.0)]
    pub(crate) kill_every: f64,
    /// How long faults last, in seconds: about.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub(crate) restart_after: f64,
    /// The faults, in random order, each before any of them again: `all`, or a list of kill, pause, restart, storm, kill-all, partition, one-way, partial,
    /// full-disk, flip, remove, older, wiped.
    #[arg(long, value_name = "FAULT,...", default_value = "kill")]
    pub(crate) faults: Faults,
    /// What random choices are made from; the same number makes the same choices, as far as the cluster does the same [default: a new one, which is printed].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// The cluster's folder, which must be new; it is kept [default: a temporary one, kept if something is found].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Where the history goes, which must not exist [default: `history.jsonl` in the cluster's folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) judge: JudgeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChaosCommand {
    /// Judge a history by itself: nothing is asked of any node.
    Check(CheckArgs),
    /// Make one report of several runs, from their histories, which are judged again, or from reports in JSON.
    Report(CheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Histories, or reports whose names end in `.json`.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) judge: JudgeArgs,
}

/// How a history is judged, and what is done with the report.
#[derive(Debug, Args)]
pub(crate) struct JudgeArgs {
    /// Write the report to this file as well: as Markdown, or as JSON if its name ends in `.json`.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Print exactly one JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// How many possibilities may be followed at one time when an order of the operations on a register is looked for.
    #[arg(long, value_name = "NUMBER", default_value_t = 200_000)]
    pub(crate) search_max: usize,
    /// Succeed even if that was not enough for a register. It is said all the same.
    #[arg(long)]
    pub(crate) allow_undecided: bool,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Ack {
    /// The commit rule is met.
    Committed,
    /// It is durable on the leader alone.
    Leader,
}

/// How old a read may be.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Freshness {
    /// Nothing acknowledged before is missing.
    Linearizable,
    /// Whatever the node has.
    Eventual,
}

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The database.
    #[arg(long, default_value = "main", value_name = "NAME")]
    pub(crate) db: String,
    /// Run this SQL. May be given several times.
    #[arg(short = 'c', long = "command", value_name = "SQL", conflicts_with = "file")]
    pub(crate) commands: Vec<String>,
    /// Run the statements of this file, one after the other; stop at the first that fails.
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// With --file: begin with the statement at this line, to go on with a run that broke off.
    #[arg(long, value_name = "LINE", default_value_t = 1, requires = "file")]
    pub(crate) from_line: usize,
    /// With --file: the name of the run, as the message of a broken-off one says. What that run wrote last is not written twice.
    #[arg(long, value_name = "NAME", requires = "file")]
    pub(crate) run: Option<String>,
    /// How long to go on trying while the server cannot be reached, in seconds. Only what cannot be done twice by that is tried again.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) retry: u64,
    /// When writes are acknowledged.
    #[arg(long, value_enum)]
    pub(crate) ack: Option<Ack>,
    /// How old reads may be.
    #[arg(long, value_enum)]
    pub(crate) freshness: Option<Freshness>,
    /// Read nothing older than this position, as an earlier answer gave it.
    #[arg(long, value_name = "POSITION")]
    pub(crate) min_position: Option<String>,
    /// How long an acknowledgement is waited for, in milliseconds.
    #[arg(long, value_name = "MILLISECONDS")]
    pub(crate) wait_ms: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The database.
    #[arg(long, default_value = "main", value_name = "NAME")]
    pub(crate) db: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Take a SQLite file into an empty database.
    Import(TransferArgs),
    /// Write a consistent copy of a database into a new SQLite file.
    Backup(TransferArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// The database.
    #[arg(long, default_value = "main", value_name = "NAME")]
    pub(crate) db: String,
    /// The SQLite file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimPart {
    /// The exhaustive model: every order of events of three replicas, within the bounds of each configuration.
    Model(crate::model::ModelArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) part: Option<SimPart>,
    /// A story to tell: worked-example or majority-intersection. Without one, random seeds are run.
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: Option<String>,
    /// How many seeds [default: 100, or with --minutes as many as there is time for].
    #[arg(long, value_name = "NUMBER", conflicts_with = "seed")]
    pub(crate) seeds: Option<u64>,
    /// The first of them.
    #[arg(long, value_name = "SEED", default_value_t = 1, conflicts_with = "seed")]
    pub(crate) first: u64,
    /// Begin no seed after so many minutes.
    #[arg(long, value_name = "NUMBER", conflicts_with = "seed")]
    pub(crate) minutes: Option<f64>,
    /// One seed.
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// With --seed: print every event.
    #[arg(long)]
    pub(crate) trace: bool,
    /// One cluster for all seeds (one, quorum3, isr3, quorum5, isr5, sqlite) instead of one drawn by each.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,
    /// How many seeds run at one time [default: one for each core].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) jobs: Option<usize>,
    /// Say how far the run has come, on standard error, every few seconds [default: only where that is a terminal].
    #[arg(long)]
    pub(crate) progress: bool,
    /// With --json: name every seed with the hash of its trace.
    #[arg(long, requires = "json")]
    pub(crate) each: bool,
    /// Do not make failures small.
    #[arg(long)]
    pub(crate) no_shrink: bool,
    #[command(flatten)]
    pub(crate) less: SimLessArgs,
    /// Print exactly one JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What of a seed's run is left out. A failing seed prints the arguments that repeat it as small as it could be made.
#[derive(Debug, Args)]
pub(crate) struct SimLessArgs {
    /// Classes of faults that do not strike, by the names that reports use.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) without_faults: Vec<String>,
    /// Strikes that come to nothing, by the numbers that traces show.
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',')]
    pub(crate) skip_strikes: Vec<u64>,
    /// Only so many clients (1 to 6).
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=6))]
    pub(crate) clients: Option<u32>,
    /// Clients begin no more calls once so many have ended.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) calls: Option<u64>,
    /// Faults end after so many simulated milliseconds.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) until_ms: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Print the batches and entries of a log folder, for people. The node must not be running.
    Dump(DumpArgs),
    /// Write the database that a log adds up to into a new SQLite file. The node must not be running; the log is not changed.
    Replay(crate::log_replay::ReplayArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Take a start into a node's folder that somebody else has registered in its name, so that the cluster believes the folder again.
    ///
    /// Only for a folder that is the node's newest and was never put back from a copy: the cluster shuts out older copies because they lack what the node has
    /// promised and stored since, and an older copy that is believed may lose what was acknowledged. The other nodes show the start on record in their
    /// /status, under `nodes`, as `starts` and `random`; a voter of the metadata names it in the refused node's log.
    Adopt(crate::node_adopt::AdoptArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The folder of one log: DATA/meta, or DATA/db/NAME/log.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Print exactly one JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_all_or_a_list() {
        assert_eq!("kill, one-way".parse(), Ok(Faults(vec![Fault::Kill, Fault::OneWay])));
        assert_eq!("all".parse::<Faults>().map(|all| all.0.len()), Ok(Fault::value_variants().len()));
        let error = "kill,flood".parse::<Faults>().expect_err("there is no such fault");
        assert!(error.contains("kill-all"), "{error}");
    }
}
