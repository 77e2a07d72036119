//! The thread that orders certificates before they are needed.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use instant_acme::{Account, KeyAuthorization};
use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio::time::timeout;
use tollgate_tls::{CertificateFacts, ManagedCertificate};

use crate::Settings;
use crate::authority::{OrderError, open_account, order};
use crate::proofs::Proofs;
use crate::store::{StateError, Store};

/// Longest wait, after which the clock is read again: a suspended machine or a changed clock does not delay a renewal.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);
/// Time until a failed order is repeated. It quadruples with each failure: authorities allow few failures per hour.
const RETRY_MIN: Duration = Duration::from_secs(60);
const RETRY_MAX: Duration = Duration::from_secs(60 * 60);
/// Interval at which a running order looks whether it is still wanted.
const CANCEL_INTERVAL: Duration = Duration::from_millis(500);

/// Orders and renews certificates until it is dropped. An order then ends with its current request to the authority.
#[derive(Debug)]
pub struct Renewal(Arc<Shared>);

/// Result of an order, for a log and counters.
#[derive(Debug)]
pub enum Event<'a> {
    /// It was issued and is in use.
    Issued { names: &'a [String], facts: &'a CertificateFacts },
    /// It was not issued.
    Failed { names: &'a [String], error: &'a OrderError, retry_after: Duration },
    /// It is in use, but a restart would order another one.
    NotKept { names: &'a [String], error: &'a StateError, retry_after: Duration },
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Debug)]
struct State {
    certificates: Vec<Arc<ManagedCertificate>>,
    proofs: Arc<Proofs>,
    /// By the names of certificates.
    pending: HashMap<Vec<String>, Pending>,
    is_stopping: bool,
}

/// Unfinished work for a certificate, beside its renewal.
#[derive(Debug)]
enum Pending {
    /// The order has failed.
    Retry { after: Duration, since: Instant },
    /// It was issued by another authority.
    Replace,
    /// It could not be written.
    Keep { pem: String, since: Instant },
}

impl Renewal {
    /// Continues after `previous`, which has other settings. `report` is called on the thread. The folder must be prepared.
    pub fn start(
        settings: Settings,
        certificates: Vec<Arc<ManagedCertificate>>,
        proofs: Arc<Proofs>,
        previous: Option<&Self>,
        report: impl Fn(&Event<'_>) + Send + 'static,
    ) -> io::Result<Self> {
        let mut pending = HashMap::new();
        if let Some(previous) = previous {
            let old = previous.0.state();
            for certificate in certificates.iter().filter(|new| new.facts().is_none()) {
                if old.fill(certificate) {
                    pending.insert(certificate.names().to_vec(), Pending::Replace);
                }
            }
        }
        let state = Mutex::new(State { certificates, proofs, pending, is_stopping: false });
        let shared = Arc::new(Shared { state, woken: Notify::new() });
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let store = Store::new(&settings);
        let mut worker =
            Worker { shared: Arc::clone(&shared), settings, store, account: None, report };
        thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || runtime.block_on(worker.run()))?;
        Ok(Self(shared))
    }

