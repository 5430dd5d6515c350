//! A repository in the disk cache of `huggingface_hub`.
//!
//! ```text
//! models--org--name/refs/main                          the commit that `main` pointed to
//! models--org--name/snapshots/<commit>/x.safetensors   -> ../../blobs/<hash>, or the file itself
//! models--org--name/blobs/<hash>                       the file, or -> ../../blobs/<xx>/<xet hash>
//! models--org--name/trees/<commit>.json                the files of the commit, downloaded or not
//! blobs/<xx>/<xet hash>                                files that several repositories share
//! ```
//!
//! A snapshot holds the files that were downloaded, which may be a part of the repository. Links are
//! followed if they stay inside the repository's folder or lead to the shared blobs; `huggingface_hub`
//! 2.4.0 makes no others.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use futures::future::FutureExt;
use serde::Deserialize;
use tokio::fs;

use super::{Backend, Fetch, Fetched, FileListing, ListFuture, disk};
use crate::error::{Error, SnapshotError};
use crate::formats::RepoPath;
use crate::formats::weight_sets::{ListedFile, WeightSet};
use crate::http::transfer::{RangeBytes, RequestMeter};
use crate::hub::{CommitSha, RepoId, Revision};

/// The limit of a file in `refs`, in bytes. A commit has 40.
const REF_LIMIT: u64 = 100;

/// The limit of a file in `trees`, in bytes. Each file of a repository takes about 300.
const TREE_LIMIT: u64 = 64_000_000;

/// The files of one commit that were downloaded.
#[derive(Clone, Debug)]
pub(crate) struct HubCacheSnapshot {
    repo: RepoId,
    commit: CommitSha,
    folder: PathBuf,
    /// The file that lists all files of the commit, if it exists.
    tree: PathBuf,
    /// The folders that links may lead to.
    roots: Vec<PathBuf>,
    meter: RequestMeter,
}

impl HubCacheSnapshot {
    /// Finds the snapshot of a revision in a cache folder. For a branch or a tag, it is the commit at the
    /// time of the last download.
    ///
    /// # Errors
    ///
    /// The missing part if the cache has no such snapshot.
    pub(crate) async fn find(
        cache: &Path,
        repo: RepoId,
        revision: &Revision,
        meter: RequestMeter,
    ) -> Result<Self, SnapshotError> {
        let (commit, home) = locate(cache, &repo, revision).await?;
        let real = fs::canonicalize(&home).await.ok();
        let shared = fs::canonicalize(cache.join("blobs")).await.ok();
        let folder = home.join("snapshots").join(commit.as_str());
        let tree = home.join("trees").join(format!("{commit}.json"));
        let roots = real.into_iter().chain(shared).collect();
        Ok(Self { repo, commit, folder, tree, roots, meter })
    }

    fn fetched<T>(&self, value: T) -> Fetched<T> {
        Fetched::new(value, Some(self.commit.clone()))
    }

