//! One call: locate the weights, read the headers, assemble the result.
//!
//! 1. [`Inspection`] holds what a call reads: a backend, a [`Target`] in it, a [`Plan`] and limits.
//! 2. `cached` answers it from the header cache, if there is one.
//! 3. `locate` finds the weights and pins the commit: by their usual names, else in a listing.
//! 4. `shards` streams the index and reads every shard as soon as the index names it.
//! 5. `reader` reads one header, range by range, as its [format](crate::formats::Format) asks for them, and
//!    `config.json` once a tensor needs it.
//! 6. An [`Assembly`](crate::report::Assembly) takes the headers as they come, compares them with the index and
//!    feeds the one [`Counter`](crate::count::Counter).
//! 7. `verify` does the same, but continues after an error and reports all of them.

mod cached;
mod config_file;
mod hub_plan;
mod locate;
mod memory;
mod plan;
mod reader;
#[cfg(feature = "census")]
mod record;
mod shards;
mod target;
mod unindexed;
mod verify;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use self::memory::ClientMemory;
#[cfg(feature = "census")]
pub(crate) use self::record::{RecordedCall, RecordedReport};
pub(crate) use self::target::Target;
use crate::backends::{Backend, CallGate, FileListing, HeaderCache};
use crate::error::Error;
use crate::formats::{Formats, RepoPath};
use crate::http::transfer::RequestMeter;
use crate::report::verify::VerifyReport;
use crate::report::{Assembled, CountReport, Finding, Plan, SafetensorsParseFromRepo, Weights};

/// The progress of a call, in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Shards whose header was read and checked.
    pub done: usize,
    /// Shards that are known. The number can grow while an index arrives.
    pub total: usize,
}

/// A function that is called after each shard.
#[derive(Clone)]
pub(crate) struct OnProgress(pub(crate) Arc<dyn Fn(Progress) + Send + Sync>);

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
}

/// Limits of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of one header.
    pub(crate) header: u64,
    /// Bytes of all headers together.
    pub(crate) headers: u64,
    /// Bytes of an index.
    pub(crate) index: u64,
    /// Bytes of `config.json`.
    pub(crate) config: u64,
    /// Shards that are read concurrently.
    pub(crate) concurrency: usize,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Inspection {
    /// The name of the source in the result.
    pub(crate) source: String,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) target: Target,
    /// The formats that may be read.
    pub(crate) formats: Formats,
    pub(crate) plan: Plan,
    pub(crate) limits: Limits,
    pub(crate) memory: ClientMemory,
    /// Lists the other sets of weights even if the weights have a usual name.
    pub(crate) lists_sets: bool,
    /// The files of the backend, if they are known before the call.
    pub(crate) files: Option<Arc<FileListing>>,
    pub(crate) on_progress: Option<OnProgress>,
    pub(crate) started: Instant,
    pub(crate) meter: RequestMeter,
    /// The decisions of a service about this call.
    pub(crate) gate: Option<Arc<dyn CallGate>>,
}

/// A set of weights whose headers were read.
struct Inspected {
    /// The path of the file or the index, or the common path of shards without an index.
    path: RepoPath,
    backend: Arc<dyn Backend>,
    assembled: Assembled,
    report: CountReport,
}

impl Inspection {
    /// Reads all headers and returns them with their figures. Ends at the first error.
    pub(crate) async fn parse(
        self,
        cache: Option<&HeaderCache>,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let Inspected { path, backend, assembled, report } = self.inspect(cache, true).await?;
        let file = backend.file_name(&path);
        let parsed = assembled.into_parsed(path, report);
        parsed.map_err(|source| Error::Index { file, source })
    }

    /// Reads all headers, in any format, and returns them with their figures. Ends at the first error.
    pub(crate) async fn weights(self, cache: Option<&HeaderCache>) -> Result<Weights, Error> {
        let Inspected { path, backend, assembled, report } = self.inspect(cache, true).await?;
        let file = backend.file_name(&path);
        let weights = assembled.into_weights(path, report);
        weights.map_err(|source| Error::Index { file, source })
    }

    /// Reads all headers and returns their figures. Each header is dropped once it is counted.
    pub(crate) async fn count(self, cache: Option<&HeaderCache>) -> Result<CountReport, Error> {
        Ok(self.inspect(cache, false).await?.report)
    }

    /// Reads all headers, and continues after an error.
    pub(crate) async fn verify(self) -> Result<VerifyReport, Error> {
        let (reader, located) = self.locate().await?;
        let mut report = reader.verify(located.weights).await?;
        report.findings.extend((!located.is_complete).then_some(Finding::PartialListing));
        Ok(report)
    }

    /// Reads all headers. Ends at the first error.
    async fn read(self, keeps_headers: bool) -> Result<Inspected, Error> {
        if self.plan == Plan::Hub
            && !self.lists_sets
            && let Some(inspected) = self.read_from_hub(keeps_headers).await?
        {
            return Ok(inspected);
        }
        let (reader, located) = self.locate().await?;
        reader.pass_commit().await;
        let mut inspected = reader.read_weights(located.weights, keeps_headers).await?;
        inspected.report.add_other_sets(located.other_sets);
        let partial = (!located.is_complete).then_some(Finding::PartialListing);
        inspected.report.findings.extend(partial);
        Ok(inspected)
    }
}
