//! Answers questions of solvers from the configuration and the file metadata, with a limit on the total work.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;

use serde_json::value::RawValue;

use super::pattern::Pattern;
use super::scheme::Scheme;
use super::schemes::QuantizationConfig;
use crate::base::json_object::{JsonObject, number, read};
use crate::count::UnresolvedReason;
use crate::count::experts::Embedding;
use crate::count::module::product;

/// The maximum number of steps for all choices of one count, about two seconds of work. Three patterns for each
/// module of Kimi-K2.5 would take a sixth of them.
const MAX_STEPS: u64 = 1_000_000_000;

/// The steps charged for reading a value from a scheme.
const STEPS_PER_SCHEME: u64 = 16;

/// The configuration as seen by solvers, with a limit on the total work.
pub(crate) struct Hints<'a> {
    config: &'a QuantizationConfig,
    dimensions: &'a Dimensions,
    shapes: &'a MetadataShapes,
    steps_left: Cell<u64>,
    /// True if an answer depended on a module's name.
    depends_on_name: Cell<bool>,
}

impl<'a> Hints<'a> {
    pub(crate) fn new(
        config: &'a QuantizationConfig,
        dimensions: &'a Dimensions,
        shapes: &'a MetadataShapes,
    ) -> Self {
        let (steps_left, depends_on_name) = (Cell::new(MAX_STEPS), Cell::new(false));
        Self { config, dimensions, shapes, steps_left, depends_on_name }
    }

    /// Solves a module. Also returns true if the solution is valid for all modules with components of the same shapes.
    pub(crate) fn solve<T>(&self, solve: impl FnOnce(&Self) -> T) -> (T, bool) {
        self.depends_on_name.set(false);
        let solution = solve(self);
        (solution, !self.depends_on_name.get())
    }

    /// Returns whether the configuration names one of `methods`.
    pub(crate) fn is_method(&self, methods: &[&str]) -> bool {
        self.config.method.as_deref().is_some_and(|method| methods.contains(&method))
    }

