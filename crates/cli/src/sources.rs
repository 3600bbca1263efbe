//! Where a node's tokens, cluster secrets and certificate come from: the configuration, and the files that it names.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use highwater_node::Secret;

use crate::secret_files::{bytes, lines, tokens};

/// Where all of it comes from. Tokens from several places add up.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) tokens: Vec<String>,
    pub(crate) read_tokens: Vec<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) read_token_file: Option<PathBuf>,
    pub(crate) cluster_secret: Option<String>,
    pub(crate) cluster_secret_file: Option<PathBuf>,
    /// The certificate and its key.
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
}

/// What of them is read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Tokens,
    Secrets,
    Certificate,
}

impl Part {
    pub(crate) const ALL: [Part; 3] = [Part::Tokens, Part::Secrets, Part::Certificate];

    /// What it is called in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Tokens => "tokens",
            Part::Secrets => "cluster secrets",
            Part::Certificate => "certificate and key",
        }
    }
}

impl Sources {
    /// The tokens that may do everything, and those that may read.
    pub(crate) fn tokens(&self) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let all = |given: &[String], file: &Option<PathBuf>, option: &str| {
            if given.iter().any(|token| token.trim().is_empty()) {
                bail!("an empty {option} would let everybody in");
            }
            Ok([given.to_vec(), file.as_deref().map(tokens).transpose()?.unwrap_or_default()].concat())
        };
        let full = all(&self.tokens, &self.token_file, "--token")?;
        Ok((full, all(&self.read_tokens, &self.read_token_file, "--read-token")?))
    }

    /// The cluster's secrets, the one to prove by first; none if none is configured.
    pub(crate) fn secrets(&self) -> anyhow::Result<Vec<Secret>> {
        let Some(path) = &self.cluster_secret_file else {
            return Ok(self.cluster_secret.iter().map(|text| Secret::parse(text)).collect::<Result<_, _>>()?);
        };
        if self.cluster_secret.is_some() {
            bail!("--cluster-secret and --cluster-secret-file are both given: give one, the file if in doubt");
        }
        let numbered = lines(path, "cluster secrets")?.into_iter().zip(1..);
        let parsed = numbered.map(|(text, number)| {
            Secret::parse(&text).with_context(|| format!("secret {number} of the file {}", path.display()))
        });
        parsed.collect()
    }

    /// The certificate and its key as PEM text; `None` if none is configured.
    pub(crate) fn certificate(&self) -> anyhow::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let read = |(cert, key): &(PathBuf, PathBuf)| Ok((bytes(cert, "the certificate")?, bytes(key, "its key")?));
        self.tls.as_ref().map(read).transpose()
    }

    /// The files of the certificate and its key, as errors name them.
    pub(crate) fn certificate_files(&self) -> String {
        self.tls
            .as_ref()
            .map_or_else(String::new, |(cert, key)| format!("{} with the key {}", cert.display(), key.display()))
    }

    /// The files of that part that hold secrets, and those that do not.
    pub(crate) fn files(&self, part: Part) -> (Vec<&Path>, Option<&Path>) {
        let (certificate, key) = self.tls.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path())).unzip();
        match part {
            Part::Tokens => (self.token_file.iter().chain(&self.read_token_file).map(PathBuf::as_path).collect(), None),
            Part::Secrets => (self.cluster_secret_file.iter().map(PathBuf::as_path).collect(), None),
            Part::Certificate => (key.into_iter().collect(), certificate),
        }
    }
}
