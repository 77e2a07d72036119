use proptest::prelude::*;
use tollgate_http1::{BodyFraming, RenderError, RequestPart, RequestText, parse_request_head};

fn render(
    method: &str,
    target: &str,
    pairs: &[(&str, &str)],
    body: &[u8],
) -> Result<Vec<u8>, RenderError> {
    RequestText { method, target, headers: pairs, body }
        .render()
        .map(|message| message.bytes().to_vec())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn keeps_order_and_spelling_of_headers() {
    let pairs = [("Host", "a.test"), ("X-Empty", ""), ("connection", "keep-alive")];
    assert_eq!(
        text(render("GET", "/x?a=1&b=%27", &pairs, b"").unwrap()),
        "GET /x?a=1&b=%27 HTTP/1.1\r\nHost: a.test\r\nX-Empty: \r\nconnection: keep-alive\r\n\r\n"
    );
}

#[test]
fn adds_content_length_where_servers_expect_it() {
    let host = [("Host", "a")];
    let with_body = "Host: a\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(
        text(render("POST", "/", &host, b"abc").unwrap()),
        format!("POST / HTTP/1.1\r\n{with_body}")
    );
    assert_eq!(
        text(render("DELETE", "/", &host, b"abc").unwrap()),
        format!("DELETE / HTTP/1.1\r\n{with_body}")
    );
    for method in ["POST", "PUT", "PATCH"] {
        assert_eq!(
            text(render(method, "/", &host, b"").unwrap()),
            format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        );
    }
    assert_eq!(
        text(render("HEAD", "/", &host, b"").unwrap()),
        "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
    );
}

#[test]
fn keeps_given_content_length_that_matches_the_body() {
    let pairs = [("Host", "a"), ("content-length", "3")];
    assert_eq!(
        text(render("POST", "/", &pairs, b"abc").unwrap()),
        "POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\n\r\nabc"
    );
    assert_eq!(
        render("POST", "/", &pairs, b"abcd"),
        Err(RenderError::ContentLength { given: "3".to_owned(), body_bytes: 4 })
    );
    let chunked = [("Host", "a"), ("Transfer-Encoding", "chunked")];
    assert_eq!(render("POST", "/", &chunked, b"x"), Err(RenderError::TransferEncoding));
}

#[test]
fn sends_body_bytes_unchanged() {
    let bytes = render("PUT", "/", &[("Host", "a")], b"\0\r\n\xff").unwrap();
    assert_eq!(bytes, b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\0\r\n\xff");
}

#[test]
fn parts_are_those_given() {
    let headers = [("Host", "a:1"), ("X-Empty", ""), ("X", "é")];
    let text =
        RequestText { method: "PUT", target: "/é?q?r", headers: &headers, body: b"\r\n\r\n" };
    let message = text.render().unwrap();
    assert_eq!((message.method(), message.target(), message.path()), ("PUT", "/é?q?r", "/é"));
    let length = ("Content-Length", "4");
    assert_eq!(message.headers().collect::<Vec<_>>(), [&headers[..], &[length]].concat());
    assert_eq!((message.host(), message.body()), ("a:1", &b"\r\n\r\n"[..]));
}

#[test]
fn head_and_close_are_known() {
    let flags = |method: &str, headers: &[(&str, &str)]| {
        let headers = [&[("Host", "a")], headers].concat();
        let text = RequestText { method, target: "/", headers: &headers, body: b"" };
        let message = text.render().unwrap();
        (message.is_head(), message.closes())
    };
    assert_eq!(flags("HEAD", &[]), (true, false));
    assert_eq!(flags("head", &[("connection", "Upgrade , Close")]), (false, true));
    assert_eq!(flags("GET", &[("Connection", "closed"), ("Close", "close")]), (false, false));
    assert_eq!(flags("GET", &[("Connection", "te"), ("Connection", "close")]), (false, true));
}

#[test]
fn rejects_bytes_that_would_end_their_part() {
    let value = || RequestPart::HeaderValue("X".to_owned());
    let cases = [
        ("GE T", "/", ("X", "y"), RequestPart::Method, b' ', 2),
        ("GET\r\n", "/", ("X", "y"), RequestPart::Method, b'\r', 3),
        ("GET", "/a b", ("X", "y"), RequestPart::Target, b' ', 2),
        ("GET", "/a\r\nEvil: 1", ("X", "y"), RequestPart::Target, b'\r', 2),
        ("GET", "/\0", ("X", "y"), RequestPart::Target, 0, 1),
        ("GET", "/", ("X:", "y"), RequestPart::HeaderName("X:".to_owned()), b':', 1),
        ("GET", "/", ("X\n", "y"), RequestPart::HeaderName("X\n".to_owned()), b'\n', 1),
        ("GET", "/", ("X", "y\nEvil: 1"), value(), b'\n', 1),
        ("GET", "/", ("X", "y\0"), value(), 0, 1),
        ("GET", "/", ("X", "y\x7f"), value(), 0x7f, 1),
    ];
    for (method, target, header, part, byte, position) in cases {
        assert_eq!(
            render(method, target, &[("Host", "a"), header], b""),
            Err(RenderError::Byte { part, byte, position })
        );
    }
}

#[test]
fn rejects_empty_parts() {
    let host = ("Host", "a");
    let no_name = RequestPart::HeaderName(String::new());
    assert_eq!(render("", "/", &[host], b""), Err(RenderError::Empty(RequestPart::Method)));
    assert_eq!(render("GET", "", &[host], b""), Err(RenderError::Empty(RequestPart::Target)));
    assert_eq!(render("GET", "/", &[host, ("", "x")], b""), Err(RenderError::Empty(no_name)));
}

#[test]
fn requires_exactly_one_host() {
    assert_eq!(render("GET", "/", &[], b""), Err(RenderError::HostCount(0)));
    let two = [("Host", "a"), ("HOST", "a")];
    assert_eq!(render("GET", "/", &two, b""), Err(RenderError::HostCount(2)));
}

#[test]
fn error_names_the_part() {
    let error = render("GET", "/", &[("Host", "a\r\nb")], b"").unwrap_err();
    assert_eq!(
        error.to_string(),
        "value of header `Host` contains the byte 0x0d at 1, which is not allowed there"
    );
}

#[test]
fn allows_raw_utf8_in_target() {
    let bytes = render("GET", "/?q=\u{ff1c}script\u{ff1e}", &[("Host", "a")], b"").unwrap();
    assert!(text(bytes).starts_with("GET /?q=\u{ff1c}script\u{ff1e} HTTP/1.1\r\n"));
}

proptest! {
    /// A rendered request parses into the parts given, unless the value has a forbidden byte.
    #[test]
    fn rendered_request_parses_into_its_parts(
        method in "[A-Z]{1,9}",
        target in "/[!-~]{0,40}",
        value in "[ -~\r\n\0]{0,20}",
        body in proptest::collection::vec(any::<u8>(), 1..50),
    ) {
        let rendered = render(&method, &target, &[("Host", "a"), ("X-Any", &value)], &body);
        let breaks_out = value.contains(['\r', '\n', '\0']);
        prop_assert_eq!(rendered.is_err(), breaks_out);
        if let Ok(bytes) = rendered {
            let head = parse_request_head(&bytes).unwrap().unwrap();
            prop_assert_eq!(head.method, method);
            prop_assert_eq!(head.target, target);
            prop_assert_eq!(head.body, BodyFraming::Length(body.len() as u64));
            prop_assert_eq!(&bytes[head.len..], &body);
        }
    }
}
