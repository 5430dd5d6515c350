//! Reads one header, in the ranges that its format requests.

use std::mem::take;
use std::ops::Range;
use std::sync::atomic::Ordering;

use hf_meta_count::count::needs_config;
use hf_meta_format::formats::{
    FileHeader, HeaderError, HeaderErrorKind, HeaderParser, RepoPath, Step,
};

use super::error::Error;
use super::files::{HeldRam, Part};
use super::set::SetReader;

/// A header that is not yet counted.
pub(crate) struct UncountedHeader {
    pub(crate) header: FileHeader,
    /// True if the configuration could change the count of the header. Asked only of headers that wait for their index:
    /// the counter knows it of the others.
    pub(crate) needs_config: bool,
    /// The permit for the memory of the parsed header, held until the header is counted.
    pub(crate) permit: HeldRam,
}

/// A step of a parser, and the parser for the next one.
struct Advanced {
    step: Step,
    parser: Box<dyn HeaderParser>,
    /// True if the header is complete, and the configuration could change its count.
    needs_config: bool,
}

impl SetReader {
    /// Reads and checks the header of a file, starting with the range `first`. `is_early` is true if it cannot be counted
    /// soon.
    pub(crate) async fn read_header(
        &self,
        path: RepoPath,
        first: Range<u64>,
        is_early: bool,
    ) -> Result<UncountedHeader, Error> {
        let permit = self.files.files.hold(first.end).await;
        let start = self.files.read(&path, first).await?;
        self.parse_start(&path, start, permit, is_early).await
    }

    /// Parses and checks the header of a file, given its first bytes. Reads the missing bytes.
    pub(crate) async fn parse_start(
        &self,
        path: &RepoPath,
        first: Part,
        mut permit: HeldRam,
        is_early: bool,
    ) -> Result<UncountedHeader, Error> {
        let Part { mut bytes, file_size, .. } = first;
        let limit = self.call.settings.limits.header;
        let mut parser = self.call.settings.format(path).parser(path, limit);
        // First pass the parser only its prefix, so that the header's memory is reserved before the header is parsed.
        let prefix = parser.first_range().end;
        let mut prefetched =
            bytes.split_off(bytes.len().min(usize::try_from(prefix).unwrap_or(usize::MAX)));
        let mut start = 0_u64;
        let mut reserved = 0..0;
        let mut held = (bytes.len() + prefetched.len()) as u64;
        let mut requested = Vec::new();
        loop {
            let advanced = self.advance(path, parser, start, bytes, file_size, is_early).await?;
            let missing = match advanced.step {
                Step::Read(missing) => missing,
                Step::Done(header) => {
                    // It may contain the bytes of the header.
                    drop(advanced.parser);
                    let needs_config = advanced.needs_config;
                    let header = UncountedHeader { header, needs_config, permit };
                    return self.accept(path, header, file_size).await;
                }
            };
            parser = advanced.parser;
            // A range that continues the previous one may begin inside it.
            let is_continued = reserved.contains(&missing.start);
            let from = if is_continued { reserved.end } else { missing.start };
            self.reserve(path, missing.end.saturating_sub(from)).await?;
            reserved = missing.start..missing.end.max(from);
            (start, bytes) = (prefix, take(&mut prefetched));
            if bytes.is_empty() {
                check_progress(&mut requested, &missing, file_size)
                    .map_err(|source| self.call.header_error(path, source))?;
                // Holding one permit while waiting for another could deadlock.
                drop(take(&mut permit));
                held = held.saturating_add(missing.end.saturating_sub(missing.start));
                permit = self.files.files.hold(held).await;
                start = missing.start;
                bytes = self.read_rest(path, missing, file_size).await?;
            }
        }
    }

    /// Passes the bytes at an offset to the parser, away from the async threads, because a header may have 100 MB.
    async fn advance(
        &self,
        path: &RepoPath,
        mut parser: Box<dyn HeaderParser>,
        start: u64,
        bytes: Vec<u8>,
        file_size: Option<u64>,
        is_early: bool,
    ) -> Result<Advanced, Error> {
        let length = bytes.len();
        let advance = move || {
            let step = parser.advance(start, bytes, file_size)?;
            let needs_config =
                matches!(&step, Step::Done(header) if is_early && needs_config(header));
            Ok(Advanced { step, parser, needs_config })
        };
        let advanced = self.files.files.run(length, advance).await;
        advanced.map_err(|source| self.call.header_error(path, source))
    }

    /// Checks a parsed header against the size of its file, and returns the memory that it does not take.
    async fn accept(
        &self,
        path: &RepoPath,
        mut parsed: UncountedHeader,
        file_size: Option<u64>,
    ) -> Result<UncountedHeader, Error> {
        let header = &parsed.header;
        let checked = file_size.map_or(Ok(()), |size| header.check_file_size(size));
        checked.map_err(|source| self.call.header_error(path, source))?;
        self.files.files.end_header(path, header).await;
        if let Some(permit) = &mut parsed.permit {
            permit.shrink_to(header.tensors().memory());
        }
        Ok(parsed)
    }

    /// Reads another range of a file.
    async fn read_rest(
        &self,
        path: &RepoPath,
        range: Range<u64>,
        file_size: Option<u64>,
    ) -> Result<Vec<u8>, Error> {
        let more = self.files.read(path, range).await?;
        match (file_size, more.file_size) {
            (Some(before), Some(after)) if before != after => {
                let file = self.files.files.file_name(path);
                let sizes = format!("its size was {before} bytes, then {after} bytes");
                let message = format!("`{file}` changed while being read: {sizes}");
                Err(Error::Changed { message })
            }
            _ => Ok(more.bytes),
        }
    }

    /// Reserves bytes of the limit for all headers before they are read, because many headers within their own limit
    /// can be too large together.
    async fn reserve(&self, path: &RepoPath, length: u64) -> Result<(), Error> {
        let before = self.header_bytes.fetch_add(length, Ordering::Relaxed);
        let limit = self.call.settings.limits.headers / self.shares;
        if before.saturating_add(length) > limit {
            let file = self.files.files.file_name(path);
            return Err(Error::HeadersTooLarge { file, limit });
        }
        self.files.files.admit_bytes(length).await
    }
}

/// Adds a range to those that a parser requested. The parser of a custom format could request the same bytes, or the end of
/// the file, forever.
fn check_progress(
    requested: &mut Vec<Range<u64>>,
    missing: &Range<u64>,
    file_size: Option<u64>,
) -> Result<(), HeaderError> {
    let size = file_size.unwrap_or(u64::MAX);
    let range = missing.start.min(size)..missing.end.min(size);
    if missing.is_empty() || requested.contains(&range) {
        let Range { start, end } = missing;
        let message = format!("the parser requested no new bytes: {start} to {end}");
        return Err(HeaderError::new(HeaderErrorKind::Other, message));
    }
    requested.push(range);
    Ok(())
}
