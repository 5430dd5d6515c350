//! What an index and the headers of its shards must agree on.
//!
//! A disagreement that leaves the counts right is a [`Finding`]. One that makes them wrong is an
//! error: a tensor that is in two shards would be counted twice, and one that is in none is missing
//! from the sum.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::Finding;
use super::finding::bounded;
use crate::count::ParameterCount;
use crate::formats::safetensors::{IndexError, SafetensorsFileHeader, SafetensorsIndexJson};
use crate::formats::{RepoPath, clip};

type Headers = [(RepoPath, SafetensorsFileHeader)];

/// What is odd about an index and its shards, other than what [`check_count`] finds.
///
/// # Errors
///
/// When the index and the headers cannot both be right about what there is to count, and when a sum
/// leaves 64 bits.
pub fn check(index: &SafetensorsIndexJson, headers: &Headers) -> Result<Vec<Finding>, IndexError> {
    let findings = survey(index, headers);
    match findings.first().and_then(contradiction) {
        Some(error) => Err(error),
        None => Ok(findings),
    }
}

/// What an index and the headers of its shards contradict each other in, then what is odd about them.
///
/// Of shards whose header is not given nothing is said. The size that the index declares is held against
/// that of the tensors only where all headers are given and hold just the tensors of the index; elsewhere
/// the difference is bound to be there.
#[must_use]
pub fn survey(index: &SafetensorsIndexJson, headers: &Headers) -> Vec<Finding> {
    let mut count = ParameterCount::default();
    let sum = headers.iter().try_for_each(|(_, header)| count.merge(&header.parameter_count()));
    let places = Places::of(headers);
    let mut findings: Vec<_> =
        sum.is_none().then_some(Finding::CountOverflow).into_iter().collect();
    findings.extend(bounded(places.doubles()));
    findings.extend(bounded(places.missing(index, headers)));
    let is_whole = findings.is_empty() && headers.len() == index.shards().len();
    findings.extend(bounded(places.misplaced(index, headers)));
    if is_whole && places.shards.len() == index.weight_map().len() {
        findings.extend(check_size(index.total_size(), count.totals().bytes));
    }
    findings
}

/// Whether an index is wrong about the bytes of all tensors, where it declares them.
#[must_use]
pub fn check_size(declared: Option<u64>, found: u64) -> Option<Finding> {
    let declared = declared.filter(|&declared| declared != found)?;
    Some(Finding::TotalSizeMismatch { declared, found })
}

/// What makes a count wrong, as an error.
fn contradiction(finding: &Finding) -> Option<IndexError> {
    Some(match finding.clone() {
        Finding::CountOverflow => IndexError::Overflow,
        Finding::DuplicateTensor { tensor, first, second } => {
            IndexError::InTwoShards { tensor, first, second }
        }
        Finding::MissingTensor { tensor, shard } => IndexError::Missing { tensor, shard },
        _ => return None,
    })
}

/// What is odd about a count by itself, and beside the total that the file claims.
///
/// Parameters and elements are both taken as right, with scalars or without: the writers of the claim
/// differ.
#[must_use]
pub fn check_count(count: &ParameterCount, declared: Option<u64>) -> Vec<Finding> {
    let unknown = count.rows().filter(|(dtype, _)| dtype.bits().is_none());
    let unknown = unknown.map(|(dtype, row)| Finding::UnknownDtype {
        dtype: clip(dtype.as_str()),
        tensors: row.tensors,
    });
    let totals = count.totals();
    let is_wrong = |declared: &u64| {
        [totals.parameters, totals.elements]
            .into_iter()
            .all(|found| *declared != found && Some(*declared) != found.checked_add(totals.scalars))
    };
    let found = totals.parameters;
    let wrong = declared
        .filter(is_wrong)
        .map(|declared| Finding::TotalParametersMismatch { declared, found });
    bounded(unknown).into_iter().chain(wrong).collect()
}

/// Where the tensors of shards are.
struct Places<'a> {
    /// Every tensor with the first shard that holds it.
    shards: HashMap<&'a str, &'a RepoPath>,
    /// Tensors that another shard holds, too, with that shard.
    twice: Vec<(&'a str, &'a RepoPath)>,
}

impl<'a> Places<'a> {
    fn of(headers: &'a Headers) -> Self {
        let (mut shards, mut twice) = (HashMap::new(), Vec::new());
        for (tensor, path) in tensors(headers) {
            match shards.entry(tensor) {
                Entry::Vacant(entry) => drop(entry.insert(path)),
                Entry::Occupied(_) => twice.push((tensor, path)),
            }
        }
        Self { shards, twice }
    }

    fn doubles(&self) -> impl Iterator<Item = Finding> {
        self.twice.iter().map(|(tensor, path)| Finding::DuplicateTensor {
            tensor: clip(tensor),
            first: clip(self.shards[tensor].as_str()),
            second: clip(path.as_str()),
        })
    }

    /// Tensors that are in no shard, though that of the index was read.
    fn missing(
        &self,
        index: &SafetensorsIndexJson,
        headers: &Headers,
    ) -> impl Iterator<Item = Finding> {
        let read: HashSet<_> = headers.iter().map(|(path, _)| path).collect();
        let missing = index.weight_map().filter(move |(tensor, shard)| {
            !self.shards.contains_key(tensor) && read.contains(shard)
        });
        missing.map(|(tensor, shard)| Finding::MissingTensor {
            tensor: clip(tensor),
            shard: clip(shard.as_str()),
        })
    }

