//! Another configuration under load: no request is lost. And another thousands of times: no memory is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tollgate_gateway::config::{Address, Backend as Listed, Listener};

use super::{echo, is_echo};
use crate::caller::Caller;
use crate::own_process::OwnProcess;
use crate::served::Served;

const CLIENTS: usize = 8;

/// Where the backend of another process listens, whose memory is not to be counted.
const BACKEND: &str = "TOLLGATE_TEST_RELOAD_BACKEND";

/// How many reloads a gateway goes through, and after how many it is to have the memory that it will have.
const RELOADS: usize = 10_000;
const RELOADS_AT_FIRST: usize = 1_500;

/// How much more memory it may have in the end: what the allocator makes of the same use.
const GROWTH_MAX_BYTES: u64 = 3 << 20;

#[test]
fn reloading_under_load_loses_no_request() {
    reload_under_load(20_000);
}

#[test]
#[ignore = "it takes ten seconds, and is a part of `make bench`; the test above does a fifth of it"]
fn reloading_under_load_loses_none_of_a_hundred_thousand() {
    reload_under_load(100_000);
}

/// Half of the clients keep their connections, the other half opens one a request.
fn reload_under_load(requests: usize) {
    let backends = [echo(), echo()];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let gateway = Served::on_tcp(&addresses[..1]);
    let is_over = AtomicBool::new(false);
    let done = AtomicUsize::new(0);
    let ask = |client: usize| {
        let mut caller = Caller::connect(gateway.address()).unwrap();
        for number in 0..requests / CLIENTS {
            let path = format!("/{client}/{number}");
            let answer = caller.get(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(is_echo(&answer, &path), "to {path}: {answer:?}");
            if answer.is_last() || client.is_multiple_of(2) {
                caller = Caller::connect(gateway.address()).unwrap();
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let reloads = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || ask(client))).collect();
        let reloading = scope.spawn(|| {
            let mut reloads = 0;
            while !is_over.load(Ordering::Relaxed) {
                // The pool grows and shrinks.
                gateway.reload(&addresses[..1 + reloads % 2]);
                reloads += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            reloads
        });
        let outcomes: Vec<_> =
            clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        let reloads = reloading.join().unwrap();
        for outcome in outcomes {
            outcome.unwrap();
        }
        reloads
    });
    assert_eq!(done.into_inner(), requests / CLIENTS * CLIENTS);
    assert!(reloads >= 10, "only {reloads} reloads while it lasted");
    println!("{requests} requests, {reloads} reloads, none lost");
}

#[test]
fn ten_thousand_reloads_take_no_more_memory_than_the_first_of_them() {
    let backend = echo();
    let address = backend.address.to_string();
    OwnProcess::of("faults::reload::reloads_ten_thousand_times", &[(BACKEND, address)]).end();
}

#[test]
#[ignore = "the test above runs it, as a process of its own"]
fn reloads_ten_thousand_times() {
    let Ok(backend) = std::env::var(BACKEND) else { return };
    let backend: SocketAddr = backend.parse().unwrap();
    let dir = TempDir::new().unwrap();
    let gateway = Served::with(backend, |config| config.admin = Some(([127, 0, 0, 1], 0).into()));
    let mut at_first = 0;
    for number in 1..=RELOADS {
        // Each has a pool, a backend and a listener that no other has.
        gateway.reload_with(|config| {
            config.admin = Some(([127, 0, 0, 1], 0).into());
            config
                .listeners
                .push(Listener::new(Address::Unix(dir.path().join(number.to_string()))));
            let gone = SocketAddr::from(([127, 1, (number >> 8) as u8, number as u8], 9));
            let mut unused = Listed::new(Address::Tcp(gone));
            unused.weight = 0;
            config.pools[0].backends.push(unused);
            let mut other = config.pools[0].clone();
            other.name = format!("pool {number}");
            config.pools.push(other);
        });
        if number.is_multiple_of(100) {
            let path = format!("/{number}");
            let mut caller = Caller::connect(gateway.address()).unwrap();
            assert!(is_echo(&caller.get(&path).unwrap(), &path));
        }
        if number == RELOADS_AT_FIRST {
            let page = metrics(gateway.admin_address());
            assert!(page.contains(&answered(number / 100)), "{page}");
            at_first = resident_bytes();
        }
    }
    eprintln!("{at_first} bytes after {RELOADS_AT_FIRST} reloads, {} in the end", resident_bytes());
    let growth = resident_bytes().saturating_sub(at_first);
    assert!(growth <= GROWTH_MAX_BYTES, "{growth} bytes more after {RELOADS} reloads");
    // Nobody has asked in the meantime.
    let page = metrics(gateway.admin_address());
    assert!(page.contains(&answered(RELOADS / 100)), "{page}");
}

fn answered(count: usize) -> String {
    format!("\ntollgate_gateway_answers_total{{pool=\"default\",class=\"2xx\"}} {count}\n")
}

fn metrics(admin: SocketAddr) -> String {
    let mut client = TcpStream::connect(admin).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut page = String::new();
    client.read_to_string(&mut page).unwrap();
    page
}

/// The memory of this process (`VmRSS` in `proc_pid_status(5)`).
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}
