//! Clients that speak TLS: curl and openssl, which are not ours.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{Address, Listener, Tls};

use crate::support::{Backend, GET, OK, PATIENCE, Peer, Served};

/// A certificate for `localhost` and its key, in a folder.
fn certify(folder: &Path, name: &str) {
    let file = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
    let (key, certificate) = (file("key"), file("pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args([
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        &key,
        "-out",
        &certificate,
    ]);
    let output = openssl.output().expect("openssl; to install it: apt-get install -y openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn tls(folder: &Path, name: &str) -> Option<Tls> {
    let file = |end: &str| folder.join(format!("{name}.{end}"));
    Some(Tls::read(file("pem"), file("key")).unwrap())
}

fn config(backend: &Backend, folder: &Path) -> Config {
    let mut config = backend.config();
    config.listeners[0].tls = tls(folder, "site");
    config.forwarded.x_forwarded = true;
    config
}

/// What curl gets, which trusts this certificate alone.
fn curl(served: &Served, folder: &Path, name: &str, arguments: &[&str]) -> Vec<u8> {
    let port = served.addr.port();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "20", "--cacert"]);
    curl.arg(folder.join(format!("{name}.pem")));
    curl.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]).args(arguments);
    let output = curl.arg(format!("https://localhost:{port}/a")).output();
    let output = output.expect("curl; to install it: apt-get install -y curl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Long enough that sockets have no room for it, and odd, so that no piece is like another.
fn long_body() -> Vec<u8> {
    (0..16_000_000_u32).flat_map(|number| (number % 251).to_le_bytes()).step_by(4).collect()
}

/// Answers one request with what it sent.
fn echo(backend: &Backend, expected: usize) -> String {
    let mut peer: Peer = backend.accept();
    let head = peer.head();
    let body = peer.read(expected);
    peer.send(format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {expected}\r\n\r\n"));
    peer.send(body);
    head
}

#[test]
fn curl_sends_and_gets_a_long_body_over_tls() {
    let folder = TempDir::new().unwrap();
    certify(folder.path(), "site");
    let body = long_body();
    fs::write(folder.path().join("body"), &body).unwrap();
    // With a close behind it, nothing of the answer may be left in a buffer.
    for (version, connection) in [("1.2", "keep-alive"), ("1.3", "close")] {
        let backend = Backend::start();
        let served = Served::start(config(&backend, folder.path()));
        let data = format!("@{}", folder.path().join("body").display());
        let only = [format!("--tlsv{version}"), "--tls-max".to_owned(), version.to_owned()];
        let received = thread::scope(|scope| {
            let head = scope.spawn(|| echo(&backend, body.len()));
            let mut arguments: Vec<&str> = only.iter().map(String::as_str).collect();
            arguments.extend([
                "--data-binary",
                &data,
                "--header",
                "Expect:",
                "--limit-rate",
                "120M",
            ]);
            let connection = format!("Connection: {connection}");
            arguments.extend(["--header", &connection]);
            let received = curl(&served, folder.path(), "site", &arguments);
            let head = head.join().unwrap();
            assert!(head.contains("\r\nX-Forwarded-Proto: https\r\n"), "{head}");
            received
        });
        assert!(received == body, "{} bytes came back of {}", received.len(), body.len());
    }
}

#[test]
fn it_is_known_where_clients_speak_tls() {
    let folder = TempDir::new().unwrap();
    certify(folder.path(), "site");
    let backend = Backend::start();
    let mut config = config(&backend, folder.path());
    let clear = Address::Tcp("127.0.0.2:0".parse().unwrap());
    config.listeners.push(Listener::new(clear));
    let mut served = Served::start(config);
    let gateway = served.gateway();
    let known: Vec<bool> = gateway.addresses().map(|at| gateway.speaks_tls(at)).collect();
    assert_eq!(known, [true, false]);
}

#[test]
fn openssl_speaks_http_over_tls_and_plain_http_is_no_tls() {
    let folder = TempDir::new().unwrap();
    certify(folder.path(), "site");
    let backend = Backend::start();
    let served = Served::start(config(&backend, folder.path()));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "s_client",
        "-quiet",
        "-verify_return_error",
        "-servername",
        "localhost",
        "-alpn",
    ]);
    openssl.args(["http/1.1", "-connect", &served.addr.to_string(), "-CAfile"]);
    openssl.arg(folder.path().join("site.pem"));
    openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = openssl.spawn().expect("openssl; to install it: apt-get install -y openssl");
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut peer = backend.accept();
    assert!(peer.head().starts_with("GET /a HTTP/1.1\r\n"));
    peer.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi");
    let output = client.wait_with_output().unwrap();
    drop(stdin);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nhi"), "{text}");

    let mut plain = served.client();
    plain.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    // An alert of TLS and the end, and nothing of HTTP.
    plain.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut received = Vec::new();
    std::io::Read::read_to_end(&mut plain.stream, &mut received).ok();
    assert!(!received.starts_with(b"HTTP"), "{}", received.escape_ascii());
    backend.expect_nobody();
}

