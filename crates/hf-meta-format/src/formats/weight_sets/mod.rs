//! Finds the sets of weights in a repository or a folder by file names alone.

mod name;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::name::{LORA, Location, SERIES, ShardNumber, Sharding, WeightsName};
use crate::base::sort::{Ordered, sort_by};
use crate::formats::gguf::Gguf;
use crate::formats::path::split_folder;
use crate::formats::pytorch::OtherFile;
use crate::formats::{Format, Formats, RepoPath, WeightFileName, WeightsKind};

pub use self::name::{is_shard_pattern, numbered_shards, shard_number};
#[doc(hidden)]
pub use crate::formats::NumberedName;

/// A file in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListedFile {
    /// The path in the repository or folder.
    pub path: RepoPath,
    /// The size in bytes.
    pub size: u64,
}

impl ListedFile {
    /// Returns whether the file is below a folder. `None` is the root folder.
    pub fn is_below(&self, folder: Option<&RepoPath>) -> bool {
        folder.is_none_or(|folder| is_below(self.path.as_str(), folder.as_str()))
    }
}

/// Weights that belong together: a single file, or the shards of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct WeightSet {
    /// The path of the file or the index. For shards without an index, their common path, with a `*` in place of the
    /// shard number. Pass it to `Model::path` to read this weight set.
    pub path: RepoPath,
    /// The number of weight files, or 0 for an index whose shards cannot be identified by name.
    pub files: usize,
    /// The total size of these files, in bytes.
    pub bytes: u64,
    /// The name of the format.
    pub format: &'static str,
    /// The quantization according to the file name, such as `Q4_K_M`, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// The kind of weights according to the file name.
    pub kind: WeightsKind,
    #[serde(skip)]
    name: WeightsName,
    #[serde(skip)]
    members: Vec<(Option<ShardNumber>, RepoPath)>,
}

impl WeightSet {
    fn new(format: &'static str, path: RepoPath, name: WeightsName) -> Self {
        let quantization = name.file.is_quantized.then(|| name.file.variant.clone());
        let kind = name.file.kind;
        Self { path, files: 0, bytes: 0, format, quantization, kind, name, members: Vec::new() }
    }

    /// Adds a file to the set.
    fn add(&mut self, file: &ListedFile, shard: Option<ShardNumber>) {
        if self.name.sharding != Sharding::Index {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(file.size);
            self.members.push((shard, file.path.clone()));
        }
    }

