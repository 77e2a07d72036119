//! Description of a host: machine, network cards, versions.

use anyhow::Context;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use tollgate_net::available_cpus;
use tollgate_records::machine::Environment;
use tollgate_records::manifest::VERSION;
use tollgate_runner::environment;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub hostname: String,
    /// Version of the program.
    pub tollgate: String,
    pub environment: Environment,
    /// CPUs that the agent may use.
    pub cpus: Vec<usize>,
    /// Network cards that are up, without the loopback interface.
    pub network_cards: Vec<NetworkCard>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkCard {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    /// `None` where the driver does not know it, as for virtual cards.
    pub speed_mbit_per_s: Option<u32>,
    pub mtu_bytes: Option<u32>,
    /// `None` for virtual cards.
    pub driver: Option<String>,
}

impl HostFacts {
    /// Describes this host.
    pub fn read() -> anyhow::Result<Self> {
        Ok(Self {
            hostname: hostname()?,
            tollgate: VERSION.to_owned(),
            environment: environment::read().context("cannot read the limits of the machine")?,
            cpus: available_cpus().context("cannot read the available CPUs")?,
            network_cards: network_cards().context("cannot list the network cards")?,
        })
    }

    /// First address of a network card, IPv4 before IPv6. Link-local addresses are left out.
    pub fn address(&self) -> Option<IpAddr> {
        let all = || self.network_cards.iter().flat_map(|card| &card.addresses).copied();
        let is_global = |address: &IpAddr| match address {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        };
        let mut global: Vec<IpAddr> = all().filter(is_global).collect();
        global.sort_by_key(IpAddr::is_ipv6);
        global.first().copied()
    }
}

pub(crate) fn hostname() -> anyhow::Result<String> {
    let name = nix::sys::utsname::uname().context("cannot read the name of this host")?;
    Ok(name.nodename().to_string_lossy().into_owned())
}

fn network_cards() -> nix::Result<Vec<NetworkCard>> {
    let mut addresses: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for interface in getifaddrs()? {
        let flags = interface.flags;
        if flags.contains(InterfaceFlags::IFF_LOOPBACK) || !flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        let of_card = addresses.entry(interface.interface_name).or_default();
        let Some(address) = interface.address else { continue };
        if let Some(address) = address.as_sockaddr_in() {
            of_card.push(address.ip().into());
        } else if let Some(address) = address.as_sockaddr_in6() {
            of_card.push(address.ip().into());
        }
    }
    let card = |(name, addresses): (String, Vec<IpAddr>)| {
        let folder = Path::new("/sys/class/net").join(&name);
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
        let driver = fs::read_link(folder.join("device/driver")).ok();
        NetworkCard {
            addresses,
            speed_mbit_per_s: number("speed"),
            mtu_bytes: number("mtu"),
            driver: driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
            name,
        }
    };
    Ok(addresses.into_iter().map(card).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_this_host() {
        let facts = HostFacts::read().unwrap();
        assert!(!facts.hostname.is_empty() && !facts.cpus.is_empty());
        assert!(facts.network_cards.iter().all(|card| card.name != "lo"));
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
    }

    #[test]
    fn address_is_global_and_prefers_ipv4() {
        let card = |addresses: &[&str]| NetworkCard {
            name: "eth0".to_owned(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            speed_mbit_per_s: None,
            mtu_bytes: None,
            driver: None,
        };
        let facts = |cards: &[&[&str]]| HostFacts {
            network_cards: cards.iter().map(|addresses| card(addresses)).collect(),
            ..HostFacts::read().unwrap()
        };
        let address = |cards: &[&[&str]]| facts(cards).address().map(|ip| ip.to_string());
        assert_eq!(address(&[&["fd00::1"], &["10.0.0.1"]]).as_deref(), Some("10.0.0.1"));
        assert_eq!(address(&[&["fe80::1", "169.254.1.1", "fd00::2"]]).as_deref(), Some("fd00::2"));
        assert_eq!(address(&[&["fe80::1"]]), None);
    }
}
