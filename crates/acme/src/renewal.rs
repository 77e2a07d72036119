//! The thread that orders certificates before they are needed.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use instant_acme::{Account, KeyAuthorization};
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::timeout;
use tollgate_tls::{CertificateFacts, ManagedCertificate};

use crate::Settings;
use crate::authority::{OrderError, account, order};
use crate::proofs::Proofs;
use crate::store::{StateError, Store};

/// Of waiting, after which the time is compared again: a suspended machine or a changed clock does not delay a renewal.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);
/// Time until a failed order is repeated. It quadruples with each failure: authorities allow few failures per hour.
const RETRY_MIN: Duration = Duration::from_secs(60);
const RETRY_MAX: Duration = Duration::from_secs(60 * 60);

/// Orders and renews certificates until it is dropped. An order cannot be cancelled, so the thread may end later.
#[derive(Debug)]
pub struct Renewal(Arc<Shared>);

/// What happened to a certificate.
#[derive(Debug)]
pub enum Event<'a> {
    /// It was issued and is in use.
    Issued {
        names: &'a [String],
        facts: &'a CertificateFacts,
    },
    Failed {
        names: &'a [String],
        error: &'a OrderError,
        retry_after: Duration,
    },
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
    is_stopping: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("cannot start a thread for certificates; raise the limit on processes")]
    Thread(#[source] io::Error),
}

impl Renewal {
    /// `report` is called on the thread.
    pub fn start(
        settings: Settings,
        certificates: Vec<Arc<ManagedCertificate>>,
        proofs: Arc<Proofs>,
        report: impl Fn(&Event<'_>) + Send + 'static,
    ) -> Result<Self, StartError> {
        let store = Store::new(&settings);
        store.prepare()?;
        let state = Mutex::new(State { certificates, proofs, is_stopping: false });
        let shared = Arc::new(Shared { state, woken: Notify::new() });
        let runtime = runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(StartError::Thread)?;
        let mut worker = Worker {
            shared: Arc::clone(&shared),
            settings,
            store,
            account: None,
            failures: HashMap::new(),
            report,
        };
        thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || runtime.block_on(worker.run()))
            .map_err(StartError::Thread)?;
        Ok(Self(shared))
    }

