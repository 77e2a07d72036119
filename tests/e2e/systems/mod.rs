//! The systems under test: each starts, answers and blocks as its recipe says, and the traps in which a WAF
//! is fast because it is not really on are told.
//!
//! Caddy, Coraza and CrowdSec are built from Go modules beforehand (`tollgate systems build`), as `make test`
//! does: without them these tests fail, with the line to type.

/// One rule set, four engines.
mod agreement;
/// Getting a system: installed, built, or told how.
mod builds;
/// CPU time, of all processes of a system together.
mod burns;
/// CrowdSec's AppSec: its virtual patches, and what it lets through when it is not set up.
mod crowdsec;
/// What the help says that can be typed.
mod examples;
/// The Go tool chain that makes the builds.
mod go;
/// Installing packages, and being stopped meanwhile.
mod install;
/// Systems of several processes: started in turn, counted together, stopped together.
mod processes;
/// What is passed on, and what is blocked, by all of them.
mod proxies;
/// What `tollgate systems check` refuses.
mod traps;

use crate::support::{Workspace, stdout, told};
use std::process::Output;

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
const SOUND: &str = "Every answer is the one owed.";

fn check(workspace: &Workspace, system: &str, with: &[&str], mix: &str) -> Output {
    let mut arguments = vec!["systems", "check", system, "--mix", mix];
    arguments.extend(with.iter().flat_map(|option| ["--with", option]));
    workspace.run(&arguments)
}

/// What each request of a check was answered with: its template, and the status code.
fn answers(output: &Output) -> Vec<(String, u16)> {
    let text = stdout(output);
    let lines = text.lines().filter(|line| line.starts_with("ok  ") || line.starts_with("FAIL"));
    let answers = lines.map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let template = words.next().expect("a template").to_owned();
        let status = words.nth(1).expect("a status code").parse().expect("a status code");
        (template, status)
    });
    answers.collect()
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
    let workspace = Workspace::beside_others();
    workspace.write("bodies.toml", BODIES);
    workspace
}
