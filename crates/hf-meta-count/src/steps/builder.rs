//! Builds reports from headers, independently of how the headers were read.

use std::collections::BTreeMap;
use std::mem::take;

use super::config_file::ConfigFile;
use super::index_check::{self, IndexCheck, check_count};
use super::pickle_findings::PickleFindings;
use crate::count::config::ADAPTER_CONFIG;
use crate::count::{Configs, CountBreakdown, CountOverflow, Counter, ParameterCount};
use crate::memory::{CacheError, CacheSpec, Engine, MemoryOptions, RankWeights};
use crate::results::adapter::{self, Adapter};
use crate::results::{
    CountReport, FetchStats, Finding, ModelFiles, Plan, SafetensorsFile, SafetensorsParseFromRepo,
    SafetensorsShards, WeightFiles, Weights,
};
use hf_meta_format::base::sort::{Ordered, sort_by};
use hf_meta_format::formats::safetensors::{
    EXTENSION, INDEX_NAME, IndexError, IndexErrorKind, Safetensors, SafetensorsFileHeader,
    SafetensorsIndexJson,
};
use hf_meta_format::formats::weight_sets::shard_pattern;
use hf_meta_format::formats::{Dtype, FileHeader, Format, ModelDescription, RepoPath, clip};

/// A builder that counts a checkpoint from its headers, which may arrive in any order.
///
/// Every way to read headers ends here, so all of them give the same counts. For headers that are all in memory,
/// [`SafetensorsParseFromRepo::from_headers`] is simpler.
///
/// ```
/// use hf_meta_format::SafetensorsFileHeader;
/// use hf_meta_count::count::Configs;
/// use hf_meta_count::steps::ReportBuilder;
///
/// let json = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
/// let path: hf_meta_format::RepoPath = "model.safetensors".parse()?;
///
/// let mut builder = ReportBuilder::new_single(false);
/// builder.add(path.clone(), SafetensorsFileHeader::from_json(json)?.into());
/// let report = builder.finish(&Configs::default()).report(vec![path])?;
/// assert_eq!(report.parameter_count.total(), 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ReportBuilder {
    /// `None` for a single file, which has no index.
    index_check: Option<IndexCheck>,
    counter: Counter,
    overflow: Option<CountOverflow>,
    keep_headers: bool,
    /// The headers, sorted by path once all were added; empty if they are not kept.
    pub(crate) headers: Vec<(RepoPath, FileHeader)>,
    pickles: PickleFindings,
    /// The number of weight files.
    pub(crate) files: usize,
    /// The total size of the files in bytes.
    pub(crate) file_bytes: u64,
    /// The total size of the tensors' data in bytes.
    tensor_bytes: u64,
    /// The size of the truth values among the tensors' data in bytes.
    bool_bytes: u64,
    /// The number of tensors.
    pub(crate) tensors: u64,
    /// The number of parameters declared by the index, or by a file without an index. The metadata of one shard does not
    /// describe the model.
    pub(crate) declared_total: Option<u64>,
    /// The description of the model, with the path of its file. The first file of a split model has the complete one.
    model: Option<(RepoPath, ModelDescription)>,
    pub(crate) cache: Option<Result<CacheSpec, CacheError>>,
    /// The first file whose content is in another format than its name says, and the name of the format.
    misnamed: Option<(RepoPath, &'static str)>,
    is_adapter: bool,
    /// The name of the file that describes the adapter, if it may exist.
    adapter_config: Option<&'static str>,
}

/// The result of a [`ReportBuilder`]. It may contain errors, which [`report`](Self::report) returns.
#[derive(Debug)]
#[non_exhaustive]
pub struct BuiltReport {
    /// The builder with the headers, sorted by their paths as in the index. Its counter is finished.
    pub(crate) builder: ReportBuilder,
    /// The counts, or the tensor at which a sum overflowed.
    pub(crate) counted: Result<(ParameterCount, CountBreakdown), CountOverflow>,
    /// The description of the weights as an adapter.
    pub(crate) adapter: Option<Box<Adapter>>,
}

/// The counts of a weight set, and the cache of its model, if it is known.
pub type CountedReport = (BuiltReport, CountReport, Result<CacheSpec, CacheError>);

