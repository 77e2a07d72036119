//! Exhausted file descriptors. A test program of its own, since the limit is that of the process.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tollgate_origin::{Address, Config, Origin};

/// Descriptors that a thread opens besides connections: its epoll instance.
const THREAD_DESCRIPTORS: usize = 1;

#[test]
fn connections_wait_without_cpu_time_for_free_descriptors() {
    let origin = Origin::bind(&Config::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let Address::Tcp(addr) = origin.listens_on().clone() else { panic!("not a port") };
    let stopper = origin.stopper();
    let mut clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = TcpStream::connect(addr).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            client.write_all(b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            client
        })
        .collect();
    leave_free(THREAD_DESCRIPTORS + 2);
    let serving = std::thread::spawn(move || origin.serve());

    let mut waiting = clients.split_off(2);
    for client in &mut clients {
        expect_response(client);
    }
    let cpu_before = clock_gettime(ClockId::ProcessCPUTime);
    waiting[0].set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    waiting[0].read(&mut [0]).unwrap_err();
    let cpu = clock_gettime(ClockId::ProcessCPUTime) - cpu_before;
    assert!(cpu.tv_sec == 0 && cpu.tv_nsec < 100_000_000, "{cpu:?} of CPU time");

    drop(clients);
    for client in &mut waiting {
        expect_response(client);
    }
    stopper.stop().unwrap();
    serving.join().unwrap().unwrap();
}

/// Lowers the limit of the process so that `count` more descriptors can be opened.
fn leave_free(count: usize) {
    let highest = (0..count)
        .map(|_| File::open("/dev/null").expect("/dev/null can be opened"))
        // All must be open at the same time to get different numbers.
        .collect::<Vec<_>>()
        .iter()
        .map(AsRawFd::as_raw_fd)
        .max();
    let limit = Rlimit {
        current: highest.map(|fd| fd.unsigned_abs().into()).map(|fd: u64| fd + 1),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).expect("the limit can be lowered");
}

fn expect_response(client: &mut TcpStream) {
    let mut start = [0; 15];
    client.read_exact(&mut start).expect("a response");
    assert_eq!(&start, b"HTTP/1.1 200 OK");
}
