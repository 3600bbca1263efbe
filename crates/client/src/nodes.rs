//! The nodes that are known, each with the connection that is kept to it, and what they say of each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde_json::Value;

use crate::config::Config;
use crate::error::Failed;
use crate::http::{Broken, Connection, Response};
use crate::tls;

/// How long asking for the leader may take: it is an improvement, never a condition.
pub(crate) const LEARN: Duration = Duration::from_millis(250);

/// A node that has not begun to answer after this long is doubted: others are asked whether it still leads.
const DOUBT: Duration = Duration::from_millis(300);

struct Link {
    /// `HOST:PORT`.
    authority: String,
    connection: Option<Connection>,
}

/// The nodes, by the order in which they became known. All speak TLS, or none.
pub(crate) struct Nodes {
    links: Vec<Link>,
    token: Option<String>,
    connect: Duration,
    tls: Option<Arc<ClientConfig>>,
}

impl Nodes {
    /// The nodes that the configuration names, to be spoken to as it says.
    pub(crate) fn new(config: &Config) -> Result<Nodes, Failed> {
        let mut links: Vec<Link> = Vec::new();
        let mut scheme = None;
        for url in &config.urls {
            let Some((secure, authority)) = parse(url) else {
                let message = format!("a node's URL has the form http://HOST:PORT or https://HOST:PORT; found {url:?}");
                return Err(Failed::own("URL_INVALID", message, false));
            };
            // A token that is meant for a node under TLS must not leave without it.
            if *scheme.get_or_insert(secure) != secure {
                let message = "the URLs of a cluster's nodes all begin with http:// or all with https://; found both";
                return Err(Failed::own("URL_INVALID", message, false));
            }
            if links.iter().all(|link| link.authority != authority) {
                links.push(Link { authority, connection: None });
            }
        }
        let Some(secure) = scheme else {
            return Err(Failed::own("URL_INVALID", "a client needs the URL of at least one node; found none", false));
        };
        if config.token.as_ref().is_some_and(|token| token.contains(['\r', '\n'])) {
            return Err(Failed::own("TOKEN_INVALID", "a token is one line", false));
        }
        let tls = secure.then(|| tls::configuration(config.ca.as_deref())).transpose()?;
        Ok(Nodes { links, token: config.token.clone(), connect: config.connect, tls })
    }

    /// How many there are; at least one.
    pub(crate) fn count(&self) -> usize {
        self.links.len()
    }

    /// One's URL.
    pub(crate) fn url(&self, node: usize) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.links[node].authority)
    }

    fn index(&self, authority: &str) -> Option<usize> {
        self.links.iter().position(|link| link.authority == authority)
    }

    /// Sends a request to one and reads the answer. `path` begins with a slash. If the request can be repeated, `doubt` names the database it is for: the wait ends as
    /// soon as another node says that somebody else leads that by now. A process that stands still keeps its connections and says nothing.
    pub(crate) fn exchange(
        &mut self,
        node: usize,
        path: &str,
        key: Option<&str>,
        body: Option<&[u8]>,
        doubt: Option<&str>,
        deadline: Instant,
    ) -> Result<Response, Broken> {
        use std::fmt::Write;
        let link = &mut self.links[node];
        let mut head = String::with_capacity(256);
        let method = if body.is_some() { "POST" } else { "GET" };
        let _ = write!(head, "{method} {path} HTTP/1.1\r\nhost: {}\r\n", link.authority);
        if let Some(token) = &self.token {
            let _ = write!(head, "authorization: Bearer {token}\r\n");
        }
        if let Some(key) = key {
            let _ = write!(head, "idempotency-key: {key}\r\n");
        }
        if let Some(body) = body {
            let _ = write!(head, "content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        head.push_str("\r\n");
        let mut request = head.into_bytes();
        request.extend_from_slice(body.unwrap_or_default());

        let kept = link.connection.take().and_then(|mut kept| kept.is_usable().then_some(kept));
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                let left = deadline.saturating_duration_since(Instant::now());
                let timeout = self.connect.min(left).max(Duration::from_millis(1));
                Connection::open(&link.authority, self.tls.as_ref(), timeout)?
            }
        };
        connection.send(&request, deadline)?;
        if let Some(database) = doubt {
            while !connection.begins(deadline.min(Instant::now() + DOUBT))? && Instant::now() < deadline {
                if let Some(leader) = self.led_by_another(node, database, deadline) {
                    let reason = format!("no answer, and {} leads by now", self.url(leader));
                    return Err(Broken { sent: true, timed_out: false, tls: false, reason, instead: Some(leader) });
                }
            }
        }
        let (response, reusable) = connection.receive(deadline)?;
        if reusable {
            self.links[node].connection = Some(connection);
        }
        Ok(response)
    }

    /// Who leads the database, if the first other node that answers says that it is not that one.
    fn led_by_another(&mut self, node: usize, database: &str, deadline: Instant) -> Option<usize> {
        let count = self.links.len();
        let others = (1..count).map(|step| (node + step) % count);
        for other in others {
            if let Some(leader) = self.learn(other, database, deadline.min(Instant::now() + LEARN)) {
                return Some(leader).filter(|leader| *leader != node);
            }
        }
        None
    }

    /// Asks one for the others (for what it knows by itself, which it says at once), and adds those that are new. Returns the database's leader, if that node knows one.
    pub(crate) fn learn(&mut self, node: usize, database: &str, deadline: Instant) -> Option<usize> {
        let response = self.exchange(node, "/status?scope=node", None, None, None, deadline).ok()?;
        let status: Value = serde_json::from_slice(&response.body).ok().filter(|_| response.status == 200)?;
        let nodes = status["nodes"].as_array()?;
        for address in nodes.iter().filter_map(|node| node["address"].as_str()) {
            let plain = !address.is_empty() && !address.contains(['/', '?', '@', ' ', '\r', '\n']);
            if plain && self.index(address).is_none() {
                self.links.push(Link { authority: address.to_string(), connection: None });
            }
        }
        let partition = status["partitions"].as_array()?.iter().find(|partition| partition["name"] == database)?;
        let leader = partition["leader"].as_u64()?;
        let address = nodes.iter().find(|node| node["node"].as_u64() == Some(leader))?["address"].as_str()?;
        self.index(address)
    }
}

