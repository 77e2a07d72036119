//! The web application firewall: a [`Filter`] that runs rule sets.
//!
//! An [`Inspection`] is the state of one request and its response. Short messages are inspected at once, on the thread
//! of their client; long ones on a helper thread, while the transaction is suspended, so that other clients are served.

mod audit;
mod counters;
mod inspection;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tollgate_http1::ResponseHead;
use tollgate_waf::{RuleSet, Transaction, Worker};

use crate::command::Resumer;
use crate::config::{AuditLog, Config, HostPattern, Route, Waf};
use crate::filter::{Direction, Filter, Outcome, RequestContext, TransactionId, Verdict};
use crate::headers::push_header;
pub(crate) use audit::AuditFile;
use audit::AuditWriter;
pub(crate) use counters::FirewallCounters;
use counters::RouteCounters;
use inspection::{Inspection, Next};

/// Transactions kept per rule set and thread, so that their memory is reused. A new one for each request would cost some
/// microseconds; each keeps about 100 kB at most.
const SPARE_TRANSACTIONS: usize = 256;

/// A rule set, shared by all routes that have the same.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) set: Arc<RuleSet>,
    /// Workers whose caches are filled.
    warm: Mutex<Vec<Worker>>,
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set)
    }
}

impl Eq for Rules {}

impl Rules {
    pub(crate) fn new(set: RuleSet) -> Self {
        Self { set: Arc::new(set), warm: Mutex::default() }
    }

    /// Compiles the common regexes and fills the caches of a worker for each thread, which takes too long for the data
    /// path.
    fn warm_up(&self, threads: usize) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        while warm.len() < threads {
            let mut worker = Worker::new();
            worker.warm_up(&self.set);
            warm.push(worker);
        }
    }

    fn worker(&self) -> Option<Worker> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// The firewall of a route in a configuration in use.
#[derive(Debug)]
pub(crate) struct Firewall {
    waf: Arc<Waf>,
    counters: Arc<RouteCounters>,
    audit: Option<Arc<AuditLog>>,
    held_bytes_max: usize,
}

impl Firewall {
    /// One per route, `None` without inspection. Prepares workers for all threads.
    pub(crate) fn of_routes(
        config: &Config,
        counters: &FirewallCounters,
    ) -> Vec<Option<Arc<Self>>> {
        let audit = config.audit_log.clone().map(Arc::new);
        let routes = config.routes.iter().map(|route| {
            let waf = Arc::clone(route.waf.as_ref()?);
            waf.rules.warm_up(config.threads.get());
            Some(Arc::new(Self {
                counters: counters.route(&label(route), config.threads.get()),
                audit: audit.clone(),
                held_bytes_max: config.limits.held_body_bytes,
                waf,
            }))
        });
        routes.collect()
    }
}

/// The route as named in metrics and the audit log.
fn label(route: &Route) -> String {
    let path = &route.path_prefix;
    match &route.host {
        HostPattern::Any => format!("*{path}"),
        HostPattern::Exact(host) => format!("{host}{path}"),
        HostPattern::Below(host) => format!("*.{host}{path}"),
    }
}

/// Workers and memory for the rule sets that a thread runs.
#[derive(Debug, Default)]
struct Engines(Vec<Engine>);

#[derive(Debug)]
struct Engine {
    /// Of a configuration in use, or of one that has ended.
    rules: Weak<Rules>,
    worker: Worker,
    #[expect(clippy::vec_box, reason = "inspections own their transactions as boxes")]
    spare: Vec<Box<Transaction>>,
}

