//! The grammar of the Hugging Face Hub: names of repos and revisions, URLs, and what an answer that
//! is not the file means.

mod endpoint;
mod ids;
pub(crate) mod listing;
mod notice;
mod refusal;
mod reported_count;
mod source;

pub use endpoint::{Endpoint, EndpointError};
pub use ids::{CommitSha, IdError, RepoId, RepoKind, Revision};
pub(crate) use listing::ListFilesError;
pub use listing::ListingError;
pub(crate) use notice::Notices;
pub use refusal::{Refusal, RefusalKind};
pub use reported_count::HubReportedCount;
pub use source::{Source, SourceError};
