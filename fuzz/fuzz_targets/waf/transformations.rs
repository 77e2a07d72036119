//! WAF engine: every transformation keeps to what the gates assume about it, on any value.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tollgate_waf::fuzzing::transformations(input));
