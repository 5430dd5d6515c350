//! The call without a command: what each repository holds.

use std::io::{self, BufWriter, Write};

use clap::builder::NonEmptyStringValueParser;
use futures::stream::{self, StreamExt};
use hf_meta::{Error, SafetensorsParseFromRepo, Summary};

use super::args::Place;
use super::asked::Asked;
use super::report::Outcome;
use super::session::Session;
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

    /// Draw the modules as a tree, with what is repeated told once
    #[arg(long)]
    tree: bool,

    /// Say how the parameters were counted: which tensors are unpacked, left out, or no weights
    #[arg(long, short = 'x')]
    explain: bool,

    /// Print the metadata that the files carry, such as ModelSpec's title and author
    #[arg(long, short)]
    metadata: bool,
}

/// Reads all repos side by side, and prints them in the order in which they were asked for.
pub(crate) async fn run(args: &ShowArgs, session: &Session) -> io::Result<Outcome> {
    let reads = args.repos.iter().map(|asked| {
        let asked = Asked::new(asked, session.client.endpoint());
        let lists_sets = args.sets;
        let parsed = session.read(&asked, &args.place, move |model| async move {
            model.other_sets(lists_sets).parse_safetensors_metadata().await
        });
        async move { parsed.await.map(|parsed| (asked, parsed)) }
    });
    let mut reads = stream::iter(reads).buffered(REPOS_AT_ONCE);
    let mut outcome = Outcome::Fine;
    while let Some(read) = reads.next().await {
        let (asked, parsed) = read?;
        outcome = outcome.max(session.print(|| print(args, session, &asked, &parsed))?);
    }
    Ok(outcome)
}

fn print(
    args: &ShowArgs,
    session: &Session,
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
            let report = report::error(asked, is_one_of_many, error, session.client.endpoint());
            (report, Outcome::from(error))
        }
    };
    anstream::stderr().write_all(notes.as_bytes())?;
    Ok(outcome)
}

fn show(args: &ShowArgs, parsed: &SafetensorsParseFromRepo) -> io::Result<()> {
    let view = args.view;
    if view.json {
        return if args.summary { json::print(&Summary(parsed)) } else { json::print(parsed) };
    }
    let mut stdout = BufWriter::new(anstream::stdout().lock());
    if view.tree {
        render::tree(&mut stdout, parsed, Screen::of_stdout())?;
    } else if view.tensors {
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
