//! Keys of bouncers that the local API knows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate_accesslog::RateLimit;

use super::call::{Call, CallError};
use crate::checks::{Answer, Bounds, CheckCounters, Checks};
use crate::config::LocalApi;
use crate::{LOG_INTERVAL, log};

const BOUNDS: Bounds = Bounds {
    // As in CrowdSec.
    valid_time: Some(Duration::from_secs(60)),
    valid_max: 256,
    invalid_time: Duration::from_secs(1),
    others_max: 64,
    per_client_max: 64,
    threads: 8,
};
const KEY_BYTES_MAX: usize = 256;

/// Returns the text of a key. `None`: it is not visible ASCII of 1 to 256 bytes.
pub(super) fn key_text(key: &[u8]) -> Option<&str> {
    let is_key = (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    str::from_utf8(key).ok().filter(|_| is_key)
}

/// Checks of keys with the local API.
pub(super) fn checks(api: LocalApi, counters: Arc<CheckCounters>) -> Checks {
    let messages = Mutex::new(RateLimit::new(LOG_INTERVAL));
    Checks::new("api-keys", BOUNDS, counters, move |key| match check(key, &api) {
        Ok(true) => Answer::Valid,
        Ok(false) => Answer::Invalid,
        Err(error) => {
            if messages.lock().unwrap_or_else(PoisonError::into_inner).allow(Instant::now()) {
                log(format_args!(
                    "cannot check the key of a bouncer with the local API of CrowdSec at {}: {error}; keys that were valid remain so, \
                     others are refused (logged once a minute)",
                    api.host
                ));
            }
            Answer::Failed
        }
    })
}

/// Returns true if the local API knows the key.
fn check(key: &str, api: &LocalApi) -> Result<bool, CallError> {
    let path = "/v1/decisions/stream";
    let call = Call { method: "HEAD", path, header: Some(("X-Api-Key", key)), body: b"" };
    match call.send(api, api.timeout)?.status {
        200 => Ok(true),
        401 | 403 => Ok(false),
        status => Err(CallError::Status(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_short_and_visible() {
        assert_eq!(key_text(b"a+/="), Some("a+/="));
        assert_eq!(key_text(&[b'a'; KEY_BYTES_MAX]).map(str::len), Some(KEY_BYTES_MAX));
        for other in [&b""[..], b"a b", b"a\n", "\u{e4}".as_bytes(), &[b'a'; KEY_BYTES_MAX + 1]] {
            assert_eq!(key_text(other), None);
        }
    }
}
