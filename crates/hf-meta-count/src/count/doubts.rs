//! The four doubts about a count: tensors next to weights, the sides of weights, large integers, and the size that the
//! configuration implies.
//!
//! A method that is not declared must not lead to a number that looks exact. Its tensors have unknown names, but packing
//! leaves traces that no unquantized model has. Each doubt looks for one trace, and none changes a count: it only marks the
//! count as uncertain.
//!
//! - Tensors next to weights: a module with a weight matrix contains a bias, and little else. `q_proj.weight` with
//!   `q_proj.rescale` may be a matrix with its scales.
//! - The sides of weights: norms and biases are as long as a side of the matrices next to them. If the norms have 4,096
//!   elements and the matrices are [512, 2048], the 8 values per element of a packed weight explain the difference.
//! - Large integers: weights are floating-point numbers, so a large integer tensor with an unknown name is probably packed.
//! - The size that the configuration implies: a count that differs from the product of its dimensions is wrong somewhere.
//!
//! A false doubt makes a correct count look wrong, so each one needs most of the weights, or a tensor that no known model
//! stores.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memrchr;

use super::expected_weights::ExpectedWeights;
use super::module::{Component, Module, Role, container_bits};
use super::names::pattern::MAX_PARTS;
use super::names::{hash, last_segment, split};
use super::{UnresolvedModules, UnresolvedReason};
use hf_meta_format::base::sort::Ordered;
use hf_meta_format::formats::{Dtype, TensorInfo, clip, product};

/// The names of tensors and modules, besides buffers, that unquantized architectures store next to or below a weight
/// matrix.
///
/// Source: the models of diffusers 0.42, and all architectures of transformers 5.23, which
/// `tests/oracles/architectures.py` compares with the counts.
const KNOWN_PARTS: [&str; 9] = [
    "bias",
    "rms_norm",      // linear layers of BitNet
    "expert_bias",   // routers of Bailing
    "global_scale",  // routers of Inkling
    "weight_1",      // routers of ERNIE 4.5 VL
    "embed_norm",    // embeddings of Inkling
    "eoi_embedding", // embeddings of T5Gemma 2
    "act_fn",        // convolutions of Wan
    "logit_scale",   // heads of Dory
];

/// Returns whether unquantized models store a part next to weights. An adapter may be stored next to the weights that it
/// adapts.
fn is_known_part(part: &str) -> bool {
    let is_adapter = |rest: &str| rest.is_empty() || rest.starts_with('_');
    KNOWN_PARTS.contains(&part) || part.strip_prefix("lora").is_some_and(is_adapter)
}

/// The kinds of paths: a module with a weight matrix, and the parent of another tensor.
const MATRIX: u8 = 1;
const PARENT: u8 = 2;

/// The modules whose weights have an unknown tensor next to or below them.
///
/// Unquantized modules with a weight matrix contain little else: a bias, and in a few architectures one of
/// [`KNOWN_PARTS`]. Any other tensor may belong to a quantization method that no solver knows, so the number of weights
/// is uncertain.
#[derive(Clone, Debug, Default)]
pub(super) struct Siblings {
    /// The kinds of paths, by the hashes of the paths. A hostile file cannot slow down a sorted map.
    paths: BTreeMap<u64, u8>,
    /// A bit for each last byte of a parent, modulo 128. The names of most modules with weights end differently.
    parent_ends: u128,
    /// The parent of a recent tensor, and its parent. The next tensor usually has one of them.
    recent: [String; 2],
    /// The modules with a weight matrix that are parents of other tensors.
    pub(super) found: Option<UnresolvedModules>,
}

impl Siblings {
    /// Adds the path of a tensor that is neither a scalar nor a buffer.
    pub(super) fn add_tensor(&mut self, name: &str, module: &str, component: &Component) {
        if component.role == Role::QuantizerState {
            return;
        }
        // The module of a suffix, as in `gate.global_scale`, may not exist.
        let mut path = if component.is_suffix { name } else { module };
        // All ancestors are parents: `gate.lora.A.weight` is below `gate`, which may be a matrix. Those of the previous
        // tensor are known, so most tensors add nothing.
        let mut recent = 0;
        for _ in 0..MAX_PARTS {
            let Some(dot) = memrchr(b'.', path.as_bytes()) else { return };
            let (parent, part) = (&path[..dot], &path[dot + 1..]);
            if self.recent.iter().any(|recent| recent == parent) {
                return;
            }
            path = parent;
            if is_known_part(part) {
                continue;
            }
            if let Some(recent) = self.recent.get_mut(recent) {
                parent.clone_into(recent);
            }
            recent += 1;
            self.parent_ends |= end_bit(parent);
            if !self.insert(parent, PARENT) {
                return;
            }
        }
    }

    /// Adds the module of a tensor that may contain its weights.
    pub(super) fn add_weights(&mut self, module: &str, component: &Component, tensor: &TensorInfo) {
        if is_matrix(component, tensor) {
            self.insert(module, MATRIX);
        }
    }

