//! The bytes of a file that have arrived and are not parsed yet.

/// The bytes of a file from a position on, without a gap.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// The number of bytes at the start of `bytes` that were parsed.
    parsed: usize,
    /// The offset of the first byte after `bytes`, or a later one if the bytes between them are not needed.
    end: u64,
    /// The offset after the last byte that arrived.
    arrived: u64,
}

impl Input {
    /// Returns the offset after the bytes that have arrived. It is the first offset of which bytes are needed.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the offset after the last byte that arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns the offset of the first byte that is not parsed.
    pub(super) fn position(&self) -> u64 {
        self.end - self.rest().len() as u64
    }

    /// Returns the bytes that are not parsed.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.parsed..]
    }

    /// Adds bytes that were read at an offset, except those that are known or not needed.
    pub(super) fn append(&mut self, start: u64, mut bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.arrived = self.arrived.max(start.saturating_add(bytes.len() as u64));
        }
        let known = self.end.checked_sub(start).and_then(|known| usize::try_from(known).ok());
        let Some(known) = known.filter(|known| *known < bytes.len()) else { return };
        self.end += (bytes.len() - known) as u64;
        self.bytes.drain(..self.parsed);
        self.parsed = 0;
        if self.bytes.is_empty() {
            // The bytes are parsed in place: a copy would need their memory twice.
            (self.bytes, self.parsed) = (bytes, known);
        } else {
            self.bytes.extend(bytes.drain(known..));
        }
    }

    /// Marks bytes as parsed, also those that have not arrived.
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
        let mut input = Input::default();
        input.append(2, b"x".to_vec());
        assert_eq!((input.position(), input.end()), (0, 0));
        input.append(0, b"abcd".to_vec());
        input.skip(1);
        input.append(2, b"cdef".to_vec());
        input.append(1, b"bc".to_vec());
        assert_eq!((input.rest(), input.position(), input.end()), (&b"bcdef"[..], 1, 6));
    }

    #[test]
    fn bytes_are_skipped_before_they_arrive() {
        let mut input = Input::default();
        input.append(0, b"abcd".to_vec());
        input.skip(10);
        assert_eq!((input.rest(), input.position(), input.end()), (&b""[..], 10, 10));
        input.append(4, b"efghijklm".to_vec());
        assert_eq!((input.rest(), input.position(), input.end()), (&b"klm"[..], 10, 13));
        input.skip(u64::MAX);
        assert_eq!(input.position(), u64::MAX);
    }
}
