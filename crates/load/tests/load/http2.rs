use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollgate_http2::{
    Connection, ErrorCode, Event, Field, Fields, FrameHeader, FrameType, Limits, Role,
};
use tollgate_load::{Expectation, Generator, Phases, Plan, Request};
use tollgate_traffic::load_shape::Protocol;

use crate::server::{
    DEADLINE, GET, MS, OK, Peer, Server, finish, is_at_least, plan, post, request, run, run_until,
    scheduled, set_connections, set_connections_max, wait_until, with, workload,
};

/// HTTP/2 on the server's end of a connection, by the other role of the same framing.
pub(crate) struct Streams<'a> {
    peer: &'a mut Peer,
    connection: Connection,
    fields: Fields,
    out: Vec<u8>,
    complete: VecDeque<Received>,
    partial: Vec<Received>,
    resets: usize,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) stream: u32,
    pub(crate) path: String,
    pub(crate) cookie: Option<String>,
    body_bytes: usize,
}

impl<'a> Streams<'a> {
    pub(crate) fn new(peer: &'a mut Peer, limits: Limits) -> Self {
        let mut out = Vec::new();
        let connection = Connection::new(Role::Server, limits, Instant::now(), &mut out);
        peer.send(&out);
        let fields = Fields::default();
        let (complete, partial) = (VecDeque::new(), Vec::new());
        Self { peer, connection, fields, out: Vec::new(), complete, partial, resets: 0 }
    }

    /// Returns the next request; `None` when the client has closed or the test is over.
    pub(crate) fn request(&mut self) -> Option<Received> {
        while self.complete.is_empty() {
            self.receive()?;
        }
        self.complete.pop_front()
    }

    /// Returns the streams of the next requests.
    fn requests(&mut self, count: usize) -> Option<Vec<u32>> {
        (0..count).map(|_| self.request().map(|received| received.stream)).collect()
    }

    /// Reads what has arrived.
    fn receive(&mut self) -> Option<()> {
        let bytes = self.peer.receive()?;
        let mut input = bytes.as_slice();
        let Self { connection, fields, out, .. } = self;
        while let Some(event) = connection.receive(&mut input, fields, out, Instant::now()).unwrap()
        {
            let mut ended = None;
            match event {
                Event::Request { stream, end_stream } => {
                    let path = fields.path().unwrap().to_owned();
                    assert_eq!(fields.authority(), Some("a"));
                    assert!(matches!(fields.scheme(), Some("http" | "https")));
                    let cookie = fields.headers().find(|field| field.name == b"cookie");
                    let cookie = cookie.map(|it| String::from_utf8(it.value.to_vec()).unwrap());
                    self.partial.push(Received { stream, path, cookie, body_bytes: 0 });
                    ended = end_stream.then_some(stream);
                }
                Event::Data { stream, data, end_stream, .. } => {
                    let mut known = self.partial.iter_mut().filter(|one| one.stream == stream);
                    known.next().unwrap().body_bytes += data.len();
                    connection.credit(stream, data.len(), out);
                    ended = end_stream.then_some(stream);
                }
                Event::Reset { stream, .. } => {
                    self.resets += 1;
                    connection.release(stream, out);
                }
                Event::Settings => {}
                other => panic!("unexpected {other:?}"),
            }
            if let Some(stream) = ended {
                let at = self.partial.iter().position(|one| one.stream == stream).unwrap();
                self.complete.push_back(self.partial.remove(at));
            }
        }
        self.flush();
        Some(())
    }

    fn flush(&mut self) {
        self.peer.send(&self.out);
        self.out.clear();
    }

    /// Responds with `ok`.
    pub(crate) fn respond(&mut self, stream: u32) {
        self.respond_with(stream, &[b"ok"], &[]);
    }

    /// Responds with `ok` and a header.
    pub(crate) fn respond_with_header(&mut self, stream: u32, name: &[u8], value: &[u8]) {
        let Self { connection, out, .. } = self;
        connection.send_response(stream, 200, [Field::new(name, value)], false, out).unwrap();
        assert_eq!(connection.send_data(stream, b"ok", true, out), Ok(2));
        connection.release(stream, out);
        self.flush();
    }

