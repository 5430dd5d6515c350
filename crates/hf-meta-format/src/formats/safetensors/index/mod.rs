//! The index of a sharded checkpoint.

use std::collections::BTreeMap;
use std::str::from_utf8;

use serde::{Serialize, Serializer};

use super::json::{InvalidJson, JsonError, JsonReader};
use super::{DetectedFormat, EXTENSION, SafetensorsFileHeader};
use crate::base::json_object::raw;
use crate::base::sort::sort_by;
use crate::formats::names::{MAX_TOTAL_BYTES, NameList, Names};
pub use crate::formats::{HeaderError as IndexError, HeaderErrorKind as IndexErrorKind};
use crate::formats::{RepoPath, clip, whole_number};

/// The validated index of a sharded checkpoint, `model.safetensors.index.json`.
///
/// Serializes to the JSON in the file, without unknown keys (as in huggingface.js) and without nested objects and
/// arrays in `metadata`: no known writer produces them, and a small nested file could expand to a large value.
///
/// ```
/// use hf_meta_format::SafetensorsIndexJson;
///
/// let json = br#"{"metadata":{"total_size":24},"weight_map":{"w":"model-00001-of-00001.safetensors"}}"#;
/// let index = SafetensorsIndexJson::from_json(json)?;
/// assert_eq!(index.shards()[0].as_str(), "model-00001-of-00001.safetensors");
/// # Ok::<(), hf_meta_format::formats::safetensors::IndexError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SafetensorsIndexJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    dtype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")
    )]
    metadata: Option<IndexMetadata>,
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    weight_map: WeightMap,
}

/// The scalar entries of the `metadata`, as JSON texts, so that every number stays exact.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IndexMetadata(BTreeMap<String, String>);

/// The shard of each tensor, in index order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WeightMap {
    /// Sorted by name.
    shards: Vec<RepoPath>,
    tensors: Names,
    /// For each tensor, the index of its shard, so that each shard name is stored once.
    shard_indices: Vec<u16>,
}

impl SafetensorsIndexJson {
    /// The default maximum size of an index in bytes, the same as in huggingface.js. The largest known index has 60
    /// MB for 497,000 tensors.
    pub const DEFAULT_LIMIT: u64 = 250_000_000;

    /// The maximum number of shards in an index, the same as in huggingface.js.
    pub const MAX_SHARDS: usize = 10_000;

    /// Parses an index. Checks that every tensor is listed once, and that all shards are safetensors files in the
    /// folder of the index or below it.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule, naming the tensor that violates it.
    pub fn from_json(json: &[u8]) -> Result<Self, IndexError> {
        Self::with_extension(json, EXTENSION)
    }

    /// Parses an index like [`from_json`](Self::from_json), whose shards have another extension, such as `.bin`.
    ///
    /// # Errors
    ///
    /// Returns the first violated rule, naming the tensor that violates it.
    pub fn with_extension(json: &[u8], extension: &'static str) -> Result<Self, IndexError> {
        if json.len() > MAX_TOTAL_BYTES {
            return Err(IndexError::index_too_long());
        }
        let mut parser = IndexParser::new(extension);
        parser.parse(json)?;
        parser.into_index()
    }

    /// Returns the first shard that the start of an index names, or `None` if it names none. The rest of the index may
    /// be invalid.
    pub fn first_shard(start: &[u8], extension: &'static str) -> Option<RepoPath> {
        let mut parser = IndexParser::new(extension);
        // The start ends inside an entry, so the parser always stops with a reason.
        let _reason = parser.parse_entries(&mut JsonReader::new(valid_start(start)));
        parser.shards.into_iter().next()
    }

    /// Creates an index from the headers of unindexed shards. There must be at most [`Self::MAX_SHARDS`].
    #[doc(hidden)]
    pub fn from_headers(
        headers: &BTreeMap<RepoPath, SafetensorsFileHeader>,
    ) -> Result<Self, IndexError> {
        let (mut names, mut shard_indices) = (NameList::default(), Vec::new());
        for (shard_index, (_, header)) in (0_u16..).zip(headers) {
            for tensor in header.tensors().names() {
                if !names.has_room_for(tensor.len()) {
                    return Err(IndexError::index_too_long());
                }
                names.push(tensor);
                shard_indices.push(shard_index);
            }
        }
        let tensors = names.into_names("index")?;
        let shards = headers.keys().cloned().collect();
        let weight_map = WeightMap { shards, tensors, shard_indices };
        Ok(Self { dtype: None, metadata: None, weight_map })
    }

