//! Necessary conditions of operators: what a value must have for the operator to match it.

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::condition::{Condition, TextOperator};
use crate::regex;

use super::bytes::{Bytes, frequency};

/// Necessary conditions for a match, without regard to the case of letters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requirement {
    /// Shortest value that can match.
    pub(crate) length_min: usize,
    /// The value has a byte of each set.
    pub(crate) sets: Vec<Bytes>,
    /// The value contains one of these, in lower case.
    pub(crate) literals: Option<Vec<Vec<u8>>>,
    /// Structure of a regex, to find out whether values of few bytes can match.
    pub(crate) structure: Option<Hir>,
}

/// Sets that are kept for each operator, the rarest first.
const SETS_MAX: usize = 8;
/// Literals of one operator whose bytes are looked at.
const SETS_OF_LITERALS_MAX: usize = 100;
/// Literals of one operator, and bytes of one literal.
const LITERALS_MAX: usize = 8000;
const LITERAL_LENGTH_MAX: usize = 24;
/// Literals that the combination of parts may give.
const COMBINATIONS_MAX: usize = 200;

impl Requirement {
    /// Derives the conditions of an operator; `None` if it can match any value.
    pub(crate) fn of(condition: &Condition) -> Option<Self> {
        let mut requirement = match condition {
            Condition::Regex(pattern) => Self::of_structure(&regex::structure(&pattern.text)?),
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
        requirement.sets = requirement.sets.into_iter().map(Bytes::fold_case).collect();
        requirement.sets.sort_by_cached_key(|set| set.weight());
        requirement.sets.dedup();
        requirement.sets.truncate(SETS_MAX);
        Some(requirement)
    }

    fn of_structure(structure: &Hir) -> Self {
        let literals =
            literals(structure).filter(|found| found.iter().all(|literal| literal.len() > 1));
        Self {
            length_min: structure.properties().minimum_len().unwrap_or(0),
            sets: required_sets(structure),
            literals: literals.map(shortened),
            structure: Some(structure.clone()),
        }
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
            literals: Some(lower)
                .filter(|all| {
                    all.len() <= LITERALS_MAX && all.iter().all(|literal| literal.len() > 1)
                })
                .map(shortened),
            structure: None,
        }
    }

    /// True if a value made only of the given bytes can match.
    pub(crate) fn is_possible(&self, alphabet: &Bytes) -> bool {
        self.structure.as_ref().is_none_or(|structure| is_possible(structure, alphabet))
    }
}

