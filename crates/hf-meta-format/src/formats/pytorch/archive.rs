//! The central directory of a ZIP archive. Source: section 4 of the ZIP specification, APPNOTE.TXT 6.3.10.

use std::ops::Range;

use super::places::StoragePlace;
use super::values::too_large;
use crate::base::sort::{sort_by, sort_by_key};
use crate::formats::buffer::{FileParts, Stop};
use crate::formats::{HeaderError, HeaderErrorKind};

/// The length of the end of the file to read, in bytes. A comment has up to 65,535 bytes, and the directory has
/// about 90 bytes per tensor.
const TAIL: u64 = 1 << 17;

/// The estimated length of padding before an entry, in bytes. `torch.save` aligns the entries to 64 bytes.
const PADDING: u64 = 256;

/// The values of 32-bit fields whose actual values are in the ZIP64 extra field.
const ZIP64: u64 = u32::MAX as u64;

/// The maximum number of entries. Each takes 64 bytes of memory.
const MAX_ENTRIES: u64 = 1 << 18;

/// The lengths of records without their names and comments: sections 4.3.7, 4.3.12 and 4.3.16 of `APPNOTE.TXT`.
const LOCAL_HEADER: u64 = 30;
const DIRECTORY_HEADER: usize = 46;
const END_RECORD: usize = 22;

/// The entries of an archive, sorted by name, and the length of their directory in bytes.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    entries: Vec<(&'a str, Entry)>,
    directory: u64,
}

/// An entry of an archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The size of the stored data in bytes.
    pub(super) size: u64,
    is_compressed: bool,
    /// The checksum of the data.
    pub(super) crc: u64,
    /// The range of the local header and the data without padding.
    range: (u64, u64),
}

impl<'a> Archive<'a> {
    /// Reads the central directory of a file of `file_size` bytes.
    pub(super) fn read(parts: &'a FileParts, file_size: u64) -> Result<Self, Stop> {
        let (directory, count) = find_directory(parts, file_size)?;
        let length = directory.end - directory.start;
        parts.check_limit(length)?;
        let (mut bytes, mut entries) = (parts.get(directory.clone())?, Vec::new());
        if count > MAX_ENTRIES {
            return Err(too_large().into());
        }
        while !bytes.is_empty() && entries.len() as u64 <= count {
            let read = Entry::read(bytes).ok_or_else(|| malformed("an entry is malformed"))?;
            entries.push((read.0, read.1));
            bytes = read.2;
        }
        sort_by_key(&mut entries, |(name, _)| *name);
        if entries.len() as u64 != count || entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(malformed("the number of entries is wrong, or two have the same name"));
        }
        let mut ranges: Vec<_> = entries.iter().map(|(_, entry)| entry.range).collect();
        ranges.push((directory.start, directory.end));
        sort_by(&mut ranges, Ord::cmp);
        if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(malformed("entries overlap"));
        }
        Ok(Self { entries, directory: length })
    }

    /// Checks that the directory and the data of an entry are not longer than the limit of a header.
    pub(super) fn check_limit(&self, parts: &FileParts, entry: &Entry) -> Result<(), HeaderError> {
        parts.check_limit(self.directory.saturating_add(entry.size))
    }

    /// Returns the folder of the checkpoint with a trailing slash, and the entry of its pickle.
    pub(super) fn pickle(&self) -> Result<(&'a str, Entry), HeaderError> {
        let other = |content| Err(not_a_checkpoint(content));
        let pickle =
            |(name, entry): &(&'a str, Entry)| Some((name.strip_suffix("data.pkl")?, *entry));
        let pickles = self.entries.iter().filter_map(pickle);
        let mut pickles = pickles.filter(|(name, _)| name.find('/') == name.len().checked_sub(1));
        match (pickles.next(), pickles.next()) {
            (Some(pickle), None) if self.get(pickle.0, "constants.pkl").is_none() => Ok(pickle),
            (Some(_), None) => other("a TorchScript program"),
            (Some(_), Some(_)) => other("a ZIP archive with several `data.pkl`"),
            (None, _) => other("a ZIP archive without `data.pkl`"),
        }
    }

    /// Returns the entry of a file in a folder.
    pub(super) fn get(&self, folder: &str, file: &str) -> Option<Entry> {
        let path = format!("{folder}{file}");
        let at = self.entries.binary_search_by_key(&&*path, |(name, _)| name).ok()?;
        Some(self.entries[at].1)
    }
}

