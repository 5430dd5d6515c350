//! Finds the sets of weights in a repository or a folder by file names alone.
//!
//! No header is read before a set is chosen, so the names decide, as they do in the loaders:
//!
//! 1. `name` splits a path into folder, model, variant, training step and shard number.
//! 2. `group` joins the shards of one model, and an index with its shards. Each group is a [`WeightSet`].
//! 3. [`ListedWeights::main`] orders the sets by format, kind, location, step, variant, quantization and form. The first is
//!    the model, unless another set of a different model has the same location: then the caller has to choose.
//! 4. [`ListedWeights::loaded_with`] adds the components that a loader loads with the model.
//!
//! A repository with these files has four sets:
//!
//! ```text
//! unet/diffusion_pytorch_model.safetensors       location Unet, no variant     the model
//! unet/diffusion_pytorch_model.fp16.safetensors  location Unet, variant fp16   another form of the model
//! vae/diffusion_pytorch_model.safetensors        location Subfolder            a component, loaded with the model
//! v1-5-pruned.safetensors                        location Root                 another set
//! model_index.json                               lists the folders of the components
//! ```
//!
//! With `a.safetensors` and `b.safetensors` alone, both are at the root under names that no loader knows, and there is no
//! model. The order of the locations is that of huggingface.js; the names are those of transformers (`SAFE_WEIGHTS_NAME`),
//! diffusers, PEFT, Mistral (`consolidated`) and llama.cpp.

mod group;
mod listed_file;
mod name;
mod other_formats;
mod set;

use std::collections::{BTreeMap, BTreeSet};

use self::group::{join_series, with_their_indexes};
use self::listed_file::is_below;
use self::name::{Location, Sharding, WeightsName};
use self::other_formats::{count_unsupported, unsupported_format};
use self::set::Checkpoint;
use crate::base::sort::Ordered;
use crate::formats::path::split_folder;
use crate::formats::{Formats, RepoPath, WeightsKind};

pub use self::listed_file::ListedFile;
pub use self::name::{is_shard_pattern, numbered_shards, shard_number};
pub use self::other_formats::{SPLIT_FILE, UnsupportedWeights, is_part_of_file};
pub use self::set::{IncompleteShards, WeightSet};
#[doc(hidden)]
pub use crate::formats::NumberedName;

/// The sets of weights in a list of files.
///
/// ```
/// use hf_meta_format::formats::Formats;
/// use hf_meta_format::formats::weight_sets::{ListedFile, ListedWeights};
///
/// let file = |path: &str| ListedFile { path: path.parse().unwrap(), size: 10 };
/// let files = ["model.safetensors", "model.fp16.safetensors", "config.json"].map(file);
/// let listed = ListedWeights::new(Formats::built_in(), None, &files);
/// assert_eq!(listed.sets.len(), 2);
/// assert_eq!(listed.main().unwrap().path.as_str(), "model.safetensors");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedWeights {
    /// The sets in the accepted formats, sorted by path, with numbers in ascending order.
    pub sets: Vec<WeightSet>,
    /// Weights in other formats.
    pub others: Vec<UnsupportedWeights>,
    /// The requested folder; empty for the whole repository.
    root: String,
    /// True for a `sentence-transformers` model, which consists of several modules.
    has_modules: bool,
    /// The folders of all files, and whether they contain only a configuration.
    folders: BTreeMap<String, bool>,
    /// The files that list components, `model_index.json` or `modules.json`, by folder.
    pipelines: BTreeMap<String, RepoPath>,
    /// The configurations.
    configs: BTreeSet<RepoPath>,
    /// The folders with weights in other formats.
    foreign: BTreeSet<String>,
}

/// The file of a diffusers pipeline that lists its components.
pub const PIPELINE: &str = "model_index.json";

/// The file of a `sentence-transformers` model that lists its modules.
const MODULES: &str = "modules.json";

