//! `tollgate report --site` on the committed records.

use crate::support::{Workspace, show};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            found.push(path);
        }
    }
}

#[test]
fn records_become_pages_without_scripts_and_broken_links() {
    let workspace = Workspace::concurrent();
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let records = records.to_str().expect("a path in UTF-8");
    let output = workspace.run(&["report", "--site", records, "--out", "site"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));

    let mut found = Vec::new();
    pages(&workspace.path("site"), &mut found);
    assert!(found.len() > 15, "{found:?}");
    for page in &found {
        let text = fs::read_to_string(page).expect("text");
        assert!(!text.contains("<script"), "{}", page.display());
        let values = ["href=\"", "src=\""].into_iter().flat_map(|start| text.split(start).skip(1));
        for value in values {
            let target = value.split('"').next().unwrap_or_default();
            let link = target.split('#').next().unwrap_or_default();
            let is_inside = link.is_empty() || link.starts_with("data:");
            let file = page.with_file_name(link);
            assert!(is_inside || file.is_file(), "{}: {link}", page.display());
        }
    }

    // The index has what the pages have.
    let index = workspace.json("site/index.json");
    let index_page = workspace.read("site/index.html");
    let runs = index["runs"].as_array().expect("runs");
    let histories = index["histories"].as_array().expect("histories");
    assert!(runs.len() > 10 && histories.len() == 3, "{} and {}", runs.len(), histories.len());
    for run in runs {
        let name = run["name"].as_str().expect("a name");
        let report = workspace.json(&format!("site/{name}/report.json"));
        assert!(index_page.contains(&format!("href=\"{name}/report.html\"")), "{name}");
        let subjects = run["subjects"].as_array().expect("subjects");
        let of_report = report["cases"].as_array().expect("cases").iter();
        let of_report: Vec<&Value> = of_report
            .flat_map(|case| case["subjects"].as_array().expect("subjects"))
            .filter(|subject| !subject["figures"].is_null())
            .collect();
        assert_eq!(subjects.len(), of_report.len(), "{name}");
        for subject in subjects {
            let is_same = |other: &&&Value| {
                let cpu = &other["figures"]["cpu_us_per_request"];
                let price = other["prices"].get("cpu_us_per_request").unwrap_or(&Value::Null);
                other["name"] == subject["name"]
                    && *cpu == subject["cpu_us_per_request"]
                    && *price == subject["price"]
            };
            assert!(of_report.iter().any(|other| is_same(&other)), "{name}: {subject}");
        }
    }
}

#[test]
fn folder_without_results_is_refused() {
    let workspace = Workspace::concurrent();
    workspace.write("empty/notes.txt", "");
    let output = workspace.run(&["report", "--site", "empty", "--out", "site"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(
        show(&output).contains("empty has no directory of a run or batch"),
        "{}",
        show(&output)
    );
    assert!(!workspace.path("site").exists());
}
