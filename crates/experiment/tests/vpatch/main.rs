//! The virtual patches of `mixes/vpatch/`, each with its attack and its near miss, evaluated by an independent reader of
//! CrowdSec's rule format. End-to-end tests use CrowdSec's own engine.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

// Evaluation of rules.
mod evaluate;
// Parts of a request.
mod request;
// The used part of CrowdSec's rule format.
mod rule;

use rule::Patch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tollgate_experiment::catalog::Catalog;
use tollgate_traffic::{Class, Message};

/// As many as in CrowdSec's own benchmark.
const PATCHES: usize = 100;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mixes/vpatch")
}

/// Returns the patches by file name without extension.
fn patches() -> BTreeMap<String, Patch> {
    let files = fs::read_dir(folder().join("rules")).unwrap().flatten();
    let patch = |path: PathBuf| {
        let patch = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap());
        let patch = patch.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), patch)
    };
    files.map(|file| patch(file.path())).collect()
}

/// Returns the requests of a mix by name, without a common prefix.
fn requests(mix: &str, class: Class, prefix: &str) -> BTreeMap<String, Message> {
    let (mix, _) = Catalog::new(vec![]).mix(mix, Path::new("")).unwrap();
    assert!(mix.templates().iter().all(|template| template.class == class));
    let names = mix.templates().iter().map(|one| one.name.strip_prefix(prefix).unwrap().to_owned());
    names.zip(mix.messages()).collect()
}

fn attacks() -> BTreeMap<String, Message> {
    requests("vpatch/attacks", Class::Malicious, "")
}

fn near_misses() -> BTreeMap<String, Message> {
    requests("vpatch/near-misses", Class::Benign, "near-")
}

#[test]
fn patches_are_named_after_their_cve_and_have_two_requests() {
    let patches = patches();
    assert_eq!(patches.len(), PATCHES);
    for (file, patch) in &patches {
        let [year, number] = file.strip_prefix("CVE-").unwrap().split('-').collect::<Vec<_>>()[..]
        else {
            panic!("{file} does not name a CVE")
        };
        assert!((1999..=2025).contains(&year.parse::<u32>().unwrap()), "{file}");
        assert!(number.len() >= 4 && number.bytes().all(|byte| byte.is_ascii_digit()), "{file}");
        assert_eq!(patch.name, format!("tollgate/{file}"));
        assert!(patch.description.ends_with(&format!("({file})")), "{file}: {}", patch.description);
        // CrowdSec puts it between apostrophes in a rule, without escaping.
        assert!(!patch.description.contains(['\'', '"']), "{file}: {}", patch.description);
    }
    let files: BTreeSet<&String> = patches.keys().collect();
    assert_eq!(attacks().keys().collect::<BTreeSet<_>>(), files);
    assert_eq!(near_misses().keys().collect::<BTreeSet<_>>(), files);
}

#[test]
fn patch_matches_its_attack_and_not_its_near_miss() {
    let (attacks, near_misses) = (attacks(), near_misses());
    for (name, patch) in &patches() {
        assert!(evaluate::matches(patch, &attacks[name]), "{name} lets its attack through");
        assert!(!evaluate::matches(patch, &near_misses[name]), "{name} blocks its near miss");
    }
}

#[test]
fn patch_does_not_match_near_misses_of_others() {
    let patches = patches();
    for (near, message) in &near_misses() {
        let matching = patches.values().filter(|patch| evaluate::matches(patch, message));
        let names: Vec<&str> = matching.map(|patch| patch.name.as_str()).collect();
        assert_eq!(names, [""; 0], "near miss of {near}");
    }
}
