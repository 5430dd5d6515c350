//! The checks of one weight set, after its headers have been read.

use std::cmp::Reverse;
use std::mem::take;

use super::gguf::{check_gguf, gguf_config};
use super::{ParameterSources, VerifiedSet, VerifyReport, check_shard_numbers, is_valid};
use crate::base::json_object::{parse, standard_json};
use crate::base::model_config::ModelConfig;
use crate::count::{Configs, Embedding, NamePatterns};
use crate::formats::gguf::Gguf;
use crate::formats::safetensors::IndexError;
use crate::formats::{Format, Formats, Headers, RepoPath, TensorInfo, all_tensors, clip};
use crate::memory::{CacheError, CacheLayout, MemoryOptions};
use crate::report::index_check::check_count;
use crate::report::rules::{self, ConfigCheck};
use crate::report::{BuiltReport, CountReport, FetchStats, Finding, ReportBuilder, bounded};

/// The name of the configuration file.
const CONFIG: &str = "config.json";

/// The usable part of a model's configuration: its `config.json`, and what other files add to it.
#[derive(Clone, Debug, Default)]
pub struct ConfigFile {
    /// The bytes of `config.json`; `None` if it is missing or unreadable.
    pub json: Option<Vec<u8>>,
    /// The parsed files.
    pub configs: Configs,
    /// `true` if the file is at the root of the repository, and the weights are in a folder: it may describe others.
    pub is_of_root: bool,
    /// The reason a file is ignored; `None` if none is ignored.
    pub finding: Option<Finding>,
}

impl ConfigFile {
    /// Parses the bytes of `config.json`.
    pub fn from_json(json: Vec<u8>) -> Self {
        let parsed = Configs::from_config_json(&json);
        let finding = parsed.as_ref().err().map(|error| {
            let (file, reason) = (CONFIG.to_owned(), error.to_string());
            Finding::InvalidConfig { file, reason }
        });
        let configs = parsed.unwrap_or_default();
        Self { json: Some(json), configs, is_of_root: false, finding }
    }

    /// Creates a configuration that is ignored for a reason.
    pub fn ignored(reason: impl Into<String>) -> Self {
        let (file, reason) = (CONFIG.to_owned(), reason.into());
        let finding = Finding::UnusableConfig { file, reason };
        Self { finding: Some(finding), ..Self::default() }
    }

    /// Adds the other file that may describe the quantization, the experts or the adapter. An unusable one is a finding.
    pub fn add_file(&mut self, name: &str, json: &[u8]) {
        if let Err(error) = self.configs.add_file(name, json) {
            let (file, reason) = (name.to_owned(), error.to_string());
            self.finding.get_or_insert(Finding::UnusableConfig { file, reason });
        }
    }

    /// Counts the headers of the weights at `path`. The caller adds what depends on how they were read. Also returns the
    /// cache of the model, if it is known.
    ///
    /// # Errors
    ///
    /// Returns an error under the conditions of [`BuiltReport::report`].
    pub fn count(
        self,
        builder: ReportBuilder,
        path: &RepoPath,
        memory: Option<MemoryOptions>,
    ) -> Result<CountedReport, IndexError> {
        let filepaths = builder.filepaths(path);
        let built = builder.finish(&self.configs);
        let mut report = built.report(filepaths)?;
        let cache = built.builder.cache.clone().unwrap_or_else(|| {
            let json = self.json.as_deref().ok_or(CacheError::NoConfig)?;
            let recipe = self.configs.recipe.as_deref();
            CacheLayout::with_recipe(json, recipe, &memory.unwrap_or_default())
        });
        report.layout = cache.clone().ok().map(Box::new);
        report.findings.extend(self.finding);
        Ok((built, report, cache))
    }
}

/// The counts of a weight set, and the cache of its model, if it is known.
pub type CountedReport = (BuiltReport, CountReport, Result<CacheLayout, CacheError>);

/// A weight set whose headers have been read, as far as that was possible.
#[derive(Debug)]
pub struct SetCheck {
    /// The result so far. The caller adds the findings about files that it reads.
    pub set: VerifiedSet,
    /// `true` if the configuration describes the tensors.
    pub needs_config: bool,
    is_complete: bool,
    assembly: ReportBuilder,
}

