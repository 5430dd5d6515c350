//! Finds the tensors in the value of a pickle.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::iter;
use std::ops::Range;

use super::call::{Call, is_tensor};
use super::entries::{ModelEntry, find_copies, is_collection, role_of};
use super::pickle::Pickle;
use super::places::{StoragePlace, Storages, TensorPlaces};
use super::tensor::{Tensor, find_shared, index};
use super::values::{NodeKind, PickleValue, spend, too_large};
use super::{PickleSummary, TensorView};
use crate::base::sort::sort_by;
use crate::formats::{
    Dtype, FileHeader, HeaderError, TensorInfo, TensorTableBuilder, TrainingEntry,
};

/// The maximum number of values in collections and of keys in names to look at. A tensor in a dictionary takes three.
const MAX_STEPS: usize = 1 << 21;

/// The maximum length of a name in bytes, which also limits the depth of nested dictionaries.
const MAX_NAME: usize = 512;

/// The memory that a value in a collection takes, besides the value.
const PLACE_BYTES: usize = size_of::<Place>() + size_of::<u32>();

/// The memory that a collection takes in a set.
const VISITED_BYTES: usize = 12;

/// The memory that a tensor takes, besides its name: here, and about 30 bytes in the table, and 24 for its position.
const TENSOR_BYTES: usize = size_of::<Tensor>() + size_of::<u32>() + 30 + 24;

/// The memory that a view takes, besides its names.
const VIEW_BYTES: usize = size_of::<TensorView>() + 64;

/// The maximum number of entries whose role is determined. A training checkpoint has a dozen.
const MAX_ENTRIES: usize = 64;

/// The attributes of a `torch.nn.Module` that contain its tensors.
const MODULE_ATTRIBUTES: [&[u8]; 3] = [b"_parameters", b"_buffers", b"_modules"];

type Result<T> = std::result::Result<T, HeaderError>;

/// Returns the header of a file with a pickle, which ends at byte `end`: its tensors, with each stored element once, and
/// the views of them.
pub(super) fn header(
    pickle: &Pickle<'_>,
    root: PickleValue,
    storages: &Storages<'_>,
    end: u64,
) -> Result<FileHeader> {
    let places = vec![Place { parent: 0, entry: 0, key: NO_KEY, value: root }];
    let (steps, memory) = (MAX_STEPS, pickle.free_memory);
    let mut finder = TensorFinder { pickle, places, entries: Vec::new(), steps, memory };
    let mut tensors = finder.find()?;
    finder.find_copies(&tensors)?;
    find_shared(pickle, &mut tensors);
    let (mut builder, mut views, mut at) = (TensorTableBuilder::new(), Vec::new(), 0_u64);
    let mut places = TensorPlaces::default();
    spend(&mut finder.memory, storages.len().saturating_mul(size_of::<StoragePlace>()))?;
    for tensor in &tensors {
        let (_, _, dtype, size) = *tensor.element;
        let dtype = Dtype::from(dtype);
        let name = finder.name(tensor.place)?;
        let shape: Vec<_> = tensor.lengths(pickle, 2).flatten().collect();
        let stored_shape = tensor.stored_shape(pickle);
        let is_range = stored_shape.as_ref() == Some(&shape) && tensor.is_range(pickle);
        if stored_shape.as_ref() != Some(&shape) {
            let stored_in = tensor.stored_in.map_or(tensor.place, |at| tensors[at as usize].place);
            let stored_in = finder.name(stored_in)?;
            spend(&mut finder.memory, VIEW_BYTES + name.len() + stored_in.len())?;
            views.push(TensorView { name: name.clone(), dtype: dtype.clone(), shape, stored_in });
        }
        if let Some(shape) = stored_shape {
            let begin = at;
            at = at.saturating_add(tensor.new.saturating_mul(size));
            let (key, offset) = tensor.storage(pickle);
            let has_range = is_range && at > begin;
            if has_range && let Some(storage) = storages.find(key) {
                places.add(begin, storage, offset);
            }
            builder.push(&name, &TensorInfo::new(dtype, shape, (begin, at)));
        }
    }
    sort_by(&mut views, |one, other| one.name.cmp(&other.name));
    let imports = pickle.imports.iter().cloned().collect();
    places.set_storages(storages);
    let summary = PickleSummary { imports, views, entries: finder.named_entries()?, places };
    let mut header = FileHeader::new(builder.finish()?, 0..end);
    // If a dictionary repeats a key, the name would identify a stored tensor and an alias.
    let repeated = summary.aliases().find(|alias| header.tensors().get(&alias.name).is_some());
    repeated.map_or(Ok(()), |alias| Err(HeaderError::duplicate(&alias.name, "header")))?;
    header.pickle = Some(Box::new(summary));
    Ok(header)
}

