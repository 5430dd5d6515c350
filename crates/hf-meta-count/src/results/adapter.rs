//! Adapters: files with additions to the modules of another model.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use hf_meta_format::base::json_object::{JsonObject, number, parse, read, standard_json, strings};
use hf_meta_format::base::sort::{Ordered, sort_by};
use hf_meta_format::formats::{FileHeader, Headers, RepoPath, TensorInfo, all_tensors, clip};

/// The maximum number of names in a list of a configuration.
const MAX_NAMES: usize = 10_000;

/// The methods, from a table that explains itself.
pub(crate) static METHODS: LazyLock<Vec<AdapterMethod>> = LazyLock::new(|| {
    let lines = include_str!("adapters.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(AdapterMethod::parse).collect()
});

/// The parts of all methods by name. Those with the same name are all required, or all optional.
static PARTS: LazyLock<HashMap<&'static str, &'static Part>> = LazyLock::new(|| {
    METHODS.iter().flat_map(|method| &method.parts).map(|part| (part.name, part)).collect()
});

/// A way to adapt a module.
#[derive(Debug)]
pub(crate) struct AdapterMethod {
    pub(crate) family: &'static str,
    pub(crate) parts: Vec<Part>,
}

/// A tensor of an adapted module.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// The letters of its dimensions.
    pub(crate) sides: &'static str,
    pub(crate) is_required: bool,
}

impl AdapterMethod {
    fn parse(line: &'static str) -> Self {
        let mut words = line.split_ascii_whitespace();
        let family = words.next().unwrap_or_default();
        let parts = words.map(|word| {
            let (name, sides) = word.split_once('=').unwrap_or((word, ""));
            let required = name.strip_prefix('?');
            Part { name: required.unwrap_or(name), sides, is_required: required.is_none() }
        });
        Self { family, parts: parts.collect() }
    }
}

/// The contents of adapter files, and the statements of their configuration.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Adapter {
    /// The methods, such as `LoRA`.
    pub families: BTreeSet<String>,
    /// The program whose names the tensors have: `peft`, `diffusers`, `kohya`, `mlx` or `other`.
    pub format: &'static str,
    /// The adapted model, as named by the configuration or the metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_model: Option<String>,
    /// The number of adapted modules.
    pub modules: u64,
    /// The number of modules of each rank. Empty for methods without a rank.
    pub ranks: BTreeMap<u64, u64>,
    /// The scaling numerators `alpha`, as stated; empty if they are unknown.
    pub alphas: Vec<f64>,
    /// The origin of `alpha`: `stated`, `tensors` (stored as values, which are not read), `rank` (not stored, so that
    /// loaders use the rank), `default` (of PEFT), or `None` for methods without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha_source: Option<&'static str>,
    /// The names of the adapted modules according to the configuration, or else the last parts of their names.
    pub target_modules: BTreeSet<String>,
    /// The outputs and inputs of each module, by its name in the base model; `None` for unknown ones.
    #[serde(skip)]
    pub(crate) shapes: BTreeMap<String, [Option<u64>; 2]>,
    /// The contents of an adapter of PEFT.
    #[serde(skip)]
    pub(crate) stored: Option<StoredAdapter>,
}

/// The files of an adapter of PEFT.
#[derive(Clone, Debug)]
pub(crate) struct StoredAdapter {
    /// The content of `adapter_config.json`.
    pub(crate) json: Vec<u8>,
    /// The names and shapes of all tensors.
    pub(crate) tensors: Vec<(String, Vec<u64>)>,
}

/// The prefix of names that PEFT writes.
pub(crate) const PEFT_PREFIX: &str = "base_model.model.";

/// Returns whether a file contains an adapter, judging by its first names.
pub(crate) fn is_adapter(path: &RepoPath, header: &FileHeader) -> bool {
    /// The parts of the first module, and the embeddings that may precede them.
    const MAX_TENSORS: usize = 16;

    // A model may contain adapters as `torch.nn.utils.parametrize` stores them, as jina-embeddings-v3 does.
    let is_inside = |name: &&str| name.contains(".parametrizations.");
    let mut names = header.tensors().names().take(MAX_TENSORS).filter(|name| !is_inside(name));
    path.file_name().as_str().starts_with("adapter_model")
        || names.any(|name| TensorPlace::new(name).is_some_and(|place| place.part.is_required))
}

