//! What one load is to be: the arguments, checked once.

use super::args::{Args, Format, WarmUp};
use super::content::Content;
use super::target::Target;
use anyhow::{Result, bail};
use std::sync::Arc;
use std::time::Duration;
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_load::{Arrivals, Plan, Spacing};

/// What one load is to be. It holds together: the generator takes every plan that is made of it.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where it goes.
    pub(crate) target: Target,
    /// What is sent.
    pub(crate) content: Content,
    /// When it is sent.
    pub(crate) arrivals: Arrivals,
    /// What Poisson gaps and the order of a mix are drawn from.
    pub(crate) seed: u64,
    /// Connections that are open from the start.
    pub(crate) connections: usize,
    /// How far they may grow; the same in a closed loop.
    pub(crate) connections_max: usize,
    /// How late what is due may be sent, so that one waking serves many.
    pub(crate) timer_slack: Duration,
    /// Threads that send.
    pub(crate) threads: usize,
    /// Requests under way on one connection.
    pub(crate) pipeline: usize,
    /// Whether a connection carries one request after another.
    pub(crate) keep_alive: bool,
    /// Whether the threads ask for events instead of sleeping.
    pub(crate) busy_poll: bool,
    /// When it ends.
    pub(crate) end: End,
    /// What comes before the measurement.
    pub(crate) warm_up: WarmUp,
    /// How the result is printed.
    pub(crate) format: Format,
    /// How long connecting may take.
    pub(crate) connect_timeout: Duration,
    /// How long an answer may take.
    pub(crate) answer_timeout: Duration,
    cpus: Vec<usize>,
}

/// When a load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// After this many requests.
    Requests(u64),
    /// After this time.
    After(Duration),
}

impl Settings {
    /// Checks the arguments against each other and renders what is to be sent.
    ///
    /// # Errors
    ///
    /// What is asked for contradicts itself, or cannot be sent where it should go.
    pub(crate) fn of(args: &Args, catalog: &Catalog) -> Result<Self> {
        let timer_slack = timer_slack(args)?;
        let target = Target::parse(&args.url, args.unix_socket.as_deref(), &args.allow_host)?;
        let &Args { connections, threads, pipeline, .. } = args;
        if threads > connections {
            bail!("{threads} threads need at least {threads} connections (-c)");
        }
        let connections_max = args.max_connections.unwrap_or(connections);
        if connections_max < connections {
            bail!(
                "--max-connections {connections_max} is less than the {connections} connections (-c) from the start"
            );
        }
        if pipeline > 1 && args.no_keepalive {
            bail!(
                "--pipeline {pipeline} needs connections that are kept: leave out --no-keepalive"
            );
        }
        Ok(Self {
            content: Content::of(args, &target, catalog)?,
            target,
            arrivals: arrivals(args),
            seed: args.seed,
            connections: usize::try_from(connections)?,
            connections_max: usize::try_from(connections_max)?,
            timer_slack,
            threads: usize::try_from(threads)?,
            pipeline: usize::try_from(pipeline)?,
            keep_alive: !args.no_keepalive,
            busy_poll: args.busy_poll,
            end: (args.requests.map(End::Requests))
                .or(args.duration.map(End::After))
                .expect("one of the two options has to be given"),
            warm_up: args.warmup.unwrap_or(WarmUp::None),
            format: args.format,
            cpus: args.cpus.as_ref().map_or(Vec::new(), |list| list.0.clone()),
            connect_timeout: args.connect_timeout,
            answer_timeout: args.timeout,
        })
    }

    /// Checks what is asked for against what this machine gives: how many files the process may open,
    /// and the CPUs that it may run on.
    ///
    /// # Errors
    ///
    /// It does not give that much.
    pub(crate) fn check_machine(&self, files_max: u64, cpus: &[usize]) -> Result<()> {
        if let Some(cpu) = self.cpus.iter().find(|cpu| !cpus.contains(cpu)) {
            bail!("--cpus names CPU {cpu}; this process may run on {}", listed(cpus));
        }
        let files = (self.connections_max + FILES + FILES_PER_THREAD * self.threads) as u64;
        if files > files_max {
            let option = match self.connections_max > self.connections {
                true => "--max-connections",
                false => "-c",
            };
            bail!(
                "{option} {} needs {files} open files, and the limit is {files_max}: raise it with `ulimit -n`, or use fewer connections",
                self.connections_max
            );
        }
        Ok(())
    }

