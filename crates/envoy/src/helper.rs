//! The thread that inspects long messages for one of Envoy's workers, and the way back from it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tollgate_firewall::{self as firewall, Engines};
use tollgate_waf::{Direction, Next};

use crate::inspection::Inspection;

/// Bytes of queued messages from which a helper takes no further one.
const QUEUED_BYTES_MAX: usize = 16 << 20;
/// Bytes that a queued message takes beside its body: a head of usual limits.
const HEAD_BYTES: usize = 64 << 10;

thread_local! {
    static HELPER: RefCell<Option<Helper>> = const { RefCell::new(None) };
}

/// An inspection that a helper has.
#[derive(Debug)]
struct Job {
    inspection: Box<Inspection>,
    direction: Direction,
    way: Arc<Way>,
    bytes: usize,
}

/// Has the worker of a stream call its filter.
type Wake = Box<dyn Fn() + Send>;

/// Way of an inspection back to its stream.
struct Way {
    stage: Mutex<Stage>,
    /// Ends the inspection, as its stream has ended.
    cancelled: Arc<AtomicBool>,
}

enum Stage {
    Running(Wake),
    Finished(Returned),
    /// The stream has ended, or has its inspection.
    Over,
}

/// An inspection with its next step; `None`: a panic ended it.
pub(crate) type Returned = Option<(Box<Inspection>, Next)>;

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Way").field("cancelled", &self.cancelled).finish_non_exhaustive()
    }
}

impl Way {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, returned: Returned) {
        let mut stage = self.stage();
        // Under the lock, so that the worker cannot end in between.
        if let Stage::Running(wake) = &*stage {
            wake();
            *stage = Stage::Finished(returned);
        }
    }
}

/// A stream's end of the way. Dropping it cancels the inspection, and Envoy's worker is not called any more.
#[derive(Debug)]
pub(crate) struct Lent(Arc<Way>);

impl Lent {
    /// Takes the inspection back; `None` while it runs.
    pub(crate) fn take(&self) -> Option<Returned> {
        let mut stage = self.0.stage();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Finished(returned) => Some(returned),
            other => {
                *stage = other;
                None
            }
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut stage = self.0.stage();
        // One that was taken back goes on with the same flag.
        if let Stage::Running(_) = &*stage {
            self.0.cancelled.store(true, Ordering::Relaxed);
        }
        *stage = Stage::Over;
    }
}

/// An inspection that the helper does not take.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The queue is full.
    Full(Box<Inspection>),
    /// There can be no thread.
    NoHelper(Box<Inspection>),
}

/// Has the helper of this thread run the rules of a message. `wake` makes the call of the stream's worker.
pub(crate) fn lend(
    inspection: Box<Inspection>,
    direction: Direction,
    wake: impl FnOnce() -> Wake,
) -> Result<Lent, Refused> {
    HELPER.with_borrow_mut(|helper| {
        if helper.is_none() {
            *helper = Helper::start().ok();
        }
        match helper {
            Some(helper) => helper.lend(inspection, direction, wake),
            None => Err(Refused::NoHelper(inspection)),
        }
    })
}

/// A thread for long messages. It ends with the thread that has its sender.
#[derive(Debug)]
struct Helper {
    jobs: Sender<Job>,
    queued_bytes: Arc<AtomicUsize>,
}

impl Helper {
    fn start() -> std::io::Result<Self> {
        let (helper, received) = Self::new();
        let queued_bytes = Arc::clone(&helper.queued_bytes);
        thread::Builder::new().name("waf".to_owned()).spawn(move || {
            serve(received, &queued_bytes, |engines, inspection, direction| {
                let engine = engines.of(&inspection.waf.rules);
                inspection.run(direction, &mut engine.worker)
            });
        })?;
        Ok(helper)
    }

    fn new() -> (Self, Receiver<Job>) {
        let (jobs, received) = mpsc::channel();
        (Self { jobs, queued_bytes: Arc::default() }, received)
    }

