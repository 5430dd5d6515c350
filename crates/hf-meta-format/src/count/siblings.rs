//! Finds modules whose weights have an unknown tensor next to or below them.
//!
//! Unquantized modules with a weight matrix contain little else: a bias, and in a few architectures one of
//! [`KNOWN_PARTS`]. Any other tensor may belong to a quantization method that no solver knows, so the number of weights
//! is uncertain.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memrchr;

use super::module::{Component, Module, container_bits};
use super::{UnresolvedModules, UnresolvedReason};
use crate::formats::{TensorInfo, clip};

/// The names of tensors and modules, besides buffers, that unquantized architectures store next to or below a weight
/// matrix.
///
/// Source: the models of diffusers 0.42, and all architectures of transformers 5.23, which
/// `tests/oracles/architectures.py` compares with the counts.
const KNOWN_PARTS: [&str; 8] = [
    "bias",
    "rms_norm",      // linear layers of BitNet
    "expert_bias",   // routers of Bailing
    "global_scale",  // routers of Inkling
    "weight_1",      // routers of ERNIE 4.5 VL
    "embed_norm",    // embeddings of Inkling
    "eoi_embedding", // embeddings of T5Gemma 2
    "act_fn",        // convolutions of Wan
];

/// Returns whether a part has the name of an adapter, which may be stored next to the weights that it adapts.
fn is_adapter(part: &str) -> bool {
    part.strip_prefix("lora").is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// The kinds of paths: a module with a weight matrix, and the parent of another tensor.
const MATRIX: u8 = 1;
const PARENT: u8 = 2;

/// The paths of weight matrices and of tensors below them, collected from all files.
#[derive(Clone, Debug, Default)]
pub(super) struct SiblingCheck {
    /// The kinds of paths, by the hashes of the paths. A hostile file cannot slow down a sorted map.
    paths: BTreeMap<u64, u8>,
    /// A bit for each last byte of a parent, modulo 128. The names of most modules with weights end differently.
    parent_ends: u128,
    /// The parent of a recent tensor, and its parent. The next tensor usually has one of them.
    recent: [String; 2],
    /// The number of modules with a weight matrix that are parents of other tensors.
    modules: u64,
    /// The first of these modules, sorted.
    examples: BTreeSet<String>,
}

impl SiblingCheck {
    /// Adds the path of a tensor that is neither a scalar nor a buffer.
    pub(super) fn add_tensor(&mut self, name: &str, module: &str, component: &Component) {
        if component.is_quantizer_state() {
            return;
        }
        // The module of a suffix, as in `gate.global_scale`, may not exist.
        let mut path = if component.is_suffix { name } else { module };
        let mut recent = 0;
        while let Some(dot) = memrchr(b'.', path.as_bytes()) {
            let (parent, part) = (&path[..dot], &path[dot + 1..]);
            if self.recent.iter().any(|recent| recent == parent) {
                return;
            }
            path = parent;
            if KNOWN_PARTS.contains(&part) || is_adapter(part) {
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

    /// Adds a module after all tensors. Only its parents can still matter, so it is looked up and not stored.
    pub(super) fn add_module(&mut self, module: &Module<'_>) {
        let may_be_parent = self.parent_ends & end_bit(module.name) != 0;
        if may_be_parent
            && module.tensors.iter().any(|(found, tensor)| is_matrix(found, tensor))
            && let Some(known) = self.paths.get_mut(&hash(module.name))
            && *known == PARENT
        {
            *known |= MATRIX;
            self.add_found(module.name);
        }
    }

    /// Adds a tensor that is counted, although quantizers use the name for auxiliary tensors.
    pub(super) fn add_counted_part(&mut self, module: &str, component: &Component) {
        let has_matrix = |kinds| kinds & MATRIX != 0;
        if !is_adapter(component.name)
            && self.paths.get(&hash(module)).copied().is_some_and(has_matrix)
        {
            self.insert(module, PARENT);
        }
    }

    /// Adds a path. Returns false if it was known.
    fn insert(&mut self, path: &str, kind: u8) -> bool {
        let known = self.paths.entry(hash(path)).or_default();
        let is_new = *known & kind == 0;
        let is_found = is_new && *known != 0;
        *known |= kind;
        if is_found {
            self.add_found(path);
        }
        is_new
    }

    /// Records a module with a weight matrix that is the parent of another tensor.
    fn add_found(&mut self, module: &str) {
        self.modules += 1;
        self.examples.insert(clip(module));
        if self.examples.len() > UnresolvedModules::MAX_EXAMPLES {
            self.examples.pop_last();
        }
    }

    /// Returns the modules with unknown tensors; `None` if there are none.
    pub(super) fn finish(self) -> Option<UnresolvedModules> {
        let found = UnresolvedModules {
            modules: self.modules,
            examples: self.examples.into_iter().collect(),
            ..UnresolvedModules::new(UnresolvedReason::UnknownTensors)
        };
        (found.modules > 0).then_some(found)
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

/// Returns a hash of 64 bits. Two paths of a model never share one in practice, and the standard hash takes several
/// times as long.
fn hash(path: &str) -> u64 {
    /// The fractional part of the golden ratio, whose multiples are spread evenly.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(FACTOR);
        product ^ (product >> 32)
    };
    let (words, rest) = path.as_bytes().as_chunks::<8>();
    let start = mix(0, path.len() as u64);
    let hash = words.iter().fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    mix(hash, last)
}
