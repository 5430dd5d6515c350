//! A repository in the disk cache of `huggingface_hub`, read without any requests.
//!
//! ```text
//! models--org--name/refs/main                          the commit that `main` pointed to
//! models--org--name/snapshots/<commit>/x.safetensors   -> ../../blobs/<hash>, or the file itself
//! models--org--name/blobs/<hash>                       the file, or -> ../../blobs/<xx>/<xet hash>
//! models--org--name/trees/<commit>.json                the files of the commit, downloaded or not
//! blobs/<xx>/<xet hash>                                files that several repositories share
//! ```
//!
//! A snapshot contains the downloaded files, which may be only some of the repository's files. Links are followed if
//! they stay inside the repository's folder or lead to the shared blobs; `huggingface_hub` 2.4.0 creates no others.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use hf_meta_format::formats::RepoPath;
use hf_meta_format::formats::weight_sets::{ListedFile, WeightSet};
use hf_meta_inspect::{Listing, Loaded, OpenIndex};
use serde::Deserialize;
use tokio::fs;

use super::source::{Fetch, Fetched, FileSource, ListFuture};
use super::{HubRepo, Origin, store};
use crate::base::FilePart;
use crate::base::blocking::spawn_blocking_if_large;
use crate::base::budget::CallBudget;
use crate::cache::HeaderBytes;
use crate::error::{Error, HubCacheMiss, shared};
use crate::hub::{CommitSha, RepoId, Revision};

/// The maximum size of a file in `refs`, in bytes. A commit has 40 digits.
const MAX_REF_BYTES: u64 = 100;

/// The maximum size of a file in `trees`, in bytes. Each file of a repository takes about 300. A longer one is cut, so that
/// it cannot be parsed.
const MAX_TREE_BYTES: u64 = 64_000_000;

/// A revision of a repository, read offline: the downloaded files of its commit. If nothing was downloaded, every
/// read fails, and only our own header cache can serve the call.
#[derive(Debug)]
pub(crate) struct OfflineRepo {
    /// The repository on the Hub. It is used for names and cache keys, never for requests.
    pub(super) hub: HubRepo,
    snapshot: Result<Snapshot, HubCacheMiss>,
}

/// The downloaded files of one commit.
#[derive(Debug)]
struct Snapshot {
    commit: CommitSha,
    folder: PathBuf,
    /// The JSON file that lists all files of the commit. It may not exist.
    tree: PathBuf,
    /// The folders that links may point into.
    roots: Vec<PathBuf>,
}

impl OfflineRepo {
    /// Finds the snapshot of a revision in a cache folder. For a branch or a tag, this is the commit of the last
    /// download.
    pub(crate) async fn find(cache: &Path, hub: HubRepo) -> Self {
        let snapshot = Snapshot::find(cache, &hub.repo, &hub.revision).await;
        Self { hub, snapshot }
    }

    /// Returns the error for a set of weights that was not downloaded completely.
    pub(crate) fn missing_shards(&self, set: &WeightSet) -> Error {
        let reason = "does not contain all shards; only downloaded files can be read";
        let not_downloaded = |snapshot: &Snapshot| {
            let source = shared(missing(&snapshot.folder, reason));
            Error::FileNotFound { file: self.file_name(&set.path), source }
        };
        self.snapshot().map_or_else(|error| error, not_downloaded)
    }

    fn snapshot(&self) -> Result<&Snapshot, Error> {
        self.snapshot.as_ref().map_err(|source| Error::NotCached {
            repo: self.hub.repo.clone(),
            revision: self.hub.revision.clone(),
            source: source.clone(),
        })
    }

    /// Returns the commit and the path of a file, with all links resolved.
    async fn file(&self, path: &RepoPath) -> Result<(CommitSha, PathBuf), Error> {
        let Snapshot { commit, folder, roots, .. } = self.snapshot()?;
        let resolved = match fs::canonicalize(folder.join(path.as_str())).await {
            Ok(file) if !roots.iter().any(|root| file.starts_with(root)) => {
                let reason = "it is a link that leads outside the cache";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
            }
            resolved => resolved,
        };
        match resolved.map_err(|error| Error::from_io(self.file_name(path), error)) {
            // The repository itself may still have the file.
            Err(Error::FileNotFound { file, .. }) => {
                let source = "does not contain it; only downloaded files can be read";
                Err(Error::FileNotFound { file, source: shared(missing(folder, source)) })
            }
            resolved => resolved.map(|file| (commit.clone(), file)),
        }
    }
}

impl Snapshot {
    async fn find(cache: &Path, repo: &RepoId, revision: &Revision) -> Result<Self, HubCacheMiss> {
        let name = repo.name().replace('/', "--");
        let home = cache.join(format!("{}--{name}", repo.kind().plural()));
        let real = fs::canonicalize(&home).await.map_err(|_| missing(&home, "does not exist"))?;
        let commit = match revision.as_str().parse() {
            Ok(commit) => commit,
            Err(_) => read_ref(&home, revision).await?,
        };
        let folder = home.join("snapshots").join(commit.as_str());
        if !fs::metadata(&folder).await.is_ok_and(|metadata| metadata.is_dir()) {
            return Err(missing(&folder, "does not exist"));
        }
        let shared = fs::canonicalize(cache.join("blobs")).await.ok();
        let tree = home.join("trees").join(format!("{commit}.json"));
        Ok(Self { commit, folder, tree, roots: [real].into_iter().chain(shared).collect() })
    }

