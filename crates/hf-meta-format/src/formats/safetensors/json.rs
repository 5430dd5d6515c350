//! A JSON tokenizer for headers and indexes.
//!
//! It reads from a slice that may end in the middle of a token, because an index is parsed while it arrives. It is
//! about five times as fast as a general parser, because it knows the expected structure and does not copy strings.

use std::borrow::Cow;

use memchr::memchr2;
use serde::Deserialize;
use serde_json::Deserializer;

/// The reason the tokenizer cannot continue.
#[derive(Debug)]
pub(super) enum JsonError {
    /// The text ends in the middle of a token.
    Incomplete,
    /// The text is not the expected JSON. Boxed, because errors are rare and results are moved often.
    Invalid(Box<InvalidJson>),
}

/// A position at which a text is not the expected JSON.
#[derive(Debug)]
pub(super) struct InvalidJson {
    /// The offset in the text, in bytes.
    pub(super) at: usize,
    /// The reason, such as "expected `:`".
    pub(super) message: Cow<'static, str>,
}

/// A JSON text and a read position.
#[derive(Debug)]
pub(super) struct JsonReader<'a> {
    bytes: &'a [u8],
    /// The end of the last delimiter in the text, computed on demand. It is found by searching backwards, which must
    /// not be repeated for every value before a long number.
    settled: Option<usize>,
    pub(super) at: usize,
    /// The text as a `str`, if it is known to be UTF-8 without control characters. Strings then need no further
    /// checks.
    checked: Option<&'a str>,
}

/// The raw content of a JSON string, between the quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawString<'a> {
    pub(super) bytes: &'a [u8],
    checked: Option<&'a str>,
    has_escapes: bool,
    at: usize,
}

impl<'a> JsonReader<'a> {
    /// Creates a reader for the start of a text. More of it may follow.
    pub(super) fn from_bytes(bytes: &'a [u8]) -> Self {
        Self { bytes, settled: None, at: 0, checked: None }
    }

    /// Creates a reader for a complete text.
    pub(super) fn from_text(text: &'a str) -> Self {
        let has_control = text.bytes().min().is_some_and(|least| least < b' ');
        Self {
            bytes: text.as_bytes(),
            settled: None,
            at: 0,
            checked: (!has_control).then_some(text),
        }
    }

    /// Returns the unread bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Skips whitespace.
    pub(super) fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// Skips whitespace and returns the next byte.
    pub(super) fn peek(&mut self) -> Result<u8, JsonError> {
        self.skip_space();
        self.bytes.get(self.at).copied().ok_or(JsonError::Incomplete)
    }