fn shortened(mut literals: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    literals.iter_mut().for_each(|literal| literal.truncate(LITERAL_LENGTH_MAX));
    literals.sort();
    literals.dedup();
    literals
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

/// Sets of each of which a match contains a byte.
fn required_sets(structure: &Hir) -> Vec<Bytes> {
    let mut sets = match structure.kind() {
        HirKind::Empty | HirKind::Look(_) => Vec::new(),
        HirKind::Literal(literal) => literal.0.iter().map(|&byte| Bytes::of(&[byte])).collect(),
        HirKind::Class(class) => vec![class_bytes(class)],
        HirKind::Repetition(repetition) if repetition.min == 0 => Vec::new(),
        HirKind::Repetition(repetition) => required_sets(&repetition.sub),
        HirKind::Capture(capture) => required_sets(&capture.sub),
        HirKind::Concat(parts) => parts.iter().flat_map(required_sets).collect(),
        HirKind::Alternation(parts) => one_of_each(parts.iter().map(required_sets).collect()),
    };
    sets.iter_mut().for_each(|set| *set = set.fold_case());
    sets.sort_unstable();
    sets.dedup();
    sets
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

/// Literals one of which every match contains, in lower case.
fn literals(structure: &Hir) -> Option<Vec<Vec<u8>>> {
    match structure.kind() {
        HirKind::Capture(capture) => literals(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min == 0 => None,
        HirKind::Repetition(repetition) => {
            let repeated =
                exact(&repetition.sub).and_then(|parts| power(&parts, repetition.min.min(6)));
            rarer(literals(&repetition.sub), repeated.filter(|found| are_useful(found)))
        }
        HirKind::Concat(parts) => literals_of_sequence(parts),
        HirKind::Alternation(parts) => {
            let mut all = Vec::new();
            for part in parts {
                let found = rarer(literals(part), exact(part).filter(|found| are_useful(found)))?;
                all.extend(found);
                if all.len() > LITERALS_MAX {
                    return None;
                }
            }
            Some(all)
        }
        _ => exact(structure).filter(|found| are_useful(found)),
    }
}

fn literals_of_sequence(parts: &[Hir]) -> Option<Vec<Vec<u8>>> {
    let mut best = None;
    let mut run = vec![Vec::new()];
    for part in parts {
        if let Some(found) = exact(part) {
            run = match product(&run, &found) {
                Some(longer) => longer,
                None if found.len() <= COMBINATIONS_MAX => found,
                None => vec![Vec::new()],
            };
            best = rarer(best, Some(run.clone()).filter(|found| are_useful(found)));
            continue;
        }
        if let HirKind::Repetition(repetition) = part.kind()
            && repetition.min > 0
            && let Some(repeated) =
                exact(&repetition.sub).and_then(|found| power(&found, repetition.min.min(6)))
        {
            // The run before and the first repetitions are adjacent; the last ones and the run behind, too.
            best = rarer(best, product(&run, &repeated).filter(|found| are_useful(found)));
            best = rarer(best, Some(repeated.clone()).filter(|found| are_useful(found)));
            run = repeated;
            continue;
        }
        best = rarer(best, literals(part));
        run = vec![Vec::new()];
    }
    best
}

/// All texts that a structure matches, in lower case, if there are few.
fn exact(structure: &Hir) -> Option<Vec<Vec<u8>>> {
    match structure.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(vec![Vec::new()]),
        HirKind::Literal(literal) => Some(vec![literal.0.to_ascii_lowercase()]),
        HirKind::Class(class) => {
            let mut bytes: Vec<u8> =
                class_bytes(class).iter().map(|byte| byte.to_ascii_lowercase()).collect();
            bytes.sort_unstable();
            bytes.dedup();
            (!bytes.is_empty() && bytes.len() <= 12)
                .then(|| bytes.into_iter().map(|byte| vec![byte]).collect())
        }
        HirKind::Repetition(repetition) => {
            let found = exact(&repetition.sub)?;
            match (repetition.min, repetition.max) {
                (min, Some(max)) if min == max && min <= 6 => power(&found, min),
                (0, Some(1)) => {
                    let mut found = found;
                    found.push(Vec::new());
                    (found.len() <= 13).then_some(found)
                }
                _ => None,
            }
        }
        HirKind::Capture(capture) => exact(&capture.sub),
        HirKind::Concat(parts) => {
            parts.iter().try_fold(vec![Vec::new()], |all, part| product(&all, &exact(part)?))
        }
        HirKind::Alternation(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(exact(part)?);
                if all.len() > COMBINATIONS_MAX {
                    return None;
                }
            }
            Some(all)
        }
    }
}

fn power(texts: &[Vec<u8>], count: u32) -> Option<Vec<Vec<u8>>> {
    (0..count).try_fold(vec![Vec::new()], |all, _| product(&all, texts))
}

fn product(heads: &[Vec<u8>], tails: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    if heads.len() * tails.len() > COMBINATIONS_MAX {
        return None;
    }
    let mut all: Vec<Vec<u8>> = heads
        .iter()
        .flat_map(|head| tails.iter().map(move |tail| [head.as_slice(), tail].concat()))
        .collect();
    all.sort();
    all.dedup();
    Some(all)
}

fn are_useful(literals: &[Vec<u8>]) -> bool {
    !literals.is_empty() && literals.iter().all(|literal| !literal.is_empty())
}

fn rarer(a: Option<Vec<Vec<u8>>>, b: Option<Vec<Vec<u8>>>) -> Option<Vec<Vec<u8>>> {
    let cost = |literals: &[Vec<u8>]| -> f64 {
        literals.iter().map(|l| l.iter().map(|&b| frequency(b)).product::<f64>().powf(0.8)).sum()
    };
    match (a, b) {
        (Some(a), Some(b)) => Some(if cost(&a) <= cost(&b) { a } else { b }),
        (a, b) => a.or(b),
    }
}

fn is_possible(structure: &Hir, alphabet: &Bytes) -> bool {
    match structure.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => literal.0.iter().all(|&byte| alphabet.contains(byte)),
        HirKind::Class(class) => class_bytes(class).intersects(alphabet),
        HirKind::Repetition(repetition) => {
            repetition.min == 0 || is_possible(&repetition.sub, alphabet)
        }
        HirKind::Capture(capture) => is_possible(&capture.sub, alphabet),
        HirKind::Concat(parts) => parts.iter().all(|part| is_possible(part, alphabet)),
        HirKind::Alternation(parts) => parts.iter().any(|part| is_possible(part, alphabet)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(pattern: &str) -> Requirement {
        Requirement::of_structure(&regex::structure(pattern).unwrap_or_else(|| panic!("{pattern}")))
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
        let word = Bytes::range(b'a', b'z');
        assert!(!requirement(r"a(?:\(|<)").is_possible(&word));
        assert!(requirement(r"a(?:\(|x)*").is_possible(&word));
    }
}
