//! The page: plots, figures, and escaping.

use crate::records::{
    CASE, blocks, case, costing, measured, open_loop, page, refused, run, without_processes,
};
use tollgate_records::trial::{Measurement, TrialRecord};
use tollgate_records::validity::Invalid;
use tollgate_report::document::File;
use tollgate_report::source::ReportSource;
use tollgate_report::{Format, render};
use tollgate_stats::text::Screen;
use tollgate_traffic::load_shape::{CaseArrivals, CaseRate, Protocol, Spacing};

fn two() -> Vec<TrialRecord> {
    [blocks("nginx", &[10; 6]), blocks("full", &[40; 6])].concat()
}

/// Sorts trials as they are run.
fn by_block(mut trials: Vec<TrialRecord>) -> Vec<TrialRecord> {
    trials.sort_by_key(|trial| trial.block);
    trials
}

/// The plots of a page, in order.
fn plots(page: &str) -> Vec<&str> {
    let begins = page.split("data-plot=\"").skip(1);
    begins.map(|rest| rest.split_once('"').unwrap().0).collect()
}

/// The row of a subject in the first table that has it.
fn row<'a>(page: &'a str, name: &str) -> &'a str {
    between(page, &format!("<tr data-name=\"{name}\">"), "</tr>")
}

/// The table with this caption.
fn captioned<'a>(page: &'a str, caption: &str) -> &'a str {
    between(page, &format!("<caption><span>{caption}</span>"), "</table>")
}

#[test]
fn page_is_self_contained() {
    let page = page(&run(&["nginx", "full"], two()));
    assert_eq!(plots(&page), ["bars", "dots", "percentiles", "distribution", "timeline"]);
    assert_eq!(page.matches("role=\"img\" aria-label=\"").count(), 5);
    assert!(!page.contains("aria-label=\"\""), "a drawing without words");
    assert!(page.contains("default-src 'none'"));
    for outside in ["<script", "http://", "https://", "@import", "url("] {
        assert!(!page.contains(outside), "the page refers to {outside}");
    }
    let section = page.find("tollgate run first-look --seed 7").unwrap();
    assert!(page[section..].contains("Made by tollgate 0.1.0 (0123456)"), "{page}");
    // The answer comes first.
    assert!(page.find("times what nginx does").unwrap() < page.find("<figure").unwrap());
}

#[test]
fn tables_have_rounded_and_exact_figures() {
    let page = page(&run(&["nginx", "full"], two()));
    let (prices, figures) = (captioned(&page, "Cost of a request"), captioned(&page, "Figures"));
    // The ratio of 4 comes out of logarithms: its last digits are not checked.
    for (table, cell) in [
        (prices, "</svg>\nfull</th>"),
        (prices, ">4.00 [3.84, 4.00]</td>"),
        (prices, "<td data-figure=\"difference\" data-value=\"30\">+30.0 [+28.4, +30.0]</td>"),
        (prices, "<td data-figure=\"cpu_us_per_request\" data-value=\"40\">40.0</td>"),
        (prices, "<td data-figure=\"n\" data-value=\"6\">6</td>"),
        (figures, "<td data-figure=\"memory_peak_bytes\" data-value=\"8388608\">8.00</td>"),
        (figures, "<td data-figure=\"startup_ms\" data-value=\"30\">30.0</td>"),
        (figures, "<td data-figure=\"detection_rate\">-</td>"),
        (figures, "<td data-figure=\"false_positive_rate\" data-value=\"0\">0 %</td>"),
    ] {
        let full = row(table, "full");
        assert!(full.contains(cell), "no {cell} in:\n{full}");
    }
    assert!(row(prices, "nginx").contains(">baseline</td>"));
}

