//! The cluster over HTTP, as the commands use it.

use std::io::Read;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::args::ClusterArgs;
use crate::secret_files;

/// The longest answer that is taken, in bytes; backups go to a file and have no bound.
const ANSWER_MAX_BYTES: u64 = 1 << 30;

impl ClusterArgs {
    /// The token to show, if there is one.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => {
                bail!("--token and --token-file are both given (or HIGHWATER_TOKEN and HIGHWATER_TOKEN_FILE): give one")
            }
            (token, None) => Ok(token.clone()),
            (None, Some(file)) => {
                if let Some(warning) = secret_files::exposed(file) {
                    crate::output::warning(&warning);
                }
                Ok(secret_files::tokens(file)?.into_iter().next())
            }
        }
    }

    /// The certificates to trust, as PEM text, if they are not the system's.
    fn ca(&self) -> anyhow::Result<Option<Vec<u8>>> {
        self.ca.as_deref().map(|file| secret_files::bytes(file, "the certificate to trust")).transpose()
    }

    /// The same for the Rust client.
    pub(crate) fn config(&self) -> anyhow::Result<highwater_client::Config> {
        let (token, ca) = (self.token()?, self.ca()?);
        Ok(highwater_client::Config { token, ca, ..highwater_client::Config::new([self.url.as_str()]) })
    }
}

/// A node of a cluster.
#[derive(Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    base: String,
    token: Option<String>,
}

/// Why a request was not answered as asked.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No answer: whether it had an effect is not known once it was sent.
    #[error(
        "{url} does not answer: {reason}. Is a node running there? Start one with `highwater serve`, or name another with --url"
    )]
    NoAnswer {
        /// The node.
        url: String,
        /// What happened.
        reason: String,
    },
    /// Only one side speaks TLS, or this one does not trust the other. Nothing of the request was sent.
    #[error("{reason}")]
    Tls {
        /// What to do.
        reason: String,
    },
    /// The server's own error.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// For programs.
        code: String,
        /// For people.
        message: String,
        /// Whether the request may have had an effect.
        unknown: bool,
        /// The whole answer.
        document: Value,
    },
    /// An answer that is none of Highwater's.
    #[error("{url} does not answer like Highwater: {reason}; is it another server?")]
    NotHighwater {
        /// The node.
        url: String,
        /// What was found.
        reason: String,
    },
}

impl ClientError {
    /// Whether the same request may succeed a little later, provided that doing it twice does no harm.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            ClientError::NoAnswer { .. } => true,
            ClientError::Refused { status, .. } => matches!(status, 503 | 504),
            ClientError::Tls { .. } | ClientError::NotHighwater { .. } => false,
        }
    }

    /// As a JSON document: the server's own if there is one.
    pub(crate) fn document(&self) -> Value {
        match self {
            ClientError::Refused { document, .. } if document.get("error").is_some() => document.clone(),
            ClientError::Refused { code, message, unknown, .. } => serde_json::json!({"error": {
                "code": code, "message": message, "outcome": if *unknown { "unknown" } else { "failed" }}}),
            ClientError::NoAnswer { .. } => serde_json::json!({"error": {
                "code": "NO_ANSWER", "message": self.to_string(), "outcome": "unknown"}}),
            ClientError::Tls { reason } => serde_json::json!({"error": {
                "code": "TLS_FAILED", "message": reason, "outcome": "failed"}}),
            ClientError::NotHighwater { .. } => serde_json::json!({"error": {
                "code": "NOT_HIGHWATER", "message": self.to_string(), "outcome": "unknown"}}),
        }
    }
}

/// An answer with the header that says which state it shows.
pub(crate) struct Answer {
    pub(crate) document: Value,
    pub(crate) position: Option<String>,
}

