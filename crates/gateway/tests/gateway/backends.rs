//! Choice of a backend: retries, queues, ejection, health checks, and backends that die under load.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{Address, Ejection, HealthCheck, HealthRequest};

use crate::support::{
    Backend, ChildProcess, GET, OK, Peer, TestGateway, ThreadedBackend, child_arguments,
    closed_port, config, config_backends, echo_response, is_disconnect, is_echo, path, poll,
    serve_echo, test_path,
};

const POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";

/// Long enough to last for the whole test.
const HOUR: Duration = Duration::from_secs(3_600);

/// Exchanges a request that the backend receives on this upstream connection.
fn exchange(client: &mut Peer, upstream: &mut Peer, request: &str) {
    client.send(request);
    upstream.expect(request);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn idle_upstream_connection_may_close_at_any_time() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
    for request in [GET, POST, GET] {
        // The gateway notices it before the next request, or while that is on its way.
        drop(upstream);
        client.send(request);
        upstream = backend.accept();
        upstream.expect(request);
        upstream.send(OK);
        client.expect(OK);
    }
    // A GET is retried after the backend has received it.
    client.send(GET);
    upstream.expect(GET);
    drop(upstream);
    upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn backend_that_closes_after_every_response_fails_no_request() {
    let backend = ThreadedBackend::start(|mut peer| {
        if let Ok(head) = peer.head() {
            // Without `Connection: close`: the gateway keeps a connection that closes.
            peer.send(echo_response(path(&head)));
        }
    });
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    let mut client = gateway.client();
    for number in 0..300 {
        let path = format!("/{number}");
        assert!(is_echo(&client.get(&path).unwrap(), &path), "{path}");
    }
    assert!(backend.connections() >= 300);
}

#[test]
fn request_that_is_not_idempotent_is_not_retried() {
    let (one, other) = (Backend::start(), Backend::start());
    let gateway = TestGateway::start(&config(&[one.addr(), other.addr()]));
    let mut client = gateway.client();
    client.send(POST);
    let mut upstream = one.accept();
    upstream.expect(POST);
    drop(upstream);
    client.expect_local_response(502);
    one.expect_no_connection(&gateway);
    other.expect_no_connection(&gateway);
    // Nor on a reused connection, once the backend may have received it.
    let mut upstreams = [&other, &one].map(|backend| {
        client.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(OK);
        client.expect(OK);
        upstream
    });
    client.send(POST);
    upstreams[0].expect(POST);
    drop(upstreams);
    client.expect_local_response(502);
    one.expect_no_connection(&gateway);
    other.expect_no_connection(&gateway);
}

#[test]
fn request_goes_to_another_backend_if_one_refuses_connections() {
    let up = Backend::start();
    let gateway = TestGateway::start(&config(&[closed_port(), up.addr()]));
    let mut client = gateway.client();
    client.send(POST);
    let mut upstream = up.accept();
    upstream.expect(POST);
    upstream.send(OK);
    client.expect(OK);
    for _ in 0..4 {
        exchange(&mut client, &mut upstream, GET);
    }
}

#[test]
fn request_is_tried_on_the_same_backend_after_a_pause() {
    let addr = closed_port();
    let mut config = config(&[addr]);
    config.pools[0].retries = 10;
    config.pools[0].retry_pause = Some(Duration::from_millis(500));
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    client.send(POST);
    let failures = format!("backend_failures_total{{pool=\"default\",backend=\"{addr}\"}}");
    gateway.expect_metric(&failures, 1);
    let backend = Backend::on(addr);
    let mut upstream = backend.accept();
    upstream.expect(POST);
    upstream.send(OK);
    client.expect(OK);
    drop((backend, upstream));

    // Connecting to a Unix domain socket fails at once.
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("backend");
    let mut of_unix = config.clone();
    of_unix.pools[0].backends[0].address = Address::Unix(socket.clone());
    of_unix.pools[0].retry_pause = Some(Duration::from_millis(200));
    gateway.reload(of_unix);
    let mut waiting = gateway.client();
    waiting.send(GET);
    gateway.expect_metric("client_connections", 2);
    poll(|| match gateway.metric("retries_total{pool=\"default\"}") {
        count if count >= 4 => Ok(()),
        count => Err(format!("{count} retries")),
    });
    let listener = UnixListener::bind(&socket).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut received = vec![0; GET.len()];
    stream.read_exact(&mut received).unwrap();
    stream.write_all(OK.as_bytes()).unwrap();
    waiting.expect(OK);
    drop((waiting, stream));
    gateway.expect_metric("client_connections", 1);

    // A client that leaves in a pause ends the request.
    config.pools[0].retry_pause = Some(HOUR);
    gateway.reload(config.clone());
    let mut leaving = gateway.client();
    leaving.send(POST);
    gateway.expect_metric(&failures, 1);
    gateway.expect_metric("client_connections", 2);
    leaving.finish();
    leaving.expect_closed();

    // Every retry is used up, at most one per pause.
    config.pools[0].retries = 3;
    config.pools[0].retry_pause = Some(Duration::from_millis(1));
    gateway.reload(config);
    let before = gateway.metric("retries_total{pool=\"default\"}");
    client.send(POST);
    client.expect_local_response(502);
    assert_eq!(gateway.metric("retries_total{pool=\"default\"}") - before, 3);
}

#[test]
fn failing_backend_and_its_return_are_logged_once() {
    if let Some(arguments) = child_arguments() {
        let mut config = config(&[arguments[0].parse().unwrap()]);
        config.limits.connections = 9;
        config.listeners[0].address = Address::Unix(arguments[1].clone().into());
        let gateway = TestGateway::start(&config);
        println!("\nlistening");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        gateway.drain();
        gateway.join();
        return;
    }
    let backend = ThreadedBackend::echo();
    let addr = backend.addr();
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("gateway");
    let (stderr, child_stderr) = std::io::pipe().unwrap();
    let arguments = [addr.to_string(), socket.display().to_string()];
    let name = test_path!("failing_backend_and_its_return_are_logged_once");
    let mut child = ChildProcess::start(name, &arguments, Stdio::from(child_stderr));
    child.wait_for("listening");
    let mut client = Peer::connect(&Address::Unix(socket));
    assert!(is_echo(&client.get("/first").unwrap(), "/first"));
    backend.kill();
    for _ in 0..20 {
        client.send(GET);
        client.expect_local_response(502);
    }
    let backend = ThreadedBackend::on(addr, serve_echo);
    for _ in 0..20 {
        assert!(is_echo(&client.get("/again").unwrap(), "/again"));
    }
    // A second failure within a minute is not logged, and neither is the return from it.
    backend.kill();
    client.send(GET);
    client.expect_local_response(502);
    let _backend = ThreadedBackend::on(addr, serve_echo);
    assert!(is_echo(&client.get("/again").unwrap(), "/again"));
    drop(client);
    child.finish();
    let lines: Vec<String> = BufReader::new(stderr).lines().map_while(Result::ok).collect();
    let of_backend = format!("tollgate gateway: backend {addr} of pool default ");
    let log: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(&of_backend)).collect();
    assert_eq!(log, ["fails requests: cannot connect", "serves requests again"]);
}

