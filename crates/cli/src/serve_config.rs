//! What `highwater serve` is told, by its command line, its environment and its configuration file, as one configuration of a node and its server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use highwater_http::ServerConfig;
use highwater_node::Config;
use highwater_wire::{CommitRule, NodeId};
use serde::Deserialize;

use crate::args::ServeArgs;
use crate::process;
use crate::reload::Reload;
use crate::secret_files::exposed;
use crate::sources::Sources;

/// Why tokens do not help where nodes let everybody in.
pub(crate) const TOKENS_WITHOUT_SECRET: &str = "tokens are configured, and the cluster has several nodes, but no cluster secret: tokens would protect nothing, since whoever reaches the port could pose as a node and be sent everything. Make one with `highwater secret`, and give its file to every node with --cluster-secret-file";

/// The configuration file. What is also given on the command line wins; tokens add up.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The data folder.
    data: Option<PathBuf>,
    /// The address to listen on.
    listen: Option<SocketAddr>,
    /// Where clients and other nodes reach this node, if that is another address than it listens on.
    advertise: Option<String>,
    /// All nodes of the cluster with their addresses: `1 = "HOST:PORT"`.
    #[serde(default)]
    peers: std::collections::BTreeMap<String, String>,
    /// The node's id.
    id: Option<u32>,
    #[serde(default)]
    tokens: Vec<String>,
    token_file: Option<PathBuf>,
    #[serde(default)]
    read_tokens: Vec<String>,
    read_token_file: Option<PathBuf>,
    cluster_secret: Option<String>,
    cluster_secret_file: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    #[serde(default)]
    allow_plain_http: bool,
    #[serde(default)]
    cors_origins: Vec<String>,
    /// Databases to create when the cluster is formed, with their commit rules: `main = "quorum:1"`.
    #[serde(default)]
    databases: std::collections::BTreeMap<String, String>,
}

impl File {
    fn load(path: &Path) -> anyhow::Result<File> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: File = toml::from_str(&text).with_context(|| format!("{} is not a configuration", path.display()))?;
        if (!file.tokens.is_empty() || !file.read_tokens.is_empty() || file.cluster_secret.is_some())
            && let Some(warning) = exposed(path)
        {
            tracing::warn!("{warning}");
        }
        Ok(file)
    }
}

fn commit_rule(text: &str) -> anyhow::Result<CommitRule> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
    match text.split_once(':') {
        Some(("quorum", q)) if number(q).is_some() => Ok(CommitRule::Quorum { q: number(q).unwrap_or(1) }),
        Some(("isr", min)) if number(min).is_some() => Ok(CommitRule::Isr { min: number(min).unwrap_or(1) }),
        _ => bail!("a commit rule is quorum:NUMBER or isr:NUMBER; found {text:?}"),
    }
}

/// All of it.
pub(crate) struct Configured {
    pub(crate) node: Config,
    pub(crate) server: ServerConfig,
    /// The address by which others reach the node, if it is another than it listens on.
    pub(crate) advertise: Option<String>,
    /// What can change while the node runs; `node` and `server` hold the same.
    pub(crate) reload: Reload,
}

impl Configured {
    /// Reads the configuration file, if one is named, and the files of tokens, secrets and the certificate.
    ///
    /// # Errors
    /// If any of it does not read or cannot be meant.
    pub(crate) fn of(args: &ServeArgs) -> anyhow::Result<Configured> {
        let mut file = args.config.as_deref().map(File::load).transpose()?.unwrap_or_default();
        let listen = args.listen.or(file.listen).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080)));
        let data = args.data.clone().or(file.data.take()).unwrap_or_else(|| PathBuf::from("highwater-data"));
        process::warn_of_open_folder(&data);
        let reload = Reload::read(sources(args, &mut file)?)?;
        if reload.has_tokens() || reload.secrets.is_some() {
            process::leave_no_image();
        }
        let origins = [args.cors_origin.clone(), std::mem::take(&mut file.cors_origins)].concat();
        origins.iter().try_for_each(|origin| check_origin(origin))?;
        let server = ServerConfig {
            tokens: reload.tokens.clone(),
            tls: reload.tls.clone(),
            plain: args.allow_plain_http || file.allow_plain_http,
            origins,
            has_cluster_secret: reload.secrets.is_some(),
            ..ServerConfig::new(listen)
        };
        let mut node = Config { node: args.id.or(file.id).map(NodeId), ..Config::single(&data) };
        node.secrets = reload.secrets.clone();
        let listed = args.peers.iter().map(|peer| peer.split_once('=').with_context(|| not_a_peer(peer)));
        node.peers = match args.peers.is_empty() {
            false => peers(listed.collect::<anyhow::Result<Vec<_>>>()?)?,
            true => peers(file.peers.iter().map(|(id, address)| (id.as_str(), address.as_str())).collect())?,
        };
        if node.peers.len() > 1 {
            if reload.has_tokens() && reload.secrets.is_none() {
                bail!(TOKENS_WITHOUT_SECRET);
            }
            let majority = node.peers.len() as u32 / 2 + 1;
            node.databases = vec![("main".to_string(), CommitRule::Quorum { q: majority })];
        }
        if !file.databases.is_empty() {
            let rules = file.databases.iter().map(|(name, rule)| Ok((name.clone(), commit_rule(rule)?)));
            node.databases = rules.collect::<anyhow::Result<_>>()?;
        }
        Ok(Configured { node, server, advertise: args.advertise.clone().or(file.advertise), reload })
    }
}

