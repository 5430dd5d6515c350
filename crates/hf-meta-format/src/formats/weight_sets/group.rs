//! Groups the files of a listing into sets.

use std::collections::BTreeMap;

use super::listed_file::ListedFile;
use super::name::{SERIES, ShardNumber, Sharding, WeightsName};
use super::set::WeightSet;
use crate::base::sort::sort_by;
use crate::formats::path::split_folder;
use crate::formats::{RepoPath, WeightFileName};

/// Joins the files that KTransformers numbers without their total: `model-00001.safetensors` and so on. Next to other
/// files of a model, they may be something else. Source: `kt-kernel/scripts/convert_cpu_weights.py`.
pub(super) fn join_series(sets: &mut BTreeMap<RepoPath, WeightSet>) {
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

/// Merges shards with the index of the same name, and sorts the sets by path. If a model was split twice, the names
/// do not show which shards belong to the index, so all sets remain separate.
pub(super) fn with_their_indexes(sets: impl Iterator<Item = WeightSet>) -> Vec<WeightSet> {
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
