//! Finds modules whose weights have an unknown tensor next to or below them.
//!
//! Unquantized modules with a weight matrix contain little else: a bias, and in a few architectures one of
//! [`KNOWN_PARTS`]. Any other tensor may belong to a quantization method that no solver knows, so the number of weights
//! is uncertain.

use std::collections::{BTreeSet, HashMap};

use memchr::memrchr;

use super::module::{Component, Role};
use super::{UnresolvedModules, UnresolvedReason};
use crate::formats::{TensorInfo, clip};

/// The names of tensors and modules, besides buffers, that unquantized architectures store next to or below a weight
/// matrix.
///
/// Source: all architectures of transformers 5.23, which `tests/oracles/architectures.py` compares with the counts.
const KNOWN_PARTS: [&str; 6] = [
    "bias",
    "expert_bias",   // routers of Bailing
    "global_scale",  // routers of Inkling
    "weight_1",      // routers of ERNIE 4.5 VL
    "embed_norm",    // embeddings of Inkling
    "eoi_embedding", // embeddings of T5Gemma 2
];

/// The prefix of the names of adapters, which may be stored next to the weights that they adapt.
const ADAPTER: &str = "lora_";

/// The kinds of paths: a module with a weight matrix, and the parent of another tensor.
const MATRIX: u8 = 1;
const PARENT: u8 = 2;

/// The paths of weight matrices and of tensors below them, collected from all files.
#[derive(Clone, Debug, Default)]
pub(super) struct SiblingCheck {
    /// The kinds of paths, by the hashes of the paths.
    paths: HashMap<u64, u8>,
    /// The parent of the previous tensor. The next tensor usually has the same parent.
    last_parent: String,
    /// The number of modules with a weight matrix that are parents of other tensors.
    modules: u64,
    /// The first of these modules, sorted.
    examples: BTreeSet<String>,
}

impl SiblingCheck {
    /// Adds the path of a tensor that is neither a scalar nor a buffer.
    pub(super) fn add_tensor(&mut self, name: &str, module: &str, component: &Component) {
        // The module of a suffix, as in `gate.global_scale`, may not exist.
        let mut path = if component.is_suffix { name } else { module };
        let mut is_first = true;
        while let Some(dot) = memrchr(b'.', path.as_bytes()) {
            let (parent, part) = (&path[..dot], &path[dot + 1..]);
            if parent == self.last_parent {
                return;
            }
            path = parent;
            if KNOWN_PARTS.contains(&part) || part.starts_with(ADAPTER) {
                continue;
            }
            if std::mem::take(&mut is_first) {
                parent.clone_into(&mut self.last_parent);
            }
            if !self.insert(parent, false) {
                return;
            }
        }
    }

    /// Adds the module of a tensor that may contain its weights.
    pub(super) fn add_weights(&mut self, module: &str, component: &Component, tensor: &TensorInfo) {
        if component.role == Role::Weights && !component.is_bare() && tensor.shape.len() > 1 {
            self.insert(module, true);
        }
    }

    /// Adds a path. Returns false if it was known.
    fn insert(&mut self, path: &str, is_matrix: bool) -> bool {
        let kind = if is_matrix { MATRIX } else { PARENT };
        let known = self.paths.entry(hash(path)).or_default();
        let is_new = *known & kind == 0;
        let is_found = is_new && *known != 0;
        *known |= kind;
        if is_found {
            self.modules += 1;
            self.examples.insert(clip(path));
            if self.examples.len() > UnresolvedModules::MAX_EXAMPLES {
                self.examples.pop_last();
            }
        }
        is_new
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

/// Returns a hash of 64 bits. Two paths of a model never share one in practice, and the standard hash takes several
/// times as long. The map hashes it again with a random key, so a hostile file cannot slow it down.
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
