//! Attacks on servers of HTTP/2. Each is answered by GOAWAY, or costs the gateway no more than a stated amount, and
//! leaves other clients undisturbed.

use std::io::Write;

use super::scene;
use crate::support::http2::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, ENHANCE_YOUR_CALM, GET_FIELDS, HEADERS,
    Http2Peer, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame,
};
use crate::support::{GET, OK, TestGateway, ThreadedBackend, config};

/// A gateway that takes HTTP/2, in front of a backend that responds at once.
fn echo_scene() -> (TestGateway, ThreadedBackend) {
    let backend = ThreadedBackend::responding(|_| OK.as_bytes().to_vec());
    let mut config = config(&[backend.addr()]);
    config.listeners[0].http2 = true;
    (TestGateway::start(&config), backend)
}

/// Sends a flood until the gateway ends the connection, and expects the code of its GOAWAY. A gateway that bears all
/// of it fails the test.
#[track_caller]
fn expect_calm(gateway: &TestGateway, mut client: Http2Peer, flood: impl Iterator<Item = Vec<u8>>) {
    // The client has acknowledged the settings then, and sends no frame of its own during the flood.
    client.round_trip();
    let mut writer = client.tcp().try_clone().unwrap();
    let has_ended = std::thread::scope(|scope| {
        let reader = scope.spawn(|| client.expect_end());
        for bytes in flood {
            if writer.write_all(&bytes).is_err() {
                break;
            }
        }
        // Otherwise the reader waits for the rest of the connection.
        writer.shutdown(std::net::Shutdown::Write).ok();
        reader.join().unwrap()
    });
    assert_eq!(has_ended, ENHANCE_YOUR_CALM);
    gateway.expect_metric("client_http2_connection_errors_total", 1);
    let mut other = gateway.client();
    other.send(GET);
    other.expect(OK);
}

const MANY: u32 = 20_000;

fn streams() -> impl Iterator<Item = u32> {
    (0..MANY).map(|at| 2 * at + 1)
}

#[test]
fn rapid_reset_cve_2023_44487() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    let flood = streams().map(|stream| {
        let mut bytes = frame(HEADERS, 5, stream, &block(GET_FIELDS));
        bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        bytes
    });
    expect_calm(&gateway, client, flood);
    // The budget of resets bounds the requests.
    assert!(gateway.metric("client_http2_streams_total") < 1_200);
}

#[test]
fn resets_provoked_by_errors_cve_2025_8671() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    // An increment of 0 makes the server reset the stream.
    let flood = streams().map(|stream| {
        let mut bytes = frame(HEADERS, 5, stream, &block(GET_FIELDS));
        bytes.extend(frame(WINDOW_UPDATE, 0, stream, &[0; 4]));
        bytes
    });
    expect_calm(&gateway, client, flood);
    assert!(gateway.metric("client_http2_streams_total") < 1_200);
}

#[test]
fn continuation_flood_cve_2024_27316() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    let first = frame(HEADERS, 1, 1, &block(GET_FIELDS));
    let rest = (0..MANY).map(|_| frame(CONTINUATION, 0, 1, &block(&[("x", "y")])));
    expect_calm(&gateway, client, std::iter::once(first).chain(rest));
}

#[test]
fn ping_flood_cve_2019_9512() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    expect_calm(&gateway, client, (0..MANY).map(|_| frame(PING, 0, 0, b"12345678")));
}

#[test]
fn settings_flood_cve_2019_9515() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    expect_calm(&gateway, client, (0..MANY).map(|_| frame(SETTINGS, 0, 0, b"")));
}

#[test]
fn priority_loop_cve_2019_9513() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    let flood = (0..MANY).map(|at| frame(PRIORITY, 0, 1 + 2 * (at % 50), &[0, 0, 0, 0, 9]));
    expect_calm(&gateway, client, flood);
}

