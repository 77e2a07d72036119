//! What the two servers answer differently, each as its own parser reads it. The list for people is in
//! systems/nginx-lua/README.md; it has a point for each of these.

use super::*;

/// One request, and what becomes of it on either server.
pub(in crate::site) struct Difference {
    pub(in crate::site) nginx_lua: Row,
    pub(in crate::site) origin: Row,
}

/// All of them that a request shows.
pub(in crate::site) fn differences() -> Vec<Difference> {
    let method = || json("{\"method\":\"GET\"}");
    let twice = "If-None-Match: \"1\"\r\nIf-None-Match: \"1000\"\r\n";
    let not_modified = || Expected { headers: vec![("ETag", "\"1000\"".to_owned())], ..bare(304) };
    let no_method = |method: &str| {
        let rest = "it may be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS";
        reason(501, &format!("the method is {method}; {rest}"))
    };
    let text = |text: &str| plain(Body::Text(text.to_owned()));
    let mut all = vec![
        differ(ask("GET /download?size=1000", twice), refuses, |request| {
            row(request, not_modified())
        }),
        differ(ask("get /method", ""), refuses, |request| row(request, no_method("get"))),
        differ(ask("G!T /method", ""), refuses, |request| row(request, no_method("G!T"))),
        differ("GET /method HTTP/1.1\r\nHost:\r\n\r\n".to_owned(), refuses, |request| {
            row(request, method())
        }),
        differ(
            "GET /method HTTP/1.2\r\nHost: a\r\n\r\n".to_owned(),
            |request| row(request, method()),
            refuses,
        ),
        differ(
            "GET /method HTTP/1.1\nHost: a\n\n".to_owned(),
            |request| row(request, method()),
            refuses,
        ),
        differ(
            ask("GET /a/../method", ""),
            |request| row(request, method()),
            |request| row(request, text("tollgate origin: /a/../method\n")),
        ),
        differ(ask("GET /%zz", ""), refuses, |request| {
            row(request, text("tollgate origin: /%zz\n"))
        }),
        differ(
            ask("GET /any", ""),
            |request| row(request, text("nginx-lua: /any\n")),
            |request| {
                row(request, Expected { without: vec!["Date"], ..text("tollgate origin: /any\n") })
            },
        ),
    ];
    for path in ["/delay?ms=0", "/counters"] {
        let bare_path = path.split('?').next().unwrap_or(path);
        all.push(differ(
            ask(&format!("GET {path}"), ""),
            |request| row(request, text(&format!("nginx-lua: {bare_path}\n"))),
            |request| {
                row(
                    request,
                    Expected {
                        body: Body::Holds("{\""),
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

/// Refused as malformed, and closed.
fn refuses(request: String) -> Row {
    closes(request, refused(400))
}
