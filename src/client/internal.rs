//! Calls of the census, which may change in any release.

use hf_meta_count::CountReport;
use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::weight_sets::WeightSet;
use url::Url;

use super::{Client, Model};
use crate::backends::explain;
use crate::cache::HeaderBytes;
use crate::call::{ModelCall, RecordedCount};
use crate::error::Error;
use crate::http::SafeUrl;
use crate::hub::api::next_page;

/// Returns the share of quotas that a client uses, from
/// [`ClientBuilder::quota_share`](crate::ClientBuilder::quota_share).
pub fn quota_share(client: &Client) -> f64 {
    client.context.http.quota_share()
}

/// Requests a page of a listing in the Hub's API. Returns its JSON and the URL of the next page; `None` at the end.
///
/// The request uses the token, the retries and the quota of the client. The next page is on the server of this one,
/// whatever the response says, so no other server receives the token.
///
/// # Errors
///
/// Returns an error if the client is offline, the request fails, the page exceeds `max_bytes`, or its link to the next
/// page is invalid.
pub async fn api_page(
    client: &Client,
    page: &Url,
    max_bytes: u64,
) -> Result<(Vec<u8>, Option<Url>), Error> {
    let context = &client.context;
    if context.offline.is_some() {
        return Err(Error::Offline { url: SafeUrl::from(page).to_string() });
    }
    let read = context.http.with_meter(context.totals.clone()).read_all(page, max_bytes).await;
    let name = || format!("page at {}", SafeUrl::from(page));
    let page = read.and_then(|(json, chain)| Ok((json, next_page(page, &chain)?)));
    page.map_err(|failure| explain(name(), failure, None))
}

/// Returns the weight sets that are loaded together with a main weight set: the other components of a diffusers
/// pipeline, or the other modules of a `sentence-transformers` model. `main` is the path of the main set.
///
/// Lists the files unless they are [known](Model::known_files), and reads `model_index.json` if there is one.
///
/// # Errors
///
/// Returns an error if the files cannot be listed or read, or if the timeout elapses ([`Error::DeadlineExceeded`]).
pub async fn loaded_with(model: &Model, main: &RepoPath) -> Result<Vec<WeightSet>, Error> {
    let main = main.clone();
    model.call(move |call| call.loaded_with(main.clone())).await
}

/// Counts the parameters like [`Model::count`], and also returns the path of the weight file or the index, or the path
/// pattern of shards without an index, and the bytes that the count was computed from, even if the call failed. Does
/// not use the header cache.
///
/// Store the bytes to count again later, with [`recount`]. There are none if the commit is unknown, if access to a
/// small file was denied, or if they are too many to record.
pub async fn count_and_record(model: &Model) -> RecordedCount {
    let recorded = model.call(ModelCall::record).await;
    recorded.unwrap_or_else(|error| (Err(error), None, None))
}

/// Counts the parameters in bytes that an earlier call has recorded, without a request.
///
/// # Errors
///
/// Returns the same errors as [`Model::count`], and [`Error::FileNotFound`] if a file that is needed was not recorded.
pub async fn recount(model: &Model, bytes: HeaderBytes) -> Result<CountReport, Error> {
    model.call(move |call| call.recount(bytes.clone())).await
}
