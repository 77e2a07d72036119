//! The experiment `catch`: verdicts of WAFs on the mixes, on lines of text and on the Core Rule Set's own tests.

use crate::go_ftw::core_rule_set;
use crate::support::{Workspace, flat, show, stdout, without_limits};
use serde_json::Value;

fn subject<'a>(catch: &'a Value, name: &str) -> &'a Value {
    let subjects = catch["subjects"].as_array().expect("subjects");
    subjects.iter().find(|subject| subject["name"] == name).expect("the subject")
}

#[test]
fn engines_of_one_rule_set_agree_on_most_of_its_tests() {
    let workspace = Workspace::long();
    let tests = core_rule_set().join("tests");
    let tests = tests.to_str().expect("a name");
    let output = workspace.run(&["mix", "import", tests, "--as", "ftw", "-o", "crs-tests.mix"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    workspace
        .write("lines/en.txt", "What time is it in London?\n\nSelect a date, or 1' OR '1'='1\n");
    let lines = ["mix", "import", "lines", "--as", "lines", "-o", "lines.mix"];
    let output = workspace.run(&lines);
    assert!(stdout(&output).contains("4 requests, 4 distinct"), "{}", show(&output));
    let run =
        ["run", "catch", "--quick", "--only", "modsecurity-nginx,modsecurity-apache,tollgate"];
    let corpus = ["--corpus", "crs-tests.mix", "--corpus", "lines.mix", "--out", "out"];
    let output = workspace.run(&without_limits(&[&run[..], &corpus].concat()));
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));

    let report = workspace.json("out/report.json");
    let catch = &report["cases"][0]["catch"];
    // A proxy without rules blocks nothing, and is not compared.
    assert_eq!(catch["subjects"].as_array().expect("subjects").len(), 3, "{catch:#}");
    let requests = workspace.json("out/manifest.json")["experiment"]["corpus"]
        .as_array()
        .expect("a corpus")
        .len();
    assert!(requests > 3_000, "{requests}");
    for name in ["modsecurity-nginx", "modsecurity-apache", "tollgate"] {
        let found = subject(catch, name);
        let [attacks, score] = ["attacks", "score"].map(|key| &found[key]);
        let [blocked, of] = ["blocked", "of"].map(|key| attacks[key].as_u64().expect("a number"));
        // Most tests expect one rule at a higher paranoia level.
        assert!(of > 2_000 && blocked > of / 4 && blocked < of, "{found:#}");
        let [low, estimate, high] =
            ["low", "estimate", "high"].map(|key| score[key].as_f64().expect("a number"));
        assert!(0.5 < low && low < estimate && estimate < high && high < 1.0, "{score:#}");
        let families = found["families"].as_array().expect("families");
        let family = |name: &str| {
            families.iter().find(|one| one["family"] == name).unwrap_or_else(|| panic!("{name}"))
        };
        let injections = &family("request-942-application-attack-sqli")["share"];
        assert!(injections["estimate"].as_f64() > Some(0.3), "{injections:#}");
        // One of two sentences is an attack, as an argument and in a body.
        assert_eq!(
            (&family("en")["share"]["blocked"], &family("en")["share"]["of"]),
            (&2.into(), &4.into())
        );
    }
    let pairs = catch["pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), 3);
    for pair in pairs {
        let [same, first, second] =
            ["same", "first_only", "second_only"].map(|key| pair[key].as_u64().expect("a number"));
        assert!(same > 10 * (first + second), "{pair:#}");
    }
    let differences = report["cases"][0]["differences"].as_array().expect("differences");
    let of_corpus: Vec<&Value> = differences
        .iter()
        .filter(|one| one["name"].as_str().is_some_and(|name| name.starts_with("crs-tests: ")))
        .collect();
    assert!(!of_corpus.is_empty());
    assert!(
        of_corpus.iter().all(|one| one["request"].as_str().is_some_and(|text| text.contains(" /")))
    );
    let csv = workspace.read("out/catch.csv");
    for kind in ["family", "all", "score", "pair", "difference"] {
        assert!(csv.contains(&format!("\nverdicts,{kind},")), "no {kind} in {csv}");
    }
    let table = flat(&stdout(&output));
    assert!(table.contains("score %") && table.contains("McNemar's exact test"), "{table}");
    for file in ["report.md", "report.html"] {
        assert!(workspace.read(&format!("out/{file}")).contains("only 1st right"), "{file}");
    }
    workspace.assert_nothing_runs();
}
