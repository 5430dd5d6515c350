//! The packing schemes in a configuration: bits, group sizes, and the modules they apply to.
//!
//! Each library nests schemes differently, so all objects of the quantization section are searched. Shapes take
//! precedence: the configuration only chooses among sizes that fit them.

use thiserror::Error;

use super::key::Key;
use super::pattern::{ModuleEntries, Pattern};
use hf_meta_format::base::json_object::{JsonObject, number, read, strings};
use hf_meta_format::formats::{BlockSize, DetectedFormat, Dtype};

/// An error that makes a configuration file unusable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is not a JSON object.
    #[error("not a JSON object: {message}")]
    Json {
        /// The message of the JSON parser, truncated to 200 characters.
        message: String,
    },
    /// The file contains something else, such as a Git LFS pointer.
    #[error("the file looks like {found}")]
    OtherContent {
        /// The content.
        found: DetectedFormat,
    },
    /// The file lists more modules, patterns or schemes than any known model.
    #[error("more than {limit} {entries}")]
    TooMany {
        /// The maximum number.
        limit: usize,
        /// The kind of entries, such as `quantization schemes`.
        entries: &'static str,
    },
}

/// The maximum number of named modules. A configuration that names every module of the largest models has a few
/// thousand.
const MAX_MODULES: usize = 50_000;

/// The maximum number of distinct schemes. Models with mixed widths have a few dozen.
const MAX_SCHEMES: usize = 1_000;

/// The maximum number of regular expressions, and of their bytes. Compiling multiplies their size by about 30.
const MAX_PATTERNS: usize = 1_000;
const MAX_PATTERN_BYTES: usize = 100_000;

const TOO_MANY_MODULES: ConfigError =
    ConfigError::TooMany { limit: MAX_MODULES, entries: "module entries" };

/// The maximum number of stages in which a weight is quantized.
const MAX_STAGES: usize = 4;

/// The maximum nesting depth to search.
const MAX_DEPTH: usize = 8;

/// Keys of sections that describe something other than the weights.
const NOT_WEIGHTS: [&str; 9] = [
    "input_activations",
    "output_activations",
    "input_tensors",
    "output_tensors",
    "bias",
    "kv_cache_scheme",
    "kv_cache",
    "scale_quant_params",
    "zero_quant_params",
];

/// Keys of sections that do not name a module.
const NOT_MODULES: [&str; 9] = [
    "weight",
    "weights",
    "config",
    "quant_config",
    "quantization",
    "weight_quant_params",
    "global_quant_config",
    "quant_type",
    "_data",
];

/// The key of the bits of the output embedding, and the name of that module.
const HEAD_BITS: &str = "head_bits";
const HEAD: &str = "lm_head";

/// The section of Gemma's quantizer whose keys are patterns. Source: `replace_with_quant_layers` in
/// `transformers/integrations/gemma_quant.py` 5.23.
const GEMMA_PATTERNS: &str = "module_quant_configs";

/// The quantization of a model, according to its configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuantizationConfig {
    /// `quant_method`, in lowercase.
    pub(crate) method: Option<String>,
    /// All distinct schemes.
    pub(crate) schemes: Vec<Scheme>,
    /// The schemes of all modules without a more specific scheme.
    pub(super) defaults: Vec<Scheme>,
    /// The schemes of modules, by names and patterns.
    pub(super) modules: ModuleEntries<Scheme>,
    /// The number of module names and patterns, including repetitions.
    named_count: usize,
    pattern_bytes: usize,
}

impl QuantizationConfig {
    /// Reads a quantization section.
    pub(crate) fn from_section(section: &JsonObject<'_>) -> Result<Self, ConfigError> {
        let method = section.get::<String>("quant_method");
        let method = method.map(|name| hf_meta_format::formats::clip(&name.to_ascii_lowercase()));
        let mut config = Self { method, ..Self::default() };
        config.collect_schemes(section, &[], MAX_DEPTH)?;
        // EXL3 states the bits of the output embedding apart (`head_bits` in `exllamav3/conversion/convert_model.py`).
        if let Some(bits) = section.number(HEAD_BITS) {
            let names = [HEAD.to_owned(), format!("{}[.]{HEAD}$", Pattern::SEARCH)];
            config.add(&names, Scheme { bits: Some(bits), ..Scheme::default() })?;
        }
        Ok(config)
    }

