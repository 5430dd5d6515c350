//! A JSON tokenizer for headers and indexes.
//!
//! It reads from a text that may end in the middle of a token, because an index is parsed while it arrives. It is
//! about five times as fast as a general parser, because it knows the expected structure and does not copy strings.

use std::borrow::Cow;
use std::collections::BTreeMap;

use memchr::memchr2;
use serde_json::Deserializer;
use serde_json::value::RawValue;

use crate::formats::HeaderError;

/// The reason the tokenizer cannot continue.
#[derive(Debug)]
pub(super) enum JsonError {
    /// The text ends in the middle of a token.
    Incomplete,
    /// The text is not the expected JSON. Boxed, because errors are rare and results are moved often.
    Invalid(Box<InvalidJson>),
    /// The content violates a rule of the format.
    Rule(Box<HeaderError>),
}

impl From<HeaderError> for JsonError {
    fn from(error: HeaderError) -> Self {
        Self::Rule(Box::new(error))
    }
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
    text: &'a str,
    /// The offset of the next byte.
    pub(super) at: usize,
    /// True if the text contains control characters, such as line breaks. Otherwise strings need no check for them.
    has_control: bool,
}

impl<'a> JsonReader<'a> {
    /// Creates a reader for a text. More of it may follow.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, has_control: has_control(text) }
    }

    /// Returns the unread bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Skips whitespace.
    pub(super) fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.text.as_bytes().get(self.at) {
            self.at += 1;
        }
    }

    /// Skips whitespace and returns the next byte.
    pub(super) fn peek(&mut self) -> Result<u8, JsonError> {
        self.skip_space();
        self.text.as_bytes().get(self.at).copied().ok_or(JsonError::Incomplete)
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
    pub(super) fn eat(&mut self, text: &str) -> bool {
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
        let word = self.text.get(self.at..self.at + length);
        self.at += length;
        word.unwrap_or_default()
    }

    /// Moves to the next item of an object or array and returns true, or past its closing bracket and returns false.
    pub(super) fn next_item(&mut self, is_first: bool, close: u8) -> Result<bool, JsonError> {
        if self.peek()? == close {
            self.at += 1;
            return Ok(false);
        }
        if !is_first {
            let is_object = close == b'}';
            let expected = if is_object { "expected `,` or `}`" } else { "expected `,` or `]`" };
            self.expect(b',', expected)?;
        }
        Ok(true)
    }

    /// Calls `read` at each item of an object or array, up to its closing bracket.
    pub(super) fn items(
        &mut self,
        close: u8,
        mut read: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        let mut is_first = true;
        while self.next_item(is_first, close)? {
            read(self)?;
            is_first = false;
        }
        Ok(())
    }

    /// Reads a key and the colon after it.
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let key = self.string("expected a string key")?;
        self.expect(b':', "expected `:`")?;
        Ok(key)
    }

    /// Reads a string and resolves its escapes. `expected` is the message if another value comes next.
    pub(super) fn string(&mut self, expected: &'static str) -> Result<Cow<'a, str>, JsonError> {
        self.expect(b'"', expected)?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            let rest = self.rest();
            let length = memchr2(b'"', b'\\', rest).ok_or(JsonError::Incomplete)?;
            let end = self.at + length;
            if rest[length] == b'"' {
                self.at = end + 1;
                let text = self.text.get(start..end).unwrap_or_default();
                if has_escapes || self.has_control && has_control(text) {
                    return unescape(text, start - 1);
                }
                return Ok(Cow::Borrowed(text));
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
        let is_integer = !matches!(digits.get(length), Some(b'.' | b'e' | b'E'));
        let has_leading_zero = length > 1 && digits[0] == b'0';
        // 19 digits always fit.
        let fits = length <= 19 || self.is_u64(length, number);
        if length > 0 && is_integer && !has_leading_zero && fits {
            self.at += length;
            return Ok(number);
        }
        if digits.is_empty() {
            return Err(JsonError::Incomplete);
        }
        Err(self.invalid(expected))
    }

    /// Returns whether the next `length` digits are a number, and not one that overflows 64 bits.
    #[cold]
    fn is_u64(&self, length: usize, number: u64) -> bool {
        let digits = self.text.get(self.at..self.at + length);
        digits.is_some_and(|digits| digits.parse() == Ok(number))
    }

    /// Reads a value of any kind, and returns its text.
    pub(super) fn value(&mut self) -> Result<&'a str, JsonError> {
        self.skip_space();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut values = Deserializer::from_str(rest).into_iter::<&RawValue>();
        let value = values.next();
        let length = values.byte_offset();
        match value {
            // A number or a word at the end of the text may be incomplete.
            Some(Ok(value)) if length < rest.len() || rest.ends_with(['"', ']', '}']) => {
                self.at += length;
                Ok(value.get())
            }
            Some(Err(error)) if !error.is_eof() => {
                let lines = rest.split_inclusive('\n').take(error.line().saturating_sub(1));
                let end = lines.map(str::len).sum::<usize>() + error.column();
                let offset = end.saturating_sub(1);
                // The next bytes may continue the number, and the position is its end.
                let is_number =
                    rest.ends_with(|end: char| "+-.eE".contains(end) || end.is_ascii_digit());
                if offset + 1 >= rest.len() && is_number {
                    return Err(JsonError::Incomplete);
                }
                self.at += offset;
                Err(self.invalid(message(&error)))
            }
            _ => Err(JsonError::Incomplete),
        }
    }

    /// Reads `null`, or an object of at most `max_entries` entries with distinct keys. Leaves out the entries for which
    /// `read` returns `None`. `name` is the name of the object in error messages.
    pub(super) fn metadata(
        &mut self,
        name: &str,
        max_entries: usize,
        read: fn(&mut Self) -> Result<Option<String>, JsonError>,
    ) -> Result<Option<BTreeMap<String, String>>, JsonError> {
        if self.peek()? == b'n' {
            return self.value().map(|_| None);
        }
        self.expect(b'{', "expected an object")?;
        let mut entries = BTreeMap::new();
        self.items(b'}', |reader| {
            let key = reader.key()?.into_owned();
            let Some(value) = read(reader)? else { return Ok(()) };
            if entries.insert(key, value).is_some() {
                return Err(reader.invalid(format!("a key in `{name}` appears twice")));
            }
            if entries.len() > max_entries {
                return Err(reader.invalid(format!("`{name}` has more than {max_entries} entries")));
            }
            Ok(())
        })?;
        Ok(Some(entries))
    }

    /// Returns an error at the next byte.
    #[cold]
    pub(super) fn invalid(&self, message: impl Into<Cow<'static, str>>) -> JsonError {
        JsonError::Invalid(Box::new(InvalidJson { at: self.at, message: message.into() }))
    }
}

/// Resolves the escapes of a string whose opening quote is at an offset.
#[cold]
fn unescape(text: &str, at: usize) -> Result<Cow<'static, str>, JsonError> {
    serde_json::from_str(&format!("\"{text}\""))
        .map(Cow::Owned)
        .map_err(|error| JsonError::Invalid(Box::new(InvalidJson { at, message: message(&error) })))
}

fn has_control(text: &str) -> bool {
    text.bytes().min().is_some_and(|least| least < b' ')
}

/// Returns the message of an error without its position, which is relative to a part of the text.
fn message(error: &serde_json::Error) -> Cow<'static, str> {
    let position = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    message.strip_suffix(&position).unwrap_or(&message).to_owned().into()
}
