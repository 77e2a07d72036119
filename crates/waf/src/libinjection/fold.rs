//! Folding: reduces the tokens of a value to the first five that matter.
//!
//! An expression becomes its first operand (`1 + 2, 'a'` is `1`), words that form a keyword are merged
//! (`GROUP BY`), and prefixes that do not change an expression are dropped. The order of the rules
//! decides, so it is libinjection's.

use super::table::{KEYWORD_MAX, Kind, keyword};
use super::token::{Token, Tokenizer};

/// Tokens of a fingerprint.
pub(super) const MAX: usize = 5;

/// Folded tokens of a value.
pub(super) struct Folded<'a> {
    tokens: [Token<'a>; MAX + 3],
    length: usize,
}

impl<'a> Folded<'a> {
    pub(super) fn tokens(&self) -> &[Token<'a>] {
        &self.tokens[..self.length]
    }

    pub(super) fn tokens_mut(&mut self) -> &mut [Token<'a>] {
        &mut self.tokens[..self.length]
    }
}

/// Decision of a rule.
enum FoldStep {
    /// Something changed: start again from the current position.
    Again,
    /// No rule applies.
    Next,
    /// The tokens up to that number are the result.
    Stop(usize),
}

struct Folder<'t, 'a> {
    tokenizer: &'t mut Tokenizer<'a>,
    tokens: [Token<'a>; MAX + 3],
    /// Tokens held.
    held: usize,
    /// First token that the rules look at.
    left: usize,
    more: bool,
    /// The last token read if it was a comment.
    last_comment: Option<Token<'a>>,
}

pub(super) fn fold<'a>(tokenizer: &mut Tokenizer<'a>) -> Folded<'a> {
    let empty = Token::new(Kind::Unknown, &[]);
    let mut folder = Folder {
        tokenizer,
        tokens: [empty; MAX + 3],
        held: 0,
        left: 0,
        more: true,
        last_comment: None,
    };
    let length = folder.run();
    Folded { tokens: folder.tokens, length }
}

fn is_one_of(kind: Kind, kinds: &[Kind]) -> bool {
    kinds.contains(&kind)
}

