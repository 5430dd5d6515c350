//! GGUF files that the `gguf` package wrote, compared with the figures of its reader.
//!
//! `tests/oracles/gguf_files.py` writes the headers, and `tests/oracles/gguf_quantized.py` those of complete files, most of
//! which `llama.cpp` quantized.

pub(crate) mod reading;
mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hf_meta::Dtype;
use hf_meta_format::formats::gguf::Gguf;
use hf_meta_format::formats::{FileHeader, Format, HeaderError, HeaderErrorKind, Step};
use serde::Deserialize;

/// The figures of the reader.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Oracle {
    /// Number, name, elements and bytes of a block.
    types: Vec<(u32, String, u64, u64)>,
    file_types: BTreeMap<u32, String>,
    files: BTreeMap<String, FileFigures>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileFigures {
    size: u64,
    data_start: u64,
    tensors: Vec<TensorFigures>,
    keys: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct TensorFigures {
    name: String,
    r#type: String,
    shape: Vec<u64>,
    elements: u64,
    bytes: u64,
    offset: u64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gguf")
}

/// The repository of complete files.
const COMPLETE: &str = "example/Tiny-GGUF";

/// Returns the folder of the complete files, and their figures.
fn complete_files() -> (PathBuf, BTreeMap<String, FileFigures>) {
    #[derive(Deserialize)]
    struct Files {
        files: BTreeMap<String, FileFigures>,
    }

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(COMPLETE);
    let json = fs::read(folder.join("oracle.json")).unwrap();
    (folder, serde_json::from_slice::<Files>(&json).unwrap().files)
}

fn oracle() -> Oracle {
    serde_json::from_slice(&fs::read(folder().join("oracle.json")).unwrap()).unwrap()
}

/// Parses a header, of which `most` bytes are read at once.
fn parse(file: &[u8], size: u64, most: usize) -> Result<FileHeader, HeaderError> {
    let mut parser = Gguf.parser(&"model.gguf".parse().unwrap(), 1 << 20);
    let mut range = parser.first_range();
    loop {
        let at = |offset: u64| usize::try_from(offset).unwrap().min(file.len());
        let (start, end) = (at(range.start), at(range.end));
        let bytes = file[start..end.min(start.saturating_add(most))].to_vec();
        match parser.advance(range.start, bytes, Some(size))? {
            Step::Read(next) => range = next,
            Step::Done(header) => return Ok(header),
        }
    }
}

#[test]
fn headers_match_the_reference_reader() {
    let oracle = oracle();
    assert!(oracle.files.len() >= 50, "only {} files", oracle.files.len());
    for (name, expected) in oracle.files {
        check(&folder(), &name, &expected);
    }
}

#[test]
fn files_quantized_by_llama_cpp_match_the_reference_reader() {
    let (folder, files) = complete_files();
    assert!(files.len() >= 40, "only {} files", files.len());
    for (name, expected) in files {
        let header = check(&folder, &name, &expected);
        let quantization = name.strip_prefix("Tiny-").and_then(|name| name.strip_suffix(".gguf"));
        if let Some(written) = header.model.as_deref().and_then(|model| model.file_type.as_deref())
        {
            let quantization = quantization.unwrap().trim_start_matches("MoE-");
            assert_eq!(written.to_uppercase(), quantization, "{name}");
        }
    }
}

/// Compares the header of a file with the figures of the reader.
fn check(folder: &Path, name: &str, expected: &FileFigures) -> FileHeader {
    let file = fs::read(folder.join(name)).unwrap();
    let header = parse(&file, expected.size, usize::MAX).unwrap();
    assert_eq!(parse(&file, expected.size, 100).unwrap(), header, "{name}");
    assert_eq!(header.header_range(), 0..expected.data_start, "{name}");
    assert_eq!(header.file_size(), expected.size, "{name}");
    assert_eq!(header.metadata(), Some(&expected.keys), "{name}");
    assert_eq!(header.tensors().len(), expected.tensors.len(), "{name}");
    for ((found, tensor), expected) in header.tensors().iter().zip(&expected.tensors) {
        assert_eq!((found, tensor.dtype.as_str()), (&*expected.name, &*expected.r#type));
        assert_eq!(tensor.shape, expected.shape, "{name}: {found}");
        assert_eq!(tensor.elements(), Some(expected.elements), "{name}: {found}");
        let offsets = (expected.offset, expected.offset + expected.bytes);
        assert_eq!(tensor.data_offsets, offsets, "{name}: {found}");
    }
    header
}

#[test]
fn types_match_the_reference() {
    let oracle = oracle();
    assert_eq!(oracle.types.len(), 34);
    for (number, name, elements, bytes) in oracle.types {
        let block = Dtype::from(&*name).block().unwrap();
        assert_eq!((block.elements, block.bytes), (elements, bytes), "{name}");
        assert_eq!(type_of(number), name);
    }
    assert_eq!(type_of(31), "GGML type 31");
}

/// The name of a type, from the header of a file with a tensor of it.
fn type_of(number: u32) -> String {
    let mut file = fs::read(folder().join("blocks.gguf")).unwrap();
    let all = file.len();
    // The type precedes the offset of the last tensor.
    file[all - 12..all - 8].copy_from_slice(&number.to_le_bytes());
    let header = parse(&file, 1 << 20, usize::MAX).unwrap();
    header.tensors().iter().last().unwrap().1.dtype.to_string()
}

#[test]
fn file_types_match_the_reference() {
    for (number, name) in oracle().file_types {
        let mut file = fs::read(folder().join("bpe.gguf")).unwrap();
        let key = b"general.file_type";
        let at = file.windows(key.len()).position(|window| window == key).unwrap();
        let value = at + key.len() + 4;
        file[value..value + 4].copy_from_slice(&number.to_le_bytes());
        let header = parse(&file, 1 << 20, usize::MAX).unwrap();
        let found = header.model.as_deref().unwrap().file_type.clone().unwrap();
        assert_eq!(found.to_uppercase(), name);
    }
}

#[test]
fn truncated_headers_are_errors() {
    for (name, expected) in oracle().files.into_iter().filter(|(_, figures)| figures.size < 50_000)
    {
        let file = fs::read(folder().join(&name)).unwrap();
        for cut in (0..file.len()).step_by(7) {
            assert!(parse(&file[..cut], cut as u64, usize::MAX).is_err(), "{name} at {cut}");
            let lost = parse(&file[..cut], expected.size, usize::MAX);
            let kind = lost.map_err(|error| error.kind);
            assert_eq!(kind.unwrap_err(), HeaderErrorKind::Truncated, "{name} at {cut}");
        }
    }
}