/// Returns whether `adapter_config.json` describes an adapter.
pub(crate) fn has_config(path: &RepoPath, header: &FileHeader) -> bool {
    let name = path.file_name();
    name.as_str().contains("adapter")
        || header.tensors().names().take(1).any(|name| name.starts_with(PEFT_PREFIX))
}

/// The place of a tensor in an adapter.
struct TensorPlace<'a> {
    module: &'a str,
    /// The name of the adapter, which training programs add to names.
    slot: &'a str,
    part: &'static Part,
}

impl<'a> TensorPlace<'a> {
    fn new(name: &'a str) -> Option<Self> {
        let name = name.strip_suffix(".weight").unwrap_or(name);
        let split = |name: &'a str| name.rsplit_once('.').unwrap_or(("", name));
        let (module, last) = split(name);
        let (module, slot, part) = match PARTS.get(last) {
            Some(part) => (module, "", part),
            None if last == "bias" => return None,
            None => {
                let (module, part) = split(module);
                (module, last, PARTS.get(part)?)
            }
        };
        if !matches!(part.name, "down" | "up") {
            return Some(Self { module, slot, part });
        }
        // These names are common in other models.
        let (inner, adapter) = split(module);
        let module = if matches!(adapter, "lora" | "lora_linear_layer") { inner } else { module };
        adapter.contains("lora").then_some(Self { module, slot, part })
    }
}

/// An adapted module.
#[derive(Debug)]
pub(crate) struct AdaptedModule<'a> {
    /// The names and shapes of the parts.
    pub(crate) parts: BTreeMap<&'static str, (&'a str, TensorInfo)>,
    pub(crate) method: &'static AdapterMethod,
    /// The length of each side, with the part that has it.
    pub(crate) sides: BTreeMap<char, (u64, &'static str)>,
}

impl<'a> AdaptedModule<'a> {
    /// Chooses the method that explains most parts. Returns `None` if no tensor is a part of a known method.
    fn new(parts: BTreeMap<&'static str, (&'a str, TensorInfo)>) -> Option<Self> {
        let fits = METHODS.iter().filter_map(|method| {
            let (known, missing): (Vec<_>, Vec<_>) =
                method.parts.iter().partition(|part| parts.contains_key(part.name));
            let is_used = known.iter().any(|part| part.is_required);
            let missing = missing.iter().filter(|part| part.is_required).count();
            is_used.then(|| (parts.len() - known.len(), missing, method))
        });
        let (_, _, method) = fits.min_by_key(|(spare, missing, _)| (*spare, *missing))?;
        let mut sides = BTreeMap::new();
        for part in &method.parts {
            let Some((_, tensor)) = parts.get(part.name) else { continue };
            for (side, length) in part.sides.chars().zip(&tensor.shape) {
                sides.entry(side).or_insert((*length, part.name));
            }
        }
        Some(Self { parts, method, sides })
    }

    /// Returns the length of a side, such as the rank `r`.
    pub(crate) fn side(&self, side: char) -> Option<u64> {
        self.sides.get(&side).map(|(length, _)| *length)
    }

    /// Returns the outputs and inputs.
    fn shape(&self) -> [Option<u64>; 2] {
        let product = |one, other| self.side(one)?.checked_mul(self.side(other)?);
        let side = |side, one, other| self.side(side).or_else(|| product(one, other));
        [side('o', 'a', 'c'), side('i', 'b', 'd')]
    }
}

/// The modules of an adapter by name and slot.
pub(crate) struct AdapterModules<'a> {
    pub(crate) modules: BTreeMap<(&'a str, &'a str), AdaptedModule<'a>>,
    /// The modules that have other tensors of an adapter as well, so that nothing is certain.
    pub(crate) uncertain: HashSet<&'a str>,
}