impl<'a> Folder<'_, 'a> {
    fn run(&mut self) -> usize {
        // Comments, opening parentheses, types and unary operators at the start change nothing.
        loop {
            let Some(token) = self.tokenizer.next() else { return 0 };
            self.tokens[0] = token;
            let skipped =
                is_one_of(token.kind, &[Kind::Comment, Kind::LeftParenthesis, Kind::SqlType]);
            if !skipped && !token.is_unary_operator() {
                break;
            }
        }
        self.held = 1;
        loop {
            self.fold_five();
            if !self.more || self.left >= MAX {
                self.left = self.held;
                break;
            }
            if !self.read(2) {
                continue;
            }
            match self.fold_two() {
                FoldStep::Again => continue,
                FoldStep::Stop(length) => return length,
                FoldStep::Next => {}
            }
            if !self.read(3) {
                continue;
            }
            if let FoldStep::Again = self.fold_three() {
                continue;
            }
            // The leftmost token stays as it is.
            self.left += 1;
        }
        if self.left < MAX
            && let Some(comment) = self.last_comment
        {
            self.tokens[self.left] = comment;
            self.left += 1;
        }
        self.left.min(MAX)
    }

    /// Reads until there are `count` tokens from `left` on. False if there are not that many.
    fn read(&mut self, count: usize) -> bool {
        while self.more && self.held <= MAX && self.held - self.left < count {
            match self.tokenizer.next() {
                Some(token) if token.kind == Kind::Comment => self.last_comment = Some(token),
                Some(token) => {
                    self.last_comment = None;
                    self.tokens[self.held] = token;
                    self.held += 1;
                }
                None => self.more = false,
            }
        }
        let enough = self.held - self.left >= count;
        if !enough {
            self.left = self.held;
        }
        enough
    }

    /// Drops tokens at the end and starts over with the first one.
    fn drop_and_restart(&mut self, count: usize) -> FoldStep {
        self.held -= count;
        self.left = 0;
        FoldStep::Again
    }

    /// Drops one token at the end and steps back by one.
    fn drop_and_step_back(&mut self) -> FoldStep {
        self.held -= 1;
        self.left = self.left.saturating_sub(1);
        FoldStep::Again
    }

    /// With five tokens, expressions in parentheses are seen as a whole.
    fn fold_five(&mut self) {
        use Kind::{Bareword, Comma, LeftParenthesis, Number, Operator, RightParenthesis};
        if self.held < MAX {
            return;
        }
        let kinds = [0, 1, 2, 3, 4].map(|i: usize| self.tokens[i].kind);
        let folds = matches!(
            kinds,
            [Number, Operator | Comma, LeftParenthesis, Number, RightParenthesis]
                | [Bareword, Operator, LeftParenthesis, Bareword | Number, RightParenthesis]
                | [Number, RightParenthesis, Comma, LeftParenthesis, Number]
                | [Bareword, RightParenthesis, Operator, LeftParenthesis, Bareword]
        );
        if folds {
            if self.held > MAX {
                self.tokens[1] = self.tokens[MAX];
                self.held = 2;
            } else {
                self.held = 1;
            }
            self.left = 0;
        }
    }

    fn fold_two(&mut self) -> FoldStep {
        use Kind::{
            Backslash, Bareword, Collate, Function, Keyword, LeftBrace, LeftParenthesis,
            LogicOperator, Number, Operator, RightBrace, RightParenthesis, Semicolon, SqlType,
            String, Variable,
        };
        let left = self.left;
        let (a, b) = (self.tokens[left], self.tokens[left + 1]);
        match (a.kind, b.kind) {
            (String, String) | (Semicolon, Semicolon) => {
                self.held -= 1;
                return FoldStep::Again;
            }
            (Operator | LogicOperator, _) if b.kind == SqlType || b.is_unary_operator() => {
                return self.drop_and_restart(1);
            }
            (LeftParenthesis, _) if b.is_unary_operator() => return self.drop_and_step_back(),
            _ => {}
        }
        if let Some(merged) = merge(&a, &b) {
            self.tokens[left] = merged;
            return self.drop_and_step_back();
        }
        match (a.kind, b.kind) {
            // IF is a statement in Transact-SQL.
            (Semicolon, Function)
                if b.text.len() >= 2 && b.text[..2].eq_ignore_ascii_case(b"IF") =>
            {
                self.tokens[left + 1].kind = Kind::Tsql;
                return FoldStep::Again;
            }
            (Bareword | Variable, LeftParenthesis) if names_function(&a) => {
                self.tokens[left].kind = Function;
                return FoldStep::Again;
            }
            (Keyword, _) if a.is("IN") || a.is("NOT IN") => {
                self.tokens[left].kind =
                    if b.kind == LeftParenthesis { Operator } else { Bareword };
                return FoldStep::Again;
            }
            (Operator, _) if a.is("LIKE") || a.is("NOT LIKE") => {
                // The other rules then ignore the second token.
                let is_call = b.kind == LeftParenthesis;
                self.tokens[left].kind = if is_call { Function } else { Operator };
            }
            (
                SqlType,
                Bareword | Number | SqlType | LeftParenthesis | Function | Variable | String,
            ) => {
                self.tokens[left] = b;
                return self.drop_and_restart(1);
            }
            // The table cannot hold all collation names, but they always contain an underscore.
            (Collate, Bareword) if b.text.contains(&b'_') => {
                self.tokens[left + 1].kind = SqlType;
                self.left = 0;
            }
            (Backslash, _) => {
                if b.is_arithmetic_operator() {
                    // Transact-SQL reads `\%1` as `0 % 1`.
                    self.tokens[left].kind = Number;
                    self.left = 0;
                    return FoldStep::Again;
                }
                self.tokens[left] = b;
                return self.drop_and_restart(1);
            }
            (LeftParenthesis, LeftParenthesis) | (RightParenthesis, RightParenthesis) => {
                return self.drop_and_restart(1);
            }
            (LeftBrace, Bareword) => {
                if b.text.is_empty() {
                    // {``.``.id} is valid in MySQL alone.
                    self.tokens[left + 1].kind = Kind::Evil;
                    return FoldStep::Stop(left + 2);
                }
                // `{name expression}` of ODBC.
                return self.drop_and_restart(2);
            }
            (_, RightBrace) => return self.drop_and_restart(1),
            _ => {}
        }
        FoldStep::Next
    }

    fn fold_three(&mut self) -> FoldStep {
        use Kind::{
            Bareword, Comma, Dot, Expression, Function, Group, Keyword, LeftParenthesis,
            LogicOperator, Number, Operator, RightParenthesis, SqlType, String, Variable,
        };
        let left = self.left;
        let [a, b, c] = [0, 1, 2].map(|i: usize| self.tokens[left + i]);
        let kinds = (a.kind, b.kind, c.kind);
        // An operation on values is its first value.
        let operation = match kinds {
            (Operator, middle, Operator) => middle != LeftParenthesis,
            (Bareword | Number | Variable | String, Operator, SqlType) => b.text == b"::",
            _ => matches!(
                kinds,
                (Number | Bareword, Operator, Number | Bareword)
                    | (LogicOperator, _, LogicOperator)
                    | (Variable, Operator, Variable | Number | Bareword)
                    | (
                        Bareword | Number | String | Variable,
                        Comma,
                        Number | Bareword | String | Variable
                    )
                    | (Bareword, Dot, Bareword)
            ),
        };
        if operation {
            return self.drop_and_restart(2);
        }
        let unary = b.is_unary_operator();
        if unary && matches!(kinds, (Comma, _, Number | Bareword | Variable | String)) {
            // `1, -1` becomes `1, 1`; the comma folds in the next pass.
            self.tokens[left + 1] = c;
            return self.drop_and_restart(3);
        }
        let dropped = match kinds {
            (Expression, Dot, Bareword) => true,
            (Expression | Group | Comma, _, LeftParenthesis)
            | (Keyword | Expression | Group, _, Number | Bareword | Variable | String | Function)
            | (Comma, _, Function) => unary,
            _ => false,
        };
        if dropped {
            self.tokens[left + 1] = c;
            return self.drop_and_restart(1);
        }
        // USER() takes no argument: with one, it is a name.
        if matches!(kinds, (Function, LeftParenthesis, _))
            && c.kind != RightParenthesis
            && a.is("USER")
        {
            self.tokens[left].kind = Bareword;
        }
        FoldStep::Next
    }
}

