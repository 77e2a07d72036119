//! CPU time per request, beside the crate h2 in the same run: `cargo bench -p tollgate-http2`.
//!
//! `fields`: reading HEADERS frames whose blocks repeat, as those of a server under load do. `exchange`: a client and a
//! server of the same kind, a response of 100 bytes, and so many streams at once. Ours pass buffers; those of h2 are
//! tasks of one thread with a pipe in memory, which is the least that they need.

use std::hint::black_box;
use std::io::Cursor;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_core::Stream;
use http::{Request, Response};
use rustix::time::{ClockId, clock_gettime};
use tollgate_http2::{
    Connection, Decoder, Encoder, Event, Field, FieldLimits, Fields, FrameHeader, FrameType,
    Limits, Role, flags,
};

const REQUEST: [(&str, &str); 7] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "bench.example:8080"),
    (":path", "/assets/app.js?v=12"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    ("accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"),
    ("accept-encoding", "gzip, deflate"),
];

const RESPONSE: [(&str, &str); 5] = [
    ("server", "nginx/1.22.1"),
    ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
    ("content-type", "text/html"),
    ("content-length", "100"),
    ("etag", "\"5f1d2c3b-64\""),
];

const BODY: [u8; 100] = [b'x'; 100];

/// Blocks are measured in turns, and the least of their times counts.
const TURNS: usize = 7;
const REQUESTS: usize = 30_000;

/// CPU time of this thread, on which everything runs.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a time after the start")
}

fn main() {
    println!("{:<22} {:>10} {:>10} {:>8}", "ns per request", "ours", "h2", "ratio");
    let frames = repeated_head();
    report("fields", || our_fields(&frames), || their_fields(&frames));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for streams in [1, 10, 100] {
        let theirs = || runtime.block_on(their_exchange(streams));
        report(&format!("exchange, {streams} streams"), || our_exchange(streams), theirs);
    }
}

fn report(name: &str, mut ours: impl FnMut() -> Duration, mut theirs: impl FnMut() -> Duration) {
    let (mut our_least, mut their_least) = (Duration::MAX, Duration::MAX);
    for _ in 0..TURNS {
        our_least = our_least.min(ours());
        their_least = their_least.min(theirs());
    }
    let per_request = |time: Duration| time.as_nanos() as f64 / REQUESTS as f64;
    let (ours, theirs) = (per_request(our_least), per_request(their_least));
    println!("{name:<22} {ours:>10.0} {theirs:>10.0} {:>8.3}", ours / theirs);
}

fn fields(list: &'static [(&str, &str)]) -> impl Iterator<Item = Field<'static>> {
    list.iter().map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes()))
}

/// HEADERS frames of the same response.
fn repeated_head() -> Vec<u8> {
    let mut encoder = Encoder::new(4096);
    let mut frames = Vec::new();
    let mut block = Vec::new();
    for _ in 0..REQUESTS {
        block.clear();
        encoder.encode(b":status", b"200", false, &mut block);
        for field in fields(&RESPONSE) {
            encoder.encode(field.name, field.value, false, &mut block);
        }
        let (length, kind) = (block.len() as u32, FrameType::HEADERS);
        let header = FrameHeader { length, kind, flags: flags::END_HEADERS, stream: 1 };
        frames.extend_from_slice(&header.to_bytes());
        frames.extend_from_slice(&block);
    }
    frames
}

fn our_fields(frames: &[u8]) -> Duration {
    let start = cpu_time();
    let (mut decoder, mut fields) = (Decoder::default(), Fields::default());
    let mut rest = frames;
    let mut count = 0;
    while let Some((header, after)) = rest.split_first_chunk() {
        let (block, after) = after.split_at(FrameHeader::parse(header).length as usize);
        decoder.decode(block, FieldLimits::default(), &mut fields).expect("a valid block");
        count += fields.iter().count();
        rest = after;
    }
    assert_eq!(black_box(count), REQUESTS * (RESPONSE.len() + 1));
    cpu_time() - start
}