/// A search for the tensors in nested collections, with limits of steps and memory for the whole file.
struct TensorFinder<'p, 'a> {
    pickle: &'p Pickle<'a>,
    places: Vec<Place>,
    /// The indexes of the entries of the outermost dictionary, with the roles of those that are not the model.
    entries: Vec<(u32, Option<TrainingEntry>)>,
    /// The number of values and keys that may be looked at.
    steps: usize,
    /// The number of bytes that may be allocated.
    memory: usize,
}

/// A value in nested collections.
struct Place {
    /// The index of the place of the collection.
    parent: u32,
    /// The index of the entry of the outermost dictionary that contains the value; 0 if none does. It is stored, because a
    /// hostile file nests so deeply that a search for it at every value takes minutes.
    entry: u32,
    key: Key,
    value: PickleValue,
}

/// The key of a value in its collection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Index(u32),
    Value(PickleValue),
}

/// The key of a value that has the name of its collection.
const NO_KEY: Key = Key::Value(PickleValue::OTHER);

impl TensorFinder<'_, '_> {
    /// Returns all tensors, the ones of the model first, in file order.
    fn find(&mut self) -> Result<Vec<Tensor>> {
        // A collection that appears twice is visited once, so that shared collections take linear time.
        let (mut visited, mut pending, mut tensors) = (HashSet::new(), vec![0], Vec::new());
        while let Some(at) = pending.pop() {
            let value = self.places[at as usize].value;
            if let Some(call) = Call::new(self.pickle, value).filter(Call::builds_tensor) {
                let name = self.name(at)?;
                spend(&mut self.memory, TENSOR_BYTES + name.len())?;
                tensors.push(Tensor::new(self.pickle, &name, at, &call)?);
            } else if visited.insert(value) {
                let first = index(self.places.len());
                spend(&mut self.memory, VISITED_BYTES)?;
                self.add_children(at, value)?;
                let children = first..index(self.places.len());
                let is_outermost = self.places[at as usize].entry == 0;
                if is_outermost && let Some(only) = self.wrapped(children.clone()) {
                    self.places[only as usize].entry = 0;
                    pending.push(only);
                } else if is_outermost {
                    pending.extend(self.add_entries(children));
                } else {
                    pending.extend(children.rev());
                }
            }
        }
        Ok(tensors)
    }

    /// Adds the nodes in a collection or the result of a call.
    fn add_children(&mut self, parent: u32, value: PickleValue) -> Result<()> {
        match self.pickle.kind(value) {
            Some(NodeKind::Dict) => self.add_pairs(parent, value),
            Some(NodeKind::Tuple | NodeKind::List) => {
                let mut items = (0..).map(Key::Index).zip(self.pickle.all_items(value));
                items.try_for_each(|(key, value)| self.add(parent, key, value))
            }
            Some(NodeKind::Call) => self.add_result(parent, value),
            _ => Ok(()),
        }
    }

