//! Notes: information about the trials that the figures do not show.

use super::catch::weighted_share;
use super::result::{
    CaseAnalysis, SubjectAnalysis, SubjectStatus, TemplateFigures, TemplateVerdict,
};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_records::case::{CaseManifest, ResponsesManifest};
use tollgate_records::manifest::Manifest;
use tollgate_records::metric;
use tollgate_records::metric::{ByBlock, Metric, judged_by};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::subject::{
    ExternalManifest, OptionValue, RuleSetHash, SubjectManifest, SubjectState,
};
use tollgate_records::trial::{Measurement, OpenLoopRecord, TrialRecord, as_f64};
use tollgate_records::validity::{HeavyProcess, Invalid};
use tollgate_stats::number::{count, counted, percent, significant};
use tollgate_traffic::Class;
use tollgate_traffic::load_shape::{LoadProgram, WarmUp};

/// The name for attacks without a family, if others of the mix have one.
const NO_FAMILY: &str = "other";

/// Maximum number of templates in a list: if a system fails, every template may be in it. report.json has all.
const NAMES_MAX: usize = 12;

/// All notes of a run of `blocks` blocks, case by case and subject by subject.
pub(super) fn of_run(run: &RunRecords, cases: &[CaseAnalysis], blocks: u32) -> Vec<String> {
    let mut notes = Vec::new();
    if run.cut_off {
        notes.push("The last record is incomplete and was ignored.".to_owned());
    }
    let experiment = &run.manifest.experiment;
    // An ablation removes rules on purpose.
    let is_ablation = experiment.ablation.is_some();
    if !is_ablation {
        notes.extend(different_rule_sets(&experiment.subjects));
    }
    notes.extend(experiment.subjects.iter().filter_map(|subject| external(run, subject)));
    notes.extend(shared_core(&run.manifest));
    notes.extend(clients(&run.trials));
    notes.extend(heaviest_process(&run.trials));
    for case in cases {
        if experiment.stop.width.is_some() {
            notes.extend(width(run, &case.case));
        }
        notes.extend(responses(&case.case));
        notes.extend(lowered_rate(&case.case, &run.trials));
        notes.extend(warm_up_lengths(run, case, cases.len() == 1));
        notes.extend(receive_work(case, cases.len() == 1));
        for subject in &case.subjects {
            let name = case.qualified(&subject.name, cases.len());
            notes.extend(own_config(run, &name, subject));
            notes.extend(status(&name, subject, blocks));
            if !is_ablation || subject.name == experiment.baseline {
                notes.extend(detection(&name, &subject.templates));
            }
            let valid = || valid(run, &case.case.name, &subject.name);
            notes.extend(schedule(&name, valid().filter_map(|(_, m)| m.open_loop.as_ref())));
            notes.extend(unsteady(&name, valid()));
        }
    }
    notes
}

/// The note on a system whose CPU is a hardware thread of a core that another role uses.
fn shared_core(manifest: &Manifest) -> Option<String> {
    // Of other hosts only the system's cores are known.
    let cores = manifest.environment.shared_cores.as_ref().filter(|_| manifest.hosts.is_empty())?;
    let (system, other) = manifest.cpu_layout.core_shared_with_system(cores)?;
    Some(format!(
        "CPU {system} of the system and CPU {other} of the generator or origin are hardware threads of one core: each \
         slows the other, so a request takes more CPU time than on a core of its own."
    ))
}

