//! Validity and bottleneck of a trial. The rules are fixed before the run and do not depend on the prices.

use std::time::Duration;
use tollgate_load::SATURATED_SHARE;
use tollgate_records::trial::{Bottleneck, as_f64};
use tollgate_records::validity::{HeavyProcess, Invalid, Limits};
use tollgate_traffic::load_shape::Window;
use tollgate_traffic::units::Percent;

/// Input of the rules.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Evidence {
    /// Steal, in percent of the capacity of the CPUs in use.
    pub(crate) steal_percent: f64,
    /// CPU time of other processes, in percent of the capacity of the CPUs in use.
    pub(crate) background_cpu_percent: f64,
    pub(crate) heaviest: Option<HeavyProcess>,
    /// Resolution of both on each CPU.
    pub(crate) tick: Duration,
    /// Description of a system process that ended.
    pub(crate) died: Option<String>,
    /// Responses, expected or not.
    pub(crate) responses: u64,
    pub(crate) origin_requests: Vec<u64>,
    pub(crate) unexpected: u64,
    pub(crate) unexpected_example: Option<String>,
    /// Requests without a response.
    pub(crate) failed: u64,
    pub(crate) failed_kinds: String,
    /// Window of the generator.
    pub(crate) window: Duration,
    /// Window of the CPU readings of the servers.
    pub(crate) servers_window: Duration,
    pub(crate) planned: Window,
    /// True if the window contains the whole load.
    pub(crate) is_whole_load: bool,
    /// Longest delay of a wake-up of this process during the window.
    pub(crate) lateness: Duration,
    /// Age of the oldest request in flight when the window closed.
    pub(crate) oldest_in_flight: Option<Duration>,
}

/// Returns all violated rules.
pub(crate) fn judge(evidence: &Evidence, limits: &Limits) -> Vec<Invalid> {
    let mut invalid = Vec::new();
    if let Some(what) = &evidence.died {
        invalid.push(Invalid::ProcessDied { what: what.clone() });
    }
    if evidence.responses == 0 {
        invalid.push(Invalid::NoResponse);
    }
    if evidence.unexpected > 0 {
        invalid.push(Invalid::Unexpected {
            responses: evidence.unexpected,
            example: evidence.unexpected_example.clone(),
        });
    }
    if evidence.failed > 0 {
        invalid.push(Invalid::Failed {
            requests: evidence.failed,
            kinds: evidence.failed_kinds.clone(),
        });
    }
    if let Some((origin, percent, even_percent)) = most_uneven_origin(&evidence.origin_requests)
        && let Some(limit_percent) = beyond((percent - even_percent).abs(), limits.imbalance)
    {
        invalid.push(Invalid::Imbalance { origin, percent, even_percent, limit_percent });
    }
    // In a short window, a tick that overlaps its begin or end is a large share.
    let tick_percent = 100.0 * evidence.tick.as_secs_f64() / evidence.servers_window.as_secs_f64();
    let at_least = |percent: f64| percent - tick_percent;
    if let Some(limit_percent) = beyond(at_least(evidence.steal_percent), limits.steal) {
        invalid.push(Invalid::Steal { percent: evidence.steal_percent, limit_percent });
    }
    // The CPU time of a process that ended is unknown and would count as background.
    let background_cpu_percent = evidence.background_cpu_percent;
    if evidence.died.is_none()
        && let Some(limit_percent) = beyond(at_least(background_cpu_percent), limits.background_cpu)
    {
        invalid.push(Invalid::BackgroundCpu {
            percent: background_cpu_percent,
            limit_percent,
            heaviest: evidence.heaviest.clone(),
        });
    }
    if let Window::Requests { requests, within } = evidence.planned {
        let ended = evidence.responses + evidence.failed;
        if ended < requests.into() {
            let timeout_s = within.as_secs_f64();
            invalid.push(Invalid::Unfinished { finished: ended, requests, timeout_s });
        }
    }
    if evidence.is_whole_load {
        let halted = evidence.lateness.as_secs_f64() / evidence.servers_window.as_secs_f64();
        let percent = 100.0 * halted;
        if let Some(limit_percent) = beyond(percent, limits.pause) {
            invalid.push(Invalid::Paused { percent, limit_percent });
        }
    } else {
        judge_fixed_time(evidence, evidence.planned.longest(), limits, &mut invalid);
    }
    invalid
}

