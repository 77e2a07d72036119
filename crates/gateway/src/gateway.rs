//! A gateway as a whole: its threads, and the caller's hold on them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tollgate_eventloop::Waker;
use tollgate_ledger::{LogFile, messages};

use crate::aside::Aside;
use crate::config::{Address, Config};
use crate::counters::Counters;
use crate::error::Error;
use crate::listening::{Place, listen_for_threads};
use crate::orders::{Orders, Reload};
use crate::phase::{Inspector, Resumer};
use crate::site::Plan;
use crate::worker::{Listening, Worker};

/// A gateway that serves. One that is dropped is told to drain, and not waited for.
#[derive(Debug)]
pub struct Gateway {
    threads: Vec<Thread>,
    places: Vec<Place>,
    /// Where no configuration in force listens, and threads may still.
    closing: Vec<Place>,
    counters: Arc<Counters>,
    aside: Aside,
    /// What is in force.
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Thread {
    orders: Arc<Orders>,
    waker: Waker,
    handle: Option<JoinHandle<Result<(), Error>>>,
}

impl Gateway {
    /// Listens as `config` asks, and serves on threads of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`], [`Error::AccessLog`], [`Error::Aside`] or [`Error::Start`].
    pub fn start(config: Config) -> Result<Self, Error> {
        Self::start_with(config, |_| None)
    }

    /// The same, with an inspector for each thread, who looks at all that it passes on.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_inspected(
        config: Config,
        mut inspector: impl FnMut(Resumer) -> Box<dyn Inspector>,
    ) -> Result<Self, Error> {
        Self::start_with(config, |resumer| Some(inspector(resumer)))
    }

    fn start_with(
        config: Config,
        mut inspector: impl FnMut(Resumer) -> Option<Box<dyn Inspector>>,
    ) -> Result<Self, Error> {
        messages::start("tollgate gateway").map_err(Error::Start)?;
        let count = config.threads.get();
        let (places, mut listenings) = listen_everywhere(&config, &[], &[], count)?;
        let plan = Arc::new(Plan::new(config, None, Instant::now())?);
        let counters = Arc::new(Counters::new(count));
        counters.begin(Arc::clone(&plan.tallies));
        let aside = Aside::start(Arc::clone(&counters), &plan.config, &plan.health)?;
        // Those that were started are stopped when a later one cannot be.
        let mut gateway = Self {
            threads: Vec::with_capacity(count),
            places,
            closing: Vec::new(),
            counters,
            aside,
            plan,
        };
        for index in 0..count {
            let listenings = std::mem::take(&mut listenings[index]);
            let thread = Thread::start(index, listenings, &gateway, &mut inspector)?;
            gateway.threads.push(thread);
        }
        Ok(gateway)
    }