/// The note on a server that runs already: the figures that a run cannot have of it, and the CPUs that it used.
fn external(run: &RunRecords, subject: &SubjectManifest) -> Option<String> {
    let ExternalManifest { url, attach } = subject.external.as_ref()?;
    let of_subject = run.trials.iter().filter(|trial| trial.subject == subject.name);
    let measured: Vec<&Measurement> =
        of_subject.filter_map(|trial| trial.outcome.measurement()).collect();
    let mut lacking = vec!["start time"];
    match attach {
        None => lacking.extend(["CPU", "memory"]),
        Some(_) if measured.iter().any(|m| m.memory_peak_bytes.is_none()) => {
            lacking.push("memory (no permission to read it)");
        }
        Some(_) => {}
    }
    let mut note = format!(
        "{} is a server that runs already, at {url}: not restarted between trials, not placed on a CPU, and with its own \
         backend, so that the origin of the run is not behind it. Not measured: {}.",
        subject.name,
        lacking.join(", ")
    );
    if let Some(attach) = attach {
        let layout = &run.manifest.cpu_layout.system;
        let cpus: BTreeSet<usize> =
            measured.iter().flat_map(|m| &m.attached_cpus).copied().collect();
        note += &format!(" CPU is that of {attach}");
        if !cpus.is_empty() && !cpus.iter().eq(layout) {
            note += &format!(
                ", which may use the CPUs {}; the others have {}",
                numbers(&cpus),
                numbers(layout)
            );
        }
        note.push('.');
    }
    Some(note)
}

/// The attacks that a user's own configuration blocks: it is not known before the probe.
fn own_config(run: &RunRecords, name: &str, subject: &SubjectAnalysis) -> Option<String> {
    let mut subjects = run.manifest.experiment.subjects.iter();
    let options = &subjects.find(|known| known.name == subject.name)?.options;
    let OptionValue::Text(path) = options.get("config")? else { return None };
    let attacks = || subject.templates.iter().filter(|one| one.class == Class::Malicious);
    if !path.starts_with('/') || attacks().count() == 0 {
        return None;
    }
    let blocked = attacks().filter(|attack| attack.probes_blocked > 0).count();
    let all = counted(attacks().count(), "attack");
    Some(format!("{name}: its own configuration, {path}, blocks {blocked} of {all} of the probe."))
}

/// The note on origins that respond as recorded.
fn responses(case: &CaseManifest) -> Option<String> {
    let ResponsesManifest { requests, in_turn, without_length } = case.responses.as_ref()?;
    let mut note = format!(
        "{}: the origin responds to the {} of the recording with their recorded status, length and type (without a type, \
         that of the extension of the path); bodies are text of a page, or letters if their type is not text.",
        case.name,
        counted(*requests, "target")
    );
    if *in_turn > 0 {
        note += &format!(" {} take turns with several responses.", count(*in_turn as u64));
    }
    if *without_length > 0 {
        note += &format!(
            " {} of unknown length: a line of text.",
            counted(*without_length, "response")
        );
    }
    Some(note)
}

/// One note per foreign client: its loads, and the figures that are its own.
fn clients(trials: &[TrialRecord]) -> Vec<String> {
    let mut by_version: BTreeMap<(LoadProgram, &str), BTreeSet<String>> = BTreeMap::new();
    for trial in trials {
        let client = trial.outcome.measurement().and_then(|one| one.client.as_ref());
        if let Some(client) = client {
            let load = format!("{} in {}", trial.subject, trial.case);
            by_version.entry((client.name, &client.version)).or_default().insert(load);
        }
    }
    let note = |((client, version), loads): ((LoadProgram, &str), BTreeSet<String>)| {
        let loads: Vec<String> = loads.into_iter().collect();
        let shown = loads.len().min(NAMES_MAX);
        let more = match loads.len() - shown {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        // Anyone may choose the text that a program prints.
        let version = version.replace(char::is_control, " ");
        format!(
            "{client} (`{version}`) sent the load of {}{more}. Its responses, throughput and latency are those that it printed; \
             generator CPU is that of its whole process.",
            loads[..shown].join(", ")
        )
    };
    by_version.into_iter().map(note).collect()
}

fn numbers<'a>(numbers: impl IntoIterator<Item = &'a usize>) -> String {
    numbers.into_iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// The process that disturbed a trial most.
fn heaviest_process(trials: &[TrialRecord]) -> Option<String> {
    let measured = trials.iter().filter_map(|trial| trial.outcome.measurement());
    let heaviest =
        measured.flat_map(|measurement| &measurement.invalid).filter_map(|rule| match rule {
            Invalid::BackgroundCpu { heaviest, .. } => heaviest.as_ref(),
            _ => None,
        });
    let heaviest = heaviest.max_by(|a, b| a.percent.total_cmp(&b.percent))?;
    let HeavyProcess { name, pid, percent, .. } = heaviest;
    // Anyone may choose the name of a process.
    let name = name.replace(char::is_control, " ");
    Some(format!(
        "The process that disturbed a trial most was `{name}` (pid {pid}), with {percent:.0} % of the CPUs{}.",
        heaviest.advice()
    ))
}

/// The valid trials of a subject; invalid ones are reported with their reason.
fn valid<'a>(
    run: &'a RunRecords,
    case: &'a str,
    subject: &'a str,
) -> impl Iterator<Item = (&'a TrialRecord, &'a Measurement)> {
    metric::measured(run, case, subject).filter(|(_, measurement)| measurement.invalid.is_empty())
}

