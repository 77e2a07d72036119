//! `report.html` in a real browser, and the formats of other tools in their real readers.

use crate::support::{TWO_SUBJECTS, Workspace, stderr, stdout, told};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A short run with enough blocks for intervals, and its reports. These tests are about what a report
/// shows and not about how busy the machine is, so every trial that was measured is made to count.
fn finished_run() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("two.toml", TWO_SUBJECTS);
    let arguments = ["run", "two.toml", "--quick", "--blocks", "6", "--seed", "3", "--out", "out"];
    let output = workspace.command(&arguments).output().expect("the binary runs");
    assert!(matches!(output.status.code(), Some(0 | 3 | 4)), "{}", told(&output));
    assert!(workspace.read("out/report.html").starts_with("<!DOCTYPE html>"));
    let records = workspace.read("out/trials.ndjson");
    let counting = records.lines().map(|line| {
        let mut record: Value = serde_json::from_str(line).expect("JSON");
        let measured = record["outcome"].get_mut("measured");
        measured.unwrap_or_else(|| panic!("not measured: {}", told(&output)))["invalid"] =
            Value::Array(vec![]);
        format!("{record}\n")
    });
    workspace.write("out/trials.ndjson", &counting.collect::<String>());
    workspace.write("out/report.html", &report(&workspace, "html"));
    workspace.write("out/report.json", &report(&workspace, "json"));
    workspace
}

fn report(workspace: &Workspace, format: &str) -> String {
    let output = workspace.run(&["report", "out", "--format", format]);
    assert_eq!(output.status.code(), Some(0), "{format}: {}", told(&output));
    stdout(&output)
}

/// Chromium without a window, on a file. It has a home of its own, so that no other profile is
/// touched.
fn chromium(workspace: &Workspace, arguments: &[&str], file: &Path) -> Output {
    let home = format!("--user-data-dir={}", workspace.path("chromium").display());
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--no-first-run", "--disable-background-networking", "--enable-logging=stderr"])
        .arg(home)
        .args(arguments)
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| {
            panic!("there is no chromium ({error}); to install it, type: scripts/setup chromium")
        });
    assert!(output.status.success(), "{}", told(&output));
    let told = stderr(&output);
    assert!(!told.contains("CONSOLE"), "the browser has something to say:\n{told}");
    output
}

/// What is looked at in the browser: where each plot stands, what is in it, whether anything
/// reaches beyond its plot or beyond the window, and the figures of the first table.
const PROBE: &str = r#"
const plots = [...document.querySelectorAll("figure[data-plot]")].map(figure => {
    const shown = [...figure.querySelectorAll("svg[role=img]")]
        .filter(svg => svg.getBoundingClientRect().width > 0);
    const outside = shown.flatMap(svg => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text, path, rect, line")].filter(part => {
            const box = part.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1
                || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
        }).map(part => part.outerHTML);
    });
    const letters = shown.flatMap(svg => [...svg.querySelectorAll("text")])
        .map(text => text.getBoundingClientRect().height);
    return {
        name: figure.dataset.plot,
        shown: shown.length,
        label: shown.map(svg => svg.getAttribute("aria-label")).join(),
        marks: shown.map(svg => svg.querySelectorAll(".mark").length)[0],
        colors: new Set(shown.flatMap(svg => [...svg.querySelectorAll(".mark")])
            .map(mark => getComputedStyle(mark).fill)).size,
        smallestText: Math.min(...letters),
        outside,
    };
});
const prices = {};
for (const row of document.querySelector("main table").tBodies[0].rows) {
    prices[row.dataset.name] = Object.fromEntries([...row.cells]
        .filter(cell => cell.dataset.value !== undefined)
        .map(cell => [cell.dataset.figure, Number(cell.dataset.value)]));
}
const found = {
    plots,
    prices,
    width: innerWidth,
    pageWidth: document.documentElement.scrollWidth,
    paper: getComputedStyle(document.body).backgroundColor,
    answer: document.querySelector(".answer").textContent,
    unnamed: [...document.querySelectorAll("table")].filter(table =>
        !table.caption || [...table.querySelectorAll("th")].some(head => !head.scope)).length,
};
const element = document.createElement("script");
element.type = "application/json";
element.id = "found";
element.textContent = JSON.stringify(found);
parent.document.body.append(element);
"#;

/// The page as a browser of this width lays it out. The page allows no script, so a copy of it is
/// looked at that allows one.
fn laid_out(workspace: &Workspace, width: u32, scheme: Scheme) -> Value {
    let page = workspace.read("out/report.html");
    let policy = "default-src 'none';";
    assert!(page.contains(policy), "a page that allows what it does not need");
    let page = page.replace(policy, "default-src 'none'; script-src 'unsafe-inline';");
    let page = page.replace("</body>", &format!("<script>{PROBE}</script></body>"));
    // A window has a least width, which is more than that of a phone; a frame has none.
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!DOCTYPE html><body><iframe width={width} height=2000 style='border: 0' srcdoc=\"{page}\">\
         </iframe></body>"
    );
    workspace.write("probe.html", &frame);
    let file = workspace.path("probe.html");
    let output = chromium(workspace, &[scheme.argument(), "--dump-dom"], &file);
    let dom = stdout(&output);
    let found = dom.split_once(r#"<script type="application/json" id="found">"#);
    let found = found.and_then(|(_, rest)| rest.split_once("</script>"));
    let (found, _) = found.unwrap_or_else(|| panic!("the browser did not look: {dom}"));
    serde_json::from_str(found).expect("JSON")
}

