//! One rule set, four engines: with the same Core Rule Set each blocks and lets through the same requests, so that
//! what their prices differ in is not what they do.

use super::{answers, check, workspace};
use crate::support::{stdout, told};
use std::collections::BTreeMap;

/// Each engine as the experiment `wafs` sets it up, which names all that can be set alike; CRS 4.25.0 is what each
/// takes by default.
const ENGINES: [(&str, &[&str]); 4] = [
    ("nginx-modsecurity", &["rules=crs", "response_bodies=off"]),
    ("apache-modsecurity", &["rules=crs", "response_bodies=off"]),
    ("caddy-coraza", &["rules=crs", "response_bodies=off"]),
    ("crowdsec-appsec", &["in_band=crs", "bouncer=nginx"]),
];

#[test]
fn all_engines_block_the_same_requests_with_the_same_rules() {
    let workspace = workspace();
    let mut all: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    let mut counts = Vec::new();
    let mut rule_sets = Vec::new();
    for (engine, with) in ENGINES {
        let output = check(&workspace, engine, with, "realistic");
        assert_eq!(output.status.code(), Some(0), "{engine}: {}", told(&output));
        let said = stdout(&output);
        assert!(said.contains("CRS/4.25.0"), "{engine}: {}", told(&output));
        let hash = said.lines().find_map(|line| line.strip_prefix("  rule set  OWASP CRS "));
        rule_sets.push(hash.expect("a line with the hash of the rule set").to_owned());
        for (template, status) in answers(&output) {
            all.entry(template).or_default().push(status);
        }
        let of = |class: &str, status: &str| {
            let is_of = |line: &&str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.get(2) == Some(&class) && words.get(3) == Some(&status)
            };
            said.lines().filter(is_of).count()
        };
        counts.push([
            of("attack", "403"),
            of("attack", "200"),
            of("harmless", "403"),
            of("harmless", "200"),
        ]);
    }
    // By one hash they have the same files, so that what follows is about the engines alone.
    assert!(
        rule_sets.iter().all(|hash| hash.len() == 64 && *hash == rule_sets[0]),
        "{rule_sets:?}"
    );
    // Of 135 attacks 113, and of 80 harmless requests 12: METHODOLOGY.md says so.
    assert_eq!(counts, [[113, 22, 12, 68]; 4]);
    for (template, statuses) in &all {
        assert!(
            statuses.len() == ENGINES.len() && statuses.iter().all(|one| *one == statuses[0]),
            "{template}: {statuses:?} by {ENGINES:?}"
        );
    }
}
