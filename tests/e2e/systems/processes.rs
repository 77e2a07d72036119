//! Systems of several processes: started in turn, counted together, stopped together.

use super::{assert_sound, check, workspace};
use crate::experiment::Experiment;
use crate::support::{Workspace, flat, stderr, stdout, told, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::time::{Duration, Instant};

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
    let workspace = Workspace::new();
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
fn all_processes_of_a_system_are_counted_together() {
    let workspace = Workspace::new();
    two_processes(&workspace, "2s");
    let mut child = workspace.start(&["run", "two.toml", "--out", "out", "--seed", "1"]);
    // The most that each was seen to have while it ran.
    let mut seen_kib = [0, 0];
    let begun = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not end");
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
fn a_trial_that_loses_one_of_two_processes_does_not_count() {
    let workspace = Workspace::new();
    two_processes(&workspace, "4s");
    let child =
        workspace.start(&["run", "two.toml", "--out", "out", "--only", "crowdsec", "--seed", "1"]);
    let serving = || process(&workspace, "caddy").is_some();
    assert!(wait_until(Duration::from_secs(60), serving), "it never began");
    // By then it is measured: the probe and the warm-up take a fraction of this.
    std::thread::sleep(Duration::from_secs(2));
    let pid = process(&workspace, "crowdsec").expect("it runs");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a signal");
    let output = child.wait_with_output().expect("its end");
    let words = "`crowdsec` ended (signal: 9 (SIGKILL)) during the measurement";
    assert!(flat(&stdout(&output)).contains(words), "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn a_trial_that_loses_the_bouncer_does_not_count() {
    for (bouncer, command) in [("caddy", "/caddy run "), ("nginx", "nginx: master process ")] {
        let workspace = Workspace::new();
        let options = format!(r#"in_band = "crs", bouncer = "{bouncer}""#);
        let experiment = Experiment {
            title: "A bouncer",
            load: r#"connections = 4, duration = "4s", warmup = "100ms""#,
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
        assert!(wait_until(Duration::from_secs(60), || pid().is_some()), "it never began");
        // By then it is measured: the probe and the warm-up take a fraction of this.
        std::thread::sleep(Duration::from_secs(2));
        let pid = pid().expect("it runs");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a signal");
        let output = child.wait_with_output().expect("its end");
        let words = format!("`{bouncer}` ended (signal: 9 (SIGKILL)) during the measurement");
        assert!(flat(&stdout(&output)).contains(&words), "{}", told(&output));
        workspace.assert_nothing_runs();
    }
}

#[test]
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
