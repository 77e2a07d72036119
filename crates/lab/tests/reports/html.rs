//! The page: which plots and figures it holds, and what is escaped.

use crate::records::{CASE, blocks, case, costing, measured, refused, run, without_processes};
use tollgate_lab::analysis::analyse;
use tollgate_lab::inputs::experiment::SpacingFile;
use tollgate_lab::manifest::OpenLoopManifest;
use tollgate_lab::record::{Measurement, TrialRecord};
use tollgate_lab::report::html::render;
use tollgate_lab::report::source::{Config, Source};
use tollgate_lab::run_dir::RunRecords;
use tollgate_lab::trial::validity::Invalid;

pub(crate) fn source(run: RunRecords) -> Source {
    Source { analysis: analyse(&run), records: run, configs: Vec::new(), configs_left_out: 0 }
}

fn page(run: RunRecords) -> String {
    render(&source(run)).unwrap()
}

fn two() -> Vec<TrialRecord> {
    [blocks("nginx", &[10; 6]), blocks("full", &[40; 6])].concat()
}

/// The plots of a page, in order.
fn plots(page: &str) -> Vec<&str> {
    let begins = page.split("data-plot=\"").skip(1);
    begins.map(|rest| rest.split_once('"').unwrap().0).collect()
}

/// The row of a subject in the first table that has it.
fn row<'a>(page: &'a str, name: &str) -> &'a str {
    let begin = page.find(&format!("<tr data-name=\"{name}\">")).unwrap();
    let end = page[begin..].find("</tr>").unwrap();
    &page[begin..begin + end]
}

#[test]
fn a_page_has_every_plot_in_two_widths_and_needs_nothing_else() {
    let page = page(run(&["nginx", "full"], two()));
    assert_eq!(plots(&page), ["bars", "dots", "spectrum", "distribution", "timeline"]);
    assert_eq!(page.matches("role=\"img\" aria-label=\"").count(), 10);
    assert!(!page.contains("aria-label=\"\""), "a drawing without words");
    assert!(page.contains("default-src 'none'"));
    for outside in ["<script", "http://", "https://", "@import", "url("] {
        assert!(!page.contains(outside), "the page refers to {outside}");
    }
    let section = page.find("tollgate run first-look --seed 7").unwrap();
    assert!(page[section..].contains("Made by tollgate 0.1.0 (0123456)"), "{page}");
    // The answer comes before everything else.
    assert!(page.find("A request costs nginx").unwrap() < page.find("<figure").unwrap());
}

#[test]
fn figures_stand_in_the_table_rounded_and_whole() {
    let page = page(run(&["nginx", "full"], two()));
    let full = row(&page, "full");
    // The ratio of 4 comes out of logarithms: its last digits are not checked.
    for cell in [
        "</svg>\nfull</th>",
        ">4.00 [4.00, 4.00]</td>",
        "<td data-figure=\"difference\" data-value=\"30\">+30.0 [+30.0, +30.0]</td>",
        "<td data-figure=\"cpu_us_per_request\" data-value=\"40\">40.0</td>",
        "<td data-figure=\"memory_peak_bytes\" data-value=\"8388608\">8.00</td>",
        "<td data-figure=\"startup_ms\" data-value=\"30\">30.0</td>",
        "<td data-figure=\"attacks_blocked\">-</td>",
        "<td data-figure=\"harmless_blocked\" data-value=\"0\">0 %</td>",
        "<td data-figure=\"n\" data-value=\"6\">6</td>",
    ] {
        assert!(full.contains(cell), "no {cell} in:\n{full}");
    }
    assert!(row(&page, "nginx").contains(">baseline</td>"));
}

#[test]
fn the_badge_and_the_verdicts_say_whether_prices_are_settled() {
    let settled = page(run(&["nginx", "full"], two()));
    assert!(settled.contains("<span class=\"badge good\">settled</span> after 6 blocks"));
    assert!(row(&settled, "full").ends_with("<td>more</td>"), "{}", row(&settled, "full"));
    let unsteady = [blocks("nginx", &[10; 6]), blocks("full", &[5, 20, 5, 20, 5, 20])].concat();
    let open = page(run(&["nginx", "full"], unsteady));
    assert!(open.contains("<span class=\"badge warn\">not settled</span>"), "{open}");
    assert!(row(&open, "full").ends_with("<td>open</td>"), "{}", row(&open, "full"));
}

#[test]
fn the_band_is_what_the_baseline_found_of_itself() {
    assert!(!page(run(&["nginx", "full"], two())).contains("A/A: the baseline a second time"));
    let again = blocks("nginx-again", &[11, 12, 13, 14, 15, 16]);
    let mut run = run(&["nginx", "full", "nginx-again"], [two(), again].concat());
    run.manifest.experiment.again = Some("nginx-again".to_owned());
    let page = page(run);
    assert_eq!(page.matches("<title>A/A: the baseline a second time</title>").count(), 2);
    assert!(page.contains("<span class=\"badge bad\">A&#x2f;A failed</span>"), "{page}");
}

#[test]
fn outliers_are_marked_and_stay() {
    let full = blocks("full", &[40, 41, 42, 40, 41, 400]);
    let page = page(run(&["nginx", "full"], [blocks("nginx", &[10; 6]), full].concat()));
    assert_eq!(page.matches(">outlier</text>").count(), 2, "once in each drawing");
    assert!(page.contains("<title>full, block 6: × 40.0, an outlier</title>"), "{page}");
    assert!(page.contains("<title>full, block 1: × 4.00</title>"), "{page}");
}

