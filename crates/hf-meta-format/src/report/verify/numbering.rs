//! Checks the numbers in shard names, such as `model-00001-of-00072.safetensors`.

use std::collections::BTreeMap;

use crate::formats::weight_sets::NumberedName;
use crate::formats::{RepoPath, clip};
use crate::report::{Finding, bounded};

/// Checks the numbers in shard names. Returns the first finding for each group of names that differ only in numbers.
pub fn check(shards: &[RepoPath]) -> Vec<Finding> {
    let mut sets = BTreeMap::<_, Vec<_>>::new();
    for shard in shards.iter().filter_map(NumberedShard::parse) {
        sets.entry((shard.stem, shard.end)).or_default().push(shard);
    }
    bounded(sets.values().filter_map(|set| check_set(set)))
}

/// A shard with numbers in its name, of any length.
struct NumberedShard<'a> {
    path: &'a RepoPath,
    /// The path before the number, `model-`.
    stem: &'a str,
    number: u64,
    total: u64,
    /// The path after the numbers, `.safetensors`.
    end: &'a str,
}

impl<'a> NumberedShard<'a> {
    /// Parses the last numbers in a path; `None` if it has none.
    fn parse(path: &'a RepoPath) -> Option<Self> {
        let NumberedName { stem, number, total, end } =
            NumberedName::split(path.as_str()).last()?;
        Some(Self { path, stem, number: number.parse().ok()?, total: total.parse().ok()?, end })
    }

    /// Returns the path, truncated for use in a message.
    fn name(&self) -> String {
        clip(self.path.as_str())
    }
}

/// Returns the first defect in the numbers of one set of shards.
fn check_set(set: &[NumberedShard<'_>]) -> Option<Finding> {
    let first = set.first()?;
    if let Some(other) = set.iter().find(|other| other.total != first.total) {
        return Some(Finding::ShardTotalMismatch { first: first.name(), second: other.name() });
    }
    // Some exporters number shards from 0.
    let start = u64::from(set.iter().all(|shard| shard.number > 0));
    let mut numbers = BTreeMap::new();
    for shard in set {
        if shard.number - start >= shard.total {
            return Some(Finding::ShardNumberOutOfRange {
                shard: shard.name(),
                total: shard.total,
                first_number: start,
            });
        }
        if let Some(twin) = numbers.insert(shard.number, shard) {
            return Some(Finding::DuplicateShardNumber {
                first: twin.name(),
                second: shard.name(),
            });
        }
    }
    let listed = numbers.len() as u64;
    (listed < first.total).then(|| Finding::ShardNumberMissing {
        shards: clip(&format!("{}*-of-{}{}", first.stem, first.total, first.end)),
        total: first.total,
        listed,
        first_missing: (start..=first.total)
            .find(|number| !numbers.contains_key(number))
            .unwrap_or(listed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(shards: &[&str]) -> Vec<Finding> {
        let paths: Vec<_> = shards.iter().map(|name| name.parse().unwrap()).collect();
        check(&paths)
    }

    #[test]
    fn a_complete_numbering_has_no_findings() {
        let sets: [&[&str]; 5] = [
            &["a.safetensors", "b-of-2.safetensors", "c-1-of-.safetensors"],
            &["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            // DeepSeek-R1 pads the two numbers to different lengths.
            &["model-00001-of-000001.safetensors"],
            &["model_00000-of-00002.safetensors", "model_00001-of-00002.safetensors"],
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
        assert_eq!(found(&[(0, 2), (1, 2), (2, 2)]), [beyond(name(2, 2), 0)]);
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