#[test]
fn reset_flood_cve_2019_9514() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    // Each malformed request makes the server send a reset.
    let flood = streams().map(|stream| frame(HEADERS, 5, stream, &block(&[(":method", "")])));
    expect_calm(&gateway, client, flood);
}

#[test]
fn zero_length_headers_cve_2019_9516() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    let fields = [&[("", ""); 50][..], GET_FIELDS].concat();
    let flood = streams().map(|stream| frame(HEADERS, 5, stream, &block(&fields)));
    expect_calm(&gateway, client, flood);
}

#[test]
fn empty_frames_cve_2019_9518() {
    let (gateway, _backend) = echo_scene();
    let client = Http2Peer::connect(gateway.address());
    let post = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/a")];
    let head = frame(HEADERS, END_HEADERS, 1, &block(&post));
    let flood = (0..MANY).map(|_| frame(DATA, 0, 1, b""));
    expect_calm(&gateway, client, std::iter::once(head).chain(flood));
}

#[test]
fn data_dribble_cve_2019_9511() {
    let (gateway, _backend) = echo_scene();
    let settings = [(crate::support::http2::INITIAL_WINDOW_SIZE, 0)];
    let client = Http2Peer::with_settings(gateway.address(), &settings);
    let head = frame(HEADERS, 5, 1, &block(GET_FIELDS));
    // One byte of credit at a time, for a stream that has little to send.
    let flood = (0..MANY).map(|_| frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()));
    let ping = frame(PING, ACK, 0, b"12345678");
    expect_calm(&gateway, client, std::iter::once(head).chain(std::iter::once(ping)).chain(flood));
}

#[test]
fn internal_data_buffering_cve_2019_9517() {
    // The windows are wide open, but the client does not read: the gateway takes no more from the backends than one
    // piece for each stream.
    let backend = ThreadedBackend::start(|mut peer| {
        while peer.head().is_ok() {
            let body = vec![b'x'; 64 << 20];
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            if peer.try_send(head).and_then(|()| peer.try_send(body)).is_err() {
                return;
            }
        }
    });
    let mut config = config(&[backend.addr()]);
    config.listeners[0].http2 = true;
    let gateway = TestGateway::start(&config);
    let settings = [(crate::support::http2::INITIAL_WINDOW_SIZE, (1 << 31) - 1)];
    let mut client = Http2Peer::with_settings(gateway.address(), &settings);
    client.window_update(0, (1 << 31) - 1 - 65_535);
    for at in 0..20 {
        client.request(2 * at + 1, true, GET_FIELDS);
    }
    gateway.expect_metric("client_http2_streams_total", 20);
    for _ in 0..20 {
        gateway.turn();
    }
    let sent = gateway.metric("client_sent_bytes_total");
    let mut other = gateway.client();
    other.send("GET /other HTTP/1.1\r\nHost: x\r\n\r\n");
    other.expect("HTTP/1.1 200 OK\r\n");
    // The socket buffers, of some megabytes, are all that was sent.
    assert!(sent < 64 << 20, "{sent}");
}

#[test]
fn header_bomb_ends_the_connection() {
    let (gateway, _backend) = echo_scene();
    let mut client = Http2Peer::connect(gateway.address());
    // An entry of 4,000 bytes in the dynamic table, and 16,000 references to it.
    let mut bomb = vec![0x40, 1, b'x', 127, 0xa1, 30];
    bomb.extend(vec![b'y'; 4_000]);
    bomb.extend(vec![0xbe; 10_000]);
    client.frame(HEADERS, 5, 1, &bomb);
    assert_eq!(client.expect_end(), ENHANCE_YOUR_CALM);
}

#[test]
fn streams_above_the_limit_are_refused() {
    let (gateway, mut client, _backend) = scene();
    for at in 0..101 {
        client.request(2 * at + 1, true, GET_FIELDS);
    }
    const REFUSED_STREAM: u32 = 7;
    assert_eq!(client.response(201).reset, Some(REFUSED_STREAM));
    assert_eq!(gateway.metric("client_http2_streams_total"), 100);
}
