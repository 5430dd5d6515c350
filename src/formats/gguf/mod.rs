//! The GGUF format of `llama.cpp` and other programs on GGML: a parser of headers.
//!
//! A header has the numbers of tensors and of keys, the keys with their values, and one entry per tensor. It has no length
//! in front of it, so it is parsed as it arrives: [`Gguf`] asks for a first range and estimates the rest from the lists
//! that have begun. Versions 2 and 3 are read, in both byte orders.
//!
//! The rules are those of the [format] and of `llama.cpp`. There is one leniency: a type of tensors that is not known is
//! stored under its number, and its size is taken from the offset of the next tensor.
//!
//! Shapes have the order of safetensors, the longest stride first. The file has the opposite order.
//!
//! Long texts and lists, such as chat templates and vocabularies, are not stored. Their metadata is their length.
//!
//! [format]: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

mod cursor;
mod description;
mod error;
mod estimate;
mod file_name;
mod format;
mod input;
mod keys;
mod parser;
mod tensors;
mod types;
mod value;

pub use self::error::GgufError;
pub use self::format::Gguf;

#[cfg(test)]
mod tests;
