//! Where a set of weights is kept: on a Hub, on another server or on disk, read in the same terms.

mod cached;
pub(crate) mod disk;
pub(crate) mod hub_cache;
mod refusals;
mod stream;

pub use self::hub_cache::SnapshotError;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use tracing::{Instrument, Span, debug_span};
use url::Url;

pub(crate) use self::stream::{Pieces, poll_alongside};
use crate::backends::hub_cache::Snapshot;
use crate::cache::CachedHeaders;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::http::transfer::{RangeBytes, RequestMeter};
use crate::http::{Http, ResponseChain, SafeUrl};
use crate::hub::{CommitSha, Endpoint, HubWarnings, ListFilesError, RepoId, Revision, listing};

/// What the Hub says of the commit that an answer is of.
const X_REPO_COMMIT: &str = "x-repo-commit";

/// A folder of files that are named by their path in it.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    /// A revision of a repo on a Hub.
    Hub {
        http: Http,
        endpoint: Endpoint,
        repo: RepoId,
        revision: Revision,
        notices: Arc<HubWarnings>,
    },
    /// The folder of a file on any server; `url` is that file.
    Web { http: Http, url: Url, file: RepoPath },
    /// A local folder.
    Disk { folder: PathBuf },
    /// What an earlier call has read of a commit.
    Kept { repo: RepoId, commit: CommitSha, heads: Arc<CachedHeaders> },
    /// What a local cache holds of a repo.
    Cache { repo: RepoId, snapshot: Snapshot },
}

/// What was read, and the commit it is of, where the server says so.
pub(crate) struct Fetched<T> {
    pub(crate) value: T,
    pub(crate) commit: Option<CommitSha>,
}

/// The files of a store or of a folder in it.
pub(crate) struct Listing {
    pub(crate) files: Vec<ListedFile>,
    /// The commit they are of, where the server says so.
    pub(crate) commit: Option<CommitSha>,
    /// Whether nothing that may be there is left out.
    pub(crate) is_whole: bool,
}

impl Store {
    /// Reads a range of a file. The chunk is shorter than the range only if the file ends in it.
    pub(crate) async fn range(
        &self,
        path: &RepoPath,
        range: &Range<u64>,
        meter: &RequestMeter,
    ) -> Result<Fetched<RangeBytes>, Error> {
        match self.at(path) {
            Place::Web(http, url) => http
                .read_range(&url, range, meter)
                .instrument(self.span(path))
                .await
                .map(|(chunk, trail)| self.fetched(chunk, &trail))
                .map_err(|failure| self.explain(self.name(path), failure)),
            Place::Disk(file) => disk::range(&file, range, meter)
                .await
                .map(|chunk| Fetched { value: chunk, commit: None })
                .map_err(|error| Error::of_io(self.name(path), error)),
            Place::Kept(heads, commit) => heads
                .range(path, range)
                .map(|chunk| Fetched { value: chunk, commit: Some(commit.clone()) })
                .ok_or_else(|| self.not_kept(path)),
            Place::Cache(snapshot) => snapshot
                .range(path, range, meter)
                .await
                .map(|chunk| Fetched { value: chunk, commit: Some(snapshot.commit.clone()) })
                .map_err(|error| self.explain_cache(path, snapshot, error)),
        }
    }

    /// Reads a whole file of at most `limit` bytes.
    pub(crate) async fn whole(
        &self,
        path: &RepoPath,
        limit: u64,
        meter: &RequestMeter,
    ) -> Result<Fetched<Vec<u8>>, Error> {
        match self.at(path) {
            Place::Web(http, url) => http
                .read_all(&url, limit, meter)
                .instrument(self.span(path))
                .await
                .map(|(bytes, trail)| self.fetched(bytes, &trail))
                .map_err(|failure| self.explain(self.name(path), failure)),
            Place::Disk(file) => disk::whole(&file, limit, meter)
                .await
                .map_err(|error| Error::of_io(self.name(path), error))?
                .map(|bytes| Fetched { value: bytes, commit: None })
                .ok_or_else(|| Error::TooLarge { file: self.name(path), limit }),
            Place::Kept(heads, commit) => {
                let bytes = heads.whole(path).ok_or_else(|| self.not_kept(path))?;
                Ok(Fetched { value: bytes.to_vec(), commit: Some(commit.clone()) })
            }
            Place::Cache(snapshot) => snapshot
                .whole(path, limit, meter)
                .await
                .map_err(|error| self.explain_cache(path, snapshot, error))?
                .map(|bytes| Fetched { value: bytes, commit: Some(snapshot.commit.clone()) })
                .ok_or_else(|| Error::TooLarge { file: self.name(path), limit }),
        }
    }

