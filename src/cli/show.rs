//! The call without a command: what each repository holds.

use std::io::{self, BufWriter, Write};

use clap::builder::NonEmptyStringValueParser;
use futures::stream::{self, StreamExt};
use hf_meta::{CountReport, Error, SafetensorsParseFromRepo};

use super::repo_arg::RepoArg;
use super::report::Outcome;
use super::session::{Place, Session};
use super::tree::Screen;
use super::{explain, json, render, report};

/// Repositories that are read side by side. Each of them reads many shards side by side.
const REPOS_AT_ONCE: usize = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Repositories on the Hub, URLs, or local files and folders
    ///
    /// A repository (`org/name`, `name`, `org/name@revision`, `datasets/org/name`,
    /// `hf://org/name@revision/path`), a page of it on huggingface.co, the URL of a `.safetensors`
    /// file or an index on any server, a local file, or a local folder written with a slash
    /// (`./folder`).
    #[arg(required = true, value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    repos: Vec<String>,

    #[command(flatten)]
    place: Place,

    /// Also list the other sets of weights in each repository, for one more request
    #[arg(long)]
    sets: bool,

    #[command(flatten)]
    view: View,

    /// Only tensors whose name matches the pattern (`*`, `?`, `[abc]`)
    #[arg(long, short, value_name = "GLOB", requires = "tensors", value_parser = glob::Pattern::new)]
    filter: Option<glob::Pattern>,

    /// Leave `header`, `index` and `headers` out of the JSON
    #[arg(long, requires = "json")]
    summary: bool,
}

/// What to show; the table of dtypes where nothing else is asked for.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one flag each; the parser sees to it that one at most is given"
)]
struct View {
    /// Print JSON, one document per repository and line, in the shape of huggingface.js
    #[arg(long, short)]
    json: bool,

    /// List every tensor: name, dtype, shape, bytes, shard
    #[arg(long, short)]
    tensors: bool,

    /// Draw the modules as a tree of elements as stored, with what is repeated told once
    #[arg(long)]
    tree: bool,

    /// Say how the parameters were counted: which tensors are unpacked, left out, or no weights
    #[arg(long, short = 'x')]
    explain: bool,

    /// Print the metadata that the files carry, such as ModelSpec's title and author
    #[arg(long, short)]
    metadata: bool,
}

/// What is to be shown of a repository.
enum Shown {
    /// Figures alone, for which no header is kept.
    CountReport(Box<CountReport>),
    Headers(Box<SafetensorsParseFromRepo>),
}

impl ShowArgs {
    /// Whether nothing of a header is shown but what it adds up to.
    fn takes_counts(&self) -> bool {
        let View { json, tensors, tree, metadata, .. } = self.view;
        !(tensors || tree || metadata || json && !self.summary)
    }
}

/// Reads all repos side by side, and prints them in the order in which they were asked for.
pub(crate) async fn run(args: &ShowArgs, session: &Session) -> io::Result<Outcome> {
    let (takes_counts, lists_sets) = (args.takes_counts(), args.sets);
    let reads = args.repos.iter().map(|asked| {
        let asked = RepoArg::new(asked, session.client.endpoint());
        let read = session.read(&asked, &args.place, move |model| async move {
            let model = model.other_sets(lists_sets);
            if takes_counts {
                return model.count().await.map(Box::new).map(Shown::CountReport);
            }
            model.parse_safetensors_metadata().await.map(Box::new).map(Shown::Headers)
        });
        async move { read.await.map(|read| (asked, read)) }
    });
    let mut reads = stream::iter(reads).buffered(REPOS_AT_ONCE);
    let mut outcome = Outcome::Fine;
    while let Some(read) = reads.next().await {
        let (asked, read) = read?;
        outcome = outcome.max(session.print(|| print(args, session, &asked, &read))?);
    }
    Ok(outcome)
}

fn print(
    args: &ShowArgs,
    session: &Session,
    asked: &RepoArg,
    read: &Result<Shown, Error>,
) -> io::Result<Outcome> {
    let (notes, outcome) = match read {
        Ok(shown) => {
            let facts = show(args, shown)?;
            (report::findings(asked, &facts.findings), Outcome::Fine)
        }
        Err(error) => {
            let is_one_of_many = args.repos.len() > 1;
            let report = report::error(asked, is_one_of_many, error, session.client.endpoint());
            (report, Outcome::from(error))
        }
    };
    anstream::stderr().write_all(notes.as_bytes())?;
    Ok(outcome)
}

fn show<'a>(args: &ShowArgs, shown: &'a Shown) -> io::Result<&'a CountReport> {
    match shown {
        Shown::CountReport(counts) => show_counts(args.view, counts).map(|()| &**counts),
        Shown::Headers(parsed) => show_headers(args, parsed).map(|()| parsed.report()),
    }
}

fn show_counts(view: View, counts: &CountReport) -> io::Result<()> {
    if view.json {
        return json::print(counts);
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    if view.explain {
        explain::groups(&mut stdout, counts)?;
    } else {
        render::counts(&mut stdout, counts)?;
    }
    stdout.flush()
}

fn show_headers(args: &ShowArgs, parsed: &SafetensorsParseFromRepo) -> io::Result<()> {
    let view = args.view;
    if view.json {
        return json::print(parsed);
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    if view.tree {
        render::tree(&mut stdout, parsed, Screen::of_stdout())?;
    } else if view.tensors {
        render::tensors(&mut stdout, parsed, args.filter.as_ref())?;
    } else {
        render::metadata(&mut stdout, parsed)?;
    }
    stdout.flush()
}
