//! `report.html` in Chromium, and the formats of other tools.

use crate::support::{Workspace, show, stderr, stdout, two_subjects};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A short run with enough blocks for intervals, and its reports. Of each trial of a planned block, the last attempt becomes
/// a valid first one; the blocks that replaced invalid ones are dropped.
fn finished_run() -> Workspace {
    let workspace = Workspace::concurrent();
    workspace.write("two.toml", &two_subjects());
    let arguments = ["run", "two.toml", "--quick", "--blocks", "6", "--seed", "3", "--out", "out"];
    let output = workspace.command(&arguments).output().expect("the binary runs");
    assert!(matches!(output.status.code(), Some(0 | 3 | 4)), "{}", show(&output));
    assert!(workspace.read("out/report.html").starts_with("<!DOCTYPE html>"));
    let records = workspace.read("out/trials.ndjson");
    let records = records.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let planned = records.filter(|record: &Value| record["block"].as_u64() <= Some(6));
    let valid = planned.map(|mut record| {
        let measured = record["outcome"].get_mut("measured");
        measured.unwrap_or_else(|| panic!("not measured: {}", show(&output)))["invalid"] =
            Value::Array(vec![]);
        record["attempt"] = json!(1);
        (["block", "case", "subject"].map(|key| record[key].to_string()), record)
    });
    let trials: BTreeMap<_, Value> = valid.collect();
    let trials: String = trials.values().map(|record| format!("{record}\n")).collect();
    workspace.write("out/trials.ndjson", &trials);
    workspace.write("out/report.html", &report(&workspace, "html"));
    workspace.write("out/report.json", &report(&workspace, "json"));
    workspace
}

fn report(workspace: &Workspace, format: &str) -> String {
    let output = workspace.run(&["report", "out", "--format", format]);
    assert_eq!(output.status.code(), Some(0), "{format}: {}", show(&output));
    stdout(&output)
}

/// Runs headless Chromium on a file, with its own profile.
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
        .unwrap_or_else(|error| panic!("cannot run chromium: {error}; run scripts/setup chromium"));
    assert!(output.status.success(), "{}", show(&output));
    let message = stderr(&output);
    assert!(!message.contains("CONSOLE"), "messages of the browser:\n{message}");
    output
}

