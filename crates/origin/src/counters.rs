//! What an origin has answered: counted by each thread for itself, put together when asked.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tollgate_ledger::Count;

/// How many paths are counted apart; the last is for all others.
pub(crate) const PATHS_MAX: usize = 16;

/// What one thread has counted. On cache lines of its own (two, since processors fetch pairs), so that
/// no thread slows another down by counting.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    pub(crate) accepted: Count,
    pub(crate) closed: Count,
    pub(crate) bytes_in: Count,
    pub(crate) bytes_out: Count,
    /// Requests by path; the numbers are the router's.
    pub(crate) paths: [Count; PATHS_MAX],
    /// Answers by the first digit of their status, from 1xx on.
    pub(crate) classes: [Count; 5],
    /// Requests that were answered with a reason instead.
    pub(crate) refused: Count,
    /// Requests that were no HTTP/1.
    pub(crate) malformed: Count,
    /// Clients that took too long.
    pub(crate) timed_out: Count,
}

impl Tally {
    /// Counts an answer.
    pub(crate) fn answered(&self, status: u16) {
        self.classes[usize::from(status / 100).clamp(1, 5) - 1].add(1);
    }
}

/// What all threads have counted.
#[derive(Debug)]
pub(crate) struct Counters {
    threads: Box<[Tally]>,
    /// Where the counting was begun anew. Taken only by who asks.
    since: Mutex<Since>,
}

#[derive(Debug)]
struct Since {
    at: Instant,
    totals: Totals,
}

/// One thread's part of the counters.
#[derive(Clone, Debug)]
pub(crate) struct ThreadCounters {
    all: Arc<Counters>,
    index: usize,
}

impl Counters {
    /// Counters of so many threads, all zero; one handle a thread.
    pub(crate) fn of_threads(count: usize, now: Instant) -> Vec<ThreadCounters> {
        let all = Arc::new(Self {
            threads: (0..count).map(|_| Tally::default()).collect(),
            since: Mutex::new(Since { at: now, totals: Totals::default() }),
        });
        (0..count).map(|index| ThreadCounters { all: Arc::clone(&all), index }).collect()
    }

    fn totals(&self) -> Totals {
        self.threads.iter().fold(Totals::default(), |sum, tally| sum.plus(tally))
    }
}

impl ThreadCounters {
    /// What this thread counts.
    pub(crate) fn tally(&self) -> &Tally {
        &self.all.threads[self.index]
    }

    /// What all threads have counted, as JSON, and zero from now on if `reset`. `names` are those of
    /// the paths that are counted apart.
    ///
    /// The numbers of threads that go on meanwhile are each right, but not all of the same moment.
    pub(crate) fn to_json(&self, names: &[&str], now: Instant, reset: bool) -> String {
        let mut since = self.all.since.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = self.all.totals();
        let json = totals.minus(&since.totals).to_json(
            names,
            now.saturating_duration_since(since.at).as_secs_f64(),
            totals.accepted - totals.closed,
        );
        if reset {
            *since = Since { at: now, totals };
        }
        json
    }
}

#[derive(Clone, Debug, Default)]
struct Totals {
    accepted: u64,
    closed: u64,
    bytes_in: u64,
    bytes_out: u64,
    paths: [u64; PATHS_MAX],
    classes: [u64; 5],
    refused: u64,
    malformed: u64,
    timed_out: u64,
}

impl Totals {
    fn plus(&self, tally: &Tally) -> Self {
        // What is closed is read before what is accepted, which is never less.
        let closed = self.closed + tally.closed.get();
        Self {
            closed,
            accepted: self.accepted + tally.accepted.get(),
            bytes_in: self.bytes_in + tally.bytes_in.get(),
            bytes_out: self.bytes_out + tally.bytes_out.get(),
            paths: std::array::from_fn(|at| self.paths[at] + tally.paths[at].get()),
            classes: std::array::from_fn(|at| self.classes[at] + tally.classes[at].get()),
            refused: self.refused + tally.refused.get(),
            malformed: self.malformed + tally.malformed.get(),
            timed_out: self.timed_out + tally.timed_out.get(),
        }
    }

