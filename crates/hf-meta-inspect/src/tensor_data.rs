//! Reads the data of tensors, in ranges of their files.

use std::ops::Range;

use hf_meta_format::CommitSha;
use hf_meta_format::read_plan::PlannedFile;

use super::call::Call;
use super::error::Error;
use super::pinned::Pinned;

impl Call {
    /// Reads exactly a range of a file, at the commit that its header was read at. `passed_on` returns the number of bytes
    /// that the files have passed on while they arrived, and which the result therefore lacks.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if its commit or its size is not the one of the plan.
    pub async fn read_data(
        &self,
        file: &PlannedFile,
        range: Range<u64>,
        commit: Option<CommitSha>,
        passed_on: impl Fn() -> u64,
    ) -> Result<Vec<u8>, Error> {
        let files = Pinned::new(&self.files, commit);
        let length = range.end.saturating_sub(range.start);
        let part = files.read(&file.path, range).await?;
        let mut bytes = part.bytes;
        // A range that starts at byte 0 may be longer.
        bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        let found = (bytes.len() as u64).saturating_add(passed_on());
        let name = || files.files.file_name(&file.path);
        let message = match part.file_size {
            Some(size) if size != file.size => {
                format!("expected `{}` to have {} bytes, got {size}", name(), file.size)
            }
            _ if found != length => {
                format!("expected {length} bytes of `{}`, got {found}", name())
            }
            _ => return Ok(bytes),
        };
        Err(Error::Changed { message })
    }
}
