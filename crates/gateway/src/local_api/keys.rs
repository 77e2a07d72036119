//! Keys of bouncers that the local API knows. Keys are checked on threads of their own. A valid one is valid for a minute without
//! another check.

use std::fmt;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;
use tollgate_accesslog::RateLimit;
use tollgate_net::Waker;

use super::call::{Call, CallError};
use super::counters::LocalApiCounters;
use crate::config::LocalApi;
use crate::{LOG_INTERVAL, log};

/// Time for which a valid key is not checked again, as in CrowdSec. For as long again it is valid while a check runs.
const VALID_TIME: Duration = Duration::from_secs(60);
/// Time for which an unknown key is not checked again.
const INVALID_TIME: Duration = Duration::from_secs(1);
/// Keys that are valid, or were a short time ago.
const VALID_MAX: usize = 256;
/// Other keys that are checked or remembered. While so many are checked, another one is invalid.
const OTHERS_MAX: usize = 64;
/// Keys that are checked at the same time.
const THREADS: usize = 8;
const KEY_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStanding {
    Valid,
    Invalid,
    /// A check has to end first.
    Unsettled,
}

/// The keys that were checked.
pub(super) struct KeyChecks {
    api: LocalApi,
    counters: Arc<LocalApiCounters>,
    ended: AtomicU64,
    state: Mutex<State>,
}

/// Without the keys.
impl fmt::Debug for KeyChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyChecks").field("ended", &self.ended).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    valid: Vec<ValidKey>,
    others: Vec<OtherKey>,
    /// Keys for the threads. `None` until the first.
    queue: Option<Sender<String>>,
}

struct ValidKey {
    key: String,
    checked_at: Instant,
    is_checking: bool,
    waiting: Waiting,
}

/// A key that was not valid before.
struct OtherKey {
    key: String,
    /// When a check found it invalid. `None`: it is being checked.
    invalid_at: Option<Instant>,
    waiting: Waiting,
}

/// Threads that wait for the check of a key, each once.
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

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Known,
    Unknown,
    /// There was none.
    Failed,
}

impl KeyChecks {
    pub(super) fn new(api: LocalApi, counters: Arc<LocalApiCounters>) -> Self {
        Self { api, counters, ended: AtomicU64::new(0), state: Mutex::default() }
    }

    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Never blocks. Of an unsettled key, `waker` is woken once its check has ended.
    pub(super) fn standing(
        self: &Arc<Self>,
        key: &[u8],
        now: Instant,
        waker: &Waker,
    ) -> KeyStanding {
        let is_key = key.len() <= KEY_BYTES_MAX && key.iter().all(u8::is_ascii_graphic);
        let Some(key) = str::from_utf8(key).ok().filter(|key| is_key && !key.is_empty()) else {
            return KeyStanding::Invalid;
        };
        let mut state = self.lock();
        let is_same = |known: &ValidKey| bool::from(known.key.as_bytes().ct_eq(key.as_bytes()));
        // Takes the same time for all keys of the same length.
        let found = (0..)
            .zip(&state.valid)
            .fold(None, |found, (at, known)| if is_same(known) { Some(at) } else { found });
        if let Some(at) = found {
            let known = &mut state.valid[at];
            let age = now.saturating_duration_since(known.checked_at);
            if age < VALID_TIME {
                return KeyStanding::Valid;
            }
            let standing = if age < 2 * VALID_TIME {
                KeyStanding::Valid
            } else {
                known.waiting.add(waker);
                KeyStanding::Unsettled
            };
            if !std::mem::replace(&mut known.is_checking, true) && !self.enqueue(&mut state, key) {
                // As after an error of the local API.
                let waiting = self.settle(&mut state, key, Answer::Failed, now);
                drop(state);
                waiting.wake();
                return KeyStanding::Valid;
            }
            return standing;
        }
        let is_over =
            |other: &OtherKey| other.invalid_at.is_some_and(|at| at + INVALID_TIME <= now);
        state.others.retain(|other| !is_over(other));
        if let Some(other) = state.others.iter_mut().find(|other| other.key == key) {
            if other.invalid_at.is_some() {
                return KeyStanding::Invalid;
            }
            other.waiting.add(waker);
            return KeyStanding::Unsettled;
        }
        if state.others.len() >= OTHERS_MAX {
            let oldest = state.others.iter().enumerate();
            let oldest = oldest.filter_map(|(at, other)| Some((other.invalid_at?, at))).min();
            if let Some((_, at)) = oldest {
                state.others.swap_remove(at);
            }
        }
        if state.others.len() >= OTHERS_MAX || !self.enqueue(&mut state, key) {
            self.counters.keys_refused.fetch_add(1, Ordering::Relaxed);
            return KeyStanding::Invalid;
        }
        let waiting = Waiting(vec![waker.clone()]);
        state.others.push(OtherKey { key: key.to_owned(), invalid_at: None, waiting });
        KeyStanding::Unsettled
    }