    fn minus(&self, earlier: &Self) -> Self {
        Self {
            accepted: self.accepted - earlier.accepted,
            closed: self.closed - earlier.closed,
            bytes_in: self.bytes_in - earlier.bytes_in,
            bytes_out: self.bytes_out - earlier.bytes_out,
            paths: std::array::from_fn(|at| self.paths[at] - earlier.paths[at]),
            classes: std::array::from_fn(|at| self.classes[at] - earlier.classes[at]),
            refused: self.refused - earlier.refused,
            malformed: self.malformed - earlier.malformed,
            timed_out: self.timed_out - earlier.timed_out,
        }
    }

    fn to_json(&self, names: &[&str], seconds: f64, open: u64) -> String {
        let mut json = String::with_capacity(512);
        let requests = self.paths.iter().sum::<u64>() + self.malformed;
        let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(self.classes);
        write!(
            json,
            "{{\"seconds\":{seconds:.6},\"requests\":{requests},\"bytes_in\":{},\"bytes_out\":{},\
             \"connections\":{{\"open\":{open},\"accepted\":{}}},\"refused\":{},\"malformed\":{},\
             \"timed_out\":{},\"classes\":{{{}}},\"paths\":{{{}}}}}",
            self.bytes_in,
            self.bytes_out,
            self.accepted,
            self.refused,
            self.malformed,
            self.timed_out,
            members(classes),
            members(names.iter().copied().zip(self.paths)),
        )
        .expect("a string takes all that is written");
        json
    }
}

/// The members of a JSON object; the names need no escapes.
fn members<'a>(pairs: impl Iterator<Item = (&'a str, u64)>) -> String {
    pairs.map(|(name, count)| format!("\"{name}\":{count}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_threads_are_put_together_and_a_reset_begins_anew() {
        let start = Instant::now();
        let threads = Counters::of_threads(2, start);
        for (thread, count) in threads.iter().zip([1, 10]) {
            let tally = thread.tally();
            tally.accepted.add(3 * count);
            tally.closed.add(count);
            tally.bytes_in.add(100 * count);
            tally.bytes_out.add(1_000 * count);
            tally.paths[1].add(count);
            tally.answered(204);
            tally.answered(599);
            tally.refused.add(count);
            tally.timed_out.add(1);
        }
        threads[1].tally().malformed.add(1);
        let later = start + Duration::from_micros(2_500_000);
        let expected = "{\"seconds\":2.500000,\"requests\":12,\"bytes_in\":1100,\"bytes_out\":11000,\
            \"connections\":{\"open\":22,\"accepted\":33},\"refused\":11,\"malformed\":1,\
            \"timed_out\":2,\
            \"classes\":{\"1xx\":0,\"2xx\":2,\"3xx\":0,\"4xx\":0,\"5xx\":2},\
            \"paths\":{\"/\":0,\"other\":11}}";
        assert_eq!(threads[0].to_json(&["/", "other"], later, true), expected);

        threads[0].tally().paths[0].add(1);
        threads[0].tally().closed.add(2);
        let json = threads[1].to_json(&["/", "other"], later + Duration::from_secs(1), false);
        assert!(json.starts_with("{\"seconds\":1.000000,\"requests\":1,\"bytes_in\":0,"), "{json}");
        // Connections that were accepted before are open still.
        assert!(json.contains("\"connections\":{\"open\":20,\"accepted\":0}"), "{json}");
        assert!(json.ends_with("\"paths\":{\"/\":1,\"other\":0}}"), "{json}");
    }

    #[test]
    fn no_two_threads_count_on_the_same_cache_lines() {
        assert_eq!(align_of::<Tally>(), 128);
        assert_eq!(size_of::<Tally>() % 128, 0);
    }
}
