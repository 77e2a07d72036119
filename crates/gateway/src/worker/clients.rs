//! Clients as they come and go.

use std::collections::hash_map::Entry;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use tollgate_eventloop::{Interest, Socket, accept, close_backlog, set_backlog};
use tollgate_ledger::messages;
use tollgate_wire::Version;

use super::{Listening, Step, Worker, listener_token};
use crate::answers::{Delivery, Refusal};
use crate::downstream::{Client, Stage};
use crate::exchange::Answer;
use crate::forward::Persistence;
use crate::link::{Link, Received};
use crate::site::Waiter;
use crate::upstream::Place;

/// How long a thread that can accept no more leaves it be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// After how long without a pause the next one is told of.
const QUIET: Duration = Duration::from_secs(60);

/// How many connections that have arrived are taken from a listener that is closed, before the others have their
/// turn.
const LAST_ACCEPTS: usize = 65_536;

/// For how long a client is listened to that is sending still after the last answer, and for how long of that
/// it may be silent: as long as nginx does (`lingering_time`, `lingering_timeout`). Many a client reads no
/// answer before it has sent all of its body, and closing over that is a reset, which takes the answer away.
const LINGER_TIME: Duration = Duration::from_secs(30);
const LINGER_SILENCE: Duration = Duration::from_secs(5);

/// Who gets an answer of the gateway's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    /// It was a HEAD.
    pub(super) is_head: bool,
    pub(super) version: Version,
    /// The request was read to its end, and another may follow.
    pub(super) stays: bool,
}

impl Worker {
    /// One more listener is listened to: at once, or when connections are accepted again.
    pub(super) fn listen(&mut self, listening: Listening) -> io::Result<()> {
        // One that was to be closed, and is asked for again, lets nobody join those who wait there by now.
        if let Some(socket) = &listening.socket {
            set_backlog(socket, listening.backlog)?;
        }
        // The place of one that was closed is free once nobody is left who came in there, so that there are
        // not more and more of them.
        let is_free = |(place, listening): (usize, &Listening)| {
            listening.socket.is_none()
                && self.clients.iter().all(|(_, client)| client.listener != place)
        };
        if let Some(known) = self.listeners.iter_mut().find(|it| it.is(&listening)) {
            *known = Listening { is_watched: known.is_watched, ..listening };
        } else if let Some(place) = self.listeners.iter().enumerate().position(is_free) {
            self.listeners[place] = listening;
        } else {
            self.listeners.push(listening);
        }
        if self.accept_again_at.is_none() { self.watch_listeners() } else { Ok(()) }
    }

    /// Has the poller tell of what arrives at the listeners that it does not know yet.
    fn watch_listeners(&mut self) -> io::Result<()> {
        for (place, listening) in self.listeners.iter_mut().enumerate() {
            if let Some(socket) = &listening.socket
                && !listening.is_watched
            {
                self.poller.add(socket, listener_token(place), Interest::ReadableByOne)?;
                listening.is_watched = true;
            }
        }
        Ok(())
    }

