//! Limits of a connection, and budgets against floods.

use std::time::Instant;

use crate::fields::FieldLimits;
use crate::frame::MIN_MAX_FRAME_BYTES;

/// Limits for what the peer may send, most of them announced in SETTINGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Server: concurrent streams, counted until their release. Default: 100.
    pub streams: u32,
    /// Payload of a frame. Default: 16 KiB, the minimum.
    pub frame_bytes: u32,
    /// Dynamic table of the decoder. Default: 4 KiB.
    pub decoder_table_bytes: u32,
    /// Dynamic table of the encoder, as far as the peer allows it. Default: 4 KiB.
    pub encoder_table_bytes: u32,
    /// Field section. Fields above the limit are dropped; a section of four times the limit ends the connection.
    /// Default: 64 KiB and 256 fields.
    pub fields: FieldLimits,
    /// CONTINUATION frames of one field block (CVE-2024-27316). Default: 8.
    pub continuations: u32,
    /// Receive window of each stream in bytes, at most 2^31 - 1. Default: 64 KiB.
    pub stream_window: u32,
    /// Window up to which that of a stream doubles, each time that the peer sends half of it in a round trip, which PINGs
    /// measure, and the caller consumes that. At most 2^31 - 1. Default: 0, no growth.
    pub stream_window_max: u32,
    /// Window of the connection, at least 65,535. Default: 1 MiB.
    pub connection_window: u32,
    /// Streams that end by the peer's `RST_STREAM` before their messages (CVE-2023-44487), or by an error of the
    /// peer (CVE-2025-8671). Default: 1000 at once, then 33 a second.
    pub resets: Rate,
    /// Frames of little use: PING, SETTINGS, PRIORITY, empty DATA, small window updates, interim responses, further
    /// GOAWAYs, unknown types, and frames on closed streams (CVE-2019-9512, -9513, -9515, -9517, -9518). Each message or DATA frame sent pays for
    /// some. Default: 1000 at once, then 33 a second.
    pub glitches: Rate,
    /// Replies to control frames since the last [`Connection::flushed`](crate::Connection::flushed). Default: 1000.
    pub queued_control_frames: u32,
    /// Server: announces extended CONNECT (RFC 8441). Default: false.
    pub extended_connect: bool,
}

impl Default for Limits {
    fn default() -> Self {
        let rate = Rate { burst: 1000, per_s: 33 };
        Self {
            streams: 100,
            frame_bytes: MIN_MAX_FRAME_BYTES,
            decoder_table_bytes: 4096,
            encoder_table_bytes: 4096,
            fields: FieldLimits::default(),
            continuations: 8,
            stream_window: 64 << 10,
            stream_window_max: 0,
            connection_window: 1 << 20,
            resets: rate,
            glitches: rate,
            queued_control_frames: 1000,
            extended_connect: false,
        }
    }
}

/// Number of events allowed at once, and per second after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub burst: u32,
    pub per_s: u32,
}

impl Rate {
    pub const UNLIMITED: Self = Self { burst: u32::MAX, per_s: u32::MAX };
}

/// Token bucket, refilled only when empty to save time arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    rate: Rate,
    left: u32,
    refilled: Instant,
}

impl Budget {
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, refilled: now }
    }

    /// Returns false if the budget is spent.
    #[must_use]
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            let elapsed = now.saturating_duration_since(self.refilled).as_secs_f64();
            let earned = elapsed * f64::from(self.rate.per_s);
            if earned < 1.0 {
                return false;
            }
            // A conversion to an integer saturates.
            self.left = (earned as u32).min(self.rate.burst);
            self.refilled = now;
        }
        self.left = self.left.saturating_sub(1);
        true
    }

    pub(crate) fn give_back(&mut self, count: u32) {
        self.left = self.left.saturating_add(count).min(self.rate.burst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn budget_allows_a_burst_and_then_its_rate() {
        let start = Instant::now();
        let mut budget = Budget::new(Rate { burst: 3, per_s: 2 }, start);
        let mut taken = |after_ms| {
            let now = start + Duration::from_millis(after_ms);
            std::iter::from_fn(|| budget.take(now).then_some(())).take(10).count()
        };
        assert_eq!(taken(0), 3);
        assert_eq!(taken(499), 0);
        assert_eq!(taken(500), 1);
        assert_eq!(taken(999), 0);
        assert_eq!(taken(1500), 2);
        assert_eq!(taken(60_000), 3);
    }

    #[test]
    fn budget_is_paid_back_up_to_its_burst() {
        let start = Instant::now();
        let mut budget = Budget::new(Rate { burst: 2, per_s: 0 }, start);
        assert!(budget.take(start) && budget.take(start) && !budget.take(start));
        budget.give_back(5);
        assert!(budget.take(start) && budget.take(start) && !budget.take(start));
    }
}
