//! The tutorials in `docs/tutorials/`: every command runs, and prints what the page says.
//!
//! Blocks of code are read in their order: one with a file name is written to that file, `sh` is run, and each line of `text`
//! is in the output of the commands before it, but for numbers.

use crate::foreign_server::free_port;
use crate::support::Workspace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// `tollgate run` on a busy machine.
const WRAPPER: &str = r#"#!/bin/sh
if [ "$1" = run ]; then
    set -- "$@" --limit steal=100% --limit background_cpu=100% --limit pause=100% --limit window_skew=100%
fi
exec 'PROGRAM' "$@"
"#;

/// A block of code: its language with a file name, and its text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let (mut blocks, mut current) = (Vec::new(), None);
    for event in Parser::new_ext(page, Options::empty()) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                current = Some((info.into_string(), String::new()));
            }
            Event::Text(text) => {
                if let Some((_, code)) = &mut current {
                    code.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(current.take()),
            _ => {}
        }
    }
    blocks
}

/// Text with a `#` for each number and one space between words.
fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for word in text.split_whitespace() {
        for c in word.chars() {
            let c = if c.is_ascii_digit() { '#' } else { c };
            if c != '#' || !shown.ends_with('#') {
                shown.push(c);
            }
        }
        shown.push(' ');
    }
    shown.trim_end().to_owned()
}

/// Stops the server that a tutorial has started, if a command has failed.
struct Server<'a>(&'a Workspace);

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let id = fs::read_to_string(self.0.path("nginx.pid")).ok();
        let id = id.and_then(|id| id.trim().parse().ok()).map(Pid::from_raw);
        // Fails only if it has ended.
        id.map(|id| kill(id, Signal::SIGTERM));
    }
}

fn follow(name: &str, workspace: &Workspace) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/tutorials").join(name)).expect("a tutorial");
    let program = assert_cmd::cargo::cargo_bin!("tollgate");
    workspace.write("bin/tollgate", &WRAPPER.replace("PROGRAM", &program.to_string_lossy()));
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(workspace.path("bin/tollgate"), mode).expect("a program");
    let library = workspace.path("library");
    fs::create_dir(&library).expect("a folder");
    let built = program.with_file_name("libmodsecurity.so");
    std::os::unix::fs::symlink(built, library.join("libmodsecurity.so.3")).expect("a link");
    let port = free_port().to_string();
    let path = std::env::var("PATH").expect("a PATH");
    let path = format!("{}:{path}:/usr/sbin", workspace.path("bin").display());
    let server = Server(workspace);
    let (mut output, mut commands) = (String::new(), 0);
    for (info, code) in blocks(&page) {
        let code = code.replace(":8080", &format!(":{port}"));
        let code = code.replace("/usr/local/lib/tollgate", &library.display().to_string());
        match info.split_once(' ') {
            Some((_, file)) => workspace.write(file, &code),
            None if info == "sh" => {
                commands += 1;
                let ran = Command::new("sh")
                    .args(["-eu", "-c", &format!("exec 2>&1\n{code}")])
                    .current_dir(workspace.path(""))
                    .env("PATH", &path)
                    .env("NO_COLOR", "1")
                    .env("COLUMNS", "120")
                    .env("XDG_RUNTIME_DIR", workspace.path(""))
                    .output()
                    .expect("a shell");
                output = String::from_utf8_lossy(&ran.stdout).into_owned();
                assert!(ran.status.success(), "{name}: {}\n{code}\n{output}", ran.status);
            }
            None if info == "text" => {
                for line in code.lines() {
                    let (line, output) = (without_numbers(line), without_numbers(&output));
                    assert!(output.contains(&line), "{name}: no {line:?} in {output}");
                }
            }
            None => {}
        }
    }
    assert!(commands > 1, "{name} has {commands} commands");
    drop(server);
    workspace.assert_nothing_runs();
}

#[test]
fn first_price() {
    follow("first-price.md", &Workspace::long_quiet());
}

#[test]
fn your_nginx() {
    follow("your-nginx.md", &Workspace::long_quiet());
}

#[test]
fn drop_in() {
    follow("drop-in.md", &Workspace::concurrent());
}

#[test]
fn false_positive() {
    follow("false-positive.md", &Workspace::concurrent());
}

#[test]
fn pull_request() {
    follow("pull-request.md", &Workspace::quiet());
}

#[test]
fn every_tutorial_is_followed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials");
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let source = include_str!("tutorials.rs");
    for name in &names {
        assert!(source.contains(&format!("follow(\"{name}\"")), "{name}");
    }
    assert_eq!(names.len(), 5, "{names:?}");
}