    /// The generator's plan.
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            target: self.target.address.clone(),
            workload: Arc::clone(&self.content.workload),
            arrivals: self.arrivals,
            connections: self.connections,
            connections_max: self.connections_max,
            timer_slack: self.timer_slack,
            threads: self.threads,
            pipeline: self.pipeline,
            keep_alive: self.keep_alive,
            busy_poll: self.busy_poll,
            connect_timeout: self.connect_timeout,
            answer_timeout: self.answer_timeout,
            requests: match self.end {
                End::Requests(requests) => Some(requests),
                End::After(_) => None,
            },
            warm_up: self.warm_up != WarmUp::None,
            // It costs a little for each answer, so only the formats that tell it ask for it; of what
            // is read after a nap, the arrival of the last byte is known.
            first_byte: matches!(self.format, Format::Ab | Format::Json)
                && self.timer_slack.is_zero(),
            cpus: self.cpus.clone(),
        }
    }

    /// The rate of an open loop, in requests a second; none for a closed one.
    pub(crate) fn rate_per_s(&self) -> Option<f64> {
        match self.arrivals {
            Arrivals::Closed => None,
            Arrivals::Open { per_second, .. } => Some(per_second),
        }
    }
}

/// Files that the program has open besides its connections: the standard streams, the signals' pipe,
/// and room for what libraries open.
const FILES: usize = 16;

/// Files of each thread: its poller, its timer, its waker, and the kernel's account of its CPU time.
const FILES_PER_THREAD: usize = 4;

/// The slack of the schedule, zero where it is to be on time.
///
/// # Errors
///
/// It cannot be had with what else is asked for.
fn timer_slack(args: &Args) -> Result<Duration> {
    let (Some(slack), Some(rate)) = (args.timer_slack, args.rate) else {
        return Ok(Duration::ZERO);
    };
    if args.unix_socket.is_some() {
        bail!(
            "--timer-slack needs TCP: the kernel does not note when a unix-domain socket receives, so latencies would be up to the slack too long; leave out --timer-slack or --unix-socket"
        );
    }
    if args.pipeline > 1 {
        bail!(
            "--timer-slack needs a --pipeline of 1: of several answers on one connection, only the arrival of the last is known"
        );
    }
    let connections_max = args.max_connections.unwrap_or(args.connections);
    let due = rate * slack.as_secs_f64();
    if due > connections_max as f64 {
        bail!(
            "{due:.0} requests fall due in a --timer-slack of {}, and {connections_max} connections carry one each: choose more connections (-c, --max-connections), or less slack",
            humantime::format_duration(slack)
        );
    }
    Ok(slack)
}

