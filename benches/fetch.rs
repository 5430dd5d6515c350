//! The time of a cold call in round trips: `cargo bench -p hf-meta-cli --bench fetch -- [REPO]... [--rtt 50ms]`.
//!
//! Each call is a new process of the command, so it starts without connections. The local Hub and its CDN have two
//! addresses, speak TLS, and are `--rtt` away; the model is described in
//! `crates/hf-meta-testing/src/server.rs`. The results include the work of the machine, so a short round trip makes them worse.

mod network;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser;
use hf_meta_testing::{Host, MockHub};
use network::tls::Tls;
use serde_json::Value;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Measure cold calls in round trips.
#[derive(Parser)]
struct Args {
    /// Repositories to read; by default two small and two large ones.
    #[arg(default_values = ["gpt2", "bigscience/bloom", "deepseek-ai/DeepSeek-R1", "moonshotai/Kimi-K2.5"])]
    repos: Vec<String>,
    /// The round trip to the servers, in milliseconds.
    #[arg(long, value_parser = network::milliseconds, default_value = "50ms")]
    rtt: Duration,
    /// The number of calls per repo; the median is shown.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Offer HTTP/1.1 only, not HTTP/2.
    #[arg(long)]
    http1: bool,
    /// An argument that cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A plan: its name, the command's options, and the minimum number of round trips for a single file and for shards.
///
/// Connecting takes one round trip, TLS 1.3 another one, and each sequential request another one. A small file takes
/// two requests, the redirect and the body, and so does each range of a large file.
struct Plan(&'static str, &'static [&'static str], [u32; 2]);

const PLANS: [Plan; 2] =
    [Plan("exact", &[], [8, 10]), Plan("prefetch", &["--plan", "prefetch"], [6, 8])];

/// The measurements of one call.
struct Call {
    process: Duration,
    seconds: f64,
    is_sharded: bool,
    requests: usize,
    bytes: u64,
    connections: [usize; 2],
}

fn main() -> Result<()> {
    let args = Args::parse();
    let protocols = if args.http1 { vec!["http/1.1"] } else { vec!["h2", "http/1.1"] };
    let hub = MockHub::builder().repos(network::repos(&args.repos)?);
    let hub = hub.latency(args.rtt).https(Tls::new(&protocols)?).start()?;
    let folder = tempfile::tempdir()?;
    let bundle = folder.path().join("authority.pem");
    std::fs::write(&bundle, hub.ca_certificate().unwrap_or_default())?;
    writeln!(
        io::stdout(),
        "{:26} {:9} {:>9} {:>5} {:>8} {:>9} {:>9} {:>11} {:>5} {:>5}",
        "repo",
        "plan",
        "trips",
        "floor",
        "call",
        "process",
        "requests",
        "bytes",
        "hub",
        "cdn"
    )?;
    for repo in &args.repos {
        for plan in &PLANS {
            let calls = (0..args.repeat.max(1)).map(|_| call(&hub, &bundle, repo, plan));
            let calls = calls.collect::<Result<Vec<_>>>()?;
            writeln!(io::stdout(), "{}", row(repo, plan, calls, args.rtt))?;
        }
    }
    Ok(())
}

fn call(hub: &MockHub, bundle: &PathBuf, repo: &str, plan: &Plan) -> Result<Call> {
    hub.clear_log();
    let made = || [Host::Hub, Host::Cdn].map(|host| hub.connections_made(host));
    let before = made();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.args([repo, "--no-cache", "--json", "--summary"]).args(plan.1);
    command.env("HF_ENDPOINT", hub.endpoint()).env("SSL_CERT_FILE", bundle);
    let started = Instant::now();
    let output = command.output()?;
    let process = started.elapsed();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let (log, after) = (hub.log(), made());
    Ok(Call {
        process,
        seconds: document["fetch"]["seconds"].as_f64().unwrap_or_default(),
        is_sharded: document["sharded"] == true,
        requests: log.len(),
        bytes: log.iter().map(|request| request.sent.bytes()).sum(),
        connections: [after[0] - before[0], after[1] - before[1]],
    })
}

/// Formats the call with the median time.
fn row(repo: &str, plan: &Plan, mut calls: Vec<Call>, rtt: Duration) -> String {
    calls.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let Call { process, seconds, is_sharded, requests, bytes, connections: [hub, cdn] } =
        calls.swap_remove(calls.len() / 2);
    let (trips, floor) = (seconds / rtt.as_secs_f64(), plan.2[usize::from(is_sharded)]);
    let process = process.as_secs_f64();
    format!(
        "{repo:26} {:9} {trips:9.2} {floor:5} {seconds:6.3} s {process:7.3} s {requests:9} {bytes:11} {hub:5} {cdn:5}",
        plan.0
    )
}
