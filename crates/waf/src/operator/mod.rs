//! Match functions of operators: pure functions of a value and a parsed argument.
//!
//! They decide as libmodsecurity 3.0.9 does; each function names the cases in which it differs on
//! purpose. Operators that need a service or a file of the host have no function here:
//! `fuzzyHash`, `geoLookup`, `gsbLookup`, `inspectFile`, `rbl`, `rsub`, `validateDTD`,
//! `validateHash` and `validateSchema`. `rx` and `rxGlobal` are regexes, and `noMatch` and
//! `unconditionalMatch` are constants.

pub(crate) mod encoding;
pub(crate) mod identity;
pub(crate) mod ip;
pub(crate) mod phrase;
pub(crate) mod text;

#[cfg(test)]
mod tests {
    use super::{encoding, identity, ip::IpSet, text};
    use crate::condition::NumberOperator;

    fn suffix(value: &[u8], check: fn(&[u8]) -> bool) -> bool {
        (0..value.len().saturating_sub(1)).any(|start| check(&value[start..]))
    }

    /// Compares with libmodsecurity 3.0.9: a line is a value in hexadecimal and the rules of
    /// `tests/oracle/operators.conf` that match it, by id. `WAF_OPERATOR_CASES` names a further
    /// file.
    #[test]
    fn equals_recorded_verdicts_of_libmodsecurity() {
        let addresses = IpSet::parse("10.0.0.0/8,192.168.1.1,2001:db8::/32,::1").unwrap();
        let mut different = Vec::new();
        let mut recorded = include_str!("../../tests/oracle/operators.tsv").to_owned();
        if let Ok(path) = std::env::var("WAF_OPERATOR_CASES") {
            recorded.push_str(&std::fs::read_to_string(path).unwrap());
        }
        for line in recorded.lines() {
            let (hex, expected) = line.split_once('\t').unwrap();
            let value: Vec<u8> = (0..hex.len() / 2)
                .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
                .collect();
            let value = value.as_slice();
            let verdicts = [
                (0..value.len()).any(|start| identity::valid_credit_card(&value[start..])),
                suffix(value, identity::valid_cpf),
                suffix(value, identity::valid_ssn),
                suffix(value, identity::valid_svnr),
                text::contains_word(value, b"ab"),
                encoding::invalid_utf8(value),
                encoding::invalid_url_encoding(value),
                NumberOperator::Equal.narrow(text::parse_integer(value)) == 0,
                text::parse_integer(value) >= 5,
                text::contains(value, b"aB").is_some(),
                text::within(value, b"xaBabc"),
                addresses.contains(value),
            ];
            let matched: String = (1..)
                .zip(verdicts)
                .filter(|(_, verdict)| *verdict)
                .map(|(id, _)| format!("{id} "))
                .collect();
            if matched != expected {
                different
                    .push(format!("\"{}\": {matched}, expected {expected}", value.escape_ascii()));
            }
        }
        assert!(recorded.lines().count() > 1_500);
        assert!(
            different.is_empty(),
            "{} differ:\n{}",
            different.len(),
            different[..different.len().min(40)].join("\n")
        );
    }
}
