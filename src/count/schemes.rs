//! The packing schemes that a configuration lists: bits, group sizes, and the modules that they are for.
//!
//! Each library nests them differently, so all objects of the quantization section are searched. Shapes are
//! looked at first. The configuration only chooses among sizes that fit the shapes.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use regex_lite::{Regex, RegexBuilder};

use super::ConfigError;
use super::json_object::{JsonObject, number, read};
use super::metadata::MetadataShapes;
use super::module::UnresolvedReason;

/// The largest number of schemes in a configuration. A configuration that names every module of the largest models has
/// some thousands.
const MOST_SCHEMES: usize = 50_000;

/// The largest number of regular expressions, and their largest length in bytes.
const MOST_PATTERNS: usize = 1_000;
const LONGEST_PATTERN: usize = 500;

/// The largest number of comparisons of a name with a pattern in one count.
const MOST_COMPARISONS: u32 = 100_000;

/// The deepest nesting that is searched.
const DEEPEST: usize = 8;

/// Ends of keys whose values are sides of weight matrices.
const DIMENSIONS: [&str; 9] = [
    "hidden_size",
    "intermediate_size",
    "vocab_size",
    "hidden_dim",
    "embed_dim",
    "ffn_dim",
    "d_model",
    "d_ff",
    "n_embd",
];

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

/// The quantization of a model, as its configuration gives it.
#[derive(Clone, Debug, Default)]
pub(super) struct QuantizationConfig {
    /// `quant_method`, in lower case.
    method: Option<String>,
    /// The schemes of modules that are not named.
    defaults: Vec<Scheme>,
    named: HashMap<Box<str>, Scheme>,
    patterns: Vec<(Pattern, Scheme)>,
    /// The size of the vocabulary.
    vocabulary: Option<u64>,
    /// The dimensions that the configuration of the model lists.
    dimensions: BTreeSet<u64>,
}

/// The parameters of a packing; `None` where the configuration says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scheme {
    /// The bits of a weight, from 1 to 32.
    pub(super) bits: Option<u64>,
    /// The number of weights that share a scale.
    pub(super) group_size: Option<u64>,
    /// The number of weights that a code stands for.
    pub(super) vector_length: Option<u64>,
    pub(super) in_features: Option<u64>,
    pub(super) out_features: Option<u64>,
    /// The block of a GGUF type.
    pub(super) block: Option<GgufBlock>,
}

/// The smallest block of a GGUF type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GgufBlock {
    /// The number of weights in a block.
    pub(super) weights: u64,
    /// The number of bytes of a block.
    pub(super) bytes: u64,
}

/// A regular expression, compiled when a choice needs it.
#[derive(Clone, Debug)]
struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Option<Regex>>,
}

impl QuantizationConfig {
    /// Reads a quantization section.
    pub(super) fn from_section(section: &JsonObject<'_>) -> Result<Self, ConfigError> {
        let method = section.get::<String>("quant_method");
        let method = method.map(|name| crate::formats::clip(&name.to_lowercase()));
        let mut config = Self { method, ..Self::default() };
        config.search(section, &[], DEEPEST)?;
        Ok(config)
    }

    /// Adds the dimensions that the configuration of a model lists, such as `hidden_size`.
    pub(super) fn add_dimensions(&mut self, model: &JsonObject<'_>) {
        const MOST_DIMENSIONS: usize = 1_000;

        let is_dimension = |key: &str| DIMENSIONS.iter().any(|end| key.ends_with(end));
        let numbers = model
            .entries()
            .filter(|(key, _)| is_dimension(key))
            .filter_map(|(_, value)| number(value));
        let heads = model.number("num_attention_heads").zip(model.number("head_dim"));
        self.dimensions.extend(heads.and_then(|(heads, width)| heads.checked_mul(width)));
        self.vocabulary = self.vocabulary.or_else(|| model.number("vocab_size"));
        self.dimensions.extend(numbers.take(MOST_DIMENSIONS));
    }

