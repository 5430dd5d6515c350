//! The common flow of subcommands: read the sources, print the results in order, report errors, and combine the exit
//! codes.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use futures::stream::StreamExt;
use hf_meta::{Client, Error, ErrorKind, Model, Source, Weights};
use hf_meta_count::results::text::thousands;
use hf_meta_count::results::{Finding, Plan};

use super::concurrent::in_order;
use super::error_report::{print_note, print_source_error, print_warnings};
use super::exit::{CommandError, CommandResult, ExitStatus};
use super::hints::{Hints, local_twin};
use super::metadata::complete_pending;
use super::output::{FailedSource, Page, print_json};
use super::repos::RepoArg;
use super::signal;
use super::stderr::{ProgressLine, ReadProgress, ShownProgress, lock, print_to_stderr};

/// The number of repositories to read concurrently. At a round trip of 50 ms, 300 repositories took 16.2 s with 4
/// jobs, 2.5 s with 32 and 1.6 s with 64. More jobs also take more memory if headers are large.
const DEFAULT_JOBS: u16 = 32;

/// The options that select a revision and a part of each repository.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct SelectionArgs {
    /// Branch, tag, ref or commit [default: main]
    ///
    /// Overrides the revision in REPO.
    #[arg(long, short, value_name = "REVISION", value_parser = NonEmptyStringValueParser::new())]
    revision: Option<String>,

    /// File, folder, or quantization such as `q4_k_m`
    ///
    /// A file to read, a folder to search, or a GGUF quantization, within each repository or local folder. Overrides the
    /// path in REPO.
    #[arg(long, short, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    path: Option<String>,

    /// Format of the weights to read, if a repository has several [default: safetensors, else GGUF, else PyTorch]
    #[arg(long, hide_short_help = true, value_name = "FORMAT", value_parser = ["safetensors", "gguf", "pytorch"])]
    weights: Option<String>,

    /// Requests for headers: two ranges per file (exact), one range per file (prefetch), or one request per
    /// repository, which returns the headers as parsed by the Hub (hub) [default: exact]
    #[arg(long, hide_short_help = true, value_name = "PLAN", value_parser = plans(&["exact", "prefetch", "hub"]))]
    plan: Option<Plan>,

    /// Number of repositories to read concurrently [default: 32]
    #[arg(long, hide_short_help = true, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    jobs: Option<u16>,
}

/// Returns a parser that accepts only these names of plans.
pub(crate) fn plans(names: &'static [&'static str]) -> impl TypedValueParser<Value = Plan> {
    PossibleValuesParser::new(names).map(|name| match &*name {
        "hub" => Plan::Hub,
        "prefetch" => Plan::Prefetch,
        _ => Plan::Exact,
    })
}

impl SelectionArgs {
    /// Returns the revision that overrides the ones of repositories.
    pub(crate) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    pub(crate) fn model(&self, client: &Client, source: &RepoArg) -> Result<Model, Error> {
        let model = client.source(source.source.clone()?).named(&source.display);
        let model = model.set_some(self.plan, Model::plan);
        let model = model.set_some(self.revision.as_ref(), Model::revision);
        let model = model.set_some(self.path.as_ref(), Model::path);
        Ok(model.set_some(self.weights.as_ref(), Model::format))
    }
}

/// The sources of a subcommand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) repos: &'a [RepoArg],
    pub(crate) selection: &'a SelectionArgs,
    /// True if stdout has a JSON document for each source, including failed ones.
    pub(crate) is_json: bool,
    /// True if each result is printed as soon as it and the ones before it are known.
    pub(crate) is_streamed: bool,
}

/// The outcomes of all repositories.
struct Outcomes {
    /// The most severe status.
    status: ExitStatus,
    /// The number of repositories that could not be read.
    unreadable: u64,
    /// The number of repositories that were read, and failed a check.
    failed: u64,
}

impl Outcomes {
    fn add(&mut self, is_read: bool, status: ExitStatus) {
        self.status = self.status.max(status);
        match (is_read, status) {
            // `--changed` accepts folders without weights.
            (_, ExitStatus::Success) => {}
            (true, _) => self.failed += 1,
            (false, _) => self.unreadable += 1,
        }
    }
}

