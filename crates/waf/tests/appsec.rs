//! AppSec rules of CrowdSec: the hundred virtual patches of `mixes/vpatch/`, the meaning of each key, and errors.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_traffic::{Mix, MixFile};
use tollgate_waf::{LoadError, RuleSet, Transaction, Worker};
use tollgate_waf_tools::replay::{self, Request};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mixes/vpatch")
}

/// Requests of a mix by the name of their template.
fn requests(mix: &str) -> Vec<(String, Request)> {
    let text = std::fs::read_to_string(folder().join(mix)).unwrap();
    let mix = Mix::try_from(toml::from_str::<MixFile>(&text).unwrap()).unwrap();
    let names = mix.templates().iter().map(|template| template.name.clone());
    let raw = mix.messages().map(|message| message.text().render().unwrap());
    names.zip(raw.map(|raw| replay::parse_raw(raw.bytes()))).collect()
}

/// Tags of the rules that match, and the status if the request is blocked.
fn run(rules: &Arc<RuleSet>, worker: &mut Worker, request: &Request) -> (Vec<String>, Option<u16>) {
    let mut transaction = Transaction::new(Arc::clone(rules));
    replay::run_request(&mut transaction, worker, request);
    let tag = |position| rules.rule(position).unwrap().tags[0].clone();
    let tags = transaction.matches().iter().map(|found| tag(found.rule)).collect();
    (tags, transaction.intervention().map(|intervention| intervention.status))
}

#[test]
fn virtual_patches_block_their_attack_and_pass_all_near_misses() {
    let patches = folder().join("rules");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(patches).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 100);
    let processors = folder().join("body-processors.yaml");
    let all = files.iter().fold(RuleSet::builder().file(&processors), tollgate_waf::Builder::file);
    let all = Arc::new(all.build().unwrap());
    let (attacks, near_misses) = (requests("attacks.toml"), requests("near-misses.toml"));
    assert_eq!((attacks.len(), near_misses.len()), (100, 100));
    for (name, attack) in &attacks {
        // Alone, as another patch may block the attack first.
        let file = folder().join(format!("rules/{name}.yaml"));
        let one = RuleSet::builder().file(&processors).file(file).build().unwrap();
        let found = run(&Arc::new(one), &mut Worker::new(), attack);
        assert_eq!(found, (vec![format!("crowdsec-tollgate/{name}")], Some(403)));
    }
    for mut worker in [Worker::new(), Worker::plain()] {
        for (name, attack) in &attacks {
            assert_eq!(run(&all, &mut worker, attack).1, Some(403), "{name} is not blocked");
        }
        for (name, near_miss) in &near_misses {
            assert_eq!(run(&all, &mut worker, near_miss), (vec![], None), "{name} is blocked");
        }
    }
}

fn load(rules: &str) -> Result<RuleSet, LoadError> {
    RuleSet::builder().text("t.yaml", format!("name: t\nrules:\n{rules}")).build()
}

/// True if the rules block a request with that target, content type and body.
fn blocks(rules: &Arc<RuleSet>, target: &str, content_type: &str, body: &str) -> bool {
    let raw = format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    run(rules, &mut Worker::new(), &replay::parse_raw(raw.as_bytes())).1.is_some()
}

/// The targets that a rule blocks.
fn blocked<'a>(rules: &str, targets: &[&'a str]) -> Vec<&'a str> {
    let rules = Arc::new(load(rules).unwrap_or_else(|error| panic!("{error}")));
    targets.iter().copied().filter(|target| blocks(&rules, target, "text/plain", "")).collect()
}

