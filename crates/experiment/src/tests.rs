//! Tests of loading: valid files, adjustments, and error messages.

use crate::adjust::Adjustments;
use crate::catalog::{Catalog, Kind};
use crate::experiment::{Experiment, Subject};
use crate::external::Attach;
use crate::file::ExperimentFile;
use crate::load_file::LoadFile;
use crate::loading::WrittenExperiment;
use crate::recipe::RecipeFile;
use crate::schemas;
use crate::toml_file::{self, NamedText};
use schemars::generate::Contract;
use std::fs;
use std::time::Duration;
use tollgate_records::stop::Stop;
use tollgate_tls::Trust;
use tollgate_traffic::MixFile;
use tollgate_traffic::load_shape::{
    CaseProtocol, CaseRate, Protocol, Spacing, TlsSessions, WarmUp, Window,
};
use tollgate_traffic::units::Percent;

/// An experiment whose text tests change.
pub(crate) const TEST_EXPERIMENT: &str = include_str!("test-experiment.toml");

#[test]
fn built_in_experiments_load() {
    let catalog = Catalog::new(vec![]);
    for name in catalog.names(Kind::Experiment) {
        Experiment::load(&catalog, &name, &Adjustments::default()).unwrap();
    }
}

#[test]
fn quick_cuts_durations_and_only_keeps_the_baseline() {
    let adjustments = Adjustments {
        quick: true,
        blocks: Some(3),
        only: vec!["full".to_owned()],
        ..Adjustments::default()
    };
    let experiment = Experiment::load(&Catalog::new(vec![]), "modsecurity", &adjustments).unwrap();
    let names: Vec<&str> = experiment.subjects.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["off", "full"]);
    assert_eq!(experiment.baseline, 0);
    assert_eq!(experiment.stop, Stop::after(3));
    assert_eq!(experiment.cases[0].load.window, Window::For(Duration::from_secs(2)));
}

#[test]
fn chosen_cases_keep_their_subjects_and_the_case_of_their_rate() {
    let text = r#"
        title = "cases"
        baseline = "nginx"
        case = [
            { name = "full", mix = "browse", load = { connections = 4, duration = "1s" } },
            { name = "half", mix = "browse", load = { connections = 4, duration = "1s" },
              subjects = ["haproxy"], rate_of = { case = "full", share = "50%" } },
            { name = "alone", mix = "browse", load = { connections = 4, duration = "1s" },
              subjects = ["caddy"] },
        ]
        subject = [{ name = "nginx", system = "nginx" }, { name = "haproxy", system = "haproxy" },
            { name = "caddy", system = "caddy" }]"#;
    let load = |cases: &[&str], only: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let adjustments =
            Adjustments { cases: owned(cases), only: owned(only), ..Adjustments::default() };
        let source = NamedText { name: "mine.toml".to_owned(), text: text.to_owned() };
        let catalog = Catalog::new(vec![]);
        WrittenExperiment::parse("mine.toml", source)
            .and_then(|written| Experiment::from_written(&catalog, written, &adjustments))
            .map(|experiment| {
                let cases: Vec<String> =
                    experiment.cases.into_iter().map(|case| case.name).collect();
                let subjects = experiment.subjects.into_iter().map(|subject| subject.name);
                (cases.join(" "), subjects.collect::<Vec<_>>().join(" "))
            })
    };
    let parts = |cases: &str, subjects: &str| (cases.to_owned(), subjects.to_owned());
    assert_eq!(load(&["alone"], &[]).unwrap(), parts("alone", "nginx caddy"));
    assert_eq!(load(&["half"], &[]).unwrap(), parts("full half", "nginx haproxy caddy"));
    assert_eq!(load(&["half"], &["haproxy"]).unwrap(), parts("full half", "nginx haproxy"));
    let error = load(&["halv"], &[]).unwrap_err().to_string();
    assert_eq!(error, "--case halv: unknown case; did you mean `half`?");
    let error = load(&["alone"], &["haproxy"]).unwrap_err().to_string();
    assert_eq!(error, "--case alone: includes none of the subjects of --only haproxy");
}