/// Applies the rules of a fixed time: servers and generator must be measured over the same part of a load that
/// continues before and after it.
fn judge_fixed_time(
    evidence: &Evidence,
    planned: Duration,
    limits: &Limits,
    invalid: &mut Vec<Invalid>,
) {
    let stalled = evidence.oldest_in_flight.filter(|age| *age > planned / 2);
    if let Some(age) = stalled {
        invalid.push(Invalid::Stalled { age_s: age.as_secs_f64() });
    }
    let overtime = evidence.servers_window.saturating_sub(planned);
    let halted = overtime.max(evidence.lateness).as_secs_f64() / planned.as_secs_f64();
    let percent = 100.0 * halted;
    if let Some(limit_percent) = beyond(percent, limits.pause) {
        invalid.push(Invalid::Paused { percent, limit_percent });
    }
    let percent = 100.0 * skew(evidence).abs();
    if let Some(limit_percent) = beyond(percent, limits.window_skew) {
        invalid.push(Invalid::WindowSkew { percent, limit_percent });
    }
}

fn beyond(percent: f64, limit: Percent) -> Option<f64> {
    let limit_percent = limit.in_percent();
    (percent > limit_percent).then_some(limit_percent)
}

/// Returns the origin with the most uneven share of the requests: its number from 1, its share, and the even share, in
/// percent.
fn most_uneven_origin(requests: &[u64]) -> Option<(usize, f64, f64)> {
    let even_percent = 100.0 / as_f64(requests.len() as u64);
    let all = as_f64(requests.iter().sum::<u64>().max(1));
    let parts = requests.iter().map(|requests| 100.0 * as_f64(*requests) / all);
    let distance = |percent: f64| (percent - even_percent).abs();
    (1..)
        .zip(parts)
        .max_by(|(_, a), (_, b)| distance(*a).total_cmp(&distance(*b)))
        .map(|(origin, percent)| (origin, percent, even_percent))
}

/// Returns by how much the window of the generator was longer than that of the servers, as a share of the latter.
fn skew(evidence: &Evidence) -> f64 {
    evidence.window.as_secs_f64() / evidence.servers_window.as_secs_f64() - 1.0
}

/// CPU utilization of each role: 1 is all of its CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Utilization {
    /// `None` for a subject without processes.
    pub(crate) system: Option<f64>,
    pub(crate) generator: f64,
    /// 0 without an origin.
    pub(crate) origin: f64,
    /// True if generator and origin share CPUs.
    pub(crate) shared: bool,
    /// Open loop: true if the generator itself was late.
    pub(crate) late: bool,
}

