//! SQL tokens as libinjection reads them: no particular dialect, and no errors.

use memchr::{memchr, memmem};

use super::table::{KEYWORD_MAX, Kind, keyword};

/// Length at which the text of a token is cut.
const TEXT_MAX: usize = KEYWORD_MAX;

#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    /// Without quotes, at most 31 bytes.
    pub(super) text: &'a [u8],
    /// Quote at the start of a string, 0 without one.
    pub(super) open: u8,
    /// Quote at the end of a string, 0 without one.
    pub(super) close: u8,
}

impl<'a> Token<'a> {
    pub(super) fn new(kind: Kind, text: &'a [u8]) -> Self {
        Self { kind, text: &text[..text.len().min(TEXT_MAX)], open: 0, close: 0 }
    }

    fn quoted(text: &'a [u8], open: u8, close: u8) -> Self {
        Self { open, close, ..Self::new(Kind::String, text) }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word.as_bytes())
    }

    pub(super) fn is_unary_operator(&self) -> bool {
        self.kind == Kind::Operator
            && match self.text {
                [b'+' | b'-' | b'!' | b'~'] | [b'!', b'!'] => true,
                text => text.len() == 3 && self.is("NOT"),
            }
    }

    pub(super) fn is_arithmetic_operator(&self) -> bool {
        self.kind == Kind::Operator && matches!(self.text, [b'*' | b'/' | b'-' | b'+' | b'%'])
    }
}

/// Place that an injected value takes in a statement, and the dialect to read it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    /// Quote before the value in the statement, 0 for none.
    pub(super) quote: u8,
    /// `#` starts a comment, and `--` only before whitespace.
    pub(super) mysql: bool,
}

/// Reader of tokens.
pub(super) struct Tokenizer<'a> {
    input: &'a [u8],
    at: usize,
    context: Context,
    pub(super) tokens: usize,
    /// `MySQL` may read the value differently: it contains `#`, or `--` not followed by whitespace.
    pub(super) mysql_comment: bool,
}

/// Kind of token that a byte starts.
#[derive(Clone, Copy)]
enum Start {
    Backslash,
    Backtick,
    Bracket,
    BitString,
    Dash,
    Dollar,
    EscapeString,
    Hash,
    HexString,
    NationalString,
    Number,
    Operator,
    OracleString,
    Other,
    Pair,
    Quote,
    Single(Kind),
    Slash,
    UnicodeString,
    Variable,
    White,
    Word,
}

const STARTS: [Start; 256] = {
    let mut starts = [Start::Word; 256];
    let mut byte = 0;
    while byte < 256 {
        starts[byte] = match byte as u8 {
            0..=b' ' | 0x7f | 0xa0 => Start::White,
            b'!' | b'&' | b'*' | b':' | b'<' | b'=' | b'>' | b'|' => Start::Pair,
            b'"' | b'\'' => Start::Quote,
            b'#' => Start::Hash,
            b'$' => Start::Dollar,
            b'%' | b'+' | b'^' | b'~' => Start::Operator,
            b'(' => Start::Single(Kind::LeftParenthesis),
            b')' => Start::Single(Kind::RightParenthesis),
            b',' => Start::Single(Kind::Comma),
            b';' => Start::Single(Kind::Semicolon),
            b'{' => Start::Single(Kind::LeftBrace),
            b'}' => Start::Single(Kind::RightBrace),
            b'-' => Start::Dash,
            b'.' | b'0'..=b'9' => Start::Number,
            b'/' => Start::Slash,
            b'?' | b']' => Start::Other,
            b'@' => Start::Variable,
            b'B' | b'b' => Start::BitString,
            b'E' | b'e' => Start::EscapeString,
            b'N' | b'n' => Start::NationalString,
            b'Q' | b'q' => Start::OracleString,
            b'U' | b'u' => Start::UnicodeString,
            b'X' | b'x' => Start::HexString,
            b'[' => Start::Bracket,
            b'\\' => Start::Backslash,
            b'`' => Start::Backtick,
            _ => Start::Word,
        };
        byte += 1;
    }
    starts
};

/// Set of bytes as a table: one lookup per byte for any set.
const fn table(bytes: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut i = 0;
    while i < bytes.len() {
        set[bytes[i] as usize] = true;
        i += 1;
    }
    set
}

