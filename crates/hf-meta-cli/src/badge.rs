//! `hf-meta badge`: draws badges for repository pages.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueHint;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hf_meta::{CountReport, Error, Model};
use hf_meta_badge::{Badge, BadgeOptions, Color, Logo, Metric, Style, Theme, UnknownChoice};
use hf_meta_count::memory::MemoryOptions;

use super::context::{CommandContext, SelectionArgs, Sources};
use super::exit::{CommandError, CommandResult, ExitStatus, failed_to};
use super::memory::parse_tokens;
use super::output::print_bytes;
use super::repos::RepoArg;

/// Create badges for repositories
#[derive(Debug, clap::Args)]
pub(crate) struct BadgeArgs {
    /// Repositories on the Hub, URLs, or local files and folders
    #[arg(required = true, value_name = "REPO", value_hint = ValueHint::AnyPath)]
    repos: Vec<OsString>,

    /// Output file, or folder for files such as `org--name.svg`; `-` is stdout. Several badges need a folder, which
    /// is created if it does not exist
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write JSON for the shields.io endpoint badge instead of SVG
    #[arg(long, short)]
    json: bool,

    /// Metric to show
    #[arg(long, value_name = "METRIC", default_value_t, value_parser = choice::<Metric>(Metric::NAMES))]
    show: Metric,

    /// Context length for `--show memory`, such as 32k [default: the maximum of the model]
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    context: Option<u64>,

    /// Badge style, as on shields.io
    #[arg(long, value_name = "STYLE", default_value_t, value_parser = choice::<Style>(Style::NAMES))]
    style: Style,

    /// Page background; `auto` follows the viewer's color scheme
    #[arg(long, value_name = "THEME", default_value_t, value_parser = choice::<Theme>(Theme::NAMES))]
    theme: Theme,

    /// Logo to the left of the label
    #[arg(long, value_name = "LOGO", default_value_t, value_parser = choice::<Logo>(Logo::NAMES))]
    logo: Logo,

    /// Text on the left, instead of the metric name; may be empty
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Background color of the value: a shields.io color name, or three or six hexadecimal digits
    #[arg(long, value_name = "COLOR")]
    color: Option<Color>,

    #[command(flatten)]
    selection: SelectionArgs,
}

/// Returns a parser that accepts only these names.
fn choice<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: Clone + FromStr<Err = UnknownChoice> + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

impl BadgeArgs {
    /// Returns the file or folder to write to; `None` for stdout.
    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|output| output.as_os_str() != "-")
    }

    /// Returns the extension of the files.
    fn extension(&self) -> &'static str {
        if self.json { "json" } else { "svg" }
    }

    /// Checks that the name of the output fits the number of badges and their format.
    fn validate(&self) -> CommandResult<()> {
        let Some(output) = self.file().filter(|output| !output.is_dir()) else { return Ok(()) };
        let (expected, several) = (self.extension(), self.repos.len() > 1);
        let message = match output.extension() {
            extension if several && (extension.is_some() || output.exists()) => {
                "`--output` must be a folder if there are several badges".to_owned()
            }
            Some(other) if other != expected => {
                format!("the name of `--output` must end with .{expected}")
            }
            _ => return Ok(()),
        };
        Err(CommandError::usage(message))
    }
}

pub(crate) async fn run(args: &BadgeArgs, context: &CommandContext) -> CommandResult {
    args.validate()?;
    if let Some(folder) = args.file().filter(|file| args.repos.len() > 1 && !file.is_dir()) {
        fs::create_dir(folder).map_err(failed_to(format!("create `{}`", folder.display())))?;
    }
    let memory = MemoryOptions { context: args.context, ..MemoryOptions::default() };
    let memory = if args.show == Metric::Memory { Some(memory) } else { None };
    let read = move |model: Model| async move { model.count().memory(memory).await };
    let endpoint = context.client.endpoint();
    let repos: Vec<_> = args.repos.iter().map(|repo| RepoArg::new(repo, None, endpoint)).collect();
    let selection = &args.selection;
    let sources = Sources { repos: &repos, selection, is_json: false, is_streamed: true };
    let print = |source: &RepoArg, report: Result<CountReport, Error>| {
        let report = report?;
        let text = render(args, &Badge::from_report(&report, args.show))?;
        write(args, source, &text)?;
        context.warn(source, &report.findings);
        Ok(ExitStatus::Success)
    };
    context.for_each(sources, read, print).await
}

fn render(args: &BadgeArgs, badge: &Badge) -> io::Result<String> {
    let BadgeArgs { style, theme, logo, color, .. } = *args;
    let options = BadgeOptions { style, theme, logo, color, label: args.label.clone() };
    let json = || serde_json::to_string(&badge.shields_endpoint(&options));
    let text = if args.json { json()? } else { badge.svg(&options) };
    Ok(text + "\n")
}

fn write(args: &BadgeArgs, source: &RepoArg, text: &str) -> io::Result<()> {
    let Some(file) = args.file() else { return print_bytes(text.as_bytes()) };
    // `--` cannot occur in a repository name. The badge of `./folder` must not become a hidden file.
    let name = source.source.as_ref().map_or_else(|_| source.display.clone(), ToString::to_string);
    let stem = name.replace(['/', '\\', ':'], "--");
    let name = format!("{}.{}", stem.trim_start_matches(['.', '-']), args.extension());
    let file = if file.is_dir() { file.join(name) } else { file.to_owned() };
    fs::write(&file, text).map_err(|error| {
        // A full disk leaves an empty file, which would look like a badge.
        if file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0) {
            let _ = fs::remove_file(&file);
        }
        failed_to(format!("write `{}`", file.display()))(error)
    })
}
