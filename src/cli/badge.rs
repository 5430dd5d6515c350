//! `hf-meta badge`: a figure of a repository as a picture for its page.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use hf_meta::badge::{Badge, BadgeOptions, Color, Logo, Show, Style, Theme, UnknownChoice};

use super::repo_arg::RepoArg;
use super::report::{self, Outcome};
use super::session::{Place, Session};

/// Draw a badge with a figure of a repository
#[derive(Debug, clap::Args)]
pub(crate) struct BadgeArgs {
    /// Repository on the Hub, URL, or local file or folder, as without a command
    #[arg(value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    repo: String,

    #[command(flatten)]
    place: Place,

    /// File to write, in place of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write JSON for the endpoint badge of shields.io instead of SVG
    #[arg(long, short)]
    json: bool,

    #[arg(long, value_name = "FIGURE", default_value_t, value_parser = choice::<Show>(Show::NAMES))]
    #[arg(help = "What to show")]
    show: Show,

    #[arg(long, value_name = "STYLE", default_value_t, value_parser = choice::<Style>(Style::NAMES))]
    #[arg(help = "One of the styles of shields.io")]
    style: Style,

    #[arg(long, value_name = "THEME", default_value_t, value_parser = choice::<Theme>(Theme::NAMES))]
    #[arg(help = "The page it is for; `auto` suits both")]
    theme: Theme,

    #[arg(long, value_name = "LOGO", default_value_t, value_parser = choice::<Logo>(Logo::NAMES))]
    #[arg(help = "A mark before the label")]
    logo: Logo,

    /// Text on the left, in place of the name of the figure; it may be empty
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Colour behind the figure: one that shields.io has a name for, or hexadecimal digits
    #[arg(long, value_name = "COLOR")]
    color: Option<Color>,
}

/// Takes these names and nothing else.
fn choice<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: Clone + FromStr<Err = UnknownChoice> + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

pub(crate) async fn run(args: &BadgeArgs, session: &Session) -> io::Result<Outcome> {
    let asked = RepoArg::new(&args.repo, session.client.endpoint());
    let call = |model: hf_meta::Model| async move { model.parse_safetensors_metadata().await };
    let (report, outcome) = match session.read(&asked, &args.place, call).await? {
        Ok(parsed) => {
            write(args, &render(args, &Badge::of(&parsed, args.show))?)?;
            (report::findings(&asked, &parsed.facts().findings), Outcome::Fine)
        }
        Err(error) => {
            let report = report::error(&asked, false, &error, session.client.endpoint());
            (report, Outcome::from(&error))
        }
    };
    anstream::stderr().write_all(report.as_bytes())?;
    Ok(outcome)
}

fn render(args: &BadgeArgs, badge: &Badge) -> io::Result<String> {
    let BadgeArgs { style, theme, logo, color, .. } = *args;
    let look = BadgeOptions { style, theme, logo, color, label: args.label.clone() };
    let text =
        if args.json { serde_json::to_string(&badge.endpoint(&look))? } else { badge.svg(&look) };
    Ok(text + "\n")
}

fn write(args: &BadgeArgs, text: &str) -> io::Result<()> {
    match &args.output {
        Some(file) => fs::write(file, text).map_err(|error| {
            io::Error::new(error.kind(), format!("failed to write `{}`: {error}", file.display()))
        }),
        None => io::stdout().write_all(text.as_bytes()),
    }
}
