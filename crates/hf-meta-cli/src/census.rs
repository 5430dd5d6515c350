//! `hf-meta census`: reads many repositories into tables.

use std::ffi::OsStr;
use std::mem::replace;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use chrono::DateTime;
use clap::Subcommand;
use clap::builder::{PathBufValueParser, TypedValueParser};
use futures::FutureExt;
use futures::future::{Either, select};
use hf_meta::Client;
use hf_meta_census::{
    Census, CensusChange, CensusError, CensusProgress, CensusSummary, Listing, MAX_HEADER_BYTES,
    MAX_QUOTA_WAIT, Manifest, PublishOptions, diff, verify,
};
use hf_meta_count::results::text::{counted, escape, parse_seconds, thousands};
use serde_json::{Value, json};

use super::connection::ConnectionArgs;
use super::exit::{CommandError, CommandResult, ExitStatus, failed_to};
use super::output::{Page, if_any, print_json};
use super::signal::{end_by, end_on_interrupt, signal};
use super::stderr::{ListCounts, ProgressLine, ShownProgress, lock, print_to_stderr};
use super::table::{OutputFormat, Shrink, Table};

/// The interval between lines about the progress without a terminal.
const PRINT_INTERVAL: Duration = Duration::from_secs(30);

/// The minimum useful width of a value in a table of differences.
const MIN_VALUE_WIDTH: usize = 12;

/// The options of subcommands that send requests.
#[derive(Debug, clap::Args)]
pub(crate) struct QuotaArgs {
    /// Email address or URL for the User-Agent header, so that the Hub can contact you
    #[arg(long, value_name = "CONTACT")]
    contact: Option<String>,

    /// Fraction of the Hub's quota to use, above 0 and up to 1; the rest is left to other programs
    #[arg(long, value_name = "SHARE", default_value = "1")]
    quota_share: f64,
}

/// The options of subcommands that read repositories.
#[derive(Debug, clap::Args)]
pub(crate) struct CommonReadArgs {
    #[command(flatten)]
    quota: QuotaArgs,

    /// Number of repositories to read concurrently
    #[arg(long, value_name = "COUNT", default_value = "32")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    jobs: u16,

    /// Time in seconds after which an outage of the Hub or the network ends the command; complete rows are kept
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "600")]
    max_outage: Duration,
}

/// Read many repositories into tables of parameters, dtypes, quantization and headers
///
/// A census has one row per repository, with its counts or the reason why there are none, and stores the headers that
/// the counts are derived from. Tables are Parquet files in a folder or an object store.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  hf-meta census list --filter safetensors -o repos.parquet
  hf-meta census read repos.parquet -o census
  hf-meta census pack census -o all.parquet
  duckdb -c \"SELECT sum(parameter_total) FROM 'all.parquet' WHERE is_complete\"")]
