//! Conventions for the metadata of weight files: pairs of texts in the header.
//!
//! The [SAI Model Spec](https://github.com/Stability-AI/ModelSpec) 1.0.1 has keys for people, such as a title, a license
//! and a thumbnail; kohya-ss/sd-scripts describes a training with keys that begin with `ss_`. The texts come from strangers: everything here is bounded, and nothing is trusted to be what it claims.

mod model_spec;
mod thumbnail;
mod training;

pub use model_spec::{
    InvalidField, MODEL_SPEC_FIELDS, MODEL_SPEC_PREFIX, ModelSpec, ModelSpecField, ModelSpecValue,
    Requirement, ThumbnailSummary,
};
pub use thumbnail::{Image, ImageType, MAX_THUMBNAIL, Thumbnail, ThumbnailError};
pub use training::{MAIN_TRAINING_KEYS, TAG_FREQUENCY, TRAINING_PREFIX, TagFrequencies};
