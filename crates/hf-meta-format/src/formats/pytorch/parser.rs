//! Reads the parts of a file that describe its tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::archive::{self, Archive, not_a_checkpoint};
use super::pickle::{Pickle, Storage};
use super::tensors;
use super::values::{PickleValue, is_allowed_import, too_large};
use crate::formats::buffer::{FileParts, Stop};
use crate::formats::{
    DetectedFormat, FileHeader, HeaderError, HeaderErrorKind, HeaderParser, Step, clip,
};

/// The length of the first range in bytes. It contains the pickle of most files, and is as long as the range at the
/// end of the file.
const FIRST_RANGE: u64 = 1 << 17;

/// The number of bytes that tell the formats apart.
const DETECTION_BYTES: usize = 8;

/// The maximum number of bytes to read of a file: 100,000 tensors take 150 each in the pickle, and 90 in the directory.
/// Twice as many bytes are in memory when a range arrives.
const MAX_LENGTH: u64 = 26 << 20;

/// The maximum number of bytes of everything that is kept while a file is read.
const MAX_MEMORY: u64 = 51 << 20;

/// The maximum for a file without an archive. Ranges extend the same part, and the allocator may keep their memory.
const MAX_LEGACY_MEMORY: u64 = 45 << 20;

/// The magic number before the other pickles of a file (torch < 1.6), as an integer in two's complement.
const MAGIC: &[u8] = &[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// A parser for one file. It keeps the parts that were read, and starts over once a missing part has arrived: the
/// second start takes less time than the request.
#[derive(Debug)]
pub(super) struct PyTorchParser {
    parts: FileParts,
    limit: u64,
    has_ended: bool,
}

impl PyTorchParser {
    pub(super) fn new(max_header_bytes: u64) -> Self {
        Self { parts: FileParts::default(), limit: max_header_bytes, has_ended: false }
    }

    fn parse(&self, file_size: Option<u64>) -> Result<FileHeader, Stop> {
        let start = self.parts.start();
        if start.len() < DETECTION_BYTES
            && !self.has_ended
            && file_size.is_none_or(|size| size > start.len() as u64)
        {
            return Err(Stop::Missing(start.len() as u64..DETECTION_BYTES as u64));
        }
        match DetectedFormat::recognize(start) {
            Some(DetectedFormat::Zip) => {
                let reason = "its end cannot be read, because the size of the file is unknown";
                self.parse_archive(file_size.ok_or_else(|| archive::malformed(reason))?)
            }
            None | Some(DetectedFormat::Pickle) => {
                let mut pickle = Pickle::new(start, self.free_memory(MAX_LEGACY_MEMORY));
                let parsed = self.parse_pickles(&mut pickle, file_size);
                parsed.map_err(|stop| with_imports(stop, &pickle.imports))
            }
            Some(detected) => Err(wrong_format(detected)),
        }
    }

    /// Parses a file of torch 1.6 or later.
    fn parse_archive(&self, file_size: u64) -> Result<FileHeader, Stop> {
        let archive = Archive::read(&self.parts, file_size)?;
        let (folder, entry) = archive.pickle()?;
        let data = entry.data(&self.parts)?;
        let mut pickle = Pickle::new(data, self.free_memory(MAX_MEMORY));
        let parsed = pickle.load().and_then(|root| {
            for Storage { key, bytes, .. } in storages(&pickle) {
                let key = String::from_utf8_lossy(key);
                let entry = archive.get(folder, &format!("data/{key}"));
                check_storage(&key, bytes, entry.map(|entry| entry.size))?;
            }
            // The entries take as much memory as the tensors.
            drop(archive);
            Ok(tensors::table(&pickle, root)?)
        });
        let parsed = parsed.map_err(|stop| match stop {
            Stop::Missing(_) => pickle.invalid("it is truncated"),
            Stop::Invalid(_) => stop,
        });
        let (tensors, summary) = parsed.map_err(|stop| with_imports(stop, &pickle.imports))?;
        let header = FileHeader::new(tensors, 0..file_size).with_file_size(file_size);
        Ok(header.with_pickle(summary))
    }

    /// Parses a file of torch before 1.6: pickles of a magic number, a version, properties of the machine, the value
    /// and the keys of the storages. Each storage follows with its length in 8 bytes.
    fn parse_pickles(
        &self,
        pickle: &mut Pickle<'_>,
        file_size: Option<u64>,
    ) -> Result<FileHeader, Stop> {
        let magic = self.load(pickle, file_size)?;
        if pickle.text(magic) != MAGIC {
            return Err(not_a_checkpoint("a pickle").into());
        }
        let mut next = || self.load(pickle, file_size);
        let [_, _, root, keys] = [next()?, next()?, next()?, next()?];
        let keys: BTreeSet<_> = pickle.all_items(keys).map(|key| pickle.text(key)).collect();
        let mut sizes = BTreeMap::new();
        for Storage { key, bytes, .. } in storages(pickle) {
            let known = *sizes.entry(key).or_insert(bytes);
            check_storage(
                &String::from_utf8_lossy(key),
                bytes,
                known.filter(|_| keys.contains(key)),
            )?;
        }
        let start = pickle.at as u64;
        let add = |end: u64, bytes: &Option<u64>| end.checked_add((*bytes)?)?.checked_add(8);
        let end = sizes.values().try_fold(start, add);
        let end = end.ok_or_else(|| HeaderError::overflow("storage"))?;
        let (tensors, summary) = tensors::table(pickle, root)?;
        let header = FileHeader::new(tensors, 0..start).with_file_size(end).with_pickle(summary);
        file_size.map_or(Ok(()), |size| header.check_file_size(size))?;
        Ok(header)
    }

    /// Interprets the next pickle of a file without an archive, which may continue in bytes that are missing.
    fn load(&self, pickle: &mut Pickle<'_>, file_size: Option<u64>) -> Result<PickleValue, Stop> {
        pickle.load().map_err(|stop| match stop {
            Stop::Missing(Range { start, end }) => {
                // Grows in proportion, so that the number of requests is logarithmic.
                let next = start.saturating_mul(4).min(self.limit).min(MAX_LENGTH);
                let next = next.min(file_size.unwrap_or(u64::MAX));
                Stop::Missing(start..next.max(end))
            }
            // Without an opcode at its start, the file is in some other format.
            Stop::Invalid(_) if pickle.opcode_at == 0 => {
                let start = self.parts.start();
                let start = &start[..start.len().min(DETECTION_BYTES)];
                let unknown = || not_a_checkpoint(other_content(start)).into();
                DetectedFormat::recognize_or_text(start).map_or_else(unknown, wrong_format)
            }
            Stop::Invalid(_) => stop,
        })
    }

    /// Returns the range to read next.
    fn next_range(
        &self,
        missing: Range<u64>,
        file_size: Option<u64>,
    ) -> Result<Range<u64>, HeaderError> {
        let (read, end) = (self.parts.length(), missing.end);
        if self.has_ended || file_size.is_some_and(|size| end > size) {
            return Err(HeaderError::truncated(end, file_size.unwrap_or(read)));
        }
        let length = read.saturating_add(end - missing.start);
        if length > MAX_LENGTH {
            return Err(too_large());
        }
        if length > self.limit.max(FIRST_RANGE) {
            return Err(HeaderError::too_large(length, self.limit));
        }
        Ok(missing)
    }

    /// Returns the number of bytes that may be kept besides the parts of the file.
    fn free_memory(&self, max: u64) -> usize {
        usize::try_from(max.saturating_sub(self.parts.length())).unwrap_or_default()
    }
}

impl HeaderParser for PyTorchParser {
    fn first_range(&self) -> Range<u64> {
        0..FIRST_RANGE
    }

    fn advance(
        &mut self,
        start: u64,
        bytes: Vec<u8>,
        file_size: Option<u64>,
    ) -> Result<Step, HeaderError> {
        self.has_ended = bytes.is_empty();
        self.parts.add(start, bytes);
        match self.parse(file_size) {
            Ok(header) => Ok(Step::Done(header)),
            Err(Stop::Invalid(error)) => Err(error),
            Err(Stop::Missing(missing)) => self.next_range(missing, file_size).map(Step::Read),
        }
    }
}

/// Returns the content of a file in an unknown format. These programs write files that end with `.bin`, too.
fn other_content(start: &[u8]) -> &'static str {
    match *start {
        // A version, and the length and the text of a name.
        [_, 0, 0, 0, _, 0, b'A'..=b'Z', b'a'..=b'z'] => "a CTranslate2 model",
        [0xba, 0x16, 0x4f, 0x2f, ..] => "a fastText model",
        [b'l' | b't' | b'f', b'm' | b'j', b'g', b'g', ..] => "a GGML file",
        _ => "in an unknown format",
    }
}

