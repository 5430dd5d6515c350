//! Tables of architectures, and the formulas in them.

pub(crate) mod architecture;
pub(crate) mod layout;
pub(crate) mod renames;
