//! Necessary conditions of operators: required properties of a matching value.

use std::collections::HashMap;
use std::rc::Rc;

use crate::condition::{Condition, TextOperator};

use super::alphabet::{Alphabets, bit_of, quoting};
use super::bytes::Bytes;
use super::facts::{LITERALS_MAX, SETS_MAX, Weighted, one_of_each, sets_of_text};
use super::node::{Id, NodeHash};
use super::reach::Anchor;
use super::structure::Structures;

/// Necessary conditions for a match, without regard to the case of letters.
#[derive(Clone, Debug)]
pub(crate) struct Requirement {
    /// Shortest value that can match.
    pub(crate) length_min: usize,
    /// The value has a byte of each set.
    pub(crate) sets: Vec<Bytes>,
    /// The value contains one of these, in lower case.
    pub(crate) literals: Option<Vec<Anchor>>,
    /// The same for a value without [`quoting`] bytes, if there are no literals for all values.
    pub(crate) plain: Option<Plain>,
    /// Alphabets that suffice to form a matching value.
    possible: Alphabets,
}

/// Alternatives for a value without [`quoting`] bytes: it contains one of the literals or one of the bytes. Without any,
/// no such value can match.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plain {
    /// In lower case, of two and more bytes.
    pub(crate) literals: Vec<Anchor>,
    pub(crate) bytes: Bytes,
}

/// Nodes of regexes that are kept for later regexes with equal parts. The Core Rule Set has 15,500, which would take more memory
/// than all that is made of them; rules with equal parts stand together.
const NODES: usize = 1 << 11;

/// Conditions of regexes by their text, while a rule set is loaded.
#[derive(Debug)]
pub(crate) struct Requirements {
    structures: Structures,
    /// Parts of regexes that match values without [`quoting`] bytes, by the whole part.
    plain_parts: HashMap<Id, Option<Id>, NodeHash>,
    by_text: HashMap<String, Rc<Requirement>, NodeHash>,
}

impl Default for Requirements {
    fn default() -> Self {
        Self {
            structures: Structures::with_capacity(NODES),
            plain_parts: HashMap::default(),
            by_text: HashMap::default(),
        }
    }
}

impl Requirements {
    /// Checks a regex and derives its conditions, once.
    pub(crate) fn add(&mut self, pattern: &str) -> Result<(), String> {
        if !self.by_text.contains_key(pattern) {
            if self.structures.len() > NODES {
                self.structures = Structures::with_capacity(NODES);
                self.plain_parts.clear();
            }
            let structure = crate::regex::check(pattern, &mut self.structures)?;
            let mut requirement = Requirement::of_structure(&self.structures, structure);
            if requirement.literals.is_none() {
                requirement.plain = self.plain(structure);
            }
            self.by_text.insert(pattern.to_owned(), Rc::new(requirement));
        }
        Ok(())
    }

    fn plain(&mut self, id: Id) -> Option<Plain> {
        let rarest = self.structures.sets(id).next();
        if self.structures.facts(id).states < STATES_PLAIN
            || rarest.is_some_and(|set| set.weight() < WEIGHT_PLAIN)
        {
            return None;
        }
        let Some(part) = self.structures.without(id, quoting(), &mut self.plain_parts) else {
            return Some(Plain::default());
        };
        let found = self.structures.literals(part).filter(|_| part != id)?;
        if found.len() > LITERALS_MAX {
            return None;
        }
        let mut plain = Plain::default();
        for Anchor { literal, .. } in found {
            match *literal {
                [byte] => plain.bytes.insert(byte),
                _ => plain.literals.push(Anchor::of(literal)),
            }
        }
        plain.bytes = plain.bytes.fold_case();
        Some(plain)
    }
}

/// Literals of one operator whose bytes are looked at.
const SETS_OF_LITERALS_MAX: usize = 100;
/// States of a regex for which plain alternatives are derived: smaller ones cost little when they run.
const STATES_PLAIN: u32 = 200;
/// Weight of the rarest set of such a regex, at least: with a rarer one, few values reach it.
const WEIGHT_PLAIN: u32 = 50_000;

