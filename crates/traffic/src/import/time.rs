//! Times of requests in logs.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use serde_json::Value;

pub(super) const MICROS_PER_S: i64 = 1_000_000;

/// Numbers above this are milliseconds, above a thousand times this microseconds, and above a million times this
/// nanoseconds: as seconds, they would be in the year 5138.
const SECONDS_MAX: f64 = 1e11;

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Time of a request in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogTime {
    /// Microseconds since 1970 in UTC.
    pub unix_us: i64,
    /// True if the log has no fraction of a second.
    pub is_whole_second: bool,
}

impl LogTime {
    /// Parses the time of combined logs, such as `21/Nov/2026:20:38:08 +0100`, or of HAProxy, such as
    /// `23/Nov/2026:18:00:00.655`, which has no time zone.
    pub(super) fn from_log(text: &[u8]) -> Option<Self> {
        // A general parser takes more time than the rest of a line.
        let (second, rest) = text.split_at_checked("21/Nov/2026:20:38:08".len())?;
        let separators = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':')];
        if separators.iter().any(|&(at, byte)| second[at] != byte) {
            return None;
        }
        let two = |at: usize| i8::try_from(number(&second[at..at + 2])?).ok();
        let year = i16::try_from(number(&second[7..11])?).ok()?;
        let month = MONTHS.iter().position(|month| second[3..6] == **month)? + 1;
        let date = Date::new(year, month as i8, two(0)?).ok()?;
        let second = two(18)?;
        // Unix time has no leap second.
        let is_leap = second == 60;
        let civil =
            date.to_datetime(Time::new(two(12)?, two(15)?, second - i8::from(is_leap), 0).ok()?);
        let unix_s = Offset::UTC.to_timestamp(civil).ok()?.as_second() + i64::from(is_leap);
        let space = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (fraction, offset) = rest.split_at(space);
        let fraction_us = match fraction {
            [] => None,
            [b'.', digits @ ..] => Some(micros(digits)?),
            _ => return None,
        };
        let offset_s = match offset {
            [] => 0,
            [b' ', sign @ (b'+' | b'-'), digits @ ..] if digits.len() == 4 => {
                let (hours, minutes) = (number(&digits[..2])?, number(&digits[2..])?);
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let seconds = hours * 3600 + minutes * 60;
                if *sign == b'-' { -seconds } else { seconds }
            }
            _ => return None,
        };
        Some(Self {
            unix_us: (unix_s - offset_s) * MICROS_PER_S + fraction_us.unwrap_or(0),
            is_whole_second: fraction_us.is_none(),
        })
    }

    pub(super) fn from_iso_8601(text: &str) -> Option<Self> {
        let timestamp: Timestamp = text.parse().ok()?;
        let is_whole_second = !text.contains(['.', ',']);
        Some(Self { unix_us: timestamp.as_microsecond(), is_whole_second })
    }

    /// Parses a number, in seconds unless it is too large, or a text in one of the formats.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let Some(text) = value.as_str() else {
            return Self::from_number(value.as_f64()?, value.is_f64());
        };
        let number = || Self::from_number(text.parse().ok()?, text.contains('.'));
        Self::from_iso_8601(text).or_else(|| Self::from_log(text.as_bytes())).or_else(number)
    }

    fn from_number(number: f64, has_fraction: bool) -> Option<Self> {
        let is_in_seconds = number < SECONDS_MAX;
        let unit_us = match number {
            _ if is_in_seconds => 1e6,
            _ if number < SECONDS_MAX * 1e3 => 1e3,
            _ if number < SECONDS_MAX * 1e6 => 1.0,
            _ => 1e-3,
        };
        let unix_us = (number >= 0.0 && number.is_finite()).then_some((number * unit_us) as i64)?;
        Some(Self { unix_us, is_whole_second: is_in_seconds && !has_fraction })
    }
}

/// Returns the number that digits stand for.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number: i64, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Returns the microseconds of the digits behind a decimal point.
fn micros(digits: &[u8]) -> Option<i64> {
    let kept = &digits[..digits.len().min(6)];
    Some(number(kept)? * 10_i64.pow(6 - kept.len() as u32))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// 2026-11-21T19:38:08Z, as `date -u -d @1795289888` prints it.
    const SECOND: i64 = 1_795_289_888;

    fn us(time: Option<LogTime>) -> (i64, bool) {
        time.map_or((0, false), |time| (time.unix_us - SECOND * MICROS_PER_S, time.is_whole_second))
    }

    #[test]
    fn times_of_logs_have_their_zone_and_fraction() {
        assert_eq!(us(LogTime::from_log(b"21/Nov/2026:20:38:08 +0100")), (0, true));
        assert_eq!(us(LogTime::from_log(b"21/Nov/2026:11:08:09 -0830")), (1_000_000, true));
        assert_eq!(us(LogTime::from_log(b"21/Nov/2026:19:38:08.655")), (655_000, false));
        let exact = LogTime::from_log(b"21/Nov/2026:20:38:08.1234567 +0100");
        assert_eq!(us(exact), (123_456, false));
        // A leap second is the next one.
        let leap = LogTime::from_log(b"21/Nov/2026:20:38:60 +0100");
        assert_eq!(us(leap), (52 * MICROS_PER_S, true));
        for text in [
            "t",
            "",
            "21/Nov/2026",
            "31/Feb/2026:20:38:08 +0100",
            "21/Nov/2026:20:38:61 +0100",
            "21/nov/2026:20:38:08 +0100",
            "21/Nov/2026:2x:38:08 +0100",
            "21/Nov/2026 20:38:08 +0100",
            "21/Nov/2026:20:38:08 x",
            "21/Nov/2026:20:38:08 +01:00",
            "21/Nov/2026:20:38:08 +9900",
            "21/Nov/2026:20:38:08 +0160",
            "21/Nov/2026:20:38:08.x",
        ] {
            assert_eq!(LogTime::from_log(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn json_has_numbers_or_texts() {
        for (value, expected) in [
            (json!(1_795_289_888), (0, true)),
            (json!(1_795_289_888.25), (250_000, false)),
            (json!("1795289888.004"), (4_000, false)),
            (json!(1_795_289_888_001_i64), (1_000, false)),
            (json!(1_795_289_888_000_002_i64), (2, false)),
            // Nanoseconds, which a float holds to 256 of them.
            (json!(1_795_289_888_000_002_048_i64), (2, false)),
            (json!("2026-11-21T20:38:08+01:00"), (0, true)),
            (json!("2026-11-21T19:38:08.5Z"), (500_000, false)),
            (json!("21/Nov/2026:20:38:08 +0100"), (0, true)),
        ] {
            assert_eq!(us(LogTime::from_json(&value)), expected, "{value}");
        }
        for value in [json!("soon"), json!(null), json!(-1), json!([1])] {
            assert_eq!(LogTime::from_json(&value), None, "{value}");
        }
    }
}
