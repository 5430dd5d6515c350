//! Locates the weights: first by the two standard names, then in a listing.

use std::pin::pin;

use futures::future::{BoxFuture, Either, FutureExt, select};

use super::call::{Call, CallContext};
use super::files::CallFiles;
use crate::backends::{Fetched, FileListing, OpenIndex};
use crate::base::RangeBytes;
use crate::base::blocking::spawn_blocking_if_large;
use crate::error::{Error, QuantizationNotFound, SharedError, shared};
use crate::formats::safetensors::{INDEX_NAME, WEIGHTS_NAME};
use crate::formats::weight_sets::{Layout, ListedFile, WeightSet};
use crate::formats::{RepoPath, clip};
use crate::http::HubError;
use crate::hub::CommitSha;
use crate::results::Plan;
use crate::steps::Target;

/// A listing of files, and the weight sets in it.
pub(super) struct Listed {
    pub(super) layout: Layout,
    pub(super) listing: FileListing,
}

/// The weights that a target resolves to.
pub(super) struct Located {
    pub(super) weights: FoundWeights,
    /// The commit of the weights, if a response reported it.
    pub(super) commit: Option<CommitSha>,
    /// The files in the target's folder, if it was listed.
    pub(super) layout: Option<Layout>,
    /// True unless an incomplete listing was used.
    pub(super) is_complete: bool,
}

impl Located {
    /// Creates the result for weights that were found without a listing.
    fn new(weights: FoundWeights, commit: Option<CommitSha>) -> Self {
        Self { weights, commit, layout: None, is_complete: true }
    }

    /// Adds the listing that contains the weights.
    fn with_listing(self, Listed { layout, listing }: Listed) -> Self {
        Self { layout: Some(layout), is_complete: listing.is_complete, ..self }
    }

    /// Drives another future while the weights arrive.
    pub(super) async fn poll_alongside<T>(mut self, other: impl Future<Output = T>) -> (Self, T) {
        let FoundWeights::Index { path, index } = self.weights else {
            return (self, other.await);
        };
        let (index, other) = index.poll_alongside(other).await;
        self.weights = FoundWeights::Index { path, index };
        (self, other)
    }
}

/// A set of weights, and the part of it that has already been read.
pub(super) enum FoundWeights {
    File { path: RepoPath, start: RangeBytes },
    Index { path: RepoPath, index: OpenIndex },
    Shards { path: RepoPath, shards: Vec<RepoPath> },
}

impl FoundWeights {
    /// Returns the path of the file or the index, or the path pattern of the shards.
    pub(super) fn path(&self) -> &RepoPath {
        match self {
            Self::File { path, .. } | Self::Index { path, .. } | Self::Shards { path, .. } => path,
        }
    }
}

