//! Order, times and clients of imported requests.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;

use super::time::{LogTime, MICROS_PER_S};
use crate::MAX_EVENTS;
use crate::list::{EVENTS_PER_LINE, MAX_OFFSET_US, OrderLine};

/// Limit of the time of an order. Requests of its last second may be spread over it.
const ORDER_US_MAX: u64 = MAX_OFFSET_US - MICROS_PER_S as u64;

/// The requests of an import in the order of their times. A request takes 16 bytes, a client about 20.
#[derive(Debug, Default)]
pub(super) struct Order {
    events: Vec<OrderEvent>,
    /// Numbers of clients by the hash of their name. Two of a million have the same hash once in thirty million imports,
    /// and would then share a session.
    clients: HashMap<u64, u32>,
    left_out: u64,
    without_client: u64,
    has_fractions: bool,
    by_time: OnceCell<Vec<u32>>,
}

#[derive(Debug, Clone, Copy)]
struct OrderEvent {
    unix_us: i64,
    client: u32,
    request: u32,
}

impl Order {
    pub(super) fn add(&mut self, time: Option<LogTime>, client: Option<&str>, request: u32) {
        let Some(time) = time.filter(|_| self.events.len() < MAX_EVENTS) else {
            self.left_out += 1;
            return;
        };
        self.by_time.take();
        self.without_client += u64::from(client.is_none());
        let mut hasher = DefaultHasher::new();
        client.hash(&mut hasher);
        let next = self.clients.len() as u32;
        let client = *self.clients.entry(hasher.finish()).or_insert(next);
        self.has_fractions |= !time.is_whole_second;
        self.events.push(OrderEvent { unix_us: time.unix_us, client, request });
    }

    /// Number of requests in the list.
    pub(super) fn len(&self) -> usize {
        self.by_time().len()
    }

    /// Number of requests without a time, beyond the limit of their number, or of that of the time of a list.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out + (self.events.len() - self.len()) as u64
    }

    /// Number of requests whose client is not known; they have the same number.
    pub(super) fn without_client(&self) -> u64 {
        self.without_client
    }

    /// Returns the events by their time: those of the ten years with the most of them.
    fn by_time(&self) -> &[u32] {
        self.by_time.get_or_init(|| {
            let unix_us = |index: &u32| self.events[*index as usize].unix_us;
            let mut all: Vec<u32> = (0..self.events.len() as u32).collect();
            all.sort_by_key(unix_us);
            let (mut most, mut start) = (0..0, 0);
            for end in 0..all.len() {
                while unix_us(&all[end]).abs_diff(unix_us(&all[start])) > ORDER_US_MAX {
                    start += 1;
                }
                // The later one of two that are equal.
                if end + 1 - start >= most.len() {
                    most = start..end + 1;
                }
            }
            all.truncate(most.end);
            all.drain(..most.start);
            all
        })
    }

    pub(super) fn is_in_seconds(&self) -> bool {
        !self.has_fractions && !self.events.is_empty()
    }

    /// Calls `write` with each line of the list. Requests of the same time stay in the order of the file.
    pub(super) fn write(
        &self,
        mut write: impl FnMut(&OrderLine) -> io::Result<()>,
    ) -> io::Result<()> {
        let event = |index: &u32| &self.events[*index as usize];
        let by_time = self.by_time();
        let mut last_us = by_time.first().map_or(0, |first| event(first).unix_us);
        let mut line = OrderLine { order: Vec::with_capacity(3 * EVENTS_PER_LINE) };
        for group in by_time.chunk_by(|one, other| event(one).unix_us == event(other).unix_us) {
            let spread_us = if self.is_in_seconds() { MICROS_PER_S } else { 0 };
            for (index, number) in group.iter().zip(0..) {
                let event = event(index);
                let unix_us = event.unix_us + number * spread_us / group.len() as i64;
                let gap_us = (unix_us - last_us).unsigned_abs();
                last_us = unix_us;
                line.order.extend([gap_us, u64::from(event.client), u64::from(event.request)]);
                if line.order.len() == 3 * EVENTS_PER_LINE {
                    write(&line)?;
                    line.order.clear();
                }
            }
        }
        if line.order.is_empty() { Ok(()) } else { write(&line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(events: &[(i64, bool, &str, u32)]) -> Order {
        let mut order = Order::default();
        for &(unix_us, is_whole_second, client, request) in events {
            order.add(Some(LogTime { unix_us, is_whole_second }), Some(client), request);
        }
        order
    }

    fn lines(order: &Order) -> Vec<Vec<u64>> {
        let mut lines = Vec::new();
        order
            .write(|line| {
                lines.push(line.order.clone());
                Ok(())
            })
            .unwrap();
        lines
    }

    #[test]
    fn requests_are_sorted_by_time_and_clients_are_numbers() {
        let order =
            order(&[(9_000, false, "b", 4), (5_000, false, "a", 7), (9_000, false, "a", 5)]);
        assert_eq!(lines(&order), [[0, 1, 7, 4_000, 0, 4, 0, 1, 5]]);
        assert_eq!((order.len(), order.left_out(), order.is_in_seconds()), (3, 0, false));
    }

    #[test]
    fn requests_of_a_whole_second_are_spread_over_it() {
        let second = |number, request| (number * MICROS_PER_S, true, "a", request);
        let mut spread = order(&[second(8, 0), second(7, 1), second(8, 2), second(8, 3)]);
        assert_eq!(lines(&spread), [[0, 0, 1, 1_000_000, 0, 0, 333_333, 0, 2, 333_333, 0, 3]]);
        // One time with a fraction, and the others are exact.
        spread.add(Some(LogTime { unix_us: 7_500_000, is_whole_second: false }), Some("a"), 4);
        assert_eq!(lines(&spread), [[0, 0, 1, 500_000, 0, 4, 500_000, 0, 0, 0, 0, 2, 0, 0, 3]]);
    }

    #[test]
    fn requests_without_a_time_are_left_out() {
        let mut order = order(&[(0, false, "a", 0)]);
        order.add(None, Some("a"), 1);
        assert_eq!((lines(&order), order.left_out()), (vec![vec![0, 0, 0]], 1));
    }

    #[test]
    fn requests_far_from_the_others_are_left_out() {
        let second = |number: i64| (number * MICROS_PER_S, false, "a", number as u32);
        let year = 366 * 24 * 3600;
        for (far, expected) in [
            // Of two times with as many requests, the later one.
            (vec![0, 60 * year, 60 * year + 1], vec![60 * year, 60 * year + 1]),
            (vec![60 * year, 0, 1], vec![0, 1]),
            (vec![0, 11 * year], vec![11 * year]),
            (vec![0, 10 * year - 1], vec![0, 10 * year - 1]),
        ] {
            let events: Vec<_> = far.iter().copied().map(second).collect();
            let order = order(&events);
            let requests: Vec<u64> =
                lines(&order).concat().chunks(3).map(|event| event[2]).collect();
            let expected: Vec<u64> = expected.iter().map(|number| *number as u64).collect();
            assert_eq!(requests, expected, "{far:?}");
            let kept = expected.len();
            assert_eq!((order.len(), order.left_out()), (kept, (far.len() - kept) as u64));
        }
    }

    #[test]
    fn requests_without_a_client_are_counted() {
        let mut order = order(&[(0, false, "a", 0)]);
        let time = LogTime { unix_us: 1, is_whole_second: false };
        (0..2).for_each(|_| order.add(Some(time), None, 0));
        assert_eq!((order.without_client(), order.len()), (2, 3));
    }
}
