//! curl.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use tollgate_gateway::config::Address;

use super::{mirror, output};
use crate::backend::{Backend, read_head};
use crate::served::Served;

/// What curl prints, which asks the gateway for `/path`.
fn curl(gateway: &Served, arguments: &[&str]) -> String {
    let place = match gateway.address() {
        Address::Unix(socket) => ["--unix-socket".to_owned(), socket.display().to_string()],
        Address::Tcp(address) => ["--connect-to".to_owned(), format!("::{address}")],
    };
    let mut all = vec!["-sS", "--max-time", "10"];
    all.extend(place.iter().map(String::as_str));
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

/// Sends 64 MiB without waiting for an invitation, and gives the answer's status and body.
fn upload_large(gateway: &Served, framing: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("upload");
    // The bytes do not matter, so that none of them takes room on the disk.
    fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let file = file.to_str().unwrap();
    curl(gateway, &["--upload-file", file, "-H", "Expect:", "-H", framing, "-w", "%{http_code}"])
}

fn on_any_port() -> Address {
    Address::Tcp(([127, 0, 0, 1], 0).into())
}

const FRAMINGS: [&str; 2] = ["X-Nothing: 1", "Transfer-Encoding: chunked"];

#[test]
fn an_upload_that_is_too_large_is_told_so_though_all_of_it_is_sent() {
    let backend = mirror();
    let gateway = Served::with(backend.address, |config| {
        config.listeners[0].address = on_any_port();
        config.limits.body_bytes = Some(1 << 20);
    });
    for framing in FRAMINGS {
        let told = upload_large(&gateway, framing);
        assert_eq!(told, "The body is longer than is passed on.\n413", "{framing}");
    }
}

#[test]
fn an_upload_that_the_backend_does_not_want_is_told_so_though_all_of_it_is_sent() {
    let backend = Backend::start(|mut stream: TcpStream| {
        // It closes over what it has not read, which is a reset.
        if read_head(&mut stream).is_some() {
            let answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let gateway = Served::with(backend.address, |config| {
        config.listeners[0].address = on_any_port();
    });
    for framing in FRAMINGS {
        assert_eq!(upload_large(&gateway, framing), "no\n403", "{framing}");
    }
}
