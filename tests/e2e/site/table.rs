//! What is asked of the site, and what has to be answered: the same on every server that has it.

/// One line of the table: requests on one connection, and their answers.
pub(super) struct Row {
    /// What is sent, as it is.
    pub(super) request: String,
    /// What has to come, in this order.
    pub(super) answers: Vec<Expected>,
    /// What becomes of the connection.
    pub(super) then: Then,
}

/// An answer that has to come.
#[derive(Clone)]
pub(super) struct Expected {
    pub(super) status: u16,
    /// Headers that have to be there with exactly this value.
    pub(super) headers: Vec<(&'static str, String)>,
    /// Headers that must not be there.
    pub(super) without: Vec<&'static str>,
    pub(super) body: Body,
    /// Whether it answers a HEAD.
    pub(super) to_head: bool,
}

/// The body of an answer.
#[derive(Clone)]
pub(super) enum Body {
    /// This text, in which each `#` stands for a digit.
    Text(String),
    /// So many letters `x`.
    Filler(usize),
    /// A JSON object with the reason in `error`.
    Reason,
    /// A text that has this in it.
    Holds(&'static str),
}

/// What becomes of a connection after the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The next request is answered.
    Stays,
    /// It is closed.
    Closes,
}

/// The whole table.
pub(super) fn rows() -> Vec<Row> {
    [measures(), downloads(), uploads(), conditions(), mirrors(), refusals(), connections()]
        .into_iter()
        .flatten()
        .collect()
}

const HOST: &str = "Host: site.example\r\n";
const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";

/// A request without a body.
fn ask(method_and_target: &str, lines: &str) -> String {
    format!("{method_and_target} HTTP/1.1\r\n{HOST}{lines}\r\n")
}

/// A request with a body of a told length.
fn send(method_and_target: &str, lines: &str, body: &str) -> String {
    let length = body.len();
    format!("{method_and_target} HTTP/1.1\r\n{HOST}{lines}Content-Length: {length}\r\n\r\n{body}")
}

fn row(request: String, answer: Expected) -> Row {
    Row { request, answers: vec![answer], then: Then::Stays }
}

fn get(target: &str, answer: Expected) -> Row {
    row(ask(&format!("GET {target}"), ""), answer)
}

fn json(text: &str) -> Expected {
    status(200, text)
}

fn status(status: u16, text: &str) -> Expected {
    let length = text.len().to_string();
    Expected {
        status,
        headers: vec![("Content-Type", JSON.to_owned()), ("Content-Length", length)],
        without: vec!["Transfer-Encoding"],
        body: Body::Text(text.to_owned()),
        to_head: false,
    }
}

/// An answer of which only the status and that it says why are the same everywhere.
fn refused(status: u16) -> Expected {
    Expected {
        status,
        headers: vec![("Content-Type", JSON.to_owned())],
        without: vec![],
        body: Body::Reason,
        to_head: false,
    }
}

/// A refusal with its reason.
fn reason(code: u16, text: &str) -> Expected {
    let quoted = text.replace('"', "\\\"");
    status(code, &format!("{{\"error\":\"{quoted}\"}}"))
}

fn file(size: usize) -> Expected {
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

fn part(first: usize, last: usize, size: usize) -> Expected {
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

fn plain(body: Body) -> Expected {
    Expected {
        status: 200,
        headers: vec![("Content-Type", "text/plain".to_owned())],
        without: vec!["Transfer-Encoding"],
        body,
        to_head: false,
    }
}

/// The same without its body, to a HEAD.
fn head_of(answer: Expected) -> Expected {
    Expected { body: Body::Text(String::new()), to_head: true, ..answer }
}

/// An answer that never has a body.
fn bare(status: u16) -> Expected {
    Expected {
        status,
        headers: vec![],
        without: vec!["Transfer-Encoding", "Content-Type"],
        body: Body::Text(String::new()),
        to_head: false,
    }
}

const BYTES: &str = "it may be a whole number of bytes from";

fn measures() -> Vec<Row> {
    let page = Expected {
        headers: vec![("Content-Type", "text/html; charset=utf-8".to_owned())],
        ..plain(Body::Holds("curl 'http://site.example/urandom?size=2048'"))
    };
    let mut rows = vec![
        get("/", page.clone()),
        get("/index.html", page.clone()),
        get("/?other=1", page.clone()),
        row(ask("HEAD /", ""), head_of(page.clone())),
        row(
            "GET / HTTP/1.1\r\nHost: a.b:81\r\n\r\n".to_owned(),
            Expected {
                body: Body::Holds("<title>Benchmark site on a.b:81</title>"),
                ..page.clone()
            },
        ),
        // What the target says counts (RFC 9112, section 3.2.2).
        row(
            "GET http://b.test:99/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
            Expected {
                body: Body::Holds("<title>Benchmark site on b.test:99</title>"),
                ..page.clone()
            },
        ),
        row(
            "GET http://b.test?x=http://c.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
            Expected {
                body: Body::Holds("<title>Benchmark site on b.test</title>"),
                ..page.clone()
            },
        ),
        row(
            "GET /index.html?x=http://c.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
            Expected { body: Body::Holds("<title>Benchmark site on a.test</title>"), ..page },
        ),
        get("/?payload=0", plain(Body::Filler(0))),
        get("/?payload=100", plain(Body::Filler(100))),
        get("/?a=1&payload=7&payload=8", plain(Body::Filler(7))),
        get("/?payload=1000000", plain(Body::Filler(1_000_000))),
        row(
            ask("HEAD /?payload=67108864", ""),
            Expected {
                headers: vec![("Content-Length", "67108864".to_owned())],
                ..head_of(plain(Body::Filler(0)))
            },
        ),
        get("/any/other.html?payload=abc", plain(Body::Holds("/any/other.html"))),
        get("/urandomly", plain(Body::Holds("/urandomly"))),
        row(send("POST /any", "", "hello"), plain(Body::Holds("/any"))),
        get("/sleep?time=0", json("{\"time\":0.######}")),
        get("/sleep?time=0.01", json("{\"time\":0.######}")),
        row(ask("HEAD /sleep?time=0.01", ""), head_of(json("{\"time\":0.######}"))),
    ];
    for path in ["/urandom", "/zero"] {
        let at = |query: &str| format!("{path}{query}");
        rows.extend([
            get(path, json("{\"size\":2048,\"time\":0.######}")),
            get(&at("?size=0"), json("{\"size\":0,\"time\":0.######}")),
            get(&at("?x=1&size=100000"), json("{\"size\":100000,\"time\":0.######}")),
            row(
                ask(&format!("HEAD {path}"), ""),
                head_of(json("{\"size\":2048,\"time\":0.######}")),
            ),
            row(
                send(&format!("POST {path}"), "", "hello"),
                json("{\"size\":2048,\"time\":0.######}"),
            ),
        ]);
        for value in ["abc", "-1", "1.5", "+5", "0x10", ""] {
            let text = format!("size is \"{value}\"; {BYTES} 0 to 67108864");
            rows.push(get(&at(&format!("?size={value}")), reason(400, &text)));
        }
        for value in ["67108865", "18446744073709551616"] {
            let text = format!("size is \"{value}\"; {BYTES} 0 to 67108864");
            rows.push(get(&at(&format!("?size={value}")), reason(413, &text)));
        }
    }
    rows
}

fn downloads() -> Vec<Row> {
    let with = |lines: &str, answer| row(ask("GET /download?size=1000", lines), answer);
    let no_part = || Expected {
        headers: vec![
            ("Content-Range", "bytes */1000".to_owned()),
            ("Content-Type", JSON.to_owned()),
        ],
        ..refused(416)
    };
    let same = || Expected { headers: vec![("ETag", "\"1000\"".to_owned())], ..bare(304) };
    let mut rows = vec![
        get("/download", file(20_480)),
        get("/download?chunk_size=1", file(10)),
        get("/download?size=0", file(0)),
        get("/download?size=10000&chunk_size=4096", file(10_000)),
        get("/download?size=3000000&chunk_size=1048576", file(3_000_000)),
        row(ask("HEAD /download", ""), head_of(file(20_480))),
        row(ask("HEAD /download?size=1073741824", ""), head_of(file(1 << 30))),
        row(ask("HEAD /download?size=1000", "Range: bytes=0-0\r\n"), head_of(file(1000))),
        get(
            "/download?size=abc",
            reason(400, &format!("size is \"abc\"; {BYTES} 0 to 1073741824")),
        ),
        get(
            "/download?size=1073741825",
            reason(413, &format!("size is \"1073741825\"; {BYTES} 0 to 1073741824")),
        ),
        get(
            "/download?chunk_size=0",
            reason(400, &format!("chunk_size is \"0\"; {BYTES} 1 to 1048576")),
        ),
        get(
            "/download?chunk_size=1048577",
            reason(413, &format!("chunk_size is \"1048577\"; {BYTES} 1 to 1048576")),
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
        rows.push(with(&format!("Range: {range}\r\n"), part(first, last, 1000)));
    }
    for range in ["bytes=1000-", "bytes=5000-6000", "bytes=-0"] {
        rows.push(with(&format!("Range: {range}\r\n"), no_part()));
    }
    for range in ["bytes=0-1,3-4", "bytes=5-4", "bytes=", "bytes=a-b", "bytes=-", "items=0-1"] {
        rows.push(with(&format!("Range: {range}\r\n"), file(1000)));
    }
    for lines in [
        "If-None-Match: \"1000\"\r\n",
        "If-None-Match: W/\"1000\"\r\n",
        "If-None-Match: \"1\", \"1000\"\r\n",
        "If-None-Match: *\r\n",
        "If-None-Match: *\r\nRange: bytes=0-0\r\n",
        "If-Match: \"1000\"\r\nIf-None-Match: \"1000\"\r\n",
    ] {
        rows.push(with(lines, same()));
        rows.push(row(ask("HEAD /download?size=1000", lines), same()));
    }
    for lines in [
        "If-Match: \"1\"\r\n",
        "If-Match: W/\"1000\"\r\n",
        "If-Match: \"1\"\r\nIf-None-Match: \"1000\"\r\n",
    ] {
        rows.push(with(lines, reason(412, "the ETag is \"1000\", which the condition excludes")));
    }
    for lines in [
        "If-None-Match: \"1\"\r\n",
        "If-Match: \"1000\"\r\n",
        "If-Match: *\r\n",
        // The file has no date, so conditions on one are ignored (RFC 9110, sections 13.1.3 and 13.1.4).
        "If-Modified-Since: Sat, 21 Nov 2026 20:54:20 GMT\r\n",
        "If-Unmodified-Since: Sat, 21 Nov 2020 20:54:20 GMT\r\n",
        "Range: bytes=0-0\r\nIf-Range: \"1\"\r\n",
        "Range: bytes=0-0\r\nIf-Range: W/\"1000\"\r\n",
    ] {
        rows.push(with(lines, file(1000)));
    }
    rows.push(with("Range: bytes=0-0\r\nIf-Range: \"1000\"\r\n", part(0, 0, 1000)));
    rows
}

/// A form with everything that looks like a boundary and is none.
pub(super) const FORM: &str = "preamble --aXb\r\n--aXc\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"a\"\r\n\r\nxyz\r\n--aXb \t\r\n\
    Content-Type: text/plain\r\ncontent-disposition:form-data;filename=\"b;\\\".txt\" ; name=f\r\n\r\n\
    \r\n-\r\n--aX\r\r\r\n--aYb--aXb\r\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"\"; filename=\"gr\u{fc}n\"\r\n\r\n\r\n--aXb--\r\nepilogue\r\n--aXb\r\n";

/// What is answered to it: the second part is CR LF -, CR LF --aX, CR CR, CR LF --aYb--aXb, CR.
pub(super) fn form_answer() -> Expected {
    let length = FORM.len();
    let text = format!(
        "{{\"size\":{length},\"time\":0.######,\"parts\":[\n\
         {{\"name\":\"a\",\"filename\":null,\"size\":3}},\n\
         {{\"name\":\"f\",\"filename\":\"b;\\\".txt\",\"size\":24}},\n\
         {{\"name\":\"\",\"filename\":\"gr\u{fc}n\",\"size\":0}}\n]}}"
    );
    json(&text)
}

/// A form of one part, whose headers have so many bytes with the empty line that ends them.
fn part_with_head_of(bytes: usize) -> String {
    let line = "Content-Disposition: form-data; name=a\r\n";
    let filler = "y".repeat(bytes - line.len() - "X:\r\n\r\n".len());
    format!("--aXb\r\n{line}X:{filler}\r\n\r\n\r\n--aXb--")
}

/// Names that are told in unusual ways.
const NAMES: &str = "--aXb\r\n\
    Content-Disposition: form-data; name=a b ; filename = c d\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a; filename=b; NAME=\"c\"; filename=d\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: attachment; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"a\" x; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a; name=\"b\r\n\r\n\r\n--aXb--";

/// The last of a name counts, and what is no parameter ends them.
fn names_answer() -> Expected {
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

fn uploads() -> Vec<Row> {
    let measured = |size: usize| json(&format!("{{\"size\":{size},\"time\":0.######}}"));
    let chunked = |body: &str| {
        format!("PUT /upload HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{body}")
    };
    let form = |body: &str| send("POST /upload", FORM_TYPE, body);
    let no_form = |text: &str| reason(400, &format!("the body is not multipart/form-data: {text}"));
    let head = "--aXb\r\nContent-Disposition: form-data; name=a\r\n\r\n";
    vec![
        row(send("POST /upload", "", "hello"), measured(5)),
        row(send("PUT /upload", "Content-Type: text/plain\r\n", "hello"), measured(5)),
        row(send("POST /upload", "", ""), measured(0)),
        row(send("POST /upload", "", &"y".repeat(1 << 20)), measured(1 << 20)),
        row(send("POST /upload", "", &"y".repeat((1 << 20) + 1)), measured((1 << 20) + 1)),
        row(chunked("5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nT: v\r\n\r\n"), measured(6)),
        row(
            chunked(&format!("180000\r\n{}\r\n0\r\n\r\n", "y".repeat(0x18_0000))),
            measured(0x18_0000),
        ),
        row(form(FORM), form_answer()),
        row(
            format!(
                "POST /upload HTTP/1.1\r\n{HOST}{FORM_TYPE}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{FORM}\r\n0\r\n\r\n",
                FORM.len()
            ),
            form_answer(),
        ),
        row(form("--aXb--"), json("{\"size\":7,\"time\":0.######,\"parts\":[\n]}")),
        row(
            send(
                "POST /upload",
                "content-type: Multipart/Form-Data;charset=utf-8; BOUNDARY=\"aXb\"\r\n",
                "--aXb--",
            ),
            json("{\"size\":7,\"time\":0.######,\"parts\":[\n]}"),
        ),
        // Another type, whatever it begins with.
        row(
            send("POST /upload", "Content-Type: multipart/form-datax; boundary=aXb\r\n", "--aXb--"),
            measured(7),
        ),
        row(form(NAMES), names_answer()),
        row(form(""), no_form("the last boundary is missing")),
        row(form(&format!("{head}x")), no_form("the last boundary is missing")),
        row(form("--aXbc\r\n"), no_form("something follows a boundary on its line")),
        row(
            form("--aXb\r\n\r\n"),
            no_form("a part has no Content-Disposition: form-data with a name"),
        ),
        row(form(&format!("{head}\r\n").repeat(1001)), refused(413)),
        row(form(&(format!("{head}\r\n").repeat(1000) + "--aXb\r\nX")), refused(413)),
        row(
            form(&part_with_head_of(4096)),
            json(
                "{\"size\":4112,\"time\":0.######,\"parts\":[\n{\"name\":\"a\",\"filename\":null,\"size\":0}\n]}",
            ),
        ),
        row(form(&part_with_head_of(4097)), refused(413)),
        row(form(&part_with_head_of(4097)[..4103]), refused(413)),
        row(form(&part_with_head_of(4097)[..4102]), no_form("the last boundary is missing")),
        row(
            send("POST /upload", "Content-Type: multipart/form-data\r\n", "x"),
            no_form("its Content-Type needs a boundary of 1 to 70 characters"),
        ),
        row(
            send("POST /upload", "Content-Type: multipart/form-data; boundary=\"a\tb\"\r\n", "x"),
            no_form("its Content-Type needs a boundary of 1 to 70 characters"),
        ),
        row(
            ask("GET /upload", ""),
            Expected {
                headers: vec![("Allow", "POST, PUT".to_owned())],
                ..reason(405, "the method is GET; it may be POST or PUT")
            },
        ),
        row(
            send("PATCH /upload", "", "x"),
            reason(405, "the method is PATCH; it may be POST or PUT"),
        ),
        closes(
            ask("POST /upload", "Content-Length: 67108865\r\n"),
            reason(413, "the request body is too large; it may have 67108864 bytes"),
        ),
    ]
}

/// What is no file has no conditions: whatever they say, the request is answered as without them.
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
        rows.push(row(ask("GET /urandom", line), measured(2048)));
        rows.push(row(ask("HEAD /urandom", line), head_of(measured(2048))));
        rows.push(row(send("PUT /upload", line, "hello"), measured(5)));
        let value = value.trim_end().replace('"', "\\\"");
        let list = format!("[[\"Host\",\"site.example\"],[\"{name}\",\"{value}\"]]");
        rows.push(row(ask("GET /headers", line), json(&format!("{{\"headers\":{list}}}"))));
    }
    rows
}

fn mirrors() -> Vec<Row> {
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

fn closes(request: String, answer: Expected) -> Row {
    Row { then: Then::Closes, ..row(request, answer) }
}

fn refusals() -> Vec<Row> {
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
        closes(ask("GET /", &format!("X: {}\r\n", "y".repeat(70_000))), refused(431)),
    ];
    for value in ["abc", "-1", "", ".", "1.", ".5", "1e1"] {
        let text = format!("time is \"{value}\"; it may be a number of seconds from 0 to 60");
        rows.push(get(&format!("/sleep?time={value}"), reason(400, &text)));
    }
    let text = "time is \"60.5\"; it may be a number of seconds from 0 to 60";
    rows.push(get("/sleep?time=60.5", reason(413, text)));
    rows
}

fn connections() -> Vec<Row> {
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
