//! Tokens, cluster secrets and the certificate: read from where the configuration says, and read again while the node runs.
//!
//! A thread looks at the files on SIGHUP, and every [`LOOK`] at what the folder says of them. What has changed is read as a whole and takes the place of what
//! was there; what does not read leaves that in place, is said in the log once, and is tried again at every look until it reads: a certificate may be written
//! a moment before its key.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use highwater_http::{TlsIdentity, Tokens};
use highwater_node::Secrets;

use crate::secret_files::exposed;
use crate::sources::{Part, Sources};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What a file was like when it was looked at, as far as that tells whether it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    /// When its content changed, in seconds and nanoseconds.
    modified: (i64, i64),
    /// When its content or its mode changed.
    changed: (i64, i64),
}

impl Stamp {
    /// `None` if it is not there.
    fn of(path: &Path) -> Option<Stamp> {
        let of = std::fs::metadata(path).ok()?;
        let (modified, changed) = ((of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec()));
        Some(Stamp { inode: of.ino(), size: of.len(), modified, changed })
    }

    /// Whether it is so old that a later change has another time: times are only as fine as the kernel's clock.
    fn is_old(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        self.changed.0.max(self.modified.0) + 1 < now
    }
}

/// What was seen of a part.
#[derive(Default)]
struct Seen {
    stamps: Vec<Option<Stamp>>,
    /// Whether nothing can have changed since, as long as the stamps are the same.
    settled: bool,
    /// Why it could not be read, if that was so.
    failure: Option<String>,
}

/// What is read, and where it takes effect.
pub(crate) struct Reload {
    sources: Sources,
    /// The tokens in use.
    pub(crate) tokens: Tokens,
    /// The secrets in use; `None` if none is configured.
    pub(crate) secrets: Option<Secrets>,
    /// The certificate in use; `None` if none is configured.
    pub(crate) tls: Option<TlsIdentity>,
    /// By part, in the order of [`Part::ALL`].
    seen: [Seen; 3],
}

impl Reload {
    /// Reads all of it the first time, and warns of files that others may read.
    ///
    /// # Errors
    /// If any of it does not read.
    pub(crate) fn read(sources: Sources) -> anyhow::Result<Reload> {
        let seen = Part::ALL.map(|part| Seen { stamps: stamps(&sources, part), ..Seen::default() });
        let (full, read) = sources.tokens()?;
        let secrets = sources.secrets()?;
        let secrets = if secrets.is_empty() { None } else { Some(Secrets::new(secrets)?) };
        let tls = sources.certificate()?.map(|(certificate, key)| TlsIdentity::read(&certificate, &key));
        let tls = tls.transpose().with_context(|| sources.certificate_files())?;
        for part in Part::ALL {
            sources.files(part).0.into_iter().filter_map(exposed).for_each(|warning| tracing::warn!("{warning}"));
        }
        Ok(Reload { tokens: Tokens::new(full, read), secrets, tls, sources, seen })
    }

    /// Whether clients must show a token.
    pub(crate) fn has_tokens(&self) -> bool {
        let Sources { tokens, read_tokens, token_file, read_token_file, .. } = &self.sources;
        !tokens.is_empty() || !read_tokens.is_empty() || token_file.is_some() || read_token_file.is_some()
    }

    /// Whether there is a file that may change.
    pub(crate) fn has_files(&self) -> bool {
        Part::ALL.iter().any(|part| !self.seen[*part as usize].stamps.is_empty())
    }

