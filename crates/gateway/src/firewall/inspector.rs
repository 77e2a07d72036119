//! Inspections of one thread, and the helper thread for those of long messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use tollgate_firewall::{self as firewall, Sampler};
use tollgate_http1::{ParseError, ResponseHead};
use tollgate_net::Waker;
use tollgate_waf::{Direction, Extent, Next};

use super::audit::{AuditFile, AuditWriter};
use super::engines::Engines;
use super::inspection::{Inspection, TransactionName};
use super::out_of_band::OutOfBand;
use super::route::Firewall;
use super::verdict::{FirewallVerdict, InspectedResponse, Outcome, RequestContext, TransactionId};
use crate::body::{Body, Taken};
use crate::headers::{HeadWriter, MessageForm};

/// Inspects the traffic of one thread.
#[derive(Debug)]
pub(crate) struct Inspector {
    thread: usize,
    /// Wakes the thread for [`take_back`](Self::take_back).
    waker: Waker,
    engines: Engines,
    inspections: HashMap<TransactionId, Slot>,
    helper: Option<Helper>,
    out_of_band: OutOfBand,
    audit: Option<AuditWriter>,
    /// Bytes that inspections of messages with bodies hold.
    held_bytes: usize,
    sampler: Sampler,
}

#[derive(Debug)]
enum Slot {
    Here(Box<Inspection>),
    /// The helper has it.
    Lent {
        /// Cancels it.
        flag: Arc<AtomicBool>,
        name: TransactionName,
    },
    /// The helper has it, and the transaction has ended.
    Ended(Outcome),
}

/// A thread that inspects long messages.
#[derive(Debug)]
struct Helper {
    jobs: Sender<Job>,
    /// `None`: the engine panicked.
    done: Receiver<(Job, Option<Next>)>,
}

#[derive(Debug)]
struct Job {
    id: TransactionId,
    direction: Direction,
    inspection: Box<Inspection>,
}

impl Helper {
    /// `run` runs the rules of a job.
    fn start(
        thread: usize,
        waker: Waker,
        run: impl FnMut(&mut firewall::Engines, &mut Job) -> Next + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        let (finished, done) = mpsc::channel();
        thread::Builder::new().name(format!("waf-{thread}")).spawn(move || {
            // An error means that the thread of the client has ended.
            firewall::serve(received, run, |job, next| {
                finished.send((job, next)).is_ok() && waker.wake().is_ok()
            });
        })?;
        Ok(Self { jobs, done })
    }
}

impl Inspector {
    pub(crate) fn new(thread: usize, waker: Waker) -> Self {
        Self {
            thread,
            waker,
            engines: Engines::default(),
            inspections: HashMap::new(),
            helper: None,
            out_of_band: OutOfBand::new(thread),
            audit: None,
            held_bytes: 0,
            sampler: Sampler::default(),
        }
    }

    /// The firewall of an inspection that is not lent.
    pub(crate) fn firewall(&self, id: TransactionId) -> Option<Arc<Firewall>> {
        match self.inspections.get(&id)? {
            Slot::Here(inspection) => Some(Arc::clone(&inspection.firewall)),
            Slot::Lent { .. } | Slot::Ended(_) => None,
        }
    }

    /// The waker of the thread.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Continues with the audit log of another configuration.
    pub(crate) fn reload(&mut self, file: Option<&AuditFile>) {
        self.audit = file.map(AuditWriter::new);
        self.engines.drop_unused();
        self.out_of_band.reload(file);
    }

    /// Hands collected lines of the audit log to their writer. Returns the number of lines that it dropped.
    pub(crate) fn flush(&mut self) -> u64 {
        let dropped = self.audit.as_mut().map_or(0, AuditWriter::flush);
        dropped + self.out_of_band.take_dropped_lines()
    }

