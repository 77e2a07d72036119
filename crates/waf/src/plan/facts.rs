//! Properties of the matches of regexes, derived node by node.

use std::ops::Range;
use std::sync::LazyLock;

use indexmap::IndexSet;

use super::alphabet::{ALPHABETS_OF, Alphabets};
use super::bytes::{Bytes, share};
use super::literal::{LITERAL_LENGTH_MAX, Literal};
use super::node::{Id, Node, NodeHash, NodeRef};
use super::reach::{Anchor, Reach, Span};

/// Sets that are kept for each operator and each part of a regex, the rarest first.
pub(super) const SETS_MAX: usize = 8;
/// Literals of one operator.
pub(super) const LITERALS_MAX: usize = 8000;
/// Texts that the combination of parts may give.
const COMBINATIONS_MAX: usize = 200;
/// Repetitions that are written out.
const REPETITIONS_MAX: u32 = 6;

/// Properties of every match of a part of a regex.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Upper bound of the states that the part needs, roughly.
    pub(crate) states: u32,
    pub(super) length_min: u32,
    /// Upper bound of a match.
    span: Span,
    /// Bytes of which matches are made, in both cases.
    bytes: Bytes,
    /// All texts that the part matches, in lower case, if there are few.
    exact: Option<Texts>,
    /// Alternative texts: each match of the repetition starts with one of them, and ends with one of them.
    repeated: Option<Texts>,
    /// Alternative literals, in lower case: every match contains one of them. Absent for a part with exact texts, which
    /// are its literals.
    literals: Option<Texts>,
    /// Sets, as a range of the table: a match contains a byte of each.
    sets: (u32, u32),
    pub(super) possible: Alphabets,
}

impl Facts {
    /// Alternative literals: every match contains one of them.
    pub(super) fn required(&self) -> Option<Texts> {
        self.exact.and_then(Texts::filter_useful).or(self.literals)
    }
}

/// Alternative texts, as a range of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Texts {
    start: u32,
    end: u32,
    /// Share of values that contain one of them, roughly.
    cost: f32,
    /// True if none of them is empty.
    useful: bool,
}

impl Texts {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn len(self) -> usize {
        self.range().len()
    }

    fn filter_useful(self) -> Option<Self> {
        self.useful.then_some(self)
    }
}

/// Set with its weight, in both cases of its letters.
pub(super) type Weighted = (u32, Bytes);

/// Texts of the parts `start..end` of a sequence.
#[derive(Clone, Copy, Debug)]
struct Part {
    texts: Texts,
    start: usize,
    end: usize,
}

impl Part {
    fn filter_useful(self) -> Option<Self> {
        self.texts.useful.then_some(self)
    }

    fn cost(&self) -> f32 {
        self.texts.cost
    }
}

/// Properties of all nodes.
#[derive(Debug, Default)]
pub(super) struct FactTable {
    facts: Vec<Facts>,
    texts: Vec<Placed>,
    reaches: IndexSet<Reach, NodeHash>,
    sets: Vec<Weighted>,
}

/// Text with the number of its reach. All texts of a part have reach 0, no byte.
type Placed = (Literal, u32);

impl FactTable {
    /// An empty table with room for the properties of that many nodes.
    pub(super) fn with_capacity(nodes: usize) -> Self {
        Self {
            facts: Vec::with_capacity(nodes),
            texts: Vec::with_capacity(8 * nodes),
            reaches: IndexSet::default(),
            sets: Vec::with_capacity(4 * nodes),
        }
    }

    pub(super) fn get(&self, id: Id) -> &Facts {
        &self.facts[id as usize]
    }

    /// Alternative literals: every match contains one of them.
    pub(super) fn literals(&self, id: Id) -> Option<impl ExactSizeIterator<Item = Anchor>> {
        let texts = self.get(id).required()?;
        Some(self.texts[texts.range()].iter().map(|&(literal, reach)| {
            let reach = self.reaches.get_index(reach as usize).copied().unwrap_or_default();
            Anchor { literal, reach: Some(reach) }
        }))
    }

