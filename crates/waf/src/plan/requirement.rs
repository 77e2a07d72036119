//! Necessary conditions of operators: what a value must have for the operator to match it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::LazyLock;

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

use crate::condition::{Condition, TextOperator};

use super::bytes::{Bytes, frequency};

/// Necessary conditions for a match, without regard to the case of letters.
#[derive(Clone, Debug)]
pub(crate) struct Requirement {
    /// Shortest value that can match.
    pub(crate) length_min: usize,
    /// The value has a byte of each set.
    pub(crate) sets: Vec<Bytes>,
    /// The value contains one of these, in lower case.
    pub(crate) literals: Option<Vec<Literal>>,
    /// Alphabets of whose bytes alone a matching value can be made.
    possible: Alphabets,
}

/// Conditions of regexes by their text, while a rule set is loaded.
pub(crate) type Requirements = HashMap<String, Rc<Requirement>>;

/// Sets that are kept for each operator, the rarest first.
const SETS_MAX: usize = 8;
/// Literals of one operator whose bytes are looked at.
const SETS_OF_LITERALS_MAX: usize = 100;
/// Literals of one operator, and bytes of one literal.
const LITERALS_MAX: usize = 8000;
const LITERAL_LENGTH_MAX: usize = 31;
/// Literals that the combination of parts may give.
const COMBINATIONS_MAX: usize = 200;
/// Repetitions that are written out.
const REPETITIONS_MAX: u32 = 6;

/// Bytes beside letters and digits that harmless values are made of, from few to many.
const ALPHABETS: [&[u8]; 9] =
    [b"", b"_", b"_-.", b"_-. ", b"_-.,: ", b"_-./", b"_-./:?=&", b"_-.,:/ ;=+*", b"_-.,:/ ;=+*()"];
/// Bytes that transformations add without decoding anything.
const ADDED: [&[u8]; 5] = [b"", b" ", b"/", b" /", b" \0"];

/// Set of alphabets: bit `ALPHABETS.len() * added + alphabet`.
type Alphabets = u64;

/// Alphabets with each byte.
static ALPHABETS_OF: LazyLock<[Alphabets; 256]> = LazyLock::new(|| {
    let alphabets = ADDED.iter().flat_map(|added| {
        alphabets().map(|alphabet| alphabet.union(Bytes::of(added))).collect::<Vec<_>>()
    });
    let mut of = [0; 256];
    for (bit, alphabet) in alphabets.enumerate() {
        alphabet.iter().for_each(|byte| of[usize::from(byte)] |= 1 << bit);
    }
    of
});

/// Sets of bytes that harmless values are made of, from small to large.
pub(crate) fn alphabets() -> impl Iterator<Item = Bytes> {
    ALPHABETS.iter().map(|extra| alphanumeric().union(Bytes::of(extra)))
}

pub(crate) fn alphanumeric() -> Bytes {
    Bytes::range(b'0', b'9').union(Bytes::range(b'a', b'z')).union(Bytes::range(b'A', b'Z'))
}

impl Default for Requirement {
    fn default() -> Self {
        Self { length_min: 0, sets: Vec::new(), literals: None, possible: !0 }
    }
}

impl Requirement {
    /// Derives the conditions of an operator; `None` if it can match any value.
    pub(crate) fn of(condition: &Condition, requirements: &Requirements) -> Option<Rc<Self>> {
        let requirement = match condition {
            Condition::Regex(pattern) => return requirements.get(&pattern.text).cloned(),
            Condition::Phrases(set) => Self::of_literals(set.phrases()),
            Condition::Text(operator, argument) if *operator != TextOperator::Within => {
                Self::of_literals(&[argument.as_text()?.to_vec()])
            }
            Condition::ByteRange(range) => Self {
                length_min: 1,
                sets: vec![Bytes(range.allowed).complement()],
                ..Self::default()
            },
            Condition::UrlEncoding => {
                Self { length_min: 1, sets: vec![Bytes::of(b"%")], ..Self::default() }
            }
            Condition::Utf8Encoding => {
                Self { length_min: 1, sets: vec![Bytes::range(128, 255)], ..Self::default() }
            }
            Condition::SqlInjection => Self { length_min: 1, ..Self::default() },
            Condition::CrossSiteScripting => {
                Self { length_min: 2, sets: vec![Bytes::of(b"<=")], ..Self::default() }
            }
            _ => return None,
        };
        Some(Rc::new(requirement.completed()))
    }

