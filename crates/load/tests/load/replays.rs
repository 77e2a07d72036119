use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate_http2::Limits;
use tollgate_load::{
    Arrivals, Expectation, Generator, LATENESS_MAX, LoadVerdict, Pace, Phases, Plan, Rate, Replay,
    ReplayEvent, ReplayPlan, ReplaySummary, ReplayVariable, Request, Shard, Summary, ValueSource,
    Workload,
};
use tollgate_traffic::load_shape::Protocol;

use crate::http2::Streams;
use crate::server::{OK, Peer, Server, finish, plan, run, set_connections_max, wait_until, with};
use crate::tls;

/// A request as it arrived: number of its connection, its text, and its time.
#[derive(Clone, Debug)]
struct Arrival {
    connection: u64,
    text: String,
    at: Instant,
}

impl Arrival {
    fn path(&self) -> &str {
        self.text.split(' ').nth(1).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.text.split("\r\n").filter_map(|line| line.split_once(": "));
        headers.find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

type Log = Arc<Mutex<Vec<Arrival>>>;

/// Server that logs all requests and responds by `respond`.
fn logging(respond: impl Fn(&mut Peer, &Arrival) + Send + Sync + 'static) -> (Server, Log) {
    let log = Log::default();
    let connections = AtomicU64::new(0);
    let server = Server::start({
        let log = Arc::clone(&log);
        move |peer| {
            let connection = connections.fetch_add(1, Ordering::SeqCst);
            while let Some(request) = peer.request() {
                let at = Instant::now();
                let text = String::from_utf8(request).unwrap();
                let arrival = Arrival { connection, text, at };
                log.lock().unwrap().push(arrival.clone());
                respond(peer, &arrival);
            }
        }
    });
    (server, log)
}

fn request(text: &str) -> Request {
    let expect = Expectation { status: Some(200), ..Expectation::default() };
    Request { expect, ..crate::server::request(text.as_bytes()) }
}

fn get(path: &str) -> Request {
    request(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
}

/// Variable `token` that a response header sets.
fn token(method: &str, path: &str) -> ReplayVariable {
    ReplayVariable {
        name: "token".to_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
        is_prefix: true,
        source: ValueSource::Header("X-Token".to_owned()),
    }
}

/// Replays requests of sessions, each due at a time in milliseconds.
fn replay(
    target: SocketAddr,
    requests: Vec<Request>,
    events: &[(u64, u32, u32)],
    variables: Vec<ReplayVariable>,
) -> Plan {
    let workload = Workload::new(requests, vec![0]).unwrap();
    let times = events.iter().map(|(ms, _, _)| ms * 1_000_000).collect();
    let events: Vec<ReplayEvent> =
        events.iter().map(|&(_, session, request)| ReplayEvent { session, request }).collect();
    let count = events.len() as u64;
    let pace = Pace::Recorded { factor: 1.0 };
    let replay = Replay::new(&workload, events, variables, pace).unwrap();
    with(plan(target, count), |plan| {
        plan.workload = Arc::new(workload);
        plan.arrivals = Arrivals::Replay(ReplayPlan {
            replay: Arc::new(replay),
            rate: Rate::Recorded(times),
            connections_max: 100,
        });
        plan.phases = Phases::Endless;
    })
}

fn sessions(summary: &Summary) -> &ReplaySummary {
    summary.replay.as_ref().unwrap()
}

/// Each session logs in, which sets a cookie and a token, and sends further requests with both, which wait for it.
#[test]
fn sessions_keep_order_connections_cookies_and_variables() {
    let tokens = AtomicUsize::new(0);
    let (server, log) = logging(move |peer, arrival| {
        let token = tokens.fetch_add(1, Ordering::SeqCst);
        let session = arrival.path().trim_start_matches("/s").split('/').next().unwrap();
        let cookie = match arrival.path().ends_with("/login") {
            true => format!("Set-Cookie: sid={session}; Path=/; HttpOnly\r\n"),
            false => String::new(),
        };
        let text = format!(
            "HTTP/1.1 200 OK\r\n{cookie}X-Token: {token}-{session}\r\nContent-Length: 2\r\n\r\nok"
        );
        // In two pieces, of which the first ends within the head.
        let (head, rest) = text.split_at(30);
        peer.send(head.as_bytes());
        peer.send(rest.as_bytes());
    });
    let mut requests = Vec::new();
    let mut events = Vec::new();
    for session in 0..5 {
        for number in 0..4_u64 {
            let text = match number {
                0 => format!(
                    "POST /s{session}/login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
                ),
                _ => format!(
                    "GET /s{session}/{number}?t={{{{token}}}} HTTP/1.1\r\nHost: a\r\nCookie: theme=dark; sid=xxxx\r\n\r\n"
                ),
            };
            events.push((number, session, requests.len() as u32));
            requests.push(request(&text));
        }
    }
    events.sort_by_key(|(ms, _, _)| *ms);
    for threads in [1, 3] {
        log.lock().unwrap().clear();
        let plan = replay(server.address, requests.clone(), &events, vec![token("POST", "/s")]);
        let summary = run(with(plan, |plan| plan.clients.threads = threads));
        assert_eq!((summary.sent, summary.responses, summary.unexpected), (20, 20, 0));
        assert_eq!(sessions(&summary).planned, 20);
        assert_eq!((sessions(&summary).sessions, sessions(&summary).cookies), (5, 5));
        assert_eq!((sessions(&summary).extractions, sessions(&summary).failed_extractions), (5, 0));
        assert_eq!(sessions(&summary).without_value, 0);
        let log = log.lock().unwrap();
        for session in 0..5 {
            let of = |path: &str| path.starts_with(&format!("/s{session}/"));
            let own: Vec<&Arrival> = log.iter().filter(|one| of(one.path())).collect();
            assert_eq!(own.len(), 4, "{log:?}");
            assert!(own[0].path().ends_with("/login"), "{own:?}");
            let connections: HashSet<u64> = own.iter().map(|one| one.connection).collect();
            let is_own = |one: &&Arrival| connections.contains(&one.connection);
            assert!(log.iter().filter(is_own).all(|one| of(one.path())), "{log:?}");
            for one in &own[1..] {
                let cookies = format!("theme=dark; sid={session}");
                assert_eq!(one.header("Cookie"), Some(cookies.as_str()), "{own:?}");
                assert!(one.path().ends_with(&format!("-{session}")), "{own:?}");
            }
        }
    }
}

/// Each response sets the token of the next request, so that the requests of a session arrive one after the other.
#[test]
fn requests_wait_for_the_response_with_their_variable() {
    let (server, log) = logging(|peer, arrival| {
        // Later than the next requests are due.
        peer.sleep(Duration::from_millis(20));
        let token = arrival.path().replace('/', "-");
        peer.send(
            format!("HTTP/1.1 200 OK\r\nX-Token: {token}\r\nContent-Length: 0\r\n\r\n").as_bytes(),
        );
    });
    let requests = vec![get("/a"), get("/b?{{token}}"), get("/c?{{token}}")];
    let events = [(0, 0, 0), (1, 0, 1), (2, 0, 2)];
    let summary = run(replay(server.address, requests, &events, vec![token("GET", "/")]));
    let log = log.lock().unwrap();
    let paths: Vec<&str> = log.iter().map(Arrival::path).collect();
    assert_eq!(paths, ["/a", "/b?-a", "/c?-b?-a"]);
    assert_eq!((sessions(&summary).extractions, sessions(&summary).without_value), (3, 0));
    assert!(sessions(&summary).awaited >= 1, "{summary:?}");
    // Counted from the time when they were due.
    assert!(summary.latency.max_ns().unwrap() >= 40_000_000, "{summary:?}");
    assert!(summary.responses == 3 && summary.lateness.unwrap().count() == 3);
}

#[test]
fn slow_response_delays_neither_its_session_nor_others() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let (server, _) = logging({
        let arrived = Arc::clone(&arrived);
        move |peer, arrival| {
            arrived.fetch_add(1, Ordering::SeqCst);
            // Until all others have arrived.
            while arrival.path() == "/slow"
                && arrived.load(Ordering::SeqCst) < 21
                && peer.sleep(Duration::from_millis(1))
            {}
            peer.send(OK);
        }
    });
    let events: Vec<(u64, u32, u32)> = [(0, 0, 0)]
        .into_iter()
        .chain((1..=20).map(|number| (number, (number % 2) as u32, 1)))
        .collect();
    let summary = run(replay(server.address, vec![get("/slow"), get("/")], &events, vec![]));
    assert_eq!((summary.responses, summary.failures.total(), summary.queued), (21, 0, 0));
    assert_eq!(arrived.load(Ordering::SeqCst), 21);
    // The session of the slow one uses a second connection.
    assert!(summary.connects >= 3, "{summary:?}");
}

#[test]
fn requests_are_never_sent_before_their_time() {
    let (server, log) = logging(|peer, _| peer.send(OK));
    let due_ms = [0, 40, 41, 41, 120];
    let requests = (0..5).map(|number| get(&format!("/{number}"))).collect();
    let events: Vec<_> = due_ms.iter().zip(0..).map(|(ms, number)| (*ms, number, number)).collect();
    let generator = Generator::start(replay(server.address, requests, &events, vec![])).unwrap();
    let start = generator.starts_at();
    wait_until(|| generator.is_done());
    let summary = finish(generator);
    let late = summary.lateness.as_ref().unwrap();
    assert_eq!((summary.responses, late.count()), (5, 5));
    let log = log.lock().unwrap();
    for arrival in log.iter() {
        let number: usize = arrival.path()[1..].parse().unwrap();
        let due = start + Duration::from_millis(due_ms[number]);
        assert!(arrival.at >= due, "{arrival:?}");
        // Its latency ends after the arrival, and starts when it was due.
        let latency_max = Duration::from_nanos(summary.latency.max_ns().unwrap());
        assert!(arrival.at - due <= latency_max.mul_f64(1.01), "{arrival:?} {latency_max:?}");
    }
}

#[test]
fn sessions_share_few_connections_without_mixing() {
    let (server, log) = logging(|peer, _| peer.send(OK));
    let requests: Vec<Request> = (0..8).map(|session| get(&format!("/{session}"))).collect();
    let events: Vec<(u64, u32, u32)> =
        (0..40).map(|number| (number / 10, (number % 8) as u32, (number % 8) as u32)).collect();
    let plan = replay(server.address, requests, &events, vec![]);
    let summary = run(with(plan, |plan| set_connections_max(plan, 2)));
    assert_eq!((summary.sent, summary.responses, summary.unsent), (40, 40, 0), "{summary:?}");
    assert!(summary.queued > 0, "{summary:?}");
    let log = log.lock().unwrap();
    let of_connection: HashSet<(u64, &str)> =
        log.iter().map(|one| (one.connection, one.path())).collect();
    let connections: HashSet<u64> =
        of_connection.iter().map(|(connection, _)| *connection).collect();
    // One session on each.
    assert_eq!(of_connection.len(), connections.len(), "{of_connection:?}");
    assert!(connections.len() >= 8);
}

#[test]
fn failed_extractions_are_counted_and_the_value_is_empty() {
    let (server, log) = logging(|peer, arrival| match arrival.path() {
        "/gone" => {}
        _ => peer
            .send(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Domain=b\r\nContent-Length: 2\r\n\r\n{}"),
    });
    let requests = vec![get("/login"), get("/b?t={{id}}")];
    let variable = ReplayVariable {
        name: "id".to_owned(),
        is_prefix: false,
        source: ValueSource::Json("/id".to_owned()),
        ..token("GET", "/login")
    };
    let summary = run(replay(server.address, requests, &[(0, 0, 0), (1, 0, 1)], vec![variable]));
    // The second request waits if it is due before the response.
    assert!(sessions(&summary).awaited <= 1, "{summary:?}");
    let found = ReplaySummary { awaited: 0, ..sessions(&summary).clone() };
    let expected = ReplaySummary {
        planned: 2,
        sessions: 1,
        rejected_cookies: 2,
        failed_extractions: 1,
        failed_extraction_example: Some("`id` from GET /login: the body has no `/id`".to_owned()),
        without_value: 1,
        ..ReplaySummary::default()
    };
    assert_eq!(found, expected);
    assert_eq!(log.lock().unwrap()[1].path(), "/b?t=");
}

#[test]
fn failed_requests_end_the_wait_for_their_variable() {
    let (server, log) = logging(|peer, arrival| match arrival.path() {
        "/login" => peer.hang(),
        _ => peer.send(OK),
    });
    let requests = vec![get("/login"), get("/b?t={{token}}")];
    let plan =
        replay(server.address, requests, &[(0, 0, 0), (1, 0, 1)], vec![token("GET", "/login")]);
    let summary = run(with(plan, |plan| plan.clients.response_timeout = Duration::from_secs(1)));
    assert_eq!((summary.responses, summary.failures.response_timeout), (1, 1));
    let counts = sessions(&summary);
    assert_eq!((counts.extractions, counts.failed_extractions, counts.without_value), (0, 0, 1));
    assert_eq!(log.lock().unwrap()[1].path(), "/b?t=");
}

/// Each request waits for the variable of the one before, which times out. Only the check of timeouts wakes the session.
#[test]
fn timeout_wakes_the_requests_that_wait_for_its_variable() {
    const REQUESTS: u32 = 10;
    const TIMEOUT: Duration = Duration::from_millis(300);
    let (server, log) = logging(|peer, _| peer.hang());
    let requests = vec![get("/hang?{{token}}")];
    let events: Vec<(u64, u32, u32)> = (0..REQUESTS).map(|ms| (u64::from(ms), 0, 0)).collect();
    let plan = replay(server.address, requests, &events, vec![token("GET", "/hang")]);
    let started_at = Instant::now();
    let summary = run(with(plan, |plan| plan.clients.response_timeout = TIMEOUT));
    assert_eq!(summary.failures.response_timeout, u64::from(REQUESTS));
    let took = log.lock().unwrap().last().unwrap().at - started_at;
    // Nine timeouts; if each request were sent at the check after that, eighteen.
    assert!(took >= (REQUESTS - 1) * TIMEOUT && took < (REQUESTS + 5) * TIMEOUT, "{took:?}");
}

#[test]
fn each_request_that_waits_for_a_variable_is_counted() {
    let (server, log) = logging({
        move |peer, arrival| {
            if arrival.path() == "/slow" {
                peer.sleep(Duration::from_millis(300));
            }
            peer.send(b"HTTP/1.1 200 OK\r\nX-Token: 7\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let requests = vec![get("/slow"), get("/x?{{token}}")];
    let events: Vec<(u64, u32, u32)> =
        (0..=150).map(|number| (number, 0, u32::from(number > 0))).collect();
    let plan = replay(server.address, requests, &events, vec![token("GET", "/slow")]);
    let summary = run(plan.clone());
    assert_eq!(sessions(&summary).awaited, 150, "{summary:?}");
    assert_eq!(log.lock().unwrap()[1].path(), "/x?7");
    // The verdict depends on the lateness, which a busy machine may raise.
    let quiet = Summary { lateness: None, queued: 0, ..summary };
    let reason = LoadVerdict::new(&plan, &quiet).reason;
    assert!(reason.ends_with(", but 150 waited for a variable"), "{reason}");
}

/// A session with a backlog shares the only connection with another one, whose request is older than the rest of it.
#[test]
fn session_with_a_backlog_hands_its_connection_over() {
    let (server, log) = logging(|peer, arrival| {
        if arrival.path() == "/0" {
            // Until all others are due.
            peer.sleep(Duration::from_millis(100));
        }
        peer.send(OK);
    });
    let requests = vec![get("/0"), get("/a"), get("/b")];
    let mut events = vec![(0, 0, 0), (1, 0, 1), (2, 1, 2)];
    events.extend((3..20).map(|ms| (ms, 0, 1)));
    let plan = replay(server.address, requests, &events, vec![]);
    let summary = run(with(plan, |plan| set_connections_max(plan, 1)));
    assert_eq!((summary.responses, summary.unsent), (20, 0), "{summary:?}");
    let log = log.lock().unwrap();
    let paths: Vec<&str> = log.iter().take(4).map(Arrival::path).collect();
    assert_eq!(paths, ["/0", "/a", "/b", "/a"]);
}

#[test]
fn server_may_close_the_connections_of_sessions() {
    let (server, log) = logging(|peer, _| peer.send(crate::server::LAST));
    let events: Vec<(u64, u32, u32)> =
        (0..20).map(|number| (number, (number % 2) as u32, 0)).collect();
    let summary = run(replay(server.address, vec![get("/")], &events, vec![]));
    assert_eq!((summary.responses, summary.failures.total()), (20, 0), "{summary:?}");
    assert_eq!(log.lock().unwrap().len(), 20);
}

#[test]
fn closed_port_fails_each_request_once() {
    let address = crate::server::closed_port();
    let events: Vec<(u64, u32, u32)> = (0..10).map(|number| (number, number as u32, 0)).collect();
    let plan = replay(address, vec![get("/")], &events, vec![]);
    let summary = run(with(plan, |plan| set_connections_max(plan, 3)));
    assert_eq!(
        (summary.sent, summary.failures.refused, summary.unsent),
        (10, 10, 0),
        "{summary:?}"
    );
}

#[test]
fn requests_of_an_ended_replay_are_unsent() {
    let server = Server::stalled();
    let plan =
        replay(server.address, vec![get("/")], &[(0, 0, 0), (1, 1, 0), (600_000, 1, 0)], vec![]);
    let generator = Generator::start(with(plan, |plan| set_connections_max(plan, 1))).unwrap();
    wait_until(|| server.requests() == 1);
    let due = generator.starts_at() + Duration::from_millis(1);
    // From then on it counts as unsent, whether or not the thread has queued it.
    wait_until(|| Instant::now() > due + LATENESS_MAX);
    let summary = finish(generator);
    assert_eq!((summary.sent, summary.in_flight, summary.unsent), (1, 1, 1), "{summary:?}");
    assert_eq!(sessions(&summary).planned, 3);
}

#[test]
fn streams_of_a_session_share_its_connection_and_cookies() {
    let connections = AtomicU64::new(0);
    let log = Arc::new(Mutex::new(Vec::new()));
    let server = Server::start({
        let log = Arc::clone(&log);
        move |peer| {
            let connection = connections.fetch_add(1, Ordering::SeqCst);
            let mut streams = Streams::new(peer, Limits::default());
            while let Some(request) = streams.request() {
                log.lock().unwrap().push((connection, request.path.clone(), request.cookie));
                match request.path.strip_suffix("/login") {
                    Some(session) => {
                        let cookie = format!("sid={}; Path=/", &session[1..]);
                        streams.respond_with_header(
                            request.stream,
                            b"set-cookie",
                            cookie.as_bytes(),
                        );
                    }
                    None => streams.respond_with_header(request.stream, b"x-token", b"7"),
                }
            }
        }
    });
    let requests = vec![
        get("/0/login"),
        get("/1/login"),
        get("/0/a"),
        get("/1/a"),
        get("/0/{{token}}"),
        get("/1/{{token}}"),
    ];
    let events = [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3), (2, 0, 4), (2, 1, 5)];
    let plan = replay(server.address, requests, &events, vec![token("GET", "/")]);
    let summary = run(with(plan, |plan| plan.clients.protocol = Protocol::Http2 { streams: 10 }));
    assert_eq!((summary.responses, summary.connects), (6, 2), "{summary:?}");
    // The response to a login has none.
    assert_eq!(sessions(&summary).failed_extractions, 2);
    assert_eq!((sessions(&summary).extractions, sessions(&summary).cookies), (4, 2));
    let log = log.lock().unwrap();
    for session in 0..2 {
        let own: Vec<_> =
            log.iter().filter(|(_, path, _)| path.starts_with(&format!("/{session}/"))).collect();
        assert_eq!(own.len(), 3, "{log:?}");
        assert!(own.iter().all(|(connection, _, _)| *connection == own[0].0), "{log:?}");
        let cookie = Some(format!("sid={session}"));
        let last = own.iter().find(|(_, path, _)| path.ends_with("/7")).unwrap();
        assert_eq!(last.2, cookie, "{log:?}");
    }
}

#[test]
fn sessions_keep_their_cookies_over_tls() {
    let server = tls::server(b"http/1.1", |peer| {
        while let Some(request) = peer.request() {
            let request = String::from_utf8(request).unwrap();
            let head = match request.starts_with("GET /login ") {
                true => "200 OK\r\nSet-Cookie: a=1; Secure\r\nX-Token: 7",
                false if request.contains("\r\nCookie: a=1\r\n") => "200 OK",
                false => "403 Forbidden",
            };
            peer.send(format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        }
    });
    let requests = vec![get("/login"), get("/a?{{token}}")];
    let events = [(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1)];
    let plan = replay(server.address, requests, &events, vec![token("GET", "/login")]);
    let summary = run(tls::over_tls(&tls::TRUSTING, plan));
    assert_eq!((summary.responses, summary.unexpected, summary.connects), (4, 0, 2), "{summary:?}");
    assert_eq!(summary.handshake_time.as_ref().unwrap().count(), 2);
    assert_eq!((sessions(&summary).cookies, sessions(&summary).extractions), (2, 2));
}

#[test]
fn plans_that_cannot_be_replayed_are_named() {
    let plan = || replay(([127, 0, 0, 1], 1).into(), vec![get("/")], &[(0, 0, 0)], vec![]);
    let two = |plan: &mut Plan| match &mut plan.arrivals {
        Arrivals::Replay(plan) => plan.rate = Rate::Recorded([0, 1].into()),
        other => panic!("not a replay: {other:?}"),
    };
    let pipeline = Protocol::Http1 { pipeline: 2 };
    for (plan, reason) in [
        (with(plan(), two), "with another number of recorded times"),
        (with(plan(), |plan| plan.clients.protocol = Protocol::Http1Close), "without keep-alive"),
        (with(plan(), |plan| plan.phases = Phases::WarmUp), "in part"),
        (with(plan(), |plan| plan.phases = Phases::Requests(1)), "in part"),
        (with(plan(), |plan| plan.clients.protocol = pipeline), "with several requests"),
        (with(plan(), |plan| plan.shard = Shard { index: 0, count: 2 }), "with several generators"),
    ] {
        let error = plan.validate().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
