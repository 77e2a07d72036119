//! An origin: its listeners, its threads and their end.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use tollgate_accesslog::{FINISH_TIMEOUT, LogFile, LogFormat, LogTarget, stderr_log};
use tollgate_http1::HeadCache;
use tollgate_http2::Fields;
use tollgate_net::{
    Address, UnixSocket, Waker, listen_per_thread, minimize_timer_slack, pin_current_thread,
};
use tollgate_tls::{HttpProtocol, ServerOptions, TlsServer, TlsVersion};

use crate::config::{Config, Error, Timeouts};
use crate::connection::Scratch;
use crate::endpoints::{self, ByteSource};
use crate::recordings::RecordedAnswers;
use crate::state::{PageCache, Shared, ThreadCounters};
use crate::worker::{BACKLOG, STOP_TIMEOUT, Stopper, Worker};

const MAX_THREADS: usize = 256;

/// Longest time between [`Stopper::stop`] and the return of [`Origin::serve`]: for requests in
/// flight, then for the reader of the access log.
pub const STOP_TIMEOUT_MAX: Duration = STOP_TIMEOUT.saturating_add(FINISH_TIMEOUT);

/// Offered by ALPN, the preferred one first.
const PROTOCOLS: &[&[u8]] = &[HttpProtocol::Http2.alpn(), HttpProtocol::Http1.alpn()];

/// Name in messages.
const PROGRAM: &str = "tollgate origin";

/// A benchmark origin that listens and is ready to serve.
#[derive(Debug)]
pub struct Origin {
    listen: Address,
    threads: Vec<Thread>,
    stopper: Stopper,
    log: Option<LogFile>,
    /// Removed when the origin is dropped.
    _unix_socket: Option<UnixSocket>,
}

#[derive(Debug)]
struct Thread {
    listener: OwnedFd,
    waker: Waker,
    cpu: Option<usize>,
    busy_poll: bool,
    counters: ThreadCounters,
    log: Option<LogFile>,
    zero: Arc<File>,
    tls: Option<TlsServer>,
    delays: Arc<AtomicU64>,
    recorded: Option<Arc<RecordedAnswers>>,
    default_host: Arc<str>,
    timeouts: Timeouts,
}

