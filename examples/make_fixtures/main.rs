//! Makes the headers under `fixtures/`: `cargo run --example make_fixtures -- [FOLDER] [--check | --large]`.
//!
//! A second run changes nothing. `--check` lists the files that would change, and writes nothing. `--large` makes the
//! headers of models that are too large for fixtures, for the example `local_hub`.

mod models;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use models::Model;

/// Make the fixture headers from descriptions of their architectures.
#[derive(Parser)]
struct Args {
    /// The folder of the repos.
    #[arg(default_value = "fixtures", required_if_eq("large", "true"))]
    folder: PathBuf,
    /// Write nothing; list the files that would change, and exit with 1 if there are any.
    #[arg(long)]
    check: bool,
    /// Make the models that are too large for fixtures, instead.
    #[arg(long)]
    large: bool,
}

fn main() -> io::Result<ExitCode> {
    let Args { folder, check, large } = Args::parse();
    let models = if large { models::large() } else { models::fixtures() };
    let mut changes = 0;
    for model in &models {
        for (path, content) in self::changes(model, &folder)? {
            changes += 1;
            writeln!(io::stdout(), "{}", path.display())?;
            if !check {
                write(&path, &content)?;
            }
        }
    }
    Ok(ExitCode::from(u8::from(check && changes > 0)))
}

/// Returns the files whose content on disk differs from the model, with the content of the model.
fn changes(model: &Model, folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let repo = folder.join(model.repo);
    let files = model.files()?.into_iter().map(|(name, content)| (repo.join(name), content));
    Ok(files.filter(|(path, content)| fs::read(path).ok().as_ref() != Some(content)).collect())
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, content)
}