impl<'a> AdapterModules<'a> {
    /// Returns `None` if most of the adapted modules are stored as well: a model that was saved with its adapter.
    pub(crate) fn new(headers: &'a Headers) -> Option<Self> {
        let mut parts = BTreeMap::<_, BTreeMap<_, _>>::new();
        let (mut stored, mut uncertain) = (HashSet::new(), HashSet::new());
        for (name, tensor) in all_tensors(headers) {
            if let Some(place) = TensorPlace::new(name) {
                let module = parts.entry((place.module, place.slot)).or_default();
                module.insert(place.part.name, (name, tensor));
                continue;
            }
            if let Some(module) = name.strip_suffix(".weight") {
                stored.insert(module.strip_suffix(".base_layer").unwrap_or(module));
            }
            if name.strip_suffix(".bias").is_some() {
                continue;
            }
            let others = [".lora", ".hada_", ".lokr_"].into_iter().find_map(|part| name.find(part));
            uncertain.extend(others.map(|end| &name[..end]));
        }
        let modules: BTreeMap<_, _> = parts
            .into_iter()
            .filter_map(|(place, parts)| Some((place, AdaptedModule::new(parts)?)))
            .ordered();
        let merged = modules.keys().filter(|(module, _)| stored.contains(module)).count();
        (merged * 2 <= modules.len()).then_some(Self { modules, uncertain })
    }
}

/// The configuration of an adapter, or of one component of a pipeline.
pub(crate) struct AdapterConfig<'a> {
    json: Rc<JsonObject<'a>>,
    /// The part of keys, and of names of modules, that selects a component, such as `unet.`.
    pub(crate) prefix: String,
}

impl<'a> AdapterConfig<'a> {
    pub(crate) fn raw(&self, key: &str) -> Option<&'a RawValue> {
        let found = self.json.raw(&format!("{}{key}", self.prefix));
        found.filter(|value| value.get() != "null")
    }

    /// Returns the value of a key if it is a `T`.
    pub(crate) fn get<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        self.raw(key).and_then(read)
    }

    /// Returns the method of PEFT in lowercase. MLX has none.
    pub(crate) fn method(&self) -> Option<String> {
        self.get::<String>("peft_type").map(|name| name.to_ascii_lowercase())
    }

    /// Returns the rank of each of several stacked matrices, if the adapter has such modules.
    fn stacked_rank(&self) -> Option<u64> {
        self.list("target_parameters").filter(|names| !names.is_empty())?;
        number(self.raw("r")?).filter(|rank| *rank > 0)
    }

    /// Returns the key of the scaling factor's numerator.
    pub(crate) fn alpha_key(&self) -> Option<&'static str> {
        Some(match &*self.method()? {
            "lora" | "adalora" => "lora_alpha",
            "loha" | "lokr" => "alpha",
            _ => return None,
        })
    }

    /// Returns the entries of a list. Returns `None` for other values, and for lists that are too long.
    pub(crate) fn list(&self, key: &str) -> Option<Vec<String>> {
        let value = self.raw(key).filter(|value| value.get().starts_with('['))?;
        strings(Some(value), MAX_NAMES)
    }

    /// Returns the name of a module as in the configuration.
    pub(crate) fn module<'m>(&self, module: &'m str) -> Option<&'m str> {
        let module = module.strip_prefix(&*self.prefix)?;
        let mut module = module.strip_prefix(PEFT_PREFIX).unwrap_or(module);
        while let Some(inner) = module.strip_suffix(".base_layer") {
            module = inner;
        }
        Some(module)
    }
}

/// Returns a number that may have decimals. A second parser of floats, besides the one for JSON, would take 12 kB.
pub(crate) fn decimal(value: &RawValue) -> Option<f64> {
    serde_json::from_str(value.get().trim_matches('"')).ok()
}

/// Returns the configurations of an adapter: the contents of `adapter_config.json`, or one per component of a pipeline from
/// the metadata that diffusers writes.
pub(crate) fn configs<'a>(json: Option<&'a [u8]>, headers: &'a Headers) -> Vec<AdapterConfig<'a>> {
    /// A pipeline has a few components.
    const MAX_COMPONENTS: usize = 10;

    let metadata = || metadata(headers, "lora_adapter_metadata").map(str::as_bytes);
    let Some(text) = json.or_else(metadata) else { return Vec::new() };
    let Ok(whole) = parse::<JsonObject<'a>>(text) else { return Vec::new() };
    let components: BTreeSet<_> = if json.is_some() {
        BTreeSet::from([String::new()])
    } else {
        let keys = whole.entries().filter_map(|(key, _)| key.split_once('.'));
        keys.map(|(component, _)| format!("{component}.")).ordered()
    };
    let whole = Rc::new(whole);
    let config = |prefix| AdapterConfig { json: Rc::clone(&whole), prefix };
    components.into_iter().take(MAX_COMPONENTS).map(config).collect()
}