impl Default for Requirement {
    fn default() -> Self {
        Self { length_min: 0, sets: Vec::new(), literals: None, plain: None, possible: !0 }
    }
}

impl Requirement {
    /// Derives the conditions of an operator; `None` if it can match any value.
    pub(crate) fn of(condition: &Condition, requirements: &Requirements) -> Option<Rc<Self>> {
        let requirement = match condition {
            Condition::Regex(pattern) => return requirements.by_text.get(&pattern.text).cloned(),
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

    /// Conditions of a regex.
    fn of_structure(structures: &Structures, id: Id) -> Self {
        let literals = structures.literals(id).map(Iterator::collect);
        let literals = literals
            .filter(|found: &Vec<Anchor>| found.iter().all(|anchor| anchor.literal.len() > 1));
        Self {
            length_min: structures.facts(id).length_min as usize,
            sets: structures.sets(id).collect(),
            literals: literals.map(Anchor::distinct),
            plain: None,
            possible: structures.facts(id).possible,
        }
    }

    fn of_literals(literals: &[Vec<u8>]) -> Self {
        // The bytes that many phrases have in common are rarely rare.
        let sets: Vec<Vec<Weighted>> = if literals.len() > SETS_OF_LITERALS_MAX {
            Vec::new()
        } else {
            literals.iter().map(|literal| sets_of_text(literal)).collect()
        };
        let sets: Vec<&[Weighted]> = sets.iter().map(Vec::as_slice).collect();
        Self {
            length_min: literals.iter().map(Vec::len).min().unwrap_or(0),
            sets: one_of_each(&sets).into_iter().map(|(_, set)| set).collect(),
            literals: (literals.len() <= LITERALS_MAX
                && literals.iter().all(|literal| literal.len() > 1))
            .then(|| Anchor::distinct(literals.iter().map(|text| Anchor::of_text(text)).collect())),
            plain: None,
            possible: !0,
        }
    }

    /// True if a value made only of the bytes of an alphabet, and of the added ones, can match.
    pub(crate) fn is_possible(&self, alphabet: usize, adds: Bytes) -> bool {
        bit_of(alphabet, adds).is_none_or(|bit| self.possible >> bit & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::alphabet::{ADDED, ALPHABETS, alphabets};
    use super::super::literal::Literal;
    use super::*;
    use crate::regex::{BACKTRACK_BUDGET, Cache, Matcher};
    use proptest::prelude::*;

    /// Asserts that a value meets all requirements.
    fn check(requirement: &Requirement, value: &[u8], context: &str) {
        let bytes = Bytes::of(value);
        let contains = |Anchor { literal, .. }: &Anchor| {
            value.windows(literal.len()).any(|window| window.eq_ignore_ascii_case(literal))
        };
        assert!(value.len() >= requirement.length_min, "length: {context}");
        assert!(requirement.sets.iter().all(|set| set.intersects(&bytes)), "sets: {context}");
        let literals = requirement.literals.as_ref();
        assert!(literals.is_none_or(|found| found.iter().any(contains)), "literals: {context}");
        if let Some(plain) = requirement.plain.as_ref().filter(|_| !bytes.intersects(&quoting())) {
            let found = plain.literals.iter().any(contains) || plain.bytes.intersects(&bytes);
            assert!(found, "plain literals: {context}");
        }
        for (number, alphabet) in alphabets().enumerate() {
            for added in ADDED.map(Bytes::of) {
                let made_of_them = bytes.without(alphabet.union(added)).is_empty();
                let possible = requirement.is_possible(number, added);
                assert!(possible || !made_of_them, "alphabet {number}: {context}");
            }
        }
    }

    /// Windows around the occurrences of a literal, and for each if it is anchored.
    fn windows(anchor: &Anchor, value: &[u8]) -> Vec<(std::ops::Range<usize>, bool)> {
        let length = anchor.literal.len();
        let places = (0..value.len()).map(|start| start..start + length).filter(|place| {
            value.get(place.clone()).is_some_and(|text| text.eq_ignore_ascii_case(&anchor.literal))
        });
        let reach = anchor.reach.unwrap_or_else(|| panic!("{anchor:?} has no reach"));
        let window = |place: std::ops::Range<usize>| {
            let is_start = reach.is_start();
            let window = if is_start {
                Some(place.start..value.len())
            } else {
                reach.window(value, &place, usize::MAX)
            };
            Some((window?, is_start))
        };
        places.filter_map(window).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn every_match_meets_the_requirements_of_its_regex(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "a", "b", "n", "ab", "'", "<", " ", "-", "^", "$", ".", "|", "|", "(?:", "(?i)", ")", "[ab<]", "[^a]", "['\"]*",
                "*", "+", "?", "{2}", "{0,2}", "{2,}", "\\b", "\\d", "\\w", "\\s", "\\x41", "(a)",
            ]), 1..8),
            values in proptest::collection::vec(proptest::collection::vec(
                proptest::sample::select(b"aAabbn'<- 1_\n\xff".to_vec()), 0..8), 1..12),
            is_large in any::<bool>(),
        ) {
            let pattern = parts.concat();
            // Plain literals are derived for large regexes alone.
            let many = "(?:[a-z]{100}[a-z]{100}[a-z]{100})?";
            let pattern = if is_large { format!("(?:{pattern}){many}") } else { pattern };
            let mut requirements = Requirements::default();
            if requirements.add(&pattern).is_err() {
                return Ok(());
            }
            let requirement = &requirements.by_text[&pattern];
            // A possessive repetition of a repetition is none of PCRE.
            let Ok(matcher) = Matcher::new(&pattern) else { return Ok(()) };
            let mut cache = Cache::default();
            for value in &values {
                let found = matcher.is_match_with(&mut cache, value, &mut { BACKTRACK_BUDGET });
                prop_assert_eq!(found.is_ok_and(|found| found), matcher.is_match(value), "{}", pattern);
            }
            for value in values.iter().filter(|value| matcher.is_match(value)) {
                let context = format!("{pattern} matches \"{}\"", value.escape_ascii());
                check(requirement, value, &context);
                let Some(literals) = &requirement.literals else { continue };
                let mut windows = literals.iter().flat_map(|anchor| windows(anchor, value));
                let is_found = windows.any(|(window, is_anchored)| matcher.may_match_within(&mut cache, value, window, is_anchored));
                prop_assert!(is_found, "windows: {}", context);
            }
        }

        #[test]
        fn no_word_or_number_is_an_injection(text in "[A-Za-z_][A-Za-z0-9_]{0,12}|[0-9]{1,20}|(?i:select|union|or|and|sleep|version|null|true|like|div|x|b|n|e|q|u)") {
            prop_assert_eq!(crate::libinjection::detect_sqli(text.as_bytes()).map(|_| ()), None);
        }
    }

    fn requirement(pattern: &str) -> Requirement {
        let mut structures = Structures::default();
        let id = crate::regex::check(pattern, &mut structures);
        let id = id.unwrap_or_else(|error| panic!("{pattern}: {error}"));
        Requirement::of_structure(&structures, id)
    }

    fn literals_of(pattern: &str) -> Option<Vec<String>> {
        let found = requirement(pattern).literals?;
        Some(
            found
                .iter()
                .map(|found| String::from_utf8_lossy(&found.literal).into_owned())
                .collect(),
        )
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
    fn plain_values_have_alternatives_without_quotes() {
        let mut requirements = Requirements::default();
        let mut plain = |pattern: &str| {
            let many = "[a-z]{100}".repeat(3);
            let id = crate::regex::check(
                &format!("(?:{pattern})(?:{many})?"),
                &mut requirements.structures,
            );
            requirements.plain(id.unwrap_or_else(|error| panic!("{pattern}: {error}")))
        };
        let found = plain(r#"e["\\]*n|[;|]"#).unwrap();
        assert_eq!(
            (found.literals.iter().map(|found| found.literal).collect(), found.bytes),
            (vec![Literal::cut(b"en")], Bytes::of(b";"))
        );
        // A rare set suffices; nothing is known of the other one.
        assert!(plain(r"\$|\(x").is_none());
        assert!(plain("[a-z]|x").is_none());
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
