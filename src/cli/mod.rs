//! The command line. Data goes to stdout, everything else to stderr; nothing that came from a file
//! or a server reaches a terminal unescaped.

mod args;
mod asked;
mod columns;
mod explain;
mod json;
mod log;
mod progress;
mod render;
mod report;
mod text;

use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use futures::stream::{self, StreamExt};
use hf_meta::{
    Client, ClientBuilder, Error, Model, RetryPolicy, SafetensorsParseFromRepo, Summary,
};

use self::args::Args;
use self::asked::Asked;
use self::progress::{Bar, Bars};
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
            anstream::stderr().write_all(report::setup_error(&error).as_bytes())?;
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
///
/// Each is read in a task of its own: a reader of our output that pauses must not stop the reading of
/// answers, whose deadlines pass meanwhile.
async fn read_all(args: &Args, client: &Client, bars: &Bars) -> io::Result<Outcome> {
    let reads = args.repos.iter().map(|asked| {
        let asked = Asked::new(asked, client.endpoint());
        let (bar, model) = (bars.add(&asked.shown), model(args, client, &asked));
        async move {
            let parsed = tokio::spawn(read(model, bar)).await;
            parsed.map(|parsed| (asked, parsed)).map_err(io::Error::other)
        }
    });
    let mut reads = stream::iter(reads).buffered(REPOS_AT_ONCE);
    let mut outcome = Outcome::Fine;
    while let Some(read) = reads.next().await {
        let (asked, parsed) = read?;
        outcome = outcome.max(bars.suspend(|| print(args, client, &asked, &parsed))?);
    }
    Ok(outcome)
}

async fn read(model: Result<Model, Error>, bar: Bar) -> Result<SafetensorsParseFromRepo, Error> {
    let updates = bar.clone();
    let model = model.map(|model| model.on_progress(move |progress| updates.update(progress)));
    let parsed = async { model?.parse_safetensors_metadata().await }.await;
    bar.finish();
    parsed
}

fn model(args: &Args, client: &Client, asked: &Asked) -> Result<Model, Error> {
    let mut model = client.source(asked.source.clone()?);
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
    asked: &Asked,
    parsed: &Result<SafetensorsParseFromRepo, Error>,
) -> io::Result<Outcome> {
    let (notes, outcome) = match parsed {
        Ok(parsed) => {
            show(args, parsed)?;
            (report::findings(asked, &parsed.facts().findings), Outcome::Fine)
        }
        Err(error) => {
            let is_one_of_many = args.repos.len() > 1;
            let report = report::error(asked, is_one_of_many, error, client.endpoint());
            (report, Outcome::from(error))
        }
    };
    anstream::stderr().write_all(notes.as_bytes())?;
    Ok(outcome)
}

fn show(args: &Args, parsed: &SafetensorsParseFromRepo) -> io::Result<()> {
    let view = args.view;
    if view.json {
        // What strips colours for other readers would take bytes out of JSON, too.
        let mut stdout = BufWriter::new(io::stdout().lock());
        if args.summary {
            json::write(&mut stdout, &Summary(parsed))?;
        } else {
            json::write(&mut stdout, parsed)?;
        }
        return stdout.flush();
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    if view.tensors {
        render::tensors(&mut stdout, parsed, args.filter.as_ref())?;
    } else if view.explain {
        explain::groups(&mut stdout, parsed)?;
    } else if view.metadata {
        render::metadata(&mut stdout, parsed)?;
    } else {
        render::counts(&mut stdout, parsed)?;
    }
    stdout.flush()
}
