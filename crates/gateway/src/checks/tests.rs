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

/// A backend that answers every request with the status that was set last, and tells the last request.
fn backend(status: &Arc<AtomicU16>) -> (SocketAddr, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let status = Arc::clone(status);
    let (told, requests) = std::sync::mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut silent = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = [0; 1024];
            let bytes = client.read(&mut request).unwrap_or(0);
            told.try_send(String::from_utf8_lossy(&request[..bytes]).into_owned()).ok();
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
