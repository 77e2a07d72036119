//! The endpoints from end to end: what is in between them and the socket, and that they do not hold up
//! one another. What each answers to what is tested where it is made.

use std::time::{Duration, Instant};

use crate::support::{Client, Served};

/// Asks and reads the whole answer, whose body is taken by its Content-Length.
fn ask(client: &mut Client, request: &str) -> (String, String) {
    client.send(request.as_bytes());
    answer(client)
}

fn answer(client: &mut Client) -> (String, String) {
    let head = client.head();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let body = client.read(length.map_or(0, |length| length.parse().unwrap()));
    (head, body)
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n")
}

/// The number after `"name":`.
fn number(json: &str, name: &str) -> f64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{json}"));
    let end = rest.find([',', '}']).unwrap();
    rest[..end].parse().unwrap()
}

#[test]
fn random_bytes_and_zeros_are_read_and_timed() {
    let origin = Served::start(1);
    let mut client = origin.client();
    for (target, size) in [
        ("/urandom", 2048.0),
        ("/zero", 2048.0),
        ("/urandom?size=0", 0.0),
        ("/urandom?size=4000000", 4e6),
        ("/zero?size=67108864", 67_108_864.0),
    ] {
        let asked = Instant::now();
        let (head, json) = ask(&mut client, &get(target));
        assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
        assert_eq!(number(&json, "size"), size, "{target}");
        let time = number(&json, "time");
        assert!(time > 0.0 || size == 0.0, "{json}");
        assert!(time <= asked.elapsed().as_secs_f64(), "{json}");
    }
}

#[test]
fn what_takes_long_does_not_hold_up_others() {
    let origin = Served::start(1);
    let mut busy: Vec<Client> = (0..4).map(|_| origin.client()).collect();
    for client in &mut busy {
        // A quarter of a second of work in all, or more.
        client.send(get("/urandom?size=67108864").repeat(2).as_bytes());
    }
    let mut sleeper = origin.client();
    sleeper.send(get("/sleep?time=20").as_bytes());
    let mut other = origin.client();
    let began = Instant::now();
    for _ in 0..10 {
        let (_, body) = ask(&mut other, &get("/?payload=3"));
        assert_eq!(body, "xxx");
    }
    let others_took = began.elapsed();
    for client in &mut busy {
        answer(client);
        answer(client);
    }
    let busy_took = began.elapsed();
    assert!(others_took * 2 < busy_took, "{others_took:?} of {busy_took:?}");
}

