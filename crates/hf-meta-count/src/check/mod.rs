//! The conclusions of a verification from headers and configurations, without I/O.

mod embeddings;
mod gguf;
mod metadata;
mod projector;
#[cfg(test)]
mod published;
mod repository;
mod rules;
mod shard_numbers;
mod weight_set;

pub use self::projector::projector_width;
pub use self::repository::{Verification, last_checkpoint};
pub use self::weight_set::SetCheck;
