//! The access log and `/metrics`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate_gateway::config::{AccessLog, LogFormat, LogTarget};

use crate::support::{Backend, GET, OK, TestGateway, config};

fn log_to(path: &Path) -> Option<AccessLog> {
    Some(AccessLog { to: LogTarget::File(path.to_owned()), format: LogFormat::Combined })
}

#[test]
fn every_response_is_counted_and_logged() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.access_log = log_to(&log);
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    let mut upstream = None;
    // The second header section is found in the cache.
    for _ in 0..2 {
        client.send("GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: me\r\n\r\n");
        let upstream = upstream.get_or_insert_with(|| backend.accept());
        upstream.head().unwrap();
        upstream.send(OK);
        client.expect(OK);
    }
    let mut invalid = gateway.client();
    invalid.send("GET /\r\n\r\n");
    let rejection = invalid.expect_local_response(400);
    invalid.finish();
    invalid.expect_closed();
    gateway.expect_metric("local_responses_total{status=\"400\"}", 1);
    gateway.expect_metric("client_connections_total", 2);
    gateway.expect_metric("responses_total{pool=\"default\",class=\"2xx\"}", 2);
    let of_backend = format!("{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    gateway.expect_metric(&format!("backend_requests_total{of_backend}"), 2);
    gateway.expect_metric(&format!("backend_connections{of_backend}"), 1);
    gateway.expect_metric("client_connections", 1);
    let sent_bytes = 2 * OK.len() + rejection.head.len() + rejection.body.len();
    gateway.expect_metric("client_sent_bytes_total", sent_bytes as u64);
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for line in &lines[..2] {
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert!(line.ends_with("] \"GET /a HTTP/1.1\" 200 2 \"-\" \"me\""), "{line}");
    }
    assert!(lines[2].contains(&format!("] \"\" 400 {} ", rejection.body.len())), "{text}");
}

#[test]
fn log_line_of_a_local_response_has_the_length_of_its_body() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.routes[0].path_prefix = "/in".to_owned();
    config.access_log = log_to(&log);
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send(GET.replace("GET", "HEAD"));
    client.head().unwrap();
    client.send(GET);
    let length = client.expect_local_response(404).body.len();
    client.finish();
    client.expect_closed();
    gateway.expect_metric("client_connections", 0);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("\"HEAD /a HTTP/1.1\" 404 0 "), "{text}");
    assert!(text.contains(&format!("\"GET /a HTTP/1.1\" 404 {length} ")), "{text}");
}

#[test]
fn slow_reader_of_the_access_log_delays_no_request_and_lost_lines_are_counted() {
    const REQUESTS: usize = 1_000;
    let (reader, writer) = std::io::pipe().unwrap();
    let pipe = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.routes[0].path_prefix = "/in".to_owned();
    config.access_log = log_to(&pipe);
    let gateway = TestGateway::start(&config);
    drop(writer);
    let mut client = gateway.client();
    let agent = "a".repeat(8_000);
    for number in 0..REQUESTS {
        client.send(format!("HEAD /{number} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n"));
        assert!(client.head().unwrap().starts_with("HTTP/1.1 404 "));
    }
    // The last line is counted before the end of its connection.
    drop(client);
    gateway.expect_metric("client_connections", 0);
    let lost = gateway.metric("access_log_dropped_lines_total") as usize;
    assert!(lost > 0, "{REQUESTS} lines were written to a reader that reads nothing");
    // A reader that reads again receives all buffered lines, whole and in order.
    let reading = std::thread::spawn(move || BufReader::new(reader).lines().collect::<Vec<_>>());
    gateway.drain();
    gateway.join();
    let mut last = None;
    let lines = reading.join().unwrap();
    assert_eq!(lines.len(), REQUESTS - lost);
    for line in lines {
        let line = line.unwrap();
        assert!(line.ends_with(&format!("\" 404 0 \"-\" \"{agent}\"")), "{line}");
        let number = line.split("HEAD /").nth(1).unwrap().split(' ').next().unwrap();
        let number: usize = number.parse().unwrap();
        assert!(last < Some(number), "{last:?} comes before {number}");
        last = Some(number);
    }
}
