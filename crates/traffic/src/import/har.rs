//! HAR files (HTTP Archive 1.2), as browsers export them.

use serde::Deserialize;

use super::time::LogTime;
use super::{CONNECTION_HEADERS, Importer, Label, Recorded, Url};

#[derive(Debug, Deserialize)]
struct Har {
    log: Log,
}

#[derive(Debug, Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    request: Request,
    response: Option<Response>,
    started_date_time: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Pair>,
    #[serde(default)]
    cookies: Vec<Pair>,
    post_data: Option<PostData>,
    body_size: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostData {
    #[serde(default)]
    mime_type: String,
    text: Option<String>,
    encoding: Option<String>,
    #[serde(default)]
    params: Vec<Param>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Debug, Deserialize)]
struct Param {
    name: String,
    value: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: i64,
    /// Length on the wire; -1 if it is not known.
    body_size: Option<i64>,
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    mime_type: Option<String>,
}

/// Adds all requests of a file. A file is one client, as a browser keeps its cookies from page to page.
///
/// # Errors
///
/// The text is not a HAR file: line, column and reason.
pub fn import(
    text: &[u8],
    file: &str,
    label: &Label,
    importer: &mut Importer,
) -> Result<(), String> {
    let har: Har = serde_json::from_slice(text).map_err(|error| {
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
        format!("{file}:{}:{}: {reason}", error.line(), error.column())
    })?;
    for (index, entry) in har.log.entries.into_iter().enumerate() {
        let place = format!("{file}, entry {}", index + 1);
        let shown = format!("{} {}", entry.request.method, entry.request.url);
        let time = entry.started_date_time.as_deref().and_then(LogTime::from_iso_8601);
        let recorded = recorded(entry);
        match recorded.map(|one| Recorded { time, client: Some(file.to_owned()), ..one }) {
            Ok(recorded) => importer.add(recorded, label, &place),
            Err(reason) => importer.skip(reason, &place, &shown),
        }
    }
    Ok(())
}

fn recorded(entry: Entry) -> Result<Recorded, &'static str> {
    let Request { method, url, headers, cookies, post_data, body_size } = entry.request;
    let url = Url::parse(&url).ok_or("the URL is not of http or https")?;
    let announced = headers.iter().find(|pair| pair.name.eq_ignore_ascii_case("content-length"));
    let announced = announced.and_then(|pair| pair.value.trim().parse::<u64>().ok());
    let sent = body_size.and_then(|bytes| u64::try_from(bytes).ok()).max(announced);
    let has_scheme = |name: &str| name.starts_with(':');
    let is_kept = |pair: &Pair| {
        let name = pair.name.to_ascii_lowercase();
        !has_scheme(&name) && !CONNECTION_HEADERS.contains(&name.as_str())
    };
    let mut kept: Vec<(String, String)> =
        headers.into_iter().filter(is_kept).map(|pair| (pair.name, pair.value)).collect();
    let has = |kept: &[(String, String)], name: &str| {
        kept.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    if !has(&kept, "host") {
        kept.insert(0, ("Host".to_owned(), url.host.to_owned()));
    }
    if !has(&kept, "cookie") && !cookies.is_empty() {
        let cookies: Vec<String> =
            cookies.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        kept.push(("Cookie".to_owned(), cookies.join("; ")));
    }
    let body = match post_data {
        Some(data) => {
            if !has(&kept, "content-type") && !data.mime_type.is_empty() {
                kept.push(("Content-Type".to_owned(), data.mime_type.clone()));
            }
            body(data)?
        }
        None => Vec::new(),
    };
    let response = entry.response;
    let status = response.as_ref().and_then(|response| u16::try_from(response.status).ok());
    let length = response.as_ref().and_then(|response| u64::try_from(response.body_size?).ok());
    let content_type = response.and_then(|response| response.content?.mime_type);
    Ok(Recorded {
        method,
        target: url.target.into_owned(),
        headers: kept,
        lacks_body: sent > Some(body.len() as u64),
        body,
        // A request without a response, such as a blocked one, has the status 0.
        status: status.filter(|status| (100..=599).contains(status)),
        body_bytes: length,
        content_type,
        ..Recorded::default()
    })
}

