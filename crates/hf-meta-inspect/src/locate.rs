//! Locates the weights: first by the two standard names, then in a listing.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use hf_meta_count::results::Plan;
use hf_meta_count::steps::Target;
use hf_meta_format::CommitSha;
use hf_meta_format::formats::safetensors::{INDEX_NAME, WEIGHTS_NAME};
use hf_meta_format::formats::weight_sets::{IncompleteShards, ListedWeights, WeightSet};
use hf_meta_format::formats::{FileHeader, RepoPath, clip};

use super::call::Call;
use super::error::{Error, QuantizationNotFound, SharedError, shared};
use super::files::{Files, Listing, OpenIndex, Part};
use super::pinned::Pinned;
use super::request_error::HubError;

/// A listing of files, and the weight sets in it.
pub(crate) struct Listed {
    pub(crate) weights: ListedWeights,
    pub(crate) listing: Listing,
}

/// The weights that a target resolves to, and the files at their commit.
pub struct Located {
    /// The path of the file or the index, or the pattern of shards without an index.
    pub(crate) path: RepoPath,
    pub(crate) weights: FoundWeights,
    pub(crate) files: Pinned,
    /// The files in the target's folder, if it was listed.
    pub(crate) listed: Option<ListedWeights>,
    /// True unless an incomplete listing was used.
    pub(crate) is_complete: bool,
}

impl Located {
    /// Creates the result for weights that were found without a listing.
    pub(crate) fn new(
        files: &Arc<dyn Files>,
        path: RepoPath,
        weights: FoundWeights,
        commit: Option<CommitSha>,
    ) -> Self {
        let files = Pinned::new(files, commit);
        Self { path, weights, files, listed: None, is_complete: true }
    }

    /// Returns the commit of a weight file or an index, whose response shows that this reader may read it. A listing of
    /// shards may be open to readers who may not read the shards.
    pub fn readable_commit(&self) -> Option<&CommitSha> {
        let is_read =
            matches!(self.weights, FoundWeights::File { .. } | FoundWeights::Index { .. });
        if is_read { self.files.commit.as_ref() } else { None }
    }

    /// Adds the listing that contains the weights.
    fn with_listing(self, Listed { weights: listed, listing }: Listed) -> Self {
        Self { listed: Some(listed), is_complete: listing.is_complete, ..self }
    }

    /// Drives another future while the weights arrive.
    pub(crate) async fn poll_alongside<T>(self, other: impl Future<Output = T>) -> (Self, T) {
        let FoundWeights::Index { index } = self.weights else {
            return (self, other.await);
        };
        let (index, other) = index.poll_alongside(other).await;
        (Self { weights: FoundWeights::Index { index }, ..self }, other)
    }
}

/// A set of weights, and the part of it that has already been read.
pub(crate) enum FoundWeights {
    /// The start of a weight file.
    File { start: Part },
    /// The start of an index.
    Index { index: OpenIndex },
    /// The paths of shards without an index.
    Shards { shards: Vec<RepoPath> },
    /// All headers, as parsed by the Hub.
    Headers { headers: Vec<(RepoPath, FileHeader)> },
}

impl Call {
    /// Finds the weights, and pins the files to their commit.
    ///
    /// # Errors
    ///
    /// Returns an error if the target cannot be read, or contains no weights, or several sets to choose from.
    pub async fn locate(&self) -> Result<Located, Error> {
        match Box::pin(self.find_parsed_headers()).await? {
            Some(located) => Ok(located),
            None => Box::pin(self.locate_files()).await,
        }
    }

    /// Finds the weights like [`locate`](Self::locate), but not as parsed by the Hub.
    pub(crate) async fn locate_files(&self) -> Result<Located, Error> {
        let located = Box::pin(self.find()).await?;
        if !self.settings.list_sets || located.listed.is_some() {
            return Ok(located);
        }
        let files = located.files.clone();
        let (found, listed) = located.poll_alongside(self.list_target_of(&files)).await;
        let listed = listed?.map(|listed| listed.weights);
        Ok(Located { listed, ..found })
    }