/// One note per rule set whose content differs between subjects.
fn different_rule_sets(subjects: &[SubjectManifest]) -> Vec<String> {
    let uses = subjects.iter().filter_map(|subject| match &subject.state {
        SubjectState::Present { installed, .. } => {
            Some((subject.name.as_str(), installed.rule_set.as_ref()?))
        }
        SubjectState::Skipped { .. } | SubjectState::Broken { .. } => None,
    });
    different_contents(uses)
}

fn different_contents<'a>(uses: impl Iterator<Item = (&'a str, &'a RuleSetHash)>) -> Vec<String> {
    let mut by_name: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (subject, RuleSetHash { name, hash }) in uses {
        by_name.entry(name).or_default().entry(hash).or_default().insert(subject);
    }
    let different = by_name.iter().filter(|(_, versions)| versions.len() > 1);
    let note = |(name, versions): (&&str, &BTreeMap<&str, BTreeSet<&str>>)| {
        let groups = versions.values().map(|subjects| Vec::from_iter(subjects.iter().copied()));
        let groups: Vec<String> = groups.map(|subjects| subjects.join(", ")).collect();
        format!(
            "Subjects have different versions of {name}: {}. They differ in their rules, not only in their \
             engines.",
            groups.join(" and ")
        )
    };
    different.map(note).collect()
}

/// The note on the figure whose intervals end a run, if it is not the CPU per request.
fn width(run: &RunRecords, case: &CaseManifest) -> Option<String> {
    let baseline = &run.manifest.experiment.baseline;
    let measurements: ByBlock<'_> =
        valid(run, &case.name, baseline).map(|(trial, m)| (trial.block, m)).collect();
    let judged_on = match judged_by(case, &measurements) {
        Metric::ThroughputPerS => "requests/s",
        Metric::LatencyP50Ms => "the p50 latency, because the rate is fixed",
        _ => return None,
    };
    let is_unknown = measurements.values().any(|measurement| measurement.cpu.is_unknown);
    let uses = if is_unknown { "has an unknown CPU time" } else { "uses no CPU" };
    Some(format!(
        "{baseline} {uses}, so there are no ratios of CPU: the width of the intervals was judged on {judged_on}."
    ))
}

/// The case with the last rate of its trials, if its rate is derived from another case.
pub(super) fn with_rate(case: &CaseManifest, trials: &[TrialRecord]) -> CaseManifest {
    let mut with_rate = case.clone();
    let last = rates(case, trials).last().map(|(rate_per_s, _)| *rate_per_s);
    with_rate.load.set_derived_rate(last);
    with_rate
}

/// The note on a derived rate that was lowered when the other case had its first valid trial.
fn lowered_rate(case: &CaseManifest, trials: &[TrialRecord]) -> Option<String> {
    case.load.rate_of()?;
    let rates = rates(case, trials);
    let [(first, _), .., (last, block)] = rates.as_slice() else { return None };
    Some(format!(
        "{}: the rate was {}/s at first and {}/s from block {block} on, after the first valid trial of the slowest \
         subject. The figures include both.",
        case.name,
        significant(*first),
        significant(*last)
    ))
}

