//! The Core Rule Set's own regression tests, from the Go module in which it is published.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tollgate_waf::{Match, RuleSet, Transaction, Worker};
use tollgate_waf_tools::mutation;
use tollgate_waf_tools::regression::{self, Test, TestFile};
use tollgate_waf_tools::replay::{self, Request, Response};

/// Folder of the module, which the Go module cache keeps.
fn module() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../builds/crs");
    let go = |arguments: &[&str]| {
        let output = Command::new("go").args(arguments).current_dir(&folder).output();
        let output =
            output.unwrap_or_else(|error| panic!("cannot run go: {error}; run `scripts/setup go`"));
        assert!(
            output.status.success(),
            "go {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    go(&["mod", "download"]);
    PathBuf::from(go(&[
        "list",
        "-m",
        "-f",
        "{{.Dir}}",
        "github.com/corazawaf/coraza-coreruleset/v4",
    ]))
}

/// The rules at paranoia level 4, as the tests expect them, and further ones.
fn rules(module: &Path, further: &str) -> Arc<RuleSet> {
    let setup = r#"
        SecRuleEngine DetectionOnly
        SecRequestBodyAccess On
        SecResponseBodyAccess On
        SecResponseBodyMimeType text/plain text/html text/xml application/json
        SecRequestBodyLimit 13107200
        SecRequestBodyNoFilesLimit 1310720
        SecRule REQUEST_HEADERS:Content-Type "^(?:application(?:/soap\+|/)|text/)xml" "id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML"
        SecRule REQUEST_HEADERS:Content-Type "^application/json" "id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
        SecRule REQBODY_ERROR "!@eq 0" "id:200002,phase:2,t:none,log,deny,status:400,msg:'Failed to parse request body.',logdata:'%{reqbody_error_msg}',severity:2"
        SecAction "id:900000,phase:1,pass,nolog,setvar:tx.blocking_paranoia_level=4,setvar:tx.crs_validate_utf8_encoding=1,setvar:tx.arg_name_length=100,setvar:tx.arg_length=400,setvar:tx.total_arg_length=64000,setvar:tx.max_num_args=255,setvar:tx.max_file_size=64100,setvar:tx.combined_file_sizes=65535"
    "#;
    let folder = module.join("rules");
    let builder = RuleSet::builder()
        .text("setup.conf", setup)
        .text("further.conf", further)
        .file(folder.join("@crs-setup.conf.example"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("@owasp_crs"))
        .unwrap_or_else(|error| panic!("{error}"))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .collect();
    files.sort();
    let builder = files.iter().fold(builder, tollgate_waf::Builder::file);
    Arc::new(builder.build().unwrap_or_else(|error| panic!("{error}")))
}

fn test_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            test_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
}

/// Tests that are known to fail, by rule and test.
fn known_differences() -> Vec<&'static str> {
    let lines = include_str!("known-differences.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.split_once(": ")?.0)).collect()
}

/// All tests with the number of their rule.
fn regression_tests(module: &Path) -> Vec<(u64, Test)> {
    let mut files = Vec::new();
    test_files(&module.join("tests"), &mut files);
    files.sort();
    let parsed = files.iter().map(|path| {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{error}"));
        TestFile::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    parsed.flat_map(|file| file.tests.into_iter().map(move |test| (file.rule_id, test))).collect()
}

#[test]
fn core_rule_set_passes_its_regression_tests() {
    let module = module();
    let rules = rules(&module, "");
    let tests = regression_tests(&module);
    assert!(tests.len() > 4600, "only {} tests found", tests.len());
    let mut worker = Worker::new();
    let mut known = known_differences();
    assert!(known.len() <= 15);
    let mut failed = Vec::new();
    for (rule, test) in &tests {
        let name = format!("{rule}-{}", test.test_id);
        if let Err(reason) = test.run(&rules, &mut worker) {
            match known.iter().position(|known| *known == name) {
                Some(position) => drop(known.remove(position)),
                None => failed.push(format!("{name}: {reason}")),
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} tests failed:\n{}",
        failed.len(),
        tests.len(),
        failed.join("\n")
    );
    assert!(known.is_empty(), "no longer different: {known:?}");
}

/// Matches and variables of a transaction.
type Outcome = (Vec<Match>, Vec<(Vec<u8>, Vec<u8>)>);

fn outcome(rules: &Arc<RuleSet>, worker: &mut Worker, request: &Request) -> Outcome {
    let mut transaction = Transaction::new(Arc::clone(rules));
    transaction.record_silent(true);
    replay::run(&mut transaction, worker, request, &regression::reflect(request));
    (transaction.matches().to_vec(), transaction.tx_all())
}

#[test]
fn gates_change_no_result() {
    let module = module();
    // Rules that one request skips run on the next one.
    let levels = r#"SecRule REQUEST_METHOD "@streq POST" "id:900001,phase:1,pass,nolog,setvar:tx.blocking_paranoia_level=1""#;
    let rules = rules(&module, levels);
    let (mut gated, mut plain) = (Worker::new(), Worker::plain());
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut compare = |request: &Request| {
        let (expected, found) =
            (outcome(&rules, &mut plain, request), outcome(&rules, &mut gated, request));
        assert_eq!(expected, found, "{}", String::from_utf8_lossy(&request.target));
    };
    for (_, test) in regression_tests(&module) {
        for stage in &test.stages {
            let request = stage.request().unwrap_or_else(|error| panic!("{error}"));
            compare(&request);
            compare(&mutation::mutate(&request, &mut random));
        }
    }
}

/// Parts of response bodies that rules look for, in two halves. Some rules allow a few bytes between them.
const LEAKS: [[&str; 2]; 25] = [
    ["Warning: ", "mysql_fetch_array()"],
    ["You have an error in ", "your SQL syntax near"],
    ["SQL syntax", "MySQL"],
    ["ORA-123", "45: "],
    ["Oracle", "Driver"],
    ["java.sql.", "SQLException"],
    ["CLI Driver", "DB2"],
    ["db2_", "exec()"],
    ["PG::Syntax", "Error"],
    ["Exception in thread \"", "\" java.lang.Error"],
    ["org.example.", "Exception "],
    ["at \n", "org "],
    ["<?", " echo"],
    ["<?php", "\n phpinfo()"],
    ["#{", "user}"],
    ["<%", "= user %>"],
    ["<title>Index of", "<h1>Index of"],
    ["[To Parent Directory]", "</a><br>"],
    ["Server Error in", " Application"],
    ["Microsoft OLE DB Provider for SQL Server</font>", "error '800"],
    ["B4TM4N SH3LL</title>", "<meta name='author' content='k4mpr3t'/>"],
    ["<title>punkholic", " shell</title>"],
    ["<link rel=\"icon\" href=\"//0x5a455553.github.io/MARIJUANA", "/icon.png\" />"],
    ["\nfopen", " "],
    ["C:\\", "inetpub "],
];

#[test]
fn gates_change_no_result_of_responses() {
    let rules = rules(&module(), "");
    let (mut gated, mut plain) = (Worker::new(), Worker::plain());
    let request = replay::parse_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let html = "<li class=\"item\"><a href='/x?y=1'>Text; of {an} item.</a></li>\n";
    let json = "{\"name\":\"A text\",\"price\":17.5,\"tags\":[\"a\",\"b\"]},\n";
    let text = "The quick brown fox jumps over the lazy dog, again and again. ";
    let mut matched = std::collections::BTreeSet::new();
    for (kind, filler) in [("text/html", html), ("application/json", json), ("text/plain", text)] {
        let filler = filler.repeat(12);
        for (number, [first, second]) in LEAKS.into_iter().enumerate() {
            // Whole at the ends of the body, and with more and more between the halves.
            for (start, between) in [(0, 0), (filler.len(), 0), (1, 0), (300, 0)]
                .into_iter()
                .chain((0..120).step_by(7).map(|between| (350 - between + number, between)))
            {
                let (before, behind) = filler.split_at(start);
                let body = [before, first, &filler[..between], second, behind].concat();
                let headers = vec![(b"Content-Type".to_vec(), kind.as_bytes().to_vec())];
                let response = Response { status: 500, headers, body: body.into_bytes() };
                let outcome = |worker: &mut Worker| {
                    let mut transaction = Transaction::new(Arc::clone(&rules));
                    transaction.record_silent(true);
                    replay::run(&mut transaction, worker, &request, &response);
                    (transaction.matches().to_vec(), transaction.tx_all())
                };
                let (expected, found) = (outcome(&mut plain), outcome(&mut gated));
                assert_eq!(expected, found, "{kind}: {first}...{second} at {start}, {between}");
                matched.extend(expected.0.iter().map(|found| found.id));
            }
        }
    }
    let of_bodies = matched.range(950_000..957_000).count();
    assert!(of_bodies > 15, "only {of_bodies} rules of bodies matched: {matched:?}");
}