/// Column names that are functions before a parenthesis.
fn names_function(token: &Token) -> bool {
    const NAMES: [&str; 11] = [
        "USER_ID",
        "USER_NAME",
        "DATABASE",
        "PASSWORD",
        "USER",
        "CURRENT_USER",
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "LOCALTIME",
        "LOCALTIMESTAMP",
    ];
    NAMES.iter().any(|name| token.is(name))
}

/// Merges two words that are a keyword together.
fn merge<'a>(a: &Token<'a>, b: &Token<'a>) -> Option<Token<'a>> {
    const WORDS: [Kind; 8] = [
        Kind::Keyword,
        Kind::Bareword,
        Kind::Operator,
        Kind::Union,
        Kind::Function,
        Kind::Expression,
        Kind::Tsql,
        Kind::SqlType,
    ];
    let words =
        is_one_of(a.kind, &WORDS) && (b.kind == Kind::LogicOperator || is_one_of(b.kind, &WORDS));
    let length = a.text.len() + 1 + b.text.len();
    if !words || length > KEYWORD_MAX {
        return None;
    }
    let mut buffer = [b' '; KEYWORD_MAX];
    buffer[..a.text.len()].copy_from_slice(a.text);
    buffer[a.text.len() + 1..length].copy_from_slice(b.text);
    let (kind, text) = keyword(&buffer[..length])?;
    Some(Token { kind, text, ..*a })
}
