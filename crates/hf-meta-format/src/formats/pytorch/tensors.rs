//! Finds the tensors in the value of a pickle, and the storage that each takes.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::pickle::Pickle;
use super::values::{ELEMENT_TYPES, ElementType, NodeKind, PickleValue};
use super::{PickleSummary, TensorView};
use crate::formats::{
    Dtype, HeaderError, HeaderErrorKind, TensorInfo, TensorTable, TensorTableBuilder,
};

/// The maximum number of tensors and collections in a file.
const MAX_NODES: usize = 1 << 15;

/// The maximum length of a name in bytes, which also limits the depth of nested dictionaries.
const MAX_NAME: usize = 512;

/// The maximum length of all names in bytes.
const MAX_NAMES: usize = 8 << 20;

/// The maximum number of dimensions of a tensor.
const MAX_DIMENSIONS: usize = 16;

/// The attributes of a `torch.nn.Module` that contain its tensors.
const MODULE_ATTRIBUTES: [&[u8]; 3] = [b"_parameters", b"_buffers", b"_modules"];

/// The functions that build a tensor from a storage, an offset, a shape and strides.
const REBUILD_FUNCTIONS: [&[u8]; 4] =
    [b"_rebuild_tensor", b"_rebuild_tensor_v2", b"_rebuild_tensor_v3", b"_rebuild_qtensor"];

/// A value in nested collections: the position of the collection, its key there, and the value. A value without a key
/// has the name of its collection.
type Place = (usize, PickleValue, PickleValue);

/// A tensor in a storage.
struct Tensor<'a> {
    name: String,
    storage: &'a [u8],
    element: &'static ElementType,
    shape: Vec<u64>,
    strides: Vec<u64>,
    /// The first byte in the storage, and the end of the last one.
    begin: u64,
    end: u64,
    /// The number of distinct elements of the tensor.
    stored: u64,
    /// The number of bytes in the storage.
    storage_bytes: u64,
    /// The number of elements that no earlier tensor contains.
    new: u64,
    /// The tensor that contains all elements, if it is another one.
    stored_in: Option<usize>,
}

/// Returns the tensors in the value of a pickle: each stored element once, and the views of them.
pub(super) fn table(
    pickle: &Pickle<'_>,
    root: PickleValue,
) -> Result<(TensorTable, PickleSummary), HeaderError> {
    let mut tensors = find_tensors(pickle, root)?;
    find_shared(&mut tensors);
    let (mut builder, mut views, mut at) = (TensorTableBuilder::new(), Vec::new(), 0_u64);
    for tensor in &tensors {
        let (name, (_, _, dtype, size)) = (&tensor.name, *tensor.element);
        let dtype = Dtype::from(dtype);
        let shape = tensor.stored_shape();
        if shape.as_ref() != Some(&tensor.shape) {
            let stored_in = tensor.stored_in.map_or(name, |at| &tensors[at].name);
            let (name, stored_in) = (name.clone(), stored_in.clone());
            let shape = tensor.shape.clone();
            views.push(TensorView { name, dtype: dtype.clone(), shape, stored_in });
        }
        if let Some(shape) = shape {
            let begin = at;
            at = at.saturating_add(tensor.new.saturating_mul(size));
            builder.push(name, &TensorInfo::new(dtype, shape, (begin, at)));
        }
    }
    views.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let imports = pickle.imports.iter().cloned().collect();
    Ok((builder.finish()?, PickleSummary { imports, views }))
}

