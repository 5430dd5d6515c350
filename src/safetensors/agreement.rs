//! What an index and the headers of its shards must agree on.
//!
//! A disagreement that leaves the counts right is a [`Finding`]. One that makes them wrong is an
//! error: a tensor that is in two shards would be counted twice, and one that is in none is missing
//! from the sum.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::{
    IndexError, ParameterCount, RepoPath, SafetensorsFileHeader, SafetensorsIndexJson, clip,
};

/// The most findings of a kind that are listed one by one.
const MOST_FINDINGS: usize = 1_000;

/// Something odd that leaves the counts right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the sentence of each variant says what its fields are")]
pub enum Finding {
    /// A shard holds a tensor that the index does not name, so loaders would pass it over.
    NotInIndex { tensor: String, shard: String },
    /// A tensor is in another shard than the index says.
    OtherShard { tensor: String, indexed: String, found: String },
    /// `total_size` of the index is not the sum of the tensors' bytes.
    TotalSize { declared: u64, found: u64 },
    /// `total_parameters` of the index or the metadata is not the count.
    TotalParameters { declared: u64, found: u64 },
    /// Tensors have a dtype of unknown width, so their sizes could not be checked.
    UnknownDtype { dtype: String, tensors: u64 },
    /// The configuration of the model cannot be used, so packed weights are counted as stored.
    Config { file: String, message: String },
    /// The server did not say of which commit its files are, so they could be of several.
    NotPinned,
    /// The weights are not where most repos have them, and only a part of the repo could be searched.
    PartlyListed,
    /// There is more of the kind of the finding before.
    More { findings: u64 },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInIndex { tensor, shard } => {
                write!(f, "`{shard}` holds tensor `{tensor}`, which the index does not name")
            }
            Self::OtherShard { tensor, indexed, found } => {
                write!(f, "tensor `{tensor}` is in `{found}`, not in `{indexed}` as the index says")
            }
            Self::TotalSize { declared, found } => {
                write!(f, "the index declares {declared} bytes of tensors, but they have {found}")
            }
            Self::TotalParameters { declared, found } => {
                write!(f, "the file declares {declared} parameters, but has {found}")
            }
            Self::UnknownDtype { dtype, tensors } => {
                write!(
                    f,
                    "dtype `{dtype}` is not known; the sizes of its tensors ({tensors}) are not checked"
                )
            }
            Self::Config { file, message } => {
                write!(
                    f,
                    "`{file}` is passed over, and packed weights are counted as stored: {message}"
                )
            }
            Self::NotPinned => f.write_str("the server does not say of which commit its files are"),
            Self::PartlyListed => f.write_str(
                "only what was downloaded was searched; the repo may hold the weights that are the model",
            ),
            Self::More { findings } => write!(f, "{findings} more of that kind"),
        }
    }
}

/// What is odd about an index and its shards, other than what [`check_count`] finds.
///
/// # Errors
///
/// When the index and the headers cannot both be right about what there is to count, and when a sum
/// leaves 64 bits.
pub fn check(
    index: &SafetensorsIndexJson,
    headers: &[(RepoPath, SafetensorsFileHeader)],
) -> Result<Vec<Finding>, IndexError> {
    let mut count = ParameterCount::default();
    for (_, header) in headers {
        count.merge(header.parameter_count()).ok_or(IndexError::Overflow)?;
    }
    let mut findings = check_places(index, headers)?;
    let bytes = count.totals().bytes;
    if let Some(declared) = index.total_size().filter(|&declared| declared != bytes) {
        findings.push(Finding::TotalSize { declared, found: bytes });
    }
    Ok(findings)
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
    let wrong =
        declared.filter(is_wrong).map(|declared| Finding::TotalParameters { declared, found });
    bounded(unknown).into_iter().chain(wrong).collect()
}

/// The first findings, and how many more there are: a file may give cause for as many as it likes.
fn bounded(mut findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut listed: Vec<_> = findings.by_ref().take(MOST_FINDINGS).collect();
    match findings.count() as u64 {
        0 => {}
        more => listed.push(Finding::More { findings: more }),
    }
    listed
}

/// Holds every tensor of every shard against the index, and the other way round.
fn check_places(
    index: &SafetensorsIndexJson,
    headers: &[(RepoPath, SafetensorsFileHeader)],
) -> Result<Vec<Finding>, IndexError> {
    let mut places: HashMap<&str, &RepoPath> = HashMap::with_capacity(index.weight_map().len());
    for (path, header) in headers {
        for (tensor, _) in header.tensors() {
            if let Some(first) = places.insert(tensor, path) {
                return Err(IndexError::InTwoShards {
                    tensor: clip(tensor),
                    first: clip(first.as_str()),
                    second: clip(path.as_str()),
                });
            }
        }
    }
    if let Some((tensor, shard)) =
        index.weight_map().find(|(tensor, _)| !places.contains_key(tensor))
    {
        return Err(IndexError::Missing { tensor: clip(tensor), shard: clip(shard.as_str()) });
    }
    let tensors = headers
        .iter()
        .flat_map(|(path, header)| header.tensors().map(move |(tensor, _)| (tensor, path)));
    Ok(bounded(tensors.filter_map(|(tensor, path)| check_place(index, tensor, path))))
}

fn check_place(index: &SafetensorsIndexJson, tensor: &str, path: &RepoPath) -> Option<Finding> {
    match index.shard(tensor) {
        Some(indexed) if indexed == path => None,
        Some(indexed) => Some(Finding::OtherShard {
            tensor: clip(tensor),
            indexed: clip(indexed.as_str()),
            found: clip(path.as_str()),
        }),
        None => Some(Finding::NotInIndex { tensor: clip(tensor), shard: clip(path.as_str()) }),
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
            count.merge(header.parameter_count()).unwrap();
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
        let swapped = |tensor: &str, indexed: &str, found: &str| Finding::OtherShard {
            tensor: tensor.to_owned(),
            indexed: indexed.to_owned(),
            found: found.to_owned(),
        };
        assert_eq!(
            verdict(&["y"], &["x"], INDEX),
            Ok(vec![swapped("y", b, a), swapped("x", a, b)])
        );
        let extra = Finding::NotInIndex { tensor: "z".to_owned(), shard: b.to_owned() };
        assert_eq!(verdict(&["x"], &["y", "z"], INDEX), Ok(vec![extra]));
    }

    #[test]
    fn findings_have_an_end() {
        let names: Vec<_> = (0..MOST_FINDINGS + 7).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).chain(["x"]).collect();
        let findings = verdict(&names, &["y"], INDEX).unwrap();
        assert_eq!(findings.len(), MOST_FINDINGS + 1);
        assert_eq!(findings.last(), Some(&Finding::More { findings: 7 }));
    }

    #[test]
    fn unknown_dtypes_are_found() {
        let json = br#"{"w":{"dtype":"NEW3","shape":[2],"data_offsets":[0,1]}}"#;
        let header = SafetensorsFileHeader::from_json(json).unwrap();
        let unknown = Finding::UnknownDtype { dtype: "NEW3".to_owned(), tensors: 1 };
        assert_eq!(check_count(header.parameter_count(), Some(2)), [unknown]);
    }

    #[test]
    fn wrong_totals_are_found() {
        let index = r#"{"metadata":{"total_size":3,"total_parameters":"333312"},
            "weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;
        let totals = [
            Finding::TotalSize { declared: 3, found: 2 },
            Finding::TotalParameters { declared: 333_312, found: 2 },
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
