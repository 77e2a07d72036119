//! The CPU time of a system is that of all its processes: two of them, each of which burns a known share.

use crate::experiment::Experiment;
use crate::support::{Workspace, told};
use serde_json::Value;
use std::fs;

/// nginx that burns CPU in each request and passes it on, and nginx that burns CPU and answers.
const BURNS: &str = r#"
title     = "Two processes that burn a known time of CPU in each request"
origin    = false
ports     = ["back"]
templates = ["front.conf", "back.conf", "common.conf"]
files     = ["burn.lua"]

[[need]]
program = "nginx"

[[need]]
file = "/usr/lib/nginx/modules/ngx_http_lua_module.so"

[option.front_us]
about   = "microseconds that the one in front burns"
default = 0
minimum = 0
maximum = 1000

[option.back_us]
about   = "microseconds that the one behind burns"
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

/// What both have in common. Each has a folder for what it writes.
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
    exit_worker_by_lua_block { burn.tell() }
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
fn the_cpu_time_of_two_processes_is_the_sum_of_both() {
    let workspace = Workspace::beside_others();
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
        title: "Are both counted?",
        load: r#"connections = 2, duration = "600ms", warmup = "50ms""#,
        subjects: &[
            ("front", "burns", &front),
            ("back", "burns", &back),
            ("both", "burns", &format!("{front}, {back}")),
        ],
        blocks: 1,
    };
    workspace.write("burns.toml", &experiment.text());
    let output = workspace.run(&["run", "burns.toml", "--seed", "1", "--out", "out"]);
    assert!(workspace.path("out/trials.ndjson").is_file(), "{}", told(&output));
    let text = workspace.read("out/trials.ndjson");
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // What the lab found, in microseconds a request.
    let found_us = |subject: &str| {
        let of_subject = |record: &&Value| record["subject"] == subject;
        let record = records.iter().find(of_subject).expect("a record");
        let measured = &record["outcome"]["measured"];
        let cpu = &measured["cpu"]["system"];
        let spent = ["user_us", "system_us"].map(|part| cpu[part].as_f64());
        let [Some(user), Some(system)] = spent else { panic!("{record}: {}", told(&output)) };
        (user + system) / measured["answered"].as_f64().expect("a count")
    };
    // A burn is never shorter than it is told to be, and what else a request takes is a fraction of either.
    let (front, back, both) = (found_us("front"), found_us("back"), found_us("both"));
    let sum = FRONT_US + BACK_US;
    assert!((FRONT_US..sum).contains(&front), "{front} us with the one in front alone");
    assert!((BACK_US..sum).contains(&back), "{back} us with the one behind alone");
    assert!(both >= sum, "{both} us with both");

    // By their own account, neither burned as much.
    for (process, told_us) in [("front", FRONT_US), ("back", BACK_US)] {
        let logs = fs::read_dir(workspace.path("out/logs")).expect("logs").flatten();
        let ending = format!("-both-{process}.log");
        let log = logs.map(|log| log.path()).find(|log| log.to_string_lossy().ends_with(&ending));
        let log = fs::read_to_string(log.expect("a log")).expect("its text");
        let burned =
            log.lines().find_map(|line| line.strip_prefix("burned ")).expect("its account");
        let burned_us: f64 =
            burned.split(' ').next().and_then(|us| us.parse().ok()).expect("a number");
        assert!(
            burned_us >= told_us && burned_us < both,
            "{process} burned {burned}, found {both}"
        );
    }
    workspace.assert_nothing_runs();
}
