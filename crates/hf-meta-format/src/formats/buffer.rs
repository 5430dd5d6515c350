//! The bytes of a file that have arrived.

use std::ops::Range;

use super::HeaderError;

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

/// A contiguous part of a file, whose bytes are dropped once they are parsed.
#[derive(Debug, Default)]
pub(super) struct HeaderBuffer {
    bytes: Vec<u8>,
    /// The number of parsed bytes at the start of `bytes`.
    parsed: usize,
    /// The offset of the first byte that is still needed: the end of `bytes`, or a later offset if bytes are skipped.
    end: u64,
    /// The end of the bytes that have arrived.
    arrived: u64,
    has_ended: bool,
}

impl HeaderBuffer {
    /// Returns the offset of the first byte that is still needed.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the end of the bytes that have arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns the offset of the first unparsed byte.
    pub(super) fn position(&self) -> u64 {
        self.end - self.rest().len() as u64
    }

    /// Returns the unparsed bytes.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.parsed..]
    }

    /// Returns whether the file has no more bytes.
    pub(super) fn is_at_end(&self, file_size: Option<u64>) -> bool {
        self.has_ended || file_size.is_some_and(|size| size <= self.arrived)
    }

    /// Adds bytes that were read at an offset. Known and unneeded bytes are ignored. No bytes at the first offset that
    /// is still needed are the end of the file.
    pub(super) fn append(&mut self, start: u64, mut bytes: Vec<u8>) {
        self.has_ended = bytes.is_empty() && start == self.end;
        if !bytes.is_empty() && start <= self.end {
            self.arrived = self.arrived.max(start.saturating_add(bytes.len() as u64));
        }
        let known = self.end.checked_sub(start).and_then(|known| usize::try_from(known).ok());
        let Some(known) = known.filter(|known| *known < bytes.len()) else { return };
        self.end += (bytes.len() - known) as u64;
        self.bytes.drain(..self.parsed);
        self.parsed = 0;
        if self.bytes.is_empty() {
            // Parsed in place, because a copy would take the memory twice.
            (self.bytes, self.parsed) = (bytes, known);
        } else {
            self.bytes.extend(bytes.drain(known..));
        }
    }

    /// Marks bytes as parsed, even if they have not arrived.
    pub(super) fn skip(&mut self, length: u64) {
        if let Some(length) = usize::try_from(length).ok().filter(|n| *n <= self.rest().len()) {
            self.parsed += length;
        } else {
            self.end = self.position().saturating_add(length);
            (self.bytes, self.parsed) = (Vec::new(), 0);
        }
    }
}

/// The maximum number of bytes to reserve for the next range.
const MAX_RESERVED: usize = 24 << 20;

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
                    part.reserve_exact(bytes.len().saturating_mul(5).min(MAX_RESERVED));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_distant_bytes_are_ignored() {
        let mut buffer = HeaderBuffer::default();
        buffer.append(2, b"x".to_vec());
        assert_eq!((buffer.position(), buffer.end()), (0, 0));
        buffer.append(0, b"abcd".to_vec());
        buffer.skip(1);
        buffer.append(2, b"cdef".to_vec());
        buffer.append(1, b"bc".to_vec());
        assert_eq!((buffer.rest(), buffer.position(), buffer.end()), (&b"bcdef"[..], 1, 6));
    }

    #[test]
    fn bytes_are_skipped_before_they_arrive() {
        let mut buffer = HeaderBuffer::default();
        buffer.append(0, b"abcd".to_vec());
        buffer.skip(10);
        assert_eq!((buffer.rest(), buffer.position(), buffer.end()), (&b""[..], 10, 10));
        buffer.append(4, b"efghijklm".to_vec());
        assert_eq!((buffer.rest(), buffer.position(), buffer.end()), (&b"klm"[..], 10, 13));
        buffer.skip(u64::MAX);
        assert_eq!(buffer.position(), u64::MAX);
    }
}
