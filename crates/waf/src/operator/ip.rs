//! Address lists of `ipMatch` and `ipMatchFromFile`.

use std::net::IpAddr;

/// Addresses and networks, as sorted ranges that do not touch.
///
/// An IPv4 address in IPv6 form (`::ffff:10.0.0.1`) is an IPv6 address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IpSet {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

impl IpSet {
    /// Parses a list such as `10.0.0.0/8,192.168.1.1,2001:db8::/32`.
    pub(crate) fn parse(list: &str) -> Result<Self, String> {
        Self::from_entries(list.split(','))
    }

    /// Parses a file with one address or network a line. `#` starts a comment.
    pub(crate) fn from_file(text: &str) -> Result<Self, String> {
        Self::from_entries(text.lines().map(|line| line.split('#').next().unwrap_or(line)))
    }

    fn from_entries<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut set = Self::default();
        for entry in entries.map(str::trim).filter(|entry| !entry.is_empty()) {
            set.add(entry).map_err(|reason| format!("invalid address `{entry}`: {reason}"))?;
        }
        for ranges in [&mut set.v4, &mut set.v6] {
            ranges.sort_unstable();
            ranges.dedup_by(|next, previous| {
                let joined = next.0 <= previous.1;
                previous.1 = if joined { previous.1.max(next.1) } else { previous.1 };
                joined
            });
        }
        Ok(set)
    }

    fn add(&mut self, entry: &str) -> Result<(), String> {
        let (address, prefix) = match entry.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (entry, None),
        };
        let address: IpAddr = address.parse().map_err(|error| format!("{error}"))?;
        let (bits, width, ranges) = key(address, &mut self.v4, &mut self.v6);
        let prefix = match prefix {
            None => width,
            Some(prefix) => prefix
                .parse::<u32>()
                .ok()
                .filter(|prefix| *prefix <= width)
                .ok_or_else(|| format!("the prefix length must be 0 to {width}"))?,
        };
        let host = if prefix == width { 0 } else { u128::MAX >> (128 - width + prefix) };
        ranges.push((bits & !host, bits | host));
        Ok(())
    }

    /// Returns true if the value is an address of the set; false if it is not an address.
    pub(crate) fn contains(&self, value: &[u8]) -> bool {
        let Some(address) =
            std::str::from_utf8(value).ok().and_then(|text| text.parse::<IpAddr>().ok())
        else {
            return false;
        };
        let (bits, _, ranges) = key(address, &self.v4, &self.v6);
        let after = ranges.partition_point(|(first, _)| *first <= bits);
        after > 0 && bits <= ranges[after - 1].1
    }
}

/// Returns the number of an address, its width in bits, and `v4` or `v6` according to its family.
fn key<T>(address: IpAddr, v4: T, v6: T) -> (u128, u32, T) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32, v4),
        IpAddr::V6(address) => (u128::from(address), 128, v6),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_addresses_and_networks() {
        let set = IpSet::parse("10.0.0.1/8, 192.168.1.1,2001:db8::/32,::1,").unwrap();
        for value in
            ["10.0.0.0", "10.255.255.255", "192.168.1.1", "2001:db8::", "2001:DB8:ffff::1", "::1"]
        {
            assert!(set.contains(value.as_bytes()), "{value}");
        }
        for value in [
            "9.255.255.255",
            "11.0.0.0",
            "192.168.1.2",
            "2001:db9::",
            "::ffff:10.0.0.1",
            "10.0.0.1 ",
            "10",
            "",
        ] {
            assert!(!set.contains(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn reads_a_file_with_comments() {
        let set = IpSet::from_file("# all\n10.0.0.1 # one\r\n\n10.0.0.2/31\n").unwrap();
        assert_eq!(set, IpSet::parse("10.0.0.1,10.0.0.2/31").unwrap());
    }

    #[test]
    fn rejects_what_is_no_address() {
        for (list, message) in [
            ("10.0.0.0/33", "invalid address `10.0.0.0/33`: the prefix length must be 0 to 32"),
            ("::/129", "invalid address `::/129`: the prefix length must be 0 to 128"),
            ("10.0.0.1,x", "invalid address `x`: invalid IP address syntax"),
            ("10.0.0.1/8x", "invalid address `10.0.0.1/8x`: the prefix length must be 0 to 32"),
        ] {
            assert_eq!(IpSet::parse(list).unwrap_err(), message);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_comparison_of_prefixes(
            networks in prop::collection::vec((0u32..64, 26u32..=32), 0..6),
            host in 0u32..64,
        ) {
            let list: Vec<_> = networks.iter().map(|(host, prefix)| format!("10.0.0.{host}/{prefix}")).collect();
            let set = IpSet::parse(&list.join(",")).unwrap();
            let expected = networks.iter().any(|(network, prefix)| network >> (32 - prefix) == host >> (32 - prefix));
            prop_assert_eq!(set.contains(format!("10.0.0.{host}").as_bytes()), expected);
        }
    }
}
