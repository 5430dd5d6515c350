//! Serves a folder as a Hub: `cargo run --example local_hub -- [FOLDER] [--port N] [--tls] [--rtt 50ms]`.
//!
//! Stdout gets one line that can be put before a command, `HF_ENDPOINT=http://…`; Ctrl-C ends it. Each Enter prints
//! what was asked for since the last one, as a line of JSON.
//!
//! With `--tls` the servers are `https`, on two addresses, in HTTP/2 or HTTP/1.1, and the line tells clients whom to
//! believe, too. With `--rtt` they are as far away as that; `hub/link.rs` says what is modelled and what is not.

mod hub;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use hub::{Host, LocalHub, load_folder};
use serde_json::json;

/// Serve a folder of models as a Hub on this machine.
#[derive(Parser)]
struct Args {
    /// A tree of repos; fixtures or ordinary model folders.
    #[arg(default_value = "fixtures")]
    folder: PathBuf,
    /// The port to listen on instead of any free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Speak HTTPS.
    #[arg(long)]
    tls: bool,
    /// Speak HTTP/1.1 alone in it.
    #[arg(long, requires = "tls")]
    http1: bool,
    /// Delay the traffic by this round trip, in milliseconds.
    #[arg(long, value_name = "MS", value_parser = milliseconds, default_value = "0ms")]
    rtt: Duration,
    /// Send all responses through one line with this bandwidth, in megabits per second.
    #[arg(long, value_name = "MBIT")]
    bandwidth: Option<u64>,
}

fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.strip_suffix("ms").unwrap_or(text).parse().map(Duration::from_millis)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args = Args::parse();
    let repos = load_folder(&args.folder)?;
    for repo in &repos {
        writeln!(io::stderr(), "{}", repo.id())?;
    }
    let hub = LocalHub::builder().repos(repos).port(args.port).round_trip(args.rtt);
    let hub = match args.bandwidth {
        Some(megabits) => hub.bandwidth(megabits.saturating_mul(1_000_000)),
        None => hub,
    };
    let hub = match (args.tls, args.http1) {
        (false, _) => hub,
        (true, false) => hub.https(["h2", "http/1.1"]),
        (true, true) => hub.https(["http/1.1"]),
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
    std::thread::spawn(move || tell(&hub));
    tokio::signal::ctrl_c().await
}

/// Prints what was asked for, whenever there is a line to read.
fn tell(hub: &LocalHub) -> io::Result<()> {
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
    // The Hub goes on when there is nobody to ask.
    std::thread::park();
    Ok(())
}
