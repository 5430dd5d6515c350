//! Counting while headers are read, and keeping none of them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::OnceCell;

use super::Reader;
use crate::error::Error;
use crate::load::count::usable;
use crate::load::{OnProgress, Progress};
use crate::parse::Counts;
use crate::quantization::{ModelConfig, Rules, Tally, calls_for_config};
use crate::read::{Chunk, off_the_workers};
use crate::safetensors::{
    Finding, HeaderError, HeaderOutline, IndexOutline, IndexReader, NamesDigest, RepoPath, Sink,
    TensorInfo, scan_header,
};

/// The configuration with what is odd about it.
type Config = (Option<Arc<ModelConfig>>, Vec<Finding>);

/// What the files of a call have in common.
#[derive(Default)]
struct Common {
    /// Known once one of the headers has called for it.
    config: OnceCell<Config>,
    /// Bytes of the headers that are kept in case that others call for it.
    kept: AtomicUsize,
}

/// The most bytes of headers that are kept.
const MOST_KEPT: usize = 4 << 20;

/// What a header amounts to.
struct Counted {
    outline: HeaderOutline,
    names: NamesDigest,
    tally: Tally,
    /// The header with the size of its file, if it was counted without the configuration.
    kept: Option<(Arc<Vec<u8>>, u64)>,
    /// Whether it was counted by the configuration.
    is_configured: bool,
}

impl Reader {
    /// Counts one file; `None` if that takes all names side by side.
    pub(in crate::load) async fn count_file(
        self,
        path: RepoPath,
        start: Chunk,
    ) -> Result<Option<Counts>, Error> {
        let common = Common::default();
        let Some(counted) = self.count_rest(&path, start, &common).await? else { return Ok(None) };
        let size = counted.outline.file_size();
        let declared = counted.outline.declared_total();
        Ok(self.counts(vec![path], size, declared, &[], vec![counted], common.config.into_inner()))
    }

    /// Counts the shards of an index; `None` if that takes all names side by side, because of the
    /// rules for them or because index and headers disagree, and it is to be said where.
    pub(in crate::load) async fn count_shards(
        self,
        path: RepoPath,
        json: Vec<u8>,
    ) -> Result<Option<Counts>, Error> {
        let wrong = |source| Error::Index { file: self.store.name(&path), source };
        let index = off_the_workers(json.len(), move || {
            let mut reader = IndexReader::<IndexOutline>::default();
            reader.feed(&json).and_then(|()| reader.finish())
        });
        let index = index.await.map_err(wrong)?;
        let common = Common::default();
        let shards = self.plan.shards(index.shards(), index.names());
        let Some(counted) = self.count_all(&path, shards, &common).await? else { return Ok(None) };
        let agrees = counted.iter().map(|counted| counted.names).eq(index.names().iter().copied());
        if !agrees || !index.is_distinct() {
            return Ok(None);
        }
        let size = counted.iter().map(|counted| counted.outline.file_size());
        let size = size.fold(0, u64::saturating_add);
        let bytes = counted.iter().map(|counted| counted.outline.data_length());
        let bytes = bytes.fold(0, u64::saturating_add);
        let wrong_size = index.total_size().filter(|&declared| declared != bytes);
        let findings = wrong_size.map(|declared| Finding::TotalSize { declared, found: bytes });
        let shards = index.shards().iter().map(|shard| path.sibling(shard));
        let paths = std::iter::once(path.clone()).chain(shards).collect();
        let findings: Vec<_> = findings.into_iter().collect();
        let declared = index.declared_total();
        Ok(self.counts(paths, size, declared, &findings, counted, common.config.into_inner()))
    }

    /// What all shards amount to, in their order.
    async fn count_all(
        &self,
        path: &RepoPath,
        shards: Vec<(RepoPath, Range<u64>)>,
        common: &Common,
    ) -> Result<Option<Vec<Counted>>, Error> {
        let total = shards.len();
        let reads = shards.into_iter().enumerate().map(|(rank, (shard, first))| {
            let path = path.sibling(&shard);
            async move {
                let start = self.read(&path, &first).await?;
                self.count_rest(&path, start, common).await.map(|counted| (rank, counted))
            }
        });
        let mut reads = stream::iter(reads).buffer_unordered(self.limits.concurrency);
        let mut all = Vec::with_capacity(total);
        while let Some((rank, counted)) = reads.try_next().await? {
            let Some(counted) = counted else { return Ok(None) };
            all.push((rank, counted));
            if let Some(OnProgress(tell)) = &self.on_progress {
                tell(Progress { done: all.len(), total });
            }
        }
        all.sort_unstable_by_key(|(rank, _)| *rank);
        Ok(Some(all.into_iter().map(|(_, counted)| counted).collect()))
    }

