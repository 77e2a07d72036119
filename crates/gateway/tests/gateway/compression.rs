//! Compression of responses, decoded by the crates that encode, as no other decoder is at hand.

use std::io::Read as _;

use tempfile::TempDir;
use tollgate_gateway::Config;

use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{Backend, GET, Peer, Response, TestGateway};

const HTML: &str = "Date: d\r\nContent-Type: text/html\r\n";

struct Scene {
    gateway: TestGateway,
    backend: Backend,
    _folder: TempDir,
}

impl Scene {
    /// A gateway with these keys in its route and in the file.
    fn start(route: &str, more: &str) -> Self {
        let backend = Backend::start();
        let folder = tempfile::tempdir().unwrap();
        let rule = r#"SecRule RESPONSE_BODY "@contains secret" "id:1,phase:4,deny,status:403""#;
        std::fs::write(folder.path().join("rules.conf"), rule).unwrap();
        let text = format!(
            "listeners: [{{ address: '127.0.0.1:0', http2: true }}]\nadmin: 127.0.0.1:0\n\
             routes: [{{ pool: p, {route} }}]\nforwarded: {{ via: null, x_forwarded: false }}\n\
             pools: [{{ name: p, backends: [{{ address: '{}' }}] }}]\n{more}",
            backend.addr()
        );
        let config = Config::parse(&text, &folder.path().join("g.yaml"));
        let gateway = TestGateway::start(&config.unwrap_or_else(|error| panic!("{error}")));
        Self { gateway, backend, _folder: folder }
    }
}

fn accepting(coding: &str) -> String {
    GET.replace("\r\n\r\n", &format!("\r\nAccept-Encoding: {coding}\r\n\r\n"))
}

fn page(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{HTML}{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// About 60 kB of text that repeats.
fn text() -> String {
    (0..4000).map(|number| format!("<p>line {number}\n")).collect()
}

fn decoder<'a>(coding: &str, bytes: &'a [u8]) -> Box<dyn std::io::Read + 'a> {
    match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "br" => Box::new(brotli::Decompressor::new(bytes, 4096)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        _ => panic!("{coding}"),
    }
}

/// Decodes a complete body.
fn decoded(coding: &str, bytes: &[u8]) -> String {
    let mut out = String::new();
    decoder(coding, bytes).read_to_string(&mut out).unwrap();
    out
}