const WORD_END: [bool; 256] = table(b" []{}<>:\\?=@!#~+-*/&|^%(),';\t\n\x0b\x0c\r\"\xa0\0");
const VARIABLE_END: [bool; 256] = table(b" <>:\\?=@!#~+-*/&|^%(),';\t\n\x0b\x0c\r'`\"\0");

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0xa0 | 0)
}

/// Number of bytes at the start that satisfy `wanted`, zero bytes included: libinjection looks them
/// up in a C string, whose end they equal.
fn run(input: &[u8], wanted: impl Fn(&u8) -> bool) -> usize {
    input.iter().position(|byte| *byte != 0 && !wanted(byte)).unwrap_or(input.len())
}

impl<'a> Tokenizer<'a> {
    pub(super) fn new(input: &'a [u8], context: Context) -> Self {
        Self { input, at: 0, context, tokens: 0, mysql_comment: false }
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        if self.at == 0 && self.context.quote != 0 && !self.input.is_empty() {
            self.tokens += 1;
            let token = self.string(self.context.quote, 0);
            return Some(token);
        }
        loop {
            let byte = *self.input.get(self.at)?;
            let token = match STARTS[usize::from(byte)] {
                Start::White => {
                    self.at += 1;
                    continue;
                }
                Start::Word => self.word(),
                Start::Number => self.number(),
                Start::Single(kind) => self.take(kind, 1),
                Start::Operator => self.take(Kind::Operator, 1),
                Start::Other => self.take(Kind::Unknown, 1),
                Start::Pair => self.operator(),
                Start::Quote => self.string(byte, 1),
                Start::Backtick => self.backtick(),
                Start::Dash => self.dash(),
                Start::Hash => self.hash(),
                Start::Slash => self.slash(),
                Start::Backslash if self.peek(1) == Some(b'N') => self.take(Kind::Number, 2),
                Start::Backslash => self.take(Kind::Backslash, 1),
                Start::Variable => self.variable(),
                Start::Dollar => self.dollar(),
                Start::Bracket => self.bracket(),
                Start::BitString => self.digit_string(|byte| matches!(byte, b'0' | b'1')),
                Start::HexString => self.digit_string(u8::is_ascii_hexdigit),
                Start::EscapeString => self.prefixed_string(),
                Start::NationalString if self.peek(1) == Some(b'\'') => self.prefixed_string(),
                Start::NationalString => self.oracle_string(1),
                Start::OracleString => self.oracle_string(0),
                Start::UnicodeString => self.unicode_string(),
            };
            self.tokens += 1;
            return Some(token);
        }
    }

    fn peek(&self, offset: usize) -> Option<u8> {
        self.input.get(self.at + offset).copied()
    }

