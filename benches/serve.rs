//! Throughput and memory of the badge service: `cargo bench --features server --bench serve -- [--rate] [--memory]`.
//!
//! The rate is measured for a known badge on one core, in turns with nginx that serves the same bytes as a static file
//! on the same core. `wrk` on the other cores makes the requests; both programs have to be installed. The memory of the
//! process is measured while it serves more repositories than its memory can hold. Linux only.

#[expect(dead_code, reason = "models of all sizes are for other measurements")]
mod network;

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use network::hub::{File, LocalHub, Repo};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Measure the badge service.
#[derive(Parser)]
struct Args {
    /// Measure only the rate of a known badge.
    #[arg(long, conflicts_with = "memory")]
    rate: bool,
    /// Measure only the memory.
    #[arg(long)]
    memory: bool,
    /// Number of measurements per server, in turns; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Duration of each measurement of a rate, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Number of requests of the memory measurement.
    #[arg(long, default_value_t = 1_000_000)]
    requests: usize,
    /// Number of distinct repositories of the memory measurement.
    #[arg(long, default_value_t = 100_000)]
    repos: usize,
    /// Added by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if !args.memory {
        rate(&args)?;
    }
    if !args.rate {
        memory(&args)?;
    }
    Ok(())
}

/// A process that is killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a badge service on the first core, and returns its URL.
fn serve(hub: &LocalHub, cache: &str, args: &[&str]) -> Result<(Process, String)> {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", env!("CARGO_BIN_EXE_hf-meta"), "serve", "--listen", "127.0.0.1:0"]);
    command.args([
        "--requests-per-minute",
        "0",
        "--lookups-per-minute",
        "0",
        "--lookup-wait",
        "60",
    ]);
    command.args(["--endpoint", hub.endpoint(), "--cache", cache]).args(args);
    // As in `examples/deploy`: otherwise glibc creates memory arenas for many threads.
    command.env("TOKIO_WORKER_THREADS", "1").env("MALLOC_ARENA_MAX", "2");
    let mut child = Process(command.stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
    let address = line.trim().strip_prefix("listening on ").ok_or("no address")?.to_owned();
    Ok((child, address))
}

fn weights() -> File {
    let header = br#"{"x":{"dtype":"F16","shape":[1000],"data_offsets":[0,2000]}}"#;
    let head = [&(header.len() as u64).to_le_bytes(), &header[..]].concat();
    let size = head.len() as u64 + 2_000;
    File::padded(head, size)
}

/// Requests per second, and the 99th percentile of their durations in ms.
#[derive(Clone, Copy)]
struct Rate {
    per_second: f64,
    p99: f64,
}

fn rate(args: &Args) -> Result<()> {
    let repo = Repo::new("org/model").file("model.safetensors", weights());
    let hub = LocalHub::start([repo])?;
    let (_server, address) = serve(&hub, "off", &[])?;
    let badge = format!("{address}/badge/org/model.svg");
    let svg = tokio::runtime::Runtime::new()?.block_on(get(&client()?, &badge))?;
    let folder = tempfile::tempdir()?;
    let (_nginx, file) = nginx(folder.path(), &svg)?;

    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        for (url, rates) in [&badge, &file].into_iter().zip(&mut rates) {
            rates.push(wrk(args, url)?);
        }
    }
    let mut out = io::stdout();
    writeln!(
        out,
        "{} bytes, {} connections, {} rounds of {} s",
        svg.len(),
        args.connections,
        args.rounds,
        args.seconds
    )?;
    let [ours, theirs] = rates.map(|mut rates| {
        rates.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        rates
    });
    for (name, rates) in [("a known badge", &ours), ("nginx, a file", &theirs)] {
        let Rate { per_second, p99 } = rates[rates.len() / 2];
        let (least, most) = (rates[0].per_second, rates[rates.len() - 1].per_second);
        writeln!(
            out,
            "{name}: {per_second:.0} requests/s ({least:.0} to {most:.0}), p99 {p99:.2} ms"
        )?;
    }
    let ratio = ours[ours.len() / 2].per_second / theirs[theirs.len() / 2].per_second;
    writeln!(out, "{:.0} % of nginx", ratio * 100.0)?;
    Ok(())
}

