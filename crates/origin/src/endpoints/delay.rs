//! `/delay`: an answer after a time that is drawn from a known distribution.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use crate::answer::Answer;
use crate::endpoints::MAX_WAIT_S;
use crate::json::Seconds;
use crate::plan::{Plan, Wait};
use crate::refusal::{Allowed, Refusal};
use crate::request::{Query, Request};
use crate::site::Site;

/// The longest delay, in milliseconds.
const MAX_MS: u32 = MAX_WAIT_S * 1000;

/// How long a delay is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Distribution {
    /// Always the same.
    Fixed { ms: f64 },
    /// The second with probability `p`, else the first.
    Bimodal { ms: f64, ms2: f64, p: f64 },
    /// With this mean, cut off at [`MAX_MS`].
    Exponential { ms: f64 },
}

/// Answers after a delay. The delays are a function of `seed` and of how many were asked for before,
/// with whatever seed, since the origin started.
pub(crate) fn delay<'a>(request: &Request<'a>, site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    let distribution = Distribution::of(request.query)?;
    let seed = request.query.whole("seed", 0, 0, u64::MAX, Allowed::Seed)?;
    let number = site.delays.fetch_add(1, Ordering::Relaxed);
    Ok(Plan::Wait(Wait { time: distribution.delay(seed, number), answer }))
}

fn answer(asked: Duration, took: Duration) -> Answer<'static> {
    Answer::json(format!("{{\"delay\":{},\"time\":{}}}", Seconds(asked), Seconds(took)))
}

impl Distribution {
    fn of(query: Query<'_>) -> Result<Self, Refusal<'_>> {
        let millis = |name, default| {
            let allowed = Allowed::Milliseconds { max: MAX_MS };
            query.fraction(name, default, f64::from(MAX_MS), allowed)
        };
        match query.get("dist").unwrap_or("fixed") {
            "fixed" => Ok(Self::Fixed { ms: millis("ms", 1.0)? }),
            "bimodal" => Ok(Self::Bimodal {
                ms: millis("ms", 1.0)?,
                ms2: millis("ms2", 10.0)?,
                p: query.fraction("p", 0.5, 1.0, Allowed::Probability).map_err(|refusal| {
                    // There is nothing large about it.
                    match refusal {
                        Refusal::Parameter { name, value, allowed, .. } => {
                            Refusal::Parameter { name, value, allowed, is_too_large: false }
                        }
                        other => other,
                    }
                })?,
            }),
            "exponential" => Ok(Self::Exponential { ms: millis("ms", 1.0)? }),
            value => Err(Refusal::Parameter {
                name: "dist",
                value,
                allowed: Allowed::Distribution,
                is_too_large: false,
            }),
        }
    }

    /// The delay of the request of this number.
    fn delay(self, seed: u64, number: u64) -> Duration {
        let ms = match self {
            Self::Fixed { ms } => ms,
            Self::Bimodal { ms, ms2, p } => {
                if uniform(seed, number) < p {
                    ms2
                } else {
                    ms
                }
            }
            // The inverse of the distribution function; 1 - u is never 0.
            Self::Exponential { ms } => -ms * (1.0 - uniform(seed, number)).ln(),
        };
        Duration::from_secs_f64(ms.min(f64::from(MAX_MS)) / 1000.0)
    }
}

/// A number from 0 up to 1 that follows from the two, by a generator whose stream is the same in all
/// its releases.
fn uniform(seed: u64, number: u64) -> f64 {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(number);
    generator.random()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::tests::{ask, text, work};
    use crate::plan::Work;
    use crate::site::made_up::site;

    fn delays(target: &str, count: usize) -> Vec<Duration> {
        let mut site = site();
        (0..count)
            .map(|_| match work(&mut site, &format!("GET /delay?{target}"), "", b"") {
                Work::Wait { wait, .. } => wait.time,
                work => panic!("{work:?}"),
            })
            .collect()
    }

    fn mean_ms(delays: &[Duration]) -> f64 {
        delays.iter().sum::<Duration>().as_secs_f64() * 1000.0 / delays.len() as f64
    }

    #[test]
    fn a_fixed_delay_is_always_the_same() {
        assert_eq!(delays("ms=2.5", 3), [Duration::from_micros(2_500); 3]);
        assert_eq!(delays("", 1), [Duration::from_millis(1)]);
    }

    #[test]
    fn a_bimodal_delay_is_one_of_two_as_often_as_it_says() {
        let delays = delays("dist=bimodal&ms=1&ms2=20&p=0.1&seed=7", 10_000);
        let [short, long] = [1, 20]
            .map(|ms| delays.iter().filter(|delay| **delay == Duration::from_millis(ms)).count());
        assert_eq!(short + long, 10_000);
        // Five standard deviations of 10,000 draws at p = 0.1, of 30 each.
        assert!((850..=1_150).contains(&long), "{long}");
    }

    #[test]
    fn exponential_delays_have_their_mean_and_their_median() {
        let mut delays = delays("dist=exponential&ms=4&seed=3", 10_000);
        // Five standard errors of the mean, of 4 / sqrt(10,000).
        let mean = mean_ms(&delays);
        assert!((3.8..=4.2).contains(&mean), "{mean}");
        delays.sort_unstable();
        let median = delays[5_000].as_secs_f64() * 1000.0;
        // 4 ln 2 = 2.77, and its standard error 4 / sqrt(10,000).
        assert!((2.57..=2.97).contains(&median), "{median}");
        // The mean of those above 60 s could not be that of the others.
        let cut = self::delays("dist=exponential&ms=60000", 100);
        assert_eq!(cut.iter().max(), Some(&Duration::from_secs(60)));
    }

    #[test]
    fn the_sequence_follows_from_the_seed() {
        let of_seed = |seed| delays(&format!("dist=exponential&seed={seed}"), 20);
        assert_eq!(of_seed(1), of_seed(1));
        assert_ne!(of_seed(1), of_seed(2));
        let all = of_seed(1);
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    }

    #[test]
    fn what_may_not_be_is_refused() {
        let mut site = site();
        for (query, status, text_of) in [
            ("dist=normal", 400, r#"dist is \"normal\"; it may be fixed, bimodal or exponential"#),
            ("ms=-1", 400, r#"ms is \"-1\"; it may be a number of milliseconds from 0 to 60000"#),
            (
                "ms=60001",
                413,
                r#"ms is \"60001\"; it may be a number of milliseconds from 0 to 60000"#,
            ),
            ("dist=bimodal&p=2", 400, r#"p is \"2\"; it may be a number from 0 to 1"#),
            (
                "seed=x",
                400,
                r#"seed is \"x\"; it may be a whole number from 0 to 18446744073709551615"#,
            ),
        ] {
            let refused = ask(&mut site, &format!("GET /delay?{query}"), "", b"");
            assert_eq!(
                (refused.status, text(&refused)),
                (status, format!("{{\"error\":\"{text_of}\"}}"))
            );
        }
        let told = answer(Duration::from_millis(5), Duration::from_micros(5_032));
        assert_eq!(text(&told), "{\"delay\":0.005000,\"time\":0.005032}");
    }
}
