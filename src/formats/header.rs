//! The header of one file, in any format.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{HeaderError, ModelDescription, TensorTable, clip};

/// The checked header of one file of weights, in any format.
///
/// Every rule that the bytes of the header can show was checked. The size of the file is checked by
/// [`check_file_size`](Self::check_file_size).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHeader {
    tensors: TensorTable,
    metadata: Option<BTreeMap<String, String>>,
    header_range: Range<u64>,
    file_size: u64,
    begins_with_space: bool,
    model: Option<Box<ModelDescription>>,
    is_self_describing: bool,
}

impl FileHeader {
    /// Creates the header of a file that ends with the tensors' data, which begins at the end of `header_range`.
    #[must_use]
    pub fn new(tensors: TensorTable, header_range: Range<u64>) -> Self {
        Self {
            file_size: header_range.end.saturating_add(tensors.data_length()),
            tensors,
            metadata: None,
            header_range,
            begins_with_space: false,
            model: None,
            is_self_describing: false,
        }
    }

    /// Sets the metadata of the file.
    #[must_use]
    pub fn with_metadata(self, metadata: Option<BTreeMap<String, String>>) -> Self {
        Self { metadata, ..self }
    }

    /// Sets the size of the file in bytes, if its data is not at its end.
    #[must_use]
    pub fn with_file_size(self, file_size: u64) -> Self {
        Self { file_size, ..self }
    }

    /// Sets the description of the model.
    #[must_use]
    pub fn with_model(self, model: Option<ModelDescription>) -> Self {
        Self { model: model.map(Box::new), ..self }
    }

    /// Sets that the shapes are those of the model's weights, however they are packed. Each element is then one
    /// parameter, and `config.json` is not needed.
    #[must_use]
    pub fn self_describing(self) -> Self {
        Self { is_self_describing: true, ..self }
    }

    /// Returns whether each element is one parameter, and `config.json` is not needed.
    #[must_use]
    pub fn is_self_describing(&self) -> bool {
        self.is_self_describing
    }

    /// Returns the description of the model; `None` if the header has none.
    #[must_use]
    pub fn model(&self) -> Option<&ModelDescription> {
        self.model.as_deref()
    }

    /// Sets whether white space precedes the content of the header.
    pub(super) fn begins_with_space(self, begins_with_space: bool) -> Self {
        Self { begins_with_space, ..self }
    }

    /// Returns whether white space precedes the content of the header. Some readers refuse it.
    #[cfg(feature = "_http")]
    pub(crate) fn has_leading_space(&self) -> bool {
        self.begins_with_space
    }

    /// Returns the tensors of the file.
    #[must_use]
    pub fn tensors(&self) -> &TensorTable {
        &self.tensors
    }

    /// Returns the metadata of the file; `None` if it has none.
    #[must_use]
    pub fn metadata(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()
    }

    /// Returns the byte range of the header in its file.
    #[must_use]
    pub fn header_range(&self) -> Range<u64> {
        self.header_range.clone()
    }

    /// Returns the length of the tensors' data, in bytes.
    #[must_use]
    pub fn data_length(&self) -> u64 {
        self.tensors.data_length()
    }

    /// Returns the size in bytes of a file with this header.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// Checks the size of the file, in bytes.
    ///
    /// # Errors
    ///
    /// Returns [`HeaderError::FileSize`] if the file is shorter or longer than the header says.
    pub fn check_file_size(&self, file_size: u64) -> Result<(), HeaderError> {
        let expected = self.file_size();
        if expected == file_size {
            return Ok(());
        }
        Err(HeaderError::FileSize { tensor: self.last_tensor(), expected, found: file_size })
    }

    /// Returns the name of the tensor whose data is last in the file.
    fn last_tensor(&self) -> Option<String> {
        let (name, _) = self.tensors.iter().max_by_key(|(_, tensor)| tensor.data_offsets)?;
        Some(clip(name))
    }

    /// Returns the number of parameters that the metadata declares (`total_parameters`).
    ///
    /// This is a claim of the file, not a count; published files have been wrong by orders of magnitude
    /// (`huggingface_hub` #4221).
    #[must_use]
    pub fn declared_total(&self) -> Option<u64> {
        self.metadata.as_ref()?.get("total_parameters")?.parse().ok()
    }
}

impl AsRef<Self> for FileHeader {
    fn as_ref(&self) -> &Self {
        self
    }
}