/// The rates of a case's trials in order, each with its first block.
fn rates(case: &CaseManifest, trials: &[TrialRecord]) -> Vec<(f64, u32)> {
    let rate = |trial: &TrialRecord| {
        Some((trial.outcome.measurement()?.open_loop.as_ref()?.rate_per_s, trial.block))
    };
    let of_case = trials.iter().filter(|trial| trial.case == case.name);
    let mut rates: Vec<(f64, u32)> = of_case.filter_map(rate).collect();
    rates.dedup_by_key(|(rate_per_s, _)| rate_per_s.to_bits());
    rates
}

/// The durations of warm-ups that last until the system is steady. `None` if the duration was fixed.
fn warm_up_lengths(run: &RunRecords, case: &CaseAnalysis, is_only_case: bool) -> Option<String> {
    let CaseManifest { name, load, .. } = &case.case;
    let WarmUp::Steady { within } = load.warm_up else { return None };
    let length = |subject: &SubjectAnalysis| {
        let mut all: Vec<f64> = valid(run, name, &subject.name)
            .filter_map(|(trial, _)| steadiness(trial))
            .map(|(duration_s, _)| duration_s)
            .collect();
        all.sort_by(f64::total_cmp);
        let (shortest, longest) = (significant(*all.first()?), significant(*all.last()?));
        Some(if shortest == longest {
            format!("{} {shortest} s", subject.name)
        } else {
            format!("{} {shortest} to {longest} s", subject.name)
        })
    };
    let lengths: Vec<String> = case.subjects.iter().filter_map(length).collect();
    if lengths.is_empty() {
        return None;
    }
    let of_case = if is_only_case { String::new() } else { format!(" ({name})") };
    let longest = significant(within.as_secs_f64());
    Some(format!("Warm-up until steady, at most {longest} s{of_case}: {}.", lengths.join(", ")))
}

/// Shares of CPU time that depend on the network: a network card would give this work to the peers.
fn receive_work(case: &CaseAnalysis, is_only_case: bool) -> Option<String> {
    let share = |subject: &SubjectAnalysis| {
        let share = subject.figures.as_ref()?.softirq_share?;
        Some(format!("{} {:.0} %", subject.name, 100.0 * share))
    };
    let shares: Vec<String> = case.subjects.iter().filter_map(share).collect();
    let of_case = if is_only_case { String::new() } else { format!(" ({})", case.case.name) };
    (!shares.is_empty()).then(|| {
        format!(
            "Softirqs on the CPU of the system, over loopback also the receive work of client and origin, as a share of the \
             CPU time of its processes (above 100 % where the CPU was mostly idle){of_case}: {}.",
            shares.join(", ")
        )
    })
}

/// Duration of a warm-up, and true if the system was steady at its end. `None` if the duration was fixed.
fn steadiness(trial: &TrialRecord) -> Option<(f64, bool)> {
    let warm_up = trial.warm_up()?;
    Some((warm_up.duration_s, warm_up.steady?))
}

fn unsteady<'a>(
    name: &str,
    valid: impl Iterator<Item = (&'a TrialRecord, &'a Measurement)>,
) -> Option<String> {
    let steady: Vec<bool> =
        valid.filter_map(|(trial, _)| steadiness(trial)).map(|(_, steady)| steady).collect();
    let count = steady.iter().filter(|steady| !**steady).count();
    let all = steady.len();
    (count > 0).then(|| {
        format!(
            "{name} was not yet steady at the end of the warm-up in {count} of {all} trials; they are \
             valid, but the system may still have been getting faster or slower."
        )
    })
}

