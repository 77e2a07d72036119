use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tollgate_tls::{ClientOptions, TlsClient, Trust};

use crate::machine::{GENERATOR_CPU, SERVER_CPU, compiled, pin};
use crate::sample::Sample;
use crate::server::{DelayServer, Log};

/// Latencies in the order of sending, as a client measures them that writes a request and blocks until
/// the response arrives: the minimum that a client can measure on this machine.
pub(crate) struct ReferenceClient {
    latencies_us: Vec<f64>,
}

/// Limit of the time to a response.
const TIMEOUT: Duration = Duration::from_secs(5);

impl ReferenceClient {
    /// Sends `count` requests for `path`, one at a time, on one connection and from the generator's CPU,
    /// each after a sleep of `gap`.
    pub(crate) fn run(server: &DelayServer, path: &str, count: usize, gap: Duration) -> Self {
        Self::measure(|| exchange(connect(server.port()), path, count, gap))
    }

    /// The same over TLS, to a front of the server.
    pub(crate) fn run_over_tls(port: u16, path: &str, count: usize) -> Self {
        let options = ClientOptions {
            trust: &Trust::All,
            name: "localhost",
            identity: None,
            version: None,
            resume: false,
            protocols: &[b"http/1.1"],
        };
        let client = TlsClient::new(&options).expect("options");
        let stream = || client.stream(connect(port)).expect("a handshake");
        Self::measure(|| exchange(stream(), path, count, Duration::ZERO))
    }

    fn measure(send_all: impl FnOnce() -> Vec<f64> + Send) -> Self {
        let send_all = || {
            pin(0, GENERATOR_CPU);
            send_all()
        };
        // A thread of its own, so that processes started later are not pinned with it.
        let latencies_us = thread::scope(|scope| scope.spawn(send_all).join()).expect("no panic");
        Self { latencies_us }
    }

    /// Returns the time that the machine added to each delay, in microseconds. `log` has the requests of this client only.
    pub(crate) fn overheads_us(&self, log: &Log) -> Sample {
        assert_eq!(self.latencies_us.len(), log.records.len(), "requests in the log");
        let pairs = self.latencies_us.iter().zip(&log.records);
        Sample::new(pairs.map(|(latency_us, record)| {
            latency_us - (record.written_ns - record.read_ns) as f64 / 1e3
        }))
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

/// Sends `count` requests, each after a sleep of `gap`. Returns the latencies in microseconds.
fn exchange(mut stream: impl Read + Write, path: &str, count: usize, gap: Duration) -> Vec<f64> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: reference\r\n\r\n");
    let mut response = [0; 4096];
    let send_one = |_| {
        thread::sleep(gap);
        let started_at = Instant::now();
        stream.write_all(request.as_bytes()).expect("the request is sent");
        let mut length = 0;
        while !response[..length].ends_with(b"\r\n\r\nok\n") {
            let more = stream.read(&mut response[length..]).expect("a response");
            assert!(more > 0, "an incomplete response");
            length += more;
        }
        started_at.elapsed().as_secs_f64() * 1e6
    };
    (0..count).map(send_one).collect()
}

/// Processes that sleep on both CPUs while a test runs. Their lateness is that of every process at that
/// time, with the effects of other programs and of the hypervisor.
pub(crate) struct Sleepers {
    processes: [Child; 2],
}

/// Length of a sleep: shorter than the disturbances that matter, and costs half a thousandth of a CPU.
const GAP: Duration = Duration::from_millis(2);
/// Limit of sleeps, which take 15 minutes.
const SLEEPS_MAX: u32 = 450_000;
/// A later wake-up is a disturbance. Wake-ups take some tens of microseconds.
const DISTURBED_US: f64 = 300.0;

impl Sleepers {
    pub(crate) fn start() -> Self {
        let start = |cpu| start_sleeper(cpu, GAP, SLEEPS_MAX);
        Self { processes: [GENERATOR_CPU, SERVER_CPU].map(start) }
    }

    /// Returns the lateness in microseconds, on the generator's CPU and on the server's.
    pub(crate) fn stop(self) -> [Sample; 2] {
        self.processes.map(|process| {
            let pid = Pid::from_raw(process.id() as i32);
            kill(pid, Signal::SIGTERM).expect("a running sleeper");
            lateness_us(process)
        })
    }
}

/// Lateness in microseconds of a process on the generator's CPU that sleeps `count` times for `gap`.
pub(crate) fn sleep_lateness_us(gap: Duration, count: u32) -> Sample {
    lateness_us(start_sleeper(GENERATOR_CPU, gap, count))
}

/// Share of times at which a process was kept off its CPU: that of the worst CPU.
pub(crate) fn disturbed_share(lateness_us: &[Sample]) -> f64 {
    let shares =
        lateness_us.iter().map(|late| late.count_above(DISTURBED_US) as f64 / late.len() as f64);
    shares.fold(0.0, f64::max)
}

fn start_sleeper(cpu: usize, gap: Duration, count: u32) -> Child {
    let sleeper = Command::new(compiled("sleeper", &["sleeper.c"]))
        .args([gap.as_micros().to_string(), count.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the sleeper starts");
    pin(sleeper.id(), cpu);
    sleeper
}

fn lateness_us(sleeper: Child) -> Sample {
    let output = sleeper.wait_with_output().expect("its output");
    assert!(output.status.success(), "the sleeper failed: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("text");
    let lateness_ns = text.lines().map(|line| line.parse::<f64>().expect("a number"));
    Sample::new(lateness_ns.map(|ns| ns / 1e3))
}

#[test]
fn disturbed_share_is_that_of_the_worst_cpu() {
    let quiet = Sample::new([40.0; 4]);
    let disturbed = Sample::new([40.0, 300.0, 301.0, 40.0]);
    assert_eq!(disturbed_share(&[quiet, disturbed]), 0.25);
}
