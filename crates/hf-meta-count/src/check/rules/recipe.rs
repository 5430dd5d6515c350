//! Compares the modules of a quantized model with the recipe in its configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::MismatchKind;
use super::Mismatches;
use crate::architectures::architecture::positive;
use crate::base::model_config::ModelConfig;
use crate::count::config::{
    HF_QUANT_CONFIG, KnownSides, MODELOPT_PARTS, MetadataShapes, ModuleEntries, Pattern,
    QUANTIZE_CONFIG, Schemes,
};
use crate::count::name_pattern::NamePattern;
use crate::count::{
    Component, ComponentTensor, Configs, Difference, DifferenceKind, Module, NamePatterns, Recipe,
    container_bits, evaluate, split_name,
};
use crate::results::Finding;
use hf_meta_format::base::json_object::{JsonObject, number, parse, read, standard_json, strings};
use hf_meta_format::base::sort::{Ordered, sort_by_key};
use hf_meta_format::formats::{Headers, TensorInfo, all_tensors};

/// Keys of recipes with the variant of the method.
const FORMATS: [&str; 5] =
    ["format", "checkpoint_format", "packing_format", "version", "quant_algo"];

/// The method of recipes without one.
const MLX: &str = "mlx";

/// The keys of whole numbers and flags in declarations of layouts.
const NUMBERS: [&str; 7] = [
    "load_in_4bit",
    "zero_point",
    "num_codebooks",
    "nbits_per_codebook",
    "in_group_size",
    "out_group_size",
    "axis",
];

/// The methods whose loaders do not quantize plain weights.
const PREPACKED: [&str; 4] = ["auto-round", "awq", "compressed-tensors", "gptq"];

/// Keys of recipes with modules that stay as they are.
const IGNORED: [&str; 8] = [
    "ignore",
    "exclude",
    "exclude_modules",
    "modules_to_not_convert",
    "ignored_layers",
    "llm_int8_skip_modules",
    "linear_weights_not_to_quantize",
    "skip_modules",
];

/// Keys of recipes with the only modules that are quantized.
const SELECTED: [&str; 5] = [
    "modules_in_block_to_quantize",
    "block_name_to_quantize",
    "to_quant_block_names",
    "quantized_layers",
    "modules_to_convert",
];

/// The maximum number of ignored modules. A recipe that lists every module of the largest models has a few thousand.
const MAX_IGNORED: usize = 10_000;

/// Returns the name of the file that may contain the recipe, if `config.json` does not.
pub(crate) fn recipe_file(configs: &Configs, headers: &Headers) -> Option<&'static str> {
    let has = |end: &str| {
        let mut names = headers.iter().flat_map(|(_, header)| header.tensors().names());
        names.any(|name| name.ends_with(end))
    };
    let is_unstated = configs.quantization.is_empty();
    let is_modelopt = || MODELOPT_PARTS.iter().any(|part| has(&format!(".{part}")));
    if is_unstated && has(".qweight") {
        return Some(QUANTIZE_CONFIG);
    }
    (is_unstated && is_modelopt()).then_some(HF_QUANT_CONFIG)
}

/// Compares all modules with the quantization recipe in `config.json`, or in the [file](recipe_file) that was added to
/// `configs`. Returns nothing without a known recipe.
pub(crate) fn check_recipe(json: &[u8], configs: &Configs, headers: &Headers) -> Vec<Finding> {
    find_mismatches(json, configs, headers).unwrap_or_default().into_findings()
}