pub(crate) enum CensusCommand {
    /// List the models on the Hub in a Parquet file; resumes if interrupted
    List(ListArgs),
    /// Read all repositories in a list; resumes if interrupted
    Read(ReadArgs),
    /// Read failed repositories again
    Retry {
        /// Folder or URL of the census
        target: String,

        #[command(flatten)]
        reading: CommonReadArgs,
    },
    /// Recount all stored headers without sending requests
    Count {
        /// Folder or URL of the census
        target: String,
    },
    /// Write all rows to one Parquet file, sorted by repository
    Pack {
        /// Folder or URL of the census
        target: String,

        /// Output file, or the URL of an object; `-` is stdout
        #[arg(long, short, value_name = "FILE|URL")]
        output: String,
    },
    /// Print the differences between two censuses
    Diff {
        /// Folder, URL or packed file of the old census
        #[arg(value_name = "OLD")]
        before: String,

        /// Folder, URL or packed file of the new census
        #[arg(value_name = "NEW")]
        after: String,

        /// Output format
        #[arg(long, default_value = "table")]
        format: OutputFormat,
    },
    /// Write a data set for publication: tables, data card and schema page
    Publish {
        /// Folder or URL of the census
        target: String,

        /// Output folder
        #[arg(long, short, value_name = "FOLDER", value_parser = output("a folder", &["parquet"]))]
        output: PathBuf,

        /// Title of the data set
        #[arg(long, value_name = "TEXT")]
        title: Option<String>,

        /// License of the counts, such as cc0-1.0
        #[arg(long, value_name = "ID")]
        license: Option<String>,

        /// Add a table of all tensors
        #[arg(long)]
        tensors: bool,
    },
    /// Read a random sample again from the Hub and print the differences
    Verify {
        /// Folder, URL or packed file of the census
        target: String,

        /// Number of repositories to read
        #[arg(long, value_name = "COUNT", default_value = "100")]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        sample: u32,

        /// Seed of the random sample
        #[arg(long, default_value = "0")]
        seed: u64,

        /// Output format
        #[arg(long, default_value = "table")]
        format: OutputFormat,

        #[command(flatten)]
        quota: QuotaArgs,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// List only models with this tag, such as safetensors
    #[arg(long, value_name = "TAG")]
    filter: Option<String>,

    /// List only models of this user or organization
    #[arg(long, value_name = "NAME")]
    author: Option<String>,

    /// List at most this many models: the newest ones or, with --since, those changed last
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,

    /// List only models changed since a date (2026-01-31) or a time (2026-01-31T12:00:00Z), or update an earlier list (a
    /// file): request the models changed since then, and add its other models
    #[arg(long, value_name = "TIME|FILE")]
    since: Option<String>,

    /// Output file
    #[arg(long, short, value_name = "FILE", value_parser = output("Parquet", OTHER_FORMATS))]
    output: PathBuf,

    #[command(flatten)]
    quota: QuotaArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// List of repositories: the output of `census list`, any other Parquet file, a CSV or JSON Lines file, or one name
    /// per line; `-` reads it from stdin
    #[arg(value_name = "LIST")]
    manifest: PathBuf,

    /// Column that contains the names [default: repo, id, modelId or repository]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,

    /// Folder or URL of the census (s3://, gs:// or az://, with credentials from the environment)
    #[arg(long, short, value_name = "TARGET")]
    output: String,

    /// Read only every N-th part of the list, starting with part K (from 0), such as 0/4
    #[arg(long, value_name = "K/N", value_parser = slice, default_value = "0/1", hide_default_value = true)]
    slice: (usize, usize),

    /// Copy the rows of unchanged repositories from an earlier census
    #[arg(long, value_name = "TARGET")]
    previous: Option<String>,

    #[command(flatten)]
    reading: CommonReadArgs,
}

impl From<CensusError> for CommandError {
    fn from(error: CensusError) -> Self {
        let status = match error {
            CensusError::Hub(error) => return error.into(),
            CensusError::InvalidListing { .. } | CensusError::Outage { .. } => ExitStatus::Remote,
            CensusError::Incomplete { .. } => ExitStatus::CheckFailed,
            CensusError::Manifest { .. }
            | CensusError::ManifestMismatch { .. }
            | CensusError::NoCensus { .. } => ExitStatus::Usage,
            _ => ExitStatus::LocalIo,
        };
        Self::new(status, error)
    }
}

/// Joins the parts of a census to one file, or on stdout.
async fn pack(target: &str, output: &str, connection: &ConnectionArgs) -> CommandResult {
    let census = Census::open(connection.builder().build()?, target)?;
    let rows = census.tool(tool()).pack(output).await?;
    if output == "-" {
        return Ok(ExitStatus::Success);
    }
    print_written(&counted(rows as u64, "row"), Path::new(output))
}

pub(crate) async fn run(
    command: &CensusCommand,
    connection: &ConnectionArgs,
    line: &ProgressLine,
) -> CommandResult {
    use CensusCommand::{Count, Read, Retry};

    if !matches!(command, Count { .. } | Read(_) | Retry { .. }) {
        end_on_interrupt(line, || None);
    }
    match command {
        CensusCommand::List(list) => {
            write_list(list, &client(&list.quota, connection)?, line).await
        }
        CensusCommand::Read(read) => read_manifest(read, connection, line).await,
        CensusCommand::Retry { target, reading } => {
            let client = client(&reading.quota, connection)?;
            let census = with_limits(Census::open(client.clone(), target)?, reading);
            let (census, shown) = show_progress(census, client, line, None);
            print(&until_signal(line, shown, &census, census.retry()).await?)
        }
        CensusCommand::Count { target } => {
            let client = connection.builder().max_total_header_bytes(MAX_HEADER_BYTES).build()?;
            let census = Census::open(client.clone(), target)?.tool(tool());
            let (census, shown) = show_progress(census, client, line, None);
            print(&until_signal(line, shown, &census, Box::pin(census.count())).await?)
        }
        CensusCommand::Pack { target, output } => pack(target, output, connection).await,
        CensusCommand::Diff { before, after, format } => {
            print_changes(&diff(before, after).await?, *format, "no differences")
        }
        CensusCommand::Publish { target, output, title, license, tensors } => {
            let census = Census::open(connection.builder().build()?, target)?;
            let options = PublishOptions {
                title: title.clone(),
                license: license.clone(),
                tensors: *tensors,
            };
            let repos = census.tool(tool()).publish(output, &options).await?;
            print_written(&counted(repos as u64, "row"), output)
        }
        CensusCommand::Verify { target, sample, seed, format, quota } => {
            let client = client(quota, connection)?;
            let (repos, changes) = verify(&client, target, *sample as usize, *seed).await?;
            print_changes(&changes, *format, &format!("no differences in {}", repositories(repos)))
        }
    }
}

/// Builds a client that waits for quotas, identifies itself, and has no cache, because the census stores the headers.
fn client(args: &QuotaArgs, connection: &ConnectionArgs) -> CommandResult<Client> {
    let contact = args.contact.as_ref().map_or_else(String::new, |contact| format!(" ({contact})"));
    let retry = connection.retry_policy().max_wait(MAX_QUOTA_WAIT);
    let builder = connection.builder().user_agent(format!("census{contact}")).retry_policy(retry);
    Ok(builder.quota_share(args.quota_share).max_total_header_bytes(MAX_HEADER_BYTES).build()?)
}

async fn write_list(args: &ListArgs, client: &Client, line: &ProgressLine) -> CommandResult {
    let mut listing = Listing::new().limit(args.limit);
    if let Some(tag) = &args.filter {
        listing = listing.filter(tag);
    }
    if let Some(author) = &args.author {
        listing = listing.author(author);
    }
    if let Some(since) = &args.since {
        let midnight = format!("{since}T00:00:00Z");
        let time = DateTime::parse_from_rfc3339(since);
        listing = match time.or_else(|_| DateTime::parse_from_rfc3339(&midnight)) {
            Ok(time) => listing.since(time.timestamp_millis()),
            Err(_) if is_same_file(Path::new(since), &args.output) => {
                return Err(CommandError::usage(
                    "`--output` would overwrite the list passed to `--since`",
                ));
            }
            Err(_) if !Path::new(since).exists() => {
                return Err(CommandError::usage(
                    "`--since` is neither a date, a time nor an existing list",
                ));
            }
            Err(_) => listing.update(Path::new(since))?,
        };
    }
    let listed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&listed);
    let listing = listing.on_progress(move |models| count.store(models, Ordering::Relaxed));
    let shown = line.show(Some(PRINT_INTERVAL), move |_| {
        format!("{} listed", counted(listed.load(Ordering::Relaxed) as u64, "model"))
    });
    let models = listing.write(client, &args.output).await;
    drop(shown);
    print_written(&counted(models? as u64, "model"), &args.output)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

async fn read_manifest(
    args: &ReadArgs,
    connection: &ConnectionArgs,
    line: &ProgressLine,
) -> CommandResult {
    let manifest = Manifest::open(&args.manifest, args.column.as_deref())?;
    let client = client(&args.reading.quota, connection)?;
    let (slice, slices) = args.slice;
    let mut census = Census::create(client.clone(), &args.output)?.slice(slice, slices);
    if let Some(previous) = &args.previous {
        census = census.previous(previous);
    }
    let census = with_limits(census, &args.reading);
    let duplicates = if_any(manifest.duplicates() as u64, |names| {
        format!("; {} ignored", counted(names, "duplicate name"))
    });
    let parts = counted(manifest.parts() as u64, "part");
    let listed = format!("{} in {parts}{duplicates}", repositories(manifest.repos()));
    let (census, shown) = show_progress(census, client, line, Some(listed));
    print(&until_signal(line, shown, &census, census.read(&manifest).boxed()).await?)
}

fn repositories(count: usize) -> String {
    match count as u64 {
        1 => "1 repository".to_owned(),
        count => format!("{} repositories", thousands(count)),
    }
}

/// Shows the progress of a census until the returned guard is dropped. Prints the description of the manifest first, if
/// there is one.
fn show_progress(
    census: Census,
    client: Client,
    line: &ProgressLine,
    manifest: Option<String>,
) -> (Census, ShownProgress) {
    let progress = Arc::new(Mutex::new(CensusProgress::default()));
    let (shown, started) = (Arc::clone(&progress), Instant::now());
    let shown = line.show(Some(PRINT_INTERVAL), move |_| {
        let CensusProgress { done, failed, total, outage, .. } = *lock(&shown);
        let outage = if outage.is_some() { ", paused by an outage" } else { "" };
        ListCounts { done, failed, total }.describe(started, &client) + outage
    });
    let (line, described) = (line.clone(), Once::new());
    let census = census.on_progress(move |now| {
        let before = replace(&mut *lock(&progress), now);
        if let Some(manifest) = &manifest {
            let total = thousands(now.total as u64);
            described.call_once(|| line.print(&format!("{manifest}; {total} to read")));
        }
        match (before.outage, now.outage) {
            (None, Some(error)) => line.print(&format!(
                "the Hub does not answer ({error}): waiting for the end of the outage"
            )),
            (Some(_), None) => line.print("the outage has ended"),
            _ => {}
        }
    });
    (census, shown)
}

fn with_limits(census: Census, args: &CommonReadArgs) -> Census {
    census.concurrency(args.jobs.into()).max_outage(args.max_outage).tool(tool())
}

/// Returns the name, the version and the commit of this program.
fn tool() -> String {
    let commit = option_env!("HF_META_COMMIT").map(|commit| format!(" {commit}"));
    format!("hf-meta {}{}", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default())
}

/// Runs a census until its end or a signal, and shows its progress. The signal ends the process after all complete rows
/// are stored, and a second one does so immediately.
async fn until_signal(
    line: &ProgressLine,
    _shown: ShownProgress,
    census: &Census,
    run: impl Future<Output = Result<CensusSummary, CensusError>>,
) -> CommandResult<CensusSummary> {
    let listen = || signal().map_err(failed_to("wait for signals"));
    let (run, first) = (pin!(run), pin!(listen()?));
    let (signal, run) = match select(run, first).await {
        Either::Left((result, _)) => return Ok(result?),
        Either::Right((signal, run)) => (signal, run),
    };
    census.stop_handle().stop();
    line.print("interrupted: storing all complete rows");
    match select(run, pin!(listen()?)).await {
        Either::Left((Err(error), _))
            if !matches!(error, CensusError::Incomplete { .. } | CensusError::Stopped) =>
        {
            Err(error.into())
        }
        _ => end_by(signal, line),
    }
}

/// Prints the number of rows per status.
fn print(summary: &CensusSummary) -> CommandResult {
    let table = Table::new()
        .text("status", |((status, _), _): &(&(String, String), &usize)| status.clone())
        .text("error", |((_, kind), _)| escape(kind))
        .number("repositories", |(_, rows)| thousands(**rows as u64));
    Page::print(|page| page.table(&table, || &summary.rows))?;
    if summary.not_recounted > 0 {
        let rows = counted(summary.not_recounted as u64, "row");
        let reason = "because their headers are not stored";
        print_to_stderr(&format!("{rows} kept their earlier counts, {reason}"));
    }
    Ok(if summary.failed() == 0 { ExitStatus::Success } else { ExitStatus::Remote })
}

/// Prints the differences between two censuses.
fn print_changes(changes: &[CensusChange], format: OutputFormat, none: &str) -> CommandResult {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => escape(text),
        value => escape(&value.to_string()),
    };
    let table = Table::new()
        .text("change", |change: &&CensusChange| text(&json!(change.change)))
        .text("repo", |change| escape(&change.repo))
        .text("column", |change| change.column.clone().unwrap_or_default())
        .text("before", |change| text(&change.before))
        .shrink(Shrink::TruncateTo(MIN_VALUE_WIDTH))
        .text("after", |change| text(&change.after))
        .shrink(Shrink::TruncateTo(MIN_VALUE_WIDTH));
    match format {
        OutputFormat::Json => changes.iter().try_for_each(print_json)?,
        OutputFormat::Table if changes.is_empty() => Page::print(|page| page.line(none))?,
        OutputFormat::Table => Page::print(|page| page.table(&table, || changes))?,
        format => Page::print(|page| table.write_rows(page.out, format, changes))?,
    }
    Ok(if changes.is_empty() { ExitStatus::Success } else { ExitStatus::CheckFailed })
}

