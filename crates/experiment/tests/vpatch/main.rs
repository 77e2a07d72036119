//! The virtual patches of `mixes/vpatch/`, each against its attack and its near miss, by a reading of
//! CrowdSec's rule format of our own. CrowdSec's own engine is asked end to end.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

// Whether a rule matches a request.
mod evaluate;
// What a rule looks at in a request.
mod request;
// The part of CrowdSec's rule format that the patches use.
mod rule;

use rule::Patch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tollgate_experiment::catalog::Catalog;
use tollgate_traffic::{Class, Message};

/// How many there are: as many as in CrowdSec's own benchmark.
const PATCHES: usize = 100;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mixes/vpatch")
}

/// The patches by file name without its end.
fn patches() -> BTreeMap<String, Patch> {
    let files = fs::read_dir(folder().join("rules")).unwrap().flatten();
    let patch = |path: PathBuf| {
        let patch = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap());
        let patch = patch.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), patch)
    };
    files.map(|file| patch(file.path())).collect()
}

/// The requests of a mix by name, without a prefix that all names have.
fn requests(mix: &str, class: Class, prefix: &str) -> BTreeMap<String, Message> {
    let (mix, _) = Catalog::new(vec![]).mix(mix, Path::new("")).unwrap();
    assert!(mix.templates().iter().all(|template| template.class == class));
    let names = mix.templates().iter().map(|one| one.name.strip_prefix(prefix).unwrap().to_owned());
    names.zip(mix.samples()).collect()
}

fn attacks() -> BTreeMap<String, Message> {
    requests("vpatch/attacks", Class::Malicious, "")
}

fn near_misses() -> BTreeMap<String, Message> {
    requests("vpatch/near-misses", Class::Benign, "near-")
}

#[test]
fn each_patch_is_named_after_its_flaw_and_has_its_two_requests() {
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
        // CrowdSec puts it into a rule between apostrophes as it is: the rule would be cut off there.
        assert!(!patch.description.contains(['\'', '"']), "{file}: {}", patch.description);
    }
    let files: BTreeSet<&String> = patches.keys().collect();
    assert_eq!(attacks().keys().collect::<BTreeSet<_>>(), files);
    assert_eq!(near_misses().keys().collect::<BTreeSet<_>>(), files);
}

#[test]
fn each_patch_matches_its_attack_and_not_its_near_miss() {
    let (attacks, near_misses) = (attacks(), near_misses());
    for (name, patch) in &patches() {
        assert!(evaluate::matches(patch, &attacks[name]), "{name} lets its attack through");
        assert!(!evaluate::matches(patch, &near_misses[name]), "{name} blocks its near miss");
    }
}

#[test]
fn no_patch_matches_a_near_miss_of_another() {
    let patches = patches();
    for (near, message) in &near_misses() {
        let matching = patches.values().filter(|patch| evaluate::matches(patch, message));
        let names: Vec<&str> = matching.map(|patch| patch.name.as_str()).collect();
        assert_eq!(names, [""; 0], "near miss of {near}");
    }
}
