use std::collections::HashMap;
use std::thread;

use proptest::prelude::*;

use super::*;

const LARGE: CollectionLimits = CollectionLimits { entries: 1 << 20, bytes: 1 << 30 };

fn open(collections: &Arc<Collections>, key: &str, now: u64) -> Opened {
    Opened::new(collections, (Variable::Ip, "default", key.as_bytes()), 3600, now)
}

fn text(opened: &Opened, name: &str, now: u64) -> Option<String> {
    opened.value(name.as_bytes(), now).map(|value| String::from_utf8(value).expect("UTF-8"))
}

/// The facts about a collection, in the order of the manual.
fn facts(opened: &Opened, now: u64) -> Vec<Option<String>> {
    const NAMES: [&str; 7] = [
        "create_time",
        "is_new",
        "key",
        "last_update_time",
        "timeout",
        "update_counter",
        "update_rate",
    ];
    NAMES.iter().map(|name| text(opened, name, now)).collect()
}

#[test]
fn facts_are_those_at_the_opening() {
    let collections = Arc::new(Collections::new(LARGE));
    let some =
        |values: [&str; 7]| values.map(|value| (value != "-").then(|| value.to_owned())).to_vec();
    let mut first = open(&collections, "a", 1000);
    let new = some(["1000", "1", "a", "-", "3600", "0", "0"]);
    assert_eq!(facts(&first, 1000), new);
    // A collection that nobody writes is not kept.
    assert_eq!(facts(&open(&collections, "a", 1000), 1000), new);
    for name in ["x", "y"] {
        assert_eq!(first.write(name.as_bytes(), Write::Add(1), 1001), Ok(()));
    }
    assert_eq!(facts(&first, 1001), new);
    // One update; 60 * 1 / 20 a minute.
    let mut second = open(&collections, "a", 1021);
    assert_eq!(facts(&second, 1021), some(["1001", "0", "a", "1001", "3600", "1", "3"]));
    assert_eq!(second.write(b"x", Write::Set(b"2"), 1021), Ok(()));
    // 60 * 2 / 120 a minute.
    let third = open(&collections, "a", 1121);
    assert_eq!(facts(&third, 1121), some(["1001", "0", "a", "1021", "3600", "2", "1"]));
    assert_eq!(
        third.values(1121),
        [(b"x".to_vec(), b"2".to_vec()), (b"y".to_vec(), b"1".to_vec())]
    );
}

#[test]
fn collection_ends_after_its_timeout_without_update() {
    let collections = Arc::new(Collections::new(LARGE));
    let value = |now| text(&open(&collections, "a", now), "x", now);
    open(&collections, "a", 0).write(b"x", Write::Set(b"1"), 0).expect("fits");
    open(&collections, "a", 3000).write(b"y", Write::Set(b"1"), 3000).expect("fits");
    assert_eq!(value(6599).as_deref(), Some("1"));
    assert_eq!((value(6600), collections.usage().entries), (None, 0));
    // A rule sets the timeout.
    open(&collections, "a", 0).write(b"x", Write::Set(b"1"), 0).expect("fits");
    open(&collections, "a", 0).write(b"timeout", Write::Set(b"10"), 0).expect("fits");
    assert_eq!((value(9).as_deref(), value(10)), (Some("1"), None));
}

#[test]
fn values_expire_by_themselves() {
    let collections = Arc::new(Collections::new(LARGE));
    let mut opened = open(&collections, "a", 0);
    for (name, write) in [
        ("x", Write::Set(b"5")),
        ("y", Write::Set(b"1")),
        ("x", Write::Expire(60)),
        // Without effect, as it is not set.
        ("z", Write::Expire(60)),
        // Like ModSecurity, a new value expires when the old one would have.
        ("x", Write::Add(1)),
    ] {
        assert_eq!(opened.write(name.as_bytes(), write, 0), Ok(()));
    }
    assert_eq!(text(&opened, "x", 59).as_deref(), Some("6"));
    assert_eq!((text(&opened, "x", 60), opened.values(60).len()), (None, 1));
    // It begins anew, and has no end.
    assert_eq!(opened.write(b"x", Write::Add(1), 60), Ok(()));
    assert_eq!(text(&opened, "x", 1000).as_deref(), Some("1"));
    assert_eq!(opened.write(b"x", Write::Unset, 60), Ok(()));
    assert_eq!(text(&opened, "x", 60), None);
}

