//! Collects the tensors of a weight set, and counts the tensors that are certainly not packed.

use super::config::MetadataShapes;
use super::counted_as::TensorUse;
use super::doubts::Siblings;
use super::module::{Component, container_bits};
use super::names::{NamePatterns, TensorName};
use super::pending::PendingTensors;
use super::position::Embedding;
use super::sums::CountSums;
use super::{AuxiliaryTensor, Buffer, CountOverflow};
use crate::formats::{Dtype, FileHeader, TensorInfo};

/// The names and shapes of a weight set, except for the sums over tensors that are certainly not packed.
#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    names: NamePatterns,
    /// True if the configuration could affect the count.
    pub(super) needs_config: bool,
    pub(super) has_experts: bool,
    /// True if every element is a parameter.
    pub(super) is_self_describing: bool,
    pub(super) pending: PendingTensors,
    pub(super) siblings: Siblings,
    pub(super) shapes: MetadataShapes,
}

impl Collected {
    /// Adds a tensor, also to `sums` if it cannot belong to a quantized module.
    pub(super) fn add(
        &mut self,
        name: &str,
        tensor: &TensorInfo,
        sums: &mut CountSums,
    ) -> Result<(), CountOverflow> {
        let found = ClassifiedName::new(self.names.read(name), tensor);
        self.needs_config |= found.may_be_packed(tensor) || found.is_quantized_output(tensor);
        if found.buffer.is_none() && !tensor.is_scalar() {
            self.siblings.add_tensor(name, found.module, found.component);
        }
        if let Some(side) = found.unpacked_side(tensor) {
            self.shapes.add_side(side);
        }
        if found.is_pending {
            self.has_experts = self.has_experts || found.is_routed(tensor);
            let pushed = self.pending.push(found.module, found.component, tensor);
            pushed.ok_or_else(|| CountOverflow::new(name))?;
        } else {
            self.siblings.add_weights(found.module, found.component, tensor);
            // Integers with plain names are pending.
            if found.component.is_bare()
                && found.buffer.is_none()
                && !tensor.is_scalar()
                && container_bits(&tensor.dtype).is_some()
            {
                sums.integers.add(name, tensor);
            }
            sums.add(&found.name, tensor, TensorUse::Stored(found.buffer))?;
            self.has_experts = self.has_experts || sums.has_experts();
        }
        self.needs_config |= self.has_experts || sums.has_router();
        Ok(())
    }

    /// Adds the tensors of a self-describing file: their shapes are the shapes of the weights.
    pub(super) fn add_unpacked(
        &mut self,
        header: &FileHeader,
        sums: &mut CountSums,
    ) -> Result<(), CountOverflow> {
        self.is_self_describing = true;
        header.tensors().try_for_each(|text, tensor| {
            let name = self.names.read(text);
            let used = match name.buffer(tensor) {
                None if is_gguf_scale(text) => TensorUse::Auxiliary(AuxiliaryTensor::Scale),
                buffer => TensorUse::Stored(buffer),
            };
            sums.add(&name, tensor, used)
        })
    }
}

/// Returns whether a tensor of a GGUF file contains scales of quantized weights, or factors of rotary frequencies that
/// the converter computed from the configuration. Source: `gguf/constants.py` 0.19 and `convert_hf_to_gguf.py`.
fn is_gguf_scale(name: &str) -> bool {
    let (_, last) = name.rsplit_once('.').unwrap_or(("", name));
    matches!(last, "scale" | "input_scale")
        || ["rope_freqs.", "rope_factors_"].iter().any(|start| name.starts_with(start))
}

/// A tensor, classified by its name.
pub(super) struct ClassifiedName<'a> {
    name: TensorName<'a>,
    module: &'a str,
    component: &'static Component,
    buffer: Option<Buffer>,
    /// True if the tensor may belong to a quantized module, whose other tensors are needed to count it.
    is_pending: bool,
}

impl<'a> ClassifiedName<'a> {
    pub(super) fn new(name: TensorName<'a>, tensor: &TensorInfo) -> Self {
        let (module, component) = name.split();
        let buffer = name.buffer(tensor);
        let is_candidate = !component.is_plain() || may_be_weights(tensor, component.is_bare());
        Self { name, module, component, buffer, is_pending: is_candidate && buffer.is_none() }
    }

    /// Returns a side of a weight matrix that is certainly not packed: the length of a vector, or the rows of signed
    /// bytes.
    fn unpacked_side(&self, tensor: &TensorInfo) -> Option<u64> {
        match tensor.shape[..] {
            [length] if !self.is_pending && length > 1 => Some(length),
            [rows, _] if self.is_pending && tensor.dtype == Dtype::I8 => Some(rows),
            _ => None,
        }
    }

    /// Returns whether the configuration could affect the count of the tensor.
    pub(super) fn needs_config(&self, tensor: &TensorInfo) -> bool {
        self.may_be_packed(tensor)
            || self.is_routed(tensor)
            || !self.is_pending && self.name.router_outputs(tensor).is_some()
            || self.is_quantized_output(tensor)
    }

    /// Returns whether the tensor may be packed.
    fn may_be_packed(&self, tensor: &TensorInfo) -> bool {
        !tensor.is_scalar()
            && self.is_pending
            && (self.component.needs_config()
                || self.component.is_plain() && tensor.dtype.bits() != Some(8)
                || container_bits(&tensor.dtype).is_some())
    }

    /// Returns whether the tensor is an output embedding that was quantized, possibly from a tied embedding.
    fn is_quantized_output(&self, tensor: &TensorInfo) -> bool {
        tensor.dtype.is_narrow_float() && self.name.embedding() == Some(Embedding::Output)
    }

    /// Returns whether the tensor contains parameters of routed experts.
    fn is_routed(&self, tensor: &TensorInfo) -> bool {
        !tensor.is_scalar() && self.name.is_routed(tensor)
    }
}

/// Returns whether a tensor with an ordinary name may be quantized: integers, 8-bit floats, and columns of any dtype,
/// which bitsandbytes packs into.
fn may_be_weights(tensor: &TensorInfo, is_bare: bool) -> bool {
    let is_packed_dtype = tensor.dtype.is_narrow_float() || container_bits(&tensor.dtype).is_some();
    if is_bare {
        // Tables of IDs and masks also have such names, and are not packed.
        return is_packed_dtype
            && tensor.shape.len() > 1
            && tensor.dtype.bits().is_some_and(|bits| bits <= 32);
    }
    is_packed_dtype || matches!(tensor.shape[..], [rows, 1] if rows > 1)
}
