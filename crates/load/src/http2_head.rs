//! Rendering of a request for HTTP/2.

use tollgate_http1::RequestMessage;
use tollgate_http2::Field;

/// Header fields that HTTP/2 forbids (RFC 9113, section 8.2.2).
const CONNECTION_SPECIFIC: &[&str] =
    &["connection", "http2-settings", "keep-alive", "proxy-connection", "te", "upgrade"];

/// Header fields of a request as HTTP/2 sends them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2Head {
    /// `:method` first; without `:scheme`. Names are in lower case.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Http2Head {
    pub fn new(request: &RequestMessage) -> Self {
        let pseudo = [
            (":method", request.method()),
            (":path", request.target()),
            (":authority", request.host()),
        ];
        let is_sent = |(name, _): &(&str, &str)| {
            let is_name = |other: &&str| name.eq_ignore_ascii_case(other);
            !is_name(&"host") && !CONNECTION_SPECIFIC.iter().any(is_name)
        };
        let fields = pseudo.into_iter().chain(request.headers().filter(is_sent));
        let field = |(name, value): (&str, &str)| {
            (name.to_ascii_lowercase().into_bytes(), value.as_bytes().to_vec())
        };
        Self { fields: fields.map(field).collect() }
    }

    /// Returns the fields, pseudo-fields first.
    pub fn fields<'a>(&'a self, scheme: &'a [u8]) -> impl Iterator<Item = Field<'a>> {
        let mut fields = self.fields.iter().map(|(name, value)| Field::new(name, value));
        let method = fields.next();
        method.into_iter().chain([Field::new(b":scheme", scheme)]).chain(fields)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_http1::RequestText;

    use super::*;

    #[test]
    fn head_has_lower_case_names_and_nothing_of_the_connection() {
        let headers = [
            ("X-A", "b"),
            ("Host", "shop.example:81"),
            ("Connection", "close"),
            ("TE", "trailers"),
            ("Accept", ""),
        ];
        let text = RequestText { method: "POST", target: "/a?b=c", headers: &headers, body: b"hi" };
        let head = Http2Head::new(&text.render().unwrap());
        let field = |field: Field<'_>| {
            format!("{}={}", field.name.escape_ascii(), field.value.escape_ascii())
        };
        let fields: Vec<_> = head.fields(b"https").map(field).collect();
        let expected = [
            ":method=POST",
            ":scheme=https",
            ":path=/a?b=c",
            ":authority=shop.example:81",
            "x-a=b",
            "accept=",
            "content-length=2",
        ];
        assert_eq!(fields, expected);
    }
}
