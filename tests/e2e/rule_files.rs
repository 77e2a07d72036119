//! Options side by side, and a rule set without each of its files in turn: on a rule set of three small files.

use crate::experiment::Experiment;
use crate::support::{Workspace, stderr, stdout, told};
use serde_json::Value;

/// What the others read: a variable of a transaction.
const START: &str = r#"
SecAction "id:9011,phase:1,pass,nolog,setvar:tx.armed=1"
"#;
const XSS: &str = r#"
SecRule TX:ARMED "@eq 1" "id:9411,phase:2,deny,status:403,nolog,chain"
    SecRule ARGS "@contains <script" "t:none"
"#;
/// What is left of the attacks of the mix; and from paranoia level 2 up, everything.
const REST: &str = r#"
SecRule TX:ARMED "@eq 1" "id:9421,phase:2,deny,status:403,nolog,chain"
    SecRule ARGS "@rx (?:' OR '|/etc/passwd)" "t:none"

SecRule TX:BLOCKING_PARANOIA_LEVEL "@ge 2" "id:9422,phase:2,deny,status:403,nolog"
"#;
/// An exception from a rule of another file, which has to go with that file.
const AFTER: &str = r#"
SecRuleUpdateTargetById 9411 "!ARGS:ignored"
"#;

/// nginx with these rules, and without any.
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
    // Lists of words belong to each rule set; the configs name them all.
    workspace.write("small/rules/words.data", "none\n");
    let folder = workspace.path("small").canonicalize().expect("a folder");
    let experiment = Experiment {
        title: "What do they cost?",
        load: r#"connections = 4, duration = "400ms", warmup = "50ms""#,
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
    // Rule sets with files taken out are kept here, and go with the folder of the test.
    let output = command.env("XDG_CACHE_HOME", workspace.path("cache")).output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    workspace.json("out/report.json")
}

fn names(values: &Value) -> Vec<&str> {
    let values = values.as_array().expect("a list");
    values.iter().map(|value| value.as_str().expect("a name")).collect()
}

#[test]
fn each_file_of_a_rule_set_has_a_price_and_what_it_alone_catches() {
    let workspace = Workspace::beside_others();
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
    assert_eq!(names(&xss["harmless"]), [""; 0]);
    for one in [xss, rest, &ablation["all"]] {
        assert_eq!(one["price"]["n"], 1, "{ablation:#}");
    }
    assert_eq!(names(&ablation["all"]["attacks"]).len(), 4);
    let kept = ablation["kept"].as_array().expect("files");
    let kept: Vec<[&str; 2]> = kept
        .iter()
        .map(|kept| [&kept["file"], &kept["why"]].map(|text| text.as_str().expect("a text")))
        .collect();
    assert_eq!(
        kept,
        [
            [
                "REQUEST-901-INITIALIZATION.conf",
                "2 other files read what it alone sets, such as tx.armed"
            ],
            ["REQUEST-999-AFTER.conf", "it makes exceptions from rules of other files"],
        ]
    );
    let csv = workspace.read("out/ablation.csv");
    assert_eq!(csv.lines().count(), 6, "{csv}");
    // What is told anew is made from the records alone.
    let output = workspace.command(&["report", "out"]).output().expect("the binary runs");
    assert!(stdout(&output).contains("REQUEST-942-REST.conf"), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn what_cannot_be_taken_apart_is_told() {
    let workspace = Workspace::beside_others();
    workspace.write("small.toml", &small(&workspace));
    let refused = |wish: &str| {
        let output = workspace.command(&["run", "small.toml", "--ablate", wish]).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        stderr(&output)
    };
    assert!(refused("ful").contains("there is no such subject; did you mean `full`?"));
    assert!(refused("nginx").contains("has no rule set whose folder may be another"));
    assert!(refused("full=943").contains("no file has `943` in its name"));
    assert!(refused("full=901").contains("each of its files is one that others depend on"));
}

/// The package of the Core Rule Set keeps its setup elsewhere. What to do about it is said, and does it.
#[test]
fn the_packaged_core_rule_set_is_taken_apart_from_the_copy_that_is_advised() {
    let workspace = Workspace::beside_others();
    let text = |crs: &str| {
        let experiment = Experiment {
            title: "What do they cost?",
            load: r#"connections = 4, duration = "200ms", warmup = "50ms""#,
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
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    let told = stderr(&refused);
    assert!(told.contains("/usr/share/modsecurity-crs has no crs-setup.conf beside"), "{told}");
    let advised = told.lines().find_map(|line| line.strip_prefix("    ")).expect("a line to type");
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
fn a_paranoia_level_beside_another_may_block_what_is_harmless() {
    let workspace = Workspace::beside_others();
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
            [&figures["attacks_blocked"], &figures["harmless_blocked"]].map(Value::as_f64)
        };
        assert_eq!(blocked("full-paranoia-1"), [Some(1.0), Some(0.0)], "{case:#}");
        assert_eq!(blocked("full-paranoia-2"), [Some(1.0), Some(1.0)], "{case:#}");
    }
    assert!(report["command"].as_str().expect("a command").contains("full.paranoia=1,2"));
    workspace.assert_nothing_runs();
}