    /// Creates the quantization of `ChatGLM`, which has one width; `None` if the width is 0.
    pub(crate) fn chatglm(bits: u64) -> Option<Self> {
        let bits = Some(bits).filter(|bits| (1..=8).contains(bits))?;
        let schemes = vec![Scheme { bits: Some(bits), ..Scheme::default() }];
        let (method, defaults) = (Some("chatglm".to_owned()), schemes.clone());
        Some(Self { method, schemes, defaults, ..Self::default() })
    }

    /// Returns whether the section contains nothing that a solver could use.
    pub(crate) fn is_empty(&self) -> bool {
        self.method.is_none() && self.schemes.is_empty()
    }

    /// Adds the schemes of an object and its nested objects. `names` are the modules they apply to; empty means all.
    fn collect_schemes(
        &mut self,
        object: &JsonObject<'_>,
        names: &[String],
        depth: usize,
    ) -> Result<(), ConfigError> {
        let targets = strings(object.raw("targets"), MAX_MODULES).ok_or(TOO_MANY_MODULES)?;
        let has_targets = !targets.is_empty();
        let names = if has_targets { &targets[..] } else { names };
        self.add_modules_by_format(object)?;
        let scheme = Scheme::from_object(object);
        if scheme != Scheme::default() {
            self.add(names, scheme)?;
        }
        if depth == 0 {
            return Ok(());
        }
        for (key, value) in object.entries() {
            if NOT_WEIGHTS.contains(&key) {
                continue;
            }
            // Quark lists several schemes for weights that are quantized in stages.
            if NOT_MODULES.contains(&key) && value.get().starts_with('[') {
                for stage in read::<Vec<JsonObject>>(value).iter().flatten().take(MAX_STAGES) {
                    self.collect_schemes(stage, names, depth - 1)?;
                }
            }
            let Some(inner) = read::<JsonObject>(value) else { continue };
            if NOT_MODULES.contains(&key) || has_targets {
                self.collect_schemes(&inner, names, depth - 1)?;
            } else {
                let prefix = if names == [GEMMA_PATTERNS] { Pattern::SEARCH } else { "" };
                self.collect_schemes(&inner, &[format!("{prefix}{key}")], depth - 1)?;
            }
        }
        Ok(())
    }

    /// Adds the modules that SDNQ lists by format: `"modules_dtype_dict": {"int6": ["proj_out.weight"]}`. An entry is
    /// a parameter name, or any segment of one. `minimum_6bit` widens the default format for its modules.
    fn add_modules_by_format(&mut self, object: &JsonObject<'_>) -> Result<(), ConfigError> {
        let formats = object.get::<JsonObject>("modules_dtype_dict").unwrap_or_default();
        let default = object.get::<String>("weights_dtype").and_then(|text| bits_of_format(&text));
        for (format, list) in formats.entries() {
            let least = format.strip_prefix("minimum_").and_then(|text| text.strip_suffix("bit"));
            let bits = match least.and_then(|bits| bits.parse().ok()) {
                Some(least) => default.max(Some(least)),
                None => bits_of_format(format),
            };
            let listed = strings(Some(list), MAX_MODULES).ok_or(TOO_MANY_MODULES)?;
            let modules = listed.iter().map(|name| name.strip_suffix(".weight").unwrap_or(name));
            let segments = listed.iter().filter(|name| !name.contains(['.', '*']));
            let segments = segments.map(|name| Pattern::any_segment(name));
            let names: Vec<_> = modules.map(str::to_owned).chain(segments).collect();
            if !names.is_empty() && bits.is_some() {
                self.add(&names, Scheme { bits, ..Scheme::default() })?;
            }
        }
        Ok(())
    }

