//! `hf-meta serve`: badges over HTTP.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use hf_meta::server::{IpNet, Service, Settings, Url};
use hf_meta::{AddressPolicy, Client, ClientBuilder, DiskCache, Error, RedisCache, RetryPolicy};
use tokio::net::TcpListener;

use super::connection::{Connection, seconds};
use super::report::{self, Outcome};

/// Serve badges, and the same figures as JSON
///
/// Everybody who reaches the address can see figures of whatever the token can read. A token is used
/// only if it is given by `--token` or `HF_META_TOKEN`, never that of `hf auth login`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Address and port to listen at; port 0 for any
    #[arg(long, value_name = "ADDRESS", env = "HF_META_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    #[arg(long, value_name = "CACHE", env = "HF_META_CACHE", hide_env_values = true, help = CACHE_HELP)]
    cache: Option<CacheAt>,

    /// Bytes of headers that are kept in a folder
    #[arg(long, value_name = "BYTES", env = "HF_META_CACHE_LIMIT", default_value_t = DiskCache::DEFAULT_LIMIT)]
    cache_limit: u64,

    /// Seconds after which a shared cache that does not answer counts as gone
    #[arg(long, value_name = "SECONDS", env = "HF_META_CACHE_PATIENCE", default_value = "0.5", value_parser = seconds)]
    cache_patience: Duration,

    /// Seconds for which a branch is taken to be where it was
    #[arg(long, value_name = "SECONDS", env = "HF_META_FRESH", default_value = "300", value_parser = seconds)]
    fresh: Duration,

    /// Seconds for which browsers and proxies may keep figures of a branch
    #[arg(long, value_name = "SECONDS", env = "HF_META_MAX_AGE", default_value = "3600", value_parser = seconds)]
    max_age: Duration,

    /// Seconds after which a badge says `pending` while the Hub is still being read
    #[arg(long, value_name = "SECONDS", env = "HF_META_PATIENCE", default_value = "3", value_parser = seconds)]
    patience: Duration,

    /// Repositories that are read from the Hub at once
    #[arg(long, value_name = "COUNT", env = "HF_META_LOOKS", default_value_t = 8)]
    looks: usize,

    /// Repositories that may wait for it; what is asked for beyond them is refused
    #[arg(long, value_name = "COUNT", env = "HF_META_LOOKS_WAITING", default_value_t = 1_000)]
    looks_waiting: usize,

    /// Bytes of memory for what was found
    #[arg(long, value_name = "BYTES", env = "HF_META_MEMORY", default_value_t = 64 << 20)]
    memory: u64,

    /// Requests that one client may make in a minute, 0 for no limit
    #[arg(
        long,
        value_name = "COUNT",
        env = "HF_META_REQUESTS_PER_MINUTE",
        default_value_t = 6_000
    )]
    requests_per_minute: u32,

    /// Repositories that one client may have read from the Hub in a minute, 0 for no limit
    #[arg(long, value_name = "COUNT", env = "HF_META_LOOKS_PER_MINUTE", default_value_t = 120)]
    looks_per_minute: u32,

    /// Networks of proxies whose `X-Forwarded-For` is believed, such as 127.0.0.1/32
    #[arg(long, value_name = "NETWORK", env = "HF_META_TRUSTED_PROXIES", value_delimiter = ',')]
    trusted_proxy: Vec<IpNet>,

    /// Address under which readers see the server, for what they paste [default: that of the request]
    #[arg(long, value_name = "URL", env = "HF_META_ADDRESS")]
    address: Option<Url>,

    /// Connections at once; further ones wait
    #[arg(long, value_name = "COUNT", env = "HF_META_CONNECTIONS", default_value_t = 10_000)]
    connections: usize,

    /// Seconds that requests under way are given at the end
    #[arg(long, value_name = "SECONDS", env = "HF_META_GRACE", default_value = "10", value_parser = seconds)]
    grace: Duration,
}

const CACHE_HELP: &str = "Where headers are kept: a folder, `redis://…` for several servers together, or `off` \
     [default: hf-meta in $XDG_CACHE_HOME, else in ~/.cache]";