fn their_fields(frames: &[u8]) -> Duration {
    let frames = frames.to_vec();
    let start = cpu_time();
    let mut codec: h2::Codec<_, Bytes> = h2::Codec::new(Cursor::new(frames));
    let mut context = Context::from_waker(Waker::noop());
    let mut count = 0;
    while let Poll::Ready(Some(Ok(h2::frame::Frame::Headers(headers)))) =
        Pin::new(&mut codec).poll_next(&mut context)
    {
        count += headers.fields().len() + 1;
    }
    assert_eq!(black_box(count), REQUESTS * (RESPONSE.len() + 1));
    cpu_time() - start
}

fn our_exchange(streams: usize) -> Duration {
    let now = Instant::now();
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut client = Connection::new(Role::Client, Limits::default(), now, &mut to_server);
    let mut server = Connection::new(Role::Server, Limits::default(), now, &mut to_client);
    let mut heads = Fields::default();
    let start = cpu_time();
    let mut left = REQUESTS;
    while left > 0 {
        while client.streams() < streams.min(left) {
            client
                .send_request(fields(&REQUEST), true, 0, &mut to_server)
                .expect("room for a stream");
        }
        let mut input = &to_server[..];
        while let Some(event) =
            server.receive(&mut input, &mut heads, &mut to_client, now).expect("valid frames")
        {
            if let Event::Request { stream, .. } = event {
                black_box(heads.path());
                let response =
                    server.send_response(stream, 200, fields(&RESPONSE), false, &mut to_client);
                response.expect("an open stream");
                server.send_data(stream, &BODY, true, &mut to_client).expect("an open stream");
                server.release(stream, &mut to_client);
            }
        }
        to_server.clear();
        server.flushed();
        let mut input = &to_client[..];
        while let Some(event) =
            client.receive(&mut input, &mut heads, &mut to_server, now).expect("valid frames")
        {
            if let Event::Data { stream, data, end_stream, .. } = event {
                client.credit(stream, black_box(data).len(), &mut to_server);
                if end_stream {
                    client.release(stream, &mut to_server);
                    left -= 1;
                }
            }
        }
        to_client.clear();
        client.flushed();
    }
    cpu_time() - start
}

async fn their_exchange(streams: usize) -> Duration {
    let (to_server, to_client) = tokio::io::duplex(1 << 20);
    let server = tokio::spawn(async move {
        let mut connection = h2::server::handshake(to_client).await.expect("a handshake");
        while let Some(accepted) = connection.accept().await {
            let (request, mut respond) = accepted.expect("a request");
            black_box(request.uri().path());
            let mut response = Response::builder().status(200);
            for (name, value) in RESPONSE {
                response = response.header(name, value);
            }
            let response = response.body(()).expect("a response");
            let mut body = respond.send_response(response, false).expect("an open stream");
            body.send_data(Bytes::from_static(&BODY), true).expect("an open stream");
        }
    });
    let (mut client, connection) = h2::client::handshake(to_server).await.expect("a handshake");
    let driver = tokio::spawn(connection);
    let start = cpu_time();
    let mut left = REQUESTS;
    while left > 0 {
        let mut responses = Vec::with_capacity(streams);
        for _ in 0..streams.min(left) {
            client = client.ready().await.expect("an open connection");
            let mut request = Request::get("http://bench.example:8080/assets/app.js?v=12");
            for (name, value) in &REQUEST[4..] {
                request = request.header(*name, *value);
            }
            let request = request.body(()).expect("a request");
            responses.push(client.send_request(request, true).expect("an open connection").0);
        }
        for response in responses {
            let mut body = response.await.expect("a response").into_body();
            while let Some(data) = body.data().await {
                let data = data.expect("a body");
                body.flow_control().release_capacity(data.len()).expect("held bytes");
                black_box(data);
            }
            left -= 1;
        }
    }
    let elapsed = cpu_time() - start;
    drop(client);
    driver.await.expect("no panic").expect("an orderly end");
    server.await.expect("no panic");
    elapsed
}
