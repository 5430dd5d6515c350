//! The checks of one weight set, after its headers have been read.

use std::mem::take;

use super::embeddings::check_embeddings;
use super::gguf::{check_gguf, gguf_config};
use super::metadata::check_metadata;
use super::projector::projector_width;
use super::rules::{self, LoadedAs};
use super::shard_numbers::check_shard_numbers;
use crate::count::Configs;
use crate::count::config::ADAPTER_CONFIG;
use crate::memory::{Engine, MemoryOptions, RankWeights};
use crate::results::{
    ConfigCheck, FetchStats, Finding, ParameterSources, StatedLoader, VerifiedSet, VerifyReport,
    bounded, is_valid,
};
use crate::steps::{BuiltReport, ConfigFile, ReportBuilder, check_count};
use hf_meta_format::base::json_object::{JsonObject, parse, standard_json};
use hf_meta_format::formats::gguf::Gguf;
use hf_meta_format::formats::safetensors::Safetensors;
use hf_meta_format::formats::{Format, Formats, Headers, RepoPath, all_tensors, clip};

/// A weight set whose headers have been read, as far as that was possible.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct SetCheck {
    /// The result so far. The caller adds the findings about files that it reads.
    pub set: VerifiedSet,
    /// `true` if the configuration describes the tensors.
    pub needs_config: bool,
    /// `true` if the loader builds the base model of the configured class. See
    /// [`ListedWeights::builds_base`](hf_meta_format::formats::weight_sets::ListedWeights::builds_base).
    pub builds_base: bool,
    /// `true` to keep the headers in the result, so that values can be read.
    pub keeps_headers: bool,
    /// The conditions for which memory is computed.
    pub memory: Option<MemoryOptions>,
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
        let (builds_base, keeps_headers, memory) = (false, false, None);
        Self { set, needs_config, builds_base, keeps_headers, memory, is_complete, assembly }
    }

    /// Returns the name of the other file that may describe the quantization, the experts or the adapter.
    pub fn other_config_file(&self, configs: &Configs) -> Option<&'static str> {
        if self.needs_config && self.is_of_mistral() {
            return Some(Configs::PARAMS);
        }
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

    /// Returns whether the set has a name with which Mistral stores weights next to those of transformers.
    fn is_of_mistral(&self) -> bool {
        let name = self.set.path.file_name();
        let rest = name.as_str().strip_prefix("consolidated");
        let format = Formats::built_in().find_or_safetensors(&self.set.path).name();
        format == Safetensors.name() && rest.is_some_and(|rest| rest.starts_with(['.', '-']))
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
        let counted = if self.is_complete { built.counted.as_ref().ok() } else { None };
        let weight_bytes = counted.map(|(_, breakdown)| breakdown.model_bytes());
        let BuiltReport { mut builder, adapter, .. } = built;
        if adapter.is_some() {
            self.check_adapter(config, &builder.headers);
        }
        let json = if config.is_of_root { None } else { config.json.as_deref() };
        let adapter_json = if adapter.is_some() { config.configs.adapter() } else { None };
        if adapter.is_none() || adapter_json.is_some() {
            self.set.loader = StatedLoader::of(json, adapter_json);
        }
        self.set.config_check = if is_draft {
            ConfigCheck::skipped("the model drafts tokens for another model")
        } else {
            self.compare_with_config(config, &builder.headers, adapter.is_some())
        };
        if self.is_complete && self.set.files > 0 && builder.tensors == 0 && adapter.is_none() {
            self.set.findings.push(Finding::NoTensors);
        }
        self.check_texts(&builder.headers);
        self.add_facts(&builder.headers, config);
        let mut set = self.set;
        (set.valid_files, set.tensors) = (builder.files, builder.tensors);
        set.architecture = builder.architecture();
        set.cache.clone_from(&builder.cache);
        set.weight_bytes = weight_bytes;
        let fetch = FetchStats { weight_bytes: builder.file_bytes, ..FetchStats::default() };
        let is_peft = adapter.as_deref().map(|adapter| adapter.format == "peft");
        let loader = loader(&set.path, config, &builder.headers, is_peft);
        if self.keeps_headers {
            set.keep_headers(take(&mut builder.headers));
        }
        let sets = vec![set];
        VerifyReport { loader, filepaths, sets, adapter, fetch, ..VerifyReport::default() }
    }

    /// Adds the facts that the answer of an engine needs: the configurations, the weights on each GPU if the engine has a rule
    /// for them, and the width of a projector.
    fn add_facts(&mut self, headers: &Headers, config: &ConfigFile) {
        self.set.config = if config.is_of_root { None } else { config.json.clone() };
        self.set.recipe.clone_from(&config.configs.recipe);
        self.set.width = projector_width(headers);
        let options = self.memory.filter(|memory| memory.engine == Engine::Vllm);
        let json = if self.is_complete { config.json.as_deref() } else { None };
        let ranks =
            options.zip(json).and_then(|(options, json)| RankWeights::new(headers, json, &options));
        self.set.ranks = ranks.map(Box::new);
    }

    /// Compares the parts of an adapter, and looks for the configuration without which PEFT does not load it.
    fn check_adapter(&mut self, config: &ConfigFile, headers: &Headers) {
        let found = rules::check_adapter(config.configs.adapter(), headers);
        self.set.findings.extend(found);
        let is_missing = config.missing == Some(ADAPTER_CONFIG);
        if is_missing && is_written_by_peft(&self.set.path, headers) {
            let folder = self.set.path.folder();
            let file = clip(RepoPath::join(folder.as_ref(), ADAPTER_CONFIG).as_str());
            self.set.findings.push(Finding::MissingConfig { file, loader: "PEFT" });
        }
    }

    /// Checks what headers contain besides tensors: whitespace in front of the JSON, and metadata.
    fn check_texts(&mut self, headers: &Headers) {
        let named = |file: &RepoPath| self.set.named(file);
        let spaces = headers.iter().filter(|(_, header)| header.has_leading_space);
        let spaces =
            spaces.map(|(file, _)| Finding::LeadingSpace { file: clip(named(file).as_str()) });
        let spaces = bounded(spaces);
        let headers = headers.iter().map(|(file, header)| (named(file), header));
        let metadata = check_metadata(headers, self.set.loader);
        self.set.findings.extend(spaces.into_iter().chain(metadata));
    }

    /// Adds the findings about the headers and the count. Adds the count if it is right.
    fn count(&mut self, built: &BuiltReport, hub: Result<Option<u64>, String>) {
        let declared = if self.is_countable() { built.builder.declared_total } else { None };
        self.set.parameters.declared = declared;
        self.set.findings.extend(built.header_findings(self.is_complete));
        if Formats::built_in().find_or_safetensors(&self.set.path).name() == Gguf.name() {
            let found = check_gguf(&self.set.path, &built.builder.headers, self.is_complete);
            self.set.findings.extend(found);
        }
        let Ok((count, breakdown)) = &built.counted else {
            return self.set.findings.insert(0, Finding::CountOverflow);
        };
        let mut found = check_count(count, breakdown, declared);
        found.retain(|finding| !self.counts_tied(finding, &built.builder.headers));
        self.set.findings.extend(found);
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

    /// Returns whether a finding is about a declared total with both of two tied embeddings, of which one is stored.
    fn counts_tied(&self, finding: &Finding, headers: &Headers) -> bool {
        let Finding::TotalParametersMismatch { declared, found } = finding else { return false };
        let stored = self.set.findings.iter().find_map(|finding| match finding {
            Finding::TiedEmbedding { stored } => Some(stored),
            _ => None,
        });
        let mut tensors = all_tensors(headers);
        let tied = stored.and_then(|stored| tensors.find(|(name, _)| name == stored));
        let both = tied.and_then(|(_, tensor)| found.checked_add(tensor.elements()?));
        both.is_some_and(|both| both.abs_diff(*declared) <= both / 100)
    }

    fn compare_with_config(
        &mut self,
        config: &ConfigFile,
        headers: &Headers,
        is_adapter: bool,
    ) -> ConfigCheck {
        let stored = gguf_config(headers);
        let params = if self.is_of_mistral() { config.configs.params.as_deref() } else { None };
        let own = stored.as_deref().or(params);
        let json = own.or(config.json.as_deref());
        let has_config = self.needs_config || self.is_complete && json.is_some();
        // The configuration next to an adapter may be that of its base model.
        if !has_config || config.is_of_root && params.is_none() || is_adapter {
            return match (self.is_complete, self.needs_config) {
                (false, _) => ConfigCheck::skipped("a file is missing or invalid"),
                // An adapter, or a GGUF file of something else than a model.
                (true, needs_config) if is_adapter || !needs_config => ConfigCheck::default(),
                (true, _) => ConfigCheck::skipped("there is none next to the weights"),
            };
        }
        let (found, check) = rules::check_model(json, headers, self.loaded());
        // The error about a missing module says the same.
        self.set.findings.retain(|found| {
            !check.compared || !matches!(found, Finding::MissingOutputEmbedding { .. })
        });
        self.set.findings.splice(..0, found);
        let recipe = if params.is_none() { json } else { None };
        let recipe = recipe.map(|json| rules::check_recipe(json, &config.configs, headers));
        self.set.findings.extend(recipe.into_iter().flatten());
        check
    }

    /// Returns how a loader reads the set.
    fn loaded(&self) -> LoadedAs {
        /// The names under which transformers finds weights, with `-00001-of-00002`, `.fp16` and `.index` behind them.
        const NAMES: [&str; 2] = ["model", "pytorch_model"];

        let file = self.set.path.file_name();
        let is_found = NAMES.iter().any(|name| {
            file.as_str().strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '-']))
        });
        LoadedAs { is_base: self.builds_base, is_found }
    }

    /// Returns whether the found tensors are all tensors, and can be compared with a count.
    fn is_countable(&self) -> bool {
        let is_other = |finding: &Finding| matches!(finding, Finding::UnindexedTensor { .. });
        self.is_complete && is_valid(&self.set.findings) && !self.set.findings.iter().any(is_other)
    }
}

