//! Compares the modules of a quantized model with the recipe in its configuration.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::value::RawValue;

use super::MismatchKind;
use super::Mismatches;
use crate::architectures::architecture::positive;
use crate::base::model_config::ModelConfig;
use crate::count::config::{
    HF_QUANT_CONFIG, Key, KnownSides, MODELOPT_PARTS, MetadataShapes, ModuleEntries, Pattern,
    QUANTIZE_CONFIG, Schemes,
};
use crate::count::names::pattern::NamePattern;
use crate::count::{
    Component, ComponentTensor, Configs, Difference, DifferenceKind, ExpectedWeights, Module,
    NamePatterns, Recipe, container_bits, evaluate, split_name,
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
const NUMBERS: [Key; 7] = [
    Key::LoadIn4Bit,
    Key::ZeroPoint,
    Key::Codebooks,
    Key::CodebookBits,
    Key::InGroupSize,
    Key::OutGroupSize,
    Key::Axis,
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
    let recipe = read_recipe(&section, configs);
    let shapes = MetadataShapes::default();
    let mut check = RecipeCheck {
        policy: RecipePolicy::new(&section, configs)?,
        known: KnownSides { dimensions: &configs.dimensions, shapes: &shapes, expected: None },
        expected: ExpectedWeights::new(configs),
        layers: positive(config.text_model(), "layers").map(|(_, layers)| layers),
        is_4bit: recipe.numbers.get(&Key::LoadIn4Bit) == Some(&1),
        recipe,
        names: NamePatterns::default(),
        found: Mismatches::default(),
    };
    let modules = modules(headers);
    let packed = check.check_packed(&modules);
    let is_unquantized = check.is_unquantized(&modules);
    check.check_plain(&modules, &packed, is_unquantized, &SmallModules::new(&section));
    Some(check.found)
}

/// The modules that SDNQ leaves as they are, because packing them saves little.
struct SmallModules {
    /// The minimum number of elements of a packed module.
    min_elements: u64,
    /// The minimum length of a side of a packed module.
    min_side: u64,
}

impl SmallModules {
    fn new(section: &JsonObject<'_>) -> Self {
        let minimum = |key: &str| section.number(key).unwrap_or_default();
        Self {
            min_elements: minimum("minimum_allowed_numel"),
            min_side: minimum("minimum_allowed_channel_size"),
        }
    }

    fn contain(&self, tensor: &TensorInfo) -> bool {
        tensor.elements() < Some(self.min_elements)
            || tensor.shape.iter().any(|length| *length < self.min_side)
    }
}

/// A comparison of a model with its recipe.
struct RecipeCheck<'a> {
    recipe: Recipe,
    policy: RecipePolicy<'a>,
    known: KnownSides<'a>,
    /// The weights of each module of a known architecture.
    expected: Option<ExpectedWeights<'a>>,
    /// The number of layers. The layers after the last one draft tokens.
    layers: Option<u64>,
    /// True for 4 bits of bitsandbytes, which packs every linear module.
    is_4bit: bool,
    names: NamePatterns,
    found: Mismatches,
}

/// The places of packed modules. A plain module at such a place is suspicious.
#[derive(Default)]
struct PackedPlaces {
    /// The names of stacks of layers, up to the first number.
    stacks: BTreeSet<String>,
    has_experts: bool,
}

