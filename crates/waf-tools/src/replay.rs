//! Recorded requests and responses: parsing, and running them through the engine.

use memchr::{memchr, memmem};
use tollgate_http1::{BodyDecoder, BodyFraming, header_lines};
use tollgate_waf::{Connection, Transaction, Worker};

/// Names and values of headers, in order.
pub type HeaderList = Vec<(Vec<u8>, Vec<u8>)>;

/// Request as a client sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// Method.
    pub method: Vec<u8>,
    /// Request target.
    pub target: Vec<u8>,
    /// Protocol, such as `HTTP/1.1`.
    pub protocol: Vec<u8>,
    /// Headers.
    pub headers: HeaderList,
    /// Body without a transfer coding.
    pub body: Vec<u8>,
}

/// Response as a backend sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderList,
    /// Body.
    pub body: Vec<u8>,
}

/// Splits a raw request; lines may end in LF alone.
pub fn parse_raw(raw: &[u8]) -> Request {
    let RawMessage { words: [method, target, protocol], headers, body } = RawMessage::new(raw);
    let mut request = Request { method, target, protocol, headers, body: body.to_vec() };
    frame(&mut request);
    request
}

/// Splits the head of a raw request; lines may end in LF alone.
pub(crate) fn parse_head(raw: &[u8]) -> Request {
    let RawMessage { words: [method, target, protocol], headers, .. } = RawMessage::new(raw);
    Request { method, target, protocol, headers, body: Vec::new() }
}

/// Splits a raw response; lines may end in LF alone.
pub fn parse_raw_response(raw: &[u8]) -> Response {
    let RawMessage { words: [_, status, _], headers, body } = RawMessage::new(raw);
    let status = std::str::from_utf8(&status).ok().and_then(|text| text.parse().ok());
    let body = if is_chunked(&headers) { dechunk(body) } else { body.to_vec() };
    Response { status: status.unwrap_or(200), headers, body }
}

struct RawMessage<'a> {
    /// Words of the start line.
    words: [Vec<u8>; 3],
    headers: HeaderList,
    body: &'a [u8],
}

impl<'a> RawMessage<'a> {
    fn new(raw: &'a [u8]) -> Self {
        let (line, rest) = raw.split_at(memchr(b'\n', raw).unwrap_or(raw.len()));
        // The head ends with an empty line.
        let ends = [&b"\n\r\n"[..], b"\n\n"];
        let ends = ends.into_iter().filter_map(|end| Some(memmem::find(rest, end)? + end.len()));
        let (head, body) = rest.split_at(ends.min().unwrap_or(rest.len()));
        let lines = header_lines(head.strip_prefix(b"\n").unwrap_or(head));
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut words = line.splitn(3, |&byte| byte == b' ');
        Self {
            words: [(); 3].map(|()| words.next().unwrap_or_default().to_vec()),
            headers: lines.map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            body,
        }
    }
}

/// Reads the body as a web server does (RFC 9112, section 6.3): the chunked coding overrides the
/// length and removes it, and a request with neither has no body.
pub(crate) fn frame(request: &mut Request) {
    if is_chunked(&request.headers) {
        request.body = dechunk(&request.body);
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(b"content-length"));
        return;
    }
    let length = header(&request.headers, "content-length")
        .map(|text| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()));
    request.body.truncate(length.map_or(0, |length| length.unwrap_or(usize::MAX)));
}

pub(crate) fn is_chunked(headers: &HeaderList) -> bool {
    header(headers, "transfer-encoding")
        .is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
}

pub(crate) fn header<'a>(headers: &'a HeaderList, name: &str) -> Option<&'a [u8]> {
    let mut headers = headers.iter();
    let found = headers.find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, value)| value.as_slice())
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
    let length_is_valid = header(&request.headers, "content-length")
        .is_none_or(|length| !length.is_empty() && length.iter().all(u8::is_ascii_digit));
    let host_is_valid = header(&request.headers, "host")
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
        let request = parse_raw(b"GET /x\nHost: a\nX: y\r\n\nrest");
        assert_eq!((request.headers.len(), request.protocol.len()), (2, 0));
        let response = parse_raw_response(b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\nab\n\ncd");
        assert_eq!((response.status, response.body.as_slice()), (404, &b"ab\n\ncd"[..]));
        assert_eq!(parse_raw_response(b"HTTP/1.1 200 OK\n\nbody").body, b"body");
    }
}
