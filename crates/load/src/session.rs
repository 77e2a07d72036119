//! Session of one client: the cookies that it got, the values of variables, and the requests made with them.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use cookie::Cookie;
use tollgate_http1::{RequestMessage, RequestText};

use crate::replay::Variable;

/// Limit of the cookies of a session; the oldest is dropped. Browsers keep at least 50 per domain (RFC 6265, section 6.1).
const COOKIES_MAX: usize = 100;

/// Limit of name, value and attributes of a cookie.
const COOKIE_BYTES_MAX: usize = 4096;

/// Cookies of a client, by the rules of RFC 6265, except that `Secure` is ignored: a recording of HTTPS may be
/// replayed without TLS.
#[derive(Debug, Default)]
pub(crate) struct Jar {
    cookies: Vec<StoredCookie>,
}

#[derive(Debug, PartialEq, Eq)]
struct StoredCookie {
    name: Box<str>,
    value: Box<str>,
    domain: Box<str>,
    /// True without a `Domain`: for this host alone.
    is_host_only: bool,
    path: Box<str>,
    /// In the past for a cookie that the server has removed: a recorded one of this name is not sent either.
    expires: Option<SystemTime>,
}

/// Host without its port, and path without query, of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site<'a> {
    host: &'a str,
    path: &'a str,
}

impl Jar {
    pub(crate) fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    /// Takes the value of a `Set-Cookie`. Returns false if it is invalid, or for another domain.
    pub(crate) fn set(&mut self, header: &[u8], site: Site<'_>, now: SystemTime) -> bool {
        let text = std::str::from_utf8(header).ok().filter(|text| text.len() <= COOKIE_BYTES_MAX);
        let Some(cookie) = text.and_then(|text| Cookie::parse(text).ok()) else { return false };
        let has_control = |text: &str| text.contains(|c: char| c.is_control());
        if cookie.name().is_empty() || has_control(cookie.name()) || has_control(cookie.value()) {
            return false;
        }
        let host = site.host.to_ascii_lowercase();
        let domain = cookie.domain().filter(|domain| !domain.is_empty());
        let domain = domain.map(str::to_ascii_lowercase);
        if domain.as_ref().is_some_and(|domain| !is_in_domain(&host, domain)) {
            return false;
        }
        let age = cookie.max_age().map(|age| Duration::try_from(age).unwrap_or_default());
        let expires = match age {
            // A time beyond the range of the clock does not expire.
            Some(age) if age.is_zero() => Some(now),
            Some(age) => now.checked_add(age),
            None => cookie.expires_datetime().map(SystemTime::from),
        };
        let path = cookie.path().filter(|path| path.starts_with('/'));
        let stored = StoredCookie {
            name: cookie.name().into(),
            value: cookie.value().into(),
            is_host_only: domain.is_none(),
            domain: domain.unwrap_or(host).into(),
            path: path.unwrap_or_else(|| default_path(site.path)).into(),
            expires,
        };
        let is_same = |other: &StoredCookie| {
            (&other.name, &other.domain, &other.path)
                == (&stored.name, &stored.domain, &stored.path)
        };
        match self.cookies.iter_mut().find(|other| is_same(other)) {
            Some(known) => *known = stored,
            None => {
                if self.cookies.len() == COOKIES_MAX {
                    self.cookies.remove(0);
                }
                self.cookies.push(stored);
            }
        }
        true
    }

    /// Returns the value of `Cookie`: the recorded cookies that the server has not set or removed since, then those that
    /// it has set, of longer paths first.
    fn header(&self, recorded: &str, site: Site<'_>, now: SystemTime) -> String {
        let host = site.host.to_ascii_lowercase();
        let is_of_host = |cookie: &&StoredCookie| {
            if cookie.is_host_only {
                *cookie.domain == *host
            } else {
                is_in_domain(&host, &cookie.domain)
            }
        };
        let known: Vec<&StoredCookie> = self.cookies.iter().filter(is_of_host).collect();
        let is_kept = |pair: &&str| {
            let name = pair.split_once('=').map_or(*pair, |(name, _)| name).trim();
            !pair.trim().is_empty() && known.iter().all(|cookie| *cookie.name != *name)
        };
        let mut pairs: Vec<Cow<'_, str>> =
            recorded.split(';').filter(is_kept).map(|pair| pair.trim().into()).collect();
        let is_sent = |cookie: &&&StoredCookie| {
            cookie.expires.is_none_or(|expires| expires > now)
                && is_on_path(site.path, &cookie.path)
        };
        let mut sent: Vec<&&StoredCookie> = known.iter().filter(is_sent).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        pairs.extend(sent.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value).into()));
        pairs.join("; ")
    }
}

/// RFC 6265, section 5.1.3. Both are in lower case.
fn is_in_domain(host: &str, domain: &str) -> bool {
    let is_below = || {
        let rest = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        rest && host.parse::<std::net::IpAddr>().is_err()
    };
    host == domain || is_below()
}

/// RFC 6265, section 5.1.4.
fn is_on_path(path: &str, of_cookie: &str) -> bool {
    path.strip_prefix(of_cookie)
        .is_some_and(|rest| rest.is_empty() || of_cookie.ends_with('/') || rest.starts_with('/'))
}

