//! TLS 1.3 between nodes.
//!
//! It keeps what is said from being read or changed on its way, and nothing more: the certificates are made at each start and prove nothing. Who is at the other
//! end, the exchange of `prove.rs` shows, by codes over the keying material of just this connection. So certificates are not looked at, and need no care.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};

use super::introduce::PeerRefused;
use super::prove::{EXPORTED_BYTES, EXPORTER};

/// The protocol (RFC 7301) of a connection that carries messages between nodes.
pub(super) const LINK_PROTOCOL: &[u8] = b"highwater-link/1";
/// The protocol of a connection on which a node forwards clients' requests: HTTP/1.1 behind the proof.
pub(super) const FORWARD_PROTOCOL: &[u8] = b"highwater-forward/1";

/// What both directions need.
#[derive(Clone)]
pub(crate) struct NodeTls {
    accepts: Arc<ServerConfig>,
    dials: Arc<ClientConfig>,
}

impl NodeTls {
    /// With a certificate that is made now.
    ///
    /// # Errors
    /// If no key can be made.
    pub(crate) fn new() -> Result<NodeTls, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let made = rcgen::generate_simple_self_signed(["highwater-node".to_string()]).map_err(|e| e.to_string())?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut accepts = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key.into())
            })
            .map_err(|error| error.to_string())?;
        accepts.alpn_protocols = vec![LINK_PROTOCOL.to_vec(), FORWARD_PROTOCOL.to_vec()];
        // Each connection has a handshake of its own, and the acceptor of a link says nothing after it.
        accepts.send_tls13_tickets = 0;
        let verifier = Arc::new(AnyCertificate(provider.clone()));
        let mut dials = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        dials.resumption = rustls::client::Resumption::disabled();
        dials.enable_sni = false;
        Ok(NodeTls { accepts: Arc::new(accepts), dials: Arc::new(dials) })
    }

    pub(crate) fn accepts(&self) -> Arc<ServerConfig> {
        self.accepts.clone()
    }

    /// For a connection of one protocol.
    pub(crate) fn dials(&self, protocol: &[u8]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.dials);
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }

    /// The name that TLS wants, which is not sent and not looked at.
    pub(crate) fn name() -> ServerName<'static> {
        ServerName::try_from("highwater-node").expect("a well-formed name")
    }
}

/// The keying material of a connection whose handshake has ended, checked to be of that protocol.
pub(crate) fn exported<Data>(
    connection: &rustls::ConnectionCommon<Data>,
    protocol: &[u8],
) -> Result<[u8; EXPORTED_BYTES], PeerRefused> {
    if connection.alpn_protocol() != Some(protocol) {
        return Err(PeerRefused::Tls(rustls::Error::NoApplicationProtocol));
    }
    connection.export_keying_material([0; EXPORTED_BYTES], EXPORTER, None).map_err(PeerRefused::Tls)
}

/// Takes any certificate; that the other end has its key is checked, so that the keying material is of this connection alone.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("nodes speak TLS 1.3".to_string()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
