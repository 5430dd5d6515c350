//! The counter that all reading paths share.

use super::config::{Configs, HF_QUANT_CONFIG, MODELOPT_PARTS, MetadataShapes, QUANTIZE_CONFIG};
use super::counted_as::TensorUse;
use super::doubts::Siblings;
use super::expected_weights::ExpectedWeights;
use super::module::{Component, container_bits};
use super::names::Embedding;
use super::names::{NamePatterns, TensorName};
use super::pending::PendingTensors;
use super::solver::Solver;
use super::sums::CountSums;
use super::{
    AuxiliaryTensor, Buffer, CountBreakdown, CountOverflow, ParameterCount, UnresolvedModules,
    UnresolvedReason,
};
use hf_meta_format::formats::{Dtype, FileHeader, TensorInfo};

/// Counts the parameters of a weight set, tensor by tensor.
///
/// The result does not depend on the order of the tensors, on how they are split into files, or on when the
/// configuration arrives. A tensor that cannot be a component of a quantized module is counted immediately. Any other
/// tensor is kept in a compact form until [`finish`](Self::finish) is called, because the components of a module may
/// be in different files.
///
/// ```
/// use hf_meta_format::SafetensorsFileHeader;
/// use hf_meta_count::count::Counter;
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
    names: NamePatterns,
    /// True if the configuration could affect the count.
    needs_config: bool,
    has_experts: bool,
    /// True if every element is a parameter.
    is_self_describing: bool,
    /// The tensors that may belong to quantized modules.
    pending: PendingTensors,
    /// The sums over the tensors that are not pending.
    sums: CountSums,
    siblings: Siblings,
    shapes: MetadataShapes,
}

impl Counter {
    /// Creates an empty counter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows. The counter must not be used afterwards.
    pub fn add(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), CountOverflow> {
        let found = ClassifiedName::new(self.names.read(name), tensor);
        self.needs_config = self.needs_config || found.needs_config(tensor);
        self.has_experts = self.has_experts || found.is_routed(tensor);
        if found.buffer.is_none() && !tensor.is_scalar() {
            self.siblings.add_tensor(name, found.module, found.component);
        }
        if let Some(side) = found.unpacked_side(tensor) {
            self.shapes.add_side(side);
        }
        if found.is_pending {
            if let [rows, _] = tensor.shape[..] {
                self.shapes.add_rows(rows);
            }
            let pushed = self.pending.push(found.module, found.component, tensor);
            return pushed.ok_or_else(|| CountOverflow::new(name));
        }
        self.siblings.add_weights(found.module, found.component, tensor);
        self.sums.add(&found.name, tensor, TensorUse::Stored(found.buffer))
    }

    /// Adds the tensors of one file, and the unpacked shapes that torchao stores in its metadata. In a
    /// [self-describing](FileHeader::is_self_describing) file, every element is a parameter.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows. The counter must not be used afterwards.
    pub fn add_file(&mut self, header: &FileHeader) -> Result<(), CountOverflow> {
        if header.is_self_describing {
            if let Some(model) = header.model.as_deref() {
                self.set_configs(Configs::from_model(model));
            }
            return self.add_unpacked(header);
        }
        if let Some(metadata) = header.metadata() {
            self.shapes.add_metadata(metadata);
        }
        let pickle = header.pickle.as_deref().filter(|pickle| !pickle.entries.is_empty());
        header.tensors().try_for_each(|name, tensor| {
            match pickle.and_then(|pickle| pickle.entry_of(name)) {
                None => self.add(name, tensor),
                Some(entry) => {
                    let added = self.sums.add_uncounted(tensor, TensorUse::of_entry(entry));
                    added.ok_or_else(|| CountOverflow::new(name))
                }
            }
        })
    }

    /// Adds the tensors of a self-describing file: their shapes are the shapes of the weights.
    fn add_unpacked(&mut self, header: &FileHeader) -> Result<(), CountOverflow> {
        self.is_self_describing = true;
        header.tensors().try_for_each(|text, tensor| {
            let name = self.names.read(text);
            let used = match name.buffer(tensor) {
                None if is_gguf_scale(text) => TensorUse::Auxiliary(AuxiliaryTensor::Scale),
                buffer => TensorUse::Stored(buffer),
            };
            self.sums.add(&name, tensor, used)
        })
    }