fn find_mismatches(json: &[u8], configs: &Configs, headers: &Headers) -> Option<Mismatches> {
    let json = standard_json(configs.recipe.as_deref().unwrap_or(json));
    let config: ModelConfig<'_> = parse(&json).ok()?;
    let whole = || configs.recipe.as_ref().and_then(|_| parse(&json).ok());
    let section = config.quantization_sections().next().or_else(whole)?;
    let mut policy = RecipePolicy::new(&section, configs)?;
    // SDNQ leaves small modules as they are.
    let minimum = |key: &str| section.number(key).unwrap_or_default();
    let [elements, side] = ["minimum_allowed_numel", "minimum_allowed_channel_size"].map(minimum);
    let is_small = |tensor: &TensorInfo| {
        tensor.elements() < Some(elements) || tensor.shape.iter().any(|length| *length < side)
    };
    let recipe = read_recipe(&section, configs);
    let shapes = MetadataShapes::default();
    let known = KnownSides { dimensions: &configs.dimensions, shapes: &shapes, expected: None };
    let mut found = Mismatches::default();
    let (mut stacks, mut plain) = (BTreeSet::new(), Vec::new());
    let is_dense = recipe.name.ends_with(":dense");
    let is_prepacked = PREPACKED.contains(&&*recipe.method) && !is_dense;
    let is_4bit = recipe.numbers.get("load_in_4bit") == Some(&1);
    // True if nothing is packed, although loaders expect it.
    let mut is_unquantized = is_prepacked || is_4bit;
    let (mut names, mut has_packed_experts) = (NamePatterns::default(), false);
    for (&name, tensors) in &modules(headers) {
        let weights = tensors.iter().find(|(component, _)| component.is_weights());
        is_unquantized &= tensors.iter().all(|(component, tensor)| {
            (component.is_plain() || component.name == "bias") && !is_narrow(tensor)
        });
        let Some((component, tensor)) = weights else { continue };
        let pattern = NamePattern::new(name).text;
        let is_expert = names.read(name).is_routed(tensor);
        if is_packed(component, tensor) {
            has_packed_experts |= is_expert;
            let module = Module { name, tensors };
            let mut schemes = policy.schemes.of_module(name);
            let differences = evaluate(&recipe, &module, known, &mut schemes);
            for Difference { kind, part, keys } in differences {
                let (kind, expected, stored) = mismatch(kind);
                found.add(kind, &format!("{name}{part}"), &keys, expected, stored);
            }
            if let Some(key) = policy.ignores(name) {
                found.add(MismatchKind::PackedIgnored, name, key, "plain", component.name);
            }
            stacks.extend(pattern.split_once('#').map(|(stack, _)| stack.to_owned()));
        } else if component.name == "weight" && tensor.shape.len() == 2 && !is_small(tensor) {
            plain.push((name, pattern, is_expert));
        }
    }
    let layers = positive(config.text_model(), "layers").map(|(_, layers)| layers);
    for (module, pattern, is_expert) in plain {
        // transformers keeps the experts of a layer in stacked parameters and stores them one by one. Libraries for linear
        // layers leave such parameters as they are.
        let may_be_packed = has_packed_experts || !is_expert;
        let last = module.rsplit('.').next().unwrap_or_default();
        // The classes of sparse attention keep `indexer.weights_proj` (`_keep_in_fp32_modules` of transformers 5.24).
        let is_linear =
            last.ends_with("_proj") && last != "weights_proj" || last.starts_with("in_proj_");
        let stack = pattern.split_once('#').map(|(stack, _)| stack);
        let is_inside = may_be_packed && is_linear && stack.is_some_and(|s| stacks.contains(s));
        let mut has_bits = || is_4bit || policy.schemes.of_module(module).bits().is_some();
        let is_candidate = is_inside || is_unquantized && stack.is_some() && has_bits();
        // The layers after the last one draft tokens.
        let number = NamePattern::new(module).numbers.first().map(|number| number.value);
        let is_draft =
            names.read(module).is_draft() || layers.is_some_and(|all| number >= Some(all));
        if is_candidate && !is_draft && policy.selects(module) {
            let kind = MismatchKind::UnquantizedModule;
            found.add(kind, module, "quantization_config", "packed", "plain");
        }
    }
    Some(found)
}

/// Returns the tensors of all modules.
fn modules(headers: &Headers) -> BTreeMap<&str, Vec<ComponentTensor>> {
    let mut modules = BTreeMap::<_, Vec<_>>::new();
    for (name, tensor) in all_tensors(headers) {
        let (module, component) = split_name(name);
        modules.entry(module).or_default().push((component, tensor));
    }
    for tensors in modules.values_mut() {
        sort_by_key(tensors, |(component, _): &ComponentTensor| component.name);
    }
    modules
}