impl SetCheck {
    /// Compares the index, or the names of the shards, with the headers. `failures` are the findings about unreadable
    /// headers, and `unindexed` the shards that the index does not list. `is_whole` is false if only one shard of several
    /// was to be read.
    pub fn new(
        path: RepoPath,
        files: usize,
        assembly: ReportBuilder,
        shards: &[RepoPath],
        unindexed: &[RepoPath],
        failures: Vec<Finding>,
        is_whole: bool,
    ) -> Self {
        let headers = &assembly.headers;
        let is_complete = is_whole && headers.len() == files;
        let is_described = headers.iter().any(|(_, header)| header.is_self_describing);
        // A file that was not read could contain the output embedding.
        let needs_config = is_complete && !is_described;
        let mut set = VerifiedSet::new(path, files, failures);
        set.findings.extend(assembly.index_findings());
        set.findings.extend(check_shard_numbers(shards));
        let unindexed = unindexed.iter().map(|shard| clip(shard.as_str()));
        set.findings.extend(bounded(unindexed.map(|shard| Finding::UnindexedShard { shard })));
        Self { set, needs_config, is_complete, assembly }
    }

    /// Returns the name of the other file that may describe the quantization, the experts or the adapter.
    pub fn other_config_file(&self, configs: &Configs) -> Option<&'static str> {
        let recipe = rules::recipe_file(configs, &self.assembly.headers);
        recipe.or_else(|| self.assembly.other_config_file(configs))
    }

    /// Returns whether the count that the Hub reports is about this set: the Hub counts only the files at the root.
    pub fn is_counted_by_hub(&self) -> bool {
        self.needs_config && self.is_at_root() && self.is_countable()
    }

    /// Returns whether the set is not in a folder, as a component of a pipeline is.
    fn is_at_root(&self) -> bool {
        self.set.path.segments().count() == 1
    }

    /// Counts the headers, and compares them with the configuration and with the count that the Hub reports, or with
    /// the reason why it is unavailable.
    pub fn finish(mut self, config: &ConfigFile, hub: Result<Option<u64>, String>) -> VerifyReport {
        let filepaths = self.assembly.filepaths(&self.set.path);
        self.set.findings.extend(config.finding.clone());
        let is_draft = is_draft(&self.assembly.headers);
        // The index may list a tied embedding that is not stored. The count is right in that case.
        if self.needs_config
            && !is_draft
            && self.is_at_root()
            && let Some(json) = &config.json
        {
            check_embeddings(json, &self.assembly.headers, &mut self.set.findings);
        }
        let built = take(&mut self.assembly).finish(&config.configs);
        self.count(&built, hub);
        let BuiltReport { builder, adapter, .. } = built;
        if adapter.is_some() {
            let found = rules::check_adapter(config.configs.adapter(), &builder.headers);
            self.set.findings.extend(found);
        }
        self.set.config_check = if is_draft {
            ConfigCheck::skipped("the model drafts tokens for another model")
        } else {
            self.compare_with_config(config, &builder.headers, adapter.is_some())
        };
        let mut set = self.set;
        if self.is_complete && set.files > 0 && builder.tensors == 0 && adapter.is_none() {
            set.findings.push(Finding::NoTensors);
        }
        let path = &set.path;
        let spaces = builder.headers.iter().filter(|(_, header)| header.has_leading_space);
        let spaces = spaces.map(|(file, _)| {
            let file = if file == path { file.clone() } else { path.sibling(file) };
            Finding::LeadingSpace { file: clip(file.as_str()) }
        });
        set.findings.extend(bounded(spaces));
        (set.valid_files, set.tensors) = (builder.files, builder.tensors);
        let fetch = FetchStats { weight_bytes: builder.file_bytes, ..FetchStats::default() };
        VerifyReport { filepaths, sets: vec![set], adapter, fetch, ..VerifyReport::default() }
    }

    /// Adds the findings about the headers and the count. Adds the count if it is right.
    fn count(&mut self, built: &BuiltReport, hub: Result<Option<u64>, String>) {
        let declared = built.builder.declared_total.filter(|_| self.is_countable());
        self.set.parameters.declared = declared;
        self.set.findings.extend(built.header_findings(self.is_complete));
        if Formats::built_in().find_or_safetensors(&self.set.path).name() == Gguf.name() {
            let found = check_gguf(&self.set.path, &built.builder.headers, self.is_complete);
            self.set.findings.extend(found);
        }
        let Ok((count, breakdown)) = &built.counted else {
            return self.set.findings.insert(0, Finding::CountOverflow);
        };
        self.set.findings.extend(check_count(count, breakdown, declared));
        if !self.is_countable() {
            return;
        }
        let (found, exact) = (count.total(), Some(breakdown.is_exact()));
        let reported = hub.as_ref().map_or(None, |reported| *reported);
        self.set.parameters =
            ParameterSources { counted: Some(found), exact, declared, hub: reported };
        let wrong = reported.filter(|reported| *reported != found);
        let wrong = wrong.map(|reported| Finding::HubCountMismatch { reported, found });
        let failed = hub.err().map(|reason| Finding::HubCountUnavailable { reason });
        self.set.findings.extend(wrong.or(failed));
    }

    fn compare_with_config(
        &mut self,
        config: &ConfigFile,
        headers: &Headers,
        is_adapter: bool,
    ) -> ConfigCheck {
        let stored = gguf_config(headers);
        let json = stored.as_deref().or(config.json.as_deref());
        let has_config = self.needs_config || self.is_complete && json.is_some();
        // The configuration next to an adapter may be that of its base model.
        if !has_config || config.is_of_root || is_adapter {
            return match (self.is_complete, self.needs_config) {
                (false, _) => ConfigCheck::skipped("a file is missing or invalid"),
                // An adapter, or a GGUF file of something else than a model.
                (true, needs_config) if is_adapter || !needs_config => ConfigCheck::default(),
                (true, _) => ConfigCheck::skipped("there is none next to the weights"),
            };
        }
        let (found, check) = rules::check_model(json, headers);
        // The error about a missing module says the same.
        self.set.findings.retain(|found| {
            !check.compared || !matches!(found, Finding::MissingOutputEmbedding { .. })
        });
        self.set.findings.splice(..0, found);
        let recipe = json.map(|json| rules::check_recipe(json, &config.configs, headers));
        self.set.findings.extend(recipe.into_iter().flatten());
        check
    }

    /// Returns whether the found tensors are all tensors, and can be compared with a count.
    fn is_countable(&self) -> bool {
        let is_other = |finding: &Finding| matches!(finding, Finding::UnindexedTensor { .. });
        self.is_complete && is_valid(&self.set.findings) && !self.set.findings.iter().any(is_other)
    }
}

