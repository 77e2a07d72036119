//! `--ablate` and `--matrix` on a small rule set.

use crate::support::{Experiment, Workspace, show, stderr, stdout};
use serde_json::Value;

/// Sets a variable that the other files read.
const START: &str = r#"
SecAction "id:9011,phase:1,pass,nolog,setvar:tx.armed=1"
"#;
const XSS: &str = r#"
SecRule TX:ARMED "@eq 1" "id:9411,phase:2,deny,status:403,nolog,chain"
    SecRule ARGS "@contains <script" "t:none"
"#;
/// Blocks the other attacks of the mix; from paranoia level 2, everything.
const REST: &str = r#"
SecRule TX:ARMED "@eq 1" "id:9421,phase:2,deny,status:403,nolog,chain"
    SecRule ARGS "@rx (?:' OR '|/etc/passwd)" "t:none"

SecRule TX:BLOCKING_PARANOIA_LEVEL "@ge 2" "id:9422,phase:2,deny,status:403,nolog"
"#;
/// An exception to a rule of another file, which must be removed with that file.
const AFTER: &str = r#"
SecRuleUpdateTargetById 9411 "!ARGS:ignored"
"#;

/// Writes the rule set. Returns an experiment of nginx with and without it.
fn small(workspace: &Workspace) -> String {
    workspace.write("small/crs-setup.conf", "SecAction \"id:9001,phase:1,pass,nolog\"\n");
    for (name, text) in [
        ("REQUEST-901-INITIALIZATION", START),
        ("REQUEST-941-XSS", XSS),
        ("REQUEST-942-REST", REST),
        ("REQUEST-999-AFTER", AFTER),
    ] {
        workspace.write(&format!("small/rules/{name}.conf"), text);
    }
    // Configurations name the word lists of a rule set.
    workspace.write("small/rules/words.data", "none\n");
    let folder = workspace.path("small").canonicalize().expect("a folder");
    let experiment = Experiment {
        title: "What do the rules cost?",
        load: r#"connections = 4, rate = 200, duration = "400ms", warmup = "50ms""#,
        subjects: &[
            ("nginx", "nginx", ""),
            (
                "full",
                "nginx-modsecurity",
                &format!("rules = \"crs\", crs = \"{}\"", folder.display()),
            ),
        ],
        blocks: 1,
    };
    experiment.text()
}

fn run(workspace: &Workspace, arguments: &[&str]) -> Value {
    let mut all = vec!["run", "small.toml", "--out", "out"];
    all.extend(arguments);
    let mut command = workspace.command(&all);
    // Keeps the reduced rule sets in the workspace.
    let output = command.env("XDG_CACHE_HOME", workspace.path("cache")).output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    workspace.json("out/report.json")
}

fn names(values: &Value) -> Vec<&str> {
    let values = values.as_array().expect("a list");
    values.iter().map(|value| value.as_str().expect("a name")).collect()
}

