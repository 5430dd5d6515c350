//! Sources of files.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use futures::channel::oneshot;
use futures::future::{BoxFuture, Either, FutureExt, select};
use hf_meta_format::formats::safetensors::SafetensorsIndexJson;
use hf_meta_format::formats::{Formats, RepoPath};
use hf_meta_inspect::{Listing, Loaded, OpenIndex};
use tracing::Instrument;
use url::Url;

use crate::base::{FilePart, lock};
use crate::error::Error;
use crate::http::{Http, HttpError, PartialFile, ResponseChain};
use crate::hub::CommitSha;

/// A value read from a file, with the origin of the file.
#[derive(Debug)]
pub(crate) struct Fetched<T> {
    pub(crate) value: T,
    /// The commit of the file, if the server reports it.
    pub(crate) commit: Option<CommitSha>,
    /// The SHA-256 hash of the whole file in hexadecimal, if the server reports it.
    pub(crate) sha256: Option<String>,
}

impl<T> Fetched<T> {
    pub(crate) fn new(value: T, commit: Option<CommitSha>) -> Self {
        Self { value, commit, sha256: None }
    }
}

/// The future of a value read from a file.
pub(crate) type Fetch<'a, T> = BoxFuture<'a, Result<Fetched<T>, Error>>;

/// The future of a listing.
pub(crate) type ListFuture<'a> = BoxFuture<'a, Result<Option<Listing>, Error>>;

/// A folder of files, addressed by their paths in it. A source is created for one call, and counts the requests and
/// bytes of that call.
pub(crate) trait FileSource: Debug + Send + Sync {
    /// Reads a range of a file. The result is shorter than the range only if the file ends inside it. It may be
    /// longer if the range starts at byte 0.
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, FilePart>;

    /// Reads a whole file of at most `limit` bytes.
    fn load<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>> {
        async move {
            let Fetched { value, commit, .. } = self.read_range(path, 0..limit).await?;
            let (file, found) = (self.file_name(path), value.bytes.len() as u64);
            match value.file_size {
                size if size > limit => Err(Error::TooLarge { file, limit }),
                size if size != found => {
                    let message = format!("expected `{file}` to have {size} bytes, got {found}");
                    Err(Error::Changed { message })
                }
                _ => Ok(Fetched::new(value.bytes, commit)),
            }
        }
        .boxed()
    }

    /// Starts reading an index of at most `limit` bytes. Completes once its first shard is known, or its start names
    /// none. By default, reads the whole index, as sources do that are fast.
    fn open_index<'a>(
        &'a self,
        path: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
        async move {
            let Fetched { value, commit, .. } = self.load(path, limit).await?;
            Ok(OpenIndex::complete(Loaded { bytes: Arc::new(value), commit }))
        }
        .boxed()
    }

    /// Returns whether a number of requests for files next to `path` may be sent that may turn out to be useless.
    fn may_guess(&self, _path: &RepoPath, _requests: usize) -> bool {
        false
    }

    /// Lists all files below a folder, or all files of the source. Returns `None` if the source has no
    /// accessible listing.
    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a>;

    /// Returns the name of a file for messages.
    fn file_name(&self, path: &RepoPath) -> String;
}

/// The start of an index in which its first shard is searched, in bytes. Known indexes name it in the first 300 bytes.
const INDEX_START: usize = 1 << 16;

/// Starts reading an index over HTTP. `fetched` and `explain` map responses and failures to the source's own types.
pub(super) async fn open_over_http(
    http: Http,
    url: Url,
    path: &RepoPath,
    limit: u64,
    fetched: impl Fn(&ResponseChain) -> Option<CommitSha> + Clone + Send + Sync + 'static,
    explain: impl FnOnce(HttpError) -> Error + Send + 'static,
) -> Result<OpenIndex, Error> {
    let extension = Formats::built_in().find_or_safetensors(path).extension();
    let (sender, opened) = oneshot::channel();
    let (sender, commit_of) = (Mutex::new(Some(sender)), fetched.clone());
    let arrived = move |PartialFile { chain, length, bytes }: &PartialFile<'_>| {
        let mut sender = lock(&sender);
        if sender.is_none() {
            return;
        }
        let start = &bytes[..bytes.len().min(INDEX_START)];
        let first_shard = SafetensorsIndexJson::first_shard(start, extension);
        if (first_shard.is_some() || start.len() == INDEX_START)
            && let Some(sender) = sender.take()
        {
            // The receiver is dropped if the call is.
            sender.send((commit_of(chain), *length, first_shard)).ok();
        }
    };
    let mut rest = async move {
        let (file, chain) = http.read_file(&url, limit, &arrived).await.map_err(explain)?;
        Ok(Loaded { bytes: Arc::new(file), commit: fetched(&chain) })
    }
    .in_current_span()
    .boxed();
    let first = match select(opened, &mut rest).await {
        Either::Left((first, _)) => first.ok(),
        Either::Right((index, _)) => return index.map(OpenIndex::complete),
    };
    match first {
        Some((commit, length, first_shard)) => Ok(OpenIndex { commit, length, first_shard, rest }),
        None => rest.await.map(OpenIndex::complete),
    }
}
