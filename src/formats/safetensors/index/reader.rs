//! Reading an index while it arrives.

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
    /// What has arrived of an entry that is not complete.
    pub(super) tail: Vec<u8>,
    /// The length from which on the tail is worth another look.
    worth_reading: usize,
    /// Where the tail starts.
    position: TextPosition,
    /// Bytes of all pieces.
    length: usize,
    invalid: Option<InvalidIndex>,
    /// What ended the reading: after it nothing is read any more.
    refusal: Option<IndexError>,
}

/// An entry up to this long, in bytes, is looked at again with every piece. A longer one is not until
/// twice as much of it is there, or many small pieces would take time that grows with its square.
const SHORT: usize = 1 << 12;

impl IndexReader {
    /// Reads the next piece.
    ///
    /// # Errors
    ///
    /// A broken rule, as soon as it is known. That the text is not JSON is known only at its end: a
    /// later line may show that it is an unresolved merge.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), IndexError> {
        if self.refusal.is_none() {
            self.refusal = self.take_piece(piece).err();
        }
        self.refusal.clone().map_or(Ok(()), Err)
    }

    /// The shards that are known so far, in the order in which the index names them.
    #[must_use]
    pub fn shards(&self) -> &[RepoPath] {
        &self.parser.shards.paths
    }

    /// What was read, now that there are no more pieces.
    ///
    /// # Errors
    ///
    /// The first broken rule, with the tensor that breaks it.
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

    /// Adds to the tail what may complete it, and returns what of the piece is to be read after it.
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

    fn expect_more(&mut self) {
        let length = self.tail.len();
        self.worth_reading = if length < SHORT { 0 } else { length.saturating_mul(2) };
    }

    /// Reads all of a text that is complete, and returns how much that is.
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

    /// Looks for a better reason behind what is read of a text that has a invalid at a place.
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
