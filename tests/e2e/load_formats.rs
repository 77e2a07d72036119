//! Formats of `tollgate load`, beside those of other tools on the same server.

use crate::load::Nginx;
use crate::support::{Workspace, show, stdout, wait_for_load};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

/// The reports of `ab` and of `tollgate load --format ab`, from their first common line on.
fn reports(workspace: &Workspace, url: &str, theirs: &[&str], ours: &[&str]) -> [String; 2] {
    let mut ab = Command::new("ab");
    ab.args(["-q", "-n", "1000", "-c", "10"]).args(theirs).arg(url);
    let ab = ab.output().expect("ab; to install it: apt-get install apache2-utils");
    assert!(ab.status.success(), "{}", show(&ab));
    let mut all = vec!["load", "--format", "ab", "-n", "1000", "-c", "10", url];
    all.extend(ours);
    let load = workspace.run(&all);
    assert_eq!(load.status.code(), Some(0), "{}", show(&load));
    let theirs = stdout(&ab);
    let start = theirs.find("Server Software:").expect("the report of ab");
    [theirs[start..].to_owned(), stdout(&load)]
}

/// The lines of a report with `#` for each number, without the two remarks of `ab` that depend on the
/// figures, which take two lines each.
fn skeleton(report: &str) -> Vec<String> {
    let remarks = ["WARNING: The median", "ERROR: The median", "These results", "deviation apart"];
    let is_label = |line: &&str| !remarks.iter().any(|remark| line.contains(remark));
    report.lines().filter(is_label).map(masked).collect()
}

fn masked(line: &str) -> String {
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let word = |word: &str| if is_number(word) { "#".to_owned() } else { word.to_owned() };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Runs an awk program, as people use them on reports of `ab`.
fn awk(program: &str, report: &str) -> String {
    let mut awk = Command::new("awk");
    awk.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut awk = awk.spawn().expect("awk");
    awk.stdin.take().expect("its input").write_all(report.as_bytes()).expect("a reader");
    stdout(&awk.wait_with_output().expect("its output")).trim_end().to_owned()
}

#[test]
fn ab_report_has_the_lines_of_ab() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    workspace.write("body", "a=1");
    let body = workspace.path("body");
    let body = body.to_str().expect("a name");
    let post = ["-k", "-p", body, "-T", "text/plain"];
    for (path, theirs, ours) in [
        ("", &[][..], &["--no-keepalive"][..]),
        ("", &["-k"], &[]),
        ("missing", &["-k"], &[]),
        ("a?page=2", &post, &["--body", "a=1", "-H", "Content-Type: text/plain"]),
    ] {
        let url = format!("http://{}/{path}", nginx.address);
        let [ab, load] = reports(&workspace, &url, theirs, ours);
        assert_eq!(skeleton(&load), skeleton(&ab), "{theirs:?}\n{load}\n{ab}");
    }
}

#[test]
fn scripts_for_reports_of_ab_work() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("http://{}/missing", nginx.address);
    let [ab, load] = reports(&workspace, &url, &["-k"], &[]);
    for same in [
        "/^Server Software:/ {print $3}",
        "/^Server Hostname:/ {print $3}",
        "/^Server Port:/ {print $3}",
        "/^Document Path:/ {print $3}",
        "/^Document Length:/ {print $3}",
        "/^Concurrency Level:/ {print $3}",
        "/^Complete requests:/ {print $3}",
        "/^Failed requests:/ {print $3}",
        "/^Non-2xx responses:/ {print $3}",
        "/^HTML transferred:/ {print $3}",
    ] {
        let theirs = awk(same, &ab);
        assert_ne!(theirs, "", "{same}");
        assert_eq!(awk(same, &load), theirs, "{same}");
    }
    for figure in [
        "/^Time taken for tests:/ {print $5}",
        "/^Total transferred:/ {print $3}",
        "/^Keep-Alive requests:/ {print $3}",
        "/^Requests per second:/ {print $4}",
        "/^Time per request:/ && /\\(mean\\)/ {print $4}",
        "/across all concurrent requests/ {print $4}",
        "/^Transfer rate:/ {print $3}",
        "/^Connect:/ {print $2}",
        "/^Processing:/ {print $3}",
        "/^Waiting:/ {print $4}",
        "/^Total:/ {print $5}",
        "/^ +50%/ {print $2}",
        "/^ +99%/ {print $2}",
        "/^ +100%/ {print $2}",
    ] {
        for report in [&ab, &load] {
            let value = awk(figure, report);
            assert!(value.parse::<f64>().is_ok(), "{figure} finds {value:?} in\n{report}");
        }
    }
}

