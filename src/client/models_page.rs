//! Pages of the model listing.

use url::Url;

use super::Client;
use crate::backends::explain;
use crate::error::Error;
use crate::http::SafeUrl;
use crate::hub::listing::next_page;

impl Client {
    /// Requests a page of the listing. Returns it with the URL of the next page.
    pub async fn models_page(
        &self,
        page: &Url,
        limit: u64,
    ) -> Result<(Vec<u8>, Option<Url>), Error> {
        if self.context.offline.is_some() {
            return Err(Error::Offline { url: SafeUrl::from(page).to_string() });
        }
        let read = self.context.http.read_all(page, limit, &self.context.totals).await;
        let name = || format!("list of models at {}", SafeUrl::from(page));
        let (json, chain) = read.map_err(|failure| explain(name(), failure, None))?;
        Ok((json, next_page(page, &chain)))
    }
}