    /// Every file, or every file below a folder; `None` where that cannot be asked for, or the server
    /// does not tell.
    pub(crate) async fn list(
        &self,
        below: Option<&RepoPath>,
        meter: &RequestMeter,
    ) -> Result<Option<Listing>, Error> {
        let (listed, commit) = match self {
            Self::Hub { http, endpoint, repo, revision, .. } => {
                let first = endpoint.tree_url(repo, revision, below);
                let span = debug_span!("listing", %repo);
                return match listing::files(http, first, meter).instrument(span).await {
                    Ok((files, trail)) => {
                        let Fetched { value: files, commit } = self.fetched(files, &trail);
                        Ok(Some(Listing { files, commit, is_whole: true }))
                    }
                    Err(ListFilesError::Fetch(failure)) => self.without_listing(repo, failure),
                    Err(ListFilesError::Listing(source)) => {
                        Err(Error::Listing { place: repo.to_string(), source })
                    }
                };
            }
            Self::Web { .. } => return Ok(None),
            Self::Disk { folder } => {
                (disk::list(folder, below).await.map(|files| (files, true)), None)
            }
            Self::Cache { snapshot, .. } => {
                (snapshot.list(below).await, Some(snapshot.commit.clone()))
            }
            Self::Kept { commit, heads, .. } => {
                let (files, is_whole) = heads.list(below).ok_or_else(|| self.not_listed())?;
                return Ok(Some(Listing { files, commit: Some(commit.clone()), is_whole }));
            }
        };
        match listed.map_err(|error| Error::of_io(self.folder(), error)) {
            Ok((files, is_whole)) => Ok(Some(Listing { files, commit, is_whole })),
            Err(Error::FileNotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether its files are of commits.
    pub(crate) fn has_commits(&self) -> bool {
        matches!(self, Self::Hub { .. } | Self::Cache { .. } | Self::Kept { .. })
    }

    /// The same store, with its branch or tag replaced by the commit that it was found to be.
    pub(crate) fn pinned(mut self, commit: Option<&CommitSha>) -> Self {
        if let (Self::Hub { revision, .. }, Some(commit)) = (&mut self, commit) {
            *revision = commit.into();
        }
        self
    }

    /// The same store, read without the token that it was read with; `None` if there was none.
    pub(crate) fn anonymous(&self) -> Option<Self> {
        let mut store = self.clone();
        if let Self::Hub { http, .. } = &mut store {
            *http = http.anonymous()?;
            return Some(store);
        }
        None
    }

    /// What to call a file of this store in an error.
    pub(crate) fn name(&self, path: &RepoPath) -> String {
        match self {
            Self::Hub { repo, .. } | Self::Cache { repo, .. } | Self::Kept { repo, .. } => {
                format!("{repo}/{path}")
            }
            Self::Web { url, file, .. } => SafeUrl::from(&sibling(url, file, path)).to_string(),
            Self::Disk { folder } => folder.join(path.as_str()).display().to_string(),
        }
    }

    /// What to call all of it in an error.
    fn folder(&self) -> String {
        match self {
            Self::Hub { repo, .. } | Self::Cache { repo, .. } | Self::Kept { repo, .. } => {
                repo.to_string()
            }
            Self::Web { url, .. } => SafeUrl::from(url).to_string(),
            Self::Disk { folder } => folder.display().to_string(),
        }
    }

    /// What all that is asked for a file is told under.
    fn span(&self, path: &RepoPath) -> Span {
        let Self::Hub { repo, .. } = self else {
            return debug_span!("file", file = self.name(path));
        };
        debug_span!("file", %repo, file = %path)
    }

    fn at(&self, path: &RepoPath) -> Place<'_> {
        match self {
            Self::Hub { http, endpoint, repo, revision, .. } => {
                Place::Web(http, endpoint.file_url(repo, revision, path))
            }
            Self::Web { http, url, file } => Place::Web(http, sibling(url, file, path)),
            Self::Disk { folder } => Place::Disk(folder.join(path.as_str())),
            Self::Kept { heads, commit, .. } => Place::Kept(heads, commit),
            Self::Cache { snapshot, .. } => Place::Cache(snapshot),
        }
    }

    /// What was read, with what the Hub says of it on the way.
    fn fetched<T>(&self, value: T, trail: &ResponseChain) -> Fetched<T> {
        if let Self::Hub { notices, .. } = self {
            notices.warn_once(trail.header("x-hf-warning"));
        }
        Fetched { value, commit: commit(trail) }
    }
}

/// One file, and how to reach it.
enum Place<'a> {
    Web(&'a Http, Url),
    Disk(PathBuf),
    Kept(&'a CachedHeaders, &'a CommitSha),
    Cache(&'a Snapshot),
}

/// The commit that an answer is of. The Hub says so on its own answer, the CDN does not; some mirrors
/// say so only on the last one.
fn commit(trail: &ResponseChain) -> Option<CommitSha> {
    trail.header(X_REPO_COMMIT)?.parse().ok()
}

/// The URL of a file in the folder of another. The query is that file's own, often its signature.
fn sibling(url: &Url, file: &RepoPath, other: &RepoPath) -> Url {
    if file == other {
        return url.clone();
    }
    let mut sibling = url.clone();
    sibling.set_query(None);
    if let Ok(mut segments) = sibling.path_segments_mut() {
        segments.pop().extend(other.segments());
    }
    sibling
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_on_the_web() {
        let url = Url::parse("https://example.org/a/model.safetensors.index.json?sig=x").unwrap();
        let path = |text: &str| text.parse::<RepoPath>().unwrap();
        let file = path("model.safetensors.index.json");
        assert_eq!(sibling(&url, &file, &file), url);
        let shard = sibling(&url, &file, &path("b/x y%.safetensors"));
        assert_eq!(shard.as_str(), "https://example.org/a/b/x%20y%25.safetensors");
    }
}