#[test]
fn formats_agree() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let run = |format| {
        let arguments = ["load", "-n", "3000", "-c", "10", "--format", format, &url];
        let output = workspace.run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        stdout(&output)
    };
    let csv = run("csv");
    let total = csv.lines().nth(1).expect("a row");
    assert!(total.starts_with(&format!("total,{url},,")), "{csv}");
    assert_eq!(total.split(',').nth(5), Some("3000"), "{csv}");
    let hgrm = run("hgrm");
    let last = hgrm.lines().rfind(|line| !line.starts_with('#')).expect("the last step");
    assert_eq!(last.split_whitespace().skip(1).collect::<Vec<_>>(), ["1.000000000000", "3000"]);
    let table = run("table");
    assert!(table.contains("responses       3000 ("), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

/// Fails unless every sent request is counted once.
fn assert_balance(result: &Value) {
    let count = |value: &Value| value.as_u64().expect("a count");
    let failures = result["failures"].as_object().expect("failures");
    let failed: u64 = failures.values().filter_map(Value::as_u64).sum();
    assert_eq!(count(&result["failed"]), failed, "{result}");
    let warm_up = &result["warm_up"];
    let finished = count(&result["responses"]) + failed;
    let before = count(&warm_up["responses"]) + count(&warm_up["failed"]);
    let sent = before + finished + count(&result["in_flight"]);
    assert_eq!(count(&result["sent"]), sent, "{result}");
}

#[test]
fn counts_balance_in_closed_and_open_loops() {
    let workspace = Workspace::exclusive();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let (code, closed) = workspace.load(&["-c", "4", "-d", "500ms", "--warmup", "steady", &url]);
    assert_eq!(code, Some(0));
    assert_balance(&closed);
    assert!(closed["warm_up"]["steady"].is_boolean(), "{closed}");
    assert_eq!(closed["uncorrected_latency"], Value::Null);

    let open = ["-c", "4", "-d", "1s", "--rate", "500", "--poisson", "--expect", "404", &url];
    let (code, open) = workspace.load(&open);
    assert_eq!(code, Some(0), "{open}");
    assert_balance(&open);
    assert_eq!(open["load"]["arrivals"], "poisson");
    assert_eq!(open["unexpected"], open["responses"]);
    assert!(open["uncorrected_latency"]["count"].as_u64() > Some(0), "{open}");
    assert!(open["lateness"]["count"].as_u64() > Some(0), "{open}");
}

#[test]
fn exit_code_is_3_with_unsent_requests() {
    let workspace = Workspace::quiet();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let arguments = ["-c", "1", "-d", "300ms", "--rate", "5000000", &url];
    let (code, result) = workspace.load(&arguments);
    assert_eq!(code, Some(3), "{result}");
    assert!(result["unsent"].as_u64() > Some(100_000), "{result}");
    assert_ne!(result["verdict"]["measured"], "server", "{result}");
}

#[test]
fn load_goes_to_a_unix_socket() {
    let workspace = Workspace::concurrent();
    let path = workspace.path("shop.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 1024];
        let length = stream.read(&mut request).expect("a request");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("a response");
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let path = path.to_str().expect("a name").to_owned();
    let arguments = ["--unix-socket", &path, "-n", "1", "-c", "1", "http://shop.example/a"];
    let (code, result) = workspace.load(&arguments);
    let request = server.join().expect("the server");
    assert!(request.starts_with("GET /a HTTP/1.1\r\nHost: shop.example\r\n"), "{request}");
    assert_eq!((code, &result["responses"]), (Some(0), &Value::from(1)));
    assert_eq!(result["target"], path.as_str());
}

/// Output of a load that is stopped half a second after its first request.
fn stopped(workspace: &Workspace, arguments: &[&str]) -> Output {
    let mut all = vec!["load", "-c", "2", "-d", "60s"];
    all.extend(arguments);
    let child = workspace.start(&all);
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    wait_for_load(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().expect("its output");
    assert_eq!(output.status.code(), Some(130), "{}", show(&output));
    output
}

#[test]
fn stopped_load_prints_its_result() {
    let workspace = Workspace::quiet();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let output = stopped(&workspace, &["--format", "json", &url]);
    let result: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert!(result["responses"].as_u64() > Some(0), "{result}");
    assert!(result["window_s"].as_f64() < Some(30.0), "{result}");
    assert_eq!(result["interrupted"], true);
    assert_eq!(result["load"]["duration_s"], 60.0);
    assert_balance(&result);
}

#[test]
fn load_stopped_during_its_warm_up_prints_its_responses() {
    let workspace = Workspace::quiet();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let output = stopped(&workspace, &["--format", "json", "--warmup", "60s", &url]);
    let result: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let warm_up = &result["warm_up"];
    assert!((0.2..30.0).contains(&warm_up["seconds"].as_f64().expect("seconds")), "{result}");
    assert!(warm_up["responses"].as_u64() > Some(0), "{result}");
    assert_eq!((&result["responses"], &result["window_s"]), (&Value::from(0), &Value::from(0.0)));
    let reason = result["verdict"]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("stopped during the warm-up, after "), "{reason}");
    assert_balance(&result);

    let table = stdout(&stopped(&workspace, &["--warmup", "steady", "--rate", "3", &url]));
    assert!(table.contains("\nwarm-up         "), "{table}");
    assert!(table.contains("\ninterrupted     stopped before its end"), "{table}");
}
