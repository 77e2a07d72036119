//! The thread that inspects long messages for one of Envoy's workers, and the way back from it.

use std::cell::RefCell;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tollgate_firewall::{Engines, guard};
use tollgate_waf::{Direction, Next};

use crate::host::Scheduler;
use crate::inspection::Inspection;

thread_local! {
    static HELPER: RefCell<Option<Sender<Job>>> = const { RefCell::new(None) };
}

/// An inspection that a helper has.
#[derive(Debug)]
struct Job {
    inspection: Box<Inspection>,
    direction: Direction,
    back: Arc<WayBack>,
}

/// Where the inspection of a stream comes back, if the stream is still there.
#[derive(Debug)]
pub(crate) struct WayBack(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    Running(Scheduler),
    Finished(Returned),
    /// The stream has ended, or has its inspection.
    Over,
}

/// An inspection with its next step; `None`: a panic ended it.
pub(crate) type Returned = Option<(Box<Inspection>, Next)>;

impl WayBack {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the inspection back; `None` while it runs.
    pub(crate) fn take(&self) -> Option<Returned> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Finished(returned) => Some(returned),
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Ends the stream: Envoy's worker is not called any more.
    pub(crate) fn close(&self) {
        *self.stage() = Stage::Over;
    }

    fn finish(&self, returned: Returned) {
        let mut stage = self.stage();
        // Under the lock, so that the worker cannot end in between.
        if let Stage::Running(scheduler) = &*stage {
            scheduler.commit();
            *stage = Stage::Finished(returned);
        }
    }
}

/// Has the helper of this thread run the rules of a message. Returns the inspection if there can be no helper.
pub(crate) fn lend(
    inspection: Box<Inspection>,
    direction: Direction,
    scheduler: impl FnOnce() -> Scheduler,
) -> Result<Arc<WayBack>, Box<Inspection>> {
    HELPER.with_borrow_mut(|helper| {
        if helper.is_none() {
            *helper = start().ok();
        }
        let Some(jobs) = helper else { return Err(inspection) };
        let back = Arc::new(WayBack(Mutex::new(Stage::Running(scheduler()))));
        match jobs.send(Job { inspection, direction, back: Arc::clone(&back) }) {
            Ok(()) => Ok(back),
            Err(mpsc::SendError(job)) => Err(job.inspection),
        }
    })
}

/// Starts a helper. It ends with the thread that has its sender.
fn start() -> std::io::Result<Sender<Job>> {
    let (jobs, received) = mpsc::channel::<Job>();
    thread::Builder::new().name("waf".to_owned()).spawn(move || {
        let mut engines = Engines::default();
        for Job { mut inspection, direction, back } in received {
            let returned = guard(|| {
                let engine = engines.of(&inspection.waf.rules);
                let next = inspection.run(direction, &mut engine.worker);
                (inspection, next)
            });
            if returned.is_none() {
                engines = Engines::default();
            }
            back.finish(returned);
        }
    })?;
    Ok(jobs)
}
