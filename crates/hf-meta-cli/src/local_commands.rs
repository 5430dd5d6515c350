//! Subcommands that send no requests: `hf-meta cache`, which manages the local header cache, and `hf-meta man`, which
//! generates manual pages.

use std::io;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_mangen::Man;
use hf_meta::report::text::{bytes, counted, escape};
use hf_meta::{DiskCache, DiskUsage};

use super::exit::{CommandError, ExitStatus, failed_to};
use super::output::{Page, print_bytes};

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

/// Print the manual page, or write the pages of all subcommands to a folder
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Output folder for the pages, such as ~/.local/share/man/man1
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Prints the location and the size of the cache, or clears it.
pub(crate) fn cache(args: &CacheArgs) -> Result<ExitStatus, CommandError> {
    let text = match DiskCache::from_env() {
        None => "no disk cache: it is disabled by HF_META_CACHE, or there is no home directory"
            .to_owned(),
        Some(cache) => manage(&cache, &args.command)?,
    };
    Page::print(|page| writeln!(page.out, "{text}"))?;
    Ok(ExitStatus::Success)
}

fn manage(cache: &DiskCache, command: &CacheCommand) -> io::Result<String> {
    let folder = escape(&cache.folder().display().to_string());
    let size =
        |usage: DiskUsage| format!("{} in {}", bytes(usage.bytes), counted(usage.entries, "file"));
    Ok(match command {
        CacheCommand::Info => {
            let limit = bytes(DiskCache::DEFAULT_LIMIT);
            let usage = cache.usage().map_err(failed_to(format!("read the cache `{folder}`")))?;
            format!("{folder}\n{} (limit: {limit})", size(usage))
        }
        CacheCommand::Clear => {
            let deleted =
                cache.clear().map_err(failed_to(format!("clear the cache `{folder}`")))?;
            format!("deleted {} from {folder}", size(deleted))
        }
    })
}

/// Prints the manual page of the command, or writes all pages.
pub(crate) fn man(args: &ManArgs, command: clap::Command) -> Result<ExitStatus, CommandError> {
    let command = without_help(command);
    if let Some(folder) = &args.output {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let write = std::fs::create_dir_all(folder).and_then(|()| write_pages(command, folder));
        write.map_err(failed_to(format!("write to `{}`", folder.display())))?;
    } else {
        print_bytes(page(&Man::new(command))?.as_bytes())?;
    }
    Ok(ExitStatus::Success)
}

/// Writes the manual pages of a command and its subcommands.
fn write_pages(command: clap::Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(subcommand.clone(), folder)?;
    }
    let man = Man::new(command);
    std::fs::write(folder.join(man.get_filename()), page(&man)?)
}

/// Renders a page whose examples keep their line breaks and alignment. `clap_mangen` joins and justifies them.
fn page(man: &Man) -> io::Result<String> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).replace("\n.SH EXTRA\n", "\n.SH EXTRA\n.nf\n"))
}

/// Hides the `help` subcommands, each of which would add one page per subcommand.
fn without_help(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|command| match command.get_name() {
        "help" => command.hide(true),
        _ => without_help(command),
    })
}
