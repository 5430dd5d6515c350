//! Command-line arguments.

use std::ffi::OsString;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use hf_meta_count::count::RuleSet;

use super::badge::BadgeArgs;
use super::connection::{ConnectionArgs, hiding};
use super::diff::DiffArgs;
use super::get::{self, GetArgs};
use super::inspect::InspectArgs;
use super::local_commands::{CacheCommand, CompletionsArgs, ManArgs};
use super::memory;
use super::metadata::MetadataCommand;
use super::verify::{self, VerifyArgs};

/// Inspect safetensors, GGUF and PyTorch models on the Hugging Face Hub without downloading them
///
/// Prints the parameters per dtype of each REPO. Reads only file headers, never the weights: kilobytes
/// instead of terabytes.
#[derive(Debug, Parser)]
#[command(name = "hf-meta", version, long_version = LONG_VERSION.as_str(), after_help = EXAMPLES, after_long_help = LONG_HELP, max_term_width = 100)]
#[command(subcommand_negates_reqs = true, override_usage = USAGE)]
#[command(args_override_self = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Suppress progress and warnings, but not errors
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 500)]
    pub(crate) quiet: bool,

    /// Print no colors, as with `--color never`
    #[arg(long, global = true, hide_short_help = true, display_order = 500)]
    no_color: bool,

    #[command(flatten)]
    pub(crate) inspect: InspectArgs,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Badge(BadgeArgs),
    Verify(Box<VerifyArgs>),
    Diff(DiffArgs),
    Get(GetArgs),
    #[cfg(feature = "census")]
    #[command(subcommand)]
    Census(super::census::CensusCommand),
    #[command(subcommand)]
    Metadata(MetadataCommand),
    #[command(subcommand)]
    Cache(CacheCommand),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[cfg(feature = "server")]
    Serve(Box<super::serve::ServeArgs>),
}

impl Args {
    /// Returns the definition of all arguments.
    pub(super) fn definition() -> clap::Command {
        let mut command = memory::define(Self::command());
        // Propagates the global options to the subcommands, where they can be hidden.
        command.build();
        #[cfg(feature = "server")]
        let command = command.mut_subcommand("serve", super::serve::define);
        let command = command.mut_subcommand("verify", verify::define);
        let command = command.mut_subcommand("get", get::define);
        command.mut_subcommands(|command| match command.get_name() {
            // Subcommands that send no requests have no options for the connection.
            "cache" | "completions" | "man" => hiding(command, Arg::is_global_set),
            "metadata" => command.mut_subcommands(|command| match command.get_name() {
                "set" | "delete" => hiding(command, Arg::is_global_set),
                _ => command,
            }),
            "census" => command.mut_subcommands(|command| match command.get_name() {
                "count" | "pack" | "diff" | "publish" => hiding(command, Arg::is_global_set),
                _ => command,
            }),
            _ => command,
        })
    }

    /// Returns the color option of the subcommand, or else the one before it.
    pub(super) fn color(&self) -> Option<ColorChoice> {
        let color = match &self.command {
            _ if self.no_color => Some(ColorChoice::Never),
            Some(Command::Verify(verify)) => verify.color.color,
            Some(Command::Diff(diff)) => diff.color.color,
            Some(Command::Get(get)) => get.color.color,
            _ => None,
        };
        color.or(self.inspect.color.color)
    }

    /// Parses the process arguments, including the program name. A request for help is an error, too.
    pub(crate) fn from_arguments(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let mut command = Self::definition();
        let matches = command
            .try_get_matches_from_mut(arguments)
            .map_err(|error| with_variable(error, &command, arguments))?;
        let args = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        check_order(&mut command, &matches)?;
        Ok(args)
    }
}

/// Adds the name of the environment variable to the error of a value that comes from it. Otherwise, the message would name a
/// flag that nobody has written.
fn with_variable(
    mut error: clap::Error,
    command: &clap::Command,
    arguments: &[OsString],
) -> clap::Error {
    let Some(ContextValue::String(invalid)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let args = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let is_written = |arg: &Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let is_flag = |text: &str| long.as_deref() == Some(text.split('=').next().unwrap_or(text));
        arguments.iter().any(|argument| argument.to_str().is_some_and(is_flag))
    };
    let variable = args
        .filter(|arg| arg.to_string() == *invalid && !is_written(arg))
        .filter_map(Arg::get_env)
        .find(|variable| std::env::var_os(variable).is_some());
    if let Some(variable) = variable {
        let tip = format!("the value comes from the environment variable {}", variable.display());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Rejects options before a subcommand that belong after it. clap would silently ignore them. `--color` is not global,
/// because `badge` has another `--color`.
fn check_order(command: &mut clap::Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some(name) = matches.subcommand_name() else { return Ok(()) };
    let is_misplaced = |arg: &&Arg| {
        let source = matches.value_source(arg.get_id().as_str());
        let is_accepted = arg.is_global_set() || arg.get_id() == "color";
        source == Some(ValueSource::CommandLine) && !is_accepted
    };
    let Some(arg) = command.get_arguments().find(is_misplaced) else { return Ok(()) };
    let message = format!("`{arg}` must come after `{name}`");
    Err(command.error(ErrorKind::ArgumentConflict, message))
}

/// The version, with the features of this build and the counting rules. The commit is known in clones, from
/// the build script, and in releases, which set `HF_META_COMMIT`.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let census = if cfg!(feature = "census") { ", census" } else { "" };
    let server = if cfg!(feature = "server") { ", server" } else { "" };
    format!(
        "{}\nfeatures: cli{census}{server}\ncommit: {}\ncounting rules: {}",
        env!("CARGO_PKG_VERSION"),
        option_env!("HF_META_COMMIT").unwrap_or("unknown"),
        RuleSet::CURRENT,
    )
});