    /// Returns the checkpoint of a training run below `root` that the set belongs to.
    fn checkpoint(&self, root: &str) -> Option<Checkpoint<'_>> {
        let folder = &*self.name.folder;
        let mut start = if root.is_empty() { 0 } else { root.len() + 1 };
        for part in folder.get(start..)?.split('/') {
            let end = start + part.len();
            let step = part.strip_prefix("checkpoint-").and_then(|step| step.parse().ok());
            if let Some(step) = step {
                return Some(Checkpoint { run: &folder[..start], step, folder: &folder[..end] });
            }
            start = end + 1;
        }
        None
    }

    /// Returns whether these are shards without an index.
    pub fn is_without_index(&self) -> bool {
        self.name.sharding == Sharding::Shards
    }

    /// Returns whether these are shards that transformers and diffusers find only through an index.
    #[doc(hidden)]
    pub fn lacks_index(&self) -> bool {
        self.is_without_index()
            && self.has_standard_name()
            && self.format != Gguf.name()
            && self.path.file_name().as_str() != SERIES
            && self.shards().is_ok()
    }

    /// Returns whether transformers or diffusers give a file this name.
    fn has_standard_name(&self) -> bool {
        ["model", "diffusion_pytorch_model", "pytorch_model"].contains(&&*self.name.file.model)
    }

    /// Returns the shards of a set without an index, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// Returns an error if some are missing, or if two have the same number.
    pub fn shards(&self) -> Result<Vec<RepoPath>, IncompleteShards> {
        let shards = self.members.iter().filter_map(|(shard, path)| Some(((*shard)?, path)));
        let total = shards.clone().next().map_or(0, |(shard, _)| shard.total);
        let paths: BTreeMap<_, _> =
            shards.clone().map(|(shard, path)| (shard.number, path)).ordered();
        // Some exporters number shards from 0.
        let first = u32::from(!paths.contains_key(&0));
        let mut numbers = first..first.saturating_add(total);
        let missing = numbers.find(|number| !paths.contains_key(number));
        if missing.is_none() && shards.count() == total as usize {
            return Ok(paths.into_values().cloned().collect());
        }
        let path = |number: u32| {
            let digits = self.members.first().map_or(0, |(_, path)| path.as_str().len());
            let digits = (digits + 1).saturating_sub(self.path.as_str().len());
            self.path.as_str().replacen('*', &format!("{number:0digits$}"), 1)
        };
        let found = u32::try_from(paths.len()).unwrap_or(u32::MAX);
        Err(IncompleteShards { found, total, first_missing: missing.map(path) })
    }

    /// Returns the precedence of a set at a location.
    fn precedence(&self, location: Location) -> Precedence<'_> {
        let name = self.quantization.as_deref();
        Precedence {
            location,
            step: self.name.step.map(Reverse),
            has_variant: !self.name.file.variant.is_empty(),
            quantization: name.map(|name| (name != PREFERRED_QUANTIZATION, self.bytes, name)),
            sharding: self.name.sharding,
        }
    }

    /// Returns whether this set may be the model, too, next to a set with a standard name: another version of it,
    /// such as `consolidated_ema` next to `consolidated`, or an adapter next to a pipeline.
    fn is_alternative_to(&self, main: &Self) -> bool {
        let version = self.name.file.model.strip_prefix(&main.name.file.model);
        let is_version = version.is_some_and(|version| version.starts_with('_'));
        let is_adapter =
            self.name.file.model == LORA && main.name.folder.starts_with(&self.name.folder);
        self.name.folder == main.name.folder && is_version
            || is_adapter && main.name.file.model == "diffusion_pytorch_model"
    }

    /// Returns whether `files` contain the set: its own path, or all its shards.
    pub fn is_part_of(&self, files: &BTreeSet<RepoPath>) -> bool {
        files.contains(&self.path)
            || !self.members.is_empty() && self.members.iter().all(|(_, path)| files.contains(path))
    }
}

/// A checkpoint of a training run, which the `Trainer` of transformers stores as `checkpoint-500`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Checkpoint<'a> {
    /// The folder of the run, with a slash at its end unless it is the root.
    run: &'a str,
    step: u64,
    folder: &'a str,
}

/// The error returned for shards without an index whose numbers are not a complete series.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", match .first_missing {
    Some(missing) => format!("shard `{missing}` is missing"),
    None if .found > .total => format!(
        "{found} shards exist, but according to their names there are {total}"
    ),
    None => "a shard number appears twice".to_owned(),
})]
#[non_exhaustive]
pub struct IncompleteShards {
    /// The number of different shard numbers.
    pub found: u32,
    /// The number of shards according to their names.
    pub total: u32,
    /// The path of the first missing shard; `None` if the defect is a number that appears twice.
    pub first_missing: Option<String>,
}

/// The sets of weights in a list of files.
///
/// ```
/// use hf_meta_format::formats::Formats;
/// use hf_meta_format::formats::weight_sets::{Layout, ListedFile};
///
/// let file = |path: &str| ListedFile { path: path.parse().unwrap(), size: 10 };
/// let files = ["model.safetensors", "model.fp16.safetensors", "config.json"].map(file);
/// let layout = Layout::new(Formats::built_in(), None, &files);
/// assert_eq!(layout.sets.len(), 2);
/// assert_eq!(layout.main().unwrap().path.as_str(), "model.safetensors");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Layout {
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

impl Layout {
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

