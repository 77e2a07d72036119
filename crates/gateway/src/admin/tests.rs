//! Over real sockets, with fast, slow and silent clients.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use tollgate_admin::AdminServer;

use super::*;
use crate::config::{Address, Backend};
use crate::counters::GenerationCounters;

/// Client time in tests that wait for its end.
const SHORT: Duration = Duration::from_millis(400);

/// Client time in tests that must not reach its end.
const LONG: Duration = Duration::from_secs(600);

fn any() -> Address {
    Address::Tcp("127.0.0.1:1".parse().unwrap())
}

fn admin(state: &Arc<AdminState>, client_time: Duration) -> AdminServer {
    AdminServer::start_with("test", "127.0.0.1:0".parse().unwrap(), state.pages(), client_time)
        .unwrap()
}

fn get(address: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn serves_metrics_and_health_beside_silent_client() {
    let state = Arc::new(AdminState::new(Arc::new(Counters::new(1))));
    state.set_config(&Config::new(any(), any()), &[]);
    let admin = admin(&state, LONG);
    let get_path =
        |path: &str| get(admin.address(), &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let silent = TcpStream::connect(admin.address()).unwrap();
    let (dates, rest): (Vec<String>, Vec<String>) = get_path("/healthz")
        .split_inclusive("\r\n")
        .map(str::to_owned)
        .partition(|line| line.starts_with("Date: "));
    assert!(matches!(&dates[..], [date] if date.ends_with(" GMT\r\n")), "{dates:?}");
    assert_eq!(
        rest.concat(),
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\nok\n"
    );
    drop(silent);
    let metrics = get_path("/metrics?x=1");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{metrics}");
    assert!(metrics.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{metrics}");
    assert!(metrics.contains("\ntollgate_gateway_client_connections 0\n"), "{metrics}");
    assert!(get_path("/").starts_with("HTTP/1.1 404 "));
    let post = get(admin.address(), "POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    let head = get(admin.address(), "HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.ends_with("Content-Length: 3\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n")
    );
    assert!(get(admin.address(), "GET\r\n\r\n").starts_with("HTTP/1.1 400 "));
    state.set_draining();
    assert!(get_path("/healthz").starts_with("HTTP/1.1 503 "));
    let address = admin.address();
    drop(admin);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn silent_clients_make_room_for_others() {
    let state = Arc::new(AdminState::new(Arc::new(Counters::new(1))));
    let admin = admin(&state, LONG);
    let connect = || TcpStream::connect(admin.address()).unwrap();
    let mut silent: Vec<_> = (0..200).map(|_| connect()).collect();
    let request = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
    let response = get(admin.address(), request);
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    // The oldest one was closed, the youngest one has its time.
    silent[0].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
    let last = silent.last_mut().unwrap();
    last.write_all(request.as_bytes()).unwrap();
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(last.read(&mut [0]).unwrap(), 1);
}

#[test]
fn silent_client_is_answered_at_its_deadline() {
    let state = Arc::new(AdminState::new(Arc::new(Counters::new(1))));
    let admin = admin(&state, SHORT);
    let start = Instant::now();
    let late = get(admin.address(), "GET ");
    assert!(late.starts_with("HTTP/1.1 408 ") && start.elapsed() >= SHORT, "{late}");
}

#[test]
fn slow_reader_is_cut_off() {
    // A page larger than the socket buffers.
    let mut config = Config::new(any(), any());
    let address = |at: u32| Address::Unix(format!("/{at:0>80}").into());
    config.pools[0].backends = (0..20_000).map(|at| Backend::new(address(at))).collect();
    let counters = Arc::new(Counters::new(1));
    counters.add_generation(Arc::new(GenerationCounters::new(&config)));
    let state = Arc::new(AdminState::new(counters));
    let page_bytes = state.metrics().len();
    let request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    let whole = get(admin(&state, LONG).address(), request);
    assert!(whole.len() > page_bytes);

    let admin = admin(&state, SHORT);
    let mut slow = TcpStream::connect(admin.address()).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(request.as_bytes()).unwrap();
    // Each read makes a little room.
    let start = Instant::now();
    let mut received = 0;
    while start.elapsed() < 4 * SHORT {
        received += slow.read(&mut [0; 1024]).unwrap_or(0);
        thread::sleep(Duration::from_millis(10));
    }
    let mut rest = Vec::new();
    // The bytes sent so far may be followed by a reset.
    let end = slow.read_to_end(&mut rest);
    received += rest.len();
    assert!(received < page_bytes, "{received} of {page_bytes} bytes came, then {end:?}");
}
