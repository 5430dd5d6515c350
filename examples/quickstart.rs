//! `cargo run --release --example quickstart` starts a Hub on this machine, with the headers of nine
//! models of the Hub, and asks it what is in them.

#[path = "local_hub/hub/mod.rs"]
mod hub;

use std::io::{self, Write};

use hf_meta::{Client, SafetensorsParseFromRepo};
use hub::{LocalHub, load_folder};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let repos = load_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures").as_ref())?;
    let names: Vec<_> = repos.iter().map(|repo| repo.id().to_owned()).collect();
    let hub = LocalHub::start(repos)?;
    let client = Client::builder().endpoint(hub.endpoint()).build()?;

    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "{:30} {:9} {:>8} {:>14}  parameters",
        "repo", "files", "requests", "bytes read"
    )?;
    for name in names {
        let parsed = client.model(&name).parse_safetensors_metadata().await?;
        writeln!(stdout, "{}", row(&name, &parsed))?;
    }
    Ok(())
}

fn row(name: &str, parsed: &SafetensorsParseFromRepo) -> String {
    let files = match parsed {
        SafetensorsParseFromRepo::Single(_) => "one".to_owned(),
        SafetensorsParseFromRepo::Sharded(shards) => format!("{} shards", shards.headers.len()),
    };
    let cost = parsed.facts().cost;
    let counts: Vec<_> = parsed
        .parameter_count()
        .iter()
        .map(|(dtype, count)| format!("{dtype} {}", thousands(count)))
        .collect();
    let (requests, bytes) = (cost.requests, thousands(cost.bytes_read));
    format!("{name:30} {files:9} {requests:>8} {bytes:>14}  {}", counts.join(", "))
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}