    async fn find(&self) -> Result<Located, Error> {
        match &self.settings.target {
            Target::File(path) => self.find_path(&self.files, path).await,
            Target::Shards(path) => self.find_shards(path).await,
            Target::Folder(None) => self.search(None).await,
            Target::Folder(Some(folder)) => self.find_folder(folder).await,
            Target::Quantization(name) => self.find_quantization(name).await,
        }
    }

    /// Starts reading a weight file or an index.
    async fn find_path(&self, files: &Arc<dyn Files>, path: &RepoPath) -> Result<Located, Error> {
        let settings = &self.settings;
        if path.is_index() {
            let index = files.open_index(path, settings.limits.index).await?;
            let (commit, weights) = (index.commit.clone(), FoundWeights::Index { index });
            return Ok(Located::new(&self.files, path.clone(), weights, commit));
        }
        let first = settings.plan.first_range(&settings.formats, path);
        let start = files.read(path, first).await?;
        let (commit, weights) = (start.commit.clone(), FoundWeights::File { start });
        Ok(Located::new(&self.files, path.clone(), weights, commit))
    }

    /// Finds the weights in a folder, or in the whole source.
    pub(crate) async fn search(&self, folder: Option<&RepoPath>) -> Result<Located, Error> {
        let names = [WEIGHTS_NAME, INDEX_NAME].map(|name| RepoPath::join(folder, name));
        if self.settings.formats.safetensors().is_none() {
            return self.find_main(folder).await;
        }
        if let Some(listing) = self.known_files(folder) {
            return self.search_known(folder, &names, listing).await;
        }
        match self.find_either(&names).await {
            Err(Error::FileNotFound { source, .. }) => {
                self.search_listing(folder, &names, source).await
            }
            found => found,
        }
    }

    /// Finds the weights in a known listing, without probing for names.
    async fn search_known(
        &self,
        folder: Option<&RepoPath>,
        names: &[RepoPath; 2],
        listing: Listing,
    ) -> Result<Located, Error> {
        let listed = self.listed(folder, listing).await;
        let standard = names.iter().find_map(|name| listed.weights.find(name));
        let main = standard.map_or_else(|| self.main_set(&listed.weights), |set| Ok(Some(set)))?;
        let not_found = || self.no_safetensors(names, &listed.weights, shared("it is not listed"));
        let set = main.ok_or_else(not_found)?;
        if set.quantization.is_some() {
            // Choosing between quantizations needs file sizes, and only a listing from the Hub has them.
            return self.find_main(folder).await;
        }
        let found = self.find_set(set, listed.listing.commit.clone()).await?;
        let is_listed = standard.is_none() || self.settings.list_sets;
        Ok(if is_listed { found.with_listing(listed) } else { found })
    }

    /// Requests both standard names concurrently: doing so sequentially would cost every sharded repository a round
    /// trip. If both exist, the single file wins, as in the loaders, and the index is dropped.
    async fn find_either(&self, [single, index]: &[RepoPath; 2]) -> Result<Located, Error> {
        let file = pin!(self.find_path(&self.files, single));
        let shards = pin!(self.find_path(&self.files, index));
        match select(file, shards).await {
            Either::Left((Err(Error::FileNotFound { .. }), shards)) => shards.await,
            Either::Left((file, _)) => file,
            Either::Right((Ok(shards), file)) => match shards.poll_alongside(file).await {
                (shards, Err(Error::FileNotFound { .. })) => Ok(shards),
                (_, file) => file,
            },
            Either::Right((Err(error), file)) => match file.await {
                Err(Error::FileNotFound { .. }) => Err(error),
                file => file,
            },
        }
    }

