//! The Hugging Face Hub: names, URLs, error responses and file listings.
//!
//! The validated names come from the crate of formats: a [`RepoId`] such as `bigscience/bloom`, a [`Revision`] such as
//! `main`, and a [`CommitSha`]. A [`Source`] is the parsed form of a text that a user pasted: a repository, a URL or a
//! local path.
//!
//! [`Endpoint`] builds all URLs that are requested from a Hub:
//!
//! | request | URL |
//! |---|---|
//! | a file or a range of it | `{endpoint}/{repo}/resolve/{revision}/{path}` |
//! | all files of a repository | `{endpoint}/api/models/{repo}/tree/{revision}?recursive=true` |
//! | the Hub's own parameter count | `{endpoint}/api/models/{repo}/revision/{revision}?expand=safetensors` |
//!
//! The Hub's response headers carry metadata. `X-Repo-Commit` is the commit of a response, `X-Error-Code`
//! distinguishes a missing repository from a missing file ([`HubError`](crate::HubError)), `Link` leads to the next
//! page of a listing ([`api`]), and `X-HF-Warning` is a message for users ([`HubWarnings`]).

pub(crate) mod api;
mod endpoint;
mod source;
mod warnings;

pub(crate) use self::{api::ListFilesError, warnings::HubWarnings};
pub use self::{
    api::{HubReportedCount, ListingError},
    endpoint::{Endpoint, EndpointError},
    source::{Source, SourceError},
};
pub(crate) use hf_meta_format::{CommitSha, IdError, RepoId, Revision};