    /// Returns the index of the shards with tensors that a function selects.
    pub(crate) fn of_tensors(&self, mut is_selected: impl FnMut(&str) -> bool) -> Self {
        let WeightMap { shards, tensors, shard_indices } = &self.weight_map;
        let mut is_kept = vec![false; shards.len()];
        for (tensor, shard) in tensors.list.iter().zip(shard_indices) {
            // The function sees every name, because it also counts them.
            is_kept[usize::from(*shard)] |= is_selected(tensor);
        }
        let (mut names, mut kept_indices) = (NameList::default(), Vec::new());
        let mut ranks = vec![0_u16; shards.len()];
        let kept = || shards.iter().zip(&is_kept).filter(|(_, is_kept)| **is_kept);
        let kept_at = (0..shards.len()).filter(|at| is_kept[*at]);
        (0..).zip(kept_at).for_each(|(rank, at)| ranks[at] = rank);
        for (tensor, shard) in tensors.list.iter().zip(shard_indices) {
            if is_kept[usize::from(*shard)] {
                names.push(tensor);
                kept_indices.push(ranks[usize::from(*shard)]);
            }
        }
        let shards = kept().map(|(shard, _)| shard.clone()).collect();
        // No name is there twice, so the names are never rejected.
        let Ok(tensors) = names.into_names("index") else { return self.clone() };
        let weight_map = WeightMap { shards, tensors, shard_indices: kept_indices };
        Self { dtype: self.dtype.clone(), metadata: self.metadata.clone(), weight_map }
    }

    /// Returns the shards, sorted by name.
    pub fn shards(&self) -> &[RepoPath] {
        &self.weight_map.shards
    }

    /// Returns every tensor with its shard, in index order.
    pub fn weight_map(&self) -> impl ExactSizeIterator<Item = (&str, &RepoPath)> {
        self.weight_map.iter()
    }

    /// Returns the shard of a tensor, or `None` if the index does not list it.
    pub fn shard(&self, tensor: &str) -> Option<&RepoPath> {
        let index = self.index_of(tensor, 0)? as usize;
        Some(&self.shards()[usize::from(self.weight_map.shard_indices[index])])
    }

    /// Returns the index of a tensor in the `weight_map`. `next` is tried first: most shards have the order of their
    /// index, and a search takes longer.
    #[doc(hidden)]
    pub fn index_of(&self, tensor: &str, next: u32) -> Option<u32> {
        let names = &self.weight_map.tensors;
        let is_next =
            names.list.indices().contains(&next) && names.list.bytes(next) == tensor.as_bytes();
        if is_next { Some(next) } else { names.index_of(tensor) }
    }

    /// Returns the number of tensors per shard, and the total length of their names in bytes.
    pub fn names_per_shard(&self) -> Vec<(u64, u64)> {
        let WeightMap { shards, tensors, shard_indices } = &self.weight_map;
        let mut shards = vec![(0, 0); shards.len()];
        for (tensor, shard_index) in tensors.list.iter().zip(shard_indices) {
            let (tensors, bytes) = &mut shards[usize::from(*shard_index)];
            *tensors += 1;
            *bytes += tensor.len() as u64;
        }
        shards
    }

    /// Returns the `metadata` of the index, or `None` if it has none. The values are JSON texts, such as `8` or `"pt"`.
    pub fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref().map(|metadata| &metadata.0)
    }

    /// Returns the total size of the tensors in bytes, as declared by the index (`total_size`).
    pub fn total_size(&self) -> Option<u64> {
        self.declared("total_size")
    }

    /// Returns the number of parameters declared by the index (`total_parameters`).
    ///
    /// This number is not verified; in published files it has been wrong by orders of magnitude
    /// (`huggingface_hub` #4221).
    pub fn declared_total(&self) -> Option<u64> {
        self.declared("total_parameters")
    }

    fn declared(&self, key: &str) -> Option<u64> {
        whole_number(self.metadata()?.get(key)?)
    }
}

impl WeightMap {
    fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &RepoPath)> {
        let shards = self.shard_indices.iter().map(|index| &self.shards[usize::from(*index)]);
        self.tensors.list.iter().zip(shards)
    }
}

impl Serialize for IndexMetadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, text)| (key, raw(text))))
    }
}

impl Serialize for WeightMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl IndexError {
    /// Creates the error for an index that is not JSON with the expected structure.
    fn malformed_index(reason: &str) -> Self {
        Self::new(IndexErrorKind::InvalidJson, format!("the index is malformed: {reason}"))
    }

    /// Creates the error for an index whose offsets do not fit in 32 bits.
    fn index_too_long() -> Self {
        Self::malformed_index("it is longer than 4 GiB")
    }

    /// Creates the error for an index of more than `limit` shards.
    #[doc(hidden)]
    pub fn too_many_shards(limit: usize) -> Self {
        let message = format!("the index lists more than {limit} shards");
        Self::new(IndexErrorKind::TooManyShards, message)
    }
}

