//! `hf-meta metadata`: edits the metadata of local safetensors files.
//!
//! All files are opened, locked and checked before the first one changes. `hf-meta-edit` writes them.

mod changes;
mod edits;
mod pending;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueHint};
use hf_meta::{Source, Weights};
use hf_meta_count::memory;
use hf_meta_count::results::text::{bytes, escape};
use hf_meta_edit::{EditProgress, FileEdit, FileEditError, unmatched_patterns, weight_files};
use hf_meta_format::formats::safetensors::MetadataEdit;

pub(crate) use self::pending::complete_pending;
use super::context::CommandContext;
use super::error_report::{print_note, print_warning};
use super::exit::{CommandError, CommandResult, ExitStatus};
use super::output::Page;
use super::repos::RepoArg;
use super::signal;
use super::stderr::ProgressLine;

/// Edit the metadata of local safetensors files
///
/// Changes only the header: the data stay as they are, byte for byte. If the new header fits into the old one, it is
/// written in place, in a time that does not depend on the size of the file. Otherwise, the file is written next to the
/// old one and replaces it. An edit that is interrupted is completed or undone by the next command that reads the file.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum MetadataCommand {
    Set(SetArgs),
    Delete(DeleteArgs),
    Copy(CopyArgs),
}

const EXAMPLES: &str = "\
Examples:
  hf-meta metadata set lora.safetensors modelspec.title='My LoRA'
  hf-meta metadata set lora.safetensors modelspec.thumbnail=@cover.png
  hf-meta metadata set ./my-model/ format=pt
  hf-meta metadata delete lora.safetensors 'ss_*' --dry-run
  hf-meta metadata delete lora.safetensors --all
  hf-meta metadata copy org/name lora.safetensors

Exit status:
  0  the files have the metadata, or would have it with `--dry-run`
  1  a file is not valid safetensors, or its data do not have the stated hash
  2  invalid arguments, or metadata that exceed a limit
  3  the source of a copy could not be read from the Hub or the network
  4  a file could not be changed: a link, another program, permissions, no space";

/// Set keys of the metadata
#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// Safetensors file, or a folder or index for all its shards
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    file: PathBuf,

    /// Keys and values; `KEY=@file` reads the value from a file, `KEY=@@…` begins with an @
    ///
    /// An image for `modelspec.thumbnail` becomes a data URL.
    #[arg(value_name = "KEY=VALUE", required = true)]
    entries: Vec<String>,

    #[command(flatten)]
    write: WriteArgs,
}

/// Delete keys of the metadata
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Safetensors file, or a folder or index for all its shards
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    file: PathBuf,

    /// Keys or patterns such as 'ss_*', with `*` and `?`
    #[arg(value_name = "KEY", required_unless_present = "all")]
    keys: Vec<String>,

    /// Delete all keys except `format`, which loaders require; name it to delete it, too
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    write: WriteArgs,
}

/// Copy the metadata of one model to another
///
/// Keys of FILE that FROM does not have stay. `format` and the hashes of the data are not copied.
#[derive(Debug, clap::Args)]
pub(crate) struct CopyArgs {
    /// Source of the metadata: anything that `hf-meta` can read
    #[arg(value_name = "FROM", value_hint = ValueHint::AnyPath)]
    from: OsString,

    /// Safetensors file, or a folder or index for all its shards
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    file: PathBuf,

    #[command(flatten)]
    write: WriteArgs,
}

/// The options of all edits.
#[derive(Clone, Copy, Debug, clap::Args)]
struct WriteArgs {
    /// Print the change, and write nothing
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Space to leave in the header for further edits in place, such as 64K
    ///
    /// A header with less space is written to a new file.
    #[arg(long, value_name = "SIZE", value_parser = parse_reserve)]
    reserve: Option<usize>,
}

fn parse_reserve(text: &str) -> Result<usize, &'static str> {
    let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok());
    let size = number.unwrap_or_else(|| memory::parse_size(text));
    size.and_then(|size| usize::try_from(size).ok()).ok_or("expected a size, such as 64K")
}

