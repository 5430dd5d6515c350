//! A call: locate the weights, read the headers, assemble the result.
//!
//! 1. An [`Inspection`] holds the inputs of a call: a backend, a [`Target`] in it, a [`Plan`] and limits.
//! 2. `cached` serves it from the header cache, if there is one.
//! 3. `locate` finds the weights by their standard names or else in a listing, and pins the commit.
//! 4. `shards` streams the index and reads each shard as soon as the index names it.
//! 5. `reader` reads one header in the ranges that its [format](crate::formats::Format) requests, and reads
//!    `config.json` once a tensor needs it.
//! 6. An [`ReportBuilder`](crate::report::ReportBuilder) collects the headers as they arrive, compares them with the index, and
//!    feeds the single [`Counter`](crate::count::Counter).
//! 7. `verify` does the same, but continues after errors and reports all of them.

mod cached;
mod config_file;
mod hub_plan;
mod locate;
mod memory;
mod reader;
mod record;
mod shards;
mod target;
mod unindexed;
mod verify;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use self::memory::ClientMemory;
pub use self::record::{RecordedCall, RecordedReport};
pub(crate) use self::target::Target;
use crate::backends::{Backend, CallHooks, FileListing, HeaderCache};
use crate::error::Error;
use crate::formats::{Formats, RepoPath};
use crate::http::transfer::CallMeter;
use crate::report::verify::VerifyReport;
use crate::report::{BuiltReport, CountReport, Finding, Plan, SafetensorsParseFromRepo, Weights};

/// The progress of a call, in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of shards whose headers have been read and validated.
    pub done: usize,
    /// The number of shards known so far. It can grow while the index is being read.
    pub total: usize,
}

/// A callback that is called after each shard.
#[derive(Clone)]
pub(crate) struct OnProgress(pub(crate) Arc<dyn Fn(Progress) + Send + Sync>);

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
}

/// The limits of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum size of a header in bytes.
    pub(crate) header: u64,
    /// Maximum size of all headers together in bytes.
    pub(crate) headers: u64,
    /// Maximum size of an index in bytes.
    pub(crate) index: u64,
    /// Maximum size of `config.json` in bytes.
    pub(crate) config: u64,
    /// Maximum number of shards to read concurrently.
    pub(crate) concurrency: usize,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Inspection {
    /// The name of the source, as shown in the result.
    pub(crate) source: String,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) target: Target,
    /// The formats that the call accepts.
    pub(crate) formats: Formats,
    pub(crate) plan: Plan,
    pub(crate) limits: Limits,
    pub(crate) memory: ClientMemory,
    /// True to list the other sets of weights even if the weights have a standard name.
    pub(crate) lists_sets: bool,
    /// The files of the backend, if the caller knows them.
    pub(crate) files: Option<Arc<FileListing>>,
    pub(crate) on_progress: Option<OnProgress>,
    pub(crate) started: Instant,
    pub(crate) meter: CallMeter,
    /// Lets a service pause or stop this call.
    pub(crate) gate: Option<Arc<dyn CallHooks>>,
}

/// A weight set whose headers have been read.
struct Inspected {
    /// The path of the file or the index, or the pattern of shards without an index.
    path: RepoPath,
    backend: Arc<dyn Backend>,
    assembled: BuiltReport,
    report: CountReport,
}

impl Inspection {
    /// Reads all headers and returns them with their counts. Stops at the first error.
    pub(crate) async fn parse(
        self,
        cache: Option<&HeaderCache>,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let Inspected { path, backend, assembled, report } = self.inspect(cache, true).await?;
        let file = backend.file_name(&path);
        let parsed = assembled.into_parsed(path, report);
        parsed.map_err(|source| Error::InvalidIndex { file, source })
    }

    /// Reads all headers, in any format, and returns them with their counts. Stops at the first error.
    pub(crate) async fn weights(self, cache: Option<&HeaderCache>) -> Result<Weights, Error> {
        let Inspected { path, backend, assembled, report } = self.inspect(cache, true).await?;
        let file = backend.file_name(&path);
        let weights = assembled.into_weights(path, report);
        weights.map_err(|source| Error::InvalidIndex { file, source })
    }

    /// Reads all headers and returns their counts. Drops each header once it is counted.
    pub(crate) async fn count(self, cache: Option<&HeaderCache>) -> Result<CountReport, Error> {
        Ok(self.inspect(cache, false).await?.report)
    }

    /// Reads all headers, and continues after errors.
    pub(crate) async fn verify(self) -> Result<VerifyReport, Error> {
        let (reader, located) = self.locate().await?;
        let mut report = reader.verify(located.weights).await?;
        report.findings.extend((!located.is_complete).then_some(Finding::PartialListing));
        Ok(report)
    }

    /// Reads all headers. Stops at the first error.
    async fn read(self, keeps_headers: bool) -> Result<Inspected, Error> {
        if self.plan == Plan::Hub
            && !self.lists_sets
            && let Some(inspected) = self.read_from_hub(keeps_headers).await?
        {
            return Ok(inspected);
        }
        let (reader, located) = self.locate().await?;
        reader.commit_resolved().await;
        let mut inspected = reader.read_weights(located.weights, keeps_headers).await?;
        inspected.report.add_other_sets(located.other_sets);
        let partial = (!located.is_complete).then_some(Finding::PartialListing);
        inspected.report.findings.extend(partial);
        Ok(inspected)
    }
}