    /// Tensors that are in one shard, but not in that of the index.
    fn misplaced(
        &self,
        index: &SafetensorsIndexJson,
        headers: &Headers,
    ) -> impl Iterator<Item = Finding> {
        let twice: HashSet<_> = self.twice.iter().map(|(tensor, _)| *tensor).collect();
        let once = tensors(headers).filter(move |(tensor, _)| !twice.contains(tensor));
        once.filter_map(|(tensor, path)| check_place(index, tensor, path))
    }
}

/// Every tensor of every shard.
fn tensors(headers: &Headers) -> impl Iterator<Item = (&str, &RepoPath)> {
    headers
        .iter()
        .flat_map(|(path, header)| header.tensors().names().map(move |tensor| (tensor, path)))
}

fn check_place(index: &SafetensorsIndexJson, tensor: &str, path: &RepoPath) -> Option<Finding> {
    match index.shard(tensor) {
        Some(indexed) if indexed == path => None,
        Some(indexed) => Some(Finding::WrongShard {
            tensor: clip(tensor),
            indexed: clip(indexed.as_str()),
            found: clip(path.as_str()),
        }),
        None => Some(Finding::UnindexedTensor { tensor: clip(tensor), shard: clip(path.as_str()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tensors: &[&str]) -> SafetensorsFileHeader {
        let entry = |(at, name): (usize, &&str)| {
            format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{}]}}"#, at + 1)
        };
        let entries: Vec<_> = tensors.iter().enumerate().map(entry).collect();
        SafetensorsFileHeader::from_json(format!("{{{}}}", entries.join(",")).as_bytes()).unwrap()
    }

    /// Checks shards `a` and `b` with these tensors against an index.
    fn verdict(a: &[&str], b: &[&str], index: &str) -> Result<Vec<Finding>, IndexError> {
        let index = SafetensorsIndexJson::from_json(index.as_bytes()).unwrap();
        let path = |name: &str| name.parse::<RepoPath>().unwrap();
        let headers = [(path("a.safetensors"), header(a)), (path("b.safetensors"), header(b))];
        let mut count = ParameterCount::default();
        for (_, header) in &headers {
            count.merge(&header.parameter_count()).unwrap();
        }
        let mut findings = check(&index, &headers)?;
        findings.extend(check_count(&count, index.declared_total()));
        Ok(findings)
    }

    const INDEX: &str = r#"{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;

    #[test]
    fn agreement() {
        assert_eq!(verdict(&["x"], &["y"], INDEX), Ok(vec![]));
    }

    #[test]
    fn oddities_that_leave_the_count_right() {
        let (a, b) = ("a.safetensors", "b.safetensors");
        let swapped = |tensor: &str, indexed: &str, found: &str| Finding::WrongShard {
            tensor: tensor.to_owned(),
            indexed: indexed.to_owned(),
            found: found.to_owned(),
        };
        assert_eq!(
            verdict(&["y"], &["x"], INDEX),
            Ok(vec![swapped("y", b, a), swapped("x", a, b)])
        );
        let extra = Finding::UnindexedTensor { tensor: "z".to_owned(), shard: b.to_owned() };
        assert_eq!(verdict(&["x"], &["y", "z"], INDEX), Ok(vec![extra]));
    }

    #[test]
    fn findings_have_an_end() {
        let names: Vec<_> = (0..1_007).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).chain(["x"]).collect();
        let findings = verdict(&names, &["y"], INDEX).unwrap();
        assert_eq!(findings.len(), 1_001);
        assert_eq!(findings.last(), Some(&Finding::MoreFindings { findings: 7 }));
    }

    #[test]
    fn unknown_dtypes_are_found() {
        let json = br#"{"w":{"dtype":"NEW3","shape":[2],"data_offsets":[0,1]}}"#;
        let header = SafetensorsFileHeader::from_json(json).unwrap();
        let unknown = Finding::UnknownDtype { dtype: "NEW3".to_owned(), tensors: 1 };
        assert_eq!(check_count(&header.parameter_count(), Some(2)), [unknown]);
    }

    #[test]
    fn wrong_totals_are_found() {
        let index = r#"{"metadata":{"total_size":3,"total_parameters":"333312"},
            "weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;
        let totals = [
            Finding::TotalSizeMismatch { declared: 3, found: 2 },
            Finding::TotalParametersMismatch { declared: 333_312, found: 2 },
        ];
        assert_eq!(verdict(&["x"], &["y"], index), Ok(totals.into()));
    }

    #[test]
    fn oddities_that_make_the_count_wrong() {
        let [a, b, x, y] = ["a.safetensors", "b.safetensors", "x", "y"].map(str::to_owned);
        assert_eq!(
            verdict(&["x"], &["x", "y"], INDEX),
            Err(IndexError::InTwoShards { tensor: x, first: a, second: b.clone() })
        );
        assert_eq!(verdict(&["x"], &[], INDEX), Err(IndexError::Missing { tensor: y, shard: b }));
    }
}