pub(crate) fn metadata<'a>(headers: &'a Headers, key: &str) -> Option<&'a str> {
    headers.iter().find_map(|(_, header)| header.metadata()?.get(key)).map(String::as_str)
}

impl Adapter {
    /// Describes an adapter. `json` is the content of `adapter_config.json`. Returns `None` for other weights.
    pub(crate) fn new(json: Option<&[u8]>, headers: &Headers) -> Option<Self> {
        let json = json.map(standard_json);
        let found = AdapterModules::new(headers)?;
        let configs = configs(json.as_deref(), headers);
        let mut adapter = Self { modules: found.modules.len() as u64, ..Self::default() };
        for ((name, _), module) in &found.modules {
            let family = Some(module.method.family).filter(|family| *family != "-");
            adapter.families.extend(family.map(str::to_owned));
            let is_dora =
                |part: &&&str| matches!(**part, "lora_magnitude_vector" | "dora_scale" | "m");
            adapter.families.extend(module.parts.keys().find(is_dora).map(|_| "DoRA".to_owned()));
            let config = configs.iter().find(|config| name.starts_with(&*config.prefix));
            if let Some(rank) = module.side('r') {
                let stated = config.and_then(AdapterConfig::stacked_rank);
                let rank = stated.filter(|stated| rank % stated == 0).unwrap_or(rank);
                *adapter.ranks.entry(rank).or_default() += 1;
            }
            let name = config.and_then(|config| config.module(name)).unwrap_or(name);
            let target = Some(last_name(name)).filter(|target| !target.is_empty());
            adapter.target_modules.extend(target.map(|name| clip(&name)));
            // A replicated layer has another number in the base model.
            let is_replicated =
                config.is_some_and(|config| config.raw("layer_replication").is_some());
            if !is_replicated {
                adapter.shapes.insert(name.to_owned(), module.shape());
            }
        }
        let is_peft = configs.iter().any(|config| json.is_some() && config.method().is_some());
        adapter.format = if is_peft { "peft" } else { format(&found) };
        let tensors = || all_tensors(headers).map(|(name, tensor)| (name.to_owned(), tensor.shape));
        let stored = if is_peft { json.as_deref() } else { None };
        adapter.stored =
            stored.map(|json| StoredAdapter { json: json.to_vec(), tensors: tensors().collect() });
        adapter.add_configs(&configs);
        let base = ["ss_base_model_version", "modelspec.architecture", "ss_sd_model_name"];
        let mut base = base.iter().filter_map(|key| metadata(headers, key));
        adapter.base_model = adapter.base_model.or_else(|| base.next().map(clip));
        adapter.add_alpha(&found, headers, configs.is_empty());
        (adapter.modules > 0 || json.is_some()).then_some(adapter)
    }

    /// Adds `alpha`, and its source if the configuration states none. `is_unstated` is true without a configuration.
    fn add_alpha(&mut self, found: &AdapterModules<'_>, headers: &Headers, is_unstated: bool) {
        let is_stored = found.modules.values().any(|module| module.parts.contains_key("alpha"));
        let stated = if is_stored { metadata(headers, "ss_network_alpha") } else { None };
        let stated = stated.and_then(|text| serde_json::from_str::<f64>(text).ok());
        self.alphas.extend(stated);
        let mut parts = found.modules.values().flat_map(|module| &module.method.parts);
        let has_alpha = parts.any(|part| matches!(part.name, "alpha" | "lora_A"));
        let source = match (is_stored, stated) {
            (true, Some(_)) => Some("stated"),
            (true, None) => Some("tensors"),
            // Loaders then scale by the rank.
            (false, _) if is_unstated && has_alpha => Some("rank"),
            (false, _) => None,
        };
        self.alpha_source = self.alpha_source.or(source);
    }