    /// Takes back finished inspections from the helper, with their verdicts: the transactions continue.
    pub(crate) fn take_back(&mut self) -> Vec<(TransactionId, FirewallVerdict)> {
        let Some(helper) = &self.helper else { return Vec::new() };
        let done: Vec<_> = helper.done.try_iter().collect();
        let mut verdicts = Vec::new();
        for (Job { id, direction, mut inspection }, next) in done {
            let slot = self.inspections.remove(&id);
            let Some(next) = next else {
                self.held_bytes -= inspection.counted_bytes;
                verdicts.push((id, FirewallVerdict::Bug("the engine panicked")));
                continue;
            };
            count_held(&mut self.held_bytes, &mut inspection);
            if let Some(Slot::Ended(outcome)) = slot {
                self.end(*inspection, &outcome);
            } else {
                self.inspections.insert(id, Slot::Here(inspection));
                verdicts.push((id, self.go_on(id, direction, next)));
            }
        }
        verdicts
    }

    /// The inspection of a transaction that is not lent.
    pub(super) fn inspection(&mut self, id: TransactionId) -> Option<&mut Inspection> {
        match self.inspections.get_mut(&id) {
            Some(Slot::Here(inspection)) => Some(inspection),
            Some(Slot::Lent { .. } | Slot::Ended(_)) | None => None,
        }
    }

    /// Adds the header with the identifier of the transaction, if it is configured, to a rendered head.
    fn add_header(&self, id: TransactionId, form: MessageForm, head: &mut Vec<u8>) {
        if let Some(Slot::Here(inspection)) = self.inspections.get(&id)
            && let Some(name) = &inspection.firewall.waf.transaction_header
        {
            let mut writer = HeadWriter::reopen(form, head);
            writer.push(name, inspection.name.to_string().as_bytes());
            writer.end();
        }
    }

    /// Does the next step of an inspection: nothing, at once, or on the helper.
    pub(super) fn go_on(
        &mut self,
        id: TransactionId,
        direction: Direction,
        next: Next,
    ) -> FirewallVerdict {
        match next {
            Next::Pass => FirewallVerdict::Pass,
            Next::Hold => FirewallVerdict::Hold,
            Next::Block(block) => self.inspection(id).map_or(MISSING, |found| found.block(block)),
            Next::Run(Extent::Short) => self.run_here(id, direction),
            Next::Run(Extent::Long) => self.lend(id, direction),
        }
    }

    fn run_here(&mut self, id: TransactionId, direction: Direction) -> FirewallVerdict {
        let Some(Slot::Here(inspection)) = self.inspections.get_mut(&id) else { return MISSING };
        let next = inspection.run(direction, self.engines.worker(&inspection.firewall));
        count_held(&mut self.held_bytes, inspection);
        self.go_on(id, direction, next)
    }

    fn lend(&mut self, id: TransactionId, direction: Direction) -> FirewallVerdict {
        if self.helper.is_none() {
            let run = |engines: &mut firewall::Engines, job: &mut Job| {
                let engine = engines.of(&job.inspection.firewall.waf.rules);
                job.inspection.run(job.direction, &mut engine.worker)
            };
            self.helper = Helper::start(self.thread, self.waker.clone(), run).ok();
        }
        let Some(helper) = &self.helper else { return self.run_here(id, direction) };
        let flag = Arc::new(AtomicBool::new(false));
        let Some(Slot::Here(inspection)) = self.inspections.get(&id) else { return MISSING };
        let lent = Slot::Lent { flag: Arc::clone(&flag), name: inspection.name.clone() };
        let Some(Slot::Here(mut inspection)) = self.inspections.insert(id, lent) else {
            return MISSING;
        };
        inspection.session.cancel_by(flag);
        match helper.jobs.send(Job { id, direction, inspection }) {
            Ok(()) => FirewallVerdict::Suspend,
            Err(mpsc::SendError(job)) => {
                self.inspections.insert(id, Slot::Here(job.inspection));
                FirewallVerdict::Bug("the thread of long inspections has ended")
            }
        }
    }

    pub(super) fn body(
        &mut self,
        id: TransactionId,
        direction: Direction,
        piece: &[u8],
    ) -> FirewallVerdict {
        if direction == Direction::Request {
            self.out_of_band.body(id, piece);
        }
        let inspection = match self.inspections.get_mut(&id) {
            Some(Slot::Here(inspection)) => inspection,
            // The rest of the bytes with which the inspected part of a body became complete.
            Some(Slot::Lent { .. }) => return FirewallVerdict::Pass,
            Some(Slot::Ended(_)) | None => return MISSING,
        };
        let mut next = inspection.body(direction, piece);
        count_held(&mut self.held_bytes, inspection);
        let is_over = self.held_bytes > inspection.firewall.held_bytes_max;
        if is_over && inspection.session.is_collecting() {
            next = inspection.session.cut(direction);
        }
        self.go_on(id, direction, next)
    }

