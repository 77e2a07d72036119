//! WAF engine: requests of the kinds in which engines lose bytes are blocked, with and without gates.
//!
//! Input: the kind, and the bytes that decide on the rest of the request.

#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use tollgate_waf::{RuleSet, Transaction, Worker};
use tollgate_waf_tools::kinds::{Kind, RULES};
use tollgate_waf_tools::replay;

fuzz_target!(|input: &[u8]| {
    static SET: OnceLock<Arc<RuleSet>> = OnceLock::new();
    let rules = SET.get_or_init(|| {
        let rules = RuleSet::builder().text("kinds.conf", RULES).build();
        Arc::new(rules.expect("cannot load the rules"))
    });
    let Some((&kind, mut rest)) = input.split_first() else { return };
    let mut random = |below: usize| {
        let (bytes, left) = rest.split_at(rest.len().min(2));
        rest = left;
        bytes.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)) % below
    };
    let request = Kind::ALL[usize::from(kind) % Kind::ALL.len()].request(&mut random);
    let [gated, plain] = [Worker::new(), Worker::plain()].map(|mut worker| {
        let mut transaction = Transaction::new(Arc::clone(rules));
        replay::run_request(&mut transaction, &mut worker, &request);
        transaction.intervention().cloned()
    });
    assert!(gated.is_some(), "passes: {}", request.body.escape_ascii());
    assert_eq!(gated, plain, "with and without gates");
});
