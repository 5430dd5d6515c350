//! Solves modules and adds them to the sums.

use std::collections::VecDeque;

use super::config::{Configs, KnownSides, MetadataShapes, Schemes};
use super::counted_as::TensorUse;
use super::doubts::Siblings;
use super::expected_weights::ExpectedWeights;
use super::methods::{ConfiguredMethod, Solved, methods_of, solve};
use super::module::{ComponentTensor, Module, Role, container_bits, is_packed_integer};
use super::names::NamePatterns;
use super::parameter_count::CountResult;
use super::pending::PendingTensors;
use super::sums::CountSums;
use super::{CountOverflow, CountedAs, UnresolvedReason};
use hf_meta_format::formats::TensorInfo;

/// Solves modules and adds their tensors to the sums.
pub(super) struct Solver<'a> {
    schemes: Schemes<'a>,
    known: KnownSides<'a>,
    /// `None` if the architecture is unknown.
    expected: Option<ExpectedWeights<'a>>,
    method: ConfiguredMethod<'a>,
    sums: CountSums,
    /// Tensors whose class depends on whether the model is quantized.
    undecided: PendingTensors,
    /// True if the configuration describes a quantization or a module with packed weights was found.
    is_quantized: bool,
    siblings: Siblings,
    /// Recent solutions that do not depend on the module's name, with the tensors and the expected weights they apply to.
    recent: VecDeque<(Vec<ComponentTensor>, Option<u64>, ModuleSolution)>,
    names: NamePatterns,
    /// The name of the current tensor, in memory that is reused.
    name: String,
}

/// The names of the scales of attention and its cache. Source: `vllm/model_executor/layers/quantization/kv_cache.py`.
const CACHE_SCALES: [&str; 7] =
    ["q_scale", "k_scale", "v_scale", "kv_scale", "k_cache_scale", "v_cache_scale", "prob_scale"];

/// The number of recent solutions to reuse. Experts have two or three kinds of modules.
const MAX_RECENT: usize = 4;

/// The result of trying all methods: `Ok(None)` if none recognizes the components.
type ModuleSolution = Result<Option<Solved>, UnresolvedReason>;

impl<'a> Solver<'a> {
    /// Creates a solver that adds to `sums`.
    pub(super) fn new(
        configs: &'a Configs,
        shapes: &'a MetadataShapes,
        expected: Option<ExpectedWeights<'a>>,
        siblings: Siblings,
        sums: CountSums,
    ) -> Self {
        Self {
            schemes: Schemes::new(&configs.quantization),
            known: KnownSides { dimensions: &configs.dimensions, shapes, expected: None },
            expected,
            method: ConfiguredMethod::new(configs.method()),
            sums,
            undecided: PendingTensors::default(),
            is_quantized: !configs.quantization.is_empty(),
            siblings,
            recent: VecDeque::new(),
            names: NamePatterns::default(),
            name: String::new(),
        }
    }

    /// Solves a module, or reuses the solution of a module with equal shapes, because models have many equal layers
    /// and experts.
    fn solve(&mut self, module: &Module<'_>) -> ModuleSolution {
        let expected = self.known.expected;
        let is_known = |(tensors, weights, _): &&(Vec<_>, _, _)| {
            *weights == expected && tensors == module.tensors
        };
        if let Some((.., solution)) = self.recent.iter().find(is_known) {
            return *solution;
        }
        let mut schemes = self.schemes.of_module(module.name);
        let solution = solve(module, self.known, &self.method, &mut schemes);
        if !schemes.depend_on_name {
            self.recent.truncate(MAX_RECENT - 1);
            self.recent.push_front((module.tensors.to_vec(), expected, solution));
        }
        solution
    }

    /// Adds the tensors of a module.
    pub(super) fn add_module(&mut self, module: &Module<'_>) -> CountResult {
        self.siblings.add_module(module);
        // A tensor is stored twice, so no component of the module can be trusted.
        if module.tensors.windows(2).any(|tensors| tensors[0].0 == tensors[1].0) {
            return self.add_unresolved(module, UnresolvedReason::ConflictingComponents);
        }
        self.known.expected =
            self.expected.as_mut().and_then(|expected| expected.of_module(module.name));
        match self.solve(module) {
            Ok(Some(_)) if self.schemes.is_exhausted() => {
                self.add_unresolved(module, UnresolvedReason::TooComplex)
            }
            Ok(Some(solved)) => self.add_solved(module, &solved),
            Ok(None) if has_packed_weights(module) && self.is_packed(module) => {
                self.add_unresolved(module, UnresolvedReason::UnknownComponents)
            }
            Err(reason) if self.is_packed(module) => self.add_unresolved(module, reason),
            Ok(None) | Err(_) => {
                module.tensors.iter().try_for_each(|stored| self.add_unsolved(module.name, stored))
            }
        }
    }