#[test]
fn quick_duration_applies_to_quick_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let text = TEST_EXPERIMENT.to_owned();
    let text = text.replace("duration = ", "quick_duration = \"2s\", duration = ");
    fs::write(&path, text).unwrap();
    let duration = |quick| {
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let catalog = Catalog::new(vec![]);
        let experiment = Experiment::load(&catalog, path.to_str().unwrap(), &adjustments);
        experiment.unwrap().cases[0].load.window.longest()
    };
    assert_eq!(duration(true), Duration::from_secs(2));
    assert_eq!(duration(false), Duration::from_millis(2_400));
}

fn error_of(change: impl Fn(&str) -> String) -> String {
    let text = TEST_EXPERIMENT.to_owned();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    fs::write(&path, change(&text)).unwrap();
    let path = path.to_str().unwrap();
    let error = Experiment::load(&Catalog::new(vec![]), path, &Adjustments::default()).unwrap_err();
    format!("{error:#}").replace(path, "mine.toml")
}

#[test]
fn protocol_must_go_with_load_and_systems() {
    let with = |protocol: &str, load: &str| {
        let keys = format!("protocol = \"{protocol}\"\nload = {{ {load}, ");
        error_of(|text| text.replacen("load = { ", &keys, 1))
    };
    for (protocol, load, reason) in [
        ("h1", "streams = 2", "several streams require HTTP/2, not `protocol = \"h1\"`"),
        ("https", "streams = 2", "several streams require HTTP/2"),
        ("h2", "streams = 0", "expected 1 to 1000, got 0"),
        ("h2", "streams = 1001", "expected 1 to 1000, got 1001"),
        ("https-h2", "keepalive = false", "one request per connection requires HTTP/1.1"),
        ("h2", "tls_resume = true", "sessions are resumed over TLS"),
        (
            "https-h2",
            "streams = 2",
            "the recipe of system `nginx-modsecurity` does not offer `https-h2`, only h1; remove subject `light`",
        ),
        ("http3", "streams = 1", "unknown variant `http3`"),
    ] {
        let error = with(protocol, load);
        assert!(error.contains(reason), "{error}");
        assert!(error.starts_with("mine.toml:"), "{error}");
    }
}

#[test]
fn protocols_of_cases_are_in_the_manifest() {
    let catalog = Catalog::new(vec![]);
    let experiment = Experiment::load(&catalog, "protocols", &Adjustments::default()).unwrap();
    let case = |name: &str| experiment.cases.iter().find(|case| case.name == name).unwrap();
    let streams = case("https-h2-10-streams");
    assert_eq!(streams.load.protocol(), CaseProtocol::HttpsH2);
    assert_eq!(streams.load.clients.protocol, Protocol::Http2 { streams: 10 });
    let resumed = case("resumed-handshake");
    assert_eq!(resumed.load.protocol(), CaseProtocol::Https);
    assert_eq!(resumed.load.tls, TlsSessions::Resumed);
    assert_eq!(case("h1").load.protocol(), CaseProtocol::H1);
}

#[test]
fn invalid_values_are_errors_with_their_place() {
    assert_eq!(
        error_of(|text| text.replace("baseline = \"nginx\"", "baseline = \"ngin\"")),
        "mine.toml:4:12: unknown subject `ngin`; did you mean `nginx`?"
    );
    assert_eq!(
        error_of(|text| text.replace("connections = 50", "connections = 0")),
        "mine.toml:10:24: expected 1 to 20000, got 0"
    );
    assert_eq!(
        error_of(|text| text.replace("rules = \"crs\"", "rulez = \"crs\"")),
        "mine.toml:31:35: system `nginx-modsecurity` has no option `rulez`; did you mean `rules`?"
    );
    assert_eq!(
        error_of(|text| text.replace("name   = \"light\"", "name   = \"../light\"")),
        "mine.toml:23:10: invalid name `../light`: files are named after it, so use letters, digits, `-`, `_` and `.`"
    );
    let longest = "x".repeat(64);
    let named = |name: &str| {
        let name = format!("name   = \"{name}\"");
        error_of(|text| text.replace("name   = \"light\"", &name).replace("full", &longest))
    };
    assert_eq!(
        named(&"y".repeat(65)),
        "mine.toml:23:10: name of 65 characters: files are named after it, so use at most 64"
    );
    // The longest allowed name is an error for another reason.
    assert!(named(&longest).contains("two subjects are named"), "{}", named(&longest));
    assert_eq!(
        error_of(|text| text.replace("title    = \"What does ModSecurity cost?\"", "title = ' '")),
        "mine.toml:3:9: the title is empty; write the question that the experiment answers"
    );
    let prefixed = |prefix: &str| {
        let lines = format!("name   = \"light\"\nprefix = \"{prefix}\"");
        error_of(|text| text.replace("name   = \"light\"", &lines))
    };
    assert_eq!(prefixed("a"), "mine.toml:24:10: `a` must start with `/` and must not end with it");
    assert_eq!(prefixed("/a b"), "mine.toml:24:10: ` ` is not allowed in the path of a request");
    assert_eq!(prefixed("/a?b"), "mine.toml:24:10: `?` is not allowed in the path of a request");
    assert!(
        error_of(|text| text.replace("2.4s", "soon"))
            .starts_with("mine.toml:10:39: `soon` is not a duration"),
    );
}

