//! Requests that become ambiguous, or several, if they are translated without care (request smuggling). Each is refused
//! on its stream, and nothing of it reaches a backend. The next request on the connection is served.

use super::scene;
use crate::support::http2::{DATA, HEADERS, Http2Peer, PROTOCOL_ERROR, block, frame};
use crate::support::{Backend, GET, OK};

enum Refusal {
    /// `RST_STREAM` with `PROTOCOL_ERROR`.
    Reset,
    /// A response by the gateway.
    Status(&'static str),
}
use Refusal::{Reset, Status};

const METHOD: (&str, &str) = (":method", "GET");
const POST: (&str, &str) = (":method", "POST");
const SCHEME: (&str, &str) = (":scheme", "http");
const AUTHORITY: (&str, &str) = (":authority", "x");
const PATH: (&str, &str) = (":path", "/a");

/// Name, fields, body, refusal.
#[expect(clippy::type_complexity, reason = "a table")]
const CASES: &[(&str, &[(&str, &str)], Option<&[u8]>, Refusal)] = &[
    (
        "h2.CL: shorter than the body",
        &[POST, SCHEME, AUTHORITY, PATH, ("content-length", "0")],
        Some(b"GET /evil HTTP/1.1\r\n\r\n"),
        Reset,
    ),
    (
        "h2.CL: longer than the body",
        &[POST, SCHEME, AUTHORITY, PATH, ("content-length", "50")],
        Some(b"x"),
        Reset,
    ),
    (
        "h2.CL: without a body",
        &[POST, SCHEME, AUTHORITY, PATH, ("content-length", "5")],
        None,
        Reset,
    ),
    (
        "h2.CL: two lengths",
        &[POST, SCHEME, AUTHORITY, PATH, ("content-length", "1"), ("content-length", "1")],
        Some(b"x"),
        Reset,
    ),
    (
        "h2.CL: list of lengths",
        &[POST, SCHEME, AUTHORITY, PATH, ("content-length", "1, 1")],
        Some(b"x"),
        Reset,
    ),
    ("h2.CL: sign", &[POST, SCHEME, AUTHORITY, PATH, ("content-length", "+1")], Some(b"x"), Reset),
    (
        "h2.TE: chunked",
        &[POST, SCHEME, AUTHORITY, PATH, ("transfer-encoding", "chunked")],
        Some(b"0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"),
        Reset,
    ),
    ("h2.TE: by te", &[POST, SCHEME, AUTHORITY, PATH, ("te", "chunked")], Some(b"x"), Reset),
    (
        "h2.TE: obfuscated name",
        &[POST, SCHEME, AUTHORITY, PATH, ("transfer-encoding ", "chunked")],
        Some(b"0\r\n\r\n"),
        Reset,
    ),
    (
        "h2.TE: within a value",
        &[POST, SCHEME, AUTHORITY, PATH, ("x", "y\r\ntransfer-encoding: chunked")],
        Some(b"0\r\n\r\n"),
        Reset,
    ),
    ("connection field", &[METHOD, SCHEME, AUTHORITY, PATH, ("connection", "close")], None, Reset),
    ("upgrade to HTTP/2", &[METHOD, SCHEME, AUTHORITY, PATH, ("upgrade", "h2c")], None, Reset),
    (
        "CR LF in a value",
        &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "y\r\n\r\nGET /evil HTTP/1.1\r\nHost: y")],
        None,
        Reset,
    ),
    ("LF in a value", &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "y\nz: 1")], None, Reset),
    ("CR in a value", &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "y\rz: 1")], None, Reset),
    ("NUL in a value", &[METHOD, SCHEME, AUTHORITY, PATH, ("x", "y\0z")], None, Reset),
    ("CR LF in a name", &[METHOD, SCHEME, AUTHORITY, PATH, ("x: y\r\nz", "1")], None, Reset),
    ("colon in a name", &[METHOD, SCHEME, AUTHORITY, PATH, ("x:y", "1")], None, Reset),
    ("space in a name", &[METHOD, SCHEME, AUTHORITY, PATH, ("x y", "1")], None, Reset),
    ("upper case in a name", &[METHOD, SCHEME, AUTHORITY, PATH, ("X-Y", "1")], None, Reset),
    ("empty name", &[METHOD, SCHEME, AUTHORITY, PATH, ("", "1")], None, Reset),
    (
        "request line in :method",
        &[(":method", "GET /evil HTTP/1.1\r\nHost: x\r\n\r\nGET"), SCHEME, AUTHORITY, PATH],
        None,
        Reset,
    ),
    ("space in :method", &[(":method", "GET /evil"), SCHEME, AUTHORITY, PATH], None, Reset),
    ("empty :method", &[(":method", ""), SCHEME, AUTHORITY, PATH], None, Reset),
    ("space in :path", &[METHOD, SCHEME, AUTHORITY, (":path", "/a HTTP/1.1")], None, Reset),
    (
        "CR LF in :path",
        &[METHOD, SCHEME, AUTHORITY, (":path", "/a HTTP/1.1\r\nHost: y\r\n\r\n")],
        None,
        Reset,
    ),
    ("tab in :path", &[METHOD, SCHEME, AUTHORITY, (":path", "/a\tb")], None, Status("400")),
    ("fragment in :path", &[METHOD, SCHEME, AUTHORITY, (":path", "/a#b")], None, Status("400")),
    (
        "bytes beyond ASCII in :path",
        &[METHOD, SCHEME, AUTHORITY, (":path", "/\u{e4}")],
        None,
        Status("400"),
    ),
    ("absolute :path", &[METHOD, SCHEME, AUTHORITY, (":path", "http://y/a")], None, Reset),
    ("empty :path", &[METHOD, SCHEME, AUTHORITY, (":path", "")], None, Reset),
    ("asterisk for GET", &[METHOD, SCHEME, AUTHORITY, (":path", "*")], None, Reset),
    ("no :path", &[METHOD, SCHEME, AUTHORITY], None, Reset),
    ("two :path", &[METHOD, SCHEME, AUTHORITY, PATH, (":path", "/evil")], None, Reset),
    (":path after a header", &[METHOD, SCHEME, AUTHORITY, ("x", "y"), PATH], None, Reset),
    ("unknown pseudo-field", &[METHOD, SCHEME, AUTHORITY, PATH, (":status", "200")], None, Reset),
    (
        ":scheme with a request line",
        &[METHOD, (":scheme", "http://y/evil HTTP/1.1\r\n"), AUTHORITY, PATH],
        None,
        Reset,
    ),
    (
        "Host differs from :authority",
        &[METHOD, SCHEME, AUTHORITY, PATH, ("host", "y")],
        None,
        Reset,
    ),
    ("two Hosts", &[METHOD, SCHEME, PATH, ("host", "x"), ("host", "y")], None, Reset),
    ("no host at all", &[METHOD, SCHEME, PATH], None, Status("400")),
    ("user in :authority", &[METHOD, SCHEME, (":authority", "user@x"), PATH], None, Reset),
    ("path in :authority", &[METHOD, SCHEME, (":authority", "x/evil"), PATH], None, Reset),
    ("space in :authority", &[METHOD, SCHEME, (":authority", "x y"), PATH], None, Reset),
    ("CR LF in :authority", &[METHOD, SCHEME, (":authority", "x\r\nX-Y: z"), PATH], None, Reset),
    ("empty :authority", &[METHOD, SCHEME, (":authority", ""), PATH], None, Reset),
    ("CONNECT", &[(":method", "CONNECT"), (":authority", "x:25")], None, Status("501")),
    (
        "extended CONNECT of another protocol",
        &[(":method", "CONNECT"), (":protocol", "connect-udp"), SCHEME, AUTHORITY, PATH],
        None,
        Status("501"),
    ),
    (
        "extended CONNECT with a GET",
        &[METHOD, (":protocol", "websocket"), SCHEME, AUTHORITY, PATH],
        None,
        Reset,
    ),
    (
        "CR LF in :protocol",
        &[(":method", "CONNECT"), (":protocol", "websocket\r\nX-Y: z"), SCHEME, AUTHORITY, PATH],
        None,
        Reset,
    ),
    ("expectation", &[METHOD, SCHEME, AUTHORITY, PATH, ("expect", "evil")], None, Status("417")),
];

