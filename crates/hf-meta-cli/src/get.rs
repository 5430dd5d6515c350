//! `hf-meta get`: reads tensors by their byte ranges, into a safetensors file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::ValueHint;
use futures::stream::TryStreamExt;
use hf_meta::{
    CommitSha, Error, Model, ReadPlan, ReadRange, TensorOrder, TensorReader, TensorSelection,
};
use hf_meta_count::memory::parse_size;
use hf_meta_count::results::text::{bytes, counted, duration, escape, thousands};
use hf_meta_format::read_plan::PlanError;
use serde::Serialize;

use super::context::{CommandContext, SelectionArgs, Sources, plans};
use super::exit::{CommandError, CommandResult, ExitStatus, failed_to};
use super::output::{Page, print_json};
use super::part_file::PartFile;
use super::repos::RepoArg;
use super::signal;
use super::stderr::lock;
use super::table::{Shrink, Table};
use super::terminal::ColorArgs;

/// The number of bytes from which a note says how much will be read.
const MIN_NOTED_BYTES: u64 = 1_000_000_000;

/// The interval of the lines about progress if stderr is not a terminal.
const PRINT_INTERVAL: Duration = Duration::from_secs(10);

/// The memory for data that are written to stdout in their order: a range that arrives early has to wait. The process then
/// takes 160 MB.
const STDOUT_MEMORY: u64 = 128 << 20;

/// The minimum useful width of the column of files.
const MIN_FILE_WIDTH: usize = 16;

/// Read tensors into a safetensors file, without the rest of the model
///
/// Reads only the byte ranges of the tensors. FILE appears once it is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hf-meta get org/name 'model.layers.0.*' -o layer.safetensors
  hf-meta get org/name 'lm_head.weight[0:128]' -o rows.safetensors
  hf-meta get org/name '*norm*' -o - | other-program
  hf-meta get org/name '*' --plan-only --json

Exit status:
  0  the tensors were written, or planned
  1  no tensor has the name, or it cannot be read by range; no valid weights
  2  invalid arguments or environment variables
  3  the repository or revision was not found, access was denied, or the Hub or
     the network failed
  4  FILE exists, or a local file could not be read or written")]
pub(crate) struct GetArgs {
    /// Model: anything that `hf-meta` can read
    #[arg(value_name = "REPO", value_hint = ValueHint::AnyPath)]
    repo: OsString,

    /// Names of tensors, patterns with `*` and `?`, or rows: 'NAME[0:128]'
    #[arg(value_name = "TENSOR", required = true)]
    tensors: Vec<String>,

    /// File to write, or `-` for stdout
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "plan_only")]
    output: Option<PathBuf>,

    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,

    /// Print the byte ranges instead of reading them
    #[arg(long, conflicts_with = "output")]
    plan_only: bool,

    /// Print the plan as JSON
    #[arg(long, short)]
    json: bool,

    /// Memory for data in flight, such as 512M [default: 64 MiB, or 128 MiB with `-o -`]
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = parse_memory)]
    max_memory: Option<u64>,

    #[command(flatten)]
    pub(crate) color: ColorArgs,

    #[command(flatten)]
    selection: SelectionArgs,
}

fn parse_memory(text: &str) -> Result<u64, &'static str> {
    parse_size(text).ok_or("expected a size, such as 512M")
}

/// Removes the plan `hub`, whose headers do not state where the data begin, and the option for several repositories.
pub(crate) fn define(get: clap::Command) -> clap::Command {
    get.mut_args(|arg| match arg.get_id().as_str() {
        "plan" => arg.value_parser(plans(&["exact", "prefetch"])).help(
            "Requests for headers: two ranges per file (exact) or one (prefetch) [default: prefetch]",
        ),
        "jobs" => arg.hide(true),
        _ => arg,
    })
}

/// The plan as JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PlanDocument<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'a CommitSha>,
    #[serde(flatten)]
    plan: &'a ReadPlan,
}

