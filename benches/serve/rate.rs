//! The rate of a known badge, in turns with a static file of nginx.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::process::{Process, client, get, serve};
use super::{Args, Result, weights};
use hf_meta_testing::{MockHub, Repo};

/// Requests per second, and the 99th percentile of their durations in ms.
#[derive(Clone, Copy)]
struct Rate {
    per_second: f64,
    p99: f64,
}

pub(crate) fn rate(args: &Args) -> Result<()> {
    let repo = Repo::new("org/model").file("model.safetensors", weights());
    let hub = MockHub::start([repo])?;
    let (_server, address) = serve(args, &hub, "off", &[])?;
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