    pub(super) fn sets(&self, id: Id) -> &[Weighted] {
        let (start, end) = self.get(id).sets;
        &self.sets[start as usize..end as usize]
    }

    /// Derives the properties of a node from those of the nodes below it.
    pub(super) fn add(&mut self, node: NodeRef<'_>) -> Id {
        let facts = match node {
            Node::Text(text, caseless) => {
                let facts = self.of_text(text);
                let cases = if caseless { 4 } else { 1 };
                Facts { states: facts.states.saturating_mul(cases), ..facts }
            }
            Node::Look(_) => Facts { states: 1, ..self.of_text(&[]) },
            Node::Class(class) => self.of_class(class),
            Node::Repetition { min, max, sub, .. } => self.of_repetition(min, max, sub),
            Node::Capture(sub) => {
                let sub = *self.get(sub);
                Facts { repeated: None, states: sub.states.saturating_add(2), ..sub }
            }
            Node::Concat(parts) => self.of_sequence(parts),
            Node::Alternation(parts) => self.of_alternatives(parts),
        };
        self.facts.push(facts);
        narrow(self.facts.len() - 1)
    }

    fn of_text(&mut self, text: &[u8]) -> Facts {
        let literal = Literal::lower(text);
        let texts = Some(self.push_texts([literal]));
        let (exact, literals) = match text.len().checked_sub(LITERAL_LENGTH_MAX) {
            None | Some(0) => (texts, None),
            Some(rest) => (
                None,
                texts.map(|texts| {
                    self.within(texts, Span::default(), Span::of_length(narrow(rest)))
                }),
            ),
        };
        Facts {
            states: narrow(text.len()),
            length_min: narrow(text.len()),
            span: Span::of_length(narrow(text.len())),
            bytes: Bytes::of(text).fold_case(),
            exact,
            repeated: None,
            literals,
            sets: self.add_sets(|sets| sets.extend(text.iter().map(|&byte| set_of_byte(byte)))),
            possible: text.iter().fold(!0, |all, &byte| all & ALPHABETS_OF[usize::from(byte)]),
        }
    }

    fn of_class(&mut self, class: Bytes) -> Facts {
        let class = class.fold_case();
        let lower = class.without(Bytes::range(b'A', b'Z'));
        let few = (1..=12).contains(&lower.len());
        Facts {
            states: 4,
            length_min: 1,
            span: Span::of_length(1),
            bytes: class,
            exact: few.then(|| self.push_texts(lower.iter().map(|b| Literal::cut(&[b])))),
            repeated: None,
            literals: None,
            sets: self.add_sets(|sets| sets.push(weighted(class))),
            possible: class.iter().fold(0, |some, b| some | ALPHABETS_OF[usize::from(b)]),
        }
    }

    fn of_repetition(&mut self, min: u32, max: Option<u32>, sub: Id) -> Facts {
        let sub = *self.get(sub);
        let count = max.unwrap_or(min.saturating_add(1)).max(1);
        let nothing = Facts {
            states: sub.states.saturating_mul(count).saturating_add(2),
            length_min: sub.length_min.saturating_mul(min),
            span: max.map_or(Span::of_any_number(sub.bytes), |max| sub.span.times(max)),
            bytes: sub.bytes,
            exact: None,
            repeated: None,
            literals: None,
            sets: (0, 0),
            possible: !0,
        };
        let optional = min == 0 && max == Some(1);
        if min == 0 && !(optional && sub.span.is_bounded()) {
            // Too many texts to list, so nothing is required.
            return nothing;
        }
        let exact = sub.exact.and_then(|texts| match (min, max) {
            (min, Some(max)) if min == max && min <= REPETITIONS_MAX => self.power(texts, min),
            (0, Some(1)) if texts.len() <= 12 => {
                let start = self.end();
                self.texts.extend_from_within(texts.range());
                self.texts.push(Placed::default());
                let (end, cost) = (self.end(), texts.cost + 1.0);
                Some(Texts { start, end, cost, useful: false })
            }
            _ => None,
        });
        if min == 0 {
            return Facts { exact, ..nothing };
        }
        let repeated = sub.exact.and_then(|texts| self.power(texts, min.min(REPETITIONS_MAX)));
        // The literal of the first repetition.
        let literals = rarer(sub.required(), repeated.and_then(Texts::filter_useful));
        let literals = literals.map(|texts| self.within(texts, Span::default(), nothing.span));
        Facts { exact, literals, repeated, sets: sub.sets, possible: sub.possible, ..nothing }
    }