/// Returns the library that loads weights. `is_peft` is true for an adapter of PEFT, and false for another adapter.
fn loader(
    path: &RepoPath,
    config: &ConfigFile,
    headers: &Headers,
    is_peft: Option<bool>,
) -> Option<&'static str> {
    const KEYS: [(&str, &str); 3] =
        [("_class_name", "diffusers"), ("model_type", "transformers"), ("pretrained_cfg", "timm")];

    if let Some(is_peft) = is_peft {
        return is_peft.then_some("peft");
    }
    if Formats::built_in().find_or_safetensors(path).name() == Gguf.name() {
        return Some("llama.cpp");
    }
    let mut metadata = headers.iter().filter_map(|(_, header)| header.metadata()?.get("format"));
    if metadata.any(|format| format == "mlx") {
        return Some("mlx");
    }
    let json = standard_json(config.json.as_deref()?);
    let object = parse::<JsonObject<'_>>(&json).ok()?;
    KEYS.into_iter().find(|(key, _)| object.raw(key).is_some()).map(|(_, loader)| loader)
}

/// Returns whether PEFT wrote an adapter: it saves the names of its wrapper, `base_model.…` (`get_peft_model_state_dict`
/// in `src/peft/utils/save_and_load.py` 0.21.2), and only finds files of one name. `ComfyUI`, kohya and diffusers load
/// other names without a configuration.
fn is_written_by_peft(path: &RepoPath, headers: &Headers) -> bool {
    let has_wrapper = || all_tensors(headers).any(|(name, _)| name.starts_with("base_model."));
    path.file_name().as_str().starts_with("adapter_model") && has_wrapper()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Severity;
    use hf_meta_format::formats::{Dtype, FileHeader, TensorInfo, TensorTableBuilder, product};

    type Tensors = Vec<(String, Vec<u64>)>;

    fn builder(path: &RepoPath, tensors: &Tensors) -> ReportBuilder {
        let (mut table, mut end) = (TensorTableBuilder::new(), 0);
        for (name, shape) in tensors {
            let start = end;
            end += 2 * product(shape).unwrap();
            table.push(name, &TensorInfo::new(Dtype::BF16, shape.clone(), (start, end)));
        }
        let mut builder = ReportBuilder::new_single(true);
        builder.add(path.clone(), FileHeader::new(table.finish().unwrap(), 0..0));
        builder
    }

    fn path(name: &str) -> RepoPath {
        name.parse().unwrap()
    }

    #[test]
    fn peft_saves_the_names_of_its_wrapper_in_files_of_one_name() {
        let cases = [
            ("adapter_model.safetensors", "base_model.model.q_proj.lora_A.weight", true),
            ("folder/adapter_model.safetensors", "base_model.model.q_proj.lora_A.weight", true),
            // kohya, diffusers and ComfyUI.
            (
                "adapter_model.safetensors",
                "lora_unet_down_blocks_0_proj_in.lora_down.weight",
                false,
            ),
            ("adapter_model.safetensors", "unet.down_blocks.0.proj_in.lora.down.weight", false),
            ("adapter_model.safetensors", "diffusion_model.blocks.0.q.lora_A.weight", false),
            ("lora.safetensors", "base_model.model.q_proj.lora_A.weight", false),
        ];
        for (file, tensor, expected) in cases {
            let file = path(file);
            let builder = builder(&file, &vec![(tensor.to_owned(), vec![4, 8])]);
            assert_eq!(is_written_by_peft(&file, &builder.headers), expected, "{file} {tensor}");
        }
    }

    const PARAMS: &str = r#"{"dim":32,"n_layers":3,"head_dim":8,"hidden_dim":48,"n_heads":4,"n_kv_heads":2,"vocab_size":100}"#;

    fn of_mistral() -> Tensors {
        let layer = [
            ("attention.wq", vec![32, 32]),
            ("attention.wk", vec![16, 32]),
            ("attention.wv", vec![16, 32]),
            ("attention.wo", vec![32, 32]),
            ("feed_forward.w1", vec![48, 32]),
            ("feed_forward.w2", vec![32, 48]),
            ("feed_forward.w3", vec![48, 32]),
            ("attention_norm", vec![32]),
            ("ffn_norm", vec![32]),
        ];
        let layers = (0..3).flat_map(|number| {
            layer.clone().map(|(name, shape)| (format!("layers.{number}.{name}.weight"), shape))
        });
        let others =
            [("tok_embeddings", vec![100, 32]), ("norm", vec![32]), ("output", vec![100, 32])];
        layers.chain(others.map(|(name, shape)| (format!("{name}.weight"), shape))).collect()
    }

    /// Returns the errors about weights of Mistral, and whether they were compared.
    fn verify(file: &str, tensors: &Tensors, params: &str) -> (Vec<String>, bool) {
        let file = path(file);
        let files = [file.clone()];
        let check =
            SetCheck::new(file.clone(), 1, builder(&file, tensors), &files, &[], Vec::new(), true);
        // The configuration of the same model for transformers.
        let mut config = ConfigFile::from_json(br#"{"model_type":"mistral"}"#.to_vec());
        if check.other_config_file(&config.configs) == Some(Configs::PARAMS) {
            config.add_file(Configs::PARAMS, params.as_bytes());
        }
        let report = check.finish(&config, Ok(None));
        let found = report.findings();
        let found = found.iter().filter(|finding| finding.severity() == Severity::Error);
        (found.map(ToString::to_string).collect(), report.sets[0].config_check.compared)
    }

    #[test]
    fn weights_of_mistral_are_compared_with_its_own_configuration() {
        const FILE: &str = "consolidated.safetensors";

        let (found, is_compared) = verify(FILE, &of_mistral(), PARAMS);
        assert!(found.is_empty() && is_compared, "{found:?}");
        let edited = |edit: &dyn Fn(&mut Tensors)| {
            let mut tensors = of_mistral();
            edit(&mut tensors);
            verify(FILE, &tensors, PARAMS).0.join("; ")
        };
        let found = edited(&|tensors| tensors.retain(|(name, _)| !name.starts_with("layers.2.")));
        assert!(found.contains("layer 2") && found.contains("n_layers"), "{found}");
        let found = edited(&|tensors| tensors.retain(|(name, _)| name != "norm.weight"));
        assert!(found.contains("`norm`"), "{found}");
        let found = edited(&|tensors| tensors[1].1[0] = 32);
        assert!(found.contains("n_kv_heads") && found.contains("attention.wk"), "{found}");
        // The experts of a mixture have other names.
        let moe = PARAMS.replace('}', r#","moe":{"num_experts":2,"num_experts_per_tok":1}}"#);
        let mut experts = of_mistral();
        experts.retain(|(name, _)| !name.contains("feed_forward"));
        assert_eq!(verify(FILE, &experts, &moe).0, Vec::<String>::new());
        // An embedding is the output, too.
        let tied = PARAMS.replace('}', r#","tied_embeddings":true}"#);
        let mut shared = of_mistral();
        shared.retain(|(name, _)| name != "output.weight");
        assert_eq!(verify(FILE, &shared, &tied).0, Vec::<String>::new());
        assert!(!verify(FILE, &shared, PARAMS).0.is_empty());
        // Other names, and another file: nothing is certain.
        let others: Tensors =
            of_mistral().into_iter().map(|(name, shape)| (format!("x.{name}"), shape)).collect();
        assert_eq!(verify("consolidated_ema.safetensors", &others, PARAMS).0, Vec::<String>::new());
    }
}