#[test]
fn values_fall_by_whole_periods_down_to_zero() {
    let collections = Arc::new(Collections::new(LARGE));
    let mut opened = open(&collections, "a", 0);
    let by = Write::Deprecate { amount: 10, period: 300 };
    let mut step = |write: Write<'_>, now: u64| {
        assert_eq!(opened.write(b"x", write, now), Ok(()));
        text(&opened, "x", now)
    };
    assert_eq!(step(by, 0), None);
    assert_eq!(step(Write::Set(b"35"), 100).as_deref(), Some("35"));
    for (now, expected) in [(399, "35"), (400, "25"), (401, "25"), (699, "25"), (1000, "5")] {
        assert_eq!(step(by, now).as_deref(), Some(expected), "{now}");
    }
    // Adding does not delay it, unless there was nothing left.
    assert_eq!(step(Write::Add(6), 1100).as_deref(), Some("11"));
    assert_eq!(step(by, 1300).as_deref(), Some("1"));
    assert_eq!(step(by, 1600).as_deref(), Some("0"));
    assert_eq!(step(Write::Add(20), 1899).as_deref(), Some("20"));
    assert_eq!(step(by, 1901).as_deref(), Some("20"));
    assert_eq!(step(by, 2199).as_deref(), Some("10"));
    // Neither a negative value nor a period of 0 changes anything.
    assert_eq!(step(Write::Set(b"-5"), 2200).as_deref(), Some("-5"));
    assert_eq!(step(by, 5000).as_deref(), Some("-5"));
    assert_eq!(step(Write::Set(b"5"), 5000).as_deref(), Some("5"));
    assert_eq!(step(Write::Deprecate { amount: 1, period: 0 }, 5100).as_deref(), Some("5"));
}

#[test]
fn kinds_applications_and_keys_are_apart() {
    let collections = Arc::new(Collections::new(LARGE));
    let ids: [(Variable, &str, &[u8]); 5] = [
        (Variable::Ip, "a", b"bc"),
        (Variable::Ip, "ab", b"c"),
        (Variable::Ip, "a", b"BC"),
        (Variable::Session, "a", b"bc"),
        (Variable::Global, "a", b""),
    ];
    for (number, id) in (0..).zip(ids) {
        let mut opened = Opened::new(&collections, id, 60, 0);
        opened.write(b"x", Write::Add(number), 0).expect("fits");
    }
    for (number, id) in (0..).zip(ids) {
        let opened = Opened::new(&collections, id, 60, 0);
        assert_eq!((opened.key(), text(&opened, "x", 0)), (id.2, Some(number.to_string())));
    }
}

#[test]
fn oldest_update_goes_first() {
    let limits = CollectionLimits { entries: 3, bytes: 1 << 20 };
    let collections = Arc::new(Collections::with_shards(1, limits));
    let write = |key: &str, now| open(&collections, key, now).write(b"x", Write::Add(1), now);
    for key in ["a", "b", "c", "a", "d"] {
        assert_eq!(write(key, 0), Ok(()));
    }
    let known = |key: &&str| text(&open(&collections, key, 0), "x", 0).is_some();
    let kept = || ["a", "b", "c", "d"].into_iter().filter(known).collect::<Vec<_>>();
    assert_eq!(kept(), ["a", "c", "d"]);
    assert_eq!((collections.usage().entries, collections.usage().evicted), (3, 1));
    collections.set_limits(CollectionLimits { entries: 1, bytes: 1 << 20 });
    assert_eq!((kept(), collections.usage().evicted), (vec!["d"], 3));
    // Collections whose timeout has passed are removed without being counted as evicted.
    assert_eq!(write("e", 3600), Ok(()));
    assert_eq!((collections.usage().entries, collections.usage().evicted), (1, 3));
}

