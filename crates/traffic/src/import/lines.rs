//! Lines of text, as of a corpus of sentences: each as an argument of a GET and as a field of a form.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use super::{Importer, Label, Recorded};

/// Longer lines have no place in a target: servers limit request lines to 8 KiB.
const TARGET_BYTES_MAX: usize = 4096;

/// As of a browser, so that a firewall judges the text alone.
const HEADERS: [(&str, &str); 3] = [
    ("Host", "localhost"),
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    ("Accept", "*/*"),
];

/// Adds two requests for each line that is not blank. The names of their templates start with `name`. If all lines start with
/// a number and a tab, as in the corpora of Leipzig, the text begins behind them.
pub fn import(text: &[u8], file: &str, name: &str, label: &Label, importer: &mut Importer) {
    let header = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let headers: Vec<_> = HEADERS.into_iter().map(header).collect();
    let named = |part: &str| Label { name: Some(format!("{name} {part}")), ..label.clone() };
    let (argument, body) = (named("argument"), named("body"));
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty());
    let is_numbered = lines.clone().all(|(line, _)| behind_number(line).is_some());
    for (line, number) in lines {
        let line = behind_number(line).filter(|_| is_numbered).unwrap_or(line);
        let place = format!("{file}:{number}:1");
        let pair = format!("text={}", percent_encode(line, NON_ALPHANUMERIC));
        let target = format!("/?{pair}");
        if target.len() <= TARGET_BYTES_MAX {
            let (method, headers) = ("GET".to_owned(), headers.clone());
            let get = Recorded { method, target, headers, ..Recorded::default() };
            importer.add(get, &argument, &place);
        } else {
            let reason = format!(
                "the line has more than {TARGET_BYTES_MAX} bytes as an argument; sent as a body only"
            );
            importer.skip(&reason, &place, &String::from_utf8_lossy(line));
        }
        let post = Recorded {
            method: "POST".to_owned(),
            target: "/".to_owned(),
            headers: headers.iter().cloned().chain([header(form)]).collect(),
            body: pair.into_bytes(),
            ..Recorded::default()
        };
        importer.add(post, &body, &place);
    }
}

/// Returns the text behind a number and a tab.
fn behind_number(line: &[u8]) -> Option<&[u8]> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    line[digits..].strip_prefix(b"\t").filter(|text| digits > 0 && !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{benign, importer, lines};
    use super::*;

    #[test]
    fn each_line_is_an_argument_and_a_body() {
        let mut importer = importer();
        import(b"a b&c\r\n\n  \n\xff'\n", "en.txt", "en", &benign(), &mut importer);
        let written = lines(&importer);
        assert_eq!(written.len(), 1 + 4, "{written:#?}");
        assert!(
            written[0].contains(r#"{"name":"en argument","class":"benign"}"#),
            "{}",
            written[0]
        );
        assert!(written[1].contains(r#""path":"/?text=a%20b%26c""#), "{}", written[1]);
        assert!(written[2].contains(r#""body":"text=a%20b%26c""#), "{}", written[2]);
        assert!(written[3].contains(r#""path":"/?text=%FF%27""#), "{}", written[3]);
        assert!(written[4].contains(r#""template":"en body""#), "{}", written[4]);
    }

    #[test]
    fn numbers_of_all_lines_are_not_a_part_of_the_text() {
        let paths = |text: &str| -> Vec<String> {
            let mut importer = importer();
            import(text.as_bytes(), "en.txt", "en", &benign(), &mut importer);
            lines(&importer)[1..]
                .iter()
                .filter_map(|line| Some(line.split_once("?text=")?.1.split_once('"')?.0.to_owned()))
                .collect()
        };
        assert_eq!(paths("1\ta b\n\n20\tc\n"), ["a%20b", "c"]);
        assert_eq!(paths("1\ta\nb\n"), ["1%09a", "b"]);
        assert_eq!(paths("\ta\n"), ["a"]);
    }

    #[test]
    fn long_line_is_sent_as_a_body_only() {
        let mut importer = importer();
        import(&b"a ".repeat(2_000), "en.txt", "en", &benign(), &mut importer);
        assert_eq!(importer.distinct_requests(), 1);
        let (reason, skipped) = importer.skipped().first_key_value().unwrap();
        assert!(reason.ends_with("sent as a body only"), "{reason}");
        assert!(skipped.first.starts_with("en.txt:1:1: a a"), "{}", skipped.first);
    }
}