    /// Reads the listing that is saved when a whole repository is downloaded.
    async fn listed(&self) -> Option<Vec<ListedFile>> {
        let (json, _) = store::read_range(&self.tree, 0..MAX_TREE_BYTES).await.ok()?;
        let tree: CommitTree = serde_json::from_slice(&json.bytes).ok()?;
        let file = |(path, file): (String, CommitFile)| {
            Some(ListedFile { path: path.parse().ok()?, size: file.lfs_size.unwrap_or(file.size) })
        };
        (tree.format_version == 1).then(|| tree.files.into_iter().filter_map(file).collect())
    }
}

impl FileSource for OfflineRepo {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, FilePart> {
        async move {
            let (commit, file) = self.file(path).await?;
            let read = store::read_range(&file, range).await;
            let (read, _) = read.map_err(|error| Error::from_io(self.file_name(path), error))?;
            self.hub.http.meter.count_bytes(read.bytes.len());
            Ok(Fetched::new(read, Some(commit)))
        }
        .boxed()
    }

    /// Lists all files of the commit if a saved listing exists, or else the downloaded files.
    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        async move {
            let snapshot = self.snapshot()?;
            let commit = Some(snapshot.commit.clone());
            if let Some(files) = snapshot.listed().await {
                return Ok(Some(Listing { files, commit, is_complete: true }));
            }
            let listed = store::list(&snapshot.folder, folder).await;
            let files = listed.map_err(|error| Error::from_io(self.hub.repo.to_string(), error))?;
            Ok(files.map(|files| Listing { files, commit, is_complete: false }))
        }
        .boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.hub.file_name(path)
    }
}

#[derive(Deserialize)]
struct CommitTree {
    format_version: u64,
    files: BTreeMap<String, CommitFile>,
}

#[derive(Deserialize)]
struct CommitFile {
    size: u64,
    lfs_size: Option<u64>,
}

/// Reads the commit of a branch, a tag or another ref.
async fn read_ref(home: &Path, revision: &Revision) -> Result<CommitSha, HubCacheMiss> {
    let refs = home.join("refs");
    // A revision can be any text. Only a plain relative path names a file in that folder.
    let Ok(path) = revision.as_str().parse::<RepoPath>() else {
        return Err(missing(&refs, "does not contain the revision"));
    };
    let file = refs.join(path.as_str());
    let text = store::read_range(&file, 0..MAX_REF_BYTES).await;
    let (text, _) = text.map_err(|_| missing(&file, "does not exist"))?;
    let commit = std::str::from_utf8(&text.bytes).ok().and_then(|text| text.trim().parse().ok());
    commit.ok_or_else(|| missing(&file, "does not contain a commit"))
}

fn missing(path: &Path, reason: &'static str) -> HubCacheMiss {
    HubCacheMiss::new(path.display().to_string(), reason)
}

/// A cached commit of a repository. It serves only what an earlier call has read.
///
/// Ranges are truncated at the end of the cached bytes, which is the end of the header.
#[derive(Debug)]
pub(crate) struct CachedCommit {
    /// The origin that the bytes were read from, for names.
    pub(crate) origin: Origin,
    pub(crate) bytes: HeaderBytes,
    pub(crate) budget: CallBudget,
}

fn not_cached(file: String) -> Error {
    Error::FileNotFound { file, source: shared("it is not cached") }
}

impl FileSource for CachedCommit {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, FilePart> {
        async move {
            let missing = || not_cached(self.file_name(path));
            let file = self.bytes.headers.file(path).ok_or_else(missing)?;
            let length = range.end.min(file.start.length);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let read = spawn_blocking_if_large(length, move || file.range(&range)).await;
            Ok(Fetched::new(read.ok_or_else(missing)?, Some(self.bytes.commit.clone())))
        }
        .boxed()
    }

    /// Decompresses the whole index, within the budget of the call.
    fn open_index<'a>(
        &'a self,
        path: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
        async move {
            let length = self.bytes.headers.file(path).map_or(0, |file| file.start.length);
            self.budget.admit_bytes(length).await?;
            let Fetched { value, commit, .. } = self.load(path, limit).await?;
            Ok(OpenIndex::complete(Loaded { bytes: Arc::new(value), commit }))
        }
        .boxed()
    }

    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        let listed = self.bytes.headers.listing(folder);
        let commit = Some(self.bytes.commit.clone());
        let listing = |(files, is_complete)| Some(Listing { files, commit, is_complete });
        let listing = listed.map(listing).ok_or_else(|| not_cached("list of files".to_owned()));
        ready(listing).boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        self.origin.files().file_name(path)
    }
}
