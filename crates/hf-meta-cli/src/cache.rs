//! `hf-meta cache`: manages the local header cache.

use std::io::{self, Write};

use clap::Subcommand;
use hf_meta::report::text::{bytes, counted, escape};
use hf_meta::{DiskCache, DiskUsage};

use super::exit::{ExitStatus, failed_to};

/// Inspect or clear the local header cache
#[derive(Debug, clap::Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Print the location and size of the cache
    Info,
    /// Delete all cached headers; they are fetched again when needed
    Clear,
}

pub(crate) fn run(args: &CacheArgs) -> io::Result<ExitStatus> {
    let mut stdout = anstream::stdout().lock();
    let Some(cache) = DiskCache::from_env() else {
        writeln!(
            stdout,
            "no disk cache: it is disabled by HF_META_CACHE, or there is no home directory"
        )?;
        return Ok(ExitStatus::Success);
    };
    let folder = escape(&cache.folder().display().to_string());
    match args.command {
        CacheCommand::Info => {
            let limit = bytes(DiskCache::DEFAULT_LIMIT);
            let usage = cache.usage().map_err(failed_to(format!("read the cache `{folder}`")))?;
            writeln!(stdout, "{folder}\n{} (limit: {limit})", size(usage))?;
        }
        CacheCommand::Clear => {
            let deleted =
                cache.clear().map_err(failed_to(format!("clear the cache `{folder}`")))?;
            writeln!(stdout, "deleted {} from {folder}", size(deleted))?;
        }
    }
    Ok(ExitStatus::Success)
}

fn size(usage: DiskUsage) -> String {
    format!("{} in {}", bytes(usage.bytes), counted(usage.entries, "file"))
}