    fn add(&mut self, names: &[String], scheme: Scheme) -> Result<(), ConfigError> {
        if !self.schemes.contains(&scheme) {
            self.schemes.push(scheme);
        }
        // compressed-tensors names classes of layers. `Linear` applies to every module.
        if names.is_empty() || names.iter().any(|name| name == "Linear") {
            if !self.defaults.contains(&scheme) {
                self.defaults.push(scheme);
            }
            return self.check_length();
        }
        self.named_count = self.named_count.saturating_add(names.len());
        for name in names {
            if let Some(pattern) = Pattern::from_name(name) {
                self.modules.patterns.push((pattern, scheme));
                self.pattern_bytes = self.pattern_bytes.saturating_add(name.len());
            } else {
                self.modules.names.insert(name.as_str().into(), scheme);
                // The weights may omit the model around the language model. At least two segments remain.
                let ends = name.match_indices('.').map(|(at, _)| &name[at + 1..]).take(2);
                for suffix in ends.filter(|end| end.contains('.')) {
                    self.modules.names.entry(suffix.into()).or_insert(scheme);
                }
            }
            self.check_length()?;
        }
        Ok(())
    }

    fn check_length(&self) -> Result<(), ConfigError> {
        let lengths = [
            (self.schemes.len(), MAX_SCHEMES, "quantization schemes"),
            (self.named_count, MAX_MODULES, "module entries"),
            (self.modules.patterns.len(), MAX_PATTERNS, "module patterns"),
            (self.pattern_bytes, MAX_PATTERN_BYTES, "bytes of module patterns"),
        ];
        let exceeded = lengths.into_iter().find(|(length, limit, _)| length > limit);
        exceeded.map_or(Ok(()), |(_, limit, entries)| Err(ConfigError::TooMany { limit, entries }))
    }
}

/// The parameters of a packing; `None` if the configuration does not specify them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheme {
    /// The bits per weight, from 1 to 32.
    pub(crate) bits: Option<u64>,
    /// True if all weights of a row share a scale.
    pub(super) has_row_scales: bool,
    /// The number of weights that share a scale.
    pub(crate) group_size: Option<u64>,
    /// The number of weights that a code represents.
    pub(crate) vector_length: Option<u64>,
    pub(crate) in_features: Option<u64>,
    pub(crate) out_features: Option<u64>,
    /// The block size of a GGUF type.
    pub(crate) block: Option<BlockSize>,
}

impl Scheme {
    const BITS: [&str; 8] =
        ["bits", "num_bits", "w_bit", "wbits", "weight_bits", "nbits", "w_bits", "quant_bits"];
    const GROUP_SIZE: [&str; 4] = ["group_size", "q_group_size", "groupsize", "block_size"];
    const FORMATS: [&str; 7] = [
        "dtype",
        "weights_dtype",
        "weight_dtype",
        "expert_dtype",
        "store_dtype",
        "quant_algo",
        "weights",
    ];

    fn from_object(object: &JsonObject<'_>) -> Self {
        let find = |keys: &[&str]| keys.iter().find_map(|key| object.number(key));
        let bits = find(&Self::BITS).filter(|bits| (1..=32).contains(bits));
        let formats = || Self::FORMATS.iter().filter_map(|key| object.get::<String>(key));
        let lengths = object.get::<Vec<&serde_json::value::RawValue>>("vector_lens");
        Self {
            bits: bits.or_else(|| formats().find_map(|format| bits_of_format(&format))),
            has_row_scales: object.get::<&str>("strategy") == Some("channel"),
            group_size: find(&Self::GROUP_SIZE).filter(|&size| size > 0),
            vector_length: lengths
                .and_then(|lengths| lengths.into_iter().filter_map(number).find(|&n| n > 0)),
            in_features: object.number("in_features"),
            out_features: object.number("out_features"),
            block: object.get::<String>("bits").and_then(|name| block_of_type(&name)),
        }
    }

    /// Returns the number under a key; `None` for a key that a recipe states for all modules at once.
    pub(crate) fn number(&self, key: Key) -> Option<u64> {
        match key {
            Key::GroupSize => self.group_size,
            Key::InFeatures => self.in_features,
            Key::OutFeatures => self.out_features,
            Key::VectorLength => self.vector_length,
            Key::BlockBytes => self.block.map(|block| block.bytes),
            Key::BlockElements => self.block.map(|block| block.elements),
            _ => None,
        }
    }
}