    /// Returns true if the work exceeded the limit. From then on, no answer can be trusted.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps_left.get() == 0
    }

    /// Uses up all steps.
    #[cfg(test)]
    pub(crate) fn exhaust(&self) {
        self.steps_left.set(0);
    }

    /// Returns the bits of a module's weights, if the configuration gives them.
    pub(crate) fn bits(&self, module: &str) -> Option<u64> {
        self.choose(module, |scheme| scheme.bits).ok().flatten()
    }

    /// Returns the value that the configuration's schemes give for a module; `None` if no scheme gives one.
    ///
    /// A scheme that names the module takes precedence. Otherwise, if all schemes that give a value agree, that value
    /// applies. If not, the first matching pattern decides, and then the default schemes.
    ///
    /// # Errors
    ///
    /// Returns an error if several values remain possible.
    pub(crate) fn choose<T: PartialEq>(
        &self,
        module: &str,
        value: impl Fn(&Scheme) -> Option<T>,
    ) -> Result<Option<T>, UnresolvedReason> {
        if let Some(named) = self.named(module).and_then(&value) {
            return Ok(Some(named));
        }
        match self.common(self.config.schemes.iter(), &value) {
            Err(UnresolvedReason::AmbiguousScheme) => {}
            common => return common,
        }
        let (mut chosen, mut possible) = (None, Vec::new());
        for (pattern, scheme) in self.matching(module) {
            match value(scheme) {
                Some(value) if pattern.is_supported() => {
                    chosen = Some(value);
                    break;
                }
                value => possible.extend(value),
            }
        }
        let chosen = match chosen {
            Some(value) => Some(value),
            None => self.common(self.config.defaults(), &value)?,
        };
        // An unsupported pattern might have matched.
        let is_sure = possible.iter().all(|value| Some(value) == chosen.as_ref());
        chosen.filter(|_| is_sure).map(Some).ok_or(UnresolvedReason::AmbiguousScheme)
    }

    /// Returns the value that the configuration's schemes give for a module.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no value, or if several values remain possible.
    pub(crate) fn require<T: PartialEq>(
        &self,
        module: &str,
        value: impl Fn(&Scheme) -> Option<T>,
    ) -> Result<T, UnresolvedReason> {
        self.choose(module, value)?.ok_or(UnresolvedReason::AmbiguousScheme)
    }

    /// Returns whether the configuration quantizes a linear module to at most eight bits, if no list excludes it.
    pub(crate) fn packs(&self, module: &str) -> bool {
        let is_packed = |scheme: &Scheme| scheme.bits.is_none_or(|bits| bits <= 8);
        if let Some(scheme) = self.named(module) {
            return is_packed(scheme);
        }
        match self.matching(module).first() {
            Some((pattern, scheme)) => pattern.is_supported() && is_packed(scheme),
            None if self.config.schemes.is_empty() => true,
            None => {
                self.config.defaults().next().is_some() && self.config.defaults().all(is_packed)
            }
        }
    }

    /// Returns the scheme that names a module, in full or by its last segments.
    fn named(&self, module: &str) -> Option<&'a Scheme> {
        if !self.config.has_names() {
            return None;
        }
        self.depends_on_name.set(true);
        let ends = module.match_indices('.').map(|(at, _)| &module[at + 1..]);
        let names = std::iter::once(module).chain(ends);
        let mut names = names.take_while(|name| self.spend(name.len() as u64));
        // compressed-tensors also names classes of modules.
        let class =
            || self.config.named("Embedding").filter(|_| Embedding::is_read_by_rows(module));
        names.find_map(|name| self.config.named(name)).or_else(class)
    }

    /// Returns the value common to all schemes that define one.
    fn common<T: PartialEq>(
        &self,
        schemes: impl Iterator<Item = &'a Scheme>,
        value: impl Fn(&Scheme) -> Option<T>,
    ) -> Result<Option<T>, UnresolvedReason> {
        let mut first = None;
        for scheme in schemes {
            if !self.spend(STEPS_PER_SCHEME) {
                return Err(UnresolvedReason::TooComplex);
            }
            match (&first, value(scheme)) {
                (_, None) => {}
                (None, found) => first = found,
                (Some(first), Some(other)) if *first == other => {}
                _ => return Err(UnresolvedReason::AmbiguousScheme),
            }
        }
        Ok(first)
    }

    /// Returns the patterns that match a module or are unsupported, with their schemes, in order of precedence.
    fn matching(&self, module: &str) -> Vec<(&'a Pattern, &'a Scheme)> {
        self.depends_on_name.set(true);
        let patterns =
            self.config.patterns().take_while(|(pattern, _)| self.spend(pattern.steps(module)));
        let matching = patterns.filter_map(|(pattern, scheme)| {
            let unsupported = || (!pattern.is_supported()).then_some(0);
            Some((pattern.matches(module).or_else(unsupported)?, pattern, scheme))
        });
        let mut matching: Vec<_> = matching.collect();
        matching.sort_by_key(|(precedence, ..)| *precedence);
        matching.into_iter().map(|(_, pattern, scheme)| (pattern, scheme)).collect()
    }

    /// Spends steps. Returns false if too few were left.
    fn spend(&self, steps: u64) -> bool {
        let left = self.steps_left.get().checked_sub(steps);
        self.steps_left.set(left.unwrap_or_default());
        left.is_some()
    }

    /// Returns the number of weights of a module according to the files' metadata.
    pub(crate) fn metadata_elements(&self, module: &str) -> Option<u64> {
        self.depends_on_name.set(true);
        self.shapes.elements(module)
    }

    /// Returns whether the files' metadata say that each byte of a module contains two weights.
    pub(crate) fn is_packed_by_metadata(&self, module: &str) -> bool {
        if self.shapes.packed.is_empty() {
            return false;
        }
        self.depends_on_name.set(true);
        self.shapes.packed.contains(module)
    }

    /// Returns whether the configuration contains a dimension.
    pub(crate) fn is_dimension(&self, dimension: u64) -> bool {
        self.dimensions.lengths.contains(&dimension)
    }

    /// Returns whether the configuration contains a dimension, or a tensor has a side of this length.
    pub(crate) fn is_side(&self, length: u64) -> bool {
        self.is_dimension(length) || self.shapes.sides.contains(&length)
    }

    /// Returns the model dimensions in a range, in descending order.
    pub(crate) fn dimensions(
        &self,
        range: RangeInclusive<u64>,
    ) -> impl Iterator<Item = u64> + Clone + '_ {
        let range = if range.is_empty() { 0..=0 } else { range };
        let dimensions = self.dimensions.lengths.range(range).rev().copied();
        dimensions.take_while(|_| self.spend(1))
    }

    /// Returns the unpadded outputs of a module whose packer pads to a multiple. The outputs of the head are the
    /// vocabulary.
    pub(crate) fn unpadded_outputs(&self, module: &str, outputs: u64, multiple: u64) -> Side {
        self.depends_on_name.set(true);
        let is_head = module.ends_with("lm_head") || module == "output" || module == "head";
        let range = outputs.saturating_sub(multiple - 1)..=outputs;
        match self.dimensions.vocabulary {
            Some(vocabulary) if is_head && range.contains(&vocabulary) => {
                Side { length: vocabulary, is_certain: true }
            }
            _ => self.unpadded(outputs, multiple),
        }
    }

    /// Returns the unpadded length of a side: its length if a bias or norm has the same, or the largest model dimension
    /// that would be padded to it.
    pub(crate) fn unpadded(&self, side: u64, multiple: u64) -> Side {
        if self.shapes.sides.contains(&side) {
            return Side { length: side, is_certain: true };
        }
        let listed = self.dimensions(side.saturating_sub(multiple - 1)..=side).next();
        Side { length: listed.unwrap_or(side), is_certain: listed == Some(side) }
    }
}

