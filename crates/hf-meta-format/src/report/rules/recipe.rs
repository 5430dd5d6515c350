//! Compares the modules of a quantized model with the recipe in its configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::MismatchKind;
use super::Mismatches;
use super::config::Place;
use crate::base::json_object::{JsonObject, number, read, standard_json, strings};
use crate::base::model_config::ModelConfig;
use crate::count::config::{Hints, MetadataShapes, Pattern, QUANTIZE_CONFIG};
use crate::count::{Component, Configs, TensorPosition, container_bits, split_name};
use crate::formats::{FileHeader, RepoPath, TensorInfo};
use crate::report::Finding;
use crate::tables::architecture::{Definitions, ModelNames, Table};

/// The parts of packed modules, by the method of the recipe and its format.
static RECIPES: LazyLock<Table> = LazyLock::new(|| Table::new(include_str!("recipes.txt")));

/// Keys of recipes with the variant of the method.
const FORMATS: [&str; 5] =
    ["format", "checkpoint_format", "packing_format", "version", "quant_algo"];

/// The method of recipes without one.
const MLX: &str = "mlx";

/// The keys of whole numbers and flags in formulas.
const NUMBERS: [&str; 8] = [
    "load_in_4bit",
    "zero_point",
    "num_codebooks",
    "nbits_per_codebook",
    "in_group_size",
    "out_group_size",
    "axis",
    "view_as_float",
];

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

/// Names in formulas that are not keys of a recipe.
const SIDES: [&str; 8] =
    ["is_float", "rows", "columns", "word", "values", "inputs", "outputs", "groups"];

/// The tensors of a module.
type Parts = BTreeMap<&'static str, (&'static Component, TensorInfo)>;

/// Returns the name of the file that may contain the recipe, if `config.json` does not.
#[must_use]
pub fn recipe_file(configs: &Configs, headers: &[(RepoPath, FileHeader)]) -> Option<&'static str> {
    let mut names = headers.iter().flat_map(|(_, header)| header.tensors().names());
    let is_packed = configs.is_unquantized() && names.any(|name| name.ends_with(".qweight"));
    is_packed.then_some(QUANTIZE_CONFIG)
}

/// Compares all modules with the quantization recipe in `config.json`, or in the [file](recipe_file) that was added to
/// `configs`. Returns nothing without a known recipe.
#[must_use]
pub fn check_recipe(
    config_json: &[u8],
    configs: &Configs,
    headers: &[(RepoPath, FileHeader)],
) -> Vec<Finding> {
    find_mismatches(config_json, configs, headers).unwrap_or_default().into_findings()
}

fn find_mismatches(
    config_json: &[u8],
    configs: &Configs,
    headers: &[(RepoPath, FileHeader)],
) -> Option<Mismatches> {
    let json = standard_json(configs.recipe().unwrap_or(config_json));
    let config: ModelConfig<'_> = serde_json::from_slice(&json).ok()?;
    let whole = || configs.recipe().and_then(|_| serde_json::from_slice(&json).ok());
    let section = config.quantization_sections().next().or_else(whole)?;
    let shapes = MetadataShapes::default();
    let recipe = Recipe::new(&section, configs, &shapes)?;
    let mut modules = BTreeMap::<&str, Parts>::new();
    for (name, tensor) in headers.iter().flat_map(|(_, header)| header.tensors()) {
        let (module, component) = split_name(name);
        modules.entry(module).or_default().insert(component.name, (component, tensor));
    }
    let mut found = Mismatches::default();
    let (mut packed, mut plain) = (BTreeSet::new(), Vec::new());
    let mut has_packed_experts = false;
    for (module, parts) in &modules {
        let weights = parts.values().find(|(component, _)| component.is_weights());
        let Some((component, tensor)) = weights else { continue };
        let pattern = Place::new(module).pattern;
        let is_expert = TensorPosition::new(module).is_routed(tensor);
        if is_packed(component, tensor) {
            has_packed_experts |= is_expert;
            recipe.check_parts(module, &pattern, parts, &mut found);
            if let Some(key) = recipe.ignores(module, Pattern::is_whole) {
                found.add(
                    MismatchKind::PackedIgnored,
                    (module, &pattern),
                    key,
                    ("plain", component.name),
                );
            }
            packed.insert(pattern);
        } else if component.name == "weight" && tensor.shape.len() == 2 {
            plain.push((*module, pattern, is_expert));
        }
    }
    let lists: BTreeSet<_> =
        packed.iter().filter_map(|pattern: &String| pattern.split_once('#')).collect();
    let stacks: BTreeSet<_> = lists.into_iter().map(|(stack, _)| stack).collect();
    if !has_packed_experts {
        // transformers keeps the experts of a layer in stacked parameters and stores them one by one. Libraries for linear
        // layers leave such parameters as they are.
        plain.retain(|(.., is_expert)| !is_expert);
    }
    for (module, pattern, _) in plain {
        let last = module.rsplit('.').next().unwrap_or_default();
        let is_linear = last.ends_with("_proj") || last.starts_with("in_proj_");
        let position = TensorPosition::new(module);
        let is_inside = pattern.split_once('#').is_some_and(|(stack, _)| stacks.contains(stack));
        if is_linear && is_inside && !position.is_draft && recipe.selects(module) {
            let kind = MismatchKind::UnquantizedModule;
            found.add(kind, (module, &pattern), "quantization_config", ("packed", "plain"));
        }
    }
    Some(found)
}

