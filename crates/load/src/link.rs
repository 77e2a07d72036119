//! The socket of a connection, and how far its answers have been read.

use std::io;
use std::time::SystemTime;

use tollgate_eventloop::{Interest, Poller, Socket};
use tollgate_wire::{BodySearch, ResponseScanner};

use crate::plan::Target;

/// A connection that exists or is being made.
///
/// This is where another transport would come in: what lies above sends bytes and receives bytes,
/// and knows nothing of what carries them.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Socket,
    /// Whether the kernel notes when answers arrive.
    is_stamped: bool,
    pub(crate) scanner: ResponseScanner,
    /// Looks for what the answer under way should contain.
    pub(crate) search: BodySearch,
    /// The server has sent its last byte, so that nothing will announce the end of the stream.
    pub(crate) is_shut: bool,
    /// What went wrong with sending. The server may have answered before, and that is still to be
    /// read.
    pub(crate) send_error: Option<io::Error>,
    /// It has carried a whole exchange.
    pub(crate) is_reused: bool,
    /// Whether the poller tells of room to write; `None` while it does not know the socket.
    watches_room: Option<bool>,
}

impl Link {
    /// Starts to connect; where `is_stamped`, the kernel notes when answers arrive.
    pub(crate) fn connect(target: &Target, is_stamped: bool) -> io::Result<Self> {
        let socket = match target {
            Target::Tcp(address) => Socket::connect(*address)?,
            Target::Unix(path) => Socket::connect_unix(path)?,
        };
        if is_stamped {
            socket.stamp_arrivals()?;
        }
        Ok(Self {
            socket,
            is_stamped,
            scanner: ResponseScanner::new(),
            search: BodySearch::new(),
            is_shut: false,
            send_error: None,
            is_reused: false,
            watches_room: None,
        })
    }

    /// Receives what there is, and when it arrived where that is noted.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<SystemTime>)> {
        if self.is_stamped {
            self.socket.receive_stamped(buffer)
        } else {
            Ok((self.socket.receive(buffer)?, None))
        }
    }

    /// Has the poller tell of what arrives and, if asked for, of room to write. Asked for again, it
    /// costs nothing.
    pub(crate) fn watch(&mut self, poller: &Poller, token: u64, room: bool) -> io::Result<()> {
        let interest = if room { Interest::BothOnce } else { Interest::ReadableOnce };
        match self.watches_room {
            Some(watched) if watched == room => return Ok(()),
            Some(_) => poller.modify(&self.socket, token, interest)?,
            None => poller.add(&self.socket, token, interest)?,
        }
        self.watches_room = Some(room);
        Ok(())
    }
}
