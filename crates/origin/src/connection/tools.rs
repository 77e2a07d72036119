//! What the connections of a thread share.

use std::io::{self, ErrorKind};

use tollgate_eventloop::Socket;
use tollgate_wire::MAX_HEAD_BYTES;

use crate::config::Timeouts;
use crate::output::Output;
use crate::site::Site;
use crate::sources::Sources;

/// An incomplete head, and as much again to read behind it.
const INPUT_BYTES: usize = 2 * MAX_HEAD_BYTES;

/// What the connections of a thread use in turns, so that an idle one holds no memory.
pub(crate) struct Tools {
    pub(super) input: Box<[u8]>,
    pub(super) output: Output,
    pub(super) sources: Sources,
    pub(crate) site: Site,
    pub(super) timeouts: Timeouts,
}

impl Tools {
    pub(crate) fn new(site: Site, sources: Sources, timeouts: Timeouts) -> Self {
        Self {
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            output: Output::default(),
            sources,
            site,
            timeouts,
        }
    }

    /// One read into the input, from `at` on.
    pub(super) fn receive(&mut self, socket: &Socket, at: usize) -> io::Result<Received> {
        match socket.receive(&mut self.input[at..]) {
            Ok(0) => Ok(Received::End),
            Ok(count) => {
                self.site.counters.tally().bytes_in.add(count as u64);
                Ok(Received::Bytes(count))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(Received::Nothing)
            }
            Err(error) => Err(error),
        }
    }
}

/// What came of a read.
pub(super) enum Received {
    Bytes(usize),
    Nothing,
    End,
}