impl ReportBuilder {
    /// Creates a builder for a single file. `keep_headers` makes the headers part of the result.
    pub fn new_single(keep_headers: bool) -> Self {
        Self { keep_headers, ..Self::default() }
    }

    /// Creates a builder for shards. `path` is the path of their index, or their path pattern if they have none.
    /// `keep_headers` makes the headers part of the result.
    pub fn new_sharded(
        path: &RepoPath,
        index: Option<SafetensorsIndexJson>,
        keep_headers: bool,
    ) -> Self {
        let declared_total = index.as_ref().and_then(SafetensorsIndexJson::declared_total);
        let index_check = Some(IndexCheck::new(index, path.folder()));
        Self { index_check, keep_headers, declared_total, ..Self::default() }
    }

    /// Adds the header of a file. `shard` is its path as the index spells it.
    pub fn add(&mut self, shard: RepoPath, header: FileHeader) {
        if let Some(check) = &mut self.index_check {
            let aliases = header.pickle.iter().flat_map(|pickle| pickle.aliases());
            let aliases = aliases.map(|alias| alias.name.as_str());
            check.add(&shard, header.tensors().names().chain(aliases));
        } else {
            self.declared_total = header.declared_total();
        }
        if let Some(pickle) = &header.pickle {
            self.pickles.add(&shard, pickle);
        }
        if let Some(format) = header.misnamed
            && self.misnamed.as_ref().is_none_or(|(first, _)| shard < *first)
        {
            self.misnamed = Some((shard.clone(), format));
        }
        if self.overflow.is_none() {
            self.overflow = self.counter.add_file(&header).err();
        }
        self.files += 1;
        self.file_bytes = self.file_bytes.saturating_add(header.file_size());
        self.tensor_bytes = self.tensor_bytes.saturating_add(header.data_length());
        self.tensors += header.tensors().len() as u64;
        if self.index().is_some_and(|index| index.total_size().is_some()) {
            header.tensors().for_each(|_, tensor| {
                let length = if tensor.dtype == Dtype::BOOL { tensor.byte_length() } else { 0 };
                self.bool_bytes = self.bool_bytes.saturating_add(length);
            });
        }
        if let Some(model) = header.model.as_deref()
            && self.model.as_ref().is_none_or(|(first, _)| shard < *first)
        {
            self.model = Some((shard.clone(), model.clone()));
            self.cache = header.metadata().map(CacheSpec::from_gguf);
        }
        if self.files == 1 {
            self.is_adapter = adapter::is_adapter(&shard, &header);
            let has_config = self.is_adapter && adapter::has_config(&shard, &header);
            self.adapter_config = has_config.then_some(ADAPTER_CONFIG);
        }
        // Adapters are small.
        if self.keep_headers || self.is_adapter {
            self.headers.push((shard, header));
        }
    }

