//! Commands of curl, as browsers and API documents give them, with the quoting of a shell.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use super::{Importer, Label, Recorded, Url};

/// Options without an argument that do not change the request.
const FLAGS: &str = "s silent S show-error L location k insecure v verbose i include f fail fail-with-body N \
     no-buffer 0 http1.0 http1.1 http2 http2-prior-knowledge http3 4 ipv4 6 ipv6 # progress-bar no-progress-meter \
     path-as-is tcp-nodelay keepalive no-keepalive location-trusted tlsv1.2 tlsv1.3 ssl-no-revoke raw";

/// Options with an argument that do not change the request.
const IGNORED: &str = "o output w write-out m max-time connect-timeout retry retry-delay retry-max-time x proxy cacert \
     capath E cert key cert-type key-type c cookie-jar resolve connect-to interface limit-rate max-redirs ciphers D \
     dump-header stderr trace trace-ascii unix-socket speed-limit speed-time tls-max";

/// Short options with an argument.
const WITH_VALUE: &str = "XHdAebuFToWwmxEcDT";

/// Adds all commands of a file. A command may continue on further lines, after a backslash or within quotes.
pub fn import(text: &str, file: &str, label: &Label, importer: &mut Importer) {
    for Command { line, text } in commands(text) {
        let place = format!("{file}:{line}:1");
        match words(&text).and_then(|words| requests(&words)) {
            Ok(requests) => {
                for request in requests {
                    importer.add(request, label, &place);
                }
            }
            Err(reason) => importer.skip(&reason, &place, &text),
        }
    }
}

/// A command, and the line where it starts.
struct Command {
    line: usize,
    text: String,
}

fn commands(text: &str) -> Vec<Command> {
    let mut found = Vec::new();
    let mut open: Option<Command> = None;
    for (line, number) in text.lines().zip(1..) {
        let mut command = match open.take() {
            Some(command) => command,
            None if line.trim().is_empty() || line.trim_start().starts_with('#') => continue,
            None => Command { line: number, text: String::new() },
        };
        command.text.push_str(line);
        command.text.push('\n');
        if line.ends_with('\\') || shell_words::split(&plain_quotes(&command.text)).is_err() {
            open = Some(command);
        } else {
            found.push(command);
        }
    }
    found.extend(open);
    found
}

/// Splits a command into words, up to the end of the command or to a pipe.
fn words(text: &str) -> Result<Vec<String>, String> {
    let words = shell_words::split(&plain_quotes(text));
    let mut words = words.map_err(|_open| "a quote is not closed".to_owned())?;
    if words.first().is_some_and(|word| word == "$") {
        words.remove(0);
    }
    if words.first().is_none_or(|word| word != "curl" && !word.ends_with("/curl")) {
        return Err("not a command of curl".to_owned());
    }
    words.remove(0);
    let is_end =
        |word: &String| matches!(word.as_str(), "|" | ";" | "&" | "&&" | "||" | ">" | ">>");
    let end = words.iter().position(is_end).unwrap_or(words.len());
    if words[end..].iter().any(|word| word == "curl") {
        return Err("several commands in one line".to_owned());
    }
    words.truncate(end);
    // `curl URL;`
    if let Some(last) = words.last_mut()
        && last.ends_with(';')
    {
        last.pop();
    }
    Ok(words)
}

/// Rewrites quotes of the form `$'...'`, which bash has and POSIX has not, as plain quotes.
fn plain_quotes(text: &str) -> Cow<'_, str> {
    if !text.contains("$'") {
        return Cow::Borrowed(text);
    }
    let mut plain = String::new();
    let mut chars = text.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '$') if chars.peek() == Some(&'\'') => {
                chars.next();
                plain.push('\'');
                if !push_escaped(&mut plain, &mut chars) {
                    // Not closed: the splitter reports it.
                    return Cow::Owned(plain);
                }
                plain.push('\'');
                continue;
            }
            (None | Some('"'), '\\') => {
                plain.push(c);
                plain.extend(chars.next());
                continue;
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        plain.push(c);
    }
    Cow::Owned(plain)
}

/// Copies the content of `$'...'` without its escapes. Returns false if it is not closed.
fn push_escaped(plain: &mut String, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    while let Some(c) = chars.next() {
        let c = match c {
            '\'' => return true,
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('u') => code(chars, 4),
                Some('U') => code(chars, 8),
                Some('x') => code(chars, 2),
                Some(other) => other,
                None => return false,
            },
            other => other,
        };
        match c {
            '\'' => plain.push_str(r"'\''"),
            other => plain.push(other),
        }
    }
    false
}

