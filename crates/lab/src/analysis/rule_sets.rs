//! Whether subjects whose rules go by the same name have the same rules: otherwise it is not their engines
//! alone that differ.

use crate::manifest::{SubjectManifest, SubjectState};
use crate::system::installed::RuleSetHash;
use std::collections::{BTreeMap, BTreeSet};

/// One note for each rule set that is not the same for all of its subjects.
pub(super) fn notes(subjects: &[SubjectManifest]) -> Vec<String> {
    let uses = subjects.iter().filter_map(|subject| match &subject.state {
        SubjectState::Present { installed, .. } => {
            Some((subject.name.as_str(), installed.rule_set.as_ref()?))
        }
        SubjectState::Skipped { .. } | SubjectState::Broken { .. } => None,
    });
    differing(uses)
}

fn differing<'a>(uses: impl Iterator<Item = (&'a str, &'a RuleSetHash)>) -> Vec<String> {
    let mut by_name: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (subject, RuleSetHash { name, hash }) in uses {
        by_name.entry(name).or_default().entry(hash).or_default().insert(subject);
    }
    let told = by_name.iter().filter(|(_, versions)| versions.len() > 1);
    told.map(|(name, versions)| {
        let groups = versions.values().map(|subjects| {
            let subjects: Vec<&str> = subjects.iter().copied().collect();
            subjects.join(", ")
        });
        let groups: Vec<String> = groups.collect();
        format!(
            "Not all subjects have the same {name}: {} differ in their rules, and not in their engines \
             alone.",
            groups.join(" and ")
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_sets_of_one_name_and_several_hashes_are_told() {
        let rules =
            |name: &str, hash: &str| RuleSetHash { name: name.to_owned(), hash: hash.to_owned() };
        let (crs_4, crs_3, other) = (rules("CRS", "a"), rules("CRS", "b"), rules("core", "c"));
        let alike = [("nginx", &crs_4), ("apache", &crs_4), ("naxsi", &other)];
        assert_eq!(differing(alike.into_iter()), Vec::<String>::new());
        let unlike = [("nginx", &crs_4), ("apache", &crs_4), ("old", &crs_3), ("naxsi", &other)];
        assert_eq!(
            differing(unlike.into_iter()),
            [
                "Not all subjects have the same CRS: apache, nginx and old differ in their rules, and not \
              in their engines alone."
            ]
        );
    }
}