#[derive(Clone, Copy)]
enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    fn argument(self) -> &'static str {
        match self {
            Self::Light => "--blink-settings=preferredColorScheme=1",
            Self::Dark => "--blink-settings=preferredColorScheme=0",
        }
    }
}

#[test]
fn a_run_is_a_page_that_draws_every_plot_and_every_format_holds_every_block() {
    let workspace = finished_run();
    page_draws_every_plot(&workspace);
    formats_hold_every_block(&workspace);
}

/// At the width of a phone in the light, and at that of a screen in the dark.
fn page_draws_every_plot(workspace: &Workspace) {
    let report = workspace.json("out/report.json");
    let mut papers = Vec::new();
    for (width, scheme) in [(360, Scheme::Light), (1600, Scheme::Dark)] {
        let found = laid_out(workspace, width, scheme);
        assert_eq!(found["width"], width, "{found:#}");
        assert_eq!(found["pageWidth"], width, "the page scrolls sideways");
        assert_eq!(found["answer"], report["answer"]);
        assert_eq!(found["unnamed"], 0, "every table has a caption, every head a scope");
        papers.push(found["paper"].clone());

        let plots = found["plots"].as_array().expect("plots");
        let names: Vec<&str> = plots.iter().filter_map(|plot| plot["name"].as_str()).collect();
        assert_eq!(names, ["bars", "dots", "spectrum", "distribution", "timeline"]);
        // One mark a subject, one a block, two quantiles or more a subject, one a subject, and four
        // figures or more of twelve trials.
        for (plot, marks) in plots.iter().zip([2, 6, 4, 2, 48]) {
            assert_eq!(plot["shown"], 1, "one of the two drawings: {plot:#}");
            assert!(plot["marks"].as_u64() >= Some(marks), "at {width}: {plot:#}");
            assert_ne!(plot["label"], "", "{plot:#}");
            // Two subjects, and one whose blocks are dots.
            let colors = if plot["name"] == "dots" { 1 } else { 2 };
            assert_eq!(plot["colors"], colors, "{plot:#}");
            assert_eq!(plot["outside"], Value::Array(vec![]), "at {width}: {plot:#}");
            assert!(plot["smallestText"].as_f64() >= Some(10.0), "at {width}: {plot:#}");
        }
        figures_are_those_of(&report, &found["prices"]);
    }
    assert_ne!(papers[0], papers[1], "light and dark");

    let picture = workspace.path("page.png");
    let argument = format!("--screenshot={}", picture.display());
    let page = workspace.path("out/report.html");
    chromium(workspace, &[&argument, "--window-size=1600,3000"], &page);
    let bytes = fs::read(picture).expect("a picture");
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000, "{} bytes", bytes.len());
}

fn figures_are_those_of(report: &Value, prices: &Value) {
    let mut compared = 0;
    for subject in report["cases"][0]["subjects"].as_array().expect("subjects") {
        let shown = &prices[subject["name"].as_str().expect("a name")];
        let cpu = &subject["prices"]["cpu_us_per_request"];
        let figures = &subject["figures"];
        for (figure, told) in [
            ("ratio", &cpu["ratio"]["estimate"]),
            ("difference", &cpu["difference"]["estimate"]),
            ("cpu_us_per_request", &figures["cpu_us_per_request"]),
            ("memory_peak_bytes", &figures["memory_peak_bytes"]),
            ("startup_ms", &figures["startup_ms"]),
            ("attacks_blocked", &figures["attacks_blocked"]),
            ("harmless_blocked", &figures["harmless_blocked"]),
        ] {
            assert_eq!(shown[figure].as_f64(), told.as_f64(), "{figure} of {subject:#}");
            compared += usize::from(told.is_number());
        }
    }
    // All seven of `full`, and the five that a baseline has.
    assert_eq!(compared, 12, "{prices:#}");
}

fn formats_hold_every_block(workspace: &Workspace) {
    let json =
        |name: &str| -> Value { serde_json::from_str(&report(workspace, name)).expect("JSON") };
    let lines = report(workspace, "gobench");
    for subject in ["nginx", "full"] {
        assert_eq!(lines.matches(&format!("/subject={subject}-")).count(), 6, "{lines}");
    }
    let hyperfine = json("hyperfine");
    assert_eq!(hyperfine["results"][1]["command"], "browse/full");
    assert_eq!(hyperfine["results"][1]["times"].as_array().map(Vec::len), Some(6));
    let price = &workspace.json("out/report.json")["cases"][0]["subjects"][1]["prices"];
    let ratio = &price["cpu_us_per_request"]["ratio"]["estimate"];
    assert!(ratio.is_number(), "{price:#}");
    assert_eq!(&json("bencher")["browse/full"]["cpu-ratio"]["value"], ratio);
    let entries = json("github");
    let mut entries = entries.as_array().expect("an array").iter();
    let entry = entries.find(|entry| entry["name"] == "browse/full: CPU per request");
    assert_eq!(entry.map(|entry| &entry["value"]), Some(ratio));
    let files = report(workspace, "hgrm");
    assert_eq!(files, "out/hgrm/browse/nginx.hgrm\nout/hgrm/browse/full.hgrm\n");
    for file in files.lines() {
        let text = workspace.read(file);
        assert!(text.contains("1/(1-Percentile)") && text.contains("#[Max"), "{text}");
    }
}
