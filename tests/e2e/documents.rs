//! Links between the documents.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Anchors of headings as GitHub makes them, and targets of links and pictures.
#[derive(Debug, Default)]
struct Document {
    anchors: BTreeSet<String>,
    targets: Vec<String>,
}

impl Document {
    fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    document.anchors.extend(heading.take().map(|title| anchor(&title)));
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(title) = &mut heading {
                        title.push_str(&text);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.targets.push(dest_url.into_string());
                }
                _ => {}
            }
        }
        document
    }
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Links of the documents of a folder and of those named below it that lead to no file or heading.
pub(crate) fn broken_links(root: &Path, folders: &[&str]) -> Vec<String> {
    let mut documents: BTreeMap<PathBuf, Document> = BTreeMap::new();
    for folder in folders {
        for entry in fs::read_dir(root.join(folder)).expect("a folder") {
            let path = entry.expect("a file").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).expect("text");
                documents.insert(path, Document::parse(&text));
            }
        }
    }
    assert!(documents.len() > 20, "{:?}", documents.keys());
    let mut broken = Vec::new();
    for (path, document) in &documents {
        let targets = document.targets.iter().filter(|target| !target.contains("://"));
        for target in targets {
            let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
            let place = match file {
                "" => Ok(path.clone()),
                file => fs::canonicalize(path.with_file_name(file)),
            };
            let has_anchor = |place: &PathBuf| match documents.get(place) {
                Some(other) if !fragment.is_empty() => other.anchors.contains(fragment),
                _ => true,
            };
            if !place.is_ok_and(|place| has_anchor(&place)) {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    broken
}

#[test]
fn links_lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = fs::canonicalize(root).expect("the workspace");
    let folders = [
        "",
        "docs",
        "docs/tutorials",
        "records",
        "benches",
        "crates/waf",
        "crates/gateway/src/worker",
    ];
    assert_eq!(broken_links(&root, &folders), [""; 0]);
}