/// Starts nginx with one worker on the first core, and returns the URL of a file.
fn nginx(folder: &Path, svg: &str) -> Result<(Process, String)> {
    fs::write(folder.join("badge.svg"), svg)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let root = folder.display();
    let config = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3;\n\
         uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5;\n\
         access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; open_file_cache max=10;\n\
         types {{ image/svg+xml svg; }}\n\
         server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    );
    let path = folder.join("nginx.conf");
    fs::write(&path, config)?;
    // The worker is another user, and has to read the folder.
    let mut permissions = fs::metadata(folder)?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    fs::set_permissions(folder, permissions)?;
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "nginx", "-p"]).arg(folder).arg("-c").arg(path);
    let mut process = Process(command.spawn()?);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = process.0.try_wait()? {
            return Err(format!("nginx has ended, {status}; is it installed?").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok((process, format!("http://127.0.0.1:{port}/badge.svg")))
}

fn wrk(args: &Args, url: &str) -> Result<Rate> {
    let cores = std::thread::available_parallelism()?.get();
    let mut command = Command::new("taskset");
    command.args(["-c", &format!("1-{}", (cores - 1).max(1)), "wrk", "--latency", "-t", "1"]);
    command.args(["-c", &args.connections.to_string(), "-d", &format!("{}s", args.seconds), url]);
    let text = String::from_utf8(command.output()?.stdout)?;
    let after = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(str::trim).ok_or_else(|| format!("no `{name}` in: {text}"))
    };
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(text.into());
    }
    Ok(Rate { per_second: after("Requests/sec:")?.parse()?, p99: milliseconds(after("99%")?)? })
}

/// Parses `950.00us`, `1.20ms` or `1.00s` into milliseconds.
fn milliseconds(text: &str) -> Result<f64> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let scale = match &text[digits.len()..] {
        "us" => 0.001,
        "ms" => 1.0,
        "s" => 1_000.0,
        unit => return Err(format!("unknown unit `{unit}`").into()),
    };
    Ok(digits.parse::<f64>()? * scale)
}

#[tokio::main]
async fn memory(args: &Args) -> Result<()> {
    let file = weights();
    let repo = |n| Repo::new(&format!("org/m{n}")).file("model.safetensors", file.clone());
    let hub = LocalHub::start((0..args.repos).map(repo))?;
    let folder = tempfile::tempdir()?;
    let cache = folder.path().display().to_string();
    let (server, address) = serve(&hub, &cache, &["--memory-limit", "33554432"])?;
    let (client, address) = (client()?, Arc::<str>::from(address));
    let mut out = io::stdout();
    writeln!(out, "requests   resident")?;
    let mut resident = Vec::<f64>::new();
    for tenth in 0..10 {
        let next = Arc::new(AtomicUsize::new(args.requests / 10 * tenth));
        let end = args.requests / 10 * (tenth + 1);
        let readers = (0..args.connections).map(|_| {
            let (client, address, next, repos) =
                (client.clone(), Arc::clone(&address), Arc::clone(&next), args.repos);
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= end {
                        return Ok::<_, Box<dyn Error + Send + Sync>>(());
                    }
                    let svg =
                        get(&client, &format!("{address}/badge/org/m{}.svg", n % repos)).await?;
                    if !svg.contains("params: 1K") {
                        return Err(svg.into());
                    }
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await??;
        }
        hub.clear_log();
        resident.push(resident_of(&server)?);
        writeln!(out, "{end:9} {:7.1} MB", resident[tenth])?;
    }
    let growth = resident[9] / resident[4] - 1.0;
    writeln!(out, "{:+.1} % over the second half", growth * 100.0)?;
    if growth > 0.1 { Err("the memory is not flat".into()) } else { Ok(()) }
}

fn client() -> Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

async fn get(client: &reqwest::Client, url: &str) -> Result<String> {
    Ok(client.get(url).send().await?.error_for_status()?.text().await?)
}

/// Returns the resident memory of a process in MB.
fn resident_of(process: &Process) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? * 1_024.0 / 1e6)
}
