//! Checks of credentials that take time, on threads of their own, so that no event loop waits. What was valid is remembered, as a digest.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use tollgate_net::Waker;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Valid,
    Invalid,
    /// This check has to end first.
    Unsettled(CheckId),
    /// As many others are being checked as can be, or as one client may have checked.
    Refused,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Valid,
    Invalid,
    /// The check failed.
    Failed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Time for which valid credentials are not checked again. For as long again they are valid while a check runs. `None`: they are
    /// checked once.
    pub(crate) valid_time: Option<Duration>,
    /// Most credentials that are remembered as valid.
    pub(crate) valid_max: usize,
    /// Time for which others are not checked again.
    pub(crate) invalid_time: Duration,
    /// Most others that are checked, or remembered as invalid.
    pub(crate) others_max: usize,
    /// Most of them that are checked for one client at a time.
    pub(crate) per_client_max: usize,
    /// Checks at the same time.
    pub(crate) threads: usize,
}

/// Checks by result.
#[derive(Debug, Default)]
pub(crate) struct CheckCounters {
    valid: AtomicU64,
    invalid: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl CheckCounters {
    /// With the names of the results.
    pub(crate) fn all(&self) -> [(&'static str, u64); 4] {
        [
            ("valid", &self.valid),
            ("invalid", &self.invalid),
            ("failed", &self.failed),
            ("refused", &self.refused),
        ]
        .map(|(result, counter)| (result, counter.load(Ordering::Relaxed)))
    }

    fn of(&self, answer: Answer) -> &AtomicU64 {
        match answer {
            Answer::Valid => &self.valid,
            Answer::Invalid => &self.invalid,
            Answer::Failed => &self.failed,
        }
    }
}

/// Salted digest of credentials, which identifies their check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CheckId([u8; 32]);

/// Credentials for the threads.
type Queued = (CheckId, String);

/// The credentials that were checked.
pub(crate) struct Checks {
    /// Name of the threads.
    name: &'static str,
    bounds: Bounds,
    check: Box<dyn Fn(&str) -> Answer + Send + Sync>,
    counters: Arc<CheckCounters>,
    salt: [u8; 32],
    ended: AtomicU64,
    state: Mutex<State>,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bounds, ended, .. } = self;
        let mut shown = f.debug_struct("Checks");
        shown.field("name", name).field("bounds", bounds).field("ended", ended);
        shown.finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    valid: HashMap<CheckId, ValidEntry>,
    others: Vec<OtherEntry>,
    /// `None` until the first check.
    queue: Option<Sender<Queued>>,
}

struct ValidEntry {
    checked_at: Instant,
    is_checking: bool,
    waiting: Waiting,
}

/// Credentials that were not valid before.
struct OtherEntry {
    id: CheckId,
    client: Option<IpAddr>,
    /// When a check found them invalid. `None`: they are being checked.
    invalid_at: Option<Instant>,
    waiting: Waiting,
}

/// Threads that wait for a check, each once.
#[derive(Default)]
struct Waiting(Vec<Waker>);

impl Waiting {
    fn add(&mut self, waker: &Waker) {
        let fd = |waker: &Waker| waker.as_fd().as_raw_fd();
        if !self.0.iter().any(|known| fd(known) == fd(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Called without a lock that these threads take.
    fn wake(self) {
        for waker in self.0 {
            // A thread that has ended waits for nothing.
            waker.wake().ok();
        }
    }
}

impl Checks {
    pub(crate) fn new(
        name: &'static str,
        bounds: Bounds,
        counters: Arc<CheckCounters>,
        check: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let (ended, state) = (AtomicU64::new(0), Mutex::default());
        Self {
            name,
            bounds,
            check: Box::new(check),
            counters,
            salt: rand::rng().random(),
            ended,
            state,
        }
    }

    /// Number of checks that have ended. It changes before a waker is woken.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// True until a check has ended.
    pub(crate) fn awaits(&self, id: CheckId) -> bool {
        let state = self.lock();
        state.others.iter().any(|other| other.id == id && other.invalid_at.is_none())
            || state.valid.get(&id).is_some_and(|known| known.is_checking)
    }

    /// Never blocks. Of unsettled credentials, `waker` is woken once their check has ended. `client` has sent them; `None`: it may have any
    /// number checked.
    pub(crate) fn standing(
        self: &Arc<Self>,
        credentials: &str,
        client: Option<IpAddr>,
        now: Instant,
        waker: &Waker,
    ) -> Standing {
        let id = self.id(credentials);
        let mut state = self.lock();
        if let Some(known) = state.valid.get_mut(&id) {
            let age = now.saturating_duration_since(known.checked_at);
            let Some(valid_time) = self.bounds.valid_time.filter(|time| age >= *time) else {
                return Standing::Valid;
            };
            let standing = if age < 2 * valid_time {
                Standing::Valid
            } else {
                known.waiting.add(waker);
                Standing::Unsettled(id)
            };
            let is_checking = std::mem::replace(&mut known.is_checking, true);
            if !is_checking && !self.enqueue(&mut state, id, credentials) {
                // As after a check that failed.
                let waiting = self.settle(&mut state, id, Answer::Failed, now);
                drop(state);
                waiting.wake();
                return Standing::Valid;
            }
            return standing;
        }
        let Bounds { invalid_time, others_max, per_client_max, .. } = self.bounds;
        let is_over =
            |other: &OtherEntry| other.invalid_at.is_some_and(|at| at + invalid_time <= now);
        state.others.retain(|other| !is_over(other));
        if let Some(other) = state.others.iter_mut().find(|other| other.id == id) {
            if other.invalid_at.is_some() {
                return Standing::Invalid;
            }
            other.waiting.add(waker);
            return Standing::Unsettled(id);
        }
        let is_of_client = |other: &&OtherEntry| {
            client.is_some() && other.client == client && other.invalid_at.is_none()
        };
        let is_greedy = state.others.iter().filter(is_of_client).count() >= per_client_max;
        if state.others.len() >= others_max {
            let oldest = state.others.iter().enumerate();
            let oldest = oldest.filter_map(|(at, other)| Some((other.invalid_at?, at))).min();
            if let Some((_, at)) = oldest {
                state.others.swap_remove(at);
            }
        }
        if is_greedy
            || state.others.len() >= others_max
            || !self.enqueue(&mut state, id, credentials)
        {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Standing::Refused;
        }
        let waiting = Waiting(vec![waker.clone()]);
        state.others.push(OtherEntry { id, client, invalid_at: None, waiting });
        Standing::Unsettled(id)
    }

    fn id(&self, credentials: &str) -> CheckId {
        let digest = Sha256::new().chain_update(self.salt).chain_update(credentials).finalize();
        CheckId(digest.into())
    }

    /// Queues credentials for a check. Returns false if no thread could be started.
    fn enqueue(self: &Arc<Self>, state: &mut State, id: CheckId, credentials: &str) -> bool {
        if state.queue.is_none() {
            let (queue, queued) = mpsc::channel();
            let queued = Arc::new(Mutex::new(queued));
            let started = (0..self.bounds.threads).filter(|_| self.start(Arc::clone(&queued)));
            state.queue = (started.count() > 0).then_some(queue);
        }
        let queued = (id, credentials.to_owned());
        state.queue.as_ref().is_some_and(|queue| queue.send(queued).is_ok())
    }

    /// Starts a thread that checks credentials until the end of the queue. Returns false if that fails.
    fn start(self: &Arc<Self>, queued: Arc<Mutex<Receiver<Queued>>>) -> bool {
        let checks = Arc::downgrade(self);
        let run = move || {
            loop {
                let received = lock(&queued).recv();
                let Ok((id, credentials)) = received else { return };
                let Some(checks) = checks.upgrade() else { return };
                // Another thread could not take the place of this one.
                let answer = catch_unwind(AssertUnwindSafe(|| (checks.check)(&credentials)));
                let answer = answer.unwrap_or(Answer::Failed);
                checks.counters.of(answer).fetch_add(1, Ordering::Relaxed);
                let waiting = checks.settle(&mut checks.lock(), id, answer, Instant::now());
                waiting.wake();
            }
        };
        thread::Builder::new().name(self.name.to_owned()).spawn(run).is_ok()
    }

    /// Ends a check. Returns the threads to wake.
    #[must_use]
    fn settle(&self, state: &mut State, id: CheckId, answer: Answer, now: Instant) -> Waiting {
        let mut waiting = Waiting::default();
        if let Some(known) = state.valid.get_mut(&id) {
            waiting.0.append(&mut known.waiting.0);
            known.is_checking = false;
            match answer {
                Answer::Valid | Answer::Failed => known.checked_at = now,
                Answer::Invalid => drop(state.valid.remove(&id)),
            }
        } else if let Some(at) = state.others.iter().position(|other| other.id == id) {
            waiting.0.append(&mut state.others[at].waiting.0);
            match answer {
                Answer::Valid => {
                    state.others.swap_remove(at);
                    if state.valid.len() >= self.bounds.valid_max {
                        let oldest = state.valid.iter().min_by_key(|(_, known)| known.checked_at);
                        if let Some(mut oldest) =
                            oldest.map(|(id, _)| *id).and_then(|id| state.valid.remove(&id))
                        {
                            waiting.0.append(&mut oldest.waiting.0);
                        }
                    }
                    let known = ValidEntry {
                        checked_at: now,
                        is_checking: false,
                        waiting: Waiting::default(),
                    };
                    state.valid.insert(id, known);
                }
                Answer::Invalid | Answer::Failed => state.others[at].invalid_at = Some(now),
            }
        }
        self.ended.fetch_add(1, Ordering::Release);
        waiting
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS_MAX: usize = 64;
    const VALID_MAX: usize = 256;
    const VALID_TIME: Duration = Duration::from_secs(60);
    const INVALID_TIME: Duration = Duration::from_secs(1);

    /// Checks that a test ends itself.
    fn checks(valid_time: Option<Duration>) -> Arc<Checks> {
        let bounds = Bounds {
            valid_time,
            valid_max: VALID_MAX,
            invalid_time: INVALID_TIME,
            others_max: OTHERS_MAX,
            per_client_max: 2,
            threads: 1,
        };
        let checks = Arc::new(Checks::new("test", bounds, Arc::default(), |_| Answer::Failed));
        let (queue, queued) = mpsc::channel();
        std::mem::forget(queued);
        checks.lock().queue = Some(queue);
        checks
    }

    fn settle(checks: &Checks, credentials: &str, answer: Answer, now: Instant) -> Waiting {
        checks.settle(&mut checks.lock(), checks.id(credentials), answer, now)
    }

    #[test]
    fn standing_of_a_key_follows_from_the_answers_and_their_age() {
        let (checks, waker) = (checks(Some(VALID_TIME)), Waker::new().unwrap());
        let start = Instant::now();
        let standing =
            |key: &str, after: Duration| checks.standing(key, None, start + after, &waker);
        let settle = |key: &str, answer, after| {
            settle(&checks, key, answer, start + after).wake();
        };
        let seconds = Duration::from_secs;
        assert!(matches!(standing("a", seconds(0)), Standing::Unsettled(_)));
        assert!(matches!(standing("b", seconds(0)), Standing::Unsettled(_)));
        settle("a", Answer::Valid, seconds(0));
        settle("b", Answer::Failed, seconds(0));
        assert_eq!(standing("a", seconds(59)), Standing::Valid);
        assert_eq!(standing("b", Duration::from_millis(999)), Standing::Invalid);
        assert!(matches!(standing("b", seconds(1)), Standing::Unsettled(_)));
        settle("b", Answer::Invalid, seconds(1));
        assert_eq!(standing("b", seconds(1)), Standing::Invalid);
        // A check runs, and fails: the key remains valid.
        assert_eq!(standing("a", seconds(60)), Standing::Valid);
        settle("a", Answer::Failed, seconds(60));
        assert_eq!(standing("a", seconds(119)), Standing::Valid);
        // It was not in use for long: the check is awaited.
        assert!(matches!(standing("a", seconds(180)), Standing::Unsettled(_)));
        assert!(matches!(standing("a", seconds(181)), Standing::Unsettled(_)));
        settle("a", Answer::Failed, seconds(181));
        assert_eq!(standing("a", seconds(182)), Standing::Valid);
        assert_eq!(standing("a", seconds(241)), Standing::Valid);
        settle("a", Answer::Invalid, seconds(242));
        assert!(matches!(standing("a", seconds(242)), Standing::Unsettled(_)));
    }

    #[test]
    fn credentials_without_a_time_are_checked_once() {
        let (checks, waker, now) = (checks(None), Waker::new().unwrap(), Instant::now());
        assert!(matches!(checks.standing("a", None, now, &waker), Standing::Unsettled(_)));
        settle(&checks, "a", Answer::Valid, now).wake();
        let later = now + Duration::from_secs(1 << 20);
        assert_eq!(checks.standing("a", None, later, &waker), Standing::Valid);
    }

    #[test]
    fn client_has_a_part_of_the_checks() {
        let (checks, waker, now) = (checks(None), Waker::new().unwrap(), Instant::now());
        let [one, other] = [1, 2].map(|last| Some(IpAddr::from([192, 0, 2, last])));
        let standing =
            |credentials: &str, client| checks.standing(credentials, client, now, &waker);
        let Standing::Unsettled(id) = standing("a", one) else { panic!() };
        assert!(matches!(standing("b", one), Standing::Unsettled(_)));
        assert_eq!(standing("c", one), Standing::Refused);
        // A check that runs is awaited by any number.
        assert_eq!(standing("a", one), Standing::Unsettled(id));
        assert!(matches!(standing("c", other), Standing::Unsettled(_)));
        assert!(checks.awaits(id));
        settle(&checks, "a", Answer::Invalid, now).wake();
        assert!(!checks.awaits(id));
        assert!(matches!(standing("d", one), Standing::Unsettled(_)));
    }

    #[test]
    fn guesses_are_bounded_and_leave_valid_keys_alone() {
        let (checks, waker, now) =
            (checks(Some(VALID_TIME)), Waker::new().unwrap(), Instant::now());
        assert!(matches!(checks.standing("good", None, now, &waker), Standing::Unsettled(_)));
        settle(&checks, "good", Answer::Valid, now).wake();
        let guess = |at: usize| checks.standing(&format!("guess{at}"), None, now, &waker);
        assert!((0..OTHERS_MAX).all(|at| matches!(guess(at), Standing::Unsettled(_))));
        assert_eq!(guess(OTHERS_MAX), Standing::Refused);
        assert_eq!(checks.counters.refused.load(Ordering::Relaxed), 1);
        assert_eq!(checks.standing("good", None, now, &waker), Standing::Valid);
        // One that is invalid gives way.
        settle(&checks, "guess5", Answer::Invalid, now).wake();
        assert!(matches!(guess(OTHERS_MAX), Standing::Unsettled(_)));
        assert_eq!(guess(OTHERS_MAX + 1), Standing::Refused);
        for at in (0..=OTHERS_MAX).filter(|at| *at != 5) {
            let key = format!("guess{at}");
            settle(&checks, &key, Answer::Failed, now).wake();
        }
        for at in 0..2 * VALID_MAX {
            let key = format!("key{at}");
            let later = now + 2 * INVALID_TIME;
            assert!(matches!(checks.standing(&key, None, later, &waker), Standing::Unsettled(_)));
            settle(&checks, &key, Answer::Valid, later).wake();
        }
        assert_eq!(checks.lock().valid.len(), VALID_MAX);
    }

    #[test]
    fn thread_waits_once_for_a_key_until_its_check_has_ended() {
        let (checks, now) = (checks(Some(VALID_TIME)), Instant::now());
        let wakers = [Waker::new().unwrap(), Waker::new().unwrap()];
        for waker in wakers.iter().chain(&wakers) {
            assert!(matches!(checks.standing("a", None, now, waker), Standing::Unsettled(_)));
        }
        assert_eq!(checks.ended(), 0);
        let waiting = settle(&checks, "a", Answer::Valid, now);
        assert_eq!((waiting.0.len(), checks.ended()), (2, 1));
        let later = now + 2 * VALID_TIME;
        for waker in wakers.iter().chain(&wakers) {
            assert!(matches!(checks.standing("a", None, later, waker), Standing::Unsettled(_)));
        }
        let waiting = settle(&checks, "a", Answer::Valid, later);
        assert_eq!((waiting.0.len(), checks.ended()), (2, 2));
    }
}
