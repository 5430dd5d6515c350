//! The command without a subcommand: inspects each source and prints one view of it.

use std::io;

use hf_meta::{CountReport, Error, Model, Weights};

use super::context::{CommandContext, SelectionArgs, Sources};
use super::exit::{CommandError, ExitStatus};
use super::output::{Page, print_json};
use super::repos::{RepoArg, RepoListArgs};
use super::table::RowFormat;
use super::terminal::ColorArgs;
use super::views::overview::{OverviewRow, SortKey};
use super::views::{explain, headers, overview, parameters, tree};

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    repos: RepoListArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    /// Also list the other weight sets in each repository (one more request per 1,000 files)
    #[arg(long, conflicts_with_all = ["tensors", "tree", "explain", "metadata"])]
    sets: bool,

    #[command(flatten)]
    view: ViewArgs,

    /// List only tensors whose names match the pattern (`*`, `?`, `[abc]`)
    #[arg(long, short, value_name = "GLOB", value_parser = glob::Pattern::new)]
    #[arg(requires = "tensors", conflicts_with_all = ["json", "tree", "explain", "metadata"])]
    filter: Option<glob::Pattern>,

    // `requires` alone is not enough: clap ignores it if the required option conflicts with a given one.
    /// Omit `header`, `index` and `headers` from the JSON
    #[arg(long, requires = "json")]
    #[arg(conflicts_with_all = ["tensors", "tree", "explain", "metadata"])]
    summary: bool,

    /// Sort the overview or --tensors
    #[arg(long, value_name = "KEY")]
    #[arg(conflicts_with_all = ["json", "tree", "explain", "metadata", "sets"])]
    sort: Option<SortKey>,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    /// Draw --tree down to this depth [default: as deep as fits the screen]
    #[arg(long, value_name = "LEVELS", requires = "tree")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(conflicts_with_all = ["json", "tensors", "explain", "metadata", "format"])]
    depth: Option<u16>,
}

/// The view to print: the parameters per dtype if no other is selected.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "flags that exclude each other")]
struct ViewArgs {
    /// Print JSON compatible with huggingface.js, one line per repository, including failed ones
    #[arg(long, short)]
    json: bool,

    /// List every tensor: name, dtype, shape, bytes, shard
    #[arg(long, short)]
    tensors: bool,

    /// Draw the module tree, with identical modules folded into one row; elements are as stored
    #[arg(long)]
    tree: bool,

    /// Explain how the parameters were counted: unpacked, uncounted and buffer tensors
    #[arg(long, short = 'x')]
    explain: bool,

    /// Print the metadata of the files, such as the ModelSpec title and author
    #[arg(long, short)]
    metadata: bool,

    /// Print an overview with one row per repository (the default for several repositories, and with --sort): table, tsv, csv or
    /// md; json is the same as --json --summary
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<OutputFormat>,
}

/// The formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OutputFormat {
    /// A human-readable table
    Table,
    /// Tab-separated values
    Tsv,
    /// Comma-separated values
    Csv,
    /// A Markdown table
    Md,
    /// One line of JSON per repository, same as --json --summary
    Json,
}

/// The view that the options select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Parameters,
    Explain,
    Tensors,
    Tree,
    Metadata,
    Json,
    /// JSON without headers.
    JsonSummary,
    /// One row per repository; without a format, a table for people.
    Overview(Option<RowFormat>),
}

impl View {
    fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::JsonSummary)
    }

    /// Returns whether the view shows only counts, so that no headers are kept in memory.
    fn needs_counts_only(self) -> bool {
        matches!(self, Self::Parameters | Self::Explain | Self::JsonSummary | Self::Overview(_))
    }
}

impl InspectArgs {
    fn view(&self, repos: usize) -> View {
        let ViewArgs { json, tensors, tree, explain, metadata, format } = self.view;
        // Only an overview has rows to sort.
        let has_rows = (repos > 1 || self.sort.is_some()) && !self.sets;
        match format {
            Some(OutputFormat::Json) => View::JsonSummary,
            Some(OutputFormat::Table) => View::Overview(None),
            Some(OutputFormat::Tsv) => View::Overview(Some(RowFormat::Tsv)),
            Some(OutputFormat::Csv) => View::Overview(Some(RowFormat::Csv)),
            Some(OutputFormat::Md) => View::Overview(Some(RowFormat::Markdown)),
            None if json && self.summary => View::JsonSummary,
            None if json => View::Json,
            None if tensors => View::Tensors,
            None if tree => View::Tree,
            None if explain => View::Explain,
            None if metadata => View::Metadata,
            None if has_rows => View::Overview(None),
            None => View::Parameters,
        }
    }

