use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_gateway::config::{
    AccessLog, ActiveHealth, Address, Backend as Listed, Ejection, LogFormat, LogTarget,
};

use crate::support::{Backend, GET, OK, PATIENCE, Served};

/// Asks the admin listener.
fn admin(served: &mut Served, path: &str) -> String {
    let address = served.gateway().admin_address().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until `/metrics` has this line.
fn expect_metric(served: &mut Served, line: &str) {
    let until = Instant::now() + PATIENCE;
    loop {
        let page = admin(served, "/metrics");
        if page.lines().any(|other| other == line) {
            return;
        }
        assert!(Instant::now() < until, "{line} is not in {page}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_answered_is_counted_and_logged() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let backend = Backend::start();
    let mut config = backend.config();
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.access_log =
        Some(AccessLog { to: LogTarget::File(log.clone()), format: LogFormat::Combined });
    let mut served = Served::start(config);
    let mut client = served.client();
    let mut peer = None;
    // The second is recalled, and not parsed.
    for _ in 0..2 {
        client.send("GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: me\r\n\r\n");
        let peer = peer.get_or_insert_with(|| backend.accept());
        peer.head();
        peer.send(OK);
        client.expect(OK);
    }
    let mut odd = served.client();
    odd.send("GET /\r\n\r\n");
    let mut refusal = Vec::new();
    odd.stream.read_to_end(&mut refusal).unwrap();
    assert!(refusal.starts_with(b"HTTP/1.1 400 "), "{}", refusal.escape_ascii());
    drop(odd);
    let body_start = refusal.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let body_bytes = refusal.len() - body_start;
    expect_metric(&mut served, "tollgate_gateway_own_answers_total{status=\"400\"} 1");
    expect_metric(&mut served, "tollgate_gateway_client_connections_total 2");
    expect_metric(&mut served, "tollgate_gateway_answers_total{pool=\"default\",class=\"2xx\"} 2");
    let of_backend = format!("{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    expect_metric(&mut served, &format!("tollgate_gateway_backend_requests_total{of_backend} 2"));
    expect_metric(&mut served, &format!("tollgate_gateway_backend_connections{of_backend} 1"));
    expect_metric(&mut served, "tollgate_gateway_client_connections 1");
    let sent_bytes = 2 * OK.len() + refusal.len();
    expect_metric(&mut served, &format!("tollgate_gateway_client_sent_bytes_total {sent_bytes}"));
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[2].contains(&format!("] \"\" 400 {body_bytes} ")), "{text}");
    for line in &lines[..2] {
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert!(line.ends_with("] \"GET /a HTTP/1.1\" 200 2 \"-\" \"me\""), "{line}");
    }
}

#[test]
fn a_line_of_an_answer_of_its_own_tells_how_long_that_was() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let backend = Backend::start();
    let mut config = backend.config();
    config.routes[0].path_prefix = "/in".to_owned();
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.access_log =
        Some(AccessLog { to: LogTarget::File(log.clone()), format: LogFormat::Combined });
    let mut served = Served::start(config);
    let mut client = served.client();
    client.send(GET.replace("GET", "HEAD"));
    client.head();
    client.send(GET);
    client.head();
    let text = "Nothing is served for this host and path.\n";
    client.expect(text);
    client.finish();
    client.expect_end();
    expect_metric(&mut served, "tollgate_gateway_client_connections 0");
    let lines = fs::read_to_string(&log).unwrap();
    assert!(lines.contains("\"HEAD /a HTTP/1.1\" 404 0 "), "{lines}");
    assert!(lines.contains(&format!("\"GET /a HTTP/1.1\" 404 {} ", text.len())), "{lines}");
}

#[test]
fn a_backend_that_breaks_its_answers_off_is_left_alone() {
    let backend = Backend::start();
    let mut config = backend.config();
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.pools[0].eject = Some(Ejection { failures: 4, for_time: Duration::from_secs(3_600) });
    config.timeouts.body = Duration::from_millis(200);
    let mut served = Served::start(config);
    let of_backend = format!("{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    let begun = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 9\r\n\r\nhalf";
    let chunked = "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n";
    let ask = |answer: &str| {
        let mut client = served.client();
        client.send(GET);
        let mut peer = backend.accept();
        peer.expect(GET);
        peer.send(answer);
        client.expect(answer);
        (client, peer)
    };
    // A client that leaves is no failure of its backend's.
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(begun);
    // Closing over what was not read is a reset.
    client.read(10);
    drop(client);
    peer.expect_end();
    // Nor is one that takes nothing.
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    let long = vec![b'x'; 64 << 20];
    peer.send(format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {}\r\n\r\n", long.len()));
    peer.stream.write_all(&long).unwrap_err();
    drop((client, peer));
    // It closes, it sends what is no chunk, and it stalls.
    let (mut client, peer) = ask(begun);
    drop(peer);
    client.expect_end();
    let (mut client, mut peer) = ask(chunked);
    peer.send("no chunk\r\n");
    client.expect_end();
    let (mut client, _peer) = ask(chunked);
    client.expect_end();
    expect_metric(&mut served, &format!("tollgate_gateway_backend_failures_total{of_backend} 3"));
    expect_metric(&mut served, &format!("tollgate_gateway_backend_ejected{of_backend} 0"));
    let mut client = served.client();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send(begun);
    client.expect(begun);
    drop(peer);
    client.expect_end();
    expect_metric(&mut served, &format!("tollgate_gateway_backend_ejected{of_backend} 1"));
}

/// The file that a pipe leads to whose reader has not read anything yet.
fn pipe(folder: &TempDir) -> (std::path::PathBuf, fs::File) {
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // With both ends, opening it waits for nobody.
    let reader = fs::File::options().read(true).write(true).open(&path).unwrap();
    (path, reader)
}

#[test]
fn a_slow_reader_of_the_access_log_holds_up_no_request_and_what_it_misses_is_counted() {
    const REQUESTS: usize = 1_000;
    let folder = TempDir::new().unwrap();
    let (path, reader) = pipe(&folder);
    let backend = Backend::start();
    let mut config = backend.config();
    config.routes[0].path_prefix = "/in".to_owned();
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.access_log = Some(AccessLog { to: LogTarget::File(path), format: LogFormat::Combined });
    let mut served = Served::start(config);
    let mut client = served.client();
    let agent = "a".repeat(8_000);
    for number in 0..REQUESTS {
        client.send(format!("HEAD /{number} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 404 "));
    }
    // What the last one's line came to is counted before its connection is seen to end.
    drop(client);
    expect_metric(&mut served, "tollgate_gateway_client_connections 0");
    let name = "tollgate_gateway_access_log_lost_lines_total ";
    let page = admin(&mut served, "/metrics");
    let lost = page.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let lost: usize = lost.parse().unwrap();
    assert!(lost > 0, "a reader that reads nothing has {REQUESTS} lines");
    // When it reads again, it gets all that was kept, each line whole and in order; the last one at the end.
    let (told, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        use std::io::BufRead;
        for line in std::io::BufReader::new(reader).lines() {
            if told.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    served.gateway().drain().unwrap();
    served.join();
    let mut last = None;
    for _ in 0..REQUESTS - lost {
        let line = lines.recv_timeout(PATIENCE).unwrap();
        assert!(line.ends_with(&format!("\" 404 0 \"-\" \"{agent}\"")), "{line}");
        let number = line.split("HEAD /").nth(1).unwrap().split(' ').next().unwrap();
        let number: usize = number.parse().unwrap();
        assert!(last < Some(number), "{last:?} comes before {number}");
        last = Some(number);
    }
    lines.try_recv().unwrap_err();
}

#[test]
fn a_client_has_no_more_connections_than_it_may() {
    let backend = Backend::start();
    let mut config = backend.config();
    config.limits.connections_per_client = Some(1);
    let served = Served::start(config);
    let mut first = served.client();
    first.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    let mut second = served.client();
    second.expect_end();
    peer.send(OK);
    first.expect(OK);
    first.finish();
    first.expect_end();
    // The place is free when the first is closed, which it has seen.
    let mut third = served.client();
    third.send(GET);
    peer.expect(GET);
    peer.send(OK);
    third.expect(OK);
}

#[test]
fn a_backend_that_fails_requests_is_left_alone_and_one_that_fails_checks_gets_none() {
    let backend = Backend::start();
    // Nobody listens there any more.
    let gone = Backend::start().address();
    let mut config = backend.config();
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.pools[0].backends.insert(0, Listed::new(gone.clone()));
    config.pools[0].eject = Some(Ejection { failures: 1, for_time: Duration::from_secs(3_600) });
    let mut served = Served::start(config.clone());
    let mut client = served.client();
    let mut peer = None;
    for _ in 0..3 {
        client.send(GET);
        let peer = peer.get_or_insert_with(|| backend.accept());
        peer.expect(GET);
        peer.send(OK);
        client.expect(OK);
    }
    let of = |address: &Address| format!("{{pool=\"default\",backend=\"{address}\"}}");
    expect_metric(&mut served, &format!("tollgate_gateway_backend_failures_total{} 1", of(&gone)));
    expect_metric(&mut served, &format!("tollgate_gateway_backend_ejected{} 1", of(&gone)));
    expect_metric(&mut served, "tollgate_gateway_retries_total{pool=\"default\"} 1");

    // With checks, and the counts of before; both that listen nowhere are found.
    let also_gone = Backend::start().address();
    config.pools[0].backends[1] = Listed::new(also_gone.clone());
    config.pools[0].eject = None;
    config.pools[0].health = Some(ActiveHealth {
        path: "/".to_owned(),
        interval: Duration::from_millis(10),
        timeout: Duration::from_millis(10),
        rise: 1,
        fall: 2,
    });
    served.gateway().reload(config).unwrap();
    expect_metric(&mut served, &format!("tollgate_gateway_backend_up{} 0", of(&gone)));
    expect_metric(&mut served, &format!("tollgate_gateway_backend_up{} 0", of(&also_gone)));
    expect_metric(&mut served, "tollgate_gateway_answers_total{pool=\"default\",class=\"2xx\"} 3");
    expect_metric(&mut served, "tollgate_gateway_reloads_total{result=\"done\"} 1");
    let mut late = served.client();
    late.send(GET);
    assert!(late.head().starts_with("HTTP/1.1 503 "));
    served.gateway().drain().unwrap();
    assert!(admin(&mut served, "/healthz").starts_with("HTTP/1.1 503 "));
}
