//! The machine that the tests share. Two cores hold one experiment at a time: tests that look at figures have
//! the machine for themselves, and all others run beside each other before them, as many as it bears.

use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

/// A test's share of the machine, given back when it is dropped.
pub(crate) struct Share {
    is_all: bool,
}

impl Share {
    /// The whole machine, once no other test has a share of it.
    pub(crate) fn all() -> Self {
        take(|users| !users.has_all && users.parts == 0).has_all = true;
        Self { is_all: true }
    }

    /// A part of the machine. Those who wait for one come before those who wait for all of it, so that
    /// it is not emptied more often than it has to be.
    pub(crate) fn part() -> Self {
        take(|users| !users.has_all && users.parts < parts_max()).parts += 1;
        Self { is_all: false }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        match self.is_all {
            true => users.has_all = false,
            false => users.parts -= 1,
        }
        FREED.notify_all();
    }
}

struct Users {
    parts: usize,
    has_all: bool,
}

static USERS: Mutex<Users> = Mutex::new(Users { parts: 0, has_all: false });
static FREED: Condvar = Condvar::new();

/// Most of them wait for a part of their time.
fn parts_max() -> usize {
    2 * available_parallelism().map_or(1, NonZero::get)
}

/// Longer than all tests together take.
const PATIENCE: Duration = Duration::from_secs(1_800);

fn take(is_free: impl Fn(&Users) -> bool) -> MutexGuard<'static, Users> {
    let users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = FREED.wait_timeout_while(users, PATIENCE, |users| !is_free(users));
    let (users, waited) = waited.unwrap_or_else(PoisonError::into_inner);
    assert!(!waited.timed_out(), "other tests had the machine for {PATIENCE:?}");
    users
}