fn body(data: PostData) -> Result<Vec<u8>, &'static str> {
    use base64::Engine as _;
    match (data.text, data.encoding.as_deref()) {
        (Some(text), Some("base64")) => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|_invalid| "the body is not valid Base64"),
        (Some(text), _) if !text.is_empty() || data.params.is_empty() => Ok(text.into_bytes()),
        _ if data.params.is_empty() => Ok(Vec::new()),
        _ if data.mime_type.starts_with("application/x-www-form-urlencoded") => {
            // Names and values are recorded as sent.
            let pair = |param: &Param| match &param.value {
                Some(value) => format!("{}={value}", param.name),
                None => param.name.clone(),
            };
            Ok(data.params.iter().map(pair).collect::<Vec<_>>().join("&").into_bytes())
        }
        _ => Err("the file does not contain the text of the body"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::tests::{benign, importer, lines};

    #[test]
    fn entries_keep_headers_cookies_and_bodies() {
        let text = br#"{"log":{"version":"1.2","entries":[
            {"request":{"method":"POST","url":"https://shop.example/cart?a=1","httpVersion":"h2",
              "headers":[{"name":":method","value":"POST"},{"name":"content-length","value":"3"},{"name":"Content-Type","value":"text/plain"}],
              "cookies":[{"name":"a","value":"1"},{"name":"b","value":"2"}],"postData":{"mimeType":"text/plain","text":"x\ny"}},
             "response":{"status":201,"bodySize":7}},
            {"request":{"method":"POST","url":"https://shop.example/form","headers":[],"postData":{"mimeType":"application/x-www-form-urlencoded","params":[{"name":"q","value":"a+b"}]}},"response":{"status":0,"bodySize":-1}},
            {"request":{"method":"GET","url":"data:text/html,x","headers":[]}}
        ]}}"#;
        let mut importer = importer();
        import(text, "a.har", &benign(), &mut importer).unwrap();
        let lines = lines(&importer);
        assert_eq!(
            lines[1],
            r#"{"template":"POST 201","method":"POST","path":"/cart?a=1","headers":["Host: shop.example","Content-Type: text/plain","Cookie: a=x; b=x"],"body":"x\ny","body_bytes":7,"response":{"status":201,"bytes":7}}"#
        );
        assert_eq!(
            lines[2],
            r#"{"template":"POST","method":"POST","path":"/form","headers":["Host: shop.example","Content-Type: application/x-www-form-urlencoded"],"body":"q=a+b"}"#
        );
        let skipped = &importer.skipped()["the URL is not of http or https"];
        assert_eq!(
            (skipped.count, skipped.first.as_str()),
            (1, "a.har, entry 3: GET data:text/html,x")
        );
    }

    #[test]
    fn missing_bodies_are_counted() {
        for (request, lacks_body) in [
            (r#""headers":[],"bodySize":0"#, false),
            (r#""headers":[],"bodySize":-1"#, false),
            (r#""headers":[],"bodySize":7"#, true),
            // A browser that kept no text, or a part of it.
            (r#""headers":[],"bodySize":7,"postData":{"mimeType":"text/plain"}"#, true),
            (
                r#""headers":[],"bodySize":7,"postData":{"mimeType":"text/plain","text":"abc"}"#,
                true,
            ),
            (
                r#""headers":[],"bodySize":3,"postData":{"mimeType":"text/plain","text":"abc"}"#,
                false,
            ),
            (
                r#""headers":[{"name":"Content-Length","value":"7"}],"bodySize":-1,"postData":{"text":""}"#,
                true,
            ),
            (
                r#""headers":[{"name":"Content-Length","value":"3"}],"postData":{"text":"abc"}"#,
                false,
            ),
        ] {
            let text = format!(
                r#"{{"log":{{"entries":[{{"request":{{"method":"POST","url":"http://a/",{request}}}}}]}}}}"#
            );
            let mut importer = importer();
            import(text.as_bytes(), "a.har", &benign(), &mut importer).unwrap();
            assert_eq!(importer.requests(), 1, "{request}");
            assert_eq!(importer.without_body(), u64::from(lacks_body), "{request}");
        }
    }

    #[test]
    fn a_file_is_one_client_in_the_order_of_its_times() {
        let entry = |page: &str, second: &str, path: &str| {
            format!(
                r#"{{"pageref":"{page}","startedDateTime":"2026-11-21T20:38:{second}+01:00","request":{{"method":"GET","url":"http://a/{path}","headers":[]}}}}"#
            )
        };
        let entries = [
            entry("p1", "08.250", "1"),
            entry("p2", "08.500", "2"),
            entry("p1", "08.125", "3"),
            r#"{"request":{"method":"GET","url":"http://a/4","headers":[]}}"#.to_owned(),
        ];
        let text = format!(r#"{{"log":{{"entries":[{}]}}}}"#, entries.join(","));
        let mut importer = importer();
        import(text.as_bytes(), "a.har", &benign(), &mut importer).unwrap();
        let lines = lines(&importer);
        assert!(lines[0].ends_with(r#""events":3}"#), "{}", lines[0]);
        assert_eq!(lines.last().unwrap(), r#"{"order":[0,0,2,125000,0,0,250000,0,1]}"#);
        assert_eq!((importer.ordered(), importer.unordered()), (3, 1));
        assert!(!importer.is_in_seconds());
    }

    #[test]
    fn invalid_file_is_an_error_with_its_place() {
        let text = b"{\"log\":\n{\"entries\":[{]}}";
        let error = import(text, "a.har", &benign(), &mut importer()).unwrap_err();
        assert!(error.starts_with("a.har:2:14: "), "{error}");
    }
}
