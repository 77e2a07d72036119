//! TLS with OpenSSL and nginx as peers.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;
use tollgate_gateway::Config;

use crate::e2e::{ForeignServer, output};
use crate::support::{GET, Peer, TestGateway, ThreadedBackend, closed_port};
use crate::tls::{certificate_file, long_body};

/// A gateway whose listener has these keys in its `tls`, and whose pool has those in `pool`. It answers TRACE itself.
fn gateway(tls: &str, pool: &str, backend: SocketAddr) -> TestGateway {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0{} }}]\n\
         pools: [{{ name: a, backends: [{{ address: \"{backend}\" }}]{pool} }}]\n\
         admin: 127.0.0.1:0\n",
        if tls.is_empty() { String::new() } else { format!(", tls: {{ {tls} }}") }
    );
    let config = Config::parse(&text, &certificate_file("gateway.yaml")).unwrap();
    TestGateway::start(&config)
}

const SITE: &str = "certificates: [{ certificate: site.pem, key: site.key }]";

/// The output of `openssl s_client`, with `input` sent by it. It ends with the connection.
fn s_client(gateway: &TestGateway, arguments: &[&str], input: &str) -> (Output, String) {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &gateway.addr().to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl; run make packages");
    // It may end before it has read everything.
    client.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    let output = client.wait_with_output().unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output, text)
}

/// A request whose response ends the connection.
const TRACE: &str = "TRACE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[track_caller]
fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in {text}");
}

/// The cipher suites of TLS 1.2 and below that the gateway accepts from OpenSSL, by OpenSSL's names.
fn accepted_ciphers(gateway: &TestGateway) -> BTreeSet<String> {
    let all = "ALL:COMPLEMENTOFALL:@SECLEVEL=0";
    let list = output("openssl", &["ciphers", "-s", "-tls1_2", all]);
    let list = String::from_utf8(list).unwrap();
    let names: Vec<&str> = list.trim().split(':').collect();
    assert!(names.len() > 50, "{names:?}");
    let accepts = |name: &&&str| {
        let cipher = format!("{name}:@SECLEVEL=0");
        let (output, text) = s_client(gateway, &["-tls1_2", "-cipher", &cipher], "");
        output.status.success() && text.contains(&format!("Cipher is {name}\n"))
    };
    names.iter().filter(accepts).map(|name| (*name).to_owned()).collect()
}

/// An RSA key and a certificate for it.
fn rsa(folder: &Path) -> String {
    let [key, certificate] =
        ["rsa.key", "rsa.pem"].map(|name| folder.join(name).display().to_string());
    output(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &certificate,
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
    );
    format!("certificates: [{{ certificate: {certificate}, key: {key} }}]")
}

#[test]
fn ciphers_are_those_of_mozilla_intermediate() {
    let folder = TempDir::new().unwrap();
    for (tls, key) in [(SITE.to_owned(), "ECDSA"), (rsa(folder.path()), "RSA")] {
        let gateway = gateway(&tls, "", closed_port());
        let expected = ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"];
        let expected = expected.map(|cipher| format!("ECDHE-{key}-{cipher}"));
        assert_eq!(accepted_ciphers(&gateway), BTreeSet::from(expected));
        for cipher in
            ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]
        {
            let (_, text) = s_client(&gateway, &["-tls1_3", "-ciphersuites", cipher], "");
            assert_contains(&text, &format!("New, TLSv1.3, Cipher is {cipher}\n"));
        }
        // The client's order counts.
        let order = format!("{}:{}", expected_first(key), "ALL");
        let (_, text) = s_client(&gateway, &["-tls1_2", "-cipher", &order], "");
        assert_contains(&text, &format!("Cipher is {}\n", expected_first(key)));
    }
}

fn expected_first(key: &str) -> String {
    format!("ECDHE-{key}-CHACHA20-POLY1305")
}

#[test]
fn versions_follow_the_minimum() {
    let modern = format!("{SITE}, min_version: \"1.3\"");
    for (tls, accepted) in [(SITE, &["-tls1_2", "-tls1_3"][..]), (&modern, &["-tls1_3"])] {
        let gateway = gateway(tls, "", closed_port());
        for version in ["-tls1", "-tls1_1", "-tls1_2", "-tls1_3"] {
            let arguments = [version, "-cipher", "DEFAULT:@SECLEVEL=0"];
            let (output, text) = s_client(&gateway, &arguments, "");
            assert_eq!(output.status.success(), accepted.contains(&version), "{version}: {text}");
        }
    }
}

#[test]
fn renegotiation_and_compression_are_refused() {
    let gateway = gateway(SITE, "", closed_port());
    let (output, text) = s_client(&gateway, &["-tls1_2", "-comp"], "R\n");
    assert_contains(&text, "\nCompression: NONE\n");
    assert_contains(&text, "RENEGOTIATING");
    assert!(!output.status.success(), "{text}");
    assert_contains(&text, "no renegotiation");
}

#[test]
fn name_selects_the_certificate() {
    let shop = "certificates: [{ certificate: site.pem, key: site.key }, { certificate: shop.pem, key: shop.key }]";
    let gateway = gateway(shop, "", closed_port());
    for (arguments, subject) in [
        (&["-noservername"][..], "localhost"),
        (&["-servername", "localhost"], "localhost"),
        (&["-servername", "shop.example"], "shop.example"),
        (&["-servername", "WWW.shop.EXAMPLE"], "shop.example"),
        (&["-servername", "a.b.shop.example"], "localhost"),
    ] {
        let (_, text) = s_client(&gateway, arguments, "");
        assert_contains(&text, &format!("subject=CN = {subject}\n"));
    }
}

#[test]
fn certificates_of_one_name_are_chosen_by_the_signatures_of_the_client() {
    let folder = TempDir::new().unwrap();
    let rsa = rsa(folder.path());
    let tls = SITE.replace(" }]", &format!(" }}, {}", rsa.split_once('[').unwrap().1));
    let gateway = gateway(&tls, "", closed_port());
    for (signatures, peer) in
        [("ECDSA+SHA256:RSA-PSS+SHA256", "ECDSA"), ("RSA-PSS+SHA256:RSA+SHA256", "RSA-PSS")]
    {
        for (version, name) in [("-tls1_2", "localhost"), ("-tls1_3", "localhost"), ("-tls1_3", "")]
        {
            let mut arguments = vec![version, "-sigalgs", signatures];
            match name {
                "" => arguments.push("-noservername"),
                name => arguments.extend(["-servername", name]),
            }
            let (_, text) = s_client(&gateway, &arguments, "");
            assert_contains(&text, &format!("Peer signature type: {peer}\n"));
        }
    }
}

#[test]
fn openssl_resumes_sessions_unless_tickets_are_off() {
    let folder = TempDir::new().unwrap();
    let session = folder.path().join("session").display().to_string();
    let without = format!("{SITE}, tickets: false");
    for version in ["1_2", "1_3"] {
        for (tls, resumes) in [(SITE, true), (&*without, false)] {
            let gateway = gateway(tls, "", closed_port());
            let flag = format!("-tls{version}");
            // The response comes behind the tickets.
            let arguments = [&flag, "-ign_eof", "-sess_out", &session];
            let (_, text) = s_client(&gateway, &arguments, TRACE);
            assert_contains(&text, "405 Method Not Allowed");
            assert_contains(&text, "New, TLSv");
            let (_, text) = s_client(&gateway, &[&flag, "-sess_in", &session], "");
            let kind = if resumes { "Reused, TLSv" } else { "New, TLSv" };
            assert_contains(&text, kind);
        }
    }
}

/// `openssl s_server`, which responds with a page about the session.
struct OpensslServer {
    process: Child,
    address: SocketAddr,
    /// Kept open, as it writes about each connection.
    _stdout: BufReader<ChildStdout>,
}

impl OpensslServer {
    fn start(arguments: &[&str]) -> Self {
        let [certificate, key] =
            ["backend.pem", "backend.key"].map(|file| certificate_file(file).display().to_string());
        // The kernel kills it if the test is killed.
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "openssl", "s_server", "-accept", "127.0.0.1:0", "-www"])
            .args(["-cert", &certificate, "-key", &key])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl; run make packages");
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut lines = stdout.by_ref().lines();
        let address = lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ")?.parse().ok());
        Self { process, address: address.expect("the address of s_server"), _stdout: stdout }
    }
}

