//! The models in a configuration.

pub(crate) mod model_config;
