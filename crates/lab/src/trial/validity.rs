//! Whether the figures of a trial count. The rules are fixed before the run and blind to the
//! figures themselves.

use crate::inputs::experiment::Window;
use crate::inputs::percent::Percent;
use crate::record::as_f64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Why the figures of a trial do not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Invalid {
    /// The hypervisor took the CPUs away.
    Steal {
        /// In percent of the time of the CPUs in use.
        percent: f64,
        /// What it may be at the most.
        limit_percent: f64,
    },
    /// Other processes took the CPUs away, so the generator starved.
    Starved {
        /// In percent of the time of the CPUs in use.
        foreign_cpu_percent: f64,
        /// What it may be at the most.
        limit_percent: f64,
    },
    /// A process of the system ended or was restarted during the window.
    ProcessDied {
        /// Which, in words.
        what: String,
    },
    /// Answers were not the expected ones.
    Unexpected {
        /// How many.
        answers: u64,
        /// The first of them, in words.
        example: Option<String>,
    },
    /// Requests got no answer.
    Failed {
        /// How many.
        requests: u64,
        /// Of which kinds.
        kinds: String,
    },
    /// The system did not spread the requests evenly over the origins.
    Uneven {
        /// The origin whose part was furthest from an even one, from 1.
        origin: usize,
        /// Its part, in percent of the requests that all origins got.
        percent: f64,
        /// An even one.
        even_percent: f64,
        /// How far apart the two may be.
        limit_percent: f64,
    },
    /// Nothing was answered at all.
    NoAnswer,
    /// A request had been under way for so long when the window closed that the latencies, which are
    /// those of answers, do not show it.
    Stalled {
        /// How long, in seconds.
        age_s: f64,
    },
    /// The case's requests were not all answered in the time that they may take.
    Unfinished {
        /// How many were, whether with an answer or without.
        ended: u64,
        /// Of how many.
        requests: u32,
        /// How long they may take, in seconds.
        within_s: f64,
    },
    /// The lab itself, and with it the generator, was not let run: it was stopped or starved.
    Halted {
        /// For how long, in percent of the window: the planned one, where it is a time.
        percent: f64,
        /// What it may be at the most.
        limit_percent: f64,
    },
    /// The generator was measured over another time than the servers: it was too busy to notice
    /// when the window opened or closed.
    Skewed {
        /// The difference, in percent of the servers' window.
        percent: f64,
        /// What it may be at the most.
        limit_percent: f64,
    },
}

/// What the rules look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Steal, in percent of the time of the CPUs in use.
    pub steal_percent: f64,
    /// CPU time of other processes, in percent of the time of the CPUs in use.
    pub foreign_cpu_percent: f64,
    /// The step in which the kernel counts either of these on each CPU.
    pub tick: Duration,
    /// The process of the system that ended, in words.
    pub died: Option<String>,
    /// Answers, expected or not.
    pub answered: u64,
    /// What each origin was asked, where there are several.
    pub origin_requests: Vec<u64>,
    /// Answers that were not expected.
    pub unexpected: u64,
    /// The first of them, in words.
    pub unexpected_example: Option<String>,
    /// Requests that got no answer.
    pub failed: u64,
    /// Of which kinds they were.
    pub failed_kinds: String,
    /// The window over which the generator was measured.
    pub window: Duration,
    /// The window over which the servers were measured.
    pub servers_window: Duration,
    /// The window that was planned.
    pub planned: Window,
    /// The longest time that the lab was late to wake up during the window.
    pub lateness: Duration,
    /// How long the oldest request under way had been so when the window closed.
    pub oldest_unanswered: Option<Duration>,
}

