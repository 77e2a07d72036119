//! The result of a load: what programs read, and what every format is made from. The names say the
//! units; FORMAT.md says what each means.

mod errors;
mod latency;
mod load;
mod tallies;
mod thread;

pub(crate) use errors::{Errors, Examples};
pub(crate) use latency::Latency;
pub(crate) use load::{ArrivalsResult, Load, Loop, WarmUpResult};
pub(crate) use tallies::{ClassResult, TemplateResult};
pub(crate) use thread::ThreadResult;

use super::course::Course;
use super::settings::Settings;
use super::verdict::{self, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate_lab::manifest::VERSION;
use tollgate_load::Outcome;
use tollgate_stats::{EncodeError, LatencyHistogram};

/// The version of this shape: a change that could break a reader makes it one more.
const SCHEMA: u32 = 2;

/// The result of a load.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoadResult {
    /// The version of this shape.
    pub(crate) schema: u32,
    /// The version of the program.
    pub(crate) tollgate: &'static str,
    /// The URL as it was given.
    pub(crate) url: String,
    /// What was connected to: an address and a port, or the path of a unix-domain socket.
    pub(crate) target: String,
    /// What load was asked for.
    pub(crate) load: Load,
    /// What came before the measurement.
    pub(crate) warm_up: WarmUpResult,
    /// Whether it was stopped before it was delivered; then the figures are those so far.
    pub(crate) interrupted: bool,
    /// How long the measurement was, in seconds.
    pub(crate) window_s: f64,
    /// Requests begun, warm-up included.
    pub(crate) sent: u64,
    /// Complete answers, expected or not.
    pub(crate) answered: u64,
    /// Those of them that were not the expected ones.
    pub(crate) unexpected: u64,
    /// Requests that got no complete answer: all `errors` but `unexpected`.
    pub(crate) failed: u64,
    /// Complete answers a second; null for a measurement without length.
    pub(crate) throughput_per_s: Option<f64>,
    /// Answers by their status code.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// What went wrong, by kind.
    pub(crate) errors: Errors,
    /// The first error of a kind in words.
    pub(crate) examples: Examples,
    /// Requests under way at the end.
    pub(crate) unanswered: u64,
    /// How long the oldest of them had been under way, in milliseconds.
    pub(crate) oldest_unanswered_ms: Option<f64>,
    /// Open loop: requests that were due at the end, and had not been sent.
    pub(crate) overdue: u64,
    /// How long the oldest of them had been due, in milliseconds.
    pub(crate) oldest_overdue_ms: Option<f64>,
    /// Open loop: requests that were due while no connection was free, and waited for one.
    pub(crate) held: u64,
    /// With a timer slack: answers whose arrival the kernel did not note, so that their latency is up
    /// to the slack too long.
    pub(crate) missed_stamps: u64,
    /// Requests sent again on a new connection.
    pub(crate) resent: u64,
    /// Bytes of answers, heads and codings included.
    pub(crate) bytes_received: u64,
    /// Bytes of answers' bodies, without transfer codings.
    pub(crate) body_bytes: u64,
    /// Connections established in the measurement.
    pub(crate) connects: u64,
    /// Answers that left the connection open for another request.
    pub(crate) kept_alive: u64,
    /// Connections that the server left open after its last answer on them, and that were cut off
    /// 200 ms later.
    pub(crate) cut_off: u64,
    /// Latency: open loop from the scheduled moment, closed loop from the send.
    pub(crate) latency: Latency,
    /// Open loop: latency from the send.
    pub(crate) latency_from_send: Option<Latency>,
    /// Open loop: how late the generator itself was.
    pub(crate) lateness: Option<Latency>,
    /// How long connecting took.
    pub(crate) connect_time: Latency,
    /// From the send to the first byte of the answer; null where it was not asked for, and with a
    /// timer slack.
    pub(crate) first_byte: Option<Latency>,
    /// The answers to each template.
    pub(crate) templates: Vec<TemplateResult>,
    /// The answers to each class; empty without a mix.
    pub(crate) classes: Vec<ClassResult>,
    /// What each thread of the generator used.
    pub(crate) threads: Vec<ThreadResult>,
    /// Whose figures these are.
    pub(crate) verdict: Verdict,
}