/// Returns the role that limited the throughput. A late generator comes first, because latencies then include its own
/// delay. A saturated system comes next, because faster peers would not help.
pub(crate) fn bottleneck(busy: &Utilization) -> Bottleneck {
    if busy.late {
        return Bottleneck::Generator;
    }
    if busy.system.is_some_and(|share| share >= SATURATED_SHARE) {
        return Bottleneck::System;
    }
    let larger =
        if busy.generator >= busy.origin { Bottleneck::Generator } else { Bottleneck::Origin };
    let together =
        if busy.shared { busy.generator + busy.origin } else { busy.generator.max(busy.origin) };
    if together >= SATURATED_SHARE { larger } else { Bottleneck::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_every_limit() -> Evidence {
        Evidence {
            steal_percent: 5.0,
            background_cpu_percent: 10.0,
            heaviest: None,
            tick: Duration::ZERO,
            died: None,
            responses: 1,
            origin_requests: vec![48, 52],
            unexpected: 0,
            unexpected_example: None,
            failed: 0,
            failed_kinds: String::new(),
            window: Duration::from_millis(1_049),
            servers_window: Duration::from_secs(1),
            planned: Window::For(Duration::from_millis(910)),
            is_whole_load: false,
            lateness: Duration::from_millis(91),
            oldest_in_flight: Some(Duration::from_millis(455)),
        }
    }

    #[test]
    fn values_at_the_limits_are_valid() {
        assert_eq!(judge(&at_every_limit(), &Limits::default()), []);
    }

    #[test]
    fn background_cpu_names_the_heaviest_process_and_the_limit() {
        let heaviest =
            HeavyProcess { name: "rustc".to_owned(), pid: 77, is_subject: false, percent: 40.2 };
        let evidence =
            Evidence { background_cpu_percent: 49.0, heaviest: Some(heaviest), ..at_every_limit() };
        let invalid = judge(&evidence, &Limits::default());
        assert_eq!(
            invalid[0].to_string(),
            "other processes took 49.0 % of the CPUs, `rustc` (pid 77) 40 % (limit `background_cpu`: 10 %)"
        );
        let rule = "other processes took more than 10 % of the CPUs (limit `background_cpu`)";
        assert_eq!(invalid[0].rule(), rule);
    }

    #[test]
    fn experiment_may_change_limits() {
        let limits = Limits { steal: Percent(0.04), ..Limits::default() };
        assert_eq!(
            judge(&at_every_limit(), &limits),
            [Invalid::Steal { percent: 5.0, limit_percent: 4.0 }]
        );
    }

    #[test]
    fn late_wake_up_is_a_pause() {
        let evidence = Evidence { lateness: Duration::from_millis(92), ..at_every_limit() };
        assert!(matches!(judge(&evidence, &Limits::default())[..], [Invalid::Paused { .. }]));
    }

    #[test]
    fn noise_within_a_tick_is_tolerated() {
        // 10 ms of a second are 1 %, of 25 ms they are 40 %.
        let count = |window_ms, steal_percent, background_cpu_percent| {
            let (servers_window, tick) =
                (Duration::from_millis(window_ms), Duration::from_millis(10));
            let planned = Window::Requests { requests: 1, within: Duration::from_secs(1) };
            let evidence = Evidence {
                steal_percent,
                background_cpu_percent,
                tick,
                servers_window,
                planned,
                is_whole_load: true,
                lateness: Duration::ZERO,
                ..at_every_limit()
            };
            judge(&evidence, &Limits::default()).len()
        };
        assert_eq!(count(1_000, 6.0, 11.0), 0);
        assert_eq!(count(1_000, 6.1, 11.1), 2);
        assert_eq!(count(25, 45.0, 50.0), 0);
        assert_eq!(count(25, 45.1, 50.1), 2);
    }

    #[test]
    fn ended_process_is_not_background_noise() {
        let noisy = Evidence { background_cpu_percent: 10.1, ..at_every_limit() };
        assert!(matches!(judge(&noisy, &Limits::default())[..], [Invalid::BackgroundCpu { .. }]));
        let died = Evidence { died: Some("x ended".to_owned()), ..noisy };
        assert!(matches!(judge(&died, &Limits::default())[..], [Invalid::ProcessDied { .. }]));
    }

    #[test]
    fn windows_of_different_length_are_invalid() {
        for window_ms in [949, 1_051] {
            let window = Duration::from_millis(window_ms);
            let evidence = Evidence { window, ..at_every_limit() };
            assert!(
                matches!(judge(&evidence, &Limits::default())[..], [Invalid::WindowSkew { .. }]),
                "{window_ms}"
            );
        }
    }

    /// A hundred requests within a second, with a timeout of two.
    fn of_requests(responses: u64, failed: u64) -> Evidence {
        let planned = Window::Requests { requests: 100, within: Duration::from_secs(2) };
        Evidence { responses, failed, planned, is_whole_load: true, ..at_every_limit() }
    }

    #[test]
    fn fixed_requests_must_finish_in_time() {
        assert_eq!(judge(&of_requests(100, 0), &Limits::default()), []);
        let texts = |evidence: &Evidence| -> Vec<String> {
            judge(evidence, &Limits::default()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(texts(&of_requests(99, 0)), ["99 of 100 requests finished within 2 s"]);
        // Failed requests have finished.
        assert!(matches!(
            judge(&of_requests(99, 1), &Limits::default())[..],
            [Invalid::Failed { requests: 1, .. }]
        ));
    }

    #[test]
    fn fixed_requests_may_have_windows_of_different_length() {
        let later = Evidence { window: Duration::from_millis(700), ..of_requests(100, 0) };
        assert_eq!(judge(&later, &Limits::default()), []);
        let halted = |lateness_ms| {
            let lateness = Duration::from_millis(lateness_ms);
            judge(&Evidence { lateness, ..of_requests(100, 0) }, &Limits::default())
        };
        assert_eq!(halted(100), []);
        assert!(matches!(halted(101)[..], [Invalid::Paused { .. }]));
    }

    #[test]
    fn requests_must_be_spread_evenly_over_origins() {
        let texts = |origin_requests: &[u64]| {
            let evidence =
                Evidence { origin_requests: origin_requests.to_vec(), ..at_every_limit() };
            let invalid = judge(&evidence, &Limits::default());
            invalid.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(texts(&[]), [""; 0]);
        assert_eq!(texts(&[520, 480]), [""; 0]);
        assert_eq!(
            texts(&[521, 479]),
            ["origin 2 got 47.9 % of the requests, expected 50.0 % (limit `imbalance`: 2 %)"]
        );
        // 66.7 % too much, more than the 33.3 % that the others lack.
        assert_eq!(
            texts(&[0, 9, 0]),
            ["origin 2 got 100.0 % of the requests, expected 33.3 % (limit `imbalance`: 2 %)"]
        );
        // No request at all is uneven.
        assert_eq!(texts(&[0, 0]).len(), 1);
    }

    #[test]
    fn reports_each_violated_rule() {
        let evidence = Evidence {
            steal_percent: 5.1,
            background_cpu_percent: 10.1,
            died: Some("process 7 ended".to_owned()),
            responses: 0,
            unexpected: 3,
            unexpected_example: Some("`xss`: 200".to_owned()),
            failed: 2,
            failed_kinds: "2 reset".to_owned(),
            planned: Window::For(Duration::from_millis(800)),
            oldest_in_flight: Some(Duration::from_millis(401)),
            ..at_every_limit()
        };
        let texts: Vec<String> =
            judge(&evidence, &Limits::default()).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "process 7 ended during the measurement",
                "no response was received",
                "3 responses were unexpected (`xss`: 200)",
                "2 requests failed (2 reset)",
                "the hypervisor took 5.1 % of the CPUs (limit `steal`: 5 %)",
                "a request was in flight for 0.40 s at the end",
                "tollgate was stopped or starved for 25 % of the window (limit `pause`: 10 %)",
            ]
        );
    }

    fn utilization(system: Option<f64>, generator: f64, origin: f64, shared: bool) -> Utilization {
        Utilization { system, generator, origin, shared, late: false }
    }

    #[test]
    fn saturated_role_is_the_bottleneck() {
        assert_eq!(bottleneck(&utilization(Some(0.95), 0.6, 0.4, true)), Bottleneck::System);
        assert_eq!(bottleneck(&utilization(Some(0.7), 0.6, 0.35, true)), Bottleneck::Generator);
        assert_eq!(bottleneck(&utilization(None, 0.4, 0.55, true)), Bottleneck::Origin);
        assert_eq!(bottleneck(&utilization(Some(0.5), 0.6, 0.35, false)), Bottleneck::None);
        assert_eq!(bottleneck(&utilization(Some(0.5), 0.95, 0.35, false)), Bottleneck::Generator);
    }

    #[test]
    fn late_generator_precedes_saturated_system() {
        let late = Utilization { late: true, ..utilization(Some(0.95), 0.2, 0.2, true) };
        assert_eq!(bottleneck(&late), Bottleneck::Generator);
    }
}