    pub(super) fn end(&mut self, inspection: Inspection, outcome: &Outcome) {
        self.held_bytes -= inspection.counted_bytes;
        self.engines.end(inspection, outcome, self.audit.as_mut(), self.thread);
    }

    /// Begins an inspection. `None`: the request is not in the sample of those that are inspected.
    pub(crate) fn request_head(
        &mut self,
        id: TransactionId,
        request: &RequestContext<'_>,
    ) -> Option<FirewallVerdict> {
        let firewall = request.firewall;
        if !self.sampler.is_drawn(firewall.waf.sample) {
            return None;
        }
        let (transaction, worker) = self.engines.begin(firewall);
        let number = self.sampler.number();
        let (inspection, next) = Inspection::begin(firewall, transaction, worker, request, number);
        self.out_of_band.copy(id, request, &inspection.name);
        self.inspections.insert(id, Slot::Here(Box::new(inspection)));
        Some(self.go_on(id, Direction::Request, next))
    }

    /// `rendered` is the head for the client, in `form`; headers may be added.
    pub(crate) fn response_head(
        &mut self,
        id: TransactionId,
        head: &ResponseHead<'_>,
        form: MessageForm,
        rendered: &mut Vec<u8>,
    ) -> FirewallVerdict {
        self.add_header(id, form, rendered);
        self.show_response_head(id, &InspectedResponse::of_response(head))
    }

    /// Shows the head of a response to which no header is added.
    pub(super) fn show_response_head(
        &mut self,
        id: TransactionId,
        head: &InspectedResponse<'_>,
    ) -> FirewallVerdict {
        let Some(Slot::Here(inspection)) = self.inspections.get_mut(&id) else { return MISSING };
        let next = inspection.response_head(head, self.engines.worker(&inspection.firewall));
        self.go_on(id, Direction::Response, next)
    }

    /// Takes out an inspection that is not lent.
    pub(super) fn take_out(&mut self, id: TransactionId) -> Option<Box<Inspection>> {
        self.inspection(id)?;
        let Some(Slot::Here(mut inspection)) = self.inspections.remove(&id) else { return None };
        self.held_bytes -= std::mem::take(&mut inspection.counted_bytes);
        Some(inspection)
    }

    /// Puts in an inspection that was taken out, perhaps of another thread.
    pub(super) fn put_in(&mut self, id: TransactionId, mut inspection: Box<Inspection>) {
        count_held(&mut self.held_bytes, &mut inspection);
        self.inspections.insert(id, Slot::Here(inspection));
    }

    /// Shows the end of a body that ended with its connection.
    pub(crate) fn end_body(&mut self, direction: Direction, id: TransactionId) -> FirewallVerdict {
        self.body(id, direction, b"")
    }

    /// Takes the part of `bytes` that belongs to a body and shows its payload. The result includes `verdict`, an
    /// earlier one of the same bytes. Shows nothing without an `id`.
    pub(crate) fn take_body(
        &mut self,
        direction: Direction,
        id: Option<TransactionId>,
        body: &mut Body,
        bytes: &mut [u8],
        mut verdict: FirewallVerdict,
    ) -> Result<(Taken, FirewallVerdict), ParseError> {
        let Some(id) = id else {
            return Ok((body.take(bytes, |_| {})?, verdict));
        };
        let mut show = |piece: &[u8]| {
            let of_piece = self.body(id, direction, piece);
            verdict = std::mem::replace(&mut verdict, FirewallVerdict::Pass).and(of_piece);
        };
        let taken = body.take(bytes, &mut show)?;
        if taken.done {
            show(b"");
            if direction == Direction::Request {
                // The rules do not see trailers, so none may pass.
                body.discard_trailers();
            }
        }
        Ok((taken, verdict))
    }

