//! The calls of functions in a pickle.

use super::pickle::Pickle;
use super::values::{NodeKind, PickleValue};

/// A call of a function. Parameters and subclasses of tensors are unwrapped.
pub(super) struct Call<'a> {
    module: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) arguments: PickleValue,
}

impl<'a> Call<'a> {
    /// Returns the call that a value is the result of.
    pub(super) fn new(pickle: &Pickle<'a>, mut value: PickleValue) -> Option<Self> {
        // A subclass of a parameter is wrapped twice.
        for _ in 0..4 {
            let is_call = pickle.kind(value) == Some(NodeKind::Call);
            let &[mut function, mut arguments, ..] = pickle.items(value) else { return None };
            match (pickle.function(function).1, pickle.items(arguments)) {
                _ if !is_call => return None,
                (b"_rebuild_parameter" | b"_rebuild_parameter_with_state", [inner, ..]) => {
                    value = *inner;
                    continue;
                }
                (b"_rebuild_from_type_v2", &[inner, _, inner_arguments, ..]) => {
                    (function, arguments) = (inner, inner_arguments);
                }
                _ => {}
            }
            let (module, name) = pickle.function(function);
            return Some(Self { module, name, arguments });
        }
        None
    }

    /// Returns whether the function builds a tensor.
    pub(super) fn builds_tensor(&self) -> bool {
        matches!(self.module, b"torch._utils" | b"torch._tensor")
            && self.name.starts_with(b"_rebuild")
    }

    /// Returns the list of pairs of an `OrderedDict` that Python 2 wrote.
    pub(super) fn ordered_pairs(&self, pickle: &Pickle<'_>) -> Option<PickleValue> {
        let is_ordered = (self.module, self.name) == (b"collections", b"OrderedDict");
        if !is_ordered {
            return None;
        }
        let list = pickle.items(self.arguments).first()?;
        (pickle.kind(*list) == Some(NodeKind::List)).then_some(*list)
    }
}

/// Returns whether a value is a tensor.
pub(super) fn is_tensor(pickle: &Pickle<'_>, value: PickleValue) -> bool {
    Call::new(pickle, value).is_some_and(|call| call.builds_tensor())
}
