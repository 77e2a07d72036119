//! Systems of several processes: start, CPU time, memory, stop.

use super::{assert_sound, check, workspace};
use crate::support::{
    Experiment, Workspace, flat, show, stderr, stdout, wait_for_load, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

/// A system of two processes: the origin, and nginx in front of it.
const PAIR: &str = r#"
title     = "Two processes"
ports     = ["back"]
templates = ["conf/nginx.conf"]

[[need]]
program = "nginx"

[[need]]
program = "tollgate"

[option.spare]
about   = "starts a process that ends at once"
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
answers = { X-Asks = "port {{ ports.back.port }}" }

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
fn two_processes_are_prepared_started_and_stopped() {
    let workspace = workspace();
    pair(&workspace);
    assert_sound(&workspace, "pair", &[], "browse");
    let output = check(&workspace, "pair", &["spare=yes"], "browse");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let message = stderr(&output);
    for words in ["exit 3` failed (exit status: 3)", "no such luck"] {
        assert!(message.contains(words), "no {words:?}: {}", show(&output));
    }
    workspace.change("systems/pair/system.toml", "listens = \"back\"\n", "");
    let output = check(&workspace, "pair", &[], "browse");
    let words =
        "process `back` of system `pair`: `answers` needs `listens`, the port of the request";
    assert!(stderr(&output).contains(words), "{}", show(&output));
    workspace.change("systems/pair/system.toml", "answers = ", "listens = \"nowhere\"\nanswers = ");
    let output = check(&workspace, "pair", &[], "browse");
    let words = "process `back` of system `pair` listens on unknown port `nowhere`";
    assert!(stderr(&output).contains(words), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn trial_that_loses_back_process_is_invalid() {
    let workspace = Workspace::long_quiet();
    pair(&workspace);
    // The back process responds to the probe and ends during the measurement.
    let recipe = "systems/pair/system.toml";
    workspace.change(
        recipe,
        "exec '{{ programs.tollgate }}'",
        "exec timeout --signal=KILL 4 '{{ programs.tollgate }}'",
    );
    let experiment = Experiment {
        title: "Two processes",
        load: r#"connections = 4, rate = 200, duration = "6s", warmup = "50ms""#,
        subjects: &[("pair", "pair", "")],
        blocks: 1,
    };
    workspace.write("pair.toml", &experiment.text());
    let output = workspace.run(&["run", "pair.toml", "--out", "out"]);
    let words = "`back` ended (signal: 9 (SIGKILL)) during the measurement";
    assert!(flat(&stdout(&output)).contains(words), "{}", show(&output));
    workspace.assert_nothing_runs();
}

/// Two subjects with the Core Rule Set; one has two processes.
fn two_processes(workspace: &Workspace, duration: &str) {
    let experiment = Experiment {
        title: "Two processes",
        load: &format!(r#"connections = 4, rate = 200, duration = "{duration}", warmup = "100ms""#),
        subjects: &[
            ("nginx", "nginx-modsecurity", r#"rules = "crs""#),
            ("crowdsec", "crowdsec-appsec", r#"in_band = "crs""#),
        ],
        blocks: 1,
    };
    workspace.write("two.toml", &experiment.text());
}

/// Returns the process of this name in the folder.
fn process(workspace: &Workspace, name: &str) -> Option<i32> {
    let running = workspace.running();
    let found = running.iter().find(|line| {
        let program = line.split_whitespace().nth(1).unwrap_or_default();
        program.ends_with(&format!("/{name}"))
    });
    found?.split(':').next()?.parse().ok()
}

#[test]
fn memory_is_sum_of_processes() {
    let workspace = Workspace::concurrent();
    two_processes(&workspace, "2s");
    let mut child = workspace.start(&["run", "two.toml", "--out", "out", "--seed", "1"]);
    // The highest memory seen of each process.
    let mut seen_kib = [0, 0];
    let start = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        assert!(start.elapsed() < Duration::from_secs(120), "the run does not end");
        for (name, most) in ["crowdsec", "caddy"].into_iter().zip(&mut seen_kib) {
            let status = process(&workspace, name)
                .and_then(|pid| procfs::process::Process::new(pid).ok()?.status().ok());
            *most = (*most).max(status.and_then(|status| status.rssanon).unwrap_or(0));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().expect("its end");
    let records = workspace.records();
    let record = records.iter().find(|record| record["subject"] == "crowdsec").expect("a record");
    let measured = &record["outcome"]["measured"];
    assert_eq!(measured["invalid"], Value::Array(vec![]), "{}", show(&output));
    let memory_kib = measured["memory_peak_bytes"].as_u64().expect("memory") / 1024;
    assert!(seen_kib.iter().all(|kib| *kib > 0), "{seen_kib:?}");
    assert!(
        memory_kib >= seen_kib.iter().sum::<u64>(),
        "{memory_kib} KiB for both, {seen_kib:?} seen"
    );
    assert!(record["startup_ms"].as_f64().expect("a time") > 0.0);
    // Both subjects have the same rules, so the report has no note.
    let manifest = workspace.json("out/manifest.json");
    let subjects = manifest["experiment"]["subjects"].as_array().expect("subjects");
    let hashes: Vec<&Value> =
        subjects.iter().map(|one| &one["state"]["installed"]["rule_set"]["hash"]).collect();
    assert!(hashes[0].is_string(), "{hashes:?}");
    assert_eq!(hashes[0], hashes[1]);
    assert!(!stdout(&output).contains("the same OWASP CRS"), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn trial_that_loses_waf_process_is_invalid() {
    let workspace = Workspace::concurrent();
    two_processes(&workspace, "4s");
    let child =
        workspace.start(&["run", "two.toml", "--out", "out", "--only", "crowdsec", "--seed", "1"]);
    wait_for_load(workspace.supervised(&child));
    let pid = process(&workspace, "crowdsec").expect("it runs");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    let words = "`crowdsec` ended (signal: 9 (SIGKILL)) during the measurement";
    assert!(flat(&stdout(&output)).contains(words), "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn trial_that_loses_bouncer_is_invalid() {
    for (bouncer, command) in [("caddy", "/caddy run "), ("nginx", "nginx: master process ")] {
        let workspace = Workspace::concurrent();
        let options = format!(r#"in_band = "crs", bouncer = "{bouncer}""#);
        let experiment = Experiment {
            title: "A bouncer",
            load: r#"connections = 4, rate = 200, duration = "4s", warmup = "100ms""#,
            subjects: &[("crowdsec", "crowdsec-appsec", &options)],
            blocks: 1,
        };
        workspace.write("bouncer.toml", &experiment.text());
        let child = workspace.start(&["run", "bouncer.toml", "--out", "out", "--seed", "1"]);
        let pid = || -> Option<i32> {
            let running = workspace.running();
            let line = running.iter().find(|line| line.contains(command))?;
            line.split(':').next()?.parse().ok()
        };
        wait_for_load(workspace.supervised(&child));
        let pid = pid().expect("it runs");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a signal");
        let output = child.wait_with_output().expect("its end");
        let words = format!("`{bouncer}` ended (signal: 9 (SIGKILL)) during the measurement");
        assert!(flat(&stdout(&output)).contains(&words), "{}", show(&output));
        workspace.assert_nothing_runs();
    }
}

#[test]
fn ctrl_c_stops_both_processes() {
    let workspace = workspace();
    two_processes(&workspace, "20s");
    let child = workspace.start(&["run", "two.toml", "--out", "out", "--only", "crowdsec"]);
    let both = || ["crowdsec", "caddy"].iter().all(|name| process(&workspace, name).is_some());
    assert!(wait_until(Duration::from_secs(60), both), "both processes do not run");
    kill(workspace.supervised(&child), Signal::SIGINT).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    workspace.assert_nothing_runs();
}

/// nginx that burns CPU time and forwards requests, and nginx that burns CPU time and responds.
const BURNS: &str = r#"
title     = "Two processes that burn a known CPU time in each request"
origin    = false
ports     = ["back"]
templates = ["front.conf", "back.conf", "common.conf"]
files     = ["burn.lua"]

[[need]]
program = "nginx"

[[need]]
file = "/usr/lib/nginx/modules/ngx_http_lua_module.so"

[option.front_us]
about   = "microseconds that the front process burns"
default = 0
minimum = 0
maximum = 1000

[option.back_us]
about   = "microseconds that the back process burns"
default = 0
minimum = 0
maximum = 1000

[[process]]
name    = "back"
command = ["{{ programs.nginx }}", "-e", "stderr", "-p", "{{ dir }}", "-c", "{{ dir }}/back.conf"]
listens = "back"

[[process]]
name    = "front"
command = ["{{ programs.nginx }}", "-e", "stderr", "-p", "{{ dir }}", "-c", "{{ dir }}/front.conf"]
"#;

/// Common configuration.
const COMMON: &str = r#"
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
daemon off;
pid "{{ dir }}/{% block name %}{% endblock %}.pid";
error_log stderr error;
{% if root %}user {{ user }};{% endif %}
events {}
http {
    access_log off;
    keepalive_requests 1000000;
    proxy_temp_path "{{ dir }}/{{ self.name() }}-proxy";
    client_body_temp_path "{{ dir }}/{{ self.name() }}-body";
    fastcgi_temp_path "{{ dir }}/{{ self.name() }}-fastcgi";
    uwsgi_temp_path "{{ dir }}/{{ self.name() }}-uwsgi";
    scgi_temp_path "{{ dir }}/{{ self.name() }}-scgi";
    lua_package_path "{{ dir }}/?.lua;;";
    init_by_lua_block {
        burn = require "burn"
        body = string.rep("x", 100)
    }
    init_worker_by_lua_block { burn.init() }
    exit_worker_by_lua_block { burn.report() }
    {% block server %}{% endblock %}
}
"#;

const FRONT: &str = r#"
{% extends "burns/common.conf" %}
{% block name %}front{% endblock %}
{% block server %}
    upstream back { server {{ ports.back.address }}; keepalive 16; }
    server {
        listen {{ listen.address }};
        location / {
            access_by_lua_block { burn.spin({{ front_us }}) }
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_pass http://back;
        }
    }
{% endblock %}
"#;

const BACK: &str = r#"
{% extends "burns/common.conf" %}
{% block name %}back{% endblock %}
{% block server %}
    server {
        listen {{ ports.back.address }};
        location / {
            content_by_lua_block {
                burn.spin({{ back_us }})
                ngx.header.content_length = #body
                ngx.print(body)
            }
        }
    }
{% endblock %}
"#;

const FRONT_US: f64 = 300.0;
const BACK_US: f64 = 500.0;

#[test]
fn cpu_time_is_sum_of_processes() {
    let workspace = Workspace::concurrent();
    let burn = include_str!("../../../systems/nginx-known-cost/burn.lua");
    for (name, text) in [
        ("system.toml", BURNS),
        ("common.conf", COMMON),
        ("front.conf", FRONT),
        ("back.conf", BACK),
        ("burn.lua", burn),
    ] {
        workspace.write(&format!("systems/burns/{name}"), text);
    }
    let (front, back) = (format!("front_us = {FRONT_US}"), format!("back_us = {BACK_US}"));
    let experiment = Experiment {
        title: "Is the CPU time of both counted?",
        load: r#"connections = 2, rate = 200, duration = "600ms", warmup = "50ms""#,
        subjects: &[
            ("front", "burns", &front),
            ("back", "burns", &back),
            ("both", "burns", &format!("{front}, {back}")),
        ],
        blocks: 1,
    };
    workspace.write("burns.toml", &experiment.text());
    let output = workspace.run(&["run", "burns.toml", "--seed", "1", "--out", "out"]);
    assert!(workspace.path("out/trials.ndjson").is_file(), "{}", show(&output));
    let records = workspace.records();
    // Measured CPU time in microseconds per request.
    let found_us = |subject: &str| {
        let of_subject = |record: &&Value| record["subject"] == subject;
        let record = records.iter().find(of_subject).expect("a record");
        let measured = &record["outcome"]["measured"];
        let cpu = &measured["cpu"]["system"];
        let spent = ["user_us", "system_us"].map(|part| cpu[part].as_f64());
        let [Some(user), Some(system)] = spent else { panic!("{record}: {}", show(&output)) };
        (user + system) / measured["responses"].as_f64().expect("a count")
    };
    // A burn is never shorter than configured; the rest of a request takes a fraction of either.
    let (front, back, both) = (found_us("front"), found_us("back"), found_us("both"));
    let sum = FRONT_US + BACK_US;
    assert!((FRONT_US..sum).contains(&front), "{front} us with the front burn");
    assert!((BACK_US..sum).contains(&back), "{back} us with the back burn");
    assert!(both >= sum, "{both} us with both burns");

    // Each process logs what it burned.
    for (process, configured_us) in [("front", FRONT_US), ("back", BACK_US)] {
        let logs = fs::read_dir(workspace.path("out/logs")).expect("logs").flatten();
        let ending = format!("-both-{process}.log");
        let log = logs.map(|log| log.path()).find(|log| log.to_string_lossy().ends_with(&ending));
        let log = fs::read_to_string(log.expect("a log")).expect("its text");
        let burned = log.lines().find_map(|line| line.strip_prefix("burned ")).expect("a figure");
        let burned_us: f64 =
            burned.split(' ').next().and_then(|us| us.parse().ok()).expect("a number");
        assert!(
            burned_us >= configured_us && burned_us < both,
            "{process} burned {burned}, measured {both}"
        );
    }
    workspace.assert_nothing_runs();
}
