use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::machine::{SERVER_CPU, compiled, pin};
use crate::sample::Sample;

/// A running delay server. Dropping it stops it.
pub(crate) struct DelayServer {
    child: Child,
    port: u16,
    dir: TempDir,
}

/// Default backlog.
const BACKLOG: u32 = 1024;
/// Seed of random delays.
const SEED: u32 = 1;

impl DelayServer {
    pub(crate) fn start() -> Self {
        Self::start_with(0, BACKLOG)
    }

    pub(crate) fn start_on(port: u16) -> Self {
        Self::start_with(port, BACKLOG)
    }

    /// Starts a server on a port (0: any) with a backlog.
    pub(crate) fn start_with(port: u16, backlog: u32) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut child = Command::new(compiled("delay_server", &SOURCES))
            .arg(dir.path().join(LOG))
            .args([port.to_string(), backlog.to_string(), SEED.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the delay server starts");
        pin(child.id(), SERVER_CPU);
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("the port");
        let port = line.trim().parse().expect("the port of the delay server");
        Self { child, port, dir }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// URL of a path that `delay_server/response.c` defines.
    pub(crate) fn url(&self, path: &str) -> String {
        url(self.port, path)
    }

    /// Suspends it (SIGSTOP).
    pub(crate) fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Stops it after it has read all input, and returns its log.
    pub(crate) fn stop(mut self) -> Log {
        self.resume();
        self.signal(Signal::SIGTERM);
        let status: ExitStatus = self.child.wait().expect("its exit status");
        assert!(status.success(), "the delay server failed: {status}");
        Log::read(&self.dir.path().join(LOG))
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("a running server");
    }
}

impl Drop for DelayServer {
    fn drop(&mut self) {
        // Fails after `stop`, when the process has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// URL of a path of the server on a port.
pub(crate) fn url(port: u16, path: &str) -> String {
    format!("http://127.0.0.1:{port}{path}")
}

const LOG: &str = "log";
const SOURCES: [&str; 5] = [
    "delay_server/main.c",
    "delay_server/connection.c",
    "delay_server/response.c",
    "delay_server/timers.c",
    "delay_server/log.c",
];

/// Log of the server: a record for each request, in the order of reading.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) records: Vec<Record>,
}

/// One request; times in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Serial number, from 1.
    pub(crate) connection: u64,
    /// A letter of `enum outcome` in `delay_server/response.h`.
    pub(crate) outcome: char,
    /// Arrival at the kernel, which does not depend on when the server wakes up.
    pub(crate) arrived_ns: u64,
    /// Just after the read.
    pub(crate) read_ns: u64,
    /// Just before the write of the last byte; 0 without one.
    pub(crate) written_ns: u64,
}

impl Log {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("the server's log");
        Self { records: text.lines().map(Record::parse).collect() }
    }

    /// Splits off the records of the last connection, that of the reference client.
    pub(crate) fn without_last_connection(mut self) -> (Self, Self) {
        let last = self.records.iter().map(|record| record.connection).max().expect("a request");
        let (last_records, rest) =
            self.records.drain(..).partition(|record| record.connection == last);
        (Self { records: rest }, Self { records: last_records })
    }

    /// Splits off the records after the first `count`.
    pub(crate) fn split_at(mut self, count: usize) -> (Self, Self) {
        let rest = self.records.split_off(count);
        (self, Self { records: rest })
    }

    pub(crate) fn count(&self, outcome: char) -> u64 {
        self.records.iter().filter(|record| record.outcome == outcome).count() as u64
    }

    /// Number of connections with a request.
    pub(crate) fn connections(&self) -> u64 {
        let mut serials: Vec<u64> = self.records.iter().map(|record| record.connection).collect();
        serials.sort_unstable();
        serials.dedup();
        serials.len() as u64
    }

    /// Delays of the responses, in microseconds.
    pub(crate) fn delays_us(&self) -> Sample {
        let is_written = |record: &&Record| record.outcome == 'a' && record.written_ns > 0;
        let written = self.records.iter().filter(is_written);
        Sample::new(written.map(|record| (record.written_ns - record.read_ns) as f64 / 1e3))
    }

    /// Times of the arrivals, in their order, in microseconds after the first.
    pub(crate) fn arrivals_us(&self) -> Vec<f64> {
        let mut all_ns: Vec<u64> = self.records.iter().map(|record| record.arrived_ns).collect();
        all_ns.sort_unstable();
        all_ns.iter().map(|at_ns| (at_ns - all_ns[0]) as f64 / 1e3).collect()
    }

    /// Times of the reads, in microseconds after the first.
    pub(crate) fn reads_us(&self) -> Vec<f64> {
        let first_ns = self.records.first().expect("a request").read_ns;
        self.records.iter().map(|record| (record.read_ns - first_ns) as f64 / 1e3).collect()
    }
}

impl Record {
    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        Self {
            connection: number(words.next()),
            outcome: words.next().and_then(|word| word.chars().next()).expect("a letter"),
            arrived_ns: number(words.next()),
            read_ns: number(words.next()),
            written_ns: number(words.next()),
        }
    }
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|word| word.parse().ok()).expect("a number")
}