#[test]
fn requests_fail_at_once_while_all_backends_are_down() {
    let backends = [ThreadedBackend::echo(), ThreadedBackend::echo()];
    let addrs = backends.each_ref().map(ThreadedBackend::addr);
    let gateway = TestGateway::on_unix_socket(config(&addrs));
    let mut client = gateway.client();
    for path in ["/first", "/second"] {
        assert!(is_echo(&client.get(path).unwrap(), path));
    }
    drop(backends);
    for _ in 0..20 {
        client.send(GET);
        client.expect_local_response(502);
    }
    let _restarted = ThreadedBackend::on(addrs[1], serve_echo);
    assert!(is_echo(&client.get("/restarted").unwrap(), "/restarted"));
}

const CLIENTS: usize = 8;
const REQUESTS_PER_CLIENT: usize = 500;

/// The outcomes of requests.
#[derive(Debug, Default)]
struct Outcomes {
    complete: AtomicUsize,
    bad_gateway: AtomicUsize,
    /// The connection ended within a response.
    disconnected: AtomicUsize,
}

impl Outcomes {
    fn get(&self) -> [usize; 3] {
        [&self.complete, &self.bad_gateway, &self.disconnected]
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Sends requests one after another, each with a path of its own, and reconnects where a connection ends.
    fn request(&self, gateway: &TestGateway, method: &str, client: usize, count: usize) {
        let mut peer = gateway.client();
        for number in 0..count {
            let path = format!("/{client}/{number}");
            let (outcome, is_last) = match peer
                .request(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
            {
                Ok(response) if response.status == 502 => (&self.bad_gateway, response.is_last()),
                Ok(response) => {
                    assert!(is_echo(&response, &path), "{path}: {response:?}");
                    (&self.complete, response.is_last())
                }
                Err(error) => {
                    assert!(is_disconnect(&error), "{path}: {error}");
                    (&self.disconnected, true)
                }
            };
            outcome.fetch_add(1, Ordering::Relaxed);
            if is_last {
                peer = gateway.client();
            }
        }
    }
}

#[test]
fn requests_survive_a_backend_killed_under_load() {
    for method in ["GET", "POST"] {
        let received: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let start_backend = || {
            let received = Arc::clone(&received);
            ThreadedBackend::responding(move |path| {
                *received.lock().unwrap().entry(path.to_owned()).or_default() += 1;
                echo_response(path)
            })
        };
        let (killed, survivor) = (start_backend(), start_backend());
        let gateway = TestGateway::on_unix_socket(config(&[killed.addr(), survivor.addr()]));
        let outcomes = Outcomes::default();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (gateway, outcomes) = (&gateway, &outcomes);
                scope.spawn(move || outcomes.request(gateway, method, client, REQUESTS_PER_CLIENT));
            }
            poll(|| match outcomes.get().iter().sum::<usize>() {
                done if done >= CLIENTS * REQUESTS_PER_CLIENT / 3 => Ok(()),
                done => Err(format!("{done} requests are done")),
            });
            killed.kill();
        });
        let [complete, bad_gateway, disconnected] = outcomes.get();
        assert_eq!(complete + bad_gateway + disconnected, CLIENTS * REQUESTS_PER_CLIENT);
        if method == "GET" {
            // It is retried, unless its response had started.
            assert_eq!(bad_gateway, 0, "{outcomes:?}");
        } else {
            let twice = received.lock().unwrap().values().filter(|count| **count > 1).count();
            assert_eq!(twice, 0, "requests were sent twice");
        }
        // Each client had at most one request in flight.
        assert!(bad_gateway + disconnected <= CLIENTS, "{method}: {outcomes:?}");
    }
}

