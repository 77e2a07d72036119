//! Configuration of an origin, and the errors that it can fail with.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tollgate_accesslog::LogTarget;

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Listen,
    /// From 1 to 256.
    pub threads: usize,
    /// CPUs to run on, numbered from 0; threads are pinned to them in turn. Empty: not pinned.
    pub cpus: Vec<usize>,
    pub timeouts: Timeouts,
    pub access_log: Option<LogTarget>,
}

impl Config {
    /// One unpinned thread with the default timeouts and no access log.
    pub fn new(listen: Listen) -> Self {
        Self {
            listen,
            threads: 1,
            cpus: Vec::new(),
            timeouts: Timeouts::default(),
            access_log: None,
        }
    }
}

/// Time limits for clients. Connections are checked four times within the shortest timeout, at
/// least once a second, so a connection may be closed that much later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request head to its last.
    pub head: Duration,
    /// Between two reads of a request body; also the time allowed before the minimum rate applies.
    pub body: Duration,
    /// Minimum rate of a request body.
    pub body_bytes_per_second: u64,
    /// Between two writes of a response.
    pub response: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For reading what the client still sends after the last response.
    pub linger: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            body_bytes_per_second: 1024,
            response: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            linger: Duration::from_secs(1),
        }
    }
}

impl Timeouts {
    /// Interval between two scans for expired connections.
    pub(crate) fn sweep_interval(&self) -> Duration {
        let shortest = [self.head, self.body, self.response, self.idle, self.linger]
            .into_iter()
            .fold(Duration::MAX, Duration::min);
        (shortest / 4).clamp(SWEEP_INTERVAL_MIN, SWEEP_INTERVAL_MAX)
    }
}

const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(10);
const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Address to listen on. As text: `127.0.0.1:8000`, `[::1]:8000` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Port 0 selects a free port.
    Tcp(SocketAddr),
    /// Path of a socket, which is removed at the end. A socket without a listener is replaced.
    Unix(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected ADDRESS:PORT, such as 127.0.0.1:8000, or unix:PATH")]
pub struct ListenParseError;

impl FromStr for Listen {
    type Err = ListenParseError;

    fn from_str(text: &str) -> Result<Self, ListenParseError> {
        match text.strip_prefix("unix:") {
            Some("") => Err(ListenParseError),
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text.parse().map(Self::Tcp).or(Err(ListenParseError)),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "{addr}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Error that keeps an origin from starting or ends it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot run {threads} threads: must be 1 to {max}")]
    Threads { threads: usize, max: usize },
    #[error("cannot listen on {listen}; {}", listen_advice(.listen, .source))]
    Listen { listen: Listen, source: io::Error },
    #[error("cannot open access log {path:?}; choose a file in a writable directory")]
    AccessLog { path: PathBuf, source: io::Error },
    #[error("cannot pin a thread to CPU {cpu}; choose a CPU that this process may use")]
    Pin { cpu: usize, source: io::Error },
    #[error("cannot start a thread; raise the limits on open files and processes")]
    Start(#[source] io::Error),
    #[error("cannot wait for events; restart the origin")]
    Wait(#[source] io::Error),
    #[error("cannot stop a thread; kill the process")]
    Stop(#[source] io::Error),
    #[error("a thread panicked; see its message above")]
    Panicked,
}

fn listen_advice(listen: &Listen, source: &io::Error) -> &'static str {
    match (listen, source.kind()) {
        (Listen::Tcp(_), io::ErrorKind::AddrInUse) => {
            "stop the server that uses the port, or choose another port"
        }
        (Listen::Tcp(_), io::ErrorKind::AddrNotAvailable) => "choose an address of this machine",
        (Listen::Tcp(_), io::ErrorKind::PermissionDenied) => "choose a port above 1023",
        (Listen::Tcp(_), _) => "choose another address",
        (Listen::Unix(_), io::ErrorKind::AddrInUse) => {
            "stop the server that uses the socket, or choose another path"
        }
        (Listen::Unix(_), io::ErrorKind::AlreadyExists) => "not a socket; choose another path",
        (Listen::Unix(_), io::ErrorKind::ResourceBusy) => {
            "another process locks the directory; stop it or choose another directory"
        }
        (Listen::Unix(_), _) => {
            "choose a path of at most 107 bytes in a readable and writable directory"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_interval_follows_shortest_timeout() {
        let default = Timeouts::default();
        assert_eq!(default.sweep_interval(), Duration::from_millis(250));
        let short = Timeouts { body: Duration::from_millis(100), ..default };
        assert_eq!(short.sweep_interval(), Duration::from_millis(25));
        let zero = Timeouts { idle: Duration::ZERO, ..default };
        assert_eq!(zero.sweep_interval(), Duration::from_millis(10));
    }

    #[test]
    fn listen_address_parses_as_displayed() {
        for text in ["127.0.0.1:8000", "[::1]:0", "unix:/run/a b.sock", "unix:here"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in ["", "8000", "localhost:8000", "127.0.0.1", "unix:", "UNIX:/a"] {
            assert_eq!(text.parse::<Listen>(), Err(ListenParseError), "{text}");
        }
    }
}