/// The client and the progress line of a subcommand.
pub(crate) struct CommandContext {
    pub(crate) client: Client,
    /// The error for sources that are not local, if the client cannot read them.
    pub(crate) unusable: Option<Error>,
    pub(crate) line: ProgressLine,
    /// Returns the definition of all arguments.
    pub(crate) definition: fn() -> clap::Command,
    /// The origin of the token.
    pub(crate) token_source: Option<String>,
    /// True if the subcommand has the option `--path`.
    pub(crate) has_path: bool,
    /// True if the subcommand reads cached headers.
    pub(crate) uses_cache: bool,
    /// True if a second run reads the headers from the cache.
    pub(crate) keeps_headers: bool,
    /// True after the first page was printed.
    pub(crate) has_printed: Cell<bool>,
    /// True if the last output is a page.
    pub(crate) ends_with_page: Cell<bool>,
    /// The kinds of errors whose hints were printed.
    pub(crate) explained: RefCell<HashSet<ErrorKind>>,
}

impl CommandContext {
    /// Reads all sources concurrently and passes each result to `print`, in the order of the sources. If `print` returns
    /// the error of a source, it is reported, and the other sources are still read. Returns the most severe exit status.
    pub(crate) async fn for_each<T, Reading>(
        &self,
        sources: Sources<'_>,
        read: impl Fn(Model) -> Reading + Clone + Send + Sync + 'static,
        mut print: impl FnMut(&RepoArg, Result<T, Error>) -> CommandResult,
    ) -> CommandResult
    where
        T: Send + 'static,
        Reading: Future<Output = Result<T, Error>> + Send,
    {
        self.complete_edits(sources);
        let reading = Arc::new(ReadProgress::new(&self.client, sources.repos));
        let _line = self.show_progress(&reading, sources);
        let unusable = self.unusable.clone();
        let selection = sources.selection.clone();
        let client = self.client.clone();
        // Each call runs as a separate task. Otherwise a paused reader of stdout would also stop reading responses,
        // and they would time out.
        let reads = move |source: RepoArg| {
            let (reading, shown) = (Arc::clone(&reading), Arc::clone(&reading));
            let model = match &unusable {
                Some(error) if !source.is_local() => Err(error.clone()),
                _ => selection.model(&client, &source),
            };
            let source =
                source.with_selection(selection.revision.as_deref(), selection.path.as_deref());
            let read = read.clone();
            async move {
                let on_progress = move |progress| *lock(&shown.shards) = Some(progress);
                let result = async { read(model?.on_progress(on_progress)).await }.await;
                reading.finish(result.is_err());
                (source, result)
            }
        };
        let jobs = sources.selection.jobs.unwrap_or(DEFAULT_JOBS).into();
        let mut reads = in_order(sources.repos.to_vec(), jobs, reads);
        let mut outcomes = Outcomes { status: ExitStatus::Success, unreadable: 0, failed: 0 };
        while let Some((source, result)) = reads.next().await {
            let is_read = result.is_ok();
            let status = self.line.hidden_while(|| {
                print(&source, result).or_else(|failed| self.report(&source, sources, failed))
            })?;
            if is_read {
                self.note_local_twin(&source);
            }
            outcomes.add(is_read, status);
        }
        self.report_failures(&outcomes, sources.repos.len() as u64);
        Ok(outcomes.status)
    }

    /// Shows the progress until the result is dropped, and explains an interrupt.
    fn show_progress(&self, reading: &Arc<ReadProgress>, sources: Sources<'_>) -> ShownProgress {
        let kept = match (self.keeps_headers, sources.is_streamed) {
            (true, _) => "a second run reads them from the cache",
            (false, true) => "those printed so far are complete",
            (false, false) => "nothing was printed",
        };
        let interrupted = Arc::clone(reading);
        signal::end_on_interrupt(&self.line, move || interrupted.interrupted(kept));
        let shown = Arc::clone(reading);
        self.line.show(None, move |max_width| shown.describe(max_width))
    }