#[test]
fn and_or_and_not() {
    let rule = "
 - and:
    - zones: [URI]
      match: {type: startsWith, value: /a}
    - or:
       - zones: [ARGS]
         variables: [x, y]
         match: {type: equals, value: '1'}
       - and:
          - {zones: [ARGS], variables: [z], match: {type: equals, value: '2', not: true}}
          - {zones: [ARGS_NAMES], match: {type: contains, value: w}}
    - zones: [METHOD]
      match: {type: equals, value: POST}
";
    let targets =
        ["/a?x=1", "/a?y=1", "/b?x=1", "/a?x=2", "/a?z=3&w=", "/a?z=2&w=", "/a?z=3", "/a?w="];
    assert_eq!(blocked(rule, &targets), ["/a?x=1", "/a?y=1", "/a?z=3&w="]);
    assert_eq!(load(rule).unwrap().rules().map(|rule| rule.conditions).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn transforms_count_and_numbers() {
    let rule = |transform: &str, kind: &str, value: &str| {
        format!(
            " - {{zones: [ARGS], variables: [x], transform: [{transform}], match: {{type: {kind}, value: {value}}}}}\n"
        )
    };
    let targets = ["/", "/?x=ab", "/?x=AB&x=c", "/?x=YWI=", "/?x=%2561b", "/?x=7"];
    assert_eq!(blocked(&rule("lowercase", "equals", "ab"), &targets), ["/?x=ab", "/?x=AB&x=c"]);
    assert_eq!(blocked(&rule("b64decode", "equals", "ab"), &targets), ["/?x=YWI="]);
    assert_eq!(
        blocked(&rule("urldecode, uppercase", "equals", "AB"), &targets),
        ["/?x=ab", "/?x=AB&x=c", "/?x=%2561b"]
    );
    assert_eq!(blocked(&rule("count", "gte", "2"), &targets), ["/?x=AB&x=c"]);
    assert_eq!(blocked(&rule("count", "eq", "'0'"), &targets), ["/"]);
    assert_eq!(blocked(&rule("length", "gt", "3"), &targets), ["/?x=YWI=", "/?x=%2561b"]);
    assert_eq!(blocked(&rule("trim", "gt", "6"), &targets), ["/?x=7"]);
}

#[test]
fn values_are_literal() {
    let rule = r#" - {zones: [ARGS], match: {type: contains, value: '%{REMOTE_ADDR}\"x'}}"#;
    let target = "/?q=a%25%7BREMOTE_ADDR%7D%22x";
    assert_eq!(blocked(rule, &[target, "/?q=x"]), [target]);
}

#[test]
fn libinjection() {
    let rule = |kind: &str| format!(" - {{zones: [ARGS], match: {{type: libinjection{kind}}}}}");
    let (sql, html) = ("/?q=1'+or+'1'='1", "/?q=<script>alert(1)</script>");
    assert_eq!(blocked(&rule("SQL"), &[sql, html, "/?q=a"]), [sql]);
    assert_eq!(blocked(&rule("XSS"), &[sql, html, "/?q=a"]), [html]);
}

#[test]
fn body_type_parses_bodies_that_have_no_processor() {
    let rules = "
 - and:
    - {zones: [URI], match: {type: equals, value: /api}}
    - {zones: [BODY_ARGS], variables: [json.list.0.cmd], body_type: json, match: {type: contains, value: id}}
 - {zones: [RAW_BODY], match: {type: contains, value: raw}}
";
    let rules = Arc::new(load(rules).unwrap());
    let json = r#"{"list":[{"cmd":"id"}]}"#;
    assert!(blocks(&rules, "/api", "text/plain", json));
    assert!(!blocks(&rules, "/other", "text/plain", json));
    assert!(!blocks(&rules, "/api", "application/x-www-form-urlencoded", json));
    // The raw body is inspected as without `body_type`.
    assert!(blocks(&rules, "/api", "text/plain", r#"{"list":"raw"}"#));
    assert!(blocks(&rules, "/other", "text/plain", "raw"));
}

#[test]
fn seclang_rules_stand_beside_appsec_rules() {
    let text = "name: a/b\nseclang_rules:\n - SecRuleEngine DetectionOnly\n - |\n  SecRule ARGS x \\\n   \"id:7,phase:1,deny\"\n";
    let rules = RuleSet::builder().text("t.yaml", text).build().unwrap();
    let rule = rules.rule(0).unwrap();
    assert_eq!((rule.id, rule.place.to_string().as_str()), (7, "t.yaml:5:1"));
    assert_eq!(rules.settings().engine, tollgate_waf::EngineMode::DetectionOnly);
    assert!(rules.settings().request_body_access);
}

#[test]
fn transforms_have_the_names_of_crowdsec() {
    for (transform, value, target) in [
        ("trim_left", "x ", "/?q=%20x%20"),
        ("trimright", "' x'", "/?q=%20x%20"),
        ("js_decode", "<", "/?q=%5Cu003c"),
        ("css_decode", "<", "/?q=%5C3c"),
        ("cmdline", "cmd/c", "/?q=C%5EmD+/c"),
        ("b64encode", "PA==", "/?q=<"),
        ("normalize_path_win", "/b", "/?q=%5Ca%5C..%5Cb"),
        ("compress_whitespace", "a b", "/?q=a%09%0ab"),
        ("remove_whitespace", "ab", "/?q=a%09%0ab"),
        ("remove_nulls", "ab", "/?q=a%00b"),
        ("replace_nulls", "a b", "/?q=a%00b"),
        ("remove_comments", "ab", "/?q=a/*x*/b"),
        ("replace_comments", "a b", "/?q=a/*x*/b"),
        ("hexdecode", "AB", "/?q=4142"),
    ] {
        let value = if value.starts_with('\'') { value.to_owned() } else { format!("'{value}'") };
        let rule = format!(
            " - {{zones: [ARGS], transform: [{transform}], match: {{type: equals, value: {value}}}}}\n"
        );
        assert_eq!(blocked(&rule, &[target, "/?q=other"]), [target], "{transform}");
    }
}

#[test]
fn phrases_are_read_from_a_file_and_a_file_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    write("words.txt", "# comment\nevil\nbad word\n");
    write("native.conf", "SecRule ARGS_NAMES evil \"id:7,phase:2,deny\"\n");
    let rules = write(
        "a.yaml",
        "name: a\nrules:\n - {zones: [ARGS], match: {type: fromFile, value: words.txt}}\n\
         seclang_files_rules: [native.conf, ./native.conf]\n",
    );
    let data = write("data.yaml", "name: data\ndata:\n - {source_url: x, dest_file: words.txt}\n");
    let builder = RuleSet::builder().file(&rules).file(data).file(folder.path().join("./a.yaml"));
    let set = builder.build().unwrap();
    assert_eq!(set.rules().count(), 2);
    let inert: Vec<_> = set.inert().iter().map(|one| one.message.as_str()).collect();
    assert!(
        matches!(inert[..], [a, b] if a.contains("read before") && b.contains("read before")),
        "{inert:?}"
    );
    let set = Arc::new(set);
    assert!(blocks(&set, "/?q=a+BAD+WORD", "text/plain", ""));
    assert!(!blocks(&set, "/?q=bad", "text/plain", ""));
    let missing = write(
        "b.yaml",
        "name: b\nrules:\n - {zones: [ARGS], match: {type: fromFile, value: no.txt}}\n",
    );
    let error = RuleSet::builder().file(missing).build().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("b.yaml:3:51: cannot read data file"), "{error}");
}

#[test]
fn ids_are_those_of_crowdsec() {
    // echo -n 'tequalsx0URIlowercase' | fnv1a32
    let rule = " - {zones: [URI], transform: [lowercase], match: {type: equals, value: x}}\n";
    let ids = |text: &str| load(text).unwrap().rules().map(|rule| rule.id).collect::<Vec<_>>();
    assert_eq!(ids(rule), [FNV]);
    // A second rule with the same first condition takes the next id.
    assert_eq!(ids(&[rule, rule].concat()), [FNV, FNV + 1]);
}

const FNV: u64 = 3_037_458_185;

#[test]
fn errors_name_their_line_and_the_nearest_name() {
    let error = |rules: &str| load(rules).map(|_| ()).unwrap_err().to_string();
    let rule = |rest: &str| format!(" - zones: [ARGS]\n   {rest}\n");
    for (rules, expected) in [
        (
            " - zones: [ARG]\n   match: {type: equals, value: x}\n".to_owned(),
            "t.yaml:3:12: unknown zone \"ARG\"; did you mean \"ARGS\"?",
        ),
        (
            rule("match: {type: equal, value: x}"),
            "t.yaml:4:18: unknown match type \"equal\"; did you mean \"equals\"?",
        ),
        (
            rule("tranform: [lowercase]"),
            "t.yaml:4:4: unknown key \"tranform\"; did you mean \"transform\"?",
        ),
        (
            rule("transform: [lowercse]\n   match: {type: equals, value: x}"),
            "t.yaml:4:16: unknown transform \"lowercse\"; did you mean \"lowercase\"?",
        ),
        (
            rule("body_type: jsn\n   match: {type: equals, value: x}"),
            "t.yaml:4:15: unknown body type \"jsn\"; did you mean \"json\"?",
        ),
        (
            rule("match: {type: regex, value: 'a('}"),
            "t.yaml:4:32: cannot compile regex: unclosed group",
        ),
        (rule("match: {type: gt, value: a}"), "t.yaml:4:29: \"a\" is not a number: invalid digit"),
        (rule("match: {type: gt}"), "t.yaml:4:18: match type `gt` needs a `value`"),
        (rule("name: x"), "t.yaml:3:4: a condition with `zones` needs `match`"),
        (" - and: []".into(), "t.yaml:3:4: the list of conditions is empty"),
        (" - name: x".into(), "t.yaml:3:4: a condition needs `zones`, `and` or `or`"),
        (
            " - zones: [METHOD]\n   variables: [x]\n   match: {type: equals, value: x}\n".into(),
            "t.yaml:3:12: zone METHOD has no variables",
        ),
        (String::new(), "t.yaml:2:6: expected a list"),
        (" []".into(), "t.yaml:1:7: the file contains no `rules`"),
        (" - x".into(), "t.yaml:3:4: expected keys with values"),
    ] {
        let found = error(&rules);
        assert!(found.starts_with(expected), "{rules}\n{found}");
    }
    let place = "name: a\nseclang_rules:\n - SecRuleEngine On\n - 'SecRul ARGS x'\n";
    let found = RuleSet::builder().text("t.yml", place).build().map(|_| ()).unwrap_err();
    assert!(found.to_string().starts_with("t.yml:4:1: unknown directive \"SecRul\""), "{found}");
}

#[test]
fn unsupported_rule_is_left_out_on_request() {
    let text = "name: a\nrules:\n - {zones: [URI], match: {type: regex, value: 'a(?=b)'}}\n - {zones: [URI], match: {type: regex, value: a}}\n";
    assert!(matches!(
        RuleSet::builder().text("t.yaml", text).build(),
        Err(LoadError::Unsupported { .. })
    ));
    let rules = RuleSet::builder().text("t.yaml", text).skip_unsupported(true).build().unwrap();
    assert_eq!((rules.rules().count(), rules.skipped().len()), (1, 1));
}
