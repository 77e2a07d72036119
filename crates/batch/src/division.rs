//! Division of products into rounds, and the experiment of each: the user's, with one case, and with the anchor and some
//! products as subjects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tollgate_experiment::adjust::Limit;
use tollgate_experiment::experiment::{Experiment, Subject};
use tollgate_experiment::file::{DesignFile, ExperimentFile};
use tollgate_experiment::toml_file::{self, NamedText};
use tollgate_records::error::{bad_input, io_error};
use tollgate_records::subject::OptionValue;
use tollgate_traffic::units::Percent;

pub(crate) const ANCHOR: &str = "anchor";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoundSubject {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Path for its option.
    pub(crate) product: String,
}

/// Returns an experiment with only one case and one subject, with another margin and other limits, and without its blocks.
pub(crate) fn base(
    source: &NamedText,
    case: &str,
    subject: &Subject,
    margin: Option<Percent>,
    limits: &[Limit],
) -> anyhow::Result<ExperimentFile> {
    let mut file: ExperimentFile = toml_file::parse(source)?;
    for limit in limits {
        limit.apply(&mut file.limits).map_err(|error| bad_input(format!("--limit: {error}")))?;
    }
    let mut kept_case = named("case", case, file.case, |case| &case.name)?;
    if kept_case.rate_of.is_some() {
        return Err(damaged(&format!(
            "case `{case}` takes its rate from another case, which a round does not have; set `rate`"
        )));
    }
    // The subjects of a round have other names.
    kept_case.subjects.clear();
    // A relative path would be relative to the file of the round.
    let folder = Path::new(&source.name).parent().unwrap_or(Path::new(""));
    if kept_case.mix.ends_with(".toml") || kept_case.mix.ends_with(".mix") {
        let path = folder.join(&kept_case.mix);
        let path = std::path::absolute(&path).map_err(io_error("resolve", &path))?;
        kept_case.mix = path.display().to_string();
    }
    let mut kept_subject = named("subject", &subject.name, file.subject, |subject| &subject.name)?;
    for (name, value) in &mut kept_subject.with {
        if let (OptionValue::Text(_), Some(option)) = (&value, subject.options.get(name)) {
            *value = option.clone();
        }
    }
    Ok(ExperimentFile {
        case: vec![kept_case],
        subject: vec![kept_subject],
        design: DesignFile { margin: margin.or(file.design.margin), ..DesignFile::default() },
        // The fallback is not a subject of the round.
        baseline_fallback: None,
        ..file
    })
}

/// Returns the experiment of a round. The anchor is its first subject.
pub(crate) fn experiment(
    base: &ExperimentFile,
    title: &str,
    option: &str,
    subjects: &[RoundSubject],
    blocks: u32,
) -> anyhow::Result<ExperimentFile> {
    let pattern = base.subject.first().ok_or_else(|| damaged("no subject"))?;
    let subject = |subject: &RoundSubject| {
        let mut one = pattern.clone();
        one.name.clone_from(&subject.name);
        one.about.clone_from(&subject.about);
        one.with.insert(option.to_owned(), OptionValue::Text(subject.product.clone()));
        one
    };
    Ok(ExperimentFile {
        title: title.to_owned(),
        baseline: ANCHOR.to_owned(),
        subject: subjects.iter().map(subject).collect(),
        design: DesignFile { blocks: Some(blocks), ..base.design },
        ..base.clone()
    })
}

/// Returns the experiment of a batch with the mix of its case, if that is a file, by a path relative to the folder of the
/// round; and the files of the mix by such paths.
pub(crate) fn movable(
    mut base: ExperimentFile,
    experiment: &Experiment,
) -> anyhow::Result<(ExperimentFile, BTreeMap<String, PathBuf>)> {
    let case = base.case.first_mut().ok_or_else(|| damaged("no case"))?;
    let [parsed] = &experiment.cases[..] else { return Ok((base, BTreeMap::new())) };
    if !Path::new(&case.mix).is_absolute() {
        return Ok((base, BTreeMap::new()));
    }
    // Files of the catalog are found there by their names.
    let sources = std::iter::once(&parsed.mix_source).chain(&parsed.mix_included);
    let paths = sources.map(|source| PathBuf::from(&source.name)).filter(|path| path.is_file());
    let paths = paths.map(|path| path.canonicalize().map_err(io_error("resolve", &path)));
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
    let own = Path::new(&case.mix);
    let own = own.canonicalize().map_err(io_error("resolve", own))?;
    let is_above = |folder: &&Path| paths.iter().all(|path| path.starts_with(folder));
    let root = own.ancestors().skip(1).find(is_above).unwrap_or(Path::new("/"));
    let place =
        |path: &Path| format!("{MIX_FOLDER}/{}", path.strip_prefix(root).unwrap_or(path).display());
    case.mix = place(&own);
    let beside = paths.iter().map(|path| (place(path), path.clone())).collect();
    Ok((base, beside))
}

