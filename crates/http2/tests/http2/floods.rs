use std::time::Duration;

use tollgate_http2::{ConnectionError, Flood, FrameType, Limits, Rate, Role, flags};

use crate::{GET, POST, Side, data, frame, headers};

/// Feeds `input`, made from a number, until the connection ends. Returns how often, and why it ended.
fn until_error(server: &mut Side, input: impl Fn(u32) -> Vec<u8>) -> (u32, ConnectionError) {
    for number in 0..100_000 {
        match server.receive(&input(number)) {
            Ok(_) => {
                let streams: Vec<u32> = server.connection.tokens().map(|(id, _)| id).collect();
                streams.into_iter().filter(|id| *id != 1).for_each(|id| {
                    server.connection.release(id, &mut server.out);
                });
                server.connection.flushed();
            }
            Err(error) => {
                let (kind, _, _, payload) = server.sent().pop().unwrap();
                assert_eq!((kind, payload[7]), (FrameType::GOAWAY, 11));
                return (number, error);
            }
        }
    }
    panic!("no error");
}

#[test]
fn floods_end_the_connection() {
    let ping = frame(FrameType::PING, 0, 0, &[0; 8]);
    let settings = frame(FrameType::SETTINGS, 0, 0, &[]);
    let priority = frame(FrameType::PRIORITY, 0, 1, &[0; 5]);
    let unknown = frame(FrameType(77), 0, 0, b"");
    let small = frame(FrameType::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
    let padding = frame(FrameType::DATA, flags::PADDED, 1, b"\x03\0\0\0");
    for input in [ping, settings, priority, unknown, small, padding, data(1, false, b"")] {
        let mut server = Side::server();
        server.receive(&headers(1, false, POST)).unwrap();
        let (count, error) = until_error(&mut server, |_| input.clone());
        assert_eq!(error, ConnectionError::Flood(Flood::Glitches));
        // The acknowledged settings were the first one.
        assert_eq!(count, 999, "{input:?}");
    }
}

#[test]
fn go_away_flood_ends_the_connection() {
    let go_away = frame(FrameType::GOAWAY, 0, 0, &[0; 8]);
    let (count, error) = until_error(&mut Side::client(), |_| go_away.clone());
    // The first one is free, unlike the acknowledged settings.
    assert_eq!((count, error), (1000, ConnectionError::Flood(Flood::Glitches)));
}

#[test]
fn window_updates_of_a_released_stream_end_the_connection() {
    let mut server = Side::server();
    server.receive(&headers(1, true, GET)).unwrap();
    server.connection.release(1, &mut server.out);
    let update = frame(FrameType::WINDOW_UPDATE, 0, 1, &1024_u32.to_be_bytes());
    let (count, error) = until_error(&mut server, |_| update.clone());
    assert_eq!((count, error), (999, ConnectionError::Flood(Flood::Glitches)));
}

#[test]
fn interim_responses_of_a_flood_end_the_connection() {
    let mut client = Side::client();
    let id = client.request("GET", true);
    client.sent();
    // The status 103.
    let interim = headers(id, false, b"\x08\x03103");
    let (count, error) = until_error(&mut client, |_| interim.clone());
    // The request has paid for the acknowledged settings.
    assert_eq!((count, error), (1000, ConnectionError::Flood(Flood::Glitches)));
}

#[test]
fn rapid_resets_end_the_connection() {
    let cancel = |stream| frame(FrameType::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    let id = |number| 2 * number + 3;
    let (count, error) = until_error(&mut Side::server(), |number| {
        [headers(id(number), true, GET), cancel(id(number))].concat()
    });
    assert_eq!((count, error), (1000, ConnectionError::Flood(Flood::Resets)));
    // Resets that the client provokes: an error of the stream, and malformed heads. An increment of 0 is a glitch too,
    // as the acknowledged settings were.
    let zero = |stream| frame(FrameType::WINDOW_UPDATE, 0, stream, &[0; 4]);
    let (count, error) = until_error(&mut Side::server(), |number| {
        [headers(id(number), true, GET), zero(id(number))].concat()
    });
    assert_eq!((count, error), (999, ConnectionError::Flood(Flood::Glitches)));
    let (count, error) =
        until_error(&mut Side::server(), |number| headers(id(number), true, b"\x00\x00\x00"));
    assert_eq!((count, error), (1000, ConnectionError::Flood(Flood::Resets)));
}

#[test]
fn budgets_return_with_time_and_work() {
    let limits = Limits { glitches: Rate { burst: 10, per_s: 2 }, ..Limits::default() };
    let ping = frame(FrameType::PING, 0, 0, &[0; 8]);
    let mut server = Side::new(Role::Server, limits);
    for _ in 0..100 {
        server.now += Duration::from_millis(500);
        server.receive(&ping).unwrap();
    }
    for number in 0..100 {
        let id = 2 * number + 1;
        server.receive(&[headers(id, true, GET), ping.clone(), ping.clone()].concat()).unwrap();
        server.connection.send_response(id, 200, [], true, &mut server.out).unwrap();
        server.connection.release(id, &mut server.out);
    }
}

#[test]
fn replies_that_cannot_be_sent_are_limited() {
    let limits = Limits { queued_control_frames: 10, ..Limits::default() };
    let ping = frame(FrameType::PING, 0, 0, &[0; 8]);
    let mut server = Side::new(Role::Server, limits);
    server.connection.flushed();
    for _ in 0..3 {
        assert_eq!(server.receive(&ping.repeat(10)), Ok(vec![]));
        server.connection.flushed();
    }
    let error = server.receive(&ping.repeat(11)).unwrap_err();
    assert_eq!(error, ConnectionError::Flood(Flood::QueuedControlFrames));
}

#[test]
fn continuations_are_limited() {
    let mut server = Side::server();
    let start = frame(FrameType::HEADERS, flags::END_STREAM, 1, GET);
    let continuation = frame(FrameType::CONTINUATION, 0, 1, b"");
    let last = frame(FrameType::CONTINUATION, flags::END_HEADERS, 1, b"");
    let eight = [start.clone(), continuation.repeat(7), last].concat();
    assert_eq!(server.receive(&eight).unwrap().len(), 1);
    let mut server = Side::server();
    let error = server.receive(&[start, continuation.repeat(9)].concat()).unwrap_err();
    assert_eq!(error, ConnectionError::Flood(Flood::Continuations));
}

#[test]
fn large_updates_and_work_are_no_glitches() {
    let mut server = Side::server();
    server.receive(&headers(1, false, POST)).unwrap();
    for _ in 0..5000 {
        let update = frame(FrameType::WINDOW_UPDATE, 0, 1, &1024_u32.to_be_bytes());
        server.receive(&[data(1, false, b"abcdefgh"), update].concat()).unwrap();
        server.connection.credit(1, 8, &mut server.out);
    }
}
