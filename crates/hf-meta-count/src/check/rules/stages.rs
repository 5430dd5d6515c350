//! The stages of vision models, and other modules with a number in their names in the layout.
//!
//! The layouts have as many of them as the sampled models, and the configuration of a model states its number.

use crate::architectures::blueprint::{Blueprint, BlueprintEntry};

/// The key of the numbers of layers in each stage.
const DEPTHS: &str = "depths";

/// A stage, which has a number in the layout.
struct Stage<'p> {
    list: &'p str,
    number: usize,
    inside: &'p str,
}

impl<'p> Stage<'p> {
    /// Returns the stage in a path; `None` outside of stages.
    fn of(path: &'p str) -> Option<Self> {
        const LISTS: [&str; 4] = ["block", "blocks", "layers", "stages"];

        let mut dots = path.match_indices('.').map(|(dot, _)| dot);
        dots.find_map(|dot| {
            let (list, rest) = (&path[..dot], &path[dot + 1..]);
            let is_list = list.rsplit('.').next().is_some_and(|name| LISTS.contains(&name));
            let (number, inside) = rest.split_once('.').unwrap_or((rest, ""));
            is_list.then(|| Some(Self { list, number: number.parse().ok()?, inside }))?
        })
    }
}

/// Returns the number of stages of the model with the keys of a scope.
fn stages(layout: &Blueprint<'_>, scope: usize) -> Option<usize> {
    let depths = layout.scopes[scope].object.get::<Vec<u64>>(DEPTHS)?;
    Some(depths.len()).filter(|stages| *stages > 0)
}

/// Returns whether a module is in a stage after the last one, between the last one and the next, or an expert after the
/// last one.
pub(super) fn is_in_spare_stage(layout: &Blueprint<'_>, entry: &BlueprintEntry) -> bool {
    if is_spare_expert(layout, entry) {
        return true;
    }
    let stage = Stage::of(&entry.path);
    let Some((stage, stages)) = stage.and_then(|stage| Some((stage, stages(layout, entry.scope)?)))
    else {
        return false;
    };
    if stage.number + 1 != stages {
        return stage.number >= stages;
    }
    // The last stage of the layout shows what a last one has.
    let others = layout.entries.iter().filter_map(|other| Stage::of(&other.path));
    let others: Vec<_> = others.filter(|other| other.list == stage.list).collect();
    let last = others.iter().map(|other| other.number).max();
    let mut inside = others.iter().filter(|other| Some(other.number) == last);
    inside.all(|other| other.inside != stage.inside)
}

/// Returns whether a module is an expert with a number in its name that the model does not have, as in `expert_3` of Switch
/// Transformers.
fn is_spare_expert(layout: &Blueprint<'_>, entry: &BlueprintEntry) -> bool {
    let mut segments = entry.path.split('.');
    let number = segments.find_map(|segment| segment.strip_prefix("expert_")?.parse::<u64>().ok());
    let experts = || layout.scopes[entry.scope].object.number("num_experts");
    number.is_some_and(|number| experts().is_some_and(|experts| number >= experts))
}

/// The scopes of a layout whose models have another number of stages than the layout.
pub(super) struct OtherStages(Vec<bool>);

impl OtherStages {
    pub(super) fn new(layout: &Blueprint<'_>) -> Self {
        let is_other = |scope: usize| {
            let Some(stages) = stages(layout, scope) else { return false };
            let inside = layout.entries.iter().filter(|entry| entry.scope == scope);
            let numbers = inside.filter_map(|entry| Some(Stage::of(&entry.path)?.number));
            numbers.max().is_some_and(|last| last + 1 != stages)
        };
        Self((0..layout.scopes.len()).map(is_other).collect())
    }

    /// Returns whether a side of a module after the last stage is unknown, because it is a multiple of the first width.
    pub(super) fn hide(&self, entry: &BlueprintEntry, side: &str) -> bool {
        self.0[entry.scope] && side.contains('*') && Stage::of(&entry.path).is_none()
    }
}