/// Returns the bits per weight stated in a format name, such as `int4`, `mxfp4` or `W4A16`.
fn bits_of_format(format: &str) -> Option<u64> {
    let format = format.to_ascii_lowercase();
    let bits = |after: &str| {
        let end = after.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
        after[..end].parse().ok()
    };
    let names = ["int", "float", "fp", "nf"];
    let width = names.iter().find_map(|name| bits(&format[format.find(name)? + name.len()..]));
    // Weights and activations, as in `W4A16_AWQ`.
    width.or_else(|| bits(format.strip_prefix('w')?)).filter(|bits| (1..=32).contains(bits))
}

/// Returns the block size of a GGUF type, such as `q4_0` or `q4_k_m`.
fn block_of_type(name: &str) -> Option<BlockSize> {
    /// The number of weights in the smallest block of a quantized type.
    const MIN_BLOCK: u64 = 32;

    let name = name.to_ascii_uppercase();
    let name = ["_S", "_M", "_L"].iter().find_map(|size| name.strip_suffix(size)).unwrap_or(&name);
    Dtype::from(name).block().filter(|block| block.elements >= MIN_BLOCK)
}

#[cfg(test)]
mod tests {
    use super::super::choice::Schemes;
    use super::*;
    use crate::count::UnresolvedReason;

    fn config(json: &str) -> QuantizationConfig {
        QuantizationConfig::from_section(&serde_json::from_str(json).unwrap()).unwrap()
    }

    fn bits(config: &QuantizationConfig, module: &str) -> Result<Option<u64>, UnresolvedReason> {
        Schemes::new(config).of_module(module).choose(1, |scheme| scheme.bits)
    }

