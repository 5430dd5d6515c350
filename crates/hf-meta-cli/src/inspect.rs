//! The command without a subcommand: inspects each source and prints one view of it.

use std::io;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use hf_meta::{CountReport, Error, Model, Weights};
use hf_meta_count::results::metadata::{MetadataDocument, find_thumbnail};
use hf_meta_count::results::text::escape;

use super::context::{CommandContext, SelectionArgs, Sources};
use super::error_report::print_warning;
use super::exit::{CommandError, CommandResult, ExitStatus, failed_to};
use super::memory::{self, Answers, MemoryArgs};
use super::output::{Page, print_json};
use super::repos::{RepoArg, RepoListArgs};
use super::table::OutputFormat;
use super::terminal::{ColorArgs, IS_AGENT};
use super::views::overview::{OverviewRow, SortKey, columns};
use super::views::{explain, headers, metadata, overview, parameters, tree};

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) color: ColorArgs,

    #[command(flatten)]
    repos: RepoListArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    json: JsonArgs,

    #[command(flatten)]
    view: ViewArgs,

    /// Also list the other weight sets
    ///
    /// Sends one more request per 1,000 files of the repository.
    #[arg(long, conflicts_with_all = ["tensors", "tree", "explain", "metadata"])]
    sets: bool,

    /// Show only tensors with names such as `*.attn.*`
    ///
    /// The pattern can contain `*`, `?` and `[abc]`, and must match the whole name. For --tensors, --tree and --json.
    #[arg(long, short, value_name = "GLOB", value_parser = glob::Pattern::new)]
    #[arg(conflicts_with_all = ["summary", "explain", "metadata", "format"])]
    filter: Option<glob::Pattern>,

    // `requires` alone is not enough: clap ignores it if the required option conflicts with a given one.
    /// Omit `header`, `index` and `headers` from the JSON
    #[arg(long, requires = "json")]
    #[arg(conflicts_with_all = ["tensors", "tree", "explain", "metadata", "format"])]
    summary: bool,

    /// Sort the overview or --tensors
    #[arg(long, hide_short_help = true, value_name = "KEY")]
    #[arg(conflicts_with_all = ["json", "tree", "explain", "metadata", "sets"])]
    sort: Option<SortKey>,

    /// Draw --tree down to this depth [default: as deep as fits the screen]
    #[arg(long, hide_short_help = true, value_name = "LEVELS", requires = "tree")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(conflicts_with_all = ["json", "tensors", "explain", "metadata", "format"])]
    depth: Option<u16>,

    /// Do not shorten the values of --metadata
    #[arg(long, hide_short_help = true, requires = "metadata", conflicts_with = "json")]
    full: bool,

    /// Write the thumbnail in the metadata to a file
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "metadata")]
    #[arg(value_hint = ValueHint::FilePath, conflicts_with_all = ["json", "full"])]
    thumbnail: Option<PathBuf>,

    #[command(flatten)]
    memory: MemoryArgs,
}

/// The option for JSON, which is also a form of `--metadata`.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Views")]
struct JsonArgs {
    /// Print JSON compatible with huggingface.js
    ///
    /// Prints one line per repository, including failed ones. With --metadata, prints the metadata of each file.
    #[arg(long, short, conflicts_with_all = ["tensors", "tree", "explain", "format"])]
    json: bool,
}

/// The view to print: the parameters per dtype if no other is selected.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Views")]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "flags that exclude each other")]
struct ViewArgs {
    /// List every tensor
    ///
    /// The columns are name, dtype, shape, bytes and shard.
    #[arg(long, short)]
    tensors: bool,

    /// Draw the module tree
    ///
    /// Identical modules share one row. Elements are as stored.
    #[arg(long)]
    tree: bool,

    /// Explain how the parameters were counted
    ///
    /// Lists unpacked, uncounted and buffer tensors.
    #[arg(long, short = 'x')]
    explain: bool,

    /// Print the metadata of the files, such as a title
    ///
    /// Shortens long values on a terminal, except with --full.
    #[arg(long, short)]
    metadata: bool,

    /// Print one row per repository: table, tsv, csv, md
    ///
    /// This overview is the default for several repositories, and with --sort. The format json is the same as --json
    /// --summary.
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<OutputFormat>,
}

impl InspectArgs {
    /// Returns the format of the overview; `None` for the other views.
    fn overview_format(&self, repos: usize) -> Option<OutputFormat> {
        let ViewArgs { tensors, tree, explain, metadata, format } = self.view;
        let json = self.json.json;
        // Only an overview has rows to sort.
        let has_rows = (repos > 1 || self.sort.is_some()) && !self.sets;
        match format {
            Some(OutputFormat::Json) => None,
            Some(format) => Some(format),
            None if json || tensors || tree || explain || metadata || !has_rows => None,
            None if *IS_AGENT => Some(OutputFormat::Tsv),
            None => Some(OutputFormat::Table),
        }
    }