const REQUESTS: &str = "load = { connections = 50, requests = 10000";

/// The first look, measured over 10,000 requests, with further keys.
fn counted(further: &str) -> impl Fn(&str) -> String {
    let further = further.to_owned();
    move |text| {
        text.replace(
            "load = { connections = 50, duration = \"2.4s\"",
            &format!("{REQUESTS}{further}"),
        )
    }
}

#[test]
fn load_may_have_requests_instead_of_a_duration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let window = |further: &str, quick| {
        let text = TEST_EXPERIMENT.to_owned();
        let counted = counted(further)(&text);
        assert!(counted.contains(REQUESTS), "{counted}");
        fs::write(&path, counted).unwrap();
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let catalog = Catalog::new(vec![]);
        let experiment = Experiment::load(&catalog, path.to_str().unwrap(), &adjustments);
        experiment.unwrap().cases[0].load.window
    };
    let requests = |requests, s| Window::Requests { requests, within: Duration::from_secs(s) };
    assert_eq!(window("", false), requests(10_000, 60));
    assert_eq!(window(", duration_max = \"5s\"", false), requests(10_000, 5));
    assert_eq!(window("", true), requests(2_000, 60));
    assert_eq!(window(", quick_requests = 50", true), requests(50, 60));
}

#[test]
fn quick_run_has_a_request_for_each_connection() {
    let file = WrittenExperiment::find(&Catalog::new(vec![]), "first-look").unwrap().file;
    let load =
        LoadFile { connections: 900, duration: None, requests: Some(1_000), ..file.case[0].load };
    assert_eq!(load.quick(true).requests, Some(900));
}

#[test]
fn load_has_either_a_duration_or_requests() {
    let error = |change: &dyn Fn(&str) -> String| error_of(|text| change(text));
    assert_eq!(
        error(&|text| text.replace("duration = \"2.4s\", ", "")),
        "mine.toml:10:8: no `duration` and no `requests`; add one of them"
    );
    assert_eq!(
        error(&counted(", duration = \"1s\"")),
        "mine.toml:10:57: `duration` and `requests` exclude each other; remove one of them"
    );
    assert_eq!(
        error(&counted(", rate = 100.0")),
        "mine.toml:10:39: `requests` are for a closed loop; with a rate, use `duration`"
    );
    assert_eq!(
        error(&counted(", quick_requests = 49")),
        "mine.toml:10:63: 49 is less than one for each of 50 connections"
    );
    assert_eq!(
        error(&|text| text.replace("duration = ", "duration_max = \"1s\", duration = ")),
        "mine.toml:10:43: `duration_max` requires `requests`; add them"
    );
    assert!(error(&counted(", duration_max = \"2h\"")).contains("expected 150ms to 1h, got 2h"));
    assert!(
        error(&|text| counted("")(text).replace("10000", "0"))
            .contains("expected 1 to 1000000000, got 0")
    );
}

/// The first look, with these subjects for its case.
fn with_subjects(names: &str) -> String {
    let text = TEST_EXPERIMENT.to_owned();
    text.replace("mix  = \"browse\"", &format!("mix  = \"browse\"\nsubjects = [{names}]"))
}

