//! A configuration as people write it, and what they are told where it cannot be.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::file::ConfigFile;
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

/// What is said to the shortest configuration with these lines added.
fn error_with(more: &str) -> String {
    error(&format!("{SHORTEST}{more}"))
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    settings.into_generator().into_root_schema_for::<ConfigFile>().to_value()
}

#[test]
fn a_listener_and_a_backend_are_enough() {
    let listen = Address::Tcp("127.0.0.1:8080".parse().unwrap());
    let mut expected = Config::new(listen, Address::Tcp("127.0.0.1:9001".parse().unwrap()));
    expected.pools[0].name = "site".to_owned();
    assert_eq!(parse(SHORTEST), expected);
}

#[test]
fn what_is_written_is_what_is_served() {
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
    queue_timeout: 400ms
    retries: 0
    health: { path: /up, interval: 1s }
    eject: { failures: 2 }
  - name: two
    balance: { consistent-hash: { header: X-User } }
    backends: [{ address: unix:/b.sock }]
timeouts: { connect: 1m 30s, tunnel: 1h, drain: 5s }
limits: { body_bytes: 10, connections: 41, connections_per_client: 3 }
forwarded: { via: null, forwarded: true }
access_log: { to: log/access.json, format: json }
admin: 127.0.0.1:9900
",
    );
    assert_eq!(config.threads.get(), 4);
    assert_eq!(config.listeners[0].address.to_string(), "[::1]:80");
    assert_eq!(config.listeners[0].backlog, 16);
    assert!(config.listeners[0].defer_accept);
    assert!(!config.listeners[1].defer_accept);
    assert_eq!(config.listeners[1].address, Address::Unix("/etc/g/g.sock".into()));
    let [exact, below, any] = &config.routes[..] else { panic!("{:?}", config.routes) };
    assert_eq!(exact.host, HostPattern::Exact("www.example.org".to_owned()));
    assert_eq!((exact.path_prefix.as_str(), exact.pool), ("/a", PoolId(1)));
    assert_eq!(exact.rewrite.as_deref(), Some("/"));
    assert_eq!(exact.request_headers.set, [("X-A".to_owned(), "b".to_owned())]);
    assert_eq!(exact.request_headers.remove, ["cookie"]);
    assert!(exact.answer_headers.is_empty());
    assert_eq!(below.host, HostPattern::Below("example.org".to_owned()));
    assert_eq!((any, any.pool), (&Route::all_to(PoolId(0)), PoolId(0)));
    let one = &config.pools[0];
    assert_eq!(one.balance, Balance::LeastConnections);
    assert_eq!(one.backends.iter().map(|it| it.weight).collect::<Vec<_>>(), [3, 0]);
    // Of ten, each of four threads may keep three, so that all together keep ten; and may have two, so
    // that all together have no more than ten.
    assert_eq!((one.keepalive_max, one.connections_max), (3, NonZeroU32::new(2)));
    assert_eq!((one.queue_max, one.queue_timeout), (0, Duration::from_millis(400)));
    let second = Duration::from_secs(1);
    let health = ActiveHealth {
        path: "/up".to_owned(),
        interval: second,
        timeout: second,
        rise: 2,
        fall: 3,
    };
    assert_eq!(one.health, Some(health));
    assert_eq!(one.eject, Some(Ejection { failures: 2, for_time: Duration::from_secs(10) }));
    assert_eq!(one.retries, 0);
    let by = HashBy::Header("x-user".to_owned());
    assert_eq!(config.pools[1].balance, Balance::ConsistentHash { by });
    let timeouts = Timeouts {
        connect: Duration::from_secs(90),
        tunnel: Duration::from_secs(3_600),
        drain: Duration::from_secs(5),
        ..Timeouts::default()
    };
    assert_eq!(config.timeouts, timeouts);
    assert_eq!(
        config.limits,
        Limits {
            body_bytes: Some(10),
            connections: 10,
            connections_per_client: Some(3),
            ..Limits::default()
        }
    );
    assert_eq!(config.forwarded.via, None);
    assert!(config.forwarded.forwarded && config.forwarded.x_forwarded);
    let log =
        AccessLog { to: LogTarget::File("/etc/g/log/access.json".into()), format: LogFormat::Json };
    assert_eq!(config.access_log, Some(log));
    assert_eq!(config.admin, Some("127.0.0.1:9900".parse().unwrap()));
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
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
        "g.yaml:7:1: unknown key `quite_another`; there is `threads`, `listeners`, `routes`, `pools`, \
         `timeouts`, `limits`, `forwarded`, `access_log`, `admin`"
    );
    assert_eq!(
        error_with("    balance: round_robin\n"),
        "g.yaml:7:14: unknown value `round_robin`; did you mean `round-robin`?"
    );
    assert_eq!(
        error_with("    balance: { consistent-hash: header }\n"),
        "g.yaml:7:40: it has to be a text"
    );
}

