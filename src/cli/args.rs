//! What can be typed.

use std::time::Duration;

use clap::{Parser, builder::NonEmptyStringValueParser};

/// What is inside safetensors weights, read from their headers: kilobytes out of terabytes
///
/// Prints the parameters per dtype of each REPO, checked against the file itself. Only headers are
/// read, never weights.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, after_long_help = LONG_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// Repositories on the Hub, URLs, or local files and folders
    ///
    /// A repository (`org/name`, `name`, `org/name@revision`, `datasets/org/name`,
    /// `hf://org/name@revision/path`), a page of it on huggingface.co, the URL of a `.safetensors`
    /// file or an index on any server, a local file, or a local folder written with a slash
    /// (`./folder`).
    #[arg(required = true, value_name = "REPO", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) repos: Vec<String>,

    /// Branch, tag, ref or commit to read [default: main]
    #[arg(long, short, value_name = "REVISION")]
    pub(crate) revision: Option<String>,

    /// File to read, or folder to look in, inside each repository
    #[arg(long, short, value_name = "PATH")]
    pub(crate) path: Option<String>,

    #[command(flatten)]
    pub(crate) view: View,

    /// Only tensors whose name matches the pattern (`*`, `?`, `[abc]`)
    #[arg(long, short, value_name = "GLOB", requires = "tensors", value_parser = glob::Pattern::new)]
    pub(crate) filter: Option<glob::Pattern>,

    /// Leave `header`, `index` and `headers` out of the JSON
    #[arg(long, requires = "json")]
    pub(crate) summary: bool,

    #[arg(long, value_name = "URL", help = ENDPOINT_HELP)]
    pub(crate) endpoint: Option<String>,

    #[arg(long, value_name = "TOKEN", help = TOKEN_HELP)]
    pub(crate) token: Option<String>,

    /// Say on stderr what is tried again and waited for; twice, say it of every request
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// How often a request that failed is made again, where it may pass [default: 4]
    #[arg(long, value_name = "TIMES")]
    pub(crate) retries: Option<u8>,

    /// Seconds after which to give up on a repository [default: 360]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

/// What to show; the table of dtypes where nothing else is asked for.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct View {
    /// Print JSON, one document per repository and line, in the shape of huggingface.js
    #[arg(long, short)]
    pub(crate) json: bool,

    /// List every tensor: name, dtype, shape, bytes, shard
    #[arg(long, short)]
    pub(crate) tensors: bool,

    /// Say how the parameters were counted: which tensors are unpacked, left out, or no weights
    #[arg(long, short = 'x')]
    pub(crate) explain: bool,

    /// Print the metadata that the files carry, such as ModelSpec's title and author
    #[arg(long, short)]
    pub(crate) metadata: bool,
}

const ENDPOINT_HELP: &str =
    "Address of the Hub [default: $HF_ENDPOINT, else https://huggingface.co]";

const TOKEN_HELP: &str =
    "Token for gated and private repositories [default: $HF_TOKEN, else that of `hf auth login`]";

const EXAMPLES: &str = "\
Examples:
  hf-meta bigscience/bloom                      parameters per dtype
  hf-meta gpt2 roberta-base                     several repositories
  hf-meta org/name@refs/pr/1 --path 7b          a pull request, a folder in it
  hf-meta gpt2 --tensors --filter '*.attn.*'    some of the tensors
  hf-meta org/name --explain                    how a quantized model was counted
  hf-meta gpt2 --json --summary | jq .parameterTotal
  hf-meta ./model.safetensors                   a local file

More with --help.";

const LONG_HELP: &str = "\
Examples:
  hf-meta bigscience/bloom                      parameters per dtype
  hf-meta gpt2 roberta-base                     several repositories
  hf-meta org/name@refs/pr/1 --path 7b          a pull request, a folder in it
  hf-meta https://huggingface.co/gpt2/blob/main/model.safetensors
  hf-meta gpt2 --tensors --filter '*.attn.*'    some of the tensors
  hf-meta org/name --explain                    how a quantized model was counted
  hf-meta gpt2 --json --summary | jq .parameterTotal
  hf-meta ./model.safetensors                   a local file

Environment:
  HF_ENDPOINT                      address of the Hub
  HF_TOKEN                         token for gated and private repositories
  HF_TOKEN_PATH, HF_HOME           where the token of `hf auth login` is
  HF_HUB_DISABLE_IMPLICIT_TOKEN    use no token but that of --token
  https_proxy, no_proxy            proxies
  NO_COLOR                         no colours

Exit status:
  0  every repository was read
  1  a repository holds no valid safetensors weights
  2  wrong usage
  3  the Hub refused, or the network failed";

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout),
        _ => Err("not a number of seconds above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn timeouts() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1_500)));
        for text in ["", "x", "0", "-1", "NaN", "inf", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
