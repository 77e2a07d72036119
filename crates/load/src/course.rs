//! Which request a thread sends next, and how many it has left.

use std::sync::Arc;

use crate::plan::Plan;
use crate::workload::{Request, Workload};

/// One thread's way through the workload.
#[derive(Debug)]
pub(crate) struct Course {
    workload: Arc<Workload>,
    /// The place in the order.
    place: usize,
    /// `None` for no end.
    left: Option<u64>,
}

impl Course {
    /// The course of one thread of a plan: the threads begin at evenly spaced places of the order
    /// and share the number of requests evenly.
    pub(crate) fn new(plan: &Plan, thread: usize) -> Self {
        Self {
            workload: Arc::clone(&plan.workload),
            place: plan.workload.order.len() * thread / plan.threads,
            left: plan.requests.map(|requests| share(requests, thread as u64, plan.threads as u64)),
        }
    }

    /// Takes the next request; `None` when the thread has sent its share.
    pub(crate) fn take(&mut self) -> Option<usize> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        Some(self.next())
    }

    /// Takes the next request, whatever the thread's share: a schedule counts its own.
    pub(crate) fn next(&mut self) -> usize {
        let order = &self.workload.order;
        let index = order[self.place];
        self.place = if self.place + 1 == order.len() { 0 } else { self.place + 1 };
        index as usize
    }

    /// Nothing is left to send.
    pub(crate) fn end(&mut self) {
        self.left = Some(0);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    pub(crate) fn request(&self, index: usize) -> &Request {
        &self.workload.requests[index]
    }
}

/// The part of `total` that falls to one of `count`: as even as can be, the first ones get the rest.
pub(crate) fn share(total: u64, index: u64, count: u64) -> u64 {
    total / count + u64::from(index < total % count)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{Arrivals, Target};
    use crate::workload::Expectation;

    fn course(order: &[u32], thread: usize, threads: usize, requests: Option<u64>) -> Course {
        let request = Request {
            bytes: b"x".to_vec(),
            is_head: false,
            expect: Expectation::default(),
            template: 0,
        };
        let workload = Workload::new(vec![request; 3], order.to_vec()).unwrap();
        let plan = Plan {
            target: Target::Tcp("127.0.0.1:1".parse().unwrap()),
            workload: Arc::new(workload),
            arrivals: Arrivals::Closed,
            connections: threads,
            connections_max: threads,
            threads,
            timer_slack: Duration::ZERO,
            pipeline: 1,
            first_byte: false,
            busy_poll: false,
            keep_alive: true,
            connect_timeout: Duration::from_secs(1),
            answer_timeout: Duration::from_secs(1),
            requests,
            warm_up: false,
            cpus: vec![],
        };
        Course::new(&plan, thread)
    }

    fn taken(course: &mut Course, limit: usize) -> Vec<usize> {
        std::iter::from_fn(|| course.take()).take(limit).collect()
    }

    #[test]
    fn threads_walk_in_a_circle_from_their_own_places() {
        let order = [0, 1, 2, 2];
        assert_eq!(taken(&mut course(&order, 0, 2, None), 6), [0, 1, 2, 2, 0, 1]);
        assert_eq!(taken(&mut course(&order, 1, 2, None), 6), [2, 2, 0, 1, 2, 2]);
        assert_eq!(taken(&mut course(&[1], 1, 2, None), 3), [1, 1, 1]);
    }

    #[test]
    fn a_share_is_taken_and_no_more() {
        let mut course = course(&[0, 1], 0, 1, Some(3));
        assert!(!course.is_over());
        assert_eq!(taken(&mut course, 10), [0, 1, 0]);
        assert!(course.is_over());
        assert_eq!(course.take(), None);
    }

    #[test]
    fn shares_add_up() {
        let shares = |total| [0, 1, 2].map(|index| share(total, index, 3));
        assert_eq!(shares(7), [3, 2, 2]);
        assert_eq!(shares(2), [1, 1, 0]);
        assert_eq!(shares(9), [3, 3, 3]);
    }
}
