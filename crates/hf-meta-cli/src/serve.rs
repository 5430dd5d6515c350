//! `hf-meta serve`: the badge service.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use futures::FutureExt;
use hf_meta::{AddressPolicy, Client, ClientBuilder, DiskCache, RetryPolicy};
use hf_meta_server::{IpNet, RedisCache, Service, ServiceConfig, Url, WebhookSecret};
use tokio::net::TcpListener;

use super::connection::{ConnectionArgs, seconds};
use super::exit::{CommandError, ExitStatus, failed_to};
use super::output::Page;
use super::repos::expand_home;
use super::signal::signal;

/// Serve badges and JSON counts over HTTP
///
/// Anyone who can reach the address can see the counts of every repository that the token can read. The
/// service uses only the token from `--token` or `HF_META_TOKEN`, never the one from `hf auth login`.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are the help texts, in which markup would be printed"
)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; port 0 picks a free port. Without it, $PORT is a port on all IPv4 addresses
    #[arg(long, value_name = "ADDRESS", env = "HF_META_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Header cache: a folder, a `redis://…` or `rediss://…` URL to share it between servers, or `off` [default:
    /// hf-meta in $XDG_CACHE_HOME, else in ~/.cache]
    #[arg(long, value_name = "CACHE", env = "HF_META_CACHE", hide_env_values = true)]
    cache: Option<CacheLocation>,

    /// Size limit of a disk cache, in bytes
    #[arg(long, value_name = "BYTES", env = "HF_META_CACHE_LIMIT", default_value_t = DiskCache::DEFAULT_LIMIT)]
    cache_limit: u64,

    /// Timeout after which an unresponsive shared cache is skipped, in seconds
    #[arg(long, value_name = "SECONDS", env = "HF_META_CACHE_TIMEOUT", default_value = "0.5", value_parser = seconds)]
    cache_timeout: Duration,

    /// Time to live of branch and tag counts, in seconds
    #[arg(long, value_name = "SECONDS", env = "HF_META_TTL", default_value = "300", value_parser = seconds)]
    ttl: Duration,

    /// Maximum age of branch and tag counts that are served while the Hub is unavailable, in seconds
    #[arg(long, value_name = "SECONDS", env = "HF_META_STALE_IF_ERROR", default_value = "604800", value_parser = seconds)]
    stale_if_error: Duration,

    /// Seconds for which browsers and proxies may cache the counts of branches and tags
    #[arg(long, value_name = "SECONDS", env = "HF_META_MAX_AGE", default_value = "3600", value_parser = seconds)]
    max_age: Duration,

    /// Time to wait for the Hub before a badge says `pending`, in seconds
    #[arg(long, value_name = "SECONDS", env = "HF_META_LOOKUP_TIMEOUT", default_value = "3", value_parser = seconds)]
    lookup_timeout: Duration,

    /// Maximum number of repositories read from the Hub concurrently
    #[arg(long, value_name = "COUNT", env = "HF_META_MAX_CONCURRENT_LOOKUPS", default_value = "8")]
    max_concurrent_lookups: NonZeroUsize,

    /// Maximum number of repositories waiting to be read; further requests are rejected
    #[arg(long, value_name = "COUNT", env = "HF_META_MAX_QUEUED_LOOKUPS", default_value_t = 1_000)]
    max_queued_lookups: usize,

    /// Approximate memory limit for results, in bytes
    #[arg(long, value_name = "BYTES", env = "HF_META_MEMORY_LIMIT", default_value_t = 64 << 20)]
    memory_limit: u64,

    /// Maximum requests per minute from one client for results that are not in memory; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value_t = 6_000)]
    #[arg(env = "HF_META_REQUESTS_PER_MINUTE")]
    requests_per_minute: u32,

    /// Maximum requests to the Hub per repository; weights that need more requests are not read
    #[arg(long, value_name = "COUNT", default_value = "500")]
    #[arg(env = "HF_META_MAX_REQUESTS_PER_LOOKUP")]
    max_requests_per_lookup: NonZeroUsize,

    /// Maximum requests to the Hub per minute caused by one client, with an equal limit for refreshes of known badges; 0 for no
    /// limit
    #[arg(long, value_name = "COUNT", default_value_t = 120)]
    #[arg(env = "HF_META_UPSTREAM_REQUESTS_PER_MINUTE")]
    upstream_requests_per_minute: u32,

    /// Maximum requests to the Hub per minute caused by all clients together; 0 for no limit. The rest of the
    /// quota is reserved for known badges
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    #[arg(env = "HF_META_TOTAL_UPSTREAM_REQUESTS_PER_MINUTE")]
    total_upstream_requests_per_minute: u32,

    /// Networks of proxies whose `X-Forwarded-For` header is trusted, such as 127.0.0.1/32
    #[arg(long, value_name = "NETWORK", env = "HF_META_TRUSTED_PROXIES", value_delimiter = ',')]
    trusted_proxy: Vec<IpNet>,

    /// Public URL of the service, used in snippets [default: taken from the request]
    #[arg(long, value_name = "URL", env = "HF_META_PUBLIC_URL")]
    public_url: Option<Url>,

    /// Maximum number of open connections; further connections wait. One client may have a quarter of them
    #[arg(long, value_name = "COUNT", env = "HF_META_MAX_CONNECTIONS", default_value = "10000")]
    max_connections: NonZeroUsize,

    /// Timeout after which a connection is closed if its client neither sends nor reads, in seconds
    #[arg(long, value_name = "SECONDS", env = "HF_META_CLIENT_TIMEOUT", default_value = "30", value_parser = seconds)]
    client_timeout: Duration,

    /// Owners whose repositories may be read [default: all]
    #[arg(long, value_name = "NAME", env = "HF_META_ALLOWED_OWNERS", value_delimiter = ',')]
    allowed_owner: Vec<String>,

    /// Sites that may embed the page, such as `https://huggingface.co` [default: none]
    #[arg(long, value_name = "SITES", env = "HF_META_FRAME_ANCESTORS")]
    frame_ancestors: Option<String>,

    /// Secret of a Hub webhook, which refreshes badges through `/webhook` [default: no webhook]
    #[arg(long, value_name = "SECRET", env = "HF_META_WEBHOOK_SECRET", hide_env_values = true)]
    webhook_secret: Option<WebhookSecret>,

    /// Separate address for `/metrics`, which is then no longer served at the main address
    #[arg(long, value_name = "ADDRESS", env = "HF_META_METRICS_LISTEN")]
    metrics_listen: Option<SocketAddr>,

    /// Seconds during which new connections are still accepted after a shutdown begins [default: none]
    #[arg(long, value_name = "SECONDS", env = "HF_META_DRAIN_DELAY", value_parser = seconds)]
    drain_delay: Option<Duration>,

    /// Time that requests in flight are given to complete at shutdown, in seconds
    #[arg(long, value_name = "SECONDS", env = "HF_META_SHUTDOWN_TIMEOUT", default_value = "10", value_parser = seconds)]
    shutdown_timeout: Duration,
}