#[test]
fn shows_run_status_and_verdicts() {
    let settled = page(&run(&["nginx", "full"], two()));
    assert!(settled.contains("<span class=\"badge good\">Settled</span> after 6 blocks"));
    assert!(row(&settled, "full").ends_with("<td>more</td>"), "{}", row(&settled, "full"));
    let unsteady = [blocks("nginx", &[10; 6]), blocks("full", &[5, 20, 5, 20, 5, 20])].concat();
    let open = page(&run(&["nginx", "full"], unsteady));
    assert!(open.contains("<span class=\"badge warn\">Not settled</span>"), "{open}");
    assert!(row(&open, "full").ends_with("<td>not settled</td>"), "{}", row(&open, "full"));
}

#[test]
fn band_is_the_noise_floor() {
    let without = page(&run(&["nginx", "full"], two()));
    assert!(!without.contains("A/A: the baseline a second time"));
    assert!(!without.contains("noise floor"));
    let again = blocks("nginx-again", &[11, 12, 13, 14, 15, 16]);
    let mut run = run(&["nginx", "full", "nginx-again"], [two(), again].concat());
    run.manifest.experiment.aa_subject = Some("nginx-again".to_owned());
    let page = page(&run);
    assert_eq!(page.matches("<title>A/A: the baseline a second time</title>").count(), 1);
    assert!(page.contains("The band around 1 is the noise floor"));
    assert!(page.contains("<span class=\"badge bad\">A&#x2f;A failed</span>"), "{page}");
}

#[test]
fn outliers_are_marked_but_not_excluded() {
    let full = blocks("full", &[40, 41, 42, 40, 41, 400]);
    let page = page(&run(&["nginx", "full"], [blocks("nginx", &[10; 6]), full].concat()));
    assert_eq!(page.matches(">outlier</text>").count(), 1);
    assert!(page.contains("<title>full, block 6: × 40.0, an outlier</title>"), "{page}");
    assert!(page.contains(">40.0 (outlier)</td>"), "{page}");
    assert!(page.contains("<title>full, block 1: × 4.00</title>"), "{page}");
}

#[test]
fn percentiles_cover_all_valid_trials() {
    let page = page(&run(&["nginx", "full"], two()));
    // 6,000 responses: 5,400 within 1 ms, 540 within 2, 60 within 4; six are beyond p99.9.
    let figures = row(captioned(&page, "Latency in ms, over all valid trials"), "full");
    for cell in [">6000</td>", ">1.00</td>", ">4.00</td>", ">-</td>"] {
        assert!(figures.contains(cell), "no {cell} in:\n{figures}");
    }
    assert_eq!(figures.matches(">-</td>").count(), 2, "p99.9 and p99.99: {figures}");
    assert!(page.contains("<title>full: 90 % within 1.00 ms</title>"));
    assert!(page.contains("<title>full: 99 % within 2.00 ms</title>"));
    assert!(!page.contains("<title>full: 99.9 %"));
}

#[test]
fn a_subject_without_processes_has_a_row_and_no_bar() {
    let direct = (1..=6).map(|block| measured("direct", block, without_processes()));
    let trials = two().into_iter().chain(direct).collect();
    let page = page(&run(&["nginx", "full", "direct"], trials));
    assert!(page.contains(">no ratio: -10.0 µs</text>"));
    assert!(!page.contains("direct × nginx"), "no dots of a subject without ratios");
}

#[test]
fn invalid_trials_are_marked_and_listed() {
    let stolen = Measurement {
        invalid: vec![Invalid::Steal { percent: 8.0, limit_percent: 5.0 }],
        ..costing(40)
    };
    let mut trials = two();
    trials[11] = measured("full", 6, stolen);
    trials.push(refused("full", 7, "xss got 200"));
    let page = page(&run(&["nginx", "full"], trials));
    assert!(page.contains("Invalid trials: 2"), "{page}");
    let reason =
        "full, block 6, invalid: the hypervisor took 8.0 % of the CPUs (limit `steal`: 5 %)";
    // In the list, and on a stripe.
    assert_eq!(page.matches(reason).count(), 2);
    assert!(page.contains("full, block 7, invalid: xss got 200"));
    assert!(page.contains("mark hollow"));
}

