//! Commands to the threads of a gateway.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_net::Waker;

use crate::generation::ConfigGeneration;
use crate::listener::ThreadListener;

#[derive(Debug)]
pub(crate) enum Command {
    /// Finish active requests, then end.
    Drain,
    /// Switch to another configuration and listen on these listeners, too.
    Reload { generation: Arc<ConfigGeneration>, added: Vec<ThreadListener> },
}

/// Command queue of one thread. Its waker announces commands.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    commands: Mutex<Vec<Command>>,
    waker: Waker,
}

impl CommandQueue {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { commands: Mutex::default(), waker: Waker::new()? })
    }

    pub(crate) fn send(&self, command: Command) -> io::Result<()> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.waker.wake()
    }

    /// Readable while commands wait.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Removes the waiting commands, in order.
    pub(crate) fn take(&self) -> io::Result<Vec<Command>> {
        self.waker.drain()?;
        Ok(std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
