//! The moment of an answer, as HTTP writes it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The value of `Date` (RFC 9110, section 6.6.1). None where the clock shows a time that HTTP cannot write, such
/// as one before the year 0: then a server has no clock, and says nothing.
pub(crate) fn http_date(now: SystemTime) -> Option<String> {
    let now = Timestamp::try_from(now).ok()?;
    DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok()
}

/// The date of one thread, which is written anew when the second is over.
#[derive(Debug, Default)]
pub(crate) struct DateOfNow {
    date: Option<String>,
    /// When the second is over. None: nobody has asked yet.
    until: Option<Instant>,
}

impl DateOfNow {
    /// The value of `Date` at `now`; always of the same length. `clock` is asked once a second.
    pub(crate) fn at(&mut self, now: Instant, clock: impl FnOnce() -> SystemTime) -> Option<&str> {
        if self.until.is_none_or(|until| until <= now) {
            let time = clock();
            self.date = http_date(time);
            self.until = Some(now + left_of_second(time));
        }
        self.date.as_deref()
    }
}

fn left_of_second(time: SystemTime) -> Duration {
    // Before 1970, a second is looked at again when it was over already.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moment in the example of RFC 9110, less a millisecond of the next second.
    const THEN: Duration = Duration::from_millis(784_111_777_999);

    #[test]
    fn a_moment_is_written_as_in_the_example_of_rfc_9110() {
        assert_eq!(http_date(UNIX_EPOCH + THEN).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn the_date_of_now_is_written_once_a_second() {
        let (start, mut date) = (Instant::now(), DateOfNow::default());
        let (mut asked, mut said) = (0, Vec::new());
        for millis in [0, 0, 1, 1_000, 1_001, 86_400_001] {
            let since = Duration::from_millis(millis);
            let now = date.at(start + since, || {
                asked += 1;
                UNIX_EPOCH + THEN + since
            });
            said.push(now.unwrap().to_owned());
        }
        assert_eq!(
            said,
            [
                "Sun, 06 Nov 1994 08:49:37 GMT",
                "Sun, 06 Nov 1994 08:49:37 GMT",
                "Sun, 06 Nov 1994 08:49:38 GMT",
                "Sun, 06 Nov 1994 08:49:38 GMT",
                "Sun, 06 Nov 1994 08:49:39 GMT",
                "Mon, 07 Nov 1994 08:49:38 GMT"
            ]
        );
        assert_eq!(asked, 4);
    }
}