const USAGE: &str = "\
hf-meta [OPTIONS] <REPO>...
       hf-meta [OPTIONS] <COMMAND> ...";

const EXAMPLES: &str = "\
Examples:
  hf-meta bigscience/bloom          parameters per dtype
  hf-meta ./my-model/               a local folder
  hf-meta verify bigscience/bloom   check every shard

See --help for all options, environment variables and exit codes.";

const LONG_HELP: &str = "\
Examples:
  hf-meta bigscience/bloom                      parameters per dtype
  hf-meta gpt2 roberta-base --sort parameters   an overview of several models
  hf-meta --from models.txt --format csv        models from a list, as CSV
  hf-meta org/name@refs/pr/1 --path 7b          a folder in a pull request
  hf-meta https://huggingface.co/gpt2/blob/main/model.safetensors
  hf-meta gpt2 --tensors --filter '*.attn.*'    tensors that match a pattern
  hf-meta gpt2 --tree                           the module tree
  hf-meta org/name --explain                    how a model was counted
  hf-meta gpt2 --json --summary | jq .parameterTotal
  hf-meta ./model.safetensors                   a local file
  hf-meta verify bigscience/bloom               check every shard
  hf-meta badge bigscience/bloom -o bloom.svg   a badge for a model page
  hf-meta diff org/name@v1 org/name             compare two revisions
  hf-meta get org/name 'model.layers.0.*' -o x.safetensors
  hf-meta metadata set x.safetensors title=X    edit the metadata
  hf-meta -- verify                             a repository named `verify`

Environment:
  HF_ENDPOINT                      URL of the Hub
  HF_TOKEN                         token for gated and private repositories
  HF_TOKEN_PATH, HF_HOME           location of the token from `hf auth login`
  HF_HUB_CACHE, HF_HOME            location of the files from `hf download`
                                   [default: huggingface in $XDG_CACHE_HOME,
                                   else in ~/.cache]
  HF_HUB_OFFLINE                   if 1, same as --offline
  HF_HUB_DISABLE_IMPLICIT_TOKEN    if 1, only --token sets a token
  HF_META_CACHE                    folder of the header cache, or `off`
                                   [default: hf-meta in $XDG_CACHE_HOME, else
                                   in ~/.cache]
  https_proxy, http_proxy,         proxies
  all_proxy, no_proxy
  SSL_CERT_FILE, SSL_CERT_DIR      trusted certificates, replacing the system's
  NO_COLOR                         disables colors

Exit status:
  0  every repository was read
  1  no valid weights, no such file, or several weight sets to choose from;
     `verify` found an error; `diff` found a difference; or a model does not
     fit, or may not fit, with `--fit`, `--gpu` or `--engine`
  2  invalid arguments or environment variables
  3  the repository or revision was not found, access was denied, or the Hub or
     the network failed
  4  a local file could not be read or written
With several repositories, the highest of these codes.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_consistent() {
        Args::definition().debug_assert();
    }

    /// Longer lines would wrap and lose their alignment.
    #[test]
    fn examples_fit_80_columns() {
        let mut commands = vec![Args::definition()];
        while let Some(command) = commands.pop() {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            let texts = texts.map(|text| text.map(ToString::to_string).unwrap_or_default());
            let mut lines = texts.iter().flat_map(|text| text.lines());
            let long = lines.find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{}", command.get_name());
            commands.extend(command.get_subcommands().cloned());
        }
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let line: Vec<_> = line.split(' ').map(OsString::from).collect();
        Args::from_arguments(&line)
    }

    #[test]
    fn only_the_first_argument_can_name_a_subcommand() {
        for line in ["hf-meta gpt2", "hf-meta gpt2 verify", "hf-meta -- verify"] {
            assert!(parse(line).unwrap().command.is_none(), "{line}");
        }
        for line in [
            "hf-meta verify gpt2",
            "hf-meta -v verify gpt2",
            "hf-meta --token x verify gpt2 -r main",
            "hf-meta verify gpt2 --endpoint http://x",
            "hf-meta --color never verify gpt2",
            "hf-meta --color never cache info",
        ] {
            assert!(parse(line).unwrap().command.is_some(), "{line}");
        }
        for line in ["hf-meta", "hf-meta verify", "hf-meta --json verify gpt2"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn connection_options_are_accepted_before_and_after_a_subcommand() {
        for line in ["hf-meta --retries 2 verify gpt2", "hf-meta verify gpt2 --retries 2"] {
            assert_eq!(parse(line).unwrap().connection.retries, Some(2), "{line}");
        }
    }
}
