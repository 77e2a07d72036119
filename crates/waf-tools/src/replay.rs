//! Recorded requests and responses: parsing, and running them through the engine.

use tollgate_http1::{BodyDecoder, BodyFraming};
use tollgate_waf::{Connection, Transaction, Worker};

/// Request as a client sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Method.
    pub method: Vec<u8>,
    /// Request target.
    pub target: Vec<u8>,
    /// Protocol, such as `HTTP/1.1`.
    pub protocol: Vec<u8>,
    /// Headers in order.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Body without a transfer coding.
    pub body: Vec<u8>,
}

/// Response as a backend sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Status.
    pub status: u16,
    /// Headers in order.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Body.
    pub body: Vec<u8>,
}

/// Splits a raw request; lines may end in LF alone.
pub fn parse_raw(raw: &[u8]) -> Request {
    let mut rest = raw;
    let mut next_line = || -> Option<&[u8]> {
        let end = memchr::memchr(b'\n', rest)?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    };
    let line = next_line().unwrap_or_default();
    let mut words = line.splitn(3, |&b| b == b' ');
    let mut word = || words.next().unwrap_or_default().to_vec();
    let (method, target, protocol) = (word(), word(), word());
    let mut headers: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while let Some(line) = next_line().filter(|line| !line.is_empty()) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
        headers.push((line[..colon].to_vec(), value.to_vec()));
    }
    let mut request = Request { method, target, protocol, headers, body: rest.to_vec() };
    frame(&mut request);
    request
}

/// Splits a raw response; lines may end in LF alone.
pub fn parse_raw_response(raw: &[u8]) -> Response {
    // The first two parts of a status line have the places of method and target.
    let start = raw.iter().position(|&byte| byte == b'\n').map_or(raw.len(), |end| end + 1);
    let parsed = parse_raw(raw);
    let status = std::str::from_utf8(&parsed.target).ok().and_then(|text| text.parse().ok());
    let body = memchr::memmem::find(raw, b"\r\n\r\n").map_or(start, |end| end + 4);
    let chunked = parsed.header("transfer-encoding").is_some();
    let body = if chunked { parsed.body.clone() } else { raw[body..].to_vec() };
    Response { status: status.unwrap_or(200), headers: parsed.headers, body }
}

/// Reads the body as a web server does (RFC 9112, section 6.3): the chunked coding overrides the
/// length and removes it, and a request with neither has no body.
pub(crate) fn frame(request: &mut Request) {
    let chunked = request
        .header("transfer-encoding")
        .is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    if chunked {
        request.body = dechunk(&request.body);
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(b"content-length"));
        return;
    }
    let length = request
        .header("content-length")
        .map(|text| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()));
    request.body.truncate(length.map_or(0, |length| length.unwrap_or(usize::MAX)));
}

impl Request {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value.as_slice())
    }
}

/// Decodes the chunked coding as far as it is well-formed.
fn dechunk(coded: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    // A server gives the chunks before an error to the engine, too.
    let _malformed =
        BodyDecoder::new(BodyFraming::Chunked).feed(coded, |part| body.extend_from_slice(part));
    body
}

/// True if a web server answers 400 in place of the engine.
pub fn is_malformed(request: &Request) -> bool {
    let target = &request.target;
    let method_is_token =
        !request.method.is_empty() && request.method.iter().all(u8::is_ascii_uppercase);
    let origin_form =
        target.starts_with(b"/") && !target.iter().any(|b| *b <= b' ' || *b == b'#' || *b == b'<');
    let target_is_valid = match request.method.as_slice() {
        b"CONNECT" => target
            .iter()
            .rposition(|&b| b == b':')
            .is_some_and(|colon| target[colon + 1..].iter().all(u8::is_ascii_digit)),
        _ => {
            origin_form
                || target.as_slice() == b"*"
                || target.starts_with(b"http://")
                || target.starts_with(b"https://")
        }
    };
    let protocol_is_valid = matches!(request.protocol.as_slice(), b"HTTP/1.0" | b"HTTP/1.1");
    let headers_are_valid = request.headers.iter().all(|(name, value)| {
        !name.is_empty()
            && name.iter().all(|b| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(b))
            && !value.iter().any(|b| matches!(b, 0 | b'\n' | b'\r'))
    });
    let length_is_valid = request
        .header("content-length")
        .is_none_or(|length| !length.is_empty() && length.iter().all(u8::is_ascii_digit));
    let host_is_valid = request
        .header("host")
        .map_or(request.protocol == b"HTTP/1.0", |host| !host.is_empty() && !host.contains(&b'%'));
    !(method_is_token
        && target_is_valid
        && protocol_is_valid
        && headers_are_valid
        && length_is_valid
        && host_is_valid)
}

/// Runs a request and its response through all phases, and returns the status for the client.
pub fn run(
    transaction: &mut Transaction,
    worker: &mut Worker,
    request: &Request,
    response: &Response,
) -> u16 {
    run_request(transaction, worker, request);
    if transaction.intervention().is_none() {
        transaction.response_line(b"HTTP/1.1", response.status);
        for (name, value) in &response.headers {
            transaction.response_header(name, value);
        }
        transaction.process_response_headers(worker);
        transaction.append_response_body(&response.body);
        transaction.process_response_body(worker);
    }
    transaction.process_logging(worker);
    transaction.intervention().map_or(response.status, |intervention| intervention.status)
}

/// Runs a request through the phases of requests.
pub fn run_request(transaction: &mut Transaction, worker: &mut Worker, request: &Request) {
    transaction.connection(&Connection {
        client: "127.0.0.1",
        client_port: 33_333,
        server: "127.0.0.1",
        server_port: 80,
    });
    transaction.unique_id("166000000000.000001");
    transaction.request_line(&request.method, &request.target, &request.protocol);
    for (name, value) in &request.headers {
        transaction.request_header(name, value);
    }
    if transaction.process_request_headers(worker).is_none() {
        transaction.append_request_body(&request.body);
        transaction.process_request_body(worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_requests_and_chunks() {
        let request = parse_raw(b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n");
        assert_eq!(
            (request.target.as_slice(), request.body.as_slice()),
            (b"/x".as_slice(), b"abcde".as_slice())
        );
        assert!(!is_malformed(&request));
    }
}