impl Client {
    pub(crate) fn new(cluster: &ClusterArgs) -> anyhow::Result<Client> {
        let base = cluster.url.trim_end_matches('/').to_string();
        let authority = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://")).unwrap_or_default();
        if authority.is_empty() {
            bail!("--url must have the form http://HOST:PORT or https://HOST:PORT; found {:?}", cluster.url);
        }
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // Followed, a redirection could lead away from TLS; no node answers with one.
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(5)));
        if base.starts_with("https://") {
            let ca = cluster.ca()?;
            let from = cluster.ca.as_ref().map_or("the system".into(), |file| file.display().to_string());
            let roots = highwater_client::roots(ca.as_deref()).with_context(|| format!("trusting {from}"))?;
            let roots: Vec<Certificate<'static>> =
                roots.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
            let tls = TlsConfig::builder()
                .root_certs(RootCerts::new_with_certs(&roots))
                .unversioned_rustls_crypto_provider(std::sync::Arc::new(rustls::crypto::ring::default_provider()));
            config = config.tls_config(tls.build());
        }
        Ok(Client { agent: config.build().into(), base, token: cluster.token()? })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    fn no_answer(&self, error: ureq::Error) -> ClientError {
        let tls = match (&error, self.base.strip_prefix("https://")) {
            (ureq::Error::Io(error), Some(authority)) => highwater_client::explain(authority, error),
            (ureq::Error::Tls(_) | ureq::Error::Rustls(_), _) => Some(format!("{}: {error}", self.base)),
            _ => None,
        };
        match tls {
            Some(reason) => ClientError::Tls { reason },
            None => ClientError::NoAnswer { url: self.base.clone(), reason: error.to_string() },
        }
    }

    fn bearer(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }

    /// Asks for a JSON document.
    pub(crate) fn get(&self, path: &str) -> Result<Answer, ClientError> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(bearer) = self.bearer() {
            request = request.header("authorization", bearer);
        }
        let response = request.call().map_err(|error| self.no_answer(error))?;
        self.document(response)
    }

    /// Sends a JSON document.
    pub(crate) fn post(&self, path: &str, body: &Value, key: Option<&str>) -> Result<Answer, ClientError> {
        let bytes = serde_json::to_vec(body).expect("a request is made of strings, numbers and lists");
        let mut request = self.agent.post(format!("{}{path}", self.base)).header("content-type", "application/json");
        if let Some(bearer) = self.bearer() {
            request = request.header("authorization", bearer);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send(&bytes[..]).map_err(|error| self.no_answer(error))?;
        self.document(response)
    }

    /// Sends a file.
    pub(crate) fn post_file(&self, path: &str, file: &std::fs::File) -> Result<Answer, ClientError> {
        let mut request =
            self.agent.post(format!("{}{path}", self.base)).header("content-type", "application/vnd.sqlite3");
        if let Some(bearer) = self.bearer() {
            request = request.header("authorization", bearer);
        }
        let response = request.send(file).map_err(|error| self.no_answer(error))?;
        self.document(response)
    }

    /// Asks for bytes; returns the offset they are of and a reader.
    pub(crate) fn get_bytes(&self, path: &str) -> Result<(Option<u64>, impl Read + use<>), ClientError> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(bearer) = self.bearer() {
            request = request.header("authorization", bearer);
        }
        let response = request.call().map_err(|error| self.no_answer(error))?;
        if response.status() != 200 {
            return Err(match self.document(response) {
                Err(error) => error,
                Ok(_) => self.not_highwater("an answer without a file".into()),
            });
        }
        let offset = header(&response, "highwater-offset").and_then(|text| text.parse().ok());
        Ok((offset, response.into_body().into_reader()))
    }

    fn not_highwater(&self, reason: String) -> ClientError {
        ClientError::NotHighwater { url: self.base.clone(), reason }
    }

    fn document(&self, mut response: ureq::http::Response<ureq::Body>) -> Result<Answer, ClientError> {
        let status = response.status().as_u16();
        let position = header(&response, "highwater-position");
        let bytes = response
            .body_mut()
            .with_config()
            .limit(ANSWER_MAX_BYTES)
            .read_to_vec()
            .map_err(|error| self.no_answer(error))?;
        let document: Value = serde_json::from_slice(&bytes)
            .map_err(|error| self.not_highwater(format!("status {status} and a body that is not JSON ({error})")))?;
        if (200..300).contains(&status) {
            return Ok(Answer { document, position });
        }
        // Plain errors lie under "error"; Hrana's are at the top.
        let error = document.get("error").unwrap_or(&document);
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
        Err(ClientError::Refused {
            status,
            code: text("code"),
            message: text("message"),
            unknown: error.get("outcome").and_then(Value::as_str) == Some("unknown"),
            document,
        })
    }
}

fn header(response: &ureq::http::Response<ureq::Body>, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_string)
}