/// Path of a cookie without one: that of the request up to its last slash.
fn default_path(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(slash) => &path[..slash],
    }
}

impl<'a> Site<'a> {
    pub(crate) fn of(request: &'a RequestMessage) -> Self {
        Self::new(request.host(), request.path())
    }

    fn new(host: &'a str, path: &'a str) -> Self {
        let name = match host.strip_prefix('[') {
            Some(address) => address.split(']').next().unwrap_or(address),
            None => host.split(':').next().unwrap_or(host),
        };
        Self { host: name, path }
    }
}

/// Values of the variables that a request contains.
pub(crate) type Values<'a> = [(&'a Variable, Option<&'a str>)];

/// Makes the request that a session sends, with its cookies and values. A variable without a value is replaced by
/// an empty text.
pub(crate) fn render(
    recorded: &RequestMessage,
    jar: &Jar,
    values: &Values<'_>,
    now: SystemTime,
) -> RequestMessage {
    let insert = |text: &str| -> String {
        let inserted = substitute(text.as_bytes(), values, |byte, out| out.push(byte));
        String::from_utf8(inserted).expect("text is inserted between characters")
    };
    let target = substitute(recorded.target().as_bytes(), values, push_encoded);
    let target = String::from_utf8(target).expect("text is inserted between characters");
    let body = substitute(recorded.body(), values, |byte, out| out.push(byte));
    let is_cookie = |name: &str| name.eq_ignore_ascii_case("cookie");
    let cookies: Vec<&str> =
        recorded.headers().filter(|(name, _)| is_cookie(name)).map(|(_, value)| value).collect();
    // The cookies are those of the target and the host that are sent. The text of the server's cookies is not substituted.
    let host = insert(recorded.host());
    let path = target.split('?').next().unwrap_or(&target);
    let cookies = jar.header(&insert(&cookies.join("; ")), Site::new(&host, path), now);
    let mut cookies = Some(cookies).filter(|cookies| !cookies.is_empty());
    let mut headers: Vec<(&str, String)> = Vec::new();
    for (name, value) in recorded.headers() {
        if is_cookie(name) {
            // In the place of the first recorded one.
            headers.extend(cookies.take().map(|cookies| (name, cookies)));
        } else if name.eq_ignore_ascii_case("content-length") {
            headers.push((name, body.len().to_string()));
        } else {
            headers.push((name, insert(value)));
        }
    }
    headers.extend(cookies.map(|cookies| ("Cookie", cookies)));
    let text =
        RequestText { method: recorded.method(), target: &target, headers: &headers, body: &body };
    text.render().expect("cookies and values have no control characters")
}

