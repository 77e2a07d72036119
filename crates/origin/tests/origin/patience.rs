//! Clients that take too long are cut off, and hurt nobody.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollgate_origin::Timeouts;

use crate::support::{Client, Served};

const GET_ONE: &[u8] = b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\n";
const ONE: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    Content-Length: 1\r\n\r\nx";
const LATE: &str = "HTTP/1.1 408 Request Timeout\r\nServer: tollgate-origin\r\n\
    Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\
    Content-Length: 47\r\n\r\n{\"error\":\"the request took too long to arrive\"}";

/// A hundred times less than usual, but for idle connections.
fn short() -> Timeouts {
    Timeouts {
        head: Duration::from_millis(300),
        body: Duration::from_millis(300),
        body_bytes_per_second: 1024,
        answer: Duration::from_millis(300),
        idle: Duration::from_secs(2),
        linger: Duration::from_millis(300),
    }
}

/// Reads to the end, and says when that came.
fn until_cut_off(client: &mut Client, since: Instant) -> (String, Duration) {
    let text = client.read_to_end();
    (text, since.elapsed())
}

fn is_around(took: Duration, expected: Duration) {
    // A timeout is never early; how late it may be is a matter of how busy the machine is.
    assert!(took >= expected, "{took:?} instead of {expected:?}");
    assert!(took < expected + Duration::from_secs(1), "{took:?} instead of {expected:?}");
}

#[test]
fn a_head_is_to_be_there_in_time_however_it_trickles() {
    let origin = Served::with_timeouts(short());
    let mut silent = origin.client();
    let mut trickles = origin.client();
    silent.send(b"GET / HT");
    let since = Instant::now();
    let mut sender = trickles.stream.try_clone().unwrap();
    let trickling = std::thread::spawn(move || {
        // Until it is cut off.
        while sender.write_all(b"\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let (text, took) = until_cut_off(&mut silent, since);
    assert_eq!(text, LATE);
    is_around(took, Duration::from_millis(300));
    let mut text = Vec::new();
    // What was sent after the cut may make a reset of it.
    trickles.stream.read_to_end(&mut text).ok();
    assert!(since.elapsed() < Duration::from_millis(1_500));
    trickling.join().unwrap();
}

#[test]
fn a_body_is_to_go_on_and_to_keep_its_rate() {
    let origin = Served::with_timeouts(short());
    let head = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let mut silent = origin.client();
    silent.send(head);
    let since = Instant::now();
    let (text, took) = until_cut_off(&mut silent, since);
    assert_eq!(text, LATE);
    is_around(took, Duration::from_millis(290));

    // A byte now and then is below the rate, four KiB at once are worth four seconds.
    let mut slow = origin.client();
    let mut paced = origin.client();
    slow.send(head);
    paced.send(head);
    paced.send(&[b'b'; 4096]);
    let since = Instant::now();
    let mut slow_is_open = true;
    while since.elapsed() < Duration::from_millis(1_200) {
        slow_is_open = slow_is_open && slow.stream.write_all(b"b").is_ok();
        paced.send(b"b");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!slow_is_open, "a byte every 20 ms was waited for");
    paced.stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let kind = paced.stream.read(&mut [0]).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::WouldBlock);
}

#[test]
fn an_answer_is_to_be_taken() {
    let origin = Served::with_timeouts(short());
    let mut client = origin.client();
    client.send(b"GET /download?size=1073741824 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    // As long as some is taken now and then, it goes on.
    for _ in 0..20 {
        client.skip(4 << 20);
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(1_000));
    let mut left = Vec::new();
    client.stream.read_to_end(&mut left).ok();
    assert!(left.len() < (1 << 30) - (80 << 20), "it was not cut off");
}

#[test]
fn an_idle_connection_has_its_own_time_and_a_sleeper_all_that_it_needs() {
    let timeouts = Timeouts { idle: Duration::from_millis(300), ..short() };
    let origin = Served::with_timeouts(timeouts);
    let mut idle = origin.client();
    let mut sleeper = origin.client();
    sleeper.send(b"GET /sleep?time=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    idle.send(GET_ONE);
    idle.expect(ONE);
    let since = Instant::now();
    let (text, took) = until_cut_off(&mut idle, since);
    assert_eq!(text, "");
    is_around(took, Duration::from_millis(290));
    assert!(sleeper.head().starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_thousand_slow_clients_hurt_nobody() {
    const SLOW: usize = 1_000;
    let timeouts =
        Timeouts { body: Duration::from_secs(2), head: Duration::from_secs(2), ..short() };
    let origin = Served::with_timeouts(timeouts);
    let connect =
        |kind: usize| {
            let mut stream = TcpStream::connect(origin.addr).unwrap();
            stream.write_all(match kind % 4 {
            0 => b"G",
            1 => b"GET / HTTP/1.1\r\nHost: a\r\nX-Endless: ",
            2 => b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
            _ => b"PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
        })
        .unwrap();
            stream
        };
    let mut slow: Vec<TcpStream> = (0..SLOW).map(connect).collect();
    let since = Instant::now();
    let mut others: Vec<Client> = (0..8).map(|_| origin.client()).collect();
    let mut answered = 0;
    let mut slowest = Duration::ZERO;
    let mut next_byte = Duration::from_secs(1);
    while since.elapsed() < Duration::from_millis(3_000) {
        for client in &mut others {
            let asked = Instant::now();
            client.send(GET_ONE);
            client.expect(ONE);
            slowest = slowest.max(asked.elapsed());
            answered += 1;
        }
        if since.elapsed() >= next_byte {
            // One byte a second each.
            next_byte += Duration::from_secs(1);
            slow.iter_mut().for_each(|stream| drop(stream.write(b"x")));
        }
    }
    assert!(answered > 1_000, "{answered} answers in three seconds");
    assert!(slowest < Duration::from_millis(500), "{slowest:?} for an answer");
    let mut json = origin.client();
    json.send(b"GET /counters HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let told = json.read_to_end();
    assert!(told.contains(&format!("\"timed_out\":{SLOW},")), "{told}");
    assert!(told.contains("\"open\":9,"), "{told}");
}
