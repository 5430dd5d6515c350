//! TLS: root certificates and failures of handshakes. Without the TLS features, the client reads `http` URLs only.

/// The TLS handshake failures that need special handling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsFailure {
    Certificate,
    /// The server supports none of the offered HTTP versions (alert `no_application_protocol`, RFC 7301).
    NoCommonProtocol,
}

#[cfg(feature = "rustls-no-provider")]
mod with_tls {
    use std::error::Error as StdError;
    use std::io;

    pub(crate) use reqwest::Certificate;
    use reqwest::ClientBuilder;
    use rustls::crypto::CryptoProvider;
    use rustls::{AlertDescription, Error};

    use super::TlsFailure;

    /// Parses the certificates of a PEM text. A text without a certificate is an error.
    pub(crate) fn parse_certificates(
        pem: &[u8],
    ) -> Result<Vec<Certificate>, Box<dyn StdError + Send + Sync>> {
        let parsed = Certificate::from_pem_bundle(pem)?;
        if parsed.is_empty() {
            return Err("the PEM text contains no certificate".into());
        }
        Ok(parsed)
    }

    /// Makes a client trust some certificates and the system's or, if `is_system` is false, Mozilla's, which are
    /// compiled into the program.
    pub(in crate::http) fn trust(
        builder: ClientBuilder,
        certificates: &[Certificate],
        is_system: bool,
    ) -> ClientBuilder {
        let own = certificates.iter().cloned();
        if is_system {
            return builder.tls_certs_merge(own);
        }
        let bundled = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let bundled = bundled.filter_map(|root| Certificate::from_der(root).ok());
        builder.tls_certs_only(bundled.chain(own))
    }

    /// Returns whether a TLS provider is installed. Without one, reqwest panics.
    pub(crate) fn has_tls_provider() -> bool {
        cfg!(feature = "rustls-aws-lc") || CryptoProvider::get_default().is_some()
    }

    /// Returns the TLS failure behind a cause. TLS errors are wrapped in one or more I/O errors, and the `source` of
    /// an I/O error skips the error it wraps.
    pub(in crate::http) fn tls_failure(cause: &(dyn StdError + 'static)) -> Option<TlsFailure> {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return tls_failure(error.get_ref()?);
        }
        match cause.downcast_ref()? {
            Error::InvalidCertificate(_) => Some(TlsFailure::Certificate),
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                Some(TlsFailure::NoCommonProtocol)
            }
            _ => None,
        }
    }
}

#[cfg(not(feature = "rustls-no-provider"))]
mod without_tls {
    use std::error::Error as StdError;

    use reqwest::ClientBuilder;

    use super::TlsFailure;

    /// A certificate, which builds without TLS do not have.
    #[derive(Clone, Debug)]
    pub(crate) enum Certificate {}

    pub(in crate::http) fn trust(
        builder: ClientBuilder,
        _certificates: &[Certificate],
        _is_system: bool,
    ) -> ClientBuilder {
        builder
    }

    pub(crate) fn has_tls_provider() -> bool {
        true
    }

    pub(in crate::http) fn tls_failure(_cause: &(dyn StdError + 'static)) -> Option<TlsFailure> {
        None
    }
}

#[cfg(feature = "rustls-no-provider")]
pub(crate) use with_tls::*;
#[cfg(not(feature = "rustls-no-provider"))]
pub(crate) use without_tls::*;
