//! `tollgate load` against servers that are not ours.

use crate::support::{Workspace, stdout, told};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;

fn load(workspace: &Workspace, arguments: &[&str]) -> (Option<i32>, Value) {
    let mut all = vec!["load", "--format", "json"];
    all.extend(arguments);
    let output = workspace.run(&all);
    let result = serde_json::from_str(&stdout(&output));
    (output.status.code(), result.unwrap_or_else(|error| panic!("{error}: {}", told(&output))))
}

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
    let (code, result) = load(&workspace, &[&url, "-c", "10", "-n", "5000"]);
    assert_eq!(code, Some(0));
    assert_eq!(result["answered"], 5000);
    assert_eq!(result["statuses"]["200"], 5000);
    assert!(result["connects"].as_u64() >= Some(50), "{result}");
    assert_eq!(result["errors"]["closed_early"], 0);
    assert!(result["latency"]["quantiles"]["p50_ms"].as_f64() > Some(0.0));

    let (code, result) = load(&workspace, &[&url, "-c", "10", "-n", "1000", "--no-keepalive"]);
    assert_eq!((code, &result["answered"]), (Some(0), &Value::from(1000)));
    assert_eq!(result["connects"], 1000);

    let missing = format!("{url}missing");
    let (_, result) = load(&workspace, &[&missing, "-c", "2", "-t", "2", "-d", "300ms"]);
    assert_eq!(result["statuses"]["404"], result["answered"]);
    let window = result["window_s"].as_f64().expect("a window");
    assert!((0.29..0.6).contains(&window), "{window}");
}

#[test]
fn more_connections_than_the_soft_limit_of_files_are_opened() {
    let workspace = Workspace::new();
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
    let workspace = Workspace::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (code, result) =
        load(&workspace, &[&format!("http://{address}/"), "-c", "2", "-d", "300ms"]);
    assert_eq!(code, Some(4));
    assert_eq!(result["answered"], 0);
    assert!(result["errors"]["refused"].as_u64() > Some(0), "{result}");
}

#[test]
fn an_answer_that_is_not_http_is_counted_as_such() {
    let workspace = Workspace::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 1024];
        let read = stream.read(&mut request).expect("a request");
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").expect("an answer");
        read
    });
    let (code, result) = load(&workspace, &[&format!("http://{address}/"), "-c", "1", "-n", "1"]);
    assert!(server.join().expect("the server") > 0);
    assert_eq!(code, Some(4));
    assert_eq!(result["errors"]["malformed"], 1, "{result}");
}
