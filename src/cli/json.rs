//! JSON that is exact and that no terminal acts on.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Prints a value as one line of JSON. What strips colours for other readers would take bytes out of
/// JSON, too, and is passed by.
pub(crate) fn print(value: &impl Serialize) -> io::Result<()> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    write(&mut stdout, value)?;
    stdout.flush()
}

/// Writes a value as one line of JSON.
fn write(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, Harmless))?;
    out.write_all(b"\n")
}

/// Compact JSON, with whatever a terminal would act on or hide in the `\u` notation, which means the
/// same to every reader. JSON itself asks that only of the characters below U+0020.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut plain = text;
        while let Some((at, c)) = plain.char_indices().find(|(_, c)| is_harmful(*c)) {
            out.write_all(&plain.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            plain = &plain[at + c.len_utf8()..];
        }
        out.write_all(plain.as_bytes())
    }
}

/// What is not printed as it is; the same as in tables.
fn is_harmful(c: char) -> bool {
    !c.is_ascii_graphic() && c != ' ' && c.escape_debug().count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_and_harmless() {
        let text = "h.0 \"ü\" \\ 模型 \u{1b}[2J \u{7f} \u{9b} \u{202e} \u{200b} \u{e0041}";
        let mut json = Vec::new();
        write(&mut json, &text).unwrap();
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
        let json = String::from_utf8(json).unwrap();
        assert!(json.contains("ü") && json.contains("模型"));
        assert!(json.trim_end().chars().all(|c| c == '"' || c == '\\' || !is_harmful(c)), "{json}");
        assert!(json.contains("\\u007f") && json.contains("\\udb40\\udc41"), "{json}");
    }
}
