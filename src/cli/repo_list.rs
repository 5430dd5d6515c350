//! The repositories of a subcommand: arguments, lines of a file or of stdin, or a column of a CSV file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;

use super::exit::{CommandError, failed_to};

/// The most bytes of a list.
const MAX_LIST: u64 = 1 << 30;

/// The options that name repositories.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RepoListArgs {
    /// Repositories on the Hub, URLs, or local files and folders; `-` reads a list from stdin
    ///
    /// A repository (`org/name`, `name`, `org/name@revision`, `datasets/org/name`,
    /// `hf://org/name@revision/path`), the URL of its page on huggingface.co, the URL of a
    /// `.safetensors` or `.gguf` file or an index on any server, a local file, or a local folder written with a
    /// slash (`./folder`). A list has one of them per line.
    #[arg(value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    #[arg(required_unless_present = "from")]
    repos: Vec<String>,

    /// Read repositories from a file, one per line; lines that start with `#` are comments
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Read this column of --from, which is then a CSV file with headings
    #[arg(long, value_name = "NAME", requires = "from")]
    column: Option<String>,
}

impl RepoListArgs {
    /// Returns the repositories in the order of the arguments, then those of the file.
    pub(crate) fn list(&self) -> Result<Vec<String>, CommandError> {
        let mut repos = Vec::new();
        for repo in &self.repos {
            match &**repo {
                "-" => repos.extend(lines(&read(Path::new("-"))?)),
                _ => repos.push(repo.clone()),
            }
        }
        if let Some(from) = &self.from {
            let text = read(from)?;
            match &self.column {
                Some(column) => repos.extend(csv_column(&text, column)?),
                None => repos.extend(lines(&text)),
            }
        }
        if repos.is_empty() { Err(CommandError::EmptyList) } else { Ok(repos) }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let read = if path == Path::new("-") {
        read_bounded(io::stdin().lock(), MAX_LIST)
    } else {
        File::open(path).and_then(|file| read_bounded(file, MAX_LIST))
    };
    read.map_err(failed_to(format!("read `{}`", path.display())))
}

fn read_bounded(list: impl Read, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    if list.take(limit + 1).read_to_string(&mut text)? as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the list is too long"));
    }
    Ok(text)
}

/// Returns the lines that are neither empty nor comments.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned)
}

/// Returns the values of a column that are not empty.
fn csv_column(text: &str, column: &str) -> Result<Vec<String>, CommandError> {
    let invalid = |error: csv::Error| failed_to("parse the CSV file")(io::Error::other(error));
    let mut reader = csv::Reader::from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let headings = reader.headers().map_err(invalid)?;
    let at = headings.iter().position(|heading| heading.trim() == column);
    let at = at.ok_or_else(|| CommandError::NoColumn { column: column.to_owned() })?;
    let mut values = Vec::new();
    for record in reader.records() {
        let record = record.map_err(invalid)?;
        values.extend(
            record.get(at).map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned),
        );
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_are_no_repositories() {
        let text = "gpt2\r\n\n  # a comment\n roberta-base \n";
        assert_eq!(lines(text).collect::<Vec<_>>(), ["gpt2", "roberta-base"]);
    }

    #[test]
    fn a_list_that_is_too_long_is_refused() {
        assert_eq!(read_bounded(&b"gpt2"[..], 4).unwrap(), "gpt2");
        assert!(read_bounded(&b"gpt2\n"[..], 4).is_err());
    }

    #[test]
    fn a_column_is_found_by_its_heading() {
        let text = "\u{feff}likes,id\n3,gpt2\n5,\"a,b\"\n7,\n";
        assert_eq!(csv_column(text, "id").unwrap(), ["gpt2", "a,b"]);
        assert!(matches!(csv_column(text, "name"), Err(CommandError::NoColumn { .. })));
        assert!(matches!(csv_column("id,x\ngpt2\n", "id"), Err(CommandError::Io(_))));
    }
}
