//! When a thread with a timer slack naps: what is due within the slack is sent together.

use std::time::{Duration, Instant};

/// What a thread does before it looks at the poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing: there is more to do.
    None,
    /// Sleeps so long, whatever comes, and then takes what there is.
    Nap(Duration),
    /// Waits on the poller, since nothing has happened since the last look.
    Wait,
}

/// The naps of a thread whose schedule has slack.
///
/// After all that there was to do, the thread closes its eyes until the slack since its last waking is
/// over: answers do not wake it, so that one waking serves all that came and fell due meanwhile. Where
/// nothing did, it waits as it would without slack, so a low rate wakes no more often than its requests and
/// answers do.
#[derive(Debug)]
pub(crate) struct Naps {
    slack: Duration,
    /// When the thread woke last, from a nap or from a wait.
    woke: Instant,
    /// Whether anything was sent or received since.
    has_acted: bool,
}

impl Naps {
    pub(crate) fn new(slack: Duration, now: Instant) -> Self {
        Self { slack, woke: now, has_acted: false }
    }

    /// The thread has woken.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.woke = now;
        self.has_acted = false;
    }

    /// A turn is over, in which something was sent or received or not.
    pub(crate) fn turn(&mut self, has_acted: bool) {
        self.has_acted |= has_acted;
    }

    /// What comes next, where there `is_more` to do or not.
    pub(crate) fn next(&self, is_more: bool, now: Instant) -> Rest {
        if is_more {
            return Rest::None;
        }
        if !self.has_acted {
            return Rest::Wait;
        }
        // A thread that has no time for naps goes on at once.
        Rest::Nap((self.woke + self.slack).saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn a_turn_that_did_something_is_followed_by_a_nap_for_the_rest_of_the_slack() {
        let start = Instant::now();
        let mut naps = Naps::new(500 * US, start);
        naps.turn(true);
        assert_eq!(naps.next(true, start + 100 * US), Rest::None);
        naps.turn(false);
        assert_eq!(naps.next(false, start + 120 * US), Rest::Nap(380 * US));
        naps.wake(start + 510 * US);
        naps.turn(true);
        assert_eq!(naps.next(false, start + 510 * US), Rest::Nap(500 * US));
    }

    #[test]
    fn after_a_nap_in_which_nothing_happened_the_poller_is_waited_for() {
        let start = Instant::now();
        let mut naps = Naps::new(500 * US, start);
        assert_eq!(naps.next(false, start), Rest::Wait);
        naps.turn(true);
        naps.wake(start + 500 * US);
        naps.turn(false);
        assert_eq!(naps.next(false, start + 501 * US), Rest::Wait);
    }

    #[test]
    fn turns_that_take_the_whole_slack_leave_no_nap() {
        let start = Instant::now();
        let mut naps = Naps::new(500 * US, start);
        naps.turn(true);
        assert_eq!(naps.next(false, start + 499 * US), Rest::Nap(US));
        assert_eq!(naps.next(false, start + 500 * US), Rest::Nap(Duration::ZERO));
        assert_eq!(naps.next(false, start + 900 * US), Rest::Nap(Duration::ZERO));
    }
}
