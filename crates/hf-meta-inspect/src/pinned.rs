//! Files that are pinned to a commit.

use std::ops::Range;
use std::sync::Arc;

use hf_meta_format::CommitSha;
use hf_meta_format::formats::RepoPath;

use super::error::Error;
use super::files::{Files, Loaded, Part};

/// Files at the commit of the first response, so that a push during the call has no effect.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    /// The files, which are requested at the commit.
    pub(crate) files: Arc<dyn Files>,
    /// `None` if no response reported a commit.
    pub(crate) commit: Option<CommitSha>,
}

impl Pinned {
    /// Pins files to a commit, if it is known.
    pub(crate) fn new(files: &Arc<dyn Files>, commit: Option<CommitSha>) -> Self {
        let pinned = commit.as_ref().and_then(|commit| files.at_commit(commit));
        Self { files: pinned.unwrap_or_else(|| files.clone()), commit }
    }

    /// Reads a range of a file.
    pub(crate) async fn read(&self, path: &RepoPath, range: Range<u64>) -> Result<Part, Error> {
        let part = self.files.read(path, range).await?;
        self.check(path, part.commit.as_ref())?;
        Ok(part)
    }

    /// Reads a whole file of at most `limit` bytes.
    pub(crate) async fn load(&self, path: &RepoPath, limit: u64) -> Result<Loaded, Error> {
        let loaded = self.files.load(path, limit).await?;
        self.check(path, loaded.commit.as_ref())?;
        Ok(loaded)
    }

    /// Returns an error if a file belongs to another commit.
    pub(crate) fn check(&self, path: &RepoPath, found: Option<&CommitSha>) -> Result<(), Error> {
        match (&self.commit, found) {
            (Some(pinned), Some(found)) if pinned != found => {
                let file = self.files.file_name(path);
                let message = format!("expected `{file}` at commit {pinned}, got commit {found}");
                Err(Error::Changed { message })
            }
            _ => Ok(()),
        }
    }
}
