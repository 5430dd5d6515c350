//! JSON output that is lossless and safe to print to a terminal.

use std::io::{self, BufWriter, Write};
use std::iter;

use hf_meta::{Error, WeightSet};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::error_report::causes;

/// Prints a value as one line of JSON.
pub(crate) fn print(value: &impl Serialize) -> io::Result<()> {
    // Not through `anstream`, which would remove bytes that look like terminal styles from strings.
    let mut stdout = BufWriter::new(io::stdout().lock());
    write(&mut stdout, value)?;
    stdout.flush()
}

/// Writes a value as one line of JSON.
fn write(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, EscapingFormatter))?;
    out.write_all(b"\n")
}

/// The JSON document for a source that could not be read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailedSource<'a> {
    source: &'a str,
    error: ErrorDocument,
    /// The sets of weights to choose from. Successful results have the same field.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_sets: Option<&'a [WeightSet]>,
}

/// The JSON form of an error.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorDocument {
    code: &'static str,
    /// The error with its causes.
    message: String,
    /// The HTTP status of the last response.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// The seconds until the server accepts requests again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl<'a> FailedSource<'a> {
    pub(crate) fn new(source: &'a str, error: &'a Error) -> Self {
        let other_sets = match error {
            Error::SeveralSets { sets, .. } => Some(&sets[..]),
            _ => None,
        };
        let chain = iter::once(error.to_string()).chain(causes(error));
        let error = ErrorDocument {
            code: error.code(),
            message: chain.collect::<Vec<_>>().join(": "),
            status: error.status(),
            retry_after: error.retry_after().map(|wait| wait.as_secs()),
        };
        Self { source, error, other_sets }
    }
}

/// A compact formatter that escapes control characters and invisible characters as `\u…`. JSON itself requires this
/// only below U+0020.
struct EscapingFormatter;

impl Formatter for EscapingFormatter {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| needs_escape(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

/// Returns whether to escape a character. [`escape`](hf_meta::report::text::escape) escapes the same characters.
fn needs_escape(c: char) -> bool {
    !c.is_ascii_graphic() && c != ' ' && c.escape_debug().count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_survives_the_escaping_of_its_control_characters() {
        let text = "h.0 \"ü\" \\ 模型 \u{1b}[2J \u{7f} \u{9b} \u{202e} \u{200b} \u{e0041}";
        let mut json = Vec::new();
        write(&mut json, &text).unwrap();
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), text);
        let json = String::from_utf8(json).unwrap();
        assert!(json.contains("ü") && json.contains("模型"));
        assert!(
            json.trim_end().chars().all(|c| c == '"' || c == '\\' || !needs_escape(c)),
            "{json}"
        );
        assert!(json.contains("\\u007f") && json.contains("\\udb40\\udc41"), "{json}");
    }
}
