//! Table and Markdown: content, width, and escaping.

use crate::records::{
    MIB, blocks, case, costing, flat, markdown, measured, open_loop, refused, run, set_state,
    table, without_processes,
};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::stop::Stop;
use tollgate_records::subject::{Missing, SubjectState};
use tollgate_records::trial::{Bottleneck, Measurement, TrialRecord};
use tollgate_records::validity::Invalid;
use tollgate_report::source::ReportSource;
use tollgate_report::{Format, render};
use tollgate_stats::text::Screen;
use tollgate_traffic::load_shape::{CaseRate, Spacing};

fn table_at(run: &RunRecords, columns: usize) -> String {
    let screen = Screen { columns, color: false };
    render(&ReportSource::from(run.clone()), Format::Table, screen).unwrap()
}

/// Checks that the text has a line of these words, with any spaces between them.
#[track_caller]
fn assert_row(text: &str, words: &str) {
    let words: Vec<&str> = words.split_whitespace().collect();
    let found = text.lines().any(|line| line.split_whitespace().eq(words.iter().copied()));
    assert!(found, "no line {words:?} in:\n{text}");
}

fn two(blocks_of_each: usize) -> RunRecords {
    let baseline = blocks("nginx", &vec![10; blocks_of_each]);
    run(&["nginx", "full"], [baseline, blocks("full", &vec![40; blocks_of_each])].concat())
}

#[test]
fn from_six_blocks_on_prices_have_intervals() {
    let run = two(6);
    assert_row(&table(&run), "nginx 10.0 1 baseline 6");
    assert_row(&table(&run), "full 40.0 4.00 [3.84, 4.00] +30.0 [+28.4, +30.0] 6 more");
    assert_row(
        &markdown(&run),
        r"| full | 40.0 | 4.00 \[3.84, 4.00\] | +30.0 \[+28.4, +30.0\] | 6 | more |",
    );
    for text in [table(&run), markdown(&run)] {
        assert!(!text.contains("n too small"), "{text}");
    }
}

#[test]
fn below_six_blocks_prices_have_a_range() {
    let trials = [blocks("nginx", &[10; 5]), blocks("full", &[40, 40, 50, 40, 40])].concat();
    let run = run(&["nginx", "full"], trials);
    assert_row(&table(&run), "full 40.0 4.00 {4.00, 5.00} +30.0 {+30.0, +40.0} 5 not settled");
    assert_row(
        &markdown(&run),
        "| full | 40.0 | 4.00 {4.00, 5.00} | +30.0 {+30.0, +40.0} | 5 | not settled |",
    );
    for text in [table(&run), markdown(&run)] {
        assert!(flat(&text).contains("n too small: no 95 % interval below 6 blocks"), "{text}");
    }
}

#[test]
fn the_other_prices_are_ratios_over_the_baseline() {
    let mut full = costing(40);
    full.throughput_per_s = 250.0;
    full.latency.p50_ms = Some(4.0);
    full.memory_peak_bytes = Some(64 * MIB);
    let full = (1..=6).map(|block| measured("full", block, full.clone()));
    let direct = (1..=6).map(|block| measured("direct", block, without_processes()));
    let trials = blocks("nginx", &[10; 6]).into_iter().chain(full).chain(direct).collect();
    let text = table(&run(&["nginx", "full", "direct"], trials));
    assert_row(&text, "subject requests/s × nginx p50 × nginx memory × nginx");
    assert_row(&text, "full 0.250 [0.250, 0.250] 4.00 [4.00, 4.00] 8.00 [8.00, 8.00]");
    assert_row(&text, "direct 1.00 [1.00, 1.00] 1.00 [1.00, 1.00] -");
    assert_row(&text, "direct - - -10.0 [-10.0, -10.0] 6 less");
}

/// Eight blocks of a subject twice as slow; some have too few responses for percentiles.
fn few_responses(blocks_with_percentiles: u32) -> RunRecords {
    let slow = |block: u32| {
        let mut full = costing(40);
        full.latency.p50_ms = (block <= blocks_with_percentiles).then_some(2.0);
        full.latency.p99_ms = full.latency.p50_ms.map(|p50_ms| 3.0 * p50_ms);
        measured("full", block, full)
    };
    run(
        &["nginx", "full"],
        blocks("nginx", &[10; 8]).into_iter().chain((1..=8).map(slow)).collect(),
    )
}