/// Whether a URL asks for TLS, and its `HOST:PORT`. `None` if it has another form.
fn parse(url: &str) -> Option<(bool, String)> {
    let (secure, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return None,
    };
    let authority = rest.trim_end_matches('/');
    if authority.is_empty() || authority.contains(['/', '?', '@', ' ', '\r', '\n']) {
        return None;
    }
    let has_port = authority.contains(':') && !authority.ends_with(']');
    let port = if secure { 443 } else { 80 };
    Some((secure, if has_port { authority.to_string() } else { format!("{authority}:{port}") }))
}

/// One GET at one node, for what lies outside the databases: `/ready`, `/status`, `/metrics`. Returns the HTTP status and the body.
///
/// # Errors
///
/// As [`fetch_from`].
pub fn fetch(url: &str, path: &str, timeout: Duration) -> Result<(u16, Vec<u8>), Failed> {
    fetch_from(&Config { connect: timeout, ..Config::new([url]) }, path, timeout)
}

/// The same at the first node of that configuration, with its token and by the certificates that it trusts.
///
/// # Errors
///
/// `URL_INVALID`, `TOKEN_INVALID` or `CA_INVALID`; `TLS_FAILED` if only one side speaks TLS or the node is not trusted; `UNREACHABLE` if there is no answer in time.
pub fn fetch_from(config: &Config, path: &str, timeout: Duration) -> Result<(u16, Vec<u8>), Failed> {
    let mut nodes = Nodes::new(config)?;
    let response = nodes.exchange(0, path, None, None, None, Instant::now() + timeout);
    response.map(|response| (response.status, response.body)).map_err(|broken| match broken.tls {
        true => Failed::own("TLS_FAILED", broken.reason, false),
        false => Failed::own("UNREACHABLE", format!("{}: {}", nodes.url(0), broken.reason), true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_before_anything_is_sent() {
        let nodes = |urls: &[&str]| Nodes::new(&Config::new(urls.iter().copied()));
        let good = nodes(&["http://a:1", "http://a:1/", "http://b", "http://[::1]"]).expect("good URLs");
        assert_eq!((good.count(), good.url(1), good.url(2)), (3, "http://b:80".into(), "http://[::1]:80".into()));
        for wrong in [
            &[][..],
            &["a:1"],
            &["ftp://a:1"],
            &["http://"],
            &["https://"],
            &["http://a:1/db"],
            &["http://a:1\r\nx: y"],
            &["http://a:1", "https://b:1"],
        ] {
            let error = nodes(wrong).err().expect("wrong URLs");
            assert_eq!((error.code.as_str(), error.retryable), ("URL_INVALID", false), "{wrong:?}");
        }
    }

    #[test]
    fn a_url_without_a_port_has_its_schemes() {
        assert_eq!(parse("https://db.example/"), Some((true, "db.example:443".into())));
        assert_eq!(parse("http://db.example"), Some((false, "db.example:80".into())));
    }
}