impl LoadResult {
    /// Puts together what was asked for and what came of it.
    ///
    /// # Errors
    ///
    /// A histogram cannot be encoded.
    pub(crate) fn of(
        settings: &Settings,
        course: Course,
        outcome: &Outcome,
    ) -> Result<Self, EncodeError> {
        let templates = tallies::templates(&settings.content.templates, &outcome.templates)?;
        let optional =
            |histogram: &Option<LatencyHistogram>| histogram.as_ref().map(Latency::of).transpose();
        let seconds = outcome.window.as_secs_f64();
        Ok(Self {
            schema: SCHEMA,
            tollgate: VERSION,
            url: settings.target.url.clone(),
            target: settings.target.address.to_string(),
            load: Load::of(settings),
            warm_up: WarmUpResult {
                seconds: course.warm_up.lasted.as_secs_f64(),
                steady: course.warm_up.steady,
                answered: outcome.warm_up.answered,
                failed: outcome.warm_up.failed,
            },
            interrupted: course.is_interrupted,
            window_s: seconds,
            sent: outcome.sent,
            answered: outcome.answered,
            unexpected: outcome.unexpected,
            failed: outcome.failures.total(),
            throughput_per_s: (seconds > 0.0).then(|| outcome.answered as f64 / seconds),
            statuses: tallies::statuses(&templates),
            errors: Errors::of(&outcome.failures, outcome.unexpected),
            examples: Examples::of(outcome),
            unanswered: outcome.unanswered,
            oldest_unanswered_ms: outcome.oldest_unanswered.map(ms),
            overdue: outcome.overdue,
            oldest_overdue_ms: outcome.oldest_overdue.map(ms),
            held: outcome.held,
            missed_stamps: outcome.missed_stamps,
            resent: outcome.resent,
            bytes_received: outcome.bytes_received,
            body_bytes: outcome.body_bytes,
            connects: outcome.connects,
            kept_alive: outcome.kept_alive,
            cut_off: outcome.cut_off,
            latency: Latency::of(&outcome.latency)?,
            latency_from_send: optional(&outcome.latency_from_send)?,
            lateness: optional(&outcome.lateness)?,
            connect_time: Latency::of(&outcome.connect_time)?,
            first_byte: optional(&outcome.first_byte)?,
            classes: tallies::classes(&settings.content.templates, &outcome.templates)?,
            templates,
            threads: outcome.threads.iter().map(ThreadResult::of).collect(),
            verdict: verdict::judge(settings.arrivals, settings.timer_slack, outcome),
        })
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::examples;
    use schemars::generate::SchemaSettings;
    use serde_json::Value;
    use std::path::Path;
    use tollgate_traffic::Class;

    #[test]
    fn the_committed_schema_is_that_of_the_types() {
        // What is written has all its fields, those that may be null among them.
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let schema = settings.into_generator().into_root_schema_for::<LoadResult>();
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/load-result.json");
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        assert!(committed == text, "set UPDATE_SCHEMAS=1 and run this test to write {path:?}");
    }

    #[test]
    fn figures_come_from_the_outcome_and_the_books_balance() {
        let settings = examples::closed_loop();
        let result = LoadResult::of(&settings, examples::COLD, &examples::outcome()).unwrap();
        assert_eq!(result.throughput_per_s, Some(450.5));
        assert_eq!(result.statuses, BTreeMap::from([(200, 898), (502, 3)]));
        assert_eq!(result.oldest_unanswered_ms, Some(12.5));
        assert_eq!((result.failed, result.errors.unexpected), (9, 3));
        assert_eq!(result.examples.unexpected.as_deref(), Some("502 instead of 200"));
        assert_eq!(result.threads[0].busy, 0.41);
        assert_eq!(result.sent, result.answered + result.failed + result.unanswered);
        assert_eq!(result.templates[0].name, "GET /shop?page=2");
        assert!(result.classes.is_empty());
        assert_eq!((result.load.kind, result.load.arrivals), (Loop::Closed, None));
        assert_eq!((result.load.requests, result.load.duration_s), (None, Some(2.0)));
        assert_eq!((result.load.timeout_ms, result.load.connect_timeout_ms), (10_000.0, 5_000.0));
        assert!(!result.interrupted);
    }

    #[test]
    fn fields_that_may_be_null_are_always_there() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/load-result.json");
        let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let required = schema["required"].as_array().unwrap();
        let result = LoadResult::of(&examples::closed_loop(), examples::COLD, &examples::outcome());
        let written = serde_json::to_value(result.unwrap()).unwrap();
        assert_eq!(written["first_byte"], Value::Null);
        for field in written.as_object().unwrap().keys() {
            assert!(required.contains(&Value::from(field.as_str())), "{field}");
        }
    }

    #[test]
    fn a_load_that_was_stopped_says_so() {
        let course = Course { is_interrupted: true, ..examples::COLD };
        let result = LoadResult::of(&examples::closed_loop(), course, &examples::outcome());
        assert!(result.unwrap().interrupted);
    }

    #[test]
    fn classes_are_the_sums_of_their_templates() {
        let settings = examples::open_loop();
        let outcome = examples::open_outcome();
        let result = LoadResult::of(&settings, examples::COLD, &outcome).unwrap();
        assert_eq!(result.load.arrivals, Some(ArrivalsResult::Poisson));
        let classes: Vec<_> =
            result.classes.iter().map(|c| (c.class, c.answered, c.unexpected)).collect();
        assert_eq!(classes, [(Class::Benign, 851, 3), (Class::Malicious, 50, 0)]);
        assert_eq!(result.classes[1].latency.count, 50);
    }

    #[test]
    fn without_a_window_there_is_no_throughput() {
        let outcome = Outcome { window: Duration::ZERO, ..examples::outcome() };
        let result = LoadResult::of(&examples::closed_loop(), examples::COLD, &outcome).unwrap();
        assert_eq!(result.throughput_per_s, None);
    }
}
