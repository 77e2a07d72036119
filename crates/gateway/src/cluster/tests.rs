//! Load balancing, queues and health, by hand-derived values and by properties.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::health::CheckResults;
use super::*;
use crate::config::{Address, Backend, Balance, Ejection, HashBy, HealthCheck, HealthRequest};

fn backends(weights: &[u32]) -> Vec<Backend> {
    let backend = |(at, weight): (usize, &u32)| Backend {
        address: Address::Tcp(([127, 0, 0, 1], 9000 + u16::try_from(at).unwrap()).into()),
        weight: *weight,
        name: None,
        tls: None,
    };
    weights.iter().enumerate().map(backend).collect()
}

fn pool(balance: Balance, weights: &[u32]) -> Pool {
    Pool { balance, ..Pool::new("p", backends(weights)) }
}

fn by_hash() -> Balance {
    Balance::ConsistentHash { by: HashBy::Client }
}

fn state(pool: &Pool) -> PoolState<u32> {
    PoolState::new(pool, Arc::new(PoolHealth::new(pool, Instant::now())), 1)
}

fn key(number: u32) -> HashKey {
    HashKey::new(&number.to_be_bytes())
}

#[test]
fn keys_of_cookies_are_their_values() {
    for number in 0..100 {
        let value = key(number).cookie();
        assert_eq!(value.len(), 16);
        assert_eq!(HashKey::of_cookie(value.as_bytes()), key(number));
    }
    for value in ["", "0", "+000000000000001", "0000000000000001 ", "é234567890123456"] {
        assert_eq!(HashKey::of_cookie(value.as_bytes()), HashKey::new(value.as_bytes()), "{value}");
    }
}

/// The chosen backend of a pool with room.
fn choose(state: &mut PoolState<u32>, number: u32, attempts: &Attempts) -> usize {
    match state.choose(key(number), attempts, Instant::now()) {
        Choice::Backend(BackendId(at)) => at,
        other => panic!("{other:?}"),
    }
}

/// The backends of consecutive requests, each finished before the next.
fn turns(state: &mut PoolState<u32>, count: u32) -> Vec<usize> {
    let one = |number| {
        let at = choose(state, number, &Attempts::default());
        state.release(BackendId(at));
        at
    };
    (0..count).map(one).collect()
}

fn tried(backends: &[usize]) -> Attempts {
    let mut attempts = Attempts::default();
    backends.iter().for_each(|at| attempts.add(BackendId(*at)));
    attempts
}

#[test]
fn round_robin_is_smooth_like_nginx() {
    // The example in nginx's commit.
    let mut state = state(&pool(Balance::RoundRobin, &[5, 1, 1]));
    assert_eq!(turns(&mut state, 8), [0, 0, 1, 0, 2, 0, 0, 0]);
    let mut equal = self::state(&pool(Balance::RoundRobin, &[1, 0, 1]));
    assert_eq!(turns(&mut equal, 4), [0, 2, 0, 2]);
}

#[test]
fn least_connections_respects_weights() {
    let mut state = state(&pool(Balance::LeastConnections, &[1, 2]));
    // 1/1 or 1/2; 1/1 or 2/2: the heavier; 1/1 or 3/2; 2/1 or 3/2; 2/1 or 4/2.
    let next: Vec<usize> =
        (0..5).map(|number| choose(&mut state, number, &Attempts::default())).collect();
    assert_eq!(next, [1, 1, 0, 1, 1]);
    state.release(BackendId(0));
    assert_eq!(choose(&mut state, 5, &Attempts::default()), 0);
    // Idle backends take turns.
    let mut equal = self::state(&pool(Balance::LeastConnections, &[1, 1, 1]));
    assert_eq!(turns(&mut equal, 5), [0, 1, 2, 0, 1]);
}

#[test]
fn random_of_two_takes_less_loaded_backend() {
    let mut state = state(&pool(Balance::RandomOfTwo, &[1, 1]));
    let first = choose(&mut state, 0, &Attempts::default());
    // With two backends both are drawn.
    assert_eq!(choose(&mut state, 1, &Attempts::default()), 1 - first);

    let counts = |weights: &[u32]| {
        let mut state = self::state(&pool(Balance::RandomOfTwo, weights));
        let turns = turns(&mut state, 3_000);
        (0..weights.len())
            .map(|at| turns.iter().filter(|turn| **turn == at).count())
            .collect::<Vec<_>>()
    };
    let equal = counts(&[1, 1, 1]);
    assert!(equal.iter().all(|count| (900..1100).contains(count)), "{equal:?}");
    assert_eq!(equal, counts(&[1, 1, 1]), "the draws follow from the seed");
    assert_eq!(counts(&[1, 0, 0]), [3_000, 0, 0]);
}

