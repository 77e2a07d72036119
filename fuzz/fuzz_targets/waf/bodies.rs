//! WAF engine: no body, cookie, target or value makes a parser or a detector of injections panic or exceed its limits.
//!
//! Input: a content type, a line break, the body.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    tollgate_waf::fuzzing::parsers(&input[..end], &input[end..]);
});
