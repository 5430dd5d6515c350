//! The views of one checkpoint: parameters (the default), tensors, tree, metadata and explanation; and the overview of
//! several.

pub(crate) mod explain;
pub(crate) mod headers;
pub(crate) mod metadata;
pub(crate) mod overview;
pub(crate) mod parameters;
pub(crate) mod tree;
