//! Over real sockets, with clients of every pace.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::desk::CLIENTS_MAX;
use super::*;
use crate::config::{Address, Backend, Config};
use crate::counters::{Counters, PoolTallies};

/// How long a client may take, where that is waited for.
const SHORT: Duration = Duration::from_millis(400);

/// How long one may take that is not to be cut off.
const LONG: Duration = Duration::from_secs(600);

fn any() -> Address {
    Address::Tcp("127.0.0.1:1".parse().unwrap())
}

fn admin(view: &Arc<View>, client_time: Duration) -> Admin {
    Admin::start_with("127.0.0.1:0".parse().unwrap(), Arc::clone(view), client_time).unwrap()
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_and_health_are_told_though_somebody_is_silent() {
    let view = Arc::new(View::new(Arc::new(Counters::new(1))));
    view.set_pools(&Config::new(any(), any()), &[]);
    let admin = admin(&view, LONG);
    let get = |path: &str| ask(admin.address(), &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    // One that says nothing holds up nobody.
    let silent = TcpStream::connect(admin.address()).unwrap();
    let (dates, rest): (Vec<String>, Vec<String>) = get("/healthz")
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
    let metrics = get("/metrics?x=1");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{metrics}");
    assert!(metrics.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{metrics}");
    assert!(metrics.contains("\ntollgate_gateway_client_connections 0\n"), "{metrics}");
    assert!(get("/").starts_with("HTTP/1.1 404 "));
    let post = ask(admin.address(), "POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
    let head = ask(admin.address(), "HEAD /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.ends_with("Content-Length: 3\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n")
    );
    assert!(ask(admin.address(), "GET\r\n\r\n").starts_with("HTTP/1.1 400 "));
    view.set_draining();
    assert!(get("/healthz").starts_with("HTTP/1.1 503 "));
    let address = admin.address();
    drop(admin);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn more_silent_clients_than_there_is_room_for_make_others_wait_for_a_time_only() {
    let view = Arc::new(View::new(Arc::new(Counters::new(1))));
    let admin = admin(&view, SHORT);
    let connect = || TcpStream::connect(admin.address()).unwrap();
    // The first of them are accepted no earlier than this, on a machine however busy.
    let start = Instant::now();
    let mut silent: Vec<_> = (0..CLIENTS_MAX + 16).map(|_| connect()).collect();
    let answer = ask(admin.address(), "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(start.elapsed() >= SHORT, "there was room after {:?}", start.elapsed());
    let mut word = String::new();
    silent[0].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    silent[0].read_to_string(&mut word).unwrap();
    assert!(word.starts_with("HTTP/1.1 408 "), "{word}");
}

#[test]
fn who_reads_a_little_at_a_time_is_cut_off_all_the_same() {
    // More than sockets have room for.
    let mut config = Config::new(any(), any());
    let address = |at: u32| Address::Unix(format!("/{at:0>80}").into());
    config.pools[0].backends = (0..20_000).map(|at| Backend::new(address(at))).collect();
    let counters = Arc::new(Counters::new(1));
    counters.begin(Arc::new(PoolTallies::new(&config)));
    let view = Arc::new(View::new(counters));
    let page_bytes = view.metrics(Instant::now()).len();
    let get = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    let whole = ask(admin(&view, LONG).address(), get);
    assert!(whole.len() > page_bytes);

    let admin = admin(&view, SHORT);
    let mut slow = TcpStream::connect(admin.address()).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    slow.write_all(get.as_bytes()).unwrap();
    // Each time there is a little more room, up to a time when it must have been cut off.
    let start = Instant::now();
    let mut received = 0;
    while start.elapsed() < 4 * SHORT {
        received += slow.read(&mut [0; 1024]).unwrap_or(0);
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut rest = Vec::new();
    // What had been sent may be followed by a reset.
    let end = slow.read_to_end(&mut rest);
    received += rest.len();
    assert!(received < page_bytes, "{received} of {page_bytes} bytes came, then {end:?}");
}