/// Takes up to `digits_max` hexadecimal digits of a character.
fn code(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, digits_max: usize) -> char {
    let mut number = 0;
    for _ in 0..digits_max {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(16)) else { break };
        chars.next();
        number = number * 16 + digit;
    }
    char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Options of one command.
#[derive(Debug, Default)]
struct Request {
    urls: Vec<String>,
    method: Option<String>,
    headers: Vec<String>,
    data: Vec<String>,
    /// Headers of other options, if no -H has them.
    defaults: Vec<(&'static str, String)>,
    is_get: bool,
    is_head: bool,
    is_json: bool,
    /// True if braces and brackets of URLs are themselves.
    is_literal: bool,
}

/// Reads the options of a command: one request for each URL.
fn requests(words: &[String]) -> Result<Vec<Recorded>, String> {
    let mut all = Vec::new();
    for part in words.split(|word| word == "--next" || word == "-:") {
        let mut request = Request::default();
        let mut words = part.iter();
        while let Some(word) = words.next() {
            if let Some(long) = word.strip_prefix("--").filter(|long| !long.is_empty()) {
                let (name, given) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                if !request.flag(name) {
                    let value = given.or_else(|| words.next().cloned());
                    request.option(name, value.ok_or_else(|| needs_value("--", name))?)?;
                }
            } else if let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
                for (index, letter) in letters.char_indices() {
                    let name = letter.to_string();
                    if WITH_VALUE.contains(letter) {
                        let rest = &letters[index + 1..];
                        let value = if rest.is_empty() {
                            words.next().cloned()
                        } else {
                            Some(rest.to_owned())
                        };
                        request.option(&name, value.ok_or_else(|| needs_value("-", &name))?)?;
                        break;
                    }
                    if !request.flag(&name) {
                        return Err(format!("unknown option -{name}"));
                    }
                }
            } else {
                request.urls.push(word.clone());
            }
        }
        all.append(&mut request.finish()?);
    }
    Ok(all)
}

fn needs_value(dashes: &str, name: &str) -> String {
    format!("option {dashes}{name} without a value")
}

fn has_word(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}

impl Request {
    /// Returns false if the option is not one without an argument.
    fn flag(&mut self, name: &str) -> bool {
        match name {
            "G" | "get" => self.is_get = true,
            "I" | "head" => self.is_head = true,
            "g" | "globoff" => self.is_literal = true,
            "compressed" => self.defaults.push(("Accept-Encoding", "gzip, deflate".to_owned())),
            _ => return has_word(FLAGS, name),
        }
        true
    }

