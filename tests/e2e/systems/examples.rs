//! Every example in the help of `tollgate systems` does what it says.

use super::workspace;
use crate::support::{Workspace, stdout, told};
use std::collections::BTreeSet;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// The command lines in a help text, without what is said of each beside it.
fn examples(help: &str) -> BTreeSet<String> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  tollgate "));
    let commands = lines.map(|line| line.split("   ").next().unwrap_or(line));
    let each = commands.flat_map(|line| line.split("&& tollgate "));
    each.map(|line| line.trim().to_owned()).collect()
}

fn all_examples(workspace: &Workspace) -> BTreeSet<String> {
    let pages = [&["systems", "--help"][..], &["systems", "list", "--help"]];
    let further = ["install", "build", "check"].map(|command| ["systems", command, "--help"]);
    let further = further.iter().map(<[&str; 3]>::as_slice);
    let pages = pages.into_iter().chain(further).map(|page| {
        let output = workspace.run(page);
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        stdout(&output)
    });
    pages.flat_map(|page| examples(&page)).collect()
}

#[test]
fn examples_are_told_from_what_is_said_of_them() {
    let help = "Examples:\n  tollgate a b      says this\n                    and that\n  tollgate c && tollgate d\n";
    assert_eq!(examples(help), ["a b", "c", "d"].map(str::to_owned).into());
}

#[test]
fn every_example_of_the_help_can_be_typed() {
    let workspace = workspace();
    // Packages are not asked for: nothing is installed by a test.
    workspace.write("bin/dpkg-query", "#!/bin/sh\nprintf installed\n");
    let query = workspace.path("bin/dpkg-query");
    fs::set_permissions(query, Permissions::from_mode(0o755)).expect("a program");
    let path = env::var("PATH").expect("a PATH");
    let path = format!("{}:{path}", workspace.path("bin").display());
    let examples = all_examples(&workspace);
    for command in ["list", "install", "build", "check"] {
        let begin = format!("systems {command}");
        assert!(examples.iter().any(|line| line.starts_with(&begin)), "{examples:?}");
    }
    for example in &examples {
        let words: Vec<&str> = example.split_whitespace().collect();
        let output = workspace.command(&words).env("PATH", &path).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "tollgate {example}: {}", told(&output));
    }
    workspace.assert_nothing_runs();
}