#[test]
fn price_over_fewer_blocks_has_its_own_n() {
    let wide = |run: &RunRecords| table_at(run, 200);
    for (blocks, p50) in [(7, "2.00 [2.00, 2.00] (n 7)"), (5, "2.00 (n 5)")] {
        let run = few_responses(blocks);
        assert_row(&table(&run), "full 40.0 4.00 [3.84, 4.00] +30.0 [+28.4, +30.0] 8 more");
        for text in [table(&run), wide(&run), markdown(&run).replace('\\', "")] {
            assert!(text.contains(p50), "no {p50} in:\n{text}");
            let words = flat(&text);
            assert!(words.contains("(n k): a price over only k blocks"), "{text}");
            let is_range = words.contains("n too small: no 95 % interval below 6 blocks");
            assert_eq!(is_range, blocks < 6, "{text}");
        }
        // The p99 too, if there is room for it; the mean has all blocks.
        for text in [wide(&run), markdown(&run).replace('\\', "")] {
            assert_eq!(text.matches(p50).count(), 2, "{text}");
            assert!(text.contains("1.00 [1.00, 1.00]") && !text.contains("1.00 [1.00, 1.00] (n"));
        }
    }
    let all = few_responses(8);
    for text in [table(&all), wide(&all), markdown(&all)] {
        assert!(!text.contains("(n "), "{text}");
    }
}

#[test]
fn requests_per_second_are_a_lower_bound_unless_the_system_was_the_limit() {
    for (bottleneck, row) in [
        (Bottleneck::System, "nginx 1000 1.00 3.00 8.00 30.0 - 0 % system"),
        (Bottleneck::Generator, "nginx ≥ 1000 1.00 3.00 8.00 30.0 - 0 % generator"),
        (Bottleneck::Origin, "nginx ≥ 1000 1.00 3.00 8.00 30.0 - 0 % origin"),
        (Bottleneck::None, "nginx ≥ 1000 1.00 3.00 8.00 30.0 - 0 % none"),
    ] {
        let measurement = Measurement { bottleneck, ..costing(10) };
        assert_row(&table(&run(&["nginx"], vec![measured("nginx", 1, measurement)])), row);
    }
}

#[test]
fn subjects_without_figures_have_rows() {
    let names = ["nginx", "refused", "skipped", "broken", "never", "invalid"];
    let measurement = Measurement { invalid: vec![Invalid::NoResponse], ..costing(10) };
    let trials = [
        blocks("nginx", &[10; 6]),
        vec![refused("refused", 1, "xss got 200"), measured("invalid", 1, measurement)],
    ];
    let mut run = run(&names, trials.concat());
    let missing = Missing { message: "no program `nginx`".to_owned(), hint: None };
    set_state(&mut run, "skipped", SubjectState::Skipped { missing });
    set_state(&mut run, "broken", SubjectState::Broken { reason: "why".to_owned() });
    let text = table(&run);
    assert_row(&text, "refused refused 0");
    assert_row(&text, "skipped skipped 0");
    assert_row(&text, "broken failed 0");
    assert_row(&text, "never not run 0");
    assert_row(&text, "invalid no valid trial 0");
}

#[test]
fn command_has_its_own_line() {
    let mut run = run(&["nginx"], vec![]);
    let line = "apt-get install -y nginx libnginx-mod-http-modsecurity modsecurity-crs lua5.4 more";
    let missing = Missing { message: "no program `nginx`".to_owned(), hint: Some(line.to_owned()) };
    set_state(&mut run, "nginx", SubjectState::Skipped { missing });
    let text = table(&run);
    // Not wrapped, although it is longer than a line.
    assert!(text.lines().any(|found| found == format!("    {line}")), "{text}");
}

#[test]
fn each_case_has_its_own_tables() {
    let mut run = two(6);
    run.manifest.experiment.cases.push(case("attack"));
    for text in [table(&run), markdown(&run)] {
        let words = flat(&text);
        for name in ["browse", "attack"] {
            let line = "losed loop, 50 connections, keep-alive; 6 blocks, 2.50 s per trial";
            let is_there = [format!("{name}: c{line}"), format!("### {name} C{line}")];
            assert!(is_there.iter().any(|line| words.contains(line)), "no {name} in:\n{text}");
        }
        // Once in each table of prices.
        assert_eq!(text.matches("µs over nginx").count(), 2, "{text}");
    }
}