/// Returns whether a tensor contains packed weights. bitsandbytes packs into columns of any dtype.
fn is_packed(component: &Component, tensor: &TensorInfo) -> bool {
    let is_column = matches!(tensor.shape[..], [rows, 1] if rows > 1);
    let is_packed = !component.is_plain() || is_narrow(tensor) || is_column;
    !tensor.is_scalar() && !component.is_bare() && is_packed
}

/// Returns whether the dtype of a tensor is narrower than those of training.
fn is_narrow(TensorInfo { dtype, .. }: &TensorInfo) -> bool {
    dtype.is_narrow_float() || container_bits(dtype).is_some()
}

/// Returns the kind of a mismatch, with the expected and the found value.
pub(super) fn mismatch(kind: DifferenceKind) -> (MismatchKind, String, String) {
    match kind {
        DifferenceKind::Missing => (MismatchKind::MissingPart, "stored".into(), "missing".into()),
        DifferenceKind::Spare => (MismatchKind::SparePart, "none".into(), "stored".into()),
        DifferenceKind::Shape { expected, stored } => {
            (MismatchKind::PartShapeMismatch, format!("{expected:?}"), format!("{stored:?}"))
        }
    }
}

/// Returns the method of a recipe. Recipes without one are those of MLX, or of AutoGPTQ in a separate file.
fn method(configs: &Configs) -> &str {
    let unstated = if configs.recipe.is_some() { "gptq" } else { MLX };
    configs.method().unwrap_or(unstated)
}

/// Reads the settings that concern the parts of packed modules.
fn read_recipe(section: &JsonObject<'_>, configs: &Configs) -> Recipe {
    let groups = section.get::<JsonObject<'_>>("config_groups").unwrap_or_default();
    let mut groups = groups.entries().filter_map(|(_, group)| read::<JsonObject<'_>>(group));
    let group = groups.next().filter(|_| groups.next().is_none());
    let flag = |part: &str, key: &str| {
        let part = group.as_ref()?.get::<JsonObject<'_>>(part)?;
        part.get::<bool>(key).map(u64::from)
    };
    let block = section.get::<[u64; 2]>("weight_block_size");
    let named = [
        ("symmetric", flag("weights", "symmetric")),
        ("dynamic", flag("input_activations", "dynamic")),
        ("block_rows", block.map(|block| block[0])),
        ("block_columns", block.map(|block| block[1])),
    ];
    // MLX has biases in this mode, which is the default. Single modules may state another one.
    let is_affine = |(key, value): (&str, &RawValue)| match key {
        "mode" => read::<String>(value).as_deref() == Some("affine"),
        _ => !value.get().contains("\"mode\""),
    };
    let affine =
        (method(configs) == MLX && section.entries().all(is_affine)).then_some(("affine", 1));
    let named = named.into_iter().filter_map(|(key, value)| Some((key, value?))).chain(affine);
    // HQQ states the packing of all modules in a section of the section.
    let inner = section.get::<JsonObject<'_>>("quant_config").unwrap_or_default();
    let inner = inner.get::<JsonObject<'_>>("weight_quant_params").unwrap_or_default();
    let numbers = NUMBERS.iter().filter_map(|key| {
        let value = section.raw(key).or_else(|| inner.raw(key))?;
        Some((*key, read::<bool>(value).map(u64::from).or_else(|| number(value))?))
    });
    let numbers: BTreeMap<_, _> = named.chain(numbers).ordered();
    let method = method(configs).to_owned();
    let is_format = |text: &String| !text.starts_with(|digit: char| digit.is_ascii_digit());
    let mut formats = FORMATS.iter().filter_map(|key| section.get::<String>(key));
    let name = match (formats.find(is_format), numbers.get("axis")) {
        (_, Some(axis)) => format!("{method}:axis_{axis}"),
        (Some(format), None) => format!("{method}:{}", format.to_ascii_lowercase()),
        (None, None) => method.clone(),
    };
    Recipe { method, name, numbers }
}

/// The modules that a recipe quantizes.
struct RecipePolicy<'a> {
    schemes: Schemes<'a>,
    /// Ignored modules with the key that lists them.
    ignored: ModuleEntries<&'static str>,
    selected: Vec<String>,
    is_mlx: bool,
}

