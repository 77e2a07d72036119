//! The conclusion of a run: the status of its prices, and the costs of all subjects of a case in one sentence.

use super::ablation;
use super::notes::list;
use super::price::{Price, Range};
use super::result::{CaseAnalysis, Catch, RunStatus, Share, SubjectAnalysis, SubjectCatch};
use tollgate_records::manifest::ExperimentManifest;
use tollgate_records::metric::Metric;
use tollgate_records::stop::EndedBy;
use tollgate_records::subject::SubjectManifest;
use tollgate_stats::number::{counted, percent, relative, share, significant};
use tollgate_stats::{BLOCKS_MIN, Verdict};
use tollgate_traffic::load_shape::CaseArrivals;

impl RunStatus {
    /// The status of one case. The repeated baseline is not among the subjects.
    pub(super) fn of<'a>(
        subjects: impl Iterator<Item = &'a SubjectAnalysis>,
        judged: Metric,
        noise_floor: Option<&Range>,
    ) -> Self {
        let verdict = |subject: &SubjectAnalysis| subject.prices.get(&judged)?.verdict;
        let mut verdicts = subjects.filter_map(verdict).peekable();
        if noise_floor.is_some_and(Range::excludes_one) {
            Self::AaFailed
        } else if verdicts.peek().is_none() {
            // An A/A comparison alone is a complete run.
            if noise_floor.is_some_and(|floor| floor.interval) {
                Self::Settled
            } else {
                Self::NoPrice
            }
        } else if verdicts.any(|verdict| verdict == Verdict::Inconclusive) {
            Self::NotSettled
        } else {
            Self::Settled
        }
    }

    /// The status of a run: one failed A/A comparison fails the run, and a case that lacks its prices leaves it not settled.
    pub(super) fn of_all(cases: &[CaseAnalysis]) -> Self {
        let is = |run_status: Self| move |case: &CaseAnalysis| case.run_status == run_status;
        if cases.iter().any(is(Self::AaFailed)) {
            Self::AaFailed
        } else if cases.iter().all(is(Self::NoPrice)) {
            Self::NoPrice
        } else if cases.iter().all(|case| case.case.is_baseline_alone() || is(Self::Settled)(case))
        {
            Self::Settled
        } else {
            Self::NotSettled
        }
    }
}

/// The figure that is judged: the CPU or, where no subject has a price in it, the requests per second of a closed loop and the
/// median latency of an open one.
pub(super) fn judged_metric(subjects: &[SubjectAnalysis], arrivals: &CaseArrivals) -> Metric {
    if subjects.iter().any(|subject| subject.prices.contains_key(&Metric::CpuUsPerRequest)) {
        return Metric::CpuUsPerRequest;
    }
    match arrivals {
        CaseArrivals::Closed { .. } => Metric::ThroughputPerS,
        CaseArrivals::Open(_) => Metric::LatencyP50Ms,
    }
}

fn judged_price<'a>(case: &CaseAnalysis, subject: &'a SubjectAnalysis) -> Option<&'a Price> {
    subject.prices.get(&judged_metric(&case.subjects, &case.case.load.arrivals))
}

fn cpu_price(subject: &SubjectAnalysis) -> Option<&Price> {
    subject.prices.get(&Metric::CpuUsPerRequest)
}

/// The status in words with its reason. `again` is the name of the repeated baseline.
pub(super) fn status_line(
    run_status: RunStatus,
    cases: &[CaseAnalysis],
    ended_by: EndedBy,
    blocks: u32,
    again: Option<&str>,
) -> String {
    let reason = match run_status {
        RunStatus::Settled => {
            let floors = cases.iter().filter_map(|case| case.noise_floor);
            let floor = |floor: Range| {
                format!(". Noise floor (baseline against itself): {}", change(&floor))
            };
            floors.filter(|floor| floor.interval).map(floor).collect()
        }
        RunStatus::NoPrice => String::new(),
        RunStatus::NotSettled => {
            let open: Vec<String> =
                cases.iter().flat_map(|case| open(case, cases, again)).collect();
            format!(": {}; {}", list(&open), next_step(cases, again))
        }
        RunStatus::AaFailed => {
            let floor = cases.iter().filter_map(|case| case.noise_floor).find(Range::excludes_one);
            let by = floor.map_or(String::new(), |floor| format!(" by {}", change(&floor)));
            format!(": the baseline differs from itself{by}; differences of that size may be noise")
        }
    };
    let blocks = counted(blocks as usize, "block");
    format!("{run_status} after {blocks} ({ended_by}){reason}.")
}

