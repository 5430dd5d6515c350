//! `hf-meta cache`: what is kept on this machine, and how to be rid of it.

use std::io::{self, Write};

use clap::Subcommand;
use hf_meta::report::text::{bytes, counted, escape};
use hf_meta::{DiskCache, DiskUsage};

use super::report::Outcome;

/// Look at the headers that are kept on this machine, or delete them
#[derive(Debug, clap::Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print where they are and how much space they take
    Info,
    /// Delete them all; they are read from the Hub again when they are needed
    Clear,
}

pub(crate) fn run(args: &CacheArgs) -> io::Result<Outcome> {
    let mut stdout = anstream::stdout().lock();
    let Some(cache) = DiskCache::from_env() else {
        writeln!(stdout, "nothing is kept: there is no folder for it")?;
        return Ok(Outcome::Fine);
    };
    let folder = escape(&cache.folder().display().to_string());
    match args.action {
        Action::Info => {
            let limit = bytes(DiskCache::DEFAULT_LIMIT);
            writeln!(stdout, "{folder}\n{} of at most {limit}", amount(cache.usage()?))?;
        }
        Action::Clear => writeln!(stdout, "deleted {} from {folder}", amount(cache.clear()?))?,
    }
    Ok(Outcome::Fine)
}

fn amount(usage: DiskUsage) -> String {
    format!("{} in {}", bytes(usage.bytes), counted(usage.entries, "file"))
}
