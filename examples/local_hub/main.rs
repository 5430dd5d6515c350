//! Serves a folder as a Hub: `cargo run --example local_hub -- [FOLDER] [--port N] [--tls] [--rtt 50ms]`.
//!
//! Prints one line to stdout that can be put before a command, `HF_ENDPOINT=http://…`. Enter prints the number of
//! requests, bytes and connections since the last Enter as JSON, and `push` changes one percent of the generated models.
//! Ctrl-C stops the server.
//!
//! With `--tls`, the Hub and its CDN serve HTTPS on two addresses, and the line also sets the variables that make clients trust
//! their certificate. `--rtt` simulates a round-trip time; the module `link` of `hf-meta-testing` documents the simulation. `--computed`
//! adds generated models, and `--quota` enforces a rate limit.

mod duration;
mod folder;
mod generated;
mod tls;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use folder::load_folder;
use generated::GeneratedModels;
use hf_meta_testing::{Host, MockHub, RequestCounts};
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
    /// Number of generated models, in addition to the folder.
    #[arg(long, value_name = "N", default_value_t = 0)]
    computed: u64,
    /// Seed of the generated models.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Requests per window of each kind of request, such as `500/300s`.
    #[arg(long, value_name = "REQUESTS/DURATION", value_parser = parse_quota)]
    quota: Option<(u64, Duration)>,
}

fn parse_quota(text: &str) -> Result<(u64, Duration), &'static str> {
    let (requests, window) = text.split_once('/').ok_or("expected requests/duration")?;
    let requests = requests.parse().map_err(|_| "the requests are not a number")?;
    Ok((requests, duration::parse_duration(window)?))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args = Args::parse();
    let repos = load_folder(&args.folder)?;
    for repo in &repos {
        writeln!(io::stderr(), "{}", repo.id())?;
    }
    let models = GeneratedModels::new(args.computed, args.seed);
    let hub = MockHub::builder().repos(repos).port(args.port).latency(args.rtt);
    let hub = hub.lazy_repos(models.clone()).without_log();
    let hub = match args.quota {
        Some((requests, window)) => hub.quota(requests, window),
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
    std::thread::spawn(move || report_requests(&hub, &models));
    tokio::signal::ctrl_c().await
}

/// Prints the requests since the last report for every line on stdin.
fn report_requests(hub: &MockHub, models: &GeneratedModels) -> io::Result<()> {
    let made = || [Host::Hub, Host::Cdn].map(|host| hub.connections_made(host));
    let (mut before, mut counted) = (made(), RequestCounts::default());
    for line in io::stdin().lock().lines() {
        if line? == "push" {
            models.push();
        }
        let (counts, now) = (hub.counts(), made());
        let report = json!({
            "requests": counts.total() - counted.total(),
            "api": counts.api - counted.api,
            "resolvers": counts.resolvers - counted.resolvers,
            "refused": counts.refused - counted.refused,
            "bytes": counts.bytes - counted.bytes,
            "connections": { "hub": now[0] - before[0], "cdn": now[1] - before[1] },
        });
        (before, counted) = (now, counts);
        writeln!(io::stdout(), "{report}")?;
    }
    // The Hub continues after the end of stdin.
    std::thread::park();
    Ok(())
}