#[test]
fn a_reload_shows_the_new_certificate_to_new_clients() {
    let folder = TempDir::new().unwrap();
    certify(folder.path(), "site");
    certify(folder.path(), "next");
    let backend = Backend::start();
    let mut served = Served::start(config(&backend, folder.path()));
    thread::scope(|scope| {
        scope.spawn(|| echo(&backend, 0));
        curl(&served, folder.path(), "site", &[]);
    });
    // The port was left open before; now it has a name, so that the listener stays.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut changed = config(&backend, folder.path());
    changed.listeners[0].address = Address::Tcp(free);
    changed.listeners[0].tls = tls(folder.path(), "next");
    served.gateway().reload(changed.clone()).unwrap();
    served.addr = free;
    thread::scope(|scope| {
        scope.spawn(|| echo(&backend, 0));
        curl(&served, folder.path(), "next", &[]);
    });
    changed.listeners[0].tls = tls(folder.path(), "site");
    served.gateway().reload(changed).unwrap();
    // The threads are told at once, and look when they wake, which is before they accept.
    thread::scope(|scope| {
        scope.spawn(|| echo(&backend, 0));
        curl(&served, folder.path(), "site", &[]);
    });
}

#[test]
fn who_came_over_tls_is_said_to_have_though_its_listener_speaks_in_the_clear_by_now() {
    let folder = TempDir::new().unwrap();
    certify(folder.path(), "site");
    let backend = Backend::start();
    // A port with a name, so that the listener stays.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = config(&backend, folder.path());
    config.listeners[0].address = Address::Tcp(free);
    let mut served = Served::start(config.clone());
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-quiet", "-connect", &served.addr.to_string(), "-CAfile"]);
    openssl.arg(folder.path().join("site.pem"));
    openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = openssl.spawn().expect("openssl; to install it: apt-get install -y openssl");
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(GET.as_bytes()).unwrap();
    let mut peer = backend.accept();
    assert!(peer.head().contains("\r\nX-Forwarded-Proto: https\r\n"));
    peer.send(OK);

    config.listeners[0].tls = None;
    served.gateway().reload(config).unwrap();
    // The connection to the backend is closed, which tells that it has happened.
    peer.expect_last("");
    let mut clear = served.client();
    clear.send(GET);
    let mut peer = backend.accept();
    assert!(peer.head().contains("\r\nX-Forwarded-Proto: http\r\n"));
    peer.send(OK);
    clear.expect(OK);
    stdin.write_all(GET.as_bytes()).unwrap();
    assert!(peer.head().contains("\r\nX-Forwarded-Proto: https\r\n"));
    peer.send(OK);
    // It would wait for the gateway to close.
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn files_that_cannot_be_used_are_named_with_their_line() {
    let folder = TempDir::new().unwrap();
    certify(folder.path(), "site");
    certify(folder.path(), "other");
    fs::write(folder.path().join("empty.pem"), "").unwrap();
    let error = |certificate: &str, key: &str| {
        let text = format!(
            "listeners:\n  - address: 127.0.0.1:0\n    tls:\n      certificate: {certificate}\n      \
             key: {key}\npools: [{{ name: a, backends: [{{ address: 127.0.0.1:1 }}] }}]\n"
        );
        let error = Config::parse(&text, &folder.path().join("g.yaml")).unwrap_err();
        assert!(std::error::Error::source(&error).is_some());
        let text = error.to_string();
        text.strip_prefix(&format!("{}/", folder.path().display())).unwrap().to_owned()
    };
    let no_certificate = "the certificate cannot be read; name a file of PEM with the certificate, then \
                          what it is signed by";
    assert_eq!(error("none.pem", "site.key"), format!("g.yaml:4:20: {no_certificate}"));
    assert_eq!(error("empty.pem", "site.key"), format!("g.yaml:4:20: {no_certificate}"));
    assert_eq!(
        error("site.pem", "empty.pem"),
        "g.yaml:5:12: the key cannot be read; name a file of PEM with the private key, without a \
         passphrase"
    );
    assert_eq!(
        error("site.pem", "other.key"),
        "g.yaml:5:12: the key is not that of the certificate, or one of them is of a kind that is not \
         known here"
    );
}