    fn lend(
        &self,
        mut inspection: Box<Inspection>,
        direction: Direction,
        wake: impl FnOnce() -> Wake,
    ) -> Result<Lent, Refused> {
        if self.queued_bytes.load(Ordering::Relaxed) >= QUEUED_BYTES_MAX {
            return Err(Refused::Full(inspection));
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        inspection.session.cancel_by(Arc::clone(&cancelled));
        let bytes = HEAD_BYTES + inspection.session.held_bytes();
        let way = Arc::new(Way { stage: Mutex::new(Stage::Running(wake())), cancelled });
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let lent = Lent(Arc::clone(&way));
        match self.jobs.send(Job { inspection, direction, way, bytes }) {
            Ok(()) => Ok(lent),
            Err(mpsc::SendError(job)) => {
                // The inspection goes on: it is not the drop of `lent` that ends it.
                *lent.0.stage() = Stage::Over;
                Err(Refused::NoHelper(job.inspection))
            }
        }
    }
}

/// Runs jobs until their sender is gone, those whose stream is still there.
fn serve(
    jobs: Receiver<Job>,
    queued_bytes: &AtomicUsize,
    mut run: impl FnMut(&mut Engines, &mut Inspection, Direction) -> Next,
) {
    let run = |engines: &mut Engines, job: &mut Job| {
        if job.way.cancelled.load(Ordering::Relaxed) {
            return Next::Pass;
        }
        run(engines, &mut job.inspection, job.direction)
    };
    firewall::serve(jobs, run, |job, next| {
        job.way.finish(next.map(|next| (job.inspection, next)));
        queued_bytes.fetch_sub(job.bytes, Ordering::Relaxed);
        true
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tollgate_firewall::Waf;
    use tollgate_waf::BodyLength;

    use super::*;
    use crate::inspection::Request;
    use crate::message::Head;

    /// A request whose body is complete, with an attack at its end.
    fn inspection(body_bytes: usize) -> Box<Inspection> {
        let text = r#"{rules: [], exclusions: ['SecRuleEngine On', 'SecRequestBodyAccess On', 'SecRule ARGS "@contains attack" "id:1,phase:2,deny,status:403"'], request_body: {limit_without_files: 20000000, limit: 20000000}}"#;
        let waf = Waf::parse(text, "test", Path::new("")).unwrap().waf;
        let head = Head(vec![
            (b":method", b"POST"),
            (b":path", b"/"),
            (b"content-type", b"application/x-www-form-urlencoded"),
        ]);
        let request = Request {
            head: &head,
            body: BodyLength::Unknown,
            protocol: "HTTP/1.1",
            client: ("192.0.2.1".to_owned(), 1),
            server: ("192.0.2.2".to_owned(), 80),
            has_details: false,
        };
        let waf = waf.unwrap();
        let mut engines = Engines::default();
        let engine = engines.of(&waf.rules);
        let (mut inspection, next) = Inspection::begin(&waf, "a".to_owned(), &request, engine);
        assert_eq!(next, Next::Hold);
        let mut body = vec![b'a'; body_bytes];
        body.extend_from_slice(b"&q=attack");
        assert_eq!(inspection.session.body(Direction::Request, &body), Next::Hold);
        assert!(matches!(inspection.session.end(Direction::Request), Next::Run(_)));
        Box::new(inspection)
    }

    fn no_wake() -> Wake {
        Box::new(|| {})
    }

    #[test]
    fn inspections_of_ended_streams_are_skipped_or_cancelled() {
        let (helper, received) = Helper::new();
        let lend = || helper.lend(inspection(5000), Direction::Request, no_wake).unwrap();
        let (running, queued, live) = (lend(), lend(), lend());
        drop(queued);
        let queued_bytes = Arc::clone(&helper.queued_bytes);
        drop(helper);
        let mut running = Some(running);
        let mut results = Vec::new();
        serve(received, &queued_bytes, |engines, inspection, direction| {
            // The stream of the first ends while it runs.
            drop(running.take());
            let engine = engines.of(&inspection.waf.rules);
            let next = inspection.run(direction, &mut engine.worker);
            results.push(matches!(next, Next::Block(_)));
            next
        });
        assert_eq!(results, [false, true]);
        assert!(matches!(live.take(), Some(Some((_, Next::Block(_))))));
        assert_eq!(queued_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn inspection_that_came_back_is_not_cancelled() {
        let (helper, received) = Helper::new();
        let lent = helper.lend(inspection(5000), Direction::Request, no_wake).unwrap();
        let queued_bytes = Arc::clone(&helper.queued_bytes);
        drop(helper);
        serve(received, &queued_bytes, |_, _, _| Next::Pass);
        let Some(Some((mut inspection, _))) = lent.take() else { panic!("it is back") };
        drop(lent);
        let mut engines = Engines::default();
        let rules = Arc::clone(&inspection.waf.rules);
        let next = inspection.run(Direction::Request, &mut engines.of(&rules).worker);
        assert!(matches!(next, Next::Block(_)), "{next:?}");
    }

    #[test]
    fn full_queue_takes_no_message() {
        let (helper, received) = Helper::new();
        let lend = |bytes| helper.lend(inspection(bytes), Direction::Request, no_wake);
        let first = lend(QUEUED_BYTES_MAX).unwrap();
        assert!(matches!(lend(5000), Err(Refused::Full(_))));
        // Queued bytes of an ended stream make room once the helper reaches them.
        drop(first);
        let job = received.try_recv().unwrap();
        let (jobs, one) = mpsc::channel();
        jobs.send(job).unwrap();
        drop(jobs);
        serve(one, &helper.queued_bytes, |_, _, _| unreachable!("the stream has ended"));
        assert!(lend(5000).is_ok());
    }
}