    pub(super) fn accept(&mut self, place: usize, most: usize) -> io::Result<()> {
        for _ in 0..most {
            let Some(Some(listener)) = self.listeners.get(place).map(|it| it.socket.as_ref())
            else {
                return Ok(());
            };
            let limits = self.sites[self.site].plan.config.limits;
            if self.clients.len() >= limits.connections {
                return self.pause_accepting(&format!(
                    "{} connections are open on this thread",
                    limits.connections
                ));
            }
            let (socket, peer) = match accept(listener) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return self.has_accepted_all(place),
                // Most likely out of file descriptors, which closing connections gives back. The
                // listener would be reported ready all the while.
                Err(error) => return self.pause_accepting(&error.to_string()),
            };
            self.welcome(socket, peer.map(|peer| peer.ip().to_canonical()), place)?;
        }
        Ok(())
    }

    /// Gives a new client its first turn at once: most have sent their request by now.
    fn welcome(&mut self, socket: Socket, ip: Option<IpAddr>, listener: usize) -> io::Result<()> {
        self.tally().accepted.add(1);
        if !self.may_come(ip) {
            self.tally().refused.add(1);
            self.tally().closed.add(1);
            return Ok(());
        }
        let Ok(link) = Link::of_client(socket, self.listeners[listener].identity.as_ref()) else {
            self.tally().closed.add(1);
            self.has_left(ip);
            return Ok(());
        };
        let serial = self.next_serial();
        let deadline = self.now + self.timeouts.idle;
        let key = self.clients.insert(Client::new(link, serial, ip, listener, deadline));
        self.turn(key)
    }

    /// Whether one more connection of an address is within its limit; it is counted then.
    fn may_come(&mut self, ip: Option<IpAddr>) -> bool {
        let limits = &self.sites[self.site].plan.config.limits;
        let (Some(most), Some(ip)) = (limits.connections_per_client, ip) else {
            return true;
        };
        let count = self.per_client.entry(ip).or_default();
        let may_come = *count < most;
        *count += usize::from(may_come);
        may_come
    }

    /// A connection of an address is over.
    fn has_left(&mut self, ip: Option<IpAddr>) {
        if let Some(Entry::Occupied(mut count)) = ip.map(|ip| self.per_client.entry(ip)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Counts the connections of each address anew, if there is a limit to them.
    pub(super) fn count_clients(&mut self) {
        self.per_client.clear();
        let limits = &self.sites[self.site].plan.config.limits;
        if limits.connections_per_client.is_some() {
            for ip in self.clients.iter().filter_map(|(_, client)| client.ip) {
                *self.per_client.entry(ip).or_default() += 1;
            }
        }
    }

    fn pause_accepting(&mut self, reason: &str) -> io::Result<()> {
        // Said once, for it may go on for long; and again when that was over.
        if self.paused_at.is_none_or(|at| self.now.duration_since(at) >= QUIET) {
            messages::tell(&format!("tollgate gateway: connections are made to wait: {reason}"));
        }
        self.paused_at = Some(self.now);
        for listening in self.listeners.iter_mut().filter(|it| it.is_watched) {
            if let Some(socket) = &listening.socket {
                self.poller.remove(socket)?;
            }
            listening.is_watched = false;
        }
        self.accept_again_at = Some(self.now + ACCEPT_PAUSE);
        Ok(())
    }

    pub(super) fn accept_again(&mut self) -> io::Result<()> {
        self.accept_again_at = None;
        for place in 0..self.listeners.len() {
            if self.listeners[place].is_closing {
                self.accept(place, LAST_ACCEPTS)?;
            }
        }
        // Those may have been too many.
        if self.accept_again_at.is_none() { self.watch_listeners() } else { Ok(()) }
    }

    /// Closes a listener behind the last connection that has arrived: at once, or when all of those are accepted.
    pub(super) fn close_listener(&mut self, place: usize) -> io::Result<()> {
        let listening = &mut self.listeners[place];
        let Some(socket) = &listening.socket else {
            return Ok(());
        };
        if !listening.is_closing {
            // Who waits would not be told from who comes later.
            close_backlog(socket)?;
            listening.is_closing = true;
        }
        if self.accept_again_at.is_none() { self.accept(place, LAST_ACCEPTS) } else { Ok(()) }
    }

    /// Nobody waits at a listener.
    fn has_accepted_all(&mut self, place: usize) -> io::Result<()> {
        let listening = &mut self.listeners[place];
        if !listening.is_closing {
            return Ok(());
        }
        let is_watched = std::mem::take(&mut listening.is_watched);
        // The threads of a gateway may share one, which this thread is to be told of no more.
        let Some(socket) = listening.socket.take() else {
            return Ok(());
        };
        let removed = if is_watched { self.poller.remove(&socket) } else { Ok(()) };
        listening.door.close(socket);
        removed
    }

    /// Sends what is left of the last answer, and then closes.
    pub(super) fn end(&mut self, key: usize, lingers: bool) -> Step {
        let client = &mut self.clients[key];
        if !client.unsent.is_empty() {
            match client.unsent.send(&mut client.link) {
                Ok(sent) if sent > 0 => client.deadline = self.now + self.timeouts.body,
                Ok(_) => {}
                Err(_) => return Step::Over,
            }
            if !client.unsent.is_empty() {
                return Step::Waits;
            }
        }
        // A close says so by itself.
        if !lingers && !client.link.is_tls() {
            return Step::Over;
        }
        match client.link.finish() {
            Ok(true) if lingers => {}
            Ok(false) => return Step::Waits,
            Ok(true) | Err(_) => return Step::Over,
        }
        client.stage = Stage::Lingering { until: self.now + LINGER_TIME };
        client.deadline = self.now + LINGER_SILENCE;
        Step::On
    }

    /// Reads to the client's end and throws it away.
    pub(super) fn linger(&mut self, key: usize, until: Instant) -> Step {
        let client = &mut self.clients[key];
        if !client.link.is_readable() {
            return Step::Waits;
        }
        match client.link.receive(&mut self.tools.input) {
            Ok(Received::Bytes(_)) => {
                client.deadline = until.min(self.now + LINGER_SILENCE);
                Step::On
            }
            Ok(Received::Nothing) => Step::Waits,
            Ok(Received::End) | Err(_) => Step::Over,
        }
    }

    /// The client is gone, or is to go; and with it what it asked for. One that has a part of an answer
    /// must not take it for whole: where the end of the connection is that of the answer, only a reset
    /// says so.
    pub(super) fn remove_client(&mut self, key: usize) {
        let client = &self.clients[key];
        let is_cut_short = match (&client.exchange, client.stage) {
            (Some(exchange), _) => exchange.answer.ends_at_close(),
            (None, Stage::Ending { ends_at_close, .. }) => {
                ends_at_close && !client.unsent.is_empty()
            }
            (None, _) => false,
        };
        self.drop_upstream(key);
        self.leave_exchange(key);
        self.note_bytes(key);
        let client = self.clients.remove(key);
        self.tally().closed.add(1);
        self.has_left(client.ip);
        if self.accept_again_at.is_some() {
            // There is room for another one.
            self.accept_again_at = Some(self.now);
        }
        if is_cut_short {
            client.link.break_off();
        }
    }

    /// Looks for those whose time is over.
    pub(super) fn sweep(&mut self) -> io::Result<()> {
        let now = self.now;
        let late: Vec<usize> = self
            .clients
            .iter()
            .filter_map(|(key, client)| (client.deadline <= now).then_some(key))
            .collect();
        for key in late {
            // An exchange that ends may have had others end.
            if self.clients.get(key).is_some_and(|client| client.deadline <= now) {
                self.is_late(key)?;
            }
        }
        self.sweep_queues();
        self.sweep_idle_upstreams();
        self.clients.iter().for_each(|(key, _)| self.note_bytes(key));
        Ok(())
    }

    fn is_late(&mut self, key: usize) -> io::Result<()> {
        let client = &self.clients[key];
        match (client.stage, &client.exchange) {
            (Stage::Reading, _) if client.unread.is_empty() => {
                self.remove_client(key);
                Ok(())
            }
            (Stage::Reading, _) => {
                self.refuse(key, Refusal::Late);
                self.turn(key)
            }
            (Stage::Exchanging, Some(exchange)) => {
                let is_head_due = matches!(exchange.answer, Answer::Head);
                let is_held = exchange.hold.as_ref().map(|hold| hold.has_head);
                match exchange.upstream {
                    // An inspector has not made up its mind.
                    _ if is_held == Some(true) || (is_held.is_some() && is_head_due) => {
                        self.refuse(key, Refusal::GatewayLate);
                    }
                    _ if !is_head_due => {
                        if client.waits_for_answer_body() {
                            self.blame_backend(key);
                        }
                        self.remove_client(key);
                        return Ok(());
                    }
                    None => {
                        let pool = &self.sites[exchange.site].plan.config.pools[exchange.pool];
                        self.refuse(key, Refusal::Busy { retry_after: pool.queue_timeout });
                    }
                    Some(at) if self.upstreams[at].is_connecting => {
                        let step = self.backend_failed(key, Refusal::GatewayLate);
                        if step == Step::Over {
                            self.remove_client(key);
                            return Ok(());
                        }
                    }
                    // The backend takes no more, or has all there is.
                    Some(_) if exchange.body.is_done() || !exchange.outgoing.is_sent() => {
                        self.backend_is_silent(key);
                    }
                    Some(_) => self.refuse(key, Refusal::Late),
                }
                self.turn(key)
            }
            (Stage::Exchanging | Stage::Ending { .. } | Stage::Lingering { .. }, _) => {
                self.remove_client(key);
                Ok(())
            }
        }
    }

    /// Answers in the backend's place. What was begun with one is given up.
    pub(super) fn refuse(&mut self, key: usize, refusal: Refusal) {
        self.drop_upstream(key);
        let asker = match &mut self.clients[key].exchange {
            Some(exchange) => {
                exchange.status = refusal.status();
                let asked = &exchange.asked;
                exchange.answer_bytes = if asked.is_head { 0 } else { refusal.body_bytes() };
                let stays = asked.keep_alive && exchange.body.is_done();
                let stays = stays && refusal.leaves_connection();
                Asker { is_head: asked.is_head, version: asked.version, stays }
            }
            // No request was understood.
            None => {
                self.write_refused(key, None, refusal, false);
                Asker { is_head: false, version: Version::Http11, stays: false }
            }
        };
        self.tell(key, refusal, asker);
        self.leave_exchange(key);
    }

    /// Gives an answer of the gateway's own.
    pub(super) fn tell(&mut self, key: usize, refusal: Refusal, asker: Asker) {
        self.counters.clients(self.index).answered_itself(refusal.status());
        self.say(key, asker, |delivery, out| refusal.render(delivery, out));
    }

    /// Gives the answer that `render` writes, when it is told how it is to go out.
    pub(super) fn say(
        &mut self,
        key: usize,
        asker: Asker,
        render: impl FnOnce(Delivery<'_>, &mut Vec<u8>),
    ) {
        let stays = asker.stays && self.stop_by.is_none();
        let client = &mut self.clients[key];
        let mut answer = Vec::new();
        let delivery = Delivery {
            is_to_head: asker.is_head,
            connection: Persistence::of(asker.version, stays).option(),
            date: self.tools.date.at(self.now, SystemTime::now),
        };
        render(delivery, &mut answer);
        client.unsent.keep(&answer);
        client.deadline = self.now + self.timeouts.body;
        if stays {
            client.stage = Stage::Reading;
        } else {
            // What the client sends still, or has sent already behind it, is not read.
            client.stage = Stage::Ending { lingers: true, ends_at_close: false };
            client.keep_unread(&[]);
        }
    }

    /// The books of an exchange are closed; the connection that carried it was given back or closed
    /// before.
    pub(super) fn leave_exchange(&mut self, key: usize) {
        let client = &mut self.clients[key];
        let Some(mut exchange) = client.exchange.take() else {
            return;
        };
        debug_assert!(exchange.upstream.is_none(), "a connection does not outlive its exchange");
        let waiter = Waiter { client: key, serial: client.serial };
        exchange.outgoing.clear();
        client.outgoing = std::mem::take(&mut exchange.outgoing);
        self.write_line(key, &exchange);
        self.show_outcome(&exchange);
        if let Some(backend) = exchange.is_next {
            let place = Place { site: exchange.site, pool: exchange.pool, backend: backend.0 };
            self.release(place);
        }
        let site = &mut self.sites[exchange.site];
        if let Some(lane) = exchange.waits_in {
            site.pools[exchange.pool].state.leave(lane, &waiter);
        }
        site.exchanges -= 1;
        if site.exchanges == 0 && exchange.site != self.site {
            self.sites.remove(exchange.site);
        }
    }
}
