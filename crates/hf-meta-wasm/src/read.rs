//! Reads the headers of a weight set and the configuration, and counts them.

use std::cell::Cell;
use std::ops::Range;

use futures::stream::{self, StreamExt};
use hf_meta_format::RepoPath;
use hf_meta_format::count::{Configs, needs_config};
use hf_meta_format::formats::safetensors::{IndexReader, SafetensorsIndexJson};
use hf_meta_format::formats::weight_sets::shard_number;
use hf_meta_format::formats::{
    FileHeader, Formats, HeaderError, HeaderErrorKind, Step, chain, clip,
};
use hf_meta_format::memory::MemoryOptions;
use hf_meta_format::report::verify::ConfigFile;
use hf_meta_format::report::{Finding, ReportBuilder};

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
#[derive(Default)]
pub(crate) struct SetReads {
    pub(crate) builder: ReportBuilder,
    /// The paths of the shards; empty for a single file.
    pub(crate) shards: Vec<RepoPath>,
    /// The files that could not be read, sorted by path. Empty unless failures are kept.
    pub(crate) failures: Vec<(RepoPath, Problem)>,
    /// `true` if the configuration could change the count of a tensor.
    pub(crate) needs_config: bool,
}

/// The reason why a file cannot be used.
pub(crate) enum Problem {
    Header(HeaderError),
    Index(HeaderError),
    Read(Failure),
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Read(failure)
    }
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
        let SetReads { builder, needs_config, .. } =
            self.read_set(&located, self.options.keep_headers).await?;
        let Located { path, layout, .. } = located;
        if needs_config {
            self.reader.load_layouts().await?;
        }
        let mut config = if needs_config || self.memory.is_some() && !builder.describes_cache() {
            self.read_config(&path).await?
        } else {
            ConfigFile::default()
        };
        let other = builder.other_config_file(&config.configs);
        self.add_other_config(&path, other, &mut config).await?;
        let filepaths = builder.filepaths(&path);
        let built = builder.finish(&config.configs);
        let mut report =
            built.report(filepaths).map_err(|error| self.failure(&path, Problem::Index(error)))?;
        let cache = built.cache(config.json.as_deref(), &self.memory.unwrap_or_default());
        report.layout = cache.clone().ok().map(Box::new);
        report.findings.extend(config.finding.into_iter().chain(self.findings()));
        report.format = self.formats.find_or_safetensors(&path).name();
        report.source.clone_from(&self.options.source);
        report.commit.clone_from(&self.options.commit);
        report.plan = self.options.plan();
        self.add_memory(&path, &mut report, cache, layout.as_ref()).await?;
        report.add_other_sets(layout.map(|layout| layout.sets));
        let weights =
            self.options.keep_headers.then(|| built.into_weights(path.clone(), report.clone()));
        let weights =
            weights.transpose().map_err(|error| self.failure(&path, Problem::Index(error)))?;
        Ok(Inspection { report, weights })
    }

    /// Reads all headers of a set. The first failure is the result.
    pub(crate) async fn read_set(
        &self,
        located: &Located,
        keep_headers: bool,
    ) -> Result<SetReads, Failure> {
        let path = &located.path;
        let read = self.read_headers(located, keep_headers, false).await;
        let mut reads = read.map_err(|problem| self.failure(path, problem))?;
        match reads.failures.pop() {
            // The index lists the shard, so it is missing.
            Some((path, Problem::Read(failure)))
                if failure.is("fileNotFound") && !reads.shards.is_empty() =>
            {
                let message = format!("shard `{}/{path}` not found", self.options.repo);
                Err(self.reader.failure("missingShards", &message, None))
            }
            Some((path, problem)) => Err(self.failure(&path, problem)),
            None => Ok(reads),
        }
    }

    /// Reads the headers of a set. Continues after failures if `keep_failures` is true.
    ///
    /// # Errors
    ///
    /// Returns an error if the index cannot be used.
    pub(crate) async fn read_headers(
        &self,
        Located { path, shards, .. }: &Located,
        keep_headers: bool,
        keep_failures: bool,
    ) -> Result<SetReads, Problem> {
        let plan = self.options.plan();
        let (requests, builder) = if let Some(shards) = shards {
            let requests =
                plan.shards_without_index(&self.formats, shards).map_err(Problem::Index)?;
            (requests, ReportBuilder::new_sharded(path, None, keep_headers))
        } else if path.is_index() {
            let json =
                self.reader.load(path.as_str(), SafetensorsIndexJson::DEFAULT_LIMIT).await?.bytes();
            let extension = Formats::built_in().find_or_safetensors(path).extension();
            let mut reader = IndexReader::with_extension(extension);
            let index =
                reader.feed(&json).and_then(|()| reader.finish()).map_err(Problem::Index)?;
            (plan.shards(&index), ReportBuilder::new_sharded(path, Some(index), keep_headers))
        } else {
            let first = plan.first_range(&self.formats, path);
            (vec![(path.clone(), first)], ReportBuilder::new_single(keep_headers))
        };
        let is_single = shards.is_none() && !path.is_index();
        let file = |shard: &RepoPath| if is_single { shard.clone() } else { path.sibling(shard) };
        let names = requests.iter().filter(|_| !is_single);
        let shards = names.map(|(shard, _)| file(shard)).collect();
        let mut set = SetReads { builder, shards, ..SetReads::default() };
        self.header_bytes.set(0);
        let (total, mut done) = (requests.len(), 0);
        let reads = requests.into_iter().map(|(shard, first)| async {
            let read = self.read_header(&file(&shard), first).await;
            (shard, read)
        });
        let mut reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_SHARDS);
        while let Some((shard, read)) = reads.next().await {
            match read {
                Ok(header) => {
                    set.needs_config |= needs_config(&header);
                    set.builder.add(shard, header);
                    done += 1;
                    self.reader.progress(done, total);
                }
                Err(problem) => {
                    set.failures.push((file(&shard), problem));
                    if !keep_failures {
                        break;
                    }
                }
            }
        }
        set.failures.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(set)
    }

    /// Reads and checks the header of a file, starting with the range `first`.
    async fn read_header(&self, path: &RepoPath, first: Range<u64>) -> Result<FileHeader, Problem> {
        let mut parser =
            self.formats.find_or_safetensors(path).parser(path, self.options.max_header_bytes);
        let (mut range, mut size) = (first, None);
        loop {
            self.reserve(path, &range)?;
            let part = self.reader.read(path.as_str(), range.start, range.end).await?;
            let changed = size.is_some() && size != part.size();
            size = part.size();
            if changed {
                return Err(self.fail("changed", path, "changed while being read").into());
            }
            match parser.advance(range.start, part.bytes(), size).map_err(Problem::Header)? {
                Step::Read(next) => range = next,
                Step::Done(header) => {
                    size.map_or(Ok(()), |size| header.check_file_size(size))
                        .map_err(Problem::Header)?;
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
    pub(crate) async fn read_config(&self, weights: &RepoPath) -> Result<ConfigFile, Failure> {
        let root = RepoPath::new_unchecked(CONFIG);
        let next = weights.sibling(&root);
        let is_of_root = !self.options.has_file(&next);
        let path = if is_of_root { root } else { next };
        if !self.options.has_file(&path) {
            return Ok(ConfigFile::default());
        }
        let config = match self.load_config(&path).await? {
            Some(json) => ConfigFile::from_json(json),
            None => ConfigFile::ignored(format!(
                "the file exceeds the limit of {} bytes",
                Configs::DEFAULT_LIMIT
            )),
        };
        Ok(ConfigFile { is_of_root, ..config })
    }

    /// Reads the other file that may describe the quantization, the experts or the adapter.
    pub(crate) async fn add_other_config(
        &self,
        weights: &RepoPath,
        name: Option<&str>,
        config: &mut ConfigFile,
    ) -> Result<(), Failure> {
        let Some(name) = name else { return Ok(()) };
        let path = weights.sibling(&RepoPath::new_unchecked(name));
        let json = if self.options.has_file(&path) { self.load_config(&path).await? } else { None };
        if let Some(json) = json
            && let Err(error) = config.configs.add_file(name, &json)
        {
            let (file, reason) = (name.to_owned(), error.to_string());
            config.finding.get_or_insert(Finding::UnusableConfig { file, reason });
        }
        Ok(())
    }

    /// Reads a small file. Returns `None` if it exceeds the limit.
    async fn load_config(&self, path: &RepoPath) -> Result<Option<Vec<u8>>, Failure> {
        match self.reader.load(path.as_str(), Configs::DEFAULT_LIMIT).await {
            Err(failure) if failure.is("tooLarge") => Ok(None),
            read => read.map(|part| Some(part.bytes())),
        }
    }

    /// Returns the findings about the source.
    pub(crate) fn findings(&self) -> impl Iterator<Item = Finding> {
        let renamed = self.options.renamed.clone().map(|repo| Finding::Renamed { repo });
        renamed.into_iter().chain(self.single_shard())
    }

    /// Returns the finding for one shard of a model.
    pub(crate) fn single_shard(&self) -> Option<Finding> {
        let path = self.options.path.as_ref()?;
        let (number, total) = shard_number(path).filter(|(_, total)| *total > 1)?;
        Some(Finding::SingleShard { file: clip(path.as_str()), number, total })
    }

    /// Returns the failure of a file.
    pub(crate) fn fail(&self, code: &str, path: &RepoPath, problem: &str) -> Failure {
        let message = format!("`{}/{path}` {problem}", self.options.repo);
        self.reader.failure(code, &message, None)
    }

    /// Returns the failure of a call that cannot use a file.
    pub(crate) fn failure(&self, path: &RepoPath, problem: Problem) -> Failure {
        let format = self.formats.find_or_safetensors(path).title();
        let (code, text) = match problem {
            Problem::Read(failure) => return failure,
            Problem::Index(error) => {
                ("malformedIndex", format!("is not a valid shard index: {}", chain(&error)))
            }
            Problem::Header(error) => {
                let code = match error.kind {
                    HeaderErrorKind::NotACheckpoint => "noWeights",
                    HeaderErrorKind::TooLarge if format == "PyTorch" => "tooLarge",
                    _ => "malformedHeader",
                };
                (code, format!("is not a valid {format} file: {}", chain(&error)))
            }
        };
        self.fail(code, path, &text)
    }
}

/// Returns the finding about a file that cannot be used.
pub(crate) fn finding(path: &RepoPath, problem: Problem) -> Finding {
    let file = clip(path.as_str());
    match problem {
        Problem::Header(reason) => {
            let format = Formats::built_in().find_or_safetensors(path).title();
            Finding::MalformedHeader { file, format, reason }
        }
        Problem::Index(reason) => Finding::MalformedIndex { file, reason },
        Problem::Read(failure) if failure.is("fileNotFound") => Finding::MissingShard { file },
        Problem::Read(failure) => {
            Finding::Unreadable { file, reason: failure.message().unwrap_or_default() }
        }
    }
}