impl ListedWeights {
    /// Finds the sets of weights in the files of a folder, or of a whole repository if `root` is `None`.
    pub fn new(formats: &Formats, root: Option<&RepoPath>, files: &[ListedFile]) -> Self {
        let mut sets = BTreeMap::new();
        let names = files.iter().map(|file| split_folder(file.path.as_str()));
        let uqff = names.filter(|(_, name)| name.rsplit('.').next() == Some("uqff"));
        let uqff: BTreeSet<_> = uqff.map(|(folder, _)| folder).ordered();
        // The tensors that mistral.rs does not quantize, next to the others.
        let is_residual = |file: &&ListedFile| {
            let (folder, name) = split_folder(file.path.as_str());
            name == "residual.safetensors" && uqff.contains(folder)
        };
        for file in files.iter().filter(|file| !is_residual(file)) {
            if let Some((name, path, shard)) = WeightsName::parse(formats, &file.path) {
                let format = formats.name(name.format);
                let new = || WeightSet::new(format, path.clone(), name);
                sets.entry(path.clone()).or_insert_with(new).add(file, shard);
            }
        }
        join_series(&mut sets);
        let modules = RepoPath::join(root, MODULES);
        let mut folders = BTreeMap::new();
        let mut pipelines = BTreeMap::new();
        let (mut configs, mut foreign) = (BTreeSet::new(), BTreeSet::new());
        for file in files {
            let (folder, name) = split_folder(file.path.as_str());
            if name.ends_with("config.json") {
                configs.insert(file.path.clone());
            }
            if unsupported_format(&file.path).is_some() {
                foreign.insert(folder.to_owned());
            }
            if matches!(name, PIPELINE | MODULES) {
                pipelines.insert(folder.to_owned(), file.path.clone());
            }
            let is_config = matches!(name, "config.json" | "generation_config.json");
            *folders.entry(folder.to_owned()).or_insert(true) &= is_config;
        }
        Self {
            sets: with_their_indexes(sets.into_values()),
            others: count_unsupported(files),
            root: root.map_or_else(String::new, ToString::to_string),
            has_modules: files.iter().any(|file| file.path == modules),
            folders,
            pipelines,
            configs,
            foreign,
        }
    }

    /// Returns the file that lists the components of the model that a set belongs to; `None` if there is none.
    pub fn pipeline_of(&self, set: &WeightSet) -> Option<&RepoPath> {
        let folder = set.name.folder.as_str();
        let mut folders = [folder, split_folder(folder).0].into_iter();
        folders.find_map(|folder| self.pipelines.get(folder))
    }

    /// Returns the file that lists the components of the requested folder, if there is one.
    pub fn own_pipeline(&self) -> Option<&RepoPath> {
        self.pipelines.get(&self.root)
    }

    /// Returns whether a configuration exists.
    #[doc(hidden)]
    pub fn has_config(&self, path: &RepoPath) -> bool {
        self.configs.contains(path)
    }

    /// Returns whether a folder contains weights, in any format, that are not in one of `others`.
    #[doc(hidden)]
    pub fn has_weights(&self, folder: &str, others: &[&str]) -> bool {
        let is_inside = |found: &str| {
            let is_other = |other: &&str| found == *other || is_below(found, other);
            let is_here = found == folder || folder.is_empty() || is_below(found, folder);
            is_here && !others.iter().any(is_other)
        };
        self.sets.iter().any(|set| is_inside(&set.name.folder))
            || self.foreign.iter().any(|found| is_inside(found))
    }

    /// Returns whether a loader builds the base model of a set, whatever class its configuration states:
    /// sentence-transformers does, which `modules.json` describes (`Transformer` in `sentence_transformers/base` 6.2).
    pub fn builds_base(&self, path: &RepoPath) -> bool {
        let pipeline = self.find(path).and_then(|set| self.pipeline_of(set));
        pipeline.is_some_and(|path| path.file_name().as_str() == MODULES)
    }