fn wrong_format(detected: DetectedFormat) -> Stop {
    HeaderError::wrong_format(detected).into()
}

/// Returns all storages of a pickle that are not malformed.
fn storages<'a>(pickle: &Pickle<'a>) -> impl Iterator<Item = Storage<'a>> {
    pickle.storages().filter_map(|id| Storage::new(pickle, id))
}

/// Checks the number of bytes of a storage. `found` is `None` if the file does not contain it.
fn check_storage(key: &str, expected: Option<u64>, found: Option<u64>) -> Result<(), HeaderError> {
    let expected = expected.ok_or_else(|| HeaderError::overflow(key))?;
    if found == Some(expected) {
        return Ok(());
    }
    let found = found.map_or_else(|| "no such storage".to_owned(), |bytes| bytes.to_string());
    let key = clip(key);
    let message = format!("storage `{key}` has {expected} bytes, but the file contains {found}");
    Err(HeaderError::new(HeaderErrorKind::Other, message))
}

/// Adds the imports that `torch.load(weights_only=True)` rejects to an error.
fn with_imports(stop: Stop, imports: &BTreeSet<String>) -> Stop {
    let rejected = imports.iter().filter(|import| !is_allowed_import(import));
    let imports: Vec<_> = rejected.take(10).cloned().collect();
    match stop {
        Stop::Invalid(error) if !imports.is_empty() => {
            let imports = clip(&imports.join("`, `"));
            let message = format!("{error}; it imports `{imports}`");
            let kind = match error.kind {
                HeaderErrorKind::TooLarge => error.kind,
                _ => HeaderErrorKind::UnsafeImports,
            };
            HeaderError { kind, message, ..error }.into()
        }
        stop => stop,
    }
}
