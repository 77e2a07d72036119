//! File descriptors that run out, and outputs that are not read. Each test runs in a process of its own, because limits
//! and standard error belong to the process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tollgate_gateway::config::{
    Address, Backend as ConfigBackend, Ejection, HealthCheck, HealthRequest, Pool, PoolId, Route,
};

use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{
    ChildProcess, Peer, TestGateway, ThreadedBackend, child_arguments, config, is_echo, poll,
    resident_bytes, test_path,
};

/// All file descriptors that the process may still open.
struct Descriptors {
    held: Vec<File>,
}

impl Descriptors {
    /// Lowers the limit to the descriptors that are open, and these.
    fn take_all() -> Self {
        let held: Vec<_> = (0..8).map(|_| File::open("/dev/null").unwrap()).collect();
        let highest = held.iter().map(|file| file.as_raw_fd().unsigned_abs()).max();
        let limit =
            Rlimit { current: highest.map(|fd| u64::from(fd) + 1), ..getrlimit(Resource::Nofile) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut descriptors = Self { held };
        descriptors.take_free();
        descriptors
    }

    /// Takes those that have become free.
    fn take_free(&mut self) {
        self.held.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
    }

    fn free(&mut self, count: usize) {
        self.held.truncate(self.held.len() - count);
    }
}

#[test]
fn clients_wait_while_descriptors_are_exhausted() {
    // The descriptors of the backend must not count.
    let Some(arguments) = child_arguments() else {
        let backend = ThreadedBackend::echo();
        let name = test_path!("clients_wait_while_descriptors_are_exhausted");
        return ChildProcess::run(name, &[backend.addr().to_string()]);
    };
    let mut config = config(&[arguments[0].parse().unwrap()]);
    // The thread of the admin listener would take a free descriptor, before it waits for a connection.
    config.admin = None;
    let gateway = TestGateway::start(&config);
    let mut held = Descriptors::take_all();

    // Both ends of a client connection, and none for an upstream connection.
    held.free(2);
    let mut first = gateway.client();
    let response = first.get("/first").unwrap();
    assert!(matches!(response.status, 502 | 503), "{response:?}");

    // With one for that, the request is served, and the upstream connection is kept.
    held.free(1);
    if response.is_last() {
        first = gateway.client();
    }
    assert!(is_echo(&first.get("/served").unwrap(), "/served"));

    // The next client is connected by the kernel, and waits without CPU time of the gateway.
    held.free(1);
    let mut second = gateway.client();
    second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    let (start, cpu_start) = (Instant::now(), cpu_time());
    std::thread::sleep(Duration::from_millis(500));
    let (elapsed, cpu) = (start.elapsed(), cpu_time() - cpu_start);
    assert!(cpu < elapsed / 5, "{cpu:?} of CPU time for {elapsed:?} of waiting");

    // The first one is served meanwhile. Its end makes room.
    assert!(is_echo(&first.get("/again").unwrap(), "/again"));
    second.expect_nothing_yet();
    drop(first);
    assert!(is_echo(&second.response().unwrap(), "/second"));
}

#[test]
fn silent_clients_leave_descriptors_for_backends() {
    const DESCRIPTORS: u64 = 64;
    const SILENT: usize = 120;

    if let Some(arguments) = child_arguments() {
        let [backend, socket] = &arguments[..] else { panic!("{arguments:?}") };
        let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut config = config(&[backend.parse().unwrap()]);
        config.listeners[0].address = Address::Unix(socket.into());
        let _gateway = TestGateway::start(&config);
        println!("\nlistening");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    let backend = ThreadedBackend::echo();
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("gateway");
    let (stderr, child_stderr) = std::io::pipe().unwrap();
    let arguments = [backend.addr().to_string(), socket.display().to_string()];
    let name = test_path!("silent_clients_leave_descriptors_for_backends");
    let mut child = ChildProcess::start(name, &arguments, Stdio::from(child_stderr));
    child.wait_for("listening");
    let address = Address::Unix(socket);
    let mut clients = Vec::new();
    for _ in 0..SILENT {
        clients.push(Peer::connect(&address));
    }
    let mut client = Peer::connect(&address);
    assert!(is_echo(&client.get("/served").unwrap(), "/served"));
    // The first of the silent clients made room.
    clients[0].expect_closed();
    clients[SILENT - 1].expect_nothing_yet();
    child.finish();
    let log: Vec<String> = BufReader::new(stderr).lines().map_while(Result::ok).collect();
    let warning = "tollgate gateway: the limit on open files (64) is below twice `limits.connections` (16384): at most ";
    assert!(log.iter().any(|line| line.starts_with(warning)), "{log:?}");
}

/// The CPU time of this process.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

#[test]
fn exhausted_descriptors_count_as_no_failure_of_a_backend() {
    let Some(arguments) = child_arguments() else {
        let backend = ThreadedBackend::echo();
        let (stderr, child_stderr) = std::io::pipe().unwrap();
        let name = test_path!("exhausted_descriptors_count_as_no_failure_of_a_backend");
        let child =
            ChildProcess::start(name, &[backend.addr().to_string()], Stdio::from(child_stderr));
        // Once a health check has failed, the child may go on.
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let is_failed_check = |line: String| {
            eprintln!("{line}");
            line.contains("cannot check") && line.contains("EMFILE")
        };
        assert!(lines.any(is_failed_check), "no health check failed");
        let rest = std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        child.finish();
        return rest.join().unwrap();
    };
    let backend = &arguments[0];
    let mut config = config(&[backend.parse().unwrap()]);
    config.pools[0].keepalive_max = 0;
    config.pools[0].eject = Some(Ejection { failures: 1, duration: Duration::from_secs(3_600) });
    config.pools[0].health = Some(HealthCheck {
        request: Some(HealthRequest::get("/")),
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(10),
        rise: 1,
        fall: 1,
    });
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    // The gateway has accepted the client, and has not connected to the backend for that.
    let last_hop = "OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n";
    assert_eq!(client.request(last_hop).unwrap().status, 200);
    let mut held = Descriptors::take_all();
    let mut rejected = 0;
    // A health check in progress gives back its descriptor.
    while rejected < 2 {
        held.take_free();
        let response = client.get("/").unwrap();
        if response.status == 503 {
            assert_eq!(response.header("Retry-After"), Some("1"));
            rejected += 1;
        } else {
            assert!(is_echo(&response, "/"), "{response:?}");
        }
    }
    // The parent closes standard input once a health check has failed. A check gives back and takes its descriptor.
    let parent = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()).unwrap());
    while !parent.is_finished() {
        held.take_free();
        std::thread::sleep(Duration::from_millis(1));
    }
    let count = held.held.len();
    held.free(count);
    let of_backend = format!("{{pool=\"default\",backend=\"{backend}\"}}");
    for (sample, value) in [
        ("resource_exhaustion_total{error=\"EMFILE\"}".to_owned(), 2),
        ("local_responses_total{status=\"503\"}".to_owned(), 2),
        (format!("backend_failures_total{of_backend}"), 0),
        (format!("backend_ejections_total{of_backend}"), 0),
        (format!("backend_up{of_backend}"), 1),
    ] {
        assert_eq!(gateway.metric(&sample), value, "{sample}");
    }
    assert!(is_echo(&client.get("/served").unwrap(), "/served"));
}

