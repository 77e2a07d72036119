//! The access log and `/metrics`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{AccessLog, LogFormat, LogTarget, Pool, PoolId, Route};

use crate::support::{
    Backend, GET, OK, TestGateway, ThreadedBackend, closed_port, config, config_backends, poll,
};

/// Timeouts that are reached.
const SHORT: Duration = Duration::from_millis(300);

/// The reasons in an access log in JSON.
fn reasons(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter_map(|entry| Some(entry.get("reason")?.as_str()?.to_owned())).collect()
}

#[test]
fn reason_of_each_local_response_is_logged() {
    const HEAD: &str = "HTTP/1.1\r\nHost: a\r\n";
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let refusing = closed_port();
    let backend = ThreadedBackend::responding(|path| match path {
        "/in/silent" => Vec::new(),
        _ => b"HTTP/1.1 what\r\n\r\n".to_vec(),
    });
    let mut config = config(&[backend.addr()]);
    config.pools.push(Pool::new("refusing", config_backends(&[refusing])));
    config.routes[0].path_prefix = "/in".to_owned();
    config.routes.push(Route { path_prefix: "/refused".to_owned(), ..Route::all_to(PoolId(1)) });
    config.limits.body_bytes = Some(5);
    config.limits.headers = 20;
    config.limits.header_bytes = 1024;
    config.timeouts.header = SHORT;
    config.timeouts.body = SHORT;
    config.timeouts.response = SHORT;
    config.access_log = Some(AccessLog { format: LogFormat::Json, ..log_to(&log).unwrap() });
    let gateway = TestGateway::start(&config);
    let (long, many) = ("a".repeat(2_000), "X: y\r\n".repeat(30));
    let cases = [
        (400, "syntax", "GET /\r\n\r\n".to_owned()),
        (400, "bare-lf", "GET /in HTTP/1.1\nHost: a\r\n\r\n".to_owned()),
        (400, "host", "GET /in HTTP/1.1\r\n\r\n".to_owned()),
        (400, "target", format!("GET in {HEAD}\r\n")),
        (400, "target", format!("GET /in#a {HEAD}\r\n")),
        (400, "content-length", format!("GET /in {HEAD}Content-Length: +1\r\n\r\n")),
        (
            400,
            "transfer-encoding",
            "GET /in HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        ),
        (
            400,
            "two-framings",
            format!("GET /in {HEAD}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ),
        (400, "chunk", format!("POST /in {HEAD}Transfer-Encoding: chunked\r\n\r\nx\r\n")),
        (400, "max-forwards", format!("OPTIONS /in {HEAD}Max-Forwards: x\r\n\r\n")),
        (400, "ambiguous-path", format!("GET /in/..%2Frefused {HEAD}\r\n")),
        (400, "tls-on-plain-port", "\x16\x03\x01\x02\0\x01".to_owned()),
        (404, "no-route", format!("GET /out {HEAD}\r\n")),
        (405, "trace", format!("TRACE /in {HEAD}\r\n")),
        (408, "head-timeout", format!("GET /in {HEAD}")),
        (408, "body-timeout", format!("POST /in/silent {HEAD}Content-Length: 2\r\n\r\na")),
        (413, "body-too-large", format!("POST /in {HEAD}Content-Length: 6\r\n\r\n")),
        (414, "target-too-long", format!("GET /in/{long} {HEAD}\r\n")),
        (417, "expectation", format!("GET /in {HEAD}Expect: x\r\n\r\n")),
        (431, "head-too-large", format!("GET /in {HEAD}A: {long}\r\n\r\n")),
        (431, "too-many-headers", format!("GET /in {HEAD}{many}\r\n")),
        (501, "connect", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_owned()),
        (501, "unknown-coding", format!("GET /in {HEAD}Transfer-Encoding: cow, chunked\r\n\r\n")),
        (502, "connect-failed", format!("GET /refused {HEAD}\r\n")),
        (502, "invalid-response", format!("GET /in {HEAD}\r\n")),
        (504, "response-timeout", format!("GET /in/silent {HEAD}\r\n")),
        (505, "version", "GET /in HTTP/2.0\r\n\r\n".to_owned()),
    ];
    for (status, reason, request) in &cases {
        let mut client = gateway.client();
        client.send(request);
        assert_eq!(client.response().unwrap().status, *status, "{reason}");
        client.finish();
        client.expect_closed();
    }
    // The client ends its sending side within the body.
    let mut client = gateway.client();
    client.send(format!("POST /in/silent {HEAD}Content-Length: 2\r\n\r\na"));
    client.finish();
    client.expect_local_response(400);
    client.expect_closed();
    gateway.expect_metric("client_connections", 0);
    let expected: Vec<&str> =
        cases.iter().map(|(_, reason, _)| *reason).chain(["truncated-body"]).collect();
    assert_eq!(reasons(&log), expected);
}

/// The status, the end and the path of the entries of an access log in JSON.
fn ends(log: &Path) -> Vec<(u64, String, String)> {
    let text = fs::read_to_string(log).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let word = |entry: &Value, key| entry[key].as_str().unwrap().to_owned();
    entries
        .map(|entry| {
            (entry["status"].as_u64().unwrap(), word(&entry, "end"), word(&entry, "target"))
        })
        .collect()
}

#[test]
fn end_of_each_response_is_logged_and_counted() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nDate: d\r\n";
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.timeouts.body = SHORT;
    config.access_log = Some(AccessLog { format: LogFormat::Json, ..log_to(&log).unwrap() });
    let gateway = TestGateway::start(&config);
    let cases = [
        ("complete", "Content-Length: 2\r\n\r\nhi"),
        ("stalled", "Content-Length: 5\r\n\r\nab"),
        ("broken-off", "Content-Length: 5\r\n\r\nab"),
        ("malformed", "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"),
        ("client-closed", "Content-Length: 5\r\n\r\nab"),
    ];
    for (end, response) in cases {
        let mut client = gateway.client();
        client.send(format!("GET /{end} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        let mut upstream = backend.accept();
        upstream.head().unwrap();
        upstream.send(format!("{HEAD}{response}"));
        client.head().unwrap();
        client.read(1);
        match end {
            "malformed" => upstream.send("x"),
            "broken-off" => drop(upstream),
            "client-closed" => client.reset(),
            _ => {}
        }
        let labels = format!("{{pool=\"default\",end=\"{end}\"}}");
        if end != "complete" {
            gateway.expect_metric(&format!("responses_interrupted_total{labels}"), 1);
        }
        gateway.expect_metric("client_connections", 0);
    }
    let mut expected: Vec<(u64, String, String)> =
        cases.iter().map(|(end, _)| (200, (*end).to_owned(), format!("/{end}"))).collect();
    // A client that leaves before its response.
    let mut client = gateway.client();
    client.send("GET /early HTTP/1.1\r\nHost: x\r\n\r\n");
    let _upstream = backend.accept();
    client.reset();
    gateway.expect_metric("client_connections", 0);
    expected.push((499, "client-closed".to_owned(), "/early".to_owned()));
    assert_eq!(ends(&log), expected);
}

#[test]
fn reason_is_the_last_field_of_the_combined_format() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let mut config = config(&[closed_port()]);
    config.access_log = log_to(&log);
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send(GET);
    let length = client.expect_local_response(502).body.len();
    drop(client);
    gateway.expect_metric("client_connections", 0);
    let text = fs::read_to_string(&log).unwrap();
    let end = format!("\"GET /a HTTP/1.1\" 502 {length} \"-\" \"-\" \"connect-failed\"\n");
    assert!(text.ends_with(&end), "{text}");
}

#[test]
fn durations_of_requests_and_backends_are_in_the_metrics() {
    const DELAY: Duration = Duration::from_millis(30);
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    // A response time above the first buckets needs a slow backend.
    std::thread::sleep(DELAY);
    upstream.send(OK);
    client.expect(OK);
    client.send(GET);
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
    for name in ["request_duration_seconds", "upstream_duration_seconds"] {
        gateway.expect_metric(&format!("{name}_count{{pool=\"default\"}}"), 2);
        let bucket = |bound| format!("{name}_bucket{{pool=\"default\",le=\"{bound}\"}}");
        assert!(gateway.metric(&bucket("0.025")) <= 1);
        assert_eq!(gateway.metric(&bucket("+Inf")), 2);
    }
    let page = gateway.admin("/metrics");
    let sample = |name: &str| {
        let value = page.text().lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no {name}")).trim().parse::<f64>().unwrap()
    };
    let sum = sample("tollgate_gateway_upstream_duration_seconds_sum{pool=\"default\"}");
    assert!(sum >= DELAY.as_secs_f64(), "{sum}");
    assert!(sample("process_open_fds") >= 3.0 && sample("process_start_time_seconds") > 1e9);
}

fn log_to(path: &Path) -> Option<AccessLog> {
    Some(AccessLog { to: LogTarget::File(path.to_owned()), format: LogFormat::Combined })
}

#[test]
fn every_response_is_counted_and_logged() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.access_log = log_to(&log);
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    let mut upstream = None;
    // The second header section is found in the cache.
    for _ in 0..2 {
        client.send("GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: me\r\n\r\n");
        let upstream = upstream.get_or_insert_with(|| backend.accept());
        upstream.head().unwrap();
        upstream.send(OK);
        client.expect(OK);
    }
    let mut invalid = gateway.client();
    invalid.send("GET /\r\n\r\n");
    let rejection = invalid.expect_local_response(400);
    invalid.finish();
    invalid.expect_closed();
    gateway.expect_metric("local_responses_total{status=\"400\"}", 1);
    gateway.expect_metric("client_connections_total", 2);
    gateway.expect_metric("responses_total{pool=\"default\",class=\"2xx\"}", 2);
    let of_backend = format!("{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    gateway.expect_metric(&format!("backend_requests_total{of_backend}"), 2);
    gateway.expect_metric(&format!("backend_connections{of_backend}"), 1);
    gateway.expect_metric("client_connections", 1);
    let sent_bytes = 2 * OK.len() + rejection.head.len() + rejection.body.len();
    gateway.expect_metric("client_sent_bytes_total", sent_bytes as u64);
    let text = wait_for_lines(&log, 3);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[..2] {
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert!(line.ends_with("] \"GET /a HTTP/1.1\" 200 2 \"-\" \"me\""), "{line}");
    }
    let end = format!("] \"\" 400 {} \"-\" \"-\" \"syntax\"", rejection.body.len());
    assert!(lines[2].ends_with(&end), "{text}");
}

/// Returns the text of a log once it has a number of lines.
fn wait_for_lines(log: &Path, count: usize) -> String {
    poll(|| {
        let text = fs::read_to_string(log).unwrap();
        if text.lines().count() == count { Ok(text) } else { Err(text) }
    })
}

/// Starts a gateway with the route `/in` and an access log. The tests reach no backend.
fn gateway_with_one_path(log: &Path) -> TestGateway {
    let mut config = config(&[closed_port()]);
    config.routes[0].path_prefix = "/in".to_owned();
    config.access_log = log_to(log);
    TestGateway::start(&config)
}

#[test]
fn refused_requests_are_logged_as_far_as_they_are_valid() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let gateway = gateway_with_one_path(&log);
    let long = format!("GET /in HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(70_000));
    for (request, status, logged) in [
        (
            "GET /in%2Fx HTTP/1.1\r\nHost: x\r\nUser-Agent: me\r\n\r\n",
            400,
            "\"GET /in%2Fx HTTP/1.1\" 400 39 \"-\" \"me\" \"ambiguous-path\"",
        ),
        (
            "\r\nPUT /in HTTP/1.1\r\nHost: a b\r\n\r\n",
            400,
            "\"PUT /in HTTP/1.1\" 400 39 \"-\" \"-\" \"host\"",
        ),
        (&long, 431, "\"GET /in HTTP/1.1\" 431 "),
        ("GET /in HTTP/1.2 x\r\n\r\n", 400, "] \"\" 400 "),
    ] {
        let mut client = gateway.client();
        client.try_send(request).ok();
        client.expect_local_response(status);
        poll(|| {
            let text = fs::read_to_string(&log).unwrap();
            text.contains(logged).then_some(()).ok_or_else(|| format!("{logged}: {text}"))
        });
    }
}

#[test]
fn log_line_of_a_local_response_has_the_length_of_its_body() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("access.log");
    let gateway = gateway_with_one_path(&log);
    let mut client = gateway.client();
    client.send(GET.replace("GET", "HEAD"));
    client.head().unwrap();
    client.send(GET);
    let length = client.expect_local_response(404).body.len();
    client.finish();
    client.expect_closed();
    gateway.expect_metric("client_connections", 0);
    let text = wait_for_lines(&log, 2);
    assert!(text.contains("\"HEAD /a HTTP/1.1\" 404 0 "), "{text}");
    assert!(text.contains(&format!("\"GET /a HTTP/1.1\" 404 {length} ")), "{text}");
}

#[test]
fn slow_reader_of_the_access_log_delays_no_request_and_lost_lines_are_counted() {
    const REQUESTS: usize = 1_000;
    let (reader, writer) = std::io::pipe().unwrap();
    let pipe = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.routes[0].path_prefix = "/in".to_owned();
    config.access_log = log_to(&pipe);
    let gateway = TestGateway::start(&config);
    drop(writer);
    let mut client = gateway.client();
    let agent = "a".repeat(8_000);
    for number in 0..REQUESTS {
        client.send(format!("HEAD /{number} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n"));
        assert!(client.head().unwrap().starts_with("HTTP/1.1 404 "));
    }
    // The last line is counted before the end of its connection.
    drop(client);
    gateway.expect_metric("client_connections", 0);
    let lost = gateway.metric("access_log_dropped_lines_total") as usize;
    assert!(lost > 0, "{REQUESTS} lines were written to a reader that reads nothing");
    // A reader that reads again receives all buffered lines, whole and in order.
    let reading = std::thread::spawn(move || BufReader::new(reader).lines().collect::<Vec<_>>());
    gateway.drain();
    gateway.join();
    let mut last = None;
    let lines = reading.join().unwrap();
    assert_eq!(lines.len(), REQUESTS - lost);
    for line in lines {
        let line = line.unwrap();
        let end = format!("\" 404 0 \"-\" \"{agent}\" \"no-route\"");
        assert!(line.ends_with(&end), "{line}");
        let number = line.split("HEAD /").nth(1).unwrap().split(' ').next().unwrap();
        let number: usize = number.parse().unwrap();
        assert!(last < Some(number), "{last:?} comes before {number}");
        last = Some(number);
    }
}

#[test]
fn template_has_what_joins_the_logs_and_some_routes_are_not_logged() {
    let (folder, backend) = (TempDir::new().unwrap(), Backend::start());
    let rules = "SecRule ARGS \"@contains attack\" \"id:1,phase:1,deny\"\n";
    fs::write(folder.path().join("rules.conf"), rules).unwrap();
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\n\
         routes: [{{ pool: p }}, {{ path: /check, access_log: false, respond: {{ status: 204 }} }}]\n\
         pools: [{{ name: p, backends: [{{ address: '{}' }}] }}]\nwaf: {{ rules: [rules.conf] }}\n\
         audit_log: {{ to: audit.log, include: all }}\nforwarded: {{ via: null, x_forwarded: false }}\n\
         access_log: {{ to: access.log, format: '${{target}} ${{status}} ${{first_byte_ms}} ${{transaction}} ${{reason}}' }}\n",
        backend.addr()
    );
    let config = Config::parse(&text, &folder.path().join("g.yaml"));
    let gateway = TestGateway::start(&config.unwrap_or_else(|error| panic!("{error}")));
    let mut client = gateway.client();
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    client.send(get("/check"));
    assert_eq!(client.response().unwrap().status, 204);
    client.send(get("/a"));
    let mut upstream = backend.accept();
    upstream.head().unwrap();
    upstream.send(OK);
    client.expect(OK);
    client.send(get("/b?q=attack"));
    assert_eq!(client.response().unwrap().status, 403);
    let lines = |name: &str, count: usize| {
        poll(|| {
            let text = fs::read_to_string(folder.path().join(name)).unwrap();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.len() == count { Ok(lines) } else { Err(text) }
        })
    };
    let ids: Vec<String> = lines("audit.log", 3)
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    let logged = lines("access.log", 2);
    let fields: Vec<&str> = logged[0].split(' ').collect();
    let [target, status, first_byte, id, reason] = fields[..] else { panic!("{}", logged[0]) };
    assert_eq!((target, status, id, reason), ("/a", "200", &*ids[1], "-"));
    assert!(first_byte.parse::<f64>().unwrap() > 0.0, "{first_byte}");
    assert_eq!(logged[1], format!("/b?q=attack 403 - {} waf-rule", ids[2]));
}
