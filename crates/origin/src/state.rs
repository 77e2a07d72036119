//! State that the connections of a thread share: counters and caches.

use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::{Serialize, Serializer};
use tollgate_accesslog::{Counter, ThreadLog};
use tollgate_http1::HeadCache;
use tollgate_http2::Fields;

use crate::recordings::RecordedAnswers;

/// State of a thread that endpoints may use.
pub(crate) struct Shared {
    /// Replaced in tests.
    pub(crate) clock: fn() -> Instant,
    pub(crate) counters: ThreadCounters,
    /// Host for pages of clients that send none.
    pub(crate) default_host: Arc<str>,
    pub(crate) pages: PageCache,
    /// The last request whose response depends on its head alone, with the index of its endpoint and
    /// the response: load generators repeat one request.
    pub(crate) responses: HeadCache<(), usize, 1>,
    /// Number of requests for `/delay` so far, on all threads.
    pub(crate) delays: Arc<AtomicU64>,
    /// Responses that replace all endpoints.
    pub(crate) recorded: Option<Arc<RecordedAnswers>>,
    pub(crate) log: Option<ThreadLog>,
    /// Head of the HTTP/2 request that is being processed.
    pub(crate) fields: Fields,
}

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        (self.clock)()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Metric {
    /// Before `Accepted`: totals are read in this order, and must not show more closed connections
    /// than accepted ones.
    Closed,
    Accepted,
    BytesIn,
    BytesOut,
    /// Responses that report an error, malformed requests included.
    Errors,
    Malformed,
    TimedOut,
    /// CPU time of busy polling without an event.
    PolledNs,
}

/// Upper limit for endpoints that are counted separately.
pub(crate) const MAX_ENDPOINTS: usize = 16;

const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const FIRST_CLASS: usize = Metric::PolledNs as usize + 1;
const FIRST_ENDPOINT: usize = FIRST_CLASS + STATUS_CLASSES.len();
const COUNTERS: usize = FIRST_ENDPOINT + MAX_ENDPOINTS;

/// Counters of one thread. Aligned to two cache lines, which processors fetch in pairs, so that
/// threads do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Counters([Counter; COUNTERS]);

/// Totals by metric, then by status class, then by endpoint.
type Totals = [u64; COUNTERS];

#[derive(Debug)]
struct AllCounters {
    threads: Box<[Counters]>,
    endpoints: Vec<&'static str>,
    last_reset: Mutex<Reset>,
}

#[derive(Debug)]
struct Reset {
    at: Instant,
    totals: Totals,
}

/// Handle of one thread to its counters.
#[derive(Clone, Debug)]
pub(crate) struct ThreadCounters {
    all: Arc<AllCounters>,
    index: usize,
}

impl ThreadCounters {
    /// One handle for each thread. `endpoints`: their names.
    pub(crate) fn for_threads(
        count: usize,
        endpoints: Vec<&'static str>,
        now: Instant,
    ) -> Vec<Self> {
        let zero = || Counters(std::array::from_fn(|_| Counter::default()));
        let all = Arc::new(AllCounters {
            threads: (0..count).map(|_| zero()).collect(),
            endpoints,
            last_reset: Mutex::new(Reset { at: now, totals: [0; COUNTERS] }),
        });
        (0..count).map(|index| Self { all: Arc::clone(&all), index }).collect()
    }

    pub(crate) fn add(&self, metric: Metric, count: u64) {
        self.add_at(metric as usize, count);
    }

    /// Counts a request to the endpoint at this index of the table.
    pub(crate) fn add_request(&self, endpoint: usize) {
        self.add_at(FIRST_ENDPOINT + endpoint, 1);
    }

    pub(crate) fn add_response(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, STATUS_CLASSES.len()) - 1;
        self.add_at(FIRST_CLASS + class, 1);
    }

    fn add_at(&self, index: usize, count: u64) {
        self.all.threads[self.index].0[index].add(count);
    }

    /// Returns the totals of all threads since the last reset, and resets them if `reset`.
    ///
    /// Each number is exact, but other threads may go on counting between two reads.
    pub(crate) fn read(&self, now: Instant, reset: bool) -> Counts {
        let mut last_reset = self.all.last_reset.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = [0; COUNTERS];
        for thread in &self.all.threads {
            for (total, counter) in totals.iter_mut().zip(&thread.0) {
                *total += counter.get();
            }
        }
        let open = totals[Metric::Accepted as usize] - totals[Metric::Closed as usize];
        let since_reset = std::array::from_fn(|index| totals[index] - last_reset.totals[index]);
        let seconds = now.saturating_duration_since(last_reset.at).as_secs_f64();
        let counts = Counts::new(&since_reset, &self.all.endpoints, seconds, open);
        if reset {
            *last_reset = Reset { at: now, totals };
        }
        counts
    }
}