/// Returns whether a tensor contains packed weights. bitsandbytes packs into columns of any dtype.
fn is_packed(component: &Component, tensor: &TensorInfo) -> bool {
    let is_column = matches!(tensor.shape[..], [rows, 1] if rows > 1);
    let is_narrow = tensor.dtype.is_narrow_float() || container_bits(&tensor.dtype).is_some();
    !tensor.is_scalar() && !component.is_bare() && (!component.is_plain() || is_narrow || is_column)
}

/// The quantization recipe of a model.
struct Recipe<'a> {
    hints: Hints<'a>,
    layout: Option<Definitions>,
    /// Ignored modules with the key that lists them.
    ignored: Vec<(&'static str, Pattern)>,
    selected: Vec<String>,
    is_mlx: bool,
    /// The values in formulas that all modules share.
    common: BTreeMap<&'static str, u64>,
}

impl<'a> Recipe<'a> {
    fn new(
        section: &JsonObject<'_>,
        configs: &'a Configs,
        shapes: &'a MetadataShapes,
    ) -> Option<Self> {
        let unstated = if configs.recipe().is_some() { "gptq" } else { MLX };
        let method = configs.method().unwrap_or(unstated);
        let is_format = |text: &String| !text.starts_with(|digit: char| digit.is_ascii_digit());
        let mut formats = FORMATS.iter().filter_map(|key| section.get::<String>(key));
        let format = formats.find(is_format);
        let name = format
            .map_or(method.to_owned(), |format| format!("{method}:{}", format.to_lowercase()));
        let mut ignored = Vec::new();
        for key in IGNORED {
            let names = strings(section.raw(key), MAX_IGNORED)?;
            ignored.extend(names.iter().map(|name| (key, Pattern::of_entry(name))));
        }
        // GPTQModel excludes the modules that match `-:`.
        let rules = section.get::<JsonObject<'_>>("dynamic").unwrap_or_default();
        let excluded = rules.entries().filter_map(|(rule, _)| rule.strip_prefix("-:"));
        ignored.extend(
            excluded
                .take(MAX_IGNORED)
                .map(|rule| ("dynamic", Pattern::of_entry(&format!("re:{rule}")))),
        );
        let selected =
            SELECTED.iter().filter_map(|key| section.raw(key)).map(|value| value.get().to_owned());
        let groups = section.get::<JsonObject<'_>>("config_groups").unwrap_or_default();
        let mut groups = groups.entries().filter_map(|(_, group)| read::<JsonObject<'_>>(group));
        let (group, is_only) = (groups.next(), groups.next().is_none());
        let flag = |part: &str, key: &str| {
            group
                .as_ref()
                .filter(|_| is_only)?
                .get::<JsonObject<'_>>(part)?
                .get::<bool>(key)
                .map(u64::from)
        };
        let block = section.get::<[u64; 2]>("weight_block_size");
        let named = [
            ("symmetric", flag("weights", "symmetric")),
            ("dynamic", flag("input_activations", "dynamic")),
            ("block_rows", block.map(|block| block[0])),
            ("block_columns", block.map(|block| block[1])),
        ];
        let named = named.into_iter().filter_map(|(key, value)| Some((key, value?)));
        // HQQ states the packing of all modules in a section of the section.
        let inner = section.get::<JsonObject<'_>>("quant_config").unwrap_or_default();
        let inner = inner.get::<JsonObject<'_>>("weight_quant_params").unwrap_or_default();
        let numbers = NUMBERS.iter().filter_map(|key| {
            let value = section.raw(key).or_else(|| inner.raw(key))?;
            Some((*key, read::<bool>(value).map(u64::from).or_else(|| number(value))?))
        });
        Some(Self {
            hints: configs.hints(shapes),
            layout: RECIPES.find("recipe", &name),
            ignored,
            selected: selected.filter(|text| text != "null").collect(),
            is_mlx: method == MLX,
            common: named.chain(numbers).collect(),
        })
    }

    /// Returns the key that excludes a module, if an entry matches it.
    fn ignores(&self, module: &str, matches: fn(&Pattern, &str) -> bool) -> Option<&'static str> {
        let mut ignored = self.ignored.iter();
        ignored.find(|(_, pattern)| matches(pattern, module)).map(|(key, _)| *key)
    }