    /// Has a key checked. False if there is no thread.
    fn enqueue(self: &Arc<Self>, state: &mut State, key: &str) -> bool {
        if state.queue.is_none() {
            let (queue, keys) = mpsc::channel();
            let queued = Arc::new((Mutex::new(keys), Mutex::new(RateLimit::new(LOG_INTERVAL))));
            let started = (0..THREADS).filter(|_| self.start(Arc::clone(&queued)));
            state.queue = (started.count() > 0).then_some(queue);
        }
        state.queue.as_ref().is_some_and(|queue| queue.send(key.to_owned()).is_ok())
    }

    /// Starts a thread that checks keys. False if there is none.
    fn start(self: &Arc<Self>, queued: Arc<(Mutex<Receiver<String>>, Mutex<RateLimit>)>) -> bool {
        let checks = Arc::downgrade(self);
        let (api, counters) = (self.api.clone(), Arc::clone(&self.counters));
        let run = move || {
            let settle = |key: &str, answer| {
                let Some(checks) = checks.upgrade() else { return };
                let waiting = checks.settle(&mut checks.lock(), key, answer, Instant::now());
                waiting.wake();
            };
            let (keys, messages) = &*queued;
            check_all(keys, messages, &api, &counters, settle);
        };
        thread::Builder::new().name("api-keys".to_owned()).spawn(run).is_ok()
    }