    /// Adds a path. Returns false if it was known.
    fn insert(&mut self, path: &str, kind: u8) -> bool {
        let known = self.paths.entry(hash(path)).or_default();
        let before = std::mem::replace(known, *known | kind);
        // Tensors arrive in any order, so the second of both kinds decides, whichever it is.
        if before == (MATRIX | PARENT) - kind {
            self.add_found(path);
        }
        before & kind == 0
    }

    fn add_found(&mut self, module: &str) {
        let new = || UnresolvedModules::new(UnresolvedReason::UnknownTensors);
        self.found.get_or_insert_with(new).add(module, 0);
    }

    /// Adds a module with all its tensors, after all tensors were added.
    pub(super) fn add_module(&mut self, module: &Module<'_>) {
        let may_be_parent = self.parent_ends & end_bit(module.name) != 0;
        if may_be_parent
            && module.tensors.iter().any(|(found, tensor)| is_matrix(found, tensor))
            && self.paths.get(&hash(module.name)) == Some(&PARENT)
        {
            self.add_found(module.name);
        }
    }

    /// Adds a tensor that is counted, although quantizers use the name for auxiliary tensors.
    pub(super) fn add_counted_part(&mut self, module: &str, component: &Component) {
        let is_matrix = || self.paths.get(&hash(module)) == Some(&MATRIX);
        if !is_known_part(component.name) && is_matrix() {
            self.insert(module, PARENT);
        }
    }
}

/// Returns whether a tensor may contain the weight matrix of its module. Floats under the names of packed weights are
/// parameters of unquantized models, such as `W_q`.
fn is_matrix(component: &Component, tensor: &TensorInfo) -> bool {
    let is_weights = component.is_weights() && !component.is_bare();
    let may_be_packed = || component.is_plain() || container_bits(&tensor.dtype).is_some();
    is_weights && tensor.shape.len() > 1 && may_be_packed()
}

/// Returns the bit of the last byte of a path.
fn end_bit(path: &str) -> u128 {
    path.bytes().last().map_or(0, |byte| 1 << (byte % 128))
}

/// The tensors that are counted as stored, by their shapes.
///
/// Quantizers pack matrices and leave vectors alone, such as norms and biases. In an unquantized model, a vector is as
/// long as a side of the matrices next to it, so nearly all weights are in tensors with a side of a known length.
/// Packing several weights into one floating-point element changes the sides, although no dtype or name shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeCheck {
    tensors: BTreeMap<Shape, Tensors>,
    /// The parameters of all tensors, including packed ones.
    parameters: u64,
}

/// The shape of a vector, a matrix or a stack of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    /// The dimensions, with zeros in front.
    sides: [u64; 3],
    /// True for a norm or a bias, whose length is known to be a side of the unpacked model.
    is_norm_or_bias: bool,
}

/// The tensors of one shape.
#[derive(Clone, Debug)]
struct Tensors {
    number: u64,
    parameters: u64,
    /// The first name in alphabetical order.
    example: String,
    /// True if the configuration implies the shape of the example.
    is_expected: bool,
}

impl Shape {
    /// Returns the shape of a tensor; `None` for the kernels of convolutions, which no method packs.
    fn new(name: &str, tensor: &TensorInfo) -> Option<Self> {
        const NORMS_AND_BIASES: [&str; 6] = ["weight", "bias", "gamma", "beta", "scale", "g"];

        let is_named = || NORMS_AND_BIASES.contains(&last_segment(name));
        let (sides, is_norm_or_bias) = match tensor.shape[..] {
            [length] => ([0, 0, length], length > 1 && is_named()),
            [rows, columns] => ([0, rows, columns], false),
            [stacked, rows, columns] => ([stacked, rows, columns], false),
            _ => return None,
        };
        Some(Self { sides, is_norm_or_bias })
    }
}

/// Returns whether a tensor adapts another model, and may have other sides than the modules that are stored with it, such as
/// a new classifier. Source: the names of `peft`, kohya and `LyCORIS`.
fn is_adapter(name: &str) -> bool {
    name.starts_with("base_model.") || name.starts_with("lycoris_") || name.contains("lora")
}

impl ShapeCheck {
    /// The maximum number of shapes. Models have a few hundred.
    const MAX_SHAPES: usize = 4096;
    /// A count is uncertain if more than a quarter of the parameters are in tensors without a known side. In all
    /// unquantized architectures of transformers 5.23, which `tests/oracles/architectures.py` builds, at most a seventh
    /// are.
    const MIN_SHARE: u64 = 4;

    /// Adds the parameters of a packed tensor.
    pub(super) fn add_packed(&mut self, parameters: u64) {
        self.parameters = self.parameters.saturating_add(parameters);
    }

    /// Adds a tensor that is counted as stored. `parameters` is 0 if only its sides matter.
    pub(super) fn add(&mut self, name: &str, tensor: &TensorInfo, parameters: u64) {
        self.add_packed(parameters);
        let Some(shape) = Shape::new(name, tensor) else { return };
        // The first name in alphabetical order makes the finding independent of the order of files.
        if let Some(known) = self.tensors.get_mut(&shape) {
            known.number += 1;
            known.parameters = known.parameters.saturating_add(parameters);
            if name < known.example.as_str() {
                known.example = clip(name);
            }
        } else if self.tensors.len() < Self::MAX_SHAPES {
            let (number, example, is_expected) = (1, clip(name), false);
            self.tensors.insert(shape, Tensors { number, parameters, example, is_expected });
        }
    }

