//! One set of weights, and its precedence among others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use thiserror::Error;

use super::listed_file::ListedFile;
use super::name::{LORA, Location, SERIES, ShardNumber, Sharding, WeightsName};
use crate::base::sort::Ordered;
use crate::formats::gguf::Gguf;
use crate::formats::{Format, RepoPath, WeightsKind};

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
    pub(super) name: WeightsName,
    #[serde(skip)]
    pub(super) members: Vec<(Option<ShardNumber>, RepoPath)>,
}

impl WeightSet {
    pub(super) fn new(format: &'static str, path: RepoPath, name: WeightsName) -> Self {
        let quantization = name.file.is_quantized.then(|| name.file.variant.clone());
        let kind = name.file.kind;
        Self { path, files: 0, bytes: 0, format, quantization, kind, name, members: Vec::new() }
    }

    /// Adds a file to the set.
    pub(super) fn add(&mut self, file: &ListedFile, shard: Option<ShardNumber>) {
        if self.name.sharding != Sharding::Index {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(file.size);
            self.members.push((shard, file.path.clone()));
        }
    }

    /// Returns the checkpoint of a training run below `root` that the set belongs to.
    pub(super) fn checkpoint(&self, root: &str) -> Option<Checkpoint<'_>> {
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
    pub(super) fn has_standard_name(&self) -> bool {
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
    pub(super) fn precedence(&self, location: Location) -> Precedence<'_> {
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
    pub(super) fn is_alternative_to(&self, main: &Self) -> bool {
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
pub(super) struct Checkpoint<'a> {
    /// The folder of the run, with a slash at its end unless it is the root.
    pub(super) run: &'a str,
    step: u64,
    pub(super) folder: &'a str,
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

/// The most common quantization, which is preferred.
const PREFERRED_QUANTIZATION: &str = "Q4_K_M";

/// The order of sets in the search for the model: the lowest is the main set. Its fields are in the order of their
/// weight.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Precedence<'a> {
    pub(super) location: Location,
    /// The result of a training run, or else its last step.
    step: Option<Reverse<u64>>,
    pub(super) has_variant: bool,
    /// The most common quantization, or else the smallest.
    quantization: Option<(bool, u64, &'a str)>,
    sharding: Sharding,
}
