//! A module whose number of weights is wanted.

use crate::count::config::KnownSides;
use crate::count::module::{ComponentTensor, Module, Names, without_star};
use crate::formats::TensorInfo;

/// A module whose number of weights is wanted, and everything that is known about it besides its shapes and schemes.
pub(in crate::count) struct Problem<'a> {
    pub(super) module: &'a Module<'a>,
    pub(super) known: KnownSides<'a>,
    /// `quant_method` of the configuration.
    pub(super) configured: Option<&'a str>,
    /// True if `quant_method` selects the method whose layouts are tried.
    pub(super) is_configured: bool,
}

impl<'a> Problem<'a> {
    /// Returns whether the configuration names one of `methods`.
    pub(super) fn is_method(&self, methods: &[&str]) -> bool {
        self.configured.is_some_and(|method| methods.contains(&method))
    }

    /// Returns the first of the named components that is stored.
    pub(super) fn first(&self, names: Names) -> Option<&'a TensorInfo> {
        first(self.module, names).map(|(_, tensor)| tensor)
    }
}

/// Returns the first of the named components that is stored. A tensor without elements counts as missing.
pub(super) fn first<'a>(module: &Module<'a>, names: Names) -> Option<&'a ComponentTensor> {
    names.iter().find_map(|name| {
        let found = module.find(without_star(name));
        found.filter(|(_, tensor)| tensor.elements() != Some(0))
    })
}
