//! Transactions of which a log has matches and no request, put together from entries that may be apart.

use std::collections::{HashMap, VecDeque};

use jiff::civil::Date;

use crate::log::LoggedMatches;

/// Limit of transactions of which more entries may come. Entries of one stand close together.
const OPEN_MAX: usize = 1_000;

/// Limit of the matches of a transaction; clients may choose its identifier.
const MATCHES_MAX: usize = 100;

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
        for other in &entry.logged.others {
            let nothing = LoggedMatches {
                transaction: other.clone(),
                is_incomplete: true,
                ..LoggedMatches::default()
            };
            self.insert(other, LoggedTransaction { client: None, day: None, logged: nothing });
        }
        self.insert(&id, entry);
        if self.order.len() > OPEN_MAX { self.pop() } else { None }
    }

    fn insert(&mut self, id: &str, entry: LoggedTransaction) {
        if let Some(known) = self.by_id.get_mut(id) {
            known.extend(entry);
        } else {
            let mut entry = entry;
            entry.logged.is_incomplete |= entry.logged.matches.len() > MATCHES_MAX;
            entry.logged.matches.truncate(MATCHES_MAX);
            self.by_id.insert(id.to_owned(), entry);
            self.order.push_back(id.to_owned());
        }
    }

    /// Removes the oldest transaction.
    pub(super) fn pop(&mut self) -> Option<LoggedTransaction> {
        self.by_id.remove(&self.order.pop_front()?)
    }
}

impl LoggedTransaction {
    fn extend(&mut self, other: Self) {
        let LoggedMatches { method, target, was_blocked, is_incomplete, matches, .. } =
            other.logged;
        let known = &mut self.logged;
        if known.method.is_empty() {
            known.method = method;
        }
        if known.target.is_empty() {
            known.target = target;
        }
        known.was_blocked |= was_blocked;
        known.is_incomplete |= is_incomplete;
        for found in matches {
            if known.matches.len() >= MATCHES_MAX {
                known.is_incomplete = true;
            } else if !known.matches.contains(&found) {
                known.matches.push(found);
            }
        }
        self.client = self.client.take().or(other.client);
        self.day = self.day.or(other.day);
    }
}
