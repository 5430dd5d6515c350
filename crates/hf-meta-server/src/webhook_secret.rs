//! The secret of a webhook.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use thiserror::Error;

/// The secret that a webhook sends with its events. Only its SHA-256 digest is stored.
///
/// ```
/// use hf_meta_server::WebhookSecret;
///
/// assert!("s3cr3t".parse::<WebhookSecret>().is_ok());
/// assert!("".parse::<WebhookSecret>().is_err(), "everybody knows the empty secret");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret([u8; 32]);

/// The error returned for an empty secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the secret is empty")]
pub struct EmptyWebhookSecret;

impl WebhookSecret {
    /// Compares digests, so that the time taken does not depend on the secret.
    pub(super) fn matches(&self, given: &[u8]) -> bool {
        self.0 == <[u8; 32]>::from(Sha256::digest(given))
    }
}

impl FromStr for WebhookSecret {
    type Err = EmptyWebhookSecret;

    fn from_str(secret: &str) -> Result<Self, Self::Err> {
        let digest = || Self(Sha256::digest(secret).into());
        (!secret.is_empty()).then(digest).ok_or(EmptyWebhookSecret)
    }
}

/// Omits the digest, because a short secret could be guessed from it.
impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}
