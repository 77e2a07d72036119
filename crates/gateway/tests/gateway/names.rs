//! Backends by name: resolved with the configuration, and again at an interval.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tollgate_gateway::{Config, Resolver};

use crate::support::{
    Backend, ChildProcess, Peer, TestGateway, ThreadedBackend, child_arguments, closed_port,
    is_echo, poll, test_path,
};

/// A configuration of one pool with these backends, which resolves names at short intervals.
fn config(backends: &str, resolver: Resolver) -> Config {
    config_with(backends, "1ms", resolver)
}

fn config_with(backends: &str, interval: &str, resolver: Resolver) -> Config {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\nadmin: 127.0.0.1:0\nresolve: {{ interval: {interval} }}\n\
         limits: {{ connections: 9 }}\npools: [{{ name: site, backends: [{backends}] }}]\n"
    );
    read(&text, resolver)
}

fn read(text: &str, resolver: Resolver) -> Config {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gateway.yaml");
    std::fs::write(&path, text).unwrap();
    Config::read_with(&path, resolver).unwrap()
}

/// Addresses of a name, or the text of an error; set by a test.
#[derive(Clone)]
struct Answers {
    answer: Arc<Mutex<Result<Vec<SocketAddr>, &'static str>>>,
    lookups: Arc<AtomicUsize>,
}

impl Answers {
    fn new(addresses: &[SocketAddr]) -> Self {
        let answer = Arc::new(Mutex::new(Ok(addresses.to_vec())));
        Self { answer, lookups: Arc::default() }
    }

    fn resolver(&self) -> Resolver {
        let answers = self.clone();
        Resolver::new(move |name| {
            assert_eq!(name.to_string(), "backend.example:80");
            answers.lookups.fetch_add(1, Ordering::Relaxed);
            answers.answer.lock().unwrap().clone().map_err(io::Error::other)
        })
    }

    fn set(&self, answer: Result<&[SocketAddr], &'static str>) {
        *self.answer.lock().unwrap() = answer.map(<[_]>::to_vec);
    }

    /// Waits until two more lookups have begun, so that one of them has both begun and ended since this call.
    fn wait(&self) {
        let seen = self.lookups.load(Ordering::Relaxed);
        poll(|| {
            let lookups = self.lookups.load(Ordering::Relaxed);
            if lookups > seen + 1 { Ok(()) } else { Err(format!("{lookups} lookups")) }
        });
    }
}

fn expect_echo(client: &mut Peer, path: &str) {
    let response = client.get(path).unwrap();
    assert!(is_echo(&response, path), "{response:?}");
}

#[test]
fn localhost_is_a_backend() {
    let backend = ThreadedBackend::echo();
    let port = backend.addr().port();
    let config = config(&format!("{{ address: localhost:{port} }}"), Resolver::default());
    let gateway = TestGateway::start(&config);
    expect_echo(&mut gateway.client(), "/a");
    let of_backend = format!("{{pool=\"site\",backend=\"127.0.0.1:{port}\"}}");
    gateway.expect_metric(&format!("backend_requests_total{of_backend}"), 1);
}

#[test]
fn each_address_of_a_name_is_a_backend_of_its_weight() {
    let backends = [(); 3].map(|()| ThreadedBackend::echo());
    let addrs = backends.each_ref().map(ThreadedBackend::addr);
    let answers = Answers::new(&addrs[..2]);
    // An address that is already in the pool is not added again.
    let declared = format!(
        "{{ address: \"{}\" }}, {{ address: backend.example:80, weight: 2 }}, {{ address: \"{}\" }}",
        addrs[1], addrs[2]
    );
    let gateway = TestGateway::start(&config(&declared, answers.resolver()));
    let mut client = gateway.client();
    for number in 0..40 {
        expect_echo(&mut client, &format!("/{number}"));
    }
    for (addr, requests) in [(addrs[0], 20), (addrs[1], 10), (addrs[2], 10)] {
        let of_backend = format!("{{pool=\"site\",backend=\"{addr}\"}}");
        gateway.expect_metric(&format!("backend_requests_total{of_backend}"), requests);
    }
}

