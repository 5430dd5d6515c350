//! `hf-meta serve`: the badge service.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use futures::FutureExt;
use hf_meta::{AddressPolicy, Client, DiskCache, RetryPolicy, Source};
use hf_meta_count::results::text::parse_seconds;
use hf_meta_server::{RedisCache, Service, ServiceConfig};
use signal_hook::consts::SIGINT;
use tokio::net::TcpListener;

use super::connection::ConnectionArgs;
use super::exit::{CommandError, CommandResult, ExitStatus, failed_to};
use super::output::Page;
use super::signal::signal;
use super::stderr::LogFormat;

/// Serve badges and JSON counts over HTTP
///
/// Anyone who can reach the address can see the counts of every repository that the token can read. The
/// service uses only the token from `--token` or `HF_META_TOKEN`, never the one from `hf auth login`.
#[derive(Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "markup in a help text would be printed")]
pub(crate) struct ServeArgs {
    /// Address and port, or a port on this machine only; port 0 picks a free port. Without it, $PORT is a port on all
    /// IPv4 addresses
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,

    /// Header cache: a folder, a `redis://…` or `rediss://…` URL to share it between servers, or `off` [default:
    /// hf-meta in $XDG_CACHE_HOME, else in ~/.cache]
    #[arg(long, value_name = "CACHE", value_parser = cache_location, hide_env_values = true)]
    cache: Option<CacheLocation>,

    /// Size limit of a disk cache, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = DiskCache::DEFAULT_LIMIT)]
    cache_limit: u64,

    /// Timeout after which an unresponsive shared cache is skipped, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = parse_seconds)]
    cache_timeout: Duration,

    /// Maximum age of branch and tag counts that are served while the Hub is unavailable, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "604800", value_parser = parse_seconds)]
    stale_if_error: Duration,

    /// Separate address for `/metrics`, which is then no longer served at the main address
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    metrics_listen: Option<SocketAddr>,

    /// Format of the log on stderr: lines of text, lines with the time, or JSON with the time
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,

    #[command(flatten)]
    service: ServiceConfig,
}

/// The location of the header cache of a service.
#[derive(Clone, Debug)]
enum CacheLocation {
    Off,
    Folder(PathBuf),
    Redis(String),
}

fn cache_location(text: &str) -> Result<CacheLocation, &'static str> {
    match text.split_once("://") {
        Some(("redis" | "rediss", _)) => Ok(CacheLocation::Redis(text.to_owned())),
        Some(_) => Err("must be a folder, `off`, or a URL that begins with redis:// or rediss://"),
        None if text == "off" => Ok(CacheLocation::Off),
        None => Ok(CacheLocation::Folder(Source::local_path(text))),
    }
}

/// Parses a port, or a host with a port.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    if let Ok(port) = text.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let addresses = text.to_socket_addrs().ok().into_iter().flatten();
    addresses
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or("expected a port, or an address such as 127.0.0.1:8080 or localhost:8080")
}

/// Returns the value of an environment variable, unless it is blank.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The default address on platforms that choose the port.
static PLATFORM_ADDRESS: LazyLock<Option<String>> = LazyLock::new(|| {
    let port: u16 = variable("PORT")?.trim().parse().ok()?;
    Some(format!("0.0.0.0:{port}"))
});

/// The flags of the service that the short help lists.
const COMMON: [&str; 9] = [
    "listen",
    "cache",
    "ttl",
    "memory_limit",
    "requests_per_minute",
    "trusted_proxies",
    "public_url",
    "allowed_owners",
    "webhook_secret",
];

/// The beginning of the names of all variables of the command.
const PREFIX: &str = "HF_META_";

/// The variables that are not flags of the service.
const OTHER_VARIABLES: [&str; 3] = ["HF_META_TOKEN", "HF_META_COMMIT", "HF_META_COMPLETE"];

/// The maximum number of typing errors in the name of a variable.
const MAX_TYPOS: usize = 3;

/// Returns the variable of a flag.
fn variable_of(flag: &str) -> String {
    format!("{PREFIX}{}", flag.to_uppercase())
}

