//! Reads an index that arrives in chunks.

use std::mem::take;

use super::SafetensorsIndexJson;
use super::invalid::InvalidIndex;
use super::parser::{IndexParser, IndexStop};
use crate::formats::RepoPath;
use crate::formats::names::LONGEST;
use crate::formats::safetensors::IndexError;
use crate::formats::safetensors::json::{JsonError, JsonReader};
use crate::formats::safetensors::position::TextPosition;

/// An incremental parser for an index that arrives in chunks of any size.
///
/// Each entry is parsed as soon as it is complete, so shards become known before the rest of the index has arrived.
/// Apart from the result, only the incomplete entry is buffered. The chunk sizes affect neither the result nor the
/// error.
///
/// ```
/// use hf_meta_format::formats::safetensors::IndexReader;
///
/// let mut reader = IndexReader::default();
/// reader.feed(br#"{"weight_map":{"v":"a.safetensors","w":"b.safe"#)?;
/// assert_eq!(reader.shards().len(), 1);
/// reader.feed(br#"tensors"}}"#)?;
/// let index = reader.finish()?;
/// assert_eq!(index.shards()[1].as_str(), "b.safetensors");
/// # Ok::<(), hf_meta_format::formats::safetensors::IndexError>(())
/// ```
#[derive(Debug, Default)]
pub struct IndexReader {
    parser: IndexParser,
    /// The bytes of an incomplete entry.
    pub(super) tail: Vec<u8>,
    /// The tail is parsed again once it has this many bytes.
    worth_reading: usize,
    /// The line and column of the first byte of the tail.
    position: TextPosition,
    /// The total length of all chunks in bytes.
    length: usize,
    invalid: Option<InvalidIndex>,
    /// The error that stopped the parser. Later chunks are ignored.
    refusal: Option<IndexError>,
}

/// An incomplete entry of up to this many bytes is parsed again with every chunk. A longer one is parsed again when
/// its length has doubled, because otherwise many small chunks would take quadratic time.
const SHORT: usize = 1 << 12;

impl IndexReader {
    /// Parses the next chunk.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule. Invalid JSON is reported by [`finish`](Self::finish), because a later line
    /// may reveal that the cause is an unresolved merge conflict.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), IndexError> {
        if self.refusal.is_none() {
            self.refusal = self.take_piece(piece).err();
        }
        self.refusal.clone().map_or(Ok(()), Err)
    }

    /// Returns the shards known so far, in index order.
    #[must_use]
    pub fn shards(&self) -> &[RepoPath] {
        &self.parser.shards.paths
    }

    /// Finishes parsing after the last chunk and returns the index.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule, naming the tensor that violates it.
    pub fn finish(mut self) -> Result<SafetensorsIndexJson, IndexError> {
        let tail = take(&mut self.tail);
        let read = match self.refusal.take() {
            Some(refusal) => return Err(refusal),
            None => self.read(&tail)?,
        };
        if self.invalid.is_none() && !self.parser.is_whole() {
            let rest = &tail[read..];
            self.search_from(rest, 0, rest.len(), "unexpected end")?;
        }
        self.invalid.map_or_else(|| self.parser.finish(), |invalid| Err(invalid.into_error()))
    }

    /// Parses the tail followed by a chunk.
    fn take_piece(&mut self, piece: &[u8]) -> Result<(), IndexError> {
        self.length = self.length.saturating_add(piece.len());
        if self.length > LONGEST {
            return Err(IndexError::too_long());
        }
        let mut rest = piece;
        while !self.tail.is_empty() && !rest.is_empty() {
            rest = self.complete_tail(rest)?;
        }
        if !rest.is_empty() {
            let read = self.read(rest)?;
            self.tail.extend_from_slice(&rest[read..]);
            self.expect_more();
        }
        Ok(())
    }

    /// Appends the start of a chunk to the tail and parses the tail. Returns the rest of the chunk.
    fn complete_tail<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], IndexError> {
        let before = self.tail.len();
        let (more, rest) = piece.split_at(piece.len().min(before.max(SHORT)));
        self.tail.extend_from_slice(more);
        if self.tail.len() < self.worth_reading {
            return Ok(rest);
        }
        let mut tail = take(&mut self.tail);
        let read = self.read(&tail)?;
        if let Some(read) = read.checked_sub(before) {
            tail.clear();
            self.tail = tail;
            return Ok(&piece[read..]);
        }
        tail.drain(..read);
        self.tail = tail;
        self.expect_more();
        Ok(rest)
    }

    /// Sets the length at which the tail will be parsed again.
    fn expect_more(&mut self) {
        let length = self.tail.len();
        self.worth_reading = if length < SHORT { 0 } else { length.saturating_mul(2) };
    }

    /// Parses the complete entries of a text, and returns the number of bytes parsed.
    fn read(&mut self, bytes: &[u8]) -> Result<usize, IndexError> {
        if let Some(invalid) = &mut self.invalid {
            invalid.search(bytes)?;
            return Ok(bytes.len());
        }
        let mut text = JsonReader::from_bytes(bytes);
        match self.parser.read(&mut text) {
            Ok(()) | Err(IndexStop::Json(JsonError::Incomplete)) => {
                self.position = self.position.after(&bytes[..text.at]);
                Ok(text.at)
            }
            Err(IndexStop::Refused(error)) => Err(*error),
            Err(IndexStop::Json(JsonError::Invalid(invalid))) => {
                self.search_from(bytes, text.at, invalid.at, &invalid.message)?;
                Ok(bytes.len())
            }
        }
    }

    /// Records the error at the offset `at`, and searches for a merge conflict after the offset `read`.
    fn search_from(
        &mut self,
        bytes: &[u8],
        read: usize,
        at: usize,
        message: &str,
    ) -> Result<(), IndexError> {
        let place = self.position.after(&bytes[..at.min(bytes.len())]);
        let from = self.position.after(&bytes[..read]);
        let invalid = self.invalid.insert(InvalidIndex::new(message, place, from));
        invalid.search(&bytes[read..])
    }
}