    /// Takes a token of that length.
    fn take(&mut self, kind: Kind, length: usize) -> Token<'a> {
        let token = Token::new(kind, &self.input[self.at..self.at + length]);
        self.at += length;
        token
    }

    /// Takes a token up to the end of the input.
    fn take_rest(&mut self, kind: Kind) -> Token<'a> {
        self.take(kind, self.input.len() - self.at)
    }

    fn operator(&mut self) -> Token<'a> {
        let rest = &self.input[self.at..];
        if rest.starts_with(b"<=>") {
            return self.take(Kind::Operator, 3);
        }
        match rest.get(..2).and_then(keyword) {
            Some((kind, _)) => self.take(kind, 2),
            None if rest[0] == b':' && rest.len() > 1 => self.take(Kind::Colon, 1),
            None => self.take(Kind::Operator, 1),
        }
    }

    /// Takes a comment up to the end of the line.
    fn line_comment(&mut self) -> Token<'a> {
        match memchr(b'\n', &self.input[self.at..]) {
            Some(length) => {
                let token = self.take(Kind::Comment, length);
                self.at += 1;
                token
            }
            None => self.take_rest(Kind::Comment),
        }
    }

    fn hash(&mut self) -> Token<'a> {
        self.mysql_comment = true;
        if self.context.mysql { self.line_comment() } else { self.take(Kind::Operator, 1) }
    }

    fn dash(&mut self) -> Token<'a> {
        match (self.peek(1), self.peek(2)) {
            (Some(b'-'), None) => self.line_comment(),
            (Some(b'-'), Some(byte)) if is_white(byte) => self.line_comment(),
            (Some(b'-'), _) if !self.context.mysql => {
                self.mysql_comment = true;
                self.line_comment()
            }
            _ => self.take(Kind::Operator, 1),
        }
    }

    fn slash(&mut self) -> Token<'a> {
        if self.peek(1) != Some(b'*') {
            return self.take(Kind::Operator, 1);
        }
        let inner = &self.input[self.at + 2..];
        let end = memmem::find(inner, b"*/");
        // A comment within the comment, or one that MySQL executes.
        let nested = end.is_some_and(|end| memmem::find(&inner[..=end], b"/*").is_some());
        let kind = if nested || inner.first() == Some(&b'!') { Kind::Evil } else { Kind::Comment };
        match end {
            Some(end) => self.take(kind, end + 4),
            None => self.take_rest(kind),
        }
    }

    /// Takes a string that starts `offset` bytes from here and ends at `quote`, which a backslash
    /// or a second quote escapes.
    fn string(&mut self, quote: u8, offset: usize) -> Token<'a> {
        let text = &self.input[self.at + offset..];
        let open = if offset > 0 { quote } else { 0 };
        let mut from = 0;
        loop {
            let Some(found) = text.get(from..).and_then(|rest| memchr(quote, rest)) else {
                self.at = self.input.len();
                return Token::quoted(text, open, 0);
            };
            let end = from + found;
            let backslashes = text[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
            if backslashes % 2 == 1 {
                from = end + 1;
            } else if text.get(end + 1) == Some(&quote) {
                from = end + 2;
            } else {
                self.at += offset + end + 1;
                return Token::quoted(&text[..end], open, quote);
            }
        }
    }

    /// `e'..'` and `n'..'`.
    fn prefixed_string(&mut self) -> Token<'a> {
        if self.peek(2).is_some() && self.peek(1) == Some(b'\'') {
            self.string(b'\'', 2)
        } else {
            self.word()
        }
    }

    /// `u&'..'`.
    fn unicode_string(&mut self) -> Token<'a> {
        if !self.input[self.at + 1..].starts_with(b"&'") {
            return self.word();
        }
        self.at += 2;
        let mut token = self.string(b'\'', 1);
        token.open = b'u';
        if token.close == b'\'' {
            token.close = b'u';
        }
        token
    }

    /// `q'(..)'` and `nq'(..)'`.
    fn oracle_string(&mut self, offset: usize) -> Token<'a> {
        let (Some(b'q' | b'Q'), Some(b'\''), Some(open)) =
            (self.peek(offset), self.peek(offset + 1), self.peek(offset + 2))
        else {
            return self.word();
        };
        if !(33..=127).contains(&open) {
            return self.word();
        }
        let close = match open {
            b'(' => b')',
            b'[' => b']',
            b'{' => b'}',
            b'<' => b'>',
            other => other,
        };
        let text = &self.input[self.at + offset + 3..];
        match memmem::find(text, &[close, b'\'']) {
            Some(end) => {
                self.at += offset + 3 + end + 2;
                Token::quoted(&text[..end], b'q', b'q')
            }
            None => {
                self.at = self.input.len();
                Token::quoted(text, b'q', 0)
            }
        }
    }

    /// `b'01'` and `x'ff'`.
    fn digit_string(&mut self, is_digit: impl Fn(&u8) -> bool) -> Token<'a> {
        if self.peek(1) != Some(b'\'') || self.peek(2).is_none() {
            return self.word();
        }
        let length = run(&self.input[self.at + 2..], is_digit);
        if self.peek(2 + length) == Some(b'\'') {
            self.take(Kind::Number, length + 3)
        } else {
            self.word()
        }
    }

    /// `[name]`.
    fn bracket(&mut self) -> Token<'a> {
        match memchr(b']', &self.input[self.at..]) {
            Some(end) => self.take(Kind::Bareword, end + 1),
            None => self.take_rest(Kind::Bareword),
        }
    }

    fn word(&mut self) -> Token<'a> {
        let rest = &self.input[self.at..];
        let length =
            rest.iter().position(|byte| WORD_END[usize::from(*byte)]).unwrap_or(rest.len());
        let text = &rest[..length];
        // A keyword before a dot or a backtick ends there: `SELECT.1`.
        for (end, byte) in text.iter().take(TEXT_MAX).enumerate() {
            if matches!(byte, b'.' | b'`')
                && let Some((kind, _)) = keyword(&text[..end])
                && kind != Kind::Bareword
            {
                return self.take(kind, end);
            }
        }
        let kind = keyword(text).map_or(Kind::Bareword, |(kind, _)| kind);
        self.take(kind, length)
    }

    fn backtick(&mut self) -> Token<'a> {
        let mut token = self.string(b'`', 1);
        let is_function = matches!(keyword(token.text), Some((Kind::Function, _)));
        token.kind = if is_function { Kind::Function } else { Kind::Bareword };
        token
    }

    fn variable(&mut self) -> Token<'a> {
        self.at += if self.peek(1) == Some(b'@') { 2 } else { 1 };
        match self.peek(0) {
            Some(quote @ (b'`' | b'\'' | b'"')) => {
                let token = self.string(quote, 1);
                Token { kind: Kind::Variable, ..token }
            }
            _ => {
                let rest = &self.input[self.at..];
                let length = rest
                    .iter()
                    .position(|byte| VARIABLE_END[usize::from(*byte)])
                    .unwrap_or(rest.len());
                self.take(Kind::Variable, length)
            }
        }
    }

    /// `$1.50`, `$$text$$`, `$tag$text$tag$`.
    fn dollar(&mut self) -> Token<'a> {
        let rest = &self.input[self.at + 1..];
        let amount = run(rest, |byte| matches!(byte, b'0'..=b'9' | b'.' | b','));
        match (rest, amount) {
            ([], _) => self.take(Kind::Bareword, 1),
            ([b'.', ..], 1) => self.word(),
            ([b'$', text @ ..], _) => {
                let end = memmem::find(text, b"$$");
                self.at = end.map_or(self.input.len(), |end| self.at + 2 + end + 2);
                Token::quoted(&text[..end.unwrap_or(text.len())], b'$', end.map_or(0, |_| b'$'))
            }
            (_, 0) => {
                let tag = run(rest, u8::is_ascii_alphabetic);
                if tag == 0 || rest.get(tag) != Some(&b'$') {
                    return self.take(Kind::Bareword, 1);
                }
                let mark = &self.input[self.at..self.at + tag + 2];
                let text = &rest[tag + 1..];
                let end = memmem::find(text, mark);
                self.at = end.map_or(self.input.len(), |end| self.at + end + 2 * mark.len());
                Token::quoted(&text[..end.unwrap_or(text.len())], b'$', end.map_or(0, |_| b'$'))
            }
            _ => self.take(Kind::Number, 1 + amount),
        }
    }

    fn number(&mut self) -> Token<'a> {
        let rest = &self.input[self.at..];
        let byte = |at: usize| rest.get(at).copied().unwrap_or(0);
        let radix_digits = match (byte(0), byte(1)) {
            (b'0', b'x' | b'X') => Some(run(&rest[2..], u8::is_ascii_hexdigit)),
            (b'0', b'b' | b'B') => Some(run(&rest[2..], |byte| matches!(byte, b'0' | b'1'))),
            _ => None,
        };
        match radix_digits {
            Some(0) => return self.take(Kind::Bareword, 2),
            Some(digits) => return self.take(Kind::Number, 2 + digits),
            None => {}
        }
        let digits =
            |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = digits(0);
        if byte(end) == b'.' {
            end += 1;
            end += digits(end);
            if end == 1 {
                return self.take(Kind::Dot, 1);
            }
        }
        let mut incomplete_exponent = false;
        if matches!(byte(end), b'e' | b'E') {
            end += 1;
            end += usize::from(matches!(byte(end), b'+' | b'-'));
            let exponent = digits(end);
            incomplete_exponent = exponent == 0;
            end += exponent;
        }
        // The suffix of a float in Oracle, where it cannot be the start of a word.
        if matches!(byte(end), b'd' | b'D' | b'f' | b'F') {
            let suffix = match rest.get(end + 1) {
                None | Some(b';' | b'u' | b'U') => true,
                Some(byte) => is_white(*byte),
            };
            end += usize::from(suffix);
        }
        self.take(if incomplete_exponent { Kind::Bareword } else { Kind::Number }, end)
    }
}
