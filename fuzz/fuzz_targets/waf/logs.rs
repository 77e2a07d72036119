//! Readers of logs: any bytes are entries and counts, no entry is longer than the log, and a log that is read twice in a row has
//! twice the entries, unless its end is truncated.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_waf_tools::log::{self, Content, Unread};

fuzz_target!(|input: &[u8]| {
    let (entries, unread) = read(input);
    let twice = [input, b"\n", input].concat();
    let (all, _) = read(&twice);
    if unread.truncated == 0 && !input.is_empty() {
        assert_eq!(all, 2 * entries, "a second copy of the log");
    }
});

/// Returns the number of entries.
fn read(input: &[u8]) -> (u64, Unread) {
    let mut entries = 0;
    let unread = log::read(input, |entry| {
        entries += 1;
        match entry.content {
            Content::Request(recorded) => {
                let request = &recorded.request;
                assert!(request.body.len() <= input.len() && request.target.len() <= input.len());
            }
            Content::Matches(logged) => {
                let sizes = logged.matches.iter().map(|found| found.variable.len() + 1);
                assert!(sizes.sum::<usize>() <= 4 * input.len());
            }
        }
    });
    (entries, unread.expect("memory can be read"))
}