    /// Returns whether the recipe certainly quantizes a linear module.
    fn selects(&self, module: &str) -> bool {
        let is_listed =
            |list: &String| list.split('"').any(|name| name.len() > 1 && module.contains(name));
        // MLX packs the modules whose scales are stored.
        !self.is_mlx
            && self.selected.iter().all(is_listed)
            && self.ignores(module, Pattern::may_match).is_none()
            && self.hints.packs(module)
    }

    /// Compares the shapes of the parts of a packed module with each other and with the recipe.
    fn check_parts(
        &self,
        module: &str,
        pattern: &str,
        parts: &Parts,
        found: &mut Mismatches,
    ) -> Option<()> {
        let layout = self.layout.as_ref()?;
        let (_, weights) = parts.get(layout.get("@")?)?;
        let [.., rows, columns] = weights.shape[..] else { return None };
        let word = weights.dtype.bits()?;
        let bits = self.hints.bits(module);
        let mut values = self.common.clone();
        let group = self.hints.choose(module, |scheme| scheme.group_size).ok()?;
        let known = [
            ("rows", Some(rows)),
            ("columns", Some(columns)),
            ("word", Some(word)),
            ("bits", bits),
            ("group_size", group),
            ("is_float", Some(u64::from(weights.dtype.is_narrow_float()))),
        ];
        values.extend(known.into_iter().filter_map(|(key, value)| Some((key, value?))));
        // The formulas of ExLlama compare parts with each other.
        values.extend(parts.iter().filter_map(|(name, (_, tensor))| {
            if let [length] = tensor.shape[..] { Some((*name, length)) } else { None }
        }));
        let (padded_json, padded_config);
        let json = serde_json::to_string(&values).ok()?;
        let config: JsonObject<'_> = serde_json::from_str(&json).ok()?;
        let names = ModelNames::of_config(layout.clone(), &config);
        let most = names.defined("inputs").and_then(Result::ok);
        // The last word may contain padding.
        let least = most
            .map(|most| most.saturating_sub(bits.map_or(0, |bits| word / bits.max(1))).max(1) + 1);
        values.extend(least.map(|least| ("inputs", least)));
        padded_json = serde_json::to_string(&values).ok()?;
        padded_config = serde_json::from_str::<JsonObject<'_>>(&padded_json).ok()?;
        let padded = ModelNames::of_config(layout.clone(), &padded_config);
        for (name, formulas) in &layout.entries {
            let Some(part) = name.strip_suffix(".if") else {
                if let Some((_, tensor)) = parts.get(name) {
                    check_part((module, pattern, name), formulas, tensor, [&padded, &names], found);
                }
                continue;
            };
            let Ok((is_required, keys)) = names.trace(formulas) else { continue };
            let keys = join(&keys).unwrap_or_else(|| "quant_method".to_owned());
            let tensor = format!("{module}.{part}");
            let place = (&*tensor, &*format!("{pattern}.{part}"));
            match (is_required > 0, parts.contains_key(part)) {
                (true, false) => {
                    found.add(MismatchKind::MissingPart, place, &keys, ("stored", "missing"));
                }
                (false, true) => {
                    found.add(MismatchKind::SparePart, place, &keys, ("none", "stored"));
                }
                _ => {}
            }
        }
        Some(())
    }
}

/// Compares the last dimensions of a part with formulas, of which the two sets of names give the minimum and the
/// maximum. Parts of stacked experts have more dimensions.
fn check_part(
    (module, pattern, part): (&str, &str, &str),
    formulas: &'static str,
    tensor: &TensorInfo,
    names: [&ModelNames<'_>; 2],
    found: &mut Mismatches,
) {
    let (mut keys, mut expected) = (BTreeSet::new(), Vec::new());
    for formula in formulas.split(',') {
        let [Ok((least, _)), Ok((most, used))] = names.map(|names| names.trace(formula)) else {
            return;
        };
        keys.extend(used);
        expected.push(least.min(most)..=most);
    }
    let start = tensor.shape.len().checked_sub(expected.len());
    let lengths = start.map_or(&[][..], |start| &tensor.shape[start..]);
    let fits = expected.iter().zip(lengths).all(|(range, length)| range.contains(length));
    if lengths.is_empty() || !fits {
        let keys = join(&Vec::from_iter(keys)).unwrap_or_else(|| "quant_method".to_owned());
        let expected: Vec<_> = expected.iter().map(|range| *range.end()).collect();
        let values = (format!("{expected:?}"), format!("{:?}", tensor.shape));
        let (name, pattern) = (format!("{module}.{part}"), format!("{pattern}.{part}"));
        found.add(MismatchKind::PartShapeMismatch, (&name, &pattern), &keys, values);
    }
}

/// Returns the keys of a recipe in a formula, joined by commas.
fn join(keys: &[(&'static str, u64)]) -> Option<String> {
    let keys = keys.iter().map(|(key, _)| *key).filter(|key| !SIDES.contains(key));
    let keys: Vec<_> = keys.collect();
    (!keys.is_empty()).then(|| keys.join(", "))
}
