//! Sorts and fills collections with little code for each type. The sort of slices takes 4 kB for each, and `collect` into
//! an ordered map 5 kB, which made the npm package too large. Lists with an item per tensor are sorted as slices.

use std::cmp::Ordering;

/// An iterator over the items of an ordered map or set.
pub trait Ordered: Iterator + Sized {
    /// Inserts all items into an ordered map or set, without sorting them first.
    fn ordered<C: Default + Extend<Self::Item>>(self) -> C {
        let mut ordered = C::default();
        ordered.extend(self);
        ordered
    }
}

impl<I: Iterator> Ordered for I {}

/// Sorts the indexes of items. Items that compare as equal keep their order.
pub fn sort_indexes(indexes: &mut [u32], compare: &mut dyn FnMut(u32, u32) -> Ordering) {
    indexes.sort_by(|one, other| compare(*one, *other));
}

/// Sorts items. Items that compare as equal keep their order.
pub fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let order =
        order(items.len(), &mut |one, other| compare(&items[one as usize], &items[other as usize]));
    arrange(order, &mut |one, other| items.swap(one, other));
}

/// Returns the indexes of items in the order of the items; none if the items are sorted.
fn order(length: usize, compare: &mut dyn FnMut(u32, u32) -> Ordering) -> Vec<u32> {
    if (1..).take(length.saturating_sub(1)).all(|index| compare(index - 1, index).is_le()) {
        return Vec::new();
    }
    let mut order: Vec<u32> = (0..).take(length).collect();
    sort_indexes(&mut order, compare);
    order
}

/// Sorts items by their keys. Items with equal keys keep their order.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |one, other| key(one).cmp(&key(other)));
}

/// Moves items into an order, by swapping two at a time.
fn arrange(mut order: Vec<u32>, swap: &mut dyn FnMut(usize, usize)) {
    for start in (0..).take(order.len()) {
        let mut at = order[start as usize];
        // An earlier swap moved the item to the place that it recorded here.
        while at < start {
            at = order[at as usize];
        }
        order[start as usize] = at;
        swap(start as usize, at as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers in an order that depends on a step, each up to twice.
    fn numbers(step: usize) -> Vec<usize> {
        (0..4_000).map(|at| at * step % 3_001).collect()
    }

    #[test]
    fn equal_items_keep_their_order() {
        for step in [1, 3_000, 7, 1_234] {
            let mut found: Vec<_> = numbers(step).into_iter().zip(0..).collect();
            let mut expected = found.clone();
            sort_by_key(&mut found, |(number, _)| number / 10);
            expected.sort_by_key(|(number, _)| number / 10);
            assert_eq!(found, expected, "{step}");
        }
    }
}
