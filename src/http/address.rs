//! Address policy: a guard against server-side request forgery (SSRF).
//!
//! A hostname, a redirect or an IP literal can point a service at its own network. IP literals are checked before a
//! request is sent. Hostnames are checked inside the DNS resolver, so the checked address is the one connected to,
//! and DNS rebinding does not help an attacker.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use ::url::{Host, Origin, Url};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;

use super::SafeUrl;
use crate::base::lock;

/// The IP addresses that a client may connect to.
///
/// ```
/// use hf_meta::{AddressPolicy, Client};
///
/// // A service that reads untrusted URLs must not be tricked into requesting `http://169.254.169.254/`.
/// let client = Client::builder().address_policy(AddressPolicy::Public).build()?;
/// # Ok::<(), hf_meta::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressPolicy {
    /// Any address. Suitable for programs that only read URLs provided by their own user.
    #[default]
    Any,
    /// Public addresses only. Suitable for services that read untrusted URLs.
    ///
    /// Loopback, private, link-local (where clouds serve instance metadata) and reserved addresses are rejected,
    /// whether they come from a host name, a redirect or an IP literal. The endpoint is exempt: if its address is
    /// private, for example, all private addresses are allowed.
    ///
    /// Proxies resolve host names themselves, so behind a proxy only IP literals are checked.
    Public,
}

/// A class of non-public addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum NonPublicAddress {
    Loopback,
    Private,
    LinkLocal,
    /// Unspecified, multicast, broadcast, documentation and reserved addresses.
    Reserved,
}

impl NonPublicAddress {
    /// Classifies an address. Returns `None` if it is public.
    fn from_address(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Self::from_v4(address),
            IpAddr::V6(address) => match embedded_ipv4(address) {
                Some(address) => Self::from_v4(address),
                None => Self::from_v6(address),
            },
        }
    }

    fn from_v4(address: Ipv4Addr) -> Option<Self> {
        match address.octets() {
            [127, ..] => Some(Self::Loopback),
            [169, 254, ..] => Some(Self::LinkLocal),
            // Shared address space behind carrier-grade NAT (RFC 6598).
            [100, 64..=127, ..] => Some(Self::Private),
            _ if address.is_private() => Some(Self::Private),
            // 198.18.0.0/15 is for network benchmarks (RFC 2544).
            [0 | 224.., ..] | [192, 0, 0, _] | [198, 18 | 19, ..] => Some(Self::Reserved),
            _ => address.is_documentation().then_some(Self::Reserved),
        }
    }

    fn from_v6(address: Ipv6Addr) -> Option<Self> {
        match address.segments() {
            _ if address.is_loopback() => Some(Self::Loopback),
            [0xfe80..=0xfebf, ..] => Some(Self::LinkLocal),
            // Unique local addresses (RFC 4193), and the deprecated site-local addresses (RFC 3879).
            [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => Some(Self::Private),
            // IANA assigns global unicast addresses from 2000::/3 only. 2001:db8::/32 is for documentation (RFC
            // 3849).
            [first @ 0x2000..=0x3fff, second, ..] if (first, second) != (0x2001, 0xdb8) => None,
            _ => Some(Self::Reserved),
        }
    }
}

/// Extracts the IPv4 address embedded in an IPv6 address: IPv4-mapped (RFC 4291), NAT64 (RFC 6052) or 6to4 (RFC
/// 3056).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(v4(high, low))
        }
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Enforces the [`AddressPolicy`] of one client.
#[derive(Debug)]
pub(super) struct AddressGuard {
    policy: AddressPolicy,
    /// The hostname of the endpoint.
    endpoint: Option<Box<str>>,
    /// Hostnames of the proxies, which are exempt from the policy.
    proxies: Vec<String>,
    /// Kinds that are allowed because the endpoint has them. Resolving the endpoint's hostname adds its kinds.
    allowed_kinds: Mutex<HashSet<NonPublicAddress>>,
}

impl AddressGuard {
    /// Creates a guard that also allows the endpoint's own kind of address.
    pub(super) fn new(endpoint: &Url, policy: AddressPolicy, proxies: Option<&Proxies>) -> Self {
        let kind = ip_literal(endpoint).and_then(NonPublicAddress::from_address);
        Self {
            policy,
            endpoint: endpoint.host_str().map(Into::into),
            proxies: proxies.map(Proxies::hosts).unwrap_or_default(),
            allowed_kinds: Mutex::new(kind.into_iter().collect()),
        }
    }

