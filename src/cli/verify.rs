//! `hf-meta verify`: what is wrong or odd with the weights of a repository.

use std::io::{self, Write};

use clap::builder::NonEmptyStringValueParser;

use super::args::Place;
use super::asked::Asked;
use super::report::{self, Outcome};
use super::session::Session;

/// Check every shard of a repository, and its index against them
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Repository on the Hub, URL, or local file or folder, as without a command
    #[arg(value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    repo: String,

    #[command(flatten)]
    place: Place,
}

pub(crate) async fn run(args: &VerifyArgs, session: &Session) -> io::Result<Outcome> {
    let asked = Asked::new(&args.repo, session.client.endpoint());
    let call = |model: hf_meta::Model| async move { model.parse_safetensors_metadata().await };
    let parsed = session.read(&asked, &args.place, call).await?;
    let (text, outcome) = match &parsed {
        Ok(parsed) => (report::findings(&asked, &parsed.facts().findings), Outcome::Fine),
        Err(error) => {
            let report = report::error(&asked, false, error, session.client.endpoint());
            (report, Outcome::from(error))
        }
    };
    anstream::stderr().write_all(text.as_bytes())?;
    Ok(outcome)
}
