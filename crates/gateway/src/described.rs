//! Requests that others describe: a proxy sends a request to ask whether the request of its client may pass.

use std::borrow::Cow;
use std::net::IpAddr;
use std::str;

use tollgate_http1::{BodyFraming, FieldList, Headers, RequestHead, Version};

use crate::checks::{CheckId, Standing};
use crate::config::{ApiKeys, Description, ForwardAuth};
use crate::firewall::InspectedHead;
use crate::local_response::{LocalResponse, Reason};

/// The request of a client, but for its head, which is in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    protocol: Cow<'static, str>,
    body: BodyFraming,
    /// `None` over a Unix domain socket.
    pub(crate) client: Option<IpAddr>,
}

/// The request does not describe another in the way that is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidDescription {
    /// A header is missing, or must not be there.
    Headers,
    UnknownKey,
    /// The key of the bouncer is being checked: the head is to be read again.
    UnsettledKey(CheckId),
}

impl InvalidDescription {
    /// The response in the form of the protocol.
    pub(crate) fn response(self, description: &Description) -> LocalResponse {
        match (self, description) {
            (Self::Headers, Description::ForwardAuth(_)) => {
                LocalResponse::error(Reason::Description)
            }
            (Self::Headers, Description::AppSec(_)) => {
                LocalResponse::bare_error(Reason::Description)
            }
            (Self::UnknownKey | Self::UnsettledKey(_), _) => {
                LocalResponse::bare_error(Reason::ApiKey)
            }
        }
    }
}

impl Described {
    /// A request whose head a caller writes, as [`of`](Self::of) does.
    pub(crate) fn new(
        protocol: Cow<'static, str>,
        body: BodyFraming,
        client: Option<IpAddr>,
    ) -> Self {
        Self { protocol, body, client }
    }

    /// Takes the request that `head`, received from `peer`, describes. Writes its head to `list`, as a [`FieldList`]. `standing` is that of
    /// keys of bouncers that are not in the configuration.
    pub(crate) fn of(
        head: &RequestHead<'_>,
        peer: Option<IpAddr>,
        description: &Description,
        standing: impl FnOnce(&[u8]) -> Standing,
        list: &mut Vec<u8>,
    ) -> Result<Self, InvalidDescription> {
        list.clear();
        match description {
            Description::ForwardAuth(headers) => Self::by_forward_auth(head, peer, headers, list),
            Description::AppSec(keys) => Self::by_bouncer(head, keys, standing, list),
        }
    }

    fn by_forward_auth(
        head: &RequestHead<'_>,
        peer: Option<IpAddr>,
        names: &ForwardAuth,
        list: &mut Vec<u8>,
    ) -> Result<Self, InvalidDescription> {
        let part = |name: &Option<String>| match name {
            Some(name) => only(head.headers, name).map(Some),
            None => Ok(None),
        };
        let method = part(&names.method)?.unwrap_or(head.method.as_bytes());
        let target = part(&names.uri)?.unwrap_or(head.target.as_bytes());
        let host = part(&names.host)?.or(head.host.map(str::as_bytes));
        let client = match part(&names.client)? {
            Some(addresses) => Some(last_address(addresses).ok_or(InvalidDescription::Headers)?),
            None => peer,
        };
        FieldList::push(list, b":method", method);
        FieldList::push(list, b":path", target);
        if let Some(host) = host {
            FieldList::push(list, b"Host", host);
        }
        let names = [&names.method, &names.uri, &names.host, &names.client];
        let is_own = |name: &str| {
            let describes = names.iter().any(|other| {
                other.as_deref().is_some_and(|other| other.eq_ignore_ascii_case(name))
            });
            // `Connection` is that of the proxy, also where it has replaced one of the client.
            describes
                || name.eq_ignore_ascii_case("host")
                || name.eq_ignore_ascii_case("connection")
        };
        let mut has_framing = false;
        for (name, value) in head.headers.iter().filter(|(name, _)| !is_own(name)) {
            has_framing |= ["content-length", "transfer-encoding"]
                .iter()
                .any(|other| other.eq_ignore_ascii_case(name));
            FieldList::push(list, name.as_bytes(), value);
        }
        // Rules take a method with a body, but without a length, for an attack. The proxy leaves the length out with the body.
        match head.body {
            _ if has_framing => {}
            BodyFraming::Empty if matches!(method, b"POST" | b"PUT" | b"PATCH") => {
                FieldList::push(list, b"Content-Length", b"0");
            }
            BodyFraming::Empty => {}
            // Over HTTP/2 a body needs no framing.
            BodyFraming::Chunked | BodyFraming::Length(_) | BodyFraming::UntilClose => {
                FieldList::push(list, b"Transfer-Encoding", b"chunked");
            }
        }
        FieldList::end(list);
        Ok(Self { protocol: "HTTP/1.1".into(), body: head.body, client })
    }

