//! The values of tensors: numbers that no computation survives, and blocks of values that look lost.
//!
//! [`ValueScanner`] classifies the values of one tensor as they arrive. [`sample_blocks`] chooses the parts of a model to
//! read if not all of it is read. A sample can prove that a file is corrupt, but never that it is not.

mod difference;
mod number_format;
mod role;
mod sample;
mod scanner;

pub use self::difference::DifferenceScanner;
pub use self::sample::{SampleLimits, sample_blocks};
pub use self::scanner::{ValueScanner, is_scannable};
