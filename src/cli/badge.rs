//! `hf-meta badge`: a badge for the page of a repository.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use hf_meta::badge::{Badge, BadgeOptions, Color, Logo, Metric, Style, Theme, UnknownChoice};
use hf_meta::{Model, SafetensorsParseFromRepo};

use super::context::{CommandContext, SelectionArgs, warn};
use super::exit::ExitStatus;
use super::repo_arg::RepoArg;

/// Draw a badge for a repository
#[derive(Debug, clap::Args)]
pub(crate) struct BadgeArgs {
    /// Repository on the Hub, URL, or local file or folder
    #[arg(value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    repo: String,

    #[command(flatten)]
    selection: SelectionArgs,

    /// Write to this file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write JSON for the endpoint badge of shields.io instead of SVG
    #[arg(long, short)]
    json: bool,

    #[arg(long, value_name = "METRIC", default_value_t, value_parser = choice::<Metric>(Metric::NAMES))]
    #[arg(help = "Property to show")]
    show: Metric,

    #[arg(long, value_name = "STYLE", default_value_t, value_parser = choice::<Style>(Style::NAMES))]
    #[arg(help = "Style of shields.io")]
    style: Style,

    #[arg(long, value_name = "THEME", default_value_t, value_parser = choice::<Theme>(Theme::NAMES))]
    #[arg(help = "Background of the page; `auto` follows the color scheme of the viewer")]
    theme: Theme,

    #[arg(long, value_name = "LOGO", default_value_t, value_parser = choice::<Logo>(Logo::NAMES))]
    #[arg(help = "Logo to the left of the label")]
    logo: Logo,

    /// Text on the left instead of the name of the metric; may be empty
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Background of the value: a color name of shields.io, or three or six hexadecimal digits
    #[arg(long, value_name = "COLOR")]
    color: Option<Color>,
}

/// Returns a parser that accepts one of these names.
fn choice<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: Clone + FromStr<Err = UnknownChoice> + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

pub(crate) async fn run(args: &BadgeArgs, context: &CommandContext) -> io::Result<ExitStatus> {
    let sources = std::slice::from_ref(&args.repo);
    let read = |model: Model| async move { model.parse_safetensors_metadata().await };
    let print = |source: &RepoArg, parsed: SafetensorsParseFromRepo| {
        write(args, &render(args, &Badge::from_report(parsed.report(), args.show))?)?;
        warn(source, &parsed.report().findings)?;
        Ok(ExitStatus::Success)
    };
    context.for_each(sources, &args.selection, read, print).await
}

fn render(args: &BadgeArgs, badge: &Badge) -> io::Result<String> {
    let BadgeArgs { style, theme, logo, color, .. } = *args;
    let options = BadgeOptions { style, theme, logo, color, label: args.label.clone() };
    let text = if args.json {
        serde_json::to_string(&badge.shields_endpoint(&options))?
    } else {
        badge.svg(&options)
    };
    Ok(text + "\n")
}

/// The badge cannot be written to its file.
#[derive(Debug, thiserror::Error)]
#[error("failed to write `{}`", file.display())]
struct WriteError {
    file: PathBuf,
    source: io::Error,
}

fn write(args: &BadgeArgs, text: &str) -> io::Result<()> {
    match &args.output {
        Some(file) => fs::write(file, text).map_err(|error| {
            io::Error::new(error.kind(), WriteError { file: file.clone(), source: error })
        }),
        None => io::stdout().write_all(text.as_bytes()),
    }
}
