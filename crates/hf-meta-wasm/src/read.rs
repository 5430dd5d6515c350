//! Reads the headers of a weight set and the configuration, and counts them.

use std::cell::Cell;
use std::mem::take;
use std::ops::Range;

use futures::stream::{self, StreamExt, TryStreamExt};
use hf_meta_format::RepoPath;
use hf_meta_format::count::{Configs, needs_config};
use hf_meta_format::formats::safetensors::{IndexError, IndexReader, SafetensorsIndexJson};
use hf_meta_format::formats::weight_sets::shard_number;
use hf_meta_format::formats::{
    FileHeader, Formats, HeaderError, HeaderErrorKind, Step, chain, clip,
};
use hf_meta_format::memory::{CacheError, CacheLayout, MemoryOptions};
use hf_meta_format::report::{Finding, RangeRequest, ReportBuilder};

use super::Inspection;
use super::locate::Located;
use super::options::{MemoryArgs, Options};
use super::reader::{Failure, Reader};

/// The maximum size of all headers of a call together in bytes.
const MAX_HEADERS_BYTES: u64 = 500_000_000;

/// The maximum number of shards to read concurrently. The reader limits its requests by itself.
const MAX_CONCURRENT_SHARDS: usize = 256;

/// The name of the configuration file, which is next to the weights or at the root of the repository.
const CONFIG: &str = "config.json";

/// One call.
pub(crate) struct Call {
    pub(crate) reader: Reader,
    pub(crate) options: Options,
    pub(crate) memory: Option<MemoryOptions>,
    /// The formats that the call accepts.
    pub(crate) formats: Formats,
    /// The total size of the headers so far, in bytes.
    header_bytes: Cell<u64>,
}

/// The headers of a weight set.
pub(crate) struct SetReads {
    pub(crate) builder: ReportBuilder,
    /// `true` if the configuration could change the count of a tensor.
    needs_config: bool,
}

/// The usable part of a model's configuration.
#[derive(Default)]
struct Config {
    json: Option<Vec<u8>>,
    configs: Configs,
    /// The reason why it is ignored.
    finding: Option<Finding>,
}

impl Call {
    /// Parses the options.
    pub(crate) fn new(reader: Reader, options: &str) -> Result<Self, Failure> {
        let invalid = |message: &str| reader.failure("invalidOption", message, None);
        let mut options: Options =
            serde_json::from_str(options).map_err(|error| invalid(&error.to_string()))?;
        let formats = match &options.weights {
            Some(name) => Formats::built_in()
                .only(name)
                .ok_or_else(|| invalid(&format!("unknown format `{}`", clip(name))))?,
            None => Formats::built_in().clone(),
        };
        let memory = options.memory.as_ref().map(MemoryArgs::options).transpose();
        let memory = memory.map_err(|name| invalid(&format!("`{name}` is invalid")))?;
        // A pipeline needs the memory of all its components.
        options.other_sets |= memory.is_some();
        Ok(Self { reader, options, memory, formats, header_bytes: Cell::default() })
    }

    /// Reads all headers of the selected weights and counts them.
    pub(crate) async fn inspect(self) -> Result<Inspection, Failure> {
        let located = self.locate()?;
        let SetReads { builder, needs_config } =
            self.read_set(&located, self.options.keep_headers).await?;
        let Located { path, layout, .. } = located;
        let config = if needs_config || self.memory.is_some() && !builder.describes_cache() {
            self.read_config(&path).await?
        } else {
            Config::default()
        };
        let config = self.add_other_config(&path, &builder, config).await?;
        let filepaths = builder.filepaths(&path);
        let built = builder.finish(&config.configs);
        let mut report =
            built.report(filepaths).map_err(|error| self.index_error(&path, &error))?;
        let json = config.json.as_deref().ok_or(CacheError::NoConfig);
        let options = self.memory.unwrap_or_default();
        let cache = || json.and_then(|json| CacheLayout::for_options(json, &options));
        let cache = built.cache.clone().unwrap_or_else(cache);
        report.layout = cache.clone().ok().map(Box::new);
        let renamed = self.options.renamed.clone().map(|repo| Finding::Renamed { repo });
        report.findings.extend(config.finding.into_iter().chain(renamed));
        report.findings.extend(self.single_shard());
        report.format = self.formats.find_or_safetensors(&path).name();
        report.source.clone_from(&self.options.source);
        report.commit.clone_from(&self.options.commit);
        report.plan = self.options.plan();
        self.add_memory(&path, &mut report, cache, layout.as_ref()).await?;
        report.add_other_sets(layout.map(|layout| layout.sets));
        let weights =
            self.options.keep_headers.then(|| built.into_weights(path.clone(), report.clone()));
        let weights = weights.transpose().map_err(|error| self.index_error(&path, &error))?;
        Ok(Inspection { report, weights })
    }

