//! Listening, threads, stopping and the access log.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Client, GET_ONE, ONE, PATIENCE, Served, get, on_any_port, tcp_addr};
use tollgate_origin::{Address, Config, Error, LogTarget, Origin};

/// Time that a stopping origin gives to requests in flight.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A client whose bytes have been read: a response on a later connection shows it.
fn client_after_sending(origin: &Served, bytes: &[u8]) -> Client {
    let mut client = origin.client();
    client.send(bytes);
    origin.assert_responds();
    client
}

/// Passes if the origin stops before the timeout in one of several attempts, as a busy machine may
/// delay some.
fn stops_before_timeout(attempt: impl Fn() -> Duration) {
    let times: Vec<Duration> = (0..5).map(|_| attempt()).collect();
    assert!(times.iter().any(|time| *time < STOP_TIMEOUT * 9 / 10), "{times:?}");
}

#[test]
fn idle_connections_do_not_delay_stop() {
    for threads in [1, 3] {
        stops_before_timeout(|| {
            let origin = Served::start(threads);
            let addr = origin.addr;
            let mut clients: Vec<_> = (0..8).map(|_| origin.client()).collect();
            for client in &mut clients {
                client.send(GET_ONE);
                client.expect(ONE);
            }
            let (result, took) = origin.stop();
            result.unwrap();
            clients.iter_mut().for_each(|client| client.expect_last(""));
            // The port is free again.
            Origin::bind(&Config { listen: Address::Tcp(addr), ..on_any_port(threads) }).unwrap();
            took
        });
    }
}

#[test]
fn requests_in_flight_finish() {
    let origin = Served::start(1);
    let mut large = origin.client();
    large.send(b"GET /?payload=16777216 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(large.head().contains("\r\nContent-Length: 16777216\r\n"));
    let mut waiting = client_after_sending(&origin, get("/sleep?time=0.4").as_bytes());
    let body = b"POST /?payload=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo";
    let mut incomplete = client_after_sending(&origin, body);
    origin.stopper.stop().unwrap();
    incomplete.send(b"dy");
    incomplete.expect(ONE);
    assert_eq!(large.read_to_end().len(), 16 << 20);
    let response = waiting.read_to_end();
    assert!(response.contains("\r\n\r\n{\"time\":0."), "{response}");
    origin.stop().0.unwrap();
}

#[test]
fn incomplete_request_delays_stop_until_timeout() {
    let origin = Served::start(1);
    let _incomplete = client_after_sending(&origin, b"GET /?payl");
    let (result, took) = origin.stop();
    result.unwrap();
    assert!((STOP_TIMEOUT * 99 / 100..PATIENCE).contains(&took), "{took:?}");
}

#[test]
fn response_due_after_timeout_is_dropped_on_stop() {
    stops_before_timeout(|| {
        let origin = Served::start(1);
        let mut waiting = client_after_sending(&origin, get("/sleep?time=50").as_bytes());
        let (result, took) = origin.stop();
        result.unwrap();
        waiting.expect_last("");
        took
    });
}

#[test]
fn origin_may_be_stopped_before_it_serves() {
    let origin = Origin::bind(&on_any_port(2)).unwrap();
    origin.stopper().stop().unwrap();
    origin.serve().unwrap();
}

#[test]
fn stopping_one_origin_leaves_another_running() {
    let first = Served::start(1);
    let second = Served::start(2);
    assert_ne!(first.addr.port(), second.addr.port());
    first.stop().0.unwrap();
    second.assert_responds();
}

#[test]
fn port_is_never_shared_with_another_origin() {
    for (running, threads) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let origin = Served::start(running);
        let listen = Address::Tcp(origin.addr);
        let error = Origin::bind(&Config { listen, ..on_any_port(threads) }).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot listen on {}; stop the program that uses it or choose another address",
                origin.addr
            )
        );
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with("Address already in use"), "{cause}");
    }
}

#[test]
fn every_thread_responds() {
    let origin = Served::start(4);
    let mut clients: Vec<_> = (0..64).map(|_| origin.client()).collect();
    clients.iter_mut().for_each(|client| client.send(GET_ONE));
    clients.iter_mut().for_each(|client| client.expect(ONE));
}