/// Returns whether the model drafts tokens for another one, as EAGLE heads do. It projects several hidden states of that
/// model to one, and uses its embeddings.
fn is_draft(headers: &Headers) -> bool {
    all_tensors(headers).any(|(name, tensor)| {
        let is_projection =
            matches!(tensor.shape[..], [to, from] if to > 0 && from > to && from % to == 0);
        name == "fc.weight" && is_projection
    })
}

/// Compares `tie_word_embeddings` in `config.json` with the tensors of all files, and adds a finding about the output
/// embedding. If a missing tensor is tied, the finding replaces the error about it.
///
/// A language model with tied embeddings uses its input embedding as the output embedding, too. Only the input embedding
/// is saved, so the file contains fewer parameters than some tools report, which users often take for a defect.
pub(crate) fn check_embeddings(config_json: &[u8], headers: &Headers, findings: &mut Vec<Finding>) {
    let mut is_input = is_embedding(Embedding::Input);
    // Vision models name their class tokens like embeddings. Of several candidates, the largest one is the input.
    let inputs =
        all_tensors(headers).filter(|(name, info)| info.shape.len() == 2 && is_input(name));
    let input = inputs.max_by_key(|(name, info)| (info.elements(), Reverse(*name)));
    let Some((input, TensorInfo { shape, .. })) = input else { return };
    let json = standard_json(config_json);
    let Ok(config) = parse::<ModelConfig<'_>>(&json) else { return };
    let Some(is_tied) = config.is_tied() else { return };
    let mut is_output = is_embedding(Embedding::Output);
    let missing = findings.iter().position(
        |finding| matches!(finding, Finding::MissingTensor { tensor, .. } if is_output(tensor)),
    );
    let stored = clip(input);
    if let Some(at) = missing {
        if is_tied && let Finding::MissingTensor { tensor, shard } = findings.remove(at) {
            findings.push(Finding::DroppedTiedEmbedding { tensor, shard, stored });
        }
        return;
    }
    // The counter reports an output embedding that is stored although it is tied.
    if all_tensors(headers).any(|(name, _)| is_output(name)) {
        return;
    }
    // Another tensor with the same shape could be an output embedding with another name.
    let mut others = all_tensors(headers).filter(|(name, _)| *name != input);
    if is_tied {
        findings.push(Finding::TiedEmbedding { stored });
    } else if is_language_model(&config) && !others.any(|(_, other)| other.shape == shape) {
        findings.push(Finding::MissingOutputEmbedding { stored });
    }
}

