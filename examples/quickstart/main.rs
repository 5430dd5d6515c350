//! `cargo quickstart`: starts a Hub on this machine, with the headers of real models, and reads nine of them.
//!
//! This is a binary in its own package, because an example would first compile all dependencies of the tests, which takes
//! twice as long.

#[path = "../local_hub/folder.rs"]
mod folder;

use std::io::{self, Write};

use folder::load_folder;
use hf_meta::{Client, SafetensorsParseFromRepo};
use hf_meta_testing::MockHub;

/// The models whose counts the documentation of the format lists.
const REPOS: [&str; 9] = [
    "EleutherAI/gpt-neox-20b",
    "Jean-Baptiste/camembert-ner",
    "bigscience/bloom",
    "bigscience/bloom-3b",
    "bigscience/bloom-560m",
    "distilbert-base-german-cased",
    "gpt2",
    "roberta-base",
    "roberta-large",
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let hub = MockHub::start(load_folder(fixtures.as_ref())?)?;
    let client = Client::builder().endpoint(hub.endpoint()).build()?;

    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "{:30} {:9} {:>8} {:>14}  parameters",
        "repo", "files", "requests", "bytes read"
    )?;
    for name in REPOS {
        let parsed = client.model(name).parse_safetensors_metadata().await?;
        writeln!(stdout, "{}", row(name, &parsed))?;
    }
    Ok(())
}

fn row(name: &str, parsed: &SafetensorsParseFromRepo) -> String {
    let files = match parsed {
        SafetensorsParseFromRepo::Single(_) => "one".to_owned(),
        SafetensorsParseFromRepo::Sharded(shards) => format!("{} shards", shards.headers.len()),
    };
    let cost = parsed.report().fetch;
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