pub(crate) async fn run(args: &GetArgs, context: &CommandContext) -> CommandResult {
    // clap does not require an option that conflicts with a given one.
    if args.json && !args.plan_only {
        return Err(CommandError::usage("`--json` requires `--plan-only`"));
    }
    signal::end_on_terminate(&context.line);
    // Before the first request, so that nothing is read for a file that cannot be written.
    let mut output =
        args.output.as_deref().map(|path| Output::open(path, args.force)).transpose()?;
    let repo = RepoArg::new(&args.repo, None, context.client.endpoint());
    let repos = [repo.clone()];
    let (selection, is_json) = (&args.selection, args.json);
    let sources = Sources { repos: &repos, selection, is_json, is_streamed: false };
    let tensors = TensorSelection::patterns(args.tensors.iter().cloned());
    let is_stdout = matches!(output, Some(Output::Stdout));
    let max_memory = args.max_memory.or(is_stdout.then_some(STDOUT_MEMORY));
    let mut reader = None;
    let read = move |model: Model| {
        let tensors = model.tensors(tensors.clone());
        // A file is written at any position, and a pipe in the order of the data.
        let tensors = if is_stdout { tensors.order(TensorOrder::Alignment) } else { tensors };
        max_memory.map_or(tensors.clone(), |bytes| tensors.max_memory(bytes)).into_future()
    };
    let collect = |_: &RepoArg, read: Result<TensorReader, Error>| {
        reader = Some(read.map_err(selection_error)?);
        Ok(ExitStatus::Success)
    };
    let status = context.for_each(sources, read, collect).await?;
    let Some(reader) = reader else { return Ok(status) };
    let Some(output) = &mut output else {
        let document =
            PlanDocument { source: reader.source(), commit: reader.commit(), plan: reader.plan() };
        if args.json {
            print_json(&document)?;
        } else {
            context.print(|page| write_plan(page, &document))?;
        }
        return Ok(status);
    };
    match save(reader, output, context).await {
        Ok(()) => Ok(status),
        Err(failed) => context.report(&repo, sources, failed),
    }
}

/// Returns the error of a command, whose status for a missing tensor is the one of a missing file.
fn selection_error(error: Error) -> CommandError {
    match error {
        Error::InvalidOption { option: "tensors", .. } => {
            CommandError::new(ExitStatus::CheckFailed, error)
        }
        error => error.into(),
    }
}

/// Returns the error for tensors that a safetensors file cannot contain, with advice for the blocks of GGML.
fn header_error(error: PlanError) -> CommandError {
    if matches!(error, PlanError::NotSafetensors { .. }) {
        let advice =
            "`read_tensors` of the Python package returns its bytes, and `--plan-only` their range";
        return CommandError::new(ExitStatus::CheckFailed, format!("{error}; {advice}"));
    }
    CommandError::new(ExitStatus::CheckFailed, error)
}

/// Writes the ranges of a plan, and what they contain.
fn write_plan(page: &mut Page<'_>, document: &PlanDocument<'_>) -> io::Result<()> {
    page.heading(document.source)?;
    let table = Table::new()
        .text("file", |range: &&ReadRange| escape(range.file.path.as_str()))
        .shrink(Shrink::TruncateTo(MIN_FILE_WIDTH))
        .number("start", |range| thousands(range.start))
        .number("end", |range| thousands(range.end))
        .number("bytes", |range| bytes(range.byte_length()))
        .number("tensors", |range| thousands(document.plan.pieces(range).count() as u64));
    page.table(&table, || &document.plan.ranges)?;
    page.line(&describe(document.plan))
}

/// Describes a plan in one line.
fn describe(plan: &ReadPlan) -> String {
    let files: BTreeSet<_> = plan.ranges.iter().map(|range| &range.file.path).collect();
    let tensors = counted(plan.tensors.len() as u64, "tensor");
    let ranges = counted(plan.ranges.len() as u64, "range");
    let files = counted(files.len() as u64, "file");
    let [size, read] = [plan.tensor_bytes(), plan.bytes_to_read()].map(bytes);
    format!("{tensors}, {size}, in {ranges} of {files}; {read} to read")
}

/// The file to write, or stdout.
enum Output {
    File(PartFile),
    Stdout,
}

