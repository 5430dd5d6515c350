//! Tensors, and the nested modules whose parameters they are.
//!
//! A [`Module`] keeps its tensors in the order they were added; their names are relative until a parent takes it in.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Dtype {
    F32,
    F16,
    BF16,
    I64,
    U8,
}

impl Dtype {
    pub fn bits(self) -> u64 {
        match self {
            Self::I64 => 64,
            Self::F32 => 32,
            Self::F16 | Self::BF16 => 16,
            Self::U8 => 8,
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
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bits() / 8
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

    #[must_use]
    pub fn tensor(self, name: &str, shape: &[u64]) -> Self {
        let dtype = self.dtype;
        self.buffer(name, dtype, shape)
    }

    /// A tensor with a dtype of its own, such as a mask or position ids.
    #[must_use]
    pub fn buffer(mut self, name: &str, dtype: Dtype, shape: &[u64]) -> Self {
        self.tensors.push(Tensor { name: name.to_owned(), dtype, shape: shape.to_vec() });
        self
    }

    /// A dense layer with a bias; its weight stands as `[outputs, inputs]`.
    #[must_use]
    pub fn linear(self, name: &str, inputs: u64, outputs: u64) -> Self {
        self.weight_and_bias(name, &[outputs, inputs], outputs)
    }

    /// A dense layer whose weight is transposed, as in GPT-2: `[inputs, outputs]`.
    #[must_use]
    pub fn conv1d(self, name: &str, inputs: u64, outputs: u64) -> Self {
        self.weight_and_bias(name, &[inputs, outputs], outputs)
    }

    #[must_use]
    pub fn norm(self, name: &str, size: u64) -> Self {
        self.weight_and_bias(name, &[size], size)
    }

    fn weight_and_bias(self, name: &str, weight: &[u64], bias: u64) -> Self {
        self.tensor(&format!("{name}.weight"), weight).tensor(&format!("{name}.bias"), &[bias])
    }

    /// Takes in another module's tensors under a name.
    #[must_use]
    pub fn child(mut self, name: &str, child: Module) -> Self {
        self.tensors.extend(
            child.tensors.into_iter().map(|t| Tensor { name: format!("{name}.{}", t.name), ..t }),
        );
        self
    }

    /// The same layer many times, as `name.0`, `name.1`, ….
    #[must_use]
    pub fn layers(self, name: &str, count: u64, layer: &Module) -> Self {
        (0..count).fold(self, |module, n| module.child(&format!("{name}.{n}"), layer.clone()))
    }

    pub fn into_tensors(self) -> Vec<Tensor> {
        self.tensors
    }
}
