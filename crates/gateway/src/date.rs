//! The moment of an answer, as HTTP writes it.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The value of `Date` (RFC 9110, section 6.6.1). None where the clock shows a time that HTTP cannot write, such
/// as one before the year 0: then a server has no clock, and says nothing.
pub(crate) fn http_date(now: SystemTime) -> Option<String> {
    let now = Timestamp::try_from(now).ok()?;
    DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_moment_is_written_as_in_the_example_of_rfc_9110() {
        let then = UNIX_EPOCH + Duration::from_millis(784_111_777_999);
        assert_eq!(http_date(then).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
