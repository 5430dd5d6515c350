//! A tensor in a pickle, and the elements that it shares with others.

use std::cmp::{Ordering, Reverse};

use super::call::Call;
use super::pickle::{Pickle, Storage};
use super::values::{ELEMENT_TYPES, ElementType, NodeKind, PickleValue};
use crate::base::sort::sort_indexes;
use crate::formats::{HeaderError, HeaderErrorKind, product};

/// The maximum number of dimensions of a tensor.
const MAX_DIMENSIONS: usize = 16;

/// The functions that build a tensor from a storage, an offset, a shape and strides.
const REBUILD_FUNCTIONS: [&[u8]; 4] =
    [b"_rebuild_tensor", b"_rebuild_tensor_v2", b"_rebuild_tensor_v3", b"_rebuild_qtensor"];

/// A tensor in a storage. Its name and shape are decoded when they are needed, because there may be 100,000.
pub(super) struct Tensor {
    /// The index of its place.
    pub(super) place: u32,
    /// The arguments of the function that builds it.
    arguments: PickleValue,
    pub(super) element: &'static ElementType,
    /// The first byte in the storage, and the end of the last one.
    begin: u64,
    end: u64,
    /// The number of distinct elements of the tensor.
    pub(super) stored: u64,
    /// The number of elements that no earlier tensor contains.
    pub(super) new: u64,
    /// The tensor that contains all elements, if it is another one.
    pub(super) stored_in: Option<u32>,
}

/// Finds the elements that several tensors share, so that each element is new in one tensor only.
pub(super) fn find_shared(pickle: &Pickle<'_>, tensors: &mut [Tensor]) {
    let mut order: Vec<_> = (0..index(tensors.len())).collect();
    sort_indexes(&mut order, &mut |one, other| {
        tensors[one as usize].order(&tensors[other as usize], pickle)
    });
    let mut cover = StorageCover::default();
    for at in order {
        let (new, stored_in) = cover.claim(pickle, tensors, at);
        let tensor = &mut tensors[at as usize];
        (tensor.new, tensor.stored_in) = (new, stored_in);
    }
}

/// The elements of a storage that tensors contain, while they are visited in the order of their position.
#[derive(Default)]
struct StorageCover {
    last: Option<u32>,
    /// The tensor without gaps that ends last.
    furthest: Option<u32>,
    /// The number of bytes that no tensor has.
    free: u64,
}

impl StorageCover {
    /// Adds a tensor. Returns the number of its new elements, and the earlier tensor that contains all of them.
    fn claim(&mut self, pickle: &Pickle<'_>, tensors: &[Tensor], at: u32) -> (u64, Option<u32>) {
        let get = |at: u32| &tensors[at as usize];
        let (tensor, size) = (get(at), get(at).element.3);
        let key = tensor.storage_key(pickle);
        if self.last.is_none_or(|last| get(last).storage_key(pickle) != key) {
            let storage = Storage::new(pickle, pickle.items(tensor.arguments)[0]);
            let free = storage.and_then(|storage| storage.bytes).unwrap_or_default();
            *self = Self { free, ..Self::default() };
        }
        let covered = self.furthest.map_or(0, |furthest| get(furthest).end);
        let covered = covered.clamp(tensor.begin, tensor.end);
        let is_same = |last: &u32| get(*last).order(tensor, pickle).is_eq();
        let same = self.last.filter(is_same).map(|last| get(last).stored_in.unwrap_or(last));
        let is_dense = tensor.stored == (tensor.end - tensor.begin) / size;
        let unshared = if is_dense { (tensor.end - covered) / size } else { tensor.stored };
        let around = if covered == tensor.end { self.furthest } else { None };
        let owner = if tensor.stored > 0 { same.or(around) } else { None };
        let new = if owner.is_some() { 0 } else { unshared.min(self.free / size) };
        if is_dense && covered < tensor.end {
            self.furthest = Some(at);
        }
        (self.last, self.free) = (Some(at), self.free - new * size);
        (new, owner)
    }
}

impl Tensor {
    /// Creates the tensor that a function of torch builds.
    pub(super) fn new(
        pickle: &Pickle<'_>,
        name: &str,
        place: u32,
        call: &Call<'_>,
    ) -> Result<Self, HeaderError> {
        let Call { name: function, arguments, .. } = *call;
        let unsupported = || {
            let function = String::from_utf8_lossy(function);
            let rule = format!("is built by `{function}`, which is not supported");
            HeaderError::of_tensor(HeaderErrorKind::Unsupported, name, rule)
        };
        let &[storage, offset, shape, strides, ref others @ ..] = pickle.items(arguments) else {
            return Err(unsupported());
        };
        if !REBUILD_FUNCTIONS.contains(&function) {
            return Err(unsupported());
        }
        let offset = pickle.integer(offset).ok_or_else(unsupported)?;
        let storage = Storage::new(pickle, storage).ok_or_else(unsupported)?;
        let dtype = others.get(2).map_or(&[][..], |dtype| pickle.function(*dtype).1);
        let own = || ELEMENT_TYPES.iter().find(|(_, name, ..)| name.as_bytes() == dtype);
        let element = storage.element.or_else(own).ok_or_else(unsupported)?;
        let placed = || {
            let [shape, strides] = [shape, strides].map(|value| lengths(pickle, value).collect());
            let (shape, strides): (Option<Vec<_>>, Option<Vec<_>>) = (shape, strides);
            let shape = shape.filter(|shape| shape.len() <= MAX_DIMENSIONS)?;
            let (span, stored) = span(&shape, &strides?)?;
            let begin = u64::try_from(offset).ok()?.checked_mul(element.3)?;
            let end = begin.checked_add(span.checked_mul(element.3)?)?;
            // An empty tensor may begin anywhere.
            (span == 0 || end <= storage.bytes?).then_some((begin, end, stored))
        };
        let outside = "does not fit in its storage";
        let (begin, end, stored) = placed()
            .ok_or_else(|| HeaderError::of_tensor(HeaderErrorKind::Other, name, outside))?;
        let (new, stored_in) = (stored, None);
        Ok(Self { place, arguments, element, begin, end, stored, new, stored_in })
    }

