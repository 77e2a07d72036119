//! Engines of one thread, for transactions of the gateway.

use tollgate_waf::{Transaction, Worker};

use super::alert::alert;
use super::audit::AuditWriter;
use super::inspection::Inspection;
use super::route::Firewall;
use super::verdict::Outcome;

#[derive(Debug, Default)]
pub(super) struct Engines(tollgate_firewall::Engines);

impl Engines {
    /// The worker for the rules of a firewall.
    pub(super) fn worker(&mut self, firewall: &Firewall) -> &mut Worker {
        &mut self.0.of(&firewall.waf.rules).worker
    }

    /// An empty transaction, with the worker for it.
    pub(super) fn begin(&mut self, firewall: &Firewall) -> (Box<Transaction>, &mut Worker) {
        let rules = &firewall.waf.rules;
        let engine = self.0.of(rules);
        (engine.transaction(rules, &firewall.collections), &mut engine.worker)
    }

    /// Runs the rules of the log, counts, logs, and sends an alert.
    pub(super) fn end(
        &mut self,
        mut inspection: Inspection,
        outcome: &Outcome,
        audit: Option<&mut AuditWriter>,
        thread: usize,
    ) {
        let engine = self.0.of(&inspection.firewall.waf.rules);
        if audit.is_some() || inspection.rules().set.keeps_state_when_logging() {
            inspection.run_logging(&mut engine.worker);
        }
        inspection.count(thread);
        if let Some(target) = &inspection.firewall.alerts
            && let Some(alert) = alert(&inspection, target.is_out_of_band)
        {
            target.api.alert(alert);
        }
        if let Some(audit) = audit {
            audit.add(&inspection, outcome);
        }
        engine.recycle(inspection.session.into_transaction());
    }

    /// Drops the engines of configurations that have ended, and whose transactions have.
    pub(super) fn drop_unused(&mut self) {
        self.0.drop_unused();
    }
}