/// A side of a weight matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) length: u64,
    /// False if padding makes the length uncertain.
    pub(crate) is_certain: bool,
}

/// The dimensions of weight matrices in a model's configuration, from which the size of a padded weight follows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dimensions {
    pub(crate) vocabulary: Option<u64>,
    pub(crate) lengths: BTreeSet<u64>,
}

/// Suffixes of keys whose values are dimensions of weight matrices.
const DIMENSION_KEYS: [&str; 9] = [
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

impl Dimensions {
    /// Adds the dimensions of a model, such as `hidden_size`.
    pub(crate) fn add_model(&mut self, model: &JsonObject<'_>) {
        const MAX_DIMENSIONS: usize = 1_000;

        let is_dimension = |key: &str| DIMENSION_KEYS.iter().any(|end| key.ends_with(end));
        let listed = model.entries().filter(|(key, _)| is_dimension(key));
        let listed = listed.filter_map(|(_, value)| number(value)).take(MAX_DIMENSIONS);
        self.lengths.extend(listed);
        self.vocabulary = self.vocabulary.or_else(|| model.number("vocab_size"));
        let heads = model.number("num_attention_heads");
        let per_head = || model.number("hidden_size")?.checked_div(heads?);
        let width = model.number("head_dim").or_else(per_head);
        for heads in [heads, model.number("num_key_value_heads")].into_iter().flatten() {
            self.lengths.extend(width.and_then(|width| heads.checked_mul(width)));
        }
        // Multi-head latent attention (MLA) of DeepSeek.
        let values = model.number("v_head_dim").zip(heads);
        self.lengths.extend(values.and_then(|(values, heads)| values.checked_mul(heads)));
        let ranks = ["q_lora_rank", "kv_lora_rank"].map(|key| model.number(key));
        self.lengths.extend(ranks.into_iter().flatten());
        let rope = model.number("qk_rope_head_dim");
        self.lengths.extend(ranks[1].zip(rope).and_then(|(rank, rope)| rank.checked_add(rope)));
    }
}

/// The number of weights per module, according to the metadata of the files.
///
/// torchao writes an entry per tensor, as text such as
/// `"h.0.q_proj.weight": {"_type": "Int4Tensor", "_data": {"shape": [64, 128]}}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetadataShapes {
    elements: HashMap<Box<str>, u64>,
    /// The modules with two weights per byte, according to the layouts that `ComfyUI` lists for all modules:
    /// `"_quantization_metadata": {"layers": {"blocks.0.to_q": {"format": "convrot_w4a4"}}}`.
    packed: HashSet<Box<str>>,
    /// The lengths of vectors and the numbers of rows of signed bytes: sides of matrices that packing leaves alone.
    sides: BTreeSet<u64>,
}