    fn respond_with(&mut self, stream: u32, body: &[&[u8]], trailers: &[Field<'_>]) {
        let Self { connection, out, .. } = self;
        let fields = [Field::new(b"server", b"test")];
        connection.send_response(stream, 200, fields, false, out).unwrap();
        for (index, piece) in body.iter().enumerate() {
            let is_last = index + 1 == body.len() && trailers.is_empty();
            assert_eq!(connection.send_data(stream, piece, is_last, out), Ok(piece.len()));
        }
        if !trailers.is_empty() {
            connection.send_trailers(stream, trailers.iter().copied(), out).unwrap();
        }
        connection.release(stream, out);
        self.flush();
    }

    fn reset(&mut self, stream: u32, code: ErrorCode) {
        self.connection.reset(stream, code, &mut self.out);
        self.connection.release(stream, &mut self.out);
        self.flush();
    }
}

/// Responds to every request once `batch` of them have arrived, the last one first.
fn server(batch: usize, limits: Limits) -> Server {
    Server::start(move |peer| {
        let mut streams = Streams::new(peer, limits);
        while let Some(batch) = streams.requests(batch) {
            for stream in batch.into_iter().rev() {
                streams.respond(stream);
            }
        }
    })
}

fn http2(streams: usize, plan: Plan) -> Plan {
    with(plan, |plan| plan.clients.protocol = Protocol::Http2 { streams })
}

#[test]
fn streams_are_answered_in_any_order() {
    let server = server(4, Limits::default());
    let summary = run(http2(4, plan(server.address, 40)));
    assert_eq!((summary.responses, summary.connects, summary.resent), (40, 1, 0), "{summary:?}");
    assert_eq!((summary.body_bytes, summary.kept_alive), (80, 40));
    assert_eq!(summary.streams_max, Some(100));
    assert_eq!(summary.first_headers, Some(vec![("server".to_owned(), "test".to_owned())]));
    // Nine bytes of frame header and four indexed fields, if not more.
    assert!(summary.bytes_sent >= 40 * 13, "{summary:?}");
}

#[test]
fn streams_stay_within_the_limit_of_the_server() {
    // A stream above the limit would be refused, and its request sent again.
    let server = server(2, Limits { streams: 2, ..Limits::default() });
    let summary = run(http2(16, plan(server.address, 64)));
    assert_eq!((summary.responses, summary.resent), (64, 0), "{summary:?}");
    assert_eq!(summary.sent, 64);
    assert_eq!(summary.streams_max, Some(2));
}

#[test]
fn schedule_uses_streams_of_all_connections() {
    let server = server(1, Limits::default());
    let plan = with(scheduled(server.address, 300, 10_000.0), |plan| {
        set_connections(plan, 2);
        set_connections_max(plan, 2);
    });
    let summary = run(http2(8, plan));
    assert_eq!((summary.responses, summary.connects), (300, 2), "{summary:?}");
    assert_eq!(summary.lateness.as_ref().unwrap().count(), 300);
}

#[test]
fn requests_wait_for_a_connection_that_is_being_established() {
    let is_first = AtomicBool::new(true);
    let server = Server::start(move |peer| {
        let is_first = is_first.swap(false, Ordering::SeqCst);
        peer.sleep(Duration::from_millis(30));
        let mut streams = Streams::new(peer, Limits::default());
        while let Some(received) = streams.request() {
            streams.respond(received.stream);
            if is_first && received.stream >= 39 {
                return;
            }
        }
    });
    let plan = with(scheduled(server.address, 100, 1_000.0), |plan| set_connections_max(plan, 20));
    let summary = run(http2(64, plan));
    // Requests in flight when the server closes the first connection fail: at most its 64 streams.
    let lost = summary.failures.reset + summary.failures.closed_early;
    assert_eq!(summary.responses + lost, 100, "{summary:?}");
    assert!(lost <= 64, "{summary:?}");
    // A request that is due just when the server closes may add one; 20 are allowed.
    assert!((2..=3).contains(&summary.connects), "{summary:?}");
    assert_eq!(summary.sent, 100);
    assert!(summary.queued > 0, "{summary:?}");
}

#[test]
fn request_is_sent_as_soon_as_its_connection_is_established() {
    let server = Server::start(|peer| {
        // Past the due time of the first request.
        peer.sleep(Duration::from_millis(100));
        let mut streams = Streams::new(peer, Limits::default());
        while let Some(received) = streams.request() {
            streams.respond(received.stream);
        }
    });
    // The next reason to wake is the check of timeouts, every second.
    run_until(&http2(1, scheduled(server.address, 1, 0.1)), |summary| {
        summary.latency.max_ns().unwrap() < 900 * MS
    });
}

#[test]
fn requests_above_a_goaway_are_sent_again() {
    let is_first = AtomicBool::new(true);
    let server = Server::start(move |peer| {
        let is_first = is_first.swap(false, Ordering::SeqCst);
        let mut streams = Streams::new(peer, Limits::default());
        if is_first {
            let received = streams.requests(4).unwrap();
            assert_eq!(received, [1, 3, 5, 7]);
            let header =
                FrameHeader { length: 8, kind: FrameType::GOAWAY, flags: 0, stream: 0 }.to_bytes();
            streams.out.extend([&header[..], &3_u32.to_be_bytes(), &[0; 4]].concat());
            streams.flush();
            // Streams above the announced one are not answered.
            streams.respond(1);
            return streams.respond(3);
        }
        while let Some(received) = streams.request() {
            streams.respond(received.stream);
        }
    });
    let summary = run(http2(4, plan(server.address, 10)));
    assert_eq!((summary.responses, summary.failures.total()), (10, 0), "{summary:?}");
    assert_eq!((summary.connects, summary.resent), (2, 2), "{summary:?}");
}

#[test]
fn refused_streams_are_sent_again_and_reset_ones_fail() {
    let server = Server::start(|peer| {
        let mut streams = Streams::new(peer, Limits::default());
        let mut count = 0;
        while let Some(received) = streams.request() {
            count += 1;
            match count {
                1 => streams.reset(received.stream, ErrorCode::REFUSED_STREAM),
                2 => streams.reset(received.stream, ErrorCode::INTERNAL_ERROR),
                _ => streams.respond(received.stream),
            }
        }
    });
    let summary = run(http2(2, plan(server.address, 10)));
    assert_eq!((summary.responses, summary.resent), (9, 1), "{summary:?}");
    assert_eq!((summary.failures.reset, summary.connects), (1, 1), "{summary:?}");
}

#[test]
fn closed_connection_fails_its_streams() {
    let is_first = AtomicBool::new(true);
    let server = Server::start(move |peer| {
        let is_first = is_first.swap(false, Ordering::SeqCst);
        let mut streams = Streams::new(peer, Limits::default());
        if is_first {
            streams.requests(3);
            return;
        }
        while let Some(received) = streams.request() {
            streams.respond(received.stream);
        }
    });
    let summary = run(http2(3, plan(server.address, 10)));
    let failed = summary.failures.closed_early + summary.failures.reset;
    assert_eq!((summary.responses, failed, summary.connects), (7, 3, 2), "{summary:?}");
}

#[test]
fn http1_response_fails_with_its_reason() {
    let server = Server::responding(OK);
    let summary = run(http2(2, plan(server.address, 5)));
    assert_eq!((summary.responses, summary.failures.malformed), (0, 5), "{summary:?}");
    let example = summary.failures.malformed_example.unwrap();
    assert!(example.starts_with("the server responds in HTTP/1.1"), "{example}");
}

#[test]
fn settings_have_the_time_limit_of_connects() {
    let connect_timeout = Duration::from_millis(30);
    let server = Server::stalled();
    for plan in [plan(server.address, 4), scheduled(server.address, 4, 1_000.0)] {
        let summary =
            run(http2(2, with(plan, |plan| plan.clients.connect_timeout = connect_timeout)));
        assert_eq!((summary.responses, summary.failures.connect_timeout), (0, 4), "{summary:?}");
    }
}

/// A server that announces the end of a connection after each response, and closes when the client does.
#[test]
fn connection_is_replaced_at_once_after_an_announced_goaway() {
    let server = Server::start(|peer| {
        let mut streams = Streams::new(peer, Limits::default());
        while let Some(request) = streams.request() {
            streams.connection.announce_go_away(&mut streams.out);
            streams.respond(request.stream);
        }
    });
    let summary = run(http2(1, plan(server.address, 100)));
    assert_eq!((summary.responses, summary.connects), (100, 100), "{summary:?}");
    // One after the other, the closes would take 20 seconds.
    assert!(summary.window < Duration::from_secs(10), "{summary:?}");
}

#[test]
fn connection_without_streams_is_replaced_after_a_goaway() {
    let is_first = AtomicBool::new(true);
    let server = Server::start(move |peer| {
        let is_first = is_first.swap(false, Ordering::SeqCst);
        let mut streams = Streams::new(peer, Limits::default());
        if is_first {
            let silent = streams.request().unwrap();
            let header =
                FrameHeader { length: 8, kind: FrameType::GOAWAY, flags: 0, stream: 0 }.to_bytes();
            let last = silent.stream.to_be_bytes();
            streams.out.extend([&header[..], &last, &[0; 4]].concat());
            streams.flush();
            while streams.receive().is_some() {}
            return;
        }
        while let Some(received) = streams.request() {
            streams.respond(received.stream);
        }
    });
    let response_timeout = Duration::from_millis(100);
    let summary = run(http2(
        1,
        with(plan(server.address, 5), |plan| plan.clients.response_timeout = response_timeout),
    ));
    assert_eq!((summary.responses, summary.failures.response_timeout), (4, 1), "{summary:?}");
    assert_eq!(summary.connects, 2);
}

#[test]
fn requests_that_a_server_keeps_refusing_fail() {
    let server = Server::start(|peer| {
        let mut streams = Streams::new(peer, Limits::default());
        while let Some(received) = streams.request() {
            streams.reset(received.stream, ErrorCode::REFUSED_STREAM);
        }
    });
    let summary = run(http2(2, plan(server.address, 10)));
    assert_eq!((summary.responses, summary.failures.reset), (0, 10), "{summary:?}");
    assert_eq!((summary.resent, summary.connects), (10, 1));
}

#[test]
fn stream_that_times_out_is_cancelled_alone() {
    let server = Server::start(|peer| {
        let mut streams = Streams::new(peer, Limits::default());
        let silent = streams.request().unwrap().stream;
        assert_eq!(silent, 1);
        while let Some(received) = streams.request() {
            streams.respond(received.stream);
        }
        assert_eq!(streams.resets, 1);
    });
    let response_timeout = Duration::from_millis(300);
    // The second stream carries all others; the first request of all ends last.
    let plan = with(plan(server.address, 1), |plan| {
        plan.clients.response_timeout = response_timeout;
        plan.phases = Phases::Endless;
    });
    let generator = Generator::start(http2(2, plan)).unwrap();
    wait_until(|| generator.progress().failed == 1);
    generator.drain();
    assert!(generator.wait(DEADLINE));
    let summary = finish(generator);
    assert_eq!((summary.failures.response_timeout, summary.connects), (1, 1), "{summary:?}");
    assert!(summary.responses > 0 && is_at_least(summary.latency.max_ns().unwrap(), 300 * MS));
}

#[test]
fn bodies_wait_for_windows() {
    let server = Server::start(|peer| {
        let limits =
            Limits { stream_window: 10_000, connection_window: 100_000, ..Limits::default() };
        let mut streams = Streams::new(peer, limits);
        while let Some(received) = streams.request() {
            assert_eq!(received.body_bytes, 300_000);
            streams.respond(received.stream);
        }
    });
    let summary =
        run(http2(3, Plan { workload: workload(vec![post(300_000)]), ..plan(server.address, 9) }));
    assert_eq!((summary.responses, summary.failures.total()), (9, 0), "{summary:?}");
    assert!(summary.bytes_sent > 9 * 300_000, "{summary:?}");
}

#[test]
fn expectations_see_all_frames_of_a_body() {
    let server = Server::start(|peer| {
        let mut streams = Streams::new(peer, Limits::default());
        while let Some(Received { stream, path, .. }) = streams.request() {
            let trailers = [Field::new(b"digest", b"1")];
            match path.as_str() {
                "/" => streams.respond_with(stream, &[b"has nee", b"dle"], &trailers),
                path => streams.respond_with(stream, &[path.as_bytes()], &[]),
            }
        }
    });
    let expect = Expectation {
        status: Some(200),
        body_bytes: Some(10),
        body_contains: Some(b"needle".as_slice().into()),
        or_status: None,
    };
    let expecting = |text: &[u8]| Request { expect: expect.clone(), ..request(text) };
    let other = b"GET /0123456789 HTTP/1.1\r\nHost: a\r\n\r\n";
    let workload = workload(vec![expecting(GET), expecting(other)]);
    let summary = run(http2(1, Plan { workload, first_byte: true, ..plan(server.address, 6) }));
    assert_eq!((summary.responses, summary.unexpected), (6, 3), "{summary:?}");
    assert_eq!(summary.templates[0].unexpected, 0);
    assert_eq!(summary.first_byte.unwrap().count(), 6);
}
