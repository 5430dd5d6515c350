//! One pass over the JSON of a header, tensor by tensor, keeping no more of it than it is asked to.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};

use super::metadata::{METADATA, Metadata};
use super::plain::Taker;
use super::spans::{Gap, Spans};
use crate::formats::names::{NameList, Names};
use crate::formats::safetensors::HeaderError;
use crate::formats::tensor::Entry;
use crate::formats::text::Text;
use crate::formats::{TensorInfo, clip};

/// What a header holds beside its tensors.
#[derive(Debug, PartialEq)]
pub(crate) struct Scanned {
    pub(super) metadata: Option<BTreeMap<String, String>>,
    pub(super) names: Names,
    pub(super) data_length: u64,
}

/// Takes the tensors of a header, in the order of the file.
pub(crate) trait Sink {
    /// # Errors
    ///
    /// What makes the header one that cannot be used.
    fn take(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError>;
}

/// What a parser has read of a header so far.
pub(super) struct Scan<S> {
    sink: S,
    metadata: Option<BTreeMap<String, String>>,
    names: NameList,
    spans: Spans,
    /// Where the entry that is being read goes.
    entry: TensorInfo,
    /// Whether an error of the JSON parser is about the last name.
    is_in_entry: bool,
    /// What is wrong with the first tensor that is. It is told only if the text is all right: what is
    /// not JSON has no tensors, and a name that occurs twice explains most other flaws.
    flaw: Option<HeaderError>,
}

impl<S: Sink> Scan<S> {
    pub(super) fn new(sink: S) -> Self {
        Self {
            sink,
            metadata: None,
            names: NameList::default(),
            spans: Spans::default(),
            entry: TensorInfo::EMPTY,
            is_in_entry: false,
            flaw: None,
        }
    }

    /// Takes the entry, which is that of the last name.
    fn take_entry(&mut self) {
        self.spans.push(self.entry.data_offsets);
        if self.flaw.is_none() {
            let name = self.names.last().unwrap_or_default();
            let checked = self.entry.check(name);
            self.flaw = checked.and_then(|()| self.sink.take(name, &self.entry)).err();
        }
    }

    pub(super) fn finish(self) -> Result<(Scanned, S), HeaderError> {
        let names = self.names.into_names();
        let names = names.map_err(|tensor| HeaderError::DuplicateTensor { tensor })?;
        if let Some(flaw) = self.flaw {
            return Err(flaw);
        }
        let name = |at| clip(names.get(at));
        let data_length = self.spans.length().map_err(|gap| match gap {
            Gap::Hole { at, begin, expected } => {
                HeaderError::Hole { tensor: name(at), begin, expected }
            }
            Gap::Overlap { at, begin, expected } => {
                HeaderError::Overlap { tensor: name(at), begin, expected }
            }
        })?;
        Ok((Scanned { metadata: self.metadata, names, data_length }, self.sink))
    }

    /// Takes a key; whether it is the name of a tensor.
    fn key(&mut self, key: &str) -> bool {
        let is_tensor = key != METADATA;
        if is_tensor {
            self.names.push(key);
        }
        is_tensor
    }

    pub(super) fn describe(self, error: &serde_json::Error) -> HeaderError {
        let message = clip(&error.to_string());
        match self.names.last().filter(|_| self.is_in_entry) {
            Some(tensor) => HeaderError::Entry { tensor: clip(tensor), message },
            None => HeaderError::Json { message },
        }
    }
}

impl<S: Sink> Taker<'_> for Scan<S> {
    fn name(&mut self, name: &str) {
        self.names.push(name);
    }

    fn entry(&mut self) -> &mut TensorInfo {
        &mut self.entry
    }

    fn take(&mut self) -> Option<()> {
        self.take_entry();
        Some(())
    }

    fn metadata(&mut self, Metadata(metadata): Metadata) {
        self.metadata = metadata;
    }
}

impl<'de, S: Sink> Visitor<'de> for &mut Scan<S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header, an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut metadata = None;
        while let Some(is_tensor) = map.next_key_seed(Text(|key: &str| self.key(key)))? {
            if is_tensor {
                self.is_in_entry = true;
                map.next_value_seed(Entry(&mut self.entry))?;
                self.take_entry();
                self.is_in_entry = false;
            } else if metadata.replace(map.next_value::<Metadata>()?.0).is_some() {
                return Err(A::Error::duplicate_field(METADATA));
            }
        }
        self.metadata = metadata.flatten();
        Ok(())
    }
}
