//! Connections: how many there are, their settings, idle time, drain and reload.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConnection, StreamOwned};
use tempfile::TempDir;
use tollgate_gateway::Config;
use tollgate_gateway::config::{HealthCheck, HealthRequest, Protocol, Route, Timeouts};

use super::{
    OK, OK_TEXT, POST, accept, client, http2_config, log_to, logged, pairs, scene, scene_with,
};
use crate::support::http2::{
    CANCEL, Http2Peer, MAX_CONCURRENT_STREAMS, NO_ERROR, SETTINGS, WINDOW_UPDATE,
};
use crate::support::{Backend, DEADLINE, GET, TestGateway};
use crate::tls::certificate_file;

#[test]
fn requests_share_a_connection_as_far_as_the_backend_allows() {
    let (gateway, backend) = scene();
    let mut first = client(&gateway, GET);
    let mut upstream = accept(&backend, &[(MAX_CONCURRENT_STREAMS, 2)]);
    upstream.head(1);
    let mut second = client(&gateway, GET);
    upstream.head(3);
    // It needs another connection.
    let mut third = client(&gateway, GET);
    let mut other = accept(&backend, &[(MAX_CONCURRENT_STREAMS, 2)]);
    other.head(1);
    upstream.respond(3, OK, Some("hi"));
    second.expect(OK_TEXT);
    other.respond(1, OK, Some("hi"));
    third.expect(OK_TEXT);
    upstream.respond(1, OK, Some("hi"));
    first.expect(OK_TEXT);
    // All three connections of clients are kept, and the first to the backend is used again.
    third.send(GET);
    upstream.head(5);
    upstream.respond(5, OK, Some("hi"));
    third.expect(OK_TEXT);
    let connects =
        format!("backend_connections_total{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    assert_eq!(gateway.metric(&connects), 2);
}

#[test]
fn requests_beyond_the_first_settings_get_another_connection() {
    let (gateway, backend) = scene();
    let mut clients: Vec<_> = (0..3).map(|_| client(&gateway, GET)).collect();
    gateway.turn();
    let mut upstreams = vec![accept(&backend, &[(MAX_CONCURRENT_STREAMS, 1)])];
    // The limit is known for them.
    upstreams.extend((0..2).map(|_| accept(&backend, &[(MAX_CONCURRENT_STREAMS, 1)])));
    for upstream in &mut upstreams {
        upstream.head(1);
        upstream.respond(1, OK, Some("hi"));
    }
    clients.iter_mut().for_each(|client| client.expect(OK_TEXT));
}

#[test]
fn backend_that_allows_no_stream_gets_no_request() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, GET);
    for _ in 0..2 {
        let mut upstream = accept(&backend, &[(MAX_CONCURRENT_STREAMS, 0)]);
        assert_eq!(upstream.expect_end(), NO_ERROR);
    }
    client.expect_local_response(502);
}

#[test]
fn connections_have_at_most_the_configured_streams() {
    let (gateway, backend) = scene_with(|config| {
        config.pools[0].protocol = Protocol::Http2 { streams_max: 1 };
    });
    let _clients = [client(&gateway, GET), client(&gateway, GET)];
    accept(&backend, &[]).head(1);
    accept(&backend, &[]).head(1);
}

#[test]
fn limit_of_connections_counts_requests() {
    let (gateway, backend) =
        scene_with(|config| config.pools[0].connections_max = NonZeroU32::new(1));
    let mut first = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    let mut second = client(&gateway, GET);
    gateway.expect_metric("queued_total{pool=\"default\"}", 1);
    upstream.respond(1, OK, Some("hi"));
    first.expect(OK_TEXT);
    upstream.head(3);
    upstream.respond(3, OK, Some("hi"));
    second.expect(OK_TEXT);
}

#[test]
fn no_request_is_sent_before_the_settings_of_the_backend() {
    let (gateway, backend) = scene_with(|config| {
        config.timeouts.connect = Duration::from_millis(300);
        config.pools[0].retries = 0;
    });
    let mut client = client(&gateway, POST);
    let mut upstream = Http2Peer::serve(backend.accept().into_stream());
    client.expect_local_response(504);
    let mut kinds = Vec::new();
    while let Some(frame) = upstream.read_frame() {
        kinds.push(frame.kind);
    }
    assert_eq!(kinds, [SETTINGS, WINDOW_UPDATE, 7]);
}

#[test]
fn connection_has_the_connect_timeout_of_the_route_that_opens_it() {
    let (gateway, backend) = scene_with(|config| {
        let short = Timeouts { connect: Duration::from_millis(300), ..config.timeouts };
        config.timeouts.connect = Duration::from_secs(3_600);
        config.pools[0].retries = 0;
        let route = config.routes[0].clone();
        let timeouts = Some(short);
        config.routes.push(Route { path_prefix: "/short".to_owned(), timeouts, ..route });
    });
    let mut first = client(&gateway, &GET.replace("/a", "/short"));
    let _silent = backend.accept();
    // It waits for the settings of the same backend, for longer.
    let _second = client(&gateway, GET);
    backend.expect_no_connection(&gateway);
    first.expect_local_response(504);
    // The connection has failed: no further request waits for it.
    let mut third = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, OK, Some("hi"));
    third.expect(OK_TEXT);
}