    /// Returns whether a folder contains weights, in any format.
    #[doc(hidden)]
    pub fn has_weights(&self, folder: &str) -> bool {
        let is_inside =
            |found: &str| found == folder || folder.is_empty() || is_below(found, folder);
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
        found.next().filter(|_| found.next().is_none())
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
    /// from `0.safetensors` and `1.safetensors`.
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
            .filter(|(_, files)| *files > 1)
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

/// Joins the files that KTransformers numbers without their total: `model-00001.safetensors` and so on. Next to other
/// files of a model, they may be something else. Source: `kt-kernel/scripts/convert_cpu_weights.py`.
fn join_series(sets: &mut BTreeMap<RepoPath, WeightSet>) {
    let mut models = BTreeMap::<_, Vec<_>>::new();
    for path in sets.keys().filter(|path| split_folder(path.as_str()).1.starts_with("model")) {
        models.entry(path.folder()).or_default().push(path.clone());
    }
    for (folder, paths) in models {
        let number =
            |at: u32| RepoPath::join(folder.as_ref(), &format!("model-{at:05}.safetensors"));
        if paths.len() == 1 || !paths.iter().cloned().eq((1..).map(number).take(paths.len())) {
            continue;
        }
        let total = u32::try_from(paths.len()).unwrap_or_default();
        let files: Vec<_> = paths.iter().filter_map(|path| sets.remove(path)).collect();
        let path = RepoPath::join(folder.as_ref(), SERIES);
        let (file, sharding) = (WeightFileName::new("model"), Sharding::Shards);
        let name = WeightsName { file, sharding, ..files[0].name.clone() };
        let mut series = WeightSet::new(files[0].format, path.clone(), name);
        for (file, number) in files.into_iter().zip(1..) {
            let file = ListedFile { path: file.path, size: file.bytes };
            series.add(&file, Some(ShardNumber { number, total }));
        }
        sets.insert(path, series);
    }
}

/// Returns whether a path is below a folder.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// The most common quantization, which is preferred.
const PREFERRED_QUANTIZATION: &str = "Q4_K_M";

/// The order of sets in the search for the model: the lowest is the main set. Its fields are in the order of their
/// weight.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Precedence<'a> {
    location: Location,
    /// The result of a training run, or else its last step.
    step: Option<Reverse<u64>>,
    has_variant: bool,
    /// The most common quantization, or else the smallest.
    quantization: Option<(bool, u64, &'a str)>,
    sharding: Sharding,
}

/// Returns the path pattern of shards, with a `*` in place of the shard number; `None` if their names have no number.
pub fn shard_pattern(shards: &[RepoPath]) -> Option<RepoPath> {
    let files = shards.iter().map(|path| ListedFile { path: path.clone(), size: 0 });
    let sets = Layout::new(Formats::built_in(), None, &files.collect::<Vec<_>>()).sets;
    let [set] = &sets[..] else { return None };
    Some(set.path.clone())
}

/// Merges shards with the index of the same name, and sorts the sets by path. If a model was split twice, the names
/// do not show which shards belong to the index, so all sets remain separate.
fn with_their_indexes(sets: impl Iterator<Item = WeightSet>) -> Vec<WeightSet> {
    let mut models = BTreeMap::<_, Vec<_>>::new();
    for set in sets {
        models.entry(set.name.unsharded()).or_default().push(set);
    }
    let sets = models.into_values().flat_map(join);
    let mut sets: Vec<_> = sets.map(|set| (natural_key(set.path.as_str()), set)).collect();
    sort_by(&mut sets, |(one, _), (other, _)| one.cmp(other));
    sets.into_iter().map(|(_, set)| set).collect()
}

/// Returns a key that sorts texts like people do: `checkpoint-500` before `checkpoint-1000`. A number is replaced by
/// the count of its digits and the digits, after a `0`, which keeps its place among other characters.
fn natural_key(text: &str) -> Vec<u8> {
    let parts = text.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
    let mut key = Vec::with_capacity(2 * text.len());
    for part in parts {
        let is_number = part.iter().all(u8::is_ascii_digit);
        let zeros = part.iter().take_while(|byte| is_number && **byte == b'0').count();
        let digits = &part[zeros..];
        if is_number {
            key.extend([b'0', u8::try_from(digits.len()).unwrap_or(u8::MAX)]);
        }
        key.extend(digits);
    }
    key
}

/// Merges the sets of one model.
fn join(mut sets: Vec<WeightSet>) -> Vec<WeightSet> {
    let is_index = |set: &WeightSet| set.name.sharding == Sharding::Index;
    let splits: Vec<_> = sets.iter().filter(|set| set.is_without_index()).cloned().collect();
    if let ([split], true) = (&splits[..], sets.iter().any(is_index)) {
        sets.retain(|set| !set.is_without_index());
        for index in sets.iter_mut().filter(|set| is_index(set)) {
            index.files = split.files;
            index.bytes = split.bytes;
            index.members.clone_from(&split.members);
        }
    }
    sets
}

/// Weights in a format that was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsupportedWeights {
    /// The name of the format with its file extension, such as `GGUF (.gguf)`.
    pub format: &'static str,
    /// The number of files in this format.
    pub files: usize,
}

/// The format of parts that must be joined. Uploads were once limited to 50 GB per file.
pub const SPLIT_FILE: &str = "parts of a split file, to be joined first";

/// Returns whether a name is one of a part of a file that was cut into pieces, such as `x.gguf.part1of2`, `x.gguf-split-a` and
/// `x.safetensors.001`.
pub fn is_part_of_file(path: &str) -> bool {
    let (_, name) = split_folder(path);
    let mut ends = [".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt"].iter();
    let rest = ends.find_map(|end| Some(name.rsplit_once(end)?.1));
    let Some(rest) = rest.filter(|rest| rest.starts_with(['.', '-', '_'])) else { return false };
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_count = |word: &str| {
        let numbers = word.split_once("of").map_or([word, "1"], |(part, total)| [part, total]);
        numbers.into_iter().all(is_number)
    };
    let mut is_marked = false;
    rest[1..].split(['.', '-', '_']).all(|word| {
        let mark = ["parts", "part", "split", "chunk", "piece"];
        let numbered = mark.iter().find_map(|mark| word.strip_prefix(mark));
        let letters =
            |word: &str| word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_name = numbered.is_some_and(|number| letters(number) || is_count(number));
        // `split` counts with `aa`, `ab` and so on.
        let is_suffix = letters(word) && (is_marked || word.len() == 2 && word.starts_with('a'));
        is_marked |= is_name;
        is_name || is_count(word) || word == "of" || is_suffix
    })
}

/// Formats by file extension.
const EXTENSIONS: [(&str, &str); 16] = [
    ("bin", "PyTorch (.bin)"),
    ("pt", "PyTorch (.pt)"),
    ("pth", "PyTorch (.pth)"),
    ("ckpt", "PyTorch (.ckpt)"),
    ("gguf", "GGUF (.gguf)"),
    ("ggml", "GGML (.ggml)"),
    ("uqff", "UQFF (.uqff)"),
    ("onnx", "ONNX (.onnx)"),
    ("h5", "TensorFlow (.h5)"),
    ("keras", "Keras (.keras)"),
    ("tflite", "TensorFlow Lite (.tflite)"),
    ("msgpack", "Flax (.msgpack)"),
    ("npz", "NumPy (.npz)"),
    ("nemo", "NeMo (.nemo)"),
    ("mlmodel", "Core ML (.mlmodel)"),
    ("pkl", "pickle (.pkl)"),
];

/// Counts the files of each format.
fn count_unsupported(files: &[ListedFile]) -> Vec<UnsupportedWeights> {
    let mut counts = BTreeMap::new();
    for format in files.iter().filter_map(|file| unsupported_format(&file.path)) {
        *counts.entry(format).or_insert(0) += 1;
    }
    counts.into_iter().map(|((_, format), files)| UnsupportedWeights { format, files }).collect()
}

/// Returns the format of a file by its extension, after its position, because the most common formats are listed first;
/// `None` for files that are not weights.
fn unsupported_format(path: &RepoPath) -> Option<(usize, &'static str)> {
    if is_part_of_file(path.as_str()) {
        return Some((0, SPLIT_FILE));
    }
    let (stem, extension) = split_folder(path.as_str()).1.rsplit_once('.')?;
    let is_same = |(known, _): &(&str, _)| extension.eq_ignore_ascii_case(known);
    let position = EXTENSIONS.iter().position(is_same)?;
    match OtherFile::from_stem(stem) {
        Some(OtherFile::State) => None,
        Some(OtherFile::Weights(other)) if extension == "bin" => Some((EXTENSIONS.len(), other)),
        _ => Some((position, EXTENSIONS[position].1)),
    }
}

#[cfg(test)]
mod tests;
