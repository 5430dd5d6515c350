//! What `huggingface_hub` keeps of a repo on disk.
//!
//! ```text
//! models--org--name/refs/main                          the commit that `main` was
//! models--org--name/snapshots/<commit>/x.safetensors   -> ../../blobs/<hash>, or the file itself
//! models--org--name/blobs/<hash>                       the file, or -> ../../blobs/<xx>/<xet hash>
//! models--org--name/trees/<commit>.json                what files the commit has, downloaded or not
//! blobs/<xx>/<xet hash>                                files that several repos share
//! ```
//!
//! A snapshot holds what was downloaded, which may be a part of the repo. Links are followed as long as
//! they stay inside the repo's folder or lead to the shared blobs; no other is made by `huggingface_hub`
//! (2.4.0).

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use tokio::fs;

use crate::backends::disk;
use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::http::transfer::{RangeBytes, RequestMeter};
use crate::hub::{CommitSha, RepoId, Revision};

/// The most bytes of a file in `refs`, which holds 40.
const LONGEST_REF: u64 = 100;

/// The most bytes of a file in `trees`, some 300 for each file of the repo.
const LONGEST_TREE: u64 = 64_000_000;

/// What a cache lacks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{path}` {reason}")]
#[non_exhaustive]
pub struct SnapshotError {
    /// A file or a folder in the cache.
    pub path: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// The files of a commit that are on disk.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) commit: CommitSha,
    folder: PathBuf,
    /// The file that says what the commit has, if it is there.
    tree: PathBuf,
    /// Folders that no link may lead out of.
    roots: Vec<PathBuf>,
}

impl Snapshot {
    /// The snapshot of a revision in a cache. A commit names itself; for a branch or a tag, the cache
    /// says what it was when something of it was last downloaded.
    pub(crate) async fn find(
        cache: &Path,
        repo: &RepoId,
        revision: &Revision,
    ) -> Result<Self, SnapshotError> {
        let name = repo.name().replace('/', "--");
        let home = cache.join(format!("{}--{name}", repo.kind().plural()));
        let real = fs::canonicalize(&home).await.map_err(|_| lacks(&home, "is not there"))?;
        let commit = match revision.as_str().parse() {
            Ok(commit) => commit,
            Err(_) => commit_of(&home, revision).await?,
        };
        let folder = home.join("snapshots").join(commit.as_str());
        if !fs::metadata(&folder).await.is_ok_and(|metadata| metadata.is_dir()) {
            return Err(lacks(&folder, "is not there"));
        }
        let shared = fs::canonicalize(cache.join("blobs")).await.ok();
        let tree = home.join("trees").join(format!("{commit}.json"));
        Ok(Self { commit, folder, tree, roots: [real].into_iter().chain(shared).collect() })
    }

    pub(crate) async fn range(
        &self,
        path: &RepoPath,
        range: &Range<u64>,
        meter: &RequestMeter,
    ) -> io::Result<RangeBytes> {
        disk::range(&self.file(path).await?, range, meter).await
    }

    pub(crate) async fn whole(
        &self,
        path: &RepoPath,
        limit: u64,
        meter: &RequestMeter,
    ) -> io::Result<Option<Vec<u8>>> {
        disk::whole(&self.file(path).await?, limit, meter).await
    }

    /// The files of the commit, and whether these are all of it or those that were downloaded.
    pub(crate) async fn list(
        &self,
        below: Option<&RepoPath>,
    ) -> io::Result<(Vec<ListedFile>, bool)> {
        match self.tree().await {
            Some(files) => {
                Ok((files.into_iter().filter(|file| file.is_below(below)).collect(), true))
            }
            None => Ok((disk::list(&self.folder, below).await?, false)),
        }
    }

    /// The listing that whoever downloads a whole repo leaves behind.
    async fn tree(&self) -> Option<Vec<ListedFile>> {
        let json = disk::whole(&self.tree, LONGEST_TREE, &RequestMeter::default()).await.ok()??;
        let tree: Tree = serde_json::from_slice(&json).ok()?;
        let file = |(path, file): (String, TreeFile)| {
            Some(ListedFile { path: path.parse().ok()?, size: file.lfs_size.unwrap_or(file.size) })
        };
        (tree.format_version == 1).then(|| tree.files.into_iter().filter_map(file).collect())
    }

    /// What to say of a file that is not there: it may be in the repo all the same.
    pub(crate) fn lacks_file(&self) -> SnapshotError {
        lacks(&self.folder, "does not hold it; only what was downloaded is there")
    }

    /// What to say of shards that are not all there.
    pub(crate) fn lacks_shards(&self) -> SnapshotError {
        lacks(&self.folder, "does not hold all of them; only what was downloaded is there")
    }

    /// The place of a file, with all links followed.
    async fn file(&self, path: &RepoPath) -> io::Result<PathBuf> {
        let file = fs::canonicalize(self.folder.join(path.as_str())).await?;
        if self.roots.iter().any(|root| file.starts_with(root)) {
            return Ok(file);
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is a link that leads out of the cache",
        ))
    }
}

#[derive(Deserialize)]
struct Tree {
    format_version: u64,
    files: BTreeMap<String, TreeFile>,
}

#[derive(Deserialize)]
struct TreeFile {
    size: u64,
    lfs_size: Option<u64>,
}

/// The commit that a branch, a tag or another ref was.
async fn commit_of(home: &Path, revision: &Revision) -> Result<CommitSha, SnapshotError> {
    let refs = home.join("refs");
    // A revision is any text; only as a plain path it names a file in that folder.
    let Ok(path) = revision.as_str().parse::<RepoPath>() else {
        return Err(lacks(&refs, "does not hold the revision"));
    };
    let file = refs.join(path.as_str());
    let text = disk::whole(&file, LONGEST_REF, &RequestMeter::default()).await;
    let Ok(text) = text else { return Err(lacks(&file, "is not there")) };
    let commit = text.and_then(|text| std::str::from_utf8(&text).ok()?.trim().parse().ok());
    commit.ok_or_else(|| lacks(&file, "does not hold a commit"))
}

fn lacks(path: &Path, reason: &'static str) -> SnapshotError {
    SnapshotError { path: path.display().to_string(), reason }
}