    /// Continues for another configuration with the same settings. Its certificates and proofs get what the current ones have.
    pub fn replace(&self, certificates: Vec<Arc<ManagedCertificate>>, proofs: Arc<Proofs>) {
        let mut state = self.0.state();
        for certificate in &certificates {
            if let Some(old) = state.with_names(certificate.names()) {
                certificate.inherit(old);
            }
        }
        proofs.inherit(&state.proofs);
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

impl State {
    fn with_names(&self, names: &[String]) -> Option<&Arc<ManagedCertificate>> {
        self.certificates.iter().find(|certificate| certificate.names() == names)
    }
}

struct Worker<R> {
    shared: Arc<Shared>,
    settings: Settings,
    store: Store,
    /// Opened with the first order.
    account: Option<Account>,
    /// By the names of certificates.
    failures: HashMap<Vec<String>, Failure>,
    report: R,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    retry_after: Duration,
    at: Instant,
}

enum Next {
    Order(Vec<String>),
    Wait(Duration),
    Stop,
}

impl<R: Fn(&Event<'_>)> Worker<R> {
    async fn run(&mut self) {
        loop {
            match self.next() {
                Next::Order(names) => self.renew(&names).await,
                Next::Wait(wait) => {
                    // Woken or not: the state is read again.
                    timeout(wait, self.shared.woken.notified()).await.ok();
                }
                Next::Stop => return,
            }
        }
    }

    fn next(&self) -> Next {
        let state = self.shared.state();
        if state.is_stopping {
            return Next::Stop;
        }
        let now = SystemTime::now();
        let mut wait = WAIT_MAX;
        for certificate in &state.certificates {
            let names = certificate.names();
            let due = until_renewal(names, certificate.facts().as_ref(), now);
            let failure = self.failures.get(names);
            let pause = failure.map_or(Duration::ZERO, |failure| {
                failure.retry_after.saturating_sub(failure.at.elapsed())
            });
            let wanted = due.max(pause);
            if wanted.is_zero() {
                return Next::Order(names.to_vec());
            }
            wait = wait.min(wanted);
        }
        Next::Wait(wait)
    }

    async fn renew(&mut self, names: &[String]) {
        let result = self.issue(names).await;
        self.shared.state().proofs.clear();
        match result {
            Ok(facts) => {
                self.failures.remove(names);
                (self.report)(&Event::Issued { names, facts: &facts });
            }
            Err(error) => {
                let last = self.failures.get(names);
                let retry_after = last.map_or(RETRY_MIN, |last| last.retry_after * 4);
                let failure =
                    Failure { retry_after: retry_after.min(RETRY_MAX), at: Instant::now() };
                self.failures.insert(names.to_vec(), failure);
                let retry_after = failure.retry_after;
                (self.report)(&Event::Failed { names, error: &error, retry_after });
            }
        }
    }

    async fn issue(&mut self, names: &[String]) -> Result<CertificateFacts, OrderError> {
        let account = match &self.account {
            Some(account) => account,
            None => self.account.insert(account(&self.settings, &self.store).await?),
        };
        let challenge = self.settings.challenge;
        // A reload may replace the proofs within an order.
        let show = |name: &str, token: &str, answer: &KeyAuthorization| {
            self.shared.state().proofs.show(challenge, name, token, answer)
        };
        let pem = order(account, challenge, names, show).await?;
        let issued = ManagedCertificate::new(names.to_vec());
        let facts = issued.set(pem.as_bytes())?;
        self.store.keep(names, &pem)?;
        if let Some(certificate) = self.shared.state().with_names(names) {
            certificate.inherit(&issued);
        }
        Ok(facts)
    }
}

/// Time until a certificate is to be renewed: once two thirds of its validity have passed, or at once if its names are
/// others.
fn until_renewal(names: &[String], facts: Option<&CertificateFacts>, now: SystemTime) -> Duration {
    let Some(facts) = facts else { return Duration::ZERO };
    let is_covered = |name: &String| facts.names.contains(name);
    if facts.names.len() != names.len() || !names.iter().all(is_covered) {
        return Duration::ZERO;
    }
    let validity = facts.not_after().duration_since(facts.not_before()).unwrap_or_default();
    let renewed_at = facts.not_before() + validity * 2 / 3;
    renewed_at.duration_since(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// Facts of a certificate for these names that was issued at `start` and is valid for 90 days.
    fn facts(names: &[&str], start: SystemTime) -> CertificateFacts {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(names.clone()).unwrap();
        parameters.not_before = start.into();
        parameters.not_after = (start + 90 * DAY).into();
        let pem = key.serialize_pem() + &parameters.self_signed(&key).unwrap().pem();
        ManagedCertificate::new(names).set(pem.as_bytes()).unwrap()
    }

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn certificate_is_renewed_after_two_thirds_of_its_validity_or_for_other_names() {
        let start = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let names = ["b.example".to_owned(), "a.example".to_owned()];
        let both = facts(&["a.example", "b.example"], start);
        for (facts, day, expected) in [
            (None, 0, 0),
            (Some(&both), 0, 60),
            (Some(&both), 59, 1),
            (Some(&both), 60, 0),
            (Some(&both), 100, 0),
            (Some(&facts(&["b.example"], start)), 0, 0),
            (Some(&facts(&["b.example", "c.example"], start)), 0, 0),
            (Some(&facts(&["a.example", "b.example", "c.example"], start)), 0, 0),
        ] {
            let wait = until_renewal(&names, facts, start + day * DAY);
            assert_eq!(wait, expected * DAY, "{facts:?} on day {day}");
        }
    }
}
