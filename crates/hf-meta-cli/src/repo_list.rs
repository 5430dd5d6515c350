//! The repositories of a subcommand: from arguments, from lines of a file or stdin, or from a table column.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use hf_meta::name_list::{self, lines};
#[cfg(feature = "census")]
use hf_meta_census::Manifest;

use super::exit::{CommandError, failed_to};

/// The options that name repositories.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RepoListArgs {
    /// Repositories on the Hub, URLs, or local files and folders; `-` reads a list from stdin
    ///
    /// Each REPO is a repository (`org/name`, `name`, `org/name@revision`, `datasets/org/name`,
    /// `hf://org/name@revision/path`), the URL of its page on huggingface.co, the URL of a
    /// `.safetensors` or `.gguf` file or an index on any server, a local file, or a local folder
    /// written with a slash (`./folder`). Lists contain one REPO per line.
    #[arg(value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    #[arg(required_unless_present = "from")]
    repos: Vec<String>,

    /// Read repositories from a file: one per line, or a table (CSV, or Parquet in builds with `census`)
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Column that contains the names, for --from [default: repo, id, modelId or repository]
    #[arg(long, value_name = "NAME", requires = "from")]
    column: Option<String>,
}

impl RepoListArgs {
    /// Returns the repositories from the arguments, followed by those from the file.
    pub(crate) fn list(&self) -> Result<Vec<String>, CommandError> {
        let mut repos = Vec::new();
        for repo in &self.repos {
            match &**repo {
                "-" => repos.extend(lines(&read(Path::new("-"))?)),
                _ => repos.push(repo.clone()),
            }
        }
        if let Some(from) = &self.from {
            repos.extend(read_names(from, self.column.as_deref())?);
        }
        if repos.is_empty() {
            Err(CommandError::Usage("the list contains no repositories"))
        } else {
            Ok(repos)
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let read = if path == Path::new("-") {
        name_list::read(io::stdin().lock())
    } else {
        File::open(path).and_then(name_list::read)
    };
    read.map_err(failed_to(format!("read `{}`", path.display())))
}

/// Reads the repositories from a file.
fn read_names(file: &Path, column: Option<&str>) -> Result<Vec<String>, CommandError> {
    #[cfg(feature = "census")]
    if file != Path::new("-") {
        return Ok(Manifest::open(file, column)?.names()?);
    }
    name_list::parse(file, &read(file)?, column).map_err(|error| CommandError::List {
        file: file.display().to_string(),
        reason: error.to_string(),
    })
}
