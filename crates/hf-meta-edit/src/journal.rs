//! The journal of an edit in place: the old and the new header, and the file that they belong to.
//!
//! A header can have megabytes, so a process that is killed while it writes one leaves a mixture of both. The journal is
//! complete before the first byte of the header changes, and is removed after the last one is on disk. Whoever finds a
//! journal knows both headers, and completes the edit.

use std::path::{Path, PathBuf};

use hf_meta_format::formats::safetensors::{DEFAULT_HEADER_LIMIT, PREFIX_LENGTH};

/// The first bytes of a journal, with the version of its layout.
const MAGIC: &[u8; 16] = b"hf-meta edit 01\n";

/// The length of the magic, and of the numbers after it.
const FIXED_LENGTH: usize = MAGIC.len() + 4 * size_of::<u64>();

/// The maximum length of a journal in bytes.
pub(crate) const MAX_JOURNAL: u64 = 2 * DEFAULT_HEADER_LIMIT + FIXED_LENGTH as u64;

/// The ends of the names of the files in [`SideFiles`], in the order of its fields.
pub(crate) const SIDE_SUFFIXES: [&str; 3] =
    [".hf-meta-journal", ".hf-meta-journal-tmp", ".hf-meta-copy"];

/// The files that an edit creates next to a file. Their names begin with a dot, and do not have the extension of weights,
/// so that no loader reads them.
#[derive(Clone, Debug)]
pub(crate) struct SideFiles {
    pub(crate) journal: PathBuf,
    /// The journal while it is written.
    pub(crate) unfinished_journal: PathBuf,
    /// The rewritten file while it is written.
    pub(crate) copy: PathBuf,
}

impl SideFiles {
    pub(crate) fn of(path: &Path) -> Self {
        let named = |suffix: &str| {
            let mut name = std::ffi::OsString::from(".");
            name.push(path.file_name().unwrap_or_default());
            name.push(suffix);
            path.with_file_name(name)
        };
        let [journal, unfinished_journal, copy] = SIDE_SUFFIXES.map(named);
        Self { journal, unfinished_journal, copy }
    }

    pub(crate) fn all(&self) -> [&Path; 3] {
        [&self.journal, &self.unfinished_journal, &self.copy]
    }
}

/// The file that a journal belongs to. A file with the same name can have replaced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    /// The size in bytes.
    pub(crate) size: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// An edit in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) file: FileId,
    /// The JSON of the old header, with its padding.
    pub(crate) old: Vec<u8>,
    /// The JSON of the new header, of the same length.
    pub(crate) new: Vec<u8>,
}

/// The state of a file with a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalState {
    /// The file has the new header.
    Written,
    /// The file has the old header, or a mixture of both.
    Unwritten,
    /// The file is not the one that the journal belongs to, or another program has changed its header.
    Foreign,
}

impl Journal {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let FileId { size, device, inode } = self.file;
        let mut bytes = MAGIC.to_vec();
        for number in [size, device, inode, self.old.len() as u64] {
            bytes.extend(number.to_le_bytes());
        }
        [bytes.as_slice(), &self.old, &self.new].concat()
    }

    /// Decodes a journal. Returns `None` if the bytes are not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (numbers, headers) = rest.split_at_checked(4 * size_of::<u64>())?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let &[size, device, inode, length] = numbers else { return None };
        let [size, device, inode, length] = [size, device, inode, length].map(u64::from_le_bytes);
        let (old, new) = headers.split_at_checked(usize::try_from(length).ok()?)?;
        let file = FileId { size, device, inode };
        (old.len() == new.len()).then(|| Self { file, old: old.to_vec(), new: new.to_vec() })
    }

    /// Compares the journal with a file and the bytes at the start of that file.
    pub(crate) fn state(&self, file: FileId, start: &[u8]) -> JournalState {
        let prefix = (self.old.len() as u64).to_le_bytes();
        let Some((found, json)) = start.split_first_chunk() else { return JournalState::Foreign };
        if file != self.file || *found != prefix || json.len() != self.old.len() {
            return JournalState::Foreign;
        }
        if json == self.new {
            return JournalState::Written;
        }
        let mut bytes = json.iter().zip(&self.old).zip(&self.new);
        // Disks write whole sectors in any order, so every byte is an old or a new one.
        if bytes.all(|((byte, old), new)| byte == old || byte == new) {
            JournalState::Unwritten
        } else {
            JournalState::Foreign
        }
    }

    /// Returns the number of bytes at the start of the file to compare.
    pub(crate) fn start_length(&self) -> u64 {
        PREFIX_LENGTH + self.old.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { size: 100, device: 1, inode: 2 };

    fn journal() -> Journal {
        Journal { file: FILE, old: b"{\"a\":1} ".to_vec(), new: b"{\"bc\":2}".to_vec() }
    }

    #[test]
    fn journals_round_trip() {
        let bytes = journal().encode();
        assert_eq!(Journal::decode(&bytes), Some(journal()));
        for length in 0..bytes.len() {
            assert_eq!(Journal::decode(&bytes[..length]), None, "{length}");
        }
        assert_eq!(Journal::decode(&[&bytes[..], b" "].concat()), None);
        let mut hostile = bytes;
        hostile[40..48].fill(0xff);
        assert_eq!(Journal::decode(&hostile), None);
    }

    #[test]
    fn a_mixture_of_both_headers_is_unwritten() {
        let Journal { old, new, .. } = journal();
        let start = |json: &[u8]| [&8_u64.to_le_bytes(), json].concat();
        // Every subset of the bytes may have been written.
        for subset in 0..1_u32 << old.len() {
            let pick = |at: usize| if subset >> at & 1 == 1 { new[at] } else { old[at] };
            let mixed: Vec<_> = (0..old.len()).map(pick).collect();
            let expected =
                if mixed == new { JournalState::Written } else { JournalState::Unwritten };
            assert_eq!(journal().state(FILE, &start(&mixed)), expected);
        }
        let foreign = [
            (FILE, start(b"{\"x\":1} ")),
            (FileId { inode: 3, ..FILE }, start(&old)),
            (FileId { size: 101, ..FILE }, start(&old)),
            (FILE, [&9_u64.to_le_bytes()[..], &old].concat()),
            (FILE, start(&old[1..])),
            (FILE, Vec::new()),
        ];
        for (file, start) in foreign {
            assert_eq!(journal().state(file, &start), JournalState::Foreign);
        }
    }
}