/// Where tokens, secrets and the certificate come from.
fn sources(args: &ServeArgs, file: &mut File) -> anyhow::Result<Sources> {
    let tls = match (args.tls_cert.clone().or(file.tls_cert.take()), args.tls_key.clone().or(file.tls_key.take())) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => bail!("--tls-cert is given without --tls-key: a certificate needs its key"),
        (None, Some(_)) => bail!("--tls-key is given without --tls-cert: a key needs its certificate"),
    };
    // On the command line either form of the secret wins over both of the file's.
    let (secret, secret_file) = match (args.cluster_secret.clone(), args.cluster_secret_file.clone()) {
        (None, None) => (file.cluster_secret.take(), file.cluster_secret_file.take()),
        given => given,
    };
    Ok(Sources {
        tokens: [args.token.clone(), std::mem::take(&mut file.tokens)].concat(),
        read_tokens: [args.read_token.clone(), std::mem::take(&mut file.read_tokens)].concat(),
        token_file: args.token_file.clone().or(file.token_file.take()),
        read_token_file: args.read_token_file.clone().or(file.read_token_file.take()),
        cluster_secret: secret,
        cluster_secret_file: secret_file,
        tls,
    })
}

/// An origin as browsers send it; anything else would never be met.
fn check_origin(origin: &str) -> anyhow::Result<()> {
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://")).unwrap_or_default();
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]".contains(&byte);
    if host.is_empty() || !host.bytes().all(good) {
        bail!(
            "--cors-origin is one origin as browsers send it, in small letters and without a path, as https://app.example or http://localhost:3000; found {origin:?}"
        );
    }
    Ok(())
}

fn not_a_peer(found: &str) -> String {
    format!("a peer is ID=HOST:PORT, as in 2=127.0.0.1:8081; found {found:?}")
}

fn peers(listed: Vec<(&str, &str)>) -> anyhow::Result<std::collections::BTreeMap<NodeId, String>> {
    let mut peers = std::collections::BTreeMap::new();
    for (id, address) in listed {
        let wrong = || not_a_peer(&format!("{id}={address}"));
        let id = NodeId(id.trim().parse().with_context(wrong)?);
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        port.with_context(wrong)?;
        if peers.insert(id, address.to_string()).is_some() {
            bail!("node {id} is named twice among the peers");
        }
    }
    if peers.len() == 2 {
        tracing::warn!("a cluster of two nodes stops writing when either is lost; three survive the loss of one");
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_file_is_read_and_unknown_keys_are_refused() {
        let file: File = toml::from_str(
            "data = \"/d\"\nlisten = \"127.0.0.1:1\"\nid = 3\npeers = { 3 = \"h:1\" }\ntokens = [\"a\"]\n[databases]\nshop = \"quorum:1\"\n",
        )
        .expect("a configuration");
        assert_eq!((file.id, file.tokens.len()), (Some(3), 1));
        assert_eq!(commit_rule(&file.databases["shop"]).ok(), Some(CommitRule::Quorum { q: 1 }));
        let error = toml::from_str::<File>("lisen = \"x\"").expect_err("a misspelt key").to_string();
        assert!(error.contains("lisen"), "{error}");
    }

    #[test]
    fn commit_rules_are_read_as_they_are_written() {
        assert_eq!(commit_rule("isr:2").ok(), Some(CommitRule::Isr { min: 2 }));
        for wrong in ["quorum", "quorum:0", "isr:x", "leader:1", ""] {
            assert!(commit_rule(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn origins_are_whole_and_named() {
        for good in ["https://app.example", "http://localhost:3000", "http://[::1]:80"] {
            assert!(check_origin(good).is_ok(), "{good}");
        }
        for wrong in ["*", "null", "app.example", "https://", "https://a.example/", "https://A.example", "https://a b"]
        {
            assert!(check_origin(wrong).is_err(), "{wrong}");
        }
    }
}
