//! Why an origin does not start, or stops serving.

use std::io;
use std::path::PathBuf;

use crate::listen::Listen;

/// Why an origin does not start, or stops serving. Each says what to do next; the cause is in
/// `source()`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The number of threads is out of range.
    #[error("an origin cannot run on {asked} threads; ask for 1 to {max}")]
    Threads {
        /// What was asked for.
        asked: usize,
        /// The most there may be.
        max: usize,
    },
    /// It cannot listen there.
    #[error("the origin cannot listen on {listen}; {}", listen_advice(.listen, .source))]
    Listen {
        /// The address or path that was asked for.
        listen: Listen,
        /// Why not.
        source: io::Error,
    },
    /// The access log cannot be written to.
    #[error("the access log {} cannot be opened; choose a file in a folder that may be written to", .path.display())]
    AccessLog {
        /// The file that was asked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A thread cannot be confined to its CPU.
    #[error(
        "an origin thread cannot be pinned to CPU {cpu}; choose CPUs that this process may use"
    )]
    Pin {
        /// The CPU that was asked for.
        cpu: usize,
        /// Why not.
        source: io::Error,
    },
    /// The machine has not what a thread needs.
    #[error("an origin thread cannot start; raise the limits on open files and on processes")]
    Start(#[source] io::Error),
    /// The event loop of a thread has failed.
    #[error("an origin thread can no longer wait for its sockets; start the origin again")]
    Wait(#[source] io::Error),
    /// A thread could not be told to stop.
    #[error("an origin thread could not be told to stop; end the process")]
    Stop(#[source] io::Error),
    /// A thread has panicked, which is a defect of the origin.
    #[error("an origin thread has panicked; what it printed says where")]
    Panicked,
}

fn listen_advice(listen: &Listen, source: &io::Error) -> &'static str {
    match (listen, source.kind()) {
        (Listen::Tcp(_), io::ErrorKind::AddrInUse) => {
            "stop what listens there or choose another port"
        }
        (Listen::Tcp(_), io::ErrorKind::AddrNotAvailable) => "choose an address of this machine",
        (Listen::Tcp(_), io::ErrorKind::PermissionDenied) => "choose a port above 1023",
        (Listen::Tcp(_), _) => "choose another address",
        (Listen::Unix(_), io::ErrorKind::AddrInUse) => {
            "stop what listens there or choose another path"
        }
        (Listen::Unix(_), io::ErrorKind::AlreadyExists) => {
            "it is not a socket; choose another path"
        }
        (Listen::Unix(_), io::ErrorKind::ResourceBusy) => {
            "end what keeps its folder locked or choose another folder"
        }
        (Listen::Unix(_), _) => {
            "choose a path of at most 107 bytes in a folder that may be read and written to"
        }
    }
}
