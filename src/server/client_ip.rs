//! Who asks: the address of a client, seen through proxies that are trusted to tell it.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::HeaderMap;
use ipnet::IpNet;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// Proxies whose `X-Forwarded-For` is believed.
#[derive(Clone, Debug, Default)]
pub(super) struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    pub(super) fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// The address that a request comes from: the last in the chain of proxies that is not one of ours.
    /// What stands before it in the header is what a stranger has written there.
    pub(super) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let lines = headers.get_all(X_FORWARDED_FOR).into_iter().rev();
        let hops = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        for hop in hops {
            if !self.trusts(client) {
                break;
            }
            let hop = std::str::from_utf8(hop).ok().and_then(|hop| hop.trim().parse().ok());
            let Some(hop) = hop else { break };
            client = IpAddr::to_canonical(&hop);
        }
        one_of_its_network(client)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// A client with IPv6 has a network of 2⁶⁴ addresses to itself, which count as one.
fn one_of_its_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_are_believed() {
        let cases = [
            ("9.9.9.9", &["1.1.1.1"][..], "9.9.9.9"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6, 1.1.1.1, 10.0.0.2"], "1.1.1.1"),
            ("10.0.0.1", &["6.6.6.6", "1.1.1.1", "10.0.0.2"], "1.1.1.1"),
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
            let found = proxies.client(peer.parse().unwrap(), &headers);
            assert_eq!(found.to_string(), client, "{peer} {forwarded:?}");
        }
    }
}
