//! `tollgate batch find`: where the level of the series changes, which commit did it, and whether a fresh
//! run says so too.

use super::BatchError;
use super::bisection::{Next, Stretch, Verdict as Side, next, split, stretches_left};
use super::changes::{Change, Entry, changes, entries};
use super::dir::BatchDir;
use super::findings::{Conclusion, Confirmation, Findings, Found, Named, SCHEMA};
use super::manifest::BatchManifest;
use super::plan::Share;
use super::records::Purpose;
use super::report;
use super::revision::Revision;
use super::run::{Event, INTERVAL_BLOCKS, Request, measured, series};
use super::series::{Point, checks, confirmed, estimate, noise, points, side};
use super::settings::Origin;
use super::workshop::Workshop;
use crate::analysis::Range;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use tollgate_stats::{BLOCKS_MAX, Pair, SERIES_MAX, holm, ratio, ratio_p, verdict};

/// Searches a batch for the commits that changed its figure. Revisions that were not measured yet are
/// measured first.
///
/// # Errors
///
/// There is no batch, or the machine does not let it be done.
pub fn find(
    request: &Request<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Findings, BatchError> {
    // Nothing is made where there is no batch; and only now that it is this process's, it stays what it is.
    BatchManifest::read(request.out)?;
    let dir = BatchDir::open(request.out)?;
    let manifest = BatchManifest::read(dir.path())?;
    let catalog = manifest.catalog.clone();
    let mut workshop = Workshop::new(dir, manifest, catalog, request)?;
    if request.steps.is_some() {
        workshop.manifest.steps = request.steps;
        workshop.manifest.write(workshop.dir.path())?;
    }
    series(&mut workshop, tell)?;
    let points: Vec<Point> = points(&workshop.records()?);
    let listed = points.iter().enumerate().filter(|(_, point)| point.listed);
    let entries = entries(listed);
    if entries.len() > SERIES_MAX {
        let count = entries.len();
        return Err(BatchError::Asked(format!(
            "{count} revisions with a price are more than the {SERIES_MAX} that can be searched at once; \
             begin a batch of a part of them, or with --steps"
        )));
    }
    let mut found: Vec<Traced> = Vec::new();
    for change in changes(&entries, workshop.manifest.seed) {
        for traced in trace(&mut workshop, &points, &entries, &change, tell)? {
            // Where two changes are near each other, either search may find both.
            if !found.iter().any(|known| known.is_between(&traced)) {
                found.push(traced);
            }
        }
    }
    let place = |traced: &Traced| {
        let is_it = |revision: &Revision| revision.id == traced.culprit.id;
        workshop.manifest.revisions.iter().position(is_it)
    };
    found.sort_by_key(place);
    let records = workshop.records()?;
    let settings = &workshop.manifest.settings;
    let noise = noise(&checks(&records), settings.margin);
    let confirmations = judge(&workshop, &found)?;
    let changes = found.into_iter().zip(confirmations).map(|(traced, confirmation)| {
        let Traced { parent, culprit, doubtful, before, after, p, .. } = traced;
        let conclusion =
            Conclusion::of(after / before, confirmation.as_ref(), settings.margin, noise);
        let doubtful = doubtful.iter().map(named).collect();
        let (parent, culprit) = (named(&parent), named(&culprit));
        Found { parent, culprit, doubtful, before, after, p, confirmation, conclusion }
    });
    let findings = Findings {
        schema: SCHEMA,
        title: settings.title.clone(),
        figure: settings.figure.words().to_owned(),
        more_is_better: settings.figure.more_is_better(),
        margin: settings.margin,
        noise,
        priced: points.iter().filter(|point| point.listed && point.price.is_some()).count(),
        changes: changes.collect(),
    };
    findings.write(workshop.dir.path())?;
    report::write_all(&records, workshop.dir.path())?;
    Ok(findings)
}

/// A change and who made it, before a verdict on it.
struct Traced {
    parent: Revision,
    culprit: Revision,
    doubtful: Vec<Revision>,
    /// The level before it.
    before: f64,
    /// The level after it.
    after: f64,
    /// How likely a series without it would be divided as clearly.
    p: f64,
    /// The products of parent and culprit, where a fresh run held them against each other.
    products: Option<(String, String)>,
}

impl Traced {
    fn is_between(&self, other: &Self) -> bool {
        self.parent.id == other.parent.id && self.culprit.id == other.culprit.id
    }
}

/// How many more rounds a commit gets that the first one did not settle.
const MORE_ROUNDS: usize = 2;

/// How far beside a change its culprit is looked for, in entries: one block that is off may move it.
const BESIDE: usize = 1;

/// From a change of the level to the commits that made it, and to a fresh run of each beside the commit
/// before it. There may be several, as revisions that were measured may lie far apart.
fn trace(
    workshop: &mut Workshop<'_>,
    points: &[Point],
    entries: &[Entry],
    change: &Change,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Traced>, BatchError> {
    let of = |workshop: &Workshop<'_>, entry: usize| {
        let id = &points[entries[entry].place].revision;
        let missing = || BatchError::Asked(format!("{id} is no revision of the batch any more"));
        workshop.manifest.revision(id).cloned().ok_or_else(missing)
    };
    let Change { before, after, p, .. } = *change;
    if (after / before).ln().abs() <= (1.0 + threshold(workshop)?).ln() {
        let (parent, culprit) = (of(workshop, change.at - 1)?, of(workshop, change.at)?);
        let doubtful = Vec::new();
        return Ok(vec![Traced { parent, culprit, doubtful, before, after, p, products: None }]);
    }
    let first = of(workshop, (change.at - 1).saturating_sub(BESIDE).max(change.from))?;
    let last = of(workshop, (change.at + BESIDE).min(change.to - 1))?;
    let way = way(workshop, &first, &last)?;
    let mut open = vec![Stretch { from: 0, to: way.len() - 1, before, after, p }];
    let mut steps = Vec::new();
    while let Some(stretch) = open.pop() {
        let searched = &way[stretch.from..=stretch.to];
        let (step, settled) = bisect(workshop, searched, &stretch, tell)?;
        let of_way = |place: usize| stretch.from + place;
        let (step, settled) =
            ((of_way(step.0), of_way(step.1)), settled.into_iter().map(of_way).collect::<Vec<_>>());
        let prices = prices(workshop, &way)?;
        let logs = |place: usize| prices[place].as_slice();
        let share = threshold(workshop)?;
        let left = stretches_left(&stretch, step, settled, logs, share);
        match split(step, logs, share) {
            Some(halves) => open.extend(halves),
            None => steps.push((step, stretch)),
        }
        open.extend(left);
    }
    let mut found = Vec::new();
    for ((good, bad), Stretch { before, after, p, .. }) in steps {
        let products = Some(confirm(workshop, &way[good], &way[bad], tell)?);
        let (parent, culprit) = (way[good].clone(), way[bad].clone());
        let doubtful = way[good + 1..bad].to_vec();
        found.push(Traced { parent, culprit, doubtful, before, after, p, products });
    }
    Ok(found)
}

/// Below which share a step is not followed: it is too small to matter, or no larger than between equal
/// products.
fn threshold(workshop: &Workshop<'_>) -> Result<f64, BatchError> {
    let margin = workshop.manifest.settings.margin;
    Ok(noise(&checks(&workshop.records()?), margin).unwrap_or(margin))
}

/// The last commit of a stretch that is on the side of its beginning and the first that is on that of its
/// end, and all that turned out to be on one of the two.
fn bisect(
    workshop: &mut Workshop<'_>,
    way: &[Revision],
    stretch: &Stretch,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<((usize, usize), Vec<usize>), BatchError> {
    let figure = workshop.manifest.settings.figure.words();
    let [first, last] = [0, way.len() - 1].map(|place| &way[place].name);
    let choice = crate::report::rows::counted(way.len() - 1, "revision");
    tell(Event::Search(&format!(
        "{figure} changes between {first} and {last}: {choice} to choose from"
    )));
    let mut known = on_record(workshop, way, stretch)?;
    let step = loop {
        match next(way.len() - 1, &known) {
            Next::Found { good, bad } => break (good, bad),
            Next::Try(place) => {
                let side = probe(workshop, &way[place], stretch, tell)?;
                tell(Event::Search(&format!("{} is {}", way[place].name, in_words(side))));
                known.insert(place, side);
            }
        }
    };
    let settled = known.into_iter().filter(|(_, side)| *side != Side::Unknown);
    Ok((step, settled.map(|(place, _)| place).collect()))
}

/// The logarithms of the prices of these revisions, one a block; none of one that has no price.
fn prices(workshop: &Workshop<'_>, way: &[Revision]) -> Result<Vec<Vec<f64>>, BatchError> {
    let points = points(&workshop.records()?);
    let logs = |revision: &Revision| {
        let point = points.iter().find(|point| point.revision == revision.id);
        point.map_or(Vec::new(), |point| point.logs.clone())
    };
    Ok(way.iter().map(logs).collect())
}

/// The revisions from one to another, both included: every commit between them where there is a way, and
/// otherwise those that were listed.
fn way(
    workshop: &mut Workshop<'_>,
    first: &Revision,
    last: &Revision,
) -> Result<Vec<Revision>, BatchError> {
    let commits = match &workshop.manifest.settings.origin {
        Origin::Repository(_) => workshop.repository.way(&first.id, &last.id)?,
        Origin::Versions(_) => None,
    };
    let place = |manifest: &BatchManifest, id: &str| {
        manifest.revisions.iter().position(|one| one.id == id).unwrap_or(0)
    };
    if let Some(commits) = commits {
        workshop.manifest.add_between(&first.id, &commits);
        workshop.manifest.write(workshop.dir.path())?;
        let known = commits.iter().filter_map(|one| workshop.manifest.revision(&one.id)).cloned();
        return Ok(std::iter::once(first.clone()).chain(known).collect());
    }
    let manifest = &workshop.manifest;
    let between = place(manifest, &first.id)..=place(manifest, &last.id);
    let all = manifest.revisions.get(between).unwrap_or_default();
    Ok(all.iter().filter(|one| one.listed).cloned().collect())
}

/// What the records say of the revisions between the ends already.
fn on_record(
    workshop: &Workshop<'_>,
    way: &[Revision],
    stretch: &Stretch,
) -> Result<BTreeMap<usize, Side>, BatchError> {
    let points = points(&workshop.records()?);
    let mut known = BTreeMap::new();
    let between = way.iter().enumerate().take(way.len().saturating_sub(1)).skip(1);
    for (place, revision) in between {
        let point = points.iter().find(|point| point.revision == revision.id);
        let side = match point {
            Some(point) if !point.logs.is_empty() => side_of(workshop, &point.logs, stretch),
            Some(point) if point.state.is_lost() => Some(Side::Unknown),
            _ => None,
        };
        if let Some(side) = side {
            known.insert(place, side);
        }
    }
    Ok(known)
}

/// Builds and measures a revision until it is settled on which side of the change it is, within bounds.
fn probe(
    workshop: &mut Workshop<'_>,
    revision: &Revision,
    stretch: &Stretch,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Side, BatchError> {
    let Some(product) = workshop.build(revision, tell)? else { return Ok(Side::Unknown) };
    let blocks = workshop.manifest.settings.blocks;
    for attempt in 0..=MORE_ROUNDS {
        if attempt > 0 || !measured(workshop)?.contains(&product) {
            let share = Share {
                subjects: vec![(revision.name.clone(), product.clone())],
                again: BTreeMap::new(),
            };
            workshop.measure(Purpose::Bisection, share, blocks, tell)?;
        }
        let points = points(&workshop.records()?);
        let point = points.iter().find(|point| point.revision == revision.id);
        let logs = point.map_or(&[][..], |point| &point.logs);
        if let Some(side) = side_of(workshop, logs, stretch) {
            return Ok(side);
        }
        if point.is_some_and(|point| point.state.is_lost()) {
            return Ok(Side::Unknown);
        }
    }
    Ok(Side::Unknown)
}

/// On which side of the middle between the two levels a revision is, if that is settled.
fn side_of(workshop: &Workshop<'_>, logs: &[f64], stretch: &Stretch) -> Option<Side> {
    let middle = (stretch.before * stretch.after).sqrt();
    let is_above = side(&estimate(logs, workshop.manifest.seed)?, middle)? == Ordering::Greater;
    Some(if is_above == (stretch.after > stretch.before) { Side::Bad } else { Side::Good })
}

/// Runs culprit and parent beside each other, unless that was done before and left enough blocks for a
/// verdict; their products.
fn confirm(
    workshop: &mut Workshop<'_>,
    parent: &Revision,
    culprit: &Revision,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(String, String), BatchError> {
    let mut product = |revision: &Revision| {
        let gone = || BatchError::Asked(format!("{} cannot be built any more", revision.name));
        workshop.build(revision, tell)?.ok_or_else(gone)
    };
    let products = (product(parent)?, product(culprit)?);
    let purpose = Purpose::Confirmation { parent: products.0.clone(), culprit: products.1.clone() };
    let most = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
    let blocks = (2 * workshop.manifest.settings.blocks).min(most);
    let pairs = confirmed(&workshop.records()?, &products.0, &products.1).unwrap_or_default();
    if is_too_few(pairs.len(), blocks) {
        let text = format!("a fresh run of {} and {}", parent.name, culprit.name);
        tell(Event::Search(&text));
        let subjects = vec![
            (parent.name.clone(), products.0.clone()),
            (culprit.name.clone(), products.1.clone()),
        ];
        let share = Share { subjects, again: BTreeMap::new() };
        workshop.measure(purpose, share, blocks, tell)?;
    }
    Ok(products)
}

/// Whether so many blocks of a confirmation say nothing, where more were planned: a busy machine may have
/// taken the others.
fn is_too_few(pairs: usize, planned: u32) -> bool {
    pairs < (planned as usize).min(INTERVAL_BLOCKS)
}

/// What the confirmations say, judged together: the more there are, the likelier one of them differs by
/// chance.
fn judge(
    workshop: &Workshop<'_>,
    found: &[Traced],
) -> Result<Vec<Option<Confirmation>>, BatchError> {
    let records = workshop.records()?;
    let settings = &workshop.manifest.settings;
    let pairs = |traced: &Traced| -> Option<Vec<Pair>> {
        let (parent, culprit) = traced.products.as_ref()?;
        Some(confirmed(&records, parent, culprit).unwrap_or_default())
    };
    let all: Vec<Option<Vec<Pair>>> = found.iter().map(pairs).collect();
    let tested = |pairs: &Option<Vec<Pair>>| pairs.as_ref().and_then(|pairs| ratio_p(pairs));
    let mut adjusted = holm(&all.iter().filter_map(tested).collect::<Vec<f64>>()).into_iter();
    let confirmation = |pairs: Option<Vec<Pair>>| {
        let is_tested = tested(&pairs).is_some();
        let p = if is_tested { adjusted.next() } else { None }.unwrap_or(1.0);
        let pairs = pairs?;
        let estimate = ratio(&pairs, workshop.manifest.seed);
        let said = estimate.as_ref().map(|estimate| verdict(estimate, p, settings.margin));
        let said = said.unwrap_or(tollgate_stats::Verdict::NotSettled);
        let verdict = if settings.figure.more_is_better() { said.reversed() } else { said };
        Some(Confirmation { ratio: estimate.map(Range::from), n: pairs.len(), verdict })
    };
    Ok(all.into_iter().map(confirmation).collect())
}

fn named(revision: &Revision) -> Named {
    Named { revision: revision.id.clone(), name: revision.name.clone(), log: revision.log.clone() }
}

fn in_words(side: Side) -> &'static str {
    match side {
        Side::Good => "as before",
        Side::Bad => "as after",
        Side::Unknown => "passed over: it cannot be measured, or more blocks do not settle it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_is_measured_again_until_it_can_say_something() {
        assert!(is_too_few(0, 2));
        assert!(is_too_few(5, 12));
        assert!(!is_too_few(6, 12));
        // More than was planned does not come of it.
        assert!(!is_too_few(2, 2));
    }
}
