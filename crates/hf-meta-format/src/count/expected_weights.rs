//! The number of weights of each module that a configuration implies.
//!
//! This uses no shape of a packed tensor, so it is an independent check of a count. The table of layouts has the shapes
//! of the modules of most architectures.

use std::collections::HashMap;

use super::Configs;
use super::module::product;
use crate::base::json_object::JsonObject;
use crate::tables::layout::ModelLayout;

/// The number of weights of each module, by the layout of the model.
#[derive(Default)]
pub(super) struct ExpectedWeights<'a> {
    /// The layout; `None` if the architecture is unknown.
    layout: Option<ModelLayout<'a>>,
    /// The weights of a module in a layer, by its entry.
    known: HashMap<(usize, u32), Option<u64>>,
}

impl<'a> ExpectedWeights<'a> {
    pub(super) fn new(configs: &'a Configs) -> Self {
        let find = || {
            let object: JsonObject<'_> = serde_json::from_slice(configs.json.as_deref()?).ok()?;
            ModelLayout::new(&object.get::<String>("model_type")?, object)
        };
        Self { layout: find(), known: HashMap::new() }
    }

    /// Returns the number of weights of a module; `None` if the configuration does not imply it.
    pub(super) fn of_module(&mut self, module: &str) -> Option<u64> {
        let layout = self.layout.as_mut()?;
        let inside = module.strip_prefix(layout.prefix).unwrap_or(module);
        let (entry, place) = layout.find(inside, false).or_else(|| layout.find(module, true))?;
        let weights = || weights(layout, entry, place[0]);
        *self.known.entry((entry, place[0])).or_insert_with(weights)
    }
}

/// Evaluates the shape of a module in a layer. Defaults do not count: models with custom code may have others.
fn weights(layout: &mut ModelLayout<'_>, entry: usize, layer: u32) -> Option<u64> {
    let entry = &layout.entries[entry];
    let names = &mut layout.scopes[entry.scope].names;
    names.layer = layer.into();
    let side = |formula| {
        let (side, keys) = names.trace(formula).ok()?;
        keys.keys().all(|key| !names.is_default(key)).then_some(side)
    };
    let sides: Option<Vec<_>> = entry.formulas.split(',').map(side).collect();
    sides.filter(|_| !entry.is_list).and_then(|sides| product(&sides))
}