#[test]
fn percentiles_are_of_all_valid_trials_and_end_where_ten_answers_lie_beyond() {
    let page = page(run(&["nginx", "full"], two()));
    let begin = page.find("Latency in ms, over all valid trials").unwrap();
    // 6,000 answers: 5,400 within 1 ms, 540 within 2, 60 within 4; p99.9 has six beyond it.
    let figures = row(&page[begin..], "full");
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
    let page = page(run(&["nginx", "full", "direct"], trials));
    assert!(page.contains(">no ratio: -10.0 µs</text>"));
    assert!(!page.contains("direct × nginx"), "no dots of a subject without ratios");
}

#[test]
fn trials_that_do_not_count_are_marked_and_listed() {
    let stolen = Measurement {
        invalid: vec![Invalid::Steal { percent: 8.0, limit_percent: 5.0 }],
        ..costing(40)
    };
    let mut trials = two();
    trials[11] = measured("full", 6, stolen);
    trials.push(refused("full", 7, "xss got 200"));
    let page = page(run(&["nginx", "full"], trials));
    assert!(page.contains("Trials that do not count: 2"), "{page}");
    let reason = "full, block 6, does not count: the hypervisor took 8.0 % of the CPUs (limit 5 %)";
    // Once in the list, and on a stripe in both drawings.
    assert_eq!(page.matches(reason).count(), 3);
    assert!(page.contains("full, block 7, does not count: xss got 200"));
    assert!(page.contains("mark hollow"));
}

#[test]
fn a_run_that_was_taken_up_later_shows_where() {
    assert!(!page(run(&["nginx", "full"], two())).contains("class=\"pause\""));
    let mut trials = two();
    for trial in &mut trials[6..] {
        trial.started_at = "2026-01-02T05:04:08.5Z".to_owned();
    }
    let page = page(run(&["nginx", "full"], trials));
    // The first six took 3.5 s from the begin of the run; the rest began two hours later.
    assert_eq!(page.matches("<title>a pause of 120 minutes</title>").count(), 2);
    assert!(page.contains("the time between is left out"), "{page}");
}

#[test]
fn cases_that_differ_in_their_connections_alone_are_a_sweep() {
    let mut run = run(&["nginx", "full"], two());
    assert!(!plots(&page(RunRecords { trials: two(), ..clone(&run) })).contains(&"sweep"));
    let mut wide = case("wide");
    wide.connections = 200;
    run.manifest.experiment.cases.push(wide);
    run.trials.extend(two().into_iter().map(|mut trial| {
        trial.case = "wide".to_owned();
        trial
    }));
    let text = page(clone(&run));
    assert_eq!(plots(&text).iter().filter(|name| **name == "sweep").count(), 1);
    assert!(text.contains("<title>full: 1.00 ms at 200 connections</title>"), "{text}");
    assert!(text.contains("<th scope=\"col\">200 connections</th>"), "{text}");
    // A case that differs in something else is none.
    run.manifest.experiment.cases[1].keepalive = false;
    assert!(!plots(&page(run)).contains(&"sweep"));
}

#[test]
fn open_loops_that_differ_in_their_rate_alone_are_a_sweep() {
    let mut run = run(&["nginx", "full"], two());
    let mut cases = vec![case("slow"), case("fast")];
    for (case, rate_per_s) in cases.iter_mut().zip([400.0, 900.0]) {
        let spacing = SpacingFile::Constant;
        case.open_loop = Some(OpenLoopManifest { rate_per_s, spacing, connections_max: 50 });
    }
    run.manifest.experiment.cases = cases;
    let of_case = |name: &str| {
        let mut trials = two();
        trials.iter_mut().for_each(|trial| trial.case = name.to_owned());
        trials
    };
    run.trials = [of_case("fast"), of_case("slow")].concat();
    let text = page(clone(&run));
    assert!(text.contains("<title>full: 1.00 ms at 900 requests/s</title>"), "{text}");
    assert!(text.contains("latency counts from the moment for which"), "{text}");
    // A rate is no number of connections.
    run.manifest.experiment.cases[1].open_loop = None;
    assert!(!plots(&page(run)).contains(&"sweep"));
}

fn clone(run: &RunRecords) -> RunRecords {
    RunRecords { manifest: run.manifest.clone(), trials: run.trials.clone(), cut_off: run.cut_off }
}

#[test]
fn what_others_wrote_is_not_read_as_markup() {
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
    run.manifest.command = evil.to_owned();
    run.manifest.environment.cpu_model = Some(evil.to_owned());
    let mut source = source(run);
    source.configs.push(Config {
        subject: evil.to_owned(),
        file: evil.to_owned(),
        text: evil.to_owned(),
        left_out: 12,
    });
    let page = render(&source).unwrap();
    assert!(!page.contains("<script"), "{page}");
    assert_eq!(page.matches("</title></svg>").count(), 0);
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("12 more bytes are in the file itself."));
}

#[test]
fn a_run_without_a_trial_is_a_page_all_the_same() {
    let page = page(run(&["nginx", "full"], vec![]));
    assert_eq!(plots(&page), Vec::<&str>::new());
    assert!(page.contains("There is no price"), "{page}");
}

#[test]
fn a_damaged_record_is_named() {
    let mut trials = two();
    trials[0].started_at = "yesterday".to_owned();
    let error = render(&source(run(&["nginx", "full"], trials))).unwrap_err();
    assert!(error.to_string().contains("\"yesterday\""), "{error}");
    let mut broken = costing(10);
    broken.latency.histogram_v2_base64.truncate(10);
    let trials = vec![measured("nginx", 3, broken)];
    let error = render(&source(run(&["nginx"], trials))).unwrap_err();
    assert!(error.to_string().contains(&format!("{CASE}, nginx, block 3")), "{error}");
}