    /// Keeps the rarest sets.
    fn completed(mut self) -> Self {
        self.sets.iter_mut().for_each(|set| *set = set.fold_case());
        self.sets.sort_by_cached_key(|set| (set.weight(), *set));
        self.sets.dedup();
        self.sets.truncate(SETS_MAX);
        self
    }

    /// Derives the conditions of a regex.
    pub(crate) fn of_structure(structure: &Hir) -> Self {
        let mut facts = Facts::of(structure);
        let literals = facts.take_literals();
        let Facts { sets, possible, .. } = facts;
        let literals = literals.filter(|found| found.iter().all(|literal| literal.len() > 1));
        Self {
            length_min: structure.properties().minimum_len().unwrap_or(0),
            sets,
            literals: literals.map(distinct),
            possible,
        }
        .completed()
    }

    fn of_literals(literals: &[Vec<u8>]) -> Self {
        let lower: Vec<Vec<u8>> =
            literals.iter().map(|literal| literal.to_ascii_lowercase()).collect();
        // Bytes that all of many phrases need are hardly ever rare.
        let alternatives: Vec<Vec<Bytes>> = if lower.len() > SETS_OF_LITERALS_MAX {
            Vec::new()
        } else {
            lower
                .iter()
                .map(|literal| literal.iter().map(|&byte| Bytes::of(&[byte])).collect())
                .collect()
        };
        Self {
            length_min: lower.iter().map(Vec::len).min().unwrap_or(0),
            sets: one_of_each(alternatives),
            literals: (lower.len() <= LITERALS_MAX
                && lower.iter().all(|literal| literal.len() > 1))
            .then(|| distinct(lower.iter().map(|literal| Literal::cut(literal)).collect())),
            possible: !0,
        }
    }

    /// True if a value made only of the bytes of an alphabet, and of the added ones, can match.
    pub(crate) fn is_possible(&self, alphabet: usize, adds: Bytes) -> bool {
        let added = ADDED.iter().position(|added| Bytes::of(added) == adds);
        added.is_none_or(|added| self.possible >> (ALPHABETS.len() * added + alphabet) & 1 == 1)
    }
}

fn distinct(mut literals: Vec<Literal>) -> Vec<Literal> {
    literals.sort_unstable();
    literals.dedup();
    literals
}

/// Text of a few bytes, without an allocation: a rule set has a hundred thousand while it is loaded.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Literal {
    bytes: [u8; LITERAL_LENGTH_MAX],
    length: u8,
}

impl Literal {
    /// The text, or its first bytes if it is too long.
    pub(crate) fn cut(text: &[u8]) -> Self {
        let length = text.len().min(LITERAL_LENGTH_MAX);
        let mut literal = Self { length: length as u8, ..Self::default() };
        literal.bytes[..length].copy_from_slice(&text[..length]);
        literal
    }

    /// The two texts one after the other, if they fit.
    fn with(mut self, tail: &Self) -> Option<Self> {
        let (start, end) = (self.len(), self.len() + tail.len());
        self.bytes.get_mut(start..end)?.copy_from_slice(tail);
        self.length = end as u8;
        Some(self)
    }
}

