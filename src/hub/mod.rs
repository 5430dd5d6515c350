//! The grammar of the Hugging Face Hub: names of repos and revisions, URLs, and what an answer that
//! is not the file means.

mod endpoint;
mod error;
mod ids;
pub(crate) mod listing;
mod reported_count;
mod source;
mod warnings;

pub use endpoint::{Endpoint, EndpointError};
pub use error::{HubError, HubErrorKind};
pub use ids::{CommitSha, IdError, RepoId, RepoKind, Revision};
pub(crate) use listing::ListFilesError;
pub use listing::ListingError;
pub use reported_count::HubReportedCount;
pub use source::{Source, SourceError};
pub(crate) use warnings::HubWarnings;