impl Entry {
    /// Reads the first entry in `bytes`. Returns its name and the bytes after it, too; `None` if it is malformed.
    fn read(bytes: &[u8]) -> Option<(&str, Self, &[u8])> {
        let field = |at, length| number(bytes, at, length);
        let length = |at| Some(usize::try_from(field(at, 2)?).unwrap_or(usize::MAX));
        let name_end = DIRECTORY_HEADER + length(28)?;
        let extra_end = name_end + length(30)?;
        let end = extra_end + length(32)?;
        let name = std::str::from_utf8(bytes.get(DIRECTORY_HEADER..name_end)?).ok()?;
        let mut wide = zip64_fields(bytes.get(name_end..extra_end)?);
        let mut widened = |at| match field(at, 4)? {
            ZIP64 => wide.next(),
            value => Some(value),
        };
        let (size, stored, offset) = (widened(24)?, widened(20)?, widened(42)?);
        let local_end = offset
            .checked_add(LOCAL_HEADER)?
            .checked_add(name.len() as u64)?
            .checked_add(stored)?;
        let is_compressed = field(10, 2)? != 0 || stored != size;
        let crc = field(16, 4)?;
        let entry = Self { size, is_compressed, crc, range: (offset, local_end) };
        bytes.starts_with(b"PK\x01\x02").then_some((name, entry, bytes.get(end..)?))
    }

    /// Returns the position of the data; `None` if they are compressed.
    pub(super) fn place(self) -> Option<StoragePlace> {
        let (local_header, size) = (self.range.0, self.size);
        (!self.is_compressed).then_some(StoragePlace::Behind { local_header, size })
    }

    /// Returns the data of the entry.
    pub(super) fn data(self, parts: &FileParts) -> Result<&[u8], Stop> {
        if self.is_compressed {
            return Err(malformed("`data.pkl` is compressed, which `torch.save` never does"));
        }
        let (start, end) = self.range;
        // Reads the data in the same range, because the length of the padding is only in the local header.
        let header = parts.get(start..start + LOCAL_HEADER);
        let header = header.map_err(|_| parts.missing(start..end.saturating_add(PADDING)))?;
        let lengths = [26, 28].map(|at| number(header, at, 2).unwrap_or_default());
        if !header.starts_with(b"PK\x03\x04") {
            return Err(malformed("`data.pkl` has no local header"));
        }
        let start = start + LOCAL_HEADER + lengths[0] + lengths[1];
        parts.get(start..start.saturating_add(self.size))
    }
}

/// Returns the range of the central directory, and the number of its entries.
fn find_directory(parts: &FileParts, file_size: u64) -> Result<(Range<u64>, u64), Stop> {
    let tail_start = file_size.saturating_sub(TAIL);
    let tail = parts.get(tail_start..file_size)?;
    let is_end = |at: &usize| {
        let comment = number(tail, at + END_RECORD - 2, 2);
        tail[*at..].starts_with(b"PK\x05\x06")
            && comment == Some((tail.len() - at - END_RECORD) as u64)
    };
    let last = tail.len().checked_sub(END_RECORD);
    let at = last.and_then(|last| (0..=last).rev().find(is_end));
    let at = at.ok_or_else(|| malformed("it has no end record; the file may be truncated"))?;
    let locator = at.checked_sub(20).map_or(&[][..], |start| &tail[start..at]);
    let (record, fields) = if locator.starts_with(b"PK\x06\x07") {
        let start = number(locator, 8, 8).unwrap_or_default();
        if start > file_size {
            return Err(malformed("the ZIP64 end record is outside of the file"));
        }
        (parts.get(start..start.saturating_add(56))?, [(32, 8), (40, 8), (48, 8)])
    } else {
        (&tail[at..], [(10, 2), (12, 4), (16, 4)])
    };
    let [entries, length, start] =
        fields.map(|(at, length)| number(record, at, length).unwrap_or(u64::MAX));
    let end = start.checked_add(length).filter(|end| *end <= tail_start + at as u64);
    let end = end.ok_or_else(|| malformed("the central directory is outside of the file"))?;
    Ok((start..end, entries))
}

/// Returns the 64-bit fields of the ZIP64 extra field.
fn zip64_fields(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut found: &[u8] = &[];
    while let (Some(id), Some(length)) = (number(extra, 0, 2), number(extra, 2, 2)) {
        let end = 4 + usize::try_from(length).unwrap_or(usize::MAX);
        let data = extra.get(4..end).unwrap_or_default();
        if id == 1 {
            found = data;
        }
        extra = extra.get(end..).unwrap_or_default();
    }
    found.chunks_exact(8).filter_map(|field| number(field, 0, 8))
}

/// Returns a little-endian number of `length` bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Returns the error for a malformed archive.
pub(super) fn malformed(reason: &str) -> Stop {
    let message = format!("the ZIP archive is malformed: {reason}");
    HeaderError::new(HeaderErrorKind::Other, message).into()
}

/// Returns the error for a file with another content.
pub(super) fn not_a_checkpoint(content: &str) -> HeaderError {
    let message = format!("the file is {content}, not a checkpoint");
    HeaderError::new(HeaderErrorKind::NotACheckpoint, message)
}