#[test]
fn idle_connections_are_limited_and_time_out() {
    let (gateway, backend) = scene_with(|config| config.pools[0].keepalive_max = 0);
    let mut client = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
    assert_eq!(upstream.expect_end(), NO_ERROR);

    let (gateway, backend) = scene_with(|config| config.timeouts.idle = Duration::from_millis(100));
    let mut client = self::client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, OK, Some("hi"));
    client.expect(OK_TEXT);
    assert_eq!(upstream.expect_end(), NO_ERROR);
}

#[test]
fn reload_keeps_streams_and_closes_their_connection_after_them() {
    let backend = Backend::start();
    let config = http2_config(&[&backend]);
    let gateway = TestGateway::start(&config);
    let mut old = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    gateway.reload(config);
    let mut new = client(&gateway, GET);
    let mut other = accept(&backend, &[]);
    other.head(1);
    other.respond(1, OK, Some("hi"));
    new.expect(OK_TEXT);
    upstream.respond(1, OK, Some("hi"));
    old.expect(OK_TEXT);
    assert_eq!(upstream.expect_end(), NO_ERROR);
}

#[test]
fn drain_waits_for_streams() {
    let (gateway, backend) = scene();
    let mut client = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    gateway.drain();
    upstream.respond(1, OK, Some("hi"));
    assert_eq!(client.response().unwrap().status, 200);
    assert_eq!(upstream.expect_end(), NO_ERROR);
    gateway.join();
}

#[test]
fn silent_connection_gets_no_further_request() {
    let (gateway, backend) = scene_with(|config| config.timeouts.response = Duration::from_secs(1));
    let mut first = client(&gateway, GET);
    let mut upstream = accept(&backend, &[]);
    upstream.head(1);
    upstream.respond(1, OK, Some("hi"));
    assert_eq!(first.response().unwrap().status, 200);
    // Everything has arrived before this request.
    let mut late = client(&gateway, GET);
    upstream.head(3);
    late.expect_local_response(504);
    assert_eq!(upstream.wait(3, |received| received.reset.is_some()).reset, Some(CANCEL));
    let _other = client(&gateway, GET);
    accept(&backend, &[]).head(1);
}

#[test]
fn health_checks_speak_http2() {
    let (gateway, backend) = scene_with(|config| {
        config.pools[0].health = Some(HealthCheck {
            request: Some(HealthRequest::get("/up")),
            interval: Duration::from_millis(10),
            timeout: DEADLINE,
            rise: 1,
            fall: 1,
        });
    });
    let up = format!("backend_up{{pool=\"default\",backend=\"{}\"}}", backend.addr());
    for (status, is_up) in [("204", 1), ("500", 0), ("302", 1)] {
        let mut check = accept(&backend, &[]);
        let fields = check.head(1);
        let expected = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", &backend.addr().to_string()),
            (":path", "/up"),
            ("user-agent", "tollgate-gateway"),
        ];
        assert_eq!(pairs(&fields), expected);
        check.request(1, true, &[(":status", status)]);
        gateway.expect_metric(&up, is_up);
    }
}

/// A configuration whose backend is reached by TLS.
fn tls_config(backend: &Backend, folder: &TempDir) -> Config {
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:0 }}]\npools:\n  - name: a\n    protocol: h2\n    \
         tls: {{ ca: ca.pem }}\n    backends: [{{ address: \"{}\" }}]\nadmin: 127.0.0.1:0\n",
        backend.addr()
    );
    let mut config = Config::parse(&text, &certificate_file("gateway.yaml")).unwrap();
    config.timeouts.abandoned = DEADLINE;
    log_to(&mut config, folder);
    config
}

#[test]
fn tls_must_agree_on_http2() {
    for (protocols, is_ok) in [(vec![b"h2".to_vec()], true), (Vec::new(), false)] {
        let (backend, folder) = (Backend::start(), TempDir::new().unwrap());
        let gateway = TestGateway::start(&tls_config(&backend, &folder));
        let mut server = (*crate::tls_backends::server("backend", false)).clone();
        server.alpn_protocols = protocols;
        let mut client = client(&gateway, GET);
        let stream = backend.accept().into_stream();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(server)).unwrap(), stream);
        if is_ok {
            let mut upstream = Http2Peer::serve(stream);
            upstream.settings(&[]);
            assert_eq!(pairs(&upstream.head(1))[1], (":scheme", "https"));
            upstream.respond(1, OK, Some("hi"));
            client.expect("HTTP/1.1 200 \r\ndate: d\r\nContent-Length: 2\r\n");
        } else {
            // It sees the end of the connection.
            std::io::Read::read_to_end(&mut stream, &mut Vec::new()).ok();
            client.expect_local_response(502);
            assert_eq!(logged(folder.path())["reason"], "tls-handshake");
        }
    }
}
