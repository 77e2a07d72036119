//! Numbers of connections per client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// Open connections of each client. Zeros take no memory.
#[derive(Debug, Default)]
pub(super) struct ClientCounts(HashMap<IpAddr, usize>);

impl ClientCounts {
    /// Adds one, unless there are `max`.
    pub(super) fn enter(&mut self, client: IpAddr, max: usize) -> bool {
        let count = self.0.entry(client).or_default();
        let is_allowed = *count < max;
        *count += usize::from(is_allowed);
        is_allowed
    }

    /// Removes one, if there is one.
    pub(super) fn leave(&mut self, client: IpAddr) {
        if let Entry::Occupied(mut count) = self.0.entry(client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_end_at_their_maximum_and_are_forgotten_at_zero() {
        let mut counts = ClientCounts::default();
        let [a, b] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        assert!(counts.enter(a, 2) && counts.enter(a, 2) && !counts.enter(a, 2));
        assert!(counts.enter(b, 2));
        counts.leave(a);
        assert!(counts.enter(a, 2) && !counts.enter(a, 2));
        counts.leave(b);
        counts.leave(b);
        assert_eq!(counts.0.len(), 1);
    }
}
