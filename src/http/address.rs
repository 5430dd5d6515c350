//! Which addresses may be asked: a guard against names, redirects and literals that lead inside.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use ::url::{Host, Url};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Which addresses a client may ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressPolicy {
    /// Every address. Right for people, who ask for what they name.
    #[default]
    Any,
    /// Public addresses, and those of the kind that the endpoint itself has. Right for services that
    /// are asked by strangers: no name, no redirect and no literal leads to the machine itself, to its
    /// network or to a cloud's metadata, unless the endpoint is there, too.
    ///
    /// A proxy finds addresses on its own; behind one, the guard is the proxy's.
    Public,
}

/// Kinds of addresses that are not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Inside {
    Loopback,
    Private,
    LinkLocal,
    /// Of no host: unspecified, multicast, broadcast, documentation and reserved addresses.
    Special,
}

impl Inside {
    /// The kind of an address; `None` for a public one.
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match embedded(address) {
                Some(address) => Self::of_v4(address),
                None => Self::of_v6(address),
            },
        }
    }

    fn of_v4(address: Ipv4Addr) -> Option<Self> {
        let [a, b, c, _] = address.octets();
        if address.is_loopback() {
            Some(Self::Loopback)
        } else if address.is_link_local() {
            Some(Self::LinkLocal)
        } else if address.is_private() || (a == 100 && b & 0xc0 == 64) {
            Some(Self::Private)
        } else if a == 0 || a >= 224 || address.is_documentation() || (a == 192 && b == 0 && c == 0)
        {
            Some(Self::Special)
        } else if a == 198 && b & 0xfe == 18 {
            // Benchmarking of networks, RFC 2544.
            Some(Self::Special)
        } else {
            None
        }
    }

    fn of_v6(address: Ipv6Addr) -> Option<Self> {
        let first = address.segments()[0];
        if address.is_loopback() {
            Some(Self::Loopback)
        } else if address.is_unicast_link_local() {
            Some(Self::LinkLocal)
        } else if address.is_unique_local() || first & 0xffc0 == 0xfec0 {
            Some(Self::Private)
        } else if first & 0xe000 != 0x2000 || address.segments()[..2] == [0x2001, 0xdb8] {
            // Only 2000::/3 is given out.
            Some(Self::Special)
        } else {
            None
        }
    }
}

/// The IPv4 address that an IPv6 address is a wrapping of: mapped, NAT64 or 6to4.
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

/// Holds every address of a client against its policy.
#[derive(Debug)]
pub(super) struct Guard {
    policy: AddressPolicy,
    endpoint: Option<Box<str>>,
    /// The kinds that the endpoint's own addresses have.
    admitted: Mutex<HashSet<Inside>>,
}

impl Guard {
    /// A guard that admits what the endpoint has.
    pub(super) fn new(policy: AddressPolicy, endpoint: &Url) -> Arc<Self> {
        let guard = Self {
            policy,
            endpoint: endpoint.host_str().map(Into::into),
            admitted: Mutex::default(),
        };
        if let Some(address) = literal(endpoint) {
            guard.admit(address);
        }
        Arc::new(guard)
    }

    /// Whether a URL may be asked, as far as it says so itself: a literal never meets a resolver.
    pub(super) fn allows(&self, url: &Url) -> bool {
        literal(url).is_none_or(|address| self.allows_address(address))
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        self.policy == AddressPolicy::Any
            || Inside::of(address).is_none_or(|kind| self.admitted().contains(&kind))
    }

    fn admit(&self, address: IpAddr) {
        if let Some(kind) = Inside::of(address) {
            self.admitted().insert(kind);
        }
    }