    /// Finds weights with a non-standard name in a listing.
    async fn search_listing(
        &self,
        folder: Option<&RepoPath>,
        missing: &[RepoPath; 2],
        source: SharedError,
    ) -> Result<Located, Error> {
        let response = source.downcast_ref::<HubError>();
        let known = response.and_then(|response| response.commit.clone());
        let files = Pinned::new(&self.files, known.clone());
        let listing = files.files.list(folder).await?;
        let listed = self.listed(folder, listing.unwrap_or_default()).await;
        // Files with these names cannot be read: the requests for them have just failed.
        let main = self.main_set(&listed.weights)?.filter(|set| !missing.contains(&set.path));
        let Some(set) = main else {
            return Err(self.no_safetensors(missing, &listed.weights, source));
        };
        let commit = known.or_else(|| listed.listing.commit.clone());
        let found = self.find_set(set, commit).await?;
        Ok(found.with_listing(listed))
    }

    /// Finds a quantization, or else the weights in a folder with that name, such as `fp16`.
    async fn find_quantization(&self, name: &RepoPath) -> Result<Located, Error> {
        let listing = self.files.list(None).await?.unwrap_or_default();
        let listed = self.listed(None, listing).await;
        let named = listed.weights.clone().of_quantization(name.as_str());
        let Some(set) = self.main_set(&named)? else { return self.find_folder(name).await };
        let found = self.find_set(set, listed.listing.commit.clone()).await?;
        Ok(found.with_listing(listed))
    }

    /// Finds the weights in a folder. If it has none, the path may be that of a file without its extension, or a
    /// misspelled quantization: then the error lists the existing ones.
    async fn find_folder(&self, path: &RepoPath) -> Result<Located, Error> {
        let error = match self.search(Some(path)).await {
            Err(error @ (Error::NoWeights { .. } | Error::FileNotFound { .. })) => error,
            found => return found,
        };
        let Ok(Some(Listed { weights: listed, listing })) = self.list(&self.files, None).await
        else {
            return Err(error);
        };
        if let Some(set) = listed.find_stem(&self.settings.formats, path) {
            let found = self.find_set(set, listing.commit).await?;
            return Ok(Located { listed: Some(listed), ..found });
        }
        let quantizations = listed.quantizations();
        // Quantization names contain neither dots nor slashes.
        let is_file = path.as_str().contains(['/', '.']);
        let is_folder = listing.files.iter().any(|file| file.is_below(Some(path)));
        if is_file || is_folder || quantizations.is_empty() {
            return Err(error);
        }
        let source = QuantizationNotFound { name: clip(path.as_str()), quantizations };
        Err(Error::FileNotFound { file: self.files.file_name(path), source: shared(source) })
    }

    /// Finds the main set in a listing.
    async fn find_main(&self, folder: Option<&RepoPath>) -> Result<Located, Error> {
        let not_found = || Error::FileNotFound {
            file: format!("{}/{}", self.settings.source, self.settings.formats.pattern()),
            source: shared("no such file is listed"),
        };
        let listed = self.list(&self.files, folder).await?.ok_or_else(not_found)?;
        let set = self.main_set(&listed.weights)?.ok_or_else(not_found)?;
        let found = self.find_set(set, listed.listing.commit.clone()).await?;
        Ok(found.with_listing(listed))
    }

