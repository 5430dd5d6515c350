//! The trait that file formats implement.

use std::fmt::Debug;
use std::ops::Range;

use serde::Serialize;

use super::{FileHeader, HeaderError, RepoPath};

/// A file format of model weights.
pub trait Format: Debug + Send + Sync {
    /// Returns the name of the format, such as `safetensors`.
    fn name(&self) -> &'static str;

    /// Returns the display name of the format, such as `GGUF`. Defaults to [`name`](Self::name).
    fn title(&self) -> &'static str {
        self.name()
    }

    /// Returns the file extension, including the dot.
    fn extension(&self) -> &'static str;

    /// Returns the extension of a path, including the dot, if it is one of this format. Formats with several
    /// extensions override this method.
    fn match_extension(&self, path: &str) -> Option<&'static str> {
        path.ends_with(self.extension()).then_some(self.extension())
    }

    /// Creates a parser for the header of the file at `path`. The parser must reject headers larger than
    /// `max_header_bytes` bytes.
    fn parser(&self, path: &RepoPath, max_header_bytes: u64) -> Box<dyn HeaderParser>;

    /// Splits a file name, without extension and shard number, into its parts. By default, the whole name is the
    /// model name. Returns `None` if files with this name are not weights, although they have the extension: they are
    /// read only if their path is given.
    fn split_name(&self, stem: &str) -> Option<WeightFileName> {
        Some(WeightFileName::new(stem))
    }
}

/// The parts of a weight file's name, without extension and shard number.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct WeightFileName {
    /// The name of the model, such as `model` or `Llama-3.2-1B`.
    pub model: String,
    /// The variant, such as `fp16` or `Q4_K_M`; empty if there is none.
    pub variant: String,
    /// `true` if the variant is a quantization, so that each variant is a complete model.
    pub is_quantized: bool,
    /// The kind of weights.
    pub kind: WeightsKind,
}

impl WeightFileName {
    /// Creates the parts of a model name without a variant.
    pub fn new(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }
}

/// The kind of weights in a file, judging by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum WeightsKind {
    /// A model, or any component not covered by another variant.
    #[default]
    Model,
    /// The projector of a multimodal model (`mmproj`).
    Projector,
    /// An adapter, such as a `LoRA`.
    Adapter,
    /// An importance matrix that was used to quantize a model.
    ImportanceMatrix,
}

/// An incremental parser of one header. It performs no I/O: it requests byte ranges, and the caller reads them.
///
/// ```
/// use hf_meta_format::formats::{Format, Step, safetensors::Safetensors};
///
/// let json = br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
/// let file = [&(json.len() as u64).to_le_bytes()[..], json, b"\x01\x02"].concat();
/// let size = Some(file.len() as u64);
///
/// let mut parser = Safetensors.parser(&"model.safetensors".parse()?, 100_000_000);
/// let mut range = parser.first_range();
/// let header = loop {
///     let [start, end] = [range.start, range.end].map(|at| file.len().min(at as usize));
///     let bytes = file[start..end].to_vec();
///     match parser.advance(range.start, bytes, size)? {
///         Step::Read(next) => range = next,
///         Step::Done(header) => break header,
///     }
/// };
/// assert_eq!(header.tensors().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait HeaderParser: Send {
    /// Returns the first byte range to read. It may extend past the end of the file, and so may later ranges: pass
    /// the bytes that exist.
    fn first_range(&self) -> Range<u64>;

    /// Consumes bytes that were read at offset `start`, along with the size of the file in bytes, if known.
    ///
    /// Bytes that were passed before and bytes after the header are ignored. Passing no bytes at the requested offset
    /// signals the end of the file.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule of the format, naming the tensor that violates it.
    fn advance(
        &mut self,
        start: u64,
        bytes: Vec<u8>,
        file_size: Option<u64>,
    ) -> Result<Step, HeaderError>;
}

/// Reads the header of a file with a parser. `read` returns the bytes of a range that exist, and is called until the
/// header is complete.
///
/// ```
/// use hf_meta_format::formats::{Format, HeaderError, read_header, safetensors::Safetensors};
///
/// let json = br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
/// let file = [&(json.len() as u64).to_le_bytes()[..], json, b"\x01\x02"].concat();
/// let parser = Safetensors.parser(&"model.safetensors".parse()?, 100_000_000);
/// let header = read_header(parser, Some(file.len() as u64), |range| {
///     let [start, end] = [range.start, range.end].map(|at| file.len().min(at as usize));
///     Ok::<_, HeaderError>(file[start..end].to_vec())
/// })?;
/// assert_eq!(header.tensors().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns the errors of `read` and of the parser.
pub fn read_header<E: From<HeaderError>>(
    mut parser: Box<dyn HeaderParser>,
    file_size: Option<u64>,
    mut read: impl FnMut(Range<u64>) -> Result<Vec<u8>, E>,
) -> Result<FileHeader, E> {
    let mut range = parser.first_range();
    loop {
        let start = range.start;
        match parser.advance(start, read(range)?, file_size)? {
            Step::Read(next) => range = next,
            Step::Done(header) => return Ok(header),
        }
    }
}

/// The next step of a [`HeaderParser`].
// Exhaustive, because a caller that ignores a step cannot continue.
#[derive(Debug)]
pub enum Step {
    /// Read this byte range and call [`HeaderParser::advance`] again. The range is not empty and contains only bytes
    /// that have not been passed yet.
    Read(Range<u64>),
    /// The header is complete and valid.
    Done(FileHeader),
}
