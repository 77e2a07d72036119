//! How long a trial is loaded before it is measured, as a file says it.

use crate::duration::Span;
use serde::{Deserialize, Deserializer, de};
use std::time::Duration;

/// What ends the warm-up of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmUp {
    /// Its time.
    For(Duration),
    /// Throughput and CPU per request stand still.
    Steady,
}

/// The word for [`WarmUp::Steady`] in a file.
const STEADY: &str = "steady";

impl<'de> Deserialize<'de> for WarmUp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == STEADY {
            return Ok(Self::Steady);
        }
        humantime::parse_duration(&text).map(Self::For).map_err(|error| {
            de::Error::custom(format!(
                "`{text}` is neither \"{STEADY}\" nor a duration such as \"1s\" or \"400ms\": {error}"
            ))
        })
    }
}

/// How long to wait until everything stands still, where nobody says.
pub(super) const STEADY_LONGEST: Span = Span(Duration::from_secs(10));

/// With less than twice the time that it takes to see that figures stand still, few would.
pub(super) const STEADY_SHORTEST: Duration = Duration::from_secs(2);
