//! The safetensors format: header and index parsers.
//!
//! The parsers perform no I/O. A [`SafetensorsFileHeader`] or [`SafetensorsIndexJson`] exists only if it satisfies
//! every rule that can be checked from its own bytes. The size of a file is checked as soon as it is known. The
//! consistency of an index with its shards is checked by
//! [`SafetensorsParseFromRepo::from_headers`](crate::SafetensorsParseFromRepo::from_headers).
//!
//! The rules are those of the [format] and its reference implementation, the `safetensors` crate. Intentional
//! differences are documented at [`SafetensorsFileHeader::from_json`].
//!
//! [format]: https://github.com/huggingface/safetensors#format

mod header;
mod index;
mod json;
mod parser;

use super::WeightFileName;
pub use super::{DetectedFormat, HeaderError, HeaderErrorKind};
pub use header::SafetensorsFileHeader;
pub use index::{IndexError, IndexErrorKind, IndexReader, SafetensorsIndexJson};
pub use parser::{HeaderLength, PREFIX_LENGTH, Safetensors, expected_header_end};

/// The extension of weight files.
pub const EXTENSION: &str = ".safetensors";

/// The standard name of unsharded weights.
pub const WEIGHTS_NAME: &str = "model.safetensors";

/// The standard name of the index of a sharded checkpoint.
pub const INDEX_NAME: &str = "model.safetensors.index.json";

/// The extension of an index without a trailing variant.
const INDEX_EXTENSION: &str = ".index.json";

/// Returns whether a path has the extension of weight files.
#[must_use]
pub fn is_weights_name(path: &str) -> bool {
    path.ends_with(EXTENSION)
}

/// Returns whether a path has the file name of an index. The name may end with a variant, as in
/// `model.safetensors.index.fp16.json`.
#[must_use]
pub fn is_index_name(path: &str) -> bool {
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    let has_variant =
        |name: &str| [".safetensors.index.", ".bin.index."].iter().any(|end| name.contains(end));
    file.ends_with(INDEX_EXTENSION) || file.strip_suffix(".json").is_some_and(has_variant)
}

/// Returns the model name and variant, without extension, from the file name of an index of weights with an extension.
///
/// `diffusers` has put the variant in three places: before `.safetensors`, before `.index`, and after it.
#[must_use]
pub fn split_index(file: &str, extension: &str) -> Option<String> {
    let (stem, rest) = file.strip_suffix(".json")?.split_once(extension)?;
    let variant = match rest.strip_suffix(".index") {
        Some(variant) => variant,
        None => rest.strip_prefix(".index").filter(|variant| variant.starts_with('.'))?,
    };
    Some(format!("{stem}{variant}"))
}

/// The names that libraries give to weights. A suffix such as `.fp16` is a variant only after one of these; in other
/// names it may be part of a version such as `1.0`.
const STEMS: [&str; 5] =
    ["model", "diffusion_pytorch_model", "consolidated", "adapter_model", "pytorch_lora_weights"];

/// Splits a name without extension into model name and variant.
pub(super) fn split_variant(text: &str) -> WeightFileName {
    let variant = |stem: &str| text.strip_prefix(stem)?.strip_prefix('.');
    let found = STEMS.iter().find_map(|stem| Some((*stem, variant(stem)?)));
    let (stem, variant) = found.unwrap_or((text, ""));
    WeightFileName { variant: variant.to_owned(), ..WeightFileName::new(stem) }
}
