//! The page, payloads, and the endpoints that cost one thing.

use super::*;

pub(super) fn measures() -> Vec<Row> {
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
        get("/%75random?size=1", json("{\"size\":1,\"time\":0.######}")),
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