/// The location of the header cache of a service.
#[derive(Clone, Debug)]
enum CacheLocation {
    Off,
    Folder(PathBuf),
    Redis(String),
}

impl FromStr for CacheLocation {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once("://") {
            Some(("redis" | "rediss", _)) => Ok(Self::Redis(text.to_owned())),
            Some(_) => {
                Err("must be a folder, `off`, or a URL that begins with redis:// or rediss://")
            }
            None if text == "off" => Ok(Self::Off),
            None => Ok(Self::Folder(expand_home(text).unwrap_or_else(|| text.into()))),
        }
    }
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

/// Ignores blank environment variables, as everywhere else, and sets the default address.
pub(crate) fn define(serve: clap::Command) -> clap::Command {
    let is_blank = |name: &OsStr| std::env::var(name).is_ok_and(|text| text.trim().is_empty());
    // `mut_arg` would change the order of the arguments, which a command that is built already relies on.
    serve.mut_args(|arg| {
        let arg = if arg.get_env().is_some_and(is_blank) { arg.env(None::<&str>) } else { arg };
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
) -> Result<ExitStatus, CommandError> {
    // The former name of HF_META_ALLOWED_OWNERS. If it were ignored, the service would be open to all repositories.
    if variable("HF_META_OWNERS").is_some() {
        return Err(CommandError::usage(
            "HF_META_OWNERS has no effect; use HF_META_ALLOWED_OWNERS instead",
        ));
    }
    if variable("PORT").is_some() && PLATFORM_ADDRESS.is_none() {
        return Err(CommandError::usage("PORT is not a port number"));
    }
    let client = client(args, connection)?;
    let shutdown = signal()?.map(drop);
    let listen = args.listen;
    let failed_to_listen = || failed_to(format!("listen on {listen}"));
    let listener = TcpListener::bind(listen).await.map_err(failed_to_listen())?;
    let address = listener.local_addr().map_err(failed_to_listen())?;
    Page::print(|page| writeln!(page.out, "listening on http://{address}"))?;
    let service = Service::new(client, config(args));
    if let Some(address) = args.metrics_listen {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(failed_to(format!("listen on {address}")))?;
        tokio::spawn(service.clone().serve_metrics(listener));
    }
    service.serve(listener, shutdown).await;
    Ok(ExitStatus::Success)
}

/// The maximum time a lookup spends on retries of a request, and on rate limits.
const LOOKUP_RETRIES: Duration = Duration::from_secs(30);

/// Builds a client for untrusted requests: public addresses only, with tight limits and timeouts.
fn client(args: &ServeArgs, connection: &ConnectionArgs) -> Result<Client, CommandError> {
    let token = connection.token.clone().or_else(|| variable("HF_META_TOKEN"));
    let token = token.unwrap_or_default();
    let retries = usize::from(connection.retries.unwrap_or(2));
    let mut builder = ClientBuilder::from_env()
        .token(token.trim())
        .address_policy(AddressPolicy::Public)
        .user_agent("serve")
        .max_concurrent_requests(64)
        .max_total_header_bytes(150_000_000)
        .max_index_bytes(100_000_000)
        .call_timeout(connection.timeout.unwrap_or(Duration::from_secs(120)))
        .retry_policy(
            RetryPolicy::default()
                .max_attempts(retries + 1)
                .max_elapsed(LOOKUP_RETRIES)
                .max_wait(LOOKUP_RETRIES),
        )
        .branch_ttl(args.ttl)
        .stale_if_error(args.stale_if_error);
    if let Some(endpoint) = &connection.endpoint {
        builder = builder.endpoint(endpoint);
    }
    if connection.offline {
        builder = builder.offline(true);
    }
    let in_folder = |folder| DiskCache::with_limit(folder, args.cache_limit);
    let builder = match &args.cache {
        _ if connection.no_cache => builder,
        Some(CacheLocation::Off) => builder,
        Some(CacheLocation::Folder(folder)) => builder.header_cache(in_folder(folder.clone())),
        Some(CacheLocation::Redis(address)) => {
            let cache = RedisCache::with_timeout(address, args.cache_timeout);
            builder.header_cache(cache.map_err(io::Error::other)?)
        }
        None => match DiskCache::from_env() {
            Some(cache) => builder.header_cache(in_folder(cache.folder().to_owned())),
            None => builder,
        },
    };
    Ok(builder.build()?)
}

fn config(args: &ServeArgs) -> ServiceConfig {
    let mut config = ServiceConfig::default();
    config.ttl = args.ttl;
    config.max_age = args.max_age;
    config.lookup_timeout = args.lookup_timeout;
    config.max_concurrent_lookups = args.max_concurrent_lookups.get();
    config.max_queued_lookups = args.max_queued_lookups;
    config.memory_limit = args.memory_limit;
    config.requests_per_minute = args.requests_per_minute;
    config.max_requests_per_lookup = args.max_requests_per_lookup.get();
    config.upstream_requests_per_minute = args.upstream_requests_per_minute;
    config.total_upstream_requests_per_minute = args.total_upstream_requests_per_minute;
    config.trusted_proxies.clone_from(&args.trusted_proxy);
    config.public_url.clone_from(&args.public_url);
    config.max_connections = args.max_connections.get();
    config.client_timeout = args.client_timeout;
    config.allowed_owners.clone_from(&args.allowed_owner);
    config.frame_ancestors.clone_from(&args.frame_ancestors);
    config.webhook_secret.clone_from(&args.webhook_secret);
    config.serve_metrics = args.metrics_listen.is_none();
    config.drain_delay = args.drain_delay.unwrap_or_default();
    config.shutdown_timeout = args.shutdown_timeout;
    config
}
