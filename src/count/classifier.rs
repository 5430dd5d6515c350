//! Classification of tensors one by one, for callers that do not use the counter yet.

use std::borrow::Borrow;
use std::collections::HashMap;

use super::methods::Module;
use super::module_part::ModulePart;
use super::{Configs, CountedAs, module, suffix};
use crate::formats::TensorInfo;

/// The rules that follow from the configuration of a model.
#[derive(Clone, Debug)]
pub struct Classifier<'a> {
    pub(super) configs: Option<&'a Configs>,
    modules: HashMap<Box<str>, Vec<(String, TensorInfo)>>,
}

impl<'a> Classifier<'a> {
    /// Creates the rules for a model with these tensors.
    pub fn new<'t, T: Borrow<TensorInfo>>(
        configs: Option<&'a Configs>,
        tensors: impl Iterator<Item = (&'t str, T)>,
    ) -> Self {
        let mut modules = HashMap::<Box<str>, Vec<(String, TensorInfo)>>::new();
        if configs.is_some_and(Configs::needs_whole_modules) {
            for (name, tensor) in tensors {
                let part = (name.to_owned(), tensor.borrow().clone());
                modules.entry(module(name).into()).or_default().push(part);
            }
            for parts in modules.values_mut() {
                parts.sort_by(|a, b| suffix(&a.0).cmp(suffix(&b.0)));
            }
        }
        Self { configs, modules }
    }

    /// Classifies a tensor.
    #[must_use]
    pub fn judge(&self, name: &str, tensor: &TensorInfo) -> CountedAs {
        let parts = self.modules.get(module(name)).map_or(&[][..], Vec::as_slice);
        let configs = self.configs.cloned().unwrap_or_default();
        configs.classify(&ModulePart::new(name, tensor), &Module::from_sorted(parts))
    }
}