impl Output {
    fn open(path: &Path, is_replaced: bool) -> CommandResult<Self> {
        if path.as_os_str() != "-" {
            return Ok(Self::File(PartFile::create(path, is_replaced)?));
        }
        if io::stdout().is_terminal() {
            return Err(CommandError::usage("stdout is a terminal; `-o FILE` writes a file"));
        }
        Ok(Self::Stdout)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stdout => {
                // Not locked between writes: the progress may be drawn in the meantime.
                io::stdout().lock().write_all(bytes).map_err(failed_to("write to stdout"))
            }
        }
    }
}

/// The bytes that were written.
struct Written {
    name: String,
    bytes: AtomicU64,
    total: u64,
    started: Instant,
}

impl Written {
    /// Formats the progress, such as `part.safetensors  20 MB of 1.7 GB, 95 MB/s, 18 s left`.
    fn describe(&self) -> String {
        // After a failed attempt, bytes are written again.
        let written = self.bytes.load(Ordering::Relaxed).min(self.total);
        let text = format!("{}  {} of {}", self.name, bytes(written), bytes(self.total));
        if written > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let [done, left] = [written, self.total.saturating_sub(written)].map(|n| n as f64);
            let rate = done / self.started.elapsed().as_secs_f64().max(0.001);
            let left = Duration::try_from_secs_f64(left / rate).unwrap_or(Duration::MAX);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate for people"
            )]
            let rate = bytes(rate as u64);
            let left = duration(left);
            return format!("{text}, {rate}/s, {left} left");
        }
        text
    }
}

/// Writes the parts of tensors behind the header of a file, in the order in which they arrive.
async fn write_parts(
    reader: TensorReader,
    file: &PartFile,
    starts: Vec<u64>,
    written: &Arc<Written>,
) -> CommandResult<()> {
    let (writer, written) = (file.writer()?, Arc::clone(written));
    let failure: Arc<Mutex<Option<io::Error>>> = Arc::default();
    let failed = Arc::clone(&failure);
    // A copy to the memory of the system takes less time than another thread would take to do it.
    let receive = move |tensor: usize, offset: u64, bytes: &[u8]| {
        let start = starts.get(tensor).copied().unwrap_or(u64::MAX);
        let done = writer.write_at(start.saturating_add(offset), bytes).map_err(|error| {
            let kind = error.kind();
            *lock(&failed) = Some(error);
            io::Error::from(kind)
        });
        written.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        done
    };
    let read = reader.for_each_part(receive).await;
    // The error of the file has its name.
    if let Some(error) = lock(&failure).take() {
        return Err(error.into());
    }
    Ok(read?)
}

/// Reads the tensors of a plan, and writes them as a safetensors file.
async fn save(
    reader: TensorReader,
    output: &mut Output,
    context: &CommandContext,
) -> CommandResult<()> {
    let plan = reader.plan();
    let header = plan.safetensors_header().map_err(header_error)?;
    let (tensors, total) = (plan.tensors.len() as u64, plan.tensor_bytes());
    if total > MIN_NOTED_BYTES {
        context.note(&describe(plan));
    }
    let name = match output {
        Output::File(file) => escape(&file.name()),
        Output::Stdout => "stdout".to_owned(),
    };
    let (bytes_written, started) = (AtomicU64::new(0), Instant::now());
    let written = Arc::new(Written { name, bytes: bytes_written, total, started });
    let shown = Arc::clone(&written);
    let line = context.line.show(Some(PRINT_INTERVAL), move |_| shown.describe());
    output.write(&header.bytes)?;
    match output {
        Output::File(file) => write_parts(reader, file, header.starts, &written).await?,
        Output::Stdout => {
            let mut chunks = reader.chunks();
            while let Some(chunk) = chunks.try_next().await? {
                output.write(&chunk.bytes)?;
                written.bytes.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
            }
        }
    }
    drop(line);
    let Output::File(file) = output else { return Ok(()) };
    file.finish()?;
    let (stats, seconds) = (context.client.stats(), written.started.elapsed().as_secs_f64());
    let (requests, read) = (counted(stats.requests, "request"), bytes(stats.bytes_read));
    let (tensors, size) = (counted(tensors, "tensor"), bytes(total));
    let name = &written.name;
    Page::print(|page| {
        page.line(&format!("{name}: {tensors}, {size}; {requests}, {read} read, {seconds:.2} s"))
    })?;
    Ok(())
}