    /// Continues for another configuration with the same settings. Its certificates and proofs get what the current ones have,
    /// and failed orders are repeated after a minute at most.
    pub fn replace(&self, certificates: Vec<Arc<ManagedCertificate>>, proofs: Arc<Proofs>) {
        let mut state = self.0.state();
        if Arc::ptr_eq(&state.proofs, &proofs) {
            return;
        }
        for certificate in &certificates {
            state.fill(certificate);
        }
        proofs.inherit(&state.proofs);
        state.pending.retain(|names, pending| {
            if let Pending::Retry { after, .. } = pending {
                *after = RETRY_MIN;
            }
            certificates.iter().any(|certificate| certificate.names() == names)
        });
        (state.certificates, state.proofs) = (certificates, proofs);
        drop(state);
        self.0.woken.notify_one();
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.state().is_stopping = true;
        self.0.woken.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Step {
    Order(Vec<String>),
    Keep(Vec<String>, String),
    Wait(Duration),
    Stop,
}

impl State {
    fn with_names(&self, names: &[String]) -> Option<&Arc<ManagedCertificate>> {
        self.certificates.iter().find(|certificate| certificate.names() == names)
    }

    /// Puts the current certificate with the same names in a place, or, if that is empty, one that has a name in common.
    fn fill(&self, place: &ManagedCertificate) -> bool {
        let same = self.with_names(place.names());
        let has_common = |other: &&Arc<ManagedCertificate>| {
            let facts = other.facts();
            facts.is_some_and(|facts| place.names().iter().any(|name| facts.names.contains(name)))
        };
        let other = || {
            let is_empty = place.facts().is_none();
            self.certificates.iter().filter(|_| is_empty).find(has_common)
        };
        let found = same.filter(|same| same.facts().is_some()).or_else(other);
        found.inspect(|found| place.inherit(found)).is_some()
    }

    fn step(&self, now: SystemTime, instant: Instant) -> Step {
        if self.is_stopping {
            return Step::Stop;
        }
        let mut wait = WAIT_MAX;
        for certificate in &self.certificates {
            let names = certificate.names();
            let due = until_renewal(names, certificate.facts().as_ref(), now);
            let remaining = |after: Duration, since: Instant| {
                after.saturating_sub(instant.saturating_duration_since(since))
            };
            let wanted = match self.pending.get(names) {
                None => due,
                Some(Pending::Replace) => Duration::ZERO,
                // Also of a certificate that is valid, but of another authority.
                Some(Pending::Retry { after, since }) => remaining(*after, *since),
                Some(Pending::Keep { pem, since }) => match remaining(RETRY_MIN, *since) {
                    Duration::ZERO => return Step::Keep(names.to_vec(), pem.clone()),
                    rest => due.min(rest),
                },
            };
            if wanted.is_zero() {
                return Step::Order(names.to_vec());
            }
            wait = wait.min(wanted);
        }
        Step::Wait(wait)
    }

    /// Time until a failed order is repeated.
    fn retry_after(&self, names: &[String], now: SystemTime) -> Duration {
        let after = match self.pending.get(names) {
            Some(Pending::Retry { after, .. }) => *after * 4,
            _ => RETRY_MIN,
        };
        let facts = self.with_names(names).and_then(|certificate| certificate.facts());
        let valid = facts.and_then(|facts| facts.not_after().duration_since(now).ok());
        // A certificate of short validity is not to expire within a pause.
        let bound = valid.map_or(RETRY_MAX, |valid| (valid / 4).clamp(RETRY_MIN, RETRY_MAX));
        after.min(bound)
    }
}

struct Worker<R> {
    shared: Arc<Shared>,
    settings: Settings,
    store: Store,
    /// Opened with the first order, and again after a failure.
    account: Option<Account>,
    report: R,
}

impl<R: Fn(&Event<'_>)> Worker<R> {
    async fn run(&mut self) {
        loop {
            let step = self.shared.state().step(SystemTime::now(), Instant::now());
            match step {
                Step::Order(names) => self.renew(&names).await,
                Step::Keep(names, pem) => self.keep(&names, pem),
                Step::Wait(wait) => {
                    // Woken or not: the state is read again.
                    timeout(wait, self.shared.woken.notified()).await.ok();
                }
                Step::Stop => return,
            }
        }
    }

    async fn renew(&mut self, names: &[String]) {
        let Some(result) = self.issue(names).await else { return };
        self.shared.state().proofs.clear();
        match result {
            Ok((pem, facts)) => {
                self.shared.state().pending.remove(names);
                (self.report)(&Event::Issued { names, facts: &facts });
                self.keep(names, pem);
            }
            Err(error) => {
                // The authority may have lost it, or have moved.
                self.account = None;
                let mut state = self.shared.state();
                let retry_after = state.retry_after(names, SystemTime::now());
                let retry = Pending::Retry { after: retry_after, since: Instant::now() };
                state.pending.insert(names.to_vec(), retry);
                drop(state);
                (self.report)(&Event::Failed { names, error: &error, retry_after });
            }
        }
    }

    fn keep(&self, names: &[String], pem: String) {
        let pending = match self.store.keep(names, &pem) {
            Ok(()) => None,
            Err(error) => {
                (self.report)(&Event::NotKept { names, error: &error, retry_after: RETRY_MIN });
                Some(Pending::Keep { pem, since: Instant::now() })
            }
        };
        let mut state = self.shared.state();
        match pending {
            None => state.pending.remove(names),
            Some(pending) => state.pending.insert(names.to_vec(), pending),
        };
    }

    /// Orders a certificate and uses it. `None`: it is not wanted any more.
    async fn issue(
        &mut self,
        names: &[String],
    ) -> Option<Result<(String, CertificateFacts), OrderError>> {
        let (settings, store) = (self.settings.clone(), self.store.clone());
        let (account, shared) = (self.account.take(), Arc::clone(&self.shared));
        let wanted = names.to_vec();
        // A task, since a panic of the client of ACME ends only this.
        let mut task = tokio::spawn(async move {
            let account = match account {
                Some(account) => account,
                None => open_account(&settings, &store).await?,
            };
            let challenge = settings.challenge;
            // A reload may replace the proofs within an order.
            let show = |name: &str, token: &str, answer: &KeyAuthorization| {
                shared.state().proofs.show(challenge, name, token, answer)
            };
            let pem = order(&account, &settings, &store, &wanted, show).await?;
            Ok((account, pem))
        });
        let ended: Result<Result<_, OrderError>, JoinError> = loop {
            match timeout(CANCEL_INTERVAL, &mut task).await {
                Ok(ended) => break ended,
                Err(_) if self.shared.state().is_stopping => {
                    task.abort();
                    return None;
                }
                Err(_) => {}
            }
        };
        let used = ended.map_err(OrderError::Bug).flatten().and_then(|(account, pem)| {
            self.account = Some(account);
            let facts = self.use_certificate(names, &pem)?;
            Ok((pem, facts))
        });
        Some(used)
    }

    /// Puts an issued certificate in its place, if it serves.
    fn use_certificate(&self, names: &[String], pem: &str) -> Result<CertificateFacts, OrderError> {
        let issued = ManagedCertificate::new(names.to_vec());
        let facts = issued.set(pem.as_bytes())?;
        if until_renewal(names, Some(&facts), SystemTime::now()).is_zero() {
            return Err(OrderError::Unsuitable { names: facts.names.join(", ") });
        }
        if let Some(certificate) = self.shared.state().with_names(names) {
            certificate.inherit(&issued);
        }
        Ok(facts)
    }
}

/// Time until a certificate is to be renewed: once two thirds of its validity have passed, or at once if it lacks a name.
fn until_renewal(names: &[String], facts: Option<&CertificateFacts>, now: SystemTime) -> Duration {
    let Some(facts) = facts else { return Duration::ZERO };
    if !names.iter().all(|name| facts.names.contains(name)) {
        return Duration::ZERO;
    }
    let validity = facts.not_after().duration_since(facts.not_before()).unwrap_or_default();
    let renewed_at = facts.not_before() + validity * 2 / 3;
    renewed_at.duration_since(now).unwrap_or_default()
}

#[cfg(test)]
mod tests;
