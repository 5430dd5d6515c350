//! Placeholders for SHA-256 and git hashes. They differ for different content and may change between Rust versions.

use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Clone, Copy)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn new(subject: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        subject.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Returns 40 hexadecimal digits, the length of a git hash.
    pub(super) fn sha1(self) -> String {
        self.hex(40)
    }

    /// Returns 64 hexadecimal digits, the length of an LFS hash.
    pub(super) fn sha256(self) -> String {
        self.hex(64)
    }

    fn hex(self, digits: usize) -> String {
        format!("{:016x}", self.0).chars().cycle().take(digits).collect()
    }
}