    /// Where it listens, in the order of the configuration; ports that were left open are the real ones.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.places.iter().map(|place| &place.real)
    }

    /// Whether clients speak TLS at one of its [`addresses`](Self::addresses).
    #[must_use]
    pub fn speaks_tls(&self, address: &Address) -> bool {
        let place = self.places.iter().find(|place| place.real == *address);
        self.plan.config.listeners.iter().any(|listener| {
            place.is_some_and(|place| place.asked == listener.address) && listener.tls.is_some()
        })
    }

    /// Serves by another configuration from now on, on the same threads. Requests under way end as they
    /// began; connections of clients go on; listeners that both configurations have stay as they are,
    /// and others are closed behind the last connection that has arrived. Returns at once.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start) and [`Error::Threads`], after which everything stays as it was; or
    /// [`Error::Wake`].
    pub fn reload(&mut self, config: Config) -> Result<(), Error> {
        let outcome = self.change(config);
        self.aside.reloaded(outcome.is_ok());
        outcome
    }

    /// Another configuration was not read to its end: `/metrics` counts that as a refusal.
    pub fn refused_reload(&self) {
        self.aside.reloaded(false);
    }

    fn change(&mut self, config: Config) -> Result<(), Error> {
        let count = self.threads.len();
        if config.threads.get() != count {
            return Err(Error::Threads { running: count, asked: config.threads.get() });
        }
        let (added, mut listenings) =
            listen_everywhere(&config, &self.places, &self.closing, count)?;
        let plan = Arc::new(Plan::new(config, Some(&self.plan), Instant::now())?);
        self.aside.change(&plan.config, &plan.health)?;
        self.counters.begin(Arc::clone(&plan.tallies));
        self.plan = Arc::clone(&plan);
        let is_left_out = |place: &mut Place| {
            !plan.config.listeners.iter().any(|listener| listener.address == place.asked)
        };
        self.closing.extend(self.places.extract_if(.., is_left_out));
        // What is asked for again is in use, whoever closes it.
        self.closing.retain(|place| {
            place.holds_port() && added.iter().all(|other| other.asked != place.asked)
        });
        self.places.extend(added);
        for (thread, added) in self.threads.iter().zip(&mut listenings) {
            let added = std::mem::take(added);
            thread.orders.reload(Reload { plan: Arc::clone(&plan), added });
            thread.waker.wake().map_err(Error::Wake)?;
        }
        Ok(())
    }

    /// Takes no new connection, and lets what is in flight finish, within the configuration's
    /// `timeouts.drain`. Returns at once.
    ///
    /// # Errors
    ///
    /// [`Error::Wake`], which no known kernel does.
    pub fn drain(&self) -> Result<(), Error> {
        self.aside.drain();
        for thread in &self.threads {
            thread.orders.drain();
            thread.waker.wake().map_err(Error::Wake)?;
        }
        Ok(())
    }

    /// Whether a thread has ended: one that was told to, or one that cannot go on.
    #[must_use]
    pub fn has_ended_thread(&self) -> bool {
        self.threads.iter().filter_map(|it| it.handle.as_ref()).any(JoinHandle::is_finished)
    }

    /// Where the admin listener is, if there is one; the port is the real one.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.aside.admin_address()
    }

    /// Waits until every thread has ended.
    ///
    /// # Errors
    ///
    /// The first of what ended a thread early; the others are told to drain then.
    pub fn join(mut self) -> Result<(), Error> {
        let mut outcome = Ok(());
        let handles: Vec<_> =
            self.threads.iter_mut().filter_map(|thread| thread.handle.take()).collect();
        for handle in handles {
            let ended = handle.join().unwrap_or(Err(Error::Panicked));
            if ended.is_err() {
                self.drain()?;
            }
            outcome = outcome.and(ended);
        }
        if let Some(Err(error)) = self.plan.log.as_ref().map(LogFile::finish) {
            messages::tell(&format!("tollgate gateway: {error}"));
        }
        messages::finish();
        outcome
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = self.drain() {
            messages::tell(&format!("tollgate gateway: {error}"));
        }
    }
}

impl Thread {
    fn start(
        index: usize,
        listenings: Vec<Listening>,
        of: &Gateway,
        inspector: &mut impl FnMut(Resumer) -> Option<Box<dyn Inspector>>,
    ) -> Result<Self, Error> {
        let orders = Arc::new(Orders::default());
        let waker = Waker::new().map_err(Error::Start)?;
        let inspector = inspector(Resumer::new(Arc::clone(&orders), waker.clone()));
        let worker = Worker::new(
            listenings,
            Arc::clone(&of.plan),
            Arc::clone(&of.counters),
            Arc::clone(&orders),
            waker.clone(),
            index,
            inspector,
        )
        .map_err(Error::Start)?;
        let handle = thread::Builder::new()
            .name(format!("gateway-{index}"))
            .spawn(move || worker.run().map_err(Error::Wait))
            .map_err(Error::Start)?;
        Ok(Self { orders, waker, handle: Some(handle) })
    }
}

/// Listens where `config` asks and nobody of `present` does, with what is left of `closing`; the listeners by
/// thread.
fn listen_everywhere(
    config: &Config,
    present: &[Place],
    closing: &[Place],
    threads: usize,
) -> Result<(Vec<Place>, Vec<Vec<Listening>>), Error> {
    let mut by_thread: Vec<Vec<Listening>> = (0..threads).map(|_| Vec::new()).collect();
    let mut places = Vec::new();
    for listener in &config.listeners {
        if present.iter().any(|place| place.asked == listener.address) {
            continue;
        }
        let closing = closing.iter().find(|place| place.asked == listener.address);
        let (place, listenings) = listen_for_threads(listener, threads, closing)?;
        places.push(place);
        for (thread, listening) in by_thread.iter_mut().zip(listenings) {
            thread.push(listening);
        }
    }
    Ok((places, by_thread))
}