    fn add_configs(&mut self, configs: &[AdapterConfig<'_>]) {
        let mut targets = BTreeSet::new();
        for config in configs {
            let base = config.get("base_model_name_or_path").or_else(|| config.get("model"));
            self.base_model = self.base_model.take().or(base.map(|name: String| clip(&name)));
            if self.families.is_empty() {
                let known = |name: &str| {
                    let mut families = METHODS.iter().map(|method| method.family);
                    families.find(|family| family.eq_ignore_ascii_case(name)).map(str::to_owned)
                };
                let name = config.get::<String>("peft_type");
                self.families.extend(name.map(|name| known(&name).unwrap_or_else(|| clip(&name))));
            }
            let names =
                config.list("target_modules").or_else(|| Some(vec![config.get("target_modules")?]));
            targets.extend(names.into_iter().flatten().map(|name| clip(&name)));
            let parameters = config.list("target_parameters").unwrap_or_default();
            targets.extend(parameters.iter().map(|name| clip(name)));
            if let Some(key) = config.alpha_key() {
                let pattern = config.get::<JsonObject<'_>>("alpha_pattern").unwrap_or_default();
                let pattern = pattern.entries().filter_map(|(_, value)| decimal(value));
                let alpha = config.raw(key).and_then(decimal);
                self.alphas.extend(alpha.into_iter().chain(pattern.take(MAX_NAMES)));
                let source = if config.raw(key).is_some() { "stated" } else { "default" };
                self.alpha_source.get_or_insert(source);
            }
            // MLX multiplies by the scale, and PEFT by alpha / rank.
            let mlx = config.get::<JsonObject<'_>>("lora_parameters").unwrap_or_default();
            let [rank, scale] = ["rank", "scale"].map(|key| mlx.raw(key).and_then(decimal));
            if let (Some(rank), Some(scale)) = (rank, scale) {
                self.alphas.push(rank * scale);
                self.alpha_source = Some("stated");
            }
        }
        if !targets.is_empty() {
            self.target_modules = targets;
        }
        sort_by(&mut self.alphas, f64::total_cmp);
        self.alphas.dedup();
    }
}

/// Returns the program whose names the modules have.
fn format(found: &AdapterModules<'_>) -> &'static str {
    const DIFFUSERS: [&str; 3] = ["unet.", "transformer.", "text_encoder"];

    let format = |((name, _), module): (&(&str, &str), &AdaptedModule<'_>)| match *name {
        name if name.starts_with("base_model.") => Some("peft"),
        name if is_kohya(name) => Some("kohya"),
        _ if module.parts.contains_key("lora_a") => Some("mlx"),
        name if DIFFUSERS.iter().any(|start| name.starts_with(start)) => Some("diffusers"),
        _ => None,
    };
    found.modules.iter().find_map(format).unwrap_or("other")
}

/// Returns whether the name of a module is in the form of kohya, with underscores for dots.
pub(crate) fn is_kohya(name: &str) -> bool {
    name.starts_with("lora_") && !name.contains('.')
}

/// Returns the end of a name: its last part, with a number after it. Parts of names in the form of kohya have
/// underscores, too, so that their end begins after the last number before it.
fn last_name(name: &str) -> String {
    let is_number = |part: &&str| part.parse::<u64>().is_ok();
    let separator = if name.contains('.') { "." } else { "_" };
    let parts: Vec<_> = name.split(separator).collect();
    let last = parts.len() - 1;
    let start = if separator == "." {
        last.saturating_sub(usize::from(is_number(&parts[last])))
    } else {
        parts[..last].iter().rposition(is_number).map_or(0, |at| at + 1)
    };
    parts[start..].join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PEFT writes its methods in upper case.
    #[test]
    fn a_method_has_one_spelling() {
        for (name, family) in [("LORA", "LoRA"), ("ADALORA", "AdaLoRA"), ("P_TUNING", "P_TUNING")] {
            let json = format!(r#"{{"peft_type":"{name}"}}"#);
            let adapter = Adapter::new(Some(json.as_bytes()), &[]).unwrap();
            assert_eq!(adapter.families.into_iter().collect::<Vec<_>>(), [family]);
        }
    }
}
