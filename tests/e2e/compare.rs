//! Two runs side by side.

use crate::experiment::two_subjects;
use crate::support::{Workspace, stderr, stdout, told};
use serde_json::Value;

#[test]
fn two_runs_of_the_same_are_compared_and_what_differs_is_told() {
    let workspace = Workspace::new();
    workspace.write("two.toml", &two_subjects().replace("500ms", "300ms"));
    let output = workspace.run(&["run", "two.toml", "--out", "old"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    // The second run's nginx is configured a little differently.
    workspace.copy_recipe("nginx");
    workspace.change("systems/nginx/nginx.conf", "sendfile on;", "sendfile off;");
    let output = workspace.run(&["run", "two.toml", "--out", "new"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));

    let output = workspace.run(&["compare", "old", "new"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let table = stdout(&output);
    assert!(table.contains("subject nginx, config nginx.conf: "), "{table}");
    assert!(!table.contains("machine, "), "it is the same machine:\n{table}");
    assert!(stderr(&output).contains("warning: the fingerprints"), "{}", told(&output));

    let output = workspace.run(&["compare", "old", "new", "--format", "json"]);
    let json: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let subjects = json["cases"][0]["subjects"].as_array().expect("subjects");
    let full = subjects.iter().find(|subject| subject["name"] == "full").expect("full");
    let change = &full["changes"]["cpu_us_per_request"];
    let ratio = change["ratio"]["estimate"].as_f64().expect("a ratio");
    assert!((0.3..3.0).contains(&ratio), "{json:#}");
    assert_eq!(change["ratio"]["interval"], true, "four blocks beside four: {change}");
    assert_eq!((&change["n_old"], &change["n_new"]), (&4.into(), &4.into()), "{change}");
    let markdown = workspace.run(&["compare", "old", "new", "--format", "markdown"]);
    assert!(stdout(&markdown).contains("\n| full | "), "{}", told(&markdown));
    workspace.assert_nothing_runs();
}