#[test]
fn case_may_have_some_subjects_and_always_has_the_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let of_case = |names: &str, adjustments: Adjustments| -> Vec<Vec<String>> {
        // A second case with all subjects, as each must be in a case.
        let all =
            "[[case]]\nname = 'all'\nmix = 'browse'\nload = { connections = 1, duration = '1s' }\n";
        let text = with_subjects(names).replacen("[[subject]]", &format!("{all}\n[[subject]]"), 1);
        fs::write(&path, text).unwrap();
        let catalog = Catalog::new(vec![]);
        let experiment = Experiment::load(&catalog, path.to_str().unwrap(), &adjustments).unwrap();
        let name = |at: &usize| experiment.subjects[*at].name.clone();
        experiment.cases.iter().map(|case| case.subjects.iter().map(name).collect()).collect()
    };
    let all = ["nginx", "direct", "light", "full", "gateway"];
    let none = Adjustments::default();
    assert_eq!(of_case("", none.clone())[0], all);
    assert_eq!(of_case("\"full\"", none.clone()), [vec!["nginx", "full"], all.to_vec()]);
    assert_eq!(of_case("\"full\", \"nginx\"", none.clone())[0], ["nginx", "full"]);
    let again = Adjustments { aa: true, ..none.clone() };
    assert_eq!(of_case("\"full\"", again)[0], ["nginx", "full", "nginx-again"]);
    let only = |name: &str| Adjustments { only: vec![name.to_owned()], ..none.clone() };
    assert_eq!(of_case("\"full\"", only("full")), [["nginx", "full"], ["nginx", "full"]]);
    // A case without any of the chosen subjects is left out.
    assert_eq!(of_case("\"full\"", only("light")), [["nginx", "light"]]);
    assert_eq!(of_case("\"full\"", only("nginx")), [["nginx"], ["nginx"]]);
}

#[test]
fn subjects_of_cases_exist_and_each_subject_is_in_a_case() {
    let error = |names: &str| error_of(|_| with_subjects(names));
    assert_eq!(
        error("\"light\", \"ful\""),
        "mine.toml:10:22: unknown subject `ful`; did you mean `full`?"
    );
    assert_eq!(error("\"full\", \"full\""), "mine.toml:10:21: `full` is listed twice");
    assert_eq!(
        error("\"light\", \"full\""),
        "mine.toml:19:10: no case includes `direct`; add it to the `subjects` of one"
    );
}

#[test]
fn command_line_may_choose_another_baseline() {
    let load = |baseline: &str| {
        let adjustments = Adjustments {
            baseline: Some(baseline.to_owned()),
            only: vec!["light".to_owned()],
            ..Adjustments::default()
        };
        Experiment::load(&Catalog::new(vec![]), "first-look", &adjustments)
    };
    let experiment = load("direct").unwrap();
    let names: Vec<&str> = experiment.subjects.iter().map(|s| s.name.as_str()).collect();
    assert_eq!((&names[..], experiment.baseline), (&["direct", "light"][..], 0));
    assert_eq!(experiment.baseline_fallback.unwrap(), "direct");
    assert_eq!(
        load("dirct").unwrap_err().to_string(),
        "--baseline dirct: unknown subject; did you mean `direct`?"
    );
    let fallback = |name: &str| {
        let line = format!("baseline_fallback = \"{name}\"");
        error_of(|text| text.replace("baseline_fallback = \"direct\"", &line))
    };
    assert_eq!(
        fallback("nginx"),
        "mine.toml:5:21: `nginx` is the baseline itself; name another subject"
    );
    assert_eq!(
        fallback("dirct"),
        "mine.toml:5:21: unknown subject `dirct`; did you mean `direct`?"
    );
}

#[test]
fn case_may_send_some_templates_of_its_mix() {
    let experiment =
        Experiment::load(&Catalog::new(vec![]), "site", &Adjustments::default()).unwrap();
    for case in &experiment.cases {
        let names: Vec<&str> = case.mix.templates().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, [case.name.as_str()]);
    }
    let only = |name: &str| {
        let mix = format!("mix  = \"browse\"\nonly = [\"{name}\"]");
        error_of(|text| text.replace("mix  = \"browse\"", &mix))
    };
    assert_eq!(
        only("browsing"),
        "mine.toml:10:8: unknown template `browsing`; the mix has browse, xss, sql-injection, path-traversal, shell"
    );
}

