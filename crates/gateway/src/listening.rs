//! The listeners of all threads.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use tollgate_eventloop::{SocketFile, defer_accept, listen};

use crate::config::{Address, Listener};
use crate::door::Door;
use crate::error::Error;
use crate::worker::Listening;

/// Where one listener of a configuration listens.
#[derive(Debug)]
pub(crate) struct Place {
    /// The address that was asked for.
    pub(crate) asked: Address,
    /// The one that it is; of a port that was left open, the real one.
    pub(crate) real: Address,
    /// The threads' listeners, one each.
    doors: Vec<Arc<Door>>,
    /// Removed when the gateway no longer listens there.
    _file: Option<SocketFile>,
}

impl Place {
    /// Whether a port is taken still, as not all threads have closed their listeners.
    pub(crate) fn holds_port(&self) -> bool {
        matches!(self.real, Address::Tcp(_)) && self.doors.iter().any(|door| door.is_open())
    }
}

/// Listens as asked, once a thread. `closing` is where that was asked for before, if the threads may not have
/// closed it: listeners that are open still stay so, and so do the connections that wait there.
///
/// # Errors
///
/// [`Error::Listen`].
pub(crate) fn listen_for_threads(
    listener: &Listener,
    threads: usize,
    closing: Option<&Place>,
) -> Result<(Place, Vec<Listening>), Error> {
    let backlog = listener.backlog();
    let bound = match &listener.address {
        Address::Tcp(address) => match closing.and_then(what_is_left) {
            Some((address, left)) => on_port_again(address, left, backlog),
            None => on_port(*address, backlog, threads),
        }
        .and_then(|bound| {
            bound.1.iter().try_for_each(|socket| defer_accept(socket, listener.defer_accept))?;
            Ok(bound)
        }),
        Address::Unix(path) => on_path(path, backlog, threads),
    };
    let (real, sockets, file) =
        bound.map_err(|source| Error::Listen { address: listener.address.clone(), source })?;
    let own_host = match &real {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    };
    let listenings: Vec<_> = sockets
        .into_iter()
        .map(|socket| Listening::new(socket, listener, own_host.clone()))
        .collect();
    let doors = listenings.iter().map(|listening| Arc::clone(&listening.door)).collect();
    Ok((Place { asked: listener.address.clone(), real, doors, _file: file }, listenings))
}

type Bound = (Address, Vec<Arc<OwnedFd>>, Option<SocketFile>);

/// One listener a thread, all on the port of the first.
fn on_port(address: SocketAddr, backlog: i32, threads: usize) -> io::Result<Bound> {
    // Listeners that share a port would also share it with another program, which would then answer a
    // part of the requests: so the port is taken alone first.
    let alone = listen(address, false, backlog)?;
    let address = alone.local_addr()?;
    let sockets = if threads == 1 {
        vec![Arc::new(OwnedFd::from(alone))]
    } else {
        drop(alone);
        (0..threads).map(|_| share_port(address, backlog)).collect::<io::Result<_>>()?
    };
    Ok((Address::Tcp(address), sockets, None))
}

/// The listeners that were not closed yet, by thread, if there is one; and where they are.
fn what_is_left(closing: &Place) -> Option<(SocketAddr, Vec<Option<Arc<OwnedFd>>>)> {
    let Address::Tcp(address) = closing.real else { return None };
    let left: Vec<_> = closing.doors.iter().map(|door| door.hold_open()).collect();
    left.iter().any(Option::is_some).then_some((address, left))
}

/// The same listeners, and new ones in the place of those that were closed.
fn on_port_again(
    address: SocketAddr,
    left: Vec<Option<Arc<OwnedFd>>>,
    backlog: i32,
) -> io::Result<Bound> {
    let sockets = left
        .into_iter()
        .map(|left| left.map_or_else(|| share_port(address, backlog), Ok))
        .collect::<io::Result<_>>()?;
    Ok((Address::Tcp(address), sockets, None))
}

fn share_port(address: SocketAddr, backlog: i32) -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(OwnedFd::from(listen(address, true, backlog)?)))
}

/// One listener, which all threads take connections from.
fn on_path(path: &Path, backlog: i32, threads: usize) -> io::Result<Bound> {
    let (socket, file) = SocketFile::listen(path, backlog, "tollgate gateway")?;
    let mut sockets = (1..threads).map(|_| socket.try_clone()).collect::<io::Result<Vec<_>>>()?;
    sockets.push(socket);
    let sockets = sockets.into_iter().map(Arc::new).collect();
    Ok((Address::Unix(path.to_owned()), sockets, Some(file)))
}
