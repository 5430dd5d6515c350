//! Facts about the servers of an endpoint, which a client remembers.

use std::time::Duration;

use ::url::Url;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// A connection is assumed to be open for this long after its last response. The HTTP library closes connections
/// after 90 s without use.
pub(super) const ASSUMED_OPEN: Duration = Duration::from_secs(60);

/// Facts about the servers of an endpoint, saved for later processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerHints {
    /// The origin that the endpoint redirects to; empty if unknown.
    pub(super) redirect_origin: String,
    /// True if the endpoint does not speak HTTP/2.
    pub(super) endpoint_is_http1: bool,
    /// True if the redirect origin does not speak HTTP/2.
    pub(super) redirect_is_http1: bool,
}

/// The origin that the endpoint last redirected a range request to.
#[derive(Debug, Default)]
pub(super) struct RedirectOrigin {
    /// A URL with the path `/`; `None` if the origin is unknown.
    pub(super) url: Option<Url>,
    /// The time of the last response; `None` if the origin comes from another process.
    pub(super) used: Option<Instant>,
    /// The facts as last saved or restored. Only changes are saved.
    pub(super) saved: ServerHints,
}

impl RedirectOrigin {
    /// Records a response to a redirected request. `http` origins are ignored: they have no TLS handshake to save.
    pub(super) fn record(&mut self, url: &Url) {
        if self.url.as_ref().map(Url::origin) != Some(url.origin()) {
            let Some(url) = parse_origin(&url.origin().ascii_serialization()) else { return };
            self.url = Some(url);
        }
        self.used = Some(Instant::now());
    }

    /// Returns the URL to connect to, unless a connection to it is assumed to be open.
    pub(super) fn take_due(&mut self) -> Option<Url> {
        let url = self.url.clone()?;
        let used = self.used.replace(Instant::now());
        let is_open = used.is_some_and(|used| used.elapsed() < ASSUMED_OPEN);
        (!is_open).then_some(url)
    }
}

/// Parses an `https` origin. Returns `None` if the text is more than an origin, such as a URL with a path.
pub(super) fn parse_origin(origin: &str) -> Option<Url> {
    let url = Url::parse(origin).ok().filter(|url| url.scheme() == "https")?;
    (url.origin().ascii_serialization() == origin).then_some(url)
}