/// Every rule that the evidence breaks.
pub fn judge(evidence: &Evidence, limits: &Limits) -> Vec<Invalid> {
    let mut invalid = Vec::new();
    if let Some(what) = &evidence.died {
        invalid.push(Invalid::ProcessDied { what: what.clone() });
    }
    if evidence.answered == 0 {
        invalid.push(Invalid::NoAnswer);
    }
    if evidence.unexpected > 0 {
        invalid.push(Invalid::Unexpected {
            answers: evidence.unexpected,
            example: evidence.unexpected_example.clone(),
        });
    }
    if evidence.failed > 0 {
        invalid.push(Invalid::Failed {
            requests: evidence.failed,
            kinds: evidence.failed_kinds.clone(),
        });
    }
    if let Some((origin, percent, even_percent)) = furthest_from_even(&evidence.origin_requests)
        && let Some(limit_percent) = beyond((percent - even_percent).abs(), limits.uneven)
    {
        invalid.push(Invalid::Uneven { origin, percent, even_percent, limit_percent });
    }
    // In a window of few ticks, one that began before it or ends after it is a large share.
    let tick_percent = 100.0 * evidence.tick.as_secs_f64() / evidence.servers_window.as_secs_f64();
    let at_least = |percent: f64| percent - tick_percent;
    if let Some(limit_percent) = beyond(at_least(evidence.steal_percent), limits.steal) {
        invalid.push(Invalid::Steal { percent: evidence.steal_percent, limit_percent });
    }
    // What a process that died had used is not known, and would be taken for the work of others.
    let foreign_cpu_percent = evidence.foreign_cpu_percent;
    if evidence.died.is_none()
        && let Some(limit_percent) = beyond(at_least(foreign_cpu_percent), limits.foreign_cpu)
    {
        invalid.push(Invalid::Starved { foreign_cpu_percent, limit_percent });
    }
    match evidence.planned {
        Window::For(planned) => of_a_time(evidence, planned, limits, &mut invalid),
        Window::Requests { requests, within } => {
            let ended = evidence.answered + evidence.failed;
            if ended < requests.into() {
                let within_s = within.as_secs_f64();
                invalid.push(Invalid::Unfinished { ended, requests, within_s });
            }
            let halted = evidence.lateness.as_secs_f64() / evidence.servers_window.as_secs_f64();
            let percent = 100.0 * halted;
            if let Some(limit_percent) = beyond(percent, limits.halt) {
                invalid.push(Invalid::Halted { percent, limit_percent });
            }
        }
    }
    invalid
}

/// What a window that is a time has to keep besides: the servers and the generator are measured over the
/// same part of a load that goes on before and after. A number of requests is all of its load, so there
/// nothing is missed when one of them is read later, and the last request is waited for.
fn of_a_time(evidence: &Evidence, planned: Duration, limits: &Limits, invalid: &mut Vec<Invalid>) {
    let stalled = evidence.oldest_unanswered.filter(|age| *age > planned / 2);
    if let Some(age) = stalled {
        invalid.push(Invalid::Stalled { age_s: age.as_secs_f64() });
    }
    let overtime = evidence.servers_window.saturating_sub(planned);
    let halted = overtime.max(evidence.lateness).as_secs_f64() / planned.as_secs_f64();
    let percent = 100.0 * halted;
    if let Some(limit_percent) = beyond(percent, limits.halt) {
        invalid.push(Invalid::Halted { percent, limit_percent });
    }
    let percent = 100.0 * skew(evidence).abs();
    if let Some(limit_percent) = beyond(percent, limits.skew) {
        invalid.push(Invalid::Skewed { percent, limit_percent });
    }
}

/// The limit, where it is passed.
fn beyond(percent: f64, limit: Percent) -> Option<f64> {
    let limit_percent = limit.in_percent();
    (percent > limit_percent).then_some(limit_percent)
}

/// How much the machine may disturb a trial that counts; fixed before the run, as everything is that
/// decides whether a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Time that the hypervisor gave to others, of the CPUs in use. 5% by default.
    pub steal: Percent,
    /// CPU time of processes that are not part of the trial, of the CPUs in use. 10% by default.
    pub foreign_cpu: Percent,
    /// How long the lab was not let run, of the window. 10% by default.
    pub halt: Percent,
    /// How far the generator's window may differ from that of the servers. 5% by default.
    pub skew: Percent,
    /// How far the part of the requests that one of several origins got may be from an even one, of all
    /// requests. 2% by default, which of two is 48% to 52%.
    pub uneven: Percent,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steal: Percent(0.05),
            foreign_cpu: Percent(0.1),
            halt: Percent(0.1),
            skew: Percent(0.05),
            uneven: Percent(0.02),
        }
    }
}

/// Of several origins the one whose part of the requests is furthest from an even one: its number from
/// 1, its part, and an even one, in percent.
fn furthest_from_even(requests: &[u64]) -> Option<(usize, f64, f64)> {
    let even_percent = 100.0 / as_f64(requests.len() as u64);
    let all = as_f64(requests.iter().sum::<u64>().max(1));
    let parts = requests.iter().map(|requests| 100.0 * as_f64(*requests) / all);
    let distance = |percent: f64| (percent - even_percent).abs();
    (1..)
        .zip(parts)
        .max_by(|(_, a), (_, b)| distance(*a).total_cmp(&distance(*b)))
        .map(|(origin, percent)| (origin, percent, even_percent))
}

/// How much longer the generator's window was than the servers', as a share of theirs.
fn skew(evidence: &Evidence) -> f64 {
    evidence.window.as_secs_f64() / evidence.servers_window.as_secs_f64() - 1.0
}