    /// Returns the sets that a loader of the main set loads: the components of a diffusers pipeline or the modules of a
    /// `sentence-transformers` model, whose folders are `components`, or only the main set.
    pub fn loaded_with<'a>(
        &'a self,
        main: Option<&'a WeightSet>,
        components: &[RepoPath],
    ) -> Vec<&'a WeightSet> {
        let is_component = |set: &&WeightSet| {
            set.has_standard_name()
                && set.name.step.is_none()
                && components.iter().any(|path| path.as_str() == set.name.folder)
        };
        let mut loaded: BTreeMap<_, _> =
            main.into_iter().map(|main| (&*main.name.folder, main)).ordered();
        for set in self.sets.iter().filter(is_component) {
            let found = loaded.entry(&*set.name.folder).or_insert(set);
            let precedence =
                |set: &'a WeightSet| (set.name.format, set.precedence(Location::Subfolder));
            let is_main = main.is_some_and(|main| found.path == main.path);
            if !is_main && precedence(set) < precedence(found) {
                *found = set;
            }
        }
        loaded.into_values().collect()
    }

    /// Returns whether the folder of a component contains more than a configuration, in any folder below it.
    #[doc(hidden)]
    pub fn has_component(&self, folder: &str) -> bool {
        let is_whole = |(found, is_config): (&String, &bool)| {
            !is_config && (found == folder || is_below(found, folder))
        };
        self.folders.iter().any(is_whole)
    }

    /// Returns the pairs of a single file and an index of the same model in the same folder, for the models of `sets`.
    /// An index without shards lists only the single file, as in MLX, so it is not a second copy.
    pub fn stored_twice<'a>(
        &'a self,
        sets: &'a [&WeightSet],
    ) -> impl Iterator<Item = (&'a WeightSet, &'a WeightSet)> {
        self.twins(sets).filter(|(_, index)| self.has_shards(index))
    }

    /// Returns the pairs of a single file and an index of the same model in the same folder, without shards of the index,
    /// for the models of `sets`.
    pub fn lone_indexes<'a>(
        &'a self,
        sets: &'a [&WeightSet],
    ) -> impl Iterator<Item = (&'a WeightSet, &'a WeightSet)> {
        self.twins(sets).filter(|(_, index)| !self.has_shards(index))
    }

    fn has_shards(&self, index: &WeightSet) -> bool {
        !self.unindexed_shards(std::slice::from_ref(&index.path)).is_empty()
    }

    /// Returns the pairs of a single file and an index of the same model in the same folder.
    fn twins<'a>(
        &'a self,
        sets: &'a [&WeightSet],
    ) -> impl Iterator<Item = (&'a WeightSet, &'a WeightSet)> {
        sets.iter().filter_map(|set| {
            let twin = |sharding| {
                let name = WeightsName { sharding, ..set.name.clone() };
                self.sets.iter().find(|other| other.name == name)
            };
            Some((twin(Sharding::File)?, twin(Sharding::Index)?))
        })
    }

    /// Returns whether a file is one of the weights.
    pub fn has_file(&self, path: &RepoPath) -> bool {
        let is_member = |set: &WeightSet| set.members.iter().any(|(_, member)| member == path);
        self.sets.iter().any(|set| set.path == *path || is_member(set))
    }

    /// Returns the set with this path.
    pub fn find(&self, path: &RepoPath) -> Option<&WeightSet> {
        self.sets.iter().find(|set| set.path == *path)
    }

    /// Returns the only set whose path equals `stem`, apart from a shard number and the extension. Returns `None` if no
    /// set or more than one set matches.
    pub fn find_stem(&self, formats: &Formats, stem: &RepoPath) -> Option<&WeightSet> {
        let has_stem = |set: &&WeightSet| {
            let path = set.path.as_str();
            let extension = formats.find(path).and_then(|(_, format)| format.match_extension(path));
            let name = extension.and_then(|extension| path.strip_suffix(extension));
            let rest = name.and_then(|name| name.strip_prefix(stem.as_str()));
            rest.is_some_and(|rest| matches!(rest, "" | "-*") || rest.starts_with("-*-of-"))
        };
        let mut found = self.sets.iter().filter(has_stem);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// Removes all sets of other quantizations.
    #[must_use]
    pub fn of_quantization(mut self, name: &str) -> Self {
        let is_same = |set: &WeightSet| {
            set.quantization.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(name))
        };
        self.sets.retain(is_same);
        self
    }

    /// Returns the distinct quantizations of models.
    pub fn quantizations(&self) -> Vec<String> {
        let models = self.sets.iter().filter(|set| set.kind == WeightsKind::Model);
        let names: BTreeSet<_> = models.filter_map(|set| set.quantization.as_ref()).ordered();
        names.into_iter().cloned().collect()
    }

    /// Returns the main set, which is the model; `None` if there is none, or if several sets are equally likely.
    ///
    /// Safetensors is preferred over other formats, a model over its adapters, a set without a variant over its
    /// variants, and one file over shards.
    pub fn main<'a>(&'a self) -> Option<&'a WeightSet> {
        let group = |set: &&WeightSet| (set.name.format, set.kind);
        let first = self.sets.iter().map(|set| group(&set)).min()?;
        let mut sets: Vec<_> = self.sets.iter().filter(|set| group(set) == first).collect();
        if let Some((_, last)) = self.last_checkpoint(&sets) {
            sets.retain(|set| set.checkpoint(&self.root) == Some(last));
        }
        let folder = self.common_folder(&sets);
        let precedence = |set: &&'a WeightSet| {
            set.precedence(Location::of(&set.name, &folder, self.has_modules))
        };
        let main = sets.iter().copied().min_by_key(precedence)?;
        let first = precedence(&main);
        // A rival has as good a claim: another model at the same location, the same name twice, or, without a set that has no
        // variant, another variant.
        let is_rival = |set: &&&'a WeightSet| {
            let is_other_variant =
                set.name.file.variant != main.name.file.variant && !main.name.file.is_quantized;
            precedence(set).location == first.location
                && (!set.name.is_same_model(&main.name)
                    || precedence(set) == first
                    || first.has_variant && is_other_variant)
        };
        let is_alone = sets.iter().filter(is_rival).count() == 1;
        let has_standard_name = first.location < Location::Root;
        let is_disputed = || sets.iter().any(|set| set.is_alternative_to(main));
        (is_alone && !(has_standard_name && is_disputed())).then_some(main)
    }

    /// Returns the number of checkpoints of a training run, and the last one, if there are at least two and all sets
    /// belong to them.
    fn last_checkpoint<'a>(&self, sets: &[&'a WeightSet]) -> Option<(usize, Checkpoint<'a>)> {
        let found: Option<BTreeSet<_>> =
            sets.iter().map(|set| set.checkpoint(&self.root)).collect();
        let found = found.filter(|found| found.len() > 1)?;
        let last = found.last().copied()?;
        found.iter().all(|one| one.run == last.run).then_some((found.len(), last))
    }

    /// Returns the folder of the last checkpoint of a training run, and the number of its checkpoints, if the main set is
    /// one of at least two.
    pub fn checkpoints(&self) -> Option<(&str, usize)> {
        let main = self.main()?;
        let group = |set: &WeightSet| (set.name.format, set.kind);
        let sets: Vec<_> = self.sets.iter().filter(|set| group(set) == group(main)).collect();
        let (checkpoints, last) = self.last_checkpoint(&sets)?;
        Some((last.folder, checkpoints))
    }

    /// Returns the folder that contains all sets, without the name of a component. It is searched like a repository,
    /// because a pipeline often has its own folder.
    fn common_folder(&self, sets: &[&WeightSet]) -> String {
        let mut folders = sets.iter().map(|set| set.name.folder.as_str());
        let mut common: Vec<_> = folders.next().unwrap_or_default().split('/').collect();
        for folder in folders {
            let same =
                common.iter().zip(folder.split('/')).take_while(|(one, other)| *one == other);
            common.truncate(same.count());
        }
        // The main component of a pipeline: the folder around it is that of the pipeline.
        common.pop_if(|part| matches!(*part, "transformer" | "unet"));
        let common = common.join("/");
        if common.len() < self.root.len() { self.root.clone() } else { common }
    }

    /// Returns the shards that are missing in `named` but belong to the same models.
    pub fn unindexed_shards(&self, named: &[RepoPath]) -> Vec<RepoPath> {
        let named: BTreeSet<_> = named.iter().ordered();
        let models = named
            .iter()
            .filter_map(|path| Some(WeightsName::parse(Formats::built_in(), path)?.0.unsharded()));
        let models: BTreeSet<_> = models.ordered();
        let sets = self.sets.iter().filter(|set| models.contains(&set.name.unsharded()));
        let members = sets.flat_map(|set| &set.members).filter(|(shard, _)| shard.is_some());
        let members = members.map(|(_, path)| path).chain(self.numbered_like(&named));
        let unindexed = members.filter(|path| !named.contains(path));
        unindexed.ordered::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    /// Returns the files whose names differ from several of the `named` ones only in the number at the end, as `2.safetensors`
    /// from `0.safetensors` and `1.safetensors`. If a name is nothing but a number, one is enough.
    fn numbered_like<'a>(
        &'a self,
        named: &BTreeSet<&RepoPath>,
    ) -> impl Iterator<Item = &'a RepoPath> {
        let mut series = BTreeMap::new();
        for stem in named.iter().filter_map(|path| numbered_stem(path)) {
            *series.entry(stem).or_insert(0) += 1;
        }
        let series: BTreeSet<_> = series
            .into_iter()
            .filter(|((stem, _), files)| *files > 1 || stem.is_empty() || stem.ends_with('/'))
            .map(|((stem, extension), _)| (stem.to_owned(), extension.to_owned()))
            .ordered();
        let members = self.sets.iter().flat_map(|set| &set.members).map(|(_, path)| path);
        members.filter(move |path| {
            numbered_stem(path).is_some_and(|(stem, extension)| {
                !series.is_empty() && series.contains(&(stem.to_owned(), extension.to_owned()))
            })
        })
    }
}

/// Returns a path up to the number at the end of its stem, and its extension; `None` if it has no such number, or is
/// numbered as one of several.
fn numbered_stem(path: &RepoPath) -> Option<(&str, &str)> {
    let (start, extension) = path.as_str().rsplit_once('.')?;
    let stem = start.trim_end_matches(|digit: char| digit.is_ascii_digit());
    (stem.len() < start.len() && !stem.ends_with("-of-")).then_some((stem, extension))
}

/// Returns the path pattern of shards, with a `*` in place of the shard number; `None` if their names have no number.
pub fn shard_pattern(shards: &[RepoPath]) -> Option<RepoPath> {
    let files = shards.iter().map(|path| ListedFile { path: path.clone(), size: 0 });
    let sets = ListedWeights::new(Formats::built_in(), None, &files.collect::<Vec<_>>()).sets;
    let [set] = &sets[..] else { return None };
    Some(set.path.clone())
}

#[cfg(test)]
mod tests;
