//! The grammar of the Hugging Face Hub: names of repos and revisions, URLs, and what an answer that
//! is not the file means.

#[cfg(feature = "client")]
mod endpoint;
#[cfg(feature = "client")]
mod error;
mod ids;
#[cfg(feature = "client")]
pub(crate) mod listing;
#[cfg(feature = "client")]
mod reported_count;
#[cfg(feature = "client")]
mod source;
#[cfg(feature = "client")]
mod warnings;

#[cfg(feature = "client")]
pub use self::{
    endpoint::{Endpoint, EndpointError},
    error::{HubError, HubErrorKind},
    listing::ListingError,
    reported_count::HubReportedCount,
    source::{Source, SourceError},
};
#[cfg(feature = "client")]
pub(crate) use self::{listing::ListFilesError, warnings::HubWarnings};
pub use ids::{CommitSha, IdError, RepoId, RepoKind, Revision};