    fn of_sequence(&mut self, parts: &[Id]) -> Facts {
        let start = self.end();
        let is_exact = parts.iter().all(|&part| self.get(part).exact.is_some());
        let exact = is_exact.then_some(()).and_then(|()| {
            let empty = self.push_texts([Literal::default()]);
            parts.iter().try_fold(empty, |all, &part| self.product(all, self.get(part).exact?))
        });
        let literals = if exact.is_some() { None } else { self.literals_of_sequence(parts) };
        let ranges: Vec<(u32, u32)> = parts.iter().map(|&part| self.get(part).sets).collect();
        let facts = || parts.iter().map(|&part| self.get(part));
        let facts = Facts {
            states: facts().map(|part| part.states).fold(2, u32::saturating_add),
            length_min: facts().map(|part| part.length_min).fold(0, u32::saturating_add),
            span: facts().map(|part| part.span).fold(Span::default(), Span::with),
            bytes: facts().map(|part| part.bytes).fold(Bytes::default(), Bytes::union),
            exact,
            literals,
            repeated: None,
            sets: (0, 0),
            possible: facts().fold(!0, |all, part| all & part.possible),
        };
        Facts {
            exact: exact.map(|texts| self.keep(start, texts)),
            literals: literals.map(|texts| self.keep(start, texts)),
            sets: self.add_sets(|sets| {
                for &(start, end) in &ranges {
                    sets.extend_from_within(start as usize..end as usize);
                }
            }),
            ..facts
        }
    }

    fn of_alternatives(&mut self, parts: &[Id]) -> Facts {
        let exact = self.all_of(parts, COMBINATIONS_MAX, |part| part.exact);
        let literals = match exact {
            Some(_) => None,
            None => self.all_of(parts, LITERALS_MAX, Facts::required),
        };
        let sets: Vec<&[Weighted]> = parts.iter().map(|&part| self.sets(part)).collect();
        let sets = one_of_each(&sets);
        let facts = || parts.iter().map(|&part| self.get(part));
        let facts = Facts {
            states: facts().map(|part| part.states).fold(2, u32::saturating_add),
            length_min: facts().map(|part| part.length_min).min().unwrap_or(0),
            span: facts().map(|part| part.span).fold(Span::default(), Span::or),
            bytes: facts().map(|part| part.bytes).fold(Bytes::default(), Bytes::union),
            exact,
            repeated: None,
            literals,
            sets: (0, 0),
            possible: facts().fold(0, |some, part| some | part.possible),
        };
        Facts { sets: self.add_sets(|all| all.extend(sets)), ..facts }
    }

    /// Texts of all alternatives, if each has some and they are not too many.
    fn all_of(
        &mut self,
        parts: &[Id],
        count_max: usize,
        texts_of: impl Fn(&Facts) -> Option<Texts>,
    ) -> Option<Texts> {
        let start = self.end();
        let none = Texts { start, end: start, cost: 0.0, useful: true };
        let found = parts.iter().try_fold(none, |all, &part| {
            let texts = texts_of(self.get(part))?;
            self.texts.extend_from_within(texts.range());
            let all = Texts {
                start,
                end: self.end(),
                cost: all.cost + texts.cost,
                useful: all.useful && texts.useful,
            };
            (all.len() <= count_max).then_some(all)
        });
        if found.is_none() {
            self.texts.truncate(start as usize);
        }
        found
    }