    fn option(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "url" => self.urls.push(value),
            "X" | "request" => self.method = Some(value),
            "H" | "header" => self.headers.push(value),
            "A" | "user-agent" => self.defaults.push(("User-Agent", value)),
            "e" | "referer" => self.defaults.push(("Referer", value)),
            "b" | "cookie" if value.contains('=') => self.defaults.push(("Cookie", value)),
            "u" | "user" => self.defaults.push(("Authorization", basic(&value))),
            "oauth2-bearer" => self.defaults.push(("Authorization", format!("Bearer {value}"))),
            "d" | "data" | "data-ascii" | "data-binary" | "json" if value.starts_with('@') => {
                return Err(format!("option {name} reads a file, which is not imported"));
            }
            "d" | "data" | "data-ascii" => self.data.push(value.replace(['\r', '\n'], "")),
            "data-raw" | "data-binary" => self.data.push(value),
            "json" => {
                self.data.push(value);
                self.is_json = true;
            }
            "data-urlencode" => self.data.push(encoded(&value)?),
            "b" | "cookie" | "T" | "upload-file" | "K" | "config" => {
                return Err(format!("option {name} reads a file, which is not imported"));
            }
            "F" | "form" | "form-string" => {
                return Err("multipart forms (-F) are not imported; give the body with --data-raw"
                    .to_owned());
            }
            _ if has_word(IGNORED, name) => {}
            _ => return Err(format!("unknown option {name}")),
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<Recorded>, String> {
        if self.urls.is_empty() {
            return Err("no URL".to_owned());
        }
        let separator = if self.is_json { "" } else { "&" };
        let data = self.data.join(separator);
        let sends_body = !self.data.is_empty() && !self.is_get;
        let method = match &self.method {
            Some(method) => method.as_str(),
            None if self.is_head => "HEAD",
            None if sends_body => "POST",
            None => "GET",
        };
        let mut requests = Vec::new();
        let expanded =
            |url: &String| if self.is_literal { Ok(vec![url.clone()]) } else { expanded(url) };
        let urls = self.urls.iter().map(expanded);
        for url in urls.collect::<Result<Vec<_>, _>>()?.concat() {
            let url = Url::parse(&url).ok_or("the URL is not of http or https")?;
            let mut target = url.target.into_owned();
            if self.is_get && !data.is_empty() {
                target.push(if target.contains('?') { '&' } else { '?' });
                target.push_str(&data);
            }
            let mut defaults = vec![
                ("Host", url.host.to_owned()),
                ("User-Agent", "curl/8".to_owned()),
                ("Accept", if self.is_json { "application/json" } else { "*/*" }.to_owned()),
            ];
            for (name, value) in &self.defaults {
                defaults.retain(|(known, _)| known != name);
                defaults.push((name, value.clone()));
            }
            if let Some(user) = url.user {
                defaults.push(("Authorization", basic(user)));
            }
            if sends_body {
                let json = if self.is_json { "json" } else { "x-www-form-urlencoded" };
                defaults.push(("Content-Type", format!("application/{json}")));
            }
            requests.push(Recorded {
                method: method.to_owned(),
                target,
                headers: self.headers_with(defaults)?,
                body: if sends_body { data.clone().into_bytes() } else { Vec::new() },
                ..Recorded::default()
            });
        }
        Ok(requests)
    }

    /// Merges -H with the defaults: `Name: value` replaces, `Name:` removes, `Name;` sends it without a value.
    fn headers_with(
        &self,
        defaults: Vec<(&'static str, String)>,
    ) -> Result<Vec<(String, String)>, String> {
        let mut given = Vec::new();
        for header in &self.headers {
            let (name, value) = match (header.split_once(':'), header.strip_suffix(';')) {
                (Some((name, value)), _) => {
                    (name, (!value.trim().is_empty()).then(|| value.trim()))
                }
                (None, Some(name)) => (name, Some("")),
                (None, None) => return Err("a header without a colon, or @FILE".to_owned()),
            };
            given.push((name.trim(), value));
        }
        let is_given = |name: &str| given.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let defaults = defaults.into_iter().filter(|(name, _)| !is_given(name));
        let mut headers: Vec<(String, String)> =
            defaults.map(|(name, value)| (name.to_owned(), value)).collect();
        let is_sent =
            |name: &str| !super::CONNECTION_HEADERS.contains(&name.to_ascii_lowercase().as_str());
        for (name, value) in given {
            if let Some(value) = value.filter(|_| is_sent(name)) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(headers)
    }
}

/// Limit of the URLs that one argument stands for.
const MAX_URLS: usize = 10_000;

/// Returns the URLs of an argument with sets `{one,two}` and ranges `[1-10]`, `[01-10:3]` or `[a-z]`, of which the last one
/// changes first. A backslash makes the next of these characters literal.
fn expanded(argument: &str) -> Result<Vec<String>, String> {
    let mut urls = vec![String::new()];
    let mut rest = argument;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let (choices, tail) = match c {
            '\\' if after.starts_with(['{', '}', '[', ']', ',']) => {
                (vec![after[..1].to_owned()], &after[1..])
            }
            '{' => {
                let (set, tail) =
                    after.split_once('}').ok_or("a brace of the URL is not closed")?;
                (set.split(',').map(str::to_owned).collect(), tail)
            }
            // An address of IPv6.
            '[' if after
                .split(']')
                .next()
                .is_some_and(|inside| inside.parse::<Ipv6Addr>().is_ok()) =>
            {
                (vec!["[".to_owned()], after)
            }
            '[' => {
                let (range, tail) =
                    after.split_once(']').ok_or("a bracket of the URL is not closed")?;
                let choices = range_of(range).ok_or_else(|| format!("invalid range [{range}]"))?;
                (choices, tail)
            }
            _ => {
                let end = rest.find(['\\', '{', '[']).filter(|end| *end > 0).unwrap_or(rest.len());
                let end = if c == '\\' { 1 } else { end };
                (vec![rest[..end].to_owned()], &rest[end..])
            }
        };
        rest = tail;
        if urls.len().saturating_mul(choices.len()) > MAX_URLS {
            return Err(format!("the URL stands for more than {MAX_URLS}"));
        }
        let with = |url: &String| {
            choices.iter().map(|choice| format!("{url}{choice}")).collect::<Vec<_>>()
        };
        urls = urls.iter().flat_map(with).collect();
    }
    Ok(urls)
}

/// Returns the values of a range: numbers, with the leading zeros of the first, or letters, and a step.
fn range_of(range: &str) -> Option<Vec<String>> {
    let (bounds, step) = range.split_once(':').unwrap_or((range, "1"));
    let (first, last) = bounds.split_once('-')?;
    let step: usize = step.parse().ok().filter(|step| *step > 0)?;
    let is_letter = |text: &str| text.len() == 1 && text.as_bytes()[0].is_ascii_alphabetic();
    if is_letter(first) && is_letter(last) {
        let (first, last) = (first.as_bytes()[0], last.as_bytes()[0]);
        return (first <= last)
            .then(|| (first..=last).step_by(step).map(|c| char::from(c).to_string()).collect());
    }
    let number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten()
    };
    let (from, to) = (number(first)?, number(last)?);
    let width = if first.starts_with('0') { first.len() } else { 0 };
    let values = (from..=to).step_by(step).take(MAX_URLS + 1);
    (from <= to).then(|| values.map(|value| format!("{value:0width$}")).collect())
}

fn basic(user: &str) -> String {
    use base64::Engine as _;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(user))
}