    /// Checks the combinations that clap cannot express.
    fn validate(&self, repos: usize) -> CommandResult<()> {
        let ViewArgs { tensors, tree, format, .. } = self.view;
        let json = self.json.json;
        self.memory.options()?;
        let message = if self.sort.is_some_and(SortKey::needs_memory) && !self.memory.is_selected()
        {
            "`--sort memory` and `--sort context` require `--memory` or `--fit`"
        } else if tensors && self.sort == Some(SortKey::Active) {
            "`--tensors` can only be sorted by `name`, `parameters` or `bytes`"
        } else if format == Some(OutputFormat::Json) && self.sort.is_some() {
            "`--sort` cannot be combined with JSON output"
        } else if self.filter.is_some() && !(tensors || tree || json) {
            "`--filter` requires `--tensors`, `--tree` or `--json`"
        } else if self.thumbnail.is_some() && repos > 1 {
            "`--thumbnail` requires a single repository"
        } else if self.sets && format.is_some_and(|format| format != OutputFormat::Json) {
            "`--sets` cannot be combined with `--format`, except with `json`"
        } else {
            return Ok(());
        };
        Err(CommandError::usage(message))
    }
}

pub(crate) async fn run(args: &InspectArgs, context: &CommandContext) -> CommandResult {
    let repos = args.repos.list(context.client.endpoint())?;
    args.validate(repos.len())?;
    reject_missing_subcommand(&repos)?;
    let ViewArgs { tensors, tree, metadata, format, .. } = args.view;
    let json = args.json.json;
    let is_json = json || format == Some(OutputFormat::Json);
    let selection = &args.selection;
    let sources = Sources { repos: &repos, selection, is_json, is_streamed: true };
    if let Some(format) = args.overview_format(repos.len()) {
        let is_streamed =
            matches!(format, OutputFormat::Tsv | OutputFormat::Csv) && args.sort.is_none();
        let sources = Sources { is_streamed, ..sources };
        return overview(args, format, sources, context).await;
    }
    // The other views show no headers, so none are kept in memory.
    if tensors || tree || metadata || (json && !args.summary) {
        return print_headers(args, sources, context).await;
    }
    print_counts(args, sources, context).await
}

/// Explains the name of a subcommand that this build lacks, and that is not a repository.
fn reject_missing_subcommand(repos: &[RepoArg]) -> CommandResult<()> {
    let is_complete = cfg!(all(feature = "census", feature = "server"));
    if let (false, Some(name @ ("census" | "serve"))) =
        (is_complete, repos.first().map(|repo| &*repo.display))
    {
        let message = format!("`hf-meta {name}` needs a build with the features `census,server`");
        return Err(CommandError::usage(message));
    }
    Ok(())
}

/// Prints views of the headers.
async fn print_headers(
    args: &InspectArgs,
    sources: Sources<'_>,
    context: &CommandContext,
) -> CommandResult {
    let list_sets = args.sets;
    let memory = args.memory.options()?;
    let mut answers = Answers::default();
    let read = move |model: Model| async move {
        model.other_sets(list_sets).inspect().memory(memory).await
    };
    let print = |source: &RepoArg, weights: Result<Weights, Error>| {
        let weights = weights?;
        write_headers(args, sources.repos.len() > 1, &weights, context)?;
        context.warn(source, &weights.report().findings);
        answers.add(weights.report());
        if args.thumbnail.is_some() && find_thumbnail(&weights).is_none() {
            return Ok(ExitStatus::CheckFailed);
        }
        Ok(unmatched(args, source, &weights).unwrap_or(ExitStatus::Success))
    };
    let status = context.for_each(sources, read, print).await?;
    Ok(conclude(&answers, status, context))
}

/// Prints views of the counts.
async fn print_counts(
    args: &InspectArgs,
    sources: Sources<'_>,
    context: &CommandContext,
) -> CommandResult {
    let list_sets = args.sets;
    let memory = args.memory.options()?;
    let mut answers = Answers::default();
    let write = if args.view.explain {
        explain::write
    } else if memory.is_some() {
        memory::write
    } else {
        parameters::write
    };
    let read =
        move |model: Model| async move { model.other_sets(list_sets).count().memory(memory).await };
    let print = |source: &RepoArg, report: Result<CountReport, Error>| {
        let report = report?;
        if sources.is_json {
            print_json(&report)?;
        } else {
            context.print(|page| write(page, &report))?;
        }
        context.warn(source, &report.findings);
        answers.add(&report);
        Ok(ExitStatus::Success)
    };
    let status = context.for_each(sources, read, print).await?;
    Ok(conclude(&answers, status, context))
}

