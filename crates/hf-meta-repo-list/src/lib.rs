//! Lists of repository names: one per line, or a column of a table with separators.
//!
//! The command and the census of `hf-meta` read the same lists.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;
use thiserror::Error;

/// The maximum size of a list in bytes.
const MAX_LIST: u64 = 1 << 30;

/// The default headings of a column of names.
pub const COLUMNS: [&str; 4] = ["repo", "id", "modelId", "repository"];

/// The headings of a column of commits.
pub const COMMITS: [&str; 2] = ["commit", "sha"];

/// A name in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedName {
    /// The name of a repository, unchecked.
    pub name: String,
    /// The commit in a separate column.
    pub commit: Option<String>,
    /// The number of its line, from 1. In a CSV file, it is the line on which the row begins. `None` if the list is not
    /// a text file.
    pub line: Option<u64>,
}

impl ListedName {
    fn on_line(name: &str, line: u64) -> Self {
        Self { name: name.to_owned(), commit: None, line: Some(line) }
    }
}

impl From<String> for ListedName {
    fn from(name: String) -> Self {
        Self { name, commit: None, line: None }
    }
}

/// The error returned when a CSV file has no column of names.
#[derive(Debug, Error)]
pub enum ColumnError {
    /// The file has none of the expected columns.
    #[error("has no column `{}`, only `{}`", columns.join("`, `"), headings.join("`, `"))]
    Missing {
        /// The expected headings.
        columns: Vec<String>,
        /// The headings that the file has.
        headings: Vec<String>,
    },
    /// A line is not JSON, or has no name.
    #[error("has no repository name in line {line}: {reason}")]
    Json {
        /// The number of the line, from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// The file is not valid CSV.
    #[error("is not a valid CSV file: {0}")]
    Csv(#[from] csv::Error),
}

/// Opens a list; `-` is stdin.
///
/// # Errors
///
/// Returns an error if the file cannot be opened.
pub fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    Ok(match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path)?),
    })
}

/// Reads a list of at most 1 GiB.
///
/// # Errors
///
/// Returns an error if the list cannot be read, is not UTF-8, or exceeds 1 GiB.
pub fn read(list: impl Read) -> io::Result<String> {
    read_bounded(list, MAX_LIST)
}

fn read_bounded(list: impl Read, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    if list.take(limit + 1).read_to_string(&mut text)? as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the list exceeds 1 GiB"));
    }
    Ok(text)
}

/// Returns the lines that are neither empty nor comments.
pub fn lines(text: &str) -> impl Iterator<Item = ListedName> {
    let lines = (1..).zip(without_mark(text).lines().map(str::trim));
    let names = lines.filter(|(_, name)| !name.is_empty() && !name.starts_with('#'));
    names.map(|(line, name)| ListedName::on_line(name, line))
}

/// Returns the columns that can contain the names: the chosen one, or else the default ones.
pub fn columns(chosen: Option<&str>) -> Vec<&str> {
    chosen.map_or_else(|| COLUMNS.to_vec(), |column| vec![column])
}

/// Returns the names in a list. A file with the extension `.jsonl` or `.ndjson` has a JSON object or a name in quotes on
/// each line. A file with the extension `.csv` or `.tsv` is a table with a header row, and so is any file if a column is
/// chosen. Its first line shows whether tabs, semicolons or commas separate the columns. A column `commit` or `sha`
/// contains the commits. Any other list has one name per line.
///
/// # Errors
///
/// Returns an error if a CSV file has no such column or is invalid, or if a line of a JSON file has no name.
pub fn parse(
    file: &Path,
    text: &str,
    column: Option<&str>,
) -> Result<Vec<ListedName>, ColumnError> {
    let has_extension =
        |name: &str| file.extension().is_some_and(|end| end.eq_ignore_ascii_case(name));
    if has_extension("jsonl") || has_extension("ndjson") {
        let names = lines(text).map(|line| json_name(&line, &columns(column)));
        return names.collect();
    }
    let is_table = column.is_some() || has_extension("csv") || has_extension("tsv");
    if is_table { csv_column(text, &columns(column)) } else { Ok(lines(text).collect()) }
}

/// Returns the name in a line of JSON.
fn json_name(line: &ListedName, columns: &[&str]) -> Result<ListedName, ColumnError> {
    let number = line.line.unwrap_or_default();
    let failed = |reason: String| ColumnError::Json { line: number, reason };
    let value: Value =
        serde_json::from_str(&line.name).map_err(|error| failed(error.to_string()))?;
    let text = |name: &&str| value[name].as_str();
    let name = value.as_str().or_else(|| columns.iter().find_map(text));
    let name = name.ok_or_else(|| failed(format!("no text in `{}`", columns.join("`, `"))))?;
    let commit = COMMITS.iter().find_map(text).map(str::to_owned);
    Ok(ListedName { commit, ..ListedName::on_line(name, number) })
}

