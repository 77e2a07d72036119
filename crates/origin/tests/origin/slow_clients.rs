//! Clients that are slow, disconnect, or send more than they read.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollgate_origin::Timeouts;

use crate::support::{Client, GET_ONE, ONE, PATIENCE, Served, get, wait_until};

const TIMED_OUT: &str = "HTTP/1.1 408 Request Timeout\r\nServer: tollgate-origin\r\n\
    Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\
    Content-Length: 29\r\n\r\n{\"error\":\"request timed out\"}";

const SHORT: Duration = Duration::from_millis(300);

/// Short timeouts, except for idle connections.
fn short_timeouts() -> Timeouts {
    Timeouts {
        head: SHORT,
        body: SHORT,
        body_bytes_per_second: 1024,
        response: SHORT,
        idle: PATIENCE,
        linger: SHORT,
    }
}

#[test]
fn incomplete_head_times_out() {
    let origin = Served::with_timeouts(short_timeouts());
    let mut silent = origin.client();
    let mut trickling = origin.client();
    silent.send(b"GET / HT");
    let start = Instant::now();
    let mut sender = trickling.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        while sender.write_all(b"\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    silent.expect_last(TIMED_OUT);
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    // Bytes sent after the close may cause a reset.
    trickling.stream.read_to_end(&mut Vec::new()).ok();
    sending.join().unwrap();
    assert_eq!(origin.counter("timed_out"), 2);
}

#[test]
fn body_below_minimum_rate_times_out() {
    // Long enough for a busy machine to send a byte in time.
    let body = Duration::from_secs(2);
    let origin = Served::with_timeouts(Timeouts { body, ..short_timeouts() });
    let head = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let mut silent = origin.client();
    let mut slow = origin.client();
    let mut fast = origin.client();
    for client in [&mut silent, &mut slow, &mut fast] {
        client.send(head);
    }
    // Worth 60 s at the minimum rate.
    fast.send(&[b'b'; 60 << 10]);
    // Several bytes a second are below the rate.
    wait_until(|| {
        fast.send(b"b");
        std::thread::sleep(Duration::from_millis(50));
        slow.stream.write_all(b"b").is_err()
    });
    silent.expect_last(TIMED_OUT);
    fast.stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let kind = fast.stream.read(&mut [0]).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::WouldBlock);
}

#[test]
fn unread_response_times_out() {
    let response = Duration::from_secs(1);
    let origin = Served::with_timeouts(Timeouts { response, ..short_timeouts() });
    let mut client = origin.client();
    client.send(get("/download?size=1073741824").as_bytes());
    client.head();
    // The connection stays open while the client reads, however slowly.
    for _ in 0..30 {
        client.skip(4 << 20);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(origin.counter("timed_out"), 0);
    wait_until(|| origin.counter("timed_out") == 1);
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).ok();
    assert!(rest.len() < (1 << 30) - (120 << 20), "the connection was not closed");
}