#[test]
fn collection_is_bounded() {
    let collections = Arc::new(Collections::new(LARGE));
    let mut opened = open(&collections, "a", 0);
    let kilobyte = [b'v'; 1024];
    let fitting = (0..1000).filter(|number| {
        opened.write(format!("x{number}").as_bytes(), Write::Set(&kilobyte), 0).is_ok()
    });
    let count = fitting.count();
    // 64 kB in values of 1 kB and somewhat more.
    assert!((50..64).contains(&count), "{count}");
    assert!(collections.usage().bytes <= COLLECTION_RECORD_MAX);
    // There is room again when values expire.
    assert_eq!(opened.write(b"x0", Write::Expire(10), 0), Ok(()));
    assert_eq!(opened.write(b"new", Write::Set(&kilobyte), 9), Err(Full));
    assert_eq!(opened.write(b"new", Write::Set(&kilobyte), 10), Ok(()));
    // A long key is cut.
    let long = "k".repeat(COLLECTION_KEY_MAX + 1);
    assert_eq!(open(&collections, &long, 0).key().len(), COLLECTION_KEY_MAX);
}

#[test]
fn million_keys_stay_within_the_limits() {
    let limits = CollectionLimits { entries: 2000, bytes: 1 << 20 };
    let collections = Arc::new(Collections::new(limits));
    for number in 0..1_000_000 {
        let mut opened = open(&collections, &number.to_string(), number / 1000);
        assert_eq!(opened.write(b"x", Write::Add(1), number / 1000), Ok(()));
    }
    let usage = collections.usage();
    assert!(usage.entries <= 2000 && usage.bytes <= 1 << 20, "{usage:?}");
    assert_eq!(usage.entries as u64 + usage.evicted, 1_000_000);
    for shard in &collections.shards {
        let shard = lock(shard);
        assert_eq!(shard.records.len(), shard.order.len());
        assert_eq!(shard.records.values().map(|record| record.size).sum::<usize>(), shard.size);
        // Tables do not grow with what has gone.
        assert!(shard.records.capacity() < 1000, "{}", shard.records.capacity());
    }
}

#[test]
fn threads_lose_no_count() {
    const THREADS: i64 = 4;
    const ROUNDS: i64 = 10_000;
    let collections = Arc::new(Collections::new(LARGE));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let mut opened = open(&collections, "a", 0);
                    opened.write(b"x", Write::Add(1), 0).expect("fits");
                    if round % 2 == 0 {
                        opened.write(b"y", Write::Add(-1), 0).expect("fits");
                    }
                }
            });
        }
    });
    let opened = open(&collections, "a", 0);
    let number = |name| text(&opened, name, 0).and_then(|text| text.parse().ok());
    assert_eq!((number("x"), number("y")), (Some(THREADS * ROUNDS), Some(-THREADS * ROUNDS / 2)));
    assert_eq!(number("update_counter"), Some(THREADS * ROUNDS));
}

/// The same without limits, locks and sizes: values with their ends, by key and name.
#[derive(Default)]
struct Model {
    collections: HashMap<u8, (u64, HashMap<u8, ModelValue>)>,
}

#[derive(Clone)]
struct ModelValue {
    text: String,
    end: u64,
    period_start: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Set(String),
    Add(i64),
    Unset,
    Expire(u64),
    Deprecate(u64, u64),
}

const TIMEOUT_SECONDS: u64 = 50;

