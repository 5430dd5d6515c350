//! Tensors, and the nested modules whose parameters they are.
//!
//! A [`Module`] keeps its tensors in the order they were added; their names are relative until a parent takes it in.

use std::ops::Range;

use serde::Serialize;

use super::format::Format;

/// In the order of the `safetensors` crate, by which its files are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Dtype {
    U8,
    I8,
    #[serde(rename = "F8_E4M3")]
    F8E4M3,
    #[serde(rename = "F8_E8M0")]
    F8E8M0,
    F16,
    BF16,
    I32,
    F32,
    I64,
}

impl Dtype {
    pub fn bits(self) -> u64 {
        match self {
            Self::I64 => 64,
            Self::I32 | Self::F32 => 32,
            Self::F16 | Self::BF16 => 16,
            Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E8M0 => 8,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
}

impl Tensor {
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bits() / 8
    }
}

/// A part of an architecture: parameters of one dtype, and what else it keeps.
#[derive(Clone)]
pub struct Module {
    dtype: Dtype,
    tensors: Vec<Tensor>,
}

impl Module {
    pub fn new(dtype: Dtype) -> Self {
        Self { dtype, tensors: Vec::new() }
    }
    pub fn tensor(self, name: &str, shape: &[u64]) -> Self {
        let dtype = self.dtype;
        self.buffer(name, dtype, shape)
    }

    /// A tensor with a different dtype, such as a mask or position ids.
    pub fn buffer(mut self, name: &str, dtype: Dtype, shape: &[u64]) -> Self {
        self.tensors.push(Tensor { name: name.to_owned(), dtype, shape: shape.to_vec() });
        self
    }

    /// A dense layer with a bias; its weight stands as `[outputs, inputs]`.
    pub fn linear(self, name: &str, inputs: u64, outputs: u64) -> Self {
        self.weight_and_bias(name, &[outputs, inputs], outputs)
    }

    /// A dense layer whose weight is transposed, as in GPT-2: `[inputs, outputs]`.
    pub fn conv1d(self, name: &str, inputs: u64, outputs: u64) -> Self {
        self.weight_and_bias(name, &[inputs, outputs], outputs)
    }

    /// A convolution of square patches, with a bias.
    pub fn conv2d(self, name: &str, inputs: u64, outputs: u64, side: u64) -> Self {
        self.weight_and_bias(name, &[outputs, inputs, side, side], outputs)
    }
    pub fn norm(self, name: &str, size: u64) -> Self {
        self.weight_and_bias(name, &[size], size)
    }

    /// A norm that scales and does not shift.
    pub fn rms_norm(self, name: &str, size: u64) -> Self {
        self.tensor(&format!("{name}.weight"), &[size])
    }

    fn weight_and_bias(self, name: &str, weight: &[u64], bias: u64) -> Self {
        self.tensor(&format!("{name}.weight"), weight).tensor(&format!("{name}.bias"), &[bias])
    }

    /// A dense layer without a bias, its weight in this format.
    pub fn projection(self, name: &str, format: Format, inputs: u64, outputs: u64) -> Self {
        let weight = format.store(self.dtype, inputs, outputs);
        self.child(name, weight)
    }

    /// Takes in another module's tensors under a name.
    pub fn child(mut self, name: &str, child: Module) -> Self {
        self.tensors.extend(
            child.tensors.into_iter().map(|t| Tensor { name: format!("{name}.{}", t.name), ..t }),
        );
        self
    }

    /// Takes in another module's tensors as its own.
    pub fn and(mut self, other: Module) -> Self {
        self.tensors.extend(other.tensors);
        self
    }

    /// The same layer many times, as `name.0`, `name.1`, ….
    pub fn layers(self, name: &str, numbers: Range<u64>, layer: &Module) -> Self {
        numbers.fold(self, |module, n| module.child(&format!("{name}.{n}"), layer.clone()))
    }

    /// The same tensors with this part of their names replaced.
    pub fn renamed(mut self, from: &str, to: &str) -> Self {
        for tensor in &mut self.tensors {
            tensor.name = tensor.name.replace(from, to);
        }
        self
    }

    pub fn into_tensors(self) -> Vec<Tensor> {
        self.tensors
    }
}