#[test]
fn faulty_responses_of_a_backend_mix_up_no_other_response() {
    let responses = AtomicUsize::new(0);
    // Of its responses, every 7th is invalid, every 11th is interrupted, and every 13th is followed by another one.
    let backend = ThreadedBackend::start(move |mut peer| {
        while let Ok(head) = peer.head() {
            let response = echo_response(path(&head));
            let number = responses.fetch_add(1, Ordering::Relaxed);
            let (sent, is_last) = match number {
                _ if number.is_multiple_of(7) => (b"\0invalid\r\n\r\n".to_vec(), false),
                _ if number.is_multiple_of(11) => (response[..response.len() / 2].to_vec(), true),
                _ if number.is_multiple_of(13) => {
                    ([response, echo_response("/evil")].concat(), false)
                }
                _ => (response, false),
            };
            if peer.try_send(sent).is_err() || is_last {
                return;
            }
        }
    });
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    let outcomes = Outcomes::default();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (gateway, outcomes) = (&gateway, &outcomes);
            scope.spawn(move || outcomes.request(gateway, "GET", client, 300));
        }
    });
    // Of a hundred, 14 are invalid and 8 interrupted, and retries may meet the same.
    let [complete, ..] = outcomes.get();
    assert!(complete > CLIENTS * 300 * 6 / 10, "{outcomes:?}");
}

fn one_connection(backends: &[&Backend]) -> Config {
    let addrs: Vec<_> = backends.iter().map(|backend| backend.addr()).collect();
    let mut config = config(&addrs);
    config.pools[0].connections_max = NonZeroU32::new(1);
    config
}

const QUEUED: &str = "queued_total{pool=\"default\"}";

#[test]
fn requests_above_the_connection_limit_are_queued_and_above_the_queue_limit_rejected() {
    let backend = Backend::start();
    let mut config = one_connection(&[&backend]);
    config.pools[0].queue_max = 1;
    let gateway = TestGateway::start(&config);
    let [mut first, mut second, mut third] = [(); 3].map(|()| gateway.client());
    first.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    let queued = GET.replace("/a", "/2");
    second.send(&queued);
    gateway.expect_metric(QUEUED, 1);
    third.send(GET);
    assert_eq!(third.expect_local_response(503).header("Retry-After"), Some("5"));
    upstream.send(OK);
    first.expect(OK);
    upstream.expect(&queued);
    upstream.send(OK);
    second.expect(OK);
    backend.expect_no_connection(&gateway);
}

