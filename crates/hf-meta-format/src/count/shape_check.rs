//! Finds weights whose shapes do not fit the rest of the model.
//!
//! Quantizers pack matrices and leave vectors alone, such as norms and biases. In an unquantized model, a vector is as
//! long as a side of the matrices next to it, so nearly all weights are in tensors with a side of a known length.
//! Packing several weights into one floating-point element changes the sides, although no dtype or name shows it.

use std::collections::{BTreeMap, BTreeSet};

use super::{CountedAs, UnresolvedModules, UnresolvedReason};
use crate::formats::{TensorInfo, clip};

/// The tensors that are counted as stored, by their shapes.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeCheck {
    tensors: BTreeMap<Shape, Tensors>,
    /// The shapes of recent tensors, which later tensors usually share. They are not in `tensors` yet.
    recent: Vec<(Shape, Tensors)>,
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
}

impl Shape {
    /// Returns the shape of a tensor; `None` for the kernels of convolutions, which no method packs.
    fn new(name: &str, tensor: &TensorInfo) -> Option<Self> {
        const NORMS_AND_BIASES: [&str; 6] = ["weight", "bias", "gamma", "beta", "scale", "g"];

        let matrix = |sides| Some(Self { sides, is_norm_or_bias: false });
        match tensor.shape[..] {
            [length] => {
                let last = name.rsplit('.').next().unwrap_or_default();
                let is_norm_or_bias = length > 1 && NORMS_AND_BIASES.contains(&last);
                Some(Self { sides: [0, 0, length], is_norm_or_bias })
            }
            [rows, columns] => matrix([0, rows, columns]),
            [stacked, rows, columns] => matrix([stacked, rows, columns]),
            _ => None,
        }
    }

    fn is_vector(&self) -> bool {
        self.sides[1] == 0
    }
}

impl ShapeCheck {
    /// The number of recent shapes. A layer has about a dozen.
    const MAX_RECENT: usize = 24;
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

    /// Adds a tensor. `parameters` is 0 if only its sides matter.
    pub(super) fn add(
        &mut self,
        name: &str,
        tensor: &TensorInfo,
        class: CountedAs,
        parameters: u64,
    ) {
        self.add_packed(parameters);
        let shape = Shape::new(name, tensor).filter(|_| class == CountedAs::AsStored);
        let Some(shape) = shape else { return };
        if let Some((_, known)) = self.recent.iter_mut().find(|(recent, _)| *recent == shape) {
            known.number += 1;
            known.parameters = known.parameters.saturating_add(parameters);
            if name < known.example.as_str() {
                known.example = clip(name);
            }
            return;
        }
        if self.recent.len() == Self::MAX_RECENT {
            self.flush();
        }
        self.recent.push((shape, Tensors { number: 1, parameters, example: clip(name) }));
    }

    /// Moves the recent shapes to the map.
    fn flush(&mut self) {
        for (shape, found) in self.recent.drain(..) {
            if let Some(known) = self.tensors.get_mut(&shape) {
                known.number += found.number;
                known.parameters = known.parameters.saturating_add(found.parameters);
                known.example = std::mem::take(&mut known.example).min(found.example);
            } else if self.tensors.len() < Self::MAX_SHAPES {
                self.tensors.insert(shape, found);
            }
        }
    }

    /// Returns the tensors without a known side, if they contain too many of the parameters.
    pub(super) fn finish(mut self) -> Option<UnresolvedModules> {
        self.flush();
        let matrices = self.tensors.keys().filter(|shape| !shape.is_vector());
        let sides: BTreeSet<u64> = matrices.flat_map(|shape| shape.sides).collect();
        // Weights may be packed into long vectors, which prove nothing.
        let vectors = self.tensors.keys().filter(|shape| shape.is_norm_or_bias);
        let lengths = vectors.map(|shape| shape.sides[2]);
        let known: BTreeSet<u64> = lengths.filter(|length| sides.contains(length)).collect();
        let mut found = UnresolvedModules::new(UnresolvedReason::SuspectedPacking);
        for (shape, tensors) in &self.tensors {
            if tensors.parameters > 0 && !shape.sides.iter().any(|side| known.contains(side)) {
                found.add(&tensors.example, tensors.parameters);
                found.modules += tensors.number - 1;
            }
        }
        let is_large = found.elements.saturating_mul(Self::MIN_SHARE) > self.parameters;
        (is_large && !known.is_empty()).then_some(found)
    }
}