    /// Reads all headers of a set.
    pub(crate) async fn read_set(
        &self,
        located: &Located,
        keep_headers: bool,
    ) -> Result<SetReads, Failure> {
        let Located { path, shards, .. } = located;
        let plan = self.options.plan();
        if let Some(shards) = shards {
            let requests = plan.shards_without_index(&self.formats, shards);
            let requests = requests.map_err(|error| self.index_error(path, &error))?;
            let builder = ReportBuilder::new_sharded(path, None, keep_headers);
            return self.read_shards(path, requests, builder).await;
        }
        if !path.is_index() {
            let header = self.read_header(path, plan.first_range(&self.formats, path)).await?;
            let mut reads =
                SetReads { builder: ReportBuilder::new_single(keep_headers), needs_config: false };
            reads.add(path.clone(), header);
            return Ok(reads);
        }
        let json = self.reader.load(path, SafetensorsIndexJson::DEFAULT_LIMIT).await?;
        let extension = Formats::built_in().find_or_safetensors(path).extension();
        let mut reader = IndexReader::with_extension(extension);
        let index = reader.feed(&json).and_then(|()| reader.finish());
        let index = index.map_err(|error| self.index_error(path, &error))?;
        let requests = plan.shards(&index);
        self.read_shards(
            path,
            requests,
            ReportBuilder::new_sharded(path, Some(index), keep_headers),
        )
        .await
    }