impl<'a> RecipePolicy<'a> {
    fn new(section: &JsonObject<'_>, configs: &'a Configs) -> Option<Self> {
        let mut ignored = ModuleEntries::default();
        let mut ignore = |entry: &str, key| match Pattern::from_name(entry) {
            Some(pattern) => ignored.patterns.push((pattern, key)),
            None => drop(ignored.names.insert(entry.into(), key)),
        };
        for key in IGNORED {
            strings(section.raw(key), MAX_IGNORED)?.iter().for_each(|name| ignore(name, key));
        }
        // GPTQModel excludes the modules that match `-:`.
        let rules = section.get::<JsonObject<'_>>("dynamic").unwrap_or_default();
        let excluded = rules.entries().filter_map(|(rule, _)| rule.strip_prefix("-:"));
        excluded.take(MAX_IGNORED).for_each(|rule| ignore(&format!("re:{rule}"), "dynamic"));
        let selected = SELECTED.iter().filter_map(|key| section.raw(key));
        let selected = selected.map(|value| value.get().to_owned());
        Some(Self {
            schemes: Schemes::new(&configs.quantization),
            ignored,
            selected: selected.filter(|text| text != "null").collect(),
            is_mlx: method(configs) == MLX,
        })
    }

    /// Returns the key of an entry because of which every library ignores a module.
    fn ignores(&mut self, module: &str) -> Option<&'static str> {
        let Self { schemes, ignored: ModuleEntries { names, patterns }, .. } = self;
        names.get(module).copied().or_else(|| {
            let mut patterns = patterns.iter();
            let found = patterns.find(|(pattern, _)| {
                schemes.spend(pattern.steps(module)) && pattern.is_whole(module)
            });
            found.map(|(_, key)| *key)
        })
    }

    /// Returns whether a library may ignore a module, or whether it takes too long to find out.
    fn may_ignore(&mut self, module: &str) -> bool {
        let Self { schemes, ignored: ModuleEntries { names, patterns }, .. } = self;
        names.keys().any(|name| !schemes.spend(module.len()) || module.contains(&**name))
            || patterns.iter().any(|(pattern, _)| {
                !schemes.spend(pattern.steps(module)) || pattern.may_match(module).is_some()
            })
    }

    /// Returns whether the recipe certainly quantizes a linear module.
    fn selects(&mut self, module: &str) -> bool {
        let is_listed =
            |list: &String| list.split('"').any(|name| name.len() > 1 && module.contains(name));
        let (schemes, mut selected) = (&mut self.schemes, self.selected.iter());
        let is_selected = selected.all(|list| schemes.spend(list.len()) && is_listed(list));
        // MLX packs the modules whose scales are stored.
        is_selected
            && !self.is_mlx
            && !self.may_ignore(module)
            && self.schemes.of_module(module).pack()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The patterns are many, and take long for each name.
    #[test]
    fn the_work_for_ignored_modules_is_limited() {
        let pattern = format!("re:{}b", "a*".repeat(200));
        let config = serde_json::json!({
            "quant_method": "gptq", "bits": 4, "modules_to_not_convert": vec![pattern; 1000],
        });
        let json = config.to_string();
        let configs = Configs::default();
        let mut policy = RecipePolicy::new(&parse(json.as_bytes()).unwrap(), &configs).unwrap();
        let module = "model.layers.0.self_attn.q_proj";
        assert!(!policy.may_ignore("h.0") && !policy.schemes.is_exhausted());
        assert_eq!(policy.ignores(module), None);
        assert!(policy.schemes.is_exhausted());
        assert!(policy.may_ignore(module) && !policy.selects(module), "nothing is certain");
    }
}
