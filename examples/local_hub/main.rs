//! Serves a folder as a Hub: `cargo run --example local_hub -- [FOLDER] [--port N] [--tls] [--rtt 50ms]`.
//!
//! Prints one line to stdout that can be put before a command, `HF_ENDPOINT=http://…`. Enter prints the number of
//! requests, bytes and connections since the last Enter as JSON. Ctrl-C stops the server.
//!
//! With `--tls`, the Hub and its CDN serve HTTPS on two addresses, and the line also sets the variables that make clients trust
//! their certificate. `--rtt` simulates a round-trip time; `src/testing/link.rs` documents the simulation.

mod duration;
mod tls;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use hf_meta::testing::{Host, Hub, load_folder};
use serde_json::json;
use tls::Tls;

/// Serve a folder of models as a local Hub.
#[derive(Parser)]
struct Args {
    /// Folder of repositories: fixtures or downloaded models.
    #[arg(default_value = "fixtures")]
    folder: PathBuf,
    /// Port of the Hub; 0 means any free port.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Serve HTTPS.
    #[arg(long)]
    tls: bool,
    /// Offer HTTP/1.1 only.
    #[arg(long, requires = "tls")]
    http1: bool,
    /// Simulated round-trip time, such as `50ms` or `0.2s`.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_duration, default_value = "0ms")]
    rtt: Duration,
    /// Bandwidth of all responses together, in megabits per second.
    #[arg(long, value_name = "MBIT")]
    bandwidth: Option<u64>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args = Args::parse();
    let repos = load_folder(&args.folder)?;
    for repo in &repos {
        writeln!(io::stderr(), "{}", repo.id())?;
    }
    let hub = Hub::builder().repos(repos).port(args.port).round_trip(args.rtt);
    let hub = match args.bandwidth {
        Some(megabits) => hub.bandwidth(megabits.saturating_mul(1_000_000)),
        None => hub,
    };
    let hub = match (args.tls, args.http1) {
        (false, _) => hub,
        (true, false) => hub.https(Tls::new(&["h2", "http/1.1"])?),
        (true, true) => hub.https(Tls::new(&["http/1.1"])?),
    };
    let hub = hub.start()?;
    let mut bundle = tempfile::Builder::new().suffix(".pem").tempfile()?;
    write!(io::stdout(), "HF_ENDPOINT={}", hub.endpoint())?;
    if let Some(authority) = hub.ca_certificate() {
        bundle.write_all(authority.as_bytes())?;
        let path = bundle.path().display();
        write!(io::stdout(), " SSL_CERT_FILE={path} NODE_EXTRA_CA_CERTS={path}")?;
    }
    writeln!(io::stdout())?;
    io::stdout().flush()?;
    std::thread::spawn(move || report_requests(&hub));
    tokio::signal::ctrl_c().await
}

/// Prints the requests since the last report for every line on stdin.
fn report_requests(hub: &Hub) -> io::Result<()> {
    let made = || [Host::Hub, Host::Cdn].map(|host| hub.connections_made(host));
    let mut before = made();
    for _ in io::stdin().lock().lines() {
        let (log, now) = (hub.log(), made());
        hub.clear_log();
        let report = json!({
            "requests": log.len(),
            "bytes": log.iter().map(|request| request.sent.bytes()).sum::<u64>(),
            "connections": { "hub": now[0] - before[0], "cdn": now[1] - before[1] },
        });
        before = now;
        writeln!(io::stdout(), "{report}")?;
    }
    // The Hub continues after the end of stdin.
    std::thread::park();
    Ok(())
}