/// Both ends of a stream whose buffer is full.
fn full_stream() -> (UnixStream, UnixStream) {
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    // There may be room for a few bytes when there is none for many.
    for count in [4096, 1] {
        while let Ok(1..) = writer.write(&vec![b'\n'; count]) {}
    }
    writer.set_nonblocking(false).unwrap();
    (reader, writer)
}

#[test]
fn unread_standard_error_delays_no_request_and_lost_lines_are_counted() {
    const ROUNDS: usize = 20;
    /// More lines, of about 100 bytes each, than are buffered.
    const EJECTIONS: usize = 1_000;

    if let Some(arguments) = child_arguments() {
        let [backend, socket] = &arguments[..] else { panic!("{arguments:?}") };
        let mut config = config(&[backend.parse().unwrap()]);
        config.listeners[0].address = Address::Unix(socket.into());
        config.limits.connections = 1;
        let closed = Address::Unix(format!("{socket}.closed").into());
        let mut pool = Pool::new("closed", vec![ConfigBackend::new(closed)]);
        pool.eject = Some(Ejection { failures: 1, duration: Duration::from_millis(1) });
        config.pools.push(pool);
        config.routes.push(Route { path_prefix: "/closed".to_owned(), ..Route::all_to(PoolId(1)) });
        let gateway = TestGateway::start(&config);
        println!("\nlistening");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        gateway.drain();
        return gateway.join();
    }
    let backend = ThreadedBackend::echo();
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("gateway");
    let (mut unread, full) = full_stream();
    let arguments = [backend.addr().to_string(), socket.display().to_string()];
    let name = test_path!("unread_standard_error_delays_no_request_and_lost_lines_are_counted");
    let mut child = ChildProcess::start(name, &arguments, Stdio::from(OwnedFd::from(full)));
    child.wait_for("listening");
    let address = Address::Unix(socket);
    for round in 0..ROUNDS {
        let mut first = Peer::connect(&address);
        assert!(is_echo(&first.get("/first").unwrap(), "/first"), "round {round}");
        first.send("GET /again HTTP/1.1\r\nHost: a\r\n");
        // The gateway is full without an idle client, and logs that connections wait.
        let mut second = Peer::connect(&address);
        second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(is_echo(&first.request("\r\n").unwrap(), "/again"), "round {round}");
        drop(first);
        assert!(is_echo(&second.response().unwrap(), "/second"), "round {round}");
    }
    let mut client = Peer::connect(&address);
    for _ in 0..EJECTIONS {
        // The backend is ejected for a millisecond, which is logged.
        assert_eq!(client.get("/closed").unwrap().status, 502);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(is_echo(&client.get("/last").unwrap(), "/last"));
    drop(client);

    let reading = std::thread::spawn(move || {
        let mut log = String::new();
        unread.read_to_string(&mut log).map(|_| log).unwrap()
    });
    child.finish();
    let log = reading.join().unwrap();
    let count = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("1 connections are open"), 1, "{log}");
    let logged = count(" of pool closed ejected after repeated failures");
    let lost = log.lines().find_map(|line| {
        let line = line.strip_prefix("tollgate gateway: reader of standard error is too slow: ")?;
        line.strip_suffix(" lines dropped so far")?.parse::<usize>().ok()
    });
    assert!(
        lost.is_some_and(|lost| lost > 0 && logged + lost >= EJECTIONS / 2),
        "{logged} {lost:?}"
    );
}

