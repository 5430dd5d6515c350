//! Repositories that are generated on request.

use super::repo::Repo;

/// A set of models that are generated on request, so that a Hub can have millions of them.
///
/// A model is identified by its index. Its files must depend only on its index and the pushes so far, and every
/// commit that the Hub has returned must stay readable.
pub trait LazyRepos: Send + Sync {
    /// Returns the number of models.
    fn count(&self) -> u64;

    /// Returns the index of the model with this name, or `None` if there is none.
    fn index_of(&self, id: &str) -> Option<u64>;

    /// Returns the model with an index below [`LazyRepos::count`]. Models with higher indexes must have later
    /// `createdAt` times.
    fn repo(&self, index: u64) -> Repo;

    /// Returns the time of the last push to a model in ISO 8601, by which listings can be sorted.
    fn last_modified(&self, index: u64) -> String;
}