/// Finds the elements that several tensors share, so that each element is new in one tensor only.
fn find_shared(tensors: &mut [Tensor<'_>]) {
    let mut order: Vec<_> = (0..tensors.len()).collect();
    order.sort_by(|one, other| tensors[*one].key().cmp(&tensors[*other].key()));
    // The tensor before, the one that contains all bytes up to its end, and the number of bytes without a tensor.
    let (mut last, mut cover, mut free) = (None::<usize>, None::<usize>, 0);
    for at in order {
        let tensor = &tensors[at];
        if last.is_none_or(|last| tensors[last].storage != tensor.storage) {
            (last, cover, free) = (None, None, tensor.storage_bytes);
        }
        let size = tensor.element.3;
        let covered = cover.map_or(0, |cover| tensors[cover].end).clamp(tensor.begin, tensor.end);
        let is_same = |other: &usize| tensors[*other].key() == tensor.key();
        let same = last.filter(is_same).map(|last| tensors[last].stored_in.unwrap_or(last));
        let is_dense = tensor.stored == (tensor.end - tensor.begin) / size;
        let unshared = if is_dense { (tensor.end - covered) / size } else { tensor.stored };
        let owner = same.or(cover.filter(|_| covered == tensor.end));
        let owner = owner.filter(|_| tensor.stored > 0);
        let new = if owner.is_some() { 0 } else { unshared.min(free / size) };
        if is_dense && covered < tensor.end {
            cover = Some(at);
        }
        (last, free) = (Some(at), free - new * size);
        (tensors[at].new, tensors[at].stored_in) = (new, owner);
    }
}

impl<'a> Tensor<'a> {
    /// Creates the tensor that a function of torch builds.
    fn new(
        pickle: &Pickle<'a>,
        name: String,
        function: &[u8],
        arguments: &[PickleValue],
    ) -> Result<Self, HeaderError> {
        let unsupported = || {
            let function = String::from_utf8_lossy(function);
            let rule = format!("is built by `{function}`, which is not supported");
            HeaderError::of_tensor(HeaderErrorKind::Unsupported, &name, rule)
        };
        let &[storage, PickleValue::Int(offset), shape, strides, ref others @ ..] = arguments
        else {
            return Err(unsupported());
        };
        let is_known = REBUILD_FUNCTIONS.contains(&function);
        let storage = pickle.storage(storage).filter(|_| is_known).ok_or_else(unsupported)?;
        let dtype = others.get(2).map_or(&[][..], |dtype| pickle.function(*dtype).1);
        let own = || ELEMENT_TYPES.iter().find(|(_, name, ..)| name.as_bytes() == dtype);
        let element = storage.element.or_else(own).ok_or_else(unsupported)?;
        let placed = || {
            let (shape, strides) = (lengths(pickle, shape)?, lengths(pickle, strides)?);
            let offset = u64::try_from(offset).ok()?;
            let (span, stored) = span(&shape, &strides)?;
            let (begin, length) = (offset.checked_mul(element.3)?, span.checked_mul(element.3)?);
            let (end, storage_bytes) = (begin.checked_add(length)?, storage.bytes?);
            // An empty tensor may begin anywhere.
            (span == 0 || end <= storage_bytes).then_some(())?;
            let (storage, name, new, stored_in) = (storage.key, String::new(), stored, None);
            Some(Self {
                name,
                storage,
                element,
                shape,
                strides,
                begin,
                end,
                stored,
                storage_bytes,
                new,
                stored_in,
            })
        };
        match placed() {
            Some(tensor) => Ok(Self { name, ..tensor }),
            None => {
                let rule = "does not fit in its storage";
                Err(HeaderError::of_tensor(HeaderErrorKind::Other, &name, rule))
            }
        }
    }

    /// Returns the sort key: the storage, the place in it, and the shape.
    fn key(&self) -> impl Ord + '_ {
        (self.storage, self.begin, Reverse(self.end), &self.shape, &self.strides, self.element.2)
    }

    /// Returns the shape of the new elements; `None` if there are none. Expanded dimensions have a length of 1.
    fn stored_shape(&self) -> Option<Vec<u64>> {
        let dimensions = self.shape.iter().zip(&self.strides);
        let stored = dimensions.map(|(n, stride)| if *stride == 0 { (*n).min(1) } else { *n });
        let shape: Vec<_> = stored.collect();
        let elements = shape.iter().try_fold(1_u64, |product, length| product.checked_mul(*length));
        let is_whole = self.stored == 0 || elements == Some(self.new);
        (self.stored == 0 || self.new > 0).then(|| if is_whole { shape } else { vec![self.new] })
    }
}

/// Returns the values of a shape or of strides; `None` if they are not lengths, or too many.
fn lengths(pickle: &Pickle<'_>, value: PickleValue) -> Option<Vec<u64>> {
    let items = Some(pickle.items(value)).filter(|items| items.len() <= MAX_DIMENSIONS)?;
    let length = |item: &PickleValue| match item {
        PickleValue::Int(length) => u64::try_from(*length).ok(),
        _ => None,
    };
    items.iter().map(length).collect()
}

/// Returns the number of elements from the first to the last one of a tensor, and the number of distinct elements.
/// Returns `None` if it overflows, or if a stride is missing.
fn span(shape: &[u64], strides: &[u64]) -> Option<(u64, u64)> {
    let mut dimensions = shape.iter().zip(strides).filter(|(_, stride)| **stride > 0);
    let stored = dimensions.clone().try_fold(1_u64, |product, (n, _)| product.checked_mul(*n));
    let last = dimensions.try_fold(0_u64, |last, (length, stride)| {
        last.checked_add(length.saturating_sub(1).checked_mul(*stride)?)
    });
    let span = if shape.contains(&0) { 0 } else { last?.checked_add(1)? };
    // Elements that overlap, as after `unfold`, are stored once.
    let stored = stored.map_or(span, |stored| stored.min(span));
    (shape.len() == strides.len()).then_some((span, stored))
}

