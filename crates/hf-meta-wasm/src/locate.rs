//! Locates the weights in the list of files.

use hf_meta_format::RepoPath;
use hf_meta_format::formats::safetensors::{INDEX_NAME, WEIGHTS_NAME};
use hf_meta_format::formats::weight_sets::{Layout, WeightSet, is_shard_pattern};

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
    /// Finds the weights that the path selects.
    pub(crate) fn locate(&self) -> Result<Located, Failure> {
        let Some(path) = &self.options.path else { return self.search(None) };
        if is_shard_pattern(&self.formats, path) {
            let layout = self.layout(path.folder().as_ref());
            let set = layout.find(path).ok_or_else(|| self.not_found(path))?;
            return Ok(Located { layout: None, ..self.located(set)? });
        }
        if self.is_file(path) {
            self.options.has_file(path).then_some(()).ok_or_else(|| self.not_found(path))?;
            let layout = self
                .options
                .other_sets
                .then(|| self.layout(path.folder().filter(|_| path.is_index()).as_ref()));
            return Ok(Located { path: path.clone(), shards: None, layout });
        }
        let layout = self.layout(None);
        if self.formats.is_quantization(path.as_str()) {
            let chosen = self.layout(None).of_quantization(path.as_str());
            if !chosen.sets.is_empty() {
                let located = self.located(self.main(&chosen, None)?)?;
                return Ok(Located { layout: Some(layout), ..located });
            }
        }
        // The path may be that of a file without its extension.
        self.search(Some(path)).or_else(|failure| {
            let set = layout.find_stem(&self.formats, path).ok_or(failure)?;
            let located = self.located(set)?;
            Ok(Located { layout: Some(layout), ..located })
        })
    }

    /// Returns whether a path selects a file, an index, or the shards of a pattern.
    pub(crate) fn is_file(&self, path: &RepoPath) -> bool {
        self.formats.find(path.as_str()).is_some() || path.is_index()
    }

    /// Returns whether a path selects a folder.
    pub(crate) fn is_folder(&self, path: &RepoPath) -> bool {
        !self.is_file(path) && !self.formats.is_quantization(path.as_str())
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
            let source = &self.options.source;
            let [single, index] = standard_names(folder);
            let (code, message) = match layout.sets.len() {
                0 if self.formats.safetensors().is_some() => (
                    "noWeights",
                    format!("no supported weights in `{source}`: neither `{single}` nor `{index}` exists"),
                ),
                0 => ("fileNotFound", format!("`{source}/{}` not found", self.formats.pattern())),
                sets => (
                    "severalSets",
                    format!("`{source}` contains {sets} weight sets, and it is unclear which one is the main model"),
                ),
            };
            let sets = (!layout.sets.is_empty()).then(|| super::json(&layout.sets));
            self.reader.failure(code, &message, sets)
        })
    }

    pub(crate) fn layout(&self, folder: Option<&RepoPath>) -> Layout {
        Layout::new(&self.formats, folder, &self.options.files_below(folder))
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
