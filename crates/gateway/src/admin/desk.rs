//! The thread that waits for admin clients, and gives each its turn.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use slab::Slab;
use tollgate_eventloop::{Event, Events, Interest, Poller, Waker, accept};

use super::client::{Client, Step};
use super::pages;
use crate::view::View;

/// The most clients at a time; others wait with the kernel.
pub(super) const CLIENTS_MAX: usize = 64;

/// For which nobody is accepted when there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The tokens of clients are their keys.
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// The clients of an admin listener.
pub(super) struct Desk {
    listener: TcpListener,
    poller: Poller,
    view: Arc<View>,
    clients: Slab<Client>,
    /// How long each may take in all.
    client_time: Duration,
    /// The poller tells of who arrives.
    accepts: bool,
    /// Set while nobody is accepted though there is room.
    accept_again_at: Option<Instant>,
}

impl Desk {
    pub(super) fn new(
        listener: TcpListener,
        waker: &Waker,
        view: Arc<View>,
        client_time: Duration,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(waker, WAKER, Interest::Readable)?;
        poller.add(&listener, LISTENER, Interest::Readable)?;
        let clients = Slab::with_capacity(CLIENTS_MAX);
        Ok(Self {
            listener,
            poller,
            view,
            clients,
            client_time,
            accepts: true,
            accept_again_at: None,
        })
    }

    /// Answers until told to stop, with a wake; who is not answered by then is cut off.
    pub(super) fn serve(mut self, stopping: &AtomicBool) -> io::Result<()> {
        let mut events = Events::with_capacity(CLIENTS_MAX);
        loop {
            let timeout = self.timeout();
            self.poller.wait(&mut events, timeout)?;
            if stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            for event in events.iter() {
                self.turn(event)?;
            }
            self.look_at_the_clock(Instant::now());
            self.watch_listener()?;
        }
    }

    /// How long nothing is to be done unless an event comes.
    fn timeout(&self) -> Option<Duration> {
        let deadlines = self.clients.iter().map(|(_, client)| client.late_at);
        let next = deadlines.chain(self.accept_again_at).min();
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn turn(&mut self, event: Event) -> io::Result<()> {
        if event.token == LISTENER {
            self.accept_all();
            return Ok(());
        }
        let key = event.token as usize;
        let Some(client) = self.clients.get_mut(key) else { return Ok(()) };
        let interest = match client.go_on(|request| pages::answer(request, &self.view)) {
            Step::Reads => Interest::Readable,
            Step::Writes => Interest::Writable,
            Step::Over => {
                // Closing takes it out of the poller as well.
                self.clients.remove(key);
                return Ok(());
            }
        };
        self.poller.modify(&client.socket, event.token, interest)
    }

    /// Accepts as many as have arrived and there is room for.
    fn accept_all(&mut self) {
        while self.clients.len() < CLIENTS_MAX {
            let Ok(accepted) = accept(&self.listener) else {
                // Most likely out of descriptors: the listener would be reported ready all the while.
                self.accept_again_at = Some(Instant::now() + ACCEPT_PAUSE);
                return;
            };
            let Some((socket, _)) = accepted else { return };
            let place = self.clients.vacant_entry();
            // Whom the kernel has no memory to tell of is closed; the others go on.
            if self.poller.add(&socket, place.key() as u64, Interest::Readable).is_ok() {
                place.insert(Client::new(socket, Instant::now() + self.client_time));
            }
        }
    }

    /// Cuts off whose time is over, with a word to those who did not say what they want.
    fn look_at_the_clock(&mut self, now: Instant) {
        self.clients.retain(|_, client| {
            let is_late = client.late_at <= now;
            if is_late {
                client.is_late(&pages::late());
            }
            !is_late
        });
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
        }
    }

    /// Has the poller tell of who arrives, as long as there is room.
    fn watch_listener(&mut self) -> io::Result<()> {
        let accepts = self.clients.len() < CLIENTS_MAX && self.accept_again_at.is_none();
        if accepts != self.accepts {
            if accepts {
                self.poller.add(&self.listener, LISTENER, Interest::Readable)?;
            } else {
                self.poller.remove(&self.listener)?;
            }
            self.accepts = accepts;
        }
        Ok(())
    }
}
