//! Choices among backends, by values that were worked out by hand and by what holds for all.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::config::{ActiveHealth, Address, Backend, Balance, Ejection, HashBy};

fn backends(weights: &[u32]) -> Vec<Backend> {
    let backend = |(at, weight): (usize, &u32)| Backend {
        address: Address::Tcp(([127, 0, 0, 1], 9000 + u16::try_from(at).unwrap()).into()),
        weight: *weight,
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
    let health =
        PoolHealth::new(pool.backends.len(), pool.health.as_ref(), pool.eject, Instant::now());
    PoolState::new(pool, Arc::new(health), 1)
}

fn key(number: u32) -> Key {
    Key::new(&number.to_be_bytes())
}

/// The next backend of a pool that has room.
fn go(state: &mut PoolState<u32>, number: u32, tried: &Tried) -> usize {
    match state.choose(key(number), tried, Instant::now()) {
        Choice::Go(BackendId(at)) => at,
        other => panic!("{other:?}"),
    }
}

/// The backends of so many requests, each over before the next.
fn turns(state: &mut PoolState<u32>, count: u32) -> Vec<usize> {
    let one = |number| {
        let at = go(state, number, &Tried::default());
        state.release(BackendId(at));
        at
    };
    (0..count).map(one).collect()
}

fn tried(backends: &[usize]) -> Tried {
    let mut tried = Tried::default();
    backends.iter().for_each(|at| tried.add(BackendId(*at)));
    tried
}

#[test]
fn turns_are_as_smooth_as_those_of_nginx() {
    // The example of the commit that brought it to nginx.
    let mut state = state(&pool(Balance::RoundRobin, &[5, 1, 1]));
    assert_eq!(turns(&mut state, 8), [0, 0, 1, 0, 2, 0, 0, 0]);
    let mut equal = self::state(&pool(Balance::RoundRobin, &[1, 0, 1]));
    assert_eq!(turns(&mut equal, 4), [0, 2, 0, 2]);
}

#[test]
fn who_has_least_to_do_for_its_weight_is_next() {
    let mut state = state(&pool(Balance::LeastConnections, &[1, 2]));
    // 1/1 or 1/2; 1/1 or 2/2, of which the heavier; 1/1 or 3/2; 2/1 or 3/2; 2/1 or 4/2.
    let next: Vec<usize> = (0..5).map(|number| go(&mut state, number, &Tried::default())).collect();
    assert_eq!(next, [1, 1, 0, 1, 1]);
    state.release(BackendId(0));
    assert_eq!(go(&mut state, 5, &Tried::default()), 0);
    // Those that have nothing to do take turns.
    let mut equal = self::state(&pool(Balance::LeastConnections, &[1, 1, 1]));
    assert_eq!(turns(&mut equal, 5), [0, 1, 2, 0, 1]);
}

#[test]
fn of_two_that_are_drawn_the_one_with_less_to_do_is_next() {
    let mut state = state(&pool(Balance::RandomOfTwo, &[1, 1]));
    let first = go(&mut state, 0, &Tried::default());
    // With two backends both are drawn.
    assert_eq!(go(&mut state, 1, &Tried::default()), 1 - first);

    let counts = |weights: &[u32]| {
        let mut state = self::state(&pool(Balance::RandomOfTwo, weights));
        let turns = turns(&mut state, 3_000);
        (0..weights.len())
            .map(|at| turns.iter().filter(|it| **it == at).count())
            .collect::<Vec<_>>()
    };
    let equal = counts(&[1, 1, 1]);
    assert!(equal.iter().all(|count| (900..1100).contains(count)), "{equal:?}");
    assert_eq!(equal, counts(&[1, 1, 1]), "the same seed draws the same");
    assert_eq!(counts(&[1, 0, 0]), [3_000, 0, 0]);
}

#[test]
fn a_share_of_the_keys_is_that_of_the_weight() {
    let mut state = state(&pool(by_hash(), &[1, 2, 1, 0]));
    let turns = turns(&mut state, 20_000);
    let count = |at| turns.iter().filter(|it| **it == at).count();
    // Four standard deviations of 20000 draws with the probability 1/4 are 245, with 1/2 283.
    assert!(count(0).abs_diff(5_000) < 245, "{}", count(0));
    assert!(count(1).abs_diff(10_000) < 283, "{}", count(1));
    assert!(count(2).abs_diff(5_000) < 245, "{}", count(2));
    assert_eq!(count(3), 0);
}

#[test]
fn the_order_of_backends_does_not_move_a_key() {
    let forward = pool(by_hash(), &[1, 2, 3]);
    let mut backward = forward.clone();
    backward.backends.reverse();
    let (mut one, mut other) = (state(&forward), state(&backward));
    for number in 0..200 {
        let there = go(&mut one, number, &Tried::default());
        assert_eq!(go(&mut other, number, &Tried::default()), 2 - there);
    }
}

proptest! {
    #[test]
    fn each_gets_as_many_turns_as_its_weight_is(
        weights in prop::collection::vec(0_u32..20, 1..8),
        begin in 0_u32..50,
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let mut state = state(&pool(Balance::RoundRobin, &weights));
        turns(&mut state, begin);
        let round = turns(&mut state, weights.iter().sum());
        for (at, weight) in weights.iter().enumerate() {
            prop_assert_eq!(round.iter().filter(|it| **it == at).count(), *weight as usize);
        }
    }

    #[test]
    fn only_the_keys_of_a_backend_that_is_gone_move(
        weights in prop::collection::vec(1_u32..5, 2..10),
        gone in any::<prop::sample::Index>(),
        numbers in prop::collection::vec(any::<u32>(), 50),
    ) {
        let gone = gone.index(weights.len());
        let mut state = state(&pool(by_hash(), &weights));
        for number in numbers {
            let with = go(&mut state, number, &Tried::default());
            let without = go(&mut state, number, &tried(&[gone]));
            prop_assert_ne!(without, gone);
            prop_assert!(with == gone || with == without);
        }
    }

    #[test]
    fn nobody_is_given_more_than_it_has_room_for_and_nobody_waits_for_ever(
        way in prop::sample::select(vec![
            Balance::RoundRobin, Balance::LeastConnections, Balance::RandomOfTwo, by_hash(),
        ]),
        weights in prop::collection::vec(0_u32..4, 1..5),
        busy_max in 1_u32..4,
        queue_max in 0_usize..4,
        steps in prop::collection::vec((any::<bool>(), any::<u32>()), 1..200),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let mut pool = pool(way, &weights);
        pool.connections_max = NonZeroU32::new(busy_max);
        pool.queue_max = queue_max;
        let mut state = state(&pool);
        let now = Instant::now();
        let is_sticky = matches!(pool.balance, Balance::ConsistentHash { .. });
        let weighted = weights.iter().filter(|weight| **weight > 0).count();
        // What should be: who is served by whom, and who waits where.
        let mut served: Vec<(usize, u32)> = Vec::new();
        let mut waiting: Vec<VecDeque<u32>> = vec![VecDeque::new(); weights.len()];
        for (number, (arrives, draw)) in (0_u32..).zip(steps) {
            if arrives {
                match state.choose(key(draw), &Tried::default(), now) {
                    Choice::Go(BackendId(at)) => served.push((at, number)),
                    Choice::Wait(lane) => {
                        state.wait(lane, number, key(draw), Tried::default());
                        waiting[lane.0].push_back(number);
                    }
                    Choice::Full => {
                        for (at, weight) in weights.iter().enumerate().filter(|it| *it.1 > 0) {
                            prop_assert_eq!(state.busy[at], busy_max, "{}", weight);
                            let (lane, most) =
                                if is_sticky { (at, queue_max) } else { (0, queue_max * weighted) };
                            prop_assert_eq!(waiting[lane].len(), most);
                        }
                    }
                    Choice::Nobody => prop_assert!(false, "all are well"),
                }
            } else if !served.is_empty() {
                let (at, _) = served.swap_remove(draw as usize % served.len());
                state.release(BackendId(at));
                let next = state.next(now);
                // Whoever is free takes who has waited longest, for it or for any.
                let expected = waiting[if is_sticky { at } else { 0 }].pop_front();
                prop_assert_eq!(next, expected.map(|number| (number, BackendId(at))));
                prop_assert_eq!(state.next(now), None);
                served.extend(next.map(|(number, _)| (at, number)));
            }
            for (at, weight) in weights.iter().enumerate() {
                let busy = state.busy[at];
                prop_assert!(busy <= busy_max * (*weight).min(1));
                prop_assert_eq!(busy as usize, served.iter().filter(|it| it.0 == at).count());
            }
            for (at, queue) in waiting.iter().enumerate() {
                let len = if is_sticky || at == 0 { state.queues.len(Lane(at)) } else { 0 };
                prop_assert_eq!(len, queue.len());
            }
        }
    }
}

#[test]
fn who_finds_no_room_waits_and_who_finds_no_place_to_wait_is_refused() {
    let mut pool = pool(Balance::RoundRobin, &[1, 1]);
    pool.connections_max = NonZeroU32::new(1);
    pool.queue_max = 1;
    let mut state = state(&pool);
    let now = Instant::now();
    let none = Tried::default();
    assert_eq!((go(&mut state, 0, &none), go(&mut state, 1, &none)), (0, 1));
    // Two places for two backends, of which one is not waited for once it was tried.
    for number in [2, 3] {
        assert_eq!(state.choose(key(number), &none, now), Choice::Wait(SHARED));
        state.wait(SHARED, number, key(number), none);
        assert_eq!(state.choose(key(number), &tried(&[0]), now), Choice::Full);
    }
    assert_eq!(state.choose(key(4), &none, now), Choice::Full);
    assert_eq!(state.choose(key(4), &tried(&[0, 1]), now), Choice::Nobody);

    assert_eq!(state.next(now), None);
    state.release(BackendId(1));
    assert_eq!(state.next(now), Some((2, BackendId(1))));
    assert_eq!(state.choose(key(5), &none, now), Choice::Wait(SHARED));
    state.wait(SHARED, 5, key(5), none);
    assert!(state.leave(SHARED, &5));
    assert!(!state.leave(SHARED, &5));
    state.release(BackendId(1));
    assert_eq!(state.next(now), Some((3, BackendId(1))));
    state.release(BackendId(1));
    assert_eq!(state.next(now), None);
    assert_eq!(state.choose(key(6), &none, now), Choice::Go(BackendId(1)));
}

/// A pool of so many backends with room for one request each, all of which have one.
fn full(balance: Balance, backends: usize) -> Pool {
    let mut pool = pool(balance, &vec![1; backends]);
    pool.connections_max = NonZeroU32::new(1);
    pool
}

#[test]
fn who_waits_goes_to_whichever_backend_is_free_first_but_not_where_it_has_failed() {
    let mut state = state(&full(Balance::RoundRobin, 2));
    let (now, none) = (Instant::now(), Tried::default());
    assert_eq!((go(&mut state, 0, &none), go(&mut state, 1, &none)), (0, 1));
    state.wait(SHARED, 2, key(2), tried(&[0]));
    state.wait(SHARED, 3, key(3), none);
    state.wait(SHARED, 4, key(4), none);
    state.release(BackendId(0));
    assert_eq!(state.next(now), Some((3, BackendId(0))));
    state.release(BackendId(1));
    assert_eq!(state.next(now), Some((2, BackendId(1))));
    state.release(BackendId(1));
    assert_eq!(state.next(now), Some((4, BackendId(1))));
}

#[test]
fn who_waits_is_not_given_to_a_backend_that_is_left_alone_unless_all_are() {
    let start = Instant::now();
    let mut pool = full(Balance::LeastConnections, 2);
    pool.eject = Some(Ejection { failures: 1, for_time: Duration::from_secs(10) });
    let mut state = state(&pool);
    let none = Tried::default();
    assert_eq!((go(&mut state, 0, &none), go(&mut state, 1, &none)), (0, 1));
    state.wait(SHARED, 2, key(2), none);
    state.wait(SHARED, 3, key(3), none);
    assert!(state.failed(BackendId(0), start));
    state.release(BackendId(0));
    assert_eq!(state.next(start), None);
    // When its time is over, it is asked again, though nobody was released since.
    assert_eq!(state.next(start + Duration::from_secs(11)), Some((2, BackendId(0))));
    assert!(state.failed(BackendId(1), start));
    state.release(BackendId(1));
    assert_eq!(state.next(start), Some((3, BackendId(1))));
}

#[test]
fn requests_that_belong_together_leave_the_queue_of_their_backend_only_when_it_is_well_no_more() {
    let start = Instant::now();
    let mut pool = full(by_hash(), 3);
    pool.eject = Some(Ejection { failures: 1, for_time: Duration::from_secs(10) });
    let mut state = state(&pool);
    let none = Tried::default();
    let own = go(&mut state, 7, &none);
    assert_eq!(state.choose(key(7), &none, start), Choice::Wait(Lane(own)));
    state.wait(Lane(own), 1, key(7), none);
    state.wait(Lane(own), 2, key(7), none);
    // Others have room.
    assert_eq!(state.next(start), None);
    assert!(state.failed(BackendId(own), start));
    let second = go(&mut self::state(&pool), 7, &tried(&[own]));
    assert_eq!(state.next(start), Some((1, BackendId(second))));
    state.release(BackendId(own));
    let again = start + Duration::from_secs(11);
    assert_eq!(state.next(again), Some((2, BackendId(own))));
}

#[test]
fn requests_that_belong_together_wait_for_their_backend_and_leave_it_only_when_its_queue_is_full() {
    let mut pool = pool(by_hash(), &[1, 1, 1]);
    pool.connections_max = NonZeroU32::new(1);
    pool.queue_max = 1;
    let mut state = state(&pool);
    let (now, none) = (Instant::now(), Tried::default());
    let own = go(&mut state, 7, &none);
    assert_eq!(state.choose(key(7), &none, now), Choice::Wait(Lane(own)));
    state.wait(Lane(own), 1, key(7), none);
    let second = go(&mut state, 7, &none);
    assert_ne!(second, own);
    assert_eq!(go(&mut self::state(&pool), 7, &tried(&[own])), second);
}

#[test]
fn who_fails_so_often_in_a_row_is_left_alone_for_a_time() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let mut pool = pool(Balance::RoundRobin, &[1, 1]);
    pool.eject = Some(Ejection { failures: 3, for_time: Duration::from_secs(10) });
    let health = Arc::new(PoolHealth::new(2, None, pool.eject, start));
    let mut state: PoolState<u32> = PoolState::new(&pool, Arc::clone(&health), 1);
    let one = BackendId(0);
    assert!(!state.failed(one, start) && !state.failed(one, start));
    state.succeeded(one);
    assert!(!state.failed(one, start) && !state.failed(one, start));
    assert_eq!(health.standing(0, start), Standing::Well);
    assert!(state.failed(one, after(1)));
    assert_eq!(health.standing(0, after(10)), Standing::Ejected);
    // What fails while it is left alone, from before, does not prolong that.
    assert!(!state.failed(one, after(2)));
    for _ in 0..3 {
        let choice = state.choose(key(0), &Tried::default(), after(10));
        assert_eq!(choice, Choice::Go(BackendId(1)));
    }
    // Who is only left alone is asked when there is nobody else.
    let other_tried = tried(&[1]);
    assert_eq!(state.choose(key(0), &other_tried, after(10)), Choice::Go(one));
    assert_eq!(health.standing(0, after(11)), Standing::Well);
    // It is back on trial.
    assert!(state.failed(one, after(11)));
    assert_eq!(health.standing(0, after(20)), Standing::Ejected);
    assert_eq!(health.ejections(0), 2);
    state.succeeded(one);
    assert!(!state.failed(one, after(21)));
}

