//! The certificate by which clients know this node. It can be replaced while the node runs; connections that are open keep theirs.

use std::fmt;
use std::sync::{Arc, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Why a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The text of the certificate holds none.
    #[error(
        "the certificate file holds no certificate: it must be PEM text that begins with -----BEGIN CERTIFICATE-----"
    )]
    NoCertificate,
    /// A certificate does not read.
    #[error("the certificate file does not read: {0}")]
    Certificate(String),
    /// The key does not read.
    #[error("the key file holds no private key that can be used: {0}; it must be PEM text, not encrypted")]
    Key(String),
    /// The two do not belong together.
    #[error("the certificate and the key do not belong together: {0}")]
    Mismatch(String),
}

/// A certificate with its key. A clone is the same one.
#[derive(Clone)]
pub struct TlsIdentity(Arc<RwLock<Arc<CertifiedKey>>>);

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsIdentity(..)")
    }
}

impl TlsIdentity {
    /// Reads a certificate, with the chain behind it, and its key, both as PEM text.
    ///
    /// # Errors
    /// Any [`TlsError`].
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<TlsIdentity, TlsError> {
        Ok(TlsIdentity(Arc::new(RwLock::new(certified(certificate, key)?))))
    }

    /// Takes another certificate and key for every connection from now on. Returns whether it is another one.
    ///
    /// # Errors
    /// Any [`TlsError`]; then the present one stays.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<bool, TlsError> {
        let new = certified(certificate, key)?;
        let mut present = self.0.write().expect("no holder of this lock panics");
        let changed = present.cert != new.cert;
        *present = new;
        Ok(changed)
    }

    /// How TLS is spoken with clients: 1.2 and 1.3, HTTP/1.1 inside.
    pub(crate) fn for_clients(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what TLS 1.2 and 1.3 need")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    fn present(&self) -> Arc<CertifiedKey> {
        self.0.read().expect("no holder of this lock panics").clone()
    }
}

impl ResolvesServerCert for TlsIdentity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present())
    }
}

fn certified(certificate: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Key(error.to_string()))?;
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::Mismatch(error.to_string()),
        rustls::Error::InvalidCertificate(_) => TlsError::Certificate(error.to_string()),
        error => TlsError::Key(error.to_string()),
    })?;
    Ok(Arc::new(certified))
}