impl Drop for OpensslServer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The response to a request through a gateway with TLS to its backend.
fn get(gateway: &TestGateway) -> String {
    let mut client = gateway.client();
    client.send(GET);
    let response = client.response().unwrap();
    match response.header("Content-Length") {
        Some(_) => format!("{} {}", response.status, response.text()),
        None => {
            let body = client.read_to_close();
            format!("{} {}", response.status, String::from_utf8_lossy(&body))
        }
    }
}

#[test]
fn openssl_as_backend_in_both_versions() {
    let tls = ", tls: { ca: ca.pem, server_name: backend.example }";
    for (arguments, version) in [(["-tls1_2"], "TLSv1.2"), (["-tls1_3"], "TLSv1.3")] {
        let server = OpensslServer::start(&arguments);
        let gateway = gateway("", tls, server.address);
        // Every response ends its connection.
        for kind in ["New", "Reused", "Reused"] {
            assert_contains(&get(&gateway), &format!("{kind}, {version}, Cipher is "));
        }
    }
    let old = OpensslServer::start(&["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"]);
    assert_contains(&get(&gateway("", tls, old.address)), "502 ");
    // An untrusted authority.
    let server = OpensslServer::start(&[]);
    let other = ", tls: { ca: site.pem, server_name: backend.example }";
    assert_contains(&get(&gateway("", other, server.address)), "502 ");
}

