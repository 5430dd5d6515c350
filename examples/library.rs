//! An async service: one client for all calls, and a bounded number of calls at a time.
//!
//! `cargo run --example library -- bigscience/bloom gpt2` reads from the Hub in `HF_ENDPOINT`.

use std::io::{self, Write};

use futures::stream::{self, StreamExt};
use hf_meta::Client;
use hf_meta_format::formats::chain;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::from_env()?;
    let reads = std::env::args().skip(1).map(|repo| {
        let call = client.model(&repo).parse_safetensors_metadata();
        async move { (repo, call.await) }
    });
    let mut reads = stream::iter(reads).buffered(32);
    while let Some((repo, parsed)) = reads.next().await {
        match parsed {
            Ok(parsed) => {
                let (total, report) = (parsed.parameter_count().total(), parsed.report());
                let commit = report.commit.as_ref().map_or("an unknown commit", |sha| sha.as_str());
                writeln!(io::stdout(), "{repo}: {total} parameters at {commit}")?;
            }
            Err(error) if error.is_not_found() => writeln!(io::stdout(), "{repo}: not there")?,
            // One failure does not end the others.
            Err(error) => writeln!(io::stderr(), "{repo}: {}", chain(&error))?,
        }
    }
    Ok(())
}