#[test]
fn invalid_thread_counts_are_rejected() {
    for threads in [0, 257] {
        assert_eq!(
            Origin::bind(&on_any_port(threads)).unwrap_err().to_string(),
            format!("cannot run {threads} threads: must be 1 to 256")
        );
    }
}

#[test]
fn thread_that_cannot_start_ends_the_others() {
    let config = Config { cpus: vec![0, 1_000_000], ..on_any_port(2) };
    let error = Origin::bind(&config).unwrap().serve().unwrap_err();
    assert!(matches!(error, Error::Pin { cpu: 1_000_000, .. }), "{error:?}");
}

/// Configuration with an access log in a temporary directory.
fn with_log(dir: &tempfile::TempDir) -> (Config, PathBuf) {
    let path = dir.path().join("log");
    let access_log = Some(LogTarget::File(path.clone()));
    (Config { access_log, ..on_any_port(1) }, path)
}

#[test]
fn requests_received_before_stop_get_responses_and_log_entries() {
    const CLIENTS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = with_log(&dir);
    let origin = Origin::bind(&config).unwrap();
    let addr = tcp_addr(&origin);
    // No connection is accepted yet, as on a busy machine.
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(addr)).collect();
    clients.iter_mut().for_each(|client| client.send(GET_ONE));
    origin.stopper().stop().unwrap();
    origin.serve().unwrap();
    for client in &mut clients {
        let response = client.read_to_end();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    }
    let log = std::fs::read_to_string(&path).unwrap();
    assert_eq!(log.lines().count(), CLIENTS);
}

#[test]
fn access_log_has_one_line_per_request() {
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = with_log(&dir);
    std::fs::write(&path, "before\n").unwrap();
    let origin = Served::with_config(&config);
    let mut client = origin.client();
    client.send(
        b"POST /echo?a HTTP/1.1\r\nHost: a\r\nUser-Agent: \"me\"\r\nContent-Length: 5\r\n\r\nhel",
    );
    client.send(b"loHEAD /zero HTTP/1.0\r\nReferer: /b\r\n\r\n");
    client.read_to_end();
    let mut client = origin.client();
    client.send(b"GET\r\n\r\n");
    client.read_to_end();
    origin.stop().0.unwrap();
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "before"), "{log}");
    for (line, end) in lines[1..].iter().zip([
        "\"POST /echo?a HTTP/1.1\" 200 5 \"-\" \"\\x22me\\x22\"",
        "\"HEAD /zero HTTP/1.0\" 200 0 \"/b\" \"-\"",
        "\"\" 400 67 \"-\" \"-\"",
    ]) {
        // 127.0.0.1 - - [21/Nov/2026:20:38:08 +0000] and the rest.
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert_eq!(line.split_once("] ").map(|(_, end)| end), Some(end));
    }
    let missing = Some(LogTarget::File(dir.path().join("none/log")));
    let error = Origin::bind(&Config { access_log: missing, ..on_any_port(1) }).unwrap_err();
    let path = dir.path().join("none/log").display().to_string();
    assert_eq!(
        error.to_string(),
        format!("cannot open access log `{path}`; choose a file in a writable directory")
    );
}

#[test]
fn access_log_has_bytes_sent_of_incomplete_responses() {
    const LARGE: u64 = 67_108_864;
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = with_log(&dir);
    let origin = Served::with_config(&config);
    let mut disconnecting = origin.client();
    disconnecting.send(get(&format!("/?payload={LARGE}")).as_bytes());
    disconnecting.head();
    disconnecting.skip(1_000_000);
    drop(disconnecting);
    let mut waiting = origin.client();
    waiting.send(get("/sleep?time=50").as_bytes());
    let mut uploading = origin.client();
    uploading.send(b"PUT /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbo");
    // Two responses in one send.
    let mut other = origin.client();
    other.send(&GET_ONE.repeat(2));
    other.expect(&ONE.repeat(2));
    drop(uploading);
    origin.stop().0.unwrap();
    waiting.expect_last("");

    let log = std::fs::read_to_string(&path).unwrap();
    // Status and body bytes of the requests that contain a text.
    let logged = |request: &str| -> Vec<(u16, u64)> {
        let lines = log.lines().filter(|line| line.contains(request));
        lines
            .map(|line| {
                let mut words = line.rsplit(' ').skip(2);
                let bytes = words.next().unwrap().parse().unwrap();
                (words.next().unwrap().parse().unwrap(), bytes)
            })
            .collect()
    };
    assert_eq!(logged("\"GET /?payload=1 HTTP/1.1\""), [(200, 1), (200, 1)], "{log}");
    assert_eq!(logged("/sleep"), [(499, 0)], "{log}");
    assert_eq!(logged("/upload"), [(499, 0)], "{log}");
    let large = logged("67108864");
    assert_eq!(large.len(), 1, "{log}");
    assert!(large[0].0 == 200 && (1_000_000..LARGE).contains(&large[0].1), "{log}");
}