    /// Returns whether `config.json` could affect the result, given the tensors added so far.
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
    pub fn finish(self) -> Result<(ParameterCount, CountBreakdown), CountOverflow> {
        let Self { needs_config, is_self_describing, .. } = self;
        let configs = self.configs.unwrap_or_default();
        // Otherwise the configuration is not read, or is of another model.
        let expected = if needs_config { Some(&configs) } else { None };
        let expected = expected.and_then(ExpectedWeights::new);
        let mut solver = Solver::new(&configs, &self.shapes, expected, self.siblings, self.sums);
        self.pending.for_each_module(|module| solver.add_module(module))?;
        let (sums, expected) = solver.finish()?;
        Ok(sums.finish(&configs, expected, needs_config, is_self_describing))
    }

    /// Returns the name of another file, besides `config.json`, that may describe the quantization or the experts.
    /// Returns `None` if `config.json` describes them, or if the shapes are unambiguous.
    pub fn other_config_file(&self, configs: &Configs) -> Option<&'static str> {
        if configs.quantization.is_empty() && !self.pending.is_empty() {
            let counter = Self { configs: Some(configs.clone()), ..self.clone() };
            let (_, found) = counter.finish().ok()?;
            let is_open = |found: &UnresolvedModules| {
                matches!(found.reason, UnresolvedReason::AmbiguousScheme | UnresolvedReason::Padded)
            };
            if found.unresolved.iter().any(is_open) {
                return Some(QUANTIZE_CONFIG);
            }
            let mut kinds = found.module_kinds.iter().flat_map(|kind| &kind.components);
            if kinds.any(|(name, _)| MODELOPT_PARTS.contains(name)) {
                return Some(HF_QUANT_CONFIG);
            }
        }
        (self.has_experts && configs.experts.is_empty()).then_some(Configs::PARAMS)
    }
}

/// Returns whether `config.json` could affect the count of a tensor in a file.
///
/// Fetching `config.json` counts as a download on the Hub, so it is needed only for tensors that may be packed or may
/// belong to routed experts. [`Counter::needs_config`] answers this for all tensors added so far. Use this function
/// to request `config.json` before all headers have arrived.
pub fn needs_config(header: &FileHeader) -> bool {
    let mut names = NamePatterns::default();
    let is_other =
        |name: &str| header.pickle.as_ref().is_some_and(|pickle| pickle.entry_of(name).is_some());
    let mut tensors = header.tensors().iter().filter(|(name, _)| !is_other(name));
    !header.is_self_describing
        && tensors.any(|(name, tensor)| {
            ClassifiedName::new(names.read(name), &tensor).needs_config(&tensor)
        })
}

/// Returns whether a tensor of a GGUF file contains scales of quantized weights, or factors of rotary frequencies that
/// the converter computed from the configuration. Source: `gguf/constants.py` 0.19 and `convert_hf_to_gguf.py`.
fn is_gguf_scale(name: &str) -> bool {
    let (_, last) = name.rsplit_once('.').unwrap_or(("", name));
    matches!(last, "scale" | "input_scale")
        || ["rope_freqs.", "rope_factors_"].iter().any(|start| name.starts_with(start))
}

/// A tensor, classified by its name.
struct ClassifiedName<'a> {
    name: TensorName<'a>,
    module: &'a str,
    component: &'static Component,
    buffer: Option<Buffer>,
    /// True if the tensor may belong to a quantized module, whose other tensors are needed to count it.
    is_pending: bool,
}

impl<'a> ClassifiedName<'a> {
    #[inline]
    fn new(name: TensorName<'a>, tensor: &TensorInfo) -> Self {
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
    fn needs_config(&self, tensor: &TensorInfo) -> bool {
        let may_be_packed = self.component.needs_config()
            || self.component.is_plain() && tensor.dtype.bits() != Some(8)
            || container_bits(&tensor.dtype).is_some();
        // A quantized output embedding may be a copy of a tied embedding.
        let is_output = || self.name.embedding() == Some(Embedding::Output);
        may_be_packed && self.is_pending && !tensor.is_scalar()
            || tensor.dtype.is_narrow_float() && is_output()
            || self.is_routed(tensor)
            || !self.is_pending && self.name.router_outputs(tensor).is_some()
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
