//! The memory of the service while it serves more repositories than its memory can hold.

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::process::{client, get, serve};
use super::{Args, Result, weights};
use hf_meta_testing::{MockHub, Repo};

#[tokio::main]
pub(crate) async fn memory(args: &Args) -> Result<()> {
    let file = weights();
    let repo = |n| Repo::new(&format!("org/m{n}")).file("model.safetensors", file.clone());
    let hub = MockHub::start((0..args.repos).map(repo))?;
    let folder = tempfile::tempdir()?;
    let cache = folder.path().display().to_string();
    let (server, address) = serve(args, &hub, &cache, &["--memory-limit", "33554432"])?;
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
        resident.push(server.memory("VmRSS")?);
        writeln!(out, "{end:9} {:7.1} MB", resident[tenth])?;
    }
    let growth = resident[9] / resident[4] - 1.0;
    writeln!(out, "{:+.1} % over the second half", growth * 100.0)?;
    if growth > 0.1 { Err("the memory is not flat".into()) } else { Ok(()) }
}
