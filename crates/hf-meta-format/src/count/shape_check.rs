//! Finds weights whose shapes do not fit the rest of the model.
//!
//! Quantizers pack matrices and leave vectors alone, such as norms and biases. In an unquantized model, a vector is as
//! long as a side of the matrices next to it, so nearly all weights are in tensors with a side of a known length.
//! Packing several weights into one floating-point element changes the sides, although no dtype or name shows it.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memrchr;

use super::{UnresolvedModules, UnresolvedReason};
use crate::formats::{TensorInfo, clip};

/// The tensors that are counted as stored, by their shapes.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeCheck {
    tensors: BTreeMap<Shape, Tensors>,
    /// The shapes of recent tensors, which later tensors usually share, in slots by their hashes. They are not in
    /// `tensors` yet.
    recent: Vec<Option<(Shape, Tensors)>>,
    /// The parameters of all tensors, including packed ones.
    parameters: u64,
}

/// The number of recent shapes. A layer has about a dozen.
const RECENT: usize = 32;

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
}

impl Shape {
    /// Returns the shape of a tensor; `None` for the kernels of convolutions, which no method packs.
    fn new(name: &str, tensor: &TensorInfo) -> Option<Self> {
        const NORMS_AND_BIASES: [&str; 6] = ["weight", "bias", "gamma", "beta", "scale", "g"];

        let matrix = |sides| Some(Self { sides, is_norm_or_bias: false });
        match tensor.shape[..] {
            [length] => {
                let last = memrchr(b'.', name.as_bytes()).map_or(name, |dot| &name[dot + 1..]);
                let is_norm_or_bias = length > 1 && NORMS_AND_BIASES.contains(&last);
                Some(Self { sides: [0, 0, length], is_norm_or_bias })
            }
            [rows, columns] => matrix([0, rows, columns]),
            [stacked, rows, columns] => matrix([stacked, rows, columns]),
            _ => None,
        }
    }

    /// Returns a slot for the shape.
    fn slot(&self) -> usize {
        /// Spreads small numbers over the upper bits.
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

        let [stacked, rows, columns] = self.sides;
        let sides = stacked ^ rows.rotate_left(21) ^ columns.rotate_left(42);
        (sides.wrapping_mul(FACTOR) >> 32) as usize % RECENT
    }

    fn is_vector(&self) -> bool {
        self.sides[1] == 0
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
        if self.recent.is_empty() {
            self.recent.resize_with(RECENT, || None);
        }
        let Some(slot) = self.recent.get_mut(shape.slot()) else { return };
        if let Some((_, known)) = slot.as_mut().filter(|(recent, _)| *recent == shape) {
            known.number += 1;
            known.parameters = known.parameters.saturating_add(parameters);
            if name < known.example.as_str() {
                known.example = clip(name);
            }
            return;
        }
        let found = Tensors { number: 1, parameters, example: clip(name) };
        let other = slot.replace((shape, found));
        self.store(other);
    }

    /// Adds a recent shape to the map.
    fn store(&mut self, recent: Option<(Shape, Tensors)>) {
        let Some((shape, found)) = recent else { return };
        if let Some(known) = self.tensors.get_mut(&shape) {
            known.number += found.number;
            known.parameters = known.parameters.saturating_add(found.parameters);
            known.example = std::mem::take(&mut known.example).min(found.example);
        } else if self.tensors.len() < Self::MAX_SHAPES {
            self.tensors.insert(shape, found);
        }
    }

    /// Returns the tensors without a known side, if they contain too many of the parameters.
    pub(super) fn finish(mut self) -> Option<UnresolvedModules> {
        for recent in std::mem::take(&mut self.recent) {
            self.store(recent);
        }
        let matrices = self.tensors.keys().filter(|shape| !shape.is_vector());
        let sides: BTreeSet<u64> = matrices.flat_map(|shape| shape.sides).collect();
        // Weights may be packed into long vectors, which prove nothing.
        let vectors = self.tensors.keys().filter(|shape| shape.is_norm_or_bias);
        let lengths = vectors.map(|shape| shape.sides[2]);
        let known: BTreeSet<u64> = lengths.filter(|length| sides.contains(length)).collect();
        // Packing makes a side shorter. If all vectors are norms of attention heads, nothing is known about longer sides.
        let longest = known.last().copied().unwrap_or_default();
        let is_long = |shape: &Shape| shape.sides[1].min(shape.sides[2]) > longest;
        let mut found = UnresolvedModules::new(UnresolvedReason::SuspectedPacking);
        for (shape, tensors) in &self.tensors {
            let is_known = shape.sides.iter().any(|side| known.contains(side));
            let is_unpacked = is_known || is_long(shape) || is_adapter(&tensors.example);
            if tensors.parameters > 0 && !is_unpacked {
                found.add(&tensors.example, tensors.parameters);
                found.modules += tensors.number - 1;
            }
        }
        let is_large = found.elements.saturating_mul(Self::MIN_SHARE) > self.parameters;
        (is_large && !known.is_empty()).then_some(found)
    }
}