#[test]
fn name_is_resolved_again_and_requests_in_flight_finish() {
    let (first, second) = (Backend::start(), ThreadedBackend::echo());
    let answers = Answers::new(&[first.addr()]);
    let gateway =
        TestGateway::start(&config("{ address: backend.example:80 }", answers.resolver()));
    let mut early = gateway.client();
    early.send("GET /early HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut upstream = first.accept();
    upstream.head().unwrap();
    answers.set(Ok(&[second.addr()]));
    answers.wait();
    gateway.update_addresses();
    gateway.turn();
    expect_echo(&mut gateway.client(), "/late");
    first.expect_no_connection(&gateway);
    upstream.send(crate::support::echo_response("/early"));
    assert!(is_echo(&early.response().unwrap(), "/early"));
    gateway.expect_metric("reloads_total{result=\"applied\"}", 0);
    // A reload resolves, too.
    answers.set(Ok(&[first.addr()]));
    gateway.reload(config("{ address: backend.example:80 }", answers.resolver()));
    gateway.turn();
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    first.accept().head().unwrap();
}

#[test]
fn location_with_a_new_address_of_a_name_is_rewritten() {
    let (first, second) = (Backend::start(), Backend::start());
    let answers = Answers::new(&[first.addr()]);
    let text = "listeners: [{ address: 127.0.0.1:0 }]\nresolve: { interval: 1ms }\n\
                routes: [{ pool: site, rewrite_location: true }]\n\
                pools: [{ name: site, backends: [{ address: backend.example:80 }] }]\n";
    let gateway = TestGateway::start(&read(text, answers.resolver()));
    answers.set(Ok(&[second.addr()]));
    answers.wait();
    gateway.update_addresses();
    gateway.turn();
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut upstream = second.accept();
    upstream.head().unwrap();
    let url = format!("http://{}/x", second.addr());
    upstream.send(format!("HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(client.response().unwrap().header("Location"), Some("/x"));
}

#[test]
fn failed_connection_resolves_the_name_at_once() {
    let backend = ThreadedBackend::echo();
    let answers = Answers::new(&[closed_port()]);
    let config = config_with("{ address: backend.example:80 }", "1h", answers.resolver());
    let gateway = TestGateway::start(&config);
    // The backend has moved.
    answers.set(Ok(&[backend.addr()]));
    gateway.update_addresses();
    assert_eq!(answers.lookups.load(Ordering::Relaxed), 1);
    poll(|| {
        let response = gateway.client().get("/a").unwrap();
        gateway.update_addresses();
        if is_echo(&response, "/a") { Ok(()) } else { Err(format!("{response:?}")) }
    });
}

#[test]
fn slow_lookup_delays_no_request_and_no_end() {
    let backend = ThreadedBackend::echo();
    let addr = backend.addr();
    let (started, lookups) = std::sync::mpsc::channel();
    let (_never, blocked) = std::sync::mpsc::channel::<()>();
    let (blocked, is_first) = (Mutex::new(blocked), AtomicUsize::new(0));
    let resolver = Resolver::new(move |_| {
        if is_first.fetch_add(1, Ordering::Relaxed) > 0 {
            started.send(()).unwrap();
            // Until the end of the test.
            blocked.lock().unwrap().recv().map_err(io::Error::other)?;
        }
        Ok(vec![addr])
    });
    let gateway = TestGateway::start(&config("{ address: backend.example:80 }", resolver));
    lookups.recv_timeout(crate::support::DEADLINE).unwrap();
    let mut client = gateway.client();
    expect_echo(&mut client, "/a");
    gateway.update_addresses();
    expect_echo(&mut client, "/b");
    gateway.drain();
    drop(client);
    gateway.join();
}

#[test]
fn failed_resolution_keeps_addresses_and_is_logged_once() {
    if let Some(arguments) = child_arguments() {
        return fail_lookups(arguments[0].parse().unwrap());
    }
    let backend = ThreadedBackend::echo();
    let (stderr, child_stderr) = io::pipe().unwrap();
    let name = test_path!("failed_resolution_keeps_addresses_and_is_logged_once");
    let child = ChildProcess::start(name, &[backend.addr().to_string()], Stdio::from(child_stderr));
    child.finish();
    let lines: Vec<String> = BufReader::new(stderr).lines().map_while(Result::ok).collect();
    let log: Vec<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("tollgate gateway: ")).collect();
    let addr = backend.addr();
    assert_eq!(
        log,
        [
            &*format!(
                "cannot resolve backend.example:80 again: no answer; its addresses stay {addr}"
            ),
            "backend.example:80 resolves again",
        ]
    );
}

fn fail_lookups(addr: SocketAddr) {
    let answers = Answers::new(&[addr]);
    let gateway =
        TestGateway::start(&config("{ address: backend.example:80 }", answers.resolver()));
    let mut client = gateway.client();
    answers.set(Err("no answer"));
    (0..3).for_each(|_| answers.wait());
    gateway.update_addresses();
    expect_echo(&mut client, "/a");
    answers.set(Ok(&[addr]));
    answers.wait();
    expect_echo(&mut client, "/b");
    gateway.drain();
    drop(client);
    gateway.join();
}

#[test]
fn everything_that_cannot_be_opened_or_resolved_is_an_error_with_its_place() {
    let text = "listeners:
  - { address: 127.0.0.1:80, tls: { certificates: [{ certificate: none.pem, key: none.key }] } }
pools:
  - name: site
    backends: [{ address: nowhere.example:80 }, { address: nowhere.example:81 }]
waf: { rules: [none.conf] }
";
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("g.yaml");
    std::fs::write(&path, text).unwrap();
    let resolver = Resolver::new(|_| Err(io::Error::other("no answer")));
    let error = Config::read_with(&path, resolver).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    let starts = [
        ":2:67: `none.pem`: cannot read the certificate; ",
        ":5:27: cannot resolve `nowhere.example:80`, the `address` of a backend; check the name, or write an IP \
         address: no answer",
        ":5:60: cannot resolve `nowhere.example:81`",
        ":6:15: cannot load the rules of `waf`: ",
    ];
    assert_eq!(lines.len(), starts.len(), "{error}");
    for (line, start) in lines.iter().zip(starts) {
        let line = line.strip_prefix(&path.display().to_string()).unwrap();
        assert!(line.starts_with(start), "{line}");
    }
    // One error is reported as such.
    let text = "listeners: [{ address: 127.0.0.1:80 }]\npools: [{ name: a, backends: [{ address: 'a b:80' }] }]\n";
    let error = Config::parse(text, Path::new("g.yaml")).unwrap_err().to_string();
    assert_eq!(
        error,
        "g.yaml:2:42: `a b:80` is not an address: expected ADDRESS:PORT, such as 127.0.0.1:8080, NAME:PORT, such as \
         backend.example:8080, or unix:/path/to/socket"
    );
}
