//! Makes the headers under `fixtures/`: `cargo run --example make_fixtures -- [FOLDER] [--check]`.
//!
//! A second run changes nothing. With `--check` nothing is written; the files that would change are listed instead.

mod models;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

/// Make the fixture headers from descriptions of their architectures.
#[derive(Parser)]
struct Args {
    /// Where the repos go.
    #[arg(default_value = "fixtures")]
    folder: PathBuf,
    /// Write nothing; list the files that would change, and exit with 1 if there are any.
    #[arg(long)]
    check: bool,
}

fn main() -> io::Result<ExitCode> {
    let Args { folder, check } = Args::parse();
    let changes = changes(&folder)?;
    for (path, content) in &changes {
        writeln!(io::stdout(), "{}", path.display())?;
        if !check {
            write(path, content)?;
        }
    }
    Ok(ExitCode::from(u8::from(check && !changes.is_empty())))
}

/// The files whose content on disk is not what the models say, with that content.
fn changes(folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut changes = Vec::new();
    for model in models::documented() {
        let repo = folder.join(model.repo);
        let files = model.files()?.into_iter().map(|(name, content)| (repo.join(name), content));
        changes
            .extend(files.filter(|(path, content)| fs::read(path).ok().as_ref() != Some(content)));
    }
    Ok(changes)
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, content)
}
