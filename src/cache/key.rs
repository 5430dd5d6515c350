//! What entries are kept under.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};

use crate::hub::{CommitSha, Endpoint, RepoId, Revision};

/// Changes whenever entries of an earlier version are not to be found any more.
const VERSION: &[u8] = b"hf-meta cache 1";

/// The name of an entry: a hash of all that it is of, the reader's token included.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// The hash, of which every bit is as good as random.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// In hexadecimal.
impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheKey({self})")
    }
}

/// The part of a key that identifies a backend and its reader.
#[derive(Clone, Copy)]
pub(crate) struct CacheIdentity<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// The token as it is sent; empty without a token.
    pub(crate) reader: &'a [u8],
    pub(crate) repo: &'a RepoId,
    pub(crate) revision: &'a Revision,
}

/// The keys of what one reader asks for in one repo, at whichever revision.
///
/// The token is part of them: what was read with one is never found without it, and what one reader
/// may see is not shown to another. Only a hash of it leaves this module.
#[derive(Clone)]
pub(crate) struct Keys(Context);

impl Keys {
    /// `target` is the part of the repository that a call reads.
    pub(crate) fn new(identity: CacheIdentity<'_>, target: &str) -> Self {
        let CacheIdentity { endpoint, reader, repo, .. } = identity;
        let mut context = Context::new(&SHA256);
        let (endpoint, repo) = (endpoint.url().as_str(), repo.to_string());
        for part in [VERSION, endpoint.as_bytes(), reader, repo.as_bytes(), target.as_bytes()] {
            add(&mut context, part);
        }
        Self(context)
    }

    /// Under which it is kept what was read at a commit.
    pub(crate) fn of_commit(&self, commit: &CommitSha) -> CacheKey {
        self.finish("commit", commit.as_str())
    }

    /// Under which it is kept which commit a branch was at.
    pub(crate) fn of_branch(&self, branch: &Revision) -> CacheKey {
        self.finish("branch", branch.as_str())
    }

    fn finish(&self, kind: &str, name: &str) -> CacheKey {
        let mut context = self.0.clone();
        add(&mut context, kind.as_bytes());
        add(&mut context, name.as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(context.finish().as_ref());
        CacheKey(key)
    }
}

#[cfg(test)]
impl Keys {
    pub(crate) fn of_test(target: &str) -> Self {
        let (endpoint, revision) = (&Endpoint::default(), &Revision::default());
        let repo = &"a/b".parse().unwrap();
        Self::new(CacheIdentity { endpoint, reader: b"", repo, revision }, target)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

/// A part with its length before it, so that no two lists of parts are the same bytes.
fn add(context: &mut Context, part: &[u8]) {
    context.update(&(part.len() as u64).to_le_bytes());
    context.update(part);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn everything_that_differs_makes_another_key() {
        let key = |endpoint: &str, reader: &str, repo: &str, target: &str, commit: char| {
            let endpoint = Endpoint::parse(endpoint).unwrap();
            let (reader, repo) = (reader.as_bytes(), &repo.parse().unwrap());
            let identity =
                CacheIdentity { endpoint: &endpoint, reader, repo, revision: &Revision::default() };
            Keys::new(identity, target).of_commit(&commit.to_string().repeat(40).parse().unwrap())
        };
        let hub = Endpoint::HUGGING_FACE;
        let different = [
            key(hub, "", "a/b", "", '1'),
            key("http://127.0.0.1", "", "a/b", "", '1'),
            key(hub, "Bearer x", "a/b", "", '1'),
            key(hub, "Bearer y", "a/b", "", '1'),
            key(hub, "", "a/c", "", '1'),
            key(hub, "", "datasets/a/b", "", '1'),
            key(hub, "", "a/b", "c", '1'),
            key(hub, "", "a/b", "", '2'),
        ];
        assert_eq!(different.iter().collect::<HashSet<_>>().len(), different.len());
        assert_eq!(key(hub, "", "a/b", "", '1'), different[0]);
    }

    #[test]
    fn a_branch_that_is_called_like_a_commit_is_another_entry() {
        let keys = Keys::of_test("");
        let name = "1".repeat(40);
        assert_ne!(keys.of_commit(&name.parse().unwrap()), keys.of_branch(&name.parse().unwrap()));
    }
}