#[test]
fn consistent_hash_shares_match_weights() {
    let mut state = state(&pool(by_hash(), &[1, 2, 1, 0]));
    let turns = turns(&mut state, 20_000);
    let count = |at| turns.iter().filter(|turn| **turn == at).count();
    // Four standard deviations of 20000 draws with the probability 1/4 are 245, with 1/2 283.
    assert!(count(0).abs_diff(5_000) < 245, "{}", count(0));
    assert!(count(1).abs_diff(10_000) < 283, "{}", count(1));
    assert!(count(2).abs_diff(5_000) < 245, "{}", count(2));
    assert_eq!(count(3), 0);
}

#[test]
fn consistent_hash_ignores_backend_order() {
    let forward = pool(by_hash(), &[1, 2, 3]);
    let mut backward = forward.clone();
    backward.backends.reverse();
    let (mut one, mut other) = (state(&forward), state(&backward));
    for number in 0..200 {
        let there = choose(&mut one, number, &Attempts::default());
        assert_eq!(choose(&mut other, number, &Attempts::default()), 2 - there);
    }
}

proptest! {
    #[test]
    fn round_robin_turns_match_weights(
        weights in prop::collection::vec(0_u32..20, 1..8),
        begin in 0_u32..50,
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let mut state = state(&pool(Balance::RoundRobin, &weights));
        turns(&mut state, begin);
        let round = turns(&mut state, weights.iter().sum());
        for (at, weight) in weights.iter().enumerate() {
            prop_assert_eq!(round.iter().filter(|turn| **turn == at).count(), *weight as usize);
        }
    }

    #[test]
    fn removing_a_backend_moves_only_its_keys(
        weights in prop::collection::vec(1_u32..5, 2..10),
        gone in any::<prop::sample::Index>(),
        numbers in prop::collection::vec(any::<u32>(), 50),
    ) {
        let gone = gone.index(weights.len());
        let mut state = state(&pool(by_hash(), &weights));
        for number in numbers {
            let with = choose(&mut state, number, &Attempts::default());
            let without = choose(&mut state, number, &tried(&[gone]));
            prop_assert_ne!(without, gone);
            prop_assert!(with == gone || with == without);
        }
    }

    #[test]
    fn limits_hold_and_queued_requests_are_served_in_order(
        balance in prop::sample::select(vec![
            Balance::RoundRobin, Balance::LeastConnections, Balance::RandomOfTwo, by_hash(),
        ]),
        weights in prop::collection::vec(0_u32..4, 1..5),
        active_max in 1_u32..4,
        queue_max in 0_usize..4,
        steps in prop::collection::vec((any::<bool>(), any::<u32>()), 1..200),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let mut pool = pool(balance, &weights);
        pool.connections_max = NonZeroU32::new(active_max);
        pool.queue_max = queue_max;
        let mut state = state(&pool);
        let now = Instant::now();
        let is_sticky = matches!(pool.balance, Balance::ConsistentHash { .. });
        let weighted = weights.iter().filter(|weight| **weight > 0).count();
        // The model: requests by backend, and requests by queue.
        let mut served: Vec<(usize, u32)> = Vec::new();
        let mut waiting: Vec<VecDeque<u32>> = vec![VecDeque::new(); weights.len()];
        for (number, (arrives, draw)) in (0_u32..).zip(steps) {
            if arrives {
                match state.choose(key(draw), &Attempts::default(), now) {
                    Choice::Backend(BackendId(at)) => served.push((at, number)),
                    Choice::Queue(queue) => {
                        state.enqueue(queue, number, key(draw), &Attempts::default());
                        waiting[queue.0].push_back(number);
                    }
                    Choice::QueueFull => {
                        for (at, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
                            prop_assert_eq!(state.active[at], active_max, "{}", weight);
                            let (queue, max) =
                                if is_sticky { (at, queue_max) } else { (0, queue_max * weighted) };
                            prop_assert_eq!(waiting[queue].len(), max);
                        }
                    }
                    Choice::NoBackend => prop_assert!(false, "all are up"),
                }
            } else if !served.is_empty() {
                let (at, _) = served.swap_remove(draw as usize % served.len());
                state.release(BackendId(at));
                let next = state.next(now);
                // The freed backend serves the oldest request of its queue.
                let expected = waiting[if is_sticky { at } else { 0 }].pop_front();
                prop_assert_eq!(next, expected.map(|number| (number, BackendId(at))));
                prop_assert_eq!(state.next(now), None);
                served.extend(next.map(|(number, _)| (at, number)));
            }
            for (at, weight) in weights.iter().enumerate() {
                let active = state.active[at];
                prop_assert!(active <= active_max * (*weight).min(1));
                prop_assert_eq!(active as usize, served.iter().filter(|served| served.0 == at).count());
            }
            for (at, queue) in waiting.iter().enumerate() {
                let len = if is_sticky || at == 0 { state.queues.len(QueueId(at)) } else { 0 };
                prop_assert_eq!(len, queue.len());
            }
        }
    }
}