#[test]
fn what_cannot_be_read_names_its_line() {
    assert_eq!(error("pools: []\n"), "g.yaml:1:1: the key `listeners` is missing");
    assert_eq!(
        error_with("timeouts: { idle: soon }\n"),
        "g.yaml:7:19: `soon` is not a duration such as 10s or 400ms: expected number at 0"
    );
    assert_eq!(
        error_with("    retries: many\n"),
        "g.yaml:7:14: it has to be a whole number from 0 on"
    );
    assert_eq!(
        error_with("forwarded: { forwarded: maybe }\n"),
        "g.yaml:7:25: it has to be true or false"
    );
    assert_eq!(
        error_with("threads: 1\nthreads: 2\n"),
        "g.yaml:8:1: the key `threads` is here for the second time; leave one of them"
    );
    assert!(error_with("threads: ]\n").starts_with("g.yaml:7:"));
    assert!(error("").starts_with("g.yaml:1:1: "));
}

#[test]
fn what_contradicts_itself_is_refused_with_its_line() {
    for (more, told) in [
        (
            "routes:\n  - pool: sitte\n",
            "g.yaml:8:11: there is no pool `sitte`; did you mean `site`?",
        ),
        (
            "routes:\n  - { path: /a, pool: site }\n  - { pool: site, path: /a }\n",
            "g.yaml:9:13: the route that ends in line 8 is for the same host and path; leave one of them",
        ),
        (
            "routes:\n  - { path: /x/../%61, pool: site }\n",
            "g.yaml:8:13: `/x/../%61` could be read as `/a`: routes are matched with escapes undone where they \
             need not be, without empty segments, . and .., and have neither %2F, %5C, \\ nor ;",
        ),
        (
            "routes:\n  - { path: a, pool: site }\n",
            "g.yaml:8:13: `a` is no path; it begins with / and has no ?, #, spaces or control characters",
        ),
        (
            "routes:\n  - { host: 'a:80', pool: site }\n",
            "g.yaml:8:13: `a:80` is no host: write example.org, *.example.org for all below it, or * \
             for every host; without a port",
        ),
        (
            "routes:\n  - { pool: site, request_headers: { set: { Connection: close } } }\n",
            "g.yaml:8:57: `Connection` is the gateway's own to say; leave it out",
        ),
        (
            "routes:\n  - { pool: site, request_headers: { set: { X-A: \"a\\r\\nB: c\" } } }\n",
            "g.yaml:8:50: the value of `X-A` has a line's end or a control character",
        ),
        (
            "routes:\n  - { pool: site, answer_headers: { set: { X-A: b }, remove: [x-a] } }\n",
            "g.yaml:8:63: `x-a` is here for the second time; leave one",
        ),
        (
            "routes:\n  - { pool: site, answer_headers: { remove: ['X A'] } }\n",
            "g.yaml:8:46: `X A` is no name of a header, such as X-Served-By",
        ),
        (
            "      - address: 127.0.0.1:9001\n",
            "g.yaml:7:18: the pool has the backend `127.0.0.1:9001` already, in line 6; leave one of \
             them, with a higher weight",
        ),
        (
            "      - address: localhost:9001\n",
            "g.yaml:7:18: `localhost:9001` is no address: it has to be an address and a port, such as \
             127.0.0.1:8080, or unix:/path/of/a/socket",
        ),
        (
            "        weight: 0\n",
            "g.yaml:6:7: every backend has the weight 0, so that none would get a request; give one a \
             weight",
        ),
        (
            "        weight: 1001\n",
            "g.yaml:7:17: 1001 is out of range: it has to be from 0 to 1000",
        ),
        (
            "  - { name: site, backends: [{ address: 127.0.0.1:1 }] }\n",
            "g.yaml:7:13: there is a pool `site` already, in line 4; give one of them another name",
        ),
        (
            "  - { name: b, backends: [{ address: 127.0.0.1:1 }] }\n",
            "g.yaml:4:3: there are several pools and no routes; say which requests go to which pool",
        ),
        (
            "  - { name: b, backends: [] }\n",
            "g.yaml:7:26: a pool has from 1 to 1024 backends, not 0",
        ),
        (
            "    connections_max: 3\nthreads: 4\n",
            "g.yaml:7:22: 3 connections cannot be shared by 4 threads; allow at least one each",
        ),
        (
            "    health: { path: /, interval: 1s, timeout: 2s }\n",
            "g.yaml:7:47: a check may not last longer than it is to the next one; choose a shorter \
             timeout or a longer interval",
        ),
        ("threads: 0\n", "g.yaml:7:10: 0 is out of range: it has to be from 1 to 256"),
        (
            "timeouts: { header: 0s }\n",
            "g.yaml:7:21: `0s` is out of range: it has to be from 1ms to 24h",
        ),
        (
            "limits: { header_bytes: 100000 }\n",
            "g.yaml:7:25: 100000 is out of range: it has to be from 256 to 65536",
        ),
        ("limits: { connections: 0 }\n", "g.yaml:7:24: 0 is out of range: it has to be from 1 on"),
        (
            "admin: 127.0.0.1:8080\n",
            "g.yaml:7:8: clients are listened for on `127.0.0.1:8080`; choose another port",
        ),
        (
            "forwarded: { via: a b }\n",
            "g.yaml:7:19: `a b` is no name for `Via`: letters, digits and -._~ can be in one; `null` \
             sends no `Via`",
        ),
    ] {
        assert_eq!(error_with(more), told);
    }
    assert_eq!(
        error(&SHORTEST.replace("pools:", "  - address: 127.0.0.1:8080\npools:")),
        "g.yaml:3:14: there is a listener on `127.0.0.1:8080` already, in line 2; leave one of them"
    );
    assert_eq!(
        error(&SHORTEST.replace("127.0.0.1:8080", "unix:g.sock\n    defer_accept: true")),
        "g.yaml:3:19: a unix socket has no such thing; leave it out"
    );
    let long = format!("unix:/{}", "s".repeat(107));
    assert_eq!(
        error(&SHORTEST.replace("127.0.0.1:8080", &long)),
        format!(
            "g.yaml:2:14: a socket's path has at most 107 bytes, and {} has 108; choose a shorter one",
            &long[5..]
        )
    );
}

#[test]
fn several_listeners_may_each_take_a_free_port() {
    let text = SHORTEST.replace("127.0.0.1:8080", "127.0.0.1:0");
    let config = parse(&text.replace("pools:", "  - address: 127.0.0.1:0\npools:"));
    assert_eq!(config.listeners.len(), 2);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::read(Path::new("/nowhere/g.yaml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the configuration /nowhere/g.yaml cannot be read; name a file that can be"
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn the_example_is_a_configuration_and_has_every_key() {
    let path = repository().join("examples/gateway.yaml");
    let config = Config::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.pools.len(), 2);
    let text = std::fs::read_to_string(&path).unwrap();
    let schema = schema();
    let mut keys = BTreeSet::new();
    keys_of(&schema, &mut keys);
    // As many as there were when this was written, so that a walk that finds none is noticed.
    assert!(keys.len() >= 50, "{keys:?}");
    for key in keys {
        assert!(text.contains(&format!("{key}:")), "{key} is not in {}", path.display());
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

#[test]
fn the_committed_schema_is_that_of_the_types() {
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    let path = repository().join("schemas/gateway.json");
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(committed == text, "set UPDATE_SCHEMAS=1 and run this test to write {path:?}");
}
