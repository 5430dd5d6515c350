//! A header of which only counts are asked for: nothing of its tensors is kept, but a hash of each name
//! while it is read.

use std::collections::BTreeMap;

use super::SafetensorsFileHeader;
use super::metadata::Metadata;
use super::plain::{self, Taker};
use super::read::{scan, text};
use super::scan::{Scanned, Sink};
use crate::formats::TensorInfo;
use crate::formats::safetensors::digest::{Hashes, NamesDigest};
use crate::formats::safetensors::{HeaderError, PREFIX_LENGTH};

/// What a header says beside its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    metadata: Option<BTreeMap<String, String>>,
    /// The length of the header in bytes.
    length: u64,
    /// The length of the data in bytes.
    data_length: u64,
}

impl Frame {
    fn file_size(&self) -> u64 {
        PREFIX_LENGTH.saturating_add(self.length).saturating_add(self.data_length)
    }

    fn declared_total(&self) -> Option<u64> {
        self.metadata.as_ref()?.get("total_parameters")?.parse().ok()
    }
}

/// What a header says beside its tensors.
#[derive(Debug, PartialEq)]
pub(crate) struct HeaderOutline {
    frame: Frame,
    names: NamesDigest,
}

impl HeaderOutline {
    /// Hands the tensors of a header to a sink, and checks every rule.
    ///
    /// # Errors
    ///
    /// The first broken rule, with the tensor that breaks it.
    pub(crate) fn scan<S: Sink>(
        json: &[u8],
        sink: impl Fn() -> S,
    ) -> Result<(Self, S), HeaderError> {
        if let Some(counted) = Self::count(text(json)?, sink()) {
            return Ok(counted);
        }
        let (Scanned { metadata, names, data_length }, sink) = scan(json, sink)?;
        let frame = Frame { metadata, length: json.len() as u64, data_length };
        Ok((Self { frame, names: names.iter().collect() }, sink))
    }

    /// As [`scan`](Self::scan), of a header as writers make it; `None` for any other, whether it breaks
    /// a rule or is only uncommon.
    fn count<S: Sink>(json: &str, sink: S) -> Option<(Self, S)> {
        let mut count = Count {
            sink,
            metadata: None,
            names: NamesDigest::default(),
            hashes: Hashes::default(),
            end: 0,
            name: "",
            entry: TensorInfo::EMPTY,
        };
        plain::read(json, &mut count)?;
        let Count { sink, metadata, names, hashes, end, .. } = count;
        let frame = Frame { metadata, length: json.len() as u64, data_length: end };
        hashes.are_distinct().then_some((Self { frame, names }, sink))
    }

    /// The names of the tensors.
    pub(crate) fn names(&self) -> NamesDigest {
        self.names
    }

    pub(crate) fn file_size(&self) -> u64 {
        self.frame.file_size()
    }

    pub(crate) fn data_length(&self) -> u64 {
        self.frame.data_length
    }

    pub(crate) fn declared_total(&self) -> Option<u64> {
        self.frame.declared_total()
    }

    /// Checks that the data ends where the file does. Which tensor is the last, where it does not, is
    /// only told by the JSON.
    pub(crate) fn check_file_size(&self, json: &[u8], file_size: u64) -> Result<(), HeaderError> {
        if self.file_size() == file_size {
            return Ok(());
        }
        SafetensorsFileHeader::from_json(json)?.check_file_size(file_size)
    }
}

/// What the tensors so far amount to, each of which is right and begins where the one before it ends.
struct Count<'a, S> {
    sink: S,
    metadata: Option<BTreeMap<String, String>>,
    names: NamesDigest,
    hashes: Hashes,
    end: u64,
    name: &'a str,
    entry: TensorInfo,
}

impl<'a, S: Sink> Taker<'a> for Count<'a, S> {
    fn name(&mut self, name: &'a str) {
        let hash = self.hashes.add(name);
        self.names.add_hashed(name, hash);
        self.name = name;
    }

    fn entry(&mut self) -> &mut TensorInfo {
        &mut self.entry
    }

    fn take(&mut self) -> Option<()> {
        let (begin, end) = self.entry.data_offsets;
        let is_next = begin == self.end;
        self.end = end;
        self.entry.check(self.name).ok()?;
        self.sink.take(self.name, &self.entry).ok()?;
        is_next.then_some(())
    }

    fn metadata(&mut self, Metadata(metadata): Metadata) {
        self.metadata = metadata;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::ParameterCount;

    fn count(json: &str) -> Option<(HeaderOutline, ParameterCount)> {
        HeaderOutline::count(json, ParameterCount::default())
    }

    #[test]
    fn what_writers_make_is_counted_without_names() {
        let json = r#"{"__metadata__":{"total_parameters":"7"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"v":{"dtype":"U8","shape":[1],"data_offsets":[24,25]}}"#;
        let (outline, counted) = count(json).unwrap();
        let header = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        assert_eq!(counted, header.parameter_count());
        assert_eq!(outline.names(), ["v", "w"].into_iter().collect());
        assert_eq!(outline.file_size(), header.file_size());
        assert_eq!((outline.data_length(), outline.declared_total()), (25, Some(7)));
    }

    #[test]
    fn what_is_uncommon_or_wrong_is_left_to_others() {
        let entry =
            |begin, end| format!(r#"{{"dtype":"U8","shape":[1],"data_offsets":[{begin},{end}]}}"#);
        let (first, second) = (entry(0, 1), entry(1, 2));
        let cases = [
            (format!(r#"{{"v":{second},"w":{first}}}"#), true),
            (format!(r#"{{"\u0077":{first}}}"#), true),
            (format!(r#"{{"w":{first},"w":{second}}}"#), false),
            (format!(r#"{{"w":{second}}}"#), false),
            (format!(r#"{{"w":{first},"v":{first}}}"#), false),
            (format!(r#"{{"w":{}}}"#, entry(0, 2)), false),
        ];
        for (json, is_right) in cases {
            assert_eq!(count(&json), None, "{json}");
            let header = SafetensorsFileHeader::from_json(json.as_bytes());
            let scanned = HeaderOutline::scan(json.as_bytes(), ParameterCount::default);
            assert_eq!(header.is_ok(), is_right, "{json}");
            match (header, scanned) {
                (Ok(header), Ok((_, count))) => assert_eq!(count, header.parameter_count()),
                (header, scanned) => assert_eq!(header.err(), scanned.err(), "{json}"),
            }
        }
    }
}