    /// Checks the combinations that clap cannot express.
    fn validate(&self) -> Result<(), CommandError> {
        let format = self.view.format;
        let message = if self.view.tensors && self.sort == Some(SortKey::Active) {
            "`--tensors` can only be sorted by `name`, `parameters` or `bytes`"
        } else if format == Some(OutputFormat::Json) && self.sort.is_some() {
            "`--sort` cannot be combined with JSON output"
        } else if self.sets && format.is_some_and(|format| format != OutputFormat::Json) {
            "`--sets` cannot be combined with `--format`, except with `json`"
        } else {
            return Ok(());
        };
        Err(CommandError::usage(message))
    }
}

/// The part of a result that the view needs.
enum InspectedSource {
    Counts(Box<CountReport>),
    Headers(Box<Weights>),
}

impl InspectedSource {
    fn report(&self) -> &CountReport {
        match self {
            Self::Counts(report) => report,
            Self::Headers(weights) => weights.report(),
        }
    }
}

pub(crate) async fn run(
    args: &InspectArgs,
    context: &CommandContext,
) -> Result<ExitStatus, CommandError> {
    args.validate()?;
    let repos = args.repos.list()?;
    let view = args.view(repos.len());
    let sources = Sources { repos: &repos, selection: &args.selection, is_json: view.is_json() };
    if let View::Overview(format) = view {
        return overview(args, format, sources, context).await;
    }
    let list_sets = args.sets;
    let read = move |model: Model| async move {
        let model = model.other_sets(list_sets);
        Ok(if view.needs_counts_only() {
            InspectedSource::Counts(Box::new(model.count().await?))
        } else {
            InspectedSource::Headers(Box::new(model.inspect().await?))
        })
    };
    let print = |source: &RepoArg, inspected: Result<InspectedSource, Error>| match inspected {
        Ok(inspected) => {
            match &inspected {
                InspectedSource::Counts(report) if view.is_json() => print_json(report)?,
                InspectedSource::Headers(weights) if view.is_json() => print_json(weights)?,
                InspectedSource::Counts(report) => context.print(|page| match view {
                    View::Explain => explain::write(page, report),
                    _ => parameters::write(page, report),
                })?,
                InspectedSource::Headers(weights) => {
                    context.print(|page| write_headers(page, args, view, weights, repos.len()))?;
                }
            }
            context.warn(source, &inspected.report().findings);
            Ok(ExitStatus::Success)
        }
        Err(error) => context.report(source, sources, &error),
    };
    context.for_each(sources, read, print).await
}

fn write_headers(
    page: &mut Page<'_>,
    args: &InspectArgs,
    view: View,
    weights: &Weights,
    repos: usize,
) -> io::Result<()> {
    match view {
        View::Tree => tree::write(page, weights, args.depth.map(usize::from)),
        View::Metadata => headers::write_metadata(page, weights),
        _ => {
            if repos > 1 {
                page.heading(&weights.report().source)?;
            }
            headers::write_tensors(page, weights, args.filter.as_ref(), args.sort)
        }
    }
}

/// Prints one row per repository after all have been read.
async fn overview(
    args: &InspectArgs,
    format: Option<RowFormat>,
    sources: Sources<'_>,
    context: &CommandContext,
) -> Result<ExitStatus, CommandError> {
    let mut rows = Vec::new();
    let read = |model: Model| async move { model.count().await };
    let collect = |source: &RepoArg, result: Result<CountReport, Error>| match result {
        Ok(report) => {
            rows.push(OverviewRow::from_report(&report));
            context.warn(source, &report.findings);
            Ok(ExitStatus::Success)
        }
        Err(error) => {
            rows.push(OverviewRow::from_error(&source.display, &error));
            context.report(source, sources, &error)
        }
    };
    let status = context.for_each(sources, read, collect).await?;
    Page::print(|page| overview::write(page, rows, format, args.sort))?;
    Ok(status)
}
