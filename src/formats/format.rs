//! The interface of a file format.

use std::fmt::Debug;
use std::ops::Range;

use super::{FileHeader, HeaderError, RepoPath, safetensors};

/// A file format of model weights.
pub trait Format: Debug + Send + Sync {
    /// Returns the name of the format, such as `safetensors`.
    fn name(&self) -> &'static str;

    /// Returns whether a path is that of a file in this format, by its extension.
    fn matches(&self, path: &RepoPath) -> bool;

    /// Creates a parser for the header of one file. Headers of more than `header_limit` bytes are
    /// refused.
    fn parser(&self, header_limit: u64) -> Box<dyn HeaderParser>;
}

/// A parser of one header that performs no I/O: it says which bytes it needs, and its caller reads them.
///
/// ```
/// use hf_meta::formats::{Format, Step, safetensors::Safetensors};
///
/// let json = br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
/// let file = [&(json.len() as u64).to_le_bytes()[..], json, b"\x01\x02"].concat();
/// let size = Some(file.len() as u64);
///
/// let mut parser = Safetensors.parser(100_000_000);
/// let mut range = parser.first_range();
/// let header = loop {
///     let bytes = file[range.start as usize..range.end as usize].to_vec();
///     match parser.advance(range.start, bytes, size)? {
///         Step::Read(next) => range = next,
///         Step::Done(header) => break header,
///     }
/// };
/// assert_eq!(header.tensors().len(), 1);
/// # Ok::<(), hf_meta::formats::HeaderError>(())
/// ```
pub trait HeaderParser: Send {
    /// Returns the byte range to read first, of any file in this format.
    fn first_range(&self) -> Range<u64>;

    /// Takes bytes that were read at the offset `start`, and the size of the file in bytes if it is known.
    ///
    /// Bytes that were given before and bytes after the header are ignored. No bytes at the offset that was
    /// asked for mean that the file ends there.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule of the format, with the tensor that breaks it.
    fn advance(
        &mut self,
        start: u64,
        bytes: Vec<u8>,
        file_size: Option<u64>,
    ) -> Result<Step, HeaderError>;
}

/// The next step of a [`HeaderParser`].
#[derive(Debug)]
pub enum Step {
    /// Read this byte range of the file, which holds only bytes that are missing, and call
    /// [`HeaderParser::advance`] again.
    Read(Range<u64>),
    /// The header is complete and valid.
    Done(FileHeader),
}

/// All formats that headers are read from.
pub(crate) static FORMATS: &[&dyn Format] = &[&safetensors::Safetensors];

/// Returns the format of a file by its name; safetensors if no format matches.
pub(crate) fn format_of(path: &RepoPath) -> &'static dyn Format {
    FORMATS.iter().find(|format| format.matches(path)).copied().unwrap_or(&safetensors::Safetensors)
}