#[test]
fn only_balancing_systems_may_have_several_origins() {
    let with = |origins: u16, subjects: &str| {
        let keys = format!("name = \"browse\"\norigins = {origins}\nsubjects = {subjects}");
        move |text: &str| text.replace("name = \"browse\"", &keys)
    };
    assert_eq!(
        error_of(with(2, "[]")),
        "mine.toml:9:11: subject `direct` would send all requests to the first origin, because the \
             recipe of system `direct` does not have `balances = true`; remove it from the `subjects` of \
             the case, or use one origin"
    );
    let between = |origins| format!("mine.toml:9:11: expected 1 to 16, got {origins}");
    assert_eq!(error_of(with(0, "[]")), between(0));
    assert_eq!(error_of(with(17, "[\"light\"]")), between(17));
    let experiment =
        Experiment::load(&Catalog::new(vec![]), "vitrix", &Adjustments::default()).unwrap();
    let origins = experiment.cases.iter().map(|case| (case.name.as_str(), case.origins));
    let several: Vec<_> = origins.filter(|(_, origins)| *origins > 1).collect();
    assert_eq!(several, [("case-4", 2), ("case-4-close", 2)]);
}

#[test]
fn open_loop_has_a_rate_and_related_keys() {
    let with = |keys: &str| {
        let loads = format!("connections = 50, {keys}");
        error_of(|text| text.replace("connections = 50", &loads))
    };
    let alone = "requires an open loop; add a `rate`, or a `rate_of` to the case";
    assert_eq!(with("spacing = \"poisson\""), format!("mine.toml:10:38: `spacing` {alone}"));
    assert_eq!(with("connections_max = 60"), format!("mine.toml:10:46: `connections_max` {alone}"));
    assert_eq!(
        with("rate = 0"),
        "mine.toml:10:35: expected a rate above 0 and at most 10000000, got 0"
    );
    assert_eq!(
        with("rate = 10, connections_max = 49"),
        "mine.toml:10:57: 49 is less than the 50 connections at the start"
    );
    let unknown = with("rate = 10, spacing = \"even\"");
    assert!(unknown.contains("unknown variant `even`"), "{unknown}");
    assert!(unknown.contains("`constant` or `poisson`"), "{unknown}");
}

#[test]
fn rate_may_depend_on_another_case_with_a_closed_loop() {
    let text = Catalog::new(vec![]).experiment("wafs").unwrap().text;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let load = |from: &str, to: &str| {
        assert!(text.contains(from));
        fs::write(&path, text.replace(from, to)).unwrap();
        let catalog = Catalog::new(vec![]);
        Experiment::load(&catalog, path.to_str().unwrap(), &Adjustments::default())
    };
    let experiment = load("50%", "25 %").unwrap();
    assert_eq!(experiment.cases[1].load.rate_of(), Some(("capacity", Percent(0.25))));

    let error = |from: &str, to: &str| {
        let error = load(from, to).unwrap_err();
        error.source().map_or(error.to_string(), ToString::to_string)
    };
    let rate_of = "rate_of = { case = \"capacity\"";
    assert_eq!(
        error(rate_of, "rate_of = { case = \"capasity\""),
        "unknown case `capasity`; did you mean `capacity`?"
    );
    assert_eq!(
        error(rate_of, "rate_of = { case = \"latency\""),
        "case `latency` is an open loop, whose rate is given; name a closed loop"
    );
    assert_eq!(
        error("spacing =", "rate = 5, spacing ="),
        "the case also has `rate_of`; remove one of them"
    );
}

#[test]
fn warm_up_ends_after_a_time_or_when_steady() {
    let folder = tempfile::tempdir().unwrap();
    let text = TEST_EXPERIMENT.to_owned();
    let path = folder.path().join("mine.toml");
    let load = |warm_up: &str, quick| {
        fs::write(&path, text.replace("warmup = \"400ms\"", warm_up)).unwrap();
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let name = path.to_str().unwrap();
        let load = Experiment::load(&Catalog::new(vec![]), name, &adjustments).unwrap();
        load.cases[0].load.warm_up
    };
    let fixed = |ms| WarmUp::For(Duration::from_millis(ms));
    let steady = |s| WarmUp::Steady { within: Duration::from_secs(s) };
    assert_eq!(load("warmup = \"400ms\"", false), fixed(400));
    assert_eq!(load("warmup = \"400ms\"", true), fixed(80));
    assert_eq!(load("warmup = \"steady\"", false), steady(10));
    assert_eq!(load("warmup = \"steady\", warmup_max = \"30s\"", false), steady(30));
    assert_eq!(load("warmup = \"steady\", warmup_max = \"30s\"", true), steady(6));
    assert_eq!(load("warmup = \"steady\"", true), steady(2));
}

