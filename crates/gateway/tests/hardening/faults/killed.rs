//! Backends that die under load.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_gateway::config::Address;

use super::{echo, echo_of, is_echo, serve_echo};
use crate::backend::{Backend, path, read_head};
use crate::caller::{Caller, is_broken_off};
use crate::served::Served;

const CLIENTS: usize = 8;
const REQUESTS_OF_A_CLIENT: usize = 500;

/// What came of the requests of some clients.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    /// Refused in an orderly way.
    bad_gateway: usize,
    /// The connection ended in the middle of an answer, which had begun before.
    broken_off: usize,
}

#[test]
fn when_one_of_two_backends_is_killed_the_other_answers_and_no_answer_is_mixed_up() {
    let (one, other) = (echo(), echo());
    let gateway = Served::before_all(&[one.address, other.address]);
    let done = AtomicUsize::new(0);
    let tally = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (gateway, done) = (&gateway, &done);
                scope.spawn(move || ask_in_turn("GET", client, gateway.address(), done))
            })
            .collect();
        wait_for(&done, CLIENTS * REQUESTS_OF_A_CLIENT / 3);
        one.kill();
        Tally::sum(clients.into_iter().map(|client| client.join().unwrap()))
    });
    // A GET may be asked again elsewhere, unless its answer had begun when the backend died.
    assert_eq!(tally.bad_gateway, 0, "{tally:?}");
    assert!(tally.broken_off <= CLIENTS, "{tally:?}");
    assert_eq!(tally.answered + tally.broken_off, CLIENTS * REQUESTS_OF_A_CLIENT);
}

#[test]
fn a_post_reaches_a_backend_at_most_once_however_it_dies() {
    let seen: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let backend = || {
        let seen = Arc::clone(&seen);
        Backend::start(move |mut stream| {
            while let Some(head) = read_head(&mut stream) {
                *seen.lock().unwrap().entry(path(&head).to_owned()).or_default() += 1;
                if stream.write_all(&echo_of(path(&head))).is_err() {
                    return;
                }
            }
        })
    };
    let (one, other) = (backend(), backend());
    let gateway = Served::before_all(&[one.address, other.address]);
    let done = AtomicUsize::new(0);
    let tally = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (gateway, done) = (&gateway, &done);
                scope.spawn(move || ask_in_turn("POST", client, gateway.address(), done))
            })
            .collect();
        wait_for(&done, CLIENTS * REQUESTS_OF_A_CLIENT / 3);
        one.kill();
        Tally::sum(clients.into_iter().map(|client| client.join().unwrap()))
    });
    // Each client has had one request under way at most, and each of its connections one.
    let lost = tally.bad_gateway + tally.broken_off;
    assert!(lost <= CLIENTS, "{tally:?}");
    assert_eq!(tally.answered + lost, CLIENTS * REQUESTS_OF_A_CLIENT);
    let seen = seen.lock().unwrap();
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "sent again: {twice:?}");
}

#[test]
fn when_all_backends_are_dead_each_request_is_refused_at_once_until_one_is_back() {
    let (one, other) = (echo(), echo());
    let addresses = [one.address, other.address];
    let gateway = Served::before_all(&addresses);
    let mut client = Caller::connect(gateway.address()).unwrap();
    for path in ["/first", "/second"] {
        assert!(is_echo(&client.get(path).unwrap(), path));
    }
    one.kill();
    other.kill();
    for _ in 0..20 {
        let mut client = Caller::connect(gateway.address()).unwrap();
        let answer = client.get("/nobody").unwrap();
        assert!(matches!(answer.status, 502 | 503), "{answer:?}");
    }
    let _back = Backend::at(addresses[1], serve_echo);
    let mut client = Caller::connect(gateway.address()).unwrap();
    assert!(is_echo(&client.get("/back").unwrap(), "/back"));
}

#[test]
fn a_backend_that_closes_after_each_answer_costs_no_request() {
    let backend = Backend::start(|mut stream: TcpStream| {
        if let Some(head) = read_head(&mut stream) {
            // Without a word that it will: the gateway finds a connection closed that it had kept.
            stream.write_all(&echo_of(path(&head))).unwrap();
        }
    });
    let gateway = Served::before(backend.address);
    let mut client = Caller::connect(gateway.address()).unwrap();
    for number in 0..300 {
        let path = format!("/{number}");
        assert!(is_echo(&client.get(&path).unwrap(), &path), "{path}");
    }
}

/// One request after the other, each with an answer of its own, on a connection that is opened again
/// where one ended.
fn ask_in_turn(method: &str, client: usize, gateway: &Address, done: &AtomicUsize) -> Tally {
    let mut tally = Tally::default();
    let mut caller = Caller::connect(gateway).unwrap();
    for number in 0..REQUESTS_OF_A_CLIENT {
        let path = format!("/{client}/{number}");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let is_last = match caller.ask(request.as_bytes()) {
            Ok(answer) if answer.status == 502 => {
                tally.bad_gateway += 1;
                answer.is_last()
            }
            Ok(answer) => {
                assert!(is_echo(&answer, &path), "to {path}: {answer:?}");
                tally.answered += 1;
                answer.is_last()
            }
            Err(error) => {
                assert!(is_broken_off(&error), "{path}: {error}");
                tally.broken_off += 1;
                true
            }
        };
        if is_last {
            caller = Caller::connect(gateway).unwrap();
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    tally
}

fn wait_for(done: &AtomicUsize, count: usize) {
    while done.load(Ordering::Relaxed) < count {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Tally {
    fn sum(tallies: impl Iterator<Item = Self>) -> Self {
        tallies.fold(Self::default(), |sum, tally| Self {
            answered: sum.answered + tally.answered,
            bad_gateway: sum.bad_gateway + tally.bad_gateway,
            broken_off: sum.broken_off + tally.broken_off,
        })
    }
}
