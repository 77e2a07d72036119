//! Asking backends whether they are well, on a thread of its own for all of them: one slow backend
//! holds up no other, and no request.

mod probe;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tollgate_eventloop::{Events, Interest, Poller, Waker};
use tollgate_ledger::messages;

use crate::config::{ActiveHealth, Address, Pool};
use crate::pool::{Checked, PoolHealth, Standing};
use crate::shortage::OnceAMinute;
use probe::{Failure, Probe};

/// The checks of a configuration's backends, until this is dropped.
#[derive(Debug)]
pub(crate) struct Checks {
    orders: Arc<Orders>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread that makes them is told. It looks here when its waker has woken it.
#[derive(Debug, Default)]
struct Orders {
    stopping: AtomicBool,
    /// The backends of another configuration.
    backends: Mutex<Option<Vec<CheckedBackend>>>,
}

/// The thread that makes them.
struct Checker {
    poller: Poller,
    waker: Arc<Waker>,
    orders: Arc<Orders>,
    backends: Vec<CheckedBackend>,
    /// How many were begun.
    begun: u64,
    /// That something has run out.
    shortages_told: OnceAMinute,
}

/// A backend that is asked.
#[derive(Debug)]
struct CheckedBackend {
    /// What it is called in messages: its address, and its pool.
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

#[derive(Debug)]
struct UnderWay {
    probe: Probe,
    /// Which of all checks it is.
    token: u64,
    late_at: Instant,
}

/// The token of the waker; the others are those of checks.
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
        let backends = of_pools(pools, health);
        if backends.is_empty() {
            return Ok(None);
        }
        let (poller, waker) = (Poller::new()?, Arc::new(Waker::new()?));
        poller.add(&*waker, WAKER, Interest::Readable)?;
        let orders = Arc::new(Orders::default());
        let checker = Checker {
            poller,
            waker: Arc::clone(&waker),
            orders: Arc::clone(&orders),
            backends,
            begun: 0,
            shortages_told: OnceAMinute::default(),
        };
        let thread = std::thread::Builder::new().name("checks".to_owned()).spawn(move || {
            if let Err(error) = checker.run() {
                messages::tell(&format!("tollgate gateway: backends are checked no more: {error}"));
            }
        })?;
        Ok(Some(Self { orders, waker, thread: Some(thread) }))
    }

    /// Asks the backends of these pools from now on. Of one that is asked as before, the answers in a row
    /// go on, and it is asked no sooner than it would have been.
    ///
    /// # Errors
    ///
    /// The waker's own, which no known kernel has.
    pub(crate) fn change(&self, pools: &[Pool], health: &[Arc<PoolHealth>]) -> io::Result<()> {
        *self.orders.backends() = Some(of_pools(pools, health));
        self.waker.wake()
    }

    /// Whether the thread is there that makes them.
    pub(crate) fn go_on(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.orders.stopping.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            messages::tell(&format!("tollgate gateway: the checks of backends go on: {error}"));
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            messages::tell("tollgate gateway: the checks of backends had panicked");
        }
    }
}

impl Orders {
    fn backends(&self) -> MutexGuard<'_, Option<Vec<CheckedBackend>>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The backends of those pools that want them checked.
fn of_pools(pools: &[Pool], health: &[Arc<PoolHealth>]) -> Vec<CheckedBackend> {
    let now = Instant::now();
    pools.iter().zip(health).flat_map(|(pool, health)| of_pool(pool, health, now)).collect()
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
        while !self.orders.stopping.load(Ordering::Acquire) {
            let changed = self.orders.backends().take();
            if let Some(backends) = changed {
                self.go_on_with(backends);
            }
            let now = Instant::now();
            for at in 0..self.backends.len() {
                self.look_at_the_clock(at, now)?;
            }
            let next = self.backends.iter().map(CheckedBackend::next_moment).min();
            let timeout = next.map(|at| at.saturating_duration_since(Instant::now()));
            self.poller.wait(&mut events, timeout)?;
            for event in events.iter() {
                if event.token == WAKER {
                    self.waker.drain()?;
                } else if let Some(backend) =
                    self.backends.iter_mut().find(|backend| backend.waits_for(event.token))
                {
                    backend.go_on();
                }
            }
        }
        Ok(())
    }

    /// Asks these backends from now on.
    fn go_on_with(&mut self, mut backends: Vec<CheckedBackend>) {
        for backend in &mut backends {
            let before = self.backends.iter().position(|before| backend.is_asked_as(before));
            if let Some(before) = before {
                backend.take_over(self.backends.swap_remove(before));
            }
        }
        self.backends = backends;
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
                self.begun += 1;
                self.poller.add(probe.socket(), self.begun, Interest::BothOnce)?;
                let late_at = now + backend.terms.timeout;
                backend.under_way = Some(UnderWay { probe, token: self.begun, late_at });
            }
            Err(failure) => match failure.shortage() {
                // It says nothing of the backend, which stays what it was.
                Some(shortage) => {
                    if self.shortages_told.is_due(now) {
                        messages::tell(&format!(
                            "tollgate gateway: {} cannot be checked ({}); {}; this is said once a minute",
                            backend.name,
                            shortage.name(),
                            shortage.advice()
                        ));
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

    /// Whether this check of it is under way.
    fn waits_for(&self, token: u64) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| under_way.token == token)
    }

    /// Whether it is the same backend of the same pool, asked in the same way.
    fn is_asked_as(&self, other: &Self) -> bool {
        self.name == other.name && self.terms == other.terms
    }

    /// Goes on with what the same one has come to.
    fn take_over(&mut self, before: Self) {
        self.checked = before.checked;
        self.next_at = before.next_at;
        self.under_way = before.under_way;
        let is_known_down = self.health.standing(self.place, Instant::now()) == Standing::Down;
        if is_known_down == self.checked.is_up() {
            self.health.set_down(self.place, !self.checked.is_up());
        }
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
            Ok(()) => messages::tell(&format!("tollgate gateway: {} is well again", self.name)),
            Err(failure) => {
                messages::tell(&format!("tollgate gateway: {} is left out: {failure}", self.name));
            }
        }
    }
}