/// Reason that a subject has no figures, or fewer than planned.
fn status(name: &str, subject: &SubjectAnalysis, blocks: u32) -> Vec<String> {
    let trials = subject.trials;
    match &subject.status {
        SubjectStatus::Refused(reason) => vec![format!("{name} was refused: {reason}.")],
        SubjectStatus::Failed(reason) => vec![format!("{name} failed: {reason}.")],
        SubjectStatus::Skipped(missing) => vec![format!("{name} was skipped: {missing}")],
        SubjectStatus::Missing => vec![format!("{name}: the run ended before its first trial.")],
        SubjectStatus::Baseline | SubjectStatus::Measured => {
            let missing = (trials < blocks as usize)
                .then(|| format!("{name}: {trials} of {blocks} trials were run."));
            let invalid = subject.invalid.iter().map(|(reason, count)| {
                let verb = if *count == 1 { "is" } else { "are" };
                format!("{name}: {count} of {trials} trials {verb} invalid: {reason}.")
            });
            missing.into_iter().chain(invalid).collect()
        }
    }
}

/// Open loops: trials that did not hold the rate, and trials in which the generator sent late.
fn schedule<'a>(name: &str, schedules: impl Iterator<Item = &'a OpenLoopRecord>) -> Vec<String> {
    let schedules: Vec<&OpenLoopRecord> = schedules.collect();
    let all = schedules.len();
    let behind = || schedules.iter().filter(|schedule| schedule.fell_behind());
    let late: Vec<f64> = schedules
        .iter()
        .filter(|schedule| schedule.is_late())
        .filter_map(|schedule| schedule.lateness_p99_ms)
        .collect();
    let mut notes = Vec::new();
    if behind().next().is_some() {
        let share = |schedule: &&OpenLoopRecord| {
            as_f64(schedule.unsent) / as_f64(schedule.due.max(schedule.unsent).max(1))
        };
        let reason = if behind().all(|schedule| schedule.queued > 0) {
            ", because no connection was free"
        } else {
            ""
        };
        notes.push(format!(
            "{name} did not hold the rate in {} of {all} trials: up to {} of the scheduled requests were not \
             sent{reason}. Its requests/s is the rate that it held, and its latency \
             grows with the length of a trial.",
            behind().count(),
            percent(behind().map(share).fold(0.0, f64::max))
        ));
    }
    if !late.is_empty() {
        notes.push(format!(
            "{name}: the generator sent late in {} of {all} trials (p99 up to {} ms), so \
             the latency is an upper bound.",
            late.len(),
            significant(late.iter().copied().fold(0.0, f64::max))
        ));
    }
    notes
}

/// Attacks that passed, benign requests that were blocked, templates with both, and responses that are neither. A subject that blocks no
/// attack gets no note on passed attacks.
fn detection(name: &str, templates: &[TemplateFigures]) -> Vec<String> {
    let of_class =
        |class| templates.iter().filter(move |one: &&TemplateFigures| one.class == class);
    let mut notes = Vec::new();
    if of_class(Class::Malicious).any(|attack| attack.blocked + attack.probes_blocked > 0) {
        notes.extend(missed(name, of_class(Class::Malicious)));
    }
    notes.extend(false_positives(name, of_class(Class::Benign)));
    notes.extend(unstable(name, templates));
    notes.extend(others(name, templates));
    notes
}

/// The shares of attacks that passed, by family and weight. `None` if the mix names no family.
fn missed<'a>(name: &str, attacks: impl Iterator<Item = &'a TemplateFigures>) -> Option<String> {
    let mut families: BTreeMap<&str, Vec<&TemplateFigures>> = BTreeMap::new();
    for attack in attacks.filter(|attack| attack.weight > 0) {
        families.entry(attack.family.as_deref().unwrap_or(NO_FAMILY)).or_default().push(attack);
    }
    if families.values().flatten().all(|attack| attack.family.is_none()) {
        return None;
    }
    let shares: Vec<(&str, f64)> = families
        .iter()
        .filter_map(|(family, of)| Some((*family, 1.0 - weighted_share(of.iter().copied())?)))
        .collect();
    let missed = shares.iter().filter(|(_, passed)| *passed > 0.0);
    let words: Vec<String> =
        missed.map(|(family, passed)| format!("{} of {family}", percent(*passed))).collect();
    let rest = match shares.len() - words.len() {
        0 => String::new(),
        1 => "; none of the other family".to_owned(),
        rest => format!("; none of the other {rest} families"),
    };
    (!words.is_empty()).then(|| format!("{name} passed attacks: {}{rest}.", words.join(", ")))
}

