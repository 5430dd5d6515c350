//! The command without a subcommand: inspects each source and prints one view of it.

use std::io::{self, BufWriter, Write};

use hf_meta::{CountReport, Error, Model, Weights};

use super::context::{CommandContext, OutputForm, SelectionArgs, Sources};
use super::exit::{CommandError, ExitStatus, failed_to};
use super::json;
use super::output::ColorArgs;
use super::repo_arg::RepoArg;
use super::repo_list::RepoListArgs;
use super::terminal::TerminalSize;
use super::views::overview::{OverviewFormat, OverviewRow, SortKey};
use super::views::{explain, metadata, overview, parameters, tensors, tree};

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

    /// Draw --tree down to this depth, instead of as deep as fits
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

    /// Print an overview with one row per repository (the default for several, and with --sort): table, tsv, csv or
    /// md; json is the same as --json --summary
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    format: Option<OverviewFormat>,
}

/// The part of a result that the view needs.
enum InspectedSource {
    /// Counts only, so that no headers are kept in memory.
    Counts(Box<CountReport>),
    Headers(Box<Weights>),
}

impl ViewArgs {
    fn is_json(self) -> bool {
        self.json || self.format == Some(OverviewFormat::Json)
    }
}

impl InspectArgs {
    /// Returns whether the view shows only counts and needs no headers.
    fn needs_counts_only(&self) -> bool {
        let ViewArgs { tensors, tree, metadata, json, .. } = self.view;
        !(tensors || tree || metadata || json && !self.summary)
    }

    /// Returns the format of the overview; `None` if each repository is printed separately.
    fn overview(&self, repos: usize) -> Option<OverviewFormat> {
        let ViewArgs { json, tensors, tree, explain, metadata, format } = self.view;
        let is_chosen = json || tensors || tree || explain || metadata || self.sets;
        match format {
            Some(OverviewFormat::Json) => None,
            Some(format) => Some(format),
            // Only an overview has rows to sort.
            None => {
                let has_rows = repos > 1 || self.sort.is_some();
                (has_rows && !is_chosen).then_some(OverviewFormat::Table)
            }
        }
    }
}

pub(crate) async fn run(
    args: &InspectArgs,
    context: &CommandContext,
) -> Result<ExitStatus, CommandError> {
    if args.view.tensors && args.sort == Some(SortKey::Active) {
        return Err(CommandError::Usage(
            "`--tensors` can only be sorted by `name`, `parameters` or `bytes`",
        ));
    }
    if args.view.is_json() && args.sort.is_some() {
        return Err(CommandError::Usage("`--sort` cannot be combined with JSON output"));
    }
    if args.sets && args.view.format.is_some_and(|format| format != OverviewFormat::Json) {
        return Err(CommandError::Usage(
            "`--sets` cannot be combined with `--format`, except with `json`",
        ));
    }
    let repos = args.repos.list()?;
    let form = if args.view.is_json() { OutputForm::Json } else { OutputForm::Text };
    let sources = Sources { repos: &repos, selection: &args.selection, form };
    if let Some(format) = args.overview(repos.len()) {
        return Ok(overview(args, format, sources, context).await?);
    }
    let (needs_counts_only, lists_sets) = (args.needs_counts_only(), args.sets);
    let read = move |model: Model| async move {
        let model = model.other_sets(lists_sets);
        Ok(if needs_counts_only {
            InspectedSource::Counts(Box::new(model.count().await?))
        } else {
            InspectedSource::Headers(Box::new(model.inspect().await?))
        })
    };
    let print = |source: &RepoArg, inspected: InspectedSource| {
        let findings = match &inspected {
            InspectedSource::Counts(report) => {
                print_counts(args.view, report)?;
                &report.findings
            }
            InspectedSource::Headers(weights) => {
                print_headers(args, repos.len() > 1, weights)?;
                &weights.report().findings
            }
        };
        context.warn(source, findings);
        Ok(ExitStatus::Success)
    };
    Ok(context.for_each(sources, read, print).await?)
}

/// Prints one row per repository after all have been read.
async fn overview(
    args: &InspectArgs,
    format: OverviewFormat,
    sources: Sources<'_>,
    context: &CommandContext,
) -> io::Result<ExitStatus> {
    let mut rows = Vec::new();
    let read = |model: Model| async move { model.count().await };
    let collect = |source: &RepoArg, result: Result<CountReport, Error>| match result {
        Ok(report) => {
            rows.push(OverviewRow::from_report(&report));
            context.warn(source, &report.findings);
            Ok(ExitStatus::Success)
        }
        Err(error) => {
            rows.push(OverviewRow::from_error(&source.shown, &error));
            context.report(source, sources, &error)
        }
    };
    let status = context.for_each_result(sources, read, collect).await?;
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    let written =
        overview::write(&mut stdout, rows, format, args.sort, TerminalSize::from_stdout());
    written.and_then(|()| stdout.flush()).map_err(failed_to("write to stdout"))?;
    Ok(status)
}

fn print_counts(view: ViewArgs, report: &CountReport) -> io::Result<()> {
    if view.is_json() {
        return json::print(report);
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    let terminal = TerminalSize::from_stdout();
    if view.explain {
        explain::write(&mut stdout, report, terminal)?;
    } else {
        parameters::write(&mut stdout, report, terminal)?;
    }
    stdout.flush()
}

fn print_headers(args: &InspectArgs, is_one_of_many: bool, weights: &Weights) -> io::Result<()> {
    if args.view.is_json() {
        return json::print(weights);
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    let terminal = TerminalSize::from_stdout();
    if args.view.tree {
        tree::write(&mut stdout, weights, args.depth.map(usize::from), terminal)?;
    } else if args.view.tensors {
        let filter = args.filter.as_ref();
        tensors::write(&mut stdout, weights, filter, is_one_of_many, args.sort, terminal)?;
    } else {
        metadata::write(&mut stdout, weights)?;
    }
    stdout.flush()
}
