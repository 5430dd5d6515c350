//! Repositories that are made when they are requested.

use super::repo::Repo;

/// A set of models that are made on request, so that a Hub can have millions of them.
///
/// A model is identified by its index. Its files must depend on nothing but its index and the pushes so far, and every
/// commit that the Hub has named must remain readable.
pub trait ComputedRepos: Send + Sync {
    /// Returns the number of models.
    fn count(&self) -> u64;

    /// Returns the index of the model with this name.
    fn index_of(&self, id: &str) -> Option<u64>;

    /// Returns a model by its index, which is below [`ComputedRepos::count`]. A model with a higher index has a later
    /// `createdAt`.
    fn repo(&self, index: u64) -> Repo;

    /// Returns the time of the last push to a model in ISO 8601, by which a listing can be sorted.
    fn last_modified(&self, index: u64) -> String;
}