    /// Returns the configuration with the dimensions of another one.
    pub(super) fn with_dimensions_of(self, other: Self) -> Self {
        Self { dimensions: other.dimensions, vocabulary: other.vocabulary, ..self }
    }

    /// Returns the name of the method, in lower case.
    pub(super) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Returns whether the section says anything that a solver could use.
    pub(super) fn is_empty(&self) -> bool {
        self.method.is_none()
            && self.defaults.is_empty()
            && self.named.is_empty()
            && self.patterns.is_empty()
    }

    /// Adds the scheme of an object, and those of the objects in it. `names` are the modules that it is for; none for
    /// all.
    fn search(
        &mut self,
        object: &JsonObject<'_>,
        names: &[String],
        depth: usize,
    ) -> Result<(), ConfigError> {
        let targets: Vec<_> = object.strings("targets").iter().map(ToString::to_string).collect();
        let has_targets = !targets.is_empty();
        let names = if has_targets { &targets[..] } else { names };
        let scheme = Scheme::from_object(object);
        if scheme != Scheme::default() {
            self.add(names, scheme)?;
        }
        if depth == 0 {
            return Ok(());
        }
        for (key, value) in object.entries() {
            if NOT_WEIGHTS.contains(&key) || !value.get().starts_with('{') {
                continue;
            }
            let Some(inner) = read::<JsonObject>(value) else { continue };
            if NOT_MODULES.contains(&key) || has_targets {
                self.search(&inner, names, depth - 1)?;
            } else {
                self.search(&inner, &[key.to_owned()], depth - 1)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, names: &[String], scheme: Scheme) -> Result<(), ConfigError> {
        // A class of layers, as compressed-tensors writes it, is every module.
        if names.is_empty() || names.iter().any(|name| name == "Linear") {
            self.defaults.push(scheme);
            return self.check_length();
        }
        for name in names {
            match pattern(name) {
                Some(pattern) => self.patterns.push((Pattern::new(&pattern), scheme)),
                None => drop(self.named.insert(name.as_str().into(), scheme)),
            }
        }
        self.check_length()
    }

    fn check_length(&self) -> Result<(), ConfigError> {
        if self.defaults.len() + self.named.len() > MOST_SCHEMES {
            return Err(ConfigError::TooManyModules { limit: MOST_SCHEMES });
        }
        if self.patterns.len() > MOST_PATTERNS {
            return Err(ConfigError::TooManyPatterns { limit: MOST_PATTERNS });
        }
        Ok(())
    }

    /// Returns the scheme of a module by its name, or by the last components of it.
    fn named(&self, module: &str) -> Option<&Scheme> {
        if self.named.is_empty() {
            return None;
        }
        let ends = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
        std::iter::once(module).chain(ends).find_map(|name| self.named.get(name))
    }

    fn schemes(&self) -> impl Iterator<Item = &Scheme> {
        let named = self.named.values().chain(self.patterns.iter().map(|(_, scheme)| scheme));
        self.defaults.iter().chain(named)
    }
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
            group_size: find(&Self::GROUP_SIZE).filter(|&size| size > 0),
            vector_length: lengths.and_then(|lengths| lengths.into_iter().find_map(number)),
            in_features: object.number("in_features"),
            out_features: object.number("out_features"),
            block: object.get::<String>("bits").and_then(|name| GgufBlock::from_type(&name)),
        }
    }
}

impl GgufBlock {
    /// Returns the block of a type, such as `q4_0` or `q4_k_m`. Sizes from `ggml-quants.h`.
    fn from_type(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let name =
            ["_s", "_m", "_l"].iter().find_map(|size| name.strip_suffix(size)).unwrap_or(&name);
        let (weights, bytes) = match name {
            "q4_0" | "iq4_nl" => (32, 18),
            "q4_1" => (32, 20),
            "q5_0" => (32, 22),
            "q5_1" => (32, 24),
            "q8_0" => (32, 34),
            "q2_k" => (256, 84),
            "q3_k" => (256, 110),
            "q4_k" => (256, 144),
            "q5_k" => (256, 176),
            "q6_k" => (256, 210),
            "iq4_xs" => (256, 136),
            _ => return None,
        };
        Some(Self { weights, bytes })
    }
}