#[test]
fn who_fails_the_checks_gets_nothing_until_they_bring_it_back() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let checks =
        ActiveHealth { path: "/".to_owned(), interval: second, timeout: second, rise: 2, fall: 3 };
    let mut pool = pool(Balance::RoundRobin, &[1, 1]);
    pool.health = Some(checks.clone());
    pool.eject = Some(Ejection { failures: 1, for_time: Duration::from_secs(60) });
    let health = Arc::new(PoolHealth::new(2, Some(&checks), pool.eject, now));
    let mut state: PoolState<u32> = PoolState::new(&pool, Arc::clone(&health), 1);
    health.set_down(0, true);
    assert_eq!(state.choose(key(0), &Tried::default(), now), Choice::Go(BackendId(1)));
    assert_eq!(state.choose(key(0), &tried(&[1]), now), Choice::Nobody);
    assert!(state.failed(BackendId(0), now));
    health.set_down(0, false);
    assert_eq!(health.standing(0, now), Standing::Well);

    let mut checked = Checked::new(&checks, true);
    let shown: Vec<bool> =
        [false, false, true, false, false, false].map(|good| checked.add(good)).into();
    assert_eq!(shown, [false, false, false, false, false, true]);
    assert!(!checked.is_up());
    assert_eq!(
        [true, false, true, true].map(|good| checked.add(good)),
        [false, false, false, true]
    );
    assert!(checked.is_up());
}

#[test]
fn a_new_configuration_takes_over_what_is_known() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let second = Duration::from_secs(1);
    let checks =
        ActiveHealth { path: "/".to_owned(), interval: second, timeout: second, rise: 2, fall: 3 };
    let eject = Some(Ejection { failures: 1, for_time: Duration::from_secs(10) });
    let old = PoolHealth::new(2, Some(&checks), eject, start);
    old.set_down(0, true);
    assert!(old.failed(1, after(1)));
    let new = PoolHealth::new(2, Some(&checks), eject, after(5));
    new.take_over(1, &old, 0, after(5));
    new.take_over(0, &old, 1, after(5));
    assert_eq!(new.standing(1, after(5)), Standing::Down);
    assert_eq!(new.standing(0, after(10)), Standing::Ejected);
    assert_eq!(new.standing(0, after(11)), Standing::Well);
    assert_eq!(new.ejections(0), 1);
    // Without checks nobody would bring it back.
    let unchecked = PoolHealth::new(1, None, eject, after(5));
    unchecked.take_over(0, &old, 0, after(5));
    assert_eq!(unchecked.standing(0, after(5)), Standing::Well);
}