/// Returns the values of the first of some columns that are not empty.
fn csv_column(text: &str, columns: &[&str]) -> Result<Vec<ListedName>, ColumnError> {
    let bytes = without_mark(text).as_bytes();
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let delimiter = [b'\t', b';'].into_iter().find(|delimiter| first.contains(delimiter));
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter.unwrap_or(b',')).from_reader(bytes);
    let headings = reader.headers()?;
    let position = |column: &&str| headings.iter().position(|heading| heading.trim() == *column);
    let at = columns.iter().find_map(position).ok_or_else(|| ColumnError::Missing {
        columns: columns.iter().copied().map(str::to_owned).collect(),
        headings: headings.iter().map(|heading| heading.trim().to_owned()).collect(),
    })?;
    let commit = COMMITS.iter().find_map(position);
    let mut values = Vec::new();
    for record in reader.records() {
        let record = record?;
        let value = |at| record.get(at).map(str::trim).filter(|value| !value.is_empty());
        let line = record.position().map_or(0, |position| first_line(bytes, position));
        let commit = commit.and_then(value).map(str::to_owned);
        values
            .extend(value(at).map(|name| ListedName { commit, ..ListedName::on_line(name, line) }));
    }
    Ok(values)
}

/// Returns the number of the line on which a record begins. The position of a record is the end of the record before
/// it, so line breaks may precede the record.
fn first_line(text: &[u8], position: &csv::Position) -> u64 {
    let rest =
        usize::try_from(position.byte()).ok().and_then(|at| text.get(at..)).unwrap_or_default();
    let breaks = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    position.line() + breaks.filter(|byte| **byte == b'\n').count() as u64
}

/// Returns a text without the byte order mark that some programs write.
fn without_mark(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_are_not_names() {
        let text = "\u{feff}gpt2\r\n\n  # a comment\n roberta-base \n";
        let expected = [ListedName::on_line("gpt2", 1), ListedName::on_line("roberta-base", 4)];
        assert_eq!(lines(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_oversized_list_is_rejected() {
        assert_eq!(read_bounded(&b"gpt2"[..], 4).unwrap(), "gpt2");
        assert!(read_bounded(&b"gpt2\n"[..], 4).is_err());
    }

    #[test]
    fn a_column_is_found_by_its_heading() {
        let text = "\u{feff}likes,id\n3,gpt2\n\n5,\"a,\nb\"\n7,\n9,c\n";
        let column = |columns: &[&str]| csv_column(text, columns).unwrap();
        let likes = [("3", 2), ("5", 4), ("7", 6), ("9", 7)];
        assert_eq!(
            column(&["repo", "likes"]),
            likes.map(|(name, line)| ListedName::on_line(name, line))
        );
        let names = [("gpt2", 2), ("a,\nb", 4), ("c", 7)];
        for text in [text, &text.replace('\n', "\r\n")] {
            let found = csv_column(text, &["id"]).unwrap();
            let found: Vec<_> =
                found.iter().map(|found| (found.name.replace('\r', ""), found.line)).collect();
            assert_eq!(found, names.map(|(name, line)| (name.to_owned(), Some(line))));
        }
        assert!(matches!(csv_column(text, &["name"]), Err(ColumnError::Missing { .. })));
        assert!(matches!(csv_column("id,x\ngpt2\n", &["id"]), Err(ColumnError::Csv(_))));
    }

    #[test]
    fn csv_is_detected_by_column_or_extension() {
        let (text, file) = ("id\ngpt2\n", Path::new);
        let lines = [ListedName::on_line("id", 1), ListedName::on_line("gpt2", 2)];
        assert_eq!(parse(file("list"), text, None).unwrap(), lines);
        for (name, column) in [("list.csv", None), ("LIST.CSV", None), ("list", Some("id"))] {
            assert_eq!(parse(file(name), text, column).unwrap(), lines[1..]);
        }
    }

    #[test]
    fn the_first_line_of_a_table_shows_its_separator() {
        for (name, separator) in [("x.csv", ","), ("x.csv", ";"), ("x.csv", "\t"), ("X.TSV", "\t")]
        {
            let text = ["likes,id", "3,gpt2"].map(|line| line.replace(',', separator)).join("\n");
            let parse = |column| super::parse(Path::new(name), &text, column);
            assert_eq!(parse(None).unwrap(), [ListedName::on_line("gpt2", 2)], "{text}");
            let message = parse(Some("x")).unwrap_err().to_string();
            assert_eq!(message, "has no column `x`, only `likes`, `id`");
        }
    }
}
