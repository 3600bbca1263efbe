//! Authorities that sign nodes' certificates, made for one test.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// One of that name.
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its certificate, as PEM text.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Writes a new certificate for 127.0.0.1 and its key to two files, each of which is replaced as a whole.
    pub(crate) fn issue(&self, certificate: &Path, key: &Path) {
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        let own = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&own, &self.0).expect("a certificate");
        replace(certificate, &signed.pem());
        replace(key, &own.serialize_pem());
    }
}

/// Puts a file in the place of another, as tools do, readable by its owner alone.
pub(crate) fn replace(path: &Path, content: &str) {
    use std::os::unix::fs::PermissionsExt;
    let new = path.with_extension("new");
    std::fs::write(&new, content).expect("a file");
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    std::fs::rename(&new, path).expect("a file can be replaced");
}

/// How a client speaks TLS that trusts the certificates in this PEM text.
pub(crate) fn trusting(pem: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(root.expect("a certificate")).expect("a root");
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}
