//! `tollgate batch find`: changes of the level, the commits that caused them, and their confirmation.

use crate::batch::Batch;
use crate::changes::{
    Change, Entry, Next, Side, Stretch, changes, entries, next, split, stretches_left,
};
use crate::config::RevisionSource;
use crate::division::Share;
use crate::findings::{Conclusion, Confirmation, Findings, Found, Named, SCHEMA};
use crate::manifest::BatchManifest;
use crate::report;
use crate::repository::Revision;
use crate::request::{BatchEvent, Request};
use crate::run::{INTERVAL_BLOCKS, measured, series};
use crate::series::{Point, checks, confirmed, estimate, noise, points, side};
use crate::store::{BatchDir, Purpose};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use tollgate_records::error::bad_input;
use tollgate_report::analysis::Range;
use tollgate_stats::{BLOCKS_MAX, Pair, SERIES_MAX, holm, ratio, ratio_p, verdict};

/// Finds the commits that changed the price. Measures missing revisions first.
pub fn find(
    request: &Request<'_>,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<Findings> {
    // Creates nothing if there is no batch; read again under the lock.
    BatchManifest::read(request.out)?;
    let dir = BatchDir::open(request.out)?;
    let manifest = BatchManifest::read(dir.path())?;
    let catalog = manifest.catalog.clone();
    let mut batch = Batch::open(dir, manifest, catalog, request)?;
    if request.steps.is_some() {
        batch.manifest.steps = request.steps;
        batch.manifest.write(batch.dir.path())?;
    }
    series(&mut batch, notify)?;
    let points: Vec<Point> = points(&batch.records());
    let listed = points.iter().enumerate().filter(|(_, point)| point.listed);
    let entries = entries(listed);
    if entries.len() > SERIES_MAX {
        let count = entries.len();
        return Err(bad_input(format!(
            "{count} revisions with a price are more than the {SERIES_MAX} that can be searched at once; \
             begin a batch of a part of them, or with --steps"
        )));
    }
    let mut found: Vec<LevelShift> = Vec::new();
    for change in changes(&entries, batch.manifest.seed) {
        for shift in bisect_change(&mut batch, &points, &entries, &change, notify)? {
            // Searches for neighbouring changes may find both.
            if !found.iter().any(|known| known.is_between(&shift)) {
                found.push(shift);
            }
        }
    }
    let place = |shift: &LevelShift| {
        let is_it = |revision: &Revision| revision.id == shift.first_bad.id;
        batch.manifest.revisions.iter().position(is_it)
    };
    found.sort_by_key(place);
    let records = batch.records();
    let settings = &batch.manifest.settings;
    let noise = noise(&checks(&records), settings.margin);
    let confirmations = judge(&batch, &found)?;
    let changes = found.into_iter().zip(confirmations).map(|(shift, confirmation)| {
        let LevelShift { parent, first_bad, candidates, before, after, p, .. } = shift;
        let conclusion =
            Conclusion::of(after / before, confirmation.as_ref(), settings.margin, noise);
        let candidates = candidates.iter().map(named).collect();
        let (parent, first_bad) = (named(&parent), named(&first_bad));
        Found { parent, first_bad, candidates, before, after, p, confirmation, conclusion }
    });
    let findings = Findings {
        schema: SCHEMA,
        title: settings.title.clone(),
        metric: settings.metric.words().to_owned(),
        more_is_better: settings.metric.more_is_better(),
        margin: settings.margin,
        noise,
        priced: points.iter().filter(|point| point.listed && point.price.is_some()).count(),
        changes: changes.collect(),
    };
    findings.write(batch.dir.path())?;
    report::write_all(&records, batch.dir.path())?;
    Ok(findings)
}

struct LevelShift {
    parent: Revision,
    first_bad: Revision,
    candidates: Vec<Revision>,
    before: f64,
    after: f64,
    /// Probability of an equally clear division by chance.
    p: f64,
    /// Products of parent and candidate, if they were confirmed.
    products: Option<(String, String)>,
}

