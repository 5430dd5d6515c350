//! The grammar of the Hugging Face Hub: names of repos and revisions, URLs, and what an answer that
//! is not the file means.

mod claim;
mod endpoint;
mod ids;
mod notice;
mod refusal;
pub(crate) mod tree;

pub use claim::Claim;
pub use endpoint::{Endpoint, EndpointError};
pub use ids::{CommitSha, IdError, RepoId, RepoKind, Revision};
pub(crate) use notice::Notices;
pub use refusal::{Refusal, RefusalKind};
pub use tree::ListingError;
pub(crate) use tree::TreeError;
