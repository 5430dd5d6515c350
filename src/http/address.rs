//! Address policy: a guard against server-side request forgery (SSRF).
//!
//! A hostname, a redirect or an IP literal can point a service at its own network. IP literals are checked before a
//! request is sent. Hostnames are checked inside the DNS resolver, so the checked address is the one connected to,
//! and DNS rebinding does not help an attacker.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use ::url::{Host, Url};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;

/// The IP addresses that a client may connect to.
///
/// ```
/// use hf_meta::{AddressPolicy, Client};
///
/// // A service that reads untrusted URLs must not be tricked into requesting `http://169.254.169.254/`.
/// let client = Client::builder().addresses(AddressPolicy::Public).build()?;
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
enum NonPublicKind {
    Loopback,
    Private,
    LinkLocal,
    /// Unspecified, multicast, broadcast, documentation and reserved addresses.
    Reserved,
}

impl NonPublicKind {
    /// Classifies an address. Returns `None` if it is public.
    fn from_address(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Self::from_v4(address),
            IpAddr::V6(address) => match embedded(address) {
                Some(address) => Self::from_v4(address),
                None => Self::from_v6(address),
            },
        }
    }

    fn from_v4(address: Ipv4Addr) -> Option<Self> {
        let [a, b, c, _] = address.octets();
        if address.is_loopback() {
            Some(Self::Loopback)
        } else if address.is_link_local() {
            Some(Self::LinkLocal)
        } else if address.is_private() || (a == 100 && b & 0xc0 == 64) {
            // 100.64.0.0/10 is shared address space behind carrier-grade NAT (RFC 6598).
            Some(Self::Private)
        } else if a == 0 || a >= 224 || address.is_documentation() || (a == 192 && b == 0 && c == 0)
        {
            Some(Self::Reserved)
        } else if a == 198 && b & 0xfe == 18 {
            // 198.18.0.0/15, network benchmarks (RFC 2544).
            Some(Self::Reserved)
        } else {
            None
        }
    }

    fn from_v6(address: Ipv6Addr) -> Option<Self> {
        let first = address.segments()[0];
        if address.is_loopback() {
            Some(Self::Loopback)
        } else if address.is_unicast_link_local() {
            Some(Self::LinkLocal)
        } else if address.is_unique_local() || first & 0xffc0 == 0xfec0 {
            // fec0::/10 is the deprecated site-local range (RFC 3879).
            Some(Self::Private)
        } else if first & 0xe000 != 0x2000 || address.segments()[..2] == [0x2001, 0xdb8] {
            // IANA assigns global unicast addresses from 2000::/3 only. 2001:db8::/32 is for documentation (RFC
            // 3849).
            Some(Self::Reserved)
        } else {
            None
        }
    }
}

/// Extracts the IPv4 address embedded in an IPv6 address: IPv4-mapped (RFC 4291), NAT64 (RFC 6052) or 6to4 (RFC
/// 3056).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
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
    allowed_kinds: Mutex<HashSet<NonPublicKind>>,
}

impl AddressGuard {
    /// Creates a guard that also allows the endpoint's own kind of address.
    pub(super) fn new(policy: AddressPolicy, endpoint: &Url, proxies: Vec<String>) -> Arc<Self> {
        let guard = Self {
            policy,
            endpoint: endpoint.host_str().map(Into::into),
            proxies,
            allowed_kinds: Mutex::default(),
        };
        if let Some(address) = literal(endpoint) {
            guard.allow_kind_of(address);
        }
        Arc::new(guard)
    }

    /// Returns whether a URL may be requested. Only IP literals are checked here, because they bypass DNS.
    /// [`GuardedResolver`] checks hostnames.
    pub(super) fn allows(&self, url: &Url) -> bool {
        literal(url).is_none_or(|address| self.allows_address(address))
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        self.policy == AddressPolicy::Any
            || NonPublicKind::from_address(address)
                .is_none_or(|kind| self.allowed_kinds().contains(&kind))
    }

    fn allow_kind_of(&self, address: IpAddr) {
        if let Some(kind) = NonPublicKind::from_address(address) {
            self.allowed_kinds().insert(kind);
        }
    }

