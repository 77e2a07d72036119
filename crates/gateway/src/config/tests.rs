//! Configuration files, and the error of each invalid one.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;

const SHORTEST: &str = "\
listeners:
  - address: 127.0.0.1:8080
pools:
  - name: site
    backends:
      - address: 127.0.0.1:9001
";

fn parse(text: &str) -> Config {
    Config::parse(text, Path::new("/etc/g/gateway.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    Config::parse(text, Path::new("g.yaml")).unwrap_err().to_string()
}

/// The error of the shortest configuration with these lines added.
fn error_with(more: &str) -> String {
    error(&format!("{SHORTEST}{more}"))
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn minimal_configuration_has_defaults() {
    let listen = Address::Tcp("127.0.0.1:8080".parse().unwrap());
    let mut expected = Config::new(listen, Address::Tcp("127.0.0.1:9001".parse().unwrap()));
    expected.pools[0].name = "site".to_owned();
    assert_eq!(parse(SHORTEST), expected);
}

#[test]
fn every_setting_is_read() {
    let config = parse(
        "threads: 4
listeners:
  - { address: '[::1]:80', backlog: 16, defer_accept: true }
  - address: unix:g.sock
routes:
  - { host: WWW.example.org, path: /a, pool: two, rewrite: /,
      request_headers: { set: { X-A: ' b ' }, remove: [Cookie] } }
  - { host: '*.example.org', pool: one }
  - { pool: one }
pools:
  - name: one
    balance: least-connections
    backends: [{ address: 127.0.0.1:1, weight: 3 }, { address: 127.0.0.1:2, weight: 0 }]
    keepalive_max: 10
    connections_max: 10
    queue_max: 0
    buffer: { request: 7, response: 0 }
    queue_timeout: 400ms
    retries: 0
    close_after_head: true
    health: { path: /up, host: up.example, status: '200-299, 404', interval: 1s }
    eject: { failures: 2 }
  - name: two
    protocol: h2
    streams_max: 7
    balance: { consistent-hash: { header: X-User } }
    health: { tcp: true }
    backends: [{ address: unix:/b.sock }]
resolve: { interval: 1m, family: all }
timeouts: { connect: 1m 30s, body_rate: 0, abandoned: 2s, tunnel: 1h, drain: 5s, drain_delay: 7s }
limits: { response_headers: 256, body_bytes: 10, connections: 41, connections_per_client: 3 }
requests: { path: raw, trace: true, upgrades: [WebSocket, a/1], half_close: true, underscores: true, remove_headers: [X-A] }
forwarded: { via: null, forwarded: true }
access_log: { to: log/access.json, format: json }
admin: 127.0.0.1:9900
",
    );
    assert_eq!(config.threads.get(), 4);
    assert_eq!(config.resolve.interval, Duration::from_secs(60));
    assert_eq!(config.resolve.family, AddressFamily::All);
    assert_eq!(config.listeners[0].address.to_string(), "[::1]:80");
    assert_eq!(config.listeners[0].backlog, 16);
    assert!(config.listeners[0].defer_accept);
    assert!(!config.listeners[1].defer_accept);
    assert_eq!(config.listeners[1].address, Address::Unix("/etc/g/g.sock".into()));
    let [exact, below, any] = &config.routes[..] else { panic!("{:?}", config.routes) };
    assert_eq!(exact.host, HostPattern::Exact("www.example.org".to_owned()));
    assert_eq!((exact.path_prefix.as_str(), &exact.action), ("/a", &Action::Forward(PoolId(1))));
    assert_eq!(exact.rewrite.as_deref(), Some("/"));
    assert_eq!(exact.request_headers.set, [("X-A".to_owned(), "b".to_owned())]);
    assert_eq!(exact.request_headers.remove, ["cookie"]);
    assert_eq!(exact.response_headers, HeaderEdits::default());
    assert_eq!(below.host, HostPattern::Below("example.org".to_owned()));
    assert_eq!(any, &Route::all_to(PoolId(0)));
    let one = &config.pools[0];
    assert_eq!(one.balance, Balance::LeastConnections);
    assert_eq!(one.backends.iter().map(|backend| backend.weight).collect::<Vec<_>>(), [3, 0]);
    // The share of one of four threads: rounded up for idle connections, rounded down for the limit.
    assert_eq!((one.keepalive_max, one.connections_max), (3, NonZeroU32::new(2)));
    assert_eq!((one.queue_max, one.queue_timeout), (0, Duration::from_millis(400)));
    assert_eq!((one.buffer_request, config.pools[1].buffer_request), (7, 65_536));
    assert_eq!((one.buffer_response, config.pools[1].buffer_response), (0, 65_536));
    let second = Duration::from_secs(1);
    let request = Some(HealthRequest {
        host: Some("up.example".to_owned()),
        statuses: vec![200..=299, 404..=404],
        ..HealthRequest::get("/up")
    });
    let health = HealthCheck { request, interval: second, timeout: second, rise: 2, fall: 3 };
    assert_eq!(one.health, Some(health));
    let requests_of = |status: &str| {
        let yaml = format!("    health: {{ path: /, status: {status} }}\n");
        let config = parse(&format!("{SHORTEST}{yaml}"));
        config.pools[0].health.as_ref().unwrap().request.as_ref().unwrap().statuses.clone()
    };
    assert_eq!(requests_of("204"), [204..=204]);
    assert_eq!(requests_of("200-204"), [200..=204]);
    assert_eq!(config.pools[1].health.as_ref().unwrap().request, None);
    assert_eq!(one.eject, Some(Ejection { failures: 2, duration: Duration::from_secs(10) }));
    assert_eq!(one.retries, 0);
    assert!(one.close_after_head && !config.pools[1].close_after_head);
    assert_eq!(one.protocol, Protocol::Http1);
    assert_eq!(config.pools[1].protocol, Protocol::Http2 { streams_max: 7 });
    let by = HashBy::Header("x-user".to_owned());
    assert_eq!(config.pools[1].balance, Balance::ConsistentHash { by });
    let timeouts = Timeouts {
        connect: Duration::from_secs(90),
        body_rate: None,
        abandoned: Duration::from_secs(2),
        tunnel: Duration::from_secs(3_600),
        drain: Duration::from_secs(5),
        drain_delay: Duration::from_secs(7),
        ..Timeouts::default()
    };
    assert_eq!(config.timeouts, timeouts);
    assert_eq!(
        config.limits,
        Limits {
            response_headers: 256,
            body_bytes: Some(10),
            connections: 10,
            connections_per_client: Some(3),
            held_body_bytes: 64 << 20,
            ..Limits::default()
        }
    );
    let requests = Requests {
        path: PathForm::Raw,
        trace: true,
        upgrades: vec!["websocket".to_owned(), "a/1".to_owned()],
        half_close: true,
        underscores: true,
        remove_headers: vec!["x-a".to_owned()],
        remove_headers_of_trusted: vec!["x-a".to_owned()],
    };
    assert_eq!(config.requests, requests);
    assert_eq!(config.forwarded.via, None);
    assert!(config.forwarded.forwarded && config.forwarded.x_forwarded);
    let log =
        AccessLog { to: LogTarget::File("/etc/g/log/access.json".into()), format: LogFormat::Json };
    assert_eq!(config.access_log, Some(log));
    assert_eq!(config.admin, Some("127.0.0.1:9900".parse().unwrap()));
}

#[test]
fn unknown_keys_are_reported_with_line_and_nearest_key() {
    assert_eq!(
        error(&SHORTEST.replace("backends", "backend")),
        "g.yaml:5:5: unknown key `backend`; did you mean `backends`?"
    );
    assert_eq!(
        error_with("timeouts:\n  conect: 5s\n"),
        "g.yaml:8:3: unknown key `conect`; did you mean `connect`?"
    );
    assert_eq!(
        error_with("quite_another: 5\n"),
        "g.yaml:7:1: unknown key `quite_another`; expected one of `threads`, `listeners`, `acme`, `routes`, `pools`, `resolve`, \
         `timeouts`, `limits`, `requests`, `forwarded`, `error_pages`, `access_log`, `waf`, `audit_log`, `admin`"
    );
    assert_eq!(
        error_with("    balance: round_robin\n"),
        "g.yaml:7:14: unknown value `round_robin`; did you mean `round-robin`?"
    );
    assert_eq!(
        error_with("    balance: { consistent-hash: header }\n"),
        "g.yaml:7:40: expected a string"
    );
    assert_eq!(
        error_with("    balance: { consistent-hash: { cookie: a b } }\n"),
        "g.yaml:7:43: `a b` is not a name of a cookie such as backend"
    );
}

#[test]
fn syntax_errors_are_reported_with_line() {
    assert_eq!(error("pools: []\n"), "g.yaml:1:1: missing key `listeners`");
    assert_eq!(
        error_with("timeouts: { idle: soon }\n"),
        "g.yaml:7:19: `soon` is not a duration such as 10s or 400ms: expected number at 0"
    );
    assert_eq!(error_with("    retries: many\n"), "g.yaml:7:14: expected an integer of 0 or more");
    assert_eq!(
        error_with("forwarded: { forwarded: maybe }\n"),
        "g.yaml:7:25: expected true or false"
    );
    assert_eq!(
        error_with("threads: 1\nthreads: 2\n"),
        "g.yaml:8:1: duplicate key `threads`; remove one of them"
    );
    for (more, expected) in [
        (
            "admin: { address: 127.0.0.1:9900 }\n",
            "g.yaml:7:8: expected a string; write it as in `admin: 127.0.0.1:9900`",
        ),
        (
            "admin:\n  address: 127.0.0.1:9900\n",
            "g.yaml:8:3: expected a string; write it as in `admin: 127.0.0.1:9900`",
        ),
        (
            "access_log: stdout\n",
            "g.yaml:7:13: expected keys with values; write it as in `access_log: { to: stdout }`",
        ),
        (
            "    health: /up\n",
            "g.yaml:7:13: expected keys with values; write it as in `health: { path: /status }`",
        ),
        (
            "routes: { path: /, pool: site }\n",
            "g.yaml:7:9: expected a list; write it as in `routes: [{ path: /, pool: site }]`",
        ),
        (
            "  - name: other\n    backends: [127.0.0.1:1]\n",
            "g.yaml:8:16: expected keys with values; write it as in `backends: [{ address: 127.0.0.1:8000 }]`",
        ),
    ] {
        assert_eq!(error_with(more), expected);
    }
    assert!(error_with("threads: ]\n").starts_with("g.yaml:7:"));
    assert!(error("").starts_with("g.yaml:1:1: "));
}

#[test]
fn invalid_values_are_reported_with_line() {
    for (more, expected) in [
        ("routes:\n  - pool: sitte\n", "g.yaml:8:11: unknown pool `sitte`; did you mean `site`?"),
        (
            "routes:\n  - { path: /a, pool: site }\n  - { pool: site, path: /a }\n",
            "g.yaml:9:5: duplicate route: the one in line 8 has the same host and path; remove one of them, or add `when`",
        ),
        ("routes: [{ path: /a }]\n", "g.yaml:7:10: missing key `pool`, or `respond` or `redirect`"),
        (
            "routes: [{ pool: site, respond: { status: 200 } }]\n",
            "g.yaml:7:33: `respond` answers every request of the route; remove it, or `pool` and `redirect`",
        ),
        (
            "routes: [{ respond: { status: 200 }, rewrite: /a }]\n",
            "g.yaml:7:21: `rewrite` has no effect with `respond`; remove it",
        ),
        (
            "routes: [{ respond: { status: 200 }, request_headers: { remove: [a] } }]\n",
            "g.yaml:7:10: `request_headers` has no effect without `pool`; remove it",
        ),
        (
            "routes: [{ respond: { status: 199 } }]\n",
            "g.yaml:7:31: 199 is out of range: expected 200 to 599",
        ),
        (
            "routes: [{ respond: { status: 204, body: a } }]\n",
            "g.yaml:7:31: a response with status 204 has no body of its own; choose another status",
        ),
        (
            "routes: [{ respond: { status: 200, headers: { content-length: 1 } } }]\n",
            "g.yaml:7:63: `content-length` is written by the gateway itself; remove it",
        ),
        (
            "    proxy_protocol: v1\n    protocol: h2\n",
            "g.yaml:7:21: connections with `protocol: h2` serve several clients, and a header of the PROXY protocol has \
             one; remove one of the keys",
        ),
        (
            "    proxy_protocol: v2\n    keepalive_max: 1\n",
            "g.yaml:8:20: connections with `proxy_protocol` serve one request, and none is kept; remove it",
        ),
        (
            "routes: [{ pool: site, per_client: { burst: 2 } }]\n",
            "g.yaml:7:36: `per` and `burst` have no effect without `requests`",
        ),
        (
            "routes: [{ pool: site, request_headers: { set: { X-A: '${clients}' } } }]\n",
            "g.yaml:7:55: `${clients}` has an unknown variable: expected ${client}, ${client_certificate}, ${client_fingerprint}, ${client_subject}, ${host}, ${request_id}, ${scheme} or ${user}",
        ),
        (
            "routes: [{ pool: site, response_headers: { set: { X-A: '${user}' } } }]\n",
            "g.yaml:7:10: `${user}` has no value without `basic_auth`; add it, or remove the variable",
        ),
        (
            "routes: [{ pool: site, request_headers: { set: { X-A: 'CN ${client_subject}' } } }]\n",
            "g.yaml:7:10: the variables of a client's certificate have no value, since no listener asks for one: set `client_ca` in its `tls`, or remove them",
        ),
        (
            "acme: { agree_to_terms: true, state: a }\n",
            "g.yaml:7:7: `acme` has no certificates; add `acme: [NAME]` to `certificates` in the `tls` of a listener, or remove it",
        ),
        (
            "error_pages: { 302: a.html }\n",
            "g.yaml:7:21: 302 is not the status of an error: expected 400 to 599",
        ),
        ("error_pages: { 502: absent.html }\n", "g.yaml:7:21: cannot read the page `absent.html`"),
        (
            "routes: [{ pool: site, per_client: {} }]\n",
            "g.yaml:7:36: missing key `requests` or `concurrent`",
        ),
        (
            "routes: [{ pool: site, per_client: { requests: 0 } }]\n",
            "g.yaml:7:48: 0 is out of range: expected 1 to 1000000",
        ),
        (
            "routes: [{ pool: site, request_headers: { set: { X-A: '${user}' } } }]\n",
            "g.yaml:7:10: `${user}` has no value without `basic_auth`; add it, or remove the variable",
        ),
        (
            "routes: [{ pool: site, basic_auth: { users: absent } }]\n",
            "g.yaml:7:45: cannot read the users `absent`",
        ),
        (
            "routes: [{ pool: site, basic_auth: { users: absent, realm: 'a\"b' } }]\n",
            "g.yaml:7:60: `realm` must be ASCII without quotes, backslashes and control characters",
        ),
        (
            "access_log: { to: 'syslog:logs.example' }\n",
            "g.yaml:7:19: `syslog:logs.example` is not a syslog such as syslog:/dev/log or syslog:192.0.2.1:514",
        ),
        (
            "access_log: { to: a, format: jason }\n",
            "g.yaml:7:30: `jason` is not a format: expected combined, json, or a text with keys of entries such as ${time} \
             ${client} ${status}",
        ),
        (
            "access_log: { to: a, format: '${cliend}' }\n",
            "g.yaml:7:30: an entry has no `cliend`; did you mean `client`?",
        ),
        (
            "access_log: { to: a, format: '${status' }\n",
            "g.yaml:7:30: an entry has no `${status`; did you mean `status`?",
        ),
        (
            "routes: [{ pool: site, when: {} }, { pool: site }]\n",
            "g.yaml:7:30: missing key `methods` or `headers`",
        ),
        (
            "routes: [{ pool: site, when: { methods: [GET] } }]\n",
            "g.yaml:7:30: no route has the other requests of this host and path; add one without `when`",
        ),
        (
            "routes: [{ pool: site, when: { methods: ['GET,'] } }, { pool: site }]\n",
            "g.yaml:7:41: a method is a word such as GET",
        ),
        (
            "routes: [{ pool: site, when: { headers: { a: '~(' } } }, { pool: site }]\n",
            "g.yaml:7:46: `(` is not a regular expression",
        ),
        (
            "routes: [{ pool: site, allow: [everyone] }]\n",
            "g.yaml:7:32: `everyone` is not an IP address or a network such as 10.0.0.0/8 or 2001:db8::/32",
        ),
        (
            "forwarded: { trust_client: true, trusted: [10.0.0.1] }\n",
            "g.yaml:7:43: `trust_client` trusts every client; remove it, or `trusted`",
        ),
        (
            "forwarded: { client_header: forwarded }\n",
            "g.yaml:7:29: `client_header` has no effect without `trusted`",
        ),
        (
            "routes: [{ redirect: { scheme: https } }]\n",
            "g.yaml:7:22: clients can send any `Host`, and would be redirected there; add `host` to the route, or to the \
             redirect",
        ),
        (
            "routes: [{ host: a, redirect: { status: 301 } }]\n",
            "g.yaml:7:31: the redirect changes nothing; add `scheme`, `host`, `port` or `path`, or `rewrite` to the route",
        ),
        (
            "routes: [{ redirect: { path: /a, status: 304 } }]\n",
            "g.yaml:7:42: 304 is not a redirect: expected 301, 302, 303, 307 or 308",
        ),
        (
            "routes: [{ redirect: { path: //evil.example } }]\n",
            "g.yaml:7:30: clients take `//evil.example` for a URL with a host; write `host`, or one /",
        ),
        (
            "routes: [{ rewrite: /b, redirect: { path: /a } }]\n",
            "g.yaml:7:43: `path` replaces what `rewrite` changes; remove one of them",
        ),
        (
            "routes: [{ redirect: { host: '*.a' } }]\n",
            "g.yaml:7:30: `*.a` is not one host such as example.org",
        ),
        (
            "routes:\n  - { path: /x/../%61, pool: site }\n",
            "g.yaml:8:13: `/x/../%61` can be read as `/a`: write it without needless escapes, empty segments, . and .., and \
             without %2F, %5C, \\ and ;",
        ),
        (
            "routes:\n  - { path: a, pool: site }\n",
            "g.yaml:8:13: `a` is not a path: it must begin with / and contain no ?, #, spaces or control characters",
        ),
        (
            "routes:\n  - { host: 'a:80', pool: site }\n",
            "g.yaml:8:13: `a:80` is not a host: write example.org, *.example.org for its subdomains, or * for every host, \
             without a port",
        ),
        (
            "routes:\n  - { pool: site, request_headers: { set: { Connection: close } } }\n",
            "g.yaml:8:57: `Connection` is written by the gateway itself; remove it",
        ),
        (
            "routes:\n  - { pool: site, request_headers: { set: { X-A: \"a\\r\\nB: c\" } } }\n",
            "g.yaml:8:50: the value of `X-A` must not contain line breaks or control characters",
        ),
        (
            "routes:\n  - { pool: site, response_headers: { set: { X-A: b }, remove: [x-a] } }\n",
            "g.yaml:8:65: duplicate header `x-a`; remove one of them",
        ),
        (
            "routes:\n  - { pool: site, response_headers: { remove: ['X A'] } }\n",
            "g.yaml:8:48: `X A` is not a header name such as X-Served-By",
        ),
        (
            "      - address: 127.0.0.1:9001\n",
            "g.yaml:7:18: duplicate backend `127.0.0.1:9001`, first in line 6; remove one and raise the weight of the other",
        ),
        (
            "      - address: localhost\n",
            "g.yaml:7:18: `localhost` is not an address: expected ADDRESS:PORT, such as 127.0.0.1:8080, NAME:PORT, such as \
             backend.example:8080, or unix:/path/to/socket",
        ),
        (
            "        weight: 0\n",
            "g.yaml:6:7: all backends have weight 0; give at least one of them a weight",
        ),
        ("        weight: 1001\n", "g.yaml:7:17: 1001 is out of range: expected 0 to 1000"),
        (
            "  - { name: site, backends: [{ address: 127.0.0.1:1 }] }\n",
            "g.yaml:7:13: duplicate pool `site`, first in line 4; rename one of them",
        ),
        (
            "  - { name: b, backends: [{ address: 127.0.0.1:1 }] }\n",
            "g.yaml:4:3: several pools but no routes; add routes that name the pools",
        ),
        ("  - { name: b, backends: [] }\n", "g.yaml:7:26: expected 1 to 1024 backends, found 0"),
        (
            "    connections_max: 3\nthreads: 4\n",
            "g.yaml:7:22: 3 connections cannot be divided among 4 threads; allow at least one per thread",
        ),
        (
            "    streams_max: 10\n",
            "g.yaml:7:18: `streams_max` has no effect without `protocol: h2`; remove it",
        ),
        (
            "    stream_window_max: 100000\n",
            "g.yaml:7:24: `stream_window_max` has no effect without `protocol: h2`; remove it",
        ),
        (
            "    protocol: h2\n    streams_max: 1000\n    stream_window_max: 2000000\n",
            "g.yaml:4:11: 1000 streams with a window of 2000000 bytes are more than 1 GiB for a connection; lower \
             `streams_max` or `stream_window_max`",
        ),
        ("    retry_pause: 61s\n", "g.yaml:7:18: `1m 1s` is out of range: expected 1ms to 1m"),
        (
            "    retries: 0\n    retry_pause: 1s\n",
            "g.yaml:8:18: `retry_pause` has no effect with `retries: 0`; remove it, or allow retries",
        ),
        (
            "    protocol: h2\n    close_after_head: true\n",
            "g.yaml:8:23: `close_after_head` has no effect with `protocol: h2`, where each response has its own stream; \
             remove it",
        ),
        (
            "    protocol: h2\n    streams_max: 0\n",
            "g.yaml:8:18: 0 is out of range: expected 1 to 1000",
        ),
        (
            "    buffer: { request: 1048577 }\n",
            "g.yaml:7:24: 1048577 is out of range: expected 0 to 1048576",
        ),
        (
            "    health: { path: /, interval: 1s, timeout: 2s }\n",
            "g.yaml:7:47: the timeout is longer than the interval; shorten the timeout or lengthen the interval",
        ),
        (
            "    health: { path: /, status: 100-299 }\n",
            "g.yaml:7:32: `100-299` is not 200 to 599: write 200, 200-299, or several as in \"200, 404\"",
        ),
        (
            "    health: { path: /, status: [] }\n",
            "g.yaml:7:32: expected statuses such as 200, 200-299 or 200, 404",
        ),
        (
            "    health: { path: /, host: a/b }\n",
            "g.yaml:7:30: `a/b` is not a host such as example.org or [::1]:8080",
        ),
        (
            "    health: { interval: 1s }\n",
            "g.yaml:7:13: missing key `path`, or `tcp: true` for a check that only connects",
        ),
        (
            "    health: { path: /, tcp: true }\n",
            "g.yaml:7:29: `tcp: true` sends no request; remove it, or `path`, `host` and `status`",
        ),
        ("threads: 0\n", "g.yaml:7:10: 0 is out of range: expected 1 to 256"),
        ("timeouts: { header: 0s }\n", "g.yaml:7:21: `0s` is out of range: expected 1ms to 24h"),
        (
            "limits: { header_bytes: 100000 }\n",
            "g.yaml:7:25: 100000 is out of range: expected 256 to 65536",
        ),
        ("limits: { connections: 0 }\n", "g.yaml:7:24: 0 is out of range: expected 1 or more"),
        (
            "admin: 127.0.0.1:8080\n",
            "g.yaml:7:8: a listener already uses `127.0.0.1:8080`; choose another port",
        ),
        (
            "forwarded: { via: a b }\n",
            "g.yaml:7:19: `a b` is not a name for `Via`: use letters, digits and -._~, or `null` to send no `Via`",
        ),
    ] {
        assert_eq!(error_with(more), expected);
    }
    assert_eq!(
        error("listeners: [{ address: 127.0.0.1:80 }]\n"),
        "g.yaml:1:12: missing key `pools`, or `routes` that respond themselves"
    );
    let long = format!(
        "routes: [{{ respond: {{ status: 200, body: '{}' }} }}]\n",
        "a".repeat((64 << 10) + 1)
    );
    assert_eq!(
        error_with(&long),
        "g.yaml:7:42: the body is longer than 64 KiB; serve it from a backend"
    );
    assert_eq!(
        error(&SHORTEST.replace("pools:", "  - address: 127.0.0.1:8080\npools:")),
        "g.yaml:3:14: duplicate listener `127.0.0.1:8080`, first in line 2; remove one of them"
    );
    assert_eq!(
        error(&SHORTEST.replace("127.0.0.1:8080", "unix:g.sock\n    defer_accept: true")),
        "g.yaml:3:19: `defer_accept` is not available on a unix socket; remove it"
    );
    let long = format!("unix:/{}", "s".repeat(107));
    assert_eq!(
        error(&SHORTEST.replace("127.0.0.1:8080", &long)),
        format!(
            "g.yaml:2:14: the socket path `{}` has 108 bytes, more than 107; choose a shorter one",
            &long[5..]
        )
    );
}

#[test]
fn trusted_client_may_send_what_describes_clients() {
    let config = parse(&format!("{SHORTEST}\nforwarded: {{ trust_client: true }}\n"));
    assert_eq!(config.requests.remove_headers_of_trusted, REQUEST_OVERRIDES);
    let config = parse(&format!(
        "{SHORTEST}\nforwarded: {{ trusted: [10.0.0.0/8], client_header: forwarded }}\n"
    ));
    let Trust::Proxies(proxies) = &config.forwarded.trust else { panic!("{config:?}") };
    assert_eq!(proxies.header, ForwardedHeader::Forwarded);
    assert_eq!(proxies.networks, Networks::parse(&["10.0.0.0/8"]));
}

#[test]
fn proxies_are_addresses_and_networks() {
    let with = |networks: &str| {
        SHORTEST.replace("8080\n", &format!("8080\n    proxy_protocol: {networks}\n"))
    };
    let config = parse(&with("[192.0.2.1, '2001:db8::/32']"));
    let proxies = config.listeners[0].proxy_protocol.as_ref().unwrap();
    assert!(proxies.contain("192.0.2.1".parse().unwrap()));
    assert!(!proxies.contain("192.0.2.2".parse().unwrap()));
    assert!(proxies.contain("2001:db8::1".parse().unwrap()));
    assert_eq!(
        error(&with("[192.0.2.1/8]")),
        "g.yaml:3:22: `192.0.2.1/8` is not an IP address or a network such as 10.0.0.0/8 or 2001:db8::/32"
    );
}

#[test]
fn several_listeners_can_use_port_0() {
    let text = SHORTEST.replace("127.0.0.1:8080", "127.0.0.1:0");
    let config = parse(&text.replace("pools:", "  - address: 127.0.0.1:0\npools:"));
    assert_eq!(config.listeners.len(), 2);
}

#[test]
fn missing_file_is_reported_with_path() {
    let error = Config::read(Path::new("/nowhere/g.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the configuration `/nowhere/g.yaml`");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn example_is_valid_and_has_every_key() {
    let path = repository().join("examples/gateway.yaml");
    let config = Config::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.pools.len(), 2);
    let text = std::fs::read_to_string(&path).unwrap();
    // The firewall is off, so that the file can be used alone. Its keys are validated with the rules beside it.
    assert_eq!(text.matches("mode: off ").count(), 1);
    let with_firewall = text.replace("mode: off ", "mode: on ");
    let config = Config::parse(&with_firewall, &path).unwrap_or_else(|error| panic!("{error}"));
    assert!(config.routes[0].waf.is_some() && config.routes[1].waf.is_none());
    let schema = std::fs::read(repository().join("schemas/gateway.json")).unwrap();
    let schema = serde_json::from_slice(&schema).unwrap();
    let mut keys = BTreeSet::new();
    keys_of(&schema, &mut keys);
    // Fails if the walk finds no keys.
    assert!(keys.len() >= 50, "{keys:?}");
    for key in keys {
        assert!(text.contains(&format!("{key}:")), "{} lacks {key}", path.display());
    }
}

fn keys_of(schema: &Value, keys: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get("properties") {
                keys.extend(properties.keys().cloned());
            }
            object.values().for_each(|inner| keys_of(inner, keys));
        }
        Value::Array(list) => list.iter().for_each(|inner| keys_of(inner, keys)),
        _ => {}
    }
}

fn waf(text: &str) -> Vec<Option<Arc<Waf>>> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.conf"), "SecRule ARGS:q \"@streq x\" \"id:1,deny\"")
        .unwrap();
    let patch = "name: test/patch\nrules: [{zones: [URI], match: {type: equals, value: /x}}]\n";
    std::fs::write(folder.path().join("a.yml"), patch).unwrap();
    let naxsi = "MainRule id:1000 str:x mz:ARGS s:DROP;\n";
    std::fs::write(folder.path().join("a.rules"), naxsi).unwrap();
    std::fs::write(folder.path().join("page.html"), "<p>no").unwrap();
    let config = Config::parse(&format!("{SHORTEST}{text}"), &folder.path().join("g.yaml"));
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    config.routes.into_iter().map(|route| route.waf).collect()
}