/// The parser of an index, with what it has found so far.
#[derive(Debug)]
struct IndexParser {
    state: ParserState,
    dtype: Option<String>,
    has_metadata: bool,
    metadata: Option<IndexMetadata>,
    has_weight_map: bool,
    /// The extension of the shards.
    extension: &'static str,
    /// The distinct shards, in order of first appearance, and their indices.
    shards: Vec<RepoPath>,
    shards_by_name: BTreeMap<Box<str>, u16>,
    /// The index of the last shard.
    last_shard: u16,
    names: NameList,
    /// For each tensor, the index of its shard in `shards`.
    shard_indices: Vec<u16>,
}

/// The next expected token.
#[derive(Clone, Copy, Debug)]
enum ParserState {
    /// The start of the index.
    Start,
    /// An entry of the index, or its end.
    Index { is_first: bool },
    /// An entry of the `weight_map`, or its end.
    WeightMap { is_first: bool },
    /// Whitespace only.
    End,
}

/// The maximum number of entries in `metadata`. huggingface.js has the same limit.
const MAX_METADATA: usize = 1_000;

/// The start of the line that git puts before conflicting lines.
const CONFLICT: &[u8] = b"<<<<<<< ";

impl IndexParser {
    fn new(extension: &'static str) -> Self {
        Self {
            state: ParserState::Start,
            dtype: None,
            has_metadata: false,
            metadata: None,
            has_weight_map: false,
            extension,
            shards: Vec::new(),
            shards_by_name: BTreeMap::new(),
            last_shard: 0,
            names: NameList::default(),
            shard_indices: Vec::new(),
        }
    }

    /// Parses an index.
    fn parse(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let (text, is_utf8) = match from_utf8(bytes) {
            Ok(text) => (text, true),
            // The rest of a character at the end is missing, like the rest of the index.
            Err(error) => (valid_start(bytes), error.error_len().is_none()),
        };
        let mut reader = JsonReader::new(text);
        match self.parse_entries(&mut reader) {
            JsonError::Rule(error) => return Err(*error),
            JsonError::Invalid(invalid) => return Err(unexpected(text, &invalid)),
            JsonError::Incomplete => {}
        }
        if !is_utf8 {
            return Err(invalid(text.len(), "invalid UTF-8"));
        }
        let is_complete = matches!(self.state, ParserState::End);
        if !is_complete || !bytes[reader.at..].trim_ascii_start().is_empty() {
            return Err(invalid(bytes.len(), "unexpected end"));
        }
        Ok(())
    }

    /// Parses all complete entries of a text, leaves the reader before the space after the last one, and returns the
    /// reason why it stops. Only space may follow the end of an index, so a valid index is incomplete at its end.
    fn parse_entries(&mut self, text: &mut JsonReader<'_>) -> JsonError {
        loop {
            let start = text.at;
            text.skip_space();
            let next = match self.state {
                ParserState::Start => start_of_index(text),
                ParserState::Index { is_first } => self.index_entry(text, is_first),
                ParserState::WeightMap { is_first } => self.weight_map_entry(text, is_first),
                ParserState::End if text.rest().is_empty() => Err(JsonError::Incomplete),
                ParserState::End => Err(text.invalid("expected nothing more")),
            };
            match next {
                Ok(state) => self.state = state,
                Err(stop) => {
                    text.at = start;
                    return stop;
                }
            }
        }
    }

    /// Parses one field of the index.
    fn index_entry(
        &mut self,
        text: &mut JsonReader<'_>,
        is_first: bool,
    ) -> Result<ParserState, JsonError> {
        if !text.next_item(is_first, b'}')? {
            return Ok(ParserState::End);
        }
        let key = text.key()?;
        match &*key {
            "dtype" if self.dtype.is_none() => {
                self.dtype = serde_json::from_str(text.value()?).ok();
            }
            "metadata" if !self.has_metadata => {
                let metadata = text.metadata("metadata", MAX_METADATA, scalar)?;
                (self.has_metadata, self.metadata) = (true, metadata.map(IndexMetadata));
            }
            "weight_map" if !self.has_weight_map => {
                text.expect(b'{', "expected a `weight_map` object")?;
                self.has_weight_map = true;
                return Ok(ParserState::WeightMap { is_first: true });
            }
            "dtype" | "metadata" | "weight_map" => {
                return Err(text.invalid(format!("`{key}` appears twice")));
            }
            _ => drop(text.value()?),
        }
        Ok(ParserState::Index { is_first: false })
    }

    /// Parses one entry of the `weight_map`.
    #[inline]
    fn weight_map_entry(
        &mut self,
        text: &mut JsonReader<'_>,
        is_first: bool,
    ) -> Result<ParserState, JsonError> {
        if !text.next_item(is_first, b'}')? {
            return Ok(ParserState::Index { is_first: false });
        }
        let tensor = text.key()?;
        let shard = text.string("expected a shard name, a string")?;
        // The next tensor is usually in the same shard.
        let last = self.shards.get(usize::from(self.last_shard));
        if last.is_none_or(|last| last.as_str() != shard) {
            self.select_shard(&tensor, &shard)?;
        }
        self.push(&tensor);
        Ok(ParserState::WeightMap { is_first: false })
    }