/// Memory that the allocator may keep.
const KEPT_BYTES_MAX: u64 = 12 << 20;

#[test]
fn memory_of_stalled_streams_is_given_back() {
    const CONNECTIONS: u32 = 10;
    const STREAMS: u32 = 60;
    // The memory of the backend must not count.
    let Some(arguments) = child_arguments() else {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        let response = [head.as_bytes(), &vec![b'a'; 1_000_000]].concat();
        let backend = ThreadedBackend::responding(move |_| response.clone());
        let name = test_path!("memory_of_stalled_streams_is_given_back");
        return ChildProcess::run(name, &[backend.addr().to_string()]);
    };
    let mut config = config(&[arguments[0].parse().unwrap()]);
    config.listeners[0].http2 = true;
    config.timeouts.abandoned = Duration::from_secs(1);
    let gateway = TestGateway::start(&config);
    let before_bytes = resident_bytes();
    let started =
        format!("backend_requests_total{{pool=\"default\",backend=\"{}\"}}", arguments[0]);
    let mut requests = 0;
    // Its streams have no window.
    let mut stall = |streams: u32| {
        let mut client = Http2Peer::with_settings(gateway.address(), &[(4, 0)]);
        for at in 0..streams {
            client.request(2 * at + 1, true, GET_FIELDS);
        }
        requests += u64::from(streams);
        gateway.expect_metric(&started, requests);
        client
    };
    // Small ones remain, with memory above that of the others.
    let (clients, remaining): (Vec<Http2Peer>, Vec<Http2Peer>) =
        (0..CONNECTIONS).map(|_| (stall(STREAMS), stall(1))).unzip();
    let held_bytes = poll(|| {
        let held_bytes = resident_bytes().saturating_sub(before_bytes);
        if held_bytes > 2 * KEPT_BYTES_MAX { Ok(held_bytes) } else { Err(held_bytes.to_string()) }
    });
    drop(clients);
    gateway.expect_metric("client_connections", u64::from(CONNECTIONS));
    poll(|| {
        let kept_bytes = resident_bytes().saturating_sub(before_bytes);
        if kept_bytes <= KEPT_BYTES_MAX {
            return Ok(());
        }
        Err(format!("{kept_bytes} of {held_bytes} bytes stay"))
    });
    drop(remaining);
}