#[test]
fn invalid_warm_up_is_an_error() {
    let with = |keys: &str| error_of(|text| text.replace("warmup = \"400ms\"", keys));
    assert_eq!(
        with("warmup = \"1s\", warmup_max = \"5s\""),
        "mine.toml:10:75: `warmup_max` requires `warmup = \"steady\"`"
    );
    assert_eq!(
        with("warmup = \"steady\", warmup_max = \"1s\""),
        "mine.toml:10:79: expected 2s to 1h, got 1s"
    );
    let neither = with("warmup = \"stedy\"");
    assert!(
        neither.starts_with("mine.toml:10:56: `stedy` is neither \"steady\" nor a duration"),
        "{neither}"
    );
}

#[test]
fn rate_makes_an_open_loop_with_constant_gaps_by_default() {
    let catalog = Catalog::new(vec![]);
    let load = |name| {
        let experiment = Experiment::load(&catalog, name, &Adjustments::default()).unwrap();
        experiment.cases[0].load.clone()
    };
    let closed = load("first-look");
    assert_eq!((closed.open_loop(), closed.connections_max()), (None, 50));
    let open = load("latency-at-rate");
    let schedule = open.open_loop().unwrap();
    assert_eq!((&schedule.rate, schedule.spacing), (&CaseRate::PerS(400.0), Spacing::Poisson));
    assert_eq!((open.connections(), open.connections_max()), (50, 200));
    let file = WrittenExperiment::find(&catalog, "latency-at-rate").unwrap().file;
    let even = LoadFile { spacing: None, ..file.case[0].load };
    let even = even.shape(CaseProtocol::H1, None).unwrap();
    assert_eq!(even.open_loop().unwrap().spacing, Spacing::Constant);
}

#[test]
fn committed_schemas_are_those_of_the_types() {
    schemas::check::<ExperimentFile>("experiment", Contract::Deserialize);
    schemas::check::<RecipeFile>("system", Contract::Deserialize);
    schemas::check::<MixFile>("mix", Contract::Deserialize);
}

/// Loads an experiment of nginx and one server that runs already, with further keys.
fn with_server(keys: &str, protocol: &str) -> Result<Experiment, String> {
    let text = format!(
        "title = 'x'\nbaseline = 'nginx'\n\
         [[case]]\nname = 'a'\nmix = 'get'\nprotocol = '{protocol}'\n\
         load = {{ connections = 1, duration = '1s' }}\n\
         [[subject]]\nname = 'nginx'\nsystem = 'nginx'\n\
         [[subject]]\nname = 'staging'\n{keys}\n"
    );
    let source = NamedText { name: "conf/own.toml".to_owned(), text };
    let adjustments =
        Adjustments { allow_hosts: vec!["staging.example".to_owned()], ..Adjustments::default() };
    WrittenExperiment::parse("own", source)
        .and_then(|written| Experiment::from_written(&Catalog::new(vec![]), written, &adjustments))
        .map_err(|error| format!("{error:#}"))
}

#[test]
fn server_that_runs_already_is_a_subject() {
    let keys = "url = 'https://staging.example:8443'\ncacert = 'ca.pem'\nattach = { unit = 'nginx' }\nblocked_status = 406";
    let experiment = with_server(keys, "https").unwrap();
    let Subject { external, recipe, lacks_rules, .. } = &experiment.subjects[1];
    let external = external.as_ref().unwrap();
    assert_eq!((external.server.port, external.server.is_tls), (8443, true));
    // The name of the URL; an address would not be that of the site.
    assert_eq!(external.host.as_deref(), Some("staging.example:8443"));
    assert_eq!(external.trust, Trust::File("conf/ca.pem".into()));
    assert_eq!(external.attach, Some(Attach::Unit("nginx".to_owned())));
    assert_eq!(recipe.file.blocks.as_ref().unwrap().status, 406);
    assert!(*lacks_rules && !recipe.file.origin && recipe.file.process.is_empty());
    let manifest = external.manifest();
    assert_eq!(manifest.url, "https://staging.example:8443");
    assert_eq!(manifest.attach.as_deref(), Some("unit nginx"));
    let address =
        with_server("url = 'http://127.0.0.1:8000'\nattach = { pid = 77 }", "h2").unwrap();
    let external = address.subjects[1].external.as_ref().unwrap();
    assert_eq!((&external.host, &external.trust), (&None, &Trust::System));
    assert_eq!(external.resolve().unwrap(), "127.0.0.1:8000".parse().unwrap());
    let other = with_server("url = 'http://192.0.2.7'", "h1").unwrap();
    let refused = other.subjects[1].external.as_ref().unwrap().resolve().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot load `192.0.2.7`: not this machine; if you may load it, add --allow-host 192.0.2.7"
    );
}

