//! The common flow of subcommands: read the sources, print the results in order, report errors, and combine the exit
//! codes.

use std::future::Future;
use std::io::{self, Write};
use std::mem::replace;

use clap::builder::NonEmptyStringValueParser;
use futures::stream::{self, StreamExt};
use hf_meta::report::{Finding, Plan};
use hf_meta::{Client, Error, Model, ResultOrder};

use super::error_report::{self, ErrorReport};
use super::exit::{ExitStatus, failed_to};
use super::json::{self, FailedSource};
use super::progress::ProgressBars;
use super::repo_arg::RepoArg;

/// The number of repositories to read concurrently. At a round trip of 50 ms, 300 repositories took 16.2 s with 4
/// jobs, 2.5 s with 32 and 1.6 s with 64. More jobs also take more memory if headers are large.
const DEFAULT_JOBS: u16 = 32;

/// The options that select a revision and a part of each repository.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SelectionArgs {
    /// Branch, tag, ref or commit; overrides the one in REPO [default: main]
    #[arg(long, short, value_name = "REVISION", value_parser = NonEmptyStringValueParser::new())]
    revision: Option<String>,

    /// File to read, folder to search, or GGUF quantization such as `q4_k_m`, within each repository or local folder;
    /// overrides the one in REPO
    #[arg(long, short, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    path: Option<String>,

    /// Format of the weights to read, if a repository has several [default: safetensors, else GGUF]
    #[arg(long, value_name = "FORMAT", value_parser = ["safetensors", "gguf"])]
    weights: Option<String>,

    /// Read each header in one request instead of two, at the cost of some extra bytes (same as --plan prefetch)
    #[arg(long)]
    prefetch: bool,

    /// Requests for headers: two ranges per file (exact), one range per file (prefetch), or one request per
    /// repository, served from the Hub's own parse (hub) [default: exact]
    #[arg(long, value_name = "PLAN", conflicts_with = "prefetch")]
    plan: Option<PlanArg>,

    /// Number of repositories to read concurrently [default: 32]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    jobs: Option<u16>,
}

/// The names of plans.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PlanArg {
    Exact,
    Prefetch,
    Hub,
}

impl SelectionArgs {
    pub(super) fn plan(&self) -> Plan {
        match self.plan {
            Some(PlanArg::Hub) => Plan::Hub,
            Some(PlanArg::Prefetch) => Plan::Prefetch,
            None if self.prefetch => Plan::Prefetch,
            Some(PlanArg::Exact) | None => Plan::Exact,
        }
    }

    fn model(&self, client: &Client, source: &RepoArg) -> Result<Model, Error> {
        let mut model = client.source(source.source.clone()?).plan(self.plan());
        if let Some(revision) = &self.revision {
            model = model.revision(revision);
        }
        if let Some(path) = &self.path {
            model = model.path(path);
        }
        if let Some(format) = &self.weights {
            model = model.format(format);
        }
        Ok(model)
    }
}

/// The sources of a subcommand and the form of their results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) repos: &'a [String],
    pub(crate) selection: &'a SelectionArgs,
    pub(crate) form: OutputForm,
}

/// The form of results on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputForm {
    /// Text, with an empty line between results.
    Text,
    /// JSON, with one line per source, including failed sources.
    Json,
    /// Another form: nothing is printed between results or for failed sources.
    Other,
}

/// The client and the progress bars of a subcommand.
pub(crate) struct CommandContext {
    pub(crate) client: Client,
    pub(crate) bars: ProgressBars,
    /// The origin of the token, for messages.
    pub(crate) token_source: Option<String>,
    /// True to print no warnings.
    pub(crate) is_quiet: bool,
}

impl CommandContext {
    /// Reads all sources concurrently and prints each result, in the order of the sources.
    ///
    /// A source that cannot be read is reported on stderr, and the others are still read. Returns the
    /// most severe exit status.
    pub(crate) async fn for_each<T, Reading>(
        &self,
        sources: Sources<'_>,
        read: impl Fn(Model) -> Reading + Copy + Send + Sync + 'static,
        mut print: impl FnMut(&RepoArg, T) -> io::Result<ExitStatus>,
    ) -> io::Result<ExitStatus>
    where
        T: Send + 'static,
        Reading: Future<Output = Result<T, Error>> + Send,
    {
        let mut is_first = true;
        let print = |source: &RepoArg, result: Result<T, Error>| match result {
            Ok(value) => {
                if !replace(&mut is_first, false) && sources.form == OutputForm::Text {
                    writeln!(io::stdout())?;
                }
                print(source, value)
            }
            Err(error) => self.report(source, sources, &error),
        };
        self.for_each_result(sources, read, print).await
    }

    /// Like [`for_each`](Self::for_each), but also passes errors to `print`.
    pub(crate) async fn for_each_result<T, Reading>(
        &self,
        sources: Sources<'_>,
        read: impl Fn(Model) -> Reading + Copy + Send + Sync + 'static,
        mut print: impl FnMut(&RepoArg, Result<T, Error>) -> io::Result<ExitStatus>,
    ) -> io::Result<ExitStatus>
    where
        T: Send + 'static,
        Reading: Future<Output = Result<T, Error>> + Send,
    {
        let args: Vec<_> =
            sources.repos.iter().map(|repo| RepoArg::new(repo, self.client.endpoint())).collect();
        let (bars, selection) = (self.bars.clone(), sources.selection.clone());
        // Each call runs as a separate task. Otherwise a paused reader of stdout would also stop reading responses,
        // and they would time out.
        let reads = move |client: Client, source: RepoArg| {
            let (bar, model) = (bars.add(&source.shown), selection.model(&client, &source));
            let SelectionArgs { revision, path, .. } = selection.clone();
            async move {
                let progress_bar = bar.clone();
                let on_progress = move |progress| progress_bar.update(progress);
                let result = async { read(model?.on_progress(on_progress)).await }.await;
                bar.finish();
                (source.selected(revision.as_deref(), path.as_deref()), result)
            }
        };
        let jobs = sources.selection.jobs.unwrap_or(DEFAULT_JOBS).into();
        let mut reads = self.client.run_many(stream::iter(args), jobs, ResultOrder::Input, reads);
        let mut status = ExitStatus::Success;
        while let Some((source, result)) = reads.next().await {
            let printed = self.bars.hidden_while(|| print(&source, result));
            status = status.max(printed.map_err(failed_to("write to stdout"))?);
        }
        Ok(status)
    }

    /// Reports the error of a source.
    pub(crate) fn report(
        &self,
        source: &RepoArg,
        sources: Sources<'_>,
        error: &Error,
    ) -> io::Result<ExitStatus> {
        if sources.form == OutputForm::Json {
            json::print(&FailedSource::new(&source.shown, error))?;
        }
        let is_one_of_many = sources.repos.len() > 1;
        let client = (self.client.endpoint(), self.token_source.as_deref());
        // A failure to write to stderr must not affect the results or the exit status.
        let _ = ErrorReport::for_source(source, is_one_of_many, error, client).print();
        Ok(ExitStatus::from(error))
    }

    /// Prints the findings of a source as warnings.
    pub(crate) fn warn(&self, source: &RepoArg, findings: &[Finding]) {
        if !self.is_quiet {
            // A failure to write to stderr must not affect the results or the exit status.
            let _ =
                anstream::stderr().write_all(error_report::warnings(source, findings).as_bytes());
        }
    }
}