#[test]
fn requests_wait_for_room_until_queue_is_full() {
    let mut pool = pool(Balance::RoundRobin, &[1, 1]);
    pool.connections_max = NonZeroU32::new(1);
    pool.queue_max = 1;
    let mut state = state(&pool);
    let now = Instant::now();
    let none = Attempts::default();
    assert_eq!((choose(&mut state, 0, &none), choose(&mut state, 1, &none)), (0, 1));
    // Two places for two backends; a backend that was tried does not count.
    for number in [2, 3] {
        assert_eq!(state.choose(key(number), &none, now), Choice::Queue(SHARED));
        state.enqueue(SHARED, number, key(number), &none);
        assert_eq!(state.choose(key(number), &tried(&[0]), now), Choice::QueueFull);
    }
    assert_eq!(state.choose(key(4), &none, now), Choice::QueueFull);
    assert_eq!(state.choose(key(4), &tried(&[0, 1]), now), Choice::NoBackend);

    assert_eq!(state.next(now), None);
    state.release(BackendId(1));
    assert_eq!(state.next(now), Some((2, BackendId(1))));
    assert_eq!(state.choose(key(5), &none, now), Choice::Queue(SHARED));
    state.enqueue(SHARED, 5, key(5), &none);
    assert!(state.dequeue(SHARED, &5));
    assert!(!state.dequeue(SHARED, &5));
    state.release(BackendId(1));
    assert_eq!(state.next(now), Some((3, BackendId(1))));
    state.release(BackendId(1));
    assert_eq!(state.next(now), None);
    assert_eq!(state.choose(key(6), &none, now), Choice::Backend(BackendId(1)));
}

/// A pool with room for one request per backend.
fn full(balance: Balance, backends: usize) -> Pool {
    let mut pool = pool(balance, &vec![1; backends]);
    pool.connections_max = NonZeroU32::new(1);
    pool
}

#[test]
fn queued_request_goes_to_first_free_untried_backend() {
    let mut state = state(&full(Balance::RoundRobin, 2));
    let (now, none) = (Instant::now(), Attempts::default());
    assert_eq!((choose(&mut state, 0, &none), choose(&mut state, 1, &none)), (0, 1));
    state.enqueue(SHARED, 2, key(2), &tried(&[0]));
    state.enqueue(SHARED, 3, key(3), &none);
    state.enqueue(SHARED, 4, key(4), &none);
    state.release(BackendId(0));
    assert_eq!(state.next(now), Some((3, BackendId(0))));
    state.release(BackendId(1));
    assert_eq!(state.next(now), Some((2, BackendId(1))));
    state.release(BackendId(1));
    assert_eq!(state.next(now), Some((4, BackendId(1))));
}

#[test]
fn queued_request_avoids_ejected_backend_unless_all_are_ejected() {
    let start = Instant::now();
    let mut pool = full(Balance::LeastConnections, 2);
    pool.eject = Some(Ejection { failures: 1, duration: Duration::from_secs(10) });
    let mut state = state(&pool);
    let none = Attempts::default();
    assert_eq!((choose(&mut state, 0, &none), choose(&mut state, 1, &none)), (0, 1));
    state.enqueue(SHARED, 2, key(2), &none);
    state.enqueue(SHARED, 3, key(3), &none);
    assert!(state.health.record_failure(0, start).ejects);
    state.release(BackendId(0));
    assert_eq!(state.next(start), None);
    // The ejection has ended; no release is needed.
    assert_eq!(state.next(start + Duration::from_secs(11)), Some((2, BackendId(0))));
    assert!(state.health.record_failure(1, start).ejects);
    state.release(BackendId(1));
    assert_eq!(state.next(start), Some((3, BackendId(1))));
}