    /// Explains a name that is also the name of a local file.
    fn note_local_twin(&self, source: &RepoArg) {
        if let Some(path) = local_twin(source) {
            let name = &source.display;
            self.note(&format!("{name} is the repository; for the local {name}, use {path}"));
        }
    }

    /// Completes the edits of metadata in local files that were interrupted.
    fn complete_edits(&self, sources: Sources<'_>) {
        for source in sources.repos {
            let path = &sources.selection.path;
            if let Ok(Source::Local(path)) =
                source.clone().with_selection(None, path.as_deref()).source
            {
                complete_pending(&path, &self.line);
            }
        }
    }

    /// Prints how many of several repositories failed.
    fn report_failures(&self, found: &Outcomes, repos: u64) {
        let counts = [(found.unreadable, "could not be read"), (found.failed, "failed a check")];
        for (count, outcome) in counts.iter().filter(|(count, _)| repos > 1 && *count > 0) {
            let text = format!("{} of {} {outcome}", thousands(*count), thousands(repos));
            self.line.hidden_while(|| print_to_stderr(&text));
        }
    }

    /// Reads the headers of all sources. Returns the headers of each readable source, and the most severe exit status.
    pub(crate) async fn inspect_all(
        &self,
        repos: &[RepoArg],
        is_json: bool,
    ) -> CommandResult<(Vec<(RepoArg, Weights)>, ExitStatus)> {
        let selection = &SelectionArgs::default();
        let sources = Sources { repos, selection, is_json, is_streamed: false };
        let mut inspected = Vec::new();
        let collect = |source: &RepoArg, weights: Result<Weights, Error>| {
            inspected.push((source.clone(), weights?));
            Ok(ExitStatus::Success)
        };
        let read = |model: Model| async move { model.inspect().await };
        let status = self.for_each(sources, read, collect).await?;
        Ok((inspected, status))
    }

    /// Reports the error of a source, and returns any other error.
    pub(crate) fn report(
        &self,
        source: &RepoArg,
        sources: Sources<'_>,
        failed: CommandError,
    ) -> CommandResult {
        let Some(error) = failed.error.downcast_ref::<Error>() else { return Err(failed) };
        if sources.is_json {
            print_json(&FailedSource::new(&source.display, error))?;
        }
        if self.ends_with_page.take() && io::stdout().is_terminal() {
            print_to_stderr("");
        }
        // A hint is printed only for the first error of a kind.
        let is_new = self.explained.borrow_mut().insert(error.kind());
        let hint = if is_new { self.hints().hint(source, error) } else { None };
        print_source_error(source, error, sources.repos.len() > 1, hint.as_deref());
        Ok(failed.status)
    }

    /// Prints the text about a source, after an empty line if it is not the first one.
    pub(crate) fn print(
        &self,
        write: impl FnOnce(&mut Page<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.print_rows(|page, is_first| {
            if !is_first {
                writeln!(page.out)?;
            }
            write(page)
        })
    }

    /// Prints rows for other programs. `write` receives `true` for the first source, whose rows follow the headings.
    pub(crate) fn print_rows(
        &self,
        write: impl FnOnce(&mut Page<'_>, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let is_first = !self.has_printed.replace(true);
        self.ends_with_page.set(true);
        Page::print(|page| write(page, is_first))
    }

    /// Returns the conditions for hints.
    pub(crate) fn hints(&self) -> Hints {
        Hints {
            definition: Some(self.definition),
            endpoint: self.client.endpoint().clone(),
            token_source: self.token_source.clone(),
            has_path: self.has_path,
            uses_cache: self.uses_cache,
        }
    }

    /// Prints a note.
    pub(crate) fn note(&self, text: &str) {
        if !self.line.is_quiet {
            self.line.hidden_while(|| print_note(text));
        }
    }

    /// Prints the findings of a source.
    pub(crate) fn warn(&self, source: &RepoArg, findings: &[Finding]) {
        if !self.line.is_quiet {
            print_warnings(source, findings);
        }
    }
}
