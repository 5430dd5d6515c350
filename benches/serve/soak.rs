//! A long run with mixed load: known badges, new repositories, pages, hostile repositories, mute connections and a Hub
//! that fails now and then.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::hostile::repo;
use super::process::{client, serve_by_default};
use super::{Args, Result, weights};
use hf_meta_testing::{Fault, MockHub, Repo};

/// The number of small repositories.
const SMALL: usize = 2_000;

/// The number of hostile repositories.
const HOSTILE: usize = 8;

/// Titles of badges and statuses with their numbers.
type Outcomes = BTreeMap<String, u64>;

/// Runs the load for some minutes, and fails if the memory grows or the service does not answer.
#[tokio::main]
pub(crate) async fn soak(args: &Args, minutes: u64) -> Result<()> {
    let hub = hub(args)?;
    let folder = tempfile::tempdir()?;
    let cache = folder.path().display().to_string();
    // A short time to live, so that known badges are refreshed all the time.
    let options = ["--ttl", "5", "--total-upstream-requests-per-minute", "0"];
    let limits = ["--upstream-requests-per-minute", "0", "--requests-per-minute", "0"];
    let (server, address) = serve_by_default(args, &hub, &cache, &[options, limits].concat())?;
    let (end, next) = (Instant::now() + Duration::from_secs(60 * minutes), Arc::default());
    let start = server.memory("VmRSS")?;
    let mut readers = JoinSet::new();
    for _ in 0..8 {
        readers.spawn(read(address.clone(), Arc::clone(&next), end));
    }
    readers.spawn(stay_mute(address.clone(), end));
    let mut total = Outcomes::new();
    while let Some(outcomes) = readers.join_next().await {
        for (outcome, count) in outcomes?? {
            *total.entry(outcome).or_default() += count;
        }
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (peak, last) = (server.memory("VmHWM")?, server.memory("VmRSS")?);
    let mut out = io::stdout();
    writeln!(
        out,
        "{minutes} minutes, {} requests; memory {start:.0} MB, peak {peak:.0} MB, end {last:.0} MB",
        total.values().sum::<u64>()
    )?;
    for (outcome, count) in &total {
        writeln!(out, "{count:9} {outcome}")?;
    }
    let has_failed = total.contains_key("no response");
    if has_failed || peak > 400.0 {
        Err("requests without a response, or too much memory".into())
    } else {
        Ok(())
    }
}

/// Starts a Hub that sends a fault with one response in 50.
fn hub(args: &Args) -> Result<MockHub> {
    let small =
        (0..SMALL).map(|n| Repo::new(&format!("org/m{n}")).file("model.safetensors", weights()));
    let hostile = repo("org/h0", args.shards, args.tensors);
    let hostile = (0..HOSTILE).map(|n| hostile.renamed(&format!("org/h{n}")));
    let hub = MockHub::start(small.chain(hostile))?;
    let count = AtomicUsize::new(0);
    hub.inject(move |_, _| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        let fault = match n / 50 % 6 {
            0 => Fault::Status(500, Vec::new()),
            1 => Fault::Status(429, vec![("retry-after", "1".to_owned())]),
            2 => Fault::ConnectionReset,
            3 => Fault::HtmlPage { is_chunked: false },
            4 => Fault::ResetInBody { after: 5 },
            _ => Fault::Gzip,
        };
        n.is_multiple_of(50).then_some(fault)
    });
    Ok(hub)
}

/// Requests badges, JSON and pages one after the other.
async fn read(address: String, next: Arc<AtomicUsize>, end: Instant) -> Result<Outcomes> {
    let (client, mut outcomes) = (client()?, Outcomes::new());
    while Instant::now() < end {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let path = match n % 1_000 {
            0 => format!("/badge/org/h{}.svg", n / 1_000 % HOSTILE),
            1 => format!("/?repo=org/h{}", n / 1_000 % HOSTILE),
            2..50 => format!("/api/models/org/m{}", n * 7 % SMALL),
            50..80 => format!("/?repo=org/m{}", n * 11 % SMALL),
            80..100 => format!("/badge/org/none{n}.svg"),
            100..110 => format!("/badge/ORG/m{}.svg", n % SMALL),
            110..120 => format!("/badge/org/m{}.svg?{}", n % SMALL, "x".repeat(5_000)),
            _ => format!("/badge/org/m{}.svg", n % SMALL),
        };
        let outcome = match client.get(format!("{address}{path}")).send().await {
            Ok(response) => {
                let (status, body) = (response.status(), response.text().await.unwrap_or_default());
                let title = body.split("<title>").nth(1).and_then(|rest| rest.split('<').next());
                let content = match title {
                    Some(title) if path.starts_with("/badge/") => title,
                    _ => "page or JSON",
                };
                format!("{} {content}", status.as_u16())
            }
            Err(_) => "no response".to_owned(),
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    Ok(outcomes)
}

/// Opens connections that send requests and never read.
async fn stay_mute(address: String, end: Instant) -> Result<Outcomes> {
    let host = address.trim_start_matches("http://");
    let mut streams = std::collections::VecDeque::new();
    while Instant::now() < end {
        if let Ok(mut stream) = TcpStream::connect(host).await {
            let request = format!("GET /openapi.json HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(50);
            let write = stream.write_all(request.as_bytes());
            let _ = tokio::time::timeout(Duration::from_millis(100), write).await;
            streams.push_back(stream);
        }
        streams.truncate(50);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(Outcomes::new())
}
