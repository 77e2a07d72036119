//! An origin as a whole: its threads on one port.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use tollgate_eventloop::{Waker, listen, pin_current_thread};

use crate::config::Config;
use crate::error::Error;
use crate::stopper::Stopper;
use crate::worker::Worker;

/// The most threads of an origin.
const MAX_THREADS: usize = 256;

/// How many connections of a thread may wait to be accepted.
const BACKLOG: i32 = 4096;

/// A benchmark origin that listens, and serves once told to.
#[derive(Debug)]
pub struct Origin {
    addr: SocketAddr,
    listeners: Vec<TcpListener>,
    wakers: Vec<Waker>,
    cpus: Vec<usize>,
    stopper: Stopper,
}

impl Origin {
    /// Listens as `config` asks. Connections wait until [`serve`](Self::serve).
    ///
    /// # Errors
    ///
    /// [`Error::Threads`], [`Error::Listen`] or [`Error::Start`].
    pub fn bind(config: &Config) -> Result<Self, Error> {
        if !(1..=MAX_THREADS).contains(&config.threads) {
            return Err(Error::Threads { asked: config.threads, max: MAX_THREADS });
        }
        let (addr, listeners) = listen_for_threads(config)?;
        let wakers = (0..config.threads)
            .map(|_| Waker::new())
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::Start)?;
        Ok(Self {
            addr,
            listeners,
            stopper: Stopper::new(&wakers),
            wakers,
            cpus: config.cpus.clone(),
        })
    }

    /// Where it listens; the port is the real one.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// What stops it, while it serves or before.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until stopped: closes the listeners, gives what is in flight a second to finish, and
    /// returns when every thread has ended.
    ///
    /// # Errors
    ///
    /// The first of what ended a thread early; the other threads were stopped then.
    pub fn serve(self) -> Result<(), Error> {
        let mut threads = Vec::with_capacity(self.listeners.len());
        let mut outcome = Ok(());
        for (index, (listener, waker)) in self.listeners.into_iter().zip(self.wakers).enumerate() {
            // One CPU a thread, so that none moves away from the memory that it has warmed.
            let cpu = self.cpus.iter().cycle().nth(index).copied();
            let stopper = self.stopper.clone();
            let started = thread::Builder::new()
                .name(format!("origin-{index}"))
                .spawn(move || serve_on_this_thread(listener, waker, stopper, cpu));
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.stopper.stop()?;
                    outcome = Err(Error::Start(error));
                    break;
                }
            }
        }
        for thread in threads {
            outcome = outcome.and(thread.join().unwrap_or(Err(Error::Panicked)));
        }
        outcome
    }
}

/// One listener a thread, all on the port of the first.
fn listen_for_threads(config: &Config) -> Result<(SocketAddr, Vec<TcpListener>), Error> {
    let listen_error = |source| Error::Listen { addr: config.listen, source };
    // Listeners that share a port would also share it with another origin, which would then answer a
    // part of the requests: so the port is taken alone first.
    let alone = listen(config.listen, false, BACKLOG).map_err(listen_error)?;
    let addr = alone.local_addr().map_err(listen_error)?;
    if config.threads == 1 {
        return Ok((addr, vec![alone]));
    }
    drop(alone);
    let listeners = (0..config.threads)
        .map(|_| listen(addr, true, BACKLOG))
        .collect::<Result<_, _>>()
        .map_err(listen_error)?;
    Ok((addr, listeners))
}

fn serve_on_this_thread(
    listener: TcpListener,
    waker: Waker,
    stopper: Stopper,
    cpu: Option<usize>,
) -> Result<(), Error> {
    // An origin that lost a thread would go on at a part of its speed.
    let _stop_all = StopOnExit(stopper.clone());
    if let Some(cpu) = cpu {
        pin_current_thread(&[cpu]).map_err(|source| Error::Pin { cpu, source })?;
    }
    Worker::new(listener, waker, stopper)?.run().map_err(Error::Wait)
}

/// Stops the other threads when this one ends, for whatever reason.
struct StopOnExit(Stopper);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        if let Err(error) = self.0.stop() {
            eprintln!("tollgate origin: {error}");
        }
    }
}
