//! The numbers in the names of shards.

use std::collections::BTreeMap;

use crate::results::{Finding, bounded};
use hf_meta_format::formats::weight_sets::NumberedName;
use hf_meta_format::formats::{RepoPath, clip};

/// Checks the numbers in shard names. Returns the first finding for each group of names that differ only in numbers.
pub(crate) fn check_shard_numbers(shards: &[RepoPath]) -> Vec<Finding> {
    let mut sets = BTreeMap::<_, Vec<_>>::new();
    for path in shards {
        let Some(name) = NumberedName::split(path.as_str()).last() else { continue };
        if let (Ok(number), Ok(total)) = (name.number.parse(), name.total.parse()) {
            let numbers = sets.entry((name.stem, name.end)).or_default();
            numbers.push(NumberedShard { path, name, number, total });
        }
    }
    bounded(sets.values().filter_map(|set| check_set(set)))
}

/// A shard with numbers in its name, of any length.
struct NumberedShard<'a> {
    path: &'a RepoPath,
    name: NumberedName<'a>,
    number: u64,
    total: u64,
}

/// Returns the first defect in the numbers of one set of shards.
fn check_set(set: &[NumberedShard<'_>]) -> Option<Finding> {
    let name = |shard: &NumberedShard<'_>| clip(shard.path.as_str());
    let NumberedShard { name: NumberedName { stem, total: digits, end, .. }, total, .. } =
        set.first()?;
    let total = *total;
    if let Some(other) = set.iter().find(|other| other.total != total) {
        let (first, second) = (name(&set[0]), name(other));
        return Some(Finding::ShardTotalMismatch { first, second });
    }
    // Some exporters number shards from 0, and the one of gpt-oss then takes the last number for the total.
    let first_number = u64::from(set.iter().all(|shard| shard.number > 0));
    let has_last = first_number == 0 && set.iter().any(|shard| shard.number == total);
    let total = total.saturating_add(u64::from(has_last && set.len() as u64 > total));
    let mut numbers = BTreeMap::new();
    for shard in set {
        if shard.number - first_number >= total {
            let shard = name(shard);
            return Some(Finding::ShardNumberOutOfRange { shard, total, first_number });
        }
        if let Some(twin) = numbers.insert(shard.number, shard) {
            let (first, second) = (name(twin), name(shard));
            return Some(Finding::DuplicateShardNumber { first, second });
        }
    }
    let listed = numbers.len() as u64;
    let first_missing = (first_number..=total).find(|number| !numbers.contains_key(number));
    (listed < total).then(|| Finding::ShardNumberMissing {
        shards: clip(&format!("{stem}*-of-{digits}{end}")),
        total,
        listed,
        first_missing: first_missing.unwrap_or(listed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(shards: &[&str]) -> Vec<Finding> {
        let paths: Vec<_> = shards.iter().map(|name| name.parse().unwrap()).collect();
        check_shard_numbers(&paths)
    }

    #[test]
    fn a_complete_numbering_has_no_findings() {
        let sets: [&[&str]; 6] = [
            &["a.safetensors", "b-of-2.safetensors", "c-1-of-.safetensors"],
            &["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            // DeepSeek-R1 pads the two numbers to different lengths.
            &["model-00001-of-000001.safetensors"],
            &["model_00000-of-00002.safetensors", "model_00001-of-00002.safetensors"],
            &["m-0-of-2.safetensors", "m-1-of-2.safetensors", "m-2-of-2.safetensors"],
            &["m-1-of-1.fp16.safetensors", "m-1-of-1.safetensors", "x/m-1-of-1.safetensors"],
        ];
        for shards in sets {
            assert_eq!(findings(shards), [], "{shards:?}");
        }
    }

    #[test]
    fn the_first_defect_of_each_numbering_is_found() {
        let name = |number: u64, of: u64| format!("m-{number}-of-{of}.safetensors");
        let found = |numbers: &[(u64, u64)]| {
            let names: Vec<_> = numbers.iter().map(|&(number, of)| name(number, of)).collect();
            findings(&names.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let missing = |total, listed, first_missing| Finding::ShardNumberMissing {
            shards: format!("m-*-of-{total}.safetensors"),
            total,
            listed,
            first_missing,
        };
        assert_eq!(found(&[(1, 3), (3, 3)]), [missing(3, 2, 2)]);
        assert_eq!(found(&[(2, 3), (3, 3)]), [missing(3, 2, 1)]);
        assert_eq!(found(&[(0, 3), (1, 3)]), [missing(3, 2, 2)]);
        assert_eq!(found(&[(1, u64::MAX)]), [missing(u64::MAX, 1, 2)]);
        let beyond =
            |shard, first_number| Finding::ShardNumberOutOfRange { shard, total: 2, first_number };
        assert_eq!(found(&[(1, 2), (3, 2)]), [beyond(name(3, 2), 1)]);
        assert_eq!(found(&[(0, 2), (2, 2)]), [beyond(name(2, 2), 0)]);
        assert_eq!(
            found(&[(1, 2), (2, 3)]),
            [Finding::ShardTotalMismatch { first: name(1, 2), second: name(2, 3) }]
        );
        let twice = Finding::DuplicateShardNumber {
            first: "m-01-of-2.safetensors".to_owned(),
            second: "m-1-of-2.safetensors".to_owned(),
        };
        assert_eq!(findings(&["m-01-of-2.safetensors", "m-1-of-2.safetensors"]), [twice]);
    }
}
