use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::accounting::check_sum;
use crate::load::{Load, run};
use crate::machine::{Checks, SERVER_CPU, exclusive, pin};
use crate::reference::{ReferenceClient, Sleepers, disturbed_share};
use crate::sample::{Overhead, PRECISION};
use crate::schedule::Arrivals;
use crate::server::DelayServer;
use crate::stalls::{STALL, check_spread, stall};

/// nginx in front of a delay server, which speaks TLS and HTTP/2 for it. Stopped when dropped.
struct Front {
    process: Child,
    port: u16,
    dir: TempDir,
}

/// Certificate of the tests of the gateway.
const CERTIFICATE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/tests/gateway/certificates/site");

/// Options of the generator for each protocol, with ten requests in flight at most.
const PROTOCOLS: [(&str, &str); 2] = [
    ("HTTP/1.1 over TLS", "--insecure -c 10"),
    ("HTTP/2 over TLS", "--insecure --http 2 -c 2 --streams 5"),
];

impl Front {
    fn start(server: &DelayServer) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let (path, backend) = (dir.path().display(), server.port());
        // A connection to the backend is not retried, and lives as long as the test.
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr;
            events {{ worker_connections 1024; }}
            http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p;
              fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
              keepalive_requests 1000000; ssl_certificate {CERTIFICATE}.pem; ssl_certificate_key {CERTIFICATE}.key;
              upstream delays {{ server 127.0.0.1:{backend} max_fails=0; keepalive 64; keepalive_requests 1000000; }}
              server {{ listen 127.0.0.1:{port} ssl http2; location / {{ proxy_pass http://delays;
                proxy_http_version 1.1; proxy_set_header Connection ''; proxy_next_upstream off; }} }} }}"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).expect("a configuration");
        let process = Command::new("nginx")
            .args(["-e", "stderr", "-p"])
            .arg(dir.path())
            .arg("-c")
            .arg(dir.path().join("nginx.conf"))
            .stderr(std::fs::File::create(dir.path().join("log")).expect("a log"))
            .spawn()
            .expect("nginx; to install it: make packages");
        pin(process.id(), SERVER_CPU);
        let front = Self { process, port, dir };
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(front.address()).is_err() {
            assert!(Instant::now() < end, "nginx does not listen: {}", front.log());
            sleep(Duration::from_millis(5));
        }
        front
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Runs a test over each protocol.
fn over_each(name: &str, test: impl Fn(&mut Checks, &str)) {
    exclusive(name, |checks| {
        for (protocol, options) in PROTOCOLS {
            checks.note(protocol);
            test(checks, options);
        }
    });
}

/// Each percentile is the logged truth plus the overhead that a blocking client measures through the same front.
#[test]
fn t15_delays() {
    over_each("t15 delays through a front, in us", |checks, protocol| {
        for (path, requests) in [("/delay/1000", 500), ("/bimodal/200/2000/20000", 400)] {
            // One request in flight, so that none waits for another in the front.
            let protocol = protocol.replace("-c 10", "-c 1");
            let protocol = protocol.replace("-c 2 --streams 5", "-c 1 --streams 1");
            let server = DelayServer::start();
            let front = Front::start(&server);
            let sleepers = Sleepers::start();
            let report = run(&format!("{protocol} -n {requests}"), &front.url(path));
            let disturbed = sleepers.stop().map(|late| disturbed_share(&[late])).iter().sum();
            let client = ReferenceClient::run_over_tls(front.port, path, 120);
            // The front keeps its connection to the server, so both are on the same one.
            let (log, client_log) = server.stop().split_at(requests);
            checks.equal("responses", report.count("/responses"), requests as u64);
            checks.equal("handshakes", report.count("/handshake_time/count"), 1);
            let (truth, reference) = (log.delays_us(), client.overheads_us(&client_log));
            let overhead = Overhead { reference: &reference, disturbed };
            for (q, seen) in report.percentiles_us("/latency") {
                let bounds = truth.quantile(q) * (1.0 - PRECISION)..=overhead.bound(&truth, q);
                checks.within(&format!("{path} p{}", 100.0 * q), seen, bounds);
            }
        }
    });
}