/// Benign templates with some or all requests blocked.
fn false_positives<'a>(
    name: &str,
    benign: impl Iterator<Item = &'a TemplateFigures>,
) -> Option<String> {
    let mut templates = 0;
    let mut words = Vec::new();
    for one in benign {
        let Some(share) = one.blocked_share() else { continue };
        templates += 1;
        if share >= 1.0 {
            words.push(one.name.clone());
        } else if share > 0.0 {
            words.push(format!("{} ({})", one.name, percent(share)));
        }
    }
    (!words.is_empty()).then(|| {
        let blocked = words.len();
        format!(
            "{name} blocked benign requests ({blocked} of {templates} templates): {}.",
            words.join(", ")
        )
    })
}

/// Templates with some requests blocked and others passed.
fn unstable(name: &str, templates: &[TemplateFigures]) -> Option<String> {
    let is_unstable = |one: &&TemplateFigures| one.verdict == Some(TemplateVerdict::Unstable);
    let word = |one: &TemplateFigures| match (one.blocked, one.passed) {
        (0, 1..) => format!("{} (only in the probe)", one.name),
        (1.., 0) => format!("{} (not in the probe)", one.name),
        _ => format!("{} ({})", one.name, one.blocked_share().map_or(String::new(), percent)),
    };
    let names: Vec<String> = templates.iter().filter(is_unstable).map(word).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{name} blocked some requests of a template and passed others ({} of {} templates): {}.",
            names.len(),
            templates.len(),
            list(&names)
        )
    })
}

/// The templates with responses that are neither a block nor the expected response.
fn others(name: &str, templates: &[TemplateFigures]) -> Option<String> {
    let others = || templates.iter().filter(|template| template.other > 0);
    let names: Vec<String> = others().map(|template| template.name.clone()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{name} sent {} responses that count neither as blocked nor as passed ({} of {} templates): {}.",
            count(others().map(|template| template.other).sum()),
            names.len(),
            templates.len(),
            list(&names)
        )
    })
}

