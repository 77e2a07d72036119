//! What HTTP asks of any path: conditions, refusals, and what becomes of the connection.

use super::*;

/// What is no file has no conditions: whatever they say, the request is answered as without them.
pub(super) fn conditions() -> Vec<Row> {
    let mut rows = Vec::new();
    for line in [
        "If-None-Match: *\r\n",
        "If-Match: \"1\"\r\n",
        "If-Modified-Since: Sat, 21 Nov 2026 20:54:20 GMT\r\n",
        "If-Unmodified-Since: Sat, 21 Nov 2020 20:54:20 GMT\r\n",
    ] {
        let measured = |size| json(&format!("{{\"size\":{size},\"time\":0.######}}"));
        let (name, value) = line.split_once(": ").expect("a header");
        rows.push(row(ask("GET /urandom", line), measured(2048)));
        rows.push(row(ask("HEAD /urandom", line), head_of(measured(2048))));
        rows.push(row(send("PUT /upload", line, "hello"), measured(5)));
        let value = value.trim_end().replace('"', "\\\"");
        let list = format!("[[\"Host\",\"site.example\"],[\"{name}\",\"{value}\"]]");
        rows.push(row(ask("GET /headers", line), json(&format!("{{\"headers\":{list}}}"))));
    }
    rows
}

pub(super) fn refusals() -> Vec<Row> {
    let mut rows = vec![
        get("/?payload=abc", reason(400, &format!("payload is \"abc\"; {BYTES} 0 to 67108864"))),
        get("/?payload", reason(400, &format!("payload is \"\"; {BYTES} 0 to 67108864"))),
        get(
            "/?payload=67108865",
            reason(413, &format!("payload is \"67108865\"; {BYTES} 0 to 67108864")),
        ),
        row(
            ask("BREW /urandom", ""),
            reason(
                501,
                "the method is BREW; it may be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
            ),
        ),
        closes("GET / HTTP/1.1\r\n\r\n".to_owned(), refused(400)),
        closes("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), refused(400)),
        closes("GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(), refused(400)),
        closes("\0\r\n\r\n".to_owned(), refused(400)),
        closes(
            ask("POST /echo", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n",
            refused(400),
        ),
        closes(
            ask("POST /echo", "Content-Length: 1\r\nContent-Length: 2\r\n") + "xx",
            refused(400),
        ),
        closes(ask("POST /echo", "Content-Length: x\r\n"), refused(400)),
        closes(ask("POST /echo", "Transfer-Encoding: chunked\r\n") + "zz\r\n", refused(400)),
        closes(ask("POST /echo", "Transfer-Encoding: gzip, chunked\r\n"), refused(501)),
        // The end of such a body cannot be told (RFC 9112, section 6.3).
        closes(ask("POST /echo", "Transfer-Encoding: gzip\r\n"), refused(400)),
        closes("GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), refused(505)),
        // What a chunk says of its size is not waited for.
        closes(
            ask("PUT /upload", "Transfer-Encoding: chunked\r\n") + "4000001\r\ny",
            reason(413, "the request body is too large; it may have 67108864 bytes"),
        ),
        closes(
            ask("PUT /echo", "Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\nffffffffff\r\nx",
            reason(413, "the request body is too large; it may have 1048576 bytes"),
        ),
        row(
            ask("GET /method", &format!("X: {}\r\n", "y".repeat(60_000))),
            json("{\"method\":\"GET\"}"),
        ),
        get(&format!("/method?x={}", "y".repeat(60_000)), json("{\"method\":\"GET\"}")),
        closes(ask("GET /", &format!("X: {}\r\n", "y".repeat(70_000))), refused(431)),
        closes(ask("GET /", &format!("X: {}\r\n", "y".repeat(7_000)).repeat(10)), refused(431)),
        row(ask("GET /method", &"X: y\r\n".repeat(99)), json("{\"method\":\"GET\"}")),
        closes(ask("GET /method", &"X: y\r\n".repeat(100)), refused(431)),
        closes(ask("GET /echo", &"X: y\r\n".repeat(100)), refused(431)),
    ];
    for value in ["abc", "-1", "", ".", "1.", ".5", "1e1"] {
        let text = format!("time is \"{value}\"; it may be a number of seconds from 0 to 60");
        rows.push(get(&format!("/sleep?time={value}"), reason(400, &text)));
    }
    let text = "time is \"60.5\"; it may be a number of seconds from 0 to 60";
    rows.push(get("/sleep?time=60.5", reason(413, text)));
    rows
}

pub(super) fn connections() -> Vec<Row> {
    let method = || json("{\"method\":\"GET\"}");
    let pipelined = [
        ask("GET /sleep?time=0.02", ""),
        ask("GET /download?size=100000", ""),
        send("POST /echo", "", "hello"),
        ask("HEAD /download", ""),
        ask("GET /status/204", ""),
        send("POST /upload", "", "hello"),
        ask("GET /urandom", ""),
        ask("GET /method", ""),
    ];
    vec![
        Row {
            request: pipelined.concat(),
            answers: vec![
                json("{\"time\":0.######}"),
                file(100_000),
                Expected {
                    headers: vec![("Content-Type", OCTETS.to_owned())],
                    ..plain(Body::Text("hello".to_owned()))
                },
                head_of(file(20_480)),
                bare(204),
                json("{\"size\":5,\"time\":0.######}"),
                json("{\"size\":2048,\"time\":0.######}"),
                method(),
            ],
            then: Then::Stays,
        },
        closes(ask("GET /method", "Connection: close\r\n"), method()),
        closes("GET /method HTTP/1.0\r\n\r\n".to_owned(), method()),
        row(
            "GET /method HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
            Expected { headers: vec![("Connection", "keep-alive".to_owned())], ..method() },
        ),
        row(
            "GET http://site.example/urandom?size=1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            json("{\"size\":1,\"time\":0.######}"),
        ),
        // What nobody wants of a body is no next request.
        Row {
            request: send("POST /method", "", "hello") + &ask("GET /method", ""),
            answers: vec![json("{\"method\":\"POST\"}"), method()],
            then: Then::Stays,
        },
        Row {
            request: format!(
                "PUT /method HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{}",
                ask("GET /method", "")
            ),
            answers: vec![json("{\"method\":\"PUT\"}"), method()],
            then: Then::Stays,
        },
    ]
}