    /// Adds a tensor of the last shard.
    fn push(&mut self, tensor: &str) {
        self.names.push(tensor);
        self.shard_indices.push(self.last_shard);
    }

    /// Makes a shard the last one, and adds it if it is new. `tensor` is named in errors.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is unsafe or lacks the expected extension, or if there are too many shards.
    fn select_shard(&mut self, tensor: &str, shard: &str) -> Result<(), IndexError> {
        if let Some(index) = self.shards_by_name.get(shard) {
            self.last_shard = *index;
            return Ok(());
        }
        let invalid = |kind, reason: &str| {
            let message = format!("the index lists tensor `{}` in {reason}", clip(tensor));
            IndexError::new(kind, message).with_tensor(tensor)
        };
        let path: RepoPath = shard.parse().map_err(|error| {
            let reason = format!("a shard with an unsafe name: {error}");
            invalid(IndexErrorKind::UnsafeShardName, &reason)
        })?;
        let extension = self.extension;
        if !shard.ends_with(extension) {
            let reason = format!("`{}`, which is not a `{extension}` file", clip(shard));
            return Err(invalid(IndexErrorKind::UnexpectedExtension, &reason));
        }
        let limit = SafetensorsIndexJson::MAX_SHARDS;
        let index = u16::try_from(self.shards.len()).ok().filter(|at| usize::from(*at) < limit);
        self.last_shard = index.ok_or_else(|| IndexError::too_many_shards(limit))?;
        self.shards.push(path);
        self.shards_by_name.insert(shard.into(), self.last_shard);
        Ok(())
    }

    /// Returns the index, with sorted shards. An index is sorted by tensor name, so its shards are in no useful order.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no tensors or a tensor is listed twice.
    fn into_index(mut self) -> Result<SafetensorsIndexJson, IndexError> {
        if !self.has_weight_map {
            let message = "the index has no `weight_map`";
            return Err(IndexError::new(IndexErrorKind::NoWeightMap, message));
        }
        let mut shards = self.shards;
        if shards.is_empty() {
            let message = "the `weight_map` of the index is empty";
            return Err(IndexError::new(IndexErrorKind::EmptyWeightMap, message));
        }
        let tensors = self.names.into_names("index")?;
        let mut ranks = vec![0; shards.len()];
        let sorted = self.shards_by_name.values();
        (0..).zip(sorted).for_each(|(rank, index)| ranks[usize::from(*index)] = rank);
        self.shard_indices.iter_mut().for_each(|index| *index = ranks[usize::from(*index)]);
        sort_by(&mut shards, Ord::cmp);
        let weight_map = WeightMap { shards, tensors, shard_indices: self.shard_indices };
        Ok(SafetensorsIndexJson { dtype: self.dtype, metadata: self.metadata, weight_map })
    }
}

/// Returns the part of a text before its first byte that is not UTF-8.
fn valid_start(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Returns the error for malformed JSON at an offset.
fn invalid(at: usize, reason: &str) -> IndexError {
    IndexError::malformed_index(&format!("{reason} at byte {at}"))
}

/// Returns the error for an unexpected text: a merge conflict, or invalid JSON.
fn unexpected(text: &str, found: &InvalidJson) -> IndexError {
    let at = found.at;
    if text.as_bytes().get(at..).is_some_and(|rest| rest.starts_with(CONFLICT)) {
        let message = format!("the index contains an unresolved merge conflict at byte {at}");
        return IndexError::new(IndexErrorKind::MergeConflict, message);
    }
    invalid(at, &clip(&found.message))
}

/// Parses the `{` at the start of an index, or recognizes another format.
fn start_of_index(text: &mut JsonReader<'_>) -> Result<ParserState, JsonError> {
    if text.peek()? == b'{' {
        text.at += 1;
        return Ok(ParserState::Index { is_first: true });
    }
    let rest = text.rest().trim_ascii_start();
    match DetectedFormat::recognize(rest) {
        Some(detected) => Err(IndexError::wrong_format(detected).into()),
        None if DetectedFormat::is_possible(rest) => Err(JsonError::Incomplete),
        None => Err(text.invalid("expected an index object with a `weight_map`")),
    }
}

/// Reads the JSON text of a value. Returns `None` for an object or an array, because no known writer produces them.
fn scalar(text: &mut JsonReader<'_>) -> Result<Option<String>, JsonError> {
    let json = text.value()?;
    Ok(Some(json).filter(|json| !json.starts_with(['{', '['])).map(str::to_owned))
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
