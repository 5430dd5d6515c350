//! Reads the headers of a weight set and the configuration, and counts them.

use std::cell::Cell;
use std::ops::Range;

use futures::stream::{self, StreamExt};
use hf_meta_count::count::Configs;
use hf_meta_count::memory::{Engine, MemoryOptions, VllmOptions};
use hf_meta_count::results::{Finding, RangeRequest};
use hf_meta_count::steps::ConfigFile;
use hf_meta_count::steps::{ReportBuilder, Target};
use hf_meta_format::RepoPath;
use hf_meta_format::formats::safetensors::SafetensorsIndexJson;
use hf_meta_format::formats::{
    FileHeader, Formats, HeaderError, HeaderErrorKind, Step, chain, clip,
};

use super::Inspection;
use super::locate::Located;
use super::options::Options;
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
    pub(crate) target: Target,
    /// `true` to continue after files that cannot be used.
    pub(crate) keep_failures: bool,
    /// The total size of the headers so far, in bytes.
    header_bytes: Cell<u64>,
}

/// The headers of a weight set.
pub(crate) struct SetReads {
    /// The number of files. 0 if the index cannot be used.
    pub(crate) files: usize,
    pub(crate) builder: ReportBuilder,
    /// The paths of the shards; empty for a single file.
    pub(crate) shards: Vec<RepoPath>,
    /// The files that could not be used, sorted by path. Empty unless failures are kept.
    pub(crate) failures: Vec<(RepoPath, Problem)>,
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
            Some(name) => Formats::built_in().only(name),
            None => Some(Formats::built_in().clone()),
        };
        let formats = formats.ok_or_else(|| invalid("the format is unknown"))?;
        let mut memory = options.memory.as_ref().map(|_| MemoryOptions::default());
        for (name, value) in options.memory.iter().flatten() {
            let set = memory.as_mut().map_or(Ok(()), |memory| memory.set(name, value));
            set.map_err(|error| invalid(&format!("`{}`: {error}", clip(name))))?;
        }
        let needs_vllm = |memory: &MemoryOptions| memory.vllm != VllmOptions::default();
        if memory.is_some_and(|memory| needs_vllm(&memory) && memory.engine != Engine::Vllm) {
            return Err(invalid(
                "`maxNumBatchedTokens`, `tp` and `gpuMemoryUtilization` require the engine `vllm`",
            ));
        }
        options.other_sets |= memory.is_some();
        let target = Target::from_path(&formats, options.path.take());
        let (keep_failures, header_bytes) = Default::default();
        Ok(Self { reader, options, memory, formats, target, keep_failures, header_bytes })
    }

    /// Reads all headers of the selected weights and counts them.
    pub(crate) async fn inspect(self) -> Result<Inspection, Failure> {
        let located = self.locate()?;
        let format = self.formats.find_or_safetensors(&located.path).name();
        let builder = self.read_set(&located).await?.builder;
        let Located { path, layout, .. } = located;
        let mut config = ConfigFile::default();
        if builder.needs_config() || self.memory.is_some() && !builder.describes_cache() {
            config = self.read_config(&path).await?;
        }
        let other = builder.other_config_file(&config.configs);
        self.add_other_config(&path, other, &mut config).await?;
        let failed = |error| self.failure(&path, Problem::Index(error));
        let (built, mut report, cache) =
            builder.count(config, &path, self.memory).map_err(failed)?;
        report.findings.extend(self.findings());
        report.set_format(format);
        report.source.clone_from(&self.options.source);
        report.commit.clone_from(&self.options.commit);
        report.plan = self.options.plan;
        self.add_memory(&path, &mut report, cache, layout.as_ref()).await?;
        report.add_other_sets(layout.map(|layout| layout.sets));
        let keep = self.options.keep_headers;
        let weights = keep.then(|| built.into_weights(path.clone(), report.clone())).transpose();
        Ok(Inspection { weights: weights.map_err(failed)?, report })
    }

    /// Reads all headers of a set. The first failure is the result, unless failures are kept.
    pub(crate) async fn read_set(&self, located: &Located) -> Result<SetReads, Failure> {
        let path = &located.path;
        let (requests, mut builder) = match self.requests(located).await {
            Ok(requests) => requests,
            Err(problem @ Problem::Index(_)) if self.keep_failures => {
                let builder = ReportBuilder::new_sharded(path, None, true);
                let failures = vec![(path.clone(), problem)];
                return Ok(SetReads { files: 0, builder, shards: Vec::new(), failures });
            }
            Err(problem) => return Err(self.failure(path, problem)),
        };
        let is_single = located.shards.is_none() && !path.is_index();
        let file = |shard: &RepoPath| if is_single { shard.clone() } else { path.sibling(shard) };
        let names = requests.iter().filter(|_| !is_single);
        let shards = names.map(|(shard, _)| file(shard)).collect();
        self.header_bytes.set(0);
        let (files, mut done, mut failures) = (requests.len(), 0, Vec::new());
        let reads = requests.into_iter().map(|(shard, first)| async move {
            (shard.clone(), self.read_header(&file(&shard), first).await)
        });
        let mut reads = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_SHARDS);
        while let Some((shard, read)) = reads.next().await {
            match read {
                Ok(header) => {
                    builder.add(shard, header);
                    done += 1;
                    self.reader.progress(done, files)?;
                }
                Err(problem) if self.keep_failures => failures.push((file(&shard), problem)),
                // The index lists the shard, so it is missing.
                Err(Problem::Read(failure)) if !is_single && failure.is("fileNotFound") => {
                    let path = format!("{}/{}", self.options.repo, file(&shard));
                    let message = format!("shard `{path}` not found");
                    return Err(self.reader.failure("missingShards", &message, None));
                }
                Err(problem) => return Err(self.failure(&file(&shard), problem)),
            }
        }
        failures.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(SetReads { files, builder, shards, failures })
    }

    /// Reads the index of a set, if it has one. Returns the first ranges of its files, and the builder of its report.
    async fn requests(
        &self,
        Located { path, shards, .. }: &Located,
    ) -> Result<(Vec<RangeRequest>, ReportBuilder), Problem> {
        let (plan, keep_headers) = (self.options.plan, self.options.keep_headers);
        if let Some(shards) = shards {
            let requests = plan.shards_without_index(&self.formats, shards);
            let builder = ReportBuilder::new_sharded(path, None, keep_headers);
            return Ok((requests.map_err(Problem::Index)?, builder));
        }
        if !path.is_index() {
            let first = plan.first_range(&self.formats, path);
            return Ok((vec![(path.clone(), first)], ReportBuilder::new_single(keep_headers)));
        }
        let read = self.reader.load(path.as_str(), SafetensorsIndexJson::DEFAULT_LIMIT).await?;
        let extension = Formats::built_in().find_or_safetensors(path).extension();
        let index = SafetensorsIndexJson::with_extension(&read.bytes(), extension);
        let index = index.map_err(Problem::Index)?;
        Ok((plan.shards(&index), ReportBuilder::new_sharded(path, Some(index), keep_headers)))
    }

    /// Reads and checks the header of a file, starting with the range `first`.
    async fn read_header(&self, path: &RepoPath, first: Range<u64>) -> Result<FileHeader, Problem> {
        let format = self.formats.find_or_safetensors(path);
        if format.name() != "safetensors" {
            self.reader.load_second().await?;
        }
        let mut parser = format.parser(path, self.options.max_header_bytes);
        let (mut range, mut size) = (first, None);
        loop {
            // The bytes are reserved before they are read.
            let length = range.end.saturating_sub(range.start);
            self.header_bytes.set(self.header_bytes.get().saturating_add(length));
            if self.header_bytes.get() > MAX_HEADERS_BYTES {
                let problem = "exceeds the limit of all headers together";
                return Err(self.fail("tooLarge", path, problem).into());
            }
            let part = self.reader.read(path.as_str(), range.start, range.end).await?;
            if size.is_some() && size != part.size() {
                return Err(self.fail("changed", path, "changed while being read").into());
            }
            size = part.size();
            match parser.advance(range.start, part.bytes(), size).map_err(Problem::Header)? {
                Step::Read(next) => range = next,
                Step::Done(header) => {
                    let checked = size.map_or(Ok(()), |size| header.check_file_size(size));
                    return checked.map(|()| header).map_err(Problem::Header);
                }
            }
        }
    }

    /// Reads the configuration next to the weights, or else at the root. An unusable one must not hide the counts of
    /// the headers.
    pub(crate) async fn read_config(&self, weights: &RepoPath) -> Result<ConfigFile, Failure> {
        self.reader.load_second().await?;
        let root = RepoPath::new_unchecked(CONFIG);
        let paths = [weights.sibling(&root), root];
        let path = paths.iter().find(|path| self.options.has_file(path));
        let Some(path) = path else { return Ok(ConfigFile::default()) };
        let limit = Configs::DEFAULT_LIMIT;
        let config = match self.load_config(path).await? {
            Some(json) => ConfigFile::from_json(json),
            None => ConfigFile::ignored(format!("the file exceeds the limit of {limit} bytes")),
        };
        Ok(ConfigFile { is_of_root: *path != paths[0], ..config })
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
        if self.options.has_file(&path)
            && let Some(json) = self.load_config(&path).await?
        {
            config.add_file(name, &json);
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
        renamed.into_iter().chain(self.target.single_shard())
    }

    /// Returns the failure of a file.
    pub(crate) fn fail(&self, code: &str, path: &RepoPath, problem: &str) -> Failure {
        let message = format!("`{}/{path}` {problem}", self.options.repo);
        self.reader.failure(code, &message, None)
    }

    /// Returns the failure of a call that cannot use a file.
    pub(crate) fn failure(&self, path: &RepoPath, problem: Problem) -> Failure {
        let title = self.formats.find_or_safetensors(path).title();
        let (code, kind, error) = match problem {
            Problem::Read(failure) => return failure,
            Problem::Index(error) if error.kind != HeaderErrorKind::CountOverflow => {
                ("malformedIndex", "shard index".to_owned(), error)
            }
            Problem::Header(error) | Problem::Index(error) => {
                let code = match error.kind {
                    HeaderErrorKind::NotACheckpoint => "noWeights",
                    HeaderErrorKind::TooLarge if title == "PyTorch" => "tooLarge",
                    _ => "malformedHeader",
                };
                (code, format!("{title} file"), error)
            }
        };
        self.fail(code, path, &format!("is not a valid {kind}: {}", chain(&error)))
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
        Problem::Read(failure) => Finding::Unreadable { file, reason: failure.text() },
    }
}