#[test]
fn route_inherits_keys_of_waf_and_shares_equal_rules() {
    let wafs =
        waf("waf: { rules: ['*.conf'], sample: 10, block: { page: page.html, status: 406 } }
routes:
  - { path: /, pool: site }
  - { path: /detect, pool: site, waf: { mode: detection-only, sample: 100 } }
  - { path: /off, pool: site, waf: { mode: off } }
  - { path: /strict, pool: site, waf: { crs: { paranoia_level: 2 }, transaction_header: X-Id } }
");
    let [Some(all), Some(detect), None, Some(strict)] = &wafs[..] else { panic!("{wafs:?}") };
    assert_eq!((all.mode, all.sample), (tollgate_waf::EngineMode::On, 10));
    assert_eq!((detect.mode, detect.sample), (tollgate_waf::EngineMode::DetectionOnly, 100));
    assert_eq!(all.block.status, Some(406));
    assert_eq!(all.block.page.as_deref(), Some(&b"<p>no"[..]));
    assert_eq!(
        (all.block.media_type, detect.block.media_type),
        (Some("text/html"), Some("text/html"))
    );
    assert_eq!(strict.transaction_header.as_deref(), Some("X-Id"));
    assert!(Arc::ptr_eq(&all.rules, &detect.rules));
    assert!(!Arc::ptr_eq(&all.rules, &strict.rules));
    // Four parse bodies and reject malformed ones.
    assert_eq!((all.rules.set.rules().count(), strict.rules.set.rules().count()), (5, 6));
    assert!(waf("waf: { mode: off }\n")[0].is_none());
}

#[test]
fn waf_reads_other_dialects_by_file_name() {
    let wafs = waf("waf: { rules: ['*.yml'] }\n");
    let [Some(appsec)] = &wafs[..] else { panic!("{wafs:?}") };
    let tags: Vec<_> = appsec.rules.set.rules().map(|rule| rule.tags[0].clone()).collect();
    assert_eq!(tags, ["crowdsec-test/patch"]);
    let wafs = waf("waf: { rules: ['*.rules'], exclusions: [SecRuleRemoveById 16] }\n");
    let [Some(naxsi)] = &wafs[..] else { panic!("{wafs:?}") };
    let ids: Vec<_> = naxsi.rules.set.rules().map(|rule| rule.id).collect();
    assert!(ids.contains(&1000) && !ids.contains(&16), "{ids:?}");
}

#[test]
fn invalid_waf_is_reported_with_its_place() {
    for (text, expected) in [
        ("waf: {}\n", "g.yaml:7:6: `waf` names no rules; add `rules`, or set `mode: off`"),
        ("waf: { mode: onn }\n", "g.yaml:7:14: unknown value `onn`; did you mean `on`?"),
        (
            "waf: { rules: [none.conf] }\n",
            "g.yaml:7:15: cannot load the rules of `waf`: waf: rules:1:10: no file matches \"none.conf\"",
        ),
        (
            "waf: { rules: [], exclusions: [SecRuleRemoveByI 1] }\n",
            "g.yaml:7:15: cannot load the rules of `waf`: waf.exclusions:1:1: unknown directive \
             \"SecRuleRemoveByI\"; did you mean \"SecRuleRemoveById\"?",
        ),
        (
            "waf: { rules: [], crs: { paranoia_level: 5 } }\n",
            "g.yaml:7:42: 5 is out of range: expected 1 to 4",
        ),
        (
            "waf: { rules: [], crs: { allowed_methods: [\"GET'\"] } }\n",
            "g.yaml:7:43: `GET'` is empty or contains a quote, a backslash or a %",
        ),
        (
            "waf: { rules: [], response_body: { mime_types: [html page] } }\n",
            "g.yaml:7:48: `html page` is not a media type such as text/html",
        ),
        (
            "waf: { rules: [], block: { page: none.html } }\n",
            "g.yaml:7:34: cannot read the page `none.html`",
        ),
    ] {
        assert_eq!(error_with(text), expected);
    }
}

#[test]
fn body_deadline_approaches_below_the_lowest_rate() {
    let ms = Duration::from_millis;
    let rate = |rate| Timeouts {
        body: ms(1_000),
        body_rate: NonZeroU32::new(rate),
        ..Timeouts::default()
    };
    let now = Instant::now();
    let next = |timeouts: Timeouts, bytes| {
        let transfer = Transfer { since: now, bytes: bytes as u64, is_streaming: false };
        timeouts.next_body_deadline(now + ms(400), bytes, transfer, now) - now
    };
    assert_eq!(next(rate(0), 1), ms(1_000));
    assert_eq!(next(rate(100), 1), ms(410));
    assert_eq!(next(rate(100), 59), ms(990));
    assert_eq!(next(rate(100), 60), ms(1_000));
    assert_eq!(next(rate(1), usize::MAX), ms(1_000));
}

const DAY: Duration = Duration::from_secs(86_400);

/// Moves `bytes` each second. Returns the time after which the client is late, at most a day.
fn time_of_client(timeouts: &Timeouts, bytes: usize) -> Duration {
    let start = Instant::now();
    let mut deadline = start + timeouts.body;
    for second in 1..86_400 {
        let now = start + Duration::from_secs(second);
        if deadline <= now {
            return now - start;
        }
        let moved = Transfer { since: start, bytes: second * bytes as u64, is_streaming: false };
        deadline = timeouts.next_body_deadline(deadline, bytes, moved, now);
    }
    DAY
}

#[test]
fn slow_client_is_late_after_a_time_and_a_fast_one_never() {
    let timeouts = Timeouts::default();
    assert_eq!(time_of_client(&timeouts, 0), timeouts.body);
    assert!(time_of_client(&timeouts, 100) < Duration::from_secs(60));
    for bytes in [240, 241, 15_000] {
        assert_eq!(time_of_client(&timeouts, bytes), Duration::from_secs(30 * 60 + 29));
    }
    assert_eq!(time_of_client(&timeouts, 240 * 64), DAY);
    let any = Timeouts { body_rate: None, ..timeouts };
    assert_eq!(time_of_client(&any, 1), DAY);
}

#[test]
fn timeouts_of_a_route_precede_those_of_its_pool_and_of_the_gateway() {
    let text = "\
timeouts: { body: 7s, response: 8s, connect: 9s }
listeners: [{ address: 127.0.0.1:8080 }]
routes:
  - { pool: api }
  - { pool: api, path: /a, timeouts: { response: 1m, stream: 2h } }
  - { pool: site, path: /b }
pools:
  - name: api
    keepalive_timeout: 4s
    timeouts: { response: 30s, body: 5s, body_rate: 0 }
    backends: [{ address: 127.0.0.1:9001 }]
  - { name: site, backends: [{ address: 127.0.0.1:9002 }] }
";
    let config = parse(text);
    let seconds = |route: usize| {
        let Timeouts { connect, body, response, stream, .. } =
            *config.routes[route].timeouts(&config.timeouts);
        [connect, body, response, stream].map(|timeout| timeout.as_secs())
    };
    assert_eq!([0, 1, 2].map(seconds), [[9, 5, 30, 3600], [9, 5, 60, 7200], [9, 7, 8, 3600]]);
    assert_eq!(config.routes[1].timeouts(&config.timeouts).body_rate, None);
    assert!(config.routes[2].timeouts.is_none());
    assert_eq!(config.pools[0].keepalive_timeout, Some(Duration::from_secs(4)));
}
