//! Checks that rule sets of the same name have the same content: otherwise not only the engines
//! differ.

use std::collections::{BTreeMap, BTreeSet};
use tollgate_experiment::manifest::{SubjectManifest, SubjectState};
use tollgate_experiment::recipe::RuleSetHash;

/// One note per rule set with different content among its subjects.
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
            "Subjects have different versions of {name}: {}. They differ in their rules, not only in their \
             engines.",
            groups.join(" and ")
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_rule_sets_with_different_content() {
        let rules =
            |name: &str, hash: &str| RuleSetHash { name: name.to_owned(), hash: hash.to_owned() };
        let (crs_4, crs_3, other) = (rules("CRS", "a"), rules("CRS", "b"), rules("core", "c"));
        let alike = [("nginx", &crs_4), ("apache", &crs_4), ("naxsi", &other)];
        assert_eq!(differing(alike.into_iter()), Vec::<String>::new());
        let unlike = [("nginx", &crs_4), ("apache", &crs_4), ("old", &crs_3), ("naxsi", &other)];
        assert_eq!(
            differing(unlike.into_iter()),
            [
                "Subjects have different versions of CRS: apache, nginx and old. They differ in their rules, not \
              only in their engines."
            ]
        );
    }
}
