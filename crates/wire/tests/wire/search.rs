use proptest::prelude::*;
use tollgate_wire::{BodySearch, Needle};

/// Whether `needle` is found in pieces of `steps` bytes in turn.
fn is_found(needle: &str, body: &[u8], steps: &[usize]) -> bool {
    let needle = Needle::new(needle.as_bytes()).unwrap();
    let mut search = BodySearch::new();
    let mut rest = body;
    let mut steps = steps.iter().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(*steps.next().unwrap()));
        search.feed(&needle, piece);
        rest = after;
    }
    search.found()
}

#[test]
fn a_needle_is_found_wherever_the_body_is_split() {
    let cases = [
        ("a", "a", true),
        ("a", "b", false),
        ("abc", "xxabcxx", true),
        ("abc", "abxcab", false),
        // The beginning of the needle that has to be given up holds another one.
        ("aab", "aaab", true),
        ("abab", "abaabab", true),
        ("abacabab", "abacabacabab", true),
        ("abacabab", "abacabacabac", false),
        ("aaaa", "aaabaaabaaa", false),
        ("aaaa", "aaabaaaa", true),
    ];
    for (needle, body, expected) in cases {
        for step in 1..=body.len() {
            assert_eq!(
                is_found(needle, body.as_bytes(), &[step]),
                expected,
                "{needle:?} in {body:?} in pieces of {step}"
            );
        }
    }
}

#[test]
fn what_was_found_stays_found_until_the_next_body() {
    let needle = Needle::new(b"ab").unwrap();
    let mut search = BodySearch::new();
    assert!(!search.found());
    search.feed(&needle, b"ab");
    search.feed(&needle, b"xx");
    assert!(search.found());
    search.reset();
    assert!(!search.found());
    // The first half belongs to the body before.
    search.feed(&needle, b"a");
    search.reset();
    search.feed(&needle, b"b");
    assert!(!search.found());
}

#[test]
fn nothing_is_no_needle() {
    assert!(Needle::new(b"").is_none());
}

proptest! {
    /// Found if and only if the whole contains it. Two letters make for many false starts.
    #[test]
    fn pieces_are_searched_as_the_whole_is(
        needle in "[ab]{1,7}",
        body in "[ab]{0,40}",
        steps in proptest::collection::vec(1_usize..12, 1..6),
    ) {
        prop_assert_eq!(is_found(&needle, body.as_bytes(), &steps), body.contains(&needle));
    }
}