    /// Returns whether an unsolved module is quantized. Unquantized models also have tensors named `B` or `codes`.
    /// Scalars prove nothing, because they do not [need the configuration](super::needs_config).
    fn is_packed(&self, module: &Module<'_>) -> bool {
        let configured = self.method.name;
        let is_configured =
            |component| methods_of(component).iter().any(|method| method.is_named(configured));
        module.tensors.iter().any(|(component, tensor)| match component.role {
            _ if tensor.is_scalar() => false,
            Role::PlainWeights => container_bits(&tensor.dtype).is_some(),
            Role::PackedWeights => is_packed_integer(&tensor.dtype) || is_configured(component),
            Role::Auxiliary => true,
            _ => false,
        })
    }

    fn add_solved(&mut self, module: &Module<'_>, solved: &Solved) -> CountResult {
        self.is_quantized = true;
        self.sums.add_kind(module, solved);
        for stored @ (component, _) in module.tensors {
            let is_own = |_: &_| component.is_always_auxiliary() || solved.method.has(component);
            let used = if *component == solved.weights {
                Some(TensorUse::Weights(solved.parameters, solved.packing))
            } else {
                component.kind.filter(is_own).map(TensorUse::Auxiliary)
            };
            match used {
                Some(used) => self.add(module.name, stored, used)?,
                None => self.add_unsolved(module.name, stored)?,
            }
        }
        let (layout, expected) = (solved.packing.layout, self.expected.as_ref());
        self.sums.biases.add_packed(module.name, layout, expected);
        if self.known.expected.is_some_and(|expected| expected != solved.parameters) {
            self.sums.add_unresolved(module.name, UnresolvedReason::ContradictsConfig, 0);
        } else if solved.is_padded {
            self.sums.add_unresolved(module.name, UnresolvedReason::Padded, 0);
        }
        Ok(())
    }

    /// Adds a packed module of unknown size.
    fn add_unresolved(&mut self, module: &Module<'_>, reason: UnresolvedReason) -> CountResult {
        self.is_quantized = true;
        let mut elements = 0_u64;
        for stored @ (component, tensor) in module.tensors {
            let used = component.kind.map_or(TensorUse::Unresolved, TensorUse::Auxiliary);
            if component.is_weights() {
                elements = elements.saturating_add(tensor.elements().unwrap_or_default());
            }
            self.add(module.name, stored, used)?;
        }
        self.sums.add_unresolved(module.name, reason, elements);
        Ok(())
    }

    /// Adds a component of a module without packed weights.
    fn add_unsolved(&mut self, module: &str, stored: &ComponentTensor) -> CountResult {
        let (component, tensor) = stored;
        let may_be_packed = component.is_plain() || component.needs_config();
        let is_integer = may_be_packed && is_packed_integer(&tensor.dtype);
        // Scales of a matrix, whose packed weights are missing or have an unexpected dtype.
        let is_orphan = component.role == Role::Auxiliary && tensor.shape.len() > 1;
        if is_integer || is_orphan || component.is_always_auxiliary() {
            let pushed = self.undecided.push(module, component, tensor);
            return pushed.ok_or_else(|| CountOverflow::new(module));
        }
        self.add(module, stored, TensorUse::Stored(None))
    }

    fn add(&mut self, module: &str, stored: &ComponentTensor, used: TensorUse) -> CountResult {
        let (component, tensor) = stored;
        if !component.is_weights() {
            let class = used.class(tensor);
            if class == CountedAs::AsStored {
                self.siblings.add_counted_part(module, component);
            }
            if !class.is_counted() && self.sums.add_uncounted(tensor, used).is_some() {
                return Ok(());
            }
        }
        component.write_tensor_name(module, &mut self.name);
        self.sums.add(&self.names.read(&self.name), tensor, used)
    }

