//! Networks of addresses.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// IP addresses and networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Takes an IPv4 address in the form of IPv6 (`::ffff:192.0.2.1`) for that address.
    pub(crate) fn contain(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.0.iter().any(|network| network.contains(&ip))
    }
}

#[cfg(test)]
impl Networks {
    pub(crate) fn parse(texts: &[&str]) -> Self {
        texts.iter().map(|text| network(text).unwrap()).collect()
    }
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

/// Parses `192.0.2.1` or `192.0.2.0/24`, whose address has no bits behind the prefix. Networks of IPv4 addresses in the form of
/// IPv6 are networks of these addresses.
pub(super) fn network(text: &str) -> Option<IpNet> {
    if let Ok(ip) = IpAddr::from_str(text) {
        return Some(ip.to_canonical().into());
    }
    let network: IpNet = text.parse().ok()?;
    let mapped = network.addr().to_canonical();
    let prefix = network.prefix_len().checked_sub(MAPPED_PREFIX);
    let network = match (network, mapped, prefix) {
        (IpNet::V6(_), IpAddr::V4(_), Some(prefix)) => IpNet::new(mapped, prefix).ok()?,
        _ => network,
    };
    (network.addr() == network.network()).then_some(network)
}

/// Length of the prefix of IPv4 addresses in the form of IPv6, `::ffff:0:0/96`.
const MAPPED_PREFIX: u8 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_addresses_in_both_forms() {
        let networks = Networks::parse(&["192.0.2.0/24", "198.51.100.7", "2001:db8::/32"]);
        for (ip, is_inside) in [
            ("192.0.2.0", true),
            ("192.0.2.255", true),
            ("192.0.3.0", false),
            ("::ffff:192.0.2.9", true),
            ("198.51.100.7", true),
            ("198.51.100.8", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::1", false),
        ] {
            assert_eq!(networks.contain(ip.parse().unwrap()), is_inside, "{ip}");
        }
        assert!(!Networks::default().contain("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn address_behind_its_prefix_is_not_a_network() {
        for text in ["192.0.2.1/24", "10.0.0.0/33", "2001:db8::1/64", "example.org", "", "10/8"] {
            assert_eq!(network(text), None, "{text}");
        }
        assert_eq!(network("::/0"), "::/0".parse().ok());
    }

    #[test]
    fn mapped_networks_are_those_of_ipv4() {
        assert_eq!(network("::ffff:192.0.2.0/120"), "192.0.2.0/24".parse().ok());
        assert_eq!(network("::ffff:0.0.0.0/96"), "0.0.0.0/0".parse().ok());
        assert_eq!(network("::ffff:192.0.2.1/120"), None);
        assert!(Networks::parse(&["::ffff:192.0.2.0/120"]).contain([192, 0, 2, 9].into()));
    }
}
