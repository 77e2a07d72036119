//! `tollgate load` against other servers.

use crate::foreign_server::ForeignServer;
use crate::support::{Workspace, flat, show, stderr, stdout};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// nginx with static responses, stopped when dropped.
pub(crate) struct Nginx {
    _server: ForeignServer,
    pub(crate) address: String,
    http2_address: String,
    https_port: u16,
    _dir: tempfile::TempDir,
}

impl Nginx {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let addresses = listeners.each_ref().map(|one| one.local_addr().expect("an address"));
        drop(listeners);
        let [address, http2_address, _] = addresses.map(|address| address.to_string());
        let https_port = addresses[2].port();
        let certificate = certificate("pem");
        let key = certificate.with_extension("key");
        let (certificate, key) = (certificate.display(), key.display());
        let path = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr;
            events {{ }}
            http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p;
              fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
              keepalive_requests 100;
              server {{ listen {address}; listen {http2_address} http2;
                listen localhost:{https_port} ssl http2; ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;
                location / {{ return 200 'hello'; }}
                location /missing {{ return 404; }} }} }}"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).expect("a config");
        let mut command = Command::new("/usr/sbin/nginx");
        command.args(["-e", "stderr", "-p"]).arg(dir.path());
        command.arg("-c").arg(dir.path().join("nginx.conf"));
        let server = ForeignServer::start(&mut command, addresses[0].port(), String::new);
        Self { _server: server, address, http2_address, https_port, _dir: dir }
    }
}

/// Self-signed certificate for `localhost` of the tests of the gateway.
fn certificate(extension: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.join("../gateway/tests/gateway/certificates/site").with_extension(extension)
}

#[test]
fn nginx_responds_to_every_request_with_and_without_keep_alive() {
    let workspace = Workspace::quiet();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    // nginx closes a connection after 100 requests, so 10 connections are not enough for 5,000.
    let (code, result) = workspace.load(&[&url, "-c", "10", "-n", "5000"]);
    assert_eq!(code, Some(0));
    assert_eq!(result["responses"], 5000);
    assert_eq!(result["statuses"]["200"], 5000);
    assert!(result["connects"].as_u64() >= Some(50), "{result}");
    assert_eq!(result["failures"]["closed_early"], 0);
    assert!(result["latency"]["quantiles"]["p50_ms"].as_f64() > Some(0.0));

    let (code, result) = workspace.load(&[&url, "-c", "10", "-n", "1000", "--no-keepalive"]);
    assert_eq!((code, &result["responses"]), (Some(0), &Value::from(1000)));
    assert_eq!(result["connects"], 1000);

    let missing = format!("{url}missing");
    let (_, result) = workspace.load(&[&missing, "-c", "2", "-t", "2", "-d", "300ms"]);
    assert_eq!(result["statuses"]["404"], result["responses"]);
    assert!(result["window_s"].as_f64() >= Some(0.29), "{result}");
}

#[test]
fn figures_over_time_are_those_of_the_result() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let dir = tempfile::tempdir().expect("a folder");
    let [series, page] = ["series.csv", "page.html"].map(|name| dir.path().join(name));
    let name = |path: &Path| path.to_str().expect("a name").to_owned();
    let (code, result) = workspace.load(&[
        &url,
        "-c",
        "4",
        "--rate",
        "100..900/500ms,900/500ms",
        "--series",
        &name(&series),
        "--series-interval",
        "100ms",
        "--html",
        &name(&page),
    ]);
    assert_eq!(code, Some(0), "{result}");
    // 250 and 450 requests; the last ones may be in flight at the end.
    let due =
        result["sent"].as_u64().expect("a count") + result["unsent"].as_u64().expect("a count");
    assert!((699..=700).contains(&due), "{result}");
    assert_eq!(result["load"]["stages"][0]["to_per_s"], 900.0);
    let text = std::fs::read_to_string(&series).expect("a series");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let column = header.iter().position(|name| *name == "responses").expect("a column");
    let responses: Vec<u64> = lines.map(|line| line[column].parse().expect("a count")).collect();
    assert!(responses.len() >= 10, "{text}");
    assert_eq!(responses.iter().sum::<u64>(), result["responses"].as_u64().expect("a count"));
    let page = std::fs::read_to_string(&page).expect("a page");
    assert_eq!(page.matches("data-plot=").count(), 4, "{page}");
    assert!(!page.contains("<script") && page.contains("--rate 100..900"), "{page}");
}