/// A stall of the server behind the front shows in all requests that it delayed.
#[test]
fn t15_stalled_server() {
    const RATE: u32 = 500;
    // The queued requests pass the front, which takes longer than a delay server alone.
    const DRAIN: Duration = Duration::from_millis(150);
    over_each("t15 a stalled server behind a front", |checks, protocol| {
        let server = DelayServer::start();
        let front = Front::start(&server);
        let options = format!("{protocol} --rate {RATE} -n 1000");
        let load = Load::start(&options, &front.url("/delay/0"));
        sleep(Duration::from_millis(700));
        let stall = stall(|| server.suspend(), || server.resume());
        let report = load.wait();
        let log = server.stop();
        checks.equal("responses", report.count("/responses"), 1000);
        checks.equal("read by the server", log.records.len(), 1000);
        check_spread(checks, &report, "/latency", stall, DRAIN);
        // At most ten were in flight when it began.
        let long = report.count_above("/uncorrected_latency", STALL / 2);
        checks.within("uncorrected, above S/2", long as f64, 1.0..=10.0);
    });
}

/// The requests of a schedule arrive at the server at its rate, in order and evenly.
#[test]
fn t15_schedule() {
    over_each("t15 a schedule through a front", |checks, protocol| {
        let server = DelayServer::start();
        let front = Front::start(&server);
        let report = run(&format!("{protocol} --rate 1000 -n 1500"), &front.url("/delay/0"));
        let log = server.stop();
        checks.equal("sent", report.count("/sent"), 1500);
        checks.equal("responses", report.count("/responses"), log.records.len() as u64);
        let arrivals = Arrivals { at_us: log.reads_us(), gap_us: 1000.0 };
        checks.within("gap, in us", arrivals.typical_gap(), 999.0..=1001.0);
    });
}

/// Errors and timeouts are counted as the server made them. The front responds with 502 to a closed or reset connection,
/// and not at all to a request without response.
#[test]
fn t15_errors() {
    over_each("t15 errors behind a front", |checks, protocol| {
        let server = DelayServer::start();
        let front = Front::start(&server);
        let options = format!("{protocol} -n 1000 --timeout 150ms");
        let report = run(&options, &front.url("/faults/well-formed"));
        let log = server.stop();
        check_sum(checks, &report);
        let status =
            |code: &str| report.value("/statuses").get(code).map_or(0, |n| n.as_u64().unwrap_or(0));
        checks.equal("sent", report.count("/sent"), log.records.len() as u64);
        checks.equal("200", status("200"), log.count('a'));
        checks.equal("502", status("502"), log.count('c') + log.count('r'));
        checks.equal("timeouts", report.count("/failures/response_timeout"), log.count('s'));
        checks.equal("failed", report.failed(), log.count('s'));
        checks.equal("timeouts in the latency", report.count("/latency/count"), 1000);
    });
}

/// The intervals of a series add up to the result, and follow the truth of the server.
#[test]
fn t16_series() {
    const INTERVAL_US: f64 = 100_000.0;
    exclusive("t16 a series over a ramp", |checks| {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("series.jsonl");
        let server = DelayServer::start();
        let options = format!(
            "-c 20 --rate 100..1900/1s,1900/500ms --series {} --series-interval 100ms",
            file.display()
        );
        let report = run(&options, &server.url("/delay/1000"));
        let log = server.stop();
        let text = std::fs::read_to_string(&file).expect("the series");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let lines: Vec<serde_json::Value> = lines.collect();
        let of = |name: &str| -> Vec<f64> {
            lines.iter().map(|line| line[name].as_f64().expect("a number")).collect()
        };
        let sum = |name: &str| of(name).iter().sum::<f64>() as u64;
        checks.equal("responses", sum("responses"), report.count("/responses"));
        checks.equal("failed", sum("failed"), report.failed());
        checks.equal("sent", sum("sent"), report.count("/sent"));
        // 1000 in the ramp and 950 after it.
        let due = report.count("/sent") + report.count("/unsent");
        checks.within("due", due as f64, 1949.0..=1950.0);
        // The times of the server start with the first request, which is due at the start of the series.
        let reads = log.reads_us();
        let mut earlier = 0.0;
        for (index, sent) in of("sent").iter().enumerate().take(14) {
            earlier += sent;
            let end_us = (index + 1) as f64 * INTERVAL_US;
            let read = reads.iter().filter(|at| **at < end_us).count() as f64;
            // Requests within two milliseconds of the end, of at most 1900 per second.
            checks.within(
                &format!("sent until {:.0} ms", end_us / 1e3),
                earlier,
                read - 4.0..=read + 4.0,
            );
        }
    });
}
