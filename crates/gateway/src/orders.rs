//! What the threads of a gateway are told from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::phase::{ExchangeId, Verdict};
use crate::site::Plan;
use crate::worker::Listening;

/// What one thread is told. It looks here when its waker has woken it.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    drains: AtomicBool,
    /// Taken by the thread when it is woken, so that nobody waits for anybody.
    reload: Mutex<Option<Reload>>,
    /// What inspectors have said of exchanges that wait: no more than wait, if they say it once.
    resumed: Mutex<Vec<(ExchangeId, Verdict)>>,
}

/// Another configuration, and the listeners that this thread is to have from now on: new ones, and the
/// places of those that stay.
#[derive(Debug)]
pub(crate) struct Reload {
    pub(crate) plan: Arc<Plan>,
    pub(crate) added: Vec<Listening>,
}

impl Orders {
    /// Finish what is in flight, and end.
    pub(crate) fn drain(&self) {
        self.drains.store(true, Ordering::Release);
    }

    pub(crate) fn drains(&self) -> bool {
        self.drains.load(Ordering::Acquire)
    }

    /// Serve by another configuration. One that was not begun with yet is replaced; its listeners are
    /// kept.
    pub(crate) fn reload(&self, mut reload: Reload) {
        let mut waiting = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = waiting.take() {
            reload.added.splice(0..0, earlier.added);
        }
        *waiting = Some(reload);
    }

    /// Have an exchange go on.
    pub(crate) fn resume(&self, id: ExchangeId, verdict: Verdict) {
        self.resumed.lock().unwrap_or_else(PoisonError::into_inner).push((id, verdict));
    }

    pub(crate) fn take_resumed(&self) -> Vec<(ExchangeId, Verdict)> {
        std::mem::take(&mut *self.resumed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take_reload(&self) -> Option<Reload> {
        self.reload.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
