//! The Core Rule Set's regression tests, sent by go-ftw through nginx with libmodsecurity and with the drop-in.

use crate::drop_in::{Nginx, config, our_library};
use crate::go_ftw::{build_go_ftw, core_rule_set, go, start_backend};
use crate::support::{Workspace, show};
use std::collections::BTreeMap;
use std::process::Command;
use std::thread;

const RULES: &str = include_str!("../go-ftw/rules.conf");
/// Logs the requests that mark a place in the log.
const MARKER: &str = r#"SecRule REQUEST_HEADERS:X-CRS-Test "@rx ." "id:999999,phase:1,pass,log,t:none,msg:'X-CRS-Test %{MATCHED_VAR}',ctl:ruleRemoveById=1-999999""#;

#[test]
fn core_rule_set_passes_the_tests_that_it_passes_with_libmodsecurity() {
    let workspace = Workspace::long();
    let library = our_library(&workspace);
    let program = build_go_ftw(&workspace);
    let tests = core_rule_set().join("tests");
    let written = workspace.path("crs");
    std::fs::create_dir(&written).expect("a folder");
    let folder = written.to_str().expect("UTF-8");
    go("builds/crs", &["run", ".", folder]);
    let rules = format!(
        "{RULES}{MARKER}\nInclude {folder}/crs-setup.conf\nInclude {folder}/rules/*.conf\n"
    );
    let config = config(&format!(
        "client_max_body_size 20m; large_client_header_buffers 8 64k;
         server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass http://{}; }} }}",
        start_backend()
    ))
    .replace("worker_processes 2", "worker_processes 1");
    // Results of the tests by name.
    let run = |name: &str, library| -> BTreeMap<String, String> {
        let nginx = Nginx::start(&workspace, name, library, (&config, &rules));
        let port = nginx.server.port.to_string();
        let mut command = Command::new(&program);
        command.arg(&tests).arg(port).arg(nginx.folder.join("error.log"));
        let output = command.output().expect("go-ftw runs");
        assert!(output.status.success(), "{}", show(&output));
        let printed = String::from_utf8_lossy(&output.stdout);
        let results = printed.lines().filter_map(|line| {
            let (result, rest) = line.split_once(' ')?;
            let (name, reason) = rest.split_once(": ").unwrap_or((rest, ""));
            Some((
                name.to_owned(),
                if result == "passed" { String::new() } else { reason.to_owned() },
            ))
        });
        results.collect()
    };
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(|| run("theirs", None));
        let ours = run("ours", Some(&*library));
        (theirs.join().expect("libmodsecurity's results"), ours)
    });
    assert!(ours.keys().eq(theirs.keys()));
    let passed = |results: &BTreeMap<String, String>| {
        results.values().filter(|reason| reason.is_empty()).count()
    };
    let new: Vec<_> = ours
        .iter()
        .filter(|(name, reason)| !reason.is_empty() && theirs[*name].is_empty())
        .collect();
    assert!(new.is_empty(), "{} tests fail here alone: {new:#?}", new.len());
    // Every test that fails here fails with libmodsecurity, too, which fails 42 others.
    assert_eq!((ours.len(), passed(&ours)), (4_674, 4_647));
    assert!(passed(&theirs) > 4_500, "{}", passed(&theirs));
}