impl RecipeCheck<'_> {
    /// Returns whether nothing is packed, although the loaders of the recipe expect it.
    fn is_unquantized(&self, modules: &Modules<'_>) -> bool {
        let is_dense = self.recipe.name.ends_with(":dense");
        let is_prepacked = PREPACKED.contains(&&*self.recipe.method) && !is_dense;
        let is_plain = |(component, tensor): &ComponentTensor| {
            (component.is_plain() || component.name == "bias") && !is_narrow(tensor)
        };
        (is_prepacked || self.is_4bit) && modules.values().flatten().all(is_plain)
    }

    /// Compares the parts of packed modules with the recipe. Returns the places of these modules.
    fn check_packed(&mut self, modules: &Modules<'_>) -> PackedPlaces {
        let mut places = PackedPlaces::default();
        for (&name, tensors) in modules {
            let Some((component, tensor)) = weights(tensors) else { continue };
            if !is_packed(component, tensor) {
                continue;
            }
            places.has_experts |= self.names.read(name).is_routed(tensor);
            places.stacks.extend(stack(name));
            let module = Module { name, tensors };
            let mut schemes = self.policy.schemes.of_module(name);
            self.known.expected =
                self.expected.as_mut().and_then(|expected| expected.of_module(name));
            for difference in evaluate(&self.recipe, &module, self.known, &mut schemes) {
                let Difference { kind, part, keys } = difference;
                let (kind, expected, stored) = mismatch(kind);
                self.found.add(kind, &format!("{name}{part}"), &keys, expected, stored);
            }
            if let Some(key) = self.policy.ignores(name) {
                self.found.add(MismatchKind::PackedIgnored, name, key, "plain", component.name);
            }
        }
        places
    }

    /// Finds modules that the recipe packs, and that are plain.
    fn check_plain(
        &mut self,
        modules: &Modules<'_>,
        packed: &PackedPlaces,
        is_unquantized: bool,
        small: &SmallModules,
    ) {
        for (&name, tensors) in modules {
            let Some((component, tensor)) = weights(tensors) else { continue };
            let is_matrix = component.name == "weight" && tensor.shape.len() == 2;
            if is_packed(component, tensor) || !is_matrix || small.contain(tensor) {
                continue;
            }
            let Some(stack) = stack(name) else { continue };
            // transformers keeps the experts of a layer in stacked parameters and stores them one by one. Libraries for
            // linear layers leave such parameters as they are.
            let may_be_packed = packed.has_experts || !self.names.read(name).is_routed(tensor);
            let is_inside = may_be_packed && is_linear(name) && packed.stacks.contains(&stack);
            let is_candidate = is_inside || is_unquantized && self.has_bits(name);
            if is_candidate && !self.is_draft(name) && self.policy.selects(name) {
                let kind = MismatchKind::UnquantizedModule;
                self.found.add(kind, name, "quantization_config", "packed", "plain");
            }
        }
    }

    /// Returns whether the recipe states the bits of a module.
    fn has_bits(&mut self, module: &str) -> bool {
        self.is_4bit || self.policy.schemes.of_module(module).bits().is_some()
    }

    /// Returns whether a module drafts tokens.
    fn is_draft(&mut self, module: &str) -> bool {
        let number = NamePattern::new(module).numbers.first().map(|number| number.value);
        let is_beyond = self.layers.is_some_and(|layers| number >= Some(layers));
        is_beyond || self.names.read(module).is_draft()
    }
}

/// Module names, and the tensors of each module.
type Modules<'h> = BTreeMap<&'h str, Vec<ComponentTensor>>;

/// Returns the tensor of a module that contains its weights.
fn weights(tensors: &[ComponentTensor]) -> Option<&ComponentTensor> {
    tensors.iter().find(|(component, _)| component.is_weights())
}

/// Returns the name of the stack of layers that contains a module.
fn stack(module: &str) -> Option<String> {
    let pattern = NamePattern::new(module).text;
    pattern.split_once('#').map(|(stack, _)| stack.to_owned())
}

/// Returns whether a name is that of a linear layer that libraries pack. The classes of sparse attention keep
/// `indexer.weights_proj`. Source: `_keep_in_fp32_modules` of the models of transformers 5.24.
fn is_linear(module: &str) -> bool {
    let last = module.rsplit('.').next().unwrap_or_default();
    last.ends_with("_proj") && last != "weights_proj" || last.starts_with("in_proj_")
}