/// Returns all tensors in nested collections, in file order.
fn find_tensors<'a>(
    pickle: &Pickle<'a>,
    root: PickleValue,
) -> Result<Vec<Tensor<'a>>, HeaderError> {
    let mut places: Vec<Place> = vec![(0, PickleValue::Other, root)];
    // A collection that appears twice is visited once, so that shared collections take linear time.
    let (mut visited, mut pending) = (HashSet::new(), vec![0]);
    let (mut tensors, mut length) = (Vec::new(), 0);
    while let Some(at) = pending.pop() {
        let value = places[at].2;
        if let Some(((b"torch._utils" | b"torch._tensor", function), arguments)) =
            call(pickle, value)
            && function.starts_with(b"_rebuild")
        {
            let name = name(pickle, &places, at)?;
            length += name.len();
            tensors.push(Tensor::new(pickle, name, function, arguments)?);
        } else if visited.insert(value) {
            let first = places.len();
            let children = children(pickle, value).into_iter();
            places.extend(children.map(|(key, value)| (at, key, value)));
            pending.extend((first..places.len()).rev());
        }
        if places.len() > MAX_NODES || length > MAX_NAMES {
            return Err(too_complex());
        }
    }
    Ok(tensors)
}

/// The module and the name of a function, and its arguments.
type Call<'a, 'p> = ((&'a [u8], &'a [u8]), &'p [PickleValue]);

/// Returns the function that builds a value. Parameters and subclasses of tensors are unwrapped.
fn call<'a, 'p>(pickle: &'p Pickle<'a>, mut value: PickleValue) -> Option<Call<'a, 'p>> {
    // A subclass of a parameter is wrapped twice.
    for _ in 0..4 {
        let node = pickle.node(value).filter(|node| node.kind == NodeKind::Call)?;
        let &[function, arguments, ..] = &node.items[..] else { return None };
        let (function, arguments) = (pickle.function(function), pickle.items(arguments));
        match (function.1, arguments) {
            (b"_rebuild_parameter" | b"_rebuild_parameter_with_state", [inner, ..]) => {
                value = *inner;
            }
            (b"_rebuild_from_type_v2", &[inner, _, arguments, ..]) => {
                return Some((pickle.function(inner), pickle.items(arguments)));
            }
            _ => return Some((function, arguments)),
        }
    }
    None
}

/// Returns the nodes in a collection or the result of a call, with their keys.
fn children(pickle: &Pickle<'_>, value: PickleValue) -> Vec<(PickleValue, PickleValue)> {
    let Some(node) = pickle.node(value) else { return Vec::new() };
    let pair = |pair: &[PickleValue]| (pair[0], pair[1]);
    let is_node = |(_, value): &(PickleValue, PickleValue)| matches!(value, PickleValue::Node(_));
    match node.kind {
        NodeKind::Dict => node.items.chunks_exact(2).map(pair).filter(is_node).collect(),
        NodeKind::Tuple | NodeKind::List => {
            (0..).map(PickleValue::Int).zip(node.items.iter().copied()).filter(is_node).collect()
        }
        NodeKind::Global | NodeKind::Storage => Vec::new(),
        NodeKind::Call => {
            let items = node.items.get(1..).unwrap_or_default();
            let is_dict = |value: &&PickleValue| {
                pickle.node(**value).is_some_and(|node| node.kind == NodeKind::Dict)
            };
            let state = items.iter().filter(is_dict).flat_map(|state| children(pickle, *state));
            let is_attribute = |key: &PickleValue| MODULE_ATTRIBUTES.contains(&pickle.text(*key));
            let attributes = state.filter(|(key, _)| is_attribute(key)).map(|(_, value)| value);
            let attributes: Vec<_> = attributes.collect();
            let unnamed = if attributes.is_empty() { items } else { &attributes };
            unnamed.iter().map(|value| (PickleValue::Other, *value)).collect()
        }
    }
}

/// Returns the name of a value: the keys from the root, joined by dots.
fn name(pickle: &Pickle<'_>, places: &[Place], mut at: usize) -> Result<String, HeaderError> {
    let (mut parts, mut length) = (Vec::new(), 0);
    while at > 0 {
        let (parent, key, _) = places[at];
        let part = match key {
            PickleValue::Int(number) => number.to_string(),
            key => {
                let text = pickle.text(key);
                String::from_utf8_lossy(&text[..text.len().min(MAX_NAME)]).into_owned()
            }
        };
        length += part.len() + 1;
        if length > MAX_NAME {
            return Err(too_complex());
        }
        parts.extend((key != PickleValue::Other).then_some(part));
        at = parent;
    }
    parts.reverse();
    // The only value of a file that is not a collection has no key.
    Ok(if parts.is_empty() { "tensor".to_owned() } else { parts.join(".") })
}

fn too_complex() -> HeaderError {
    let message = "the pickle has more tensors or longer names than any known checkpoint";
    HeaderError::new(HeaderErrorKind::Other, message)
}
