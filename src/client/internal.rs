//! Items for the census and the service, which may change in any release.

use std::sync::Arc;

use futures::future::FutureExt;
use url::Url;

use super::{Client, Model};
use crate::backends::explain;
use crate::base::Callback;
use crate::base::budget::{Budget, LargeCallLimit};
use crate::cache::HeaderBytes;
use crate::call::{ModelCall, RecordedCount};
use crate::error::Error;
use crate::formats::weight_sets::WeightSet;
use crate::formats::{FileHeader, RepoPath};
use crate::http::SafeUrl;
use crate::hub::api::next_page;
use crate::results::CountReport;

impl Client {
    /// Returns the share of quotas that this client uses, from [`ClientBuilder::quota_share`](crate::ClientBuilder::quota_share).
    pub fn quota_share(&self) -> f64 {
        self.context.http.quota_share()
    }

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
        let http = self.context.http.with_meter(self.context.totals.clone());
        let read = http.read_all(page, max_bytes).await;
        let name = || format!("page at {}", SafeUrl::from(page));
        let page = read.and_then(|(json, chain)| Ok((json, next_page(page, &chain)?)));
        page.map_err(|failure| explain(name(), failure, None))
    }
}

impl Model {
    /// Sets a callback that is invoked with each header after it is read, in any order. Headers need not be kept in
    /// memory to look at all of them. It runs on the task that drives the call and must not block.
    ///
    /// ```
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// let print = |header: &hf_meta::formats::FileHeader| {
    ///     for (name, tensor) in header.tensors() {
    ///         println!("{name} {:?}", tensor.shape);
    ///     }
    /// };
    /// client.model("bigscience/bloom").on_header(print).count().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_header(mut self, read: impl Fn(&FileHeader) + Send + Sync + 'static) -> Self {
        self.on_header = Some(Callback(Arc::new(read)));
        self
    }

    /// Sets the paths of all files in the repository, if you know them. No name is probed then, and listing the other
    /// sets costs no request.
    ///
    /// ```
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// let files = ["README.md", "model.safetensors"].map(|path| path.parse().unwrap());
    /// let report = client.model("openai-community/gpt2").known_files(files).count().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn known_files(mut self, files: impl IntoIterator<Item = RepoPath>) -> Self {
        self.options.known_files = Some(Arc::new(files.into_iter().collect()));
        self
    }

    /// Sets a limit that this call shares with other calls that need more than 8 MiB for their index and headers.
    pub fn large_calls(mut self, limit: &LargeCallLimit) -> Self {
        self.large_calls = Some(limit.clone());
        self
    }

    /// Sets a budget, which may end the call before it sends more requests or uses more memory. The call then returns
    /// [`Error::OverBudget`].
    pub fn budget(mut self, budget: Arc<impl Budget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Returns the weight sets that are loaded together with a main weight set: the other components of a diffusers
    /// pipeline, or the other modules of a `sentence-transformers` model. `main` is the path of the main set.
    ///
    /// Lists the files unless they are [known](Self::known_files), and reads `model_index.json` if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be listed or read, or if the timeout elapses ([`Error::DeadlineExceeded`]).
    pub fn loaded_with(
        &self,
        main: &RepoPath,
    ) -> impl Future<Output = Result<Vec<WeightSet>, Error>> + Send + use<> {
        let main = main.clone();
        self.call(move |call| call.loaded_with(main.clone()))
    }

    /// Counts the parameters like [`Model::count`], and also returns the path of the weight file or the index, or the
    /// path pattern of shards without an index, and the bytes that the count was computed from, even if the call
    /// failed. Does not use the header cache.
    ///
    /// Store the bytes to count again later, with [`Model::recount`]. There are none if the commit is unknown, if access
    /// to a small file was denied, or if they are too many to record.
    pub fn count_and_record(&self) -> impl Future<Output = RecordedCount> + Send + use<> {
        let recorded = self.call(ModelCall::record);
        recorded.map(|recorded| recorded.unwrap_or_else(|error| (Err(error), None, None)))
    }

    /// Counts the parameters in bytes that an earlier call has recorded, without a request.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Model::count`], and [`Error::FileNotFound`] if a file that is needed was not
    /// recorded.
    pub fn recount(
        &self,
        bytes: HeaderBytes,
    ) -> impl Future<Output = Result<CountReport, Error>> + Send + use<> {
        self.call(move |call| call.recount(bytes.clone()))
    }
}
