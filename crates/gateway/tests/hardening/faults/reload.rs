//! Another configuration under load: no request is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{echo, is_echo};
use crate::caller::Caller;
use crate::served::Served;

const CLIENTS: usize = 8;

#[test]
fn reloading_under_load_loses_no_request() {
    reload_under_load(20_000);
}

#[test]
#[ignore = "it takes long; the test above does the same with a fifth of the requests"]
fn reloading_under_load_loses_none_of_a_hundred_thousand() {
    reload_under_load(100_000);
}

/// Half of the clients keep their connections, the other half opens one a request.
fn reload_under_load(requests: usize) {
    let backends = [echo(), echo()];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let gateway = Served::on_tcp(&addresses[..1]);
    let is_over = AtomicBool::new(false);
    let done = AtomicUsize::new(0);
    let ask = |client: usize| {
        let mut caller = Caller::connect(gateway.address()).unwrap();
        for number in 0..requests / CLIENTS {
            let path = format!("/{client}/{number}");
            let answer = caller.get(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(is_echo(&answer, &path), "to {path}: {answer:?}");
            if answer.is_last() || client.is_multiple_of(2) {
                caller = Caller::connect(gateway.address()).unwrap();
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let reloads = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || ask(client))).collect();
        let reloading = scope.spawn(|| {
            let mut reloads = 0;
            while !is_over.load(Ordering::Relaxed) {
                // The pool grows and shrinks.
                gateway.reload(&addresses[..1 + reloads % 2]);
                reloads += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            reloads
        });
        let outcomes: Vec<_> =
            clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        let reloads = reloading.join().unwrap();
        for outcome in outcomes {
            outcome.unwrap();
        }
        reloads
    });
    assert_eq!(done.into_inner(), requests / CLIENTS * CLIENTS);
    assert!(reloads >= 10, "only {reloads} reloads while it lasted");
    println!("{requests} requests, {reloads} reloads, none lost");
}