    /// Adds the nodes in a dictionary. Of several values of a key, Python keeps the last.
    fn add_pairs(&mut self, parent: u32, dict: PickleValue) -> Result<()> {
        let (pickle, mut known) = (self.pickle, HashMap::new());
        let text = |key| (pickle.integer(key), pickle.text(key));
        for (key, value) in pairs(pickle, dict) {
            let hash = known.hasher().hash_one(text(key));
            let is_same = |place: &Place| match place.key {
                Key::Value(other) => text(other) == text(key),
                Key::Index(_) => false,
            };
            let known_place = known.get(&hash).and_then(|at: &u32| {
                self.places.get_mut(*at as usize).filter(|place| is_same(place))
            });
            if let Some(place) = known_place {
                place.value = value;
                continue;
            }
            let at = self.places.len();
            self.add(parent, Key::Value(key), value)?;
            if self.places.len() > at {
                known.insert(hash, index(at));
            }
        }
        Ok(())
    }

    /// Returns the only entry of a dictionary if it is a dictionary of groups, such as the model and its copy. This
    /// dictionary then takes the place of the outermost one.
    fn wrapped(&self, mut children: Range<u32>) -> Option<u32> {
        let only = children.next()?;
        if !children.is_empty() {
            return None;
        }
        let (pickle, value) = (self.pickle, self.places[only as usize].value);
        let groups = pairs(pickle, value)
            .take(MAX_ENTRIES)
            .filter(|(_, group)| is_collection(pickle, *group) && !is_tensor(pickle, *group));
        (pickle.kind(value) == Some(NodeKind::Dict) && groups.count() > 1).then_some(only)
    }

    /// Adds the entries of the outermost dictionary. Returns them in reverse order, with the model at the end: tensors that it
    /// shares with others have its names.
    fn add_entries(&mut self, children: Range<u32>) -> Vec<u32> {
        let (pickle, mut entries) = (self.pickle, Vec::new());
        let (mut has_model, mut has_state_dict) = (false, false);
        for at in children.clone() {
            let Place { key, value, .. } = self.places[at as usize];
            let Key::Value(name) = key else { continue };
            if key == NO_KEY || entries.len() == MAX_ENTRIES {
                continue;
            }
            // Next to a state dictionary, a single tensor is a value of the run, such as a loss.
            if is_tensor(pickle, value) {
                entries.push((at, Some(TrainingEntry::Value)));
                continue;
            }
            let role = role_of(pickle, &String::from_utf8_lossy(pickle.text(name)), value);
            let is_model = role.is_none() && is_collection(pickle, value);
            has_model |= is_model;
            has_state_dict |= is_model && pickle.text(name).ends_with(b"state_dict");
            entries.push((at, role));
        }
        if !has_state_dict {
            entries.retain(|(at, _)| !is_tensor(pickle, self.places[*at as usize].value));
        }
        // Without a state dictionary, nothing is known about the entries.
        if !has_model {
            for (_, role) in &mut entries {
                *role = None;
            }
        }
        let is_other = |at: &u32| entries.iter().any(|(entry, role)| entry == at && role.is_some());
        let (others, model): (Vec<_>, Vec<_>) = children.rev().partition(is_other);
        self.entries.extend(entries);
        [others, model].concat()
    }

    /// Finds the entries that are copies of the model.
    fn find_copies(&mut self, tensors: &[Tensor]) -> Result<()> {
        // Names are read twice more, within the limits of the first time.
        let (steps, memory) = (self.steps, self.memory);
        let mut models = Vec::new();
        for at in 0..self.entries.len() {
            let (place, role) = self.entries[at];
            if role.is_none() && is_collection(self.pickle, self.places[place as usize].value) {
                models.push((at, place, ModelEntry::new(self.name(place)?)));
            }
        }
        let are_compared = models.len() > 1;
        for is_named in [false, true] {
            (self.steps, self.memory) = (steps, memory);
            for tensor in tensors.iter().filter(|tensor| are_compared && tensor.stored > 1) {
                let entry = self.places[tensor.place as usize].entry;
                let model = models.iter_mut().find(|(_, place, _)| *place == entry);
                let Some((.., model)) = model else { continue };
                let name = self.name(tensor.place)?;
                if is_named {
                    let shape: Vec<_> = tensor.lengths(self.pickle, 2).flatten().collect();
                    spend(&mut self.memory, 2 * size_of::<u64>())?;
                    model.add_tensor(&name, &shape, tensor.stored);
                } else {
                    model.add_name(&name);
                }
            }
        }
        (self.steps, self.memory) = (steps, memory);
        let (places, mut models): (Vec<_>, Vec<_>) =
            models.into_iter().map(|(at, _, model)| (at, model)).unzip();
        for (at, is_copy) in places.into_iter().zip(find_copies(&mut models)) {
            self.entries[at].1 = is_copy.then_some(TrainingEntry::Copy);
        }
        Ok(())
    }