    /// Returns the bytes of all tensors so far.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensor_bytes
    }

    /// Returns whether `config.json` could affect the count of the headers so far.
    pub fn needs_config(&self) -> bool {
        self.counter.needs_config()
    }

    /// Returns the architecture that a header states.
    pub(crate) fn architecture(&self) -> Option<String> {
        self.model.as_ref()?.1.architecture.clone()
    }

    /// Returns whether a header describes the cache of the model, so that `config.json` is not needed for it.
    pub fn describes_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Returns the name of another file that may describe the quantization, if the count needs it.
    pub fn other_config_file(&self, configs: &Configs) -> Option<&'static str> {
        self.adapter_config.or_else(|| self.counter.other_config_file(configs))
    }

    /// Returns the index, or `None` if there is none.
    pub fn index(&self) -> Option<&SafetensorsIndexJson> {
        self.index_check.as_ref()?.index.as_ref()
    }

    /// Checks that the headers of all files were added once.
    fn check_headers(&self) -> Result<(), IndexError> {
        match (&self.index_check, self.files) {
            (_, 0) => Err(IndexError::new(IndexErrorKind::NoHeaders, "no headers were given")),
            (Some(check), _) => check.check_shards(),
            (None, 1) => Ok(()),
            (None, files) => {
                let message = format!("{files} headers were given for a single file");
                Err(IndexError::new(IndexErrorKind::DuplicateHeader, message))
            }
        }
    }

    /// Returns the disagreements between the index and the headers added so far, errors first.
    pub(crate) fn index_findings(&self) -> Vec<Finding> {
        let check = self.index_check.as_ref();
        check.map_or_else(Vec::new, |check| check.findings(self.tensor_bytes, self.bool_bytes))
    }

    /// Returns the paths of all files, the index first. `path` is the path of the file or the index, or the path
    /// pattern of the shards.
    pub fn filepaths(&self, path: &RepoPath) -> Vec<RepoPath> {
        let Some(check) = &self.index_check else { return vec![path.clone()] };
        let index = self.index().map(|_| path.clone());
        let shards = check.shards().into_iter().map(|shard| path.sibling(shard));
        index.into_iter().chain(shards).collect()
    }

    /// Counts the headers of the weights at `path`. The caller adds what depends on how they were read. Also returns the
    /// cache of the model, if it is known.
    ///
    /// # Errors
    ///
    /// Returns an error under the conditions of [`BuiltReport::report`].
    pub fn count(
        self,
        config: ConfigFile,
        path: &RepoPath,
        memory: Option<MemoryOptions>,
    ) -> Result<CountedReport, IndexError> {
        let filepaths = self.filepaths(path);
        let built = self.finish(&config.configs);
        let mut report = built.report(filepaths)?;
        let cache = built.builder.cache.clone().unwrap_or_else(|| {
            let json = config.json.as_deref().ok_or(CacheError::NoConfig)?;
            let recipe = config.configs.recipe.as_deref();
            CacheSpec::with_recipe(json, recipe, &memory.unwrap_or_default())
        });
        report.cache_spec = cache.clone().ok().map(Box::new);
        let ranks = memory.filter(|memory| memory.engine == Engine::Vllm).and_then(|memory| {
            RankWeights::new(&built.builder.headers, config.json.as_deref()?, &memory)
        });
        report.files = memory.map(|_| {
            let (config, recipe) = (config.json.clone(), config.configs.recipe.clone());
            Box::new(ModelFiles { config, recipe, ranks })
        });
        report.findings.extend(config.finding);
        Ok((built, report, cache))
    }

    /// Finishes the count with the model's configuration.
    pub fn finish(mut self, configs: &Configs) -> BuiltReport {
        self.counter.set_configs(configs.clone());
        sort_by(&mut self.headers, |(one, _), (other, _)| one.cmp(other));
        let adapter = self.is_adapter.then(|| Adapter::new(configs.adapter(), &self.headers));
        let overflow = self.overflow.take();
        let counted = overflow.map_or_else(|| take(&mut self.counter).finish(), Err);
        BuiltReport { builder: self, counted, adapter: adapter.flatten().map(Box::new) }
    }
}

impl BuiltReport {
    /// Returns the counts. `filepaths` are the paths of all files, the index first. The caller sets the fields that
    /// depend on how the headers were read: source, commit, format, fetch and plan. Until then, `format` is
    /// `safetensors`, or the format of a file with the name of another one; set it before
    /// [`into_weights`](Self::into_weights), which depends on it.
    ///
    /// # Errors
    ///
    /// Returns an error if no header was added, if the header of a shard is missing or was added twice, if a disagreement
    /// makes the counts wrong, or if a sum overflows 64 bits.
    pub fn report(&self, filepaths: Vec<RepoPath>) -> Result<CountReport, IndexError> {
        self.builder.check_headers()?;
        let mut findings = self.builder.index_findings();
        if let Some(error) = findings.first().and_then(index_check::as_error) {
            return Err(error);
        }
        let overflow = |error: CountOverflow| {
            IndexError::new(IndexErrorKind::CountOverflow, error.to_string())
                .with_tensor(&error.tensor)
        };
        let (parameter_count, breakdown) = self.counted.clone().map_err(overflow)?;
        findings.extend(self.header_findings(true));
        let declared_total = self.builder.declared_total;
        let weight_bytes = self.builder.file_bytes;
        findings.extend(check_count(&parameter_count, &breakdown, declared_total));
        Ok(CountReport {
            source: filepaths.first().map_or_else(String::new, ToString::to_string),
            commit: None,
            format: self.builder.misnamed.as_ref().map_or(Safetensors.name(), |(_, format)| format),
            model: self.builder.model.clone().map(|(_, model)| model),
            sharded: self.builder.index_check.is_some(),
            filepaths,
            parameter_count,
            breakdown,
            declared_total,
            findings,
            other_sets: None,
            cache_spec: None,
            files: None,
            engine: None,
            adapter: self.adapter.clone(),
            memory: None,
            fetch: FetchStats { weight_bytes, ..FetchStats::default() },
            plan: Plan::Exact,
        })
    }