impl Deref for Literal {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

/// Properties of every match of a part of a regex.
struct Facts {
    /// All texts that the part matches, in lower case, if there are few.
    exact: Option<Vec<Literal>>,
    /// Texts one of which is at the start, and one at the end, of what a repetition matches.
    repeated: Option<Vec<Literal>>,
    /// Literals one of which every match contains, in lower case; not given for a part with exact
    /// texts, which are its literals.
    literals: Option<Vec<Literal>>,
    /// Sets of each of which a match contains a byte.
    sets: Vec<Bytes>,
    possible: Alphabets,
}

impl Facts {
    fn of(structure: &Hir) -> Self {
        match structure.kind() {
            HirKind::Empty | HirKind::Look(_) => {
                Self::of_exact(vec![Literal::default()], Vec::new(), !0)
            }
            HirKind::Literal(literal) => {
                let mut sets: Vec<Bytes> =
                    literal.0.iter().map(|&byte| Bytes::of(&[byte]).fold_case()).collect();
                sets.sort_unstable();
                sets.dedup();
                let possible =
                    literal.0.iter().fold(!0, |all, &byte| all & ALPHABETS_OF[usize::from(byte)]);
                let text = literal.0.to_ascii_lowercase();
                if text.len() > LITERAL_LENGTH_MAX {
                    let literals = Some(vec![Literal::cut(&text)]);
                    return Self { exact: None, repeated: None, literals, sets, possible };
                }
                Self::of_exact(vec![Literal::cut(&text)], sets, possible)
            }
            HirKind::Class(class) => Self::of_class(class_bytes(class)),
            HirKind::Repetition(repetition) => Self::of_repetition(repetition),
            HirKind::Capture(capture) => Self { repeated: None, ..Self::of(&capture.sub) },
            HirKind::Concat(parts) => Self::of_sequence(parts.iter().map(Self::of).collect()),
            HirKind::Alternation(parts) => {
                Self::of_alternatives(parts.iter().map(Self::of).collect())
            }
        }
    }

    fn of_exact(exact: Vec<Literal>, sets: Vec<Bytes>, possible: Alphabets) -> Self {
        Self { exact: Some(exact), repeated: None, literals: None, sets, possible }
    }

    /// The literals, or the exact texts.
    fn take_literals(&mut self) -> Option<Vec<Literal>> {
        let exact = self.exact.take().filter(|found| are_useful(found));
        exact.or(self.literals.take())
    }

    fn of_class(class: Bytes) -> Self {
        let possible = class.iter().fold(0, |some, byte| some | ALPHABETS_OF[usize::from(byte)]);
        let mut bytes: Vec<u8> = class.iter().map(|byte| byte.to_ascii_lowercase()).collect();
        bytes.sort_unstable();
        bytes.dedup();
        let sets = vec![class.fold_case()];
        if bytes.is_empty() || bytes.len() > 12 {
            return Self { exact: None, repeated: None, literals: None, sets, possible };
        }
        Self::of_exact(bytes.iter().map(|&byte| Literal::cut(&[byte])).collect(), sets, possible)
    }

    fn of_repetition(repetition: &Repetition) -> Self {
        let optional = repetition.min == 0 && repetition.max == Some(1);
        let bounded = repetition.sub.properties().maximum_len().is_some();
        if repetition.min == 0 && !(optional && bounded) {
            // Nothing is required, and there are too many texts to list them.
            return Self {
                exact: None,
                repeated: None,
                literals: None,
                sets: Vec::new(),
                possible: !0,
            };
        }
        let mut sub = Self::of(&repetition.sub);
        let exact = sub.exact.as_ref().and_then(|texts| match (repetition.min, repetition.max) {
            (min, Some(max)) if min == max && min <= REPETITIONS_MAX => power(texts, min),
            (0, Some(1)) if texts.len() <= 12 => {
                Some(texts.iter().copied().chain([Literal::default()]).collect())
            }
            _ => None,
        });
        if repetition.min == 0 {
            return Self { exact, repeated: None, literals: None, sets: Vec::new(), possible: !0 };
        }
        let count = repetition.min.min(REPETITIONS_MAX);
        let repeated = sub.exact.as_ref().and_then(|texts| power(texts, count));
        let literals =
            rarer(sub.take_literals(), repeated.clone().filter(|found| are_useful(found)));
        Self { exact, repeated, literals, ..sub }
    }

