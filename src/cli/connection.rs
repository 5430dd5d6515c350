//! How the Hub is reached, in the same words for every command.

use std::time::Duration;

use hf_meta::{Client, ClientBuilder, DiskCache, Error, RetryPolicy};

/// The options that every command has, before or after its name.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    #[arg(long, value_name = "URL", global = true, help = ENDPOINT_HELP)]
    pub(crate) endpoint: Option<String>,

    #[arg(long, value_name = "TOKEN", global = true, help = TOKEN_HELP)]
    pub(crate) token: Option<String>,

    #[arg(long, value_name = "TIMES", global = true, help = RETRIES_HELP)]
    pub(crate) retries: Option<u8>,

    #[arg(long, value_name = "SECONDS", global = true, value_parser = seconds, help = TIMEOUT_HELP)]
    pub(crate) timeout: Option<Duration>,

    /// Neither use nor keep headers that were read before
    #[arg(long, global = true)]
    pub(crate) no_cache: bool,

    /// Ask no server; read what `hf download` has left in the cache
    #[arg(long, global = true)]
    pub(crate) offline: bool,

    /// Say on stderr what is tried again and waited for; twice, say it of every request
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

const ENDPOINT_HELP: &str =
    "Address of the Hub [default: $HF_ENDPOINT, else https://huggingface.co]";

const TOKEN_HELP: &str = if cfg!(feature = "server") {
    "Token for gated and private repositories [default: $HF_TOKEN, else that of `hf auth login`; of \
     `serve`: $HF_META_TOKEN]"
} else {
    "Token for gated and private repositories [default: $HF_TOKEN, else that of `hf auth login`]"
};

const RETRIES_HELP: &str = if cfg!(feature = "server") {
    "How often a request that failed is made again, where it may pass [default: 4; of `serve`: 2]"
} else {
    "How often a request that failed is made again, where it may pass [default: 4]"
};

const TIMEOUT_HELP: &str = if cfg!(feature = "server") {
    "Seconds after which to give up on a repository [default: 360; of `serve`: 120]"
} else {
    "Seconds after which to give up on a repository [default: 360]"
};

impl Connection {
    /// The client that the environment describes, with the changes that were typed.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        let mut builder = ClientBuilder::from_env();
        if let Some(endpoint) = &self.endpoint {
            builder = builder.endpoint(endpoint);
        }
        if let Some(token) = &self.token {
            builder = builder.token(token);
        }
        if let Some(retries) = self.retries {
            builder = builder.retry(RetryPolicy::default().max_attempts(usize::from(retries) + 1));
        }
        if let Some(timeout) = self.timeout {
            builder = builder.call_timeout(timeout);
        }
        if let Some(cache) = DiskCache::from_env().filter(|_| !self.no_cache) {
            builder = builder.header_cache(cache);
        }
        if self.offline {
            builder = builder.offline(true);
        }
        builder.build()
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
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
    fn timeouts() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1_500)));
        for text in ["", "x", "0", "-1", "NaN", "inf", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