    /// Returns the disagreements between a split model and the numbers of files and tensors in its header, if all files
    /// were read, and then the findings about pickles, errors first.
    pub(crate) fn header_findings(&self, is_complete: bool) -> Vec<Finding> {
        let ReportBuilder { model, files, tensors, .. } = &self.builder;
        let model = if is_complete { model.as_ref() } else { None };
        let declared = model.map_or([None; 2], |(_, model)| [model.files, model.tensors]);
        let found = [("files", *files as u64), ("tensors", *tensors)];
        let wrong = declared.into_iter().zip(found).filter_map(|(declared, (unit, found))| {
            let declared = declared.filter(|declared| *declared != found)?;
            Some(Finding::SplitMismatch { unit, declared, found })
        });
        let misnamed = self
            .builder
            .misnamed
            .as_ref()
            .map(|(file, format)| Finding::Misnamed { file: clip(file.as_str()), format });
        wrong.chain(misnamed).chain(self.builder.pickles.findings()).collect()
    }

    /// Returns the result in any format. The headers must have been kept.
    ///
    /// # Errors
    ///
    /// Returns an error under the conditions of [`into_parsed`](Self::into_parsed).
    pub fn into_weights(self, path: RepoPath, report: CountReport) -> Result<Weights, IndexError> {
        if report.format == Safetensors.name() {
            return self.into_parsed(path, report).map(Weights::from);
        }
        let folder = path.folder().map_or_else(String::new, |folder| format!("{folder}/"));
        let name = |file: &RepoPath| {
            RepoPath::new_unchecked(file.as_str().strip_prefix(&*folder).unwrap_or(file.as_str()))
        };
        let headers = self.builder.headers.into_iter();
        let headers = headers.map(|(file, header)| (name(&file), header)).ordered();
        Ok(Weights::Other(WeightFiles { path, report, headers }))
    }

    /// Returns the result for safetensors. The headers must have been kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the shards have no index and their names are too long to build one.
    pub fn into_parsed(
        self,
        path: RepoPath,
        report: CountReport,
    ) -> Result<SafetensorsParseFromRepo, IndexError> {
        let headers = self.builder.headers.into_iter();
        let headers = headers.map(|(shard, header)| (shard, SafetensorsFileHeader(header)));
        let mut headers: BTreeMap<_, _> = headers.ordered();
        if !report.sharded
            && let Some((_, header)) = headers.pop_last()
        {
            return Ok(SafetensorsParseFromRepo::Single(SafetensorsFile { path, report, header }));
        }
        let index = match self.builder.index_check.and_then(|check| check.index) {
            Some(index) => index,
            None => SafetensorsIndexJson::from_headers(&headers)?,
        };
        Ok(SafetensorsParseFromRepo::Sharded(SafetensorsShards { path, report, index, headers }))
    }
}