/// Decodes what is there of a body that has not ended.
fn decoded_so_far(coding: &str, bytes: &[u8]) -> String {
    let (mut decoder, mut out, mut read) = (decoder(coding, bytes), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = decoder.read(&mut read) {
        out.extend_from_slice(&read[..count]);
    }
    String::from_utf8(out).unwrap()
}

fn exchange(client: &mut Peer, upstream: &mut Peer, request: &str, response: &str) -> Response {
    client.send(request);
    upstream.expect(request);
    upstream.send(response);
    client.response().unwrap()
}

#[test]
fn response_is_compressed_as_the_client_accepts() {
    let scene = Scene::start("compression: {}", "");
    let mut client = scene.gateway.client();
    client.send(accepting("gzip"));
    let mut upstream = scene.backend.accept();
    upstream.expect(accepting("gzip"));
    let text = text();
    let lines = "ETag: \"a\"\r\nAccept-Ranges: bytes\r\nVary: Origin\r\n";
    upstream.send(page(lines, &text));
    client.expect(
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/html\r\nETag: W/\"a\"\r\nVary: Origin\r\n\
         Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\n\r\n",
    );
    let body = client.chunked_body().unwrap();
    assert!(body.len() < text.len() / 4, "{}", body.len());
    assert_eq!(decoded("gzip", &body), text);
    let sent = body.len() as u64;
    scene.gateway.expect_metric("compressed_responses_total", 1);
    scene.gateway.expect_metric("compression_received_bytes_total", text.len() as u64);
    scene.gateway.expect_metric("compression_sent_bytes_total", sent);
    // Both connections are kept. The second head of each coding is found in the cache.
    for coding in ["br", "br", "zstd", "zstd", "gzip", "gzip"] {
        for chunks in [false, true] {
            let response = if chunks {
                let chunk = format!("{:x}\r\n{text}\r\n", text.len());
                format!(
                    "HTTP/1.1 200 OK\r\n{HTML}Transfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n"
                )
            } else {
                page("", &text)
            };
            let got = exchange(&mut client, &mut upstream, &accepting(coding), &response);
            assert_eq!(got.header("Content-Encoding"), Some(coding));
            assert!(got.body.len() < text.len() / 4, "{coding}: {}", got.body.len());
            assert_eq!(decoded(coding, &got.body), text);
        }
    }
    // Others get the same response as it is, and caches know of both.
    let plain = page("", &text);
    let expected = plain.replace("\r\n\r\n", "\r\nVary: Accept-Encoding\r\n\r\n");
    for request in [GET.to_owned(), accepting("gzip;q=0"), accepting("identity")] {
        client.send(&request);
        upstream.expect(&request);
        upstream.send(&plain);
        client.expect(&expected);
    }
}

#[test]
fn responses_bound_to_their_bytes_pass_unchanged() {
    let scene = Scene::start("compression: {}", "");
    let mut client = scene.gateway.client();
    let mut upstream = None;
    let text = text();
    let png = page("", &text).replace("text/html", "image/png");
    let events = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/event-stream\r\n\
                  Transfer-Encoding: chunked\r\n\r\n6\r\ndata:1\r\n0\r\n\r\n"
        .to_owned();
    let get = accepting("gzip");
    let head = get.replace("GET", "HEAD");
    let of_head = format!("HTTP/1.1 200 OK\r\n{HTML}ETag: \"a\"\r\nContent-Length: 1023\r\n\r\n");
    let not_modified = "HTTP/1.1 304 Not Modified\r\nDate: d\r\nETag: \"a\"\r\n";
    for (request, response) in [
        (&get, page("Content-Encoding: br\r\n", &text)),
        (&get, page("Cache-Control: no-transform\r\n", &text)),
        (&get, page("Content-Digest: x\r\n", &text)),
        (
            &get,
            page("Content-Range: bytes 0-1/2\r\n", &text).replace("200 OK", "206 Partial Content"),
        ),
        (&get, page("", "short")),
        (&get, png),
        (&get, events),
        (&get, format!("{not_modified}Content-Type: image/png\r\n\r\n")),
        (&get, format!("{not_modified}Content-Encoding: br\r\n\r\n")),
        (&get, format!("HTTP/1.1 204 No Content\r\n{HTML}\r\n")),
        (&head, of_head),
    ] {
        client.send(request);
        let upstream = upstream.get_or_insert_with(|| scene.backend.accept());
        upstream.expect(request);
        upstream.send(&response);
        client.expect(&response);
    }
    scene.gateway.expect_metric("compressed_responses_total", 0);
}

#[test]
fn not_modified_and_head_are_as_the_compressed_response() {
    let scene = Scene::start("compression: {}", "");
    let mut client = scene.gateway.client();
    let mut upstream = None;
    let weak = |request: &str| request.replace("\r\n\r\n", "\r\nIf-None-Match: W/\"a\"\r\n\r\n");
    let of_head = |request: &str| request.replace("GET", "HEAD");
    let gzip = accepting("gzip");
    let not_modified = "HTTP/1.1 304 Not Modified\r\nDate: d\r\nETag: \"a\"\r\n\r\n";
    let ok = format!("HTTP/1.1 200 OK\r\n{HTML}ETag: \"a\"\r\nContent-Length: 4000\r\n\r\n");
    let varied = |response: &str| response.replace("\r\n\r\n", "\r\nVary: Accept-Encoding\r\n\r\n");
    let weakened = |response: &str| {
        varied(&response.replace("\"a\"", "W/\"a\"").replace("Content-Length: 4000\r\n", ""))
    };
    for (request, response, expected) in [
        (weak(&gzip), not_modified, weakened(not_modified)),
        (weak(GET), not_modified, varied(not_modified)),
        (of_head(&gzip), &*ok, weakened(&ok)),
        (of_head(GET), &*ok, varied(&ok)),
    ] {
        client.send(&request);
        let upstream = upstream.get_or_insert_with(|| scene.backend.accept());
        upstream.expect(&request);
        upstream.send(response);
        client.expect(expected);
    }
    scene.gateway.expect_metric("compressed_responses_total", 0);
}

#[test]
fn client_of_http_1_0_and_body_that_ends_with_its_connection_get_no_coding() {
    let scene = Scene::start("compression: {}", "");
    let mut client = scene.gateway.client();
    client.send("GET /a HTTP/1.0\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    let body = "a".repeat(2000);
    scene.backend.accept().send(page("", &body));
    let response = client.response().unwrap();
    assert_eq!((response.header("Content-Encoding"), response.text()), (None, &*body));
    let mut client = scene.gateway.client();
    client.send(accepting("gzip"));
    let mut upstream = scene.backend.accept();
    upstream.expect(accepting("gzip"));
    upstream.send(format!("HTTP/1.1 200 OK\r\n{HTML}Connection: close\r\n\r\n{body}"));
    drop(upstream);
    let received = String::from_utf8(client.read_to_close()).unwrap();
    assert!(received.ends_with(&format!("\r\n\r\n{body}")), "{received}");
}

/// The decoded payload of the chunks so far.
fn expect_decoded(client: &mut Peer, coding: &str, received: &mut Vec<u8>, expected: &str) {
    while decoded_so_far(coding, received) != expected {
        let mut size = Vec::new();
        while !size.ends_with(b"\r\n") {
            size.extend(client.read(1));
        }
        let size = String::from_utf8(size).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        assert_ne!(size, 0, "the response ended");
        received.extend(client.read(size));
        client.expect("\r\n");
    }
}

#[test]
fn client_gets_all_that_a_slow_backend_has_sent_and_its_trailers() {
    let scene = Scene::start("compression: { bytes_min: 0 }", "");
    for coding in ["gzip", "br", "zstd"] {
        let mut client = scene.gateway.client();
        client.send(accepting(coding));
        let mut upstream = scene.backend.accept();
        upstream.expect(accepting(coding));
        upstream.send(format!(
            "HTTP/1.1 200 OK\r\n{HTML}Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
        ));
        client.expect(format!(
            "HTTP/1.1 200 OK\r\n{HTML}Transfer-Encoding: chunked\r\nContent-Encoding: {coding}\r\n\
             Vary: Accept-Encoding\r\n\r\n"
        ));
        let mut received = Vec::new();
        expect_decoded(&mut client, coding, &mut received, "one");
        upstream.send("3\r\ntwo\r\n");
        expect_decoded(&mut client, coding, &mut received, "onetwo");
        // Digests are of the received bytes.
        upstream.send("0\r\nContent-Digest: x\r\nX-Sum: 1\r\nrepr-digest: x\r\nDigest: x\r\n\r\n");
        // The end of the coding, which is a chunk, and the trailers.
        let (mut rest, trailers) = (Vec::new(), b"\r\n0\r\nX-Sum: 1\r\n\r\n");
        while !rest.ends_with(trailers) {
            rest.extend(client.read(1));
        }
        let start = 2 + rest.windows(2).position(|pair| pair == b"\r\n").unwrap();
        received.extend_from_slice(&rest[start..rest.len() - trailers.len()]);
        assert_eq!(decoded(coding, &received), "onetwo");
        upstream.reset();
    }
}

#[test]
fn piece_that_fills_the_buffer_is_not_held_back() {
    let scene = Scene::start("compression: {}", "");
    for coding in ["gzip", "br", "zstd"] {
        let mut client = scene.gateway.client();
        client.send(accepting(coding));
        let mut upstream = scene.backend.accept();
        upstream.expect(accepting(coding));
        upstream.send(format!("HTTP/1.1 200 OK\r\n{HTML}Content-Length: 40000\r\n\r\n"));
        client.head().unwrap();
        let piece = &text()[..16 << 10];
        upstream.send(piece);
        expect_decoded(&mut client, coding, &mut Vec::new(), piece);
        upstream.reset();
    }
}

#[test]
fn compressed_response_that_breaks_off_has_no_end() {
    let scene = Scene::start("compression: {}", "");
    let mut client = scene.gateway.client();
    client.send(accepting("gzip"));
    let mut upstream = scene.backend.accept();
    upstream.expect(accepting("gzip"));
    upstream.send(format!("HTTP/1.1 200 OK\r\n{HTML}Content-Length: 5000\r\n\r\nbegin"));
    drop(upstream);
    let received = client.read_to_close();
    assert!(!received.ends_with(b"0\r\n\r\n"), "{}", received.escape_ascii());
    scene.gateway.expect_metric("compressed_responses_total", 1);
}

#[test]
fn further_responses_at_once_are_not_compressed() {
    let scene = Scene::start("compression: {}", "limits: { compressed_responses: 1 }\n");
    let [mut first, mut second] = [(); 2].map(|()| scene.gateway.client());
    first.send(accepting("gzip"));
    let mut slow = scene.backend.accept();
    slow.expect(accepting("gzip"));
    slow.send(format!("HTTP/1.1 200 OK\r\n{HTML}Content-Length: 5000\r\n\r\nbegin"));
    assert!(first.head().unwrap().contains("Content-Encoding: gzip"));
    let body = "a".repeat(2000);
    second.send(accepting("gzip"));
    let mut upstream = scene.backend.accept();
    upstream.expect(accepting("gzip"));
    upstream.send(page("", &body));
    let response = second.response().unwrap();
    assert_eq!((response.header("Content-Encoding"), response.text()), (None, &*body));
    assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
    let head = accepting("gzip").replace("GET", "HEAD");
    second.send(&head);
    upstream.expect(&head);
    upstream.send(format!("HTTP/1.1 200 OK\r\n{HTML}Content-Length: 4000\r\n\r\n"));
    assert!(second.head().unwrap().contains("Content-Length: 4000"));
    scene.gateway.expect_metric("compression_refused_total", 1);
    // The first one ends, and makes room.
    slow.send("a".repeat(4995));
    assert!(first.chunked_body().is_ok());
    // Its connection was the last one to become idle.
    let response = exchange(&mut second, &mut slow, &accepting("gzip"), &page("", &body));
    assert_eq!(decoded("gzip", &response.body), body);
    scene.gateway.expect_metric("compressed_responses_total", 2);
}

#[test]
fn stream_of_http2_is_compressed() {
    let scene = Scene::start("compression: { codings: [zstd] }", "");
    let mut client = Http2Peer::connect(scene.gateway.address());
    let text = text();
    let fields = [GET_FIELDS, &[("accept-encoding", "gzip, zstd")]].concat();
    client.request(1, true, &fields);
    let mut upstream = scene.backend.accept();
    upstream.head().unwrap();
    upstream.send(page("ETag: \"a\"\r\n", &text));
    let response = client.response(1);
    assert_eq!(response.header("content-encoding"), Some("zstd"));
    assert_eq!(response.header("etag"), Some("W/\"a\""));
    assert_eq!(response.header("content-length"), None);
    assert!(response.has_ended && response.reset.is_none());
    assert_eq!(decoded("zstd", &response.body), text);
}

#[test]
fn firewall_inspects_the_body_before_its_compression() {
    let waf = "waf: { rules: [rules.conf], response_body: { mime_types: [text/html] } }\n";
    let scene = Scene::start("compression: {}", waf);
    let mut client = scene.gateway.client();
    client.send(accepting("gzip"));
    let mut upstream = scene.backend.accept();
    upstream.expect(accepting("gzip"));
    // Long enough for the helper thread.
    let text = text();
    upstream.send(page("", &text));
    let response = client.response().unwrap();
    assert_eq!(response.header("Content-Encoding"), Some("gzip"));
    assert_eq!(decoded("gzip", &response.body), text);
    client.send(accepting("gzip"));
    upstream.expect(accepting("gzip"));
    upstream.send(page("", &format!("{text}secret")));
    let response = client.response().unwrap();
    assert_eq!((response.status, response.header("Content-Encoding")), (403, None));
}

#[test]
fn configuration_of_no_effect_is_an_error() {
    for (route, error) in [
        ("pool: p, compression: { codings: [] }", "no coding"),
        ("pool: p, compression: { types: [html] }", "is not a type"),
        ("pool: p, compression: { types: ['text/*'] }", "is not a type"),
        ("pool: p, compression: { types: [text/event-stream] }", "streams of"),
        ("respond: { status: 200 }, compression: {}", "no effect without `pool`"),
    ] {
        let text = format!(
            "listeners: [{{ address: '127.0.0.1:0' }}]\nroutes: [{{ {route} }}]\n\
             pools: [{{ name: p, backends: [{{ address: '127.0.0.1:1' }}] }}]\n"
        );
        let message = Config::parse(&text, "g.yaml".as_ref()).unwrap_err().to_string();
        assert!(message.contains(error), "{route}: {message}");
    }
}