    /// Keeps all of it up to date until the sender of `hangups` is gone, in a thread of its own: the runtime's may all be busy with what a token that is being
    /// taken away has asked for.
    ///
    /// # Errors
    /// If there is no thread.
    pub(crate) fn keep_up(mut self, hangups: Receiver<()>) -> std::io::Result<()> {
        let thread = std::thread::Builder::new().name("reload".into());
        let watching = thread.spawn(move || {
            loop {
                match hangups.recv_timeout(LOOK) {
                    Ok(()) => self.look(true),
                    Err(RecvTimeoutError::Timeout) => self.look(false),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        watching.map(drop)
    }

    /// Reads what has changed, or everything.
    fn look(&mut self, everything: bool) {
        for part in Part::ALL {
            let stamps = stamps(&self.sources, part);
            let seen = &self.seen[part as usize];
            if stamps.is_empty() || !everything && seen.settled && seen.stamps == stamps {
                continue;
            }
            if seen.stamps != stamps {
                let files = self.sources.files(part).0;
                files.into_iter().filter_map(exposed).for_each(|warning| tracing::warn!("{warning}"));
            }
            let now = SystemTime::now();
            let old = stamps.iter().all(|stamp| stamp.is_some_and(|stamp| stamp.is_old(now)));
            let outcome = self.replace(part);
            let failure = outcome.as_ref().err().map(|error| format!("{error:#}"));
            let seen = &mut self.seen[part as usize];
            match &failure {
                None if outcome.is_ok_and(|changed| changed) => {
                    tracing::info!("the {} were read again and have changed", part.name())
                }
                None if everything || seen.failure.is_some() => {
                    tracing::info!("the {} were read again and have not changed", part.name());
                }
                None => {}
                Some(reason) if everything || seen.failure.as_ref() != Some(reason) => {
                    tracing::warn!("the {} stay as they are: {reason}", part.name());
                }
                Some(_) => {}
            }
            *seen = Seen { stamps, settled: old && failure.is_none(), failure };
        }
    }

    /// Reads a part and puts it in the place of the present one. Returns whether it is another.
    fn replace(&self, part: Part) -> anyhow::Result<bool> {
        match (part, &self.secrets, &self.tls) {
            (Part::Tokens, ..) => {
                let (full, read) = self.sources.tokens()?;
                Ok(self.tokens.replace(full, read))
            }
            (Part::Secrets, Some(secrets), _) => Ok(secrets.replace(self.sources.secrets()?)?),
            (Part::Certificate, _, Some(tls)) => match self.sources.certificate()? {
                Some((certificate, key)) => {
                    tls.replace(&certificate, &key).with_context(|| self.sources.certificate_files())
                }
                None => Ok(false),
            },
            (Part::Secrets | Part::Certificate, ..) => Ok(false),
        }
    }
}

fn stamps(sources: &Sources, part: Part) -> Vec<Option<Stamp>> {
    let (secret, open) = sources.files(part);
    secret.into_iter().chain(open).map(Stamp::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_node::Secret;

    fn secret(last: char) -> String {
        format!("0123456789abcdefghijkl{last}")
    }

    #[test]
    fn a_changed_file_is_read_and_one_that_does_not_read_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secrets");
        std::fs::write(&path, secret('a')).expect("a file");
        let sources = Sources { cluster_secret_file: Some(path.clone()), ..Sources::default() };
        let mut reload = Reload::read(sources).expect("a secret");
        let secrets = reload.secrets.clone().expect("one is configured");
        let unchanged = |list: &[char]| {
            let list = list.iter().map(|last| Secret::parse(&secret(*last)).expect("a secret")).collect();
            secrets.replace(list) == Ok(false)
        };
        assert!(unchanged(&['a']));
        std::fs::write(&path, format!("{}\n{}\n", secret('b'), secret('a'))).expect("a file");
        reload.look(false);
        assert!(unchanged(&['b', 'a']));
        for (content, reason) in
            [("", "holds none"), ("short", "too weak"), (&format!("{}\n", secret('c')).repeat(5), "5 cluster")]
        {
            std::fs::write(&path, content).expect("a file");
            reload.look(false);
            assert!(unchanged(&['b', 'a']), "{content:?}");
            let failure = reload.seen[Part::Secrets as usize].failure.clone();
            assert!(failure.is_some_and(|failure| failure.contains(reason)), "{content:?}");
        }
        // A change within one tick of the kernel's clock, of the same length, is seen as well.
        for last in ['d', 'e', 'f'] {
            std::fs::write(&path, secret(last)).expect("a file");
            reload.look(false);
            assert!(unchanged(&[last]));
        }
    }

    #[test]
    fn two_sources_of_the_one_secret_are_refused() {
        let sources =
            Sources { cluster_secret: Some(secret('a')), cluster_secret_file: Some("x".into()), ..Sources::default() };
        assert!(Reload::read(sources).err().expect("refused").to_string().contains("both given"));
    }

    #[test]
    fn a_certificate_changes_once_its_key_has_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
        let make = || {
            let made = rcgen::generate_simple_self_signed(["db.example".to_string()]).expect("a certificate");
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let (old, new) = (make(), make());
        std::fs::write(&cert, &old.0).and_then(|()| std::fs::write(&key, &old.1)).expect("files");
        let sources = Sources { tls: Some((cert.clone(), key.clone())), ..Sources::default() };
        let mut reload = Reload::read(sources).expect("a certificate");
        let failure = |reload: &Reload| reload.seen[Part::Certificate as usize].failure.clone();
        let present = |reload: &Reload, pair: &(String, String)| {
            let tls = reload.tls.as_ref().expect("one is configured");
            tls.replace(pair.0.as_bytes(), pair.1.as_bytes()) == Ok(false)
        };
        std::fs::write(&cert, &new.0).expect("a file");
        reload.look(false);
        assert!(failure(&reload).is_some_and(|reason| reason.contains("do not belong together")));
        assert!(present(&reload, &old));
        std::fs::write(&key, &new.1).expect("a file");
        reload.look(false);
        assert_eq!(failure(&reload), None);
        assert!(present(&reload, &new));
    }
}