fn print_written(rows: &str, target: &Path) -> CommandResult {
    let file = escape(&target.display().to_string());
    Page::print(|page| writeln!(page.out, "wrote {rows} to {file}"))?;
    Ok(ExitStatus::Success)
}

/// The extensions of lists in other formats.
const OTHER_FORMATS: &[&str] = &["csv", "json", "jsonl", "ndjson", "tsv", "txt"];

/// Returns a parser of output paths that rejects the extensions of other formats.
fn output(
    format: &'static str,
    others: &'static [&'static str],
) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| {
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        if others.contains(&extension) {
            return Err(format!(
                "the output is {format}, so its name cannot end with .{extension}"
            ));
        }
        Ok(path)
    })
}

/// Parses a slice such as `0/4`.
fn slice(text: &str) -> Result<(usize, usize), String> {
    let parsed = text.split_once('/').and_then(|(slice, slices)| {
        let (slice, slices) = (slice.parse().ok()?, slices.parse().ok()?);
        (slice < slices).then_some((slice, slices))
    });
    parsed.ok_or_else(|| "must be a slice such as 0/4, numbered from 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_a_number_below_the_number_of_slices() {
        assert_eq!(slice("0/4"), Ok((0, 4)));
        for text in ["", "1", "4/4", "0/0", "-1/4", "a/b"] {
            assert!(slice(text).is_err(), "{text}");
        }
    }
}
