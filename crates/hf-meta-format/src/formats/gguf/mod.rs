//! The GGUF format of `llama.cpp` and other GGML-based programs: a header parser.
//!
//! A header contains the numbers of tensors and keys, the keys with their values, and one entry per tensor. It has no
//! length prefix, so it is parsed as it arrives: [`Gguf`] requests a first range and estimates the rest from the
//! arrays seen so far. Versions 2 and 3 are supported, in both byte orders.
//!
//! The rules are those of the [format] and of `llama.cpp`, with one exception: a tensor type that is not known is
//! kept by its number, and the tensor's size is derived from the offset of the next one.
//!
//! Shapes are in safetensors order, with the slowest-varying dimension first. GGUF files use the opposite order.
//!
//! Long strings and arrays, such as chat templates and vocabularies, are not kept. Their metadata value is their
//! length.
//!
//! [format]: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

mod cursor;
mod description;
mod error;
mod estimate;
mod file_name;
mod format;
mod keys;
mod parser;
mod tensors;
mod types;
mod value;

pub use self::error::GgufError;
pub use self::format::Gguf;

#[cfg(test)]
mod tests;
