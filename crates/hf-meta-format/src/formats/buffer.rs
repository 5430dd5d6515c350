//! Buffers the bytes of a header that have arrived but are not yet parsed.

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

/// A contiguous part of a file.
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