    fn literals_of_sequence(&mut self, parts: &[Id]) -> Option<Texts> {
        let mut best = None;
        let empty = self.push_texts([Literal::default()]);
        let only = |at: usize, texts: Texts| Part { texts, start: at, end: at + 1 };
        let mut run = Part { texts: empty, start: 0, end: 0 };
        for (at, &part) in parts.iter().enumerate() {
            let part = *self.get(part);
            if let Some(found) = part.exact {
                run = match self.product(run.texts, found) {
                    Some(longer) => Part { texts: longer, start: run.start, end: at + 1 },
                    None if found.len() <= COMBINATIONS_MAX => only(at, found),
                    None => Part { texts: empty, start: at + 1, end: at + 1 },
                };
                best = rarer_of(best, run.filter_useful(), Part::cost);
                continue;
            }
            if let Some(repeated) = part.repeated {
                // The preceding run is adjacent to the first repetitions, and the last repetitions to the following
                // run.
                let adjacent = self.product(run.texts, repeated);
                let adjacent = adjacent.map(|texts| Part { texts, start: run.start, end: at });
                best = rarer_of(best, adjacent.and_then(Part::filter_useful), Part::cost);
                best = rarer_of(
                    best,
                    Part { texts: repeated, start: at, end: at }.filter_useful(),
                    Part::cost,
                );
                run = Part { texts: repeated, start: at + 1, end: at + 1 };
                continue;
            }
            best = rarer_of(best, part.literals.map(|texts| only(at, texts)), Part::cost);
            run = Part { texts: empty, start: at + 1, end: at + 1 };
        }
        let Part { texts, start, end } = best?;
        let spans = |parts: &[Id]| {
            parts.iter().map(|&part| self.get(part).span).fold(Span::default(), Span::with)
        };
        let (before, after) = (spans(&parts[..start]), spans(&parts[end..]));
        Some(self.within(texts, before, after))
    }

    /// The texts, in matches with that much more before and behind each.
    fn within(&mut self, texts: Texts, before: Span, after: Span) -> Texts {
        if before == Span::default() && after == Span::default() {
            return texts;
        }
        self.reaches.insert(Reach::default());
        let start = self.end();
        let mut known = None;
        for at in texts.range() {
            let (literal, reach) = self.texts[at];
            let moved = known.filter(|&(known, _)| known == reach).map_or_else(
                || {
                    let reach = self.reaches.get_index(reach as usize).copied().unwrap_or_default();
                    let reach =
                        Reach { before: before.with(reach.before), after: reach.after.with(after) };
                    narrow(self.reaches.insert_full(reach).0)
                },
                |(_, moved)| moved,
            );
            known = Some((reach, moved));
            self.texts.push((literal, moved));
        }
        Texts { start, end: self.end(), ..texts }
    }

    fn power(&mut self, texts: Texts, count: u32) -> Option<Texts> {
        let empty = self.push_texts([Literal::default()]);
        (0..count).try_fold(empty, |all, _| self.product(all, texts))
    }

    fn product(&mut self, heads: Texts, tails: Texts) -> Option<Texts> {
        let is_empty = |texts: Texts| texts.len() == 1 && !texts.useful;
        if heads.len() * tails.len() > COMBINATIONS_MAX {
            return None;
        }
        if is_empty(heads) {
            return Some(tails);
        }
        if is_empty(tails) {
            return Some(heads);
        }
        let start = self.end();
        for head in heads.range() {
            for tail in tails.range() {
                let Some(text) = self.texts[head].0.with(&self.texts[tail].0) else {
                    self.texts.truncate(start as usize);
                    return None;
                };
                self.texts.push((text, 0));
            }
        }
        if heads.len() > 1 && tails.len() > 1 {
            // Distinct texts stay distinct with a common head or tail.
            let mut texts = self.texts.split_off(start as usize);
            texts.sort_unstable();
            texts.dedup();
            self.texts.append(&mut texts);
        }
        Some(Texts {
            start,
            end: self.end(),
            cost: heads.cost * tails.cost,
            useful: heads.useful || tails.useful,
        })
    }

