//! Commands to the threads of a gateway.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_net::Waker;

use crate::filter::{TransactionId, Verdict};
use crate::generation::ConfigGeneration;
use crate::listener::ThreadListener;

#[derive(Debug)]
pub(crate) enum Command {
    /// Finish active requests, then end.
    Drain,
    /// Switch to another configuration and listen on these listeners, too.
    Reload { generation: Arc<ConfigGeneration>, added: Vec<ThreadListener> },
    /// Continue a suspended transaction.
    Resume(TransactionId, Verdict),
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

/// Resumes suspended transactions of one thread, from any thread.
#[derive(Clone, Debug)]
pub struct Resumer(pub(crate) Arc<CommandQueue>);

impl Resumer {
    /// Ends the suspension of a transaction. Does nothing if it is not suspended or has ended.
    pub fn resume(&self, id: TransactionId, verdict: Verdict) -> io::Result<()> {
        self.0.send(Command::Resume(id, verdict))
    }
}
