//! `/sleep` and `/delay`: responses after a given time, or after one drawn from a distribution.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::action::{Action, ActionResult, Wait};
use crate::request::{Allowed, Query, Request, RequestError};
use crate::response::{Response, Seconds};
use crate::state::Shared;

const MAX_SECONDS: u32 = 60;
const MAX_MILLISECONDS: u32 = MAX_SECONDS * 1000;

pub(super) fn sleep<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    let seconds = request.query.decimal("time", 1.0, Allowed::Seconds { max: MAX_SECONDS })?;
    let duration = Duration::from_secs_f64(seconds);
    Ok(Action::Wait(Wait { duration, respond: sleep_response }))
}

fn sleep_response(_requested: Duration, elapsed: Duration) -> Response<'static> {
    #[derive(Serialize)]
    struct Shown {
        time: Seconds,
    }

    Response::json(&Shown { time: Seconds(elapsed) })
}

/// Responds after a delay that depends on `seed` and on the number of requests for `/delay`, with
/// any seed, since the origin started.
pub(super) fn delay<'a>(request: &Request<'a>, shared: &mut Shared) -> ActionResult<'a> {
    let distribution = Distribution::parse(request.query)?;
    let seed = request.query.integer("seed", 0, Allowed::Seed)?;
    let index = shared.delays.fetch_add(1, Ordering::Relaxed);
    let duration = distribution.sample(seed, index);
    Ok(Action::Wait(Wait { duration, respond: delay_response }))
}

fn delay_response(requested: Duration, elapsed: Duration) -> Response<'static> {
    #[derive(Serialize)]
    struct Shown {
        delay: Seconds,
        time: Seconds,
    }

    Response::json(&Shown { delay: Seconds(requested), time: Seconds(elapsed) })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Distribution {
    Fixed {
        ms: f64,
    },
    /// `ms2` with probability `p`, else `ms`.
    Bimodal {
        ms: f64,
        ms2: f64,
        p: f64,
    },
    /// With mean `ms`, cut off at [`MAX_MILLISECONDS`].
    Exponential {
        ms: f64,
    },
}