#[test]
fn ablation_prices_each_rule_file_and_names_its_detections() {
    let workspace = Workspace::concurrent();
    workspace.write("small.toml", &small(&workspace));
    let report = run(&workspace, &["--ablate", "full"]);
    let ablation = &report["cases"][0]["ablation"];
    assert_eq!(ablation["subject"], "full", "{ablation:#}");
    let files = ablation["files"].as_array().expect("files");
    let file = |name: &str| {
        files.iter().find(|file| file["file"] == name).unwrap_or_else(|| panic!("{ablation:#}"))
    };
    assert_eq!(files.len(), 2, "{ablation:#}");
    let (xss, rest) = (file("REQUEST-941-XSS.conf"), file("REQUEST-942-REST.conf"));
    assert_eq!(names(&xss["attacks"]), ["xss"], "{ablation:#}");
    assert_eq!(names(&rest["attacks"]), ["sql-injection", "path-traversal", "shell"]);
    assert_eq!((&xss["exceptions"], &rest["exceptions"]), (&1.into(), &0.into()));
    assert_eq!(names(&xss["benign"]), [""; 0]);
    for one in [xss, rest, &ablation["all"]] {
        assert_eq!(one["price"]["n"], 1, "{ablation:#}");
    }
    assert_eq!(names(&ablation["all"]["attacks"]).len(), 4);
    let kept = ablation["kept"].as_array().expect("files");
    let kept: Vec<[&str; 2]> = kept
        .iter()
        .map(|kept| [&kept["file"], &kept["reason"]].map(|text| text.as_str().expect("a text")))
        .collect();
    assert_eq!(
        kept,
        [
            [
                "REQUEST-901-INITIALIZATION.conf",
                "2 other files read variables that only this file sets, such as tx.armed"
            ],
            ["REQUEST-999-AFTER.conf", "it has exceptions to rules of other files"],
        ]
    );
    let csv = workspace.read("out/ablation.csv");
    assert_eq!(csv.lines().count(), 6, "{csv}");
    // Reports are made from the records.
    let output = workspace.command(&["report", "out"]).output().expect("the binary runs");
    assert!(stdout(&output).contains("REQUEST-942-REST.conf"), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn invalid_ablations_are_rejected() {
    let workspace = Workspace::concurrent();
    workspace.write("small.toml", &small(&workspace));
    let error = |argument: &str| {
        let output = workspace.command(&["run", "small.toml", "--ablate", argument]).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{}", show(&output));
        stderr(&output)
    };
    assert!(error("ful").contains("no such subject; did you mean `full`?"));
    assert!(error("nginx").contains("has no option for the folder of its rule set"));
    assert!(error("full=943").contains("no file name contains `943`"));
    assert!(error("full=901").contains("other files depend on each of its files"));
}

/// The rules of the gateway's firewall are ablated like those of other engines.
#[test]
fn own_firewall_is_ablated() {
    let workspace = Workspace::concurrent();
    let text = small(&workspace).replace("\"nginx-modsecurity\"", "\"tollgate-waf\"");
    workspace.write("small.toml", &text);
    let report = run(&workspace, &["--ablate", "full"]);
    let ablation = &report["cases"][0]["ablation"];
    let files = ablation["files"].as_array().expect("files");
    let attacks: Vec<(&Value, Vec<&str>)> =
        files.iter().map(|file| (&file["file"], names(&file["attacks"]))).collect();
    let rest = vec!["sql-injection", "path-traversal", "shell"];
    let expected = [("REQUEST-941-XSS.conf", vec!["xss"]), ("REQUEST-942-REST.conf", rest)];
    assert_eq!(attacks.len(), expected.len(), "{ablation:#}");
    for (name, blocked) in expected {
        assert!(
            attacks.iter().any(|(file, found)| **file == name && *found == blocked),
            "{ablation:#}"
        );
    }
    workspace.assert_nothing_runs();
}

/// The Debian package keeps crs-setup.conf elsewhere. The error has a command that copies the rule set.
#[test]
fn packaged_rule_set_is_ablated_from_advised_copy() {
    let workspace = Workspace::concurrent();
    let text = |crs: &str| {
        let experiment = Experiment {
            title: "What do the rules cost?",
            load: r#"connections = 4, rate = 200, duration = "200ms", warmup = "50ms""#,
            subjects: &[
                ("nginx", "nginx", ""),
                ("full", "nginx-modsecurity", &format!("rules = \"crs\", crs = \"{crs}\"")),
            ],
            blocks: 1,
        };
        experiment.text()
    };
    workspace.write("small.toml", &text("packaged"));
    let refused = workspace.command(&["run", "small.toml", "--ablate", "full=941"]).output();
    let refused = refused.expect("the binary runs");
    assert_eq!(refused.status.code(), Some(2), "{}", show(&refused));
    let message = stderr(&refused);
    assert!(
        message.contains("/usr/share/modsecurity-crs has no crs-setup.conf beside"),
        "{message}"
    );
    let advised = message.lines().find_map(|line| line.strip_prefix("    ")).expect("a command");
    let mut shell = std::process::Command::new("sh");
    let copied = shell.args(["-ec", advised]).current_dir(workspace.path("")).status();
    assert!(copied.expect("a shell").success(), "{advised}");
    let copy = workspace.path("crs-copy").canonicalize().expect("a copy");
    workspace.write("small.toml", &text(&copy.display().to_string()));
    let report = run(&workspace, &["--ablate", "full=941"]);
    let files = report["cases"][0]["ablation"]["files"].as_array().expect("files");
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0]["file"], "REQUEST-941-APPLICATION-ATTACK-XSS.conf", "{files:?}");
}

#[test]
fn matrix_compares_paranoia_levels() {
    let workspace = Workspace::concurrent();
    workspace.write("small.toml", &small(&workspace));
    let report = run(&workspace, &["--matrix", "full.paranoia=1,2", "--matrix", "connections=2,4"]);
    let cases = report["cases"].as_array().expect("cases");
    let names: Vec<&str> = cases.iter().filter_map(|case| case["name"].as_str()).collect();
    assert_eq!(names, ["browse-connections-2", "browse-connections-4"]);
    for case in cases {
        let blocked = |name: &str| {
            let subjects = case["subjects"].as_array().expect("subjects");
            let subject = subjects.iter().find(|subject| subject["name"] == name);
            let figures = &subject.unwrap_or_else(|| panic!("{case:#}"))["figures"];
            [&figures["detection_rate"], &figures["false_positive_rate"]].map(Value::as_f64)
        };
        assert_eq!(blocked("full-paranoia-1"), [Some(1.0), Some(0.0)], "{case:#}");
        assert_eq!(blocked("full-paranoia-2"), [Some(1.0), Some(1.0)], "{case:#}");
    }
    assert!(report["command"].as_str().expect("a command").contains("full.paranoia=1,2"));
    workspace.assert_nothing_runs();
}
