//! Lines as messages of syslog, to a daemon on this host (`syslog:/dev/log`) or over UDP (`syslog:192.0.2.1:514`).
//!
//! Not by the crate `syslog`, which formats the time by another library than the rest of the log; the header of a message is
//! one line.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process;

use jiff::Zoned;

use crate::queue::{Sink, SinkError};

/// Facility `local7` and severity `info`, as nginx has it.
const PRIORITY: u8 = 23 * 8 + 6;

/// EMSGSIZE on Linux: the message is longer than a datagram may be.
const TOO_LONG: i32 = 90;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogAddress {
    /// The socket of a daemon on this host.
    Unix(PathBuf),
    Udp(SocketAddr),
}

impl SyslogAddress {
    const PORT: u16 = 514;

    /// Parses a path, or an IP address with or without a port.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return Some(Self::Unix(text.into()));
        }
        let with_port = || Some(SocketAddr::new(text.parse().ok()?, Self::PORT));
        text.parse().ok().or_else(with_port).map(Self::Udp)
    }
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "syslog:{}", path.display()),
            Self::Udp(address) => write!(f, "syslog:{address}"),
        }
    }
}

/// A connected socket.
enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Socket {
    fn connect(address: &SyslogAddress) -> io::Result<Self> {
        match address {
            SyslogAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Ok(Self::Unix(socket))
            }
            SyslogAddress::Udp(to) => {
                let any: IpAddr = match to {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let socket = UdpSocket::bind((any, 0))?;
                socket.connect(to)?;
                Ok(Self::Udp(socket))
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.send(message),
            Self::Udp(socket) => socket.send(message),
        }
        .map(drop)
    }
}

pub(crate) struct Syslog {
    address: SyslogAddress,
    program: &'static str,
    host: String,
    socket: Socket,
}

impl Syslog {
    pub(crate) fn connect(address: SyslogAddress, program: &'static str) -> io::Result<Self> {
        let socket = Socket::connect(&address)?;
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "-".to_owned() } else { host.trim().to_owned() };
        Ok(Self { address, program, host, socket })
    }

    /// Header of a message: as `syslog(3)` writes it to a daemon on the same host, without a host, and over UDP that of RFC 5424.
    fn header(&self, now: &Zoned) -> String {
        let Self { program, host, .. } = self;
        // A tag has no space, and the name of a program may: `tollgate gateway`.
        let tag = program.replace(' ', "-");
        let process = process::id();
        match self.address {
            SyslogAddress::Unix(_) => {
                format!("<{PRIORITY}>{} {tag}[{process}]: ", now.strftime("%b %e %H:%M:%S"))
            }
            SyslogAddress::Udp(_) => {
                let time = now.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z");
                format!("<{PRIORITY}>1 {time} {host} {tag} {process} - - ")
            }
        }
    }

    /// Sends a message, after a failure once more on a new connection: the daemon may have been started again.
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self.socket.send(message) {
            Err(error) if error.raw_os_error() != Some(TOO_LONG) => {}
            done => return done,
        }
        self.socket = Socket::connect(&self.address)?;
        self.socket.send(message)
    }
}

impl Sink for Syslog {
    fn write_lines(&mut self, lines: &[u8]) -> Result<(), SinkError> {
        let mut message = self.header(&Zoned::now()).into_bytes();
        let header = message.len();
        let (mut lost, mut last) = (0, None);
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            message.truncate(header);
            message.extend_from_slice(line);
            if let Err(error) = self.send(&message) {
                lost += 1;
                last = Some(error);
            }
        }
        last.map_or(Ok(()), |cause| Err(SinkError::Lost { lines: lost, cause }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn addresses_are_paths_or_ip_addresses() {
        for (text, shown) in [
            ("/dev/log", "syslog:/dev/log"),
            ("192.0.2.1", "syslog:192.0.2.1:514"),
            ("192.0.2.1:1514", "syslog:192.0.2.1:1514"),
            ("2001:db8::1", "syslog:[2001:db8::1]:514"),
            ("[2001:db8::1]:1514", "syslog:[2001:db8::1]:1514"),
        ] {
            assert_eq!(SyslogAddress::parse(text).unwrap().to_string(), shown);
        }
        for text in ["", "dev/log", "logs.example", "192.0.2.1:", "[2001:db8::1]"] {
            assert_eq!(SyslogAddress::parse(text), None, "{text}");
        }
    }

    fn received(receive: impl Fn(&mut [u8]) -> io::Result<usize>) -> String {
        let mut buffer = [0; 1000];
        let count = receive(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    }

    #[test]
    fn each_line_is_a_message_over_udp() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let address = SyslogAddress::Udp(server.local_addr().unwrap());
        let mut syslog = Syslog::connect(address, "tollgate gateway").unwrap();
        syslog.write_lines(b"one two\nthree\n").unwrap();
        let messages = [0; 2].map(|_| received(|buffer| server.recv(buffer)));
        for (message, line) in messages.iter().zip(["one two", "three"]) {
            // <PRI>1 TIME HOST TAG PROCESS - - MESSAGE
            let parts: Vec<&str> = message.splitn(8, ' ').collect();
            assert_eq!(parts[0], "<190>1", "{message}");
            let time: jiff::Timestamp = parts[1].parse().unwrap();
            assert!(jiff::Timestamp::now().duration_since(time).as_secs().abs() < 60, "{message}");
            assert!(!parts[2].is_empty(), "{message}");
            let process = process::id().to_string();
            assert_eq!(parts[3..], ["tollgate-gateway", &process, "-", "-", line], "{message}");
        }
    }

    #[test]
    fn daemon_may_be_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = || {
            fs::remove_file(&path).ok();
            let daemon = UnixDatagram::bind(&path).unwrap();
            daemon.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            daemon
        };
        let first = daemon();
        let mut syslog = Syslog::connect(SyslogAddress::Unix(path.clone()), "test").unwrap();
        syslog.write_lines(b"a\n").unwrap();
        let message = received(|buffer| first.recv(buffer));
        let end = format!(" test[{}]: a", process::id());
        assert!(message.starts_with("<190>") && message.ends_with(&end), "{message}");
        // <190>Nov 29 03:40:00 test[1]: a
        assert_eq!(message.len(), "<190>Nov 29 03:40:00".len() + end.len(), "{message}");
        let second = daemon();
        drop(first);
        syslog.write_lines(b"b\n").unwrap();
        assert!(received(|buffer| second.recv(buffer)).ends_with(": b"));
        // Without a daemon, and with a line longer than a message, lines are counted as lost, and the next one is sent.
        drop(second);
        let lost = |result: Result<(), SinkError>| match result {
            Err(SinkError::Lost { lines, .. }) => lines,
            other => panic!("{other:?}"),
        };
        assert_eq!(lost(syslog.write_lines(b"c\nd\n")), 2);
        let third = daemon();
        let long = [&[b'x'; 4 << 20][..], b"\ne\n"].concat();
        assert_eq!(lost(syslog.write_lines(&long)), 1);
        assert!(received(|buffer| third.recv(buffer)).ends_with(": e"));
    }
}
