//! Reads the parts of a file that describe its tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::archive::{self, Archive, Entry, not_a_checkpoint};
use super::pickle::{Pickle, Storage};
use super::places::{BIG_ENDIAN, STORAGE_BYTES, StoragePlace, Storages};
use super::tensors;
use super::values::{PickleValue, is_allowed_import, spend, too_large};
use crate::base::sort::Ordered;
use crate::formats::buffer::{FileParts, Stop};
use crate::formats::{DetectedFormat, FileHeader, HeaderError, HeaderErrorKind, clip};

/// The length of the first range in bytes. It contains the pickle of most files, and is as long as the range at the
/// end of the file.
pub(super) const FIRST_RANGE: u64 = 1 << 17;

/// The maximum number of bytes to read of a file: 100,000 tensors take 150 each in the pickle, and 90 in the directory.
/// Twice as many bytes are in memory when a range arrives.
const MAX_LENGTH: u64 = 26 << 20;

/// The maximum number of bytes of everything that is kept while a file is read.
const MAX_MEMORY: u64 = 51 << 20;

/// The maximum for a file without an archive. Ranges extend the same part, and the allocator may keep their memory.
const MAX_LEGACY_MEMORY: u64 = 45 << 20;

/// The magic number before the other pickles of a file (torch < 1.6), as an integer in two's complement.
const MAGIC: &[u8] = &[0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// The checksum of `big`, the content of `byteorder` in the archive of a big-endian machine.
const CRC_OF_BIG: u64 = 0xd3fb_e249;

/// Parses a file, or returns the range to read next.
pub(in crate::formats) fn parse(file: &FileParts) -> Result<FileHeader, Stop> {
    let start = file.detection_bytes()?;
    let header = match DetectedFormat::recognize(start) {
        Some(DetectedFormat::Zip) => parse_archive(file),
        None | Some(DetectedFormat::Pickle) => {
            // The pickles are the header, so what follows the limit is not interpreted.
            let limit = usize::try_from(file.limit).unwrap_or(usize::MAX);
            let start = &file.start()[..limit.min(file.start().len())];
            let mut pickle = Pickle::new(start, free_memory(file, MAX_LEGACY_MEMORY));
            let parsed = parse_pickles(file, &mut pickle);
            parsed.map_err(|stop| with_imports(stop, &pickle.imports))
        }
        Some(detected) => Err(HeaderError::wrong_format(detected).into()),
    };
    if let Err(Stop::Missing(missing)) = &header {
        check_length(file, missing)?;
    }
    header
}

/// Parses a file of torch 1.6 or later.
fn parse_archive(file: &FileParts) -> Result<FileHeader, Stop> {
    let reason = "its end cannot be read, because the size of the file is unknown";
    let file_size = file.size.ok_or_else(|| archive::malformed(reason))?;
    let archive = Archive::read(file, file_size)?;
    let (folder, entry) = archive.pickle()?;
    archive.check_limit(file, &entry)?;
    let mut pickle = Pickle::new(entry.data(file)?, free_memory(file, MAX_MEMORY));
    let parsed = pickle.load().and_then(|root| {
        let (mut places, mut memory) = (Vec::new(), pickle.free_memory);
        for Storage { key, bytes, .. } in pickle.storages() {
            let name = String::from_utf8_lossy(key);
            let entry = archive.get(folder, &format!("data/{name}"));
            check_storage(&name, bytes, entry.map(|entry| entry.size))?;
            if places.last().is_none_or(|(last, _)| *last != key)
                && let Some(place) = entry.and_then(Entry::place)
            {
                spend(&mut memory, STORAGE_BYTES)?;
                places.push((key, place));
            }
        }
        pickle.free_memory = memory;
        let order = archive.get(folder, "byteorder");
        let is_big_endian = order.is_some_and(|order| order.crc == CRC_OF_BIG);
        // The entries take as much memory as the tensors.
        drop(archive);
        let storages = Storages::new(places.into_iter());
        let mut header = tensors::header(&pickle, root, &storages, file_size)?;
        if is_big_endian && let Some(pickle) = &mut header.pickle {
            pickle.places.reason = Some(BIG_ENDIAN);
        }
        Ok(header.with_file_size(file_size))
    });
    let parsed = parsed.map_err(|stop| match stop {
        Stop::Missing(_) => pickle.invalid("it is truncated"),
        Stop::Invalid(_) => stop,
    });
    parsed.map_err(|stop| with_imports(stop, &pickle.imports))
}

/// Parses a file of torch before 1.6: pickles of a magic number, a version, properties of the machine, the value and
/// the keys of the storages. Each storage follows with its length in 8 bytes.
fn parse_pickles(file: &FileParts, pickle: &mut Pickle<'_>) -> Result<FileHeader, Stop> {
    let magic = load(file, pickle).map_err(|stop| match file.detection_bytes() {
        // Any byte may be an opcode, but `torch.save` begins with the one of the protocol unless it is asked for an old
        // protocol, whose first pickle fits into the first range.
        Ok(start) if DetectedFormat::recognize(start) != Some(DetectedFormat::Pickle) => {
            other_file(file, start)
        }
        _ => stop,
    })?;
    if pickle.text(magic) != MAGIC {
        return Err(not_a_checkpoint("a pickle").into());
    }
    let mut next = || load(file, pickle);
    let [_, _, root, keys] = [next()?, next()?, next()?, next()?];
    let order = keys;
    let keys: BTreeSet<_> = pickle.all_items(keys).map(|key| pickle.text(key)).ordered();
    let mut sizes = BTreeMap::new();
    for Storage { key, bytes, .. } in pickle.storages() {
        let known = *sizes.entry(key).or_insert(bytes);
        let known = if keys.contains(key) { known } else { None };
        check_storage(&String::from_utf8_lossy(key), bytes, known)?;
    }
    let start = pickle.at as u64;
    let add = |end: u64, bytes: &Option<u64>| end.checked_add((*bytes)?)?.checked_add(8);
    let end = sizes.values().try_fold(start, add);
    let end = end.ok_or_else(|| HeaderError::overflow("storage"))?;
    spend(&mut pickle.free_memory, STORAGE_BYTES.saturating_mul(sizes.len()))?;
    // The storages are in the order of their keys. The position of one behind an unknown one is unknown.
    let mut next = Some(start);
    let places = pickle.all_items(order).map_while(|key| {
        let (key, at) = (pickle.text(key), next?.checked_add(8)?);
        next = sizes.get(key).copied().flatten().and_then(|size| at.checked_add(size));
        next.map(|_| (key, StoragePlace::At(at)))
    });
    let storages = Storages::new(places);
    let header = tensors::header(pickle, root, &storages, start)?.with_file_size(end);
    file.size.map_or(Ok(()), |size| header.check_file_size(size))?;
    Ok(header)
}

/// Interprets the next pickle of a file without an archive, which may continue in bytes that are missing.
fn load(file: &FileParts, pickle: &mut Pickle<'_>) -> Result<PickleValue, Stop> {
    pickle.load().map_err(|stop| match stop {
        Stop::Missing(Range { end, .. }) if end > file.limit => {
            HeaderError::too_large(end, file.limit).into()
        }
        Stop::Missing(missing) => file.missing(missing).map_missing(|Range { start, end }| {
            // Grows in proportion, so that the number of requests is logarithmic.
            let next = start.saturating_mul(4).min(file.limit).min(MAX_LENGTH);
            let next = next.max(FIRST_RANGE).min(file.size.unwrap_or(u64::MAX));
            start..next.max(end)
        }),
        // Without an opcode at its start, the file is in some other format.
        Stop::Invalid(_) if pickle.opcode_at == 0 || is_tar(file.start()) => {
            other_file(file, file.detection_bytes().unwrap_or_default())
        }
        Stop::Invalid(_) => stop,
    })
}

/// Returns the error for a file in some other format.
fn other_file(file: &FileParts, start: &[u8]) -> Stop {
    if is_tar(file.start()) {
        return HeaderError::wrong_format(DetectedFormat::Tar).into();
    }
    let unknown = || not_a_checkpoint(other_content(start));
    let detected = DetectedFormat::recognize_or_text(start);
    detected.map_or_else(unknown, HeaderError::wrong_format).into()
}

/// Checks that a missing range may be read, too.
fn check_length(file: &FileParts, missing: &Range<u64>) -> Result<(), HeaderError> {
    let length = file.length().saturating_add(missing.end - missing.start);
    if length > MAX_LENGTH { Err(too_large()) } else { Ok(()) }
}

/// Returns the number of bytes that may be kept besides the parts of the file.
fn free_memory(file: &FileParts, max: u64) -> usize {
    usize::try_from(max.saturating_sub(file.length())).unwrap_or_default()
}

/// Returns whether a file is a tar archive.
fn is_tar(start: &[u8]) -> bool {
    const MAGIC: usize = 257;

    start.get(MAGIC..).is_some_and(|rest| rest.starts_with(b"ustar"))
}

/// Returns the content of a file in an unknown format. These programs write files that end with `.bin`, too.
fn other_content(start: &[u8]) -> &'static str {
    match *start {
        // A version, and the length and the text of a name.
        [_, 0, 0, 0, _, 0, b'A'..=b'Z', b'a'..=b'z'] => "a CTranslate2 model",
        [0xba, 0x16, 0x4f, 0x2f, ..] => "a fastText model",
        [b'l' | b't' | b'f', b'm' | b'j', b'g', b'g', ..] => "a GGML file",
        [0x1f, 0x8b, ..] => "a gzip archive",
        [b'B', b'Z', b'h', ..] => "a bzip2 archive",
        [0x93, b'N', b'U', b'M', ..] => "a NumPy array",
        [b'R', b'a', b'r', b'!', ..] => "a RAR archive",
        [b'7', b'z', 0xbc, 0xaf, ..] => "a 7-Zip archive",
        _ => "in an unknown format",
    }
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
                HeaderErrorKind::TooLarge | HeaderErrorKind::OverLimit => error.kind,
                _ => HeaderErrorKind::UnsafeImports,
            };
            HeaderError { kind, message, ..error }.into()
        }
        stop => stop,
    }
}
