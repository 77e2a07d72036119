//! Heads of messages as Envoy has them, for the engine.

use tollgate_waf::BodyLength;

use crate::host::Field;

/// A head: the pseudo-headers first, names in lower case.
#[derive(Debug)]
pub(crate) struct Head<'a>(pub(crate) Vec<Field<'a>>);

impl<'a> Head<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a [u8]> {
        let found = self.0.iter().find(|(known, _)| *known == name.as_bytes());
        found.map(|(_, value)| *value)
    }

    /// The headers as rules see them: `:authority` is `Host`, and other pseudo-headers are none.
    pub(crate) fn headers(&self) -> impl Iterator<Item = Field<'a>> {
        self.0.iter().filter_map(|&(name, value)| match name {
            b":authority" => Some((&b"host"[..], value)),
            [b':', ..] => None,
            _ => Some((name, value)),
        })
    }

    /// Length of the body, unless the message `is_end`.
    pub(crate) fn body_length(&self, is_end: bool) -> BodyLength {
        if is_end {
            return BodyLength::None;
        }
        match self.content_length() {
            Some(length) => BodyLength::Known(length),
            None => BodyLength::Unknown,
        }
    }

    fn content_length(&self) -> Option<u64> {
        std::str::from_utf8(self.get("content-length")?).ok()?.parse().ok()
    }

    /// The tunnel for which a request asks. Envoy refuses upgrades that its configuration does not allow.
    pub(crate) fn tunnel(&self) -> Option<Tunnel> {
        if self.get(":method") == Some(b"CONNECT") {
            return Some(Tunnel::Connect);
        }
        let has_token = |value: &[u8]| {
            let mut tokens = value.split(|&byte| byte == b',');
            tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        };
        let is_upgrade =
            self.get("upgrade").is_some() && self.get("connection").is_some_and(has_token);
        // Envoy has removed `transfer-encoding`, and forwards such a body as bytes of the tunnel.
        let has_body = self.content_length().is_some_and(|length| length > 0);
        (is_upgrade && !has_body).then_some(Tunnel::Upgrade)
    }

    /// True for a request to which Envoy responds in the form of gRPC.
    pub(crate) fn is_grpc(&self) -> bool {
        let kind = self.get("content-type").unwrap_or_default();
        kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest, [] | [b'+', ..]))
    }

    pub(crate) fn status(&self) -> Option<u16> {
        std::str::from_utf8(self.get(":status")?).ok()?.parse().ok()
    }
}

/// A request without a body of its own, for a tunnel whose bytes are not inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tunnel {
    Connect,
    Upgrade,
}

impl Tunnel {
    /// True if a response opens it.
    pub(crate) fn is_opened_by(self, status: Option<u16>) -> bool {
        status.is_some_and(|status| match self {
            Self::Connect => (200..300).contains(&status),
            Self::Upgrade => status == 101,
        })
    }
}

/// The protocol as rules know it: `HTTP/2.0` in place of Envoy's `HTTP/2`.
pub(crate) fn protocol(of_envoy: Option<&str>) -> &str {
    match of_envoy {
        None => "HTTP/1.1",
        Some("HTTP/2") => "HTTP/2.0",
        Some("HTTP/3") => "HTTP/3.0",
        Some(other) => other,
    }
}

/// Address without its port, and the port: of `192.0.2.1:80`, `[2001:db8::1]:80`, or a path.
pub(crate) fn address(text: Option<&str>) -> (String, u16) {
    let text = text.unwrap_or_default();
    text.parse::<std::net::SocketAddr>()
        .map_or_else(|_| (text.to_owned(), 0), |known| (known.ip().to_string(), known.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head<'a>(fields: &[(&'a str, &'a str)]) -> Head<'a> {
        Head(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect())
    }

    #[test]
    fn authority_is_the_host_and_other_pseudo_headers_are_hidden() {
        let head = head(&[(":method", "GET"), (":authority", "a"), (":path", "/"), ("x", "y")]);
        let headers: Vec<_> = head.headers().collect();
        assert_eq!(headers, [(&b"host"[..], &b"a"[..]), (b"x", b"y")]);
    }

    #[test]
    fn only_connect_and_upgrades_without_body_ask_for_tunnels() {
        let upgrade = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("content-length", "0"),
        ];
        let plain = &upgrade[..2];
        for (fields, expected) in [
            (vec![], None),
            (vec![(":method", "CONNECT")], Some(Tunnel::Connect)),
            (upgrade.to_vec(), Some(Tunnel::Upgrade)),
            (upgrade[1..].to_vec(), None),
            (plain.to_vec(), Some(Tunnel::Upgrade)),
            // A body beside an upgrade is read by backends that ignore the upgrade.
            ([plain, &[("content-length", "12")]].concat(), None),
        ] {
            assert_eq!(head(&fields).tunnel(), expected, "{fields:?}");
        }
        for (tunnel, status, expected) in [
            (Tunnel::Upgrade, Some(101), true),
            (Tunnel::Upgrade, Some(200), false),
            (Tunnel::Connect, Some(200), true),
            (Tunnel::Connect, Some(403), false),
            (Tunnel::Connect, None, false),
        ] {
            assert_eq!(tunnel.is_opened_by(status), expected, "{tunnel:?} {status:?}");
        }
    }

    #[test]
    fn bodies_have_the_length_of_their_heads_whatever_their_type() {
        for (fields, expected) in [
            (vec![], BodyLength::Unknown),
            (vec![("content-length", "12")], BodyLength::Known(12)),
            (vec![("content-type", "application/grpc")], BodyLength::Unknown),
        ] {
            assert_eq!(head(&fields).body_length(false), expected, "{fields:?}");
        }
        assert_eq!(head(&[("content-length", "0")]).body_length(true), BodyLength::None);
    }

    #[test]
    fn grpc_is_recognised_as_envoy_does() {
        for (kind, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            assert_eq!(head(&[("content-type", kind)]).is_grpc(), expected, "{kind}");
        }
    }

    #[test]
    fn addresses_are_cut_before_their_ports() {
        for (text, expected) in [
            ("192.0.2.1:80", ("192.0.2.1", 80)),
            ("[2001:db8::1]:443", ("2001:db8::1", 443)),
            ("/run/envoy.sock", ("/run/envoy.sock", 0)),
        ] {
            let (ip, port) = address(Some(text));
            assert_eq!((ip.as_str(), port), expected);
        }
    }
}