    /// Returns the path of a file with all links followed.
    async fn file(&self, path: &RepoPath) -> Result<PathBuf, Error> {
        let file = fs::canonicalize(self.folder.join(path.as_str())).await;
        match file.map_err(|error| Error::from_io(self.file_name(path), error)) {
            Ok(file) if self.roots.iter().any(|root| file.starts_with(root)) => Ok(file),
            Ok(_) => Err(Error::Read {
                file: self.file_name(path),
                source: io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "it is a link that leads out of the cache",
                ),
            }),
            // The repository may have it all the same.
            Err(Error::FileNotFound { file, .. }) => {
                let source = "does not hold it; only downloaded files can be read";
                Err(Error::FileNotFound { file, source: missing(&self.folder, source).into() })
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the listing that a download of a whole repository leaves behind.
    async fn tree(&self) -> Option<Vec<ListedFile>> {
        let meter = RequestMeter::default();
        let json = disk::read_whole(&self.tree, String::new(), TREE_LIMIT, &meter).await.ok()?;
        let tree: CommitTree = serde_json::from_slice(&json).ok()?;
        let file = |(path, file): (String, CommitFile)| {
            Some(ListedFile { path: path.parse().ok()?, size: file.lfs_size.unwrap_or(file.size) })
        };
        (tree.format_version == 1).then(|| tree.files.into_iter().filter_map(file).collect())
    }
}

impl Backend for HubCacheSnapshot {
    fn read_range<'a>(&'a self, path: &'a RepoPath, range: Range<u64>) -> Fetch<'a, RangeBytes> {
        async move {
            let chunk = disk::read_range(&self.file(path).await?, &range, &self.meter).await;
            chunk
                .map(|chunk| self.fetched(chunk))
                .map_err(|error| Error::from_io(self.file_name(path), error))
        }
        .boxed()
    }

    fn read_whole<'a>(&'a self, path: &'a RepoPath, limit: u64) -> Fetch<'a, Vec<u8>> {
        async move {
            let (file, name) = (self.file(path).await?, self.file_name(path));
            Ok(self.fetched(disk::read_whole(&file, name, limit, &self.meter).await?))
        }
        .boxed()
    }

    /// Lists all files of the commit, or else those that were downloaded.
    fn list<'a>(&'a self, folder: Option<&'a RepoPath>) -> ListFuture<'a> {
        async move {
            let commit = Some(self.commit.clone());
            if let Some(mut files) = self.tree().await {
                files.retain(|file| file.is_below(folder));
                return Ok(Some(FileListing { files, commit, is_complete: true }));
            }
            let files = disk::list(&self.folder, self.name(), folder).await?;
            Ok(files.map(|files| FileListing { files, commit, is_complete: false }))
        }
        .boxed()
    }

    fn file_name(&self, path: &RepoPath) -> String {
        format!("{}/{path}", self.repo)
    }

    fn name(&self) -> String {
        self.repo.to_string()
    }

    fn has_commits(&self) -> bool {
        true
    }

    fn missing_shards(&self, set: &WeightSet, _total: u32) -> Error {
        let source = "does not hold all of them; only downloaded files can be read";
        let source = missing(&self.folder, source).into();
        Error::FileNotFound { file: self.file_name(&set.path), source }
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

/// Returns the commit of a revision, and the repository's folder.
async fn locate(
    cache: &Path,
    repo: &RepoId,
    revision: &Revision,
) -> Result<(CommitSha, PathBuf), SnapshotError> {
    let name = repo.name().replace('/', "--");
    let home = cache.join(format!("{}--{name}", repo.kind().plural()));
    fs::metadata(&home).await.map_err(|_| missing(&home, "does not exist"))?;
    let commit = match revision.as_str().parse() {
        Ok(commit) => commit,
        Err(_) => read_ref(&home, revision).await?,
    };
    let folder = home.join("snapshots").join(commit.as_str());
    match fs::metadata(&folder).await {
        Ok(metadata) if metadata.is_dir() => Ok((commit, home)),
        _ => Err(missing(&folder, "does not exist")),
    }
}

/// Reads the commit of a branch, a tag or another ref.
async fn read_ref(home: &Path, revision: &Revision) -> Result<CommitSha, SnapshotError> {
    let refs = home.join("refs");
    // A revision is any text; only a plain path names a file in that folder.
    let Ok(path) = revision.as_str().parse::<RepoPath>() else {
        return Err(missing(&refs, "does not hold the revision"));
    };
    let file = refs.join(path.as_str());
    let text = disk::read_whole(&file, String::new(), REF_LIMIT, &RequestMeter::default()).await;
    let text = match text {
        Ok(text) => text,
        Err(Error::TooLarge { .. }) => Vec::new(),
        Err(_) => return Err(missing(&file, "does not exist")),
    };
    let commit = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    commit.ok_or_else(|| missing(&file, "does not hold a commit"))
}

fn missing(path: &Path, reason: &'static str) -> SnapshotError {
    SnapshotError { path: path.display().to_string(), reason }
}