impl Origin {
    /// Starts to listen. Connections wait until [`serve`](Self::serve).
    ///
    /// # Errors
    ///
    /// [`Error::Threads`], [`Error::Listen`], [`Error::AccessLog`] or [`Error::Start`].
    pub fn bind(config: &Config) -> Result<Self, Error> {
        if !(1..=MAX_THREADS).contains(&config.threads) {
            return Err(Error::Threads { threads: config.threads, max: MAX_THREADS });
        }
        let log = config.access_log.as_ref().map(open_log).transpose()?;
        let (listen, listeners, unix_socket) = open_listeners(config)
            .map_err(|source| Error::Listen { listen: config.listen.clone(), source })?;
        let wakers = (0..config.threads)
            .map(|_| Waker::new())
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::Start)?;
        let zero = ByteSource::open_zero().map_err(Error::Start)?;
        let options = ServerOptions {
            min_version: TlsVersion::Tls12,
            tickets: true,
            protocols: PROTOCOLS,
            client_authorities: None,
            proofs: None,
        };
        let tls = config.tls.clone().map(|certificate| TlsServer::new(vec![certificate], &options));
        let tls = tls.transpose().map_err(Error::Tls)?;
        let delays = Arc::default();
        let recorded = config.recorded.clone().map(RecordedAnswers::new).map(Arc::new);
        let default_host: Arc<str> = match &listen {
            Address::Tcp(addr) => addr.to_string().into(),
            Address::Unix(_) => "localhost".into(),
        };
        let stopper = Stopper::new(&wakers);
        let counters =
            ThreadCounters::for_threads(config.threads, endpoints::names(), Instant::now());
        let threads = listeners
            .into_iter()
            .zip(wakers)
            .zip(counters)
            .enumerate()
            .map(|(index, ((listener, waker), counters))| Thread {
                listener,
                waker,
                // One CPU each, so that threads do not migrate away from warm caches.
                cpu: config.cpus.iter().cycle().nth(index).copied(),
                busy_poll: config.busy_poll,
                counters,
                log: log.clone(),
                zero: Arc::clone(&zero),
                tls: tls.clone(),
                delays: Arc::clone(&delays),
                recorded: recorded.clone(),
                default_host: Arc::clone(&default_host),
                timeouts: config.timeouts,
            })
            .collect();
        Ok(Self { listen, threads, stopper, log, _unix_socket: unix_socket })
    }

    /// Address it listens on, with the actual port.
    pub fn listens_on(&self) -> &Address {
        &self.listen
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until stopped, then closes the listeners and gives requests in flight one second.
    /// Requests that have arrived get a response, unless it is due later.
    ///
    /// # Errors
    ///
    /// The first error that ended a thread, which stops the others.
    pub fn serve(self) -> Result<(), Error> {
        let mut threads = Vec::with_capacity(self.threads.len());
        let mut result = Ok(());
        for (index, thread) in self.threads.into_iter().enumerate() {
            let stopper = self.stopper.clone();
            let spawned = thread::Builder::new()
                .name(format!("origin-{index}"))
                .spawn(move || thread.serve(stopper));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.stopper.stop()?;
                    result = Err(Error::Start(error));
                    break;
                }
            }
        }
        for thread in threads {
            result = result.and(thread.join().unwrap_or(Err(Error::Panicked)));
        }
        if let Some(Err(error)) = self.log.as_ref().map(LogFile::finish) {
            stderr_log::write(&format!("{PROGRAM}: {error}"));
        }
        result
    }
}

fn open_log(target: &LogTarget) -> Result<LogFile, Error> {
    LogFile::open(target, LogFormat::Combined, PROGRAM, "access log", None)
        .map_err(|source| Error::AccessLog { target: target.clone(), source })
}

/// The actual address, a listener for each thread, and the socket to remove at the end.
type Listeners = (Address, Vec<OwnedFd>, Option<UnixSocket>);

fn open_listeners(config: &Config) -> io::Result<Listeners> {
    Ok(match &config.listen {
        Address::Tcp(addr) => {
            let (addr, listeners) = listen_per_thread(*addr, config.threads, BACKLOG)?;
            (Address::Tcp(addr), listeners, None)
        }
        Address::Unix(path) => {
            let (listeners, file) = UnixSocket::listen(path, config.threads, BACKLOG, PROGRAM)?;
            (Address::Unix(path.clone()), listeners, Some(file))
        }
    })
}

impl Thread {
    /// Serves on the calling thread.
    fn serve(self, stopper: Stopper) -> Result<(), Error> {
        // An origin with fewer threads than configured would be slower without saying so.
        let _stop_all = StopOnDrop(stopper.clone());
        if let Some(cpu) = self.cpu {
            pin_current_thread(&[cpu]).map_err(|source| Error::Pin { cpu, source })?;
        }
        // For exact delays.
        minimize_timer_slack().map_err(Error::Start)?;
        let shared = Shared {
            clock: Instant::now,
            counters: self.counters,
            default_host: self.default_host,
            pages: PageCache::default(),
            responses: HeadCache::default(),
            delays: self.delays,
            recorded: self.recorded,
            log: self.log.as_ref().map(LogFile::thread_log),
            fields: Fields::default(),
        };
        let scratch = Scratch::new(shared, ByteSource::new(self.zero), self.timeouts);
        Worker::new(self.listener, self.tls, self.waker, stopper, scratch, self.busy_poll)?
            .run()
            .map_err(Error::Wait)
    }
}

/// Stops all threads when one ends for any reason.
struct StopOnDrop(Stopper);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Err(error) = self.0.stop() {
            stderr_log::write(&format!("{PROGRAM}: {error}"));
        }
    }
}
