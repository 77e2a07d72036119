//! `tollgate load` against servers that are not ours.

use crate::support::{Workspace, stderr, stdout, told};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;

/// nginx that answers by itself, stopped when dropped.
pub(crate) struct Nginx {
    process: std::process::Child,
    pub(crate) address: String,
    _dir: tempfile::TempDir,
}

impl Nginx {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        drop(listener);
        let path = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr;
            events {{ }}
            http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p;
              fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
              keepalive_requests 100;
              server {{ listen {address};
                location / {{ return 200 'hello'; }}
                location /missing {{ return 404; }} }} }}"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).expect("a config");
        let process = std::process::Command::new("/usr/sbin/nginx")
            .args(["-e", "stderr", "-p"])
            .arg(dir.path())
            .arg("-c")
            .arg(dir.path().join("nginx.conf"))
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("nginx; to install it: scripts/setup");
        let up = || std::net::TcpStream::connect(&address).is_ok();
        assert!(crate::support::wait_until(std::time::Duration::from_secs(10), up));
        Self { process, address, _dir: dir }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.process.kill().expect("nginx was running");
        self.process.wait().expect("nginx has ended");
    }
}

#[test]
fn every_request_to_nginx_is_answered_with_keep_alive_and_without() {
    let workspace = Workspace::new();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    // nginx closes a connection after 100 requests, so 10 of them do not last for 5,000.
    let (code, result) = workspace.load(&[&url, "-c", "10", "-n", "5000"]);
    assert_eq!(code, Some(0));
    assert_eq!(result["answered"], 5000);
    assert_eq!(result["statuses"]["200"], 5000);
    assert!(result["connects"].as_u64() >= Some(50), "{result}");
    assert_eq!(result["errors"]["closed_early"], 0);
    assert!(result["latency"]["quantiles"]["p50_ms"].as_f64() > Some(0.0));

    let (code, result) = workspace.load(&[&url, "-c", "10", "-n", "1000", "--no-keepalive"]);
    assert_eq!((code, &result["answered"]), (Some(0), &Value::from(1000)));
    assert_eq!(result["connects"], 1000);

    let missing = format!("{url}missing");
    let (_, result) = workspace.load(&[&missing, "-c", "2", "-t", "2", "-d", "300ms"]);
    assert_eq!(result["statuses"]["404"], result["answered"]);
    let window = result["window_s"].as_f64().expect("a window");
    assert!((0.29..0.6).contains(&window), "{window}");
}

#[test]
fn more_connections_than_the_soft_limit_of_files_are_opened() {
    let workspace = Workspace::beside_others();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let mut command = std::process::Command::new("sh");
    let script = r#"ulimit -Sn 64; exec "$0" load --format json -c 200 -n 2000 "$1""#;
    command.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin!("tollgate")).arg(&url);
    let output = command.output().expect("a shell");
    let result: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(result["answered"], 2000, "{}", told(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn where_nothing_answers_the_code_says_so() {
    let workspace = Workspace::beside_others();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (code, result) = workspace.load(&[&format!("http://{address}/"), "-c", "2", "-d", "300ms"]);
    assert_eq!(code, Some(4));
    assert_eq!(result["answered"], 0);
    assert!(result["errors"]["refused"].as_u64() > Some(0), "{result}");
}

#[test]
fn an_answer_that_is_not_http_is_counted_as_such() {
    let workspace = Workspace::beside_others();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 1024];
        let read = stream.read(&mut request).expect("a request");
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").expect("an answer");
        read
    });
    let (code, result) = workspace.load(&[&format!("http://{address}/"), "-c", "1", "-n", "1"]);
    assert!(server.join().expect("the server") > 0);
    assert_eq!(code, Some(4));
    assert_eq!(result["errors"]["malformed"], 1, "{result}");
}

#[test]
fn without_a_warm_up_the_first_request_is_measured() {
    let workspace = Workspace::beside_others();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let (_, result) = workspace.load(&[&url, "-c", "10", "-d", "300ms", "--no-keepalive"]);
    let count = |name: &str| result[name].as_u64().expect("a count");
    assert_eq!(result["warm_up"]["answered"], 0);
    assert_eq!(count("sent"), count("answered") + count("unanswered"), "{result}");
    // Each answer came on a connection of its own, and none was opened before the window.
    assert!(count("connects") >= count("answered"), "{result}");
}