    /// Returns the main set of a listing; `None` if no set is listed.
    fn main_set<'a>(&self, listed: &'a ListedWeights) -> Result<Option<&'a WeightSet>, Error> {
        let main = listed.main();
        if main.is_none() && !listed.sets.is_empty() {
            let (location, sets) = (self.settings.source.clone(), listed.sets.clone());
            return Err(Error::SeveralSets { location, sets });
        }
        Ok(main)
    }

    /// Finds the shards of a path that has a `*` in place of the shard number.
    pub(crate) async fn find_shards(&self, path: &RepoPath) -> Result<Located, Error> {
        let folder = path.folder();
        let not_found = || Error::FileNotFound {
            file: self.files.file_name(path),
            source: shared("no such shards are listed"),
        };
        let listed = self.list(&self.files, folder.as_ref()).await?.ok_or_else(not_found)?;
        let set = listed.weights.find(path).ok_or_else(not_found)?;
        self.find_set(set, listed.listing.commit).await
    }

    /// Lists all sets of weights in the target's folder. Returns `None` if files cannot be listed.
    ///
    /// # Errors
    ///
    /// Returns an error if the listing cannot be read.
    pub async fn list_sets(&self) -> Result<Option<Vec<WeightSet>>, Error> {
        Ok(self.list_target().await?.map(|listed| listed.weights.sets))
    }

    /// Lists the target's folder, or the folder of an index. Returns `None` if files cannot be listed.
    pub(crate) async fn list_target(&self) -> Result<Option<Listed>, Error> {
        self.list_files_of_target(&self.files).await
    }

    /// Lists the target's folder at the commit of the weights.
    pub(crate) async fn list_target_of(&self, files: &Pinned) -> Result<Option<Listed>, Error> {
        self.list_files_of_target(&files.files).await
    }

    async fn list_files_of_target(&self, files: &Arc<dyn Files>) -> Result<Option<Listed>, Error> {
        let above = match &self.settings.target {
            Target::File(path) if path.is_index() => path.folder(),
            target => target.folder().cloned(),
        };
        self.list(files, above.as_ref()).await
    }

    async fn list(
        &self,
        files: &Arc<dyn Files>,
        folder: Option<&RepoPath>,
    ) -> Result<Option<Listed>, Error> {
        let listing = files.list(folder).await?;
        let Some(listing) = listing else { return Ok(None) };
        Ok(Some(self.listed(folder, listing).await))
    }

    /// Returns a listing of a folder with its weight sets.
    pub(crate) async fn listed(&self, folder: Option<&RepoPath>, listing: Listing) -> Listed {
        /// The approximate size of a listed file, in bytes.
        const FILE_BYTES: usize = 100;

        let bytes = FILE_BYTES * listing.files.len();
        let (formats, folder) = (self.settings.formats.clone(), folder.cloned());
        let find = move || {
            let weights = ListedWeights::new(&formats, folder.as_ref(), &listing.files);
            Listed { weights, listing }
        };
        self.files.run(bytes, find).await
    }

    /// Returns the listing of a folder that the caller knows; `None` if it knows none.
    pub(crate) fn known_files(&self, folder: Option<&RepoPath>) -> Option<Listing> {
        let known = self.settings.known_files.as_deref()?;
        let files = known.iter().filter(|file| file.is_below(folder)).cloned().collect();
        Some(Listing { files, commit: self.files.commit(), is_complete: true })
    }

    /// Starts reading a set, at a commit if it is known.
    pub(crate) async fn find_set(
        &self,
        set: &WeightSet,
        known: Option<CommitSha>,
    ) -> Result<Located, Error> {
        let files = Pinned::new(&self.files, known.clone()).files;
        if set.is_without_index() {
            let shards = set.shards().map_err(|missing| self.incomplete(set, missing))?;
            let commit = match known {
                // A listing may lack the commit, but every file response has it.
                None => {
                    let first = Plan::Exact.first_range(&self.settings.formats, &shards[0]);
                    files.read(&shards[0], first).await?.commit
                }
                known => known,
            };
            let weights = FoundWeights::Shards { shards };
            return Ok(Located::new(&self.files, set.path.clone(), weights, commit));
        }
        let found = self.find_path(&files, &set.path).await?;
        if found.files.commit.is_some() {
            return Ok(found);
        }
        // If the response has no commit, the commit in its URL applies.
        Ok(Located { files: Pinned::new(&self.files, known), ..found })
    }

    fn incomplete(&self, set: &WeightSet, missing: IncompleteShards) -> Error {
        self.files.missing_shards(set).unwrap_or_else(|| {
            let IncompleteShards { total, first_missing, .. } = missing;
            let name = self.files.file_name(&set.path);
            Error::IncompleteShards { set: name, found: set.files, total, first_missing }
        })
    }

    fn no_safetensors(
        &self,
        [single, index]: &[RepoPath; 2],
        listed: &ListedWeights,
        source: SharedError,
    ) -> Error {
        let (single, index) = (single.to_string(), index.to_string());
        let (location, other_formats) = (self.settings.source.clone(), listed.others.clone());
        Error::NoWeights { location, single, index, other_formats, source }
    }
}
