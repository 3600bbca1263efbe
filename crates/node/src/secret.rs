//! The secret by which the nodes of a cluster know each other.
//!
//! A node holds one or several: it proves itself by the first, and accepts a proof by any. So a secret is changed while the cluster runs: every node first
//! accepts the new one, then proves by it, then forgets the old one. A connection that was proven by a secret which is accepted no longer is ended.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

/// The fewest bytes of a secret: 128 bits as base64 has them.
pub const SECRET_BYTES_MIN: usize = 22;
/// The most bytes of a secret.
pub const SECRET_BYTES_MAX: usize = 1024;
/// The fewest different bytes in a secret: one that was typed by leaning on a key has less.
const DIFFERENT_MIN: usize = 8;
/// The most secrets that a node accepts at one time.
pub const SECRETS_MAX: usize = 4;

/// One secret. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

/// Why a text is no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It is too short, or made of too few different characters.
    #[error(
        "the cluster secret is too weak: it has {bytes} characters, {different} of them different, where at least {SECRET_BYTES_MIN} and {DIFFERENT_MIN} are wanted (128 bits); make one with `highwater secret`"
    )]
    Weak {
        /// Its bytes.
        bytes: usize,
        /// How many of them are different.
        different: usize,
    },
    /// It is too long.
    #[error("the cluster secret has {0} bytes, where at most {SECRET_BYTES_MAX} are taken")]
    Long(usize),
    /// There is none.
    #[error("no cluster secret was given, where at least one is wanted; make one with `highwater secret`")]
    None,
    /// There are too many.
    #[error("{0} cluster secrets were given, where at most {SECRETS_MAX} are accepted at one time")]
    Many(usize),
}

impl Secret {
    /// Reads a secret; white space around it is left out.
    ///
    /// # Errors
    /// [`SecretError::Weak`] and [`SecretError::Long`]. The length is checked; whether it was drawn at random cannot be.
    pub fn parse(text: &str) -> Result<Secret, SecretError> {
        let bytes = text.trim().as_bytes();
        let different = bytes.iter().collect::<std::collections::BTreeSet<_>>().len();
        if bytes.len() < SECRET_BYTES_MIN || different < DIFFERENT_MIN {
            return Err(SecretError::Weak { bytes: bytes.len(), different });
        }
        if bytes.len() > SECRET_BYTES_MAX {
            return Err(SecretError::Long(bytes.len()));
        }
        Ok(Secret(bytes.into()))
    }

    /// A new secret of 256 random bits, as text.
    ///
    /// # Errors
    /// If the operating system gives no random numbers.
    pub fn generate() -> Result<String, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// A key for one purpose, made from this secret.
    pub(crate) fn key(&self, purpose: &str, context: &[u8]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(purpose.as_bytes());
        hash.update(context);
        hash.update(&self.0);
        hash.finalize().into()
    }

    pub(crate) fn mac(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC takes a key of any length")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The secrets of a node, which may be replaced while it runs. A clone is the same ones.
#[derive(Clone, Debug)]
pub struct Secrets(Arc<watch::Sender<Arc<[Secret]>>>);

impl Secrets {
    /// These, of which the first is proven by.
    ///
    /// # Errors
    /// [`SecretError::None`] and [`SecretError::Many`].
    pub fn new(list: Vec<Secret>) -> Result<Secrets, SecretError> {
        Ok(Secrets(Arc::new(watch::Sender::new(checked(list)?))))
    }

    /// One alone.
    pub fn one(secret: Secret) -> Secrets {
        Secrets(Arc::new(watch::Sender::new([secret].into())))
    }

    /// Takes these in place of the present ones. Connections that were proven by a secret which is not among them end. Returns whether anything changed.
    ///
    /// # Errors
    /// As for [`Secrets::new`]; then nothing changes.
    pub fn replace(&self, list: Vec<Secret>) -> Result<bool, SecretError> {
        let list = checked(list)?;
        Ok(self.0.send_if_modified(|present| {
            let changed = *present != list;
            *present = list;
            changed
        }))
    }

    /// Those that are accepted now; the first is the one to prove by.
    pub(crate) fn accepted(&self) -> Arc<[Secret]> {
        self.0.borrow().clone()
    }

    /// The one to prove by now.
    pub(crate) fn present(&self) -> Secret {
        self.0.borrow()[0].clone()
    }

    /// Whether a proof by that secret is accepted now.
    pub(crate) fn accepts(&self, secret: &Secret) -> bool {
        self.0.borrow().contains(secret)
    }

    /// Returns once that secret is accepted no longer.
    pub(crate) async fn forgotten(&self, secret: &Secret) {
        let mut changes = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|list| !list.contains(secret)).await;
    }
}

fn checked(list: Vec<Secret>) -> Result<Arc<[Secret]>, SecretError> {
    match list.len() {
        0 => Err(SecretError::None),
        1..=SECRETS_MAX => Ok(list.into()),
        many => Err(SecretError::Many(many)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_enough_bytes_and_not_the_same_one_over_and_over() {
        let made = Secret::generate().expect("random numbers");
        assert!(Secret::parse(&made).is_ok());
        assert_eq!(Secret::parse(&format!(" {made}\n")), Secret::parse(&made));
        assert_eq!(Secret::parse("0123456789abcdefghijk"), Err(SecretError::Weak { bytes: 21, different: 21 }));
        assert!(Secret::parse("0123456789abcdefghijkl").is_ok());
        assert!(matches!(Secret::parse(&"ab".repeat(40)), Err(SecretError::Weak { different: 2, .. })));
        assert!(Secret::parse(&"0123456789".repeat(102)).is_ok());
        assert_eq!(Secret::parse(&"0123456789".repeat(103)), Err(SecretError::Long(1030)));
        assert!(!format!("{:?}", Secret::parse(&made)).contains(&made));
    }

    #[test]
    fn secrets_are_replaced_as_a_whole_or_not_at_all() {
        let secret = |digit: char| Secret::parse(&format!("0123456789abcdefghijkl{digit}")).expect("a secret");
        let secrets = Secrets::new(vec![secret('a'), secret('b')]).expect("two");
        assert!(secrets.accepts(&secret('b')) && !secrets.accepts(&secret('c')));
        assert_eq!(secrets.replace(Vec::new()), Err(SecretError::None));
        assert_eq!(secrets.replace(vec![secret('a'); 5]), Err(SecretError::Many(5)));
        assert_eq!(secrets.replace(vec![secret('a'), secret('b')]), Ok(false));
        assert_eq!(secrets.replace(vec![secret('c')]), Ok(true));
        assert!(!secrets.accepts(&secret('a')) && secrets.accepted()[0] == secret('c'));
    }
}
