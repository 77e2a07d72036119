//! The systems under test: each starts, answers and blocks as its recipe says, and the traps in which a WAF
//! is fast because it is not really on are told.
//!
//! What takes minutes to build from Go modules is not built by `make test`: those tests are ignored there, and
//! `make systems` builds and runs them.

use crate::experiment::Experiment;
use crate::support::{Workspace, flat, stderr, stdout, told, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::process::Output;
use std::time::Duration;

/// Bodies, harmless and not: a form, and JSON in which an attack is told in escapes, so that only who
/// parses it can see it.
const BODIES: &str = r#"
title   = "Bodies"
headers = [
    "Host: shop.example",
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Accept: */*",
    "Connection: keep-alive",
]

[[template]]
name    = "form"
class   = "benign"
weight  = 1
method  = "POST"
path    = "/upload"
headers = ["Content-Type: application/x-www-form-urlencoded"]
body    = "name=Ada&city=Z%C3%BCrich"

[[template]]
name    = "form-attack"
class   = "malicious"
weight  = 1
method  = "POST"
path    = "/upload"
headers = ["Content-Type: application/x-www-form-urlencoded"]
body    = "name=1%27%20OR%20%271%27%3D%271&city=x"

[[template]]
name    = "json"
class   = "benign"
weight  = 1
method  = "POST"
path    = "/upload"
headers = ["Content-Type: application/json"]
body    = '{"name": "Ada", "tags": ["a", "b"]}'

[[template]]
name    = "json-attack"
class   = "malicious"
weight  = 1
method  = "POST"
path    = "/upload"
headers = ["Content-Type: application/json"]
body    = '{"file": "\u002f\u0065tc\u002fpasswd"}'
"#;

/// A patch of our own, and a request that it has to match beside one that it has not.
const PATCH: &str = r#"
name: tollgate/shell-in-x
rules:
  - and:
    - zones: [URI]
      match: {type: contains, value: "/x.php"}
    - zones: [ARGS]
      variables: [cmd]
      match: {type: regex, value: "[;|]"}
"#;
const PATCHED: &str = r#"
title   = "A patch"
headers = ["Host: shop.example", "User-Agent: curl/8.0", "Connection: keep-alive"]

[[template]]
name   = "near-miss"
class  = "benign"
weight = 1
path   = "/x.php?cmd=ls"

[[template]]
name   = "match"
class  = "malicious"
weight = 1
path   = "/x.php?cmd=ls%3Bid"
"#;

/// The same for a value in JSON.
const PATCH_IN_JSON: &str = r#"
name: tollgate/shell-in-json
rules:
  - zones: [BODY_ARGS]
    variables: [json.cmd]
    match: {type: regex, value: "[;|]"}
"#;
const PATCHED_IN_JSON: &str = r#"
title   = "A patch"
headers = [
    "Host: shop.example", "User-Agent: curl/8.0", "Content-Type: application/json", "Connection: keep-alive",
]

[[template]]
name   = "near-miss"
class  = "benign"
weight = 1
method = "POST"
path   = "/upload"
body   = '{"cmd": "ls"}'

[[template]]
name   = "match"
class  = "malicious"
weight = 1
method = "POST"
path   = "/upload"
body   = '{"cmd": "ls;id"}'
"#;

const SOUND: &str = "Every answer is the one owed.";

fn check(workspace: &Workspace, system: &str, with: &[&str], mix: &str) -> Output {
    let mut arguments = vec!["systems", "check", system, "--mix", mix];
    arguments.extend(with.iter().flat_map(|option| ["--with", option]));
    workspace.run(&arguments)
}

/// It does what it says, and nothing of it is left.
fn assert_sound(workspace: &Workspace, system: &str, with: &[&str], mix: &str) {
    let output = check(workspace, system, with, mix);
    assert_eq!(output.status.code(), Some(0), "{system} {with:?}: {}", told(&output));
    assert!(stdout(&output).contains(SOUND), "{}", told(&output));
    for (begin, end) in
        [("  answers   after ", " ms"), ("  memory    ", " MiB at its peak, with the probe alone")]
    {
        let out = stdout(&output);
        let line = out.lines().find_map(|line| line.strip_prefix(begin)?.strip_suffix(end));
        let figure = line.and_then(|figure| figure.parse::<u32>().ok());
        assert!(figure.is_some_and(|figure| figure > 0), "{begin}: {}", told(&output));
    }
    workspace.assert_nothing_runs();
}

fn assert_refused(output: &Output, why: &str) {
    assert_eq!(output.status.code(), Some(3), "{}", told(output));
    assert!(stdout(output).contains(&format!("It would be refused: {why}.")), "{}", told(output));
}

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("bodies.toml", BODIES);
    workspace
}

#[test]
fn proxies_pass_on_what_they_are_sent() {
    let workspace = workspace();
    for system in ["nginx", "haproxy", "apache"] {
        assert_sound(&workspace, system, &[], "browse");
    }
}

#[test]
fn an_engine_without_rules_lets_everything_through() {
    let workspace = workspace();
    for engine in ["engine=off", "engine=on"] {
        assert_sound(&workspace, "apache-modsecurity", &[engine], "bodies.toml");
    }
}

#[test]
fn an_attack_in_json_that_nobody_parses_is_told() {
    let workspace = workspace();
    let with = ["rules=crs", "crs=packaged"];
    assert_sound(&workspace, "nginx-modsecurity", &with, "bodies.toml");
    workspace.copy_recipe("nginx-modsecurity");
    let rules = "systems/nginx-modsecurity/modsecurity-full.conf";
    workspace.change(rules, "@beginsWith application/json", "@beginsWith application/nothing");
    let output = check(&workspace, "nginx-modsecurity", &with, "bodies.toml");
    assert_refused(&output, "1 of 2 attacks were let through");
    assert!(flat(&stdout(&output)).contains("FAIL json-attack attack 200"), "{}", told(&output));
}

#[test]
fn naxsi_that_cannot_be_had_is_skipped_and_spoils_nothing() {
    let workspace = workspace();
    let experiment = Experiment {
        title: "What does naxsi cost?",
        load: r#"connections = 4, duration = "300ms", warmup = "50ms""#,
        subjects: &[
            ("nginx", "nginx", ""),
            ("haproxy", "haproxy", ""),
            ("naxsi", "nginx-naxsi", r#"rules = "core", module = "/no/such/module.so""#),
        ],
        blocks: 1,
    };
    workspace.write("naxsi.toml", &experiment.text());
    let output = workspace.run(&["run", "naxsi.toml", "--out", "out"]);
    let said = flat(&stderr(&output));
    for words in ["naxsi is skipped: no file /no/such/module.so", "no Debian package has naxsi"] {
        assert!(said.contains(words), "no {words:?}: {}", told(&output));
    }
    let report = workspace.json("out/report.json");
    let standing = |name: &str| {
        let subjects = report["cases"][0]["subjects"].as_array().expect("subjects");
        subjects.iter().find(|one| one["name"] == name).expect("it")["standing"].clone()
    };
    assert_eq!(standing("naxsi"), "skipped", "{}", told(&output));
    assert_eq!(standing("haproxy"), "measured", "{}", told(&output));
}

#[test]
fn a_check_tells_what_is_not_there_and_what_is_not_on() {
    let workspace = workspace();
    let output = check(&workspace, "nginx-naxsi", &["module=/no/such/module.so"], "browse");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(
        stderr(&output).contains("nginx-naxsi is not installed: no file "),
        "{}",
        told(&output)
    );

    let output = check(&workspace, "haprox", &[], "browse");
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(stderr(&output).contains("haproxy"), "{}", told(&output));

    let output = check(&workspace, "haproxy", &["threads=many"], "browse");
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(stderr(&output).contains("a whole number from 1 to 64"), "{}", told(&output));

    workspace.copy_recipe("nginx-modsecurity");
    let engine = "systems/nginx-modsecurity/modsecurity-light.conf";
    workspace.change(engine, "SecRuleEngine On", "SecRuleEngine DetectionOnly");
    let with = ["rules=crs", "crs=packaged"];
    assert_refused(
        &check(&workspace, "nginx-modsecurity", &with, "browse"),
        "4 of 4 attacks were let through",
    );
    workspace.assert_nothing_runs();
}

/// A system of two processes that takes nothing but nginx: the site itself, and nginx in front of it.
const PAIR: &str = r#"
title     = "Two processes"
ports     = ["back"]
templates = ["conf/nginx.conf"]

[[need]]
program = "nginx"

[[need]]
program = "tollgate"

[option.spare]
about   = "whether a process is started that ends at once"
default = "no"
values  = ["no", "yes"]

[[copy]]
from = "experiments/noise*.toml"
to   = "given"

[[prepare]]
command = ["sh", "-c", "cat given/noise.toml conf/nginx.conf > prepared"]

[[prepare]]
when    = "spare == 'yes'"
command = ["sh", "-c", "echo no such luck; exit 3"]

[[process]]
name    = "spare"
when    = "spare == 'yes'"
command = ["false"]

[[process]]
name    = "back"
command = ["sh", "-c", "test \"$WORD\" = 'port {{ ports.back.port }}' && test -s prepared && exec '{{ programs.tollgate }}' origin --listen {{ ports.back.address }}"]
env     = { WORD = "port {{ ports.back.port }}" }
listens = "back"

[[process]]
name    = "front"
command = ["{{ programs.nginx }}", "-e", "stderr", "-p", "{{ dir }}", "-c", "{{ dir }}/conf/nginx.conf"]
"#;

fn pair(workspace: &Workspace) {
    workspace.write("systems/pair/system.toml", PAIR);
    workspace.write(
        "systems/pair/conf/nginx.conf",
        r#"
        daemon off;
        pid "{{ dir }}/nginx.pid";
        error_log stderr error;
        {% if root %}user {{ user }};{% endif %}
        events {}
        http {
            access_log off;
            proxy_temp_path "{{ dir }}/tmp";
            client_body_temp_path "{{ dir }}/tmp-body";
            fastcgi_temp_path "{{ dir }}/tmp-fastcgi";
            uwsgi_temp_path "{{ dir }}/tmp-uwsgi";
            scgi_temp_path "{{ dir }}/tmp-scgi";
            server {
                listen {{ listen.address }};
                location / { proxy_pass http://{{ ports.back.address }}; }
            }
        }
        "#,
    );
}

#[test]
fn a_system_of_two_processes_is_prepared_started_in_turn_and_stopped() {
    let workspace = workspace();
    pair(&workspace);
    assert_sound(&workspace, "pair", &[], "browse");
    let output = check(&workspace, "pair", &["spare=yes"], "browse");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let said = stderr(&output);
    for words in ["exit 3` failed (exit status: 3)", "no such luck"] {
        assert!(said.contains(words), "no {words:?}: {}", told(&output));
    }
    workspace.change("systems/pair/system.toml", "listens = \"back\"", "listens = \"nowhere\"");
    let output = check(&workspace, "pair", &[], "browse");
    let words =
        "process `back` of system `pair` listens on `nowhere`, which is none of its `ports`";
    assert!(stderr(&output).contains(words), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn a_trial_that_loses_one_of_several_processes_does_not_count() {
    let workspace = workspace();
    pair(&workspace);
    // The one behind answers the probe, and ends in the middle of the window.
    let recipe = "systems/pair/system.toml";
    workspace.change(
        recipe,
        "exec '{{ programs.tollgate }}'",
        "exec timeout --signal=KILL 2 '{{ programs.tollgate }}'",
    );
    let experiment = Experiment {
        title: "Two processes",
        load: r#"connections = 4, duration = "3s", warmup = "50ms""#,
        subjects: &[("pair", "pair", "")],
        blocks: 1,
    };
    workspace.write("pair.toml", &experiment.text());
    let output = workspace.run(&["run", "pair.toml", "--out", "out"]);
    let words = "`back` ended (signal: 9 (SIGKILL)) during the measurement";
    assert!(flat(&stdout(&output)).contains(words), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn what_is_installed_is_not_installed_again() {
    let workspace = workspace();
    let output = workspace.run(&["systems", "install", "haproxy"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(stderr(&output).contains("installed already: haproxy"), "{}", told(&output));
    assert!(stdout(&output).contains("installed: HAProxy version "), "{}", told(&output));
    let output = workspace.run(&["systems", "build", "haproxy"]);
    assert!(stderr(&output).contains("there is nothing to build"), "{}", told(&output));
}

#[test]
fn a_build_that_is_not_there_is_told_with_the_line_that_makes_it() {
    let workspace = workspace();
    let mut command = workspace.command(&["systems", "check", "caddy"]);
    let output = command.env("XDG_CACHE_HOME", workspace.path("empty")).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("tollgate systems build caddy"), "{}", told(&output));
    // Without Go there is no build, and nothing is left that looks like one.
    let mut command = workspace.command(&["systems", "build", "caddy"]);
    command.env("XDG_CACHE_HOME", workspace.path("empty")).env("PATH", workspace.path("nothing"));
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("install Go"), "{}", told(&output));
    let left = fs::read_dir(workspace.path("empty/tollgate/builds/caddy")).expect("the folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn both_generations_of_modsecurity_block_with_the_same_core_rule_set() {
    let workspace = workspace();
    for system in ["nginx-modsecurity", "apache-modsecurity"] {
        for mix in ["browse", "bodies.toml"] {
            assert_sound(&workspace, system, &["rules=crs"], mix);
        }
    }
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn engines_in_go_block_with_the_same_core_rule_set() {
    let workspace = workspace();
    for (system, with) in [
        ("caddy-coraza", &["rules=crs"][..]),
        ("crowdsec-appsec", &["in_band=crs"]),
        ("crowdsec-appsec", &["in_band=crs", "bouncer=nginx"]),
    ] {
        for mix in ["browse", "bodies.toml"] {
            assert_sound(&workspace, system, with, mix);
        }
    }
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn caddy_and_its_engines_without_rules_let_everything_through() {
    let workspace = workspace();
    assert_sound(&workspace, "caddy", &[], "bodies.toml");
    for engine in ["engine=off", "engine=on"] {
        assert_sound(&workspace, "caddy-coraza", &[engine], "bodies.toml");
    }
    for bouncer in ["bouncer=caddy", "bouncer=nginx"] {
        assert_sound(&workspace, "crowdsec-appsec", &[bouncer], "bodies.toml");
        // What is checked out of band blocks nothing.
        assert_sound(&workspace, "crowdsec-appsec", &[bouncer, "out_of_band=crs"], "bodies.toml");
    }
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn virtual_patches_of_a_folder_block_what_they_match() {
    let workspace = workspace();
    workspace.write("patches/one.yaml", PATCH);
    workspace.write("patched.toml", PATCHED);
    let patches = format!("patches={}", workspace.path("patches").display());
    for bouncer in ["bouncer=caddy", "bouncer=nginx"] {
        let with = [bouncer, "in_band=vpatch", &patches, "out_of_band=crs", "routines=2"];
        assert_sound(&workspace, "crowdsec-appsec", &with, "patched.toml");
    }
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn each_virtual_patch_blocks_its_attack_and_lets_its_near_miss_through() {
    let workspace = workspace();
    for mix in ["vpatch/attacks", "vpatch/near-misses"] {
        assert_sound(&workspace, "crowdsec-appsec", &["in_band=vpatch"], mix);
    }
    // Some of the attacks climb out of the root, which nginx refuses by itself.
    let with = ["in_band=vpatch", "bouncer=nginx"];
    assert_sound(&workspace, "crowdsec-appsec", &with, "vpatch/near-misses");
    let output = check(&workspace, "crowdsec-appsec", &with, "vpatch/attacks");
    let said = stdout(&output);
    let passed: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("FAIL") && !line.contains("400 with"))
        .collect();
    assert!(said.contains("CVE-") && passed.is_empty(), "{}", told(&output));
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn rules_of_crowdsec_that_were_not_loaded_are_told() {
    let workspace = workspace();
    workspace.copy_recipe("crowdsec-appsec");
    // A pattern instead of the names: AppSec logs one error, and lets everything through.
    let rules = "systems/crowdsec-appsec/appsec-rules/crs.yaml";
    workspace.change(rules, r#"{{ path|replace(folder ~ "/rules/", "") }}"#, r#""*.conf""#);
    for bouncer in ["bouncer=caddy", "bouncer=nginx"] {
        let output = check(&workspace, "crowdsec-appsec", &["in_band=crs", bouncer], "browse");
        assert_refused(&output, "4 of 4 attacks were let through");
    }
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn a_wrong_key_of_a_bouncer_is_told() {
    let workspace = workspace();
    workspace.copy_recipe("crowdsec-appsec");
    let config = "systems/crowdsec-appsec/Caddyfile";
    workspace.change(config, "api_key tollgate", "api_key wrong");
    let output = check(&workspace, "crowdsec-appsec", &["in_band=crs"], "browse");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("access forbidden"), "{}", told(&output));
    // Unless it is told to fail then, Caddy's bouncer lets everything through.
    workspace.change(config, "enable_hard_fails", "");
    let output = check(&workspace, "crowdsec-appsec", &["in_band=crs"], "browse");
    assert_refused(&output, "4 of 4 attacks were let through");
    // The handler of nginx lets nothing through then, and it does not become ready.
    let config = "systems/crowdsec-appsec/nginx.conf";
    workspace.change(
        config,
        "X-Crowdsec-Appsec-Api-Key tollgate",
        "X-Crowdsec-Appsec-Api-Key wrong",
    );
    let recipe = "systems/crowdsec-appsec/system.toml";
    workspace.change(recipe, "within = \"60s\"", "within = \"8s\"");
    let with = ["in_band=crs", "bouncer=nginx"];
    let output = check(&workspace, "crowdsec-appsec", &with, "browse");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stderr(&output).contains("it answers 502"), "{}", told(&output));
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn an_attack_in_json_that_crowdsec_does_not_parse_is_told() {
    let workspace = workspace();
    workspace.write("patches/one.yaml", PATCH_IN_JSON);
    workspace.write("patched.toml", PATCHED_IN_JSON);
    let patches = format!("patches={}", workspace.path("patches").display());
    let with = ["in_band=vpatch", &patches];
    assert_sound(&workspace, "crowdsec-appsec", &with, "patched.toml");
    // The rule that has JSON parsed is not there any more.
    let processors = include_str!("../../mixes/vpatch/body-processors.yaml");
    let without: Vec<&str> =
        processors.lines().filter(|line| !line.contains("requestBodyProcessor=JSON")).collect();
    assert!(without.len() < processors.lines().count(), "{processors}");
    workspace.write("mixes/vpatch/body-processors.yaml", &without.join("\n"));
    let output = check(&workspace, "crowdsec-appsec", &with, "patched.toml");
    assert_refused(&output, "1 of 1 attacks were let through");
}

/// Two subjects with the Core Rule Set, one of two processes.
fn two_processes(workspace: &Workspace, duration: &str) {
    let experiment = Experiment {
        title: "Two processes",
        load: &format!(r#"connections = 4, duration = "{duration}", warmup = "100ms""#),
        subjects: &[
            ("nginx", "nginx-modsecurity", r#"rules = "crs""#),
            ("crowdsec", "crowdsec-appsec", r#"in_band = "crs""#),
        ],
        blocks: 1,
    };
    workspace.write("two.toml", &experiment.text());
}

/// The process of that name that runs in the folder.
fn process(workspace: &Workspace, name: &str) -> Option<i32> {
    let running = workspace.running();
    let found = running.iter().find(|line| {
        let program = line.split_whitespace().nth(1).unwrap_or_default();
        program.ends_with(&format!("/{name}"))
    });
    found?.split(':').next()?.parse().ok()
}

fn records(workspace: &Workspace) -> Vec<Value> {
    let text = workspace.read("out/trials.ndjson");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn all_processes_of_a_system_are_counted_together() {
    let workspace = workspace();
    two_processes(&workspace, "2s");
    let child = workspace.start(&["run", "two.toml", "--out", "out", "--seed", "1"]);
    // The most that each was seen to have while it ran.
    let mut seen_kib = [0, 0];
    let over = || workspace.path("out/report.json").is_file();
    while !over() {
        for (name, most) in ["crowdsec", "caddy"].into_iter().zip(&mut seen_kib) {
            let status = process(&workspace, name)
                .and_then(|pid| procfs::process::Process::new(pid).ok()?.status().ok());
            *most = (*most).max(status.and_then(|status| status.rssanon).unwrap_or(0));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().expect("its end");
    let records = records(&workspace);
    let record = records.iter().find(|record| record["subject"] == "crowdsec").expect("a record");
    let measured = &record["outcome"]["measured"];
    assert_eq!(measured["invalid"], Value::Array(vec![]), "{}", told(&output));
    let memory_kib = measured["memory_peak_bytes"].as_u64().expect("memory") / 1024;
    assert!(seen_kib.iter().all(|kib| *kib > 0), "both were seen: {seen_kib:?}");
    assert!(
        memory_kib >= seen_kib.iter().sum::<u64>(),
        "{memory_kib} KiB for both, {seen_kib:?} seen"
    );
    assert!(record["startup_ms"].as_f64().expect("a time") > 0.0);
    // Both subjects have the same rules, and the report has nothing to note about that.
    let manifest = workspace.json("out/manifest.json");
    let subjects = manifest["experiment"]["subjects"].as_array().expect("subjects");
    let hashes: Vec<&Value> =
        subjects.iter().map(|one| &one["state"]["installed"]["rule_set"]["hash"]).collect();
    assert!(hashes[0].is_string(), "{hashes:?}");
    assert_eq!(hashes[0], hashes[1]);
    assert!(!stdout(&output).contains("the same OWASP CRS"), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn a_trial_that_loses_one_of_two_processes_does_not_count() {
    let workspace = workspace();
    two_processes(&workspace, "6s");
    let child =
        workspace.start(&["run", "two.toml", "--out", "out", "--only", "crowdsec", "--seed", "1"]);
    let serving = || process(&workspace, "caddy").is_some();
    assert!(wait_until(Duration::from_secs(60), serving), "it never began");
    // By then it is measured: the probe and the warm-up take a fraction of this.
    std::thread::sleep(Duration::from_secs(3));
    let pid = process(&workspace, "crowdsec").expect("it runs");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    let words = "`crowdsec` ended (signal: 9 (SIGKILL)) during the measurement";
    assert!(flat(&stdout(&output)).contains(words), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
#[ignore = "takes what `make systems` builds"]
fn both_processes_are_gone_after_ctrl_c() {
    let workspace = workspace();
    two_processes(&workspace, "20s");
    let child = workspace.start(&["run", "two.toml", "--out", "out", "--only", "crowdsec"]);
    let both = || ["crowdsec", "caddy"].iter().all(|name| process(&workspace, name).is_some());
    assert!(wait_until(Duration::from_secs(60), both), "they never ran");
    kill(workspace.lab_of(&child), Signal::SIGINT).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    workspace.assert_nothing_runs();
}