    fn allowed_kinds(&self) -> std::sync::MutexGuard<'_, HashSet<NonPublicKind>> {
        self.allowed_kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the disallowed addresses of a resolved hostname.
    ///
    /// # Errors
    ///
    /// If no address is left.
    fn filter(&self, name: &str, addresses: Vec<SocketAddr>) -> Result<Addrs, AddressError> {
        if self.endpoint.as_deref() == Some(name) {
            for address in &addresses {
                self.allow_kind_of(address.ip());
            }
        }
        // The operator chose the proxy, so its address is trusted. The proxy resolves target hostnames itself.
        if self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name)) {
            return Ok(Box::new(addresses.into_iter()));
        }
        let allowed: Vec<_> =
            addresses.into_iter().filter(|address| self.allows_address(address.ip())).collect();
        if allowed.is_empty() { Err(AddressError) } else { Ok(Box::new(allowed.into_iter())) }
    }
}

fn literal(url: &Url) -> Option<IpAddr> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Proxies;

    #[test]
    fn every_non_public_address_has_its_kind() {
        let cases = [
            ("1.1.1.1", None),
            ("2606:4700:4700::1111", None),
            ("127.0.0.1", Some(NonPublicKind::Loopback)),
            ("127.255.0.1", Some(NonPublicKind::Loopback)),
            ("::1", Some(NonPublicKind::Loopback)),
            ("::ffff:127.0.0.1", Some(NonPublicKind::Loopback)),
            ("64:ff9b::7f00:1", Some(NonPublicKind::Loopback)),
            ("2002:7f00:1::", Some(NonPublicKind::Loopback)),
            ("10.0.0.1", Some(NonPublicKind::Private)),
            ("172.31.255.255", Some(NonPublicKind::Private)),
            ("172.32.0.0", None),
            ("192.168.0.1", Some(NonPublicKind::Private)),
            ("100.64.0.1", Some(NonPublicKind::Private)),
            ("100.128.0.1", None),
            ("fc00::1", Some(NonPublicKind::Private)),
            ("169.254.169.254", Some(NonPublicKind::LinkLocal)),
            ("::ffff:169.254.169.254", Some(NonPublicKind::LinkLocal)),
            ("fe80::1", Some(NonPublicKind::LinkLocal)),
            ("0.0.0.0", Some(NonPublicKind::Reserved)),
            ("0.1.2.3", Some(NonPublicKind::Reserved)),
            ("::", Some(NonPublicKind::Reserved)),
            ("255.255.255.255", Some(NonPublicKind::Reserved)),
            ("224.0.0.1", Some(NonPublicKind::Reserved)),
            ("198.18.0.1", Some(NonPublicKind::Reserved)),
            ("192.0.2.1", Some(NonPublicKind::Reserved)),
            ("ff02::1", Some(NonPublicKind::Reserved)),
            ("2001:db8::1", Some(NonPublicKind::Reserved)),
        ];
        for (address, kind) in cases {
            assert_eq!(NonPublicKind::from_address(address.parse().unwrap()), kind, "{address}");
        }
    }

    fn allows(endpoint: &str, url: &str) -> bool {
        let endpoint = Url::parse(endpoint).unwrap();
        let guard = AddressGuard::new(AddressPolicy::Public, &endpoint, Vec::new());
        guard.allows(&Url::parse(url).unwrap())
    }

    #[test]
    fn private_ip_literals_are_rejected_in_every_spelling() {
        for host in
            ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:7f00:1]", "10.1.1.1"]
        {
            assert!(!allows("https://huggingface.co", &format!("http://{host}/x")), "{host}");
        }
        assert!(allows("https://huggingface.co", "https://1.1.1.1/x"));
    }

    #[test]
    fn the_kind_of_the_endpoint_is_allowed() {
        assert!(allows("http://127.0.0.1:8080", "http://127.0.0.1:9090/x"));
        assert!(allows("http://10.0.0.1", "http://10.9.9.9/x"));
        assert!(!allows("http://127.0.0.1:8080", "http://10.0.0.1/x"));
        assert!(!allows("http://10.0.0.1", "http://169.254.169.254/x"));
    }

    #[test]
    fn names_are_checked_by_their_addresses() {
        let endpoint = Url::parse("https://hub.example").unwrap();
        let proxies = Proxies::for_all("http://Proxy.example:3128").unwrap().hosts();
        let guard = AddressGuard::new(AddressPolicy::Public, &endpoint, proxies);
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
}
