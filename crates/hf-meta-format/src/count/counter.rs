//! The counter that all reading paths share.

use super::config::{Configs, MetadataShapes, QUANTIZE_CONFIG};
use super::experts::{Embedding, TensorPosition};
use super::module::{Component, container_bits};
use super::name_index::split;
use super::pending::PendingTensors;
use super::siblings::SiblingCheck;
use super::solver::{Solver, class_as_stored};
use super::sums::CountSums;
use super::{
    AuxiliaryTensor, Buffer, CountBreakdown, CountOverflow, CountedAs, ParameterCount,
    UnresolvedReason,
};
use crate::formats::{Dtype, FileHeader, TensorInfo};

/// Counts the parameters of a weight set, tensor by tensor.
///
/// The result does not depend on the order of the tensors, on how they are split into files, or on when the
/// configuration arrives. A tensor that cannot be a component of a quantized module is counted immediately. Any other
/// tensor is kept in a compact form until [`finish`](Self::finish) is called, because the components of a module may
/// be in different files.
///
/// ```
/// use hf_meta_format::SafetensorsFileHeader;
/// use hf_meta_format::count::Counter;
///
/// let json = br#"{"q.qweight":{"dtype":"I32","shape":[8,16],"data_offsets":[0,512]},
///     "q.qzeros":{"dtype":"I32","shape":[1,2],"data_offsets":[512,520]},
///     "q.scales":{"dtype":"F16","shape":[1,16],"data_offsets":[520,552]},
///     "norm.weight":{"dtype":"F16","shape":[4],"data_offsets":[552,560]}}"#;
/// let header = SafetensorsFileHeader::from_json(json)?;
/// let mut counter = Counter::new();
/// counter.add_file(&header)?;
/// let (parameters, breakdown) = counter.finish()?;
/// assert_eq!(parameters.total(), 64 * 16 + 4);
/// assert_eq!(breakdown.method.as_deref(), Some("gptq"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Counter {
    configs: Option<Configs>,
    needs_config: bool,
    has_experts: bool,
    is_self_describing: bool,
    pending: PendingTensors,
    sums: CountSums,
    siblings: SiblingCheck,
    shapes: MetadataShapes,
}

impl Counter {
    /// Creates an empty counter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows. The counter must not be used afterwards.
    pub fn add(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), CountOverflow> {
        let found = ClassifiedName::new(name, tensor);
        self.needs_config =
            self.needs_config || found.may_be_packed(tensor) || is_quantized_output(name, tensor);
        if found.buffer.is_none() && !tensor.is_scalar() {
            self.siblings.add_tensor(name, found.module, found.component);
        }
        if let Some(side) = found.unpacked_side(tensor) {
            self.shapes.add_side(side);
        }
        if found.is_pending {
            self.has_experts = self.has_experts || is_routed(name, tensor);
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
                self.sums.add_integers(name, tensor);
            }
            self.sums.add(name, tensor, class_as_stored(tensor), found.buffer)?;
            self.has_experts = self.has_experts || self.sums.has_experts();
        }
        self.needs_config |= self.has_experts || self.sums.has_router();
        Ok(())
    }

    /// Adds the tensors of one file, and the unpacked shapes that torchao stores in its metadata. In a
    /// [self-describing](FileHeader::is_self_describing) file, every element is a parameter.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows. The counter must not be used afterwards.
    pub fn add_file(&mut self, header: &FileHeader) -> Result<(), CountOverflow> {
        if header.is_self_describing() {
            self.is_self_describing = true;
            return self.add_unpacked(header);
        }
        if let Some(metadata) = header.metadata() {
            self.shapes.add_metadata(metadata);
        }
        header.tensors().try_for_each(|name, tensor| self.add(name, tensor))
    }

    /// Adds the tensors of a self-describing file: their shapes are the shapes of the weights, and its header states
    /// the numbers of experts.
    fn add_unpacked(&mut self, header: &FileHeader) -> Result<(), CountOverflow> {
        if let Some(model) = header.model() {
            self.set_configs(Configs::from_model(model));
        }
        header.tensors().try_for_each(|name, tensor| {
            let class = match class_as_stored(tensor) {
                CountedAs::AsStored if is_gguf_scale(name) => {
                    CountedAs::AuxiliaryTensor(AuxiliaryTensor::Scale)
                }
                class => class,
            };
            self.sums.add(name, tensor, class, Buffer::from_tensor(name, tensor))
        })
    }

    /// Returns whether `config.json` could affect the result, given the tensors added so far.
    #[must_use]
    pub fn needs_config(&self) -> bool {
        self.needs_config
    }

    /// Sets the configuration of the model. Only the first call has an effect.
    pub fn set_configs(&mut self, configs: Configs) {
        self.configs.get_or_insert(configs);
    }

    /// Returns the parameter count and its breakdown.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows.
    pub fn finish(mut self) -> Result<(ParameterCount, CountBreakdown), CountOverflow> {
        let configs = self.configs.take().unwrap_or_default();
        let mut siblings = std::mem::take(&mut self.siblings);
        let mut sums = std::mem::take(&mut self.sums);
        sums = self.solve(sums, &configs, &mut siblings)?;
        sums.add_doubt(siblings.finish());
        if !self.is_self_describing {
            sums.doubt_packing();
        }
        let (parameters, mut breakdown) = sums.finish(&configs, self.needs_config);
        breakdown.needs_config = self.needs_config;
        if !self.needs_config && !self.is_self_describing {
            // Not every way to read has the configuration.
            breakdown.moe_unknown = None;
        }
        breakdown.compare_with_config(parameters.total(), &configs);
        Ok((parameters, breakdown))
    }

    /// Returns the name of another file, besides `config.json`, that may describe the quantization or the experts.
    /// Returns `None` if `config.json` describes them, or if the shapes are unambiguous.
    #[must_use]
    pub fn other_config_file(&self, configs: &Configs) -> Option<&'static str> {
        if configs.quantization.is_empty() && !self.pending.is_empty() {
            let mut siblings = SiblingCheck::default();
            let sums = self.solve(CountSums::default(), configs, &mut siblings).ok()?;
            if sums.has_unresolved(UnresolvedReason::AmbiguousScheme) {
                return Some(QUANTIZE_CONFIG);
            }
        }
        (self.has_experts && configs.experts.is_empty()).then_some(Configs::PARAMS)
    }

    /// Solves the pending modules and adds them to `sums` and `siblings`.
    fn solve(
        &self,
        sums: CountSums,
        configs: &Configs,
        siblings: &mut SiblingCheck,
    ) -> Result<CountSums, CountOverflow> {
        let mut solver = Solver::new(configs, &self.shapes, sums, siblings);
        self.pending.for_each_module(|module| solver.add_module(module))?;
        solver.finish()
    }
}