    /// Reads shards concurrently, and adds each to the set as it arrives.
    async fn read_shards(
        &self,
        path: &RepoPath,
        requests: Vec<RangeRequest>,
        builder: ReportBuilder,
    ) -> Result<SetReads, Failure> {
        let total = requests.len();
        let reads = requests.into_iter().map(|(shard, first)| async move {
            let read = self.read_header(&path.sibling(&shard), first).await;
            read.map(|header| (shard, header)).map_err(|failure| self.of_shard(failure, path))
        });
        let mut reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_SHARDS);
        let (mut set, mut done) = (SetReads { builder, needs_config: false }, 0);
        while let Some((shard, header)) = reads.try_next().await? {
            set.add(shard, header);
            done += 1;
            self.reader.progress(done, total);
        }
        Ok(set)
    }

    /// Reads and checks the header of a file, starting with the range `first`.
    async fn read_header(&self, path: &RepoPath, first: Range<u64>) -> Result<FileHeader, Failure> {
        let mut parser =
            self.formats.find_or_safetensors(path).parser(path, self.options.max_header_bytes);
        let (mut range, mut size) = (first, None);
        loop {
            self.reserve(path, &range)?;
            let part = self.reader.read(path, range.start, range.end).await?;
            let changed = size.is_some() && size != part.size();
            size = part.size();
            if changed {
                return Err(self.fail("changed", path, "changed while being read"));
            }
            let step = parser.advance(range.start, part.bytes(), size);
            match step.map_err(|error| self.header_error(path, &error))? {
                Step::Read(next) => range = next,
                Step::Done(header) => {
                    let checked = size.map_or(Ok(()), |size| header.check_file_size(size));
                    checked.map_err(|error| self.header_error(path, &error))?;
                    return Ok(header);
                }
            }
        }
    }

    /// Reserves bytes of the limit for all headers before they are read.
    fn reserve(&self, path: &RepoPath, range: &Range<u64>) -> Result<(), Failure> {
        let total = self.header_bytes.get().saturating_add(range.end.saturating_sub(range.start));
        self.header_bytes.set(total);
        let problem = "exceeds the limit of all headers together";
        (total <= MAX_HEADERS_BYTES)
            .then_some(())
            .ok_or_else(|| self.fail("tooLarge", path, problem))
    }

    /// Reads the configuration next to the weights, or else at the root. An unusable one must not hide the counts of
    /// the headers.
    async fn read_config(&self, weights: &RepoPath) -> Result<Config, Failure> {
        let root = RepoPath::new_unchecked(CONFIG);
        let mut paths = [weights.sibling(&root), root].into_iter();
        let Some(path) = paths.find(|path| self.options.has_file(path)) else {
            return Ok(Config::default());
        };
        let Some(json) = self.load_config(&path).await? else {
            let reason = format!("the file exceeds the limit of {} bytes", Configs::DEFAULT_LIMIT);
            let finding = Finding::UnusableConfig { file: CONFIG.to_owned(), reason };
            return Ok(Config { finding: Some(finding), ..Config::default() });
        };
        let (configs, finding) = match Configs::from_config_json(&json) {
            Ok(configs) => (configs, None),
            Err(error) => {
                let (file, reason) = (CONFIG.to_owned(), error.to_string());
                (Configs::default(), Some(Finding::InvalidConfig { file, reason }))
            }
        };
        Ok(Config { json: Some(json), configs, finding })
    }

    /// Reads the other file that may describe the quantization, the experts or the adapter.
    async fn add_other_config(
        &self,
        weights: &RepoPath,
        builder: &ReportBuilder,
        mut config: Config,
    ) -> Result<Config, Failure> {
        let Some(name) = builder.other_config_file(&config.configs) else { return Ok(config) };
        let path = weights.sibling(&RepoPath::new_unchecked(name));
        let json = if self.options.has_file(&path) { self.load_config(&path).await? } else { None };
        let Some(json) = json else { return Ok(config) };
        let mut configs = take(&mut config.configs);
        if let Err(error) = configs.add_file(name, &json) {
            let (file, reason) = (name.to_owned(), error.to_string());
            config.finding.get_or_insert(Finding::UnusableConfig { file, reason });
        }
        Ok(Config { configs, ..config })
    }

    /// Reads a small file. Returns `None` if it exceeds the limit.
    async fn load_config(&self, path: &RepoPath) -> Result<Option<Vec<u8>>, Failure> {
        match self.reader.load(path, Configs::DEFAULT_LIMIT).await {
            Err(failure) if failure.code() == "tooLarge" => Ok(None),
            read => read.map(Some),
        }
    }

    /// Returns the finding for one shard of a model.
    fn single_shard(&self) -> Option<Finding> {
        let path = self.options.path.as_ref()?;
        let (number, total) = shard_number(path).filter(|(_, total)| *total > 1)?;
        Some(Finding::SingleShard { file: clip(path.as_str()), number, total })
    }

    /// Returns the failure of a file.
    pub(crate) fn fail(&self, code: &str, path: &RepoPath, problem: &str) -> Failure {
        let message = format!("`{}/{path}` {problem}", self.options.source);
        self.reader.failure(code, &message, None)
    }

    /// Converts the failure of a shard: the index lists it, so it is missing.
    fn of_shard(&self, failure: Failure, index: &RepoPath) -> Failure {
        if failure.code() != "fileNotFound" {
            return failure;
        }
        self.fail("missingShards", index, "lists a shard that does not exist")
    }

    fn header_error(&self, path: &RepoPath, error: &HeaderError) -> Failure {
        let title = self.formats.find_or_safetensors(path).title();
        let code = match error.kind {
            HeaderErrorKind::NotACheckpoint => "noWeights",
            HeaderErrorKind::TooLarge if title == "PyTorch" => "tooLarge",
            _ => "malformedHeader",
        };
        self.fail(code, path, &format!("is not a valid {title} file: {}", chain(error)))
    }

    fn index_error(&self, path: &RepoPath, error: &IndexError) -> Failure {
        let problem = format!("is not a valid shard index: {}", chain(error));
        self.fail("malformedIndex", path, &problem)
    }
}

impl SetReads {
    fn add(&mut self, shard: RepoPath, header: FileHeader) {
        self.needs_config |= needs_config(&header);
        self.builder.add(shard, header);
    }
}
