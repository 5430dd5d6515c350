//! One pass over the JSON of a header, tensor by tensor, keeping no more of it than it is asked to.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use super::plain;
use super::spans::{Gap, Spans};
use crate::safetensors::names::{LONGEST, NameList, Names};
use crate::safetensors::tensor::Entry;
use crate::safetensors::text::Text;
use crate::safetensors::{HeaderError, TensorInfo, clip};

/// The key that holds the file's own metadata among the tensors.
pub(super) const METADATA: &str = "__metadata__";

/// The most entries of `__metadata__` that are kept; a map of a hundred megabytes of short ones would
/// be gigabytes.
const MAX_METADATA: usize = 100_000;

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

/// Hands every tensor to a sink, and checks every rule.
pub(super) fn scan<S: Sink>(
    json: &[u8],
    sink: impl Fn() -> S,
) -> Result<(Scanned, S), HeaderError> {
    let json = text(json)?;
    plain(json, sink()).unwrap_or_else(|| general(json, sink()))
}

fn plain<S: Sink>(json: &str, sink: S) -> Option<Result<(Scanned, S), HeaderError>> {
    let mut scan = Scan::new(sink);
    plain::read(json, &mut scan)?;
    Some(scan.finish())
}

fn general<S: Sink>(json: &str, sink: S) -> Result<(Scanned, S), HeaderError> {
    let mut scan = Scan::new(sink);
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = (&mut deserializer).deserialize_map(&mut scan);
    match read.and_then(|()| deserializer.end()) {
        Ok(()) => scan.finish(),
        Err(error) => Err(scan.describe(&error)),
    }
}

/// The header as text, with the flaws that a JSON parser would only call unexpected bytes.
fn text(json: &[u8]) -> Result<&str, HeaderError> {
    match json.first() {
        None => return Err(HeaderError::Empty),
        Some(b'{') => {}
        Some(&first) => return Err(HeaderError::NotAnObject { first }),
    }
    if json.len() > LONGEST {
        return Err(HeaderError::OverLimit { length: json.len() as u64, limit: LONGEST as u64 });
    }
    let padding = json.iter().rev().take_while(|&&byte| byte == 0).count();
    if padding > 0 {
        return Err(HeaderError::NulPadding { at: json.len() - padding });
    }
    std::str::from_utf8(json).map_err(|error| HeaderError::NotUtf8 { at: error.valid_up_to() })
}

/// What a parser has read of a header so far.
pub(super) struct Scan<S> {
    sink: S,
    pub(super) metadata: Option<BTreeMap<String, String>>,
    names: NameList,
    spans: Spans,
    /// Where the entry that is being read goes.
    pub(super) entry: TensorInfo,
    /// Whether an error of the JSON parser is about the last name.
    is_in_entry: bool,
    /// What is wrong with the first tensor that is. It is told only if the text is all right: what is
    /// not JSON has no tensors, and a name that occurs twice explains most other flaws.
    flaw: Option<HeaderError>,
}

impl<S: Sink> Scan<S> {
    fn new(sink: S) -> Self {
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

    /// Takes the name of the next tensor.
    pub(super) fn name(&mut self, name: &str) {
        self.names.push(name);
    }

    /// Takes the entry, which is that of the last name.
    pub(super) fn take(&mut self) {
        self.spans.push(self.entry.data_offsets);
        if self.flaw.is_none() {
            let name = self.names.last().unwrap_or_default();
            let checked = self.entry.check(name);
            self.flaw = checked.and_then(|()| self.sink.take(name, &self.entry)).err();
        }
    }

    fn finish(self) -> Result<(Scanned, S), HeaderError> {
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
            self.name(key);
        }
        is_tensor
    }

    fn describe(self, error: &serde_json::Error) -> HeaderError {
        let message = clip(&error.to_string());
        match self.names.last().filter(|_| self.is_in_entry) {
            Some(tensor) => HeaderError::Entry { tensor: clip(tensor), message },
            None => HeaderError::Json { message },
        }
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
                self.take();
                self.is_in_entry = false;
            } else if metadata.replace(map.next_value::<Metadata>()?.0).is_some() {
                return Err(A::Error::duplicate_field(METADATA));
            }
        }
        self.metadata = metadata.flatten();
        Ok(())
    }
}

/// `__metadata__`: strings by distinct keys, or `null`, which a published model has (vllm #50827).
pub(super) struct Metadata(pub(super) Option<BTreeMap<String, String>>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MetadataVisitor).map(Self)
    }
}

struct MetadataVisitor;

impl<'de> Visitor<'de> for MetadataVisitor {
    type Value = Option<BTreeMap<String, String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`__metadata__`, an object of strings")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if metadata.insert(key, value).is_some() {
                return Err(A::Error::custom("a key of `__metadata__` occurs twice"));
            }
            if metadata.len() > MAX_METADATA {
                return Err(A::Error::custom("`__metadata__` has more than 100,000 entries"));
            }
        }
        Ok(Some(metadata))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All that a sink is told.
    #[derive(Debug, Default, PartialEq)]
    struct Told(Vec<String>);

    impl Sink for Told {
        fn take(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError> {
            self.0.push(format!("{name} {tensor:?}"));
            Ok(())
        }
    }

    /// Headers as writers make them, pieces of them in any order, and bytes that do damage.
    fn header() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "\"",
            "\\",
            "\"\\u0041\"",
            "0",
            "00",
            "1",
            "12",
            "-1",
            "1.0",
            "1e2",
            "18446744073709551615",
            "18446744073709551616",
            "null",
            "\"dtype\"",
            "\"U8\"",
            "\"shape\"",
            "\"data_offsets\"",
            "\"more\"",
            "\"ß\"",
            "\"__metadata__\"",
            "{}",
            "[]",
            "{\"format\":\"pt\"}",
        ]);
        let entry = (0_u64..4, 0_u64..4, any::<bool>()).prop_map(|(begin, length, is_spaced)| {
            let end = begin + length;
            let entry = format!(
                r#""t{begin}":{{"dtype":"U8","shape":[{length}],"data_offsets":[{begin},{end}]}}"#
            );
            if is_spaced { entry.replace(':', ": ").replace(',', ", ") } else { entry }
        });
        let metadata = Just(r#""__metadata__":{"format":"pt","n":"\""}"#.to_owned());
        let entries = prop::collection::vec(prop_oneof![4 => entry, 1 => metadata], 0..5);
        (entries, prop::option::of((any::<prop::sample::Index>(), piece, any::<bool>()))).prop_map(
            |(entries, damage)| {
                let mut json = format!("{{{}}}", entries.join(","));
                if let Some((at, piece, is_inserted)) = damage {
                    let at = at.index(json.len());
                    let end = if is_inserted { at } else { at + 1 };
                    json.replace_range(at..end, piece);
                }
                json
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn the_fast_parser_reads_what_the_general_one_does(json in header()) {
            if let Some(fast) = plain(&json, Told::default()) {
                prop_assert_eq!(fast, general(&json, Told::default()));
            }
        }
    }

    #[test]
    fn what_writers_make_is_read_fast() {
        let cases = [
            "{}",
            "{}      ",
            r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#,
            r#"{"__metadata__":{"a":"\n\u00df"},"ß":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#,
            r#"{"w": {"shape": [2, 3], "data_offsets": [0, 24], "dtype": "F32"}, "__metadata__": null}"#,
        ];
        for json in cases {
            let fast = plain(json, Told::default()).unwrap();
            assert_eq!(fast, general(json, Told::default()), "{json}");
            assert!(fast.is_ok(), "{json}");
        }
    }
}