#[test]
fn invalid_keys_of_a_server_are_errors() {
    let http = "url = 'http://127.0.0.1'";
    for (keys, protocol, error) in [
        ("", "h1", "no `system` and no `url`; add one of them"),
        ("system = 'nginx'\nurl = 'http://a'", "h1", "also has a `system`"),
        ("system = 'nginx'\nattach = { pid = 7 }", "h1", "`attach` requires a `url`"),
        ("url = 'http://127.0.0.1/shop'", "h1", "move `/shop` to `prefix`"),
        ("url = 'ftp://127.0.0.1'", "h1", "scheme ftp is not supported"),
        (http, "https", "does not go with `https`; change the `protocol` of the case (h1 or h2)"),
        (&format!("{http}\ninsecure = true"), "h1", "`insecure` requires a URL with https"),
        (
            &format!("{http}\nwith = {{ workers = 2 }}"),
            "h1",
            "`with` has the options of a `system`",
        ),
        (&format!("{http}\nattach = {{}}"), "h1", "expected one of `pid`, `unit`"),
        (&format!("{http}\nattach = {{ pid = 7, unit = 'a' }}"), "h1", "expected one of `pid`"),
        (&format!("{http}\nattach = {{ pid = 1 }}"), "h1", "a process of the server, got 1"),
        (&format!("{http}\nattach = {{ unit = '--now' }}"), "h1", "does not start with `-`"),
        (&format!("{http}\nblocked_status = 99"), "h1", "expected 200 to 599, got 99"),
        (&format!("{http}\nhost = 'a b'"), "h1", "expected a host"),
    ] {
        let found = with_server(keys, protocol).unwrap_err();
        assert!(found.contains(error), "{keys}: {found}");
        assert!(found.contains("own.toml:"), "no place: {found}");
    }
}

#[test]
fn a_dozen_blocks_fit_into_the_time() {
    for name in ["noise", "noise-direct"] {
        let load =
            || Experiment::load(&Catalog::new(vec![]), name, &Adjustments::default()).unwrap();
        // 30 s are 12 blocks of 2.5 s: two trials of 1.25 s, of which 0.15 s are to start and stop.
        let mut half_a_minute = load();
        half_a_minute.fit_into(Duration::from_secs(30));
        let load_of_trial = &half_a_minute.cases[0].load;
        assert_eq!(
            (
                load_of_trial.warm_up.longest().as_millis(),
                load_of_trial.window.longest().as_millis()
            ),
            (200, 900),
            "{name}"
        );
        let stop = half_a_minute.stop;
        assert_eq!((stop.blocks, stop.width, stop.budget_s), (1_000, None, Some(30.0)));
        let mut short = load();
        short.fit_into(Duration::from_secs(3));
        assert_eq!(short.cases[0].load.window.longest().as_millis(), 150);
        let mut long = load();
        long.fit_into(Duration::from_secs(600));
        assert_eq!(long.cases[0].load.window.longest().as_millis(), 1_000);
        let names: Vec<&str> = long.subjects.iter().map(|s| s.recipe.name.as_str()).collect();
        assert_eq!(names[0], names[1], "the subjects are identical");
        assert_eq!(long.subjects[0].options, long.subjects[1].options);
    }
}

#[test]
fn written_experiments_are_read_as_the_same() {
    let catalog = Catalog::new(vec![]);
    for name in catalog.names(Kind::Experiment) {
        let source = catalog.experiment(&name).unwrap();
        let file: ExperimentFile = toml_file::parse(&source).unwrap();
        let written = NamedText { name: name.clone(), text: file.to_toml().unwrap() };
        assert_eq!(toml_file::parse::<ExperimentFile>(&written).unwrap(), file, "{}", written.text);
    }
}