/// Six subjects with wide figures: thousands of microseconds, tens of thousands of requests per second, gigabytes.
fn wide(blocks_of_each: u32) -> RunRecords {
    let trial = |subject: &str, block: u32, index: u32| {
        let mut measurement = costing(u64::from(11 + 997 * index + 7 * block));
        let step = f64::from(block);
        measurement.throughput_per_s = 52_310.0 - 13.0 * step;
        measurement.latency.mean_ms = Some(123.4 + step);
        measurement.latency.p50_ms = Some(112.2 + step);
        measurement.latency.p99_ms = Some(1_234.0 + step);
        measurement.memory_peak_bytes = Some((1_100 + u64::from(block)) * MIB);
        measurement.bottleneck = Bottleneck::Generator;
        measured(subject, block, measurement)
    };
    let names = ["nginx", "direct", "light", "full", "modsec3", "coraza"];
    let trials: Vec<TrialRecord> = (0..)
        .zip(names)
        .flat_map(|(index, name)| (1..=blocks_of_each).map(move |block| trial(name, block, index)))
        .collect();
    let mut run = run(&names, trials);
    run.manifest.experiment.summary = true;
    run.manifest.experiment.stop = Stop::after(blocks_of_each);
    run
}

#[test]
fn the_table_fits_a_terminal_of_eighty_columns() {
    for blocks in [5, 8, 12] {
        let text = table(&wide(blocks));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{} wide: {line}", line.chars().count());
        }
        assert!(text.lines().all(|line| line.trim_end() == line), "space at an end:\n{text}");
    }
}

#[test]
fn a_wider_terminal_has_more_columns_and_no_line_beyond_its_width() {
    let run = wide(8);
    let text = |columns| table_at(&run, columns);
    for columns in [40, 60, 80, 100, 120, 160, 200] {
        for line in text(columns).lines() {
            let taken = line.chars().count();
            assert!(taken <= columns || line.starts_with("    "), "{taken} of {columns}: {line}");
        }
    }
    let names = ["mean × nginx", "p99 × nginx", "mean ms", "origin CPU µs", "generator CPU µs"];
    let shown = |columns| {
        let text = text(columns);
        names.map(|name| text.contains(name))
    };
    assert_eq!(shown(80), [false, false, false, false, false]);
    assert_eq!(shown(100), [false, true, true, false, false]);
    assert_eq!(shown(200), [true, true, true, true, true]);
    // A narrower one leaves out nothing that 80 columns show.
    let narrow = text(40);
    for name in ["CPU µs", "verdict", "p50 × nginx", "memory × nginx", "start ms", "limit"] {
        assert!(narrow.contains(name), "no {name} in:\n{narrow}");
    }
}

#[test]
fn long_titles_and_descriptions_are_wrapped() {
    let mut run = two(6);
    run.manifest.experiment.title = "What does it cost ".repeat(8).trim_end().to_owned();
    run.manifest.experiment.subjects[1].about =
        "the full rule set ".repeat(8).trim_end().to_owned();
    let text = table(&run);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.starts_with("What does it cost What"), "{text}");
    // The rest of a description is indented.
    assert!(text.contains("\n  full   the full rule set the full"), "{text}");
    assert!(
        text.contains("\n         the full rule set") || text.contains("\n         rule set"),
        "{text}"
    );
}

