//! The parts of a file that have been read.

use std::ops::Range;

use super::parser::MAX_LENGTH;
use crate::formats::HeaderError;

/// The reason why a header cannot be parsed any further.
#[derive(Debug)]
pub(super) enum Stop {
    /// These bytes of the file are needed.
    Missing(Range<u64>),
    Invalid(HeaderError),
}

impl From<HeaderError> for Stop {
    fn from(error: HeaderError) -> Self {
        Self::Invalid(error)
    }
}

/// The parts of a file that have been read. There are at most a few: its start, its end and the pickle.
#[derive(Debug, Default)]
pub(super) struct FileParts(Vec<(u64, Vec<u8>)>);

impl FileParts {
    /// Adds bytes that were read at an offset.
    pub(super) fn add(&mut self, start: u64, bytes: Vec<u8>) {
        let is_extended =
            |(at, part): &&mut (u64, Vec<u8>)| (*at..=*at + part.len() as u64).contains(&start);
        match self.0.iter_mut().find(is_extended) {
            Some((at, part)) => {
                let known = *at + part.len() as u64 - start;
                let known = usize::try_from(known).unwrap_or(usize::MAX);
                // With room for the next range, which is four times as long, because a copy of a large part would take as much memory again.
                if part.len() + bytes.len() > part.capacity() {
                    part.reserve_exact(bytes.len().saturating_mul(5).min(MAX_LENGTH));
                }
                part.extend_from_slice(bytes.get(known..).unwrap_or_default());
            }
            None => self.0.push((start, bytes)),
        }
    }

    /// Returns the number of bytes that have been read.
    pub(super) fn length(&self) -> u64 {
        self.0.iter().map(|(_, part)| part.len() as u64).sum()
    }

    /// Returns a range of the file, or the missing end of it.
    pub(super) fn get(&self, range: Range<u64>) -> Result<&[u8], Stop> {
        let parts = self.0.iter().filter(|(at, _)| *at <= range.start);
        let found = parts.max_by_key(|(at, part)| *at + part.len() as u64);
        let (at, part) = found.map_or((0, &[][..]), |(at, part)| (*at, part));
        let end = at + part.len() as u64;
        let index = |offset: u64| usize::try_from(offset - at).unwrap_or(usize::MAX);
        match (range.start..range.end).is_empty() {
            true => Ok(&[]),
            false if range.end <= end => Ok(&part[index(range.start)..index(range.end)]),
            false => Err(Stop::Missing(range.start.max(end)..range.end)),
        }
    }

    /// Returns the bytes from the start of the file to the first missing one.
    pub(super) fn start(&self) -> &[u8] {
        self.0.iter().find(|(at, _)| *at == 0).map_or(&[], |(_, part)| part)
    }
}