/// Returns the bits of a weight that the name of a format contains, such as `int4` or `mxfp4`.
fn bits_of_format(format: &str) -> Option<u64> {
    let format = format.to_lowercase();
    let digits = ["int", "float", "fp", "nf"].iter().find_map(|name| {
        let after = &format[format.find(name)? + name.len()..];
        let end = after.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
        after[..end].parse().ok()
    });
    digits.filter(|bits| (1..=32).contains(bits))
}

/// Returns the regular expression that a name stands for; `None` if it is an exact name.
///
/// compressed-tensors writes `re:` and GPTQModel `+:`, and both match from the start of a module's name. Others
/// search.
fn pattern(name: &str) -> Option<String> {
    if let Some(pattern) = name.strip_prefix("re:").or_else(|| name.strip_prefix("+:")) {
        return Some(format!("^(?:{pattern})"));
    }
    // Quark writes shell patterns, in which a star stands for any text.
    if name.starts_with('*') {
        return Some(format!("{}$", name.replace('.', "\\.").replace('*', ".*")));
    }
    name.contains(['*', '\\', '[', '(', '^', '$', '|']).then(|| name.to_owned())
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }

    /// Returns whether a name matches. An expression that is too long or that looks around matches nothing.
    fn matches(&self, name: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| {
            let is_short = self.text.len() <= LONGEST_PATTERN;
            let text = is_short.then_some(&self.text)?;
            RegexBuilder::new(text).size_limit(100_000).build().ok()
        });
        compiled.as_ref().is_some_and(|regex| regex.is_match(name))
    }
}

/// The configuration as solvers ask it, with a limit on their comparisons.
pub(super) struct Hints<'a> {
    config: &'a QuantizationConfig,
    shapes: &'a MetadataShapes,
    comparisons_left: Cell<u32>,
}

impl<'a> Hints<'a> {
    pub(super) fn new(config: &'a QuantizationConfig, shapes: &'a MetadataShapes) -> Self {
        Self { config, shapes, comparisons_left: Cell::new(MOST_COMPARISONS) }
    }

    /// Returns whether the configuration names one of some methods.
    pub(super) fn names(&self, methods: &[&str]) -> bool {
        self.config.method.as_deref().is_some_and(|method| methods.contains(&method))
    }

    /// Returns the name of the method, in lower case.
    pub(super) fn method(&self) -> Option<&str> {
        self.config.method()
    }

    /// Returns the bits of a module's weights, if the configuration gives them.
    pub(super) fn bits(&self, module: &str) -> Option<u64> {
        self.choose(module, |scheme| scheme.bits).ok().flatten()
    }

    /// Returns a value that a scheme of the configuration gives for a module; `None` if no scheme gives one.
    ///
    /// A scheme that names the module goes first. Otherwise all schemes that give a value must give the same; where
    /// they do not, patterns choose, and then the scheme of all other modules.
    ///
    /// # Errors
    ///
    /// When several values remain.
    pub(super) fn choose<T: PartialEq>(
        &self,
        module: &str,
        value: impl Fn(&Scheme) -> Option<T>,
    ) -> Result<Option<T>, UnresolvedReason> {
        if let Some(named) = self.config.named(module).and_then(&value) {
            return Ok(Some(named));
        }
        let mut values = self.config.schemes().filter_map(&value);
        let Some(first) = values.next() else { return Ok(None) };
        if values.all(|other| other == first) {
            return Ok(Some(first));
        }
        let patterns = self.config.patterns.iter();
        let mut matching = patterns.filter(|(pattern, _)| self.compare(pattern, module));
        if let Some(value) = matching.find_map(|(_, scheme)| value(scheme)) {
            return Ok(Some(value));
        }
        let mut defaults = self.config.defaults.iter().filter_map(&value);
        match defaults.next() {
            Some(first) if defaults.all(|other| other == first) => Ok(Some(first)),
            _ => Err(UnresolvedReason::SeveralSchemes),
        }
    }