    /// Returns whether a URL may be requested. Only IP literals are checked here, because they bypass DNS.
    /// [`GuardedResolver`] checks hostnames.
    pub(super) fn allows(&self, url: &Url) -> bool {
        ip_literal(url).is_none_or(|address| self.allows_address(address))
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        self.policy == AddressPolicy::Any
            || NonPublicAddress::from_address(address)
                .is_none_or(|kind| lock(&self.allowed_kinds).contains(&kind))
    }

    /// Removes the disallowed addresses of a resolved hostname.
    ///
    /// # Errors
    ///
    /// If no address is left.
    fn filter(&self, name: &str, addresses: Vec<SocketAddr>) -> Result<Addrs, AddressError> {
        if self.endpoint.as_deref() == Some(name) {
            let kinds = addresses.iter().map(SocketAddr::ip);
            lock(&self.allowed_kinds).extend(kinds.filter_map(NonPublicAddress::from_address));
        }
        // The operator chose the proxy, so its address is trusted. The proxy resolves target hostnames itself.
        let is_proxy = self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name));
        let is_allowed = |address: &SocketAddr| is_proxy || self.allows_address(address.ip());
        let allowed: Vec<_> = addresses.into_iter().filter(is_allowed).collect();
        if allowed.is_empty() { Err(AddressError) } else { Ok(Box::new(allowed.into_iter())) }
    }
}

fn ip_literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

/// A DNS resolver that drops the addresses its guard does not allow.
#[derive(Clone, Debug)]
pub(super) struct GuardedResolver(pub(super) Arc<AddressGuard>);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.0);
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(guard.filter(name.as_str(), addresses)?)
        })
    }
}

/// A host without an allowed address.
#[derive(Clone, Copy, Debug, Error)]
#[error("the address is not public")]
pub(super) struct AddressError;

/// The proxies of the environment. They are matched by the HTTP library's own matcher.
#[derive(Clone)]
pub(crate) struct Proxies(Arc<Matcher>);

/// Omits the URLs, which may contain a password.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies").finish_non_exhaustive()
    }
}

impl Proxies {
    /// Reads the proxies from the environment; `None` if `NO_PROXY` excludes all servers.
    ///
    /// # Errors
    ///
    /// If the proxy for `endpoint` is invalid. The HTTP library would silently ignore it.
    pub(crate) fn from_env(endpoint: &Url) -> Result<Option<Self>, String> {
        // The HTTP library applies `*` to hostnames only, not to addresses.
        if ["NO_PROXY", "no_proxy"].iter().any(|name| std::env::var(name).is_ok_and(|no| no == "*"))
        {
            return Ok(None);
        }
        let names = match endpoint.scheme() {
            "https" => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
            _ => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
        };
        let values = names.map(|name| (name, std::env::var(name).unwrap_or_default()));
        if let Some((variable, value)) = values.iter().find(|(_, value)| !value.is_empty()) {
            check(variable, value)?;
        }
        Ok(Some(Self(Arc::new(Matcher::from_env()))))
    }

    /// Returns the hostnames of the HTTP and HTTPS proxies, in lower case.
    pub(super) fn hosts(&self) -> Vec<String> {
        let servers = ["http://server.invalid", "https://server.invalid"];
        let proxies = servers.iter().filter_map(|server| intercept(&self.0, server));
        proxies.filter_map(|proxy| Some(proxy.uri().host()?.to_ascii_lowercase())).collect()
    }

    /// Returns the proxy for a server, if any.
    pub(super) fn proxy_for(&self, origin: &Origin) -> Option<SafeUrl> {
        let proxy = intercept(&self.0, &origin.ascii_serialization())?;
        Some(SafeUrl::from(&Url::parse(&proxy.uri().to_string()).ok()?))
    }
}

fn intercept(matcher: &Matcher, server: &str) -> Option<Intercept> {
    matcher.intercept(&server.parse().ok()?)
}

