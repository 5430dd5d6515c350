//! The IP address of a client, as reported by trusted proxies.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::HeaderMap;
use ipnet::IpNet;

/// The IP address of a connection's peer, as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) IpAddr);

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The networks of proxies whose `X-Forwarded-For` header is trusted.
#[derive(Debug, Default)]
pub(super) struct TrustedProxies {
    networks: Vec<IpNet>,
    has_warned: AtomicBool,
}

impl TrustedProxies {
    pub(super) fn new(networks: Vec<IpNet>) -> Self {
        Self { networks, has_warned: AtomicBool::new(false) }
    }

    /// Returns the IP address of the client: the last address in the chain of proxies that is not a trusted proxy.
    /// The addresses before it can be forged.
    ///
    /// IPv6 addresses are truncated to their /64 network, because a client usually has a whole network.
    pub(super) fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let lines = headers.get_all(X_FORWARDED_FOR).into_iter().rev();
        let hops = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        if headers.contains_key(X_FORWARDED_FOR) && !self.trusts(client) {
            self.warn_once(client);
        }
        for hop in hops {
            if !self.trusts(client) {
                break;
            }
            let Some(hop) = std::str::from_utf8(hop).ok().and_then(parse_hop) else { break };
            client = IpAddr::to_canonical(&hop);
        }
        network_of(client)
    }

    /// Returns the client of a connection; `None` for a trusted proxy.
    pub(super) fn client_of(&self, peer: IpAddr) -> Option<IpAddr> {
        let peer = peer.to_canonical();
        (!self.trusts(peer)).then(|| network_of(peer))
    }

    /// Logs the first request whose header is ignored. If its sender is a proxy that is not trusted, all its users
    /// count as one client.
    fn warn_once(&self, peer: IpAddr) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%peer, "X-Forwarded-For is ignored: the peer is not a trusted proxy");
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// Parses the address of a hop. Some proxies add the port: `192.0.2.1:5678`, `[2001:db8::1]:5678`.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let with_port = || Some(hop.parse::<SocketAddr>().ok()?.ip());
    let in_brackets = || hop.strip_prefix('[')?.strip_suffix(']')?.parse().map(IpAddr::V6).ok();
    hop.parse().ok().or_else(with_port).or_else(in_brackets)
}

fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_headers_of_trusted_proxies_are_used() {
        let cases = [
            ("9.9.9.9", &["1.1.1.1"][..], "9.9.9.9"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6, 1.1.1.1, 10.0.0.2"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6", "1.1.1.1", "10.0.0.2"], "1.1.1.1"),
            ("10.0.0.1", &["1.1.1.1:5678"], "1.1.1.1"),
            ("10.0.0.1", &["1.1.1.1:5678, 10.0.0.2:80"], "1.1.1.1"),
            ("10.0.0.1", &["[2001:db8:1:2:3:4:5:6]:443"], "2001:db8:1:2::"),
            ("10.0.0.1", &["[2001:db8:1:2:3:4:5:6]"], "2001:db8:1:2::"),
            ("10.0.0.1", &["[1.1.1.1]"], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1:99999"], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1, x"], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1, \u{ff}, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["10.0.0.3"], "10.0.0.3"),
            ("::ffff:10.0.0.1", &["1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["2001:db8:1:2:3:4:5:6"], "2001:db8:1:2::"),
            ("2001:db8:1:2::9", &[], "2001:db8:1:2::"),
        ];
        let proxies = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap()]);
        for (peer, forwarded, client) in cases {
            let mut headers = HeaderMap::new();
            for line in forwarded {
                headers.append(X_FORWARDED_FOR, line.to_string().try_into().unwrap());
            }
            let found = proxies.client_ip(peer.parse().unwrap(), &headers);
            assert_eq!(found.to_string(), client, "{peer} {forwarded:?}");
        }
    }
}
