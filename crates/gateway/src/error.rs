//! Why a gateway does not start, or stops serving.

use std::io;
use std::path::PathBuf;

use crate::aside::AsideError;
use crate::config::Address;

/// Why a gateway does not start, or stops serving. Each says what to do next; the cause is in
/// `source()`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot listen there.
    #[error("the gateway cannot listen on {address}; {}", advice(.address, .source))]
    Listen {
        /// The address that was asked for.
        address: Address,
        /// Why not.
        source: io::Error,
    },
    /// It cannot listen on the admin address, or check backends.
    #[error(transparent)]
    Aside(#[from] AsideError),
    /// The access log cannot be written to.
    #[error("the access log {} cannot be opened; choose a file in a folder that may be written to", .path.display())]
    AccessLog {
        /// The file that was asked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The machine has not what a thread needs.
    #[error("a gateway thread cannot start; raise the limits on open files and on processes")]
    Start(#[source] io::Error),
    /// The number of threads is another one.
    #[error("a gateway of {running} threads cannot go on with {asked}; start it again for that")]
    Threads {
        /// How many there are.
        running: usize,
        /// How many were asked for.
        asked: usize,
    },
    /// The event loop of a thread has failed.
    #[error("a gateway thread can no longer wait for its sockets; start the gateway again")]
    Wait(#[source] io::Error),
    /// A thread could not be told something.
    #[error("a gateway thread could not be woken; end the process")]
    Wake(#[source] io::Error),
    /// A thread has panicked, which is a defect of the gateway.
    #[error("a gateway thread has panicked; what it printed says where")]
    Panicked,
}

fn advice(address: &Address, source: &io::Error) -> &'static str {
    match (address, source.kind()) {
        (_, io::ErrorKind::AddrInUse) => "stop what listens there or choose another address",
        (Address::Tcp(_), io::ErrorKind::AddrNotAvailable) => "choose an address of this machine",
        (Address::Tcp(_), io::ErrorKind::PermissionDenied) => "choose a port above 1023",
        (Address::Tcp(_), _) => "choose another address",
        (Address::Unix(_), _) => {
            "choose a path of at most 107 bytes in a folder that may be read and written to"
        }
    }
}
