//! Asking backends whether they are well, on a thread of its own for all of them: one slow backend
//! holds up no other, and no request.

mod probe;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use tollgate_eventloop::{Events, Interest, Poller, Waker};

use crate::config::{ActiveHealth, Address, Pool};
use crate::pool::{Checked, PoolHealth, Standing};
use crate::shortage::OnceAMinute;
use probe::{Failure, Probe};

/// The checks of a configuration's backends, until this is dropped.
#[derive(Debug)]
pub(crate) struct Checks {
    stopping: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// The thread that makes them.
struct Checker {
    poller: Poller,
    waker: Arc<Waker>,
    stopping: Arc<AtomicBool>,
    backends: Vec<CheckedBackend>,
    /// That something has run out.
    shortages_told: OnceAMinute,
}

/// A backend that is asked.
struct CheckedBackend {
    /// What it is called in messages.
    name: String,
    address: Address,
    request: Vec<u8>,
    terms: ActiveHealth,
    checked: Checked,
    /// Where what is found is told.
    health: Arc<PoolHealth>,
    place: usize,
    /// When it is asked next.
    next_at: Instant,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    probe: Probe,
    late_at: Instant,
}

/// The token of the waker; the others are the backends' places.
const WAKER: u64 = u64::MAX;
const EVENTS_A_WAKE: usize = 64;

impl Checks {
    /// Starts to ask the backends of those pools that want it, and tells each pool's `health` what comes
    /// of it. None: no pool does.
    ///
    /// # Errors
    ///
    /// The machine has no descriptors or threads left.
    pub(crate) fn start(pools: &[Pool], health: &[Arc<PoolHealth>]) -> io::Result<Option<Self>> {
        let now = Instant::now();
        let backends: Vec<CheckedBackend> = pools
            .iter()
            .zip(health)
            .flat_map(|(pool, health)| of_pool(pool, health, now))
            .collect();
        if backends.is_empty() {
            return Ok(None);
        }
        let (poller, waker) = (Poller::new()?, Arc::new(Waker::new()?));
        poller.add(&*waker, WAKER, Interest::Readable)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let checker = Checker {
            poller,
            waker: Arc::clone(&waker),
            stopping: Arc::clone(&stopping),
            backends,
            shortages_told: OnceAMinute::default(),
        };
        let thread = std::thread::Builder::new().name("checks".to_owned()).spawn(move || {
            if let Err(error) = checker.run() {
                eprintln!("tollgate gateway: backends are checked no more: {error}");
            }
        })?;
        Ok(Some(Self { stopping, waker, thread: Some(thread) }))
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            eprintln!("tollgate gateway: the checks of backends go on: {error}");
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("tollgate gateway: the checks of backends had panicked");
        }
    }
}

fn of_pool<'a>(
    pool: &'a Pool,
    health: &'a Arc<PoolHealth>,
    now: Instant,
) -> impl Iterator<Item = CheckedBackend> + 'a {
    let terms = pool.health.iter();
    terms.flat_map(move |terms| {
        pool.backends.iter().enumerate().map(move |(place, backend)| CheckedBackend {
            name: format!("the backend {} of the pool {}", backend.address, pool.name),
            address: backend.address.clone(),
            request: request(&terms.path, &backend.address),
            terms: terms.clone(),
            checked: Checked::new(terms, health.standing(place, now) != Standing::Down),
            health: Arc::clone(health),
            place,
            next_at: now,
            under_way: None,
        })
    })
}

fn request(path: &str, address: &Address) -> Vec<u8> {
    let host = match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    };
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tollgate-gateway\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

impl Checker {
    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_A_WAKE);
        while !self.stopping.load(Ordering::Acquire) {
            let now = Instant::now();
            for at in 0..self.backends.len() {
                self.look_at_the_clock(at, now)?;
            }
            let next = self.backends.iter().map(CheckedBackend::next_moment).min();
            let timeout = next.map(|at| at.saturating_duration_since(Instant::now()));
            self.poller.wait(&mut events, timeout)?;
            for event in events.iter() {
                match usize::try_from(event.token).ok().and_then(|at| self.backends.get_mut(at)) {
                    Some(backend) => backend.go_on(),
                    None => self.waker.drain()?,
                }
            }
        }
        Ok(())
    }

    /// Ends a check whose time is over, and starts one whose time has come.
    fn look_at_the_clock(&mut self, at: usize, now: Instant) -> io::Result<()> {
        let backend = &mut self.backends[at];
        if backend.under_way.as_ref().is_some_and(|under_way| under_way.late_at <= now) {
            backend.found(&Err(Failure::Late));
        }
        if backend.under_way.is_some() || backend.next_at > now {
            return Ok(());
        }
        backend.next_at = now + backend.terms.interval;
        match Probe::start(&backend.address) {
            Ok(probe) => {
                self.poller.add(probe.socket(), at as u64, Interest::BothOnce)?;
                let late_at = now + backend.terms.timeout;
                backend.under_way = Some(UnderWay { probe, late_at });
            }
            Err(failure) => match failure.shortage() {
                // It says nothing of the backend, which stays what it was.
                Some(shortage) => {
                    if self.shortages_told.is_due(now) {
                        eprintln!(
                            "tollgate gateway: {} cannot be checked ({}); {}; this is said once a minute",
                            backend.name,
                            shortage.name(),
                            shortage.advice()
                        );
                    }
                }
                None => backend.found(&Err(failure)),
            },
        }
        Ok(())
    }
}

impl CheckedBackend {
    /// When there is something to be done, whatever it sends.
    fn next_moment(&self) -> Instant {
        self.under_way.as_ref().map_or(self.next_at, |under_way| under_way.late_at)
    }

    fn go_on(&mut self) {
        let under_way = self.under_way.as_mut();
        if let Some(found) = under_way.and_then(|check| check.probe.go_on(&self.request)) {
            self.found(&found);
        }
    }

    /// A check is over.
    fn found(&mut self, found: &Result<(), Failure>) {
        // Closing takes it out of the poller as well.
        self.under_way = None;
        if !self.checked.add(found.is_ok()) {
            return;
        }
        self.health.set_down(self.place, !self.checked.is_up());
        match found {
            Ok(()) => eprintln!("tollgate gateway: {} is well again", self.name),
            Err(failure) => eprintln!("tollgate gateway: {} is left out: {failure}", self.name),
        }
    }
}
