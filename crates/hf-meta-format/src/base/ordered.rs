//! Collects items into ordered maps and sets.

/// An iterator over the items of an ordered map or set.
pub(crate) trait Ordered: Iterator + Sized {
    /// Inserts all items into an ordered map or set. `collect` sorts the items first, which takes 5 kB of code for each
    /// type and made the npm package too large.
    fn ordered<C: Default + Extend<Self::Item>>(self) -> C {
        let mut ordered = C::default();
        ordered.extend(self);
        ordered
    }
}

impl<I: Iterator> Ordered for I {}