/// Statistics since the last reset, as `/counters` shows them.
#[derive(Serialize)]
pub(crate) struct Counts {
    seconds: f64,
    requests: u64,
    bytes_in: u64,
    bytes_out: u64,
    connections: Connections,
    errors: u64,
    malformed: u64,
    timed_out: u64,
    polled_us: u64,
    #[serde(serialize_with = "members")]
    status_classes: Vec<(&'static str, u64)>,
    #[serde(serialize_with = "members")]
    paths: Vec<(&'static str, u64)>,
}

#[derive(Serialize)]
struct Connections {
    open: u64,
    accepted: u64,
}

impl Counts {
    fn new(totals: &Totals, endpoints: &[&'static str], seconds: f64, open: u64) -> Self {
        let get = |metric: Metric| totals[metric as usize];
        let named = |names: &[&'static str], first: usize| {
            names.iter().copied().zip(totals[first..].iter().copied()).collect()
        };
        Self {
            seconds,
            requests: totals[FIRST_ENDPOINT..].iter().sum::<u64>() + get(Metric::Malformed),
            bytes_in: get(Metric::BytesIn),
            bytes_out: get(Metric::BytesOut),
            connections: Connections { open, accepted: get(Metric::Accepted) },
            errors: get(Metric::Errors),
            malformed: get(Metric::Malformed),
            timed_out: get(Metric::TimedOut),
            polled_us: get(Metric::PolledNs) / 1_000,
            status_classes: named(&STATUS_CLASSES, FIRST_CLASS),
            paths: named(endpoints, FIRST_ENDPOINT),
        }
    }
}

fn members<S: Serializer>(counts: &[(&str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().copied())
}

/// Number of hosts whose page is cached.
const MAX_CACHED_PAGES: usize = 16;

/// Longest host whose page is cached: a domain name and a port.
const MAX_CACHED_HOST_BYTES: usize = 253 + 6;

/// Rendered pages by host. Few enough for a linear search; the oldest is evicted.
#[derive(Debug, Default)]
pub(crate) struct PageCache(Vec<(String, Rc<[u8]>)>);

impl PageCache {
    pub(crate) fn get_or_render(
        &mut self,
        host: &str,
        render: impl FnOnce(&str) -> String,
    ) -> Rc<[u8]> {
        if let Some((_, page)) = self.0.iter().find(|(cached, _)| cached == host) {
            return Rc::clone(page);
        }
        let page: Rc<[u8]> = render(host).into_bytes().into();
        if host.len() <= MAX_CACHED_HOST_BYTES {
            if self.0.len() == MAX_CACHED_PAGES {
                self.0.remove(0);
            }
            self.0.push((host.to_owned(), Rc::clone(&page)));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_accesslog::to_json;

    use super::*;

    #[test]
    fn totals_add_up_over_threads_and_restart_at_reset() {
        let start = Instant::now();
        let threads = ThreadCounters::for_threads(2, vec!["/", "other"], start);
        for (thread, count) in threads.iter().zip([1, 10]) {
            thread.add(Metric::Accepted, 3 * count);
            thread.add(Metric::Closed, count);
            thread.add(Metric::BytesIn, 100 * count);
            thread.add(Metric::BytesOut, 1_000 * count);
            (0..count).for_each(|_| thread.add_request(1));
            thread.add_response(204);
            thread.add_response(599);
            thread.add(Metric::Errors, count);
            thread.add(Metric::TimedOut, 1);
            thread.add(Metric::PolledNs, 1_500);
        }
        threads[1].add(Metric::Malformed, 1);
        let later = start + Duration::from_micros(2_500_000);
        let expected = "{\"seconds\":2.500000,\"requests\":12,\"bytes_in\":1100,\"bytes_out\":11000,\
            \"connections\":{\"open\":22,\"accepted\":33},\"errors\":11,\"malformed\":1,\
            \"timed_out\":2,\"polled_us\":3,\
            \"status_classes\":{\"1xx\":0,\"2xx\":2,\"3xx\":0,\"4xx\":0,\"5xx\":2},\
            \"paths\":{\"/\":0,\"other\":11}}";
        let json = |index: usize, now, reset| -> String {
            String::from_utf8(to_json(6, &threads[index].read(now, reset))).unwrap()
        };
        assert_eq!(json(0, later, true), expected);

        threads[0].add_request(0);
        threads[0].add(Metric::Closed, 2);
        let json = json(1, later + Duration::from_secs(1), false);
        assert!(json.starts_with("{\"seconds\":1.000000,\"requests\":1,\"bytes_in\":0,"), "{json}");
        // Connections accepted before the reset are still open.
        assert!(json.contains("\"connections\":{\"open\":20,\"accepted\":0}"), "{json}");
        assert!(json.ends_with("\"paths\":{\"/\":1,\"other\":0}}"), "{json}");
    }

    #[test]
    fn counters_of_threads_share_no_cache_lines() {
        assert_eq!(align_of::<Counters>(), 128);
        assert_eq!(size_of::<Counters>() % 128, 0);
    }

    #[test]
    fn page_cache_is_bounded() {
        let mut pages = PageCache::default();
        let mut get = |host: &str| pages.get_or_render(host, str::to_owned);
        let first = get("first");
        assert!(Rc::ptr_eq(&first, &get("first")));
        for number in 0..MAX_CACHED_PAGES {
            get(&number.to_string());
        }
        assert!(!Rc::ptr_eq(&first, &get("first")));
        get(&"h".repeat(1000));
        assert_eq!(pages.0.len(), MAX_CACHED_PAGES);
        assert!(pages.0.iter().all(|(host, _)| host.len() < 1000));
    }
}