impl SafetensorsParseFromRepo {
    /// Builds a result from headers that were obtained by other means, such as a custom reader or a browser.
    ///
    /// `headers` are named as in the index. Without an index, one header is treated as a single file, and several as
    /// shards. Parameters are counted over all headers together: the components of a quantized module may be in
    /// different shards, so adding up the counts of separate headers gives wrong results. Pass the contents of
    /// `config.json` in `configs` if [`Counter::needs_config`] is `true` for these headers.
    ///
    /// The result has no commit, and its source is the path of its first file.
    ///
    /// ```
    /// use hf_meta_count::count::Configs;
    /// use hf_meta_count::SafetensorsParseFromRepo;
    /// use hf_meta_format::SafetensorsFileHeader;
    ///
    /// let json = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
    /// let header = SafetensorsFileHeader::from_json(json)?;
    /// let headers = vec![("model.safetensors".parse()?, header)];
    /// let parsed = SafetensorsParseFromRepo::from_headers(None, headers, &Configs::default())?;
    /// assert_eq!(parsed.parameter_count().total(), 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if there are no headers or more than [`SafetensorsIndexJson::MAX_SHARDS`], if the header of a
    /// shard is missing or given twice, if a tensor is in two shards or in none, or if a sum overflows 64 bits.
    pub fn from_headers(
        index: Option<SafetensorsIndexJson>,
        headers: Vec<(RepoPath, SafetensorsFileHeader)>,
        configs: &Configs,
    ) -> Result<Self, IndexError> {
        let limit = SafetensorsIndexJson::MAX_SHARDS;
        if headers.len() > limit {
            return Err(IndexError::too_many_shards(limit));
        }
        let shards: Vec<_> = headers.iter().map(|(shard, _)| shard.clone()).collect();
        let is_single = index.is_none() && shards.len() == 1;
        let path = match &index {
            Some(_) => RepoPath::new_unchecked(INDEX_NAME),
            None if is_single => shards[0].clone(),
            None => shard_pattern(&shards)
                .unwrap_or_else(|| RepoPath::new_unchecked(&format!("*{EXTENSION}"))),
        };
        let mut builder = if is_single {
            ReportBuilder::new_single(true)
        } else {
            ReportBuilder::new_sharded(&path, index, true)
        };
        for (shard, header) in headers {
            builder.add(shard, header.into());
        }
        let filepaths = builder.filepaths(&path);
        let built = builder.finish(configs);
        let report = built.report(filepaths)?;
        built.into_parsed(path, report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tensor: &str, bytes: u64) -> SafetensorsFileHeader {
        let entry = format!(r#""dtype":"U8","shape":[{bytes},1,1],"data_offsets":[0,{bytes}]"#);
        let metadata = r#""__metadata__":{"total_parameters":"7"}"#;
        let json = format!(r#"{{{metadata},"{tensor}":{{{entry}}}}}"#);
        SafetensorsFileHeader::from_json(json.as_bytes()).unwrap()
    }

    fn parse(headers: &[(&str, &str, u64)]) -> SafetensorsParseFromRepo {
        let header = |&(path, tensor, bytes): &(&str, &str, u64)| {
            (path.parse().unwrap(), header(tensor, bytes))
        };
        let headers = headers.iter().map(header).collect();
        SafetensorsParseFromRepo::from_headers(None, headers, &Configs::default()).unwrap()
    }

    #[test]
    fn one_file_is_a_model_without_shards() {
        let parsed = parse(&[("a.safetensors", "w", 5)]);
        assert!(matches!(parsed, SafetensorsParseFromRepo::Single(_)));
        let report = parsed.report();
        assert!(!report.sharded);
        // The length prefix, the header and the data.
        let expected = 8 + header("w", 5).length() + 5;
        assert_eq!(report.fetch.weight_bytes, expected);
        assert_eq!((report.parameter_count.total(), report.declared_total), (5, Some(7)));
        assert_eq!(
            report.filepaths.iter().map(RepoPath::as_str).collect::<Vec<_>>(),
            ["a.safetensors"]
        );
    }

    /// The metadata of one shard does not describe the model.
    #[test]
    fn files_without_an_index_are_shards() {
        let names = ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"];
        let parsed = parse(&[(names[1], "v", 2), (names[0], "w", 5)]);
        let SafetensorsParseFromRepo::Sharded(shards) = &parsed else { panic!("{parsed:?}") };
        assert_eq!(shards.path.as_str(), "m-*-of-00002.safetensors");
        let report = parsed.report();
        assert!(report.sharded);
        assert_eq!(
            report.fetch.weight_bytes,
            2 * 8 + header("v", 2).length() + header("w", 5).length() + 7
        );
        assert_eq!((report.parameter_count.total(), report.declared_total), (7, None));
        assert_eq!(report.filepaths.iter().map(RepoPath::as_str).collect::<Vec<_>>(), names);
    }
}
