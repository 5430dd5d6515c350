//! A header without its tensors.

use super::SafetensorsFileHeader;
use crate::formats::safetensors::digest::NamesDigest;
use crate::formats::{HeaderError, TensorInfo};

/// Takes the tensors of a header, in the order of the file.
pub(crate) trait Sink {
    /// # Errors
    ///
    /// Returns an error if the header cannot be used.
    fn take(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError>;
}

/// A header without its tensors.
#[derive(Debug, PartialEq)]
pub(crate) struct HeaderOutline {
    names: NamesDigest,
    file_size: u64,
    data_length: u64,
    declared_total: Option<u64>,
}

impl HeaderOutline {
    /// Passes the tensors of a header to a sink.
    pub(crate) fn scan<S: Sink>(
        json: &[u8],
        sink: impl Fn() -> S,
    ) -> Result<(Self, S), HeaderError> {
        let header = SafetensorsFileHeader::from_json(json)?;
        let mut sink = sink();
        header.tensors().try_for_each(|name, tensor| sink.take(name, tensor))?;
        let outline = Self {
            names: header.tensors().names().collect(),
            file_size: header.file_size(),
            data_length: header.data_length(),
            declared_total: header.declared_total(),
        };
        Ok((outline, sink))
    }

    pub(crate) fn names(&self) -> NamesDigest {
        self.names
    }

    pub(crate) fn data_length(&self) -> u64 {
        self.data_length
    }

    pub(crate) fn declared_total(&self) -> Option<u64> {
        self.declared_total
    }

    pub(crate) fn file_size(&self) -> u64 {
        self.file_size
    }

    pub(crate) fn check_file_size(&self, json: &[u8], file_size: u64) -> Result<(), HeaderError> {
        if self.file_size == file_size {
            return Ok(());
        }
        SafetensorsFileHeader::from_json(json)?.check_file_size(file_size)
    }
}
