//! Whom the client trusts when it speaks TLS, and what it says where TLS fails.
//!
//! The node's name, as the URL has it, must stand in a certificate that leads to one of the roots: those given, else the system's. There is no way to switch
//! that off.

use std::io::{Error as IoError, ErrorKind};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::error::Failed;

/// The certificates by which nodes are trusted: those in `ca` (PEM text), else the system's.
///
/// # Errors
///
/// [`Failed`] with `CA_INVALID`: the text holds no certificate, one that does not read, or the system has none.
pub fn roots(ca: Option<&[u8]>) -> Result<Vec<CertificateDer<'static>>, Failed> {
    let invalid = |message: String| Failed::own("CA_INVALID", message, false);
    let Some(ca) = ca else {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            let reason = found.errors.first().map_or_else(|| "it has none".to_string(), ToString::to_string);
            return Err(invalid(format!(
                "the system's trusted certificates cannot be read: {reason}; give the certificate to trust"
            )));
        }
        return Ok(found.certs);
    };
    let given: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(ca).collect();
    let given = given.map_err(|error| invalid(format!("the certificate to trust does not read: {error}")))?;
    if given.is_empty() {
        let wanted = "it must be PEM text that begins with -----BEGIN CERTIFICATE-----";
        return Err(invalid(format!("the file with the certificate to trust holds none: {wanted}")));
    }
    Ok(given)
}

/// How the client speaks TLS under these roots. The system's are read once for a process.
pub(crate) fn configuration(ca: Option<&[u8]>) -> Result<Arc<ClientConfig>, Failed> {
    static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    match (ca, SYSTEM.get()) {
        (Some(ca), _) => build(roots(Some(ca))?, true),
        (None, Some(built)) => Ok(built.clone()),
        (None, None) => {
            let built = build(roots(None)?, false)?;
            Ok(SYSTEM.get_or_init(|| built).clone())
        }
    }
}

/// Of the system's many certificates some may be none that rustls takes; of those that were given, all must be.
fn build(roots: Vec<CertificateDer<'static>>, strict: bool) -> Result<Arc<ClientConfig>, Failed> {
    let mut store = RootCertStore::empty();
    for root in roots {
        if let Err(error) = store.add(root)
            && strict
        {
            return Err(Failed::own("CA_INVALID", format!("the certificate to trust does not read: {error}"), false));
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows the versions that rustls offers by default")
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The name that the certificate of the node at `HOST:PORT` must have.
pub(crate) fn name(authority: &str) -> Result<ServerName<'static>, IoError> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let wrong = |_| IoError::new(ErrorKind::InvalidInput, format!("{host:?} is no name that a certificate can have"));
    ServerName::try_from(bare.to_string()).map_err(wrong)
}

/// What to tell people where a TLS handshake with the node at `HOST:PORT` failed by that. `None` for what is not about TLS and may pass: a broken connection.
pub fn explain(authority: &str, error: &IoError) -> Option<String> {
    let rustls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())?;
    Some(match rustls {
        // Whatever is no TLS is read as a record of a wrong type, version or length. A node may speak TLS on that port with other nodes alone, who name their
        // protocol; this client, which names none, is then refused for that.
        rustls::Error::InvalidMessage(_)
        | rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol) => {
            format!("the node at {authority} does not speak TLS with clients: use http://{authority}")
        }
        rustls::Error::InvalidCertificate(reason) => format!(
            "the certificate of the node at {authority} is not trusted: {reason}; give the certificate that it leads to with --ca, or the name that it has with --url"
        ),
        other => format!("the node at {authority} and this client find no common TLS: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_no_certificate_is_refused_with_a_reason() {
        for text in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let error = configuration(Some(text.as_bytes())).expect_err("no certificate");
            assert_eq!((error.code.as_str(), error.retryable), ("CA_INVALID", false), "{text:?}");
        }
    }

    #[test]
    fn names_are_hosts_without_brackets_and_ports() {
        for (authority, wanted) in [("db.example:1", "db.example"), ("127.0.0.1:1", "127.0.0.1"), ("[::1]:1", "::1")] {
            assert_eq!(name(authority).expect("a name").to_str(), wanted);
        }
        assert!(name("a b:1").is_err());
    }
}