fn listed(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn arrivals(args: &Args) -> Arrivals {
    let spacing = match args.poisson {
        true => Spacing::Poisson { seed: args.seed },
        false => Spacing::Constant,
    };
    args.rate.map_or(Arrivals::Closed, |per_second| Arrivals::Open { per_second, spacing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::args::tests::args;

    fn settings(line: &str) -> Result<Settings> {
        Settings::of(&args(line), &Catalog::new(vec![]))
    }

    #[test]
    fn a_plain_line_is_a_closed_loop_of_fifty_connections() {
        let settings = settings("http://127.0.0.1:8000/ -d 2s").unwrap();
        let plan = settings.plan();
        assert_eq!(plan.arrivals, Arrivals::Closed);
        assert_eq!((plan.connections, plan.connections_max, plan.threads), (50, 50, 1));
        assert_eq!((plan.pipeline, plan.keep_alive, plan.requests), (1, true, None));
        assert_eq!(plan.connect_timeout, Duration::from_secs(5));
        assert_eq!(plan.answer_timeout, Duration::from_secs(10));
        assert_eq!(settings.end, End::After(Duration::from_secs(2)));
        assert_eq!(settings.warm_up, WarmUp::None);
        assert!(!plan.first_byte);
    }

    #[test]
    fn every_option_reaches_the_plan() {
        let line = "http://127.0.0.1/ -n 7 -c 4 --max-connections 9 -t 2 --cpus 0,2-3 --rate 2.5 \
            --poisson --seed 3 --pipeline 5 --timeout 1s --connect-timeout 2s --format ab";
        let plan = settings(line).unwrap().plan();
        let spacing = Spacing::Poisson { seed: 3 };
        assert_eq!(plan.arrivals, Arrivals::Open { per_second: 2.5, spacing });
        assert_eq!((plan.connections, plan.connections_max, plan.threads), (4, 9, 2));
        assert_eq!((plan.pipeline, plan.requests, plan.cpus), (5, Some(7), vec![0, 2, 3]));
        assert_eq!(plan.answer_timeout, Duration::from_secs(1));
        assert_eq!(plan.connect_timeout, Duration::from_secs(2));
        assert!(plan.first_byte);
    }

    #[test]
    fn a_timer_slack_reaches_the_plan_and_takes_the_first_bytes_away() {
        let line = "http://127.0.0.1/ -n 1 --rate 50000 --timer-slack 1ms --format json";
        let plan = settings(line).unwrap().plan();
        assert_eq!((plan.timer_slack, plan.first_byte), (Duration::from_millis(1), false));
        let plan = settings("http://127.0.0.1/ -n 1 --rate 50000").unwrap().plan();
        assert_eq!(plan.timer_slack, Duration::ZERO);
    }

    #[test]
    fn first_bytes_are_timed_for_the_formats_that_tell_them() {
        let first_byte = |format| {
            let line = format!("http://127.0.0.1/ -n 1 --format {format}");
            settings(&line).unwrap().plan().first_byte
        };
        assert_eq!(["json", "ab"].map(first_byte), [true; 2]);
        assert_eq!(["table", "csv", "hgrm"].map(first_byte), [false; 3]);
    }

    #[test]
    fn only_a_warm_up_leaves_the_window_to_be_opened() {
        let plan = |line| settings(line).unwrap().plan();
        assert!(!plan("http://127.0.0.1/ -d 1s").warm_up);
        assert!(plan("http://127.0.0.1/ -d 1s --warmup 1s").warm_up);
        assert!(plan("http://127.0.0.1/ -d 1s --warmup steady").warm_up);
    }

    #[test]
    fn what_the_machine_does_not_give_is_told_before_the_start() {
        let check = |options: &str, files_max| {
            let settings = settings(&format!("http://127.0.0.1/ -n 1 {options}")).unwrap();
            settings.check_machine(files_max, &[0, 2]).map_err(|error| error.to_string())
        };
        // 50 connections, 16 of the program's own and 4 of its thread are 70.
        assert_eq!(check("-c 50 --cpus 0,2", 70), Ok(()));
        let why = check("-c 50", 69).unwrap_err();
        assert!(
            why.starts_with("-c 50 needs 70 open files, and the limit is 69: raise it"),
            "{why}"
        );
        let why = check("-c 1 --rate 1 --max-connections 100", 20).unwrap_err();
        assert!(why.starts_with("--max-connections 100 needs 120 open files"), "{why}");
        let why = check("--cpus 0,99", 1_024).unwrap_err();
        assert_eq!(why, "--cpus names CPU 99; this process may run on 0, 2");
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for (line, why) in [
            ("http://127.0.0.1/ -n 1 -c 1 -t 2", "2 threads need at least 2 connections (-c)"),
            ("http://127.0.0.1/ -n 1 --rate 1 --max-connections 49", "less than the 50"),
            ("http://127.0.0.1/ -n 1 --pipeline 2 --no-keepalive", "leave out --no-keepalive"),
            ("http://localhost/ -n 1 --rate 1 --timer-slack 1ms --unix-socket /s", "needs TCP"),
            ("http://127.0.0.1/ -n 1 --rate 1 --timer-slack 1ms --pipeline 2", "--pipeline of 1"),
            (
                "http://127.0.0.1/ -n 1 --rate 60000 --timer-slack 1ms",
                "60 requests fall due in a --timer-slack of 1ms, and 50 connections",
            ),
        ] {
            let error = format!("{:#}", settings(line).unwrap_err());
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
