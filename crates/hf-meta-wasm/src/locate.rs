//! Locates the weights in the list of files.

use hf_meta_count::steps::Target;
use hf_meta_format::RepoPath;
use hf_meta_format::formats::safetensors::{INDEX_NAME, WEIGHTS_NAME};
use hf_meta_format::formats::weight_sets::{Layout, WeightSet};

use super::read::Call;
use super::reader::Failure;

/// A set of weights to read.
pub(crate) struct Located {
    /// The path of the file or the index, or the pattern of shards without an index.
    pub(crate) path: RepoPath,
    /// The shards, if they have no index.
    pub(crate) shards: Option<Vec<RepoPath>>,
    /// The files in the requested folder. `None` if their other weight sets are not part of the result.
    pub(crate) layout: Option<Layout>,
}

impl Call {
    /// Finds the weights of the target.
    pub(crate) fn locate(&self) -> Result<Located, Failure> {
        match &self.target {
            Target::File(path) => {
                self.options.has_file(path).then_some(()).ok_or_else(|| self.not_found(path))?;
                let folder = path.folder().filter(|_| path.is_index());
                let layout = self.options.other_sets.then(|| self.layout(folder.as_ref()));
                Ok(Located { path: path.clone(), shards: None, layout })
            }
            Target::Shards(path) => {
                let layout = self.layout(path.folder().as_ref());
                self.located(layout.find(path).ok_or_else(|| self.not_found(path))?)
            }
            Target::Folder(None) => self.search(None),
            Target::Folder(Some(folder)) => self.find_folder(folder),
            Target::Quantization(name) => {
                let chosen = self.layout(None).of_quantization(name.as_str());
                if chosen.sets.is_empty() {
                    return self.find_folder(name);
                }
                let located = self.located(self.main(&chosen, None)?)?;
                Ok(Located { layout: Some(self.layout(None)), ..located })
            }
        }
    }

    /// Finds the weights in a folder, or the file of this path without its extension.
    fn find_folder(&self, path: &RepoPath) -> Result<Located, Failure> {
        self.search(Some(path)).or_else(|failure| {
            let layout = self.layout(None);
            let located = self.located(layout.find_stem(&self.formats, path).ok_or(failure)?)?;
            Ok(Located { layout: Some(layout), ..located })
        })
    }

    /// Finds the weights in a folder, or in the whole repository.
    fn search(&self, folder: Option<&RepoPath>) -> Result<Located, Failure> {
        let layout = self.layout(folder);
        let standard = standard_names(folder);
        let standard = standard.iter().find_map(|name| layout.find(name));
        let is_listed = standard.is_none() || self.options.other_sets;
        let located = self.located(standard.map_or_else(|| self.main(&layout, folder), Ok)?)?;
        Ok(Located { layout: is_listed.then_some(layout), ..located })
    }

    /// Returns the main set of a folder.
    fn main<'a>(
        &self,
        layout: &'a Layout,
        folder: Option<&RepoPath>,
    ) -> Result<&'a WeightSet, Failure> {
        layout.main().ok_or_else(|| {
            let (source, sets) = (&self.options.source, &layout.sets);
            if !sets.is_empty() {
                let (number, reason) = (sets.len(), "it is unclear which one is the main model");
                let message = format!("`{source}` contains {number} weight sets, and {reason}");
                return self.reader.failure("severalSets", &message, Some(super::json(sets)));
            }
            if self.formats.safetensors().is_none() {
                let message = format!("`{source}/{}` not found", self.formats.pattern());
                return self.reader.failure("fileNotFound", &message, None);
            }
            let [single, index] = standard_names(folder);
            let reason = format!("neither `{single}` nor `{index}` exists");
            let message = format!("no supported weights in `{source}`: {reason}");
            self.reader.failure("noWeights", &message, None)
        })
    }

    pub(crate) fn layout(&self, folder: Option<&RepoPath>) -> Layout {
        let files = self.options.files.iter().filter(|file| file.is_below(folder));
        Layout::new(&self.formats, folder, &files.cloned().collect::<Vec<_>>())
    }

    pub(crate) fn located(&self, set: &WeightSet) -> Result<Located, Failure> {
        let shards = set.is_without_index().then(|| set.shards()).transpose();
        let shards = shards.map_err(|missing| {
            self.fail("missingShards", &set.path, &format!("is incomplete: {missing}"))
        })?;
        Ok(Located { path: set.path.clone(), shards, layout: None })
    }

    fn not_found(&self, path: &RepoPath) -> Failure {
        self.fail("fileNotFound", path, "not found")
    }
}

fn standard_names(folder: Option<&RepoPath>) -> [RepoPath; 2] {
    [WEIGHTS_NAME, INDEX_NAME].map(|name| RepoPath::join(folder, name))
}