    /// Skips whitespace and consumes `byte`. For any other byte, returns an error with the message `expected`.
    pub(super) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonError> {
        if self.peek()? != byte {
            return Err(self.invalid(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// Consumes `text` if it comes next, and returns whether it did.
    #[inline]
    pub(super) fn literal(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text.as_bytes());
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    /// Reads ASCII letters, digits and underscores. May be empty.
    #[inline]
    pub(super) fn word(&mut self) -> &'a str {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = self.rest().iter().take_while(|byte| is_part(byte)).count();
        let word = match self.checked {
            Some(text) => text.get(self.at..self.at + length),
            None => std::str::from_utf8(&self.rest()[..length]).ok(),
        };
        self.at += length;
        word.unwrap_or_default()
    }

    /// Moves to the next key of an object and returns true, or past the end of the object and returns false.
    pub(super) fn next_entry(&mut self, is_first: bool) -> Result<bool, JsonError> {
        self.next_item(is_first, b'}', "expected `,` or `}`")
    }

    /// Moves to the next element of an array and returns true, or past the end of the array and returns false.
    pub(super) fn next_element(&mut self, is_first: bool) -> Result<bool, JsonError> {
        self.next_item(is_first, b']', "expected `,` or `]`")
    }

    fn next_item(
        &mut self,
        is_first: bool,
        close: u8,
        expected: &'static str,
    ) -> Result<bool, JsonError> {
        if self.peek()? == close {
            self.at += 1;
            return Ok(false);
        }
        if !is_first {
            self.expect(b',', expected)?;
        }
        Ok(true)
    }

    /// Reads a key and the colon after it.
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let key = self.string("expected a string key")?.decode()?;
        self.expect(b':', "expected `:`")?;
        Ok(key)
    }

    /// Reads a string. `expected` is the message if another value comes next.
    pub(super) fn string(&mut self, expected: &'static str) -> Result<RawString<'a>, JsonError> {
        self.expect(b'"', expected)?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            let rest = self.bytes.get(self.at..).ok_or(JsonError::Incomplete)?;
            let length = memchr2(b'"', b'\\', rest).ok_or(JsonError::Incomplete)?;
            let end = self.at + length;
            if rest[length] == b'"' {
                self.at = end + 1;
                let checked = self.checked.and_then(|text| text.get(start..end));
                let bytes = &self.bytes[start..end];
                return Ok(RawString { bytes, checked, has_escapes, at: start });
            }
            has_escapes = true;
            self.at = end + 2;
        }
    }

    /// Reads an unsigned 64-bit integer. `expected` is the message if another value comes next.
    #[inline]
    pub(super) fn number(&mut self, expected: &'static str) -> Result<u64, JsonError> {
        self.skip_space();
        let digits = self.rest();
        let (mut number, mut length) = (0_u64, 0);
        while let Some(&digit @ b'0'..=b'9') = digits.get(length) {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            length += 1;
        }
        // 19 digits always fit.
        if matches!(length, 1..=19) && (digits[0] != b'0' || length == 1) {
            let is_whole = !matches!(digits.get(length), Some(b'.' | b'e' | b'E'));
            if is_whole {
                self.at += length;
                return Ok(number);
            }
        }
        self.long_number(length, expected)
    }

    /// Reads a number of `length` digits, which may overflow.
    #[cold]
    fn long_number(&mut self, length: usize, expected: &'static str) -> Result<u64, JsonError> {
        let (digits, rest) = self.rest().split_at(length);
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        match number {
            Some(number)
                if length == 20
                    && digits[0] != b'0'
                    && !matches!(rest.first(), Some(b'.' | b'e' | b'E')) =>
            {
                self.at += length;
                Ok(number)
            }
            _ if digits.is_empty() && rest.is_empty() => Err(JsonError::Incomplete),
            _ => Err(self.invalid(expected)),
        }
    }

    /// Reads a value of any kind.
    pub(super) fn value<T: Deserialize<'a>>(&mut self) -> Result<T, JsonError> {
        self.skip_space();
        // A number or word at the end of the text may be incomplete, so the parser must not see it.
        let ends = |byte: &u8| {
            matches!(
                byte,
                b' ' | b'\n' | b'\t' | b'\r' | b'"' | b',' | b':' | b'[' | b']' | b'{' | b'}'
            )
        };
        let bytes = self.bytes;
        let settled = *self
            .settled
            .get_or_insert_with(|| bytes.iter().rposition(ends).map_or(0, |last| last + 1));
        let rest = bytes.get(self.at..settled).unwrap_or_default();
        let mut values = Deserializer::from_slice(rest).into_iter();
        match values.next() {
            Some(Ok(value)) => {
                self.at += values.byte_offset();
                Ok(value)
            }
            Some(Err(error)) if !error.is_eof() => Err(from_serde(&error, self.at)),
            _ => Err(JsonError::Incomplete),
        }
    }

    /// Returns an error at the next byte.
    #[cold]
    pub(super) fn invalid(&self, message: impl Into<Cow<'static, str>>) -> JsonError {
        JsonError::Invalid(Box::new(InvalidJson { at: self.at, message: message.into() }))
    }
}

impl<'a> RawString<'a> {
    /// Returns the string with escapes resolved.
    #[inline]
    pub(super) fn decode(&self) -> Result<Cow<'a, str>, JsonError> {
        if self.has_escapes {
            return self.unescape();
        }
        if let Some(text) = self.checked {
            return Ok(Cow::Borrowed(text));
        }
        let has_control = self.bytes.iter().copied().min().is_some_and(|least| least < b' ');
        match std::str::from_utf8(self.bytes) {
            Ok(text) if !has_control => Ok(Cow::Borrowed(text)),
            _ => self.unescape(),
        }
    }

    #[cold]
    fn unescape(&self) -> Result<Cow<'a, str>, JsonError> {
        let quoted = [b"\"", self.bytes, b"\""].concat();
        let text = serde_json::from_slice(&quoted).map(Cow::Owned);
        text.map_err(|error| from_serde(&error, self.at - 1))
    }
}

/// Converts a `serde_json` error in a value that starts at `at`. Reports the start of the value, because the position
/// in the error depends on how much of the text has arrived.
fn from_serde(error: &serde_json::Error, at: usize) -> JsonError {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
    JsonError::Invalid(Box::new(InvalidJson { at, message: message.into() }))
}