const MIX_FOLDER: &str = "mix";

fn named<T>(
    kind: &str,
    name: &str,
    all: Vec<T>,
    name_of: impl Fn(&T) -> &String,
) -> anyhow::Result<T> {
    let found = all.into_iter().find(|one| name_of(one) == name);
    found.ok_or_else(|| damaged(&format!("no {kind} `{name}`")))
}

fn damaged(what: &str) -> anyhow::Error {
    bad_input(format!("cannot use the experiment of the batch: {what}"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoundProduct {
    pub(crate) product: String,
    /// Name of the first revision with this product.
    pub(crate) name: String,
    pub(crate) revisions: usize,
}

/// The subjects of one round, without the anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) subjects: Vec<(String, String)>,
    /// For a product that runs twice: the second subject and the first.
    pub(crate) duplicates: BTreeMap<String, String>,
}

const AGAIN: &str = "-again";

/// Divides products into rounds, neighbours together. The anchor's product runs beside the anchor, and the first product
/// of a round that several revisions share runs twice: both show the difference between equal products.
pub(crate) fn shares(wanted: &[RoundProduct], together: usize, anchor: &str) -> Vec<Share> {
    let share = |products: &[RoundProduct]| {
        let subject = |one: &RoundProduct| (one.name.clone(), one.product.clone());
        let beside = products.iter().filter(|one| one.product == anchor);
        let mut share = Share {
            subjects: products.iter().map(subject).collect(),
            duplicates: beside.map(|one| (one.name.clone(), ANCHOR.to_owned())).collect(),
        };
        let is_shared = |one: &&RoundProduct| one.revisions > 1 && one.product != anchor;
        if let Some(shared) = products.iter().find(is_shared) {
            let name = format!("{}{AGAIN}", shared.name);
            share.subjects.push((name.clone(), shared.product.clone()));
            share.duplicates.insert(name, shared.name.clone());
        }
        share
    };
    // Evenly, because a last round with one product would need as many anchor trials as a full one.
    let rounds = wanted.len().div_ceil(together.max(1));
    let mut left = wanted;
    (0..rounds)
        .map(|round| {
            let (these, rest) = left.split_at(left.len().div_ceil(rounds - round));
            left = rest;
            share(these)
        })
        .collect()
}

/// Returns `count` evenly spread indices, with the first and the last.
pub(crate) fn spread(count: usize, steps: usize) -> Vec<usize> {
    if steps >= count || steps < 2 {
        return (0..count).collect();
    }
    (0..steps).map(|step| (step * (count - 1) + (steps - 1) / 2) / (steps - 1)).collect()
}

/// Limit of replacements to try, as each costs a build.
const REPLACEMENTS_MAX: usize = 16;

/// Returns the replacements for a chosen index between its chosen neighbours: the nearest first, the earlier of two.
pub(crate) fn replacements(chosen: &[usize], which: usize, count: usize) -> Vec<usize> {
    let place = chosen[which];
    let first = which.checked_sub(1).map_or(0, |before| chosen[before] + 1);
    let behind = chosen.get(which + 1).copied().unwrap_or(count);
    let mut others: Vec<usize> = (first..behind).filter(|other| *other != place).collect();
    others.sort_by_key(|other| other.abs_diff(place));
    others.truncate(REPLACEMENTS_MAX);
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BatchFile, Settings, Wanted};
    use tollgate_experiment::adjust::Adjustments;
    use tollgate_experiment::catalog::Catalog;
    use tollgate_records::validity::Limits;

    #[test]
    fn round_is_a_valid_experiment() {
        let catalog = Catalog::new(vec![]);
        let mut source = catalog.experiment("modsecurity").unwrap();
        source.text = source.text.replace("[[case]]\n", "[[case]]\nsubjects = ['full']\n");
        let case = Experiment::load(&catalog, "modsecurity", &Adjustments::default()).unwrap();
        let full = case.subjects.iter().find(|subject| subject.name == "full").unwrap();
        let limits: Vec<Limit> = vec!["background_cpu=45%".parse().unwrap()];
        let base = base(&source, &case.cases[0].name, full, Some(Percent(0.07)), &limits).unwrap();
        let subject = |name: &str| RoundSubject {
            name: name.to_owned(),
            about: format!("{name}: \"quoted\""),
            product: format!("/products/{name}"),
        };
        let subjects = [subject(ANCHOR), subject("v4.7.0")];
        let text = experiment(&base, "A round", "crs", &subjects, 6).unwrap().to_toml().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("001.toml");
        std::fs::write(&path, &text).unwrap();
        let adjustments = Adjustments::default();
        let round = Experiment::load(&catalog, path.to_str().unwrap(), &adjustments).unwrap();
        assert_eq!((round.title.as_str(), round.baseline, round.stop.blocks), ("A round", 0, 6));
        assert!((round.margin - 0.07).abs() < 1e-12);
        assert_eq!(round.limits, Limits { background_cpu: Percent(0.45), ..Limits::default() });
        assert_eq!(round.cases.len(), 1);
        let names: Vec<(String, String)> = round
            .subjects
            .iter()
            .map(|subject| (subject.name.clone(), subject.options["crs"].to_string()))
            .collect();
        let expected = [(ANCHOR, "/products/anchor"), ("v4.7.0", "/products/v4.7.0")];
        assert_eq!(names, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(round.subjects[1].options["site"].to_string(), "locations", "the rest stays");
    }

    #[test]
    fn rounds_of_all_revision_files_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../revisions");
        let catalog = Catalog::new(vec![]);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let source =
                NamedText { name: name.clone(), text: std::fs::read_to_string(&path).unwrap() };
            let file: BatchFile = toml_file::parse(&source).unwrap();
            let settings = Settings::of(&file, &folder, &catalog).unwrap();
            Wanted::of(&file, &folder).unwrap();
            let subject = |name: &str| RoundSubject {
                name: name.to_owned(),
                about: String::new(),
                product: "/products/one".to_owned(),
            };
            let subjects = [subject(ANCHOR), subject("one")];
            let text = experiment(
                &settings.base().unwrap(),
                "t",
                &settings.option,
                &subjects,
                settings.blocks,
            );
            let dir = tempfile::tempdir().unwrap();
            let round = dir.path().join("001.toml");
            std::fs::write(&round, text.unwrap().to_toml().unwrap()).unwrap();
            let adjustments = Adjustments::default();
            let round = Experiment::load(&catalog, round.to_str().unwrap(), &adjustments).unwrap();
            assert_eq!(round.subjects.len(), 2, "{name}");
            names.push(name);
        }
        names.sort();
        assert_eq!(names, ["coraza", "crs", "gateway", "modsecurity"]);
    }
}

