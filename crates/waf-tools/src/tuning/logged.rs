//! Transactions of which a log has matches and no request, put together from entries that may be apart.

use std::collections::{HashMap, VecDeque};

use jiff::civil::Date;

use crate::log::LoggedMatches;

/// Limit of transactions of which more entries may come. Entries of one stand close together.
const OPEN_MAX: usize = 10_000;

/// A transaction without its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoggedTransaction {
    pub(super) client: Option<String>,
    pub(super) day: Option<Date>,
    pub(super) logged: LoggedMatches,
}

/// Transactions of which more entries may come.
#[derive(Debug, Default)]
pub(super) struct Open {
    by_id: HashMap<String, LoggedTransaction>,
    /// Identifiers, in the order of the first entries.
    order: VecDeque<String>,
}

impl Open {
    /// Adds an entry. Returns a transaction that is taken for complete, if there is one.
    pub(super) fn add(&mut self, entry: LoggedTransaction) -> Option<LoggedTransaction> {
        let id = entry.logged.transaction.clone();
        if id.is_empty() {
            return Some(entry);
        }
        if let Some(known) = self.by_id.get_mut(&id) {
            known.extend(entry);
            return None;
        }
        self.by_id.insert(id.clone(), entry);
        self.order.push_back(id);
        if self.order.len() > OPEN_MAX { self.pop() } else { None }
    }

    /// Removes the oldest transaction.
    pub(super) fn pop(&mut self) -> Option<LoggedTransaction> {
        self.by_id.remove(&self.order.pop_front()?)
    }
}

impl LoggedTransaction {
    fn extend(&mut self, other: Self) {
        let LoggedMatches { method, target, was_blocked, matches, .. } = other.logged;
        let known = &mut self.logged;
        if known.method.is_empty() {
            known.method = method;
        }
        if known.target.is_empty() {
            known.target = target;
        }
        known.was_blocked |= was_blocked;
        for found in matches {
            if !known.matches.contains(&found) {
                known.matches.push(found);
            }
        }
        self.client = self.client.take().or(other.client);
        self.day = self.day.or(other.day);
    }
}
