//! HTTPS for the local Hub: a certificate authority per Hub, and a certificate for both servers.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "every program that includes this module uses a part of it"
)]

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use hf_meta_testing::{ByteStream, Handshake, TlsSettings};

/// The host names of the servers.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "127.0.0.2"];

/// The TLS configuration of the servers, and the certificate that clients have to trust.
pub struct Tls {
    pub acceptor: TlsAcceptor,
    /// The certificate of the authority in PEM.
    pub authority: String,
    /// The certificate of the servers in PEM.
    pub certificate: String,
    /// The key of the servers in PEM.
    pub key: String,
}

impl Tls {
    /// Creates a configuration with these ALPN protocols, such as `h2`, in order of preference.
    ///
    /// # Errors
    ///
    /// Returns an error if no keys can be generated.
    pub fn new(protocols: &[&str]) -> io::Result<Self> {
        let (ca, ca_key) = (authority().map_err(io::Error::other)?, key()?);
        let authority = ca.self_signed(&ca_key).map_err(io::Error::other)?.pem();
        let (certificate, key) = (server().map_err(io::Error::other)?, key()?);
        let certificate = certificate.signed_by(&key, &Issuer::new(ca, ca_key));
        let certificate = certificate.map_err(io::Error::other)?;
        let (pem, chain) = (certificate.pem(), vec![certificate.der().clone()]);
        let key_pem = key.serialize_pem();
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(io::Error::other)?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
                .map_err(io::Error::other)?;
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { acceptor, authority, certificate: pem, key: key_pem })
    }
}

impl From<Tls> for TlsSettings {
    fn from(Tls { acceptor, authority, .. }: Tls) -> Self {
        let accept = move |stream| {
            let handshake = acceptor.accept(stream);
            let accepted = async { Ok(Box::new(handshake.await?) as Box<dyn ByteStream>) };
            Box::pin(accepted) as Handshake
        };
        Self::new(accept, authority)
    }
}

fn key() -> io::Result<KeyPair> {
    KeyPair::generate().map_err(io::Error::other)
}

fn authority() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([])?;
    params.distinguished_name.push(DnType::CommonName, "Local authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Strict clients require the key usage.
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn server() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
    // With the name of the authority, clients would take this certificate for a self-signed one.
    params.distinguished_name.push(DnType::CommonName, "Local server");
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
