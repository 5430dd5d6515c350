//! Repositories and clients that try to stall, drain or block the service.
//!
//! The repositories are computed: every tensor has one byte, so that headers and index are as long as possible for
//! their number of tensors.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::process::{Process, client, get, serve_by_default};
use super::{Args, Result, weights};
use hf_meta_testing::{File, MockHub, Repo};

/// The number of concurrent lookups of hostile repositories.
const ATTACKERS: usize = 8;

/// The maximum memory of the service while it reads hostile repositories, in MB.
const MAX_PEAK: f64 = 400.0;

/// The maximum number of requests to the Hub and its CDN that an attack with one repository may cause: the budget of a
/// client, 500 requests to the Hub at first, and a lookup that began with the last of it. Each is redirected to the CDN.
const MAX_REQUESTS: usize = 2 * (500 + 150);

/// The number of letter cases in which one repository is requested.
const LETTER_CASES: usize = 21;

/// The number of connections that never read.
const MUTE_CONNECTIONS: usize = 100;

/// Runs all attacks, each on a separate service.
#[tokio::main]
pub(crate) async fn hostile(args: &Args) -> Result<()> {
    large_headers(args).await?;
    upstream_requests(args).await?;
    mute_connections(args).await
}

/// Creates a repository of `shards` files with `tensors` tensors each, all of one byte.
pub(crate) fn repo(id: &str, shards: usize, tensors: usize) -> Repo {
    let (mut repo, mut map) = (Repo::new(id), String::new());
    for shard in 0..shards {
        let (mut header, file) = (String::from("{"), format!("m{shard:05}.safetensors"));
        for at in 0..tensors {
            let (name, end) = (shard * tensors + at, at + 1);
            let _ = write!(
                header,
                r#""{name:06x}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{end}]}},"#
            );
            let _ = write!(map, r#""{name:06x}":"{file}","#);
        }
        header.pop();
        header.push('}');
        let head = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        let size = (head.len() + tensors) as u64;
        repo = repo.file(&file, File::padded(head, size));
    }
    map.pop();
    let index = format!(r#"{{"weight_map":{{{map}}}}}"#);
    repo.file("model.safetensors.index.json", File::from_bytes(index))
}

/// Durations of requests that are made one after the other, in ms.
#[derive(Default)]
struct Latencies(Vec<f64>);

impl Latencies {
    /// Requests a URL until `end` is set.
    async fn measure(client: reqwest::Client, url: String, end: Arc<AtomicBool>) -> Result<Self> {
        let mut latencies = Self::default();
        while !end.load(Ordering::Relaxed) {
            let started = Instant::now();
            get(&client, &url).await?;
            latencies.0.push(started.elapsed().as_secs_f64() * 1_000.0);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        latencies.0.sort_by(f64::total_cmp);
        Ok(latencies)
    }

    fn p99(&self) -> f64 {
        self.0.get(self.0.len() * 99 / 100).copied().unwrap_or_default()
    }

    fn most(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }
}

/// Measures `/healthz` and a known badge while hostile repositories are read.
async fn large_headers(args: &Args) -> Result<()> {
    let hostile = repo("org/h0", args.shards, args.tensors);
    let headers = args.shards * args.tensors * 64 / 1_000_000;
    let repos = (1..ATTACKERS).map(|n| hostile.renamed(&format!("org/h{n}")));
    let known = Repo::new("org/known").file("model.safetensors", weights());
    let hub = MockHub::start(repos.chain([hostile.clone(), known]))?;
    let folder = tempfile::tempdir()?;
    let cache = folder.path().display().to_string();
    let mut out = io::stdout();
    writeln!(
        out,
        "{} shards, about {headers} MB of headers; times in ms, memory in MB",
        args.shards
    )?;
    writeln!(
        out,
        "lookups  healthz max  badge p99 (idle)  seconds  memory before  peak  after 5 s"
    )?;
    for page in [false, true] {
        for lookups in [2, ATTACKERS] {
            let (server, address) = serve_by_default(args, &hub, &cache, &[])?;
            let line = attack(&server, &address, lookups, page).await;
            let kind = if page { "pages" } else { "badges" };
            writeln!(out, "{lookups} {kind}: {}", line.unwrap_or_else(|error| error.to_string()))?;
            // Another build is measured for a comparison only.
            if args.binary.is_none() && server.memory("VmHWM")? > MAX_PEAK {
                return Err("the service takes too much memory".into());
            }
            drop(server);
            tokio::fs::remove_dir_all(folder.path()).await?;
        }
    }
    Ok(())
}

async fn attack(server: &Process, address: &str, lookups: usize, page: bool) -> Result<String> {
    let client = client()?;
    let known = format!("{address}/badge/org/known.svg");
    get(&client, &known).await?;
    let observe = |path: &str, end: &Arc<AtomicBool>| {
        let (url, end) = (format!("{address}{path}"), Arc::clone(end));
        tokio::spawn(Latencies::measure(client.clone(), url, end))
    };
    let end = Arc::new(AtomicBool::new(false));
    let idle = observe("/badge/org/known.svg", &end);
    tokio::time::sleep(Duration::from_secs(3)).await;
    end.store(true, Ordering::Relaxed);
    let (idle, before) = (idle.await??, server.memory("VmRSS")?);

    let end = Arc::new(AtomicBool::new(false));
    let health = observe("/healthz", &end);
    let badges = observe("/badge/org/known.svg", &end);
    let started = Instant::now();
    let requests = (0..lookups).map(|n| {
        let path = if page { format!("/?repo=org/h{n}") } else { format!("/badge/org/h{n}.svg") };
        let (client, url) = (client.clone(), format!("{address}{path}"));
        tokio::spawn(async move { get(&client, &url).await })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await??;
    }
    while in_flight(&client, address).await? > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    end.store(true, Ordering::Relaxed);
    let (health, badges) = (health.await??, badges.await??);
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok(format!(
        "{:.1} {:.2} ({:.2}) {seconds:.1} {before:.0} {:.0} {:.0}",
        health.most(),
        badges.p99(),
        idle.p99(),
        server.memory("VmHWM")?,
        server.memory("VmRSS")?
    ))
}

/// Returns the number of lookups that are queued or running.
async fn in_flight(client: &reqwest::Client, address: &str) -> Result<u64> {
    let metrics = get(client, &format!("{address}/metrics")).await?;
    let value = metrics.lines().find_map(|line| line.strip_prefix("hf_meta_lookups_in_flight "));
    Ok(value.ok_or("no such metric")?.parse()?)
}

/// Counts the requests that one client causes at the Hub.
async fn upstream_requests(args: &Args) -> Result<()> {
    let many_shards = repo("org/many", 10_000, 1);
    let hub = MockHub::start([repo("abcdefgh/model", 72, 10), many_shards])?;
    let (client, mut out) = (client()?, io::stdout());
    let cases = |n: usize| {
        let letter = |(at, c): (usize, char)| {
            if n >> at & 1 == 1 { c.to_ascii_uppercase() } else { c }
        };
        "abcdefgh".chars().enumerate().map(letter).collect::<String>()
    };
    let attacks = [
        (
            "one repository of 72 shards in 21 letter cases",
            (0..LETTER_CASES).map(|n| format!("{}/model", cases(n))).collect::<Vec<_>>(),
        ),
        ("one repository of 10,000 shards", vec!["org/many".to_owned()]),
    ];
    for (name, names) in attacks {
        let (_server, address) = serve_by_default(args, &hub, "off", &["--lookup-timeout", "60"])?;
        hub.clear_log();
        let started = Instant::now();
        let badges = names.iter().map(|name| {
            let (client, url) = (client.clone(), format!("{address}/badge/{name}.svg"));
            tokio::spawn(async move { get(&client, &url).await })
        });
        let mut last = String::new();
        for badge in badges.collect::<Vec<_>>() {
            last = badge.await??;
        }
        while in_flight(&client, &address).await? > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if args.binary.is_none() && hub.log().len() > MAX_REQUESTS {
            return Err(format!("{name}: {} upstream requests", hub.log().len()).into());
        }
        let title = last.split("<title>").nth(1).and_then(|rest| rest.split('<').next());
        writeln!(
            out,
            "{name}: {} upstream requests in {:.1} s, last badge `{}`",
            hub.log().len(),
            started.elapsed().as_secs_f64(),
            title.unwrap_or_default()
        )?;
    }
    Ok(())
}

/// Measures the time until another client gets a response while connections send requests and never read.
async fn mute_connections(args: &Args) -> Result<()> {
    let hub = MockHub::start([Repo::new("org/known").file("model.safetensors", weights())])?;
    let limit = MUTE_CONNECTIONS.to_string();
    let (_server, address) = serve_by_default(args, &hub, "off", &["--max-connections", &limit])?;
    let host = address.trim_start_matches("http://");
    let mut mute = Vec::new();
    for _ in 0..MUTE_CONNECTIONS {
        let mut stream = TcpStream::connect(host).await?;
        let request = format!("GET /openapi.json HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(1_000);
        let write = stream.write_all(request.as_bytes());
        let _ = tokio::time::timeout(Duration::from_millis(100), write).await;
        mute.push(stream);
    }
    let started = Instant::now();
    // From another address, so that it is another client.
    let client = reqwest::Client::builder().no_proxy().local_address(Some([127, 0, 0, 9].into()));
    let (client, url) = (client.build()?, format!("{address}/healthz"));
    let other = get(&client, &url);
    let answer = tokio::time::timeout(Duration::from_secs(120), other).await;
    let answer =
        if answer.is_ok_and(|answer| answer.is_ok()) { "answered" } else { "not answered" };
    writeln!(
        io::stdout(),
        "{MUTE_CONNECTIONS} connections that never read: another client is {answer} after {:.1} s",
        started.elapsed().as_secs_f64()
    )?;
    Ok(())
}
