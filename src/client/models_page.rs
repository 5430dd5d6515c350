//! The model listing of a Hub, page by page.

use url::Url;

use super::Client;
use crate::backends::explain;
use crate::error::Error;
use crate::http::SafeUrl;
use crate::hub::listing::next_page;
use crate::hub::{ListedModel, MAX_MODELS_PAGE};

/// A page of the Hub's model listing.
#[derive(Debug)]
pub struct ModelsPage {
    json: Vec<u8>,
    /// The URL of the next page; `None` if this is the last one.
    pub next: Option<Url>,
}

impl ModelsPage {
    /// Parses the models of the page.
    ///
    /// # Errors
    ///
    /// Returns an error if the page is not a JSON array of models.
    pub fn models(&self) -> Result<Vec<ListedModel>, serde_json::Error> {
        serde_json::from_slice(&self.json)
    }
}

impl Client {
    /// Requests a page of the Hub's model listing. [`Endpoint::models_url`](crate::Endpoint::models_url) is the URL of
    /// the first one.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut page = Some(client.endpoint().models_url("downloads", &[("filter", "safetensors")]));
    /// while let Some(url) = page {
    ///     let listed = client.models_page(&url).await?;
    ///     for model in listed.models()? {
    ///         println!("{}", model.id);
    ///     }
    ///     page = listed.next;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the client is offline, or if the page cannot be fetched.
    pub async fn models_page(&self, page: &Url) -> Result<ModelsPage, Error> {
        if self.context.offline.is_some() {
            return Err(Error::Offline { url: SafeUrl::from(page).to_string() });
        }
        let read = self.context.http.read_all(page, MAX_MODELS_PAGE, &self.context.totals).await;
        let name = || format!("list of models at {}", SafeUrl::from(page));
        let (json, chain) = read.map_err(|failure| explain(name(), failure, None))?;
        Ok(ModelsPage { json, next: next_page(page, &chain) })
    }
}