impl Invalid {
    /// The rule that was broken, without the figures of one trial.
    pub fn rule(&self) -> String {
        match self {
            Self::Steal { limit_percent, .. } => {
                format!("the hypervisor took more than {limit_percent} % of the CPUs")
            }
            Self::Starved { limit_percent, .. } => {
                format!("other processes took more than {limit_percent} % of the CPUs")
            }
            Self::Stalled { .. } => {
                "a request was under way for more than half of the window".to_owned()
            }
            Self::Unfinished { within_s, .. } => {
                format!("the requests were not all answered within {within_s} s")
            }
            Self::Halted { .. } => "the lab itself was stopped or starved".to_owned(),
            Self::Skewed { .. } => {
                "the generator noticed the measurement's begin or end too late".to_owned()
            }
            Self::Uneven { .. } => "requests were not spread evenly over the origins".to_owned(),
            Self::Unexpected { .. } => "answers were not the expected ones".to_owned(),
            Self::Failed { .. } => "requests got no answer".to_owned(),
            Self::ProcessDied { .. } | Self::NoAnswer => self.to_string(),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steal { percent, limit_percent } => write!(
                formatter,
                "the hypervisor took {percent:.1} % of the CPUs (limit {limit_percent} %)"
            ),
            Self::Starved { foreign_cpu_percent, limit_percent } => write!(
                formatter,
                "other processes took {foreign_cpu_percent:.1} % of the CPUs (limit {limit_percent} %)"
            ),
            Self::ProcessDied { what } => write!(formatter, "{what} during the measurement"),
            Self::Unexpected { answers, example } => {
                write!(formatter, "{answers} answers were not the expected ones")?;
                match example {
                    Some(example) => write!(formatter, " ({example})"),
                    None => Ok(()),
                }
            }
            Self::Failed { requests, kinds } => {
                write!(formatter, "{requests} requests got no answer ({kinds})")
            }
            Self::Stalled { age_s } => {
                write!(formatter, "a request had been under way for {age_s:.2} s at the end")
            }
            Self::Unfinished { ended, requests, within_s } => {
                write!(formatter, "{ended} of {requests} requests had ended after {within_s} s")
            }
            Self::Halted { percent, limit_percent } => write!(
                formatter,
                "the lab was stopped or starved for {percent:.0} % of the window (limit {limit_percent} %)"
            ),
            Self::Uneven { origin, percent, even_percent, limit_percent } => write!(
                formatter,
                "origin {origin} got {percent:.1} % of the requests, and not {even_percent:.1} % (limit {limit_percent} % more or less)"
            ),
            Self::NoAnswer => write!(formatter, "nothing was answered"),
            Self::Skewed { percent, limit_percent } => write!(
                formatter,
                "the generator was measured over {percent:.1} % more or less time than the servers (limit {limit_percent} %)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_every_limit() -> Evidence {
        Evidence {
            steal_percent: 5.0,
            foreign_cpu_percent: 10.0,
            tick: Duration::ZERO,
            died: None,
            answered: 1,
            origin_requests: vec![48, 52],
            unexpected: 0,
            unexpected_example: None,
            failed: 0,
            failed_kinds: String::new(),
            window: Duration::from_millis(1_049),
            servers_window: Duration::from_secs(1),
            planned: Window::For(Duration::from_millis(910)),
            lateness: Duration::from_millis(91),
            oldest_unanswered: Some(Duration::from_millis(455)),
        }
    }

    #[test]
    fn a_trial_within_every_limit_counts() {
        assert_eq!(judge(&at_every_limit(), &Limits::default()), []);
    }

    #[test]
    fn an_experiment_may_set_other_limits() {
        let limits = Limits { steal: Percent(0.04), ..Limits::default() };
        assert_eq!(
            judge(&at_every_limit(), &limits),
            [Invalid::Steal { percent: 5.0, limit_percent: 4.0 }]
        );
    }

    #[test]
    fn a_lab_that_was_halted_in_the_middle_of_the_window_does_not_count() {
        let evidence = Evidence { lateness: Duration::from_millis(92), ..at_every_limit() };
        assert!(matches!(judge(&evidence, &Limits::default())[..], [Invalid::Halted { .. }]));
    }

    #[test]
    fn what_may_be_a_tick_of_the_kernel_is_not_told_as_noise() {
        // 10 ms of a second are 1 %, of 25 ms they are 40 %.
        let told = |window_ms, steal_percent, foreign_cpu_percent| {
            let (servers_window, tick) =
                (Duration::from_millis(window_ms), Duration::from_millis(10));
            let planned = Window::Requests { requests: 1, within: Duration::from_secs(1) };
            let evidence = Evidence {
                steal_percent,
                foreign_cpu_percent,
                tick,
                servers_window,
                planned,
                lateness: Duration::ZERO,
                ..at_every_limit()
            };
            judge(&evidence, &Limits::default()).len()
        };
        assert_eq!(told(1_000, 6.0, 11.0), 0);
        assert_eq!(told(1_000, 6.1, 11.1), 2);
        assert_eq!(told(25, 45.0, 50.0), 0);
        assert_eq!(told(25, 45.1, 50.1), 2);
    }

    #[test]
    fn what_a_dead_process_used_is_not_blamed_on_others() {
        let noisy = Evidence { foreign_cpu_percent: 10.1, ..at_every_limit() };
        assert!(matches!(judge(&noisy, &Limits::default())[..], [Invalid::Starved { .. }]));
        let died = Evidence { died: Some("x ended".to_owned()), ..noisy };
        assert!(matches!(judge(&died, &Limits::default())[..], [Invalid::ProcessDied { .. }]));
    }

    #[test]
    fn a_generator_that_notices_the_window_late_does_not_count() {
        for window_ms in [949, 1_051] {
            let window = Duration::from_millis(window_ms);
            let evidence = Evidence { window, ..at_every_limit() };
            assert!(
                matches!(judge(&evidence, &Limits::default())[..], [Invalid::Skewed { .. }]),
                "{window_ms}"
            );
        }
    }

    /// A hundred requests that took a second, and could have taken two.
    fn of_requests(answered: u64, failed: u64) -> Evidence {
        let planned = Window::Requests { requests: 100, within: Duration::from_secs(2) };
        Evidence { answered, failed, planned, ..at_every_limit() }
    }

    #[test]
    fn a_number_of_requests_has_to_end_in_the_time_that_it_may_take() {
        assert_eq!(judge(&of_requests(100, 0), &Limits::default()), []);
        let told = |evidence: &Evidence| -> Vec<String> {
            judge(evidence, &Limits::default()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(&of_requests(99, 0)), ["99 of 100 requests had ended after 2 s"]);
        // What failed has ended, and is told as what it is.
        assert!(matches!(
            judge(&of_requests(99, 1), &Limits::default())[..],
            [Invalid::Failed { requests: 1, .. }]
        ));
    }

    #[test]
    fn a_number_of_requests_is_judged_by_how_long_it_took() {
        // The reading of the servers' clocks takes as long as it takes: nothing else is sent.
        let later = Evidence { window: Duration::from_millis(700), ..of_requests(100, 0) };
        assert_eq!(judge(&later, &Limits::default()), []);
        let halted = |lateness_ms| {
            let lateness = Duration::from_millis(lateness_ms);
            judge(&Evidence { lateness, ..of_requests(100, 0) }, &Limits::default())
        };
        assert_eq!(halted(100), []);
        assert!(matches!(halted(101)[..], [Invalid::Halted { .. }]));
    }

    #[test]
    fn each_origin_has_to_get_its_part() {
        let told = |origin_requests: &[u64]| {
            let evidence =
                Evidence { origin_requests: origin_requests.to_vec(), ..at_every_limit() };
            let invalid = judge(&evidence, &Limits::default());
            invalid.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(&[]), [""; 0]);
        assert_eq!(told(&[520, 480]), [""; 0]);
        assert_eq!(
            told(&[521, 479]),
            ["origin 2 got 47.9 % of the requests, and not 50.0 % (limit 2 % more or less)"]
        );
        // 100 % of 3 is 66.7 % too much, which is more than the 33.3 % that the others lack.
        assert_eq!(
            told(&[0, 9, 0]),
            ["origin 2 got 100.0 % of the requests, and not 33.3 % (limit 2 % more or less)"]
        );
        // Who got no request of any did not get its part either.
        assert_eq!(told(&[0, 0]).len(), 1);
    }

    #[test]
    fn each_rule_is_told_apart() {
        let evidence = Evidence {
            steal_percent: 5.1,
            foreign_cpu_percent: 10.1,
            died: Some("process 7 ended".to_owned()),
            answered: 0,
            unexpected: 3,
            unexpected_example: Some("`xss`: 200".to_owned()),
            failed: 2,
            failed_kinds: "2 reset".to_owned(),
            planned: Window::For(Duration::from_millis(800)),
            oldest_unanswered: Some(Duration::from_millis(401)),
            ..at_every_limit()
        };
        let told: Vec<String> =
            judge(&evidence, &Limits::default()).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "process 7 ended during the measurement",
                "nothing was answered",
                "3 answers were not the expected ones (`xss`: 200)",
                "2 requests got no answer (2 reset)",
                "the hypervisor took 5.1 % of the CPUs (limit 5 %)",
                "a request had been under way for 0.40 s at the end",
                "the lab was stopped or starved for 25 % of the window (limit 10 %)",
            ]
        );
    }
}
