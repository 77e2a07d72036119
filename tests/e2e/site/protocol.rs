//! Requests, and the responses that both servers must give: the protocol. Also the differences between the
//! servers.

use super::table::{
    BYTES, Body, Expected, HOST, JSON, OCTETS, Row, Then, any_error, closes, error, file, get,
    json, plain, request, request_with_body, row, to_head, without_body,
};

pub(super) fn rows() -> Vec<Row> {
    [conditions(), errors(), connections()].concat()
}

/// Conditions are ignored outside of `/download`.
fn conditions() -> Vec<Row> {
    let mut rows = Vec::new();
    for line in [
        "If-None-Match: *\r\n",
        "If-Match: \"1\"\r\n",
        "If-Modified-Since: Sat, 21 Nov 2026 20:54:20 GMT\r\n",
        "If-Unmodified-Since: Sat, 21 Nov 2020 20:54:20 GMT\r\n",
    ] {
        let measured = |size| json(&format!("{{\"size\":{size},\"time\":0.######}}"));
        let (name, value) = line.split_once(": ").expect("a header");
        rows.push(row(request("GET /urandom", line), measured(2048)));
        rows.push(row(request("HEAD /urandom", line), to_head(measured(2048))));
        rows.push(row(request_with_body("PUT /upload", line, "hello"), measured(5)));
        let value = value.trim_end().replace('"', "\\\"");
        let list = format!("[[\"Host\",\"site.example\"],[\"{name}\",\"{value}\"]]");
        rows.push(row(request("GET /headers", line), json(&format!("{{\"headers\":{list}}}"))));
    }
    rows
}

