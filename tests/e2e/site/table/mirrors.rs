//! What became of a request on its way: `/headers`, `/echo`, `/status` and `/method`.

use super::*;

pub(super) fn mirrors() -> Vec<Row> {
    let echoed = |kind: &str, text: &str| Expected {
        headers: vec![
            ("Content-Type", kind.to_owned()),
            ("Content-Length", text.len().to_string()),
        ],
        ..plain(Body::Text(text.to_owned()))
    };
    let mut rows = vec![
        row(
            ask("GET /headers", "X-A: \"q\\\"\r\nx-a:  2 \r\nX-B: gr\u{fc}n\r\n"),
            json(
                "{\"headers\":[[\"Host\",\"site.example\"],[\"X-A\",\"\\\"q\\\\\\\"\"],[\"x-a\",\"2\"],[\"X-B\",\"gr\u{fc}n\"]]}",
            ),
        ),
        row(
            send("POST /echo", "Content-Type: text/x; a=b\r\n", "a\r\n\0b"),
            echoed("text/x; a=b", "a\r\n\0b"),
        ),
        row(send("PUT /echo", "", "hello"), echoed(OCTETS, "hello")),
        row(ask("GET /echo", ""), echoed(OCTETS, "")),
        row(
            format!(
                "POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
            ),
            echoed(OCTETS, "hello"),
        ),
        row(
            send("POST /echo", "", &"x".repeat(1 << 20)),
            Expected { body: Body::Filler(1 << 20), ..echoed(OCTETS, &"x".repeat(1 << 20)) },
        ),
        // With the lines of its chunks it is more than a buffer of the limit's size holds.
        row(
            format!(
                "POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
                format!("2000\r\n{}\r\n", "x".repeat(0x2000)).repeat(128)
            ),
            Expected { body: Body::Filler(1 << 20), ..echoed(OCTETS, &"x".repeat(1 << 20)) },
        ),
        closes(
            ask("POST /echo", "Content-Length: 1048577\r\n"),
            reason(413, "the request body is too large; it may have 1048576 bytes"),
        ),
        get("/status/200", json("{\"status\":200}")),
        get("/status/299", status(299, "{\"status\":299}")),
        get("/status/301", status(301, "{\"status\":301}")),
        get("/status/400", status(400, "{\"status\":400}")),
        get("/status/404", status(404, "{\"status\":404}")),
        get("/status/413", status(413, "{\"status\":413}")),
        get("/status/503", status(503, "{\"status\":503}")),
        get("/status/599", status(599, "{\"status\":599}")),
        get("/status/204", bare(204)),
        get("/stat%75s/%3204", bare(204)),
        get("/status/304", bare(304)),
        row(ask("HEAD /status/404", ""), head_of(status(404, "{\"status\":404}"))),
    ];
    for value in ["", "abc", "199", "600", "2000", "20x"] {
        let text = format!("status is \"{value}\"; it may be a whole number from 200 to 599");
        rows.push(get(&format!("/status/{value}"), reason(400, &text)));
    }
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        rows.push(row(
            ask(&format!("{method} /method"), ""),
            json(&format!("{{\"method\":\"{method}\"}}")),
        ));
    }
    rows.push(row(ask("HEAD /method", ""), head_of(json("{\"method\":\"HEAD\"}"))));
    rows
}