    fn admitted(&self) -> std::sync::MutexGuard<'_, HashSet<Inside>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of the addresses of a name that may be asked.
    fn filter(&self, name: &str, addresses: Vec<SocketAddr>) -> Result<Addrs, AddressError> {
        if self.endpoint.as_deref() == Some(name) {
            for address in &addresses {
                self.admit(address.ip());
            }
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

/// Resolves names, and keeps the addresses that the guard allows.
#[derive(Clone, Debug)]
pub(super) struct GuardedResolver(pub(super) Arc<Guard>);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.0);
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(guard.filter(name.as_str(), addresses)?)
        })
    }
}

/// A host that may not be asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressError;

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address is not public")
    }
}

impl std::error::Error for AddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_addresses() {
        let cases = [
            ("1.1.1.1", None),
            ("2606:4700:4700::1111", None),
            ("127.0.0.1", Some(Inside::Loopback)),
            ("127.255.0.1", Some(Inside::Loopback)),
            ("::1", Some(Inside::Loopback)),
            ("::ffff:127.0.0.1", Some(Inside::Loopback)),
            ("64:ff9b::7f00:1", Some(Inside::Loopback)),
            ("2002:7f00:1::", Some(Inside::Loopback)),
            ("10.0.0.1", Some(Inside::Private)),
            ("172.31.255.255", Some(Inside::Private)),
            ("172.32.0.0", None),
            ("192.168.0.1", Some(Inside::Private)),
            ("100.64.0.1", Some(Inside::Private)),
            ("100.128.0.1", None),
            ("fc00::1", Some(Inside::Private)),
            ("169.254.169.254", Some(Inside::LinkLocal)),
            ("::ffff:169.254.169.254", Some(Inside::LinkLocal)),
            ("fe80::1", Some(Inside::LinkLocal)),
            ("0.0.0.0", Some(Inside::Special)),
            ("0.1.2.3", Some(Inside::Special)),
            ("::", Some(Inside::Special)),
            ("255.255.255.255", Some(Inside::Special)),
            ("224.0.0.1", Some(Inside::Special)),
            ("198.18.0.1", Some(Inside::Special)),
            ("192.0.2.1", Some(Inside::Special)),
            ("ff02::1", Some(Inside::Special)),
            ("2001:db8::1", Some(Inside::Special)),
        ];
        for (address, kind) in cases {
            assert_eq!(Inside::of(address.parse().unwrap()), kind, "{address}");
        }
    }

    fn allows(endpoint: &str, url: &str) -> bool {
        let guard = Guard::new(AddressPolicy::Public, &Url::parse(endpoint).unwrap());
        guard.allows(&Url::parse(url).unwrap())
    }

    #[test]
    fn literals_in_all_spellings() {
        for host in
            ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:7f00:1]", "10.1.1.1"]
        {
            assert!(!allows("https://huggingface.co", &format!("http://{host}/x")), "{host}");
        }
        assert!(allows("https://huggingface.co", "https://1.1.1.1/x"));
    }

    #[test]
    fn the_kind_of_the_endpoint_is_admitted() {
        assert!(allows("http://127.0.0.1:8080", "http://127.0.0.1:9090/x"));
        assert!(allows("http://10.0.0.1", "http://10.9.9.9/x"));
        assert!(!allows("http://127.0.0.1:8080", "http://10.0.0.1/x"));
        assert!(!allows("http://10.0.0.1", "http://169.254.169.254/x"));
    }

    #[test]
    fn names_are_judged_by_their_addresses() {
        let guard = Guard::new(AddressPolicy::Public, &Url::parse("https://hub.example").unwrap());
        let found = |name: &str, addresses: &[&str]| {
            let addresses = addresses.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0));
            guard.filter(name, addresses.collect()).map_or(0, Iterator::count)
        };
        assert_eq!(found("cdn.example", &["10.0.0.1"]), 0);
        assert_eq!(found("cdn.example", &["10.0.0.1", "1.1.1.1"]), 1);
        assert_eq!(found("hub.example", &["10.0.0.1"]), 1);
        assert_eq!(found("cdn.example", &["10.0.0.1"]), 1, "the endpoint is there, too");
        assert_eq!(found("cdn.example", &["127.0.0.1"]), 0);
    }
}
