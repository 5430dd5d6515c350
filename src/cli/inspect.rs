//! The call without a subcommand: inspects each source and prints one view of it.

use std::io::{self, BufWriter, Write};

use clap::builder::NonEmptyStringValueParser;
use hf_meta::{CountReport, Model, SafetensorsParseFromRepo};

use super::context::{CommandContext, OutputForm, SelectionArgs, Sources, warn};
use super::exit::ExitStatus;
use super::json;
use super::repo_arg::RepoArg;
use super::terminal::TerminalSize;
use super::views::{explain, metadata, parameters, tensors, tree};

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// Repositories on the Hub, URLs, or local files and folders
    ///
    /// A repository (`org/name`, `name`, `org/name@revision`, `datasets/org/name`,
    /// `hf://org/name@revision/path`), the URL of its page on huggingface.co, the URL of a
    /// `.safetensors` file or an index on any server, a local file, or a local folder written with a
    /// slash (`./folder`).
    #[arg(required = true, value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    repos: Vec<String>,

    #[command(flatten)]
    selection: SelectionArgs,

    /// Also list the other sets of weights in each repository (one more request)
    #[arg(long, conflicts_with_all = ["tensors", "tree", "explain", "metadata"])]
    sets: bool,

    #[command(flatten)]
    view: ViewArgs,

    /// List only tensors whose names match the pattern (`*`, `?`, `[abc]`)
    #[arg(long, short, value_name = "GLOB", value_parser = glob::Pattern::new)]
    #[arg(requires = "tensors", conflicts_with_all = ["json", "tree", "explain", "metadata"])]
    filter: Option<glob::Pattern>,

    // `requires` alone is not enough: clap drops it where the required option conflicts with a given one.
    /// Leave `header`, `index` and `headers` out of the JSON
    #[arg(long, requires = "json")]
    #[arg(conflicts_with_all = ["tensors", "tree", "explain", "metadata"])]
    summary: bool,
}

/// The view to print: the parameters per dtype if no other is selected.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "flags that exclude each other")]
struct ViewArgs {
    /// Print JSON in the form of huggingface.js, one line per repository, also for one that failed
    #[arg(long, short)]
    json: bool,

    /// List every tensor: name, dtype, shape, bytes, shard
    #[arg(long, short)]
    tensors: bool,

    /// Draw the modules as a tree, with identical modules in one row and elements as stored
    #[arg(long)]
    tree: bool,

    /// Explain how the parameters were counted: tensors unpacked, not counted, or buffers
    #[arg(long, short = 'x')]
    explain: bool,

    /// Print the metadata of the files, such as title and author by ModelSpec
    #[arg(long, short)]
    metadata: bool,
}

/// The result for one source, as far as the view needs it.
enum InspectedSource {
    /// Counts only, for which no header is kept in memory.
    Counts(Box<CountReport>),
    /// All headers.
    Headers(Box<SafetensorsParseFromRepo>),
}

impl InspectArgs {
    /// Returns whether the view shows only counts, and so needs no headers.
    fn needs_counts_only(&self) -> bool {
        let ViewArgs { json, tensors, tree, metadata, .. } = self.view;
        !(tensors || tree || metadata || json && !self.summary)
    }
}

pub(crate) async fn run(args: &InspectArgs, context: &CommandContext) -> io::Result<ExitStatus> {
    let (needs_counts_only, lists_sets) = (args.needs_counts_only(), args.sets);
    let read = move |model: Model| async move {
        let model = model.other_sets(lists_sets);
        Ok(if needs_counts_only {
            InspectedSource::Counts(Box::new(model.count().await?))
        } else {
            InspectedSource::Headers(Box::new(model.parse_safetensors_metadata().await?))
        })
    };
    let print = |source: &RepoArg, inspected: InspectedSource| {
        let findings = match &inspected {
            InspectedSource::Counts(report) => {
                print_counts(args.view, report)?;
                &report.findings
            }
            InspectedSource::Headers(parsed) => {
                print_headers(args, parsed)?;
                &parsed.report().findings
            }
        };
        warn(source, findings)?;
        Ok(ExitStatus::Success)
    };
    let form = if args.view.json { OutputForm::Json } else { OutputForm::Text };
    let sources = Sources { repos: &args.repos, selection: &args.selection, form };
    context.for_each(sources, read, print).await
}

fn print_counts(view: ViewArgs, report: &CountReport) -> io::Result<()> {
    if view.json {
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

fn print_headers(args: &InspectArgs, parsed: &SafetensorsParseFromRepo) -> io::Result<()> {
    if args.view.json {
        return json::print(parsed);
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    let terminal = TerminalSize::from_stdout();
    if args.view.tree {
        tree::write(&mut stdout, parsed, terminal)?;
    } else if args.view.tensors {
        let (filter, is_one_of_many) = (args.filter.as_ref(), args.repos.len() > 1);
        tensors::write(&mut stdout, parsed, filter, is_one_of_many, terminal)?;
    } else {
        metadata::write(&mut stdout, parsed)?;
    }
    stdout.flush()
}