#[test]
fn nothing_ambiguous_reaches_a_backend() {
    let (gateway, mut client, backend) = scene();
    let mut stream = 1;
    for (name, fields, body, refusal) in CASES {
        // In one piece: a part of a valid head could be forwarded before its body is known.
        let mut bytes = frame(HEADERS, 4 | u8::from(body.is_none()), stream, &block(fields));
        if let Some(body) = body {
            bytes.extend(frame(DATA, 1, stream, body));
        }
        client.send(&bytes);
        let response = client.response(stream);
        match refusal {
            Reset => assert_eq!(response.reset, Some(PROTOCOL_ERROR), "{name}: {response:?}"),
            Status(status) => assert_eq!(response.status, *status, "{name}: {response:?}"),
        }
        stream += 2;
    }
    // Two of them show only after their heads, which have taken connections then.
    for _ in 0..2 {
        assert_eq!(backend.accept().read_to_close(), b"");
    }
    backend.expect_no_connection(&gateway);
    serves(&mut client, stream, &backend);
}

fn serves(client: &mut Http2Peer, stream: u32, backend: &Backend) {
    client.request(stream, true, crate::support::http2::GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    assert_eq!(client.response(stream).text(), ("200", "hi"));
}

#[test]
fn trailers_cannot_hold_a_request() {
    let (_gateway, mut client, backend) = scene();
    let post = [POST, SCHEME, AUTHORITY, PATH];
    for (at, trailers) in [
        &[("x", "y\r\n\r\nGET /evil HTTP/1.1\r\nHost: y\r\n\r\n")][..],
        &[(":path", "/evil")],
        &[("transfer-encoding", "chunked")],
        &[("X", "y")],
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 2 * at as u32 + 1;
        client.request(stream, false, &post);
        let mut upstream = backend.accept();
        upstream.expect("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.request(stream, true, trailers);
        assert_eq!(client.response(stream).reset, Some(PROTOCOL_ERROR));
        // The backend sees no end of the body.
        upstream.expect_closed();
    }
}

#[test]
fn too_many_trailers_end_the_request() {
    let (_gateway, mut client, backend) = scene();
    client.request(1, false, &[POST, SCHEME, AUTHORITY, PATH]);
    let mut upstream = backend.accept();
    client.request(1, true, &[("x", "y"); 40]);
    assert_eq!(client.response(1).status, "431");
    let received = upstream.read_to_close();
    assert!(!received.ends_with(b"0\r\n\r\n"));
}
