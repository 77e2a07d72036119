//! An origin as a whole: its threads on one port.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use tollgate_eventloop::{SocketFile, Waker, listen, pin_current_thread, wake_exactly};
use tollgate_ledger::{FINISH_TIMEOUT, LogFile, LogFormat, LogTarget};

use crate::config::{Config, Timeouts};
use crate::connection::Tools;
use crate::counters::{Counters, ThreadCounters};
use crate::endpoints::page::Pages;
use crate::error::Error;
use crate::listen::Listen;
use crate::recall::Recall;
use crate::site::Site;
use crate::sources::Sources;
use crate::stopper::Stopper;
use crate::worker::{BACKLOG, STOP_TIMEOUT, Worker};

/// The most threads of an origin.
const MAX_THREADS: usize = 256;

/// How long an origin may take to end once it is told to: what is in flight has its time, and then
/// whoever reads the access log.
pub const END_TIMEOUT: Duration = STOP_TIMEOUT.saturating_add(FINISH_TIMEOUT);

/// A benchmark origin that listens, and serves once told to.
#[derive(Debug)]
pub struct Origin {
    listen: Listen,
    threads: Vec<Thread>,
    stopper: Stopper,
    log: Option<LogFile>,
    /// Removed when the origin is dropped.
    _socket_file: Option<SocketFile>,
}

/// What one thread is started with.
struct Thread {
    listener: OwnedFd,
    waker: Waker,
    cpu: Option<usize>,
    counters: ThreadCounters,
    log: Option<LogFile>,
    shared: Shared,
}

/// What all threads share.
#[derive(Clone)]
struct Shared {
    zero: Arc<File>,
    delays: Arc<AtomicU64>,
    own_host: Arc<str>,
    timeouts: Timeouts,
}

impl Origin {
    /// Listens as `config` asks. Connections wait until [`serve`](Self::serve).
    ///
    /// # Errors
    ///
    /// [`Error::Threads`], [`Error::Listen`], [`Error::AccessLog`] or [`Error::Start`].
    pub fn bind(config: &Config) -> Result<Self, Error> {
        if !(1..=MAX_THREADS).contains(&config.threads) {
            return Err(Error::Threads { asked: config.threads, max: MAX_THREADS });
        }
        let log = config.access_log.as_ref().map(open_log).transpose()?;
        let Listening { listen, listeners, socket_file } = listen_for_threads(config)?;
        let wakers = (0..config.threads)
            .map(|_| Waker::new())
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::Start)?;
        let shared = Shared {
            zero: Sources::open_zero().map_err(Error::Start)?,
            delays: Arc::default(),
            own_host: match &listen {
                Listen::Tcp(addr) => addr.to_string().into(),
                Listen::Unix(_) => "localhost".into(),
            },
            timeouts: config.timeouts,
        };
        let stopper = Stopper::new(&wakers);
        let counters = Counters::of_threads(config.threads, Instant::now());
        let threads = listeners
            .into_iter()
            .zip(wakers)
            .zip(counters)
            .enumerate()
            .map(|(index, ((listener, waker), counters))| Thread {
                listener,
                waker,
                // One CPU a thread, so that none moves away from the memory that it has warmed.
                cpu: config.cpus.iter().cycle().nth(index).copied(),
                counters,
                log: log.clone(),
                shared: shared.clone(),
            })
            .collect();
        Ok(Self { listen, threads, stopper, log, _socket_file: socket_file })
    }

    /// Where it listens; the port, if any, is the real one.
    #[must_use]
    pub fn listens_on(&self) -> &Listen {
        &self.listen
    }

    /// What stops it, while it serves or before.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until stopped: closes the listeners, gives what is in flight a second to finish, and
    /// returns when every thread has ended. Requests that had arrived are answered; answers that are
    /// not due within that second are not waited for.
    ///
    /// # Errors
    ///
    /// The first of what ended a thread early; the other threads were stopped then.
    pub fn serve(self) -> Result<(), Error> {
        let mut threads = Vec::with_capacity(self.threads.len());
        let mut outcome = Ok(());
        for (index, thread) in self.threads.into_iter().enumerate() {
            let stopper = self.stopper.clone();
            let started = thread::Builder::new()
                .name(format!("origin-{index}"))
                .spawn(move || thread.serve(stopper));
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
        if let Some(Err(error)) = self.log.as_ref().map(LogFile::finish) {
            eprintln!("tollgate origin: {error}");
        }
        outcome
    }
}

fn open_log(target: &LogTarget) -> Result<LogFile, Error> {
    LogFile::open(target, LogFormat::Combined, "tollgate origin", None).map_err(|source| {
        let path = match target {
            LogTarget::Stdout => PathBuf::from("/dev/stdout"),
            LogTarget::File(path) => path.clone(),
        };
        Error::AccessLog { path, source }
    })
}

/// Listeners, one a thread, and where that is.
struct Listening {
    listen: Listen,
    listeners: Vec<OwnedFd>,
    socket_file: Option<SocketFile>,
}

fn listen_for_threads(config: &Config) -> Result<Listening, Error> {
    let listening = match &config.listen {
        Listen::Tcp(addr) => listen_on_port(*addr, config.threads),
        Listen::Unix(path) => listen_on_path(path, config.threads),
    };
    listening.map_err(|source| Error::Listen { listen: config.listen.clone(), source })
}

/// One listener a thread, all on the port of the first.
fn listen_on_port(addr: SocketAddr, threads: usize) -> io::Result<Listening> {
    // Listeners that share a port would also share it with another origin, which would then answer a
    // part of the requests: so the port is taken alone first.
    let alone = listen(addr, false, BACKLOG)?;
    let addr = alone.local_addr()?;
    let listeners = if threads == 1 {
        vec![OwnedFd::from(alone)]
    } else {
        drop(alone);
        (0..threads)
            .map(|_| listen(addr, true, BACKLOG).map(OwnedFd::from))
            .collect::<io::Result<_>>()?
    };
    Ok(Listening { listen: Listen::Tcp(addr), listeners, socket_file: None })
}

/// One listener, which all threads take connections from.
fn listen_on_path(path: &Path, threads: usize) -> io::Result<Listening> {
    let (listener, socket_file) = SocketFile::listen(path, BACKLOG, "tollgate origin")?;
    let mut listeners =
        (1..threads).map(|_| listener.try_clone()).collect::<io::Result<Vec<_>>>()?;
    listeners.push(listener);
    Ok(Listening {
        listen: Listen::Unix(path.to_owned()),
        listeners,
        socket_file: Some(socket_file),
    })
}

impl Thread {
    /// Serves on the calling thread.
    fn serve(self, stopper: Stopper) -> Result<(), Error> {
        // An origin that lost a thread would go on at a part of its speed.
        let _stop_all = StopOnExit(stopper.clone());
        if let Some(cpu) = self.cpu {
            pin_current_thread(&[cpu]).map_err(|source| Error::Pin { cpu, source })?;
        }
        // A sleep that was asked for is to end when it is over.
        wake_exactly().map_err(Error::Start)?;
        let site = Site {
            clock: Instant::now,
            counters: self.counters,
            pages: Pages::new(&self.shared.own_host),
            recall: Recall::default(),
            delays: self.shared.delays,
            log: self.log.as_ref().map(LogFile::of_thread),
        };
        let tools = Tools::new(site, Sources::new(self.shared.zero), self.shared.timeouts);
        Worker::new(self.listener, self.waker, stopper, tools, self.shared.timeouts)?
            .run()
            .map_err(Error::Wait)
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("listener", &self.listener).finish_non_exhaustive()
    }
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
