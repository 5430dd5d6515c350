//! The reader of an index that arrives in pieces.

use std::mem::take;

use super::SafetensorsIndexJson;
use super::invalid::InvalidIndex;
use super::parser::{IndexParser, IndexStop};
use crate::formats::RepoPath;
use crate::formats::names::LONGEST;
use crate::formats::safetensors::IndexError;
use crate::formats::safetensors::json::{JsonError, JsonReader};
use crate::formats::safetensors::position::TextPosition;

/// A parser of an index that arrives in pieces of any size.
///
/// Each entry is parsed as soon as it is complete, so a shard is known before the rest of the index has
/// arrived. Besides the result, only the incomplete entry is stored. The sizes of the pieces change neither
/// the result nor the error.
///
/// ```
/// use hf_meta::formats::safetensors::IndexReader;
///
/// let mut reader = IndexReader::default();
/// reader.feed(br#"{"weight_map":{"v":"a.safetensors","w":"b.safe"#)?;
/// assert_eq!(reader.shards().len(), 1);
/// reader.feed(br#"tensors"}}"#)?;
/// let index = reader.finish()?;
/// assert_eq!(index.shards()[1].as_str(), "b.safetensors");
/// # Ok::<(), hf_meta::formats::safetensors::IndexError>(())
/// ```
#[derive(Debug, Default)]
pub struct IndexReader {
    parser: IndexParser,
    /// The bytes of an incomplete entry.
    pub(super) tail: Vec<u8>,
    /// The length of the tail, in bytes, at which it is parsed again.
    worth_reading: usize,
    /// The position of the first byte of the tail.
    position: TextPosition,
    /// The length of all pieces, in bytes.
    length: usize,
    invalid: Option<InvalidIndex>,
    /// The error that ended the parsing. Later pieces are ignored.
    refusal: Option<IndexError>,
}

/// The longest incomplete entry, in bytes, that is parsed again with every piece. A longer one is parsed again
/// when its length has doubled; otherwise many small pieces would take quadratic time.
const SHORT: usize = 1 << 12;

impl IndexReader {
    /// Parses the next piece.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule. Invalid JSON is reported by [`finish`](Self::finish), because a later
    /// line may show that the reason is an unresolved merge conflict.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), IndexError> {
        if self.refusal.is_none() {
            self.refusal = self.take_piece(piece).err();
        }
        self.refusal.clone().map_or(Ok(()), Err)
    }

    /// Returns the shards that are known so far, in the order of the index.
    #[must_use]
    pub fn shards(&self) -> &[RepoPath] {
        &self.parser.shards.paths
    }

    /// Returns the index after the last piece.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with the tensor that breaks it.
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

    /// Parses a piece together with the tail.
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

    /// Adds the start of a piece to the tail and parses the tail. Returns the rest of the piece.
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

    /// Sets the length at which the tail is parsed again.
    fn expect_more(&mut self) {
        let length = self.tail.len();
        self.worth_reading = if length < SHORT { 0 } else { length.saturating_mul(2) };
    }

    /// Parses the complete entries of a text, and returns their length in bytes.
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
