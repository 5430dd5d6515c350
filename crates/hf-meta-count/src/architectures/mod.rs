//! Tables of architectures, and the formulas in them.

pub(crate) mod architecture;
pub(crate) mod blueprint;
pub(crate) mod renames;