impl LevelShift {
    fn is_between(&self, other: &Self) -> bool {
        self.parent.id == other.parent.id && self.first_bad.id == other.first_bad.id
    }
}

/// Additional rounds for an undecided commit.
const MORE_ROUNDS: usize = 2;

/// Entries searched beside a change, because one block may shift it.
const BESIDE: usize = 1;

/// Bisects a change and confirms each candidate beside its parent. There may be several, if measured revisions are far
/// apart.
fn bisect_change(
    batch: &mut Batch<'_>,
    points: &[Point],
    entries: &[Entry],
    change: &Change,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<Vec<LevelShift>> {
    let revision = |batch: &Batch<'_>, entry: usize| {
        let id = &points[entries[entry].place].revision;
        let missing = || bad_input(format!("{id} is not a revision of the batch any more"));
        batch.manifest.revision(id).cloned().ok_or_else(missing)
    };
    let Change { before, after, p, .. } = *change;
    if (after / before).ln().abs() <= (1.0 + threshold(batch)?).ln() {
        let (parent, first_bad) = (revision(batch, change.at - 1)?, revision(batch, change.at)?);
        let candidates = Vec::new();
        return Ok(vec![LevelShift {
            parent,
            first_bad,
            candidates,
            before,
            after,
            p,
            products: None,
        }]);
    }
    let first = revision(batch, (change.at - 1).saturating_sub(BESIDE).max(change.from))?;
    let last = revision(batch, (change.at + BESIDE).min(change.to - 1))?;
    let range = revisions_between(batch, &first, &last)?;
    let mut open = vec![Stretch { from: 0, to: range.len() - 1, before, after, p }];
    let mut steps = Vec::new();
    while let Some(stretch) = open.pop() {
        let searched = &range[stretch.from..=stretch.to];
        let (step, settled) = bisect(batch, searched, &stretch, notify)?;
        let in_range = |place: usize| stretch.from + place;
        let (step, settled) = (
            (in_range(step.0), in_range(step.1)),
            settled.into_iter().map(in_range).collect::<Vec<_>>(),
        );
        let prices = prices(batch, &range)?;
        let logs = |place: usize| prices[place].as_slice();
        let share = threshold(batch)?;
        let left = stretches_left(&stretch, step, settled, logs, share);
        match split(step, logs, share) {
            Some(halves) => open.extend(halves),
            None => steps.push((step, stretch)),
        }
        open.extend(left);
    }
    let mut found = Vec::new();
    for ((good, bad), Stretch { before, after, p, .. }) in steps {
        let products = Some(confirm(batch, &range[good], &range[bad], notify)?);
        let (parent, first_bad) = (range[good].clone(), range[bad].clone());
        let candidates = range[good + 1..bad].to_vec();
        found.push(LevelShift { parent, first_bad, candidates, before, after, p, products });
    }
    Ok(found)
}

/// Steps below this share are ignored: within the margin or the noise.
fn threshold(batch: &Batch<'_>) -> anyhow::Result<f64> {
    let margin = batch.manifest.settings.margin;
    Ok(noise(&checks(&batch.records()), margin).unwrap_or(margin))
}

