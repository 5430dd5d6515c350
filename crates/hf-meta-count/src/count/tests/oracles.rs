//! Compares counts with checkpoints that were written by real packers or follow the definition of their format.
//!
//! `tests/oracles` writes the fixtures.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::count::{Configs, CountBreakdown, Counter, MixtureOfExperts, UnknownActive};
use hf_meta_format::formats::{FileHeader, TensorInfo, TensorTableBuilder};

/// A checkpoint of known size.
#[derive(Deserialize)]
struct QuantizedCase {
    name: String,
    true_parameters: u64,
    /// The outputs and inputs of each packed module.
    #[serde(default)]
    modules: BTreeMap<String, Vec<u64>>,
    config: Option<Box<RawValue>>,
    #[serde(default)]
    files: BTreeMap<String, Box<RawValue>>,
    #[serde(default)]
    tensors: Vec<StoredTensor>,
    #[serde(default)]
    shards: Vec<Vec<StoredTensor>>,
    /// The reason why the header and the configuration do not determine the size.
    inexact: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Deserialize)]
struct StoredTensor {
    name: String,
    dtype: String,
    shape: Vec<u64>,
}

impl StoredTensor {
    fn as_parts(&self) -> (&str, &str, &[u64]) {
        (&self.name, &self.dtype, &self.shape)
    }

    fn shown(&self) -> String {
        format!("{} {} {:?}", self.name, self.dtype, self.shape)
    }
}

/// Creates the header of a file with these tensors.
pub(super) fn header<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a str, &'a [u64])>,
    metadata: Option<BTreeMap<String, String>>,
) -> FileHeader {
    let (mut builder, mut end) = (TensorTableBuilder::new(), 0);
    for (name, dtype, shape) in tensors {
        let mut tensor = TensorInfo::new(dtype.into(), shape.to_vec(), (end, end));
        let bits = tensor.elements().unwrap() * tensor.dtype.bits().unwrap();
        end += bits.div_ceil(8);
        tensor.data_offsets.1 = end;
        builder.push(name, &tensor);
    }
    FileHeader::new(builder.finish().unwrap(), 0..0).with_metadata(metadata)
}

