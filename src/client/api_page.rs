//! Pages of the Hub's API.

use url::Url;

use super::Client;
use crate::backends::explain;
use crate::error::Error;
use crate::http::SafeUrl;
use crate::hub::api::next_page;

impl Client {
    /// Requests a page of a listing in the Hub's API. Returns its JSON and the URL of the next page; `None` at the end.
    ///
    /// The request uses the token, the retries and the quota of this client. The next page is on the server of this
    /// one, whatever the response says, so no other server receives the token.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let first = format!("{}/api/models?filter=safetensors&limit=1000", client.endpoint());
    /// let mut page = Some(first.parse()?);
    /// while let Some(url) = page {
    ///     let (json, next) = client.api_page(&url, 64_000_000).await?;
    ///     println!("{} bytes", json.len());
    ///     page = next;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the client is offline, the request fails, the page exceeds `max_bytes`, or its link to the
    /// next page is invalid.
    pub async fn api_page(
        &self,
        page: &Url,
        max_bytes: u64,
    ) -> Result<(Vec<u8>, Option<Url>), Error> {
        if self.context.offline.is_some() {
            return Err(Error::Offline { url: SafeUrl::from(page).to_string() });
        }
        let read = self
            .context
            .http
            .with_meter(self.context.totals.clone())
            .read_all(page, max_bytes)
            .await;
        let name = || format!("page at {}", SafeUrl::from(page));
        let (json, chain) = read.map_err(|failure| explain(name(), failure, None))?;
        let next = next_page(page, &chain);
        let next = next.map_err(|source| Error::ListingFailed { location: name(), source })?;
        Ok((json, next))
    }
}
