//! Weights in formats that are not read, and parts of files.

use std::collections::BTreeMap;

use super::listed_file::ListedFile;
use crate::formats::RepoPath;
use crate::formats::path::split_folder;
use crate::formats::pytorch::OtherFile;

/// Weights in a format that was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsupportedWeights {
    /// The name of the format with its file extension, such as `GGUF (.gguf)`.
    pub format: &'static str,
    /// The number of files in this format.
    pub files: usize,
}

/// The format of parts that must be joined. Uploads were once limited to 50 GB per file.
pub const SPLIT_FILE: &str = "parts of a split file, to be joined first";

/// Returns whether a name is one of a part of a file that was cut into pieces, such as `x.gguf.part1of2`, `x.gguf-split-a` and
/// `x.safetensors.001`.
pub fn is_part_of_file(path: &str) -> bool {
    let (_, name) = split_folder(path);
    let mut ends = [".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt"].iter();
    let rest = ends.find_map(|end| Some(name.rsplit_once(end)?.1));
    let Some(rest) = rest.filter(|rest| rest.starts_with(['.', '-', '_'])) else { return false };
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_count = |word: &str| {
        let numbers = word.split_once("of").map_or([word, "1"], |(part, total)| [part, total]);
        numbers.into_iter().all(is_number)
    };
    let mut is_marked = false;
    rest[1..].split(['.', '-', '_']).all(|word| {
        let mark = ["parts", "part", "split", "chunk", "piece"];
        let numbered = mark.iter().find_map(|mark| word.strip_prefix(mark));
        let letters =
            |word: &str| word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_name = numbered.is_some_and(|number| letters(number) || is_count(number));
        // `split` counts with `aa`, `ab` and so on.
        let is_suffix = letters(word) && (is_marked || word.len() == 2 && word.starts_with('a'));
        is_marked |= is_name;
        is_name || is_count(word) || word == "of" || is_suffix
    })
}

/// Formats by file extension.
const EXTENSIONS: [(&str, &str); 16] = [
    ("bin", "PyTorch (.bin)"),
    ("pt", "PyTorch (.pt)"),
    ("pth", "PyTorch (.pth)"),
    ("ckpt", "PyTorch (.ckpt)"),
    ("gguf", "GGUF (.gguf)"),
    ("ggml", "GGML (.ggml)"),
    ("uqff", "UQFF (.uqff)"),
    ("onnx", "ONNX (.onnx)"),
    ("h5", "TensorFlow (.h5)"),
    ("keras", "Keras (.keras)"),
    ("tflite", "TensorFlow Lite (.tflite)"),
    ("msgpack", "Flax (.msgpack)"),
    ("npz", "NumPy (.npz)"),
    ("nemo", "NeMo (.nemo)"),
    ("mlmodel", "Core ML (.mlmodel)"),
    ("pkl", "pickle (.pkl)"),
];

/// Counts the files of each format.
pub(super) fn count_unsupported(files: &[ListedFile]) -> Vec<UnsupportedWeights> {
    let mut counts = BTreeMap::new();
    for format in files.iter().filter_map(|file| unsupported_format(&file.path)) {
        *counts.entry(format).or_insert(0) += 1;
    }
    counts.into_iter().map(|((_, format), files)| UnsupportedWeights { format, files }).collect()
}

/// Returns the format of a file by its extension, after its position, because the most common formats are listed first;
/// `None` for files that are not weights.
pub(super) fn unsupported_format(path: &RepoPath) -> Option<(usize, &'static str)> {
    if is_part_of_file(path.as_str()) {
        return Some((0, SPLIT_FILE));
    }
    let (stem, extension) = split_folder(path.as_str()).1.rsplit_once('.')?;
    let is_same = |(known, _): &(&str, _)| extension.eq_ignore_ascii_case(known);
    let position = EXTENSIONS.iter().position(is_same)?;
    match OtherFile::from_stem(stem) {
        Some(OtherFile::State) => None,
        Some(OtherFile::Weights(other)) if extension == "bin" => Some((EXTENSIONS.len(), other)),
        _ => Some((position, EXTENSIONS[position].1)),
    }
}
