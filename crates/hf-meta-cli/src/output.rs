//! Output on stdout: text that fits the terminal, and JSON that is lossless and safe to print to a terminal.

use std::error::Error as StdError;
use std::io::{self, BufWriter, Write};
use std::iter::successors;

use anstyle::Style;
use hf_meta::{Error, WeightSet};
use hf_meta_count::results::text::{bytes, escape, thousands};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::exit::failed_to;
use super::table::{OutputFormat, Table};
use super::terminal::{BOLD, IS_AGENT, TerminalSize, truncate_end, width, wrap, wrap_after_label};

/// Text for people, written to stdout.
pub(crate) struct Page<'a> {
    pub(crate) out: &'a mut dyn Write,
    /// The terminal that the text fits; `None` if nothing is wrapped or truncated.
    pub(crate) terminal: Option<TerminalSize>,
}

impl Page<'_> {
    /// Prints a page to stdout.
    pub(crate) fn print(write: impl FnOnce(&mut Page<'_>) -> io::Result<()>) -> io::Result<()> {
        let terminal = TerminalSize::of(&io::stdout());
        write_stdout(anstream::stdout().lock(), |out| write(&mut Page { out, terminal }))
    }

    /// Writes the source of a checkpoint as a heading.
    pub(crate) fn heading(&mut self, source: &str) -> io::Result<()> {
        writeln!(self.out, "{BOLD}{}{BOLD:#}", escape(source))
    }

    /// Writes a sentence. Long ones are wrapped.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.styled_line(Style::new(), text)
    }

    /// Writes sentences, each on a new line.
    pub(crate) fn lines(&mut self, texts: impl IntoIterator<Item = String>) -> io::Result<()> {
        texts.into_iter().try_for_each(|text| self.line(&text))
    }

    /// Writes a sentence in a style.
    pub(crate) fn styled_line(&mut self, style: Style, text: &str) -> io::Result<()> {
        let max_width = self.terminal.map_or(usize::MAX, |size| size.width);
        writeln!(self.out, "{style}{}{style:#}", wrap(text, max_width).join("\n"))
    }

    /// Writes a text after a label. Long ones are wrapped.
    pub(crate) fn labeled(&mut self, style: Style, label: &str, text: &str) -> io::Result<()> {
        let text = wrap_after_label(label.len() + 2, text, self.terminal);
        writeln!(self.out, "{style}{label}{style:#}: {text}")
    }

    /// Writes a table, with tabs for an agent. Calls `rows` twice.
    pub(crate) fn table<R, I: IntoIterator<Item = R>>(
        &mut self,
        table: &Table<'_, R>,
        rows: impl Fn() -> I,
    ) -> io::Result<()> {
        if *IS_AGENT {
            return table.write_rows(self.out, OutputFormat::Tsv, rows());
        }
        table.write(self.out, self.terminal.map(|size| size.width), rows)
    }
}

/// The minimum number of columns for a shortened value.
const MIN_VALUE_WIDTH: usize = 16;

/// Returns a value in one line of at most `max_width` columns, and its size if it was shortened.
pub(crate) fn shortened(value: &str, max_width: usize) -> (String, String) {
    let max_width = max_width.max(MIN_VALUE_WIDTH);
    // A value can have megabytes.
    let start: String = value.chars().take(max_width.saturating_add(1)).collect();
    let mut text = escape(&start);
    if start.len() == value.len() && width(&text) <= max_width {
        return (text, String::new());
    }
    let size = format!(" ({})", bytes(value.len() as u64));
    truncate_end(&mut text, max_width.saturating_sub(width(&size)));
    (text, size)
}

/// Formats a number; an empty text for zero.
pub(crate) fn if_any(number: u64, format: impl FnOnce(u64) -> String) -> String {
    if number == 0 { String::new() } else { format(number) }
}

