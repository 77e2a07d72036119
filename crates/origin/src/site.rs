//! What a thread answers with: everything that an endpoint may look at besides the request.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use tollgate_ledger::ThreadLog;

use crate::counters::ThreadCounters;
use crate::endpoints::page::Pages;
use crate::recall::Recall;

/// What a thread answers with.
pub(crate) struct Site {
    /// What time it is; another clock in tests.
    pub(crate) clock: fn() -> Instant,
    pub(crate) counters: ThreadCounters,
    pub(crate) pages: Pages,
    pub(crate) recall: Recall,
    /// How many delays were asked for, on all threads.
    pub(crate) delays: Arc<AtomicU64>,
    /// Where a line a request goes, if it goes anywhere.
    pub(crate) log: Option<ThreadLog>,
}

impl Site {
    pub(crate) fn now(&self) -> Instant {
        (self.clock)()
    }
}

/// A clock that stands still until it is told, for tests and fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) mod made_up {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::counters::Counters;

    thread_local! {
        static START: Instant = Instant::now();
        static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// The time that the test has made it, on its thread.
    pub(crate) fn made_up_clock() -> Instant {
        START.with(|start| *start) + PASSED.get()
    }

    /// Lets time pass.
    pub(crate) fn pass(time: Duration) {
        PASSED.set(PASSED.get() + time);
    }

    /// A site on which time passes when the test says so.
    pub(crate) fn site() -> Site {
        Site {
            clock: made_up_clock,
            counters: Counters::of_threads(1, made_up_clock()).remove(0),
            pages: Pages::new("127.0.0.1:8000"),
            recall: Recall::default(),
            delays: Arc::default(),
            log: None,
        }
    }
}
