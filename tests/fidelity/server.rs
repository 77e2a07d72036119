use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::log::Log;
use crate::machine::{SERVER_CPU, pin};
use crate::program::built;

/// A running delay server, stopped at the latest when it goes out of scope.
pub(crate) struct DelayServer {
    child: Child,
    port: u16,
    dir: TempDir,
}

/// How many connections may wait to be accepted, where the test does not care.
const BACKLOG: u32 = 1024;
/// What random delays are drawn from, so that each run has the same ones.
const SEED: u32 = 1;

impl DelayServer {
    pub(crate) fn start() -> Self {
        Self::start_with(0, BACKLOG)
    }

    /// On a port that is known beforehand.
    pub(crate) fn start_on(port: u16) -> Self {
        Self::start_with(port, BACKLOG)
    }

    /// On any port (0) or this one, with room for `backlog` connections that wait to be accepted.
    pub(crate) fn start_with(port: u16, backlog: u32) -> Self {
        let dir = tempfile::tempdir().expect("a folder for the log");
        let mut child = Command::new(built("delay_server", &SOURCES))
            .arg(dir.path().join(LOG))
            .args([port.to_string(), backlog.to_string(), SEED.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the delay server starts");
        pin(child.id(), SERVER_CPU);
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the port");
        let port = line.trim().parse().expect("the delay server prints its port");
        Self { child, port, dir }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The address of an answer: `path` as `delay_server/answer.c` knows it.
    pub(crate) fn url(&self, path: &str) -> String {
        url(self.port, path)
    }

    /// Stops it where it stands.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Ends it when it has read all that has come, and takes its log.
    pub(crate) fn stop(mut self) -> Log {
        self.thaw();
        self.signal(Signal::SIGTERM);
        let status: ExitStatus = self.child.wait().expect("it was started here");
        assert!(status.success(), "the delay server failed: {status}");
        Log::read(&self.dir.path().join(LOG))
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the delay server runs");
    }
}

impl Drop for DelayServer {
    fn drop(&mut self) {
        // After `stop` there is nothing left to end, and killing says so.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Where `path` of a server on `port` is.
pub(crate) fn url(port: u16, path: &str) -> String {
    format!("http://127.0.0.1:{port}{path}")
}

const LOG: &str = "log";
const SOURCES: [&str; 5] = [
    "delay_server/main.c",
    "delay_server/connection.c",
    "delay_server/answer.c",
    "delay_server/due.c",
    "delay_server/log.c",
];
