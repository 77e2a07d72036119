//! Checks of backends that behave in every way that they may.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicU16;
use std::thread;
use std::time::Duration;

use super::*;
use crate::config::Backend;

/// How long a change may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says nothing at all.
const SILENT: u16 = 0;

/// A backend that answers every request with the status that was set last, and tells the requests.
fn backend(status: &Arc<AtomicU16>) -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let status = Arc::clone(status);
    let (told, requests) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = [0; 1024];
            let bytes = client.read(&mut request).unwrap_or(0);
            told.send(String::from_utf8_lossy(&request[..bytes]).into_owned()).ok();
            match status.load(Ordering::Relaxed) {
                SILENT => silent.push(client),
                status => {
                    // The check may be given up by now.
                    client.write_all(format!("HTTP/1.1 {status} X\r\n\r\n").as_bytes()).ok();
                }
            }
        }
    });
    (address, requests)
}

fn pool(addresses: &[SocketAddr]) -> Pool {
    let backends = addresses.iter().map(|address| Backend::new(Address::Tcp(*address))).collect();
    let health = ActiveHealth {
        path: "/up?x=1".to_owned(),
        interval: Duration::from_millis(10),
        timeout: Duration::from_millis(10),
        rise: 2,
        fall: 2,
    };
    Pool { health: Some(health), ..Pool::new("p", backends) }
}

fn wait_for(health: &PoolHealth, backend: usize, standing: Standing) {
    let until = Instant::now() + PATIENCE;
    while health.standing(backend, Instant::now()) != standing {
        assert!(Instant::now() < until, "backend {backend} did not come to be {standing:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_backend_is_left_out_while_it_does_not_answer_well() {
    let status = Arc::new(AtomicU16::new(200));
    let (address, requests) = backend(&status);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut pool = pool(&[address, nobody]);
    // The good answers of a busy machine may be late; silence has to be noticed all the same.
    if let Some(terms) = &mut pool.health {
        terms.timeout = Duration::from_millis(200);
    }
    let health = Arc::new(PoolHealth::new(2, pool.health.as_ref(), None, Instant::now()));
    let checks = Checks::start(std::slice::from_ref(&pool), &[Arc::clone(&health)]).unwrap();
    assert_eq!(
        requests.recv_timeout(PATIENCE).unwrap(),
        format!(
            "GET /up?x=1 HTTP/1.1\r\nHost: {address}\r\nUser-Agent: tollgate-gateway\r\n\
             Connection: close\r\n\r\n"
        )
    );
    wait_for(&health, 1, Standing::Down);
    for bad in [503, SILENT] {
        status.store(bad, Ordering::Relaxed);
        wait_for(&health, 0, Standing::Down);
        status.store(200, Ordering::Relaxed);
        wait_for(&health, 0, Standing::Well);
    }
    drop(checks);
    // Nobody asks any more, once the requests from before are taken.
    while requests.try_recv().is_ok() {}
    assert!(requests.recv_timeout(Duration::from_millis(50)).is_err());
}

#[test]
fn pools_that_want_no_checks_get_none() {
    let pool = Pool::new("p", vec![Backend::new(Address::Tcp("127.0.0.1:1".parse().unwrap()))]);
    let health = Arc::new(PoolHealth::new(1, None, None, Instant::now()));
    assert!(Checks::start(&[pool], &[health]).unwrap().is_none());
}

#[test]
fn reloads_that_come_faster_than_checks_hold_none_of_them_up_and_hurry_none() {
    let status = Arc::new(AtomicU16::new(503));
    let (address, requests) = backend(&status);
    let mut pool = pool(&[address]);
    let interval = Duration::from_millis(100);
    if let Some(terms) = &mut pool.health {
        terms.interval = interval;
        terms.timeout = PATIENCE;
        (terms.rise, terms.fall) = (3, 3);
    }
    let pools = std::slice::from_ref(&pool);
    // What is known is known to the checks alone.
    let wrong = |is_down: bool| {
        let health = PoolHealth::new(1, pool.health.as_ref(), None, Instant::now());
        health.set_down(0, is_down);
        Arc::new(health)
    };
    let start = Instant::now();
    let checks = Checks::start(pools, &[wrong(false)]).unwrap().unwrap();
    for (now, standing) in [(503, Standing::Down), (200, Standing::Well)] {
        status.store(now, Ordering::Relaxed);
        loop {
            let health = wrong(standing == Standing::Well);
            checks.change(pools, &[Arc::clone(&health)]).unwrap();
            thread::sleep(Duration::from_millis(10));
            if health.standing(0, Instant::now()) == standing {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "it did not come to be {standing:?}");
        }
    }
    let (asked, taken) = (requests.try_iter().count(), start.elapsed());
    assert!(asked >= 6, "{asked} checks were enough");
    assert!(asked as u128 <= 1 + taken.as_millis() / interval.as_millis(), "{asked} in {taken:?}");
}

#[test]
fn a_backend_that_is_asked_in_another_way_is_asked_at_once_and_others_no_more() {
    let status = Arc::new(AtomicU16::new(200));
    let ((first, of_first), (second, of_second)) = (backend(&status), backend(&status));
    let of = |addresses: &[SocketAddr], path: &str| {
        let mut pool = pool(addresses);
        if let Some(terms) = &mut pool.health {
            terms.path = path.to_owned();
            terms.interval = 10 * PATIENCE;
            terms.timeout = PATIENCE;
        }
        let count = addresses.len();
        let health = PoolHealth::new(count, pool.health.as_ref(), None, Instant::now());
        ([pool], [Arc::new(health)])
    };
    let asked = |requests: &std::sync::mpsc::Receiver<String>| {
        let request = requests.recv_timeout(PATIENCE).unwrap();
        request.split(' ').nth(1).unwrap().to_owned()
    };
    let (pools, health) = of(&[first], "/a");
    let checks = Checks::start(&pools, &health).unwrap().unwrap();
    assert_eq!(asked(&of_first), "/a");
    let (pools, health) = of(&[second, first], "/a");
    checks.change(&pools, &health).unwrap();
    assert_eq!(asked(&of_second), "/a");
    let (pools, health) = of(&[second], "/b");
    checks.change(&pools, &health).unwrap();
    assert_eq!(asked(&of_second), "/b");
    assert!(of_first.try_recv().is_err());
}