/// Reports how many of several models fit, and returns the exit status.
fn conclude(answers: &Answers, status: ExitStatus, context: &CommandContext) -> ExitStatus {
    if let Some(text) = answers.describe(2) {
        context.line.print(&text);
    }
    status.max(answers.status())
}

/// Prints the headers of a source.
fn write_headers(
    args: &InspectArgs,
    several: bool,
    weights: &Weights,
    context: &CommandContext,
) -> io::Result<()> {
    let (filter, depth) = (args.filter.as_ref(), args.depth.map(usize::from));
    match (args.view, filter) {
        (ViewArgs { tensors: true, .. }, _) => context.print_rows(|page, is_first| {
            headers::write_tensors(page, weights, filter, args.sort, several, is_first)
        }),
        (ViewArgs { tree: true, .. }, _) => {
            context.print(|page| tree::write(page, weights, filter, depth))
        }
        (ViewArgs { metadata: true, .. }, _) => match &args.thumbnail {
            _ if args.json.json => print_json(&MetadataDocument::new(weights)),
            Some(file) => write_thumbnail(file, weights),
            None => context.print(|page| metadata::write(page, weights, args.full)),
        },
        (_, Some(filter)) => print_json(&headers::filtered_json(weights, filter)?),
        (_, None) => print_json(weights),
    }
}

/// Writes the thumbnail to a file.
fn write_thumbnail(file: &Path, weights: &Weights) -> io::Result<()> {
    let source = &weights.report().source;
    let Some(thumbnail) = find_thumbnail(weights) else {
        print_warning(&format!("{source}: no file has a thumbnail that is an image"));
        return Ok(());
    };
    let write = std::fs::write(file, &thumbnail.bytes);
    write.map_err(failed_to(format!("write `{}`", file.display())))?;
    let description = metadata::describe_thumbnail(&thumbnail);
    Page::print(|page| {
        page.line(&format!("{}: {description}", escape(&file.display().to_string())))
    })
}

/// Reports a filter that no tensor matches. Returns the exit status for it.
fn unmatched(args: &InspectArgs, source: &RepoArg, weights: &Weights) -> Option<ExitStatus> {
    let filter = args.filter.as_ref()?;
    let names = || weights.files().flat_map(|(_, header)| header.tensors().iter());
    if names().any(|(name, _)| filter.matches(name)) {
        return None;
    }
    let is_part = names().any(|(name, _)| name.contains(filter.as_str()));
    let hint = is_part.then(|| format!("; use `*{filter}*` for a part of a name"));
    let hint = hint.unwrap_or_default();
    print_warning(&format!("{}: no tensor matches `{filter}`{hint}", source.display));
    Some(ExitStatus::CheckFailed)
}

/// Prints one row per repository: for other programs as soon as it is known, unless the rows are sorted, and otherwise
/// after all repositories have been read.
async fn overview(
    args: &InspectArgs,
    format: OutputFormat,
    sources: Sources<'_>,
    context: &CommandContext,
) -> CommandResult {
    let is_streamed = sources.is_streamed;
    if is_streamed {
        Page::print(|page| write!(page.out, "{}", columns(None).headings(format)))?;
    }
    let mut rows = Vec::new();
    let mut add = |row: OverviewRow| {
        if is_streamed {
            return Page::print(|page| writeln!(page.out, "{}", columns(None).line(format, &&row)));
        }
        rows.push(row);
        Ok(())
    };
    let (memory, mut answers) = (args.memory.options()?, Answers::default());
    let read = move |model: Model| async move { model.count().memory(memory).await };
    let collect = |source: &RepoArg, result: Result<CountReport, Error>| {
        add(match &result {
            Ok(report) => OverviewRow::from_report(report),
            Err(error) => OverviewRow::from_error(&source.display, error),
        })?;
        let report = result?;
        context.warn(source, &report.findings);
        answers.add(&report);
        Ok(ExitStatus::Success)
    };
    let status = context.for_each(sources, read, collect).await?;
    if is_streamed {
        return Ok(conclude(&answers, status, context));
    }
    Page::print(|page| overview::write(page, rows, format, args.sort))?;
    if format != OutputFormat::Table {
        return Ok(conclude(&answers, status, context));
    }
    // The answers are the last line of a table.
    Page::print(|page| page.lines(answers.describe(1)))?;
    Ok(status.max(answers.status()))
}
