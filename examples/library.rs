//! An async service: one client for all calls, and one future per call.
//!
//! `cargo run --example library -- bigscience/bloom gpt2` reads from the Hub in `HF_ENDPOINT`.

use std::io::{self, Write};

use futures::future::join_all;
use hf_meta::{Client, Error};

/// The part of a result that the service uses.
struct Answer {
    parameters: u64,
    commit: Option<String>,
}

async fn answer(client: &Client, repo: &str) -> Result<Answer, Error> {
    let parsed = client.model(repo).parse_safetensors_metadata().await?;
    Ok(Answer {
        parameters: parsed.parameter_count().total(),
        commit: parsed.report().commit.as_ref().map(ToString::to_string),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::from_env()?;
    let repos: Vec<_> = std::env::args().skip(1).collect();
    let answers = join_all(repos.iter().map(|repo| answer(&client, repo))).await;
    for (repo, answer) in repos.iter().zip(answers) {
        match answer {
            Ok(Answer { parameters, commit: Some(commit) }) => {
                writeln!(io::stdout(), "{repo}: {parameters} parameters at {commit}")?;
            }
            Ok(answer) => writeln!(io::stdout(), "{repo}: {} parameters", answer.parameters)?,
            Err(error) if error.is_not_found() => writeln!(io::stdout(), "{repo}: not there")?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
