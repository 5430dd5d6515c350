//! Counting while headers are read, and keeping none of them.

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::Reader;
use crate::backends::ByteStream;
use crate::count::{Classifier, Configs, MergingCounter, needs_config};
use crate::error::Error;
use crate::formats::safetensors::{HeaderError, HeaderOutline, IndexOutline, Sink};
use crate::formats::{RepoPath, TensorInfo};
use crate::http::transfer::{RangeBytes, spawn_blocking_if_large};
use crate::inspect::count::usable;
use crate::report::CountReport;
use crate::report::{Finding, agreement};

/// The configuration with what is odd about it.
type Config = (Option<Arc<Configs>>, Vec<Finding>);

/// What the files of a call have in common.
#[derive(Default)]
struct Common {
    /// Known once one of the headers has called for it.
    config: OnceCell<Config>,
}

/// What a header amounts to.
struct Counted {
    outline: HeaderOutline,
    tally: MergingCounter,
}

/// Why counting has come to an end.
pub(in crate::inspect) enum Stop {
    /// It takes the names of all tensors side by side: because of the rules for them, because index and
    /// headers disagree and it is to be said where.
    NeedsNames,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a set of weights claims of itself.
#[derive(Clone, Copy)]
struct Claims {
    bytes: Option<u64>,
    parameters: Option<u64>,
}

impl Reader {
    /// Counts one file.
    pub(in crate::inspect) async fn count_file(
        self,
        path: RepoPath,
        start: RangeBytes,
    ) -> Result<CountReport, Stop> {
        let common = Common::default();
        let counted = self.count_rest(&path, start, &common).await?;
        let claims = Claims { bytes: None, parameters: counted.outline.declared_total() };
        let counts = self.counts(vec![path], claims, vec![counted], common.config.into_inner());
        counts.ok_or(Stop::NeedsNames)
    }

    /// Counts the shards of an index.
    pub(in crate::inspect) async fn count_shards(
        self,
        path: RepoPath,
        pieces: ByteStream,
    ) -> Result<CountReport, Stop> {
        let common = Common::default();
        let read = |shard, first| self.count_header(shard, first, &common);
        let (index, counted): (IndexOutline, _) = self.follow(&path, pieces, read).await?;
        let (shards, counted): (Vec<_>, Vec<_>) = counted.into_iter().unzip();
        let names = counted.iter().map(|counted| counted.outline.names());
        if !names.eq(index.names().iter().copied()) || !index.is_distinct() {
            return Err(Stop::NeedsNames);
        }
        let claims = Claims { bytes: index.total_size(), parameters: index.declared_total() };
        let shards = shards.iter().map(|shard| path.sibling(shard));
        let paths = once(path.clone()).chain(shards).collect();
        let counts = self.counts(paths, claims, counted, common.config.into_inner());
        counts.ok_or(Stop::NeedsNames)
    }

    async fn count_header(
        &self,
        path: RepoPath,
        first: Range<u64>,
        common: &Common,
    ) -> Result<Counted, Stop> {
        let start = self.read(&path, &first).await?;
        self.count_rest(&path, start, common).await
    }

    /// Counts a file of which the first bytes are known: by its header alone, and once more if that
    /// calls for the configuration.
    async fn count_rest(
        &self,
        path: &RepoPath,
        start: RangeBytes,
        common: &Common,
    ) -> Result<Counted, Stop> {
        let file_size = start.file_size;
        let json = Arc::new(self.header_json(path, start).await?);
        let wrong = |source| Error::Header { file: self.backend.file_name(path), source };
        let (text, by_itself) = (Arc::clone(&json), None);
        let counted =
            spawn_blocking_if_large(json.len(), move || count(&text, file_size, by_itself));
        let (counted, calls) = counted.await.map_err(wrong)?;
        if !calls {
            return Ok(counted);
        }
        let (config, _) = common.config.get_or_try_init(|| self.config_for_counts()).await?;
        let Some(config) = config.clone() else { return Ok(counted) };
        if config.needs_whole_modules() {
            return Err(Stop::NeedsNames);
        }
        let counted =
            spawn_blocking_if_large(json.len(), move || count(&json, file_size, Some(&config)));
        Ok(counted.await.map_err(wrong)?.0)
    }

    async fn config_for_counts(&self) -> Result<Config, Error> {
        let mut findings = Vec::new();
        let json = self.config(&mut findings).await?;
        let config = json.and_then(|json| usable(&json, &mut findings));
        Ok((config.map(Arc::new), findings))
    }

    /// The sum over all files; `None` if it leaves 64 bits.
    fn counts(
        self,
        paths: Vec<RepoPath>,
        claims: Claims,
        counted: Vec<Counted>,
        config: Option<Config>,
    ) -> Option<CountReport> {
        let (config, odd) = config.unwrap_or_default();
        let rules = Classifier::by(config.as_deref());
        let (mut tally, mut file_bytes, mut tensor_bytes) =
            (MergingCounter::default(), 0_u64, 0_u64);
        for Counted { outline, tally: counted, .. } in counted {
            file_bytes = file_bytes.saturating_add(outline.file_size());
            tensor_bytes = tensor_bytes.saturating_add(outline.data_length());
            tally.merge(counted)?;
        }
        let mut findings: Vec<_> =
            agreement::check_size(claims.bytes, tensor_bytes).into_iter().collect();
        findings.extend(odd);
        let report =
            self.report(paths, file_bytes, tally.finish(&rules), claims.parameters, findings);
        Some(report)
    }
}

/// Takes tensors and keeps sums.
struct Sums<'a> {
    rules: Classifier<'a>,
    tally: MergingCounter,
    calls: bool,
}

impl Sink for Sums<'_> {
    fn take(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError> {
        self.calls |= needs_config(name, tensor);
        let added = self.tally.add(&self.rules, name, tensor);
        added.ok_or_else(|| HeaderError::overflow(name))
    }
}

/// Counts one header; whether it calls for the configuration.
fn count(
    json: &[u8],
    file_size: u64,
    config: Option<&Configs>,
) -> Result<(Counted, bool), HeaderError> {
    let (outline, sums) = HeaderOutline::scan(json, || Sums {
        rules: Classifier::by(config),
        tally: MergingCounter::default(),
        calls: false,
    })?;
    outline.check_file_size(json, file_size)?;
    let Sums { tally, calls, .. } = sums;
    Ok((Counted { outline, tally }, calls))
}
