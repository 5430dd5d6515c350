//! Options for the connection to the Hub, which every subcommand has.

use std::time::Duration;

use hf_meta::internal::environment_token;
use hf_meta::{Client, ClientBuilder, DiskCache, Error, RetryPolicy};
use hf_meta_count::results::text::parse_seconds;

/// The options for the connection to the Hub, before or after the name of a subcommand.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
#[expect(clippy::doc_markdown, reason = "markup in a help text would be printed")]
pub(crate) struct ConnectionArgs {
    /// URL of the Hub [default: $HF_ENDPOINT, else https://huggingface.co]
    #[arg(long, hide_short_help = true, value_name = "URL", global = true)]
    pub(crate) endpoint: Option<String>,

    /// Token for private and gated repositories
    ///
    /// By default, it is $HF_TOKEN, or else the token from `hf auth login`; for `serve`, it is $HF_META_TOKEN.
    #[arg(long, value_name = "TOKEN", global = true)]
    pub(crate) token: Option<String>,

    /// Number of retries after a transient failure [default: 4]
    #[arg(long, hide_short_help = true, value_name = "COUNT", global = true)]
    pub(crate) retries: Option<u8>,

    /// Timeout per repository, in seconds, including retries and waits for rate limits [default: 360, plus at most 320
    /// of waits for rate limits]
    #[arg(long, hide_short_help = true, value_name = "SECONDS", global = true, value_parser = parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Do not read or write the header cache
    #[arg(long, hide_short_help = true, global = true)]
    pub(crate) no_cache: bool,

    /// Read only downloaded files and cached headers
    #[arg(long, global = true)]
    pub(crate) offline: bool,

    /// Log retries and waits; -vv also logs requests
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl ConnectionArgs {
    /// Returns the origin of the token, for messages; `None` if there is no token.
    pub(crate) fn token_source(&self) -> Option<String> {
        let flag = self.token.as_ref().map(|_| "--token".to_owned());
        flag.or_else(|| environment_token().map(|token| token.origin))
    }

    /// Builds a client from the environment and these options. If they are unusable, returns an offline client, which
    /// reads local files, and the error for all other sources.
    pub(crate) fn client(&self) -> Result<(Client, Option<Error>), Error> {
        let mut builder = self.builder();
        if let Some(cache) = self.cache() {
            builder = builder.header_cache(cache);
        }
        builder.clone().build().map(|client| (client, None)).or_else(|error| {
            let local = builder.offline(true).build().map_err(|_| error.clone())?;
            Ok((local, Some(error)))
        })
    }

    /// Returns the header cache, unless it is disabled.
    pub(crate) fn cache(&self) -> Option<DiskCache> {
        if self.no_cache { None } else { DiskCache::from_env() }
    }

    /// Returns a builder for a client without a header cache.
    pub(crate) fn builder(&self) -> ClientBuilder {
        let mut builder = ClientBuilder::from_env();
        if let Some(endpoint) = &self.endpoint {
            builder = builder.endpoint(endpoint);
        }
        if let Some(token) = &self.token {
            builder = builder.token(token);
        }
        builder = builder.retry_policy(self.retry_policy()).call_timeout(self.timeout);
        if self.offline { builder.offline(true) } else { builder }
    }

    /// Returns the retry policy for requests.
    pub(crate) fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy::default().max_attempts(usize::from(self.retries.unwrap_or(4)) + 1)
    }
}

/// Hides some arguments of a command and its subcommands.
pub(super) fn hiding(command: clap::Command, is_hidden: fn(&clap::Arg) -> bool) -> clap::Command {
    let command = command.mut_args(|arg| {
        let hidden = is_hidden(&arg) || arg.is_hide_set();
        arg.hide(hidden)
    });
    command.mut_subcommands(|command| hiding(command, is_hidden))
}
