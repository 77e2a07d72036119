//! The systems: each starts, responds and blocks as its recipe says, and a WAF that is not active is refused.
//!
//! Caddy, Coraza and CrowdSec must be built first (`tollgate systems build`), as `make test` does; without them
//! the tests fail with the command to run.

mod blocking; // Responses, blocking, and WAFs that are not active.
mod builds; // Builds from Go modules, and the Go toolchain.
mod install; // Packages, and the examples of the help.
mod own_config; // Configurations of the user.
mod processes; // Systems of several processes.

use crate::support::{Workspace, show, stdout};
use std::process::Output;

/// Requests with bodies: a form, and JSON with an escaped attack that only a parser of JSON can detect.
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
const SOUND: &str = "All responses are as expected.";

fn check(workspace: &Workspace, system: &str, with: &[&str], mix: &str) -> Output {
    let mut arguments = vec!["systems", "check", system, "--mix", mix];
    arguments.extend(with.iter().flat_map(|option| ["--with", option]));
    workspace.run(&arguments)
}

/// Returns the template and the status of each response to a check.
fn responses(output: &Output) -> Vec<(String, u16)> {
    let text = stdout(output);
    let lines = text.lines().filter(|line| line.starts_with("ok  ") || line.starts_with("FAIL"));
    let responses = lines.map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let template = words.next().expect("a template").to_owned();
        let status = words.nth(1).expect("a status code").parse().expect("a status code");
        (template, status)
    });
    responses.collect()
}

/// Checks that a system works as its recipe says, and leaves no process.
fn assert_sound(workspace: &Workspace, system: &str, with: &[&str], mix: &str) {
    let output = check(workspace, system, with, mix);
    assert_eq!(output.status.code(), Some(0), "{system} {with:?}: {}", show(&output));
    assert!(stdout(&output).contains(SOUND), "{}", show(&output));
    for (begin, end) in [("  startup   ", " ms"), ("  memory    ", " MiB (peak during the probe)")]
    {
        let out = stdout(&output);
        let line = out.lines().find_map(|line| line.strip_prefix(begin)?.strip_suffix(end));
        let figure = line.and_then(|figure| figure.parse::<u32>().ok());
        assert!(figure.is_some_and(|figure| figure > 0), "{begin}: {}", show(&output));
    }
    workspace.assert_nothing_runs();
}

fn assert_refused(output: &Output, why: &str) {
    assert_eq!(output.status.code(), Some(3), "{}", show(output));
    assert!(stdout(output).contains(&format!("A run would refuse it: {why}.")), "{}", show(output));
}

fn workspace() -> Workspace {
    with_bodies(Workspace::concurrent())
}

fn with_bodies(workspace: Workspace) -> Workspace {
    workspace.write("bodies.toml", BODIES);
    workspace
}
