//! The sources of a thread's events, and their form in the tokens of its poller.

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// The [`Waker`](crate::Waker) of the thread.
    Waker,
    /// A listener, by its index in the [`Acceptor`](crate::Acceptor).
    Listener(usize),
    /// A connection that a client has opened.
    Downstream(ConnectionId),
    /// A connection to a server.
    Upstream(ConnectionId),
}

/// Identifies a connection of a thread, also after its end: an event may have been reported together with the one that
/// ended the connection, when another has its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    /// Place of the connection in the memory of the thread, below 2^32.
    pub key: usize,
    pub serial: Serial,
}

/// Distinguishes connections with the same key. Starts over after 2^30.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Serial(u32);

impl Serial {
    /// One bit less than there is room for in a token, so that no connection has the token of a listener.
    const MASK: u32 = (1 << 30) - 1;

    /// Advances to the next serial, and returns it.
    pub fn advance(&mut self) -> Self {
        self.0 = (self.0 + 1) & Self::MASK;
        *self
    }
}

/// Tokens from the top: the waker, then listeners. A connection has its serial in the upper 31 bits, then its key, then one
/// bit for the direction.
const WAKER: u64 = u64::MAX;
const KEY_BITS: u32 = 32;

impl EventSource {
    /// Returns the token that names the source to the poller.
    #[inline]
    pub fn token(self) -> u64 {
        let connection = |id: ConnectionId| {
            (u64::from(id.serial.0) << (KEY_BITS + 1)) | (u64::from(id.key as u32) << 1)
        };
        match self {
            Self::Waker => WAKER,
            Self::Listener(index) => WAKER - 1 - index as u64,
            Self::Downstream(id) => connection(id),
            Self::Upstream(id) => connection(id) | 1,
        }
    }

    /// Returns the source of an event with this token.
    #[inline]
    pub fn of_token(token: u64) -> Self {
        let serial = (token >> (KEY_BITS + 1)) as u32;
        let key = ((token >> 1) & u64::from(u32::MAX)) as usize;
        let id = ConnectionId { key, serial: Serial(serial) };
        match token {
            WAKER => Self::Waker,
            _ if serial > Serial::MASK => Self::Listener((WAKER - 1 - token) as usize),
            _ if token & 1 == 1 => Self::Upstream(id),
            _ => Self::Downstream(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_source() {
        let id = |key, serial| ConnectionId { key, serial: Serial(serial) };
        let last_key = u32::MAX as usize;
        for (source, token) in [
            (EventSource::Waker, u64::MAX),
            (EventSource::Listener(0), u64::MAX - 1),
            (EventSource::Listener(7), u64::MAX - 8),
            (EventSource::Downstream(id(0, 0)), 0),
            (EventSource::Upstream(id(0, 0)), 1),
            (EventSource::Downstream(id(5, 0)), 10),
            (EventSource::Upstream(id(5, 3)), 0x6_0000_000b),
            (EventSource::Downstream(id(last_key, Serial::MASK)), 0x7fff_ffff_ffff_fffe),
            (EventSource::Upstream(id(last_key, Serial::MASK)), 0x7fff_ffff_ffff_ffff),
        ] {
            assert_eq!(source.token(), token, "{source:?}");
            assert_eq!(EventSource::of_token(token), source, "{token:#x}");
        }
    }

    #[test]
    fn serials_start_over() {
        let mut serial = Serial::default();
        assert_eq!(serial.advance(), Serial(1));
        let mut last = Serial(Serial::MASK);
        assert_eq!((last.advance(), last), (Serial(0), Serial(0)));
    }
}
