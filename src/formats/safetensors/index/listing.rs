//! The JSON of an index, read entry by entry.

use serde::de::IgnoredAny;

use super::frame::Frame;
use super::metadata::{Metadata, Plain};
use super::shards::Shards;
use super::{SafetensorsIndexJson, WeightMapEntries};
use crate::formats::safetensors::json::{JsonError, JsonReader};
use crate::formats::safetensors::{DetectedFormat, IndexError};

/// The reason why an index cannot be parsed any further.
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

/// What an index lists, as far as it is read.
#[derive(Debug, Default)]
pub(super) struct Listing {
    stage: Stage,
    dtype: Option<String>,
    metadata: Option<Metadata>,
    has_weight_map: bool,
    pub(super) shards: Shards,
    entries: WeightMapEntries,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// The index.
    #[default]
    Start,
    /// An entry of the index, or its end.
    Index { is_first: bool },
    /// An entry of the `weight_map`, or its end.
    WeightMap { is_first: bool },
    /// Nothing more.
    End,
}

impl Listing {
    /// Reads to the end of a text that the index ends with. Wherever it stops before, all that is
    /// complete is taken, and the text is read as far as that.
    pub(super) fn read(&mut self, text: &mut JsonReader<'_>) -> Result<(), IndexStop> {
        loop {
            text.skip_space();
            let start = text.at;
            let next = match self.stage {
                Stage::Start => start_of_index(text),
                Stage::Index { is_first } => self.index_entry(text, is_first),
                Stage::WeightMap { is_first } => self.tensor(text, is_first),
                Stage::End if text.rest().is_empty() => return Ok(()),
                Stage::End => Err(text.invalid("expected nothing more").into()),
            };
            match next {
                Ok(stage) => self.stage = stage,
                Err(stop) => {
                    text.at = start;
                    return Err(stop);
                }
            }
        }
    }

    fn index_entry(
        &mut self,
        text: &mut JsonReader<'_>,
        is_first: bool,
    ) -> Result<Stage, IndexStop> {
        if !text.next_entry(is_first)? {
            return Ok(Stage::End);
        }
        let key = text.key()?;
        match &*key {
            "dtype" if self.dtype.is_some() => {
                return Err(text.invalid("`dtype` occurs twice").into());
            }
            "dtype" => self.dtype = text.value::<Plain>()?.text(),
            "metadata" if self.metadata.is_some() => {
                return Err(text.invalid("`metadata` occurs twice").into());
            }
            "metadata" => self.metadata = Some(text.value()?),
            "weight_map" if self.has_weight_map => {
                return Err(text.invalid("`weight_map` occurs twice").into());
            }
            "weight_map" => {
                text.expect(b'{', "expected a `weight_map`, an object of shard names by tensor")?;
                self.has_weight_map = true;
                return Ok(Stage::WeightMap { is_first: true });
            }
            _ => drop(text.value::<IgnoredAny>()?),
        }
        Ok(Stage::Index { is_first: false })
    }

    #[inline]
    fn tensor(&mut self, text: &mut JsonReader<'_>, is_first: bool) -> Result<Stage, IndexStop> {
        if !text.next_entry(is_first)? {
            return Ok(Stage::Index { is_first: false });
        }
        let tensor = text.key()?;
        let shard = text.string("expected the name of a shard, a string")?;
        let place = match self.shards.again(shard.bytes) {
            Some(place) => place,
            None => self.shards.place(&tensor, &shard.decode()?)?,
        };
        self.entries.push(&tensor, place);
        Ok(Stage::WeightMap { is_first: false })
    }

    /// Whether the index has ended.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::End)
    }

    pub(super) fn finish(self) -> Result<SafetensorsIndexJson, IndexError> {
        if !self.has_weight_map {
            return Err(IndexError::NoWeightMap);
        }
        let Self { dtype, metadata, shards: Shards { paths: shards, .. }, entries, .. } = self;
        if shards.is_empty() {
            return Err(IndexError::EmptyWeightMap);
        }
        let mut frame = Frame { dtype, metadata: metadata.and_then(|metadata| metadata.0), shards };
        let ranks = frame.sort_shards();
        entries.finish(frame, &ranks)
    }
}

fn start_of_index(text: &mut JsonReader<'_>) -> Result<Stage, IndexStop> {
    if text.peek()? == b'{' {
        text.at += 1;
        return Ok(Stage::Index { is_first: true });
    }
    let rest = text.rest().trim_ascii_start();
    match DetectedFormat::recognize(rest) {
        Some(detected) => Err(IndexError::NotAnIndex { detected }.into()),
        None if DetectedFormat::is_possible(rest) => Err(JsonError::Incomplete.into()),
        None => Err(text.invalid("expected an index, an object with a `weight_map`").into()),
    }
}