    fn push_texts(&mut self, texts: impl IntoIterator<Item = Literal>) -> Texts {
        let start = self.end();
        self.texts.extend(texts.into_iter().map(|text| (text, 0)));
        let added = &self.texts[start as usize..];
        Texts {
            start,
            end: self.end(),
            cost: added.iter().map(|(text, _)| share(text)).sum(),
            useful: added.iter().all(|(text, _)| !text.is_empty()),
        }
    }

    /// Position behind the last text.
    fn end(&self) -> u32 {
        narrow(self.texts.len())
    }

    /// Removes the texts from `start` on but the ones given, which move there.
    fn keep(&mut self, start: u32, texts: Texts) -> Texts {
        if texts.start < start {
            self.texts.truncate(start as usize);
            return texts;
        }
        self.texts.copy_within(texts.range(), start as usize);
        let end = start + (texts.end - texts.start);
        self.texts.truncate(end as usize);
        Texts { start, end, ..texts }
    }

    /// Adds the rarest of the sets that `add` appends to the table.
    fn add_sets(&mut self, add: impl FnOnce(&mut Vec<Weighted>)) -> (u32, u32) {
        let start = self.sets.len();
        add(&mut self.sets);
        self.sets[start..].sort_unstable();
        let mut end = start;
        for at in start..self.sets.len() {
            if end - start < SETS_MAX && (end == start || self.sets[at] != self.sets[end - 1]) {
                self.sets[end] = self.sets[at];
                end += 1;
            }
        }
        self.sets.truncate(end);
        (narrow(start), narrow(end))
    }
}

/// Positions in the tables, which are small.
fn narrow(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

fn weighted(set: Bytes) -> Weighted {
    (set.weight(), set)
}

/// The byte in both cases.
fn set_of_byte(byte: u8) -> Weighted {
    static SETS: LazyLock<[Weighted; 256]> = LazyLock::new(|| {
        std::array::from_fn(|byte| weighted(Bytes::of(&[byte as u8]).fold_case()))
    });
    SETS[usize::from(byte)]
}

/// Sets with at least one byte in a text.
pub(super) fn sets_of_text(text: &[u8]) -> Vec<Weighted> {
    let mut sets: Vec<Weighted> = text.iter().map(|&byte| set_of_byte(byte)).collect();
    sets.sort_unstable();
    sets
}

/// Sets required by an alternation: unions of one set of each alternative, and sets that contain a
/// required set of every alternative. The sets of each alternative are sorted.
pub(super) fn one_of_each(alternatives: &[&[Weighted]]) -> Vec<Weighted> {
    if alternatives.is_empty() || alternatives.iter().any(|sets| sets.is_empty()) {
        return Vec::new();
    }
    let union = |rank: usize| {
        let chosen = alternatives.iter().map(|sets| sets[rank.min(sets.len() - 1)].1);
        weighted(chosen.fold(Bytes::default(), Bytes::union))
    };
    let longest = alternatives.iter().map(|sets| sets.len()).max().unwrap_or(0);
    let mut found: Vec<Weighted> = (0..longest.min(6)).map(union).collect();
    let shared = alternatives[0].iter().filter(|(_, set)| {
        let outside = set.complement();
        let has_subset = |sets: &&[Weighted]| sets.iter().any(|(_, set)| !set.intersects(&outside));
        alternatives[1..].iter().all(has_subset)
    });
    found.extend(shared);
    found
}

/// The texts that are expected in fewer values.
fn rarer(a: Option<Texts>, b: Option<Texts>) -> Option<Texts> {
    rarer_of(a, b, |texts| texts.cost)
}

fn rarer_of<T>(a: Option<T>, b: Option<T>, cost: impl Fn(&T) -> f32) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if cost(&a) <= cost(&b) { a } else { b }),
        (a, b) => a.or(b),
    }
}
