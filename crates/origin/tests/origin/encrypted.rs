//! TLS and HTTP/2 over real sockets, with literal bytes and a client of rustls. Foreign clients are in `tests/e2e`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tollgate_http2::{Connection, Event, Field, Fields, Limits, PREFACE, Role};
use tollgate_origin::{Config, LogTarget, Timeouts};
use tollgate_tls::SelfSigned;

use crate::support::{Client, GET_ONE, ONE, PATIENCE, Served, number, on_any_port, wait_until};

static CERTIFICATE: LazyLock<SelfSigned> =
    LazyLock::new(|| SelfSigned::new(&["localhost"]).unwrap());

fn tls_config(threads: usize) -> Config {
    Config { tls: Some(CERTIFICATE.for_server().unwrap()), ..on_any_port(threads) }
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Connects, and offers these protocols by ALPN. Trusts the certificate of `tls_config` and no other.
fn connect(addr: SocketAddr, protocols: &[&[u8]]) -> TlsStream {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.certificate.as_bytes()).unwrap();
    roots.add(certificate).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap());
    let mut stream = StreamOwned::new(connection.unwrap(), Client::connect(addr).stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    stream
}

/// A blocking HTTP/2 client.
struct Http2Client<S> {
    stream: S,
    connection: Connection,
    fields: Fields,
    out: Vec<u8>,
}

#[derive(Debug, Default)]
struct Reply {
    status: u16,
    body: Vec<u8>,
}

impl<S: Read + Write> Http2Client<S> {
    fn new(stream: S) -> Self {
        let mut out = Vec::new();
        let limits = Limits { stream_window: 1 << 20, ..Limits::default() };
        let connection = Connection::new(Role::Client, limits, Instant::now(), &mut out);
        Self { stream, connection, fields: Fields::default(), out }
    }

    fn request(&mut self, method: &str, path: &str, body: &[u8]) -> u32 {
        let fields = [
            Field::new(b":method", method.as_bytes()),
            Field::new(b":scheme", b"https"),
            Field::new(b":authority", b"a.test"),
            Field::new(b":path", path.as_bytes()),
            Field::new(b"user-agent", b"test"),
        ];
        let stream = self.connection.send_request(fields, body.is_empty(), 0, &mut self.out);
        let stream = stream.unwrap();
        if !body.is_empty() {
            let sent = self.connection.send_data(stream, body, true, &mut self.out).unwrap();
            assert_eq!(sent, body.len(), "the window has room");
        }
        stream
    }

    /// Sends the requests. Returns the responses to them in the order of their ends.
    fn replies(&mut self, count: usize) -> Vec<(u32, Reply)> {
        let mut open: Vec<(u32, Reply)> = Vec::new();
        let mut complete = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            self.stream.write_all(&self.out).unwrap();
            self.out.clear();
            if complete.len() == count {
                return complete;
            }
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "end of stream");
            let mut input = &buffer[..read];
            let Self { connection, fields, out, .. } = self;
            while let Some(event) =
                connection.receive(&mut input, fields, out, Instant::now()).unwrap()
            {
                let ended = match event {
                    Event::Response { stream, status, end_stream, .. } => {
                        open.push((stream, Reply { status, body: Vec::new() }));
                        end_stream.then_some(stream)
                    }
                    Event::Data { stream, data, end_stream, .. } => {
                        let reply = open.iter_mut().find(|(id, _)| *id == stream).unwrap();
                        reply.1.body.extend_from_slice(data);
                        connection.credit(stream, data.len(), out);
                        end_stream.then_some(stream)
                    }
                    Event::Settings | Event::Writable | Event::StreamWritable { .. } => None,
                    other => panic!("{other:?}"),
                };
                if let Some(stream) = ended {
                    connection.release(stream, out);
                    let at = open.iter().position(|(id, _)| *id == stream).unwrap();
                    complete.push(open.remove(at));
                }
            }
        }
    }

    fn get(&mut self, path: &str) -> String {
        self.request("GET", path, b"");
        String::from_utf8(self.replies(1).remove(0).1.body).unwrap()
    }
}