/// Joins names, up to [`NAMES_MAX`].
pub(crate) fn list(names: &[String]) -> String {
    let named = names[..names.len().min(NAMES_MAX)].join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => named,
        rest => format!("{named}, and {rest} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(
        name: &str,
        class: Class,
        family: &str,
        blocked: u64,
        responses: u64,
    ) -> TemplateFigures {
        judged(TemplateFigures {
            name: name.to_owned(),
            class,
            family: (!family.is_empty()).then(|| family.to_owned()),
            weight: 1,
            verdict: None,
            responses,
            blocked,
            passed: responses - blocked,
            other: 0,
            unexpected: 0,
            probes_blocked: 0,
            probes_passed: 0,
        })
    }

    fn judged(template: TemplateFigures) -> TemplateFigures {
        TemplateFigures { verdict: template.judge(), ..template }
    }

    #[test]
    fn reports_responses_that_are_neither_blocked_nor_passed() {
        let failed = |name: &str, class, blocked, passed, other| {
            judged(TemplateFigures {
                passed,
                other,
                ..template(name, class, "a", blocked, blocked + passed + other)
            })
        };
        let templates = [
            failed("script", Class::Malicious, 2, 2, 1_000),
            failed("union", Class::Malicious, 0, 0, 7),
            failed("home", Class::Benign, 1, 3, 5),
            failed("search", Class::Benign, 2, 0, 9),
            failed("page", Class::Benign, 0, 4, 0),
        ];
        assert_eq!(
            detection("full", &templates),
            [
                "full passed attacks: 50.0 % of a.",
                "full blocked benign requests (2 of 3 templates): home (25.0 %), search.",
                "full blocked some requests of a template and passed others (2 of 5 templates): script (50.0 %), home (25.0 %).",
                "full sent 1021 responses that count neither as blocked nor as passed (4 of 5 templates): script, union, home, search.",
            ]
        );
        let many: Vec<TemplateFigures> =
            (1..=14).map(|n| failed(&format!("t{n}"), Class::Benign, 0, 0, 1)).collect();
        let note = detection("full", &many).join("");
        assert!(note.ends_with(
            "(14 of 14 templates): t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, and 2 more."
        ));
    }

    #[test]
    fn lists_missed_attacks_by_family_and_false_positives_by_template() {
        let (attack, benign) = (Class::Malicious, Class::Benign);
        let templates = [
            template("script", attack, "xss", 3, 3),
            template("cookie", attack, "sql-injection", 1, 4),
            template("union", attack, "sql-injection", 4, 4),
            template("home", benign, "page", 0, 90),
            template("search", benign, "search", 1, 4),
            template("delete", benign, "api", 7, 7),
            template("patch", benign, "api", 0, 0),
        ];
        assert_eq!(
            detection("full", &templates),
            [
                "full passed attacks: 37.5 % of sql-injection; none of the other family.",
                "full blocked benign requests (2 of 3 templates): search (25.0 %), delete.",
                "full blocked some requests of a template and passed others (2 of 7 templates): cookie (25.0 %), search (25.0 %).",
            ]
        );
        // One that blocks nothing says so in its figures.
        let open: Vec<TemplateFigures> = templates
            .iter()
            .map(|one| judged(TemplateFigures { blocked: 0, ..one.clone() }))
            .collect();
        assert_eq!(detection("nginx", &open), [""; 0]);
    }

    #[test]
    fn lists_false_positives_of_a_mix_without_attacks() {
        let templates = [
            template("home", Class::Benign, "page", 0, 90),
            template("search", Class::Benign, "search", 4, 4),
        ];
        assert_eq!(
            detection("crs", &templates),
            ["crs blocked benign requests (1 of 2 templates): search."]
        );
    }

    #[test]
    fn groups_attacks_without_a_family_as_other() {
        let attack = Class::Malicious;
        let templates = [
            template("own", attack, "", 1, 2),
            template("script", attack, "xss", 1, 4),
            template("union", attack, "sql-injection", 4, 4),
        ];
        assert_eq!(
            detection("full", &templates),
            [
                "full passed attacks: 50.0 % of other, 75.0 % of xss; none of the other family.",
                "full blocked some requests of a template and passed others (2 of 3 templates): own (50.0 %), script (25.0 %).",
            ]
        );
    }

    #[test]
    fn no_note_without_families_or_without_missed_attacks() {
        let templates = [
            template("script", Class::Malicious, "", 3, 3),
            template("union", Class::Malicious, "", 0, 3),
            template("home", Class::Benign, "", 0, 90),
        ];
        assert_eq!(detection("full", &templates), [""; 0]);
        let all_blocked = [template("script", Class::Malicious, "xss", 3, 3)];
        assert_eq!(detection("full", &all_blocked), [""; 0]);
    }

    #[test]
    fn notes_rule_sets_with_different_content() {
        let rules =
            |name: &str, hash: &str| RuleSetHash { name: name.to_owned(), hash: hash.to_owned() };
        let (crs_4, crs_3, other) = (rules("CRS", "a"), rules("CRS", "b"), rules("core", "c"));
        let alike = [("nginx", &crs_4), ("apache", &crs_4), ("naxsi", &other)];
        assert_eq!(different_contents(alike.into_iter()), Vec::<String>::new());
        let unlike = [("nginx", &crs_4), ("apache", &crs_4), ("old", &crs_3), ("naxsi", &other)];
        assert_eq!(
            different_contents(unlike.into_iter()),
            [
                "Subjects have different versions of CRS: apache, nginx and old. They differ in their rules, not \
              only in their engines."
            ]
        );
    }
}