#[test]
fn idle_timeout_does_not_end_a_wait() {
    let origin = Served::with_timeouts(Timeouts { idle: SHORT, ..short_timeouts() });
    let mut waiting = origin.client();
    waiting.send(get("/sleep?time=1").as_bytes());
    let mut idle = origin.client();
    idle.send(GET_ONE);
    let start = Instant::now();
    idle.expect(ONE);
    idle.expect_last("");
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    assert!(waiting.head().starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn thousand_slow_clients_do_not_delay_others() {
    const SLOW: u64 = 1_000;
    let timeout = Duration::from_secs(2);
    let timeouts = Timeouts { body: timeout, head: timeout, ..short_timeouts() };
    let origin = Served::with_timeouts(timeouts);
    let starts: [&[u8]; 4] = [
        b"G",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Endless: ",
        b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
        b"PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
    ];
    let connect = |start: &&[u8]| {
        let mut stream = TcpStream::connect(origin.addr).unwrap();
        stream.write_all(start).unwrap();
        stream
    };
    let mut slow: Vec<TcpStream> = starts.iter().cycle().take(SLOW as usize).map(connect).collect();
    let mut others: Vec<Client> = (0..8).map(|_| origin.client()).collect();
    let mut responses = 0;
    let mut last_byte = Instant::now();
    wait_until(|| {
        for client in &mut others {
            client.send(GET_ONE);
            client.expect(ONE);
            responses += 1;
        }
        if last_byte.elapsed() > Duration::from_secs(1) {
            last_byte = Instant::now();
            // Connections that have timed out are closed.
            slow.iter_mut().for_each(|stream| drop(stream.write(b"x")));
        }
        origin.counter("timed_out") == SLOW
    });
    assert!(responses > 100, "{responses} responses beside slow clients");
}

/// Waits until the buffers between the origin and its clients are full.
fn wait_until_blocked(origin: &Served) {
    // Each look at the counters sends a known number of bytes itself.
    let mut last = 0;
    wait_until(|| {
        std::thread::sleep(Duration::from_millis(50));
        let sent = origin.counter("bytes_out");
        let is_blocked = sent - last < 4096;
        last = sent;
        is_blocked
    });
}

#[test]
fn slow_reader_gets_whole_payload() {
    let origin = Served::start(1);
    let mut slow = origin.client();
    slow.send(b"GET /?payload=67108864 HTTP/1.1\r\nHost: a\r\n\r\n");
    slow.send(GET_ONE);
    wait_until_blocked(&origin);
    assert!(slow.head().contains("\r\nContent-Length: 67108864\r\n"));
    let mut body = vec![0; 64 << 20];
    for piece in body.chunks_mut(4 << 20) {
        slow.stream.read_exact(piece).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(body.iter().all(|&byte| byte == b'x'));
    slow.expect(ONE);
}

#[test]
fn client_that_does_not_read_is_not_read_from() {
    let origin = Served::start(1);
    let mut client = origin.client();
    let request = format!(
        "GET /?payload=60000 HTTP/1.1\r\nHost: a\r\nX-Padding: {}\r\n\r\n",
        "p".repeat(8_000)
    );
    let (requests, unsent) = send_until_full(&mut client, request.as_bytes());
    origin.assert_responds();

    // Every request gets its response once there is room.
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&unsent).unwrap());
    for _ in 0..requests {
        assert!(client.head().contains("\r\nContent-Length: 60000\r\n"));
        client.expect(&"x".repeat(60_000));
    }
    sending.join().unwrap();
    client.send(GET_ONE);
    client.expect(ONE);
}

/// Repeats `request` until the origin reads no more. Returns the number of requests started, and
/// the unsent rest of the last one.
fn send_until_full(client: &mut Client, request: &[u8]) -> (usize, Vec<u8>) {
    // Far more than the buffers of the kernel hold.
    const REQUESTS_MAX: usize = 12_000;
    client.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    for started in 1..REQUESTS_MAX {
        let mut unsent = request;
        while !unsent.is_empty() {
            match client.stream.write(unsent) {
                Ok(count) => unsent = &unsent[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    client.stream.set_write_timeout(Some(PATIENCE)).unwrap();
                    return (started, unsent.to_vec());
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    panic!("the origin read {REQUESTS_MAX} requests while no response was read");
}

#[test]
fn disconnect_during_response_does_not_affect_others() {
    let origin = Served::start(1);
    for _ in 0..20 {
        let mut client = origin.client();
        client.send(b"GET /?payload=67108864 HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head();
    }
    origin.assert_responds();
}

#[test]
fn client_that_sends_after_last_response_is_closed() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"\0");
    assert!(client.read_to_end().starts_with("HTTP/1.1 400 Bad Request\r\n"));
    let flood = vec![b'f'; 1 << 20];
    let error = (0..64).find_map(|_| client.stream.write_all(&flood).err());
    assert!(
        matches!(
            error.map(|error| error.kind()),
            Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        ),
        "64 MiB were read after the last response"
    );
}

#[test]
fn oversized_chunk_extensions_are_rejected() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("1;{}\r\nx\r\n", "e".repeat(1_000)).repeat(20).as_bytes());
    // Before the end of the body, which never comes.
    assert!(client.head().starts_with("HTTP/1.1 400 "));
    origin.assert_responds();
}