    /// Compares one tensor of each shape with the configuration.
    pub(super) fn compare_with(&mut self, mut expected: ExpectedWeights<'_>) {
        for (shape, tensors) in &mut self.tensors {
            let (module, component) = split(&tensors.example);
            let first = shape.sides.iter().position(|side| *side > 0).unwrap_or_default();
            let elements = if component.is_plain() { product(&shape.sides[first..]) } else { None };
            tensors.is_expected = elements.is_some() && elements == expected.of_module(module);
        }
    }

    /// Returns whether all matrices of another check are among those of this one.
    pub(super) fn has_matrices_of(&self, other: &Self) -> bool {
        let mut matrices = other.tensors.iter().filter(|(shape, _)| shape.sides[1] > 0);
        matrices.all(|(shape, tensors)| {
            self.tensors.get(shape).is_some_and(|found| found.number >= tensors.number)
        })
    }

    /// Returns whether the configuration implies the shapes of most parameters.
    pub(super) fn is_confirmed(&self) -> bool {
        let expected = self.tensors.values().filter(|tensors| tensors.is_expected);
        let expected = expected.fold(0_u64, |sum, tensors| sum.saturating_add(tensors.parameters));
        expected > self.parameters / Self::MIN_SHARE * (Self::MIN_SHARE - 1)
    }

    /// Returns the tensors without a known side, if they contain too many of the parameters.
    pub(super) fn finish(&self) -> Option<UnresolvedModules> {
        let matrices = self.tensors.keys().filter(|shape| shape.sides[1] > 0);
        let sides: BTreeSet<u64> = matrices.flat_map(|shape| shape.sides).ordered();
        // Weights may be packed into long vectors, which prove nothing.
        let vectors = self.tensors.keys().filter(|shape| shape.is_norm_or_bias);
        let lengths = vectors.map(|shape| shape.sides[2]);
        let known: BTreeSet<u64> = lengths.filter(|length| sides.contains(length)).ordered();
        // Packing makes a side shorter. If all vectors are norms of attention heads, nothing is known about longer sides.
        let longest = known.last().copied().unwrap_or_default();
        let is_long = |shape: &Shape| shape.sides[1].min(shape.sides[2]) > longest;
        let mut found = UnresolvedModules::new(UnresolvedReason::SuspectedPacking);
        for (shape, tensors) in &self.tensors {
            let is_known =
                tensors.is_expected || shape.sides.iter().any(|side| known.contains(side));
            let is_unpacked = is_known || is_long(shape) || is_adapter(&tensors.example);
            if tensors.parameters > 0 && !is_unpacked {
                found.add(&tensors.example, tensors.parameters);
                found.modules += tensors.number - 1;
            }
        }
        // A model without norms and biases shows no side that must occur.
        let is_large = found.elements.saturating_mul(Self::MIN_SHARE) > self.parameters;
        (is_large && !known.is_empty()).then_some(found)
    }
}

/// The integers that are counted as stored. Their names belong to no known method.
#[derive(Clone, Debug, Default)]
pub(super) struct Integers {
    found: Option<UnresolvedModules>,
    bytes: u64,
    /// True for a long vector of bytes, which may be a file, such as a tokenizer.
    has_file: bool,
}

impl Integers {
    /// Adds integers, which may be packed.
    #[cold]
    pub(super) fn add(&mut self, name: &str, tensor: &TensorInfo) {
        /// A vector of this number of bytes may be a file: the tokenizer `spiece_model` of `ComfyUI` has 4.5 MB.
        const MIN_FILE: u64 = 65_536;

        // The positions that SHiRA adapts (`ShiraLayer` of PEFT 0.21).
        if name.ends_with(".shira_indices") {
            return;
        }
        let new = || UnresolvedModules::new(UnresolvedReason::SuspectedPacking);
        let elements = tensor.elements().unwrap_or_default();
        self.found.get_or_insert_with(new).add(name, elements);
        self.bytes = self.bytes.saturating_add(tensor.byte_length());
        self.has_file |=
            tensor.dtype == Dtype::U8 && tensor.shape.len() == 1 && elements >= MIN_FILE;
    }

    /// Returns the integers if they are too many and too large for tables and masks, or may be a file.
    pub(super) fn finish(self, parameters: u64) -> Option<UnresolvedModules> {
        /// A few tables of integers are usual. A packed model has a tensor per module.
        const MIN_TENSORS: u64 = 4;
        /// Tables are small next to the model: if each bit were a weight, they would not be a quarter of the parameters.
        const MIN_SHARE: u64 = 4;

        // Each bit may be a weight.
        let is_large = self.bytes.saturating_mul(8).saturating_mul(MIN_SHARE) > parameters;
        let found = self.found?;
        let is_suspicious = self.has_file || found.modules >= MIN_TENSORS && is_large;
        is_suspicious.then_some(found)
    }
}
