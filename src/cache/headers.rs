//! The bytes that the figures of one commit come from.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::Range;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::formats::RepoPath;
use crate::formats::weight_sets::ListedFile;
use crate::http::transfer::RangeBytes;

/// The most bytes that are kept of one commit. The largest known sets of weights have 120 MB of headers
/// and index.
const LONGEST: u64 = 256 << 20;

/// The starts of files, up to where a reader needed them: of weights the header, of an index all of it.
/// Where weights had to be looked for, also which files there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CachedHeaders {
    files: BTreeMap<RepoPath, Head>,
    /// By their folder, which has no name where it is all of the repo.
    lists: BTreeMap<String, List>,
    length: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    bytes: Vec<u8>,
    file_size: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct List {
    files: Vec<ListedFile>,
    is_whole: bool,
}

impl CachedHeaders {
    /// Adds the start of a file in two parts, the second of which may be empty.
    pub(crate) fn add(&mut self, path: RepoPath, parts: [&[u8]; 2], file_size: u64) {
        if self.has_room_for(parts.iter().map(|part| part.len()).sum()) {
            self.files.insert(path, Head { bytes: parts.concat(), file_size });
        }
    }

    /// Adds which files are in a folder.
    pub(crate) fn add_list(
        &mut self,
        folder: Option<&RepoPath>,
        files: &[ListedFile],
        is_whole: bool,
    ) {
        if self.has_room_for(files.iter().map(|file| file.path.as_str().len() + 16).sum()) {
            let folder = folder.map_or("", RepoPath::as_str).to_owned();
            self.lists.insert(folder, List { files: files.to_vec(), is_whole });
        }
    }

    fn has_room_for(&mut self, length: usize) -> bool {
        self.length = self.length.saturating_add(length as u64);
        if self.is_forgone() {
            self.forgo();
        }
        !self.is_forgone()
    }

    /// How many bytes they are.
    pub(crate) fn length(&self) -> usize {
        usize::try_from(self.length).unwrap_or(usize::MAX)
    }

    /// Gives up on keeping them.
    pub(crate) fn forgo(&mut self) {
        *self = Self { length: u64::MAX, ..Self::default() };
    }

    /// Whether they are not to be kept, as where there is too much of them. Then they hold nothing.
    pub(crate) fn is_forgone(&self) -> bool {
        self.length > LONGEST
    }

    /// A range of a file, as far as it has one.
    pub(crate) fn range(&self, path: &RepoPath, range: &Range<u64>) -> Option<RangeBytes> {
        let Head { bytes, file_size } = self.files.get(path)?;
        let end = range.end.min(*file_size);
        let span = usize::try_from(range.start.min(end)).ok()?..usize::try_from(end).ok()?;
        Some(RangeBytes { bytes: bytes.get(span)?.to_vec(), file_size: *file_size })
    }

    /// A whole file; `None` where only its start was needed.
    pub(crate) fn whole(&self, path: &RepoPath) -> Option<&[u8]> {
        let head = self.files.get(path)?;
        (head.bytes.len() as u64 == head.file_size).then_some(&head.bytes)
    }

    /// The files of a folder, and whether those are all; `None` where that was not asked for.
    pub(crate) fn list(&self, folder: Option<&RepoPath>) -> Option<(Vec<ListedFile>, bool)> {
        let list = self.lists.get(folder.map_or("", RepoPath::as_str))?;
        Some((list.files.clone(), list.is_whole))
    }

    /// As one run of bytes, compressed: headers are mostly names that resemble each other.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        // Neither compressing nor writing to memory fails.
        let _ = self.write(&mut encoder);
        encoder.finish().unwrap_or_default()
    }

    /// The lists, then the files, each with their number before them.
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write_number(out, self.lists.len() as u64)?;
        for (folder, List { files, is_whole }) in &self.lists {
            write_part(out, folder.as_bytes())?;
            write_number(out, u64::from(*is_whole))?;
            write_number(out, files.len() as u64)?;
            for file in files {
                write_part(out, file.path.as_str().as_bytes())?;
                write_number(out, file.size)?;
            }
        }
        write_number(out, self.files.len() as u64)?;
        self.files.iter().try_for_each(|(path, head)| {
            write_part(out, path.as_str().as_bytes())?;
            write_number(out, head.file_size)?;
            write_part(out, &head.bytes)
        })
    }

    /// The reverse of [`CachedHeaders::encode`], for bytes of any origin.
    pub(crate) fn decode(encoded: &[u8]) -> io::Result<Self> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(encoded).take(2 * LONGEST).read_to_end(&mut bytes)?;
        let (mut rest, mut heads) = (bytes.as_slice(), Self::default());
        for _ in 0..take_number(&mut rest)? {
            let folder = take_text(&mut rest)?;
            let folder = if folder.is_empty() { None } else { Some(path(folder)?) };
            let is_whole = take_number(&mut rest)? == 1;
            heads.add_list(folder.as_ref(), &take_files(&mut rest)?, is_whole);
        }
        for _ in 0..take_number(&mut rest)? {
            let path = path(take_text(&mut rest)?)?;
            let file_size = take_number(&mut rest)?;
            heads.add(path, [take_part(&mut rest)?, &[]], file_size);
        }
        if rest.is_empty() { Ok(heads) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

fn write_number(out: &mut impl Write, number: u64) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}

