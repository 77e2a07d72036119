//! Where an origin listens: an address, or the path of a unix-domain socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an origin listens. As text: `127.0.0.1:8000`, `[::1]:8000` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address; port 0 asks for any free one.
    Tcp(SocketAddr),
    /// The path of a socket, which is made, and removed at the end. One that nobody listens on any
    /// more is replaced.
    Unix(PathBuf),
}

/// A text that says nowhere to listen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has to be an address and a port, such as 127.0.0.1:8000, or unix:/path/of/a/socket")]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_listen_reads_as_it_prints() {
        for text in ["127.0.0.1:8000", "[::1]:0", "unix:/run/a b.sock", "unix:here"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in ["", "8000", "localhost:8000", "127.0.0.1", "unix:", "UNIX:/a"] {
            assert_eq!(text.parse::<Listen>(), Err(ListenParseError), "{text}");
        }
    }
}