#[test]
fn handshakes_are_counted_alone() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("https://localhost:{}/", nginx.https_port);
    for (options, resumed) in [(&[][..], 0), (&["--tls-resume"], 290)] {
        let all = ["--insecure", "--handshakes", "-c", "2", "-n", "300", "--html", "page.html"];
        let (code, result) = workspace.load(&[&[url.as_str()], &all[..], options].concat());
        assert_eq!(code, Some(0), "{result}");
        assert_eq!((&result["responses"], &result["failed"]), (&300.into(), &0.into()), "{result}");
        assert_eq!(result["handshake_time"]["count"], 300);
        let seen = result["resumed_handshakes"].as_u64().expect("a count");
        assert!(seen >= resumed && (resumed > 0 || seen == 0), "{result}");
        assert_eq!(
            (&result["force_closed"], &result["load"]["handshakes"]),
            (&0.into(), &true.into())
        );
        assert!(result["responses_per_cpu_s"].as_f64() > Some(0.0), "{result}");
        assert!(workspace.read("page.html").contains(" handshakes per second"));
    }
    let plain = format!("http://{}/", nginx.address);
    let output = workspace.run(&["load", &plain, "--handshakes"]);
    assert!(stderr(&output).contains("--handshakes needs a URL with https"), "{}", show(&output));
}

#[test]
fn nginx_responds_to_every_request_over_http2() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.http2_address);
    // nginx sends GOAWAY after 100 requests.
    for options in [&["-c", "10", "--streams", "10"][..], &["--rate", "20000", "--streams", "4"]] {
        let all = [&[&url, "--http", "2", "--expect", "200", "-n", "5000"][..], options].concat();
        let (code, result) = workspace.load(&all);
        assert_eq!((code, &result["load"]["protocol"]), (Some(0), &Value::from("2")));
        assert_eq!(result["responses"], 5000, "{result}");
        assert_eq!(result["statuses"]["200"], 5000);
        assert_eq!((&result["unexpected"], &result["failed"]), (&0.into(), &0.into()), "{result}");
        assert_eq!(result["body_bytes"], 5 * 5000);
        assert!(result["connects"].as_u64() >= Some(50), "{result}");
        assert_eq!(result["streams_max"], 128);
    }
    let http1 = format!("http://{}/", nginx.address);
    let (code, result) = workspace.load(&[&http1, "--http", "2", "-c", "1", "-n", "1"]);
    let reason = &result["failures"]["malformed_example"];
    assert!(reason.as_str().expect("a reason").starts_with("the server responds in HTTP/1.1"));
    assert_eq!(code, Some(4));
}

