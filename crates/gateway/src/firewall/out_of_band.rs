//! Rules out of band: after the answer to a request they inspect a copy of it, on a thread of their own, and block nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate_http1::FieldList;
use tollgate_waf::{Direction, Next};

use super::audit::{AuditFile, AuditWriter};
use super::engines::Engines;
use super::inspection::{Inspection, TransactionName};
use super::route::Firewall;
use super::verdict::{InspectedHead, Outcome, RequestContext, TransactionId, WholeBody};
use crate::log;

/// Copies of one thread. A request beyond it is not inspected out of band, and counted.
const COPIES_MAX: usize = 4096;

/// Time for the copies that are left at the end of the gateway. The others are not inspected, and counted.
const END_TIME: Duration = Duration::from_secs(2);

/// The name of the counter of requests that were not inspected out of band.
const DROPPED: &str = "out_of_band";

/// Copies of the requests of one thread, and the thread that inspects them.
#[derive(Debug)]
pub(super) struct OutOfBand {
    thread: usize,
    /// Of requests without an answer.
    copies: HashMap<TransactionId, CopiedRequest>,
    audit: Option<AuditFile>,
    runner: Option<Runner>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Copies that are held, and their bytes.
    copies: AtomicUsize,
    bytes: AtomicUsize,
    /// Lines that the audit log dropped.
    dropped_lines: AtomicU64,
    /// No further rule runs.
    is_over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Runner {
    tasks: Sender<Task>,
    /// Its sender is dropped at the end of the thread.
    end: Receiver<()>,
    handle: JoinHandle<()>,
}

#[derive(Debug)]
enum Task {
    /// Continue with the audit log of another configuration.
    Reload(Option<AuditFile>),
    Inspect(Box<CopiedRequest>, Outcome),
}

#[derive(Debug)]
struct CopiedRequest {
    /// Firewall with the rules out of band.
    firewall: Arc<Firewall>,
    name: String,
    /// A [`FieldList`].
    head: Vec<u8>,
    protocol: String,
    client: Option<IpAddr>,
    client_port: u16,
    server: String,
    body: Vec<u8>,
    extent: BodyExtent,
    share: Share,
}

/// Part of a body that a copy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyExtent {
    /// More may follow. Of a request that was blocked before its end nothing does.
    Open,
    Whole,
    /// There was no memory for the rest.
    Cut,
}

/// Part of a copy in the numbers of [`Shared`].
#[derive(Debug)]
struct Share {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Share {
    /// `None` if there are as many copies as may be.
    fn of(shared: &Arc<Shared>, bytes: usize, bytes_max: usize) -> Option<Self> {
        let is_full = shared.copies.load(Ordering::Relaxed) >= COPIES_MAX;
        shared.copies.fetch_add(1, Ordering::Relaxed);
        let mut share = Self { shared: Arc::clone(shared), bytes: 0 };
        (!is_full && share.grow(bytes, bytes_max)).then_some(share)
    }