#[test]
fn queued_requests_go_to_the_first_free_backend() {
    let backends = [Backend::start(), Backend::start()];
    let gateway = TestGateway::start(&one_connection(&backends.each_ref()));
    let mut clients = [(); 4].map(|()| gateway.client());
    let mut upstreams = Vec::new();
    for (client, backend) in clients.iter_mut().zip(&backends) {
        client.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstreams.push(upstream);
    }
    for (at, client) in clients.iter_mut().enumerate().skip(2) {
        client.send(GET.replace("/a", &format!("/{at}")));
        gateway.expect_metric(QUEUED, at as u64 - 1);
    }
    // The second backend serves both in turn, while the first is busy.
    upstreams[1].send(OK);
    clients[1].expect(OK);
    for (at, client) in clients.iter_mut().enumerate().skip(2) {
        upstreams[1].expect(GET.replace("/a", &format!("/{at}")));
        upstreams[1].send(OK);
        client.expect(OK);
    }
    upstreams[0].send(OK);
    clients[0].expect(OK);
}

#[test]
fn queued_request_times_out() {
    let backend = Backend::start();
    let mut config = one_connection(&[&backend]);
    config.pools[0].queue_timeout = Duration::from_millis(100);
    let gateway = TestGateway::start(&config);
    let [mut first, mut second] = [(); 2].map(|()| gateway.client());
    first.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    second.send(GET);
    second.expect_local_response(503);
    upstream.send(OK);
    first.expect(OK);
    exchange(&mut second, &mut upstream, GET);
}

#[test]
fn queued_request_of_a_reset_connection_is_dropped() {
    let backend = Backend::start();
    let mut config = one_connection(&[&backend]);
    config.pools[0].queue_timeout = HOUR;
    let gateway = TestGateway::start(&config);
    let [mut first, mut second, mut third] = [(); 3].map(|()| gateway.client());
    first.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    second.send(GET.replace("/a", "/2"));
    third.send(GET.replace("/a", "/3"));
    gateway.expect_metric(QUEUED, 2);
    second.reset();
    gateway.expect_metric("client_connections", 2);
    upstream.send(OK);
    first.expect(OK);
    upstream.expect(GET.replace("/a", "/3"));
    upstream.send(OK);
    third.expect(OK);
}

#[test]
fn interrupted_responses_eject_a_backend_and_departed_clients_do_not() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.pools[0].eject = Some(Ejection { failures: 4, duration: HOUR });
    config.timeouts.body = Duration::from_secs(1);
    let gateway = TestGateway::start(&config);
    let of = |name: &str| format!("{name}{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    let started = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 9\r\n\r\nhalf";
    let chunked = "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n";
    let request = || {
        let mut client = gateway.client();
        client.send(GET);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        (client, upstream)
    };
    let begin_response = |start: &str| {
        let (mut client, mut upstream) = request();
        upstream.send(start);
        client.expect(start);
        (client, upstream)
    };
    // Neither a client that leaves is a failure of its backend, ...
    let (mut client, mut upstream) = request();
    upstream.send(started);
    client.head().unwrap();
    client.reset();
    upstream.expect_closed();
    // ... nor a client that reads nothing.
    let (client, mut upstream) = request();
    let body = vec![b'x'; 64 << 20];
    upstream.send(format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {}\r\n\r\n", body.len()));
    upstream.try_send(&body).unwrap_err();
    drop((client, upstream));
    // The backend closes, sends an invalid chunk, and stops sending.
    let (mut client, upstream) = begin_response(started);
    drop(upstream);
    client.expect_closed();
    let (mut client, mut upstream) = begin_response(chunked);
    upstream.send("invalid\r\n");
    client.expect_closed();
    let (mut client, _upstream) = begin_response(chunked);
    client.expect_closed();
    gateway.expect_metric(&of("backend_failures_total"), 3);
    assert_eq!(gateway.metric(&of("backend_ejected")), 0);
    let (mut client, upstream) = begin_response(started);
    drop(upstream);
    client.expect_closed();
    gateway.expect_metric(&of("backend_ejected"), 1);
}

#[test]
fn backends_are_ejected_after_failed_requests_and_taken_down_by_failed_checks() {
    let backend = Backend::start();
    let closed = closed_port();
    let mut config = config(&[closed, backend.addr()]);
    config.pools[0].eject = Some(Ejection { failures: 1, duration: HOUR });
    let gateway = TestGateway::start(&config);
    let mut client = gateway.client();
    let mut upstream = None;
    for _ in 0..3 {
        client.send(GET);
        let upstream = upstream.get_or_insert_with(|| backend.accept());
        upstream.expect(GET);
        upstream.send(OK);
        client.expect(OK);
    }
    let of = |name: &str, addr| format!("{name}{{pool=\"default\",backend=\"{addr}\"}}");
    gateway.expect_metric(&of("backend_failures_total", closed), 1);
    gateway.expect_metric(&of("backend_ejected", closed), 1);
    gateway.expect_metric("retries_total{pool=\"default\"}", 1);

    // Health checks replace ejection, and the counters go on.
    let also_closed = closed_port();
    config.pools[0].backends = config_backends(&[closed, also_closed]);
    config.pools[0].eject = None;
    config.pools[0].health = Some(HealthCheck {
        request: Some(HealthRequest::get("/")),
        interval: Duration::from_millis(10),
        timeout: Duration::from_millis(10),
        rise: 1,
        fall: 2,
    });
    gateway.reload(config);
    gateway.expect_metric(&of("backend_up", closed), 0);
    gateway.expect_metric(&of("backend_up", also_closed), 0);
    gateway.expect_metric("responses_total{pool=\"default\",class=\"2xx\"}", 3);
    gateway.expect_metric("reloads_total{result=\"applied\"}", 1);
    gateway.client().get("/late").map(|response| assert_eq!(response.status, 503)).unwrap();
    gateway.drain();
    assert_eq!(gateway.admin("/healthz").status, 503);
}

#[test]
fn post_gets_a_new_connection_if_the_backend_has_announced_to_close_idle_ones_soon() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    // Far from the end of that time, the connection is reused.
    upstream.send(OK.replace("Date: d", "Date: d\r\nKeep-Alive: timeout=1000"));
    client.expect(OK);
    client.send(POST);
    upstream.expect(POST);
    upstream.send(OK.replace("Date: d", "Date: d\r\nKeep-Alive: max=5, timeout=0"));
    client.expect(OK);
    client.send(POST);
    let mut other = backend.accept();
    other.expect(POST);
    other.send(OK);
    client.expect(OK);
    // One that can be repeated is.
    client.send(GET);
    other.expect(GET);
    other.send(OK);
    client.expect(OK);
}