#[test]
fn nginx_responds_to_every_request_over_tls() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("https://localhost:{}/", nginx.https_port);
    let authority = certificate("pem");
    let authority = authority.to_str().expect("a name");
    for (options, protocol) in [
        (&["--cacert", authority, "-n", "2000", "-c", "4"][..], "1.1"),
        (&["--insecure", "-n", "2000", "-c", "4", "--http", "auto", "--streams", "5"], "2"),
        (&["--insecure", "-n", "200", "-c", "2", "--tls", "1.2", "--rate", "1000"], "1.1"),
        (
            &[
                "--insecure",
                "-n",
                "100",
                "-c",
                "2",
                "--no-keepalive",
                "--tls-resume",
                "--http",
                "auto",
            ],
            "1.1",
        ),
    ] {
        let (code, result) = workspace.load(&[&[url.as_str()], options].concat());
        assert_eq!(code, Some(0), "{options:?}: {result}");
        assert_eq!(result["load"]["protocol"], protocol);
        assert_eq!(result["statuses"]["200"], result["sent"], "{options:?}: {result}");
        let version = if options.contains(&"1.2") { "TLSv1.2 " } else { "TLSv1.3 " };
        assert!(result["tls"].as_str().is_some_and(|tls| tls.starts_with(version)), "{result}");
        assert_eq!(result["handshake_time"]["count"], result["connects"]);
        let is_resumed = result["resumed_handshakes"].as_u64() > Some(0);
        assert_eq!(is_resumed, options.contains(&"--tls-resume"), "{result}");
    }
    for (options, reason) in [
        (
            &[][..],
            "no trusted authority has issued the certificate of the peer; trust it or its authority with --cacert FILE, or \
             skip the check with --insecure",
        ),
        (
            &["--cacert", "/nowhere"],
            "--cacert /nowhere: cannot read the certificates of authorities",
        ),
    ] {
        let output = workspace.run(&[&["load", &url, "-n", "1"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{}", show(&output));
        assert!(flat(&stderr(&output)).contains(reason), "{}", show(&output));
    }
    let output = workspace.run(&["load", &format!("https://{}/", nginx.address), "-n", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    let reason = "the server does not speak TLS";
    assert!(flat(&stderr(&output)).contains(reason), "{}", show(&output));
}

#[test]
fn soft_limit_of_open_files_is_raised() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let mut command = Command::new("sh");
    let script = r#"ulimit -Sn 64; exec "$0" load --format json -c 200 -n 2000 "$1""#;
    command.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin!("tollgate")).arg(&url);
    let output = command.output().expect("a shell");
    let result: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(result["responses"], 2000, "{}", show(&output));
    workspace.assert_nothing_runs();
}

#[test]
fn exit_code_is_4_without_a_response() {
    let workspace = Workspace::concurrent();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let (code, result) = workspace.load(&[&format!("http://{address}/"), "-c", "2", "-d", "300ms"]);
    assert_eq!(code, Some(4));
    assert_eq!(result["responses"], 0);
    assert!(result["failures"]["refused"].as_u64() > Some(0), "{result}");
}

#[test]
fn non_http_response_is_malformed() {
    let workspace = Workspace::concurrent();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 1024];
        let read = stream.read(&mut request).expect("a request");
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").expect("a response");
        read
    });
    let (code, result) = workspace.load(&[&format!("http://{address}/"), "-c", "1", "-n", "1"]);
    assert!(server.join().expect("the server") > 0);
    assert_eq!(code, Some(4));
    assert_eq!(result["failures"]["malformed"], 1, "{result}");
}

#[test]
fn first_request_is_measured_without_a_warm_up() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let (_, result) = workspace.load(&[&url, "-c", "10", "-d", "300ms", "--no-keepalive"]);
    let count = |name: &str| result[name].as_u64().expect("a count");
    assert_eq!(result["warm_up"]["responses"], 0);
    assert_eq!(count("sent"), count("responses") + count("in_flight"), "{result}");
    // Each response has a connection of its own, and none was opened before the window.
    assert!(count("connects") >= count("responses"), "{result}");
}

#[test]
fn duration_starts_when_the_first_requests_are_sent() {
    let workspace = Workspace::concurrent();
    for warm_up in [&[][..], &["--warmup", "100ms"]] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        // Nothing accepts, and the queue has room for two connections.
        rustix::net::listen(&listener, 1).expect("a shorter queue");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let arguments = [&[&url, "-c", "8", "-d", "300ms"], warm_up].concat();
        let (code, result) = workspace.load(&arguments);
        assert_eq!(code, Some(4));
        assert_eq!(result["connects"], 2, "{result}");
        assert!(result["window_s"].as_f64() >= Some(0.3), "{result}");
    }
}