/// Gives each flag of the service a variable, such as `HF_META_MAX_AGE` for `--max-age`, and sets the default address.
/// Blank variables are ignored, as everywhere else.
pub(crate) fn define(serve: clap::Command) -> clap::Command {
    // `mut_arg` would change the order of the arguments, which a command that is built already relies on.
    serve.mut_args(|arg| {
        let name = variable_of(arg.get_id().as_str());
        let is_own = !arg.is_global_set() && arg.get_action().takes_values();
        let is_blank = std::env::var(&name).is_ok_and(|text| text.trim().is_empty());
        let arg = if is_own && !is_blank { arg.env(name) } else { arg };
        let is_rare = is_own && !COMMON.contains(&arg.get_id().as_str());
        let arg = if is_rare { arg.hide_short_help(true) } else { arg };
        match (arg.get_id().as_str(), PLATFORM_ADDRESS.as_deref()) {
            ("listen", Some(address)) => arg.default_value(address),
            ("token", _) => {
                arg.help("Token for gated and private repositories [default: $HF_META_TOKEN]")
            }
            ("retries", _) => arg.help("Number of retries after a transient failure [default: 2]"),
            ("timeout", _) => arg.help(
                "Timeout per repository, in seconds, including retries and waits for rate limits [default: 120]",
            ),
            _ => arg,
        }
    })
}

pub(crate) async fn run(
    args: &ServeArgs,
    connection: &ConnectionArgs,
    definition: &clap::Command,
) -> CommandResult {
    if variable("PORT").is_some() && PLATFORM_ADDRESS.is_none() {
        return Err(CommandError::usage("PORT is not a port number"));
    }
    warn_unknown_variables(definition);
    let cache = cache(args, connection)?;
    let client = client(args, connection, cache.as_ref())?;
    let first = signal()?;
    let failed_to_listen = |address| failed_to(format!("listen on {address}"));
    let listener = TcpListener::bind(args.listen).await.map_err(failed_to_listen(args.listen))?;
    let address = listener.local_addr().map_err(failed_to_listen(args.listen))?;
    if let Some(HeaderCache::Redis(redis)) = &cache {
        redis.connect().await;
    }
    log_start(address, &client, cache.as_ref());
    Page::print(|page| writeln!(page.out, "listening on http://{address}"))?;
    let mut config = args.service.clone();
    let drain = config.drain_delay.as_secs_f64();
    config.serve_metrics = args.metrics_listen.is_none();
    let service = Service::new(client, config);
    if let Some(address) = args.metrics_listen {
        let listener = TcpListener::bind(address).await.map_err(failed_to_listen(address))?;
        let address = listener.local_addr().map_err(failed_to_listen(address))?;
        tracing::info!(%address, "the metrics are served");
        tokio::spawn(service.clone().serve_metrics(listener));
    }
    let draining = service.clone();
    let shutdown = async move {
        let is_interrupt = first.await == SIGINT;
        if is_interrupt {
            // Nobody at a terminal waits for a load balancer.
            draining.end_drain();
            tracing::info!(signal = "SIGINT", "shutting down");
        } else {
            tracing::info!(signal = "SIGTERM", drain_seconds = drain, "shutting down");
            // A listener that existed at the first signal would see it, too.
            if let Ok(second) = signal() {
                tokio::spawn(second.map(move |_| draining.end_drain()));
            }
        }
    };
    service.serve(listener, shutdown).await;
    tracing::info!("stopped");
    Ok(ExitStatus::Success)
}

/// Logs the settings that decide what the service reads and shows. A token is only mentioned.
fn log_start(address: SocketAddr, client: &Client, cache: Option<&HeaderCache>) {
    let cache = match cache {
        None => "off".to_owned(),
        Some(HeaderCache::Folder(cache)) => cache.folder().display().to_string(),
        Some(HeaderCache::Redis(redis)) if redis.is_reachable() => "redis".to_owned(),
        Some(HeaderCache::Redis(_)) => "redis (unreachable)".to_owned(),
    };
    let (hub, version) = (client.endpoint(), env!("CARGO_PKG_VERSION"));
    tracing::info!(%address, %hub, %cache, version, "the service has started");
}