/// Returns the tensors of all modules.
fn modules(headers: &Headers) -> Modules<'_> {
    let mut modules = Modules::new();
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
    // Several groups may have different flags.
    let group = match (groups.next(), groups.next()) {
        (only, None) => only,
        _ => None,
    };
    let flag = |part: &str, key: &str| {
        let part = group.as_ref()?.get::<JsonObject<'_>>(part)?;
        part.get::<bool>(key).map(u64::from)
    };
    let block = section.get::<[u64; 2]>("weight_block_size");
    let named = [
        (Key::Symmetric, flag("weights", "symmetric")),
        (Key::Dynamic, flag("input_activations", "dynamic")),
        (Key::BlockRows, block.map(|block| block[0])),
        (Key::BlockColumns, block.map(|block| block[1])),
    ];
    // MLX has biases in this mode, which is the default. Single modules may state another one.
    let is_affine = |(key, value): (&str, &RawValue)| match key {
        "mode" => read::<String>(value).as_deref() == Some("affine"),
        _ => !value.get().contains("\"mode\""),
    };
    let affine =
        (method(configs) == MLX && section.entries().all(is_affine)).then_some((Key::Affine, 1));
    let named = named.into_iter().filter_map(|(key, value)| Some((key, value?))).chain(affine);
    // HQQ states the packing of all modules in a section of the section.
    let inner = section.get::<JsonObject<'_>>("quant_config").unwrap_or_default();
    let inner = inner.get::<JsonObject<'_>>("weight_quant_params").unwrap_or_default();
    let numbers = NUMBERS.iter().filter_map(|key| {
        let value = section.raw(key.name()).or_else(|| inner.raw(key.name()))?;
        Some((*key, read::<bool>(value).map(u64::from).or_else(|| number(value))?))
    });
    let numbers: BTreeMap<_, _> = named.chain(numbers).ordered();
    let method = method(configs).to_owned();
    let is_format = |text: &String| !text.starts_with(|digit: char| digit.is_ascii_digit());
    let mut formats = FORMATS.iter().filter_map(|key| section.get::<String>(key));
    let name = match (formats.find(is_format), numbers.get(&Key::Axis)) {
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
    /// The results of patterns that treat digits alike, by names with `0` in place of each digit. A model has thousands of
    /// modules with such a name in common.
    matched: Option<HashMap<String, Option<&'static str>>>,
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
        let are_alike = ignored.patterns.iter().all(|(pattern, _)| pattern.treats_digits_alike());
        Some(Self {
            schemes: Schemes::new(&configs.quantization),
            ignored,
            matched: are_alike.then(HashMap::new),
            selected: selected.filter(|text| text != "null").collect(),
            is_mlx: method(configs) == MLX,
        })
    }

    /// Returns the key of an entry because of which every library ignores a module.
    fn ignores(&mut self, module: &str) -> Option<&'static str> {
        /// The maximum number of names whose results are kept, because a hostile file may have others in each module.
        const MAX_MATCHED: usize = 10_000;

        if let Some(key) = self.ignored.names.get(module) {
            return Some(*key);
        }
        if self.ignored.patterns.is_empty() {
            return None;
        }
        let masked = module.replace(|char: char| char.is_ascii_digit(), "0");
        if let Some(known) = self.matched.as_ref().and_then(|matched| matched.get(&masked)) {
            return *known;
        }
        let Self { schemes, ignored: ModuleEntries { patterns, .. }, matched, .. } = self;
        let found = patterns
            .iter()
            .find(|(pattern, _)| schemes.spend(pattern.steps(module)) && pattern.is_whole(module));
        let key = found.map(|(_, key)| *key);
        if let Some(matched) = matched
            && matched.len() < MAX_MATCHED
        {
            matched.insert(masked, key);
        }
        key
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
    use crate::count::flags;

    /// A flag that `NUMBERS` lacks is false for every recipe.
    #[test]
    fn every_flag_of_a_layout_is_read() {
        let json = r#"{
            "config_groups": {
                "g": {"weights": {"symmetric": true}, "input_activations": {"dynamic": true}}
            },
            "weight_block_size": [128, 128]
        }"#;
        let section: JsonObject<'_> = parse(json.as_bytes()).unwrap();
        let configs = Configs::default();
        let named = read_recipe(&section, &configs).numbers;
        for key in flags() {
            let is_read = NUMBERS.contains(&key) || named.contains_key(&key) || key == Key::Affine;
            assert!(is_read, "add `{}` to `NUMBERS`", key.name());
        }
    }

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