    /// False if all copies together would be too large. Only the thread that copies grows them.
    fn grow(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let fits = self.shared.bytes.load(Ordering::Relaxed) + bytes <= bytes_max;
        if fits {
            self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.bytes += bytes;
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shared.copies.fetch_sub(1, Ordering::Relaxed);
        self.shared.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl OutOfBand {
    pub(super) fn new(thread: usize) -> Self {
        Self { thread, copies: HashMap::new(), audit: None, runner: None, shared: Arc::default() }
    }

    /// Continues with the audit log of another configuration.
    pub(super) fn reload(&mut self, audit: Option<&AuditFile>) {
        self.audit = audit.cloned();
        if let Some(runner) = &self.runner {
            // An error means that the thread has ended, which `inspect` notices.
            runner.tasks.send(Task::Reload(self.audit.clone())).ok();
        }
    }

    pub(super) fn take_dropped_lines(&self) -> u64 {
        match &self.runner {
            Some(_) => self.shared.dropped_lines.swap(0, Ordering::Relaxed),
            None => 0,
        }
    }

    /// Begins the copy of a request, if its firewall has rules out of band.
    pub(super) fn copy(
        &mut self,
        id: TransactionId,
        request: &RequestContext<'_>,
        name: &TransactionName,
    ) {
        let Some(firewall) = &request.firewall.out_of_band else { return };
        let head = request.head;
        let mut list = Vec::with_capacity(head.bytes.len());
        FieldList::push(&mut list, b":method", head.method);
        FieldList::push(&mut list, b":path", head.target);
        for (name, value) in head.headers.iter() {
            FieldList::push(&mut list, name.as_bytes(), value);
        }
        FieldList::end(&mut list);
        let Some(share) = Share::of(&self.shared, list.len(), firewall.held_bytes_max) else {
            firewall.counters.count_dropped(self.thread, DROPPED);
            return;
        };
        let copy = CopiedRequest {
            firewall: Arc::clone(firewall),
            name: name.to_string(),
            head: list,
            protocol: head.protocol.to_owned(),
            client: request.client,
            client_port: request.client_port,
            server: request.server.to_owned(),
            body: Vec::new(),
            extent: BodyExtent::Open,
            share,
        };
        self.copies.insert(id, copy);
    }

    /// Adds a piece of the body to the copy of a request. An empty one is its end.
    pub(super) fn body(&mut self, id: TransactionId, piece: &[u8]) {
        if self.copies.is_empty() {
            return;
        }
        let Some(copy) = self.copies.get_mut(&id) else { return };
        if copy.extent != BodyExtent::Open {
            return;
        }
        if piece.is_empty() {
            copy.extent = BodyExtent::Whole;
        } else if copy.share.grow(piece.len(), copy.firewall.held_bytes_max) {
            copy.body.extend_from_slice(piece);
        } else {
            copy.extent = BodyExtent::Cut;
        }
    }

    /// Has the copy of a request inspected, which has its answer.
    pub(super) fn inspect(&mut self, id: TransactionId, outcome: &Outcome) {
        if self.copies.is_empty() {
            return;
        }
        let Some(copy) = self.copies.remove(&id) else { return };
        let counters = Arc::clone(&copy.firewall.counters);
        if self.runner.is_none() {
            self.runner = Runner::start(self.thread, self.audit.clone(), &self.shared).ok();
        }
        let task = Task::Inspect(Box::new(copy), *outcome);
        let sent = self.runner.as_ref().map(|runner| runner.tasks.send(task).is_ok());
        if sent != Some(true) {
            counters.count_dropped(self.thread, DROPPED);
        }
    }
}

impl Drop for OutOfBand {
    /// Waits until the requests that have their answers are inspected, for some time.
    fn drop(&mut self) {
        if let Some(Runner { tasks, end, handle }) = self.runner.take() {
            drop(tasks);
            if end.recv_timeout(END_TIME) == Err(RecvTimeoutError::Timeout) {
                self.shared.is_over.store(true, Ordering::Relaxed);
            }
            // A panic of the engine does not end the thread.
            handle.join().ok();
        }
    }
}

impl Runner {
    fn start(
        thread: usize,
        audit: Option<AuditFile>,
        shared: &Arc<Shared>,
    ) -> std::io::Result<Self> {
        let (tasks, received) = mpsc::channel();
        let (ends, end) = mpsc::channel::<()>();
        let shared = Arc::clone(shared);
        let handle =
            thread::Builder::new().name(format!("waf-band-{thread}")).spawn(move || {
                run(&received, thread, audit.as_ref(), &shared);
                drop(ends);
            })?;
        Ok(Self { tasks, end, handle })
    }
}

fn run(tasks: &Receiver<Task>, thread: usize, audit: Option<&AuditFile>, shared: &Shared) {
    let mut engines = Engines::default();
    let mut audit = audit.map(AuditWriter::new);
    let flush = |audit: &mut Option<AuditWriter>| {
        let dropped = audit.as_mut().map_or(0, AuditWriter::flush);
        shared.dropped_lines.fetch_add(dropped, Ordering::Relaxed);
    };
    for task in tasks {
        match task {
            Task::Reload(file) => {
                audit = file.as_ref().map(AuditWriter::new);
                engines.drop_unused();
            }
            Task::Inspect(copy, _) if shared.is_over.load(Ordering::Relaxed) => {
                copy.firewall.counters.count_dropped(thread, DROPPED);
            }
            Task::Inspect(copy, outcome) => {
                let inspect = AssertUnwindSafe(|| {
                    let inspection = copy.inspect(&mut engines, &shared.is_over);
                    engines.end(inspection, &outcome, audit.as_mut(), thread);
                });
                if catch_unwind(inspect).is_err() {
                    engines = Engines::default();
                    copy.firewall.counters.count_dropped(thread, DROPPED);
                    log(
                        "bug: the engine panicked out of band; the request passed. Report it with the configuration",
                    );
                }
                flush(&mut audit);
            }
        }
    }
}

impl CopiedRequest {
    fn inspect(&self, engines: &mut Engines, is_over: &Arc<AtomicBool>) -> Inspection {
        let body = WholeBody { bytes: &self.body, is_truncated: self.extent != BodyExtent::Whole };
        let context = RequestContext {
            head: InspectedHead::of_list(&self.head, &self.protocol, body.framing()),
            name: self.name.as_bytes(),
            client: self.client,
            client_port: self.client_port,
            server: &self.server,
            firewall: &self.firewall,
        };
        let (transaction, worker) = engines.begin(&self.firewall);
        // The number is for requests without a name.
        let (mut inspection, _) =
            Inspection::begin(&self.firewall, transaction, worker, &context, (0, 0));
        inspection.session.cancel_by(Arc::clone(is_over));
        let mut next = Next::Hold;
        if !body.bytes.is_empty() {
            next = inspection.body(Direction::Request, body.bytes);
        }
        if !matches!(next, Next::Run(_)) {
            next = if body.is_truncated {
                inspection.session.end_truncated(Direction::Request)
            } else {
                inspection.body(Direction::Request, b"")
            };
        }
        while let Next::Run(_) = next {
            next = inspection.run(Direction::Request, worker);
        }
        inspection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_limited_in_number_and_bytes_until_they_are_dropped() {
        let shared = Arc::default();
        let mut share = Share::of(&shared, 60, 100).unwrap();
        assert!(!share.grow(41, 100));
        assert!(share.grow(40, 100));
        assert!(Share::of(&shared, 1, 100).is_none());
        drop(share);
        let shares: Vec<_> = (0..COPIES_MAX).map(|_| Share::of(&shared, 1, usize::MAX)).collect();
        assert!(shares.iter().all(Option::is_some));
        assert!(Share::of(&shared, 1, usize::MAX).is_none());
        drop(shares);
        assert_eq!(
            (shared.copies.load(Ordering::Relaxed), shared.bytes.load(Ordering::Relaxed)),
            (0, 0)
        );
    }
}
