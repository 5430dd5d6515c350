//! The search for weights: first under the two usual names, then in a listing.

use std::pin::pin;

use futures::future::{Either, select};

use super::{Found, Load, Weights};
use crate::backends::{FileListing, pinned};
use crate::error::{BoxError, Error};
use crate::formats::RepoPath;
use crate::formats::safetensors::PREFIX_LENGTH;
use crate::formats::weight_sets::{Layout, OtherWeights, WeightSet};
use crate::hub::{CommitSha, HubError};

/// The usual names of weights, in most repositories.
pub(super) const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

impl Load {
    /// Finds the weights in a folder, or in the whole backend.
    pub(super) async fn search(&self, folder: Option<&RepoPath>) -> Result<Found, Error> {
        let names = [SINGLE, INDEX].map(|name| RepoPath::within(folder, name));
        match self.find_either(&names).await {
            Err(Error::FileNotFound { source, .. }) => {
                self.search_listing(folder, &names, source).await
            }
            found => found,
        }
    }

    /// Requests both usual names concurrently: one after the other would cost every sharded repository a
    /// round trip. If both exist, the single file is the one that loaders read, and the index is dropped.
    async fn find_either(&self, [single, index]: &[RepoPath; 2]) -> Result<Found, Error> {
        let file = pin!(self.find_file(single));
        let shards = pin!(self.find_index(index));
        match select(file, shards).await {
            Either::Left((Err(Error::FileNotFound { .. }), shards)) => shards.await,
            Either::Left((file, _)) => file,
            Either::Right((shards, file)) => {
                let (shards, file) = match shards {
                    Ok(Found { weights, .. }) => {
                        let (weights, file) = weights.poll_alongside(file).await;
                        (Ok(Found::just(weights)), file)
                    }
                    Err(error) => (Err(error), file.await),
                };
                match file {
                    Err(Error::FileNotFound { .. }) => shards,
                    file => file,
                }
            }
        }
    }

    /// Finds the weights under another name, in a listing.
    async fn search_listing(
        &self,
        folder: Option<&RepoPath>,
        missing: &[RepoPath; 2],
        source: BoxError,
    ) -> Result<Found, Error> {
        let known = source.downcast_ref().and_then(commit_of);
        let listed = self.pinned(known).list(folder).await?;
        let Some(FileListing { files, commit, is_complete: is_whole }) = listed else {
            return Err(self.no_safetensors(missing, Vec::new(), source));
        };
        let layout = Layout::of(folder, &files);
        match layout.main() {
            // It is listed, but its request has just failed; another request would fail, too.
            Some(set) if missing.contains(&set.path) => {
                Err(self.no_safetensors(missing, layout.others, source))
            }
            Some(set) => {
                let weights = self.find_set(set, known.cloned().or(commit)).await?;
                Ok(Found { weights, other_sets: Some(layout.sets), is_whole })
            }
            None if layout.sets.is_empty() => {
                Err(self.no_safetensors(missing, layout.others, source))
            }
            None => Err(Error::SeveralSets { place: self.source.clone(), sets: layout.sets }),
        }
    }

    /// Finds the shards of a path with a `*` in place of their number.
    pub(super) async fn find_shards(&self, path: &RepoPath) -> Result<Found, Error> {
        let folder = path.folder();
        let not_found = || Error::FileNotFound {
            file: self.backend.file_name(path),
            source: "no such shards are listed".into(),
        };
        let listed = self.list(folder.as_ref()).await?.ok_or_else(not_found)?;
        let layout = Layout::of(folder.as_ref(), &listed.files);
        let set = layout.find(path).ok_or_else(not_found)?;
        let weights = self.find_set(set, listed.commit).await?;
        Ok(Found::just(weights))
    }

    /// Lists all sets of weights in the target's folder. Returns `None` if files cannot be listed.
    pub(super) async fn list_sets(&self) -> Result<Option<Vec<WeightSet>>, Error> {
        let folder = self.target.folder();
        let listed = self.list(folder).await?;
        if listed.is_none() {
            tracing::warn!(source = %self.source, "its files cannot be listed");
        }
        Ok(listed.map(|listed| Layout::of(folder, &listed.files).sets))
    }

    /// Starts to read a set, at a commit if it is known.
    async fn find_set(&self, set: &WeightSet, commit: Option<CommitSha>) -> Result<Weights, Error> {
        let load = self.pinned(commit.as_ref());
        if !set.is_without_index() {
            let is_index = set.path.is_index();
            let found = if is_index {
                load.find_index(&set.path).await
            } else {
                load.find_file(&set.path).await
            };
            return found.map(|found| found.weights);
        }
        let shards = set.shards().map_err(|total| self.backend.missing_shards(set, total))?;
        let commit = match commit {
            Some(commit) => Some(commit),
            // A listing may lack the commit; every file has it.
            None => load.backend.read_range(&shards[0], 0..PREFIX_LENGTH).await?.commit,
        };
        Ok(Weights::Shards { path: set.path.clone(), shards, commit })
    }

    /// Lists the files of the backend or of a folder.
    async fn list(&self, folder: Option<&RepoPath>) -> Result<Option<FileListing>, Error> {
        self.backend.list(folder).await
    }

    fn no_safetensors(
        &self,
        [single, index]: &[RepoPath; 2],
        instead: Vec<OtherWeights>,
        source: BoxError,
    ) -> Error {
        let (single, index) = (single.to_string(), index.to_string());
        Error::NoSafetensors { place: self.source.clone(), single, index, instead, source }
    }

    fn pinned(&self, commit: Option<&CommitSha>) -> Self {
        Self { backend: pinned(&self.backend, commit), ..self.clone() }
    }
}

/// Returns the commit of a response that says that a file is missing.
fn commit_of(response: &HubError) -> Option<&CommitSha> {
    response.commit.as_ref()
}