impl Model {
    fn live(&mut self, key: u8, now: u64) -> &mut (u64, HashMap<u8, ModelValue>) {
        let collection = self.collections.entry(key).or_default();
        if now >= collection.0 + TIMEOUT_SECONDS {
            collection.1.clear();
        }
        collection.1.retain(|_, value| now < value.end);
        collection
    }

    fn step(&mut self, key: u8, name: u8, step: &Step, now: u64) {
        let (updated_at, values) = self.live(key, now);
        let number = |value: &ModelValue| value.text.parse().unwrap_or(0);
        let fresh = ModelValue { text: "0".to_owned(), end: u64::MAX, period_start: now };
        let is_changed = match (step, values.get_mut(&name)) {
            (Step::Set(text), value) => {
                let end = value.map_or(u64::MAX, |value| value.end);
                values.insert(name, ModelValue { text: text.clone(), end, period_start: now });
                true
            }
            (Step::Add(amount), _) => {
                let value = values.entry(name).or_insert(fresh);
                let current: i64 = number(value);
                if current <= 0 {
                    value.period_start = now;
                }
                value.text = (current + amount).to_string();
                true
            }
            (_, None) => false,
            (Step::Unset, Some(_)) => values.remove(&name).is_some(),
            (Step::Expire(seconds), Some(value)) => {
                value.end = now + seconds;
                true
            }
            (Step::Deprecate(amount, period), Some(value)) => {
                let mut current: i64 = number(value);
                let before = current;
                while value.period_start + period <= now {
                    value.period_start += period;
                    current = if current > 0 { (current - *amount as i64).max(0) } else { current };
                }
                if current != before {
                    value.text = current.to_string();
                }
                current != before
            }
        };
        if is_changed {
            *updated_at = now;
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<(u8, u8, Step, u64)>> {
    let step = prop_oneof![
        "[0-9]{1,3}".prop_map(Step::Set),
        (-3_i64..10).prop_map(Step::Add),
        Just(Step::Unset),
        (0_u64..60).prop_map(Step::Expire),
        (0_u64..5, 1_u64..20).prop_map(|(amount, period)| Step::Deprecate(amount, period)),
    ];
    prop::collection::vec((0_u8..3, 0_u8..3, step, 0_u64..15), 1..60)
}

proptest! {
    #[test]
    fn equals_the_model(steps in steps(), shards in 1_usize..4) {
        let collections = Arc::new(Collections::with_shards(shards, LARGE));
        let mut model = Model::default();
        let mut now = 100;
        for (key, name, step, seconds) in steps {
            now += seconds;
            let id = (Variable::Ip, "", &[key][..]);
            let mut opened = Opened::new(&collections, id, TIMEOUT_SECONDS, now);
            let write = match &step {
                Step::Set(text) => Write::Set(text.as_bytes()),
                Step::Add(amount) => Write::Add(*amount),
                Step::Unset => Write::Unset,
                Step::Expire(seconds) => Write::Expire(*seconds),
                Step::Deprecate(amount, period) => {
                    Write::Deprecate { amount: *amount, period: *period }
                }
            };
            prop_assert_eq!(opened.write(&[name], write, now), Ok(()));
            model.step(key, name, &step, now);
            for key in 0..3 {
                let opened = Opened::new(&collections, (Variable::Ip, "", &[key]), TIMEOUT_SECONDS, now);
                let (_, expected) = model.live(key, now);
                for name in 0..3 {
                    let expected = expected.get(&name).map(|value| value.text.clone());
                    let found = opened.value(&[name], now).map(String::from_utf8);
                    prop_assert_eq!(found.transpose().expect("UTF-8"), expected);
                }
            }
        }
        for shard in &collections.shards {
            let shard = lock(shard);
            prop_assert_eq!(shard.records.values().map(|one| one.size).sum::<usize>(), shard.size);
            for record in shard.records.values() {
                let values: usize = record.values.iter().map(Value::size).sum();
                prop_assert!(record.size > values && record.size < values + RECORD_SIZE + 16);
            }
        }
    }
}
