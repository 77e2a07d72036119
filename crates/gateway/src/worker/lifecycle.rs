//! Keeps `LIFECYCLE.md` true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/worker")
}

fn read(file: &str) -> String {
    let path = folder().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The variants of an enum in the source of a file.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let start = source.find(&format!("enum {name} {{\n")).unwrap_or_else(|| panic!("no {name}"));
    let body = &source[start..][..source[start..].find("\n}").unwrap()];
    let indented = body.lines().filter_map(|line| line.strip_prefix("    "));
    indented
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| line.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned())
        .collect()
}

/// The names in backquotes of a text.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Checks that each `item` in `file` of a text is there. Returns their number.
fn check_items(text: &str) -> usize {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = text.split('`').collect();
    let mut count = 0;
    for window in parts.windows(4) {
        let [_, item, " in ", file] = window else { continue };
        let source = read(file);
        let is_defined = ["fn", "enum", "struct"].iter().any(|kind| {
            let definition = format!("{kind} {item}");
            source.match_indices(&definition).any(|(at, _)| {
                let next = source[at + definition.len()..].chars().next();
                next.is_some_and(|c| !c.is_alphanumeric() && c != '_')
            })
        });
        assert!(is_defined, "{file} has no {item}");
        count += 1;
    }
    count
}

#[test]
fn states_and_items_of_the_page_are_those_of_the_code() {
    let page = read("LIFECYCLE.md");
    let sections: Vec<&str> = page.split("\n## ").collect();
    assert_eq!(sections.len(), 7);
    check_items(sections[0]);
    for section in &sections[1..] {
        let (title, text) = section.split_once('\n').unwrap();
        let [name, file] = quoted(title)[..] else { panic!("{title}") };
        let states = text.lines().filter_map(|line| line.strip_prefix("- "));
        let states: Vec<String> = states.map(|line| quoted(line)[0].to_owned()).collect();
        assert_eq!(states.iter().cloned().collect::<BTreeSet<_>>(), variants(&read(file), name));
        assert_eq!(states.iter().collect::<BTreeSet<_>>().len(), states.len(), "{title}");
        assert!(check_items(section) > states.len() / 2, "{title}");
    }
}

#[test]
fn false_pages_are_noticed() {
    let source = "enum State {\n    First,\n    /// Second.\n    Other(usize),\n    Last {\n        x: u8,\n    },\n}\n";
    assert_eq!(variants(source, "State"), ["First", "Last", "Other"].map(str::to_owned).into());
    assert!(std::panic::catch_unwind(|| check_items("`no_such_item` in `turn.rs`")).is_err());
    assert!(std::panic::catch_unwind(|| check_items("`forw` in `turn.rs`")).is_err());
    assert_eq!(check_items("`forward` in\n`turn.rs`"), 1);
}