#[test]
fn nginx_as_backend_keeps_verified_connections() {
    let address = closed_port();
    let [certificate, key, ca] = ["backend.pem", "backend.key", "ca.pem"]
        .map(|file| certificate_file(file).display().to_string());
    // It accepts only the client with the certificate, and says what it sees.
    let server = format!(
        "server {{ listen {address} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};\n\
         ssl_client_certificate {ca}; ssl_verify_client on; keepalive_requests 3;\n\
         location / {{ return 200 \"$ssl_server_name $ssl_client_s_dn $connection_requests\\n\"; }} }}"
    );
    let _nginx = ForeignServer::nginx_with(&server, "return 200;");
    let tls = ", tls: { ca: ca.pem, server_name: backend.example, certificate: client.pem, key: client.key }";
    let gateway = gateway("", tls, address);
    for request in [1, 2, 3, 1, 2, 3, 1] {
        assert_eq!(get(&gateway), format!("200 backend.example CN=client {request}\n"));
    }
    let handshakes = |result: &str| {
        let labels = format!("{{pool=\"a\",backend=\"{address}\",result=\"{result}\"}}");
        gateway.metric(&format!("backend_tls_handshakes_total{labels}"))
    };
    assert_eq!((handshakes("full"), handshakes("resumed"), handshakes("failed")), (1, 2, 0));
    let without = self::gateway("", ", tls: { ca: ca.pem, server_name: backend.example }", address);
    assert_contains(&get(&without), "400 ");
}

#[test]
fn nginx_as_backend_over_http2() {
    let (plain, tls) = (closed_port(), closed_port());
    let [certificate, key] =
        ["backend.pem", "backend.key"].map(|file| certificate_file(file).display().to_string());
    let echo = ThreadedBackend::start(|mut peer: Peer| {
        while let Ok(head) = peer.head() {
            let length = head.split_once("Content-Length: ").map_or("0", |(_, rest)| rest);
            let body = peer.read(length.lines().next().unwrap().parse().unwrap());
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
            if head.starts_with("POST") {
                peer.send(body);
            }
        }
    });
    // It ends each connection after three requests by a GOAWAY.
    let server = format!(
        "server {{ listen {plain} http2; listen {tls} ssl http2; keepalive_requests 3;\n\
         ssl_certificate {certificate}; ssl_certificate_key {key};\n\
         location / {{ return 200 \"$server_protocol $scheme $host\n\"; }}\n\
         location /up {{ client_max_body_size 0; proxy_pass http://{}; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; }} }}",
        echo.addr()
    );
    let _nginx = ForeignServer::nginx_with(&server, "return 200;");
    let keys = ", protocol: h2, tls: { ca: ca.pem, server_name: backend.example }";
    for (address, keys, scheme) in [(plain, ", protocol: h2", "http"), (tls, keys, "https")] {
        let gateway = gateway("", keys, address);
        for _ in 0..10 {
            assert_eq!(get(&gateway), format!("200 HTTP/2.0 {scheme} x\n"));
        }
        let connections = format!("{{pool=\"a\",backend=\"{address}\"}}");
        assert_eq!(gateway.metric(&format!("backend_connections_total{connections}")), 4);
        let mut client = gateway.client();
        client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_contains(&client.head().unwrap(), "HTTP/1.1 200");
        let body = long_body();
        client.send(format!(
            "POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        let sending = {
            let mut stream = client.stream().try_clone().unwrap();
            let body = body.clone();
            std::thread::spawn(move || stream.write_all(&body).unwrap())
        };
        let response = client.response().unwrap();
        sending.join().unwrap();
        assert!(response.status == 200 && response.body == body);
    }
}

#[test]
fn certificate_files_are_read_again_on_reload() {
    let folder = TempDir::new().unwrap();
    let copy = |from: &str, to: &str| {
        fs::copy(certificate_file(from), folder.path().join(to)).unwrap();
    };
    copy("site.pem", "a.pem");
    copy("site.key", "a.key");
    let text = format!(
        "listeners: [{{ address: \"{}\", tls: {{ certificates: [{{ certificate: a.pem, key: a.key }}] }} }}]\n\
         pools: [{{ name: a, backends: [{{ address: \"127.0.0.1:1\" }}] }}]\nadmin: 127.0.0.1:0\n",
        closed_port()
    );
    let read = || Config::parse(&text, &folder.path().join("gateway.yaml"));
    let gateway = TestGateway::start(&read().unwrap());
    let subject = |expected: &str| {
        let (_, text) = s_client(&gateway, &[], "");
        assert_contains(&text, &format!("subject=CN = {expected}\n"));
    };
    subject("localhost");
    copy("shop.pem", "a.pem");
    read().unwrap_err();
    subject("localhost");
    copy("shop.key", "a.key");
    gateway.reload(read().unwrap());
    gateway.turn();
    subject("shop.example");
}
