//! A generator that asks for events instead of sleeping.

use std::thread::sleep;
use std::time::Duration;

use tollgate_load::{Outcome, Plan};

use crate::plans::refused;
use crate::server::{OK, Server, closed_port, plan, run, scheduled};

/// Ten requests, each answered after 20 ms.
fn slowly_answered(busy_poll: bool) -> Outcome {
    let server = Server::start(|peer| {
        while peer.request().is_some() {
            sleep(Duration::from_millis(20));
            peer.send(OK);
        }
    });
    run(Plan { busy_poll, ..plan(server.address, 10) })
}

#[test]
fn polling_in_vain_is_told_apart_from_work() {
    let thread = slowly_answered(true).threads[0];
    // Of 200 ms at least, nearly all; those between the last poll in vain and the next are not counted.
    assert!(thread.polled > Duration::from_millis(100), "{thread:?}");
    assert!(thread.polled <= thread.window, "{thread:?}");
    assert!(thread.user + thread.system > Duration::ZERO, "{thread:?}");
}

#[test]
fn who_sleeps_does_not_poll() {
    let thread = slowly_answered(false).threads[0];
    assert_eq!(thread.polled, Duration::ZERO, "{thread:?}");
}

#[test]
fn the_last_moments_before_a_request_of_a_schedule_are_polled() {
    let server = Server::answering(OK);
    let thread = run(scheduled(server.address, 100, 500.0)).threads[0];
    // At most 80 us of each 2 ms, unless it was kept from its CPU meanwhile.
    assert!(thread.polled > Duration::ZERO, "{thread:?}");
    assert!(thread.polled < thread.window / 2, "{thread:?}");
}

#[test]
fn a_slack_needs_sleep() {
    let slack = Plan {
        busy_poll: true,
        timer_slack: Duration::from_millis(1),
        ..scheduled(closed_port(), 1, 10.0)
    };
    let reason = "busy polling never sleeps, and a timer slack is a sleep: choose one of them";
    assert_eq!(refused(slack), reason);
}