/// Bisects a range: the last commit on the first level, the first commit on the second, and all commits that are settled.
fn bisect(
    batch: &mut Batch<'_>,
    range: &[Revision],
    stretch: &Stretch,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<((usize, usize), Vec<usize>)> {
    let figure = batch.manifest.settings.metric.words();
    let [first, last] = [0, range.len() - 1].map(|place| &range[place].name);
    let choice = tollgate_stats::number::counted(range.len() - 1, "revision");
    notify(BatchEvent::Search(&format!(
        "{figure} changes between {first} and {last}: {choice} to search"
    )));
    let mut known = known_sides(batch, range, stretch)?;
    let step = loop {
        match next(range.len() - 1, &known) {
            Next::Found { good, bad } => break (good, bad),
            Next::Try(place) => {
                let side = probe(batch, &range[place], stretch, notify)?;
                notify(BatchEvent::Search(&format!("{} is {}", range[place].name, in_words(side))));
                known.insert(place, side);
            }
        }
    };
    let settled = known.into_iter().filter(|(_, side)| *side != Side::Unknown);
    Ok((step, settled.map(|(place, _)| place).collect()))
}

/// Returns the log prices of the revisions, one per block; empty without a price.
fn prices(batch: &Batch<'_>, range: &[Revision]) -> anyhow::Result<Vec<Vec<f64>>> {
    let points = points(&batch.records());
    let logs = |revision: &Revision| {
        let point = points.iter().find(|point| point.revision == revision.id);
        point.map_or(Vec::new(), |point| point.logs.clone())
    };
    Ok(range.iter().map(logs).collect())
}

/// Returns the revisions between two, inclusive: all commits along first parents, or else the listed ones.
fn revisions_between(
    batch: &mut Batch<'_>,
    first: &Revision,
    last: &Revision,
) -> anyhow::Result<Vec<Revision>> {
    let commits = match &batch.manifest.settings.source {
        RevisionSource::Repository(_) => {
            batch.builds.repository.commits_between(&first.id, &last.id)?
        }
        RevisionSource::Versions(_) => None,
    };
    let place = |manifest: &BatchManifest, id: &str| {
        manifest.revisions.iter().position(|one| one.id == id).unwrap_or(0)
    };
    if let Some(commits) = commits {
        batch.manifest.add_between(&first.id, &commits);
        batch.manifest.write(batch.dir.path())?;
        let known = commits.iter().filter_map(|one| batch.manifest.revision(&one.id)).cloned();
        return Ok(std::iter::once(first.clone()).chain(known).collect());
    }
    let manifest = &batch.manifest;
    let between = place(manifest, &first.id)..=place(manifest, &last.id);
    let all = manifest.revisions.get(between).unwrap_or_default();
    Ok(all.iter().filter(|one| one.listed).cloned().collect())
}

fn known_sides(
    batch: &Batch<'_>,
    range: &[Revision],
    stretch: &Stretch,
) -> anyhow::Result<BTreeMap<usize, Side>> {
    let points = points(&batch.records());
    let mut known = BTreeMap::new();
    let between = range.iter().enumerate().take(range.len().saturating_sub(1)).skip(1);
    for (place, revision) in between {
        let point = points.iter().find(|point| point.revision == revision.id);
        let side = match point {
            Some(point) if !point.logs.is_empty() => side_of(batch, &point.logs, stretch),
            Some(point) if point.state.is_unmeasurable() => Some(Side::Unknown),
            _ => None,
        };
        if let Some(side) = side {
            known.insert(place, side);
        }
    }
    Ok(known)
}

/// Builds and measures a revision until its side is settled, up to a limit.
fn probe(
    batch: &mut Batch<'_>,
    revision: &Revision,
    stretch: &Stretch,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<Side> {
    let Some(product) = batch.product(revision, notify)? else { return Ok(Side::Unknown) };
    let blocks = batch.manifest.settings.blocks;
    for attempt in 0..=MORE_ROUNDS {
        if attempt > 0 || !measured(batch)?.contains(&product) {
            let share = Share {
                subjects: vec![(revision.name.clone(), product.clone())],
                duplicates: BTreeMap::new(),
            };
            batch.measure_all(&Purpose::Bisection, vec![share], blocks, notify)?;
        }
        let points = points(&batch.records());
        let point = points.iter().find(|point| point.revision == revision.id);
        let logs = point.map_or(&[][..], |point| &point.logs);
        if let Some(side) = side_of(batch, logs, stretch) {
            return Ok(side);
        }
        if point.is_some_and(|point| point.state.is_unmeasurable()) {
            return Ok(Side::Unknown);
        }
    }
    Ok(Side::Unknown)
}

/// Returns the side of the middle of the two levels, if it is settled.
fn side_of(batch: &Batch<'_>, logs: &[f64], stretch: &Stretch) -> Option<Side> {
    let middle = (stretch.before * stretch.after).sqrt();
    let is_above = side(&estimate(logs, batch.manifest.seed)?, middle)? == Ordering::Greater;
    Some(if is_above == (stretch.after > stretch.before) { Side::Bad } else { Side::Good })
}

/// Runs a candidate beside its parent, unless there are enough blocks; returns their products.
fn confirm(
    batch: &mut Batch<'_>,
    parent: &Revision,
    first_bad: &Revision,
    notify: &mut dyn FnMut(BatchEvent<'_>),
) -> anyhow::Result<(String, String)> {
    let mut product = |revision: &Revision| {
        let failed = || bad_input(format!("{} can no longer be built", revision.name));
        batch.builds.build(&batch.dir, &batch.manifest, revision, notify)?.ok_or_else(failed)
    };
    let products = (product(parent)?, product(first_bad)?);
    let purpose =
        Purpose::Confirmation { parent: products.0.clone(), first_bad: products.1.clone() };
    let most = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
    let blocks = (2 * batch.manifest.settings.blocks).min(most);
    let pairs = confirmed(&batch.records(), &products.0, &products.1).unwrap_or_default();
    if is_too_few(pairs.len(), blocks) {
        let text = format!("confirmation of {} and {}", parent.name, first_bad.name);
        notify(BatchEvent::Search(&text));
        let subjects = vec![
            (parent.name.clone(), products.0.clone()),
            (first_bad.name.clone(), products.1.clone()),
        ];
        let share = Share { subjects, duplicates: BTreeMap::new() };
        batch.measure_all(&purpose, vec![share], blocks, notify)?;
    }
    Ok(products)
}

/// True if a confirmation has too few blocks, as a busy machine may have invalidated some.
fn is_too_few(pairs: usize, planned: u32) -> bool {
    pairs < (planned as usize).min(INTERVAL_BLOCKS)
}

/// Judges all confirmations together, as more of them make a false result more likely.
fn judge(batch: &Batch<'_>, found: &[LevelShift]) -> anyhow::Result<Vec<Option<Confirmation>>> {
    let records = batch.records();
    let settings = &batch.manifest.settings;
    let pairs = |shift: &LevelShift| -> Option<Vec<Pair>> {
        let (parent, first_bad) = shift.products.as_ref()?;
        Some(confirmed(&records, parent, first_bad).unwrap_or_default())
    };
    let all: Vec<Option<Vec<Pair>>> = found.iter().map(pairs).collect();
    let tested = |pairs: &Option<Vec<Pair>>| pairs.as_ref().and_then(|pairs| ratio_p(pairs));
    let mut adjusted = holm(&all.iter().filter_map(tested).collect::<Vec<f64>>()).into_iter();
    let confirmation = |pairs: Option<Vec<Pair>>| {
        let is_tested = tested(&pairs).is_some();
        let p = if is_tested { adjusted.next() } else { None }.unwrap_or(1.0);
        let pairs = pairs?;
        let estimate = ratio(&pairs, batch.manifest.seed);
        let outcome = estimate.as_ref().map(|estimate| verdict(estimate, p, settings.margin));
        let outcome = outcome.unwrap_or(tollgate_stats::Verdict::Inconclusive);
        let verdict = if settings.metric.more_is_better() { outcome.reversed() } else { outcome };
        Some(Confirmation { ratio: estimate.map(Range::from), n: pairs.len(), verdict })
    };
    Ok(all.into_iter().map(confirmation).collect())
}

fn named(revision: &Revision) -> Named {
    Named {
        revision: revision.id.clone(),
        name: revision.name.clone(),
        message: revision.message.clone(),
    }
}

fn in_words(side: Side) -> &'static str {
    match side {
        Side::Good => "as before",
        Side::Bad => "as after",
        Side::Unknown => "skipped: not measurable, or not settled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmation_is_repeated_until_it_has_enough_blocks() {
        assert!(is_too_few(0, 2));
        assert!(is_too_few(5, 12));
        assert!(!is_too_few(6, 12));
        // There are never more than planned.
        assert!(!is_too_few(2, 2));
    }
}