#[test]
fn a_long_name_splits_a_table() {
    let long = "a-subject-whose-name-says-all-there-is-to-say";
    let mut run = two(6);
    run.manifest.experiment.subjects[1].name = long.to_owned();
    for trial in run.trials.iter_mut().filter(|trial| trial.subject == "full") {
        trial.subject = long.to_owned();
    }
    let text = table(&run);
    assert_row(&text, &format!("{long} 40.0 4.00 [3.84, 4.00]"));
    assert_row(&text, &format!("{long} +30.0 [+28.4, +30.0] 6 more"));
    for line in text.lines().filter(|line| line.starts_with(long)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn numbers_are_grouped_consistently() {
    let trials = |name: &str, per_s: f64| {
        let of_name = move |block| {
            let measurement = Measurement { throughput_per_s: per_s, ..costing(10) };
            measured(name, block, measurement)
        };
        (1..=6).map(of_name).collect::<Vec<_>>()
    };
    let mut run =
        run(&["nginx", "full"], [trials("nginx", 9_999.0), trials("full", 10_000.0)].concat());
    let arrivals = open_loop(CaseRate::PerS(9_999.0), Spacing::Constant, 50);
    run.manifest.experiment.cases[0].load.arrivals = arrivals;
    for text in [table(&run), markdown(&run)] {
        for number in [" 9999 ", " 10,000 ", "pen loop, 9999/s"] {
            assert!(text.contains(number), "no {number:?} in:\n{text}");
        }
    }
}

#[test]
fn several_cases_have_one_sentence_each() {
    let mut run = two(6);
    run.manifest.experiment.cases.push(case("attack"));
    let first =
        "browse: full (what full is) costs 4.00 times what nginx does (30.0 µs more per request).";
    let second = "attack: There is no price, because the baseline nginx has no valid trial.";
    let text = table(&run);
    let end = text.split_once(&format!("\n\n{}", &first[..40])).unwrap().1;
    assert!(end.contains(&format!("\n{second}")), "{text}");
    let markdown = markdown(&run);
    assert!(markdown.contains(&format!("\n- {first}\n- {second}\n")), "{markdown}");
}

#[test]
fn columns_move_closer_together_to_fit() {
    // A name of 22 letters makes the prices too wide for two blanks between columns, not for one.
    let mut run = wide(8);
    for trial in run.trials.iter_mut().filter(|trial| trial.subject == "coraza") {
        trial.subject = "a-longish-subject-name".to_owned();
    }
    run.manifest.experiment.subjects[5].name = "a-longish-subject-name".to_owned();
    let text = table(&run);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let wide_gaps = text.lines().any(|line| line.starts_with("subject                 CPU"));
    assert!(!wide_gaps && text.contains("subject                CPU µs"), "{text}");
}

/// The text without its escape sequences, each of which ends with an `m`.
fn without_styles(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').unwrap().1)
}

#[test]
fn color_changes_only_escape_sequences() {
    let source = ReportSource::from(wide(8));
    let plain = render(&source, Format::Table, Screen::PLAIN).unwrap();
    let colored = render(&source, Format::Table, Screen { color: true, ..Screen::PLAIN }).unwrap();
    assert!(!plain.contains('\u{1b}'));
    assert!(colored.starts_with("\u{1b}[1mWhat does it cost?\u{1b}[0m\n"), "{colored}");
    assert_eq!(without_styles(&colored), plain);
    for format in [Format::Markdown, Format::Csv, Format::Json] {
        assert!(
            !render(&source, format, Screen { color: true, ..Screen::PLAIN })
                .unwrap()
                .contains('\u{1b}'),
            "{format:?}"
        );
    }
}

#[test]
fn escapes_foreign_text_in_markdown() {
    let name = "a|b*c_d";
    let mut trial = refused(name, 1, "got <img src=x> | 200");
    trial.case = "<b>case</b>".to_owned();
    let mut run = run(&["nginx", name], vec![trial]);
    run.manifest.experiment.cases[0].name = "<b>case</b>".to_owned();
    run.manifest.experiment.title = "<script>alert(1)</script> [x](http://x) `y` *z*".to_owned();
    let text = markdown(&run);
    assert_eq!(
        text.lines().next().unwrap(),
        r"## \<script\>alert(1)\</script\> \[x\](http://x) \`y\` \*z\*"
    );
    assert_row(&text, r"| a\|b\*c\_d | refused | | | 0 | |");
    assert_row(&text, r"- a\|b\*c\_d was refused: got \<img src=x\> \| 200.");
    assert!(text.contains("\n### \\<b\\>case\\</b\\>\n\nClosed loop"), "{text}");
    let unescaped = text.matches('<').count() - text.matches("\\<").count();
    assert_eq!(unescaped, 0, "{text}");
}

#[test]
fn markdown_ends_with_the_command() {
    let text = markdown(&two(6));
    let end = "\nMade by tollgate 0.1.0 (0123456) on 2026-01-02T03:04:05Z, 2 x Example CPU, \
               Linux 6.1.0 x86\\_64, bare metal. To repeat it:\n\n    \
               tollgate run first-look --seed 7\n";
    assert!(text.ends_with(end), "{text}");
}
