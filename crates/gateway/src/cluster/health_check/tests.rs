//! Health checks of real backends, and responses judged by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicU16;
use std::thread;
use std::time::Duration;

use super::*;
use crate::config::Backend;
use crate::resolve::HostName;

/// Deadline that turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// The backend sends no response.
const SILENT: u16 = 0;

/// A backend that responds to every request with `status`, and the requests that it received.
fn backend(status: &Arc<AtomicU16>) -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let status = Arc::clone(status);
    let (sender, requests) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = [0; 1024];
            let bytes = client.read(&mut request).unwrap_or(0);
            sender.send(String::from_utf8_lossy(&request[..bytes]).into_owned()).ok();
            match status.load(Ordering::Relaxed) {
                SILENT => silent.push(client),
                status => {
                    // The check may have timed out.
                    client.write_all(format!("HTTP/1.1 {status} X\r\n\r\n").as_bytes()).ok();
                }
            }
        }
    });
    (address, requests)
}

fn pool(addresses: &[SocketAddr]) -> Pool {
    let backends = addresses.iter().map(|address| Backend::new(Address::Tcp(*address))).collect();
    let health = HealthCheck {
        request: Some(HealthRequest::get("/up?x=1")),
        interval: Duration::from_millis(10),
        timeout: Duration::from_millis(10),
        rise: 2,
        fall: 2,
    };
    Pool { health: Some(health), ..Pool::new("p", backends) }
}

