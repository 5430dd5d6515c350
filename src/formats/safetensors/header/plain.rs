//! A fast reading of headers as writers make them, several times as fast as a general JSON parser.
//!
//! It knows only what such a header consists of: objects, strings without escapes, whole numbers, all
//! on one line. At anything else it gives up, and the general parser, which alone says what is wrong
//! with a header, reads it from the start.

use std::mem::replace;

use memchr::memchr2;
use serde_json::Deserializer;

use super::metadata::{METADATA, Metadata};
use crate::formats::TensorInfo;

/// Takes what is read of a header.
pub(super) trait Taker<'a> {
    /// Takes the name of the next tensor.
    fn name(&mut self, name: &'a str);

    /// Where the entry of that tensor is read into.
    fn entry(&mut self) -> &mut TensorInfo;

    /// Takes the entry; `None` if the rest is of no use.
    fn take(&mut self) -> Option<()>;

    /// Takes the metadata of the file.
    fn metadata(&mut self, metadata: Metadata);
}

/// Hands every tensor of a header to whoever takes it; `None` if this is not the parser for it.
pub(super) fn read<'a>(json: &'a str, taker: &mut impl Taker<'a>) -> Option<()> {
    if json.bytes().min().is_some_and(|least| least < b' ') {
        return None;
    }
    let mut text = Text { json, at: 0 };
    let mut has_metadata = false;
    let mut more = text.opens(b'{', b'}')?;
    while more {
        let key = text.string()?;
        text.expect(b':')?;
        if key != METADATA {
            taker.name(key);
            text.entry(taker.entry())?;
            taker.take()?;
        } else if replace(&mut has_metadata, true) {
            return None;
        } else {
            let rest = &json[text.at..];
            let mut metadata = Deserializer::from_str(rest).into_iter::<Metadata>();
            taker.metadata(metadata.next()?.ok()?);
            text.at += metadata.byte_offset();
        }
        more = text.goes_on(b'}')?;
    }
    text.skip_space();
    (text.at == json.len()).then_some(())
}

/// A text, and how far it is read.
struct Text<'a> {
    json: &'a str,
    at: usize,
}

impl<'a> Text<'a> {
    fn entry(&mut self, entry: &mut TensorInfo) -> Option<()> {
        let start = self.at;
        self.compact_entry(entry).or_else(|| {
            self.at = start;
            self.any_entry(entry)
        })
    }

    /// An entry as the `safetensors` crate writes it, without spaces and with its fields in this order.
    fn compact_entry(&mut self, entry: &mut TensorInfo) -> Option<()> {
        self.literal(r#"{"dtype":""#)?;
        entry.dtype = self.word().into();
        self.literal(r#"","shape":["#)?;
        entry.shape.clear();
        if self.literal("]").is_none() {
            entry.shape.push(self.number()?);
            while self.literal("]").is_none() {
                self.literal(",")?;
                entry.shape.push(self.number()?);
            }
        }
        self.literal(r#","data_offsets":["#)?;
        let begin = self.number()?;
        self.literal(",")?;
        entry.data_offsets = (begin, self.number()?);
        self.literal("]}")
    }

    /// An entry with its fields in any order, and any spaces.
    fn any_entry(&mut self, entry: &mut TensorInfo) -> Option<()> {
        let (mut has_dtype, mut has_shape, mut has_offsets) = (false, false, false);
        let mut more = self.opens(b'{', b'}')?;
        while more {
            let field = self.string()?;
            self.expect(b':')?;
            let is_twice = match field {
                "dtype" => {
                    entry.dtype = self.string()?.into();
                    replace(&mut has_dtype, true)
                }
                "shape" => {
                    self.numbers(&mut entry.shape)?;
                    replace(&mut has_shape, true)
                }
                "data_offsets" => {
                    entry.data_offsets = self.pair()?;
                    replace(&mut has_offsets, true)
                }
                _ => return None,
            };
            more = self.goes_on(b'}').filter(|_| !is_twice)?;
        }
        (has_dtype && has_shape && has_offsets).then_some(())
    }

    fn pair(&mut self) -> Option<(u64, u64)> {
        self.expect(b'[')?;
        self.skip_space();
        let begin = self.number()?;
        self.expect(b',')?;
        self.skip_space();
        let end = self.number()?;
        self.expect(b']')?;
        Some((begin, end))
    }

    fn numbers(&mut self, numbers: &mut Vec<u64>) -> Option<()> {
        numbers.clear();
        let mut more = self.opens(b'[', b']')?;
        while more {
            self.skip_space();
            numbers.push(self.number()?);
            more = self.goes_on(b']')?;
        }
        Some(())
    }

    /// A string without escapes, as it stands there.
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        let rest = &self.json.as_bytes()[start..];
        let length = memchr2(b'"', b'\\', rest)?;
        self.at = start + length + 1;
        (rest[length] == b'"').then(|| &self.json[start..start + length])
    }

    /// The letters, digits and underscores that come next.
    fn word(&mut self) -> &'a str {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length =
            self.json.as_bytes()[self.at..].iter().take_while(|byte| is_part(byte)).count();
        let word = &self.json[self.at..self.at + length];
        self.at += length;
        word
    }

    /// A whole number, without the sign, fraction, exponent or needless zeros that others may have.
    fn number(&mut self) -> Option<u64> {
        /// So many digits always fit in 64 bits.
        const MOST_DIGITS: usize = 19;
        let digits = &self.json.as_bytes()[self.at..];
        let (mut number, mut length) = (0_u64, 0);
        while let Some(&digit @ b'0'..=b'9') = digits.get(length) {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            length += 1;
        }
        self.at += length;
        let is_usual = length == 1 || (length <= MOST_DIGITS && digits.first() != Some(&b'0'));
        (length > 0 && is_usual).then_some(number)
    }

    /// Steps over a text, if it comes next.
    fn literal(&mut self, text: &str) -> Option<()> {
        let comes = self.json.as_bytes()[self.at..].starts_with(text.as_bytes());
        comes.then(|| self.at += text.len())
    }

    /// Steps into an object or an array; whether there is anything in it.
    fn opens(&mut self, open: u8, close: u8) -> Option<bool> {
        self.expect(open)?;
        self.skip_space();
        let is_empty = self.peek()? == close;
        self.at += usize::from(is_empty);
        Some(!is_empty)
    }

    /// Steps over what stands behind an element; whether another one follows.
    fn goes_on(&mut self, close: u8) -> Option<bool> {
        self.skip_space();
        let next = self.peek()?;
        self.at += 1;
        (next == b',' || next == close).then_some(next == b',')
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn skip_space(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.json.as_bytes().get(self.at).copied()
    }
}