impl Engines {
    fn of(&mut self, rules: &Arc<Rules>) -> &mut Engine {
        // While there is a weak reference, the address is that of no other rules.
        let is_same = |engine: &Engine| std::ptr::eq(engine.rules.as_ptr(), Arc::as_ptr(rules));
        let at = self.0.iter().position(is_same).unwrap_or_else(|| {
            self.drop_unused();
            let worker = rules.worker().unwrap_or_default();
            self.0.push(Engine { rules: Arc::downgrade(rules), worker, spare: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Drops the engines of configurations that have ended, and whose transactions have.
    fn drop_unused(&mut self) {
        self.0.retain(|engine| engine.rules.strong_count() > 0);
    }
}

/// Inspects the traffic of one thread.
#[derive(Debug)]
pub(crate) struct Inspector {
    thread: usize,
    resumer: Resumer,
    engines: Engines,
    inspections: HashMap<TransactionId, Slot>,
    helper: Option<Helper>,
    audit: Option<AuditWriter>,
    /// Bytes that inspections of messages with bodies hold.
    held_bytes: usize,
    random: ChaCha8Rng,
    /// Distinguishes the transactions of this thread from those of other threads and processes.
    series: u32,
    last_number: u32,
}

#[derive(Debug)]
enum Slot {
    Here(Box<Inspection>),
    /// The helper has it.
    Lent,
    /// The helper has it, and the transaction has ended.
    Ended(Outcome),
}

/// A thread that inspects long messages.
#[derive(Debug)]
struct Helper {
    jobs: Sender<Job>,
    done: Receiver<Job>,
}

#[derive(Debug)]
struct Job {
    id: TransactionId,
    direction: Direction,
    inspection: Box<Inspection>,
}

impl Helper {
    fn start(thread: usize, resumer: Resumer) -> std::io::Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        let (finished, done) = mpsc::channel();
        thread::Builder::new().name(format!("waf-{thread}")).spawn(move || {
            let mut engines = Engines::default();
            for mut job in received {
                let engine = engines.of(job.inspection.rules());
                let verdict = job.inspection.run(job.direction, &mut engine.worker);
                let id = job.id;
                // An error means that the thread of the client has ended.
                if finished.send(job).is_err() || resumer.resume(id, verdict).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, done })
    }
}

impl Inspector {
    pub(crate) fn new(thread: usize, resumer: Resumer) -> Self {
        let seed = RandomState::new().build_hasher().finish();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let series = random.random();
        Self {
            thread,
            resumer,
            engines: Engines::default(),
            inspections: HashMap::new(),
            helper: None,
            audit: None,
            held_bytes: 0,
            random,
            series,
            last_number: 0,
        }
    }

    /// Continues with the audit log of another configuration.
    pub(crate) fn reload(&mut self, file: Option<&AuditFile>) {
        self.audit = file.map(AuditWriter::new);
        self.engines.drop_unused();
    }

    /// Hands collected lines of the audit log to their writer. Returns the number of lines that it dropped.
    pub(crate) fn flush(&mut self) -> u64 {
        self.audit.as_mut().map_or(0, AuditWriter::flush)
    }

    /// Takes back finished inspections from the helper.
    pub(crate) fn take_back(&mut self) {
        let Some(helper) = &self.helper else { return };
        let done: Vec<Job> = helper.done.try_iter().collect();
        for Job { id, mut inspection, .. } in done {
            count_held(&mut self.held_bytes, &mut inspection);
            match self.inspections.remove(&id) {
                Some(Slot::Ended(outcome)) => self.end(*inspection, &outcome),
                _ => {
                    self.inspections.insert(id, Slot::Here(inspection));
                }
            }
        }
    }

    /// Adds the header with the identifier of the transaction, if it is configured, to a rendered head.
    pub(crate) fn add_header(&self, id: TransactionId, head: &mut Vec<u8>) {
        if let Some(Slot::Here(inspection)) = self.inspections.get(&id)
            && let Some(name) = &inspection.firewall.waf.transaction_header
            && head.ends_with(b"\r\n\r\n")
        {
            head.truncate(head.len() - 2);
            push_header(head, name, inspection.name.to_string().as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }

    /// Does the next step of an inspection: nothing, at once, or on the helper.
    fn go_on(&mut self, id: TransactionId, direction: Direction, next: Next) -> Verdict {
        match next {
            Next::Verdict(verdict) => verdict,
            Next::Run => self.run_here(id, direction),
            Next::Lend => self.lend(id, direction),
        }
    }

    fn run_here(&mut self, id: TransactionId, direction: Direction) -> Verdict {
        let Some(Slot::Here(inspection)) = self.inspections.get_mut(&id) else {
            return Verdict::Pass;
        };
        let engine = self.engines.of(inspection.rules());
        let verdict = inspection.run(direction, &mut engine.worker);
        count_held(&mut self.held_bytes, inspection);
        verdict
    }

    fn lend(&mut self, id: TransactionId, direction: Direction) -> Verdict {
        if self.helper.is_none() {
            self.helper = Helper::start(self.thread, self.resumer.clone()).ok();
        }
        let Some(helper) = &self.helper else { return self.run_here(id, direction) };
        let Entry::Occupied(mut entry) = self.inspections.entry(id) else { return Verdict::Pass };
        let inspection = match entry.insert(Slot::Lent) {
            Slot::Here(inspection) => inspection,
            other => {
                entry.insert(other);
                return Verdict::Pass;
            }
        };
        match helper.jobs.send(Job { id, direction, inspection }) {
            Ok(()) => Verdict::Suspend,
            // The helper has ended, which it does only by a panic.
            Err(mpsc::SendError(job)) => {
                entry.insert(Slot::Here(job.inspection));
                self.helper = None;
                self.run_here(id, direction)
            }
        }
    }

    fn body(&mut self, id: TransactionId, direction: Direction, piece: &[u8]) -> Verdict {
        let Some(Slot::Here(inspection)) = self.inspections.get_mut(&id) else {
            return Verdict::Pass;
        };
        let mut next = match direction {
            Direction::Request => inspection.request_body(piece),
            Direction::Response => inspection.response_body(piece),
        };
        count_held(&mut self.held_bytes, inspection);
        if self.held_bytes > inspection.firewall.held_bytes_max && inspection.is_collecting() {
            next = inspection.exceed_memory(direction);
        }
        self.go_on(id, direction, next)
    }

    fn end(&mut self, mut inspection: Inspection, outcome: &Outcome) {
        self.held_bytes -= inspection.counted_bytes;
        let engine = self.engines.of(inspection.rules());
        if self.audit.is_some() {
            inspection.run_logging(&mut engine.worker);
        }
        inspection.count(self.thread);
        if let Some(audit) = &mut self.audit {
            audit.add(&inspection, outcome);
        }
        if engine.spare.len() < SPARE_TRANSACTIONS {
            inspection.transaction.reset();
            engine.spare.push(inspection.transaction);
        }
    }
}

/// Adds the bytes that an inspection took since it was counted.
fn count_held(held_bytes: &mut usize, inspection: &mut Inspection) {
    *held_bytes += inspection.held_bytes - inspection.counted_bytes;
    inspection.counted_bytes = inspection.held_bytes;
}

impl Filter for Inspector {
    fn request_head(&mut self, id: TransactionId, request: &RequestContext<'_>) -> Verdict {
        let Some(firewall) = request.firewall else { return Verdict::Pass };
        let sample = firewall.waf.sample;
        if sample < 100 && self.random.random_range(0..100) >= sample {
            return Verdict::Pass;
        }
        self.last_number = self.last_number.wrapping_add(1);
        let engine = self.engines.of(&firewall.waf.rules);
        let transaction = engine
            .spare
            .pop()
            .unwrap_or_else(|| Box::new(Transaction::new(Arc::clone(&firewall.waf.rules.set))));
        let number = (self.series, self.last_number);
        let (inspection, verdict) =
            Inspection::begin(firewall, transaction, &mut engine.worker, request, number);
        self.inspections.insert(id, Slot::Here(Box::new(inspection)));
        self.go_on(id, Direction::Request, verdict)
    }

    fn request_body(&mut self, id: TransactionId, piece: &[u8]) -> Verdict {
        self.body(id, Direction::Request, piece)
    }

    fn response_head(&mut self, id: TransactionId, head: &ResponseHead<'_>) -> Verdict {
        let Some(Slot::Here(inspection)) = self.inspections.get_mut(&id) else {
            return Verdict::Pass;
        };
        let engine = self.engines.of(inspection.rules());
        let next = inspection.response_head(head, &mut engine.worker);
        self.go_on(id, Direction::Response, next)
    }

    fn response_body(&mut self, id: TransactionId, piece: &[u8]) -> Verdict {
        self.body(id, Direction::Response, piece)
    }

    fn finished(&mut self, id: TransactionId, outcome: &Outcome) {
        match self.inspections.remove(&id) {
            Some(Slot::Here(inspection)) => self.end(*inspection, outcome),
            Some(Slot::Lent | Slot::Ended(_)) => {
                self.inspections.insert(id, Slot::Ended(*outcome));
            }
            None => {}
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        418 => "I'm a teapot",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        300..=399 => "Redirect",
        _ => "Blocked",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_of_ended_configurations_are_dropped() {
        let rules = || {
            let text = "SecRule ARGS \"@contains a\" \"id:1,phase:1,deny\"";
            Arc::new(Rules::new(RuleSet::builder().text("t.conf", text).build().unwrap()))
        };
        let (old, new) = (rules(), rules());
        let set = Arc::downgrade(&old.set);
        let mut threads = [Engines::default(), Engines::default()];
        for engines in &mut threads {
            let engine = engines.of(&old);
            engine.spare.push(Box::new(Transaction::new(Arc::clone(&old.set))));
        }
        for engines in &mut threads {
            engines.of(&new);
            assert_eq!(engines.0.len(), 2, "a configuration in use keeps its engine");
        }
        drop(old);
        let [with_traffic, without] = &mut threads;
        with_traffic.of(&rules());
        without.drop_unused();
        assert_eq!(set.strong_count(), 0);
    }
}