    /// Returns the names and the roles of the entries that are not the model.
    fn named_entries(&mut self) -> Result<Vec<(String, TrainingEntry)>> {
        let entries = std::mem::take(&mut self.entries).into_iter();
        let mut named = Vec::new();
        for (at, role) in entries {
            if let Some(role) = role {
                named.push((self.name(at)?, role));
            }
        }
        Ok(named)
    }

    /// Adds the nodes in the result of a call: the tensors of a module, or all arguments and states.
    fn add_result(&mut self, parent: u32, value: PickleValue) -> Result<()> {
        let pickle = self.pickle;
        let list = Call::new(pickle, value).and_then(|call| call.ordered_pairs(pickle));
        for pair in list.into_iter().flat_map(|list| pickle.all_items(list)) {
            let mut items = pickle.all_items(pair);
            let mut next = || items.next().unwrap_or(PickleValue::OTHER);
            self.add(parent, Key::Value(next()), next())?;
        }
        let others = || pickle.all_items(value).skip(if list.is_some() { 2 } else { 1 });
        let first = self.places.len();
        for state in others().filter(|state| pickle.kind(*state) == Some(NodeKind::Dict)) {
            for (key, value) in pairs(pickle, state) {
                let is_attribute = MODULE_ATTRIBUTES.contains(&pickle.text(key));
                let value = if is_attribute { value } else { PickleValue::OTHER };
                self.add(parent, NO_KEY, value)?;
            }
        }
        if self.places.len() > first {
            return Ok(());
        }
        others().try_for_each(|value| self.add(parent, NO_KEY, value))
    }

    /// Adds a value in a collection if it can contain tensors.
    fn add(&mut self, parent: u32, key: Key, value: PickleValue) -> Result<()> {
        spend(&mut self.steps, 1)?;
        if value.as_node().is_some() {
            spend(&mut self.memory, PLACE_BYTES)?;
            let entry = match self.places[parent as usize].entry {
                0 if key == NO_KEY => 0,
                0 => index(self.places.len()),
                entry => entry,
            };
            self.places.push(Place { parent, entry, key, value });
        }
        Ok(())
    }

    /// Returns the name of a value: the keys from the root, joined by dots.
    fn name(&mut self, mut at: u32) -> Result<String> {
        let (mut parts, mut length) = (Vec::new(), 0);
        while at > 0 {
            spend(&mut self.steps, 1)?;
            let Place { parent, key, .. } = self.places[at as usize];
            let part = match key {
                Key::Index(number) => Some(number.to_string()),
                NO_KEY => None,
                Key::Value(key) => Some(self.pickle.integer(key).map_or_else(
                    || String::from_utf8_lossy(self.pickle.text(key)).into_owned(),
                    |number| number.to_string(),
                )),
            };
            length += part.as_ref().map_or(0, String::len) + 1;
            if length > MAX_NAME {
                return Err(too_large());
            }
            parts.extend(part);
            at = parent;
        }
        parts.reverse();
        // The only value of a file that is not a collection has no key.
        Ok(if parts.is_empty() { "tensor".to_owned() } else { parts.join(".") })
    }
}

/// Returns the keys and values of a dictionary.
fn pairs<'p>(
    pickle: &'p Pickle<'_>,
    dict: PickleValue,
) -> impl Iterator<Item = (PickleValue, PickleValue)> + 'p {
    let mut items = pickle.all_items(dict);
    iter::from_fn(move || Some((items.next()?, items.next()?)))
}