impl Distribution {
    fn parse(query: Query<'_>) -> Result<Self, RequestError<'_>> {
        let millis = |name, default| {
            query.decimal(name, default, Allowed::Milliseconds { max: MAX_MILLISECONDS })
        };
        match query.get("dist").unwrap_or("fixed") {
            "fixed" => Ok(Self::Fixed { ms: millis("ms", 1.0)? }),
            "bimodal" => Ok(Self::Bimodal {
                ms: millis("ms", 1.0)?,
                ms2: millis("ms2", 10.0)?,
                p: query.decimal("p", 0.5, Allowed::Probability)?,
            }),
            "exponential" => Ok(Self::Exponential { ms: millis("ms", 1.0)? }),
            value => Err(RequestError::Parameter {
                name: "dist",
                value,
                allowed: Allowed::Distribution,
                is_too_large: false,
            }),
        }
    }

    fn sample(self, seed: u64, index: u64) -> Duration {
        let ms = match self {
            Self::Fixed { ms } => ms,
            Self::Bimodal { ms, ms2, p } => {
                if uniform(seed, index) < p {
                    ms2
                } else {
                    ms
                }
            }
            // The inverse of the distribution function; 1 - u is never 0.
            Self::Exponential { ms } => -ms * (1.0 - uniform(seed, index)).ln(),
        };
        Duration::from_secs_f64(ms.min(f64::from(MAX_MILLISECONDS)) / 1000.0)
    }
}

/// Returns a number in `[0, 1)` that depends on the arguments alone; the stream of the generator is
/// the same in all its releases.
fn uniform(seed: u64, index: u64) -> f64 {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(index);
    generator.random()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::tests::{action, respond, text};
    use crate::fuzzing::test_state;

    #[test]
    fn sleeps_for_requested_time() {
        let mut shared = test_state();
        for (target, millis) in
            [("GET /sleep", 1_000), ("GET /sleep?time=0.01", 10), ("HEAD /sleep?time=60", 60_000)]
        {
            match action(&mut shared, target, "", b"") {
                Action::Wait(wait) => assert_eq!(wait.duration, Duration::from_millis(millis)),
                action => panic!("{action:?}"),
            }
        }
        assert_eq!(respond(&mut shared, "GET /sleep?time=60.5", "", b"").status, 413);
        let error = respond(&mut shared, "GET /sleep?time=-1", "", b"");
        assert_eq!(error.status, 400);
        assert_eq!(
            text(&error),
            r#"{"error":"invalid time `-1`: must be a number of seconds from 0 to 60"}"#
        );
        let response = sleep_response(Duration::from_secs(1), Duration::from_nanos(1_000_123_999));
        assert_eq!(text(&response), "{\"time\":1.000124}");
    }

    fn delays(query: &str, count: usize) -> Vec<Duration> {
        let mut shared = test_state();
        (0..count)
            .map(|_| match action(&mut shared, &format!("GET /delay?{query}"), "", b"") {
                Action::Wait(wait) => wait.duration,
                action => panic!("{action:?}"),
            })
            .collect()
    }

    #[test]
    fn fixed_delay_is_constant() {
        assert_eq!(delays("ms=2.5", 3), [Duration::from_micros(2_500); 3]);
        assert_eq!(delays("", 1), [Duration::from_millis(1)]);
    }

    #[test]
    fn bimodal_delay_follows_probability() {
        let delays = delays("dist=bimodal&ms=1&ms2=20&p=0.1&seed=7", 10_000);
        let [short, long] = [1, 20]
            .map(|ms| delays.iter().filter(|delay| **delay == Duration::from_millis(ms)).count());
        assert_eq!(short + long, 10_000);
        // Five standard deviations of 10,000 draws at p = 0.1, of 30 each.
        assert!((850..=1_150).contains(&long), "{long}");
    }

    #[test]
    fn exponential_delays_have_mean_and_median() {
        let mut delays = delays("dist=exponential&ms=4&seed=3", 10_000);
        // Five standard errors of the mean, of 4 / sqrt(10,000).
        let mean_ms = delays.iter().sum::<Duration>().as_secs_f64() * 1000.0 / 10_000.0;
        assert!((3.8..=4.2).contains(&mean_ms), "{mean_ms}");
        delays.sort_unstable();
        let median_ms = delays[5_000].as_secs_f64() * 1000.0;
        // 4 ln 2 = 2.77, and its standard error 4 / sqrt(10,000).
        assert!((2.57..=2.97).contains(&median_ms), "{median_ms}");
        let cut_off = self::delays("dist=exponential&ms=60000", 100);
        assert_eq!(cut_off.iter().max(), Some(&Duration::from_secs(60)));
    }

    #[test]
    fn delays_depend_on_seed() {
        let with_seed = |seed| delays(&format!("dist=exponential&seed={seed}"), 20);
        assert_eq!(with_seed(1), with_seed(1));
        assert_ne!(with_seed(1), with_seed(2));
        let all = with_seed(1);
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    }

    #[test]
    fn invalid_delay_parameters_are_rejected() {
        let mut shared = test_state();
        let ms = "must be a number of milliseconds from 0 to 60000";
        for (query, status, error) in [
            (
                "dist=normal",
                400,
                "invalid dist `normal`: must be fixed, bimodal or exponential".to_owned(),
            ),
            ("ms=-1", 400, format!("invalid ms `-1`: {ms}")),
            ("ms=60001", 413, format!("invalid ms `60001`: {ms}")),
            ("dist=bimodal&p=2", 400, "invalid p `2`: must be a number from 0 to 1".to_owned()),
            (
                "seed=x",
                400,
                "invalid seed `x`: must be a whole number from 0 to 18446744073709551615"
                    .to_owned(),
            ),
        ] {
            let response = respond(&mut shared, &format!("GET /delay?{query}"), "", b"");
            assert_eq!(
                (response.status, text(&response)),
                (status, format!("{{\"error\":\"{error}\"}}"))
            );
        }
        let response = delay_response(Duration::from_millis(5), Duration::from_micros(5_032));
        assert_eq!(text(&response), "{\"delay\":0.005000,\"time\":0.005032}");
    }
}
