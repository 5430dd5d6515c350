//! What can be typed.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::badge::BadgeArgs;
use super::cache::CacheArgs;
use super::connection::Connection;
use super::diff::DiffArgs;
use super::show::ShowArgs;
use super::verify::VerifyArgs;

/// What is inside safetensors weights, read from their headers: kilobytes out of terabytes
///
/// Prints the parameters per dtype of each REPO, checked against the file itself. Only headers are
/// read, never weights.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, after_long_help = LONG_HELP, max_term_width = 100)]
#[command(subcommand_negates_reqs = true, override_usage = USAGE)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) show: ShowArgs,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What else there is to do with a repository.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Badge(BadgeArgs),
    Verify(VerifyArgs),
    Diff(DiffArgs),
    Cache(CacheArgs),
    #[cfg(feature = "server")]
    Serve(super::serve::ServeArgs),
}

impl Args {
    /// What was typed. Ends the program where that is wrong or asks for help.
    pub(crate) fn read() -> Self {
        let mut command = Self::command();
        let matches = command.get_matches_mut();
        let args = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command));
        match args.and_then(|args| in_order(&mut command, &matches).map(|()| args)) {
            Ok(args) => args,
            Err(error) => error.exit(),
        }
    }
}

/// An option of the call without a command would be passed over in silence before the name of one.
fn in_order(command: &mut clap::Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some(name) = matches.subcommand_name() else { return Ok(()) };
    let is_typed = |arg: &&clap::Arg| {
        matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let misplaced = command.get_arguments().filter(|arg| !arg.is_global_set()).find(is_typed);
    let Some(arg) = misplaced else { return Ok(()) };
    let message = format!("what belongs to `{name}` stands behind it, but `{arg}` is before it");
    Err(command.error(ErrorKind::ArgumentConflict, message))
}

const USAGE: &str = "\
hf-meta [OPTIONS] <REPO>...
       hf-meta [OPTIONS] <COMMAND> ...";

const EXAMPLES: &str = "\
Examples:
  hf-meta bigscience/bloom                      parameters per dtype
  hf-meta gpt2 roberta-base                     several repositories
  hf-meta org/name@refs/pr/1 --path 7b          a pull request, a folder in it
  hf-meta gpt2 --tensors --filter '*.attn.*'    some of the tensors
  hf-meta gpt2 --tree                           its modules
  hf-meta org/name --explain                    how a quantized model was counted
  hf-meta gpt2 --json --summary | jq .parameterTotal
  hf-meta ./model.safetensors                   a local file
  hf-meta verify bigscience/bloom               check every shard
  hf-meta diff org/name@v1 org/name             compare two revisions

More with --help.";

const LONG_HELP: &str = "\
Examples:
  hf-meta bigscience/bloom                      parameters per dtype
  hf-meta gpt2 roberta-base                     several repositories
  hf-meta org/name@refs/pr/1 --path 7b          a pull request, a folder in it
  hf-meta https://huggingface.co/gpt2/blob/main/model.safetensors
  hf-meta gpt2 --tensors --filter '*.attn.*'    some of the tensors
  hf-meta gpt2 --tree                           its modules
  hf-meta org/name --explain                    how a quantized model was counted
  hf-meta gpt2 --json --summary | jq .parameterTotal
  hf-meta ./model.safetensors                   a local file
  hf-meta verify bigscience/bloom               check every shard
  hf-meta badge bigscience/bloom -o bloom.svg   a badge for a model page
  hf-meta diff org/name@v1 org/name             compare two revisions
  hf-meta -- verify                             a repository with the name of a command

Environment:
  HF_ENDPOINT                      address of the Hub
  HF_TOKEN                         token for gated and private repositories
  HF_TOKEN_PATH, HF_HOME           where the token of `hf auth login` is
  HF_HUB_CACHE, HF_HOME            where downloads are kept
  HF_HUB_OFFLINE                   read from there alone
  HF_HUB_DISABLE_IMPLICIT_TOKEN    use no token but that of --token
  HF_META_CACHE                    folder that headers are kept in, `off` for none
                                   [default: hf-meta in $XDG_CACHE_HOME, else in ~/.cache]
  https_proxy, no_proxy            proxies
  NO_COLOR                         no colours

Exit status:
  0  every repository was read
  1  a repository holds no valid safetensors weights, or several sets of them to choose from,
     or `verify` found an error, or `diff` a difference
  2  wrong usage
  3  the Hub refused, or the network failed";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let mut command = Args::command();
        let matches = command.try_get_matches_from_mut(line.split(' '))?;
        in_order(&mut command, &matches)?;
        Args::from_arg_matches(&matches)
    }

    #[test]
    fn the_first_word_alone_can_name_a_command() {
        for line in ["hf-meta gpt2", "hf-meta gpt2 verify", "hf-meta -- verify"] {
            assert!(parse(line).unwrap().command.is_none(), "{line}");
        }
        for line in [
            "hf-meta verify gpt2",
            "hf-meta -v verify gpt2",
            "hf-meta --token x verify gpt2 -r main",
            "hf-meta verify gpt2 --endpoint http://x",
        ] {
            assert!(parse(line).unwrap().command.is_some(), "{line}");
        }
        for line in ["hf-meta", "hf-meta verify", "hf-meta --json verify gpt2"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_connection_is_the_same_on_both_sides_of_a_command() {
        for line in ["hf-meta --retries 2 verify gpt2", "hf-meta verify gpt2 --retries 2"] {
            assert_eq!(parse(line).unwrap().connection.retries, Some(2), "{line}");
        }
    }
}