/// The part of a page from one text to another.
#[track_caller]
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let rest = page.split_once(from).unwrap_or_else(|| panic!("no {from} in:\n{page}")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no {to} in:\n{rest}")).0
}

#[test]
fn subjects_without_a_valid_trial_are_in_the_legend_and_in_the_timeline() {
    let mut silent = costing(0);
    silent.throughput_per_s = 0.0;
    silent.responses = 0;
    silent.invalid = vec![Invalid::NoResponse];
    let mut trials = two();
    trials.push(measured("silent", 1, silent));
    trials.push(refused("refused", 1, "xss got 200"));
    let page = page(&run(&["nginx", "full", "silent", "refused"], trials));
    let timeline = between(&page, "data-plot=\"timeline\"", "</figure>");
    let legend = between(timeline, "<ul class=\"legend\">", "</ul>");
    for name in ["nginx", "full", "silent", "refused"] {
        assert!(legend.contains(&format!(" {name}</li>")), "no {name} in {legend}");
    }
    for hint in ["silent, block 1, no expected response", "refused, block 1, not measured"] {
        assert_eq!(timeline.matches(&format!("<title>{hint}</title>")).count(), 1, "{hint}");
    }
    // The legend of latencies has only subjects with latencies.
    let percentiles = between(&page, "data-plot=\"percentiles\"", "</ul>");
    assert!(percentiles.contains(" full</li>"), "{percentiles}");
    assert!(!percentiles.contains(" silent</li>"), "{percentiles}");
}

#[test]
fn every_plot_has_its_figures_as_a_table() {
    let page = page(&run(&["nginx", "full"], by_block(two())));
    let distribution = between(&page, "data-plot=\"distribution\"", "</figure>");
    assert!(distribution.contains("Share of responses by latency, %"), "{distribution}");
    let shares = |subject: usize| -> f64 {
        let cells = distribution.split("data-figure=\"share_percent\" data-value=\"").skip(1);
        let values = cells.map(|cell| cell.split('"').next().unwrap().parse::<f64>().unwrap());
        values.skip(subject).step_by(2).sum()
    };
    for subject in [0, 1] {
        assert!((shares(subject) - 100.0).abs() < 1e-9, "{}", shares(subject));
    }
    // 90 % of the responses took 1 ms, 1 % took 4.
    assert!(distribution.contains(">90.0</td>") && distribution.contains(">1.00</td>"));
    let timeline = between(&page, "data-plot=\"timeline\"", "</figure>");
    assert_eq!(timeline.matches("<tr data-name=").count(), 12, "one row per trial");
    let full = row(timeline, "full");
    for cell in [
        "<td>1</td>",
        "data-figure=\"start_s\" data-value=\"0\">0.0</td>",
        "data-figure=\"throughput_per_s\" data-value=\"1000\">1000</td>",
        "data-figure=\"latency_p99_ms\" data-value=\"3\">3.00</td>",
        "data-figure=\"steal_percent\" data-value=\"0\">0</td>",
        "data-figure=\"cpu_pressure_percent\">-</td>",
        "<td>yes</td>",
    ] {
        assert!(full.contains(cell), "no {cell} in:\n{full}");
    }
}

#[test]
fn repeated_block_is_shown_at_its_time() {
    let mut trials = by_block([blocks("nginx", &[10; 3]), blocks("full", &[40; 3])].concat());
    let again = trials.iter().find(|trial| trial.subject == "full" && trial.block == 2);
    let again = TrialRecord {
        attempt: 2,
        started_at: "2026-01-02T03:04:35Z".to_owned(),
        ..again.unwrap().clone()
    };
    trials.push(again);
    let page = page(&run(&["nginx", "full"], trials));
    let timeline = between(&page, "data-plot=\"timeline\"", "</figure>");
    let cells = "<td>2, attempt 2</td><td data-figure=\"start_s\" data-value=\"30\">30.0</td>";
    assert!(timeline.contains(cells), "{timeline}");
    let hint = "<title>full, block 2, expected responses per second: 1000</title>";
    assert_eq!(timeline.matches(hint).count(), 2, "{timeline}");
}