/// Collects plots, parts outside their plot or the window, accessibility problems, and the figures of the
/// first section's tables.
const PROBE: &str = r#"
// Opens what is folded, to lay it out.
const folded = [...document.querySelectorAll("details")];
folded.forEach(details => { details.open = true; });
const boxes = element => element.getBoundingClientRect();
const isShown = element => boxes(element).width > 0;
// Two boxes that overlap by more than rounding.
const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;
// The box of the letters is smaller than that of the font.
const letters = text => {
    const { left, right, top, bottom } = boxes(text);
    const quarter = (bottom - top) / 4;
    return { left, right, top: top + quarter, bottom: bottom - quarter / 2 };
};
const overlapping = [...document.querySelectorAll("svg[role=img]")].filter(isShown).flatMap(svg => {
    const texts = [...svg.querySelectorAll("text")];
    return texts.flatMap((text, index) => texts.slice(index + 1)
        .filter(other => overlap(letters(text), letters(other)))
        .map(other => `${text.textContent} | ${other.textContent}`));
});
const plots = [...document.querySelectorAll("figure[data-plot]")].map(figure => {
    const shown = [...figure.querySelectorAll("svg[role=img]")]
        .filter(svg => !svg.closest("details") && isShown(svg));
    const outside = shown.flatMap(svg => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text, path, rect, line")].filter(part => {
            const box = part.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1
                || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
        }).map(part => part.outerHTML);
    });
    const heights = shown.flatMap(svg => [...svg.querySelectorAll("text")])
        .map(text => text.getBoundingClientRect().height);
    return {
        name: figure.dataset.plot,
        shown: shown.length,
        label: shown.map(svg => svg.getAttribute("aria-label")).join(),
        marks: shown.map(svg => svg.querySelectorAll(".mark").length)[0],
        colors: new Set(shown.flatMap(svg => [...svg.querySelectorAll(".mark")])
            .map(mark => getComputedStyle(mark).fill)).size,
        smallestText: Math.min(...heights),
        tables: figure.querySelectorAll("table").length,
        outside,
    };
});
const prices = {};
for (const row of document.querySelectorAll("main > section:first-child > .scroll > table > tbody > tr")) {
    const figures = Object.fromEntries([...row.cells]
        .filter(cell => cell.dataset.value !== undefined)
        .map(cell => [cell.dataset.figure, Number(cell.dataset.value)]));
    prices[row.dataset.name] = Object.assign(prices[row.dataset.name] ?? {}, figures);
}
const nameOf = element => element.getAttribute("aria-label") ?? "";
const twice = names => names.filter((name, index) => name === "" || names.indexOf(name) !== index);
const levels = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(h => Number(h.tagName[1]));
const access = {
    headings: levels.filter((level, index) => level > (levels[index - 1] ?? 0) + 1
        || (level === 1) !== (index === 0)),
    svgs: [...document.querySelectorAll("svg")].filter(svg => svg.getAttribute("aria-hidden") !== "true"
        && (svg.getAttribute("role") !== "img" || nameOf(svg) === "")).length,
    ids: twice([...document.querySelectorAll("[id]")].map(element => element.id)),
    links: [...document.querySelectorAll("a")].filter(a => !document.querySelector(a.getAttribute("href")))
        .length,
    // Named sections are regions, too.
    regions: twice([...document.querySelectorAll("[role=region], section")].map(nameOf)),
    landmarks: ["header", "main", "footer"].map(name => document.querySelectorAll(`body > ${name}`).length),
    outside: [...document.body.children].filter(child =>
        !["HEADER", "MAIN", "FOOTER", "SCRIPT"].includes(child.tagName)).length,
    figures: [...document.querySelectorAll("figure")].filter(figure => nameOf(figure) === "").length,
    focusable: [...document.querySelectorAll("[tabindex]")].filter(element =>
        element.tabIndex !== 0 || !element.getAttribute("role") || nameOf(element) === "").length,
    tables: [...document.querySelectorAll("table")].filter(table => !table.caption?.textContent
        || [...table.querySelectorAll("th")].some(head => !head.scope)
        || [...table.tBodies[0].rows].some(row => row.cells[0].scope !== "row")
        || [...table.tHead.rows[0].cells].some(cell => cell.scope !== "col")).length,
    summaries: [...document.querySelectorAll("details")].filter(details =>
        !details.querySelector(":scope > summary")?.textContent.trim()).length,
    language: document.documentElement.lang,
};
const found = {
    plots,
    prices,
    access,
    overlapping,
    width: innerWidth,
    pageWidth: document.documentElement.scrollWidth,
    paper: getComputedStyle(document.body).backgroundColor,
    answer: document.querySelector(".answer").textContent,
};
const element = document.createElement("script");
element.type = "application/json";
element.id = "found";
element.textContent = JSON.stringify(found);
parent.document.body.append(element);
"#;

