//! Running out of file descriptors, in a process of its own, since the limit is the whole process's.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tollgate_gateway::config::Address;

use super::is_echo;
use crate::caller::Caller;
use crate::own_process::OwnProcess;
use crate::served::Served;

/// Where the backend of that process listens, whose descriptors are not among its own.
const BACKEND: &str = "TOLLGATE_TEST_BACKEND";

#[test]
fn clients_wait_while_descriptors_are_out() {
    let backend = super::echo();
    let address = backend.address.to_string();
    let test = "faults::descriptors::waits_while_descriptors_are_out";
    OwnProcess::of(test, &[(BACKEND, address)]).end();
}

#[test]
#[ignore = "the test above runs it, as a process of its own"]
fn waits_while_descriptors_are_out() {
    let Ok(backend) = std::env::var(BACKEND) else { return };
    let gateway = Served::on_tcp(&[backend.parse().unwrap()]);
    let mut held = Descriptors::take_all();

    // Enough for a client and its place in the gateway, and none for a connection to the backend.
    held.free(2);
    let mut first = Caller::connect(gateway.address()).unwrap();
    let answer = first.get("/first").unwrap();
    assert!(matches!(answer.status, 502 | 503), "{answer:?}");

    // With one more for that, it is served, and the connection to the backend is kept.
    held.free(1);
    if answer.is_last() {
        first = Caller::connect(gateway.address()).unwrap();
    }
    assert!(is_echo(&first.get("/served").unwrap(), "/served"));

    // The next client has connected, as far as it knows, and waits without cost.
    held.free(1);
    let mut second = Caller::connect(gateway.address()).unwrap();
    second.client().send(b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    second.client().wait_at_most(Duration::from_millis(500)).unwrap();
    let cpu_before = clock_gettime(ClockId::ProcessCPUTime);
    let error = second.client().read(&mut [0]).unwrap_err();
    let cpu = clock_gettime(ClockId::ProcessCPUTime) - cpu_before;
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(cpu.tv_sec == 0 && cpu.tv_nsec < 100_000_000, "{cpu:?} of CPU time for waiting");

    // The first one is served in the meantime, and when it goes there is room.
    assert!(is_echo(&first.get("/again").unwrap(), "/again"));
    drop(first);
    second.client().wait_at_most(crate::client::PATIENCE).unwrap();
    assert!(is_echo(&second.answer().unwrap(), "/second"));
    assert!(matches!(gateway.address(), Address::Tcp(_)));
}

/// All descriptors that the process may still open.
struct Descriptors {
    held: Vec<File>,
}

impl Descriptors {
    /// Leaves none: the limit is lowered to those that are open.
    fn take_all() -> Self {
        let held: Vec<_> = (0..8).map(|_| File::open("/dev/null").unwrap()).collect();
        let highest = held.iter().map(|file| file.as_raw_fd().unsigned_abs()).max();
        let limit =
            Rlimit { current: highest.map(|fd| u64::from(fd) + 1), ..getrlimit(Resource::Nofile) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let error = File::open("/dev/null").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        Self { held }
    }

    fn free(&mut self, count: usize) {
        self.held.truncate(self.held.len() - count);
    }
}
