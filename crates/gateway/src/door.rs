//! A listener as it is known outside of the thread that it belongs to.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A listener that its thread closes when that is told to, and when nobody waits there any more: until then,
/// it can be had again. Its port is free only afterwards.
#[derive(Debug)]
pub(crate) struct Door {
    socket: Mutex<Weak<OwnedFd>>,
}

impl Door {
    pub(crate) fn new(socket: &Arc<OwnedFd>) -> Self {
        Self { socket: Mutex::new(Arc::downgrade(socket)) }
    }

    /// Whether it was not closed yet.
    pub(crate) fn is_open(&self) -> bool {
        self.socket().strong_count() > 0
    }

    /// The listener, which is closed no sooner than this is given back. None: it was closed, and its port is
    /// free.
    pub(crate) fn hold_open(&self) -> Option<Arc<OwnedFd>> {
        self.socket().upgrade()
    }

    /// Closes it, unless somebody holds it open.
    pub(crate) fn close(&self, socket: Arc<OwnedFd>) {
        // Whoever asks now is told when the kernel has closed it.
        let _closing = self.socket();
        drop(socket);
    }

    fn socket(&self) -> MutexGuard<'_, Weak<OwnedFd>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_open_is_not_closed_and_what_was_closed_cannot_be_had() {
        let socket = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let door = Door::new(&socket);
        let held = door.hold_open().unwrap();
        door.close(socket);
        assert!(door.is_open());
        door.close(held);
        assert!(!door.is_open() && door.hold_open().is_none());
    }
}
