//! Pages of the Hub's API.

use url::Url;

use super::Client;
use crate::backends::explain;
use crate::error::Error;
use crate::http::SafeUrl;
use crate::hub::listing::next_page;

impl Client {
    /// Requests a page of a listing in the Hub's API, such as `{endpoint}/api/models`. Returns its JSON and the URL of
    /// the next page; `None` at the end.
    ///
    /// The request uses the token, the retries and the quota of this client. Only the query of the server's link to
    /// the next page is used, so all pages come from the same server.
    ///
    /// # Errors
    ///
    /// Returns an error if the client is offline, the request fails, or the page exceeds `max_bytes`.
    pub async fn api_page(
        &self,
        page: &Url,
        max_bytes: u64,
    ) -> Result<(Vec<u8>, Option<Url>), Error> {
        if self.context.offline.is_some() {
            return Err(Error::Offline { what: SafeUrl::from(page).to_string() });
        }
        let read = self.context.http.read_all(page, max_bytes, &self.context.totals).await;
        let name = || format!("page at {}", SafeUrl::from(page));
        let (json, chain) = read.map_err(|failure| explain(name(), failure, None))?;
        Ok((json, next_page(page, &chain)))
    }
}