/// The levels of all headings, in order.
fn headings(page: &str) -> Vec<u32> {
    let begins = page.split("<h").skip(1).filter_map(|rest| rest.chars().next()?.to_digit(10));
    begins.collect()
}

#[test]
fn headings_and_regions_are_accessible() {
    let mut several = run(&["nginx", "full"], two());
    let one = page(&several);
    for (name, connections) in [("wide", 200), ("wider", 400)] {
        let mut case = case(name);
        case.load.arrivals = CaseArrivals::Closed { connections };
        several.manifest.experiment.cases.push(case);
        let moved = two().into_iter().map(|trial| TrialRecord { case: name.to_owned(), ..trial });
        several.trials.extend(moved);
    }
    // A second sweep, without keep-alive.
    for name in ["closed", "closed-wide"] {
        let mut case = case(name);
        case.load.clients.protocol = Protocol::Http1Close;
        let connections = if name == "closed" { 50 } else { 200 };
        case.load.arrivals = CaseArrivals::Closed { connections };
        several.manifest.experiment.cases.push(case);
        let moved = two().into_iter().map(|trial| TrialRecord { case: name.to_owned(), ..trial });
        several.trials.extend(moved);
    }
    for page in [one, page(&several)] {
        let levels = headings(&page);
        assert_eq!(levels[0], 1);
        assert_eq!(levels.iter().filter(|level| **level == 1).count(), 1, "{levels:?}");
        assert!(levels.windows(2).all(|two| two[1] <= two[0] + 1), "{levels:?}");
        let regions = page.split("role=\"region\" tabindex=\"0\" aria-label=\"").skip(1);
        let sections = page.split("<section ").skip(1);
        let sections = sections.map(|rest| rest.split_once("aria-label=\"").unwrap().1);
        let mut names: Vec<&str> =
            regions.chain(sections).map(|rest| rest.split('"').next().unwrap()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
        assert!(count > 10 && !names.contains(&""));
    }
}

#[test]
fn several_cases_have_a_list_of_sentences() {
    let mut run = run(&["nginx", "full"], two());
    assert!(page(&run).contains("<p class=\"answer\">full (what full is) costs "));
    run.manifest.experiment.cases.push(case("wide"));
    let page = page(&run);
    let list = between(&page, "<ul class=\"answer\">", "</ul>");
    assert_eq!(list.matches("<li>").count(), 2, "{list}");
    assert!(list.contains("<a href=\"#case-1\">browse</a>: full (what full is) costs"), "{list}");
    assert!(list.contains("<a href=\"#case-2\">wide</a>: There is no price"), "{list}");
    assert!(page.contains("<section id=\"case-2\" aria-label=\"wide\">"), "{page}");
}

#[test]
fn shows_where_a_run_was_resumed() {
    assert!(!page(&run(&["nginx", "full"], two())).contains("class=\"pause\""));
    let mut trials = two();
    for (seconds, trial) in (8..).step_by(4).zip(&mut trials[6..]) {
        trial.started_at = format!("2026-01-02T05:04:{seconds:02}.5Z");
    }
    let page = page(&run(&["nginx", "full"], trials));
    // The first six took 3.5 s from the start of the run; the rest started two hours later.
    assert_eq!(page.matches("<title>a pause of 120 minutes</title>").count(), 1);
    assert!(page.contains("the time between is omitted"), "{page}");
}

#[test]
fn cases_that_differ_only_in_connections_are_a_sweep() {
    let mut run = run(&["nginx", "full"], two());
    assert!(!plots(&page(&run)).contains(&"sweep"));
    let mut wide = case("wide");
    wide.load.arrivals = CaseArrivals::Closed { connections: 200 };
    run.manifest.experiment.cases.push(wide);
    run.trials.extend(two().into_iter().map(|mut trial| {
        trial.case = "wide".to_owned();
        trial
    }));
    let text = page(&run);
    assert_eq!(plots(&text).iter().filter(|name| **name == "sweep").count(), 1);
    assert!(text.contains("<title>full: 1.00 ms at 200 connections</title>"), "{text}");
    let figures = captioned(&text, "Latency at each load");
    assert!(figures.contains("<th scope=\"col\">full: p50 latency, ms</th>"), "{figures}");
    let latency = "<td data-figure=\"latency_ms\" data-value=\"1\">1.00</td>";
    assert_eq!(row(figures, "200").matches(latency).count(), 2, "{figures}");
    // Cases that differ in something else are no sweep.
    run.manifest.experiment.cases[1].load.clients.protocol = Protocol::Http1Close;
    assert!(!plots(&page(&run)).contains(&"sweep"));
}

#[test]
fn open_loops_that_differ_only_in_rate_are_a_sweep() {
    let mut run = run(&["nginx", "full"], two());
    let mut cases = vec![case("slow"), case("fast")];
    for (case, rate_per_s) in cases.iter_mut().zip([400.0, 900.0]) {
        case.load.arrivals = open_loop(CaseRate::PerS(rate_per_s), Spacing::Constant, 50);
    }
    run.manifest.experiment.cases = cases;
    let of_case = |name: &str| {
        let mut trials = two();
        trials.iter_mut().for_each(|trial| trial.case = name.to_owned());
        trials
    };
    run.trials = [of_case("fast"), of_case("slow")].concat();
    let text = page(&run);
    assert!(text.contains("<title>full: 1.00 ms at 900 requests/s</title>"), "{text}");
    assert!(text.contains("latency: from the scheduled time"), "{text}");
    // A rate and a number of connections are not comparable.
    run.manifest.experiment.cases[1].load.arrivals = CaseArrivals::Closed { connections: 50 };
    assert!(!plots(&page(&run)).contains(&"sweep"));
}

#[test]
fn escapes_foreign_text() {
    let evil = "</title></svg></style><script>alert('1')</script>";
    let mut trials = two();
    trials.push(refused("full", 7, evil));
    for trial in &mut trials {
        trial.case = evil.to_owned();
        if trial.subject == "full" {
            trial.subject = evil.to_owned();
        }
    }
    let mut run = run(&["nginx", evil], trials);
    run.manifest.experiment.title = evil.to_owned();
    run.manifest.experiment.cases[0].name = evil.to_owned();
    run.manifest.experiment.text = evil.to_owned();
    run.manifest.command = vec![evil.to_owned()];
    run.manifest.environment.cpu_model = Some(evil.to_owned());
    let mut source = ReportSource::from(run);
    source.configs.push(File { name: evil.to_owned(), text: evil.to_owned(), left_out: 12 });
    let page = render(&source, Format::Html, Screen::PLAIN).unwrap();
    assert!(!page.contains("<script"), "{page}");
    assert_eq!(page.matches("</title></svg>").count(), 0);
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("12 more bytes are in the file."));
}

#[test]
fn renders_a_run_without_trials() {
    let page = page(&run(&["nginx", "full"], vec![]));
    assert_eq!(plots(&page), Vec::<&str>::new());
    assert!(page.contains("There is no price"), "{page}");
}

#[test]
fn a_damaged_record_is_named() {
    let error = |subjects: &[&str], trials| -> anyhow::Error {
        render(&ReportSource::from(run(subjects, trials)), Format::Html, Screen::PLAIN).unwrap_err()
    };
    let mut trials = two();
    trials[0].started_at = "yesterday".to_owned();
    let message = error(&["nginx", "full"], trials).to_string();
    assert!(message.contains("\"yesterday\""), "{message}");
    let mut broken = costing(10);
    broken.latency.histogram_v2_base64 = Some("truncated".to_owned());
    let message = error(&["nginx"], vec![measured("nginx", 3, broken)]).to_string();
    assert!(message.contains(&format!("{CASE}, nginx, block 3")), "{message}");
}
