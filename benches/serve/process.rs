//! The service as a process, and requests to it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::{Args, Result};
use hf_meta_testing::MockHub;

/// A process that is killed on drop.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Returns a value from the memory status of the process, such as `VmRSS`, in MB.
    pub(crate) fn memory(&self, name: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let line = line.ok_or("no such value in the status of the process")?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? * 1_024.0 / 1e6)
    }
}

/// The settings of glibc's allocator in `examples/deploy`.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "2"),
    ("MALLOC_TRIM_THRESHOLD_", "1048576"),
    ("MALLOC_MMAP_THRESHOLD_", "1048576"),
];

/// Starts a badge service without limits per client on the first core, and returns its URL.
pub(crate) fn serve(
    args: &Args,
    hub: &MockHub,
    cache: &str,
    options: &[&str],
) -> Result<(Process, String)> {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(binary(args)).args(["serve", "--requests-per-minute", "0"]);
    command.args(["--lookup-timeout", "60"]);
    command.args([
        "--upstream-requests-per-minute",
        "0",
        "--total-upstream-requests-per-minute",
        "0",
    ]);
    command.env("TOKIO_WORKER_THREADS", "1").envs(ALLOCATOR);
    start(command, hub, cache, options)
}

/// Starts a badge service with the limits that it has by default, and returns its URL.
pub(crate) fn serve_by_default(
    args: &Args,
    hub: &MockHub,
    cache: &str,
    options: &[&str],
) -> Result<(Process, String)> {
    let mut command = Command::new(binary(args));
    command.arg("serve").envs(ALLOCATOR);
    start(command, hub, cache, options)
}

fn binary(args: &Args) -> &str {
    args.binary.as_deref().unwrap_or(env!("CARGO_BIN_EXE_hf-meta"))
}

fn start(
    mut command: Command,
    hub: &MockHub,
    cache: &str,
    options: &[&str],
) -> Result<(Process, String)> {
    command.args(["--listen", "127.0.0.1:0", "--endpoint", hub.endpoint(), "--cache", cache]);
    let mut child = Process(command.args(options).stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
    let address = line.trim().strip_prefix("listening on ").ok_or("no address")?.to_owned();
    Ok((child, address))
}

pub(crate) fn client() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

pub(crate) async fn get(client: &reqwest::Client, url: &str) -> Result<String> {
    Ok(client.get(url).send().await?.error_for_status()?.text().await?)
}
