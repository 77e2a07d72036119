//! The listeners of all threads.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use tollgate_eventloop::{SocketFile, defer_accept, listen};

use crate::config::{Address, Listener};
use crate::error::Error;
use crate::worker::Listening;

/// Where one listener of a configuration listens.
#[derive(Debug)]
pub(crate) struct Place {
    /// The address that was asked for.
    pub(crate) asked: Address,
    /// The one that it is; of a port that was left open, the real one.
    pub(crate) real: Address,
    /// Removed when the gateway no longer listens there.
    _file: Option<SocketFile>,
}

/// Listens as asked, once a thread.
///
/// # Errors
///
/// [`Error::Listen`].
pub(crate) fn listen_for_threads(
    listener: &Listener,
    threads: usize,
) -> Result<(Place, Vec<Listening>), Error> {
    let bound = match &listener.address {
        Address::Tcp(address) => on_port(*address, listener, threads),
        Address::Unix(path) => on_path(path, listener.backlog, threads),
    };
    let (real, sockets, file) =
        bound.map_err(|source| Error::Listen { address: listener.address.clone(), source })?;
    let own_host = match &real {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    };
    let listenings = sockets
        .into_iter()
        .map(|socket| Listening {
            socket: Some(socket),
            is_watched: false,
            is_closing: false,
            address: listener.address.clone(),
            identity: listener.tls.as_ref().map(|tls| tls.identity().clone()),
            own_host: own_host.clone(),
        })
        .collect();
    Ok((Place { asked: listener.address.clone(), real, _file: file }, listenings))
}

type Bound = (Address, Vec<OwnedFd>, Option<SocketFile>);

/// One listener a thread, all on the port of the first.
fn on_port(address: SocketAddr, listener: &Listener, threads: usize) -> io::Result<Bound> {
    let backlog = listener.backlog.try_into().unwrap_or(i32::MAX);
    // Listeners that share a port would also share it with another program, which would then answer a
    // part of the requests: so the port is taken alone first.
    let alone = listen(address, false, backlog)?;
    let address = alone.local_addr()?;
    let sockets: Vec<OwnedFd> = if threads == 1 {
        vec![OwnedFd::from(alone)]
    } else {
        drop(alone);
        (0..threads)
            .map(|_| listen(address, true, backlog).map(OwnedFd::from))
            .collect::<io::Result<_>>()?
    };
    if listener.defer_accept {
        sockets.iter().try_for_each(defer_accept)?;
    }
    Ok((Address::Tcp(address), sockets, None))
}

/// One listener, which all threads take connections from.
fn on_path(path: &Path, backlog: u32, threads: usize) -> io::Result<Bound> {
    let backlog = backlog.try_into().unwrap_or(i32::MAX);
    let (socket, file) = SocketFile::listen(path, backlog, "tollgate gateway")?;
    let mut sockets = (1..threads).map(|_| socket.try_clone()).collect::<io::Result<Vec<_>>>()?;
    sockets.push(socket);
    Ok((Address::Unix(path.to_owned()), sockets, Some(file)))
}