    fn compare(&self, pattern: &Pattern, module: &str) -> bool {
        let left = self.comparisons_left.get();
        self.comparisons_left.set(left.saturating_sub(1));
        left > 0 && pattern.matches(module)
    }

    /// Returns the number of weights that the metadata of the files gives for a module.
    pub(super) fn metadata_elements(&self, module: &str) -> Option<u64> {
        self.shapes.elements(module)
    }

    /// Returns whether the configuration lists a dimension.
    pub(super) fn is_dimension(&self, dimension: u64) -> bool {
        self.config.dimensions.contains(&dimension)
    }

    /// Returns the dimensions of the model in a range, the largest first.
    pub(super) fn dimensions(
        &self,
        range: RangeInclusive<u64>,
    ) -> impl Iterator<Item = u64> + Clone + '_ {
        let range = if range.is_empty() { 0..=0 } else { range };
        self.config.dimensions.range(range).rev().copied()
    }

    /// Returns the outputs of a module before they were padded to a multiple of a number, as far as the configuration
    /// lists them. The outputs of the head are the vocabulary.
    pub(super) fn outputs_without_padding(&self, module: &str, outputs: u64, multiple: u64) -> u64 {
        let is_head = module.ends_with("lm_head") || module == "output" || module == "head";
        let range = outputs.saturating_sub(multiple - 1)..=outputs;
        match self.config.vocabulary {
            Some(vocabulary) if is_head && range.contains(&vocabulary) => vocabulary,
            _ => self.dimensions(range).next().unwrap_or(outputs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> QuantizationConfig {
        QuantizationConfig::from_section(&serde_json::from_str(json).unwrap()).unwrap()
    }

    fn bits(config: &QuantizationConfig, module: &str) -> Result<Option<u64>, UnresolvedReason> {
        Hints::new(config, &MetadataShapes::default()).choose(module, |scheme| scheme.bits)
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
    fn the_scheme_of_a_module_goes_first() {
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
    fn several_schemes_without_a_choice_are_unresolved() {
        let config = config(r#"{"a":{"bits":4},"b":{"bits":8},"(?=c)":{"bits":2}}"#);
        assert_eq!(bits(&config, "c"), Err(UnresolvedReason::SeveralSchemes));
        assert_eq!(bits(&config, "a"), Ok(Some(4)));
    }

    #[test]
    fn long_configurations_are_errors() {
        let many = |most: usize, key: fn(usize) -> String| {
            let entries = (0..=most).map(|at| format!(r#""{}":{{"bits":4}}"#, key(at)));
            let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
            QuantizationConfig::from_section(&serde_json::from_str(&json).unwrap()).unwrap_err()
        };
        let error = many(MOST_PATTERNS, |at| format!("re:{at}"));
        assert_eq!(error, ConfigError::TooManyPatterns { limit: MOST_PATTERNS });
        let error = many(MOST_SCHEMES, |at| at.to_string());
        assert_eq!(error, ConfigError::TooManyModules { limit: MOST_SCHEMES });
    }

    /// A hostile configuration must not cost more than a fixed number of comparisons.
    #[test]
    fn comparisons_are_limited() {
        let config = config(r#"{"a":{"bits":4},"re:.*b":{"bits":8},"re:(a+)+$":{"bits":2}}"#);
        let shapes = MetadataShapes::default();
        let hints = Hints::new(&config, &shapes);
        for _ in 0..MOST_COMPARISONS {
            hints.choose("x", |scheme| scheme.bits).unwrap_err();
        }
        assert_eq!(hints.comparisons_left.get(), 0);
    }
}