/// Encodes an argument of `--data-urlencode`: `TEXT`, `=TEXT` or `NAME=TEXT`.
fn encoded(value: &str) -> Result<String, String> {
    let (name, text) = match value.split_once('=') {
        Some((name, text)) => (name, text),
        None if value.contains('@') => {
            return Err("option data-urlencode reads a file, which is not imported".to_owned());
        }
        None => ("", value),
    };
    let mut all = if name.is_empty() { String::new() } else { format!("{name}=") };
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            all.push(char::from(byte));
        } else {
            all.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::tests::{benign, importer, lines};

    fn request(command: &str) -> Recorded {
        let words = words(command).unwrap_or_else(|reason| panic!("{command}: {reason}"));
        let requests = requests(&words).unwrap_or_else(|reason| panic!("{command}: {reason}"));
        <[Recorded; 1]>::try_from(requests).unwrap()[0].clone()
    }

    fn headers(command: &str) -> Vec<String> {
        let headers = request(command).headers;
        headers.iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    #[test]
    fn command_of_a_browser() {
        let command = "curl 'https://shop.example/a?b=c' \\\n  -X 'PUT' \\\n  -H 'accept: text/html' \\\n  -H $'x: it\\'s \\u00e9' \\\n  --data-raw $'a=\\'\\n' --compressed ;";
        let request = request(command);
        assert_eq!((request.method.as_str(), request.target.as_str()), ("PUT", "/a?b=c"));
        assert_eq!(request.body, b"a='\n");
        assert_eq!(
            headers(command),
            [
                "Host: shop.example",
                "User-Agent: curl/8",
                "Accept-Encoding: gzip, deflate",
                "Content-Type: application/x-www-form-urlencoded",
                "accept: text/html",
                "x: it's é"
            ]
        );
    }

    #[test]
    fn options_of_curl() {
        let line = |command: &str| {
            let request = request(command);
            format!("{} {} {}", request.method, request.target, request.body.escape_ascii())
        };
        assert_eq!(line("curl a.example"), "GET / ");
        assert_eq!(line("curl -sSLd a=1 -d 'b=2' http://a/"), "POST / a=1&b=2");
        assert_eq!(
            line("curl -G --data-urlencode 'q=a b&c' http://a/?x=1"),
            "GET /?x=1&q=a%20b%26c "
        );
        assert_eq!(line("curl -I --url http://a/b#c"), "HEAD /b ");
        assert_eq!(line("$ curl -XDELETE http://a/b -o /dev/null | jq ."), "DELETE /b ");
        assert_eq!(
            line("/usr/bin/curl --json '{\"a\":1}' --max-time=3 http://a/"),
            "POST / {\\\"a\\\":1}"
        );
        assert_eq!(
            headers(
                "curl -u u:p -b a=1 -A me -e http://r/ -H 'Accept:' -H 'X-Empty;' -H 'Content-Length: 9' http://a/"
            ),
            [
                "Host: a",
                "Authorization: Basic dTpw",
                "Cookie: a=1",
                "User-Agent: me",
                "Referer: http://r/",
                "X-Empty: "
            ]
        );
    }

    #[test]
    fn commands_without_a_request_are_skipped_with_their_reason() {
        for (command, reason) in [
            ("wget http://a/", "not a command of curl"),
            ("curl -d @file http://a/", "option d reads a file, which is not imported"),
            ("curl -F a=b http://a/", "multipart forms (-F) are not imported"),
            ("curl --frobnicate 1 http://a/", "unknown option frobnicate"),
            ("curl -Z http://a/", "unknown option -Z"),
            ("curl -s", "no URL"),
            ("curl http://a/ -H", "option -H without a value"),
            ("curl ftp://a/", "the URL is not of http or https"),
            ("curl 'http://a/", "a quote is not closed"),
            ("curl http://a/ && curl http://b/", "several commands in one line"),
        ] {
            let found = words(command).and_then(|words| requests(&words)).unwrap_err();
            assert!(found.starts_with(reason), "{command}: {found}");
        }
    }

    #[test]
    fn sets_and_ranges_of_a_url_are_requests_of_their_own() {
        let paths = |command: &str| -> Result<Vec<String>, String> {
            let found = words(command).and_then(|words| requests(&words))?;
            Ok(found
                .into_iter()
                .map(|request| format!("{}{}", request.headers[0].1, request.target))
                .collect())
        };
        for (command, expected) in [
            ("curl 'http://{a,b}/{c,d}'", &["a/c", "a/d", "b/c", "b/d"][..]),
            ("curl 'http://a/[8-11]'", &["a/8", "a/9", "a/10", "a/11"]),
            ("curl 'http://a/[08-11:2]x'", &["a/08x", "a/10x"]),
            ("curl 'http://a/[a-e:2]'", &["a/a", "a/c", "a/e"]),
            ("curl 'http://a/?q={,é}'", &["a/?q=", "a/?q=é"]),
            ("curl 'http://a/' 'http://b/{1,2}'", &["a/", "b/1", "b/2"]),
            ("curl -g 'http://a/{b,c}[1-2]'", &["a/{b,c}[1-2]"]),
            (r"curl 'http://a/\{b\}\[1\]\x'", &[r"a/{b}[1]\x"]),
            ("curl 'http://[::1]:80/{a}'", &["[::1]:80/a"]),
        ] {
            assert_eq!(paths(command).unwrap(), expected, "{command}");
        }
        for (command, reason) in [
            ("curl 'http://a/{b'", "a brace of the URL is not closed"),
            ("curl 'http://a/[1-2'", "a bracket of the URL is not closed"),
            ("curl 'http://a/?q[]=1'", "invalid range []"),
            ("curl 'http://a/[2-1]'", "invalid range [2-1]"),
            ("curl 'http://a/[1-9:0]'", "invalid range [1-9:0]"),
            ("curl 'http://a/[1-18446744073709551615]'", "the URL stands for more than 10000"),
            ("curl 'http://a/[1-200][1-200]'", "the URL stands for more than 10000"),
        ] {
            assert_eq!(paths(command).unwrap_err(), reason, "{command}");
        }
    }

    #[test]
    fn file_has_one_command_after_another() {
        let text = "# shop\ncurl http://a/1 http://a/2\n\ncurl 'http://a/3' \\\n  -d 'x\ny'\ncurl -F a=b http://a/\ncurl http://a/4 --next -I http://a/5\n";
        let mut importer = importer();
        import(text, "c.sh", &benign(), &mut importer);
        let paths: Vec<String> = lines(&importer)[1..]
            .iter()
            .map(|line| {
                line.split(r#""path":""#).nth(1).unwrap().split('"').next().unwrap().to_owned()
            })
            .collect();
        assert_eq!(paths, ["/1", "/2", "/3", "/4", "/5"]);
        let skipped: Vec<&str> =
            importer.skipped().values().map(|one| one.first.as_str()).collect();
        assert_eq!(skipped, ["c.sh:7:1: curl -F a=b http://a/\\n"]);
    }
}
