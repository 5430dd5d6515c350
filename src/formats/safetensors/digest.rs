//! Names that are not kept: what they were together, and whether they were distinct.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// A digest of the names of some tensors, in whatever order they come.
///
/// Two are equal if the names are, and as good as never if not: it holds how many names there are,
/// their length, and the sum of their 64-bit hashes. The hash has a key that is drawn for each process
/// and never leaves it, so names cannot be chosen to have the sum of others; nor do digests mean anything
/// to another process.
///
/// ```
/// use hf_meta::formats::safetensors::NamesDigest;
///
/// let [one, other] = [["h.0", "h.1"], ["h.1", "h.0"]].map(NamesDigest::from_iter);
/// assert_eq!(one, other);
/// assert_ne!(one, NamesDigest::from_iter(["h.0", "h.2"]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesDigest {
    tensors: u64,
    bytes: u64,
    hashes: u64,
}

impl NamesDigest {
    /// Adds a name.
    pub fn add(&mut self, name: &str) {
        self.add_hashed(name, hash(name));
    }

    pub(super) fn add_hashed(&mut self, name: &str, hash: u64) {
        self.tensors += 1;
        self.bytes = self.bytes.saturating_add(name.len() as u64);
        self.hashes = self.hashes.wrapping_add(hash);
    }

    /// How many names there are.
    #[must_use]
    pub fn tensors(&self) -> u64 {
        self.tensors
    }

    /// The length of all names together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<'a> FromIterator<&'a str> for NamesDigest {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut digest = Self::default();
        names.into_iter().for_each(|name| digest.add(name));
        digest
    }
}

/// Hashes of names, for as long as more may come.
#[derive(Debug, Default)]
pub(super) struct Hashes(Vec<u64>);

impl Hashes {
    /// Adds a name, and returns its hash.
    pub(super) fn add(&mut self, name: &str) -> u64 {
        let hash = hash(name);
        self.0.push(hash);
        hash
    }

    /// Whether no hash occurs twice, and so no name does.
    pub(super) fn are_distinct(mut self) -> bool {
        self.0.sort_unstable();
        self.0.is_sorted_by(|one, next| one < next)
    }
}

/// The hash of a name in this process.
fn hash(name: &str) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(name)
}