fn cases<T: DeserializeOwned>(folder: &str) -> Vec<T> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let folder = fixtures.join(folder).read_dir().unwrap();
    let mut paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: std::path::PathBuf| {
        serde_json::from_slice(&std::fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    paths.into_iter().map(read).collect()
}

impl QuantizedCase {
    fn count(&self) -> (u64, CountBreakdown) {
        self.count_with(self.configs())
    }

    fn configs(&self) -> Configs {
        let config = self.config.as_ref().map_or("{}", |config| config.get());
        let mut configs = Configs::from_config_json(config.as_bytes()).unwrap();
        for file in
            self.files.iter().filter(|(name, _)| name.contains("config")).map(|(_, file)| file)
        {
            configs.add_file("quantize_config.json", file.get().as_bytes()).unwrap();
        }
        configs
    }

    /// Returns the first modules whose count differs, each with its tensors without scalars. Counts each module alone; if
    /// all are right, returns the tensors outside of them.
    fn differences(&self) -> String {
        // A wrong term shows in the first module, and a red test lists up to hundreds of checkpoints.
        const SHOWN: usize = 2;
        let stored = || self.shards.iter().chain([&self.tensors]).flatten();
        let is_inside = |module: &str, name: &str| {
            let rest = name.strip_prefix(module);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_']))
                && !name.ends_with("bias")
        };
        let mut found = Vec::new();
        for (module, sides) in &self.modules {
            let tensors: Vec<_> =
                stored().filter(|tensor| is_inside(module, &tensor.name)).collect();
            let mut counter = Counter::new();
            let parts = tensors.iter().map(|tensor| tensor.as_parts());
            counter.add_file(&header(parts, self.metadata.clone())).unwrap();
            counter.set_configs(self.configs());
            let parameters = counter.finish().unwrap().0.total();
            let expected: u64 = sides.iter().product();
            if parameters != expected {
                let shaped = tensors.iter().filter(|tensor| !tensor.shape.is_empty());
                let stored: Vec<_> = shaped.map(|tensor| tensor.shown()).collect();
                let stored = stored.join(", ");
                found.push(format!(
                    "  {module}: {parameters} instead of {sides:?} = {expected}, from {stored}"
                ));
            }
        }
        if found.is_empty() {
            let is_outside =
                |name: &str| !self.modules.keys().any(|module| is_inside(module, name));
            let outside = stored().filter(|tensor| is_outside(&tensor.name));
            found.push("  each module alone is right; outside of them:".to_owned());
            found.extend(outside.map(|tensor| format!("  {}", tensor.shown())));
        }
        let more = found.len().saturating_sub(SHOWN);
        found.truncate(SHOWN);
        if more > 0 {
            found.push(format!("  and {more} more"));
        }
        found.join("\n")
    }

    /// Returns the elements as stored, which `huggingface_hub` counts.
    fn elements(&self) -> u64 {
        let stored = self.shards.iter().chain([&self.tensors]).flatten();
        stored.map(|tensor| tensor.shape.iter().product::<u64>()).sum()
    }

    fn count_with(&self, configs: Configs) -> (u64, CountBreakdown) {
        let mut counter = Counter::new();
        for shard in self.shards.iter().chain([&self.tensors]) {
            let tensors = shard.iter().map(StoredTensor::as_parts);
            counter.add_file(&header(tensors, self.metadata.clone())).unwrap();
        }
        counter.set_configs(configs);
        let (parameters, breakdown) = counter.finish().unwrap();
        (parameters.total(), breakdown)
    }
}

/// The ways of counting without all knowledge.
const WAYS: [&str; 2] = ["unknown architecture", "no configuration"];

/// Returns a configuration without the architecture, and none.
fn without_knowledge(config: Option<&RawValue>) -> [Configs; 2] {
    let config = config.map_or("{}", RawValue::get);
    let mut config: Value = serde_json::from_str(config).unwrap();
    remove_architecture(&mut config);
    let unknown = Configs::from_config_json(&serde_json::to_vec(&config).unwrap()).unwrap();
    [unknown, Configs::default()]
}

/// Removes the architecture of a model and of its parts.
fn remove_architecture(config: &mut Value) {
    let Some(config) = config.as_object_mut() else { return };
    config.retain(|key, _| !["model_type", "architectures"].contains(&&**key));
    config.values_mut().for_each(remove_architecture);
}

/// A count without the architecture or the configuration may be marked, and is never silently wrong.
#[test]
fn no_quantized_checkpoint_is_silently_wrong() {
    let mut silent = Vec::new();
    let (mut exact, cases) = ([0; 2], cases::<QuantizedCase>("quantized"));
    for case in &cases {
        for (at, configs) in without_knowledge(case.config.as_deref()).into_iter().enumerate() {
            let (parameters, breakdown) = case.count_with(configs);
            let is_right = parameters == case.true_parameters;
            exact[at] += usize::from(breakdown.is_exact());
            if !is_right && breakdown.is_exact() {
                let way = WAYS[at];
                let expected = case.true_parameters;
                silent.push(format!("{}, {way}: {parameters} instead of {expected}", case.name));
            }
        }
    }
    assert!(exact[0] >= 362 && exact[1] >= 227, "{exact:?} of {}", cases.len());
    assert!(silent.is_empty(), "{} are silent:\n{}", silent.len(), silent.join("\n"));
}

#[test]
fn quantized_checkpoints_have_their_true_parameters() {
    let (mut wrong, mut exact) = (Vec::new(), 0);
    let cases = cases::<QuantizedCase>("quantized");
    for case in &cases {
        let (parameters, breakdown) = case.count();
        let is_right = parameters == case.true_parameters;
        exact += usize::from(is_right && breakdown.is_exact());
        if is_right && breakdown.is_exact() || case.inexact.is_some() && !breakdown.is_exact() {
            continue;
        }
        let unresolved: Vec<_> = breakdown.unresolved.iter().map(|found| found.reason).collect();
        let (name, expected) = (&case.name, case.true_parameters);
        let differences = case.differences();
        wrong.push(format!(
            "{name}: {parameters} instead of {expected}, {unresolved:?}\n{differences}"
        ));
    }
    assert!(
        wrong.is_empty(),
        "{} of {} are wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    let all = cases.len();
    let stored = cases.iter().filter(|case| case.elements() == case.true_parameters).count();
    super::assert_stated(&[
        (
            "src/docs/quantization.md",
            format!(
                "Of the {all} layouts in `fixtures/quantized`, this library counts {exact} exactly"
            ),
        ),
        ("README.md", format!("counted exactly | {exact} of {all} | {stored} of {all} |")),
    ]);
}

/// Returns the bits per weight stated in a checkpoint name, such as `gptq-3bit` or `quanto-int4`.
fn stated_bits(name: &str) -> Option<u32> {
    // These have several widths, or store values in wider integers.
    let is_other = |word| matches!(word, "mixed" | "embedding" | "head" | "packed");
    let is_wider = ["naive-w4", "w4afp8", "intx-4bit", "quark-int2", "quark-real-int2"];
    if name.split('-').any(is_other) || is_wider.iter().any(|wider| name.contains(wider)) {
        return None;
    }
    name.split('-').find_map(|word| match word {
        "nf4" | "fp4" | "nvfp4" | "mxfp4" | "mxfp4a16" | "nvfp4a16" => Some(4),
        "fp8" | "mxfp8" | "float8" => Some(8),
        _ => {
            let number = word.strip_suffix("bit").or_else(|| {
                ["uint", "int", "w"].iter().find_map(|start| word.strip_prefix(start))
            })?;
            number.split('a').next()?.parse().ok()
        }
    })
}

#[test]
fn quantized_checkpoints_have_the_bits_in_their_names() {
    let mut wrong = Vec::new();
    for case in cases::<QuantizedCase>("quantized") {
        let (_, breakdown) = case.count();
        let kinds = breakdown.module_kinds.iter().max_by_key(|kind| kind.parameters);
        let (Some(bits), Some(kind)) = (stated_bits(&case.name), kinds) else { continue };
        // Their codes represent groups of weights, or their bits follow from a configuration that is not needed.
        let has_no_bits = matches!(kind.packing.layout, "bitmask" | "higgs" | "sinq");
        let expected = if has_no_bits { None } else { Some(bits) };
        if kind.packing.bits != expected {
            wrong.push(format!("{}: {}", case.name, kind.packing));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A mixture of experts with its active parameters.
#[derive(Deserialize)]
struct MoeCase {
    name: String,
    total: u64,
    active: u64,
    active_without_lookup_tables: u64,
    draft: u64,
    #[serde(default)]
    active_is_upper_bound: bool,
    config: Option<Box<RawValue>>,
    #[serde(default)]
    files: BTreeMap<String, Box<RawValue>>,
    #[serde(default)]
    tensors: Vec<StoredTensor>,
    #[serde(default)]
    patterns: Vec<TensorPattern>,
}

/// Tensors whose names differ only in numbers: one per combination of the ranges.
#[derive(Deserialize)]
struct TensorPattern {
    #[serde(flatten)]
    tensor: StoredTensor,
    #[serde(default)]
    ranges: Vec<NumberRange>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberRange {
    Listed(Vec<u64>),
    Between { from: u64, to: u64 },
}

impl TensorPattern {
    fn tensors(&self) -> Vec<StoredTensor> {
        let mut tensors = vec![self.tensor.clone()];
        for range in &self.ranges {
            let numbers: Vec<u64> = match range {
                NumberRange::Listed(numbers) => numbers.clone(),
                NumberRange::Between { from, to } => (*from..*to).collect(),
            };
            let replace = |tensor: &StoredTensor, number: &u64| StoredTensor {
                name: tensor.name.replacen("{}", &number.to_string(), 1),
                ..tensor.clone()
            };
            let each = tensors.iter().flat_map(|tensor| {
                numbers.iter().map(move |number| replace(tensor, number)).collect::<Vec<_>>()
            });
            tensors = each.collect();
        }
        tensors
    }
}

impl MoeCase {
    fn count(&self) -> (Option<MixtureOfExperts>, Option<UnknownActive>) {
        let config = self.config.as_ref().map_or("{}", |config| config.get());
        self.count_with(Configs::from_config_json(config.as_bytes()).unwrap())
    }

    fn tensors(&self) -> Vec<StoredTensor> {
        let mut tensors: Vec<_> = self.patterns.iter().flat_map(TensorPattern::tensors).collect();
        tensors.extend_from_slice(&self.tensors);
        tensors
    }

    fn count_with(&self, configs: Configs) -> (Option<MixtureOfExperts>, Option<UnknownActive>) {
        let (parameters, breakdown) = self.count_tensors(self.tensors(), configs);
        let is_right = parameters == self.total + self.draft;
        assert!(is_right || !breakdown.is_exact(), "{}: {parameters}", self.name);
        (breakdown.moe, breakdown.moe_unknown)
    }

    fn count_tensors(
        &self,
        tensors: Vec<StoredTensor>,
        mut configs: Configs,
    ) -> (u64, CountBreakdown) {
        let mut counter = Counter::new();
        for StoredTensor { name, dtype, shape } in tensors {
            counter.add(&name, &TensorInfo::new(dtype.as_str().into(), shape, (0, 0))).unwrap();
        }
        assert!(counter.needs_config(), "{}", self.name);
        let other = counter.other_config_file(&configs);
        if let Some((name, file)) = other.and_then(|name| self.files.get_key_value(name)) {
            configs.add_file(name, file.get().as_bytes()).unwrap();
        }
        counter.set_configs(configs);
        let (parameters, breakdown) = counter.finish().unwrap();
        let total = breakdown.moe.map_or(parameters.total(), |moe| moe.total());
        assert_eq!(total, parameters.total(), "{}", self.name);
        (parameters.total(), breakdown)
    }
}

#[test]
fn mixtures_of_experts_have_their_active_parameters() {
    let cases = cases::<MoeCase>("moe");
    let mut wrong = Vec::new();
    for case in &cases {
        let (Some(moe), None) = case.count() else {
            wrong.push(format!("{}: unknown", case.name));
            continue;
        };
        let tables = moe.active_without_lookup_tables();
        let numbers = [
            ("total", moe.total() - moe.draft, case.total),
            ("active", moe.active(), case.active),
            ("without lookup tables", tables, case.active_without_lookup_tables),
            ("draft", moe.draft, case.draft),
            ("is bound", moe.is_upper_bound.into(), case.active_is_upper_bound.into()),
        ];
        for (number, found, expected) in numbers {
            if found != expected {
                wrong.push(format!("{}: {number} {found} instead of {expected}", case.name));
            }
        }
    }
    let (wrongs, cases) = (wrong.len(), cases.len());
    assert!(wrong.is_empty(), "{wrongs} of {cases} are wrong:\n{}", wrong.join("\n"));
}

/// Without the architecture or the configuration, the active parameters are right, or their number is marked.
#[test]
fn no_mixture_of_experts_is_silently_wrong() {
    let (mut silent, mut exact, cases) = (Vec::new(), [0; 2], cases::<MoeCase>("moe"));
    for case in &cases {
        for (at, configs) in without_knowledge(case.config.as_deref()).into_iter().enumerate() {
            let (moe, unknown) = case.count_with(configs);
            let active = moe.map(|moe| moe.active());
            exact[at] += usize::from(active == Some(case.active));
            let is_marked = unknown.is_some() || moe.is_some_and(|moe| moe.is_upper_bound);
            if active != Some(case.active) && !is_marked {
                let (name, way, expected) = (&case.name, WAYS[at], case.active);
                silent.push(format!("{name}, {way}: {active:?} instead of {expected}"));
            }
        }
    }
    assert!(exact[0] >= 172, "{exact:?} of {}", cases.len());
    assert!(silent.is_empty(), "{} are silent:\n{}", silent.len(), silent.join("\n"));
}

/// A packer of a matrix in words of 32 bits: its bits, the weights per scale, and whether weights cross words.
type Words = (u64, Option<u64>, bool);

/// The maximum number of tensors of a checkpoint to pack: the largest ones have the layers of smaller ones.
const MAX_TENSORS: usize = 5_000;

/// Packs the matrices of the language model as compressed-tensors does.
fn pack_words(tensors: Vec<StoredTensor>, (bits, group, is_dense): Words) -> Vec<StoredTensor> {
    // Recipes leave out the parts for images, and the routers.
    const OTHERS: [&str; 9] = [
        "embed",
        "visual",
        "vision",
        "projector",
        "audio",
        "head",
        "gate.weight",
        "router",
        "norm",
    ];
    let mut packed = Vec::new();
    for tensor in tensors {
        let StoredTensor { name, shape, .. } = &tensor;
        let module = name.strip_suffix(".weight");
        let (Some(module), &[outputs, inputs]) = (module, &shape[..]) else {
            packed.push(tensor);
            continue;
        };
        let groups = group.map_or(1, |group| inputs / group);
        let is_packed = !OTHERS.iter().any(|part| name.contains(part))
            && group.is_none_or(|group| inputs % group == 0)
            && outputs > 1;
        if !is_packed {
            packed.push(tensor);
            continue;
        }
        let words =
            if is_dense { (inputs * bits).div_ceil(32) } else { inputs.div_ceil(32 / bits) };
        for (part, dtype, shape) in [
            ("weight_packed", "I32", vec![outputs, words]),
            ("weight_scale", "BF16", vec![outputs, groups]),
            ("weight_shape", "I64", vec![2]),
        ] {
            let (name, dtype) = (format!("{module}.{part}"), dtype.to_owned());
            packed.push(StoredTensor { name, dtype, shape });
        }
    }
    packed
}

/// Packed mixtures of experts have their parameters and active parameters, or the count is marked.
#[test]
fn no_packed_mixture_of_experts_is_silently_wrong() {
    let layouts: [Words; 5] =
        [(3, None, true), (3, None, false), (4, Some(128), true), (4, None, true), (8, None, true)];
    let (mut silent, mut exact) = (Vec::new(), 0);
    for case in cases::<MoeCase>("moe") {
        let tensors = case.tensors();
        let is_packed = tensors.iter().any(|tensor| !["BF16", "F32"].contains(&&*tensor.dtype));
        if is_packed || tensors.len() > MAX_TENSORS {
            continue;
        }
        for layout in layouts {
            let (bits, group, is_dense) = layout;
            let strategy = if group.is_some() { "group" } else { "channel" };
            let recipe = json!({"quant_method": "compressed-tensors", "format": "pack-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                    "num_bits": bits, "type": "int", "strategy": strategy, "group_size": group,
                    "symmetric": true, "dynamic": false}}}, "ignore": []});
            let config = case.config.as_ref().map_or("{}", |config| config.get());
            let mut config: Value = serde_json::from_str(config).unwrap();
            config["quantization_config"] = recipe;
            let config = RawValue::from_string(config.to_string()).unwrap();
            let whole = Configs::from_config_json(config.get().as_bytes()).unwrap();
            let [unknown, none] = without_knowledge(Some(&config));
            let ways = [("as written", whole), (WAYS[0], unknown), (WAYS[1], none)];
            for (way, configs) in ways {
                let tensors = pack_words(case.tensors(), layout);
                let (total, breakdown) = case.count_tensors(tensors, configs);
                let active = breakdown.moe.map(|moe| moe.active());
                let is_marked = !breakdown.is_exact();
                let is_active_marked = is_marked
                    || breakdown.moe_unknown.is_some()
                    || breakdown.moe.is_some_and(|moe| moe.is_upper_bound);
                let expected = (case.total + case.draft, Some(case.active));
                exact += usize::from((total, active) == expected);
                let is_silent =
                    total != expected.0 && !is_marked || active != expected.1 && !is_active_marked;
                if is_silent {
                    let (name, found) = (&case.name, (total, active));
                    silent.push(format!(
                        "{name}, {bits} bits, dense {is_dense}, {way}: {found:?} instead of {expected:?}"
                    ));
                }
            }
        }
    }
    assert!(exact > 1_400, "{exact}");
    assert!(silent.is_empty(), "{} are silent:\n{}", silent.len(), silent.join("\n"));
}

/// The dimensions of a Llama-like model.
struct Geometry {
    layers: u64,
    hidden: u64,
    intermediate: u64,
    /// The outputs of `k_proj` and `v_proj`.
    key_value: u64,
    vocabulary: u64,
    has_output: bool,
    /// The elements of all norms in a layer.
    norms: u64,
}

const LLAMA_70B: Geometry = Geometry {
    layers: 80,
    hidden: 8192,
    intermediate: 28_672,
    key_value: 1024,
    vocabulary: 128_256,
    has_output: true,
    norms: 2 * 8192,
};
const LLAMA_8B: Geometry =
    Geometry { layers: 32, hidden: 4096, intermediate: 14_336, norms: 2 * 4096, ..LLAMA_70B };
const BITNET_2B: Geometry = Geometry {
    layers: 30,
    hidden: 2560,
    intermediate: 6912,
    key_value: 640,
    has_output: false,
    norms: 3 * 2560 + 6912,
    ..LLAMA_70B
};

/// Returns the parts that a packer writes for a matrix.
type Pack = fn(outputs: u64, inputs: u64) -> Vec<(&'static str, &'static str, Vec<u64>)>;

impl Geometry {
    fn tensors(&self, pack: Pack) -> Vec<StoredTensor> {
        let Self { hidden, intermediate, key_value, .. } = *self;
        let stored = |name: String, dtype: &str, shape| StoredTensor {
            name,
            dtype: dtype.to_owned(),
            shape,
        };
        let embedding = || vec![self.vocabulary, hidden];
        let mut tensors = vec![
            stored("model.embed_tokens.weight".to_owned(), "BF16", embedding()),
            stored("model.norm.weight".to_owned(), "BF16", vec![hidden]),
        ];
        tensors.extend(
            self.has_output.then(|| stored("lm_head.weight".to_owned(), "BF16", embedding())),
        );
        for layer in 0..self.layers {
            tensors.push(stored(format!("model.layers.{layer}.norms"), "BF16", vec![self.norms]));
            for (module, outputs, inputs) in [
                ("self_attn.q_proj", hidden, hidden),
                ("self_attn.k_proj", key_value, hidden),
                ("self_attn.v_proj", key_value, hidden),
                ("self_attn.o_proj", hidden, hidden),
                ("mlp.gate_proj", intermediate, hidden),
                ("mlp.up_proj", intermediate, hidden),
                ("mlp.down_proj", hidden, intermediate),
            ] {
                let parts = pack(outputs, inputs).into_iter();
                tensors.extend(parts.map(|(part, dtype, shape)| {
                    stored(format!("model.layers.{layer}.{module}.{part}"), dtype, shape)
                }));
            }
        }
        tensors
    }
}

fn nvfp4(outputs: u64, inputs: u64) -> Vec<(&'static str, &'static str, Vec<u64>)> {
    vec![
        ("weight", "U8", vec![outputs, inputs / 2]),
        ("weight_scale", "F8_E4M3", vec![outputs, inputs / 16]),
        ("weight_scale_2", "F32", vec![]),
        ("input_scale", "F32", vec![]),
    ]
}

fn auto_round(outputs: u64, inputs: u64) -> Vec<(&'static str, &'static str, Vec<u64>)> {
    vec![
        ("qweight", "I32", vec![inputs / 8, outputs]),
        ("qzeros", "I32", vec![inputs / 128, outputs / 8]),
        ("scales", "F16", vec![inputs / 128, outputs]),
    ]
}

fn bitnet(outputs: u64, inputs: u64) -> Vec<(&'static str, &'static str, Vec<u64>)> {
    vec![("weight", "U8", vec![outputs / 4, inputs]), ("weight_scale", "BF16", vec![1])]
}

fn exl3(outputs: u64, inputs: u64) -> Vec<(&'static str, &'static str, Vec<u64>)> {
    vec![
        ("trellis", "I16", vec![inputs / 16, outputs / 16, 64]),
        ("suh", "F16", vec![inputs]),
        ("svh", "F16", vec![outputs]),
    ]
}

/// Counts that users expected: the Hub shows 36.3B, 1.98B, 0.85B and 19B for models with these layouts.
#[test]
fn published_sizes_are_exact() {
    let cases: [(&Geometry, Pack, &str, u64); 4] = [
        (&LLAMA_70B, nvfp4, "modelopt", 70_553_706_496),
        (&LLAMA_8B, auto_round, "auto-round", 8_030_261_248),
        (&BITNET_2B, bitnet, "bitnet", 2_412_820_480),
        (&LLAMA_70B, exl3, "exl3", 70_553_706_496),
    ];
    for (geometry, pack, method, true_parameters) in cases {
        let Geometry { hidden, intermediate, key_value, .. } = *geometry;
        let config = format!(
            r#"{{"hidden_size":{hidden},"intermediate_size":{intermediate},"num_attention_heads":{},
                "num_key_value_heads":{},"head_dim":128,"quantization_config":{{"quant_method":"{method}"}}}}"#,
            hidden / 128,
            key_value / 128
        );
        let case = QuantizedCase {
            name: method.to_owned(),
            true_parameters,
            modules: BTreeMap::new(),
            config: Some(RawValue::from_string(config).unwrap()),
            files: BTreeMap::new(),
            tensors: geometry.tensors(pack),
            shards: Vec::new(),
            inexact: None,
            metadata: None,
        };
        let (parameters, breakdown) = case.count();
        assert_eq!((parameters, breakdown.is_exact()), (true_parameters, true), "{}", case.name);
    }
}