/// Where a service keeps headers.
#[derive(Clone, Debug)]
enum CacheAt {
    Off,
    Folder(PathBuf),
    Shared(String),
}

impl FromStr for CacheAt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once("://") {
            Some(("redis", _)) => Ok(Self::Shared(text.to_owned())),
            Some(_) => Err("neither a folder nor an address that begins with redis://"),
            None if text == "off" => Ok(Self::Off),
            None => Ok(Self::Folder(text.into())),
        }
    }
}

pub(crate) async fn run(args: &ServeArgs, connection: &Connection) -> io::Result<Outcome> {
    let client = match client(args, connection)? {
        Ok(client) => client,
        Err(error) => {
            anstream::stderr().write_all(report::setup_error(&error).as_bytes())?;
            return Ok(Outcome::from(&error));
        }
    };
    let end = end()?;
    let listener = TcpListener::bind(args.listen).await?;
    writeln!(anstream::stdout(), "listening on http://{}", listener.local_addr()?)?;
    Service::new(client, settings(args)).serve(listener, end).await;
    Ok(Outcome::Fine)
}

/// A client that strangers may make ask: of public addresses alone, within bounds, and not for long.
fn client(args: &ServeArgs, connection: &Connection) -> io::Result<Result<Client, Error>> {
    let token = connection.token.clone().or_else(|| std::env::var("HF_META_TOKEN").ok());
    let retries = usize::from(connection.retries.unwrap_or(2));
    let mut builder = ClientBuilder::from_env()
        .token(token.unwrap_or_default())
        .addresses(AddressPolicy::Public)
        .user_agent("serve")
        .concurrency(16)
        .headers_limit(150_000_000)
        .index_limit(100_000_000)
        .call_timeout(connection.timeout.unwrap_or(Duration::from_secs(120)))
        .retry(
            RetryPolicy::default().max_attempts(retries + 1).max_elapsed(Duration::from_secs(30)),
        )
        .branch_ttl(args.fresh);
    if let Some(endpoint) = &connection.endpoint {
        builder = builder.endpoint(endpoint);
    }
    if connection.offline {
        builder = builder.offline(true);
    }
    let in_folder = |folder| DiskCache::with_limit(folder, args.cache_limit);
    let builder = match &args.cache {
        _ if connection.no_cache => builder,
        Some(CacheAt::Off) => builder,
        Some(CacheAt::Folder(folder)) => builder.header_cache(in_folder(folder.clone())),
        Some(CacheAt::Shared(address)) => {
            let cache = RedisCache::with_patience(address, args.cache_patience);
            builder.header_cache(cache.map_err(io::Error::other)?)
        }
        None => match DiskCache::from_env() {
            Some(cache) => builder.header_cache(in_folder(cache.folder().to_owned())),
            None => builder,
        },
    };
    Ok(builder.build())
}

fn settings(args: &ServeArgs) -> Settings {
    let mut settings = Settings::default();
    settings.fresh = args.fresh;
    settings.max_age = args.max_age;
    settings.patience = args.patience;
    settings.max_concurrent_lookups = args.looks;
    settings.looks_waiting = args.looks_waiting;
    settings.memory = args.memory;
    settings.requests_per_minute = args.requests_per_minute;
    settings.looks_per_minute = args.looks_per_minute;
    settings.trusted_proxies.clone_from(&args.trusted_proxy);
    settings.address.clone_from(&args.address);
    settings.connections = args.connections;
    settings.grace = args.grace;
    settings
}

/// When the service is told to end: by Ctrl-C, or by a service manager.
fn end() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate())?
    };
    Ok(async move {
        let interrupt = std::pin::pin!(tokio::signal::ctrl_c());
        #[cfg(unix)]
        {
            let terminate = std::pin::pin!(terminate.recv());
            futures::future::select(interrupt, terminate).await;
        }
        #[cfg(not(unix))]
        let _ = interrupt.await;
    })
}
