//! The roles of the entries of a training checkpoint: the model, its copies, and the state of the training run.
//!
//! `torch.save` writes whatever a program puts into a dictionary. The structure tells the roles apart: an optimizer has
//! `param_groups` (`torch/optim/optimizer.py`), the settings of a run are numbers and texts, and a copy of the model has
//! tensors of the same relative names and shapes.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::pickle::Pickle;
use super::values::{NodeKind, PickleValue};
use crate::base::sort::sort_by;
use crate::formats::TrainingEntry;

/// Words in the names of optimizer states.
const OPTIMIZERS: [&str; 4] = ["optimizer", "optimizers", "optim", "optims"];

/// Words in the names of settings. Lightning stores `hyper_parameters`, fairseq `args` and `cfg`.
const SETTINGS: [&str; 14] = [
    "args",
    "callbacks",
    "cfg",
    "conf",
    "config",
    "hparams",
    "hyper",
    "hyperparameters",
    "kwargs",
    "loops",
    "options",
    "scheduler",
    "schedulers",
    "settings",
];

/// Words in the names of averaged weights, which only decide which of two equal entries is the copy.
const AVERAGES: [&str; 8] =
    ["ema", "avg", "average", "averaged", "shadow", "swa", "target", "teacher"];

/// The maximum number of values of an entry to look at.
const MAX_VALUES: usize = 1_000;

/// The maximum number of entries that are compared with each other.
const MAX_MODELS: usize = 16;

/// Returns the role of an entry according to its name and structure; `None` if it may be the model.
pub(super) fn role_of(pickle: &Pickle<'_>, key: &str, value: PickleValue) -> Option<TrainingEntry> {
    let has_word = |words: &[&str]| self::words(key).any(|word| words.contains(&&*word));
    if has_word(&OPTIMIZERS) || is_optimizer(pickle, value) {
        return Some(TrainingEntry::OptimizerState);
    }
    let is_setting = has_word(&SETTINGS) || has_mostly_settings(pickle, value);
    is_setting.then_some(TrainingEntry::Value)
}

/// Returns whether a value may be the state of a model: a dictionary or an object.
pub(super) fn is_collection(pickle: &Pickle<'_>, value: PickleValue) -> bool {
    matches!(pickle.kind(value), Some(NodeKind::Dict | NodeKind::Call))
}

/// Returns the words of a name in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.map(str::to_ascii_lowercase)
}

/// Returns the first keys and values of a dictionary, or of the dictionaries that were added to an object.
fn pairs(
    pickle: &Pickle<'_>,
    value: PickleValue,
) -> impl Iterator<Item = (PickleValue, PickleValue)> {
    let dicts = match pickle.kind(value) {
        Some(NodeKind::Dict) => vec![value],
        Some(NodeKind::Call) => {
            let added = pickle.all_items(value).take(MAX_VALUES);
            added.filter(|added| pickle.kind(*added) == Some(NodeKind::Dict)).collect()
        }
        _ => Vec::new(),
    };
    let values: Vec<_> =
        dicts.into_iter().flat_map(|dict| pickle.all_items(dict)).take(2 * MAX_VALUES).collect();
    values.as_chunks::<2>().0.to_vec().into_iter().map(|[key, value]| (key, value))
}

/// Returns whether a value is the state of an optimizer, or a list of them.
fn is_optimizer(pickle: &Pickle<'_>, value: PickleValue) -> bool {
    let is_list = matches!(pickle.kind(value), Some(NodeKind::List | NodeKind::Tuple));
    let first = if is_list { pickle.all_items(value).next() } else { None };
    let mut pairs = pairs(pickle, first.unwrap_or(value));
    pairs.any(|(key, _)| pickle.text(key) == b"param_groups")
}

/// Returns whether a dictionary contains more numbers and texts than tensors, and no other dictionaries.
fn has_mostly_settings(pickle: &Pickle<'_>, value: PickleValue) -> bool {
    let (mut settings, mut tensors) = (0, 0);
    for (_, value) in pairs(pickle, value) {
        match pickle.kind(value) {
            Some(NodeKind::Dict) => return false,
            Some(NodeKind::Call) => tensors += 1,
            _ => settings += usize::from(value.as_literal().is_some()),
        }
    }
    pickle.kind(value) == Some(NodeKind::Dict) && settings > tensors
}

/// The tensors of an entry that may be the model.
#[derive(Debug, Default)]
pub(super) struct ModelEntry {
    pub(super) name: String,
    /// The start of all names up to a dot.
    prefix: Option<String>,
    /// Hashes of the names and the shapes, sorted at the end: of the names in the entry, which a copy without buffers has, and
    /// of the names after the prefix, which a copy inside of another module has.
    tensors: [Vec<u64>; 2],
    elements: u64,
}

impl ModelEntry {
    pub(super) fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// Shortens the prefix to what it has in common with the name of a tensor.
    pub(super) fn add_name(&mut self, name: &str) {
        let module = name.rfind('.').map_or("", |dot| &name[..=dot]);
        let Some(known) = &mut self.prefix else {
            self.prefix = Some(module.to_owned());
            return;
        };
        let equal = known.bytes().zip(module.bytes()).take_while(|(one, other)| one == other);
        let equal = equal.count();
        let length = known.as_bytes()[..equal].iter().rposition(|byte| *byte == b'.');
        known.truncate(length.map_or(0, |dot| dot + 1));
    }