#[test]
fn sticky_request_leaves_queue_of_ejected_backend() {
    let start = Instant::now();
    let mut pool = full(by_hash(), 3);
    pool.eject = Some(Ejection { failures: 1, duration: Duration::from_secs(10) });
    let mut state = state(&pool);
    let none = Attempts::default();
    let own = choose(&mut state, 7, &none);
    assert_eq!(state.choose(key(7), &none, start), Choice::Queue(QueueId(own)));
    state.enqueue(QueueId(own), 1, key(7), &none);
    state.enqueue(QueueId(own), 2, key(7), &none);
    // The other backends have room.
    assert_eq!(state.next(start), None);
    assert!(state.health.record_failure(own, start).ejects);
    let second = choose(&mut self::state(&pool), 7, &tried(&[own]));
    assert_eq!(state.next(start), Some((1, BackendId(second))));
    state.release(BackendId(own));
    let again = start + Duration::from_secs(11);
    assert_eq!(state.next(again), Some((2, BackendId(own))));
}

#[test]
fn sticky_request_moves_on_when_its_queue_is_full() {
    let mut pool = pool(by_hash(), &[1, 1, 1]);
    pool.connections_max = NonZeroU32::new(1);
    pool.queue_max = 1;
    let mut state = state(&pool);
    let (now, none) = (Instant::now(), Attempts::default());
    let own = choose(&mut state, 7, &none);
    assert_eq!(state.choose(key(7), &none, now), Choice::Queue(QueueId(own)));
    state.enqueue(QueueId(own), 1, key(7), &none);
    let second = choose(&mut state, 7, &none);
    assert_ne!(second, own);
    assert_eq!(choose(&mut self::state(&pool), 7, &tried(&[own])), second);
}

#[test]
fn consecutive_failures_eject_backend_for_a_while() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let mut pool = pool(Balance::RoundRobin, &[1, 1]);
    pool.eject = Some(Ejection { failures: 3, duration: Duration::from_secs(10) });
    let health = Arc::new(PoolHealth::new(&pool, start));
    let mut state: PoolState<u32> = PoolState::new(&pool, Arc::clone(&health), 1);
    let one = BackendId(0);
    assert!(
        !state.health.record_failure(one.0, start).ejects
            && !state.health.record_failure(one.0, start).ejects
    );
    state.health.record_success(one.0, start);
    assert!(
        !state.health.record_failure(one.0, start).ejects
            && !state.health.record_failure(one.0, start).ejects
    );
    assert_eq!(health.status(0, start), HealthStatus::Up);
    assert!(state.health.record_failure(one.0, after(1)).ejects);
    assert_eq!(health.status(0, after(10)), HealthStatus::Ejected);
    // A failure during the ejection does not prolong it.
    assert!(!state.health.record_failure(one.0, after(2)).ejects);
    for _ in 0..3 {
        let choice = state.choose(key(0), &Attempts::default(), after(10));
        assert_eq!(choice, Choice::Backend(BackendId(1)));
    }
    // An ejected backend is used if no other is left.
    let other_tried = tried(&[1]);
    assert_eq!(state.choose(key(0), &other_tried, after(10)), Choice::Backend(one));
    assert_eq!(health.status(0, after(11)), HealthStatus::Up);
    // After an ejection one failure is enough.
    assert!(state.health.record_failure(one.0, after(11)).ejects);
    assert_eq!(health.status(0, after(20)), HealthStatus::Ejected);
    assert_eq!(health.ejections(0), 2);
    state.health.record_success(one.0, start);
    assert!(!state.health.record_failure(one.0, after(21)).ejects);
}

#[test]
fn failed_health_checks_exclude_backend_until_it_recovers() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let checks = HealthCheck {
        request: Some(HealthRequest::get("/")),
        interval: second,
        timeout: second,
        rise: 2,
        fall: 3,
    };
    let mut pool = pool(Balance::RoundRobin, &[1, 1]);
    pool.health = Some(checks.clone());
    pool.eject = Some(Ejection { failures: 1, duration: Duration::from_secs(60) });
    let health = Arc::new(PoolHealth::new(&pool, now));
    let mut state: PoolState<u32> = PoolState::new(&pool, Arc::clone(&health), 1);
    health.set_down(0, true, now);
    assert_eq!(state.choose(key(0), &Attempts::default(), now), Choice::Backend(BackendId(1)));
    assert_eq!(state.choose(key(0), &tried(&[1]), now), Choice::NoBackend);
    assert!(state.health.record_failure(0, now).ejects);
    health.set_down(0, false, now);
    assert_eq!(health.status(0, now), HealthStatus::Up);

    let mut results = CheckResults::new(&checks, true);
    let changes: Vec<bool> =
        [false, false, true, false, false, false].map(|good| results.add(good)).into();
    assert_eq!(changes, [false, false, false, false, false, true]);
    assert!(!results.is_up());
    assert_eq!(
        [true, false, true, true].map(|good| results.add(good)),
        [false, false, false, true]
    );
    assert!(results.is_up());
}

