//! Detection of SQL injection and cross-site scripting by tokens, with the verdicts of
//! libinjection.

mod fold;
mod sqli;
mod table;
mod token;
mod xss;

pub(crate) use sqli::detect_sqli;
pub(crate) use xss::detect_xss;

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(value: &[u8]) -> String {
        detect_sqli(value)
            .map_or(String::new(), |found| String::from_utf8_lossy(found.as_bytes()).into_owned())
    }

    /// Compares with libinjection of libmodsecurity 3.0.9: a line has a value in hexadecimal, 1 for
    /// an SQL injection, its fingerprint, and 1 for cross-site scripting. `WAF_INJECTION_CASES`
    /// names a further file.
    #[test]
    fn equals_recorded_verdicts_of_libinjection() {
        let mut text = include_str!("../../tests/oracle/injections.tsv").to_owned();
        if let Ok(path) = std::env::var("WAF_INJECTION_CASES") {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
        let mut different = Vec::new();
        let (mut injections, mut scripts) = (0, 0);
        for line in text.lines() {
            let columns: Vec<_> = line.split('\t').collect();
            let hex = columns[0];
            let value: Vec<u8> = (0..hex.len() / 2)
                .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
                .collect();
            let expected = if columns[1] == "1" { columns[2] } else { "" };
            let found = fingerprint(&value);
            // That version takes every `on...` for an event, not those of a list.
            let script = detect_xss(&value);
            let event = columns[3] == "1"
                && value.to_ascii_lowercase().windows(2).any(|pair| pair == b"on");
            if script != (columns[3] == "1") && !event {
                different
                    .push(format!("\"{}\": cross-site scripting {script}", value.escape_ascii()));
            }
            scripts += usize::from(script);
            injections += usize::from(!expected.is_empty());
            if found != expected {
                different.push(format!(
                    "\"{}\": `{found}`, expected `{expected}`",
                    value.escape_ascii()
                ));
            }
        }
        assert!(
            injections > 100 && scripts > 50,
            "only {injections} injections and {scripts} scripts"
        );
        assert!(
            different.is_empty(),
            "{} differ:\n{}",
            different.len(),
            different[..different.len().min(30)].join("\n")
        );
    }

    #[test]
    fn detects_textbook_injections() {
        assert_eq!(fingerprint(b"1' or '1'='1"), "s&sos");
        assert_eq!(fingerprint(b"1 UNION SELECT 2"), "1UE1");
        assert_eq!(fingerprint(b"a sentence, as people write it"), "");
        assert!(detect_xss(b"<script>alert(1)</script>"));
        assert!(detect_xss(b"x\" onerror=alert(1) \""));
        assert!(!detect_xss(b"1 < 2"));
    }
}