    /// Counts a file of which the first bytes are known: by its header alone, and once more if that
    /// calls for the configuration.
    async fn count_rest(
        &self,
        path: &RepoPath,
        start: Chunk,
        common: &Common,
    ) -> Result<Option<Counted>, Error> {
        let file_size = start.file_size;
        let json = Arc::new(self.header_json(path, start).await?);
        let wrong = |source| Error::Header { file: self.store.name(path), source };
        let (text, by_itself) = (Arc::clone(&json), None);
        let counted = off_the_workers(json.len(), move || count(&text, file_size, by_itself));
        let (mut counted, calls) = counted.await.map_err(wrong)?;
        if !calls {
            let kept = common.kept.fetch_add(json.len(), Ordering::Relaxed);
            counted.kept = (kept + json.len() <= MOST_KEPT).then_some((json, file_size));
            return Ok(Some(counted));
        }
        let (config, _) = common.config.get_or_try_init(|| self.config_for_counts()).await?;
        let Some(config) = config.clone() else { return Ok(Some(counted)) };
        if config.takes_all_tensors() {
            return Ok(None);
        }
        let counted = off_the_workers(json.len(), move || count(&json, file_size, Some(&config)));
        counted.await.map(|(counted, _)| Some(counted)).map_err(wrong)
    }

    async fn config_for_counts(&self) -> Result<Config, Error> {
        let mut findings = Vec::new();
        let json = self.config(&mut findings).await?;
        let config = json.and_then(|json| usable(&json, &mut findings));
        Ok((config.map(Arc::new), findings))
    }

    /// The sum over all files; `None` if it leaves 64 bits, or takes more than was kept.
    fn counts(
        self,
        paths: Vec<RepoPath>,
        size: u64,
        declared: Option<u64>,
        findings: &[Finding],
        counted: Vec<Counted>,
        config: Option<Config>,
    ) -> Option<Counts> {
        let (config, odd) = config.unwrap_or_default();
        let rules = Rules::by(config.as_deref());
        let mut tally = Tally::default();
        for counted in counted {
            // Which layers only draft tokens is told by the configuration alone.
            let counted = if rules.sets_layers_apart() && !counted.is_configured {
                let (json, file_size) = counted.kept?;
                count(&json, file_size, config.as_deref()).ok()?.0
            } else {
                counted
            };
            tally.merge(counted.tally)?;
        }
        let findings = [findings, &odd].concat();
        let facts = self.facts(size, tally.finish(&rules), declared, findings);
        Some(Counts { sharded: paths.len() > 1, paths, facts })
    }
}

/// Takes tensors and keeps sums.
struct Sums<'a> {
    rules: Rules<'a>,
    tally: Tally,
    names: NamesDigest,
    calls: bool,
}

impl Sink for Sums<'_> {
    fn take(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError> {
        self.names.add(name);
        self.calls |= calls_for_config(name, tensor);
        let added = self.tally.add(&self.rules, name, tensor);
        added.ok_or_else(|| HeaderError::overflow(name))
    }
}

/// Counts one header; whether it calls for the configuration.
fn count(
    json: &[u8],
    file_size: u64,
    config: Option<&ModelConfig>,
) -> Result<(Counted, bool), HeaderError> {
    let (outline, sums) = scan_header(json, || Sums {
        rules: Rules::by(config),
        tally: Tally::default(),
        names: NamesDigest::default(),
        calls: false,
    })?;
    outline.check_file_size(json, file_size)?;
    let Sums { tally, names, calls, .. } = sums;
    let is_configured = config.is_some();
    Ok((Counted { outline, names, tally, kept: None, is_configured }, calls))
}