#[test]
fn sleepers_wake_in_time_and_in_the_order_of_their_requests() {
    let origin = Served::start(2);
    let mut clients: Vec<Client> = (0..50).map(|_| origin.client()).collect();
    let began = Instant::now();
    for (index, client) in clients.iter_mut().enumerate() {
        let millis = 100 + (index * 7) % 50;
        client.send(get(&format!("/sleep?time=0.{millis}")).as_bytes());
        client.send(get("/?payload=1").as_bytes());
    }
    let mut quickest = f64::INFINITY;
    for (index, client) in clients.iter_mut().enumerate() {
        let asked = (100 + (index * 7) % 50) as f64 / 1000.0;
        let (_, json) = answer(client);
        let took = number(&json, "time");
        assert!(took >= asked, "{took} s instead of {asked}");
        quickest = quickest.min(took - asked);
        assert_eq!(answer(client).1, "x");
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    // The quickest, because a busy machine only ever makes them late.
    assert!(quickest < 0.001, "none of 50 woke within a millisecond: {quickest} s");
}

#[test]
fn a_sleeper_that_talks_on_is_answered_in_order_beside_some_that_went_away() {
    let origin = Served::start(1);
    let mut talks = origin.client();
    talks.send(get("/sleep?time=0.4").as_bytes());
    for _ in 0..20 {
        origin.client().send(get("/sleep?time=50").as_bytes());
    }
    talks.send(get("/headers").as_bytes());
    let (_, json) = answer(&mut talks);
    assert!(number(&json, "time") >= 0.4);
    assert_eq!(answer(&mut talks).1, "{\"headers\":[[\"Host\",\"a.test\"]]}");
}

#[test]
fn a_download_is_a_file_with_its_conditions_and_ranges() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(get("/download?size=100000").as_bytes());
    client.expect(&format!(
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/octet-stream\r\n\
         ETag: \"100000\"\r\nAccept-Ranges: bytes\r\nContent-Length: 100000\r\n\r\n{}",
        "x".repeat(100_000)
    ));
    client.send(b"GET /download HTTP/1.1\r\nHost: a\r\nRange: bytes=-3\r\n\r\n");
    client.expect(
        "HTTP/1.1 206 Partial Content\r\nServer: tollgate-origin\r\n\
         Content-Type: application/octet-stream\r\nETag: \"20480\"\r\nAccept-Ranges: bytes\r\n\
         Content-Range: bytes 20477-20479/20480\r\nContent-Length: 3\r\n\r\nxxx",
    );
    client.send(b"GET /download HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"20480\"\r\n\r\n");
    client
        .expect("HTTP/1.1 304 Not Modified\r\nServer: tollgate-origin\r\nETag: \"20480\"\r\n\r\n");
    client.send(b"HEAD /download?size=1073741824 HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert!(head.contains("\r\nContent-Length: 1073741824\r\n"), "{head}");
    // A gibibyte, of which the origin holds none.
    client.send(get("/download?size=1073741824").as_bytes());
    client.head();
    client.skip(1 << 30);
    client.send(get("/method").as_bytes());
    assert_eq!(answer(&mut client).1, "{\"method\":\"GET\"}");
}

#[test]
fn uploads_are_measured_while_they_come() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(
        b"PUT /upload HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\
          Transfer-Encoding: chunked\r\n\r\n",
    );
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"5\r\nhello\r\n");
    std::thread::sleep(Duration::from_millis(50));
    client.send(format!("{:x}\r\n{}\r\n0\r\n\r\n", 1 << 20, "b".repeat(1 << 20)).as_bytes());
    let (_, json) = answer(&mut client);
    assert_eq!(number(&json, "size"), 1_048_581.0, "{json}");
    let time = number(&json, "time");
    assert!((0.05..5.0).contains(&time), "{json}");

    let part = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.bin\"\r\n\r\n";
    let body = format!("{part}{}\r\n--b--\r\n", "y".repeat(3_000_000));
    let (_, json) = ask(
        &mut client,
        &format!(
            "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    );
    assert_eq!(number(&json, "size"), body.len() as f64);
    let parts = ",\"parts\":[\n{\"name\":\"f\",\"filename\":\"a.bin\",\"size\":3000000}\n]}";
    assert!(json.ends_with(parts), "{json}");
}

#[test]
fn a_body_is_echoed_up_to_a_mebibyte() {
    let origin = Served::start(1);
    let mut client = origin.client();
    let body = "e".repeat(1 << 20);
    client.send(
        format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .as_bytes(),
    );
    client.expect(&format!(
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/x\r\n\
         X-Content-Type-Options: nosniff\r\nContent-Length: 1048576\r\n\r\n{body}"
    ));
    client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n");
    let answer = client.read_to_end();
    assert!(answer.starts_with("HTTP/1.1 413 Content Too Large\r\n"), "{answer}");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
}

#[test]
fn delays_are_those_that_they_say() {
    let origin = Served::start(1);
    let mut client = origin.client();
    for _ in 0..10 {
        let (_, json) = ask(&mut client, &get("/delay?dist=bimodal&ms=2&ms2=4&p=0.5&seed=9"));
        let delay = number(&json, "delay");
        assert!(delay == 0.002 || delay == 0.004, "{json}");
        assert!(number(&json, "time") >= delay, "{json}");
    }
}

#[test]
fn the_counters_of_all_threads_are_told_and_reset() {
    let origin = Served::start(3);
    for _ in 0..12 {
        let mut client = origin.client();
        ask(&mut client, &get("/urandom?size=1"));
        ask(&mut client, &get("/urandom?size=x"));
        ask(&mut client, &get("/status/503"));
        ask(&mut client, &get("/any/thing"));
        client.send(b"BAD\r\n\r\n");
        client.read_to_end();
    }
    let mut client = origin.client();
    let (head, json) = ask(&mut client, &get("/counters?reset=1"));
    assert!(head.contains("\r\nCache-Control: no-store\r\n"), "{head}");
    for (name, expected) in [
        ("requests", 61.0),
        ("2xx", 24.0),
        ("4xx", 24.0),
        ("5xx", 12.0),
        ("/urandom", 24.0),
        ("/status", 12.0),
        ("/counters", 1.0),
        ("other", 12.0),
        ("refused", 24.0),
        ("malformed", 12.0),
        ("accepted", 13.0),
        ("timed_out", 0.0),
    ] {
        assert_eq!(number(&json, name), expected, "{name} in {json}");
    }
    // 12 times what was sent above, and this request.
    let sent = get("/urandom?size=1").len()
        + get("/urandom?size=x").len()
        + get("/status/503").len()
        + get("/any/thing").len()
        + "BAD\r\n\r\n".len();
    let expected = 12 * sent + get("/counters?reset=1").len();
    assert_eq!(number(&json, "bytes_in"), expected as f64, "{json}");
    assert!(number(&json, "bytes_out") > 12.0 * 500.0, "{json}");

    let (head, json) = ask(&mut client, &get("/counters"));
    // The answer that was told the counters before it was counted itself.
    assert_eq!(number(&json, "requests"), 1.0, "{json}");
    assert_eq!(number(&json, "2xx"), 1.0, "{json}");
    assert!(number(&json, "open") >= 1.0, "{json}");
    assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
}
