//! The contract between a connection, which moves bytes, and its protocol, which turns them into requests and responses.

use std::time::Instant;

use crate::endpoints::SourceKind;
use crate::output::OutputBuffer;
use crate::state::Shared;

/// As nginx with Lua.
pub(crate) const MAX_HEADERS: usize = 100;

/// Event or time that a connection waits for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// More bytes from the client, after those that were consumed; HTTP/2: or the time of a response.
    Input,
    /// The output to be sent.
    Flush,
    /// HTTP/1: the time of the response. Nothing is read before.
    Until(Instant),
    /// Up to this many bytes to be fetched and reported by `fetched`.
    Fetch(SourceKind, u64),
    /// The connection to be closed, once the output is sent.
    Close(CloseMode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// Everything that the client sent was read.
    Immediate,
    /// The client may still be sending. Closing at once would reset the connection, and the client
    /// might lose the response (RFC 9112, section 9.6).
    Linger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    Running,
    /// The next response of each connection is its last; HTTP/2: no more streams are accepted.
    Stopping,
}

/// Context in which a connection processes requests.
pub(crate) struct Context<'a> {
    pub(crate) output: &'a mut OutputBuffer,
    pub(crate) shared: &'a mut Shared,
    pub(crate) server: ServerState,
}

/// Part of a request that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// A head, or none yet.
    Head,
    /// A body, with `bytes` received since `since`.
    Body {
        since: Instant,
        bytes: u64,
    },
    Nothing,
}