fn wait_for(health: &PoolHealth, backend: usize, status: HealthStatus) {
    let until = Instant::now() + PATIENCE;
    while health.status(backend, Instant::now()) != status {
        assert!(Instant::now() < until, "backend {backend} did not become {status:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn failing_backend_is_down_until_it_recovers() {
    let status = Arc::new(AtomicU16::new(200));
    let (address, requests) = backend(&status);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut pool = pool(&[address, closed]);
    // Long enough for a busy machine, short enough to notice silence.
    if let Some(check) = &mut pool.health {
        check.timeout = Duration::from_millis(200);
    }
    let health = Arc::new(PoolHealth::new(&pool, Instant::now()));
    let checks = HealthChecks::start(std::slice::from_ref(&pool), &[Arc::clone(&health)]).unwrap();
    assert_eq!(
        requests.recv_timeout(PATIENCE).unwrap(),
        format!(
            "GET /up?x=1 HTTP/1.1\r\nHost: {address}\r\nUser-Agent: tollgate-gateway\r\n\
             Connection: close\r\n\r\n"
        )
    );
    wait_for(&health, 1, HealthStatus::Down);
    for bad in [503, SILENT] {
        status.store(bad, Ordering::Relaxed);
        wait_for(&health, 0, HealthStatus::Down);
        status.store(200, Ordering::Relaxed);
        wait_for(&health, 0, HealthStatus::Up);
    }
    drop(checks);
    // The thread has ended: behind the requests received so far come no more.
    while requests.try_recv().is_ok() {}
    assert!(requests.recv_timeout(Duration::from_millis(50)).is_err());
}

/// The checks of a pool whose backends are all down, and their status.
fn checks_of_down(pool: &Pool) -> (HealthChecks, Arc<PoolHealth>) {
    let health = Arc::new(PoolHealth::new(pool, Instant::now()));
    for backend in 0..pool.backends.len() {
        health.set_down(backend, true, Instant::now());
    }
    let checks = HealthChecks::start(std::slice::from_ref(pool), &[Arc::clone(&health)]);
    (checks.unwrap().unwrap(), health)
}

#[test]
fn expected_statuses_and_host_are_those_configured() {
    let status = Arc::new(AtomicU16::new(404));
    let ((first, of_first), (second, of_second)) = (backend(&status), backend(&status));
    let name = |host: &str, port| Some(HostName { host: host.to_owned(), port });
    let mut pool = pool(&[first, second]);
    pool.backends[0].name = name("site.example", 80);
    pool.backends[1].name = name("site.example", 8080);
    let Some(check) = &mut pool.health else { panic!("no check") };
    check.timeout = PATIENCE;
    check.request =
        Some(HealthRequest { statuses: vec![204..=204, 400..=404], ..HealthRequest::get("/") });
    let host_of = |requests: &std::sync::mpsc::Receiver<String>| {
        let request = requests.recv_timeout(PATIENCE).unwrap();
        request.lines().nth(1).unwrap().to_owned()
    };
    let (checks, health) = checks_of_down(&pool);
    wait_for(&health, 0, HealthStatus::Up);
    assert_eq!(host_of(&of_first), "Host: site.example");
    assert_eq!(host_of(&of_second), "Host: site.example:8080");
    status.store(200, Ordering::Relaxed);
    wait_for(&health, 0, HealthStatus::Down);
    drop(checks);
    while of_first.try_recv().is_ok() {}
    if let Some(HealthCheck { request: Some(request), .. }) = &mut pool.health {
        request.host = Some("up.example".to_owned());
    }
    let _checks = checks_of_down(&pool);
    assert_eq!(host_of(&of_first), "Host: up.example");
}

#[test]
fn check_without_a_request_needs_only_a_connection() {
    let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent, closed) = (bind(), bind().local_addr().unwrap());
    let address = silent.local_addr().unwrap();
    let mut pool = pool(&[address, closed]);
    let Some(check) = &mut pool.health else { panic!("no check") };
    (check.request, check.timeout) = (None, PATIENCE);
    let (_checks, health) = checks_of_down(&pool);
    wait_for(&health, 0, HealthStatus::Up);
    assert_eq!(health.status(1, Instant::now()), HealthStatus::Down);
    drop(silent);
    wait_for(&health, 0, HealthStatus::Down);
}

#[test]
fn pool_without_checks_starts_no_thread() {
    let pool = Pool::new("p", vec![Backend::new(Address::Tcp("127.0.0.1:1".parse().unwrap()))]);
    let health = Arc::new(PoolHealth::new(&pool, Instant::now()));
    assert!(HealthChecks::start(&[pool], &[health]).unwrap().is_none());
}

#[test]
fn frequent_reloads_neither_delay_nor_hasten_checks() {
    let status = Arc::new(AtomicU16::new(503));
    let (address, requests) = backend(&status);
    let mut pool = pool(&[address]);
    let interval = Duration::from_millis(100);
    if let Some(check) = &mut pool.health {
        check.interval = interval;
        check.timeout = PATIENCE;
        (check.rise, check.fall) = (3, 3);
    }
    let pools = std::slice::from_ref(&pool);
    // Health with the wrong status, which only the checks can correct.
    let wrong = |is_down: bool| {
        let health = PoolHealth::new(&pool, Instant::now());
        health.set_down(0, is_down, Instant::now());
        Arc::new(health)
    };
    let start = Instant::now();
    let checks = HealthChecks::start(pools, &[wrong(false)]).unwrap().unwrap();
    for (code, expected) in [(503, HealthStatus::Down), (200, HealthStatus::Up)] {
        status.store(code, Ordering::Relaxed);
        loop {
            let health = wrong(expected == HealthStatus::Up);
            checks.reload(pools, &[Arc::clone(&health)]).unwrap();
            thread::sleep(Duration::from_millis(10));
            if health.status(0, Instant::now()) == expected {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "it did not become {expected:?}");
        }
    }
    let (count, elapsed) = (requests.try_iter().count(), start.elapsed());
    assert!(count >= 6, "only {count} checks");
    assert!(
        count as u128 <= 1 + elapsed.as_millis() / interval.as_millis(),
        "{count} in {elapsed:?}"
    );
}

#[test]
fn reload_checks_changed_backend_at_once_and_removed_one_no_more() {
    let status = Arc::new(AtomicU16::new(200));
    let ((first, of_first), (second, of_second)) = (backend(&status), backend(&status));
    let pool = |addresses: &[SocketAddr], path: &str| {
        let mut pool = pool(addresses);
        if let Some(check) = &mut pool.health {
            check.request = Some(HealthRequest::get(path));
            check.interval = 10 * PATIENCE;
            check.timeout = PATIENCE;
        }
        let health = PoolHealth::new(&pool, Instant::now());
        ([pool], [Arc::new(health)])
    };
    let path_of = |requests: &std::sync::mpsc::Receiver<String>| {
        let request = requests.recv_timeout(PATIENCE).unwrap();
        request.split(' ').nth(1).unwrap().to_owned()
    };
    let (pools, health) = pool(&[first], "/a");
    let checks = HealthChecks::start(&pools, &health).unwrap().unwrap();
    assert_eq!(path_of(&of_first), "/a");
    let (pools, health) = pool(&[second, first], "/a");
    checks.reload(&pools, &health).unwrap();
    assert_eq!(path_of(&of_second), "/a");
    let (pools, health) = pool(&[second], "/b");
    checks.reload(&pools, &health).unwrap();
    assert_eq!(path_of(&of_second), "/b");
    assert!(of_first.try_recv().is_err());
}

#[test]
fn status_200_to_399_is_a_success() {
    let judged = |response: &[u8]| {
        judge(&mut response.to_vec(), &[200..=399])
            .map(|result| result.map_err(|error| error.to_string()))
    };
    for success in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"[..],
        b"HTTP/1.0 399 Odd\r\n\r\nbody",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ] {
        assert_eq!(judged(success), Some(Ok(())), "{}", success.escape_ascii());
    }
    for part in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"] {
        assert_eq!(judged(part), None, "{}", part.escape_ascii());
    }
    assert_eq!(judged(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Some(Err("status 400".to_owned())));
    let error = judged(b"220 mail.example.org ESMTP\r\n").unwrap().unwrap_err();
    assert!(error.starts_with("invalid response: "), "{error}");
}