/// Warns about variables that look like a setting of the service and are none.
fn warn_unknown_variables(definition: &clap::Command) {
    let serve = definition.get_subcommands().find(|command| command.get_name() == "serve");
    let args = serve.into_iter().flat_map(clap::Command::get_arguments);
    let known: Vec<_> = args
        .filter(|arg| !arg.is_global_set() && arg.get_action().takes_values())
        .map(|arg| variable_of(arg.get_id().as_str()))
        .chain(OTHER_VARIABLES.map(str::to_owned))
        .collect();
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        if known.iter().any(|known| known == name) {
            continue;
        }
        let distance = |known: &&String| strsim::damerau_levenshtein(known, name);
        let similar =
            known.iter().min_by_key(distance).filter(|known| distance(known) <= MAX_TYPOS);
        if let Some(similar) = similar {
            tracing::warn!(similar, "{name} is not a setting");
        } else {
            tracing::warn!("{name} is not a setting");
        }
    }
}

/// The maximum time a lookup spends on retries of a request, and on rate limits.
const LOOKUP_RETRIES: Duration = Duration::from_secs(30);

/// The header cache of a service.
enum HeaderCache {
    Folder(DiskCache),
    Redis(RedisCache),
}

/// Returns the header cache; `None` if it is off.
fn cache(args: &ServeArgs, connection: &ConnectionArgs) -> CommandResult<Option<HeaderCache>> {
    let default = || Some(CacheLocation::Folder(DiskCache::from_env()?.folder().to_owned()));
    let location = if connection.no_cache { None } else { args.cache.clone().or_else(default) };
    Ok(match location {
        Some(CacheLocation::Folder(folder)) => {
            Some(HeaderCache::Folder(DiskCache::with_limit(folder, args.cache_limit)))
        }
        Some(CacheLocation::Redis(address)) => {
            let cache = RedisCache::with_timeout(&address, args.cache_timeout);
            // The URL may contain a password, so the message does not repeat it.
            let invalid =
                |error| CommandError::usage(format!("invalid `--cache` or HF_META_CACHE: {error}"));
            Some(HeaderCache::Redis(cache.map_err(invalid)?))
        }
        Some(CacheLocation::Off) | None => None,
    })
}

/// Builds a client for untrusted requests: public addresses only, with tight limits and timeouts.
fn client(
    args: &ServeArgs,
    connection: &ConnectionArgs,
    cache: Option<&HeaderCache>,
) -> CommandResult<Client> {
    let token = connection.token.clone().or_else(|| variable("HF_META_TOKEN"));
    let token = token.unwrap_or_default();
    let retries = usize::from(connection.retries.unwrap_or(2));
    let retry = RetryPolicy::default().max_attempts(retries + 1).max_elapsed(LOOKUP_RETRIES);
    let builder = connection
        .builder()
        .token(token.trim())
        .address_policy(AddressPolicy::Public)
        .user_agent("serve")
        .max_concurrent_requests(64)
        .max_total_header_bytes(150_000_000)
        .max_index_bytes(100_000_000)
        .call_timeout(connection.timeout.unwrap_or(Duration::from_secs(120)))
        .retry_policy(retry.max_wait(LOOKUP_RETRIES))
        .branch_ttl(args.service.ttl)
        .stale_if_error(args.stale_if_error);
    let builder = match cache {
        Some(HeaderCache::Folder(cache)) => builder.header_cache(cache.clone()),
        Some(HeaderCache::Redis(cache)) => builder.header_cache(cache.clone()),
        None => builder,
    };
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_can_be_a_port_or_a_name() {
        for (text, expected) in [
            ("9000", "127.0.0.1:9000"),
            ("localhost:9000", "127.0.0.1:9000"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(address(text).map(|address| address.to_string()), Ok(expected.to_owned()));
        }
        for text in ["", "localhost", "70000", "127.0.0.1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
