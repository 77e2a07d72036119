//! The built-in mixes: shares of requests, families of attacks, and size of bodies.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tollgate_experiment::catalog::Catalog;
use tollgate_traffic::{Class, Message, Mix};

fn mix(name: &str) -> Mix {
    Catalog::new(vec![]).mix(name, Path::new("")).unwrap().0
}

/// Returns the shares of one deck of `deck` requests, in percent, by class and by method (true for GET).
fn shares(name: &str, deck: usize) -> BTreeMap<(Class, bool), f64> {
    let mix = mix(name);
    let samples: Vec<Message> = mix.messages().collect();
    let mut counts: BTreeMap<(Class, bool), usize> = BTreeMap::new();
    let mut sent = BTreeSet::new();
    for step in mix.script(1).take(deck) {
        let kind = (mix.templates()[step.template].class, samples[step.template].method == "GET");
        *counts.entry(kind).or_default() += 1;
        sent.insert(step.template);
    }
    assert_eq!(sent.len() + probe_only(name), samples.len(), "{name}");
    counts.into_iter().map(|(kind, count)| (kind, 100.0 * count as f64 / deck as f64)).collect()
}

/// Number of attacks of weight 0, which show in the probe that a WAF is active.
fn probe_only(mix: &str) -> usize {
    match mix {
        "get" => 10,
        "post-10" => 10 + 7,
        _ => 0,
    }
}

const PAGE: (Class, bool) = (Class::Benign, true);
const POST: (Class, bool) = (Class::Benign, false);
const ATTACK: (Class, bool) = (Class::Malicious, true);
const ATTACK_IN_BODY: (Class, bool) = (Class::Malicious, false);

#[test]
fn mixes_have_the_shares_of_their_names() {
    assert_eq!(shares("get", 90), [(PAGE, 100.0)].into());
    assert_eq!(shares("post-10", 100), [(PAGE, 90.0), (POST, 10.0)].into());
    assert_eq!(shares("get-10-malicious", 900), [(PAGE, 90.0), (ATTACK, 10.0)].into());
    assert_eq!(
        shares("post-10-malicious", 1_800),
        [(PAGE, 80.0), (POST, 10.0), (ATTACK, 5.0), (ATTACK_IN_BODY, 5.0)].into()
    );
    assert_eq!(
        shares("realistic", 4_500),
        [(PAGE, 70.0), (POST, 25.0), (ATTACK, 4.0), (ATTACK_IN_BODY, 1.0)].into()
    );
}

#[test]
fn realistic_mix_has_many_attacks_and_benign_requests_with_families() {
    let mix = mix("realistic");
    let of = |class| mix.templates().iter().filter(move |template| template.class == class);
    assert!(of(Class::Malicious).count() >= 60, "{}", of(Class::Malicious).count());
    assert!(of(Class::Benign).count() >= 60, "{}", of(Class::Benign).count());
    assert!(mix.templates().iter().all(|template| template.family.is_some()));
    let families = |class: Class, open: bool| -> BTreeSet<&str> {
        let some = of(class).filter(|template| template.open == open);
        some.filter_map(|template| template.family.as_deref()).collect()
    };
    let own = [
        "code-injection",
        "command-injection",
        "local-inclusion",
        "log4shell",
        "protocol-abuse",
        "remote-inclusion",
        "scanner",
        "sql-injection",
        "traversal",
        "xss",
    ];
    // One attack of each family is not open, so that the probe requires it to be blocked. Only subjects with the virtual
    // patches must block those of `virtual-patch`.
    assert_eq!(families(Class::Malicious, false), own.into());
    let open: BTreeSet<&str> = own.into_iter().chain(["virtual-patch"]).collect();
    assert_eq!(families(Class::Malicious, true), open);
    // Plain benign requests must pass, so that a WAF that blocks everything is refused.
    assert!(of(Class::Benign).filter(|template| !template.open).count() >= 10);
}

#[test]
fn large_bodies_have_50_kilobytes() {
    let posts: Vec<Message> = mix("parts/posts-50k").messages().collect();
    let json = posts.iter().find(|post| post.path == "/api/catalogue").unwrap();
    let list: serde_json::Value = serde_json::from_str(&json.body).unwrap();
    assert_eq!(list["products"].as_array().unwrap().len(), 270);
    for post in posts {
        assert!((49_000..=51_000).contains(&post.body.len()), "{}: {}", post.path, post.body.len());
    }
}