#[test]
fn post_gets_a_new_connection_if_the_backend_was_seen_to_close_idle_ones() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
    drop(upstream);
    let connections =
        format!("backend_connections{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    gateway.expect_metric(&connections, 0);
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    client.expect(OK);
    // The first connection was open for less.
    std::thread::sleep(Duration::from_millis(500));
    client.send(POST);
    let mut other = backend.accept();
    other.expect(POST);
    other.send(OK);
    client.expect(OK);
    drop(upstream);
}

/// A backend whose responses name it.
fn named_backend(name: &'static str) -> ThreadedBackend {
    ThreadedBackend::start(move |mut peer| {
        while peer.head().is_ok() {
            peer.send(format!("HTTP/1.1 200 OK\r\nX-Backend: {name}\r\nContent-Length: 0\r\n\r\n"));
        }
    })
}

#[test]
fn cookie_keeps_a_client_at_its_backend() {
    let [one, other] = ["one", "other"].map(named_backend);
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nforwarded: {{ trusted: [127.0.0.1] }}\n\
         pools: [{{ name: p, balance: {{ consistent-hash: {{ cookie: at }} }}, backends: [{{ address: '{}' }}, {{ address: '{}' }}] }}]\n",
        one.addr(),
        other.addr()
    );
    let gateway = TestGateway::start(&Config::parse(&text, Path::new("g.yaml")).unwrap());
    let mut client = gateway.client();
    let mut get = |headers: &str| {
        let response =
            client.request(format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n")).unwrap();
        let header = |name| response.header(name).map(str::to_owned);
        (header("x-backend").unwrap(), header("set-cookie"))
    };
    let (mut values, mut backends) = (HashSet::new(), HashSet::new());
    // The same head may be of another client, which gets a cookie of its own.
    for _ in 0..32 {
        let (backend, cookie) = get("Cookie: at2=0; other=at\r\n");
        let cookie = cookie.unwrap();
        let value = cookie.strip_prefix("at=").unwrap();
        let value = value.strip_suffix("; Path=/; HttpOnly; SameSite=Lax").unwrap();
        assert!(
            value.len() == 16 && value.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{cookie}"
        );
        for header in [
            format!("Cookie: at={value}\r\n"),
            format!("Cookie: a=b\r\nCookie: c; at={value} ;d=e\r\n"),
        ] {
            assert_eq!(get(&header), (backend.clone(), None), "{header}");
        }
        assert!(values.insert(value.to_owned()), "{value}");
        backends.insert(backend);
    }
    assert_eq!(backends.len(), 2);
    // A cookie of the application.
    let of_application = get("Cookie: at=A1.node\r\n");
    assert_eq!(of_application.1, None);
    assert_eq!(get("Cookie: at=A1.node\r\n"), of_application);
    let (_, cookie) = get("X-Forwarded-Proto: https\r\n");
    assert!(cookie.unwrap().ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"));
}
