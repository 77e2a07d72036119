//! CrowdSec's local API: it knows keys of bouncers, and takes alerts. Each job has threads, which start with the first one, so that
//! no event loop waits.

mod alerts;
mod call;
mod counters;
mod keys;

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tollgate_net::Waker;

pub(crate) use alerts::{Alert, AlertEvent, EVENTS_MAX};
pub(crate) use counters::LocalApiCounters;

use crate::checks::{CheckId, Checks, Standing};
use crate::config;

/// A local API in use. It continues across reloads that do not change it.
#[derive(Debug)]
pub(crate) struct LocalApi {
    pub(crate) config: config::LocalApi,
    keys: Arc<Checks>,
    counters: Arc<LocalApiCounters>,
    alerts: Mutex<Alerts>,
}

/// The thread that sends alerts.
#[derive(Debug, Default)]
enum Alerts {
    /// No alert so far.
    #[default]
    Unused,
    Running(Running),
    /// The gateway ends, or there is no thread.
    Ended,
}

#[derive(Debug)]
struct Running {
    queue: SyncSender<Alert>,
    /// Its end is that of the attempts to send.
    end: mpsc::Sender<()>,
    handle: JoinHandle<()>,
}

impl LocalApi {
    pub(crate) fn new(config: config::LocalApi, counters: Arc<LocalApiCounters>) -> Self {
        counters.is_configured.store(true, Ordering::Relaxed);
        let keys = Arc::new(keys::checks(config.clone(), Arc::clone(&counters.keys)));
        Self { config, keys, counters, alerts: Mutex::default() }
    }

    /// As [`Checks::standing`], of the key of a bouncer.
    pub(crate) fn standing(&self, key: &[u8], now: Instant, waker: &Waker) -> Standing {
        let key = keys::key_text(key);
        key.map_or(Standing::Invalid, |key| self.keys.standing(key, None, now, waker))
    }

    /// As [`Checks::awaits`], of keys.
    pub(crate) fn awaits(&self, id: CheckId) -> bool {
        self.keys.awaits(id)
    }

    /// As [`Checks::ended`], of keys.
    pub(crate) fn ended_checks(&self) -> u64 {
        self.keys.ended()
    }

    /// True if alerts are sent.
    pub(crate) fn takes_alerts(&self) -> bool {
        self.config.machine.is_some()
    }

    /// Queues an alert. Never blocks.
    pub(crate) fn alert(&self, alert: Alert) {
        let mut alerts = self.lock();
        if matches!(*alerts, Alerts::Unused) {
            *alerts = self.start().map_or(Alerts::Ended, Alerts::Running);
        }
        let is_queued = match &*alerts {
            Alerts::Running(running) => running.queue.try_send(alert).is_ok(),
            Alerts::Unused | Alerts::Ended => false,
        };
        if !is_queued {
            self.counters.alerts_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn start(&self) -> Option<Running> {
        let (config, counters) = (self.config.clone(), Arc::clone(&self.counters));
        let machine = config.machine.clone()?;
        let (queue, received) = mpsc::sync_channel(alerts::QUEUE_MAX);
        let (end, ends) = mpsc::channel();
        let run = move || {
            let (api, counters) = (&config, &*counters);
            let sender = alerts::Sender {
                api,
                machine: &machine,
                counters,
                end: &ends,
                authorization: None,
            };
            sender.run(&received);
        };
        let handle = thread::Builder::new().name("alerts".to_owned()).spawn(run).ok()?;
        Some(Running { queue, end, handle })
    }

    /// Sends the alerts that are left, with one attempt.
    pub(crate) fn finish(&self) {
        let ended = std::mem::replace(&mut *self.lock(), Alerts::Ended);
        if let Alerts::Running(Running { queue, end, handle }) = ended {
            drop((queue, end));
            // A panic has written its message.
            handle.join().ok();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Alerts> {
        self.alerts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
