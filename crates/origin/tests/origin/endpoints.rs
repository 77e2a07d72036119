//! Endpoints from end to end, beside requests that take long. Their responses in detail are tested
//! beside their code.

use std::time::{Duration, Instant};

use crate::support::{Client, Served, get, number};

#[test]
fn fetches_are_timed() {
    let origin = Served::start(1);
    let mut client = origin.client();
    for (target, size) in [
        ("/urandom", 2048.0),
        ("/zero", 2048.0),
        ("/urandom?size=0", 0.0),
        ("/urandom?size=4000000", 4e6),
        ("/zero?size=67108864", 67_108_864.0),
    ] {
        let start = Instant::now();
        let (head, json) = client.request(&get(target));
        assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
        assert_eq!(number(&json, "size"), size, "{target}");
        let time = number(&json, "time");
        assert!(time > 0.0 || size == 0.0, "{json}");
        assert!(time <= start.elapsed().as_secs_f64(), "{json}");
    }
}

#[test]
fn long_work_does_not_delay_others() {
    let origin = Served::start(1);
    let mut busy: Vec<Client> = (0..4).map(|_| origin.client()).collect();
    for client in &mut busy {
        client.send(get("/urandom?size=8388608").repeat(2).as_bytes());
    }
    let mut waiting = origin.client();
    waiting.send(get("/sleep?time=20").as_bytes());
    let mut other = origin.client();
    let start = Instant::now();
    for _ in 0..10 {
        let (_, body) = other.request(&get("/?payload=3"));
        assert_eq!(body, "xxx");
    }
    let others_took = start.elapsed();
    for client in &mut busy {
        client.response();
        client.response();
    }
    let busy_took = start.elapsed();
    assert!(others_took * 2 < busy_took, "{others_took:?} of {busy_took:?}");
}

#[test]
fn waits_end_in_time_and_in_order() {
    let origin = Served::start(2);
    let mut clients: Vec<Client> = (0..50).map(|_| origin.client()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        let millis = 100 + (index * 7) % 50;
        client.send(get(&format!("/sleep?time=0.{millis}")).as_bytes());
        client.send(get("/?payload=1").as_bytes());
    }
    let mut least_delay = f64::INFINITY;
    for (index, client) in clients.iter_mut().enumerate() {
        let requested = (100 + (index * 7) % 50) as f64 / 1000.0;
        let (_, json) = client.response();
        let took = number(&json, "time");
        assert!(took >= requested, "{took} s instead of {requested}");
        least_delay = least_delay.min(took - requested);
        assert_eq!(client.response().1, "x");
    }
    // The least delay of 50, as a busy machine delays most of them.
    assert!(least_delay < 0.005, "{least_delay} s");
}

#[test]
fn wait_is_followed_by_pipelined_response() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(get("/sleep?time=0.4").as_bytes());
    for _ in 0..20 {
        origin.client().send(get("/sleep?time=50").as_bytes());
    }
    client.send(get("/headers").as_bytes());
    let (_, json) = client.response();
    assert!(number(&json, "time") >= 0.4);
    assert_eq!(client.response().1, "{\"headers\":[[\"Host\",\"a.test\"]]}");
}

#[test]
fn download_supports_conditions_and_ranges() {
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
    // A gibibyte, which the origin does not hold in memory.
    client.send(get("/download?size=1073741824").as_bytes());
    client.head();
    client.skip(1 << 30);
    client.send(get("/method").as_bytes());
    assert_eq!(client.response().1, "{\"method\":\"GET\"}");
}

#[test]
fn uploads_are_measured() {
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
    let (_, json) = client.response();
    assert_eq!(number(&json, "size"), 1_048_581.0, "{json}");
    assert!(number(&json, "time") >= 0.05, "{json}");

    let part = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.bin\"\r\n\r\n";
    let body = format!("{part}{}\r\n--b--\r\n", "y".repeat(3_000_000));
    let (_, json) = client.request(&format!(
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\n\
             Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(number(&json, "size"), body.len() as f64);
    let parts = ",\"parts\":[\n{\"name\":\"f\",\"filename\":\"a.bin\",\"size\":3000000}\n]}";
    assert!(json.ends_with(parts), "{json}");
}

#[test]
fn echo_is_limited_to_a_mebibyte() {
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
    let error = client.read_to_end();
    assert!(error.starts_with("HTTP/1.1 413 Content Too Large\r\n"), "{error}");
    assert!(error.contains("\r\nConnection: close\r\n"), "{error}");
}

#[test]
fn delay_takes_the_reported_time() {
    let origin = Served::start(1);
    let mut client = origin.client();
    for _ in 0..10 {
        let (_, json) = client.request(&get("/delay?dist=bimodal&ms=2&ms2=4&p=0.5&seed=9"));
        let delay = number(&json, "delay");
        assert!(delay == 0.002 || delay == 0.004, "{json}");
        assert!(number(&json, "time") >= delay, "{json}");
    }
}

#[test]
fn counters_of_all_threads_are_summed_and_reset() {
    let origin = Served::start(3);
    for _ in 0..12 {
        let mut client = origin.client();
        client.request(&get("/urandom?size=1"));
        client.request(&get("/urandom?size=x"));
        client.request(&get("/status/503"));
        client.request(&get("/any/thing"));
        client.send(b"BAD\r\n\r\n");
        client.read_to_end();
    }
    let mut client = origin.client();
    let (head, json) = client.request(&get("/counters?reset=1"));
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
        ("errors", 24.0),
        ("malformed", 12.0),
        ("accepted", 13.0),
        ("timed_out", 0.0),
    ] {
        assert_eq!(number(&json, name), expected, "{name} in {json}");
    }
    let sent = get("/urandom?size=1").len()
        + get("/urandom?size=x").len()
        + get("/status/503").len()
        + get("/any/thing").len()
        + "BAD\r\n\r\n".len();
    let expected = 12 * sent + get("/counters?reset=1").len();
    assert_eq!(number(&json, "bytes_in"), expected as f64, "{json}");
    assert!(number(&json, "bytes_out") > 12.0 * 500.0, "{json}");

    let (head, json) = client.request(&get("/counters"));
    // The response with the counters was counted after they were read.
    assert_eq!(number(&json, "requests"), 1.0, "{json}");
    assert_eq!(number(&json, "2xx"), 1.0, "{json}");
    assert!(number(&json, "open") >= 1.0, "{json}");
    assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
}
