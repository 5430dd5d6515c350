//! Parses an index entry by entry.

use serde::de::IgnoredAny;

use super::fields::IndexFields;
use super::metadata::{IndexMetadata, ScalarValue};
use super::shard_table::ShardTable;
use super::{SafetensorsIndexJson, WeightMapEntries};
use crate::formats::safetensors::json::{JsonError, JsonReader};
use crate::formats::safetensors::{DetectedFormat, IndexError};

/// The reason parsing cannot continue.
#[derive(Debug)]
pub(super) enum IndexStop {
    /// The JSON is incomplete or invalid.
    Json(JsonError),
    /// The JSON breaks a rule of the format.
    Refused(Box<IndexError>),
}

impl From<JsonError> for IndexStop {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl From<IndexError> for IndexStop {
    fn from(error: IndexError) -> Self {
        Self::Refused(Box::new(error))
    }
}

/// The state of the parser and the entries parsed so far.
#[derive(Debug, Default)]
pub(super) struct IndexParser {
    state: ParserState,
    dtype: Option<String>,
    metadata: Option<IndexMetadata>,
    has_weight_map: bool,
    pub(super) shards: ShardTable,
    entries: WeightMapEntries,
}

/// The next expected token.
#[derive(Clone, Copy, Debug, Default)]
enum ParserState {
    /// The start of the index.
    #[default]
    Start,
    /// An entry of the index, or its end.
    Index { is_first: bool },
    /// An entry of the `weight_map`, or its end.
    WeightMap { is_first: bool },
    /// Whitespace only.
    End,
}

impl IndexParser {
    /// Parses all complete entries of a text, and leaves the reader after the last one. Returns `Ok` only at the end
    /// of the index.
    pub(super) fn read(&mut self, text: &mut JsonReader<'_>) -> Result<(), IndexStop> {
        loop {
            text.skip_space();
            let start = text.at;
            let next = match self.state {
                ParserState::Start => start_of_index(text),
                ParserState::Index { is_first } => self.index_entry(text, is_first),
                ParserState::WeightMap { is_first } => self.tensor(text, is_first),
                ParserState::End if text.rest().is_empty() => return Ok(()),
                ParserState::End => Err(text.invalid("expected nothing more").into()),
            };
            match next {
                Ok(state) => self.state = state,
                Err(stop) => {
                    text.at = start;
                    return Err(stop);
                }
            }
        }
    }

    /// Parses one field of the index.
    fn index_entry(
        &mut self,
        text: &mut JsonReader<'_>,
        is_first: bool,
    ) -> Result<ParserState, IndexStop> {
        if !text.next_entry(is_first)? {
            return Ok(ParserState::End);
        }
        let key = text.key()?;
        match &*key {
            "dtype" if self.dtype.is_some() => {
                return Err(text.invalid("`dtype` appears twice").into());
            }
            "dtype" => self.dtype = text.value::<ScalarValue>()?.text(),
            "metadata" if self.metadata.is_some() => {
                return Err(text.invalid("`metadata` appears twice").into());
            }
            "metadata" => self.metadata = Some(text.value()?),
            "weight_map" if self.has_weight_map => {
                return Err(text.invalid("`weight_map` appears twice").into());
            }
            "weight_map" => {
                text.expect(b'{', "expected a `weight_map` object")?;
                self.has_weight_map = true;
                return Ok(ParserState::WeightMap { is_first: true });
            }
            _ => drop(text.value::<IgnoredAny>()?),
        }
        Ok(ParserState::Index { is_first: false })
    }

    /// Parses one entry of the `weight_map`.
    #[inline]
    fn tensor(
        &mut self,
        text: &mut JsonReader<'_>,
        is_first: bool,
    ) -> Result<ParserState, IndexStop> {
        if !text.next_entry(is_first)? {
            return Ok(ParserState::Index { is_first: false });
        }
        let tensor = text.key()?;
        let shard = text.string("expected a shard name, a string")?;
        let place = match self.shards.again(shard.bytes) {
            Some(place) => place,
            None => self.shards.place(&tensor, &shard.decode()?)?,
        };
        self.entries.push(&tensor, place);
        Ok(ParserState::WeightMap { is_first: false })
    }

    /// Returns whether the whole index has been parsed.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.state, ParserState::End)
    }

    /// Returns the index.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no tensors or a tensor is listed twice.
    pub(super) fn finish(self) -> Result<SafetensorsIndexJson, IndexError> {
        if !self.has_weight_map {
            return Err(IndexError::NoWeightMap);
        }
        let Self { dtype, metadata, shards: ShardTable { paths: shards, .. }, entries, .. } = self;
        if shards.is_empty() {
            return Err(IndexError::EmptyWeightMap);
        }
        let mut fields =
            IndexFields { dtype, metadata: metadata.and_then(|metadata| metadata.0), shards };
        let ranks = fields.sort_shards();
        entries.finish(fields, &ranks)
    }
}

/// Parses the `{` at the start of an index, or recognizes another format.
fn start_of_index(text: &mut JsonReader<'_>) -> Result<ParserState, IndexStop> {
    if text.peek()? == b'{' {
        text.at += 1;
        return Ok(ParserState::Index { is_first: true });
    }
    let rest = text.rest().trim_ascii_start();
    match DetectedFormat::recognize(rest) {
        Some(detected) => Err(IndexError::NotAnIndex { detected }.into()),
        None if DetectedFormat::is_possible(rest) => Err(JsonError::Incomplete.into()),
        None => Err(text.invalid("expected an index object with a `weight_map`").into()),
    }
}
