//! Reads one header, in the ranges that its format requests.

use std::mem::take;
use std::ops::Range;

use super::call::Call;
use crate::base::RangeBytes;
use crate::base::budget::MemoryPermit;
use crate::count::needs_config;
use crate::error::Error;
use crate::formats::{FileHeader, HeaderError, HeaderErrorKind, RepoPath, Step};

impl Call {
    /// Reads and checks the header of a file, starting with the range `first`.
    pub(super) async fn read_header(
        &self,
        path: RepoPath,
        first: Range<u64>,
    ) -> Result<UncountedHeader, Error> {
        let permit = self.context.budget.hold(first.end).await;
        let start = self.read_at_commit(&path, first).await?;
        self.parse_start(&path, start, permit).await
    }

    /// Parses and checks the header of a file, given its first bytes. Reads the missing bytes, and reads the
    /// configuration if a tensor needs it.
    pub(super) async fn parse_start(
        &self,
        path: &RepoPath,
        first: RangeBytes,
        mut permit: MemoryPermit,
    ) -> Result<UncountedHeader, Error> {
        let RangeBytes { mut bytes, file_size } = first;
        let mut parser = self.format(path).parser(path, self.context.limits.header);
        // First pass the parser only its prefix, so that the header's memory is reserved before the header is parsed.
        let prefix = parser.first_range().end;
        let mut prefetched =
            bytes.split_off(bytes.len().min(usize::try_from(prefix).unwrap_or(usize::MAX)));
        let (mut start, mut reserved) = (0_u64, 0..0);
        let mut held = (bytes.len() + prefetched.len()) as u64;
        let mut requested = Vec::new();
        loop {
            let length = bytes.len();
            let advance = move || {
                let step = parser.advance(start, bytes, Some(file_size))?;
                let needs_config = matches!(&step, Step::Done(header) if needs_config(header));
                Ok((step, parser, needs_config))
            };
            let advanced = self.state.work.run(length, advance).await;
            let (step, continued, needs_config) =
                advanced.map_err(|source| self.header_error(path, source))?;
            let missing = match step {
                Step::Read(missing) => missing,
                Step::Done(header) => {
                    // It may contain the bytes of the header.
                    drop(continued);
                    let checked = header.check_file_size(file_size);
                    checked.map_err(|source| self.header_error(path, source))?;
                    self.files.header_read(path, &header).await;
                    if needs_config {
                        // The result is used when all headers are complete.
                        let _ = self.config().await;
                    }
                    permit.shrink_to(header.tensors().memory());
                    return Ok(UncountedHeader { header, permit });
                }
            };
            parser = continued;
            let is_continued = reserved.contains(&missing.start);
            let from = if is_continued { reserved.end } else { missing.start };
            self.reserve(path, missing.end.saturating_sub(from)).await?;
            reserved = missing.start..missing.end.max(from);
            (start, bytes) = (prefix, take(&mut prefetched));
            if bytes.is_empty() {
                // The parser of a custom format could request the same bytes, or the end of the file, forever.
                let range = missing.start.min(file_size)..missing.end.min(file_size);
                if missing.is_empty() || requested.contains(&range) {
                    return Err(self.header_error(path, no_progress(&missing)));
                }
                requested.push(range);
                // Holding one permit while waiting for another could deadlock.
                drop(take(&mut permit));
                held = held.saturating_add(missing.end.saturating_sub(missing.start));
                permit = self.context.budget.hold(held).await;
                start = missing.start;
                bytes = self.read_rest(path, missing, file_size).await?;
            }
        }
    }

    /// Reads another range of a file whose size is known.
    async fn read_rest(
        &self,
        path: &RepoPath,
        range: Range<u64>,
        file_size: u64,
    ) -> Result<Vec<u8>, Error> {
        let more = self.read_at_commit(path, range).await?;
        if more.file_size != file_size {
            let (file, after) = (self.files.file_name(path), more.file_size);
            let sizes = format!("its size was {file_size} bytes, then {after} bytes");
            let message = format!("`{file}` changed while being read: {sizes}");
            return Err(Error::Changed { message });
        }
        Ok(more.bytes)
    }

    /// Reads a range of a file at the pinned commit.
    async fn read_at_commit(
        &self,
        path: &RepoPath,
        range: Range<u64>,
    ) -> Result<RangeBytes, Error> {
        self.check_commit(path, self.files.read_range(path, range).await?)
    }
}

/// Returns the error for a parser that requests a range again.
fn no_progress(range: &Range<u64>) -> HeaderError {
    let Range { start, end } = range;
    let message = format!("the parser requested no new bytes: {start} to {end}");
    HeaderError::new(HeaderErrorKind::Other, message)
}

/// A header that is not yet counted.
pub(super) struct UncountedHeader {
    pub(super) header: FileHeader,
    /// The permit for the memory of the parsed header, held until the header is counted.
    pub(super) permit: MemoryPermit,
}