/// Lays out the page at this width. Uses a copy that allows scripts, which the page does not.
fn laid_out(workspace: &Workspace, width: u32, scheme: Scheme) -> Value {
    let page = workspace.read("out/report.html");
    let policy = "default-src 'none';";
    assert!(page.contains(policy), "the page has a strict policy");
    let page = page.replace(policy, "default-src 'none'; script-src 'unsafe-inline';");
    let page = page.replace("</body>", &format!("<script>{PROBE}</script></body>"));
    // Unlike a window, a frame has no minimum width.
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
    let (found, _) = found.unwrap_or_else(|| panic!("the script did not run: {dom}"));
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
fn report_page_and_formats() {
    let workspace = finished_run();
    check_page(&workspace);
    check_formats(&workspace);
    check_counts_by_template(&workspace);
    check_github_format_without_price(&workspace);
    check_terminal_width(&workspace);
    check_dense_sweep(&workspace);
}

/// The counts of report.json match the records.
fn check_counts_by_template(workspace: &Workspace) {
    let report = workspace.json("out/report.json");
    for (place, name) in ["nginx", "full"].into_iter().enumerate() {
        let templates = &report["cases"][0]["subjects"][place]["templates"];
        let templates = templates.as_array().expect("templates");
        assert!(templates.len() > 1, "{report:#}");
        for template in templates {
            let mut answered = 0;
            let mut blocked = 0;
            for line in workspace.read("out/trials.ndjson").lines() {
                let record: Value = serde_json::from_str(line).expect("JSON");
                let of_trial =
                    record["outcome"]["measured"]["templates"].as_array().expect("templates");
                for found in of_trial.iter().filter(|found| found["name"] == template["name"]) {
                    if record["subject"] == name {
                        let statuses = found["statuses"].as_object().expect("statuses");
                        answered += statuses.values().filter_map(Value::as_u64).sum::<u64>();
                        blocked += found["blocked"].as_u64().expect("a count");
                    }
                }
            }
            assert_eq!(template["responses"], answered, "{template:#}");
            assert_eq!(template["blocked"], blocked, "{template:#}");
            assert_eq!(template["passed"], answered - blocked, "{template:#}");
        }
    }
}

/// Uses a terminal created by `script`.
fn check_terminal_width(workspace: &Workspace) {
    let plain = report(workspace, "table");
    let binary = assert_cmd::cargo::cargo_bin!("tollgate");
    for (columns, is_wider) in [(80, false), (140, true)] {
        let line = format!("stty cols {columns} rows 50 && {} report out", binary.display());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", "1").stdin(Stdio::null());
        command.current_dir(workspace.path(""));
        let output = command.output().expect("script, of util-linux");
        assert!(output.status.success(), "{}", show(&output));
        let text = stdout(&output).replace("\r\n", "\n");
        assert_eq!(text != plain, is_wider, "at {columns}: {text}");
        assert_eq!(text.contains("generator CPU µs"), is_wider, "at {columns}: {text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(columns), "{widest:?} at {columns}: {text}");
    }
}

/// github-action-benchmark rejects an empty array.
fn check_github_format_without_price(workspace: &Workspace) {
    workspace.write("none/manifest.json", &workspace.read("out/manifest.json"));
    workspace.write("none/trials.ndjson", "");
    let output = workspace.run(&["report", "none", "--format", "github"]);
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    assert_eq!(stdout(&output), "");
    let why = "no subject of this run has a valid trial, and github-action-benchmark refuses";
    assert!(stderr(&output).contains(why), "{}", show(&output));
}

/// Narrow in light, and wide in dark.
fn check_page(workspace: &Workspace) {
    let report = workspace.json("out/report.json");
    let mut backgrounds = Vec::new();
    for (width, scheme) in [(360, Scheme::Light), (1600, Scheme::Dark)] {
        let found = laid_out(workspace, width, scheme);
        assert_eq!(found["width"], width, "{found:#}");
        assert_eq!(found["pageWidth"], width, "the page scrolls horizontally");
        let answer = found["answer"].as_str().expect("a text");
        assert!(answer.contains("\u{a0}µs"), "{answer}");
        assert_eq!(answer.replace('\u{a0}', " "), report["answer"]);
        assert_eq!(found["access"], accessible(), "at {width}");
        assert_eq!(found["overlapping"], Value::Array(vec![]), "at {width}");
        backgrounds.push(found["paper"].clone());

        let plots = found["plots"].as_array().expect("plots");
        let names: Vec<&str> = plots.iter().filter_map(|plot| plot["name"].as_str()).collect();
        assert_eq!(names, ["bars", "catches", "dots", "percentiles", "distribution", "timeline"]);
        // One mark per subject, twice, one per block, two quantiles or more per subject, one per subject, three
        // figures or more of twelve trials.
        for (plot, marks) in plots.iter().zip([2, 2, 6, 4, 2, 36]) {
            assert_eq!(plot["shown"], 1, "{plot:#}");
            assert!(plot["marks"].as_u64() >= Some(marks), "at {width}: {plot:#}");
            assert_ne!(plot["label"], "", "{plot:#}");
            // Two subjects; the dots are blocks of one.
            let colors = if plot["name"] == "dots" { 1 } else { 2 };
            assert_eq!(plot["colors"], colors, "{plot:#}");
            assert_eq!(plot["outside"], Value::Array(vec![]), "at {width}: {plot:#}");
            assert!(plot["smallestText"].as_f64() >= Some(10.0), "at {width}: {plot:#}");
            // These have the figures of the tables below.
            let tables = if plot["name"] == "bars" || plot["name"] == "catches" { 0 } else { 1 };
            assert_eq!(plot["tables"], tables, "{plot:#}");
        }
        check_figures(&report, &found["prices"]);
    }
    assert_ne!(backgrounds[0], backgrounds[1], "light and dark");

    let picture = workspace.path("page.png");
    let argument = format!("--screenshot={}", picture.display());
    let page = workspace.path("out/report.html");
    chromium(workspace, &[&argument, "--window-size=1600,3000"], &page);
    let bytes = fs::read(picture).expect("a screenshot");
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000, "{} bytes", bytes.len());
}

/// The result for an accessible page.
fn accessible() -> Value {
    json!({
        "headings": [], "svgs": 0, "ids": [], "links": 0, "regions": [], "landmarks": [1, 1, 1],
        "outside": 0, "figures": 0, "focusable": 0, "tables": 0, "summaries": 0, "language": "en",
    })
}

/// The same trials as a sweep of forty numbers of connections.
fn check_dense_sweep(workspace: &Workspace) {
    let mut manifest = workspace.json("out/manifest.json");
    let case = manifest["experiment"]["cases"][0].clone();
    let records = workspace.read("out/trials.ndjson");
    let level = |level: u32| (format!("level-{level}"), 10 * level);
    let cases = (1..=40).map(level).map(|(name, connections)| {
        let mut case = case.clone();
        case["name"] = name.into();
        case["load"]["arrivals"]["closed"]["connections"] = connections.into();
        case
    });
    manifest["experiment"]["cases"] = cases.collect();
    // The trial with the most responses, so that each has a quantile, also on a busy machine.
    let records = records.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let records: Vec<Value> = records.collect();
    let responses = |record: &&Value| record["outcome"]["measured"]["responses"].as_u64();
    let busiest = records.iter().max_by_key(responses).expect("a trial");
    let trials = (1..=40).map(level).flat_map(|(name, _)| {
        ["nginx", "full"].map(|subject| {
            let mut record = busiest.clone();
            record["subject"] = subject.into();
            record["case"] = name.clone().into();
            record["block"] = 1.into();
            record["attempt"] = 1.into();
            record["outcome"]["measured"]["invalid"] = Value::Array(vec![]);
            format!("{record}\n")
        })
    });
    workspace.write("sweep/trials.ndjson", &trials.collect::<String>());
    workspace.write("sweep/manifest.json", &manifest.to_string());
    let output = workspace.run(&["report", "sweep", "--format", "html"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    workspace.write("out/report.html", &stdout(&output));
    for width in [360, 1280] {
        let found = laid_out(workspace, width, Scheme::Light);
        assert_eq!(found["overlapping"], Value::Array(vec![]), "at {width}");
        assert_eq!(found["access"], accessible(), "at {width}");
        assert_eq!(found["pageWidth"], width, "the page scrolls horizontally");
        let plots = found["plots"].as_array().expect("plots");
        assert_eq!(plots[0]["name"], "sweep", "before the cases");
        assert_eq!(plots[0]["outside"], Value::Array(vec![]), "at {width}: {:#}", plots[0]);
        // Two subjects, at least one quantile, forty levels.
        assert!(plots[0]["marks"].as_u64() >= Some(80), "{:#}", plots[0]);
    }
}

fn check_figures(report: &Value, prices: &Value) {
    let mut compared = 0;
    for subject in report["cases"][0]["subjects"].as_array().expect("subjects") {
        let shown = &prices[subject["name"].as_str().expect("a name")];
        let cpu = &subject["prices"]["cpu_us_per_request"];
        let figures = &subject["figures"];
        for (figure, expected) in [
            ("ratio", &cpu["ratio"]["estimate"]),
            ("difference", &cpu["difference"]["estimate"]),
            ("cpu_us_per_request", &figures["cpu_us_per_request"]),
            ("memory_peak_bytes", &figures["memory_peak_bytes"]),
            ("startup_ms", &figures["startup_ms"]),
            ("detection_rate", &figures["detection_rate"]),
            ("false_positive_rate", &figures["false_positive_rate"]),
        ] {
            assert_eq!(shown[figure].as_f64(), expected.as_f64(), "{figure} of {subject:#}");
            compared += usize::from(expected.is_number());
        }
    }
    // Seven figures of `full`, and five of the baseline.
    assert_eq!(compared, 12, "{prices:#}");
}

fn check_formats(workspace: &Workspace) {
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
    let chart = report(workspace, "svg");
    assert!(chart.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" "), "{chart}");
    assert!(chart.contains("prefers-color-scheme: dark") && chart.contains("full: "), "{chart}");
    workspace.write("price.svg", &chart);
    let picture = workspace.path("price.png");
    let argument = format!("--screenshot={}", picture.display());
    chromium(workspace, &[&argument, "--window-size=800,300"], &workspace.path("price.svg"));
    let bytes = fs::read(picture).expect("a screenshot");
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 2_000, "{} bytes", bytes.len());
    let files = report(workspace, "hgrm");
    assert_eq!(files, "out/hgrm/browse/nginx.hgrm\nout/hgrm/browse/full.hgrm\n");
    for file in files.lines() {
        let text = workspace.read(file);
        assert!(text.contains("1/(1-Percentile)") && text.contains("#[Max"), "{text}");
    }
}

/// After a run as root, folders for temporary files belong to the user of nginx's workers.
#[test]
fn unreadable_folder_of_a_server_is_left_out_of_the_page() {
    let workspace = Workspace::concurrent();
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records/naxsi");
    workspace.write("out/configs/nginx/nginx.conf", "worker_processes 17;");
    for name in ["manifest.json", "trials.ndjson.gz"] {
        fs::copy(record.join(name), workspace.path("out").join(name)).expect("a copy");
    }
    let private = workspace.path("out/configs/nginx/tmp-body");
    fs::create_dir(&private).expect("a folder");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o000)).expect("its mode");
    let mut command = workspace.unprivileged_command(&["report", "out", "--format", "html"]);
    let output = command.output().expect("the binary runs");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("its mode");
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(stdout(&output).contains("worker_processes 17;"));
}

#[test]
fn unreadable_directory_of_a_run_is_named_as_such() {
    let workspace = Workspace::concurrent();
    fs::create_dir(workspace.path("out")).expect("a folder");
    fs::set_permissions(workspace.path("out"), fs::Permissions::from_mode(0o000)).expect("a mode");
    let mut command = workspace.unprivileged_command(&["report", "out"]);
    let output = command.output().expect("the binary runs");
    fs::set_permissions(workspace.path("out"), fs::Permissions::from_mode(0o700)).expect("a mode");
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    let reason = "cannot read out/manifest.json: Permission denied";
    assert!(stderr(&output).contains(reason), "{}", show(&output));
}