fn change(ratio: &Range) -> String {
    format!("{} [{}, {}]", relative(ratio.estimate), relative(ratio.low), relative(ratio.high))
}

/// The subjects that share one correction, with their prices; the repeated baseline is judged alone.
fn judged<'a>(
    case: &'a CaseAnalysis,
    again: Option<&str>,
) -> impl Iterator<Item = (&'a SubjectAnalysis, &'a Price)> {
    let subjects = case.subjects.iter().filter(move |subject| Some(&*subject.name) != again);
    let prices = subjects.filter_map(|subject| Some((subject, judged_price(case, subject)?)));
    prices.filter(|(_, price)| price.verdict.is_some())
}

/// The subjects without a verdict, or the case if it has no price.
fn open(case: &CaseAnalysis, all: &[CaseAnalysis], again: Option<&str>) -> Vec<String> {
    if case.run_status == RunStatus::NoPrice && !case.case.is_baseline_alone() {
        return vec![format!("{} has no price", case.case.name)];
    }
    let is_open = |price: &Price| price.verdict == Some(Verdict::Inconclusive);
    let open = judged(case, again).filter(|(_, price)| is_open(price));
    open.map(|(subject, _)| case.qualified(&subject.name, all.len())).collect()
}

/// Advice on how to get the missing verdicts.
fn next_step(cases: &[CaseAnalysis], again: Option<&str>) -> String {
    let prices = cases.iter().flat_map(|case| judged(case, again));
    match prices.map(|(_, price)| price.n).min() {
        Some(fewest) if fewest < BLOCKS_MIN => {
            format!("a price needs at least {BLOCKS_MIN} valid blocks, and one has {fewest}")
        }
        _ => "more blocks narrow the intervals".to_owned(),
    }
}

/// A verdict in a table.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::CostsMore => "more",
        Verdict::CostsLess => "less",
        Verdict::Same => "same",
        Verdict::Inconclusive => "not settled",
    }
}

/// Explains the words of [`verdict_word`].
pub(crate) fn verdict_legend(margin: f64) -> String {
    format!(
        "Verdict on the CPU: costs more, costs less, the same within {}, or not settled.",
        share(margin)
    )
}

/// The costs of all subjects of a case in one sentence.
pub(super) fn sentence(case: &CaseAnalysis, experiment: &ExperimentManifest) -> String {
    if let Some(figures) = &case.ablation {
        return ablation::sentence(case, figures);
    }
    let (baseline, again) = (&experiment.baseline, experiment.aa_subject.as_ref());
    let own = case.subject(baseline).and_then(|own| own.figures.as_ref());
    let Some(own) = own else {
        return format!("There is no price, because the baseline {baseline} has no valid trial.");
    };
    let compared = case.subjects.iter().filter(|subject| Some(&subject.name) != again);
    let mut priced: Vec<(&SubjectAnalysis, &Price)> =
        compared.filter_map(|subject| Some((subject, cpu_price(subject)?))).collect();
    priced.sort_by(|(_, a), (_, b)| b.difference.estimate.total_cmp(&a.difference.estimate));
    let is_unknown = |name: &str| {
        let is_unattached = |subject: &SubjectManifest| {
            subject.external.as_ref().is_some_and(|external| external.attach.is_none())
        };
        experiment.subjects.iter().any(|subject| subject.name == *name && is_unattached(subject))
    };
    if is_unknown(baseline) {
        let reason = "is a server whose processes are not known";
        let sentence =
            format!("There is no price in CPU, because the baseline {baseline} {reason}.");
        let again = again.map(String::as_str);
        let metric = judged_metric(&case.subjects, &case.case.load.arrivals);
        let clauses: Vec<String> = judged(case, again)
            .map(|(subject, price)| served(&subject.name, metric, price, experiment))
            .collect();
        return match clauses[..] {
            [] => sentence,
            _ => format!("{}. {sentence}", clauses.join("; ")),
        };
    }
    let mut clauses = match own.cpu_us_per_request {
        None => {
            priced.retain(|(subject, _)| subject.name != *baseline);
            let clauses = [format!("{baseline} uses no CPU")].into_iter();
            clauses.chain(clauses_of(case, &priced, experiment)).collect()
        }
        Some(cpu) if priced.is_empty() => {
            vec![format!("{baseline} costs {} µs of CPU per request", significant(cpu))]
        }
        Some(_) => clauses_of(case, &priced, experiment),
    };
    let measured = case.subjects.iter().filter(|subject| subject.figures.is_some());
    let unknown: Vec<String> =
        measured.map(|subject| subject.name.clone()).filter(|name| is_unknown(name)).collect();
    if !unknown.is_empty() {
        clauses.push(format!("the CPU of {} was not measured (no `attach`)", list(&unknown)));
    }
    clauses.join("; ") + "."
}