/// Checks that the HTTP library would use a proxy. The message omits the value, which may contain a password.
fn check(variable: &str, value: &str) -> Result<(), String> {
    let proxy = intercept(&Matcher::builder().all(value).build(), "http://server.invalid");
    let reason = "it is not the URL of an HTTP or SOCKS proxy";
    proxy.map(|_| ()).ok_or_else(|| format!("invalid proxy in `{variable}`: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_public_addresses_are_classified() {
        let cases = [
            ("1.1.1.1", None),
            ("2606:4700:4700::1111", None),
            ("127.0.0.1", Some(NonPublicAddress::Loopback)),
            ("127.255.0.1", Some(NonPublicAddress::Loopback)),
            ("::1", Some(NonPublicAddress::Loopback)),
            ("::ffff:127.0.0.1", Some(NonPublicAddress::Loopback)),
            ("64:ff9b::7f00:1", Some(NonPublicAddress::Loopback)),
            ("2002:7f00:1::", Some(NonPublicAddress::Loopback)),
            ("10.0.0.1", Some(NonPublicAddress::Private)),
            ("172.31.255.255", Some(NonPublicAddress::Private)),
            ("172.32.0.0", None),
            ("192.168.0.1", Some(NonPublicAddress::Private)),
            ("100.64.0.1", Some(NonPublicAddress::Private)),
            ("100.128.0.1", None),
            ("fc00::1", Some(NonPublicAddress::Private)),
            ("169.254.169.254", Some(NonPublicAddress::LinkLocal)),
            ("::ffff:169.254.169.254", Some(NonPublicAddress::LinkLocal)),
            ("fe80::1", Some(NonPublicAddress::LinkLocal)),
            ("0.0.0.0", Some(NonPublicAddress::Reserved)),
            ("0.1.2.3", Some(NonPublicAddress::Reserved)),
            ("::", Some(NonPublicAddress::Reserved)),
            ("255.255.255.255", Some(NonPublicAddress::Reserved)),
            ("224.0.0.1", Some(NonPublicAddress::Reserved)),
            ("198.18.0.1", Some(NonPublicAddress::Reserved)),
            ("192.0.2.1", Some(NonPublicAddress::Reserved)),
            ("ff02::1", Some(NonPublicAddress::Reserved)),
            ("2001:db8::1", Some(NonPublicAddress::Reserved)),
        ];
        for (address, kind) in cases {
            assert_eq!(NonPublicAddress::from_address(address.parse().unwrap()), kind, "{address}");
        }
    }

    fn guard(endpoint: &str, proxy: Option<&str>) -> AddressGuard {
        let proxies = proxy.map(Proxies::for_test);
        let endpoint = Url::parse(endpoint).unwrap();
        AddressGuard::new(&endpoint, AddressPolicy::Public, proxies.as_ref())
    }

    fn allows(endpoint: &str, url: &str) -> bool {
        guard(endpoint, None).allows(&Url::parse(url).unwrap())
    }

    #[test]
    fn private_ip_literals_are_rejected_in_every_notation() {
        for host in
            ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:7f00:1]", "10.1.1.1"]
        {
            assert!(!allows("https://huggingface.co", &format!("http://{host}/x")), "{host}");
        }
        assert!(allows("https://huggingface.co", "https://1.1.1.1/x"));
    }

    #[test]
    fn addresses_of_the_same_kind_as_the_endpoint_are_allowed() {
        assert!(allows("http://127.0.0.1:8080", "http://127.0.0.1:9090/x"));
        assert!(allows("http://10.0.0.1", "http://10.9.9.9/x"));
        assert!(!allows("http://127.0.0.1:8080", "http://10.0.0.1/x"));
        assert!(!allows("http://10.0.0.1", "http://169.254.169.254/x"));
    }

    #[test]
    fn hostnames_are_checked_after_resolution() {
        let guard = guard("https://hub.example", Some("http://Proxy.example:3128"));
        let found = |name: &str, addresses: &[&str]| {
            let addresses = addresses.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0));
            guard.filter(name, addresses.collect()).map_or(0, Iterator::count)
        };
        assert_eq!(found("proxy.example", &["10.0.0.1"]), 1);
        assert_eq!(found("cdn.example", &["10.0.0.1"]), 0);
        assert_eq!(found("cdn.example", &["10.0.0.1", "1.1.1.1"]), 1);
        assert_eq!(found("hub.example", &["10.0.0.1"]), 1);
        assert_eq!(
            found("cdn.example", &["10.0.0.1"]),
            1,
            "the endpoint has a private address, too"
        );
        assert_eq!(found("cdn.example", &["127.0.0.1"]), 0);
    }

    impl Proxies {
        /// Returns the proxy for all servers.
        pub(in crate::http) fn for_test(proxy: &str) -> Self {
            Self(Arc::new(Matcher::builder().all(proxy).build()))
        }
    }

    #[test]
    fn a_proxy_that_the_http_library_would_ignore_is_an_error() {
        for value in [
            "http://127.0.0.1:1",
            "https://u:p@proxy.example",
            "proxy.example:8080",
            "socks5h://u:p@proxy.example",
        ] {
            assert_eq!(check("https_proxy", value), Ok(()), "{value}");
        }
        for value in ["http://[bad", "ftp://proxy.example", " ", "/x"] {
            assert!(check("https_proxy", value).is_err(), "{value}");
        }
    }
}
