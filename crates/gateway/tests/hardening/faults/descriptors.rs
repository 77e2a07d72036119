//! Running out of file descriptors, in a process of its own, since the limit is the whole process's.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tollgate_gateway::config::{ActiveHealth, Address, Ejection};

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

#[test]
fn no_backend_is_to_blame_for_descriptors_that_are_out() {
    let backend = super::echo();
    let address = backend.address.to_string();
    let test = "faults::descriptors::blames_nobody_for_descriptors_that_are_out";
    OwnProcess::of(test, &[(BACKEND, address)]).end();
}

#[test]
#[ignore = "the test above runs it, as a process of its own"]
fn blames_nobody_for_descriptors_that_are_out() {
    let Ok(backend) = std::env::var(BACKEND) else { return };
    let gateway = Served::with(backend.parse().unwrap(), |config| {
        config.admin = Some("127.0.0.1:0".parse().unwrap());
        let for_time = Duration::from_secs(3_600);
        config.pools[0].eject = Some(Ejection { failures: 1, for_time });
        // A check that cannot be made says nothing of the backend either.
        config.pools[0].health = Some(ActiveHealth {
            path: "/".to_owned(),
            interval: Duration::from_millis(20),
            timeout: Duration::from_millis(20),
            rise: 1,
            fall: 1,
        });
    });
    let mut client = Caller::connect(gateway.address()).unwrap();
    // It has its place in the gateway, and no backend was asked for that.
    let last_hop = b"TRACE / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n";
    assert_eq!(client.ask(last_hop).unwrap().status, 200);
    let mut held = Descriptors::take_all();
    held.take_what_is_given_back(Duration::from_millis(200));
    for _ in 0..2 {
        let answer = client.get("/none").unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    // Time for some checks.
    std::thread::sleep(Duration::from_millis(200));
    // The rest is for one who asks, and for the answer.
    let rest = held.held.len();
    held.free(rest);
    let metrics = gateway.metrics();
    let of_backend = format!("{{pool=\"default\",backend=\"{backend}\"}}");
    for line in [
        "shortages_total{error=\"EMFILE\"} 2".to_owned(),
        "own_answers_total{status=\"503\"} 2".to_owned(),
        format!("backend_failures_total{of_backend} 0"),
        format!("backend_ejections_total{of_backend} 0"),
        format!("backend_up{of_backend} 1"),
    ] {
        assert!(metrics.contains(&format!("\ntollgate_gateway_{line}\n")), "{line}: {metrics}");
    }
    assert!(is_echo(&client.get("/served").unwrap(), "/served"));
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

    /// Takes those as well that others have for a moment, until they have none for so long.
    fn take_what_is_given_back(&mut self, quiet: Duration) {
        let mut until = Instant::now() + quiet;
        while Instant::now() < until {
            match File::open("/dev/null") {
                Ok(file) => {
                    self.held.push(file);
                    until = Instant::now() + quiet;
                }
                Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    fn free(&mut self, count: usize) {
        self.held.truncate(self.held.len() - count);
    }
}
