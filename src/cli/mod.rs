//! The command line. Data goes to stdout, everything else to stderr; nothing that came from a file
//! or a server reaches a terminal unescaped.

mod args;
mod log;
mod progress;
mod render;
mod report;
mod text;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use futures::stream::{self, StreamExt};
use hf_meta::{
    Client, ClientBuilder, Error, Model, RetryPolicy, SafetensorsParseFromRepo, Source, Summary,
};

use self::args::Args;
use self::progress::Bars;
use self::report::Outcome;

/// Repositories that are read side by side. Each of them reads many shards side by side.
const REPOS_AT_ONCE: usize = 4;

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(outcome) => ExitCode::from(outcome as u8),
        // Whoever reads the output has seen enough, as in `hf-meta … | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(anstream::stderr(), "error: {error}");
            ExitCode::from(Outcome::Failed as u8)
        }
    }
}

fn run(args: &Args) -> io::Result<Outcome> {
    let client = match client(args) {
        Ok(client) => client,
        Err(error) => {
            anstream::stderr().write_all(report::error("", &error, &<_>::default()).as_bytes())?;
            return Ok(Outcome::from(&error));
        }
    };
    let bars = Bars::default();
    log::init(args.verbose, &bars);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(read_all(args, &client, &bars))
}

fn client(args: &Args) -> Result<Client, Error> {
    let mut builder = ClientBuilder::from_env();
    if let Some(endpoint) = &args.endpoint {
        builder = builder.endpoint(endpoint);
    }
    if let Some(token) = &args.token {
        builder = builder.token(token);
    }
    if let Some(retries) = args.retries {
        builder = builder.retry(RetryPolicy::default().attempts(usize::from(retries) + 1));
    }
    if let Some(timeout) = args.timeout {
        builder = builder.call_timeout(timeout);
    }
    builder.build()
}

/// Reads all repos side by side, and prints them in the order in which they were asked for.
async fn read_all(args: &Args, client: &Client, bars: &Bars) -> io::Result<Outcome> {
    let reads = args.repos.iter().map(|repo| {
        let bar = bars.add(repo);
        async move {
            let updates = bar.clone();
            let parsed = match model(args, client, repo) {
                Ok(model) => {
                    model
                        .on_progress(move |done| updates.update(done))
                        .parse_safetensors_metadata()
                        .await
                }
                Err(error) => Err(error),
            };
            bar.finish();
            (repo, parsed)
        }
    });
    let mut reads = stream::iter(reads).buffered(REPOS_AT_ONCE);
    let mut outcome = Outcome::Fine;
    while let Some((repo, parsed)) = reads.next().await {
        outcome = outcome.max(bars.suspend(|| print(args, client, repo, &parsed))?);
    }
    Ok(outcome)
}

fn model(args: &Args, client: &Client, repo: &str) -> Result<Model, Error> {
    let mut model = client.source(Source::parse(repo, client.endpoint())?);
    if let Some(revision) = &args.revision {
        model = model.revision(revision);
    }
    if let Some(path) = &args.path {
        model = model.path(path);
    }
    Ok(model)
}

fn print(
    args: &Args,
    client: &Client,
    repo: &str,
    parsed: &Result<SafetensorsParseFromRepo, Error>,
) -> io::Result<Outcome> {
    let (notes, outcome) = match parsed {
        Ok(parsed) => {
            let mut stdout = anstream::stdout().lock();
            stdout.write_all(show(args, parsed)?.as_bytes())?;
            stdout.flush()?;
            (report::findings(repo, &parsed.facts().findings), Outcome::Fine)
        }
        Err(error) => (report::error(repo, error, client.endpoint()), Outcome::from(error)),
    };
    anstream::stderr().write_all(notes.as_bytes())?;
    Ok(outcome)
}

fn show(args: &Args, parsed: &SafetensorsParseFromRepo) -> io::Result<String> {
    let view = args.view;
    Ok(if view.json && args.summary {
        serde_json::to_string(&Summary(parsed))? + "\n"
    } else if view.json {
        serde_json::to_string(parsed)? + "\n"
    } else if view.tensors {
        render::tensors(parsed, args.filter.as_ref())
    } else if view.metadata {
        render::metadata(parsed)
    } else {
        render::counts(parsed) + "\n"
    })
}