    /// Of headers that are there twice, the first counts, as for CrowdSec.
    fn by_bouncer(
        head: &RequestHead<'_>,
        keys: &ApiKeys,
        standing: impl FnOnce(&[u8]) -> Standing,
        list: &mut Vec<u8>,
    ) -> Result<Self, InvalidDescription> {
        let [mut key, mut ip, mut uri, mut verb, mut host, mut agent, mut version] = [None; 7];
        for (name, value) in head.headers.iter() {
            let Some(part) = bouncer_part(name) else { continue };
            for (known, found) in [
                ("api-key", &mut key),
                ("ip", &mut ip),
                ("uri", &mut uri),
                ("verb", &mut verb),
                ("host", &mut host),
                ("user-agent", &mut agent),
                ("http-version", &mut version),
            ] {
                if part.eq_ignore_ascii_case(known) && found.is_none() {
                    *found = Some(value);
                }
            }
        }
        let key = key.unwrap_or_default();
        let standing = if keys.contain(key) { Standing::Valid } else { standing(key) };
        match standing {
            Standing::Valid => {}
            Standing::Invalid | Standing::Refused => return Err(InvalidDescription::UnknownKey),
            Standing::Unsettled(id) => return Err(InvalidDescription::UnsettledKey(id)),
        }
        // An empty header is as a missing one.
        for part in [&mut ip, &mut uri, &mut verb, &mut host, &mut agent] {
            part.take_if(|value| value.is_empty());
        }
        let (Some(ip), Some(uri), Some(verb)) = (ip, uri, verb) else {
            return Err(InvalidDescription::Headers);
        };
        FieldList::push(list, b":method", verb);
        FieldList::push(list, b":path", uri);
        if let Some(host) = host {
            FieldList::push(list, b"Host", host);
        }
        if let Some(agent) = agent {
            FieldList::push(list, b"User-Agent", agent);
        }
        // Headers of the bouncer's own connection.
        let own = ["host", "user-agent", "transfer-encoding"];
        for (name, value) in head.headers.iter() {
            let is_own = own.iter().any(|own| own.eq_ignore_ascii_case(name));
            if !is_own && bouncer_part(name).is_none() {
                FieldList::push(list, name.as_bytes(), value);
            }
        }
        if head.body == BodyFraming::Chunked && head.version != Version::Http2 {
            FieldList::push(list, b"Transfer-Encoding", b"chunked");
        }
        FieldList::end(list);
        let protocol = match version {
            Some(b"20") => "HTTP/2".into(),
            Some(&[major @ b'0'..=b'9', minor @ b'0'..=b'9']) => {
                format!("HTTP/{}.{}", char::from(major), char::from(minor)).into()
            }
            _ => format!("HTTP/{}", head.version.number()).into(),
        };
        let client = str::from_utf8(ip).ok().and_then(|ip| ip.parse().ok());
        Ok(Self { protocol, body: head.body, client })
    }

    /// The head for the rules; `list` is that of [`of`](Self::of).
    pub(crate) fn head<'a>(&'a self, list: &'a [u8]) -> InspectedHead<'a> {
        InspectedHead::of_list(list, &self.protocol, self.body)
    }
}

/// The part of a request that a header of a bouncer has.
fn bouncer_part(name: &str) -> Option<&str> {
    const PREFIX: &str = "x-crowdsec-appsec-";
    let (prefix, part) = name.split_at_checked(PREFIX.len())?;
    prefix.eq_ignore_ascii_case(PREFIX).then_some(part)
}

/// The value of a header, which must be there once and not be empty: the proxy sets it, and a second one is that of its client.
fn only<'a>(headers: Headers<'a>, name: &str) -> Result<&'a [u8], InvalidDescription> {
    let mut values = headers.all(name);
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => Ok(value),
        _ => Err(InvalidDescription::Headers),
    }
}

/// The last address of a list, which the proxy itself has added. A port may follow.
fn last_address(list: &[u8]) -> Option<IpAddr> {
    let last = list.rsplit(|byte| *byte == b',').next()?.trim_ascii();
    let text = str::from_utf8(last).ok()?;
    let parsed = text.parse().ok();
    parsed.or_else(|| text.parse().ok().map(|address: std::net::SocketAddr| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_config::serve::AskingProxy;
    use tollgate_http1::parse_request_head;

    /// The described head as text, with its client.
    fn described(request: &str, proxy: AskingProxy) -> Option<String> {
        let head = parse_request_head(request.as_bytes()).unwrap().unwrap();
        let description = Description::ForwardAuth(ForwardAuth::of(proxy));
        let mut list = b"rest".to_vec();
        let described =
            Described::of(&head, None, &description, |_| Standing::Invalid, &mut list).ok()?;
        let InspectedHead { method, target, protocol, headers, .. } = described.head(&list);
        let shown = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let lines = headers.iter().map(|(name, value)| format!("{name}: {}\n", shown(value)));
        let client = described.client.map_or_else(|| "unknown".to_owned(), |ip| ip.to_string());
        let lines: String = lines.collect();
        Some(format!("{} {} {protocol} from {client}\n{lines}", shown(method), shown(target)))
    }

    #[test]
    fn parts_come_from_the_headers_of_the_proxy_and_hide_its_own() {
        let request = "GET /waf HTTP/1.0\r\nX-Original-Method: PUT\r\nX-Original-URI: http://b/a%2e?x=\"\r\n\
                       X-Real-IP: 2001:db8::1\r\nHost: a\r\nConnection: close\r\nAccept: */*\r\n\
                       X-Forwarded-Uri: /other\r\n\r\n";
        assert_eq!(
            described(request, AskingProxy::Nginx).unwrap(),
            "PUT http://b/a%2e?x=\" HTTP/1.1 from 2001:db8::1\nHost: a\nAccept: */*\nX-Forwarded-Uri: /other\n\
             Content-Length: 0\n"
        );
        // Of another proxy, the same headers describe nothing.
        assert_eq!(described(request, AskingProxy::Caddy), None);
        assert_eq!(described(request, AskingProxy::Envoy), None);
        let request = "POST /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1:80\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(
            described(request, AskingProxy::Envoy).unwrap(),
            "POST /a HTTP/1.1 from 192.0.2.1\nHost: a\nTransfer-Encoding: chunked\n"
        );
    }
}