#[test]
fn connections_that_a_server_leaves_open_are_cut_off_and_told() {
    let workspace = Workspace::beside_others();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        // All three are kept until the end, and never closed by this side.
        [(); 3].map(|()| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).expect("a request") > 0);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("an answer");
            stream
        })
    });
    let url = format!("http://{address}/");
    let arguments = ["load", &url, "-c", "1", "-n", "3", "--no-keepalive"];
    let table = stdout(&workspace.run(&arguments));
    drop(server.join().expect("the server"));
    // The load ends with the third answer, and its connection with it.
    assert!(table.contains("\ncut off         2 connections that the server left open"), "{table}");
}

#[test]
fn what_cannot_be_is_told_before_the_start() {
    let workspace = Workspace::beside_others();
    workspace.write("file", "");
    workspace.write("odd.toml", "title = 1");
    let url = "http://127.0.0.1:1/";
    for (arguments, why) in [
        (&[url, "-n", "0"][..], "'0' for '--requests <N>': it has to be a whole number from 1"),
        (&[url, "-d", "1s", "--rate", "5k"], "it has to be a number above 0 and at most 10000000"),
        (&[url, "-d", "-1s"], "it has to be a time with its unit"),
        (&[url, "-d", "1s", "--timeout", "0"], "it has to be above 0 and at most 1h"),
        (&[url, "-d", "1s", "--host", ""], "it has to be a host, such as shop.example"),
        (&[url, "-n", "1", "--cpus", ""], "it has to be a list of numbers and ranges"),
        (&[url, "-n", "1", "--cpus", "999"], "--cpus names CPU 999; this process may run on 0"),
        (&[url, "-n", "1", "--unix-socket", "none"], "--unix-socket none: No such file"),
        (&[url, "-n", "1", "--unix-socket", "file"], "--unix-socket file: this is not a socket"),
        (&[url, "-n", "1", "--mix", "./odd.toml"], "./odd.toml:1:9:"),
        (&["http://a:b@127.0.0.1/", "-n", "1"], "a user and password are not sent from the URL"),
        (&["http://127.0.0.1/#top", "-n", "1"], "leave out `#top`"),
    ] {
        let mut all = vec!["load"];
        all.extend(arguments);
        let output = workspace.run(&all);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", told(&output));
        assert!(stderr(&output).contains(why), "{arguments:?}: {}", told(&output));
        assert!(!stderr(&output).contains("././"), "{}", told(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn more_connections_than_files_may_be_open_are_refused() {
    let script = r#"ulimit -n 60; exec "$0" load -c 50 -n 100 http://127.0.0.1:1/"#;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin!("tollgate"));
    let output = command.output().expect("a shell");
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    let why = "-c 50 needs 70 open files, and the limit is 60: raise it with `ulimit -n`";
    assert!(stderr(&output).contains(why), "{}", told(&output));
}

#[test]
fn a_result_that_cannot_be_written_says_so() {
    let workspace = Workspace::beside_others();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = workspace.command(&["load", "-n", "1", "-c", "1", &url]).stdout(full).output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(
        stderr(&output).contains("tollgate: writing to standard output: No space left"),
        "{}",
        told(&output)
    );
}

#[test]
fn a_server_that_never_answers_is_not_waited_for_until_it_is_steady() {
    let workspace = Workspace::beside_others();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let url = format!("http://{address}/");
    let (code, result) =
        workspace.load(&[&url, "-c", "1", "-d", "100ms", "--warmup", "steady", "--timeout", "1m"]);
    assert_eq!((code, &result["warm_up"]["steady"]), (Some(4), &Value::from(false)), "{result}");
    // Silence is given up after five seconds, a warm-up with answers after thirty.
    let seconds = result["warm_up"]["seconds"].as_f64().expect("seconds");
    assert!((5.0..15.0).contains(&seconds), "{result}");
}
