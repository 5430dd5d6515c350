//! The tokens of a JSON text of which the end may not have arrived yet.

use std::borrow::Cow;

use memchr::memchr2;
use serde::Deserialize;
use serde_json::Deserializer;

use crate::formats::safetensors::IndexError;

/// Why reading goes no further.
#[derive(Debug)]
pub(super) enum Stop {
    /// The text ends in the middle of something.
    Incomplete,
    /// The text is not what it should be, from this byte of it on.
    Flaw { at: usize, message: Cow<'static, str> },
    /// The text is all right, but not what it says.
    Refusal(Box<IndexError>),
}

impl From<IndexError> for Stop {
    fn from(error: IndexError) -> Self {
        Self::Refusal(Box::new(error))
    }
}

/// A piece of JSON, and how far it is read.
#[derive(Debug)]
pub(super) struct Text<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

/// A string as it stands in the JSON, between its quotes.
pub(super) struct Quoted<'a> {
    pub(super) bytes: &'a [u8],
    has_escapes: bool,
    at: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// What is not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub(super) fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// The next byte that is not white space.
    pub(super) fn peek(&mut self) -> Result<u8, Stop> {
        self.skip_space();
        self.bytes.get(self.at).copied().ok_or(Stop::Incomplete)
    }

    pub(super) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Stop> {
        if self.peek()? != byte {
            return Err(self.flaw(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// Steps to the next key of an object, or over its end; whether there is a key.
    pub(super) fn goes_on(&mut self, is_first: bool) -> Result<bool, Stop> {
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(false);
        }
        if !is_first {
            self.expect(b',', "expected `,` or `}`")?;
        }
        Ok(true)
    }

    /// A string with the colon that follows a key.
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>, Stop> {
        let key = self.string("expected a key, a string")?.decode()?;
        self.expect(b':', "expected `:`")?;
        Ok(key)
    }

    pub(super) fn string(&mut self, expected: &'static str) -> Result<Quoted<'a>, Stop> {
        self.expect(b'"', expected)?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            let rest = self.bytes.get(self.at..).ok_or(Stop::Incomplete)?;
            let length = memchr2(b'"', b'\\', rest).ok_or(Stop::Incomplete)?;
            let end = self.at + length;
            if rest[length] == b'"' {
                self.at = end + 1;
                return Ok(Quoted { bytes: &self.bytes[start..end], has_escapes, at: start });
            }
            has_escapes = true;
            self.at = end + 2;
        }
    }

    /// A value of any kind.
    pub(super) fn value<T: Deserialize<'a>>(&mut self) -> Result<T, Stop> {
        self.skip_space();
        let rest = self.rest();
        // Of a number or a word that the text ends with more may follow, so the parser must not see it.
        let ends = |byte: &u8| {
            matches!(
                byte,
                b' ' | b'\n' | b'\t' | b'\r' | b'"' | b',' | b':' | b'[' | b']' | b'{' | b'}'
            )
        };
        let settled = rest.iter().rposition(ends).map_or(0, |last| last + 1);
        let mut values = Deserializer::from_slice(&rest[..settled]).into_iter();
        match values.next() {
            Some(Ok(value)) => {
                self.at += values.byte_offset();
                Ok(value)
            }
            Some(Err(error)) if !error.is_eof() => Err(describe(&error, self.at)),
            _ => Err(Stop::Incomplete),
        }
    }

    /// What is wrong with the text at the byte that is next.
    pub(super) fn flaw(&self, message: impl Into<Cow<'static, str>>) -> Stop {
        Stop::Flaw { at: self.at, message: message.into() }
    }
}

impl<'a> Quoted<'a> {
    /// The string that is meant.
    #[inline]
    pub(super) fn decode(&self) -> Result<Cow<'a, str>, Stop> {
        let has_control = self.bytes.iter().copied().min().is_some_and(|least| least < b' ');
        match std::str::from_utf8(self.bytes) {
            Ok(text) if !has_control && !self.has_escapes => Ok(Cow::Borrowed(text)),
            _ => self.unescape(),
        }
    }

    #[cold]
    fn unescape(&self) -> Result<Cow<'a, str>, Stop> {
        let quoted = [b"\"", self.bytes, b"\""].concat();
        let text = serde_json::from_slice(&quoted).map(Cow::Owned);
        text.map_err(|error| describe(&error, self.at - 1))
    }
}

/// What the general parser found wrong with a value. The place it tells depends on how much of the text
/// is there, so that is the start of the value instead.
fn describe(error: &serde_json::Error, start: usize) -> Stop {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
    Stop::Flaw { at: start, message: message.into() }
}