/// Invalid parameters, methods, framing, versions and sizes.
fn errors() -> Vec<Row> {
    let mut rows = vec![
        get("/?payload=abc", error(400, &format!("invalid payload `abc`: {BYTES} 0 to 67108864"))),
        get("/?payload", error(400, &format!("invalid payload ``: {BYTES} 0 to 67108864"))),
        get(
            "/?payload=67108865",
            error(413, &format!("invalid payload `67108865`: {BYTES} 0 to 67108864")),
        ),
        row(
            request("BREW /urandom", ""),
            error(
                501,
                "method `BREW` is not supported: must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
            ),
        ),
        closes("GET / HTTP/1.1\r\n\r\n".to_owned(), any_error(400)),
        closes("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), any_error(400)),
        closes("GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(), any_error(400)),
        closes("\0\r\n\r\n".to_owned(), any_error(400)),
        closes(
            request("POST /echo", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")
                + "0\r\n\r\n",
            any_error(400),
        ),
        closes(
            request("POST /echo", "Content-Length: 1\r\nContent-Length: 2\r\n") + "xx",
            any_error(400),
        ),
        closes(request("POST /echo", "Content-Length: x\r\n"), any_error(400)),
        closes(request("POST /echo", "Transfer-Encoding: chunked\r\n") + "zz\r\n", any_error(400)),
        closes(request("POST /echo", "Transfer-Encoding: gzip, chunked\r\n"), any_error(501)),
        // The end of such a body is unknown (RFC 9112, section 6.3).
        closes(request("POST /echo", "Transfer-Encoding: gzip\r\n"), any_error(400)),
        closes("GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), any_error(505)),
        // The size line of a chunk is enough.
        closes(
            request("PUT /upload", "Transfer-Encoding: chunked\r\n") + "4000001\r\ny",
            error(413, "request body too large: the limit is 67108864 bytes"),
        ),
        closes(
            request("PUT /echo", "Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\nffffffffff\r\nx",
            error(413, "request body too large: the limit is 1048576 bytes"),
        ),
        row(
            request("GET /method", &format!("X: {}\r\n", "y".repeat(60_000))),
            json("{\"method\":\"GET\"}"),
        ),
        get(&format!("/method?x={}", "y".repeat(60_000)), json("{\"method\":\"GET\"}")),
        closes(request("GET /", &format!("X: {}\r\n", "y".repeat(70_000))), any_error(431)),
        closes(
            request("GET /", &format!("X: {}\r\n", "y".repeat(7_000)).repeat(10)),
            any_error(431),
        ),
        row(request("GET /method", &"X: y\r\n".repeat(99)), json("{\"method\":\"GET\"}")),
        closes(request("GET /method", &"X: y\r\n".repeat(100)), any_error(431)),
        closes(request("GET /echo", &"X: y\r\n".repeat(100)), any_error(431)),
    ];
    for value in ["abc", "-1", "", ".", "1.", ".5", "1e1"] {
        let text = format!("invalid time `{value}`: must be a number of seconds from 0 to 60");
        rows.push(get(&format!("/sleep?time={value}"), error(400, &text)));
    }
    let text = "invalid time `60.5`: must be a number of seconds from 0 to 60";
    rows.push(get("/sleep?time=60.5", error(413, text)));
    rows
}

/// Pipelining and persistence.
fn connections() -> Vec<Row> {
    let method = || json("{\"method\":\"GET\"}");
    let pipelined = [
        request("GET /sleep?time=0.02", ""),
        request("GET /download?size=100000", ""),
        request_with_body("POST /echo", "", "hello"),
        request("HEAD /download", ""),
        request("GET /status/204", ""),
        request_with_body("POST /upload", "", "hello"),
        request("GET /urandom", ""),
        request("GET /method", ""),
    ];
    vec![
        Row {
            request: pipelined.concat(),
            responses: vec![
                json("{\"time\":0.######}"),
                file(100_000),
                Expected {
                    headers: vec![("Content-Type", OCTETS.to_owned())],
                    ..plain(Body::Text("hello".to_owned()))
                },
                to_head(file(20_480)),
                without_body(204),
                json("{\"size\":5,\"time\":0.######}"),
                json("{\"size\":2048,\"time\":0.######}"),
                method(),
            ],
            then: Then::Open,
        },
        closes(request("GET /method", "Connection: close\r\n"), method()),
        closes("GET /method HTTP/1.0\r\n\r\n".to_owned(), method()),
        row(
            "GET /method HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
            Expected { headers: vec![("Connection", "keep-alive".to_owned())], ..method() },
        ),
        row(
            "GET http://site.example/urandom?size=1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            json("{\"size\":1,\"time\":0.######}"),
        ),
        // An unused body is not the next request.
        Row {
            request: request_with_body("POST /method", "", "hello") + &request("GET /method", ""),
            responses: vec![json("{\"method\":\"POST\"}"), method()],
            then: Then::Open,
        },
        Row {
            request: format!(
                "PUT /method HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{}",
                request("GET /method", "")
            ),
            responses: vec![json("{\"method\":\"PUT\"}"), method()],
            then: Then::Open,
        },
    ]
}

/// One request, and the response of each server.
pub(super) struct Difference {
    pub(super) nginx_lua: Row,
    pub(super) origin: Row,
}

/// Differences between the servers, as listed in systems/nginx-lua/README.md.
pub(super) fn differences() -> Vec<Difference> {
    let method = || json("{\"method\":\"GET\"}");
    let twice = "If-None-Match: \"1\"\r\nIf-None-Match: \"1000\"\r\n";
    let not_modified =
        || Expected { headers: vec![("ETag", "\"1000\"".to_owned())], ..without_body(304) };
    let unknown_method = |method: &str| {
        let rest = "must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS";
        error(501, &format!("method `{method}` is not supported: {rest}"))
    };
    let text = |text: &str| plain(Body::Text(text.to_owned()));
    let mut all = vec![
        differ(request("GET /download?size=1000", twice), rejects, |request| {
            row(request, not_modified())
        }),
        differ(request("get /method", ""), rejects, |request| row(request, unknown_method("get"))),
        differ(request("G!T /method", ""), rejects, |request| row(request, unknown_method("G!T"))),
        differ("GET /method HTTP/1.1\r\nHost:\r\n\r\n".to_owned(), rejects, |request| {
            row(request, method())
        }),
        differ(
            "GET /method HTTP/1.2\r\nHost: a\r\n\r\n".to_owned(),
            |request| row(request, method()),
            rejects,
        ),
        differ(
            "GET /method HTTP/1.1\nHost: a\n\n".to_owned(),
            |request| row(request, method()),
            rejects,
        ),
        differ(
            request("GET /a/../method", ""),
            |request| row(request, method()),
            |request| row(request, text("tollgate origin: /a/../method\n")),
        ),
        differ(request("GET /%zz", ""), rejects, |request| {
            row(request, text("tollgate origin: /%zz\n"))
        }),
        differ(
            request("GET /any", ""),
            |request| row(request, text("nginx-lua: /any\n")),
            |request| {
                row(request, Expected { without: vec!["Date"], ..text("tollgate origin: /any\n") })
            },
        ),
    ];
    for path in ["/delay?ms=0", "/counters"] {
        let path_alone = path.split('?').next().unwrap_or(path);
        all.push(differ(
            request(&format!("GET {path}"), ""),
            |request| row(request, text(&format!("nginx-lua: {path_alone}\n"))),
            |request| {
                row(
                    request,
                    Expected {
                        body: Body::Contains("{\""),
                        headers: vec![("Content-Type", JSON.to_owned())],
                        ..json("")
                    },
                )
            },
        ));
    }
    all
}

fn differ(
    request: String,
    nginx_lua: impl FnOnce(String) -> Row,
    origin: impl FnOnce(String) -> Row,
) -> Difference {
    Difference { nginx_lua: nginx_lua(request.clone()), origin: origin(request) }
}

/// Rejected as malformed, and closed.
fn rejects(request: String) -> Row {
    closes(request, any_error(400))
}