    /// The identifier of a transaction in logs and headers. `None`: it is not inspected, or was lost by a bug.
    pub(crate) fn name(&self, id: TransactionId) -> Option<String> {
        match self.inspections.get(&id)? {
            Slot::Here(inspection) => Some(inspection.name.to_string()),
            Slot::Lent { name, .. } => Some(name.to_string()),
            Slot::Ended(_) => None,
        }
    }

    /// Ends an inspection, unless it was lost by a bug.
    pub(crate) fn finish(&mut self, id: TransactionId, outcome: &Outcome) {
        self.out_of_band.inspect(id, outcome);
        match self.inspections.remove(&id) {
            Some(Slot::Here(inspection)) => self.end(*inspection, outcome),
            // The helper has it: it ends when that gives it back.
            Some(Slot::Lent { flag, .. }) => {
                flag.store(true, Ordering::Relaxed);
                self.inspections.insert(id, Slot::Ended(*outcome));
            }
            Some(ended @ Slot::Ended(_)) => {
                self.inspections.insert(id, ended);
            }
            None => {}
        }
    }
}

/// No inspection of a transaction that is inspected.
const MISSING: FirewallVerdict = FirewallVerdict::Bug("an inspection is missing");

/// Counts the bytes that an inspection holds now in place of those that it held when it was counted.
fn count_held(held_bytes: &mut usize, inspection: &mut Inspection) {
    let now = inspection.held_bytes();
    *held_bytes = *held_bytes - inspection.counted_bytes + now;
    inspection.counted_bytes = now;
}

#[cfg(test)]
mod tests {
    use tollgate_firewall::Rules;
    use tollgate_http1::parse_request_head;
    use tollgate_net::Serial;
    use tollgate_waf::{Compression, EngineMode, RuleSet};

    use super::*;
    use crate::config::Waf;
    use crate::firewall::{Firewall, FirewallCounters, InspectedHead};

    fn rules() -> Arc<Rules> {
        let text = "SecRequestBodyAccess On\nSecRule ARGS \"@contains a\" \"id:1,phase:1,deny\"";
        Arc::new(Rules::new(RuleSet::builder().text("t.conf", text).build().unwrap()))
    }

    #[test]
    fn panic_of_the_engine_is_a_bug_that_frees_what_was_held() {
        let waf = Waf {
            rules: rules(),
            mode: EngineMode::On,
            sample: 100,
            request_compression: Compression::Reject,
            response_compression: Compression::Reject,
            block: Default::default(),
            transaction_header: None,
        };
        let firewall = Arc::new(Firewall {
            waf: Arc::new(waf),
            counters: FirewallCounters::default().route("*", 1),
            audit: None,
            held_bytes_max: 100_000,
            collections: Arc::default(),
            out_of_band: None,
            alerts: None,
        });
        let waker = Waker::new().unwrap();
        let mut inspector = Inspector::new(0, waker.clone());
        let run = |_: &mut firewall::Engines, _: &mut Job| panic!("planted");
        inspector.helper = Some(Helper::start(0, waker, run).unwrap());
        let bytes = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n";
        let head = parse_request_head(bytes).unwrap().unwrap();
        let context = RequestContext {
            head: InspectedHead::of_request(&head, bytes),
            name: b"",
            client: None,
            client_port: 0,
            server: "a:1",
            firewall: &firewall,
        };
        let id = |exchange| TransactionId { exchange, serial: Serial::default() };
        assert_eq!(inspector.request_head(id(0), &context), Some(FirewallVerdict::Hold));
        let mut body = |piece: &[u8]| inspector.body(id(0), Direction::Request, piece);
        assert_eq!(body(&[b'a'; 5000]), FirewallVerdict::Hold);
        assert_eq!(body(b""), FirewallVerdict::Suspend);
        assert!(inspector.held_bytes >= 10_000, "a copy is to be forwarded");
        let verdicts = loop {
            let verdicts = inspector.take_back();
            if !verdicts.is_empty() {
                break verdicts;
            }
            thread::yield_now();
        };
        assert_eq!(verdicts, [(id(0), FirewallVerdict::Bug("the engine panicked"))]);
        assert_eq!((inspector.held_bytes, inspector.inspections.len()), (0, 0));
        assert_eq!(inspector.body(id(1), Direction::Request, b"a"), MISSING);
    }
}