fn is_language_model(config: &ModelConfig<'_>) -> bool {
    let is_causal = |name: &String| name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel");
    let architectures = config.outermost().get::<Vec<String>>("architectures");
    architectures.iter().flatten().any(is_causal)
}

/// Returns a function that returns whether a name belongs to an embedding, quantized or not.
fn is_embedding(kind: Embedding) -> impl FnMut(&str) -> bool {
    let mut names = NamePatterns::default();
    move |name| !name.ends_with("bias") && names.read(name).embedding() == Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(config: &str, tensors: &[&str], missing: &[&str]) -> Vec<Finding> {
        let entry = |(at, name): (usize, &&str)| {
            format!(r#""{name}":{{"dtype":"U8","shape":[1,1],"data_offsets":[{at},{}]}}"#, at + 1)
        };
        let entries: Vec<_> = tensors.iter().enumerate().map(entry).collect();
        let json = format!("{{{}}}", entries.join(","));
        let header = crate::formats::FileHeader::from(
            crate::SafetensorsFileHeader::from_json(json.as_bytes()).unwrap(),
        );
        let headers = [("a.safetensors".parse().unwrap(), header)];
        let mut found: Vec<_> = missing.iter().map(|tensor| missing_tensor(tensor)).collect();
        check_embeddings(config.as_bytes(), &headers, &mut found);
        found
    }

    fn missing_tensor(tensor: &str) -> Finding {
        Finding::MissingTensor { tensor: tensor.to_owned(), shard: "a.safetensors".to_owned() }
    }

    const IN: &str = "model.embed_tokens.weight";
    const OUT: &str = "lm_head.weight";
    const TIED: &str = r#"{"tie_word_embeddings":true,"architectures":["LlamaForCausalLM"]}"#;
    const UNTIED: &str = r#"{"tie_word_embeddings":false,"architectures":["LlamaForCausalLM"]}"#;

    #[test]
    fn a_tied_output_embedding_is_a_finding() {
        let (tensor, stored) = (OUT.to_owned(), IN.to_owned());
        let tied = [Finding::TiedEmbedding { stored: stored.clone() }];
        assert_eq!(findings(TIED, &[IN, "lm_head.dense.weight"], &[]), tied);
        let nested = r#"{"text_config":{"tie_word_embeddings":true}}"#;
        assert_eq!(findings(nested, &[IN], &[]), tied);
        for tensor in [OUT, "lm_head.qweight", "lm_head.trellis", "lm_head.W_q"] {
            assert_eq!(findings(TIED, &[IN, tensor], &[]), [], "{tensor}");
        }
        let shard = "a.safetensors".to_owned();
        let dropped = Finding::DroppedTiedEmbedding { tensor, shard, stored: stored.clone() };
        assert_eq!(findings(TIED, &[IN], &["x", OUT]), [missing_tensor("x"), dropped]);
        assert_eq!(findings(UNTIED, &[IN, "x.bias"], &[OUT]), [missing_tensor(OUT)]);
    }

    #[test]
    fn an_untied_output_embedding_must_be_stored() {
        for output in [OUT, "lm_head.qweight", "head.of.another.name"] {
            assert_eq!(findings(UNTIED, &[IN, output], &[]), [], "{output}");
        }
        for config in ["{}", r#"{"tie_word_embeddings":false}"#] {
            assert_eq!(findings(config, &[IN], &[]), [], "{config}");
        }
        let unclear = r#"{"tie_word_embeddings":true,"text_config":{"tie_word_embeddings":false}}"#;
        assert_eq!(findings(unclear, &[IN], &[]), []);
        assert_eq!(
            findings(UNTIED, &[IN], &[]),
            [Finding::MissingOutputEmbedding { stored: IN.to_owned() }]
        );
    }

    #[test]
    fn embeddings_inside_layers_are_not_the_input() {
        let tied = findings(TIED, &["model.layers.9.embed_tokens.weight", IN], &[]);
        assert_eq!(tied, [Finding::TiedEmbedding { stored: IN.to_owned() }]);
    }
}
