//! curl.

use std::fs;

use tollgate_gateway::config::Address;

use super::{mirror, output};
use crate::served::Served;

/// What curl prints, which asks the gateway for `/path`.
fn curl(gateway: &Served, arguments: &[&str]) -> String {
    let Address::Unix(socket) = gateway.address() else { panic!("it listens on a Unix socket") };
    let socket = socket.to_str().unwrap();
    let mut all = vec!["-sS", "--max-time", "10", "--unix-socket", socket];
    all.extend(arguments);
    all.push("http://a/path");
    output("curl", &all)
}

#[test]
fn get_and_head() {
    let backend = mirror();
    let gateway = Served::before(backend.address);
    assert_eq!(curl(&gateway, &[]), "GET /path ");
    let head = curl(&gateway, &["--head"]);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Length: 11\r\n"), "{head}");
}

#[test]
fn http_1_0() {
    let backend = mirror();
    let gateway = Served::before(backend.address);
    let told = curl(&gateway, &["--http1.0", "--include"]);
    assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
    assert!(told.ends_with("GET /path "), "{told}");
    // An old client that asks for it keeps its connection.
    let told = curl(&gateway, &["--http1.0", "-H", "Connection: keep-alive", "--include"]);
    assert!(told.to_lowercase().contains("\r\nconnection: keep-alive\r\n"), "{told}");
}

#[test]
fn several_requests_share_a_connection() {
    let backend = mirror();
    let gateway = Served::before(backend.address);
    let connects =
        ["-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} ", "http://a/first"];
    assert_eq!(curl(&gateway, &connects), "1 0 ");
    assert_eq!(backend.connections(), 1);
}

#[test]
fn uploads_with_a_length_with_chunks_and_by_invitation() {
    let backend = mirror();
    let gateway = Served::before(backend.address);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("upload");
    let body: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    fs::write(&file, &body).unwrap();
    let file = file.to_str().unwrap();
    let from_file = format!("@{file}");
    let expected = |method: &str| format!("{method} /path {body}");

    let plain = curl(&gateway, &["--data-binary", &from_file, "-H", "Expect:"]);
    assert!(plain == expected("POST"));
    let chunked = curl(
        &gateway,
        &["--upload-file", file, "-H", "Transfer-Encoding: chunked", "-H", "Expect:"],
    );
    assert!(chunked == expected("PUT"));
    // curl waits for the invitation longer than it may take.
    for framing in ["X-Nothing: 1", "Transfer-Encoding: chunked"] {
        let invited = curl(
            &gateway,
            &[
                "--verbose",
                "--expect100-timeout",
                "9",
                "--upload-file",
                file,
                "-H",
                "Expect: 100-continue",
                "-H",
                framing,
            ],
        );
        assert!(invited == expected("PUT"), "{framing}");
    }
}
