//! Keys of bouncers that the local API knows. A key is checked on a thread of its own, and valid for a minute without another
//! check.

use std::sync::atomic::Ordering;
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
/// Other keys that are checked or remembered. Beyond it, another one is invalid.
const OTHERS_MAX: usize = 64;
const KEY_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStanding {
    Valid,
    Invalid,
    /// A check has to end first.
    Unsettled,
}

/// The keys that were checked.
#[derive(Debug)]
pub(super) struct KeyChecks {
    api: LocalApi,
    counters: Arc<LocalApiCounters>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    valid: Vec<ValidKey>,
    others: Vec<OtherKey>,
    /// Keys for the thread. `None` until the first.
    queue: Option<Sender<String>>,
}

#[derive(Debug)]
struct ValidKey {
    key: String,
    checked_at: Instant,
    is_checking: bool,
    /// Threads that wait for the check.
    waiting: Vec<Waker>,
}

/// A key that was not valid before.
#[derive(Debug)]
struct OtherKey {
    key: String,
    /// When a check found it invalid. `None`: it is being checked.
    invalid_at: Option<Instant>,
    waiting: Vec<Waker>,
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
        Self { api, counters, state: Mutex::default() }
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
                known.waiting.push(waker.clone());
                KeyStanding::Unsettled
            };
            if !std::mem::replace(&mut known.is_checking, true) && !self.enqueue(&mut state, key) {
                // As after an error of the local API.
                self.settle(&mut state, key, Answer::Failed, now);
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
            other.waiting.push(waker.clone());
            return KeyStanding::Unsettled;
        }
        if state.others.len() >= OTHERS_MAX || !self.enqueue(&mut state, key) {
            self.counters.keys_refused.fetch_add(1, Ordering::Relaxed);
            return KeyStanding::Invalid;
        }
        let waiting = vec![waker.clone()];
        state.others.push(OtherKey { key: key.to_owned(), invalid_at: None, waiting });
        KeyStanding::Unsettled
    }

    /// Has a key checked. False if there is no thread for it.
    fn enqueue(self: &Arc<Self>, state: &mut State, key: &str) -> bool {
        if state.queue.is_none() {
            let (queue, keys) = mpsc::channel();
            let checks = Arc::downgrade(self);
            let (api, counters) = (self.api.clone(), Arc::clone(&self.counters));
            let run = move || {
                let settle = |key: &str, answer| {
                    let Some(checks) = checks.upgrade() else { return };
                    checks.settle(&mut checks.lock(), key, answer, Instant::now());
                };
                check_all(&keys, &api, &counters, settle);
            };
            let started = thread::Builder::new().name("api-keys".to_owned()).spawn(run);
            state.queue = started.is_ok().then_some(queue);
        }
        state.queue.as_ref().is_some_and(|queue| queue.send(key.to_owned()).is_ok())
    }

    /// Ends the check of a key.
    fn settle(&self, state: &mut State, key: &str, answer: Answer, now: Instant) {
        let mut waiting = Vec::new();
        if let Some(at) = state.valid.iter().position(|known| known.key == key) {
            let known = &mut state.valid[at];
            waiting.append(&mut known.waiting);
            known.is_checking = false;
            match answer {
                Answer::Known | Answer::Failed => known.checked_at = now,
                Answer::Unknown => drop(state.valid.swap_remove(at)),
            }
        } else if let Some(at) = state.others.iter().position(|other| other.key == key) {
            waiting.append(&mut state.others[at].waiting);
            match answer {
                Answer::Known => {
                    state.others.swap_remove(at);
                    if state.valid.len() >= VALID_MAX {
                        let oldest = state.valid.iter().enumerate();
                        let oldest = oldest.min_by_key(|(_, known)| known.checked_at);
                        if let Some((at, _)) = oldest {
                            waiting.append(&mut state.valid.swap_remove(at).waiting);
                        }
                    }
                    state.valid.push(ValidKey {
                        key: key.to_owned(),
                        checked_at: now,
                        is_checking: false,
                        waiting: Vec::new(),
                    });
                }
                Answer::Unknown | Answer::Failed => state.others[at].invalid_at = Some(now),
            }
        }
        for waker in waiting {
            // A thread that has ended waits for nothing.
            waker.wake().ok();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_all(
    keys: &Receiver<String>,
    api: &LocalApi,
    counters: &LocalApiCounters,
    settle: impl Fn(&str, Answer),
) {
    let mut messages = RateLimit::new(LOG_INTERVAL);
    for key in keys {
        let answer = check(&key, api);
        let counter = match &answer {
            Ok(true) => &counters.keys_valid,
            Ok(false) => &counters.keys_invalid,
            Err(error) => {
                if messages.allow(Instant::now()) {
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
            checks.settle(&mut checks.lock(), key, answer, start + after);
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
        checks.settle(&mut checks.lock(), "good", Answer::Known, now);
        let guess = |at: usize| checks.standing(format!("guess{at}").as_bytes(), now, &waker);
        assert!((0..OTHERS_MAX).all(|at| guess(at) == KeyStanding::Unsettled));
        assert_eq!(guess(OTHERS_MAX), KeyStanding::Invalid);
        assert_eq!(checks.counters.keys_refused.load(Ordering::Relaxed), 1);
        assert_eq!(checks.standing(b"good", now, &waker), KeyStanding::Valid);
        for at in 0..2 * VALID_MAX {
            let key = format!("key{at}");
            checks.settle(
                &mut checks.lock(),
                &format!("guess{}", at % OTHERS_MAX),
                Answer::Failed,
                now,
            );
            let later = now + 2 * INVALID_TIME;
            assert_eq!(checks.standing(key.as_bytes(), later, &waker), KeyStanding::Unsettled);
            checks.settle(&mut checks.lock(), &key, Answer::Known, later);
        }
        assert_eq!(checks.lock().valid.len(), VALID_MAX);
    }
}