/// Every kind of response, on one connection, some of them at once.
fn use_endpoints<S: Read + Write>(stream: S) {
    let mut client = Http2Client::new(stream);
    assert_eq!(client.get("/?payload=3"), "xxx");
    assert_eq!(client.get("/method"), "{\"method\":\"GET\"}");
    assert_eq!(client.get("/headers"), r#"{"headers":[["host","a.test"],["user-agent","test"]]}"#);
    let page = client.get("/");
    assert!(page.contains("http://a.test/urandom"), "{page}");

    let endless = client.request("GET", "/sleep?time=20", b"");
    let slow = client.request("GET", "/sleep?time=0.05", b"");
    let random = client.request("GET", "/urandom?size=3000000", b"");
    let large = client.request("GET", "/download?size=5000000", b"");
    let echo = client.request("POST", "/echo", &[b'e'; 50_000]);
    let upload = client.request("PUT", "/upload", &[b'u'; 5_000]);
    let missing = client.request("GET", "/status/404", b"");
    for (stream, Reply { status, body }) in client.replies(6) {
        assert_ne!(stream, endless, "the wait delays no other response");
        assert_eq!(status, if stream == missing { 404 } else { 200 });
        let text = || String::from_utf8(body.clone()).unwrap();
        if stream == slow {
            assert!(number(&text(), "time") >= 0.05);
        } else if stream == random {
            assert_eq!(number(&text(), "size"), 3_000_000.0);
        } else if stream == large {
            assert!(body.len() == 5_000_000 && body.iter().all(|byte| *byte == b'x'));
        } else if stream == echo {
            assert_eq!(body, [b'e'; 50_000]);
        } else if stream == upload {
            assert_eq!(number(&text(), "size"), 5_000.0);
        }
    }
    let requests = number(&client.get("/counters"), "requests");
    assert_eq!(requests, 12.0);
}

#[test]
fn http2_in_the_clear_by_preface() {
    let origin = Served::start(1);
    use_endpoints(origin.client().stream);
    // HTTP/1.1 on the same port.
    origin.assert_responds();
}

#[test]
fn alpn_selects_the_protocol() {
    let origin = Served::with_config(&tls_config(1));
    let stream = connect(origin.addr, &[b"h2", b"http/1.1"]);
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    use_endpoints(stream);
    for protocols in [&[b"http/1.1"][..], &[]] {
        let mut stream =
            connect(origin.addr, &protocols.iter().map(|name| &name[..]).collect::<Vec<_>>());
        assert_http1(&mut stream);
    }
}

fn assert_http1(stream: &mut TlsStream) {
    stream.write_all(GET_ONE).unwrap();
    let mut received = vec![0; ONE.len()];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8(received).unwrap(), ONE);
}

/// The preface in pieces, then literal frames: SETTINGS, and GET of / with a payload of 1 byte.
#[test]
fn literal_frames_get_literal_frames() {
    let origin = Served::start(1);
    let mut client = origin.client();
    let path = b"/?payload=1";
    let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
    block.extend_from_slice(path);
    block.extend_from_slice(b"\x01\x01a");
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    frames.extend_from_slice(&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1]);
    frames.extend_from_slice(&block);
    for piece in PREFACE.chunks(5) {
        client.send(piece);
        std::thread::yield_now();
    }
    client.send(&frames);
    let mut types = Vec::new();
    loop {
        let mut head = [0; 9];
        client.stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        client.stream.read_exact(&mut payload).unwrap();
        types.push(head[3]);
        match head[3] {
            // Status 200 is an index of the static table.
            1 => assert_eq!((head[4], head[8], payload[0]), (4, 1, 0x88)),
            0 => {
                assert_eq!((head[4], head[8], &payload[..]), (1, 1, &b"x"[..]));
                break;
            }
            // SETTINGS, WINDOW_UPDATE.
            4 | 8 => {}
            other => panic!("frame of type {other}"),
        }
    }
    assert_eq!(types[0], 4, "settings come first");
}