fn on_path(path: &Path, threads: usize) -> Config {
    Config { threads, ..Config::new(Address::Unix(path.to_owned())) }
}

fn assert_responds_on(path: &Path) {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /?payload=300000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write_all(request).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(response.ends_with(&format!("\r\n\r\n{}", "x".repeat(300_000))));
}

#[test]
fn unix_socket_is_served_by_all_threads_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("origin.sock");
    for threads in [1, 3] {
        let origin = Origin::bind(&on_path(&path, threads)).unwrap();
        assert_eq!(origin.listens_on(), &Address::Unix(path.clone()));
        let stopper = origin.stopper();
        let serving = std::thread::spawn(move || origin.serve());
        (0..20).for_each(|_| assert_responds_on(&path));
        stopper.stop().unwrap();
        serving.join().unwrap().unwrap();
        assert!(!path.exists());
    }
}

#[test]
fn stale_unix_socket_is_replaced_but_other_files_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("origin.sock");
    drop(UnixListener::bind(&path).unwrap());
    let origin = Origin::bind(&on_path(&path, 1)).unwrap();

    let error = Origin::bind(&on_path(&path, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot listen on unix:{}; stop the program that uses it or choose another address",
            path.display()
        )
    );
    // The failed attempt left the socket of the first origin.
    let stopper = origin.stopper();
    let serving = std::thread::spawn(move || origin.serve());
    assert_responds_on(&path);

    // A file that replaced the socket is not removed.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    stopper.stop().unwrap();
    serving.join().unwrap().unwrap();
    let error = Origin::bind(&on_path(&path, 1)).unwrap_err();
    assert!(error.to_string().ends_with("; not a socket; choose another path"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn concurrent_replacement_of_unix_socket_has_one_winner() {
    const CONCURRENT: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("origin.sock");
    for round in 0..40 {
        drop(UnixListener::bind(&path).unwrap());
        let start = std::sync::Barrier::new(CONCURRENT);
        let bound: Vec<_> = std::thread::scope(|scope| {
            let bind = || {
                start.wait();
                Origin::bind(&on_path(&path, 1))
            };
            let threads: Vec<_> = (0..CONCURRENT).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let errors: Vec<String> = bound
            .iter()
            .filter_map(|bound| bound.as_ref().err())
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors.len(), CONCURRENT - 1, "round {round}: {errors:?}");
        let advice = "; stop the program that uses it or choose another address";
        assert!(errors.iter().all(|error| error.ends_with(advice)), "{errors:?}");
        UnixStream::connect(&path).unwrap();
        drop(bound);
        assert!(!path.exists());
    }
}

#[test]
fn invalid_unix_path_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("none/origin.sock"), dir.path().join("x".repeat(108))] {
        let error = Origin::bind(&on_path(&path, 1)).unwrap_err();
        let advice = "; choose a path of at most 107 bytes in a readable and writable directory";
        assert!(error.to_string().ends_with(advice), "{error}");
    }
}

#[test]
fn polling_origin_serves_and_counts_idle_polling() {
    let origin = Served::with_config(&Config { busy_poll: true, ..on_any_port(2) });
    let mut client = origin.client();
    let deadline = Instant::now() + PATIENCE;
    while origin.counter("polled_us") < 1_000 {
        assert!(Instant::now() < deadline, "no polling");
        client.send(GET_ONE);
        client.expect(ONE);
    }
    let (stopped, _) = origin.stop();
    stopped.unwrap();

    let sleeping = Served::start(1);
    sleeping.assert_responds();
    assert_eq!(sleeping.counter("polled_us"), 0);
}