/// Returns whether `config.json` could affect the count of a tensor.
///
/// Fetching `config.json` counts as a download on the Hub, so it is needed only for tensors that may be packed or may
/// belong to routed experts. [`Counter::needs_config`] answers this for all tensors added so far. Use this function
/// to request `config.json` before all headers have arrived.
#[must_use]
pub fn needs_config(name: &str, tensor: &TensorInfo) -> bool {
    let found = ClassifiedName::new(name, tensor);
    found.may_be_packed(tensor)
        || is_routed(name, tensor)
        || !found.is_pending && is_router(name, tensor)
        || is_quantized_output(name, tensor)
}

/// Returns whether a tensor of a GGUF file contains scales of quantized weights, or factors of rotary frequencies that
/// the converter computed from the configuration. Source: `gguf/constants.py` 0.19 and `convert_hf_to_gguf.py`.
fn is_gguf_scale(name: &str) -> bool {
    let (_, last) = name.rsplit_once('.').unwrap_or(("", name));
    matches!(last, "scale" | "input_scale")
        || ["rope_freqs.", "rope_factors_"].iter().any(|start| name.starts_with(start))
}

/// The name of a tensor, split into module and component.
struct ClassifiedName<'a> {
    module: &'a str,
    component: &'static Component,
    buffer: Option<Buffer>,
    /// True if the tensor may belong to a quantized module, whose other tensors are needed to count it.
    is_pending: bool,
}

impl<'a> ClassifiedName<'a> {
    fn new(name: &'a str, tensor: &TensorInfo) -> Self {
        let (module, component) = split(name);
        let may_be_buffer = component.may_be_buffer || Buffer::training_state(name).is_some();
        let buffer = if may_be_buffer { Buffer::from_tensor(name, tensor) } else { None };
        let is_candidate = !component.is_plain() || may_be_weights(tensor, component.is_bare());
        Self { module, component, buffer, is_pending: is_candidate && buffer.is_none() }
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

    /// Returns whether the tensor may be packed.
    fn may_be_packed(&self, tensor: &TensorInfo) -> bool {
        !tensor.is_scalar()
            && self.is_pending
            && (self.component.needs_config()
                || self.component.is_plain() && tensor.dtype.bits() != Some(8)
                || container_bits(&tensor.dtype).is_some())
    }
}

/// Returns whether a tensor contains parameters of routed experts.
fn is_routed(name: &str, tensor: &TensorInfo) -> bool {
    !tensor.is_scalar() && TensorPosition::new(name).is_routed(tensor)
}

/// Returns whether a tensor may belong to a router, although no tensor has the name of an expert.
fn is_router(name: &str, tensor: &TensorInfo) -> bool {
    TensorPosition::new(name).routed_experts(tensor).is_some()
}

/// Returns whether a tensor is an output embedding that was quantized, possibly from a tied embedding.
fn is_quantized_output(name: &str, tensor: &TensorInfo) -> bool {
    tensor.dtype.is_narrow_float() && TensorPosition::new(name).embedding == Some(Embedding::Output)
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