impl Call {
    /// Finds the weights, and pins the call to their commit.
    ///
    /// Boxed, so that the futures of the search do not enlarge every call.
    pub(super) fn locate(&mut self) -> BoxFuture<'_, Result<Located, Error>> {
        async move {
            let mut located = self.find().await?;
            self.pin(located.commit.take());
            if self.context.options.list_sets && located.layout.is_none() {
                let (found, listed) = located.poll_alongside(self.list_target()).await;
                let layout = listed?.map(|listed| listed.layout);
                if layout.is_none() {
                    tracing::warn!(source = %self.context.source, "the files cannot be listed");
                }
                located = Located { layout, ..found };
            }
            Ok(located)
        }
        .boxed()
    }

    async fn find(&self) -> Result<Located, Error> {
        match &self.context.target {
            Target::File(path) => self.find_path(&self.files, path).await,
            Target::Shards(path) => self.find_shards(path).await,
            Target::Folder(None) => self.search(None).await,
            Target::Folder(Some(folder)) => self.find_folder(folder).await,
            Target::Quantization(name) => self.find_quantization(name).await,
        }
    }

    /// Starts reading a weight file or an index.
    async fn find_path(&self, files: &CallFiles, path: &RepoPath) -> Result<Located, Error> {
        let CallContext { options, formats, limits, .. } = &*self.context;
        if path.is_index() {
            self.context.budget.admit_bytes(files.cached_length(path)).await?;
            let index = files.open_index(path, limits.index).await?;
            let commit = index.commit.clone();
            let weights = FoundWeights::Index { path: path.clone(), index };
            return Ok(Located::new(weights, commit));
        }
        let first = options.plan.first_range(formats, path);
        let Fetched { value, commit, .. } = files.read_range(path, first).await?;
        Ok(Located::new(FoundWeights::File { path: path.clone(), start: value }, commit))
    }

    /// Finds the weights in a folder, or in the whole backend.
    pub(super) async fn search(&self, folder: Option<&RepoPath>) -> Result<Located, Error> {
        let names = [WEIGHTS_NAME, INDEX_NAME].map(|name| RepoPath::join(folder, name));
        if self.context.formats.safetensors().is_none() {
            return self.find_main(folder).await;
        }
        if let Some(listing) = self.known_files() {
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
        listing: FileListing,
    ) -> Result<Located, Error> {
        let listed = self.listed(folder, listing).await;
        let standard = names.iter().find_map(|name| listed.layout.find(name));
        let main = standard.map_or_else(|| self.main_set(&listed.layout), |set| Ok(Some(set)))?;
        let not_found = || self.no_safetensors(names, &listed.layout, shared("it is not listed"));
        let set = main.ok_or_else(not_found)?;
        if set.quantization.is_some() {
            // Choosing between quantizations needs file sizes, and only a listing from the Hub has them.
            return self.find_main(folder).await;
        }
        let found = self.find_set(set, listed.listing.commit.clone()).await?;
        Ok(found.with_listing(listed))
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
        let listing = self.files.pinned(known.as_ref()).list(folder).await?;
        let listed = self.listed(folder, listing.unwrap_or_default()).await;
        // Files with these names cannot be read: the requests for them have just failed.
        let main = self.main_set(&listed.layout)?.filter(|set| !missing.contains(&set.path));
        let Some(set) = main else {
            return Err(self.no_safetensors(missing, &listed.layout, source));
        };
        let commit = known.or_else(|| listed.listing.commit.clone());
        let found = self.find_set(set, commit).await?;
        Ok(found.with_listing(listed))
    }

    /// Finds a quantization, or else the weights in a folder with that name, such as `fp16`.
    async fn find_quantization(&self, name: &RepoPath) -> Result<Located, Error> {
        let listing = self.files.list(None).await?.unwrap_or_default();
        let listed = self.listed(None, listing).await;
        let layout = listed.layout.clone().of_quantization(name.as_str());
        let Some(set) = self.main_set(&layout)? else { return self.find_folder(name).await };
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
        let Ok(Some(Listed { layout, listing })) = self.list(None).await else {
            return Err(error);
        };
        if let Some(set) = layout.find_stem(&self.context.formats, path) {
            let found = self.find_set(set, listing.commit).await?;
            return Ok(Located { layout: Some(layout), ..found });
        }
        let quantizations = layout.quantizations();
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
            file: format!("{}/{}", self.context.source, self.context.formats.pattern()),
            source: shared("no such file is listed"),
        };
        let listed = self.list(folder).await?.ok_or_else(not_found)?;
        let set = self.main_set(&listed.layout)?.ok_or_else(not_found)?;
        let found = self.find_set(set, listed.listing.commit.clone()).await?;
        Ok(found.with_listing(listed))
    }

    /// Returns the main set of a layout; `None` if it has no sets.
    fn main_set<'a>(&self, layout: &'a Layout) -> Result<Option<&'a WeightSet>, Error> {
        let main = layout.main();
        if main.is_none() && !layout.sets.is_empty() {
            let (location, sets) = (self.context.source.clone(), layout.sets.clone());
            return Err(Error::SeveralSets { location, sets });
        }
        Ok(main)
    }

    /// Finds the shards of a path that has a `*` in place of the shard number.
    pub(super) async fn find_shards(&self, path: &RepoPath) -> Result<Located, Error> {
        let folder = path.folder();
        let not_found = || Error::FileNotFound {
            file: self.files.file_name(path),
            source: shared("no such shards are listed"),
        };
        let listed = self.list(folder.as_ref()).await?.ok_or_else(not_found)?;
        let set = listed.layout.find(path).ok_or_else(not_found)?;
        self.find_set(set, listed.listing.commit).await
    }

    /// Lists all sets of weights in the target's folder. Returns `None` if files cannot be listed.
    pub(crate) async fn list_sets(&self) -> Result<Option<Vec<WeightSet>>, Error> {
        Ok(self.list_target().await?.map(|listed| listed.layout.sets))
    }

    /// Lists the target's folder, or the folder of an index. Returns `None` if files cannot be listed.
    pub(super) async fn list_target(&self) -> Result<Option<Listed>, Error> {
        let above = match &self.context.target {
            Target::File(path) if path.is_index() => path.folder(),
            target => target.folder().cloned(),
        };
        self.list(above.as_ref()).await
    }

    async fn list(&self, folder: Option<&RepoPath>) -> Result<Option<Listed>, Error> {
        let listing = self.files.list(folder).await?;
        let Some(listing) = listing else { return Ok(None) };
        Ok(Some(self.listed(folder, listing).await))
    }

    /// Returns a listing of a folder with its weight sets.
    pub(super) async fn listed(&self, folder: Option<&RepoPath>, listing: FileListing) -> Listed {
        /// The approximate size of a listed file, in bytes.
        const FILE_BYTES: usize = 100;

        let bytes = FILE_BYTES * listing.files.len();
        let (formats, folder) = (self.context.formats.clone(), folder.cloned());
        let find = move || {
            let layout = Layout::new(&formats, folder.as_ref(), &listing.files);
            Listed { layout, listing }
        };
        spawn_blocking_if_large(bytes, find).await
    }

    /// Returns a listing of the files that the caller knows, without their sizes; `None` if it knows none.
    pub(super) fn known_files(&self) -> Option<FileListing> {
        let paths = self.context.options.known_files.as_deref()?;
        let files = paths.iter().map(|path| ListedFile { path: path.clone(), size: 0 }).collect();
        let commit = self.files.origin.repo().and_then(|repo| repo.revision.as_str().parse().ok());
        Some(FileListing { files, commit, is_complete: true })
    }

    /// Starts reading a set, at a commit if it is known.
    pub(super) async fn find_set(
        &self,
        set: &WeightSet,
        known: Option<CommitSha>,
    ) -> Result<Located, Error> {
        let files = self.files.pinned(known.as_ref());
        if set.is_without_index() {
            let shards = set.shards().map_err(|missing| self.files.missing_shards(set, missing))?;
            let commit = if known.is_some() {
                known
            } else {
                // A listing may lack the commit, but every file response has it.
                let first = Plan::Exact.first_range(&self.context.formats, &shards[0]);
                files.read_range(&shards[0], first).await?.commit
            };
            let weights = FoundWeights::Shards { path: set.path.clone(), shards };
            return Ok(Located::new(weights, commit));
        }
        let found = self.find_path(&files, &set.path).await?;
        // If the response has no commit, the commit in its URL applies.
        Ok(Located { commit: found.commit.or(known), ..found })
    }

    fn no_safetensors(
        &self,
        [single, index]: &[RepoPath; 2],
        layout: &Layout,
        source: SharedError,
    ) -> Error {
        let (single, index) = (single.to_string(), index.to_string());
        let (location, other_formats) = (self.context.source.clone(), layout.others.clone());
        Error::NoWeights { location, single, index, other_formats, source }
    }
}