#[test]
fn connections_left_open_by_the_server_are_force_closed() {
    let workspace = Workspace::concurrent();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        // All three stay open until the end.
        [(); 3].map(|()| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).expect("a request") > 0);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("a response");
            stream
        })
    });
    let url = format!("http://{address}/");
    // A second between the requests: five times as long as the server may take to close.
    let arguments = ["load", &url, "-c", "1", "-n", "3", "--rate", "1", "--no-keepalive"];
    let table = stdout(&workspace.run(&arguments));
    drop(server.join().expect("the server"));
    // The load ends with the third response, and its connection with it.
    let line = "\nforce-closed    2 connections that the server left open";
    assert!(table.contains(line), "{table}");
}

#[test]
fn invalid_arguments_are_rejected_before_the_start() {
    let workspace = Workspace::concurrent();
    workspace.write("file", "");
    workspace.write("odd.toml", "title = 1");
    let url = "http://127.0.0.1:1/";
    for (arguments, reason) in [
        (&[url, "-n", "0"][..], "'0' for '--requests <N>'"),
        (&[url, "-d", "1s", "--rate", "5t"], "expected a number above 0 and at most 10000000"),
        (&[url, "-d", "-1s"], "expected a time such as 500ms"),
        (&[url, "-d", "1s", "--timeout", "0"], "expected a time above 0 and at most 1h"),
        (&[url, "-d", "1s", "--host", ""], "expected a host such as shop.example"),
        (&[url, "-n", "1", "--cpus", ""], "expected numbers up to 1023 and ranges"),
        (
            &[url, "-n", "1", "--cpus", "999"],
            "CPU 999 is not available to this process, choose from 0",
        ),
        (&[url, "-n", "1", "--unix-socket", "none"], "--unix-socket none: No such file"),
        (&[url, "-n", "1", "--unix-socket", "file"], "--unix-socket file: not a socket"),
        (&[url, "-n", "1", "--mix", "./odd.toml"], "./odd.toml:1:9:"),
        (&["http://a:b@127.0.0.1/", "-n", "1"], "user and password are not supported"),
        (&["http://127.0.0.1/#top", "-n", "1"], "remove `#top`"),
    ] {
        let mut all = vec!["load"];
        all.extend(arguments);
        let output = workspace.run(&all);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", show(&output));
        assert!(stderr(&output).contains(reason), "{arguments:?}: {}", show(&output));
        assert!(!stderr(&output).contains("././"), "{}", show(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn more_connections_than_the_hard_limit_of_open_files_are_rejected() {
    let script = r#"ulimit -n 60; exec "$0" load -c 50 -n 100 http://127.0.0.1:1/"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin!("tollgate"));
    let output = command.output().expect("a shell");
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    let reason = "-c 50 needs 87 open files, but the limit is 60: raise it with `ulimit -n`";
    assert!(stderr(&output).contains(reason), "{}", show(&output));
}

#[test]
fn full_disk_fails_the_output_of_the_result() {
    let workspace = Workspace::concurrent();
    let nginx = Nginx::start();
    let url = format!("http://{}/", nginx.address);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let options = ["-n", "1", "-c", "1", "--series", "s.jsonl", "--html", "page.html"];
    let output = workspace.command(&[&["load", &url], &options[..]].concat()).stdout(full).output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(
        stderr(&output).contains("tollgate: cannot write to standard output: No space left"),
        "{}",
        show(&output)
    );
    // The other outputs are complete.
    assert!(workspace.read("s.jsonl").contains("\"responses\":1,"));
    assert!(workspace.read("page.html").contains("Load of http"));
}

#[test]
fn warm_up_ends_after_five_seconds_without_a_response() {
    let workspace = Workspace::concurrent();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let url = format!("http://{address}/");
    let (code, result) =
        workspace.load(&[&url, "-c", "1", "-d", "100ms", "--warmup", "steady", "--timeout", "1m"]);
    assert_eq!((code, &result["warm_up"]["steady"]), (Some(4), &Value::from(false)), "{result}");
    // With responses it would take up to thirty seconds.
    let seconds = result["warm_up"]["seconds"].as_f64().expect("seconds");
    assert!((5.0..25.0).contains(&seconds), "{result}");
}