/// Joins the first texts with commas, and the number of the other texts.
pub(crate) fn joined(texts: impl ExactSizeIterator<Item = String>, max: usize) -> String {
    let more = texts.len().saturating_sub(max) as u64;
    let more = (more > 0).then(|| format!("{} more", thousands(more)));
    texts.take(max).chain(more).collect::<Vec<_>>().join(", ")
}

/// Prints bytes to stdout unmodified. `anstream` would remove bytes that look like terminal styles.
pub(crate) fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    write_stdout(io::stdout().lock(), |out| out.write_all(bytes))
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    write_stdout(io::stdout().lock(), |out| {
        value.serialize(&mut Serializer::with_formatter(&mut *out, EscapingFormatter))?;
        out.write_all(b"\n")
    })
}

fn write_stdout(
    stdout: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(stdout);
    let written = write(&mut out).and_then(|()| out.flush());
    written.map_err(failed_to("write to stdout"))
}

/// The JSON document for a source that could not be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
        let error = ErrorDocument {
            code: error.code(),
            message: message_with_causes(error),
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

/// Returns whether to escape a character. [`escape`](hf_meta_count::results::text::escape) escapes the same characters.
fn needs_escape(c: char) -> bool {
    !c.is_ascii_graphic() && c != ' ' && c.escape_debug().count() > 1
}

/// Returns the first cause and the root cause. The causes between them are layers of the HTTP library.
pub(crate) fn causes(error: &dyn StdError) -> Vec<String> {
    let mut all = successors(error.source(), |&cause| cause.source());
    [all.next(), all.last()].into_iter().flatten().map(ToString::to_string).collect()
}

/// Formats an error in one line, with its first cause and its root cause.
pub(crate) fn message_with_causes(error: &Error) -> String {
    [vec![error.to_string()], causes(error)].concat().join(": ")
}

#[cfg(test)]
mod tests {
    use hf_meta::{CountReport, VerifyReport, Weights};
    use hf_meta_count::results::diff::Diff;
    use hf_meta_count::results::metadata::MetadataDocument;
    use schemars::JsonSchema;
    use schemars::generate::SchemaSettings;

    use super::*;
    use crate::against::AgainstDocument;
    use crate::get::PlanDocument;

    /// The documents of the command.
    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Document {
        Checkpoint(Box<Weights>),
        Summary(Box<CountReport>),
        Verification(VerifyReport),
        Difference(Box<Diff>),
        Metadata(MetadataDocument<'static>),
        Plan(PlanDocument<'static>),
        Files(AgainstDocument<'static>),
        Failure(FailedSource<'static>),
    }

    #[test]
    fn the_schema_of_all_documents_is_up_to_date() {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let schema = generator.into_root_schema_for::<Document>();
        let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/docs/schema.json");
        if std::env::var_os("HF_META_UPDATE_SCHEMA").is_some() {
            std::fs::write(file, &schema).unwrap();
        }
        let stored = std::fs::read_to_string(file).unwrap();
        assert!(stored == schema, "run this test with HF_META_UPDATE_SCHEMA=1");
    }

    #[test]
    fn long_values_are_shortened_to_a_line() {
        assert_eq!(shortened("a short value", 16), ("a short value".to_owned(), String::new()));
        let (text, size) = shortened(&"x".repeat(2_000_000), 30);
        assert_eq!((text.chars().count() + size.len(), &*size), (30, " (2.0 MB)"));
        let (text, _) = shortened("\u{1b}[2J\nsecond line of a long text", 24);
        assert!(text.starts_with("\\u{1b}[2J\\n") && text.ends_with('…'), "{text}");
    }

    #[test]
    fn escaped_strings_round_trip() {
        let text = "h.0 \"ü\" \\ 模型 \u{1b}[2J \u{7f} \u{9b} \u{202e} \u{200b} \u{e0041}";
        let mut json = Vec::new();
        text.serialize(&mut Serializer::with_formatter(&mut json, EscapingFormatter)).unwrap();
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
