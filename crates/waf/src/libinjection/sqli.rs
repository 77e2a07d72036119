//! Detection of SQL injection.

use memchr::{memchr, memmem};

use super::fold::{Folded, MAX, fold};
use super::table::{Kind, is_injection};
use super::token::{Context, Token, Tokenizer};

/// Types of the first five tokens of a value that is an SQL injection, such as `s&1c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    symbols: [u8; MAX],
    length: usize,
}

impl Fingerprint {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.symbols[..self.length]
    }

    fn of(folded: &mut [Token]) -> Self {
        // A backtick at the end that opens nothing starts a comment in PHP's drivers.
        if let [_, _, .., last] = folded
            && last.kind == Kind::Bareword
            && (last.open, last.close) == (b'`', 0)
            && last.text.is_empty()
        {
            last.kind = Kind::Comment;
        }
        let mut symbols = [0; MAX];
        if folded.iter().any(|token| token.kind == Kind::Evil) {
            symbols[0] = Kind::Evil as u8;
            return Self { symbols, length: 1 };
        }
        for (symbol, token) in symbols.iter_mut().zip(&*folded) {
            *symbol = token.kind as u8;
        }
        Self { symbols, length: folded.len().min(MAX) }
    }
}

/// Returns the fingerprint of a value that is an SQL injection: unquoted, or after a quote that the
/// statement opens before it; each in the standard dialect and, where comments may be read differently,
/// in that of `MySQL`.
pub(crate) fn detect_sqli(value: &[u8]) -> Option<Fingerprint> {
    if is_one_word(value) {
        return None;
    }
    let has = |quote: u8| memchr(quote, value).is_some();
    let standard = Context { quote: 0, mysql: false };
    try_both(value, standard)
        .or_else(|| {
            if has(b'\'') { try_both(value, Context { quote: b'\'', ..standard }) } else { None }
        })
        .or_else(|| {
            if has(b'"') {
                try_context(value, Context { quote: b'"', mysql: true }).ok()
            } else {
                None
            }
        })
}

/// True for letters, digits and underscores, which are never an injection: they are at most a number
/// and a word, with a fingerprint such as `1n`, `nn` or `1U`. The table has only `1U`, and
/// `is_exception` accepts two tokens with that fingerprint.
fn is_one_word(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn try_both(value: &[u8], context: Context) -> Option<Fingerprint> {
    match try_context(value, context) {
        Ok(fingerprint) => Some(fingerprint),
        Err(true) => try_context(value, Context { mysql: true, ..context }).ok(),
        Err(false) => None,
    }
}

/// Fails with true if `MySQL` may read the value differently.
fn try_context(value: &[u8], context: Context) -> Result<Fingerprint, bool> {
    let mut tokenizer = Tokenizer::new(value, context);
    let mut folded = fold(&mut tokenizer);
    let fingerprint = Fingerprint::of(folded.tokens_mut());
    if is_injection(fingerprint.as_bytes())
        && !is_exception(value, &fingerprint, &folded, tokenizer.tokens)
    {
        Ok(fingerprint)
    } else {
        Err(tokenizer.mysql_comment)
    }
}

/// Returns true for harmless values that have the fingerprint of an injection. `count` is the
/// number of tokens before folding.
fn is_exception(value: &[u8], fingerprint: &Fingerprint, folded: &Folded, count: usize) -> bool {
    let symbols = fingerprint.as_bytes();
    let tokens = folded.tokens();
    // Audit logs of SQL Server leave out lines with this word.
    let hides_from_log = symbols.len() > 1
        && symbols.last() == Some(&b'c')
        && memmem::find(value, b"sp_password").is_some();
    if hides_from_log {
        return false;
    }
    match symbols.len() {
        2 => is_exception_of_two(value, &tokens[0], &tokens[1], count),
        3 => match symbols {
            // `foo" + "bar` closes and opens the quotes around it.
            b"sos" | b"s&s" => {
                let (first, last) = (&tokens[0], &tokens[2]);
                !(first.open == 0 && last.close == 0 && first.close == last.open)
            }
            // `sexy and 17` is harmless, `sexy and 17 < 18` is not.
            b"s&n" | b"n&1" | b"1&1" | b"1&v" | b"1&s" => count == 3,
            [_, b'k', _] => {
                // INTO OUTFILE and INTO DUMPFILE.
                let text = tokens[1].text;
                text.len() < 5 || !text[..4].eq_ignore_ascii_case(b"INTO")
            }
            _ => false,
        },
        _ => false,
    }
}

fn is_exception_of_two(value: &[u8], first: &Token, second: &Token, count: usize) -> bool {
    let mark = second.text.first().copied().unwrap_or(0);
    match (first.kind, second.kind) {
        // A number and `union`, unless something was folded.
        (_, Kind::Union) => count == 2,
        _ if mark == b'#' => true,
        // After a word, only the comment `/* */` is suspicious.
        (Kind::Bareword, Kind::Comment) if mark != b'/' => true,
        (Kind::Number, Kind::Comment) if mark == b'/' => false,
        (Kind::Number, Kind::Comment) => {
            // `1--` and `1 --` are suspect, `1234-ABCDEFEhfhihwuefi--` is not.
            let end = first.text.len();
            let after = value.get(end).copied().unwrap_or(0);
            let next = value.get(end + 1).copied().unwrap_or(0);
            let comment_follows = matches!((after, next), (b'/', b'*') | (b'-', b'-'));
            // libinjection compares signed bytes.
            !(count > 2 || (after as i8) <= 32 || comment_follows)
        }
        // Plain text has `--` too: only a value that ends in it is suspect.
        _ => second.text.len() > 2 && mark == b'-',
    }
}