/// The key of the layouts of `ComfyUI`.
const COMFY_LAYOUTS: &str = "_quantization_metadata";

/// The layouts of `ComfyUI` with two weights per byte and one scale per row. Source: `comfy/quant_ops.py`.
const COMFY_PACKED: [&str; 2] = ["convrot_w4a4", "int4_tensorwise"];

impl MetadataShapes {
    /// Adds the entries of one file. If a module has several shapes, the smallest wins, so the order of files does
    /// not matter.
    pub(crate) fn add_metadata(&mut self, metadata: &BTreeMap<String, String>) {
        for (name, text) in metadata {
            let module = name.strip_suffix(".weight");
            if let (Some(module), Some(elements)) = (module, elements(text)) {
                let known = self.elements.entry(module.into()).or_insert(elements);
                *known = elements.min(*known);
            }
        }
        let layouts = metadata.get(COMFY_LAYOUTS).and_then(|text| serde_json::from_str(text).ok());
        let layers = layouts.and_then(|layouts: JsonObject| layouts.get::<JsonObject>("layers"));
        for (module, layout) in layers.iter().flat_map(JsonObject::entries) {
            let format =
                read::<JsonObject>(layout).and_then(|layout| layout.get::<String>("format"));
            if format.is_some_and(|format| COMFY_PACKED.contains(&&*format)) {
                self.packed.insert(module.into());
            }
        }
    }

    /// Adds a side of a matrix that is not packed along it.
    pub(crate) fn add_side(&mut self, side: u64) {
        /// Models have a few dozen.
        const MAX_SIDES: usize = 1024;

        if self.sides.len() < MAX_SIDES {
            self.sides.insert(side);
        }
    }

    pub(crate) fn elements(&self, module: &str) -> Option<u64> {
        self.elements.get(module).copied()
    }
}

/// The maximum length of an entry, in bytes. torchao writes a few hundred.
const MAX_ENTRY_LENGTH: usize = 16_384;