    /// Compares the storages of two tensors, their positions in it, and their shapes.
    fn order(&self, other: &Self, pickle: &Pickle<'_>) -> Ordering {
        let position =
            |tensor: &Self| (tensor.storage_key(pickle), tensor.begin, Reverse(tensor.end));
        let lengths = |at| self.lengths(pickle, at).cmp(other.lengths(pickle, at));
        let order = position(self).cmp(&position(other));
        // Of a tensor and its transposed view, the tensor has the elements.
        let order = order.then_with(|| other.is_in_order(pickle).cmp(&self.is_in_order(pickle)));
        let order = order.then_with(|| lengths(2)).then_with(|| lengths(3));
        order.then_with(|| self.element.2.cmp(other.element.2))
    }

    /// Returns the key of the storage.
    fn storage_key<'a>(&self, pickle: &Pickle<'a>) -> &'a [u8] {
        pickle.text(pickle.items(pickle.items(self.arguments)[0])[2])
    }

    /// Returns the key of the storage, and the offset of the first byte in it.
    pub(super) fn storage<'a>(&self, pickle: &Pickle<'a>) -> (&'a [u8], u64) {
        (self.storage_key(pickle), self.begin)
    }

    /// Returns whether the bytes of the elements are the tensor.
    pub(super) fn is_range(&self, pickle: &Pickle<'_>) -> bool {
        self.is_in_order(pickle) && !self.is_computed(pickle)
    }

    /// Returns whether the elements follow each other in the order of their indexes.
    fn is_in_order(&self, pickle: &Pickle<'_>) -> bool {
        let dimensions = self.lengths(pickle, 2).flatten().zip(self.lengths(pickle, 3).flatten());
        let dimensions: Vec<_> = dimensions.filter(|(length, _)| *length != 1).collect();
        let mut expected = Some(1_u64);
        self.stored == 0
            || dimensions.iter().rev().all(|(length, stride)| {
                let is_next = expected == Some(*stride);
                expected = expected.and_then(|stride| stride.checked_mul(*length));
                is_next
            })
    }

    /// Returns whether the values are computed from the elements, as in a conjugated or negated view. Functions that build
    /// a tensor then have a dictionary as their last argument. Source: `get_tensor_metadata` in `torch/_utils.py` 2.15.
    fn is_computed(&self, pickle: &Pickle<'_>) -> bool {
        let metadata = pickle.items(self.arguments).iter().skip(6);
        let is_set = |value: &PickleValue| {
            pickle.kind(*value) == Some(NodeKind::Dict) && pickle.all_items(*value).next().is_some()
        };
        metadata.into_iter().any(is_set)
    }

    /// Returns the shape, which is argument 2, or the strides, which are argument 3.
    pub(super) fn lengths(
        &self,
        pickle: &Pickle<'_>,
        argument: usize,
    ) -> impl Iterator<Item = Option<u64>> {
        lengths(pickle, pickle.items(self.arguments)[argument])
    }

    /// Returns the shape of the new elements; `None` if there are none. Expanded dimensions have a length of 1.
    pub(super) fn stored_shape(&self, pickle: &Pickle<'_>) -> Option<Vec<u64>> {
        let dimensions = self.lengths(pickle, 2).flatten().zip(self.lengths(pickle, 3).flatten());
        let shape: Vec<_> =
            dimensions.map(|(n, stride)| if stride == 0 { n.min(1) } else { n }).collect();
        let is_whole = self.stored == 0 || product(&shape) == Some(self.new);
        (self.stored == 0 || self.new > 0).then(|| if is_whole { shape } else { vec![self.new] })
    }
}

/// Returns the values of a shape or of strides; `None` for a value that is not a length.
fn lengths(pickle: &Pickle<'_>, value: PickleValue) -> impl Iterator<Item = Option<u64>> {
    // `torch.save` writes tuples, and `torch.load` reads lists, too.
    let items = pickle.all_items(value);
    items.map(|item| pickle.integer(item).and_then(|length| u64::try_from(length).ok()))
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

/// Returns an index in 32 bits. The memory limits the length of lists.
pub(super) fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