    /// Ends the check of a key. Returns the threads to wake.
    #[must_use]
    fn settle(&self, state: &mut State, key: &str, answer: Answer, now: Instant) -> Waiting {
        let mut waiting = Waiting::default();
        if let Some(at) = state.valid.iter().position(|known| known.key == key) {
            let known = &mut state.valid[at];
            waiting.0.append(&mut known.waiting.0);
            known.is_checking = false;
            match answer {
                Answer::Known | Answer::Failed => known.checked_at = now,
                Answer::Unknown => drop(state.valid.swap_remove(at)),
            }
        } else if let Some(at) = state.others.iter().position(|other| other.key == key) {
            waiting.0.append(&mut state.others[at].waiting.0);
            match answer {
                Answer::Known => {
                    state.others.swap_remove(at);
                    if state.valid.len() >= VALID_MAX {
                        let oldest = state.valid.iter().enumerate();
                        let oldest = oldest.min_by_key(|(_, known)| known.checked_at);
                        if let Some((at, _)) = oldest {
                            waiting.0.append(&mut state.valid.swap_remove(at).waiting.0);
                        }
                    }
                    state.valid.push(ValidKey {
                        key: key.to_owned(),
                        checked_at: now,
                        is_checking: false,
                        waiting: Waiting::default(),
                    });
                }
                Answer::Unknown | Answer::Failed => state.others[at].invalid_at = Some(now),
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

fn check_all(
    keys: &Mutex<Receiver<String>>,
    messages: &Mutex<RateLimit>,
    api: &LocalApi,
    counters: &LocalApiCounters,
    settle: impl Fn(&str, Answer),
) {
    loop {
        let received = lock(keys).recv();
        let Ok(key) = received else { return };
        let answer = check(&key, api);
        let counter = match &answer {
            Ok(true) => &counters.keys_valid,
            Ok(false) => &counters.keys_invalid,
            Err(error) => {
                if lock(messages).allow(Instant::now()) {
                    log(format_args!(
                        "cannot check the key of a bouncer with the local API of CrowdSec at {}: {error}; keys that were valid remain so, \
                         others are refused (logged once a minute)",
                        api.host
                    ));
                }
                &counters.keys_failed
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        settle(
            &key,
            match answer {
                Ok(true) => Answer::Known,
                Ok(false) => Answer::Unknown,
                Err(_) => Answer::Failed,
            },
        );
    }
}

/// Returns true if the local API knows the key.
fn check(key: &str, api: &LocalApi) -> Result<bool, CallError> {
    let path = "/v1/decisions/stream";
    let call = Call { method: "HEAD", path, header: Some(("X-Api-Key", key)), body: b"" };
    match call.send(api, api.timeout)?.status {
        200 => Ok(true),
        401 | 403 => Ok(false),
        status => Err(CallError::Status(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Address, ApiAddress};
    use std::net::SocketAddr;

    fn checks() -> Arc<KeyChecks> {
        let api = LocalApi {
            address: ApiAddress::Known(Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 1)))),
            host: "a".to_owned(),
            base_path: String::new(),
            tls: None,
            machine: None,
            timeout: Duration::from_secs(1),
        };
        let checks = Arc::new(KeyChecks::new(api, Arc::default()));
        // Checks end by hand.
        let (queue, keys) = mpsc::channel();
        std::mem::forget(keys);
        checks.lock().queue = Some(queue);
        checks
    }

    #[test]
    fn standing_of_a_key_follows_from_the_answers_and_their_age() {
        let (checks, waker) = (checks(), Waker::new().unwrap());
        let start = Instant::now();
        let standing =
            |key: &str, after: Duration| checks.standing(key.as_bytes(), start + after, &waker);
        let settle = |key: &str, answer, after| {
            checks.settle(&mut checks.lock(), key, answer, start + after).wake();
        };
        let seconds = Duration::from_secs;
        assert_eq!(standing("a", seconds(0)), KeyStanding::Unsettled);
        assert_eq!(standing("b", seconds(0)), KeyStanding::Unsettled);
        settle("a", Answer::Known, seconds(0));
        settle("b", Answer::Failed, seconds(0));
        assert_eq!(standing("a", seconds(59)), KeyStanding::Valid);
        assert_eq!(standing("b", Duration::from_millis(999)), KeyStanding::Invalid);
        assert_eq!(standing("b", seconds(1)), KeyStanding::Unsettled);
        settle("b", Answer::Unknown, seconds(1));
        assert_eq!(standing("b", seconds(1)), KeyStanding::Invalid);
        // A check runs, and fails: the key remains valid.
        assert_eq!(standing("a", seconds(60)), KeyStanding::Valid);
        settle("a", Answer::Failed, seconds(60));
        assert_eq!(standing("a", seconds(119)), KeyStanding::Valid);
        // It was not in use for long: the check is awaited.
        assert_eq!(standing("a", seconds(180)), KeyStanding::Unsettled);
        assert_eq!(standing("a", seconds(181)), KeyStanding::Unsettled);
        settle("a", Answer::Failed, seconds(181));
        assert_eq!(standing("a", seconds(182)), KeyStanding::Valid);
        assert_eq!(standing("a", seconds(241)), KeyStanding::Valid);
        settle("a", Answer::Unknown, seconds(242));
        assert_eq!(standing("a", seconds(242)), KeyStanding::Unsettled);
        assert_eq!(standing("", seconds(242)), KeyStanding::Invalid);
        assert_eq!(standing("a b", seconds(242)), KeyStanding::Invalid);
        assert_eq!(standing("\u{e4}", seconds(242)), KeyStanding::Invalid);
    }

    #[test]
    fn guesses_are_bounded_and_leave_valid_keys_alone() {
        let (checks, waker, now) = (checks(), Waker::new().unwrap(), Instant::now());
        assert_eq!(checks.standing(b"good", now, &waker), KeyStanding::Unsettled);
        checks.settle(&mut checks.lock(), "good", Answer::Known, now).wake();
        let guess = |at: usize| checks.standing(format!("guess{at}").as_bytes(), now, &waker);
        assert!((0..OTHERS_MAX).all(|at| guess(at) == KeyStanding::Unsettled));
        assert_eq!(guess(OTHERS_MAX), KeyStanding::Invalid);
        assert_eq!(checks.counters.keys_refused.load(Ordering::Relaxed), 1);
        assert_eq!(checks.standing(b"good", now, &waker), KeyStanding::Valid);
        // One that is invalid gives way.
        checks.settle(&mut checks.lock(), "guess5", Answer::Unknown, now).wake();
        assert_eq!(guess(OTHERS_MAX), KeyStanding::Unsettled);
        assert_eq!(guess(OTHERS_MAX + 1), KeyStanding::Invalid);
        for at in (0..=OTHERS_MAX).filter(|at| *at != 5) {
            let key = format!("guess{at}");
            checks.settle(&mut checks.lock(), &key, Answer::Failed, now).wake();
        }
        for at in 0..2 * VALID_MAX {
            let key = format!("key{at}");
            let later = now + 2 * INVALID_TIME;
            assert_eq!(checks.standing(key.as_bytes(), later, &waker), KeyStanding::Unsettled);
            checks.settle(&mut checks.lock(), &key, Answer::Known, later).wake();
        }
        assert_eq!(checks.lock().valid.len(), VALID_MAX);
    }

    #[test]
    fn thread_waits_once_for_a_key_until_its_check_has_ended() {
        let (checks, now) = (checks(), Instant::now());
        let wakers = [Waker::new().unwrap(), Waker::new().unwrap()];
        for waker in wakers.iter().chain(&wakers) {
            assert_eq!(checks.standing(b"a", now, waker), KeyStanding::Unsettled);
        }
        assert_eq!(checks.ended(), 0);
        let waiting = checks.settle(&mut checks.lock(), "a", Answer::Known, now);
        assert_eq!((waiting.0.len(), checks.ended()), (2, 1));
        let later = now + 2 * VALID_TIME;
        for waker in wakers.iter().chain(&wakers) {
            assert_eq!(checks.standing(b"a", later, waker), KeyStanding::Unsettled);
        }
        let waiting = checks.settle(&mut checks.lock(), "a", Answer::Known, later);
        assert_eq!((waiting.0.len(), checks.ended()), (2, 2));
    }
}
