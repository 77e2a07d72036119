//! A long run with reloads, clients that leave and backends that die: no request fails that should not, and memory and
//! descriptors do not grow. `make soak` runs it for twenty minutes.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_gateway::config::Address;

use crate::support::{
    ChildProcess, Peer, TestGateway, ThreadedBackend, child_arguments, config, is_echo,
    resident_bytes, test_path,
};

const SECONDS_DEFAULT: u64 = 1200;
/// Clients that check each response, and clients that leave in the middle of something.
const CLIENTS: usize = 8;
const LEAVING_CLIENTS: usize = 4;
/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(1);
/// One of two backends is dead for half of this time.
const BACKEND_LIFE: Duration = Duration::from_secs(3);
/// Fragmentation of the allocator.
const GROWTH_BYTES_MAX: u64 = 4 << 20;

#[test]
#[ignore = "takes twenty minutes; `make soak` runs it"]
fn nothing_fails_or_grows_over_a_long_time() {
    if let Some(arguments) = child_arguments() {
        return serve(&arguments);
    }
    let seconds =
        std::env::var("SOAK_SECONDS").map_or(SECONDS_DEFAULT, |text| text.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    let addrs: Vec<SocketAddr> =
        (1..=2).map(|at| SocketAddr::from(([127, 78, 0, at], 9000))).collect();
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("gateway");
    let address = Address::Unix(socket.clone());
    let mut backends: Vec<_> = addrs
        .iter()
        .map(|addr| Some(ThreadedBackend::on(*addr, crate::support::serve_echo)))
        .collect();
    let arguments = [
        addrs[0].to_string(),
        addrs[1].to_string(),
        socket.display().to_string(),
        seconds.to_string(),
    ];
    let name = test_path!("nothing_fails_or_grows_over_a_long_time");
    let mut child = ChildProcess::start(name, &arguments, Stdio::inherit());
    child.wait_for("listening");
    let (is_over, served, left) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (is_over, served, address) = (&is_over, &served, &address);
            scope.spawn(move || check_responses(client, address, is_over, served));
        }
        for _ in 0..LEAVING_CLIENTS {
            scope.spawn(|| leave_early(&address, &is_over, &left));
        }
        let mut deaths = 0;
        while Instant::now() < until && !is_over.load(Ordering::Relaxed) {
            let at = deaths % 2;
            backends[at] = None;
            std::thread::sleep(BACKEND_LIFE / 2);
            backends[at] = Some(ThreadedBackend::on(addrs[at], crate::support::serve_echo));
            std::thread::sleep(BACKEND_LIFE / 2);
            deaths += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        println!("{deaths} deaths of backends");
    });
    let (served, left) = (served.into_inner(), left.into_inner());
    println!("{served} requests served, none failed; {left} clients left early");
    assert!(served > 0 && left > 0);
    child.finish();
}

/// Panics on the first response that is not as expected.
fn check_responses(client: usize, address: &Address, is_over: &AtomicBool, served: &AtomicU64) {
    struct EndAll<'a>(&'a AtomicBool);
    impl Drop for EndAll<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let end_all = EndAll(is_over);
    let mut peer = Peer::connect(address);
    for number in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            std::mem::forget(end_all);
            return;
        }
        let path = format!("/{client}/{number}");
        let response = peer.get(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(is_echo(&response, &path), "{path}: {response:?}");
        served.fetch_add(1, Ordering::Relaxed);
        if response.is_last() || number % 1000 == 999 {
            peer = Peer::connect(address);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Leaves before a head is complete, before a body is complete, and before a response arrives: by closing, by a reset,
/// and after ending the sending side.
fn leave_early(address: &Address, is_over: &AtomicBool, left: &AtomicU64) {
    const STARTS: [&str; 4] = [
        "GET /left HTTP/1.1\r\nHo",
        "POST /left HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel",
        "GET /left HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /left HTTP/1.1\r\nHost: a\r\n\r\nGET /left HTTP/1.1\r\nHost: a\r\n\r\nGET ",
    ];
    for number in 0_usize.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let mut peer = Peer::connect(address);
        peer.send(STARTS[number % STARTS.len()]);
        match number / STARTS.len() % 3 {
            0 => drop(peer),
            1 => peer.reset(),
            _ => {
                peer.finish();
                drop(peer.read_to_close());
            }
        }
        left.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
}

/// The gateway, in a process of its own, until standard input ends.
fn serve(arguments: &[String]) {
    let [one, other, socket, seconds] = arguments else { panic!("{arguments:?}") };
    let mut config = config(&[one.parse().unwrap(), other.parse().unwrap()]);
    config.listeners[0].address = Address::Unix(socket.into());
    config.timeouts.abandoned = Duration::from_secs(1);
    let gateway = TestGateway::start(&config);
    println!("\nlistening");
    let parent = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()).unwrap());
    // Every ten seconds in twenty minutes.
    let interval = Duration::from_secs(seconds.parse().unwrap()) / 120;
    let (mut reloads, mut warm_bytes, mut most_bytes) = (0_u64, 0, 0);
    while !parent.is_finished() {
        std::thread::sleep(interval);
        config.pools[0].keepalive_max = if reloads % 2 == 0 { 16 } else { 1024 };
        gateway.reload(config.clone());
        reloads += 1;
        let bytes = resident_bytes();
        if reloads <= 30 {
            warm_bytes = bytes.max(warm_bytes);
        }
        most_bytes = bytes.max(most_bytes);
    }
    gateway.expect_metric("client_connections", 0);
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    eprintln!(
        "{reloads} reloads; at most {warm_bytes} bytes at first and {most_bytes} later; {descriptors} descriptors"
    );
    assert!(most_bytes <= warm_bytes + GROWTH_BYTES_MAX);
    // Idle connections to two backends, and what a gateway has from the start.
    assert!(descriptors < 64, "{descriptors} descriptors are open");
}