pub(crate) async fn run(command: &MetadataCommand, context: &CommandContext) -> CommandResult {
    let (file, write) = match command {
        MetadataCommand::Set(SetArgs { file, write, .. })
        | MetadataCommand::Delete(DeleteArgs { file, write, .. })
        | MetadataCommand::Copy(CopyArgs { file, write, .. }) => (file, *write),
    };
    let edits = match command {
        MetadataCommand::Set(args) => edits::of_entries(&args.entries)?,
        MetadataCommand::Delete(args) => edits::of_keys(&args.keys, args.all),
        MetadataCommand::Copy(args) => {
            let from = [RepoArg::new(&args.from, None, context.client.endpoint())];
            let (sides, status) = context.inspect_all(&from, false).await?;
            let [(_, weights)] = &sides[..] else { return Ok(status) };
            edits::of_weights(weights)
        }
    };
    let files = files(file, context).await?;
    edit_files(&files, &edits, write, &context.line)
}

/// Returns the file, or all shards of a folder or an index.
async fn files(path: &Path, context: &CommandContext) -> CommandResult<Vec<PathBuf>> {
    let is_index = path.extension().is_some_and(|extension| extension == "json");
    if !path.is_dir() && !is_index {
        return Ok(vec![path.to_path_buf()]);
    }
    complete_pending(path, &context.line);
    let model = context.client.source(Source::Local(path.to_path_buf()));
    let weights = model.inspect().await?;
    let Weights::Safetensors(_) = &weights else {
        let message = format!("`{}` has no safetensors files", path.display());
        return Err(CommandError::new(ExitStatus::CheckFailed, message));
    };
    Ok(weight_files(path, &weights.report().filepaths))
}

/// Checks and edits files. Prints a line for each.
fn edit_files(
    files: &[PathBuf],
    edits: &[MetadataEdit],
    write: WriteArgs,
    line: &ProgressLine,
) -> CommandResult {
    for file in files {
        complete_pending(file, line);
    }
    let plan = |path: &PathBuf| FileEdit::new(path, edits, write.reserve);
    let plans = files.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
    for pattern in unmatched_patterns(edits, plans.iter().map(FileEdit::changes)) {
        print_warning(&format!("no key matches `{pattern}`"));
    }
    for plan in plans.iter().filter(|plan| plan.changes().lose_format()) {
        let path = plan.path().display();
        let text =
            "has metadata without `format`: accelerate and transformers 4 do not load it without";
        print_note(&format!("`{path}` {text} `format=pt`"));
    }
    if write.dry_run {
        return print_plans(&plans);
    }
    let progress = EditProgress::default();
    remove_copy_on_interrupt(&progress, line);
    for plan in plans {
        let description = changes::describe(&plan);
        let path = plan.path().display().to_string();
        apply(plan, &progress, line)?;
        Page::print(|page| page.line(&format!("{}: {description}", escape(&path))))?;
    }
    Ok(ExitStatus::Success)
}

/// Writes the new header of a file, with a progress line if the file is rewritten.
fn apply(
    plan: FileEdit,
    progress: &EditProgress,
    line: &ProgressLine,
) -> Result<(), FileEditError> {
    let name = escape(&plan.path().display().to_string());
    let shown = progress.clone();
    let _line = plan.is_new_file().then(|| {
        line.show(None, move |_| {
            let (written, total) = shown.bytes();
            format!("{name}  {} of {} written", bytes(written), bytes(total))
        })
    });
    plan.apply(progress)
}

/// Removes the unfinished copy of a file on Ctrl-C.
fn remove_copy_on_interrupt(progress: &EditProgress, line: &ProgressLine) {
    let progress = progress.clone();
    signal::end_on_interrupt(line, move || {
        let is_removed = progress.remove_copy()?;
        Some(
            if is_removed { "interrupted; the file is unchanged" } else { "interrupted" }
                .to_owned(),
        )
    });
}

/// Prints the changes that would be made.
fn print_plans(plans: &[FileEdit]) -> CommandResult {
    Page::print(|page| {
        for plan in plans {
            page.heading(&plan.path().display().to_string())?;
            changes::write(page, plan.changes())?;
            page.line(&format!("{}; nothing was written", changes::describe(plan)))?;
        }
        Ok(())
    })?;
    Ok(ExitStatus::Success)
}

impl From<FileEditError> for CommandError {
    fn from(error: FileEditError) -> Self {
        let status = match &error {
            FileEditError::InvalidHeader { .. } | FileEditError::WrongHash { .. } => {
                ExitStatus::CheckFailed
            }
            FileEditError::Edit { .. } => ExitStatus::Usage,
            _ => ExitStatus::LocalIo,
        };
        Self::new(status, error)
    }
}
