//! Texts, JSON and configurations, which all other parts of the crate read.

pub(crate) mod json_object;
pub(crate) mod model_config;
pub(crate) mod sort;
pub(crate) mod text;
