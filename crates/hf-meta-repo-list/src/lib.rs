//! Lists of repository names: one per line, or a column of a CSV file.
//!
//! The command and the census of `hf-meta` read the same lists.

use std::io::{self, Read};
use std::path::Path;

use thiserror::Error;

/// The maximum size of a list in bytes.
const MAX_LIST: u64 = 1 << 30;

/// The default headings of a column of names.
pub const COLUMNS: [&str; 4] = ["repo", "id", "modelId", "repository"];

/// The error returned when a CSV file has no column of names.
#[derive(Debug, Error)]
pub enum ColumnError {
    /// The file has none of the expected columns.
    #[error("has no column `{}`", columns.join("`, `"))]
    Missing {
        /// The expected headings.
        columns: Vec<String>,
    },
    /// The file is not valid CSV.
    #[error("is not a valid CSV file: {0}")]
    Csv(#[from] csv::Error),
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
pub fn lines(text: &str) -> impl Iterator<Item = String> {
    let lines = without_mark(text).lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned)
}

/// Returns the columns that can contain the names: the chosen one, or else the default ones.
#[must_use]
pub fn columns(chosen: Option<&str>) -> Vec<&str> {
    chosen.map_or_else(|| COLUMNS.to_vec(), |column| vec![column])
}

/// Returns the names in a list. A file with the extension `.csv` is a CSV file with a header row, and so is any file
/// if a column is chosen. Any other list has one name per line.
///
/// # Errors
///
/// Returns an error if a CSV file has no such column or is invalid.
pub fn parse(file: &Path, text: &str, column: Option<&str>) -> Result<Vec<String>, ColumnError> {
    let is_csv =
        column.is_some() || file.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
    if is_csv { csv_column(text, &columns(column)) } else { Ok(lines(text).collect()) }
}

/// Returns the values of the first of some columns that are not empty.
fn csv_column(text: &str, columns: &[&str]) -> Result<Vec<String>, ColumnError> {
    let mut reader = csv::Reader::from_reader(without_mark(text).as_bytes());
    let headings = reader.headers()?;
    let position = |column: &&str| headings.iter().position(|heading| heading.trim() == *column);
    let at = columns.iter().find_map(position).ok_or_else(|| ColumnError::Missing {
        columns: columns.iter().copied().map(str::to_owned).collect(),
    })?;
    let mut values = Vec::new();
    for record in reader.records() {
        let record = record?;
        let value = record.get(at).map(str::trim).filter(|value| !value.is_empty());
        values.extend(value.map(str::to_owned));
    }
    Ok(values)
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
        assert_eq!(lines(text).collect::<Vec<_>>(), ["gpt2", "roberta-base"]);
    }

    #[test]
    fn an_oversized_list_is_rejected() {
        assert_eq!(read_bounded(&b"gpt2"[..], 4).unwrap(), "gpt2");
        assert!(read_bounded(&b"gpt2\n"[..], 4).is_err());
    }

    #[test]
    fn a_column_is_found_by_its_heading() {
        let text = "\u{feff}likes,id\n3,gpt2\n5,\"a,b\"\n7,\n";
        assert_eq!(csv_column(text, &["id"]).unwrap(), ["gpt2", "a,b"]);
        assert_eq!(csv_column(text, &["repo", "likes"]).unwrap(), ["3", "5", "7"]);
        assert!(matches!(csv_column(text, &["name"]), Err(ColumnError::Missing { .. })));
        assert!(matches!(csv_column("id,x\ngpt2\n", &["id"]), Err(ColumnError::Csv(_))));
    }

    #[test]
    fn csv_is_detected_by_column_or_extension() {
        let (text, file) = ("id\ngpt2\n", Path::new);
        assert_eq!(parse(file("list"), text, None).unwrap(), ["id", "gpt2"]);
        assert_eq!(parse(file("list.csv"), text, None).unwrap(), ["gpt2"]);
        assert_eq!(parse(file("LIST.CSV"), text, None).unwrap(), ["gpt2"]);
        assert_eq!(parse(file("list"), text, Some("id")).unwrap(), ["gpt2"]);
    }
}