/// Returns the number of elements of the shape in an entry.
fn elements(text: &str) -> Option<u64> {
    if text.len() > MAX_ENTRY_LENGTH || !text.contains("\"shape\"") {
        return None;
    }
    let entry: JsonObject = serde_json::from_str(text).ok()?;
    let shape = entry.get::<JsonObject>("_data")?.get::<Vec<&RawValue>>("shape")?;
    let shape = shape.into_iter().map(number).collect::<Option<Vec<_>>>()?;
    product(&shape).filter(|_| !shape.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses bits until no steps are left, and returns the number of choices.
    fn choices(json: &str, module: &str) -> u64 {
        let config =
            QuantizationConfig::from_section(&serde_json::from_str(json).unwrap()).unwrap();
        let (dimensions, shapes) = (Dimensions::default(), MetadataShapes::default());
        let hints = Hints::new(&config, &dimensions, &shapes);
        let steps = 1_000_000;
        hints.steps_left.set(steps);
        let choose = || hints.choose(module, |scheme| scheme.bits);
        let answered = (0..steps).take_while(|_| choose() != Err(UnresolvedReason::TooComplex));
        answered.count() as u64
    }

    #[test]
    fn name_dependent_answers_are_not_reused() {
        let cases = [
            (r#"{"bits":4}"#, true),
            (r#"{"bits":4,"lm_head":{"bits":8}}"#, false),
            (r#"{"bits":4,"dynamic":{"+:.*k$":{"bits":8}}}"#, false),
        ];
        for (json, expected) in cases {
            let config =
                QuantizationConfig::from_section(&serde_json::from_str(json).unwrap()).unwrap();
            let (dimensions, shapes) = (Dimensions::default(), MetadataShapes::default());
            let hints = Hints::new(&config, &dimensions, &shapes);
            assert_eq!(hints.solve(|hints| hints.bits("h.0.q")).1, expected, "{json}");
            assert!(!hints.solve(|hints| hints.metadata_elements("h.0.q")).1);
            assert!(!hints.solve(|hints| hints.unpadded_outputs("q", 9, 8)).1);
            assert!(hints.solve(|hints| hints.unpadded(9, 8)).1);
        }
    }

    /// A head is padded by less than the multiple. Outputs of other modules may equal the vocabulary by chance.
    #[test]
    fn the_outputs_of_a_head_are_the_vocabulary() {
        let side = |vocabulary: u64, module: &str| {
            let model = format!(r#"{{"vocab_size":{vocabulary}}}"#);
            let mut dimensions = Dimensions::default();
            dimensions.add_model(&serde_json::from_str(&model).unwrap());
            let (config, shapes) = (QuantizationConfig::default(), MetadataShapes::default());
            Hints::new(&config, &dimensions, &shapes).unpadded_outputs(module, 16, 8)
        };
        let lengths = [8, 9, 16, 17].map(|vocabulary| side(vocabulary, "model.lm_head").length);
        assert_eq!(lengths, [16, 9, 16, 16]);
        let are_certain =
            ["lm_head", "output", "head", "q"].map(|module| side(9, module).is_certain);
        assert_eq!(are_certain, [true, true, true, false]);
    }

    /// Many schemes, long names and expensive patterns must not exceed the limit.
    #[test]
    fn total_work_is_limited() {
        let schemes: Vec<_> =
            (1..=900).map(|at| format!(r#""m{at}":{{"bits":4,"group_size":{at}}}"#)).collect();
        let schemes = format!("{{{}}}", schemes.join(","));
        let dots = "a.".repeat(1_000);
        let patterns = r#"{"a":{"bits":4},"re:.*b":{"bits":8},"re:(a+)+$":{"bits":2}}"#;
        for (json, module, most) in
            [(schemes.as_str(), "x", 70), (r#"{"x":{"bits":4}}"#, &dots, 1), (patterns, &dots, 5)]
        {
            let choices = choices(json, module);
            assert!((0..=most).contains(&choices), "{choices} choices of {most}");
        }
    }

    #[test]
    fn the_order_of_files_does_not_matter() {
        let file = |columns: u64| {
            let text = format!(r#"{{"_data":{{"shape":[2,{columns}]}}}}"#);
            BTreeMap::from([("m.weight".to_owned(), text)])
        };
        for order in [[3, 4], [4, 3]] {
            let mut shapes = MetadataShapes::default();
            for columns in order {
                shapes.add_metadata(&file(columns));
            }
            assert_eq!(shapes.elements("m"), Some(6), "{order:?}");
        }
    }

    #[test]
    fn layouts_of_comfyui_are_read_from_metadata() {
        let cases = [
            (r#"{"layers":{"m":{"format":"convrot_w4a4","convrot_groupsize":256}}}"#, true),
            (r#"{"layers":{"m":{"format":"int8_tensorwise"}}}"#, false),
            (r#"{"layers":{"n":{"format":"convrot_w4a4"}}}"#, false),
            (r#"{"layers":{"m":"convrot_w4a4"}}"#, false),
            ("[", false),
        ];
        for (text, expected) in cases {
            let metadata = BTreeMap::from([(COMFY_LAYOUTS.to_owned(), text.to_owned())]);
            let mut shapes = MetadataShapes::default();
            shapes.add_metadata(&metadata);
            let (config, dimensions) = (QuantizationConfig::default(), Dimensions::default());
            let hints = Hints::new(&config, &dimensions, &shapes);
            assert_eq!(hints.is_packed_by_metadata("m"), expected, "{text}");
        }
    }

    #[test]
    fn shapes_are_read_from_metadata() {
        let cases = [
            (
                r#"{"_type":"Int4Tensor","_data":{"block_size":[1,128],"shape":[64,128]}}"#,
                Some(8192),
            ),
            (r#"{"_type":"Tensor"}"#, None),
            (r#"{"_data":{"shape":[]}}"#, None),
            (r#"{"_data":{"shape":[-1,2]}}"#, None),
            (r#"{"_data":{"shape":[18446744073709551615,2]}}"#, None),
            (r#"{"shape":[2]}"#, None),
            ("shape", None),
        ];
        for (text, expected) in cases {
            let metadata = BTreeMap::from([("m.weight".to_owned(), text.to_owned())]);
            let mut shapes = MetadataShapes::default();
            shapes.add_metadata(&metadata);
            assert_eq!(shapes.elements("m"), expected, "{text}");
        }
    }
}
