//! Requests, and the responses that both servers must give: endpoints. Requests that test the protocol are
//! in `protocol`.

/// Requests on one connection, and their responses.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) request: String,
    pub(super) responses: Vec<Expected>,
    pub(super) then: Then,
}

/// An expected response.
#[derive(Clone)]
pub(super) struct Expected {
    pub(super) status: u16,
    /// Required headers with their values.
    pub(super) headers: Vec<(&'static str, String)>,
    /// Forbidden headers.
    pub(super) without: Vec<&'static str>,
    pub(super) body: Body,
    /// The request is HEAD.
    pub(super) to_head: bool,
}

#[derive(Clone)]
pub(super) enum Body {
    /// This text; each `#` stands for a digit.
    Text(String),
    /// This many letters `x`.
    Filler(usize),
    /// A JSON object with a text in `error`.
    Error,
    /// A text that contains this.
    Contains(&'static str),
}

/// State of the connection after the last response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Open,
    Closed,
}

pub(super) fn rows() -> Vec<Row> {
    [bodies(), downloads(), uploads(), inspection()].concat()
}

pub(super) const HOST: &str = "Host: site.example\r\n";
pub(super) const JSON: &str = "application/json";
pub(super) const OCTETS: &str = "application/octet-stream";

/// A request without a body.
pub(super) fn request(method_and_target: &str, lines: &str) -> String {
    format!("{method_and_target} HTTP/1.1\r\n{HOST}{lines}\r\n")
}

/// A request with Content-Length.
pub(super) fn request_with_body(method_and_target: &str, lines: &str, body: &str) -> String {
    let length = body.len();
    format!("{method_and_target} HTTP/1.1\r\n{HOST}{lines}Content-Length: {length}\r\n\r\n{body}")
}

pub(super) fn row(request: String, response: Expected) -> Row {
    Row { request, responses: vec![response], then: Then::Open }
}

pub(super) fn get(target: &str, response: Expected) -> Row {
    row(request(&format!("GET {target}"), ""), response)
}

pub(super) fn json(text: &str) -> Expected {
    json_with_status(200, text)
}

pub(super) fn json_with_status(status: u16, text: &str) -> Expected {
    let length = text.len().to_string();
    Expected {
        status,
        headers: vec![("Content-Type", JSON.to_owned()), ("Content-Length", length)],
        without: vec!["Transfer-Encoding"],
        body: Body::Text(text.to_owned()),
        to_head: false,
    }
}

/// An error whose text differs between the servers.
pub(super) fn any_error(status: u16) -> Expected {
    Expected {
        status,
        headers: vec![("Content-Type", JSON.to_owned())],
        without: vec![],
        body: Body::Error,
        to_head: false,
    }
}

/// An error with its text.
pub(super) fn error(code: u16, text: &str) -> Expected {
    let quoted = text.replace('"', "\\\"");
    json_with_status(code, &format!("{{\"error\":\"{quoted}\"}}"))
}

pub(super) fn file(size: usize) -> Expected {
    Expected {
        status: 200,
        headers: vec![
            ("Content-Type", OCTETS.to_owned()),
            ("Content-Length", size.to_string()),
            ("ETag", format!("\"{size}\"")),
            ("Accept-Ranges", "bytes".to_owned()),
        ],
        without: vec!["Transfer-Encoding", "Content-Range"],
        body: Body::Filler(size),
        to_head: false,
    }
}

fn partial(first: usize, last: usize, size: usize) -> Expected {
    let whole = file(last - first + 1);
    Expected {
        status: 206,
        headers: vec![
            ("Content-Type", OCTETS.to_owned()),
            ("Content-Length", (last - first + 1).to_string()),
            ("ETag", format!("\"{size}\"")),
            ("Content-Range", format!("bytes {first}-{last}/{size}")),
        ],
        without: vec!["Transfer-Encoding"],
        ..whole
    }
}

pub(super) fn plain(body: Body) -> Expected {
    Expected {
        status: 200,
        headers: vec![("Content-Type", "text/plain".to_owned())],
        without: vec!["Transfer-Encoding"],
        body,
        to_head: false,
    }
}

/// The response to HEAD.
pub(super) fn to_head(response: Expected) -> Expected {
    Expected { body: Body::Text(String::new()), to_head: true, ..response }
}

/// A response whose status forbids a body.
pub(super) fn without_body(status: u16) -> Expected {
    Expected {
        status,
        headers: vec![],
        without: vec!["Transfer-Encoding", "Content-Type"],
        body: Body::Text(String::new()),
        to_head: false,
    }
}

pub(super) const BYTES: &str = "must be a whole number of bytes from";

pub(super) fn closes(request: String, response: Expected) -> Row {
    Row { then: Then::Closed, ..row(request, response) }
}

/// The page, payloads, random bytes, zeros, delays.
fn bodies() -> Vec<Row> {
    let page = Expected {
        headers: vec![("Content-Type", "text/html; charset=utf-8".to_owned())],
        ..plain(Body::Contains("curl 'http://site.example/urandom?size=2048'"))
    };
    let mut rows = vec![
        get("/", page.clone()),
        get("/index.html", page.clone()),
        get("/?other=1", page.clone()),
        row(request("HEAD /", ""), to_head(page.clone())),
        row(
            "GET / HTTP/1.1\r\nHost: a.b:81\r\n\r\n".to_owned(),
            Expected {
                body: Body::Contains("<title>Benchmark site on a.b:81</title>"),
                ..page.clone()
            },
        ),
        // The target overrides the Host header (RFC 9112, section 3.2.2).
        row(
            "GET http://b.test:99/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
            Expected {
                body: Body::Contains("<title>Benchmark site on b.test:99</title>"),
                ..page.clone()
            },
        ),
        row(
            "GET http://b.test?x=http://c.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
            Expected {
                body: Body::Contains("<title>Benchmark site on b.test</title>"),
                ..page.clone()
            },
        ),
        row(
            "GET /index.html?x=http://c.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
            Expected { body: Body::Contains("<title>Benchmark site on a.test</title>"), ..page },
        ),
        get("/?payload=0", plain(Body::Filler(0))),
        get("/?payload=100", plain(Body::Filler(100))),
        get("/?a=1&payload=7&payload=8", plain(Body::Filler(7))),
        get("/?payload=1000000", plain(Body::Filler(1_000_000))),
        row(
            request("HEAD /?payload=67108864", ""),
            Expected {
                headers: vec![("Content-Length", "67108864".to_owned())],
                ..to_head(plain(Body::Filler(0)))
            },
        ),
        get("/any/other.html?payload=abc", plain(Body::Contains("/any/other.html"))),
        get("/%75random?size=1", json("{\"size\":1,\"time\":0.######}")),
        get("/urandomly", plain(Body::Contains("/urandomly"))),
        row(request_with_body("POST /any", "", "hello"), plain(Body::Contains("/any"))),
        get("/sleep?time=0", json("{\"time\":0.######}")),
        get("/sleep?time=0.01", json("{\"time\":0.######}")),
        row(request("HEAD /sleep?time=0.01", ""), to_head(json("{\"time\":0.######}"))),
    ];
    for path in ["/urandom", "/zero"] {
        let at = |query: &str| format!("{path}{query}");
        rows.extend([
            get(path, json("{\"size\":2048,\"time\":0.######}")),
            get(&at("?size=0"), json("{\"size\":0,\"time\":0.######}")),
            get(&at("?x=1&size=100000"), json("{\"size\":100000,\"time\":0.######}")),
            row(
                request(&format!("HEAD {path}"), ""),
                to_head(json("{\"size\":2048,\"time\":0.######}")),
            ),
            row(
                request_with_body(&format!("POST {path}"), "", "hello"),
                json("{\"size\":2048,\"time\":0.######}"),
            ),
        ]);
        for value in ["abc", "-1", "1.5", "+5", "0x10", ""] {
            let text = format!("invalid size `{value}`: {BYTES} 0 to 67108864");
            rows.push(get(&at(&format!("?size={value}")), error(400, &text)));
        }
        for value in ["67108865", "18446744073709551616"] {
            let text = format!("invalid size `{value}`: {BYTES} 0 to 67108864");
            rows.push(get(&at(&format!("?size={value}")), error(413, &text)));
        }
    }
    rows
}

/// `/download`: sizes, ranges, conditions.
fn downloads() -> Vec<Row> {
    let with = |headers: &str, response| row(request("GET /download?size=1000", headers), response);
    let not_satisfiable = || Expected {
        headers: vec![
            ("Content-Range", "bytes */1000".to_owned()),
            ("Content-Type", JSON.to_owned()),
        ],
        ..any_error(416)
    };
    let not_modified =
        || Expected { headers: vec![("ETag", "\"1000\"".to_owned())], ..without_body(304) };
    let mut rows = vec![
        get("/download", file(20_480)),
        get("/download?chunk_size=1", file(10)),
        get("/download?size=0", file(0)),
        get("/download?size=10000&chunk_size=4096", file(10_000)),
        get("/download?size=3000000&chunk_size=1048576", file(3_000_000)),
        row(request("HEAD /download", ""), to_head(file(20_480))),
        row(request("HEAD /download?size=1073741824", ""), to_head(file(1 << 30))),
        row(request("HEAD /download?size=1000", "Range: bytes=0-0\r\n"), to_head(file(1000))),
        get(
            "/download?size=abc",
            error(400, &format!("invalid size `abc`: {BYTES} 0 to 1073741824")),
        ),
        get(
            "/download?size=1073741825",
            error(413, &format!("invalid size `1073741825`: {BYTES} 0 to 1073741824")),
        ),
        get(
            "/download?chunk_size=0",
            error(400, &format!("invalid chunk_size `0`: {BYTES} 1 to 1048576")),
        ),
        get(
            "/download?chunk_size=1048577",
            error(413, &format!("invalid chunk_size `1048577`: {BYTES} 1 to 1048576")),
        ),
    ];
    for (range, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=0-", 0, 999),
        ("bytes=10-19", 10, 19),
        ("BYTES=10-19", 10, 19),
        ("bytes=990-5000", 990, 999),
        ("bytes=-1", 999, 999),
        ("bytes=-5000", 0, 999),
    ] {
        rows.push(with(&format!("Range: {range}\r\n"), partial(first, last, 1000)));
    }
    for range in ["bytes=1000-", "bytes=5000-6000", "bytes=-0"] {
        rows.push(with(&format!("Range: {range}\r\n"), not_satisfiable()));
    }
    for range in ["bytes=0-1,3-4", "bytes=5-4", "bytes=", "bytes=a-b", "bytes=-", "items=0-1"] {
        rows.push(with(&format!("Range: {range}\r\n"), file(1000)));
    }
    for headers in [
        "If-None-Match: \"1000\"\r\n",
        "If-None-Match: W/\"1000\"\r\n",
        "If-None-Match: \"1\", \"1000\"\r\n",
        "If-None-Match: *\r\n",
        "If-None-Match: *\r\nRange: bytes=0-0\r\n",
        "If-Match: \"1000\"\r\nIf-None-Match: \"1000\"\r\n",
    ] {
        rows.push(with(headers, not_modified()));
        rows.push(row(request("HEAD /download?size=1000", headers), not_modified()));
    }
    for headers in [
        "If-Match: \"1\"\r\n",
        "If-Match: W/\"1000\"\r\n",
        "If-Match: \"1\"\r\nIf-None-Match: \"1000\"\r\n",
    ] {
        rows.push(with(headers, error(412, "precondition failed: the ETag is \"1000\"")));
    }
    for headers in [
        "If-None-Match: \"1\"\r\n",
        "If-Match: \"1000\"\r\n",
        "If-Match: *\r\n",
        // Conditions on dates are ignored: the file has none (RFC 9110, sections 13.1.3 and 13.1.4).
        "If-Modified-Since: Sat, 21 Nov 2026 20:54:20 GMT\r\n",
        "If-Unmodified-Since: Sat, 21 Nov 2020 20:54:20 GMT\r\n",
        "Range: bytes=0-0\r\nIf-Range: \"1\"\r\n",
        "Range: bytes=0-0\r\nIf-Range: W/\"1000\"\r\n",
    ] {
        rows.push(with(headers, file(1000)));
    }
    rows.push(with("Range: bytes=0-0\r\nIf-Range: \"1000\"\r\n", partial(0, 0, 1000)));
    rows
}

/// A form with near matches of its boundary.
pub(super) const FORM: &str = "preamble --aXb\r\n--aXc\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"a\"\r\n\r\nxyz\r\n--aXb \t\r\n\
    Content-Type: text/plain\r\ncontent-disposition:form-data;filename=\"b;\\\".txt\" ; name=f\r\n\r\n\
    \r\n-\r\n--aX\r\r\r\n--aYb--aXb\r\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"\"; filename=\"gr\u{fc}n\"\r\n\r\n\r\n--aXb--\r\nepilogue\r\n--aXb\r\n";

/// The response to [`FORM`]: the second part is CR LF -, CR LF --aX, CR CR, CR LF --aYb--aXb, CR.
pub(super) fn form_response() -> Expected {
    let length = FORM.len();
    let text = format!(
        "{{\"size\":{length},\"time\":0.######,\"parts\":[\n\
         {{\"name\":\"a\",\"filename\":null,\"size\":3}},\n\
         {{\"name\":\"f\",\"filename\":\"b;\\\".txt\",\"size\":24}},\n\
         {{\"name\":\"\",\"filename\":\"gr\u{fc}n\",\"size\":0}}\n]}}"
    );
    json(&text)
}

/// A form of one part, whose headers have this many bytes with the empty line.
fn part_with_head_of(bytes: usize) -> String {
    let line = "Content-Disposition: form-data; name=a\r\n";
    let filler = "y".repeat(bytes - line.len() - "X:\r\n\r\n".len());
    format!("--aXb\r\n{line}X:{filler}\r\n\r\n\r\n--aXb--")
}

/// Unusual names of parts.
const NAMES: &str = "--aXb\r\n\
    Content-Disposition: form-data; name=a b ; filename = c d\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a; filename=b; NAME=\"c\"; filename=d\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: attachment; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"a\" x; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a; name=\"b\r\n\r\n\r\n--aXb--";

/// The last name counts; a syntax error ends the parameters.
fn names_response() -> Expected {
    let length = NAMES.len();
    let part = |name: &str, filename: &str| {
        format!("{{\"name\":\"{name}\",\"filename\":{filename},\"size\":0}}")
    };
    let parts = [
        part("a b", "\"c d\""),
        part("c", "\"d\""),
        part("b", "null"),
        part("b", "null"),
        part("a", "null"),
        part("a", "null"),
    ];
    json(&format!("{{\"size\":{length},\"time\":0.######,\"parts\":[\n{}\n]}}", parts.join(",\n")))
}

pub(super) const FORM_TYPE: &str = "Content-Type: multipart/form-data; boundary=aXb\r\n";

/// `/upload`, with forms and without.
fn uploads() -> Vec<Row> {
    let measured = |size: usize| json(&format!("{{\"size\":{size},\"time\":0.######}}"));
    let chunked = |body: &str| {
        format!("PUT /upload HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{body}")
    };
    let form = |body: &str| request_with_body("POST /upload", FORM_TYPE, body);
    let malformed = |text: &str| error(400, &format!("malformed multipart/form-data: {text}"));
    let head = "--aXb\r\nContent-Disposition: form-data; name=a\r\n\r\n";
    vec![
        row(request_with_body("POST /upload", "", "hello"), measured(5)),
        row(request_with_body("PUT /upload", "Content-Type: text/plain\r\n", "hello"), measured(5)),
        row(request_with_body("POST /upload", "", ""), measured(0)),
        row(request_with_body("POST /upload", "", &"y".repeat(1 << 20)), measured(1 << 20)),
        row(
            request_with_body("POST /upload", "", &"y".repeat((1 << 20) + 1)),
            measured((1 << 20) + 1),
        ),
        row(chunked("5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nT: v\r\n\r\n"), measured(6)),
        row(
            chunked(&format!("180000\r\n{}\r\n0\r\n\r\n", "y".repeat(0x18_0000))),
            measured(0x18_0000),
        ),
        row(form(FORM), form_response()),
        row(
            format!(
                "POST /upload HTTP/1.1\r\n{HOST}{FORM_TYPE}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{FORM}\r\n0\r\n\r\n",
                FORM.len()
            ),
            form_response(),
        ),
        row(form("--aXb--"), json("{\"size\":7,\"time\":0.######,\"parts\":[\n]}")),
        row(
            request_with_body(
                "POST /upload",
                "content-type: Multipart/Form-Data;charset=utf-8; BOUNDARY=\"aXb\"\r\n",
                "--aXb--",
            ),
            json("{\"size\":7,\"time\":0.######,\"parts\":[\n]}"),
        ),
        // Another type with the same start.
        row(
            request_with_body(
                "POST /upload",
                "Content-Type: multipart/form-datax; boundary=aXb\r\n",
                "--aXb--",
            ),
            measured(7),
        ),
        row(form(NAMES), names_response()),
        row(form(""), malformed("missing final boundary")),
        row(form(&format!("{head}x")), malformed("missing final boundary")),
        row(form("--aXbc\r\n"), malformed("unexpected bytes after a boundary")),
        row(
            form("--aXb\r\n\r\n"),
            malformed("part without a name in Content-Disposition: form-data"),
        ),
        row(form(&format!("{head}\r\n").repeat(1001)), any_error(413)),
        row(form(&(format!("{head}\r\n").repeat(1000) + "--aXb\r\nX")), any_error(413)),
        row(
            form(&part_with_head_of(4096)),
            json(
                "{\"size\":4112,\"time\":0.######,\"parts\":[\n{\"name\":\"a\",\"filename\":null,\"size\":0}\n]}",
            ),
        ),
        row(form(&part_with_head_of(4097)), any_error(413)),
        row(form(&part_with_head_of(4097)[..4103]), any_error(413)),
        row(form(&part_with_head_of(4097)[..4102]), malformed("missing final boundary")),
        row(
            request_with_body("POST /upload", "Content-Type: multipart/form-data\r\n", "x"),
            malformed("Content-Type must have a boundary of 1 to 70 characters"),
        ),
        row(
            request_with_body(
                "POST /upload",
                "Content-Type: multipart/form-data; boundary=\"a\tb\"\r\n",
                "x",
            ),
            malformed("Content-Type must have a boundary of 1 to 70 characters"),
        ),
        row(
            request("GET /upload", ""),
            Expected {
                headers: vec![("Allow", "POST, PUT".to_owned())],
                ..error(405, "method `GET` is not allowed: must be POST or PUT")
            },
        ),
        row(
            request_with_body("PATCH /upload", "", "x"),
            error(405, "method `PATCH` is not allowed: must be POST or PUT"),
        ),
        closes(
            request("POST /upload", "Content-Length: 67108865\r\n"),
            error(413, "request body too large: the limit is 67108864 bytes"),
        ),
    ]
}

/// `/headers`, `/echo`, `/status`, `/method`.
fn inspection() -> Vec<Row> {
    let echoed = |kind: &str, text: &str| Expected {
        headers: vec![
            ("Content-Type", kind.to_owned()),
            ("Content-Length", text.len().to_string()),
        ],
        ..plain(Body::Text(text.to_owned()))
    };
    let mut rows = vec![
        row(
            request("GET /headers", "X-A: \"q\\\"\r\nx-a:  2 \r\nX-B: gr\u{fc}n\r\n"),
            json(
                "{\"headers\":[[\"Host\",\"site.example\"],[\"X-A\",\"\\\"q\\\\\\\"\"],[\"x-a\",\"2\"],[\"X-B\",\"gr\u{fc}n\"]]}",
            ),
        ),
        row(
            request_with_body("POST /echo", "Content-Type: text/x; a=b\r\n", "a\r\n\0b"),
            echoed("text/x; a=b", "a\r\n\0b"),
        ),
        row(request_with_body("PUT /echo", "", "hello"), echoed(OCTETS, "hello")),
        row(request("GET /echo", ""), echoed(OCTETS, "")),
        row(
            format!(
                "POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
            ),
            echoed(OCTETS, "hello"),
        ),
        row(
            request_with_body("POST /echo", "", &"x".repeat(1 << 20)),
            Expected { body: Body::Filler(1 << 20), ..echoed(OCTETS, &"x".repeat(1 << 20)) },
        ),
        // Chunked, it is larger than a buffer of the limit.
        row(
            format!(
                "POST /echo HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
                format!("2000\r\n{}\r\n", "x".repeat(0x2000)).repeat(128)
            ),
            Expected { body: Body::Filler(1 << 20), ..echoed(OCTETS, &"x".repeat(1 << 20)) },
        ),
        closes(
            request("POST /echo", "Content-Length: 1048577\r\n"),
            error(413, "request body too large: the limit is 1048576 bytes"),
        ),
        get("/status/200", json("{\"status\":200}")),
        get("/status/299", json_with_status(299, "{\"status\":299}")),
        get("/status/301", json_with_status(301, "{\"status\":301}")),
        get("/status/400", json_with_status(400, "{\"status\":400}")),
        get("/status/404", json_with_status(404, "{\"status\":404}")),
        get("/status/413", json_with_status(413, "{\"status\":413}")),
        get("/status/503", json_with_status(503, "{\"status\":503}")),
        get("/status/599", json_with_status(599, "{\"status\":599}")),
        get("/status/204", without_body(204)),
        get("/stat%75s/%3204", without_body(204)),
        get("/status/304", without_body(304)),
        row(request("HEAD /status/404", ""), to_head(json_with_status(404, "{\"status\":404}"))),
    ];
    for value in ["", "abc", "199", "600", "2000", "20x"] {
        let text = format!("invalid status `{value}`: must be a whole number from 200 to 599");
        rows.push(get(&format!("/status/{value}"), error(400, &text)));
    }
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        rows.push(row(
            request(&format!("{method} /method"), ""),
            json(&format!("{{\"method\":\"{method}\"}}")),
        ));
    }
    rows.push(row(request("HEAD /method", ""), to_head(json("{\"method\":\"HEAD\"}"))));
    rows
}
