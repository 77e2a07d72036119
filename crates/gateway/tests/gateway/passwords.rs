//! Routes that ask for users and passwords.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;
use tollgate_gateway::Config;

use crate::support::http2::{GET_FIELDS, Http2Peer};
use crate::support::{Backend, OK, TestGateway, poll};

/// `ann` with the password `open sesame`, by `crypt`.
const USERS: &str = "ann:$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy\n";
/// The same, whose check takes seconds, and longer where code is not optimised.
const SLOW_USERS: &str = "ann:$6$rounds=1000000$saltsalt$8S9ne4ts.WXVb9EYlnlzlgVptoCzx.w8CrcVGkVd/2zh7cL2z6pgfZ6E6tR5guOM0AWV/eO8f0/E3OtmKWv0G/\n";
/// `ann:open sesame`.
const RIGHT: &str = "Basic YW5uOm9wZW4gc2VzYW1l";
/// `ann:open`.
const WRONG: &str = "Basic YW5uOm9wZW4=";
const RIGHT_POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YW5uOm9wZW4gc2VzYW1l\r\nContent-Length: 2\r\n\r\n";
const REFUSED: &str = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"staff\", charset=\"UTF-8\"\r\n\
                       Content-Type: text/plain; charset=utf-8\r\nContent-Length: 34\r\n\r\n\
                       A user and a password are needed.\n";

struct Scene {
    gateway: TestGateway,
    backend: Backend,
    folder: TempDir,
}

impl Scene {
    /// A route for these users and with these keys.
    fn start(users: &str, route: &str) -> Self {
        let (backend, folder) = (Backend::start(), TempDir::new().unwrap());
        let config = Self::config(&backend, &folder, users, route);
        Self { gateway: TestGateway::start(&config), backend, folder }
    }

    fn config(backend: &Backend, folder: &TempDir, users: &str, route: &str) -> Config {
        fs::write(folder.path().join("users"), users).unwrap();
        let text = format!(
            "listeners: [{{ address: '127.0.0.1:0', http2: true }}]\nadmin: 127.0.0.1:0\n\
             routes: [{{ path: /a, pool: p, basic_auth: {{ users: users, realm: staff }}, {route} }}, {{ pool: p }}]\n\
             forwarded: {{ via: null, x_forwarded: false }}\naccess_log: {{ to: log }}\n\
             pools: [{{ name: p, backends: [{{ address: '{}' }}] }}]\n",
            backend.addr()
        );
        let config = Config::parse(&text, &folder.path().join("g.yaml"));
        config.unwrap_or_else(|error| panic!("{error}"))
    }

    fn checks(&self, result: &str) -> u64 {
        self.gateway.metric(&format!("password_checks_total{{result=\"{result}\"}}"))
    }
}

fn with_authorization(value: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: {value}\r\n\r\n")
}

