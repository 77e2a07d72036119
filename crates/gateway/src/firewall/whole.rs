//! Messages that are there as a whole: a proxy describes a request, and later perhaps its response, to ask for verdicts.

use std::time::Instant;

use tollgate_waf::Direction;

use super::inspector::Inspector;
use super::verdict::{
    FirewallVerdict, InspectedResponse, Outcome, RequestContext, TransactionId, WholeBody,
};
use super::waiting::{Waiting, WaitingLimits, WaitingRequest};

/// Findings of rules in a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Identifier of the transaction.
    pub(crate) name: String,
    /// The rule that blocks.
    pub(crate) rule: Option<u64>,
    /// Identifiers of the rules that matched and are logged.
    pub(crate) rules: Vec<u64>,
    pub(crate) score: i64,
}

impl Inspector {
    /// Begins an inspection with all of a request. `None`: the request is not in the sample of those that are inspected.
    pub(crate) fn whole_request(
        &mut self,
        id: TransactionId,
        request: &RequestContext<'_>,
        body: WholeBody<'_>,
    ) -> Option<FirewallVerdict> {
        let verdict = self.request_head(id, request)?;
        Some(self.whole_body(id, Direction::Request, body, verdict))
    }

    /// Continues the inspection of a request with all of its response.
    pub(crate) fn whole_response(
        &mut self,
        id: TransactionId,
        head: &InspectedResponse<'_>,
        body: WholeBody<'_>,
    ) -> FirewallVerdict {
        let verdict = self.show_response_head(id, head);
        self.whole_body(id, Direction::Response, body, verdict)
    }

    fn whole_body(
        &mut self,
        id: TransactionId,
        direction: Direction,
        body: WholeBody<'_>,
        mut verdict: FirewallVerdict,
    ) -> FirewallVerdict {
        if !body.bytes.is_empty() {
            verdict = verdict.and(self.body(id, direction, body.bytes));
        }
        let end = match self.inspection(id) {
            Some(inspection) if body.is_truncated => {
                let next = inspection.session.end_truncated(direction);
                self.go_on(id, direction, next)
            }
            _ => self.body(id, direction, b""),
        };
        verdict.and(end)
    }

    /// Returns the findings of rules in a transaction that has a verdict.
    pub(crate) fn findings(&mut self, id: TransactionId) -> Findings {
        let Some(inspection) = self.inspection(id) else { return Findings::default() };
        let transaction = inspection.session.transaction();
        let matches = transaction.matches().iter();
        Findings {
            name: inspection.name.to_string(),
            rule: transaction.intervention().and_then(|block| block.rule),
            rules: matches.filter(|found| found.logged).map(|found| found.id).collect(),
            score: inspection.score().unwrap_or(0),
        }
    }

    /// Keeps a request that passed for its response, known by `name`.
    pub(crate) fn keep_for_response(
        &mut self,
        id: TransactionId,
        name: &[u8],
        outcome: Outcome,
        until: Instant,
        requests_max: usize,
        waiting: &Waiting,
    ) {
        let Some(inspection) = self.take_out(id) else { return };
        let bytes = inspection.firewall.held_bytes_max;
        let limits = WaitingLimits { requests: requests_max, bytes };
        for given_up in waiting.keep(name, WaitingRequest { inspection, outcome }, until, limits) {
            self.end(*given_up.inspection, &given_up.outcome);
        }
    }

    /// Takes back the request of a response, as the transaction `id`, with its outcome so far. `None`: none of this name waits.
    pub(crate) fn take_for_response(
        &mut self,
        id: TransactionId,
        name: &[u8],
        waiting: &Waiting,
    ) -> Option<Outcome> {
        let WaitingRequest { inspection, outcome } = waiting.take(name)?;
        self.put_in(id, inspection);
        Some(outcome)
    }

    /// Ends requests whose responses did not arrive in time.
    pub(crate) fn end_expired(&mut self, waiting: &Waiting, now: Instant) {
        for expired in waiting.take_expired(now) {
            self.end(*expired.inspection, &expired.outcome);
        }
    }
}
