//! A census of generated models by the command, and the truth of each row:
//! `cargo bench -p hf-meta-cli --bench census -- [--models 100000] [--quota 6000]`.
//!
//! The Hub enforces its quota in windows of 2 s. Prints the time, CPU and peak memory of each subcommand and the size of
//! the tables. Fails if a row is not true, if a request was refused, or if the memory exceeds 100 MB. Linux only.

#[path = "../../examples/local_hub/generated/mod.rs"]
mod generated;

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use generated::{GeneratedModels, ModelTruth};
use hf_meta_census::CensusRow;
use hf_meta_testing::MockHub;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The most memory of the command, in MB.
const MAX_MEMORY: f64 = 100.0;

/// Measure a census.
#[derive(Parser)]
struct Args {
    /// Number of models.
    #[arg(long, default_value_t = 100_000)]
    models: u64,
    /// Requests in each window of 2 s.
    #[arg(long, default_value_t = 6_000)]
    quota: u64,
    /// Another build of the command.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_hf-meta"))]
    binary: String,
    /// Accepted and ignored: `cargo bench` adds it.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let models = GeneratedModels::new(args.models, 17);
    let hub =
        MockHub::builder().lazy_repos(models.clone()).quota(args.quota, Duration::from_secs(2));
    let hub = hub.without_log().start()?;
    let folder = tempfile::tempdir()?;
    let (list, census) = (folder.path().join("repos.parquet"), folder.path().join("census"));
    let mut out = io::stdout();
    let (packed, published) = (folder.path().join("rows.parquet"), folder.path().join("published"));
    let mut largest: f64 = 0.0;
    let mut step = |name: &str, options: &[&str], paths: &[&Path]| -> Result<()> {
        let cost = run(&args, &hub, &[&["-q", "census", name], options].concat(), paths)?;
        largest = largest.max(cost.memory);
        Ok(writeln!(out, "{name:<8} {cost}")?)
    };
    step("list", &["-o"], &[&list])?;
    step("read", &["-o"], &[&census, &list])?;
    let counts = hub.counts();
    let truths = || (0..args.models).map(|index| models.truth(index));
    check(&census.join("repos"), truths())?;
    step("count", &[], &[&census])?;
    check(&census.join("repos"), truths())?;
    step("pack", &["-o"], &[&packed, &census])?;
    step("publish", &["--tensors", "-o"], &[&published, &census])?;
    writeln!(out, "rows     all true after `read` and after `count`, {counts:?}")?;
    for table in ["repos", "files"] {
        writeln!(out, "{table:<8} {}", bytes(&census.join(table), args.models)?)?;
    }
    for table in ["repos", "files", "tensors"] {
        let file = published.join(table).with_extension("parquet");
        writeln!(out, "{table:<8} {}, published", bytes(&file, args.models)?)?;
    }
    if counts.refused > 0 || largest > MAX_MEMORY {
        return Err("a request was refused, or the memory is too large".into());
    }
    Ok(())
}

/// The cost of a process.
#[derive(Default)]
struct Cost {
    time: Duration,
    /// Seconds of CPU.
    cpu: f64,
    /// The peak of the resident memory in MB.
    memory: f64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { time, cpu, memory } = self;
        write!(f, "{:.1} s, CPU {cpu:.1} s, {memory:.1} MB", time.as_secs_f64())
    }
}

/// Runs the command to its end.
fn run(args: &Args, hub: &MockHub, options: &[&str], paths: &[&Path]) -> Result<Cost> {
    let mut command = Command::new(&args.binary);
    command.args(["--endpoint", hub.endpoint()]).args(options).args(paths).stdout(Stdio::null());
    let started = Instant::now();
    let mut process = command.spawn()?;
    let mut cost = Cost::default();
    loop {
        // The last values before the end: the system forgets them with the process.
        if let Some((cpu, memory)) = usage(process.id()) {
            (cost.cpu, cost.memory) = (cpu, memory);
        }
        if let Some(status) = process.try_wait()? {
            cost.time = started.elapsed();
            return if status.success() { Ok(cost) } else { Err(status.to_string().into()) };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the seconds of CPU and the peak memory in MB of a process that runs.
fn usage(process: u32) -> Option<(f64, f64)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may have spaces; times are the 14th and 15th value, in hundredths of a second.
    let ticks = stat.rsplit_once(") ")?.1.split(' ').skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let peak: f64 = peak.trim().strip_suffix(" kB")?.parse().ok()?;
    Some((ticks / 100.0, peak * 1_024.0 / 1e6))
}

/// Returns the size of a file or of all files in a folder.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn bytes(path: &Path, models: u64) -> Result<String> {
    let mut bytes = path.metadata()?.len();
    if path.is_dir() {
        bytes = 0;
        for file in fs::read_dir(path)? {
            bytes += file?.metadata()?.len();
        }
    }
    Ok(format!("{:.1} MB, {} bytes per model", bytes as f64 / 1e6, bytes / models))
}

/// Compares each row with the truth.
fn check(models: &Path, truths: impl Iterator<Item = ModelTruth>) -> Result<()> {
    let mut rows = HashMap::new();
    for file in fs::read_dir(models)? {
        for row in hf_meta_census::rows::<CensusRow>(&file?.path())? {
            let row = row?;
            rows.insert(row.repo.clone(), row);
        }
    }
    let mut checked = 0;
    for truth in truths {
        let row = rows.get(&truth.repo).ok_or_else(|| format!("no row of {}", truth.repo))?;
        if !is_true(row, &truth) {
            return Err(format!("{row:?} is not {truth:?}").into());
        }
        checked += 1;
    }
    if checked == rows.len() { Ok(()) } else { Err("there are other rows".into()) }
}

fn is_true(row: &CensusRow, truth: &ModelTruth) -> bool {
    let figures = match truth.parameters {
        Ok(parameters) => {
            row.parameter_total.and_then(|total| u64::try_from(total).ok()) == Some(parameters)
                && row.files.and_then(|files| u64::try_from(files).ok()) == Some(truth.files)
                && row.status == "ok"
        }
        Err(kind) => row.error_kind.as_deref() == Some(kind) && row.status != "ok",
    };
    figures && row.listed_commit.as_deref() == Some(&*truth.commit)
}