/// Bytes, and their length before them.
fn write_part(out: &mut impl Write, part: &[u8]) -> io::Result<()> {
    write_number(out, part.len() as u64)?;
    out.write_all(part)
}

fn take_files(rest: &mut &[u8]) -> io::Result<Vec<ListedFile>> {
    let files = (0..take_number(rest)?).map(|_| {
        let path = path(take_text(rest)?)?;
        Ok(ListedFile { path, size: take_number(rest)? })
    });
    files.collect()
}

fn take_text<'a>(rest: &mut &'a [u8]) -> io::Result<&'a str> {
    std::str::from_utf8(take_part(rest)?).map_err(io::Error::other)
}

fn path(text: &str) -> io::Result<RepoPath> {
    text.parse().map_err(io::Error::other)
}

fn take_number(rest: &mut &[u8]) -> io::Result<u64> {
    let (number, after) = rest.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = after;
    Ok(u64::from_le_bytes(*number))
}

/// Bytes that their length stands before.
fn take_part<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).map_err(io::Error::other)?;
    let (part, after) = rest.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = after;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> RepoPath {
        path(text).unwrap()
    }

    fn heads() -> CachedHeaders {
        let mut heads = CachedHeaders::default();
        heads.add(at("a/index.json"), [b"{}", b""], 2);
        heads.add(at("a/b.safetensors"), [b"12345678", b"header"], 1_000);
        let file = ListedFile { path: at("a/b.safetensors"), size: 1_000 };
        heads.add_list(None, &[file], true);
        heads.add_list(Some(&at("c")), &[], false);
        heads
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        assert_eq!(CachedHeaders::decode(&heads().encode()).unwrap(), heads());
        assert_eq!(
            CachedHeaders::decode(&CachedHeaders::default().encode()).unwrap(),
            CachedHeaders::default()
        );
    }

    #[test]
    fn other_bytes_are_errors() {
        let bytes = heads().encode();
        for at in 0..bytes.len() {
            assert!(CachedHeaders::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let deflate = |bytes: &[u8]| {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        let [none, one] = [[0; 8], 1_u64.to_le_bytes()];
        let long = [&none, &one, &u64::MAX.to_le_bytes(), &b"x"[..]].concat();
        let climbing = [&none, &one, &2_u64.to_le_bytes(), &b".."[..], &[0; 16]].concat();
        for bytes in [&b"x"[..], &long, &climbing] {
            assert!(CachedHeaders::decode(&deflate(bytes)).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn ranges_end_where_the_file_does_and_never_beyond_what_is_kept() {
        let (heads, file) = (heads(), at("a/b.safetensors"));
        let bytes = |range| heads.range(&file, &range).map(|chunk| chunk.bytes);
        assert_eq!(bytes(0..8).unwrap(), b"12345678");
        assert_eq!(bytes(8..14).unwrap(), b"header");
        assert_eq!(bytes(8..15), None);
        assert_eq!(bytes(2_000..3_000), None);
        assert!(heads.range(&at("a/c"), &(0..8)).is_none());
        assert_eq!(heads.whole(&at("a/index.json")).unwrap(), b"{}");
        assert_eq!(heads.whole(&file), None);
        assert_eq!(
            heads.list(None).map(|(files, is_whole)| (files.len(), is_whole)),
            Some((1, true))
        );
        assert_eq!(heads.list(Some(&at("c"))), Some((Vec::new(), false)));
        assert_eq!(heads.list(Some(&at("a"))), None);
    }
}
