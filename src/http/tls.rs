//! TLS, without a setting that is global to the process.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

/// HTTP/2 where the server has it, else HTTP/1.1.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS that believes the certificates of the system.
///
/// A machine without any, as small container images are, gives no verifier; Mozilla's roots, which
/// are part of the program, then stand in.
pub(super) fn config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = || {
        ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
    };
    let verified = builder()?.with_platform_verifier().or_else(|_| {
        let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
        builder().map(|builder| builder.with_root_certificates(roots.collect::<RootCertStore>()))
    })?;
    let mut config = verified.with_no_client_auth();
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(config)
}
