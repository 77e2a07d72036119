//! Telling the threads of an origin to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_eventloop::Waker;

use crate::error::Error;

/// Stops the origin that it came from, from any thread. Clones stop the same one.
#[derive(Clone, Debug)]
pub struct Stopper {
    stopping: Arc<AtomicBool>,
    wakers: Arc<[Waker]>,
}

impl Stopper {
    /// A stopper of the threads that `wakers` wake.
    pub(crate) fn new(wakers: &[Waker]) -> Self {
        Self { stopping: Arc::new(AtomicBool::new(false)), wakers: wakers.into() }
    }

    /// Tells every thread to finish what is in flight, within a second, and to end. Returns at once.
    ///
    /// # Errors
    ///
    /// [`Error::Stop`]: a thread could not be woken, which no known kernel does.
    pub fn stop(&self) -> Result<(), Error> {
        self.stopping.store(true, Ordering::Release);
        self.wakers.iter().try_for_each(Waker::wake).map_err(Error::Stop)
    }

    /// Whether it was told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