#[cfg(test)]
mod plan_tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(name: &str, revisions: usize) -> RoundProduct {
        RoundProduct { product: format!("hash of {name}"), name: name.to_owned(), revisions }
    }

    #[test]
    fn neighbours_share_a_round_and_shared_products_run_twice() {
        let all = [wanted("a", 1), wanted("b", 2), wanted("c", 3), wanted("d", 1), wanted("e", 1)];
        let shares = shares(&all, 4, "hash of e");
        let names = |share: &Share| -> Vec<String> {
            share.subjects.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&shares[0]), ["a", "b", "c", "b-again"]);
        assert_eq!(names(&shares[1]), ["d", "e"]);
        assert_eq!(shares[0].duplicates, BTreeMap::from([("b-again".to_owned(), "b".to_owned())]));
        assert_eq!(shares[0].subjects[3].1, "hash of b");
        assert_eq!(shares[1].duplicates, BTreeMap::from([("e".to_owned(), "anchor".to_owned())]));
    }

    proptest! {
        #[test]
        fn every_product_is_in_one_round_and_rounds_are_even(count in 0usize..60, together in 1usize..9) {
            let all: Vec<RoundProduct> = (0..count).map(|place| wanted(&place.to_string(), 1)).collect();
            let shares = shares(&all, together, "");
            let dealt: Vec<&(String, String)> = shares.iter().flat_map(|share| &share.subjects).collect();
            prop_assert_eq!(dealt.len(), count);
            prop_assert!(dealt.iter().zip(&all).all(|(one, other)| one.0 == other.name));
            let sizes: Vec<usize> = shares.iter().map(|share| share.subjects.len()).collect();
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            prop_assert!(most.is_none_or(|most| *most <= together && most - least.unwrap() <= 1));
        }
    }
}

#[cfg(test)]
mod steps_tests {
    use super::*;

    #[test]
    fn steps_are_evenly_spread() {
        assert_eq!(spread(12, 4), [0, 4, 7, 11]);
        assert_eq!(spread(3, 9), [0, 1, 2]);
        assert_eq!(spread(5, 2), [0, 4]);
        assert_eq!(spread(0, 4), [0_usize; 0]);
        for count in 2..60 {
            for steps in 2..count {
                let places = spread(count, steps);
                assert!(places.is_sorted_by(|a, b| a < b), "{count} {steps} {places:?}");
                assert_eq!((places[0], places[steps - 1]), (0, count - 1));
            }
        }
    }

    #[test]
    fn replacements_are_the_nearest_between_neighbours() {
        let chosen = [0, 4, 7, 11];
        assert_eq!(replacements(&chosen, 0, 12), [1, 2, 3]);
        assert_eq!(replacements(&chosen, 1, 12), [3, 5, 2, 6, 1]);
        assert_eq!(replacements(&chosen, 3, 12), [10, 9, 8]);
        // If all are chosen, there are no replacements.
        assert_eq!(replacements(&[0, 1, 2], 1, 3), [0_usize; 0]);
        assert_eq!(replacements(&[0, 999], 0, 1000).len(), REPLACEMENTS_MAX);
    }
}