/// The requests per second or the latency of a subject whose CPU cannot be compared.
fn served(name: &str, metric: Metric, price: &Price, experiment: &ExperimentManifest) -> String {
    let baseline = &experiment.baseline;
    let figure = match metric {
        Metric::ThroughputPerS => "requests/s",
        _ => "median latency",
    };
    let Some(ratio) = price.ratio else { return format!("{name} has no {figure} to compare") };
    match price.verdict {
        Some(Verdict::Same) => {
            format!("{name} has the {figure} of {baseline} within {}", share(experiment.margin))
        }
        Some(Verdict::Inconclusive) if ratio.interval => format!(
            "{name} has between {} and {} times the {figure} of {baseline}, not settled by {}",
            significant(ratio.low),
            significant(ratio.high),
            counted(price.n, "block")
        ),
        Some(Verdict::CostsMore | Verdict::CostsLess) => {
            format!("{name} has {} times the {figure} of {baseline}", significant(ratio.estimate))
        }
        Some(Verdict::Inconclusive) | None => format!(
            "{name} has about {} times the {figure} of {baseline}, not settled by {}",
            significant(ratio.estimate),
            counted(price.n, "block")
        ),
    }
}

/// One clause per subject or, for many, clauses for the two most expensive and the cheapest; and the requests that they
/// block.
fn clauses_of(
    case: &CaseAnalysis,
    priced: &[(&SubjectAnalysis, &Price)],
    experiment: &ExperimentManifest,
) -> Vec<String> {
    let is_ratio = |price: &Price| price.ratio.is_some() && price.verdict != Some(Verdict::Same);
    let first_ratio = priced.iter().position(|(_, price)| is_ratio(price));
    let (firewalls, blocked): (Vec<&str>, Vec<String>) = priced
        .iter()
        .filter_map(|(subject, _)| Some((&*subject.name, blocked(case, subject)?)))
        .unzip();
    let all_block_alike = blocked.len() > 1 && blocked.iter().all(|one| *one == blocked[0]);
    let clause = |(place, (subject, price)): (usize, &(&SubjectAnalysis, &Price))| {
        // The name alone says little to a reader who did not write the experiment.
        let name = if place == 0 && !subject.about.is_empty() {
            format!("{} ({})", subject.name, subject.about)
        } else {
            subject.name.clone()
        };
        let cost = cost(price, experiment, Some(place) == first_ratio);
        let blocks = match self::blocked(case, subject).filter(|_| !all_block_alike) {
            Some(blocks) if price.verdict == Some(Verdict::Inconclusive) => {
                format!(", and blocks {blocks}")
            }
            Some(blocks) => format!(" and blocks {blocks}"),
            None => String::new(),
        };
        format!("{name} {cost}{blocks}")
    };
    let mut clauses: Vec<String> = priced.iter().enumerate().map(clause).collect();
    if clauses.len() > CLAUSES_MAX {
        let others = clauses.len() - 3;
        clauses.splice(2..clauses.len() - 1, [format!("{others} others are between")]);
    }
    if all_block_alike {
        let who = match firewalls[..] {
            [_, _] if priced.len() == 2 => "both".to_owned(),
            [one, other] => format!("{one} and {other}"),
            _ => format!("the {} firewalls", firewalls.len()),
        };
        clauses.push(format!("{who} block {}", blocked[0]));
    }
    clauses
}