    #[test]
    fn bits_are_found_in_every_form() {
        let cases = [
            (r#"{"bits":4}"#, Some(4)),
            (r#"{"bits":"4"}"#, Some(4)),
            (r#"{"bits":4.0}"#, Some(4)),
            (r#"{"bits":0}"#, None),
            (r#"{"bits":64}"#, None),
            (r#"{"bits":-1}"#, None),
            (r#"{"bits":1e300}"#, None),
            (r#"{"w_bit":3}"#, Some(3)),
            (
                r#"{"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8}}}}"#,
                Some(8),
            ),
            (
                r#"{"quant_config":{"weight_quant_params":{"nbits":2},"scale_quant_params":{"nbits":8}}}"#,
                Some(2),
            ),
            (
                r#"{"global_quant_config":{"weight":{"dtype":"uint4"},"bias":{"dtype":"int8"}}}"#,
                Some(4),
            ),
            (r#"{"expert_dtype":"mxfp4"}"#, Some(4)),
            ("{}", None),
        ];
        for (json, expected) in cases {
            assert_eq!(bits(&config(json), "m"), Ok(expected), "{json}");
        }
    }

    #[test]
    fn nesting_depth_is_limited() {
        for (before, after) in [(r#"{"config":"#, "}"), (r#"{"m":"#, "}"), (r#"{"weight":["#, "]}")]
        {
            let nested = |depth: usize| {
                let json = format!("{}{{\"bits\":4}}{}", before.repeat(depth), after.repeat(depth));
                bits(&config(&json), "m")
            };
            assert_eq!([MAX_DEPTH, MAX_DEPTH + 1].map(nested), [Ok(Some(4)), Ok(None)], "{before}");
        }
    }

    #[test]
    fn the_scheme_of_a_module_takes_precedence() {
        let config = config(
            r#"{"bits":4,"lm_head":{"bits":8},"extra_config":{"h.0.q":{"bits":2}},
                "dynamic":{"+:.*\\.k$":{"bits":3}},
                "config_groups":{"a":{"targets":["re:.*(x|y)_proj$"],"weights":{"num_bits":6}}}}"#,
        );
        let cases = [
            ("lm_head", 8),
            ("h.0.q", 2),
            ("h.1.q", 4),
            ("h.0.k", 3),
            ("h.x_proj", 6),
            ("h.x_proj.z", 4),
        ];
        for (module, expected) in cases {
            assert_eq!(bits(&config, module), Ok(Some(expected)), "{module}");
        }
    }

    #[test]
    fn ambiguous_schemes_are_unresolved() {
        let config = config(r#"{"a":{"bits":4},"b":{"bits":8},"(?=c)":{"bits":2}}"#);
        assert_eq!(bits(&config, "c"), Err(UnresolvedReason::AmbiguousScheme));
        assert_eq!(bits(&config, "a"), Ok(Some(4)));
    }

    #[test]
    fn configurations_up_to_the_limits_are_read() {
        let names = |name: &str, names: usize| {
            let targets = vec![format!("\"{name}\""); names].join(",");
            let json = format!(r#"{{"bits":4,"targets":[{targets}]}}"#);
            QuantizationConfig::from_section(&serde_json::from_str(&json).unwrap())
        };
        assert!(names("m", MAX_MODULES).is_ok());
        assert!(names("re:m", MAX_PATTERNS).is_ok());
        let long = format!("re:{}", "m".repeat(997));
        assert!(names(&long, MAX_PATTERN_BYTES / 1_000).is_ok());
        assert!(names(&long, MAX_PATTERN_BYTES / 1_000 + 1).is_err());
    }

    #[test]
    fn oversized_configurations_are_errors() {
        let many = |most: usize, entry: fn(usize) -> String| {
            let entries: Vec<_> = (0..=most).map(entry).collect();
            let json = format!("{{{}}}", entries.join(","));
            QuantizationConfig::from_section(&serde_json::from_str(&json).unwrap()).unwrap_err()
        };
        let limit = MAX_PATTERNS;
        let error = many(limit, |at| format!(r#""re:{at}":{{"bits":4}}"#));
        assert_eq!(error, ConfigError::TooMany { limit, entries: "module patterns" });
        let error = many(limit - 1, |at| format!(r#""re:{}{at}":{{"bits":4}}"#, "x".repeat(100)));
        assert_eq!(error.to_string(), "more than 100000 bytes of module patterns");
        let error = many(MAX_MODULES, |at| format!(r#""{at}":{{"bits":4}}"#));
        assert_eq!(error, TOO_MANY_MODULES);
        // Names that many objects inherit, and long lists of names.
        let error = many(60, |at| match at {
            0 => format!(r#""targets":[{}"m"]"#, r#""m","#.repeat(999)),
            at => format!(r#""a{at}":{{"group_size":{at}}}"#),
        });
        assert_eq!(error, TOO_MANY_MODULES);
        for key in [r#""targets":["#, r#""modules_dtype_dict":{"int6":["#] {
            let (list, end) =
                (r#""m","#.repeat(MAX_MODULES), if key.contains('{') { "}" } else { "" });
            let json = format!(r#"{{{key}{list}"m"]{end}}}"#);
            let found = QuantizationConfig::from_section(&serde_json::from_str(&json).unwrap());
            assert_eq!(found.unwrap_err(), TOO_MANY_MODULES);
        }
        let error = many(MAX_SCHEMES, |at| format!(r#""{at}":{{"group_size":{}}}"#, at + 1));
        assert_eq!(error.to_string(), "more than 1000 quantization schemes");
    }

    #[test]
    fn groups_and_vectors_have_at_least_one_weight() {
        let json = r#"{"bits":4,"group_size":0,"vector_lens":[0,8]}"#;
        let scheme = Scheme::from_object(&serde_json::from_str(json).unwrap());
        assert_eq!((scheme.group_size, scheme.vector_length), (None, Some(8)));
    }

    /// The suffix of a mix, as in `q4_k_m`, does not change the block.
    #[test]
    fn gguf_types_have_block_sizes() {
        let cases = [
            ("q4_0", Some((32, 18))),
            ("Q5_1", Some((32, 24))),
            ("iq4_nl", Some((32, 18))),
            ("q4_k_m", Some((256, 144))),
            ("q3_k_l", Some((256, 110))),
            ("q6_k", Some((256, 210))),
            ("4", None),
            ("f16", None),
            ("f4", None),
        ];
        for (name, expected) in cases {
            let found = block_of_type(name).map(|block| (block.elements, block.bytes));
            assert_eq!(found, expected, "{name}");
        }
    }
}
