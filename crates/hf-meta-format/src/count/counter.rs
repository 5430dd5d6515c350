//! The counter that all reading paths share.

use super::collected::{ClassifiedName, Collected};
use super::config::{Configs, QUANTIZE_CONFIG};
use super::doubts::compare_with_config;
use super::names::read_once;
use super::solver::Solver;
use super::sums::CountSums;
use super::{CountBreakdown, CountOverflow, ParameterCount, UnresolvedModules, UnresolvedReason};
use crate::formats::{FileHeader, TensorInfo};

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
    collected: Collected,
    /// The sums over the tensors that are not pending.
    sums: CountSums,
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
        self.collected.add(name, tensor, &mut self.sums)
    }

    /// Adds the tensors of one file, and the unpacked shapes that torchao stores in its metadata. In a
    /// [self-describing](FileHeader::is_self_describing) file, every element is a parameter.
    ///
    /// # Errors
    ///
    /// Returns an error if a sum overflows. The counter must not be used afterwards.
    pub fn add_file(&mut self, header: &FileHeader) -> Result<(), CountOverflow> {
        if header.is_self_describing() {
            if let Some(model) = header.model() {
                self.set_configs(Configs::from_model(model));
            }
            return self.collected.add_unpacked(header, &mut self.sums);
        }
        if let Some(metadata) = header.metadata() {
            self.collected.shapes.add_metadata(metadata);
        }
        header.tensors().try_for_each(|name, tensor| self.add(name, tensor))
    }

    /// Returns whether `config.json` could affect the result, given the tensors added so far.
    #[must_use]
    pub fn needs_config(&self) -> bool {
        self.collected.needs_config
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
        count(self.sums, &self.collected, &self.configs.unwrap_or_default())
    }

    /// Returns the name of another file, besides `config.json`, that may describe the quantization or the experts.
    /// Returns `None` if `config.json` describes them, or if the shapes are unambiguous.
    #[must_use]
    pub fn other_config_file(&self, configs: &Configs) -> Option<&'static str> {
        let collected = &self.collected;
        if configs.quantization.is_empty() && !collected.pending.is_empty() {
            // Only the pending tensors can be ambiguous.
            let (_, found) = count(CountSums::default(), collected, configs).ok()?;
            let is_ambiguous =
                |found: &UnresolvedModules| found.reason == UnresolvedReason::AmbiguousScheme;
            if found.unresolved.iter().any(is_ambiguous) {
                return Some(QUANTIZE_CONFIG);
            }
        }
        (collected.has_experts && configs.experts.is_empty()).then_some(Configs::PARAMS)
    }
}

/// Adds the collected tensors to the sums over the others.
///
/// # Errors
///
/// Returns an error if a sum overflows.
fn count(
    sums: CountSums,
    collected: &Collected,
    configs: &Configs,
) -> Result<(ParameterCount, CountBreakdown), CountOverflow> {
    let mut solver = Solver::new(sums, collected, configs);
    collected.pending.for_each_module(|module| solver.add_module(module))?;
    let mut sums = solver.finish()?;
    let tied_output = sums.add_output(configs.is_tied, collected.needs_config)?;
    if !collected.is_self_describing {
        sums.doubt_packing();
    }
    let (parameters, mut breakdown) = sums.finish(configs);
    breakdown.tied_output = tied_output;
    breakdown.needs_config = collected.needs_config;
    if !collected.needs_config && !collected.is_self_describing {
        // Not every way to read has the configuration.
        breakdown.moe_unknown = None;
    }
    compare_with_config(&mut breakdown, parameters.total(), configs);
    Ok((parameters, breakdown))
}

/// Returns whether `config.json` could affect the count of a tensor.
///
/// Fetching `config.json` counts as a download on the Hub, so it is needed only for tensors that may be packed or may
/// belong to routed experts. [`Counter::needs_config`] answers this for all tensors added so far. Use this function
/// to request `config.json` before all headers have arrived.
#[must_use]
pub fn needs_config(name: &str, tensor: &TensorInfo) -> bool {
    read_once(name, |name| ClassifiedName::new(name, tensor).needs_config(tensor))
}