/// Maximum number of clauses in a headline.
const CLAUSES_MAX: usize = 5;

/// The first ratio of the sentence names the baseline and, if significant, the absolute difference.
fn cost(price: &Price, experiment: &ExperimentManifest, is_first_ratio: bool) -> String {
    let baseline = &experiment.baseline;
    let difference = price.difference.estimate;
    let is_open = price.verdict == Some(Verdict::Inconclusive);
    let blocks = counted(price.n, "block");
    let not_settled = format!(", not settled by {blocks}");
    let of_baseline = if is_first_ratio { format!(" what {baseline} does") } else { String::new() };
    match price.ratio {
        // A subject without processes costs nothing, however few blocks there are.
        None if difference <= 0.0 => "uses no CPU".to_owned(),
        None if is_open => {
            format!("costs about {} µs per request{not_settled}", significant(difference))
        }
        None => format!("costs {} µs per request", significant(difference)),
        Some(_) if price.verdict == Some(Verdict::Same) => {
            format!("costs the same as {baseline} within {}", share(experiment.margin))
        }
        Some(ratio) if is_open && ratio.interval => format!(
            "costs between {} and {} times{of_baseline}{not_settled}",
            significant(ratio.low),
            significant(ratio.high)
        ),
        Some(ratio) if is_open => {
            format!("costs about {} times{of_baseline}{not_settled}", significant(ratio.estimate))
        }
        Some(ratio) => {
            let more = if difference < 0.0 { "less" } else { "more" };
            let difference = if is_first_ratio {
                format!(" ({} µs {more} per request)", significant(difference.abs()))
            } else {
                String::new()
            };
            format!("costs {} times{of_baseline}{difference}", significant(ratio.estimate))
        }
    }
}

/// Describes the requests that a subject blocks: of the mix by weight, or with `catch` of the mix and the corpus. `None` for a
/// subject that blocks no attack.
pub(crate) fn blocked(case: &CaseAnalysis, subject: &SubjectAnalysis) -> Option<String> {
    if let Some(catch) = &case.catch {
        return blocked_of_all(caught(catch, subject)?);
    }
    let figures = subject.figures.as_ref()?;
    let attacks = match figures.detection_rate.filter(|rate| *rate > 0.0)? {
        1.0.. => "every attack".to_owned(),
        rate => format!("{} of the attacks", percent(rate)),
    };
    Some(match figures.false_positive_rate.filter(|rate| *rate > 0.0) {
        Some(rate) => format!("{attacks} and {} of the benign requests", percent(rate)),
        None => attacks,
    })
}

fn blocked_of_all(caught: &SubjectCatch) -> Option<String> {
    let blocks = |share: &Share| share.blocked > 0;
    let text = |share: Share, noun: &str| {
        if share.blocked == share.of && caught.undecided == 0 {
            format!("every {noun}")
        } else {
            format!("{} of {}", share.blocked, counted(share.of as usize, noun))
        }
    };
    let attacks = text(caught.attacks.filter(blocks)?, "attack");
    Some(match caught.benign.filter(blocks) {
        Some(benign) => format!("{attacks} and {}", text(benign, "benign request")),
        None => attacks,
    })
}

fn caught<'a>(catch: &'a Catch, subject: &SubjectAnalysis) -> Option<&'a SubjectCatch> {
    catch.subjects.iter().find(|one| one.name == subject.name)
}

/// The share of the attacks of [`blocked`] that a subject blocks. `None` without attacks.
pub(crate) fn attacks_blocked(case: &CaseAnalysis, subject: &SubjectAnalysis) -> Option<f64> {
    match &case.catch {
        Some(catch) => {
            caught(catch, subject).map_or(Some(0.0), |one| one.attacks.map(|share| share.estimate))
        }
        None => subject.figures.as_ref()?.detection_rate,
    }
}

/// As [`attacks_blocked`], of the benign requests.
pub(crate) fn benign_blocked(case: &CaseAnalysis, subject: &SubjectAnalysis) -> Option<f64> {
    match &case.catch {
        Some(catch) => caught(catch, subject)?.benign.map(|share| share.estimate),
        None => subject.figures.as_ref()?.false_positive_rate,
    }
}