#[test]
fn password_opens_a_route_and_is_checked_once() {
    let scene = Scene::start(USERS, "request_headers: { set: { X-User: '${user}' } }");
    let mut client = scene.gateway.client();
    for refused in [
        "GET /a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        with_authorization(WRONG),
        // Another reading of the path.
        with_authorization(WRONG).replace("/a", "//%61"),
        with_authorization("Bearer YW5uOm9wZW4gc2VzYW1l"),
        with_authorization("Basic YW5uOm9wZW4gc2VzYW1"),
        // Two servers could take different ones.
        with_authorization(&format!("{RIGHT}\r\nAuthorization: {RIGHT}")),
        // `bob:open sesame`.
        with_authorization("Basic Ym9iOm9wZW4gc2VzYW1l"),
    ] {
        client.send(refused);
        client.expect_dated(REFUSED);
    }
    let mut upstream = None;
    for _ in 0..3 {
        client.send(with_authorization(RIGHT).replace("x\r\n", "x\r\nX-User: root\r\n"));
        let upstream = upstream.get_or_insert_with(|| scene.backend.accept());
        upstream.expect(with_authorization(&format!("{RIGHT}\r\nX-User: ann")));
        upstream.send(OK);
        client.expect(OK);
    }
    // One that is wrong is checked again after a second.
    assert!(scene.checks("valid") == 1 && scene.checks("invalid") >= 2);
    // Another route is open.
    client.send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut upstream = upstream.unwrap();
    upstream.expect("GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    upstream.send(OK);
    client.expect(OK);
    let lines = poll(|| {
        let text = fs::read_to_string(scene.folder.path().join("log")).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() == 11 { Ok(lines) } else { Err(text) }
    });
    let has = |line: &str, part: &str| assert!(line.contains(part), "{line}");
    lines[..7].iter().for_each(|line| has(line, "\" 401 34 \"-\" \"-\" \"password\""));
    lines[..7].iter().for_each(|line| has(line, "127.0.0.1 - - ["));
    lines[7..10].iter().for_each(|line| has(line, "127.0.0.1 - ann ["));
    has(&lines[10], "127.0.0.1 - - [");
}

#[test]
fn requests_over_http2_wait_for_passwords() {
    let scene = Scene::start(USERS, "request_headers: { remove: [Authorization] }");
    let mut client = Http2Peer::connect(scene.gateway.address());
    for (stream, value) in [(1, RIGHT), (3, WRONG)] {
        client.request(stream, true, &[GET_FIELDS, &[("authorization", value)]].concat());
    }
    let mut upstream = scene.backend.accept();
    upstream.expect("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    upstream.send(OK);
    assert_eq!(client.response(1).text().0, "200");
    let refused = client.response(3);
    assert_eq!(refused.text().0, "401");
    let challenge = "Basic realm=\"staff\", charset=\"UTF-8\"";
    assert_eq!(refused.header("www-authenticate"), Some(challenge));
}

#[test]
fn request_that_waits_for_its_password_counts_once() {
    let scene =
        Scene::start(USERS, "per_client: { requests: 1, per: 1h, burst: 3, concurrent: 1 }");
    let mut client = scene.gateway.client();
    client.send(with_authorization(WRONG));
    client.expect_dated(REFUSED);
    let mut upstream = None;
    for _ in 0..2 {
        client.send(with_authorization(RIGHT));
        let upstream = upstream.get_or_insert_with(|| scene.backend.accept());
        upstream.expect(with_authorization(RIGHT));
        upstream.send(OK);
        client.expect(OK);
    }
    // Beyond the rate, no password is checked.
    client.send(with_authorization("Basic YW5uOm90aGVy"));
    client.expect_local_response(429);
    assert_eq!((scene.checks("valid"), scene.checks("invalid")), (1, 1));
}

#[test]
fn reload_with_other_users_forgets_passwords() {
    let scene = Scene::start(USERS, "");
    let mut client = scene.gateway.client();
    client.send(with_authorization(RIGHT));
    let mut upstream = scene.backend.accept();
    upstream.expect(with_authorization(RIGHT));
    upstream.send(OK);
    client.expect(OK);
    let config = |users: &str| Scene::config(&scene.backend, &scene.folder, users, "");
    scene.gateway.reload(config(USERS));
    client.send(with_authorization(RIGHT));
    let mut upstream = scene.backend.accept();
    upstream.expect(with_authorization(RIGHT));
    upstream.send(OK);
    client.expect(OK);
    assert_eq!(scene.checks("valid"), 1);
    scene.gateway.reload(config(&USERS.replace("ann:", "bob:")));
    client.send(with_authorization(RIGHT));
    client.expect_dated(REFUSED);
}

#[test]
fn client_has_a_part_of_the_checks_and_waits_as_long_as_for_a_head() {
    let (backend, folder) = (Backend::start(), TempDir::new().unwrap());
    let mut config = Scene::config(&backend, &folder, SLOW_USERS, "");
    config.timeouts.header = Duration::from_millis(300);
    config.listeners[0].proxy_protocol =
        Some(["127.0.0.1/32".parse().unwrap()].into_iter().collect());
    let gateway = TestGateway::start(&config);
    let mut guesses = b'h'..;
    // A check of another client takes most of a second, and there are twelve of them in front of the last one.
    let mut guess = |ip: u8| {
        let mut client = gateway.client();
        // `ann:opaaa` and so on.
        let value = format!("Basic YW5uOm9wYWF{}", char::from(guesses.next().unwrap()));
        client.send(format!("PROXY TCP4 192.0.2.{ip} 127.0.0.1 1 2\r\n"));
        client.send(with_authorization(&value));
        gateway.turn();
        client
    };
    let _waiting: Vec<_> = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3].map(&mut guess).into();
    // The fifth of its client is refused at once, and the first of another one is late.
    for (ip, refused) in [(3, 1), (4, 1)] {
        let response = guess(ip).expect_local_response(503);
        assert_eq!(response.text(), "Too many passwords are being checked; try again later.\n");
        assert_eq!(response.header("Retry-After"), Some("1"));
        assert_eq!(gateway.metric("password_checks_total{result=\"refused\"}"), refused);
    }
    let line = poll(|| {
        let text = fs::read_to_string(folder.path().join("log")).unwrap();
        let line = text.lines().find(|line| line.starts_with("192.0.2.4 "));
        line.map(str::to_owned).ok_or(text)
    });
    assert!(line.contains("\"GET /a HTTP/1.1\" 503 "), "{line}");
    assert!(line.ends_with("\"password-checks\""), "{line}");
}

#[test]
fn reload_has_waiting_passwords_checked_with_its_users() {
    let scene = Scene::start(SLOW_USERS, "");
    let mut client = scene.gateway.client();
    // Behind the head are its body and another request.
    let body = RIGHT_POST.to_owned() + "hi" + &with_authorization(RIGHT);
    client.send(body);
    scene.gateway.turn();
    scene.gateway.reload(Scene::config(&scene.backend, &scene.folder, USERS, ""));
    let mut upstream = scene.backend.accept();
    upstream.expect(RIGHT_POST.to_owned() + "hi");
    upstream.send(OK);
    client.expect(OK);
    upstream.expect(with_authorization(RIGHT));
    upstream.send(OK);
    client.expect(OK);
}