#[test]
fn request_line_with_the_start_of_the_preface_is_http1() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"P");
    client.send(b"RI * HTTP/1.1\r\nHost: a\r\n\r\n");
    let (head, _) = client.response();
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
}

#[test]
fn plain_http_on_a_tls_port_gets_an_explanation() {
    let origin = Served::with_config(&tls_config(1));
    let mut client = origin.client();
    client.send(GET_ONE);
    let response = client.read_to_end();
    assert!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{response}");
    assert!(response.ends_with("{\"error\":\"plain HTTP sent where TLS is expected: use https\"}"));
}

#[test]
fn large_bodies_in_both_directions_over_tls() {
    let origin = Served::with_config(&tls_config(1));
    let mut stream = connect(origin.addr, &[]);
    stream.write_all(b"GET /?payload=20000000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut head = vec![0; ONE.len() - 1 + 7];
    stream.read_exact(&mut head).unwrap();
    assert!(head.ends_with(b"Content-Length: 20000000\r\n\r\n"));
    let mut body = vec![0; 20_000_000];
    stream.read_exact(&mut body).unwrap();
    assert!(body.iter().all(|byte| *byte == b'x'));
    let body = vec![b'u'; 20_000_000];
    stream.write_all(b"PUT /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20000000\r\n\r\n").unwrap();
    stream.write_all(&body).unwrap();
    // Ends with `close_notify`: otherwise the read fails.
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.contains("\r\n\r\n{\"size\":20000000,\"time\":"), "{response}");
}

#[test]
fn silent_client_of_a_handshake_is_closed() {
    let head = Duration::from_millis(100);
    let timeouts = Timeouts { head, ..Timeouts::default() };
    let origin = Served::with_config(&Config { timeouts, ..tls_config(1) });
    let mut client = origin.client();
    client.send(&[22, 3, 1]);
    assert_eq!(client.read_to_end(), "");
}

#[test]
fn stop_ends_idle_http2_connections_with_goaway() {
    let origin = Served::start(1);
    let mut client = Http2Client::new(origin.client().stream);
    assert_eq!(client.get("/?payload=1"), "x");
    origin.stop().0.unwrap();
    let mut rest = Vec::new();
    match client.stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    let mut input = &rest[..];
    let Http2Client { connection, fields, out, .. } = &mut client;
    let event = connection.receive(&mut input, fields, out, Instant::now()).unwrap();
    assert!(matches!(event, Some(Event::GoAway { last_stream: 1, .. })), "{event:?}");
}

#[test]
fn access_log_names_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let access_log = Some(LogTarget::File(log.clone()));
    let origin = Served::with_config(&Config { access_log, ..tls_config(1) });
    let mut client = Http2Client::new(connect(origin.addr, &[b"h2"]));
    client.request("POST", "/echo", b"hello");
    client.replies(1);
    client.get("/download?size=100000");
    let mut cut = Http2Client::new(connect(origin.addr, &[b"h2"]));
    cut.request("GET", "/sleep?time=50", b"");
    cut.stream.write_all(&cut.out).unwrap();
    wait_until(|| number(&client.get("/counters"), "/sleep") == 1.0);
    drop(cut);
    let lines = || std::fs::read_to_string(&log).unwrap();
    wait_until(|| lines().contains(" 499 "));
    let text = lines();
    for part in [
        "\"POST /echo HTTP/2.0\" 200 5 \"-\" \"test\"\n",
        "\"GET /download?size=100000 HTTP/2.0\" 200 100000 \"-\" \"test\"\n",
        "\"GET /sleep?time=50 HTTP/2.0\" 499 0 \"-\" \"test\"\n",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    drop(client);
    let mut plain: TcpStream = TcpStream::connect(origin.addr).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(GET_ONE).unwrap();
    plain.read_to_end(&mut Vec::new()).unwrap();
    wait_until(|| lines().contains("\"\" 400 "));
}