#[test]
fn new_configuration_inherits_health() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let second = Duration::from_secs(1);
    let checks = HealthCheck {
        request: Some(HealthRequest::get("/")),
        interval: second,
        timeout: second,
        rise: 2,
        fall: 3,
    };
    let mut pool = pool(Balance::RoundRobin, &[1, 1]);
    pool.health = Some(checks);
    pool.eject = Some(Ejection { failures: 1, duration: Duration::from_secs(10) });
    let old = PoolHealth::new(&pool, start);
    old.set_down(0, true, start);
    assert!(old.record_failure(1, after(1)).ejects);
    let new = PoolHealth::new(&pool, after(5));
    new.inherit(1, &old, 0, after(5));
    new.inherit(0, &old, 1, after(5));
    assert_eq!(new.status(1, after(5)), HealthStatus::Down);
    assert_eq!(new.status(0, after(10)), HealthStatus::Ejected);
    assert_eq!(new.status(0, after(11)), HealthStatus::Up);
    assert_eq!(new.ejections(0), 1);
    // Without checks it could never come up again.
    pool.health = None;
    let unchecked = PoolHealth::new(&pool, after(5));
    unchecked.inherit(0, &old, 0, after(5));
    assert_eq!(unchecked.status(0, after(5)), HealthStatus::Up);
}

#[test]
fn recovered_backend_starts_slowly() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    for balance in [Balance::RoundRobin, Balance::LeastConnections, Balance::RandomOfTwo, by_hash()]
    {
        let mut pool = pool(balance, &[1, 1]);
        pool.slow_start = Some(Duration::from_secs(10));
        pool.eject = Some(Ejection { failures: 1, duration: Duration::from_secs(5) });
        let health = Arc::new(PoolHealth::new(&pool, start));
        let mut state: PoolState<u32> = PoolState::new(&pool, Arc::clone(&health), 1);
        // Requests of 1000 to the second backend, all of which stay active.
        let mut share = |now| {
            let chosen = (0..1000).map(|number| {
                match state.choose(key(number), &Attempts::default(), now) {
                    Choice::Backend(id) => id,
                    other => panic!("{other:?}"),
                }
            });
            let chosen: Vec<BackendId> = chosen.collect();
            chosen.iter().for_each(|id| state.release(*id));
            chosen.iter().filter(|id| id.0 == 1).count()
        };
        // At the start no backend is slower than another.
        let balance = &pool.balance;
        assert!((450..=550).contains(&share(start)), "{balance:?}");
        assert!(health.record_failure(1, start).ejects);
        assert_eq!(share(after(4)), 0, "{balance:?}");
        // 1, 50 and 100 % of its weight.
        assert!((1..=30).contains(&share(after(5))), "{balance:?}");
        assert!((280..=390).contains(&share(after(10))), "{balance:?}");
        assert!((450..=550).contains(&share(after(15))), "{balance:?}");
        // Likewise after failed checks, and as a new address.
        health.set_down(1, true, after(20));
        health.set_down(1, false, after(21));
        assert!((1..=30).contains(&share(after(21))), "{balance:?}");
        let inherited = PoolHealth::new(&pool, after(26));
        inherited.inherit(0, &health, 1, after(26));
        inherited.start_slowly(1, after(26));
        assert_eq!([0, 1].map(|at| inherited.share(at, after(26))), [50, 1]);
        assert_eq!([0, 1].map(|at| inherited.share(at, after(31))), [100, 50]);
        // In a shorter slow start the remaining time is shorter, too.
        let mut shorter = pool.clone();
        shorter.slow_start = Some(Duration::from_secs(2));
        let reloaded = PoolHealth::new(&shorter, after(26));
        reloaded.inherit(0, &inherited, 1, after(26));
        assert_eq!([26, 27, 28].map(|at| reloaded.share(0, after(at))), [1, 50, 100]);
    }
}