    /// Classifies the undecided tensors, now that it is known whether the model is quantized.
    pub(super) fn finish(mut self) -> CountResult<(CountSums, Option<ExpectedWeights<'a>>)> {
        let undecided = std::mem::take(&mut self.undecided);
        undecided.for_each_module(|module| {
            module.tensors.iter().try_for_each(|stored| {
                let used = self.undecided_use(module.name, stored);
                self.add(module.name, stored, used)
            })
        })?;
        self.sums.add_doubts(self.siblings.found);
        Ok((self.sums, self.expected))
    }

    fn undecided_use(&mut self, module: &str, (component, tensor): &ComponentTensor) -> TensorUse {
        let stored = TensorUse::Stored(None);
        // The scales of an FP8 cache are single numbers, and also stored next to weights that are not quantized.
        let is_cache_scale = CACHE_SCALES.contains(&component.name) && tensor.elements() == Some(1);
        let is_auxiliary = component.role == Role::QuantizerState
            || component.role == Role::AlwaysAuxiliary && (self.is_quantized || is_cache_scale);
        // Integers with other names are as likely to be tables or masks as weights.
        let may_be_table =
            component.is_bare() && !(is_matrix(tensor) && (self.is_quantized || is_stack(tensor)));
        let reason = match component.kind {
            _ if stored.class(tensor) != CountedAs::AsStored => return stored,
            Some(kind) if is_auxiliary => return TensorUse::Auxiliary(kind),
            _ if may_be_table || component.role == Role::AlwaysAuxiliary => return stored,
            // Auxiliary components are scales or packed zero points without their weights.
            _ if self.is_quantized => UnresolvedReason::UnknownComponents,
            None if may_be_packed(tensor) => UnresolvedReason::SuspectedPacking,
            _ => return stored,
        };
        self.sums.add_unresolved(module, reason, tensor.elements().unwrap_or_default());
        TensorUse::Unresolved
    }
}

/// Returns whether integers of an unquantized model look packed.
fn may_be_packed(tensor: &TensorInfo) -> bool {
    const MIN_ELEMENTS: u64 = 1024;

    let is_large = tensor.shape.len() > 1 || tensor.elements() >= Some(MIN_ELEMENTS);
    is_large && is_packed_integer(&tensor.dtype)
}

/// Returns whether a module has weights under a name that only quantizers use.
fn has_packed_weights(module: &Module<'_>) -> bool {
    let mut components = module.tensors.iter().map(|(component, _)| component);
    components.any(|component| component.role == Role::PackedWeights)
}

/// Returns whether a tensor is large enough for a weight matrix. A table of expert IDs, as in DeepSeek, is narrow.
fn is_matrix(tensor: &TensorInfo) -> bool {
    const MIN_SIDE: u64 = 32;

    match &tensor.shape[..] {
        [.., rows, columns] if is_stack(tensor) => {
            rows.saturating_mul(*columns) >= MIN_SIDE * MIN_SIDE
        }
        sides => sides.iter().all(|&side| side >= MIN_SIDE),
    }
}

/// Returns whether a tensor is a stack of several matrices. The first dimension of masks is 1.
fn is_stack(tensor: &TensorInfo) -> bool {
    matches!(tensor.shape[..], [stacked, _, _, ..] if stacked > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::names::split;

    /// Earlier answers may have been wrong, too.
    #[test]
    fn nothing_is_exact_after_the_step_limit() {
        let (configs, shapes) = (Configs::default(), MetadataShapes::default());
        let tensors: [(_, _, &[u64]); 3] = [
            ("m.qweight", "I32", &[8, 16]),
            ("m.qzeros", "I32", &[1, 2]),
            ("m.scales", "F16", &[1, 16]),
        ];
        let tensors = tensors.map(|(name, dtype, shape)| {
            (split(name).1, TensorInfo::new(dtype.into(), shape.to_vec(), (0, 0)))
        });
        let is_too_complex = |has_steps: bool| {
            let mut solver =
                Solver::new(&configs, &shapes, None, Siblings::default(), CountSums::default());
            if !has_steps {
                solver.schemes.exhaust();
            }
            solver.add_module(&Module { name: "m", tensors: &tensors }).unwrap();
            let (sums, expected) = solver.finish().unwrap();
            let (_, found) = sums.finish(&configs, expected, true, false);
            found.unresolved.iter().any(|found| found.reason == UnresolvedReason::TooComplex)
        };
        assert_eq!([true, false].map(is_too_complex), [false, true]);
    }
}