    /// Adds a tensor. All names must have been added.
    pub(super) fn add_tensor(&mut self, name: &str, shape: &[u64], elements: u64) {
        let starts = [self.name.len(), self.prefix.as_ref().map_or(0, String::len)];
        for (start, tensors) in starts.into_iter().zip(&mut self.tensors) {
            let mut hasher = DefaultHasher::new();
            (name.get(start..), shape).hash(&mut hasher);
            tensors.push(hasher.finish());
        }
        self.elements = self.elements.saturating_add(elements);
    }

    fn is_average(&self) -> bool {
        words(&self.name).any(|word| AVERAGES.contains(&&*word))
    }

    /// Returns whether most tensors of another entry, and no others, are in this one.
    fn is_in(&self, other: &Self) -> bool {
        let contains = |(own, others): (&Vec<u64>, &Vec<u64>)| {
            let mut others = others.iter();
            own.len() > 1 && own.iter().all(|tensor| others.any(|other| other == tensor))
        };
        self.elements.saturating_mul(2) >= other.elements
            && self.tensors.iter().zip(&other.tensors).any(contains)
    }

    /// Returns whether two names differ in a short part only, such as `netG_A` and `netG_B`, or `critic1` and `critic2`: two
    /// models of one kind.
    fn is_peer_of(&self, other: &Self) -> bool {
        const MAX_LENGTH: usize = 3;

        let [one, two] = [&self.name, &other.name].map(String::as_bytes);
        let start = one.iter().zip(two).take_while(|(one, two)| one == two).count();
        let [one, two] = [&one[start..], &two[start..]];
        let end = one.iter().rev().zip(two.iter().rev()).take_while(|(one, two)| one == two);
        let end = end.count();
        let [one, two] = [one, two].map(|rest| rest.len() - end);
        !self.is_average() && !other.is_average() && one.min(two) > 0 && one.max(two) <= MAX_LENGTH
    }
}

/// Returns the entries that are copies of others.
pub(super) fn find_copies(entries: &mut [ModelEntry]) -> Vec<bool> {
    let mut are_copies = vec![false; entries.len()];
    if entries.len() > MAX_MODELS {
        return are_copies;
    }
    for entry in entries.iter_mut() {
        entry.tensors.iter_mut().for_each(|tensors| sort_by(tensors, Ord::cmp));
    }
    for (at, entry) in entries.iter().enumerate() {
        are_copies[at] = entries.iter().enumerate().any(|(original, other)| {
            // Of two equal entries, the average is the copy, or else the second one.
            let rank = |entry: &ModelEntry, at: usize| {
                (usize::MAX - entry.tensors[0].len(), entry.is_average(), at)
            };
            rank(other, original) < rank(entry, at)
                && entry.is_in(other)
                && !entry.is_peer_of(other)
        });
    }
    are_copies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, tensors: &[&str]) -> ModelEntry {
        let mut entry = ModelEntry::new(name.to_owned());
        let names: Vec<_> = tensors.iter().map(|tensor| format!("{name}.{tensor}")).collect();
        for name in &names {
            entry.add_name(name);
        }
        for name in &names {
            entry.add_tensor(name, &[8, 4], 32);
        }
        entry
    }

    /// Two entries with their tensors, and whether each is a copy.
    type Pair<'a> = (&'a str, &'a [&'a str], &'a str, &'a [&'a str], [bool; 2]);

    #[test]
    fn the_same_names_and_shapes_are_a_copy() {
        const MODEL: &[&str] = &["layers.0.weight", "layers.1.weight", "head.weight"];
        const WRAPPED: &[&str] = &["m.layers.0.weight", "m.layers.1.weight", "m.head.weight"];

        let cases: [Pair<'_>; 14] = [
            ("model_state_dict", MODEL, "ema_model_state_dict", WRAPPED, [false, true]),
            ("model", MODEL, "model_avg", MODEL, [false, true]),
            ("model_avg", MODEL, "model", MODEL, [true, false]),
            ("generator", MODEL, "generator_ema", MODEL, [false, true]),
            ("G_ema", MODEL, "G", MODEL, [true, false]),
            ("ema", MODEL, "net", WRAPPED, [true, false]),
            ("averaged_model", MODEL, "model", MODEL, [true, false]),
            ("student", MODEL, "teacher", MODEL, [false, true]),
            // An average without the buffers.
            ("model", MODEL, "ema", &MODEL[..2], [false, true]),
            ("netG_A", MODEL, "netG_B", MODEL, [false, false]),
            ("critic1", MODEL, "critic2", MODEL, [false, false]),
            ("generator", MODEL, "discriminator", &MODEL[..1], [false, false]),
            ("encoder", MODEL, "decoder", &["a", "b", "c"], [false, false]),
            ("model", MODEL, "other", &["layers.0.weight", "layers.2.weight"], [false, false]),
        ];
        for (one, tensors, two, others, expected) in cases {
            let mut entries = [entry(one, tensors), entry(two, others)];
            assert_eq!(find_copies(&mut entries), expected, "{one} {two}");
        }
        let mut three =
            [entry("model", MODEL), entry("ema_0.999", MODEL), entry("ema_0.9999", MODEL)];
        assert_eq!(find_copies(&mut three), [false, true, true]);
    }
}