/// Replaces the variables of a text by their values, each byte of which is written by `push`.
fn substitute(text: &[u8], values: &Values<'_>, push: impl Fn(u8, &mut Vec<u8>)) -> Vec<u8> {
    if values.is_empty() {
        return text.to_vec();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let found = values.iter().find(|(variable, _)| rest.starts_with(&variable.placeholder));
        match found {
            Some((variable, value)) => {
                value.unwrap_or_default().bytes().for_each(|byte| push(byte, &mut out));
                rest = &rest[variable.placeholder.len()..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
}

/// Writes a byte of a target; one that a URI cannot contain (RFC 3986), or that ends a path and query, is
/// percent-encoded. `?`, `&` and `%` pass, so that a value may have several arguments or be encoded already.
fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'!'..=b'~' if !b"#\"<>\\^`{|}".contains(&byte) => out.push(byte),
        _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::ValueSource;
    use crate::replay::placeholder;
    use crate::workload::Request;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;
    const HOUR: Duration = Duration::from_secs(3600);

    fn site<'a>(host: &'a str, path: &'a str) -> Site<'a> {
        Site { host, path }
    }

    /// Cookies set by the host `www.shop.example` in response to `/a/b`.
    fn jar(headers: &[&str]) -> (Jar, Vec<bool>) {
        let mut jar = Jar::default();
        let site = site("WWW.shop.example", "/a/b");
        let set = headers.iter().map(|header| jar.set(header.as_bytes(), site, NOW)).collect();
        (jar, set)
    }

    #[test]
    fn cookies_go_back_to_their_domain_and_path() {
        let (jar, set) = jar(&[
            "own=1",
            "all=2; Domain=.Shop.example; Path=/",
            "root=3; path=/; Secure; HttpOnly",
            "deep=4; Path=/a/b/c",
        ]);
        assert_eq!(set, [true; 4]);
        for (host, path, expected) in [
            ("www.shop.example", "/a/c", "own=1; all=2; root=3"),
            ("www.shop.example", "/ab", "all=2; root=3"),
            ("www.shop.example", "/a/b/c/d", "deep=4; own=1; all=2; root=3"),
            ("api.shop.example", "/a/b", "all=2"),
            ("shop.example", "/", "all=2"),
            ("myshop.example", "/", ""),
        ] {
            assert_eq!(jar.header("", site(host, path), NOW), expected, "{host} {path}");
        }
    }

    #[test]
    fn cookies_are_replaced_and_expire() {
        let (mut jar, _) = jar(&[
            "a=1; Path=/; Max-Age=7200; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "b=1; Path=/; Expires=Thu, 01 Jan 1970 01:00:00 GMT",
            "c=1; Path=/",
            "c=2; Path=/",
        ]);
        let site = site("www.shop.example", "/");
        let at = |jar: &Jar, now| jar.header("", site, now);
        assert_eq!(at(&jar, NOW), "a=1; b=1; c=2");
        assert_eq!(at(&jar, NOW + HOUR), "a=1; c=2");
        assert_eq!(at(&jar, NOW + 2 * HOUR), "c=2");
        assert!(jar.set(b"c=; Max-Age=0; Path=/", site, NOW));
        assert!(jar.set(b"a=; Max-Age=-1; Path=/", site, NOW));
        assert_eq!(at(&jar, NOW), "b=1");
    }

    #[test]
    fn cookies_of_other_domains_and_invalid_ones_are_rejected() {
        let long = format!("a={}", "x".repeat(COOKIE_BYTES_MAX));
        let (jar, set) =
            jar(&["a=1; Domain=other.example", "a=1; Domain=a.www.shop.example", "=1", "a", &long]);
        assert_eq!((set, jar.is_empty()), (vec![false; 5], true));
        let mut jar = Jar::default();
        assert!(!jar.set(b"a=1; Domain=0.0.1", site("127.0.0.1", "/"), NOW));
        assert!(!jar.set(b"a=\xff", site("a", "/"), NOW));
        for number in 0..=COOKIES_MAX {
            assert!(jar.set(format!("a{number}=1").as_bytes(), site("a", "/"), NOW));
        }
        let header = jar.header("", site("a", "/"), NOW);
        assert!(header.starts_with("a1=1; ") && header.ends_with("; a100=1"), "{header}");
    }

    #[test]
    fn recorded_cookies_stay_until_the_server_sets_or_removes_them() {
        let (mut jar, _) = jar(&["sid=new; Path=/"]);
        let site = site("www.shop.example", "/x");
        let recorded = "theme=dark; sid=xxxx;flag";
        assert_eq!(jar.header(recorded, site, NOW), "theme=dark; flag; sid=new");
        assert!(jar.set(b"sid=; Path=/; Max-Age=0", site, NOW));
        assert!(jar.set(b"theme=; Path=/other; Max-Age=0", site, NOW));
        assert_eq!(jar.header(recorded, site, NOW), "flag");
    }

    #[test]
    fn requests_are_rendered_with_cookies_and_values() {
        let variable = |name: &str| Variable {
            name: name.to_owned(),
            placeholder: placeholder(name),
            source: ValueSource::Json(String::new()),
        };
        let (id, none) = (variable("id"), variable("none"));
        let values = [(&id, Some("é 7")), (&none, None)];
        let (jar, _) = jar(&["sid=1; Path=/"]);
        let sent = |recorded: &RequestMessage, jar: &Jar, values: &Values<'_>| {
            String::from_utf8(render(recorded, jar, values, NOW).bytes().to_vec()).unwrap()
        };
        let text = |text: &str| sent(&Request::parse(text).message, &jar, &values);
        assert_eq!(
            text(
                "POST /{{id}}?a={{none}}&{{7*7}} HTTP/1.1\r\nHost: www.shop.example:81\r\nCookie: a=b\r\nX: {{id}}\r\nContent-Length: 10\r\n\r\n{{{id}}}\r\n"
            ),
            "POST /%C3%A9%207?a=&{{7*7}} HTTP/1.1\r\nHost: www.shop.example:81\r\nCookie: a=b; sid=1\r\nX: é 7\r\nContent-Length: 8\r\n\r\n{é 7}\r\n"
        );
        assert_eq!(
            text("GET / HTTP/1.1\r\nHost: www.shop.example\r\n\r\n"),
            "GET / HTTP/1.1\r\nHost: www.shop.example\r\nCookie: sid=1\r\n\r\n"
        );
        // Cookies of a path with a value, and a cookie whose text looks like a variable.
        let mut jar = Jar::default();
        assert!(jar.set(b"own={{id}}", site("7.example", "/u/7/login"), NOW));
        let recorded = RequestText {
            method: "GET",
            target: "/u/{{id}}/cart",
            headers: &[("Host", "{{id}}.example"), ("Cookie", "r={{id}}")],
            body: b"",
        };
        assert_eq!(
            sent(&recorded.render().unwrap(), &jar, &[(&id, Some("7"))]),
            "GET /u/7/cart HTTP/1.1\r\nHost: 7.example\r\nCookie: r=7; own={{id}}\r\n\r\n"
        );
        let mut encoded = Vec::new();
        b"a/\"<>\\^{|}`#?&%".iter().for_each(|byte| push_encoded(*byte, &mut encoded));
        assert_eq!(encoded, b"a/%22%3C%3E%5C%5E%7B%7C%7D%60%23?&%");
        let plain = "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n";
        assert_eq!(text(plain), plain);
        assert_eq!(Site::of(&Request::parse(plain).message), site("::1", "/"));
    }
}
