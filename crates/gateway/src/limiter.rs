//! Rates and numbers of requests per client, for all threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::config::{ClientLimits, Rate};

/// Recent and open requests of the clients of routes that limit them.
#[derive(Debug)]
pub(crate) struct Limiter {
    clients: Mutex<Clients>,
    evictions: AtomicU64,
}

#[derive(Debug)]
struct Clients {
    /// The time at which all earlier requests of a client are paid for at the rate (the theoretical arrival time of the generic
    /// cell rate algorithm, ITU-T I.371). Beyond `limits.clients`, the client whose last request is the oldest is forgotten.
    paid_at: LruCache<ClientKey, Instant>,
    /// Open requests, also of clients that are forgotten above. Zeros take no memory, so open requests bound it.
    active: HashMap<ClientKey, u32>,
}

/// A client on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ClientKey {
    /// [`ClientLimits::id`].
    limits: u64,
    network: IpAddr,
}

/// A client has more requests than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// Time until a request may pass. `None`: when another one ends.
    pub(crate) retry_after: Option<Duration>,
}

impl Default for Limiter {
    fn default() -> Self {
        let clients = Clients { paid_at: LruCache::unbounded(), active: HashMap::new() };
        Self { clients: Mutex::new(clients), evictions: AtomicU64::new(0) }
    }
}

impl Limiter {
    /// Counts a request, which must [`leave`](Self::leave) if it may pass.
    pub(crate) fn enter(
        &self,
        limits: &ClientLimits,
        client: IpAddr,
        max_clients: usize,
        now: Instant,
    ) -> Result<(), Exceeded> {
        let key = ClientKey { limits: limits.id, network: network(client) };
        let mut clients = self.lock();
        let passed = clients.enter(key, limits, now);
        while clients.paid_at.len() > max_clients && clients.paid_at.pop_lru().is_some() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        passed
    }

    /// Counts a request again that has entered and left: its rate is paid for.
    pub(crate) fn enter_again(
        &self,
        limits: &ClientLimits,
        client: IpAddr,
    ) -> Result<(), Exceeded> {
        let key = ClientKey { limits: limits.id, network: network(client) };
        let mut clients = self.lock();
        let active = clients.active_below(key, limits)?;
        clients.active.insert(key, active + 1);
        Ok(())
    }

    /// Counts the end of a request that has passed.
    pub(crate) fn leave(&self, limits: &ClientLimits, client: IpAddr) {
        let key = ClientKey { limits: limits.id, network: network(client) };
        if let Entry::Occupied(mut active) = self.lock().active.entry(key) {
            *active.get_mut() -= 1;
            if *active.get() == 0 {
                active.remove();
            }
        }
    }

    /// Clients with recent requests that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.lock().paid_at.len()
    }

    /// Clients that were forgotten for others.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clients {
    fn enter(
        &mut self,
        key: ClientKey,
        limits: &ClientLimits,
        now: Instant,
    ) -> Result<(), Exceeded> {
        let active = self.active_below(key, limits);
        let paid_at = self.paid_at.get_or_insert_mut(key, || now);
        let active = active?;
        if let Some(Rate { interval, burst }) = limits.rate {
            let ahead_at = (*paid_at).max(now) + interval;
            let ahead = ahead_at - now;
            let allowed = interval * burst.get();
            if ahead > allowed {
                return Err(Exceeded { retry_after: Some(ahead - allowed) });
            }
            *paid_at = ahead_at;
        }
        self.active.insert(key, active + 1);
        Ok(())
    }

    /// Open requests of a client that may have another one.
    fn active_below(&self, key: ClientKey, limits: &ClientLimits) -> Result<u32, Exceeded> {
        let active = self.active.get(&key).copied().unwrap_or_default();
        if limits.concurrent.is_some_and(|max| active >= max.get()) {
            return Err(Exceeded { retry_after: None });
        }
        Ok(active)
    }
}

/// Returns the address that identifies a client: an IPv4 address, or the /64 network that an IPv6 client usually owns.
pub(crate) fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn limits(interval_ms: u32, burst: u32, concurrent: Option<u32>) -> ClientLimits {
        let rate = Rate { interval: MS * interval_ms, burst: NonZeroU32::new(burst).unwrap() };
        ClientLimits {
            id: 7,
            rate: (interval_ms > 0).then_some(rate),
            concurrent: concurrent.and_then(NonZeroU32::new),
        }
    }

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn rate_allows_a_burst_and_then_its_interval() {
        let (limiter, limits, start) = (Limiter::default(), limits(100, 3, None), Instant::now());
        let enter = |client, ms| limiter.enter(&limits, client, 10, start + MS * ms);
        let wait = |ms| Err(Exceeded { retry_after: Some(MS * ms) });
        assert_eq!([0; 3].map(|ms| enter(ip(1), ms)), [Ok(()); 3]);
        assert_eq!(enter(ip(1), 0), wait(100));
        assert_eq!(enter(ip(1), 60), wait(40));
        // Refused requests cost nothing.
        assert_eq!((enter(ip(1), 100), enter(ip(1), 100)), (Ok(()), wait(100)));
        assert_eq!(enter(ip(2), 100), Ok(()));
        // After a pause there is a whole burst, and no more.
        assert_eq!([9_000; 3].map(|ms| enter(ip(1), ms)), [Ok(()); 3]);
        assert_eq!(enter(ip(1), 9_000), wait(100));
    }

    #[test]
    fn concurrent_requests_end_and_do_not_cost_the_rate() {
        let (limiter, limits, now) = (Limiter::default(), limits(0, 1, Some(2)), Instant::now());
        let enter = || limiter.enter(&limits, ip(1), 10, now);
        assert_eq!((enter(), enter()), (Ok(()), Ok(())));
        assert_eq!(enter(), Err(Exceeded { retry_after: None }));
        limiter.leave(&limits, ip(1));
        assert_eq!((enter(), enter().is_err()), (Ok(()), true));
        let other = ClientLimits { id: 8, ..limits };
        assert_eq!(limiter.enter(&other, ip(1), 10, now), Ok(()));
    }

    #[test]
    fn client_with_the_oldest_request_is_forgotten() {
        let (limiter, limits, now) = (Limiter::default(), limits(1_000, 1, None), Instant::now());
        let enter = |last| limiter.enter(&limits, ip(last), 2, now).is_ok();
        assert!(enter(1) && enter(2) && !enter(1) && enter(3));
        assert_eq!((limiter.len(), limiter.evictions()), (2, 1));
        assert!(!enter(1) && !enter(3));
        // The request of another one was older.
        assert!(enter(2));
        limiter.leave(&limits, ip(9));
    }

    #[test]
    fn open_requests_of_forgotten_clients_count() {
        let (limiter, limits, now) = (Limiter::default(), limits(0, 1, Some(2)), Instant::now());
        let enter = |last| limiter.enter(&limits, ip(last), 1, now).is_ok();
        assert!(enter(1) && enter(1) && enter(2));
        assert_eq!((limiter.len(), limiter.evictions()), (1, 1));
        assert!(!enter(1), "two of them are open");
        limiter.leave(&limits, ip(1));
        assert!(enter(1) && !enter(1));
        for last in [1, 1, 2] {
            limiter.leave(&limits, ip(last));
        }
        assert_eq!(limiter.lock().active.len(), 0);
    }

    #[test]
    fn ipv6_clients_of_one_network_count_as_one() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(network("2001:db8:1:2::3"), network("2001:db8:1:3::3"));
        assert_eq!(network("192.0.2.1"), IpAddr::from([192, 0, 2, 1]));
    }
}
