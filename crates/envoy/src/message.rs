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

    /// Length of the body that rules see. That of a tunnel or a gRPC stream is none: its messages are not held back.
    pub(crate) fn body_length(&self, is_end: bool) -> BodyLength {
        if is_end || self.opens_tunnel() || self.is_grpc() {
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

    /// True for CONNECT, and for an upgrade without a body of its own. Envoy refuses upgrades that its configuration does not allow.
    fn opens_tunnel(&self) -> bool {
        let has_token = |value: &[u8]| {
            let mut tokens = value.split(|&byte| byte == b',');
            tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        };
        let is_upgrade =
            self.get("upgrade").is_some() && self.get("connection").is_some_and(has_token);
        let has_body = self.content_length().is_some_and(|length| length > 0)
            || self.get("transfer-encoding").is_some();
        self.get(":method") == Some(b"CONNECT") || is_upgrade && !has_body
    }

    fn is_grpc(&self) -> bool {
        let rest = self.get("content-type").and_then(|kind| kind.strip_prefix(b"application/grpc"));
        rest.is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
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
    fn only_tunnels_and_grpc_have_bodies_that_are_not_inspected() {
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        for (fields, expected) in [
            (vec![], BodyLength::Unknown),
            (vec![("content-length", "12")], BodyLength::Known(12)),
            (vec![(":method", "CONNECT")], BodyLength::None),
            (upgrade.to_vec(), BodyLength::None),
            (vec![("upgrade", "websocket")], BodyLength::Unknown),
            // A body beside an upgrade is read by backends that ignore the upgrade.
            ([&upgrade[..], &[("content-length", "12")]].concat(), BodyLength::Known(12)),
            ([&upgrade[..], &[("transfer-encoding", "chunked")]].concat(), BodyLength::Unknown),
            (vec![("content-type", "application/grpc")], BodyLength::None),
            (vec![("content-type", "application/grpc+proto")], BodyLength::None),
            (vec![("content-type", "application/grpc-web")], BodyLength::Unknown),
            (vec![("content-type", "application/json")], BodyLength::Unknown),
        ] {
            assert_eq!(head(&fields).body_length(false), expected, "{fields:?}");
        }
        assert_eq!(head(&[("content-length", "0")]).body_length(true), BodyLength::None);
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