    fn of_sequence(parts: Vec<Self>) -> Self {
        let is_exact = parts.iter().all(|part| part.exact.is_some());
        let exact = is_exact.then_some(()).and_then(|()| {
            let mut parts = parts.iter().filter_map(|part| part.exact.as_ref());
            parts.try_fold(vec![Literal::default()], |all, exact| product(&all, exact))
        });
        let possible = parts.iter().fold(!0, |all, part| all & part.possible);
        let mut sets: Vec<Bytes> = parts.iter().flat_map(|part| &part.sets).copied().collect();
        sets.sort_unstable();
        sets.dedup();
        Self { exact, repeated: None, literals: literals_of_sequence(parts), sets, possible }
    }

    fn of_alternatives(parts: Vec<Self>) -> Self {
        let exact = parts.iter().try_fold(Vec::new(), |mut all, part| {
            all.extend_from_slice(part.exact.as_ref()?);
            (all.len() <= COMBINATIONS_MAX).then_some(all)
        });
        let possible = parts.iter().fold(0, |some, part| some | part.possible);
        let mut sets = Vec::with_capacity(parts.len());
        let mut literals = Some(Vec::new());
        for mut part in parts {
            literals = match (literals, part.take_literals()) {
                (Some(mut all), Some(found)) if all.len() + found.len() <= LITERALS_MAX => {
                    all.extend(found);
                    Some(all)
                }
                _ => None,
            };
            sets.push(part.sets);
        }
        let mut sets = one_of_each(sets);
        sets.sort_unstable();
        sets.dedup();
        Self { exact, repeated: None, literals, sets, possible }
    }
}

fn class_bytes(class: &Class) -> Bytes {
    let mut set = Bytes::default();
    match class {
        Class::Bytes(class) => {
            class
                .ranges()
                .iter()
                .for_each(|range| set = set.union(Bytes::range(range.start(), range.end())));
        }
        // Without Unicode a class holds ASCII characters only.
        Class::Unicode(class) => class.ranges().iter().for_each(|range| {
            let end = |c: char| u8::try_from(u32::from(c)).unwrap_or(u8::MAX);
            set = set.union(Bytes::range(end(range.start()), end(range.end())));
        }),
    }
    set
}

/// Sets required by an alternation: unions of one set of each alternative, and sets that contain a
/// required set of every alternative.
fn one_of_each(mut alternatives: Vec<Vec<Bytes>>) -> Vec<Bytes> {
    if alternatives.is_empty() || alternatives.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    for sets in &mut alternatives {
        sets.iter_mut().for_each(|set| *set = set.fold_case());
        sets.sort_by_cached_key(|set| set.weight());
    }
    let union = |rank: usize| {
        let chosen = alternatives.iter().map(|sets| sets[rank.min(sets.len() - 1)]);
        chosen.fold(Bytes::default(), Bytes::union)
    };
    let mut found: Vec<Bytes> = (0..6).map(union).collect();
    let is_subset = |inner: &Bytes, outer: &Bytes| !inner.intersects(&outer.complement());
    let shared = alternatives[0].iter().filter(|set| {
        alternatives.iter().all(|sets| sets.iter().any(|inner| is_subset(inner, set)))
    });
    found.extend(shared);
    found
}

fn literals_of_sequence(parts: Vec<Facts>) -> Option<Vec<Literal>> {
    let useful = |found: &Vec<Literal>| are_useful(found);
    let mut best = None;
    let mut run = vec![Literal::default()];
    for part in parts {
        if let Some(found) = part.exact {
            run = match product(&run, &found) {
                Some(longer) => longer,
                None if found.len() <= COMBINATIONS_MAX => found,
                None => vec![Literal::default()],
            };
            best = rarer(best, Some(run.clone()).filter(useful));
            continue;
        }
        if let Some(repeated) = part.repeated {
            // The run before and the first repetitions are adjacent; the last ones and the run behind, too.
            best = rarer(best, product(&run, &repeated).filter(useful));
            best = rarer(best, Some(repeated.clone()).filter(useful));
            run = repeated;
            continue;
        }
        best = rarer(best, part.literals);
        run = vec![Literal::default()];
    }
    best
}

fn power(texts: &[Literal], count: u32) -> Option<Vec<Literal>> {
    (0..count).try_fold(vec![Literal::default()], |all, _| product(&all, texts))
}

fn product(heads: &[Literal], tails: &[Literal]) -> Option<Vec<Literal>> {
    if heads.len() * tails.len() > COMBINATIONS_MAX {
        return None;
    }
    let pairs = heads.iter().flat_map(|head| tails.iter().map(move |tail| head.with(tail)));
    let pairs = pairs.collect::<Option<Vec<_>>>()?;
    // One head or one tail leaves different texts different.
    Some(if heads.len() == 1 || tails.len() == 1 { pairs } else { distinct(pairs) })
}

fn are_useful(literals: &[Literal]) -> bool {
    !literals.is_empty() && literals.iter().all(|literal| !literal.is_empty())
}

/// The literals that are expected in fewer values.
fn rarer(a: Option<Vec<Literal>>, b: Option<Vec<Literal>>) -> Option<Vec<Literal>> {
    static LOGARITHMS: LazyLock<[f32; 256]> =
        LazyLock::new(|| std::array::from_fn(|byte| frequency(byte as u8).ln() as f32));
    let rarity = |literal: &Literal| -> f32 {
        let sum: f32 = literal.iter().map(|&byte| LOGARITHMS[usize::from(byte)]).sum();
        // Bytes of a text depend on each other.
        (0.8 * sum).exp()
    };
    let cost = |literals: &[Literal]| literals.iter().map(rarity).sum::<f32>();
    match (a, b) {
        (Some(a), Some(b)) => Some(if cost(&a) <= cost(&b) { a } else { b }),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(pattern: &str) -> Requirement {
        Requirement::of_structure(
            &crate::regex::structure(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")),
        )
    }

    fn literals_of(pattern: &str) -> Option<Vec<String>> {
        let found = requirement(pattern).literals?;
        Some(found.iter().map(|literal| String::from_utf8_lossy(literal).into_owned()).collect())
    }

    #[test]
    fn literals_are_adjacent_parts_in_lower_case() {
        assert_eq!(
            literals_of("(?i)un(?:ion|til) x"),
            Some(vec!["union x".into(), "until x".into()])
        );
        assert_eq!(literals_of(r"\w+\(foo"), Some(vec!["(foo".into()]));
        assert_eq!(literals_of("abc|[0-9]+"), None);
    }

    #[test]
    fn sets_are_needed_by_every_alternative() {
        let sets = requirement("a<|b>").sets;
        assert!(sets.contains(&Bytes::of(b"<>")));
        assert!(requirement("a?").sets.is_empty());
        assert_eq!(requirement("a<|b>").length_min, 2);
    }

    #[test]
    fn alphabets_exclude_impossible_values() {
        let words = ALPHABETS.iter().position(|alphabet| *alphabet == b"").unwrap();
        let parentheses = ALPHABETS.iter().position(|alphabet| alphabet.contains(&b'(')).unwrap();
        let none = Bytes::default();
        assert!(!requirement(r"a(?:\(|<)").is_possible(words, none));
        assert!(requirement(r"a(?:\(|<)").is_possible(parentheses, none));
        assert!(requirement(r"a(?:\(|x)*").is_possible(words, none));
        assert!(!requirement("a b").is_possible(words, none));
        assert!(requirement("a b").is_possible(words, Bytes::of(b" ")));
    }
}
