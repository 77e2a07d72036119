//! Structure of the regexes of a rule set, from which gates are derived.
//!
//! Most regexes are read here, because the parser of `regex-syntax`, which keeps positions for its
//! messages and knows Unicode, takes most of the time of loading a rule set. This one knows the
//! syntax that rules commonly use; other regexes, invalid ones among them, go to `regex-syntax`.
//! Equal parts of all regexes are one node, so that their properties are derived once: generated
//! regexes repeat long parts hundreds of times.

use std::collections::HashMap;

use indexmap::IndexSet;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

use super::alphabet::alphanumeric;
use super::bytes::Bytes;
use super::facts::{FactTable, Facts};
use super::node::{Id, Node, NodeHash, NodeRef};
use super::reach::Anchor;

/// Groups within groups that are read here.
const DEPTH_MAX: u32 = 100;
/// Repetitions of a part that are read here.
const REPETITIONS_MAX: u32 = 1000;

/// Parts of all regexes with their properties.
#[derive(Debug, Default)]
pub(crate) struct Structures {
    /// By number.
    nodes: IndexSet<Node, NodeHash>,
    facts: FactTable,
}

impl Structures {
    /// An empty structure with room for that many nodes. Memory that is not used costs nothing, unlike growing tables.
    pub(super) fn with_capacity(nodes: usize) -> Self {
        Self {
            nodes: IndexSet::with_capacity_and_hasher(nodes, NodeHash::default()),
            facts: FactTable::with_capacity(nodes),
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a regex and returns its node; `None` if `regex-syntax` has to parse it.
    pub(crate) fn parse(&mut self, pattern: &str) -> Option<Id> {
        let mut parser = Parser {
            text: pattern.as_bytes(),
            at: 0,
            depth: 0,
            structures: self,
            parts: Vec::new(),
            run: Vec::new(),
        };
        let id = parser.alternation(&mut false)?;
        (parser.at == pattern.len()).then_some(id)
    }

    /// Adds a regex that `regex-syntax` has parsed.
    pub(crate) fn add(&mut self, structure: &Hir) -> Id {
        let add_all = |structures: &mut Self, parts: &[Hir]| -> Vec<Id> {
            parts.iter().map(|part| structures.add(part)).collect()
        };
        let parts;
        let node: NodeRef<'_> = match structure.kind() {
            HirKind::Empty => Node::Text(&[], false),
            HirKind::Look(look) => Node::Look(look.as_repr()),
            HirKind::Literal(literal) => Node::Text(&literal.0, false),
            HirKind::Class(class) => Node::Class(class_bytes(class)),
            HirKind::Repetition(repetition) => Node::Repetition {
                min: repetition.min,
                max: repetition.max,
                greedy: repetition.greedy,
                sub: self.add(&repetition.sub),
            },
            HirKind::Capture(capture) => Node::Capture(self.add(&capture.sub)),
            HirKind::Concat(found) => {
                parts = add_all(self, found);
                Node::Concat(&parts)
            }
            HirKind::Alternation(found) => {
                parts = add_all(self, found);
                Node::Alternation(&parts)
            }
        };
        self.node(node)
    }

    /// Adds the part of a regex that matches values without some bytes; `None` if it matches none of them.
    pub(super) fn without(
        &mut self,
        id: Id,
        bytes: Bytes,
        known: &mut HashMap<Id, Option<Id>, NodeHash>,
    ) -> Option<Id> {
        if let Some(&known) = known.get(&id) {
            return known;
        }
        let node = self.nodes.get_index(id as usize)?.clone();
        let mut part = |structures: &mut Self, id: Id| structures.without(id, bytes, known);
        let without = match node {
            Node::Text(text, _) => (!Bytes::of(&text).intersects(&bytes)).then_some(id),
            Node::Look(_) => Some(id),
            Node::Class(set) => {
                let left = set.without(bytes);
                (!left.is_empty()).then(|| self.node(Node::Class(left)))
            }
            Node::Repetition { min, max, greedy, sub } => match part(self, sub) {
                Some(sub) => Some(self.node(Node::Repetition { min, max, greedy, sub })),
                None if min == 0 => Some(self.node(Node::Text(&[], false))),
                None => None,
            },
            Node::Capture(sub) => part(self, sub),
            Node::Concat(parts) => {
                let parts: Option<Vec<Id>> = parts.iter().map(|&id| part(self, id)).collect();
                parts.map(|parts| self.node(Node::Concat(&parts)))
            }
            Node::Alternation(parts) => {
                let parts: Vec<Id> = parts.iter().filter_map(|&id| part(self, id)).collect();
                (!parts.is_empty()).then(|| self.node(Node::Alternation(&parts)))
            }
        };
        known.insert(id, without);
        without
    }

    /// Properties of a regex.
    pub(crate) fn facts(&self, id: Id) -> &Facts {
        self.facts.get(id)
    }

    /// Alternative literals, in lower case: every match contains one of them.
    pub(super) fn literals(&self, id: Id) -> Option<impl ExactSizeIterator<Item = Anchor>> {
        self.facts.literals(id)
    }

    /// Sets, the rarest first: a match contains a byte of each.
    pub(super) fn sets(&self, id: Id) -> impl Iterator<Item = Bytes> {
        self.facts.sets(id).iter().map(|(_, set)| *set)
    }

    /// Number of a node, which is added if it is not known. Most are known.
    fn node(&mut self, node: NodeRef<'_>) -> Id {
        if let Some(known) = self.nodes.get_index_of(&node) {
            return u32::try_from(known).unwrap_or(u32::MAX);
        }
        let owned = node.map(Box::from, Box::from);
        let id = self.facts.add(node);
        self.nodes.insert(owned);
        id
    }

    fn text(&mut self, text: &[u8], caseless: bool) -> Id {
        let caseless = caseless && text.iter().any(u8::is_ascii_alphabetic);
        self.node(Node::Text(text, caseless))
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

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
    structures: &'a mut Structures,
    /// Parts of the sequences and alternations that are being read, the innermost last.
    parts: Vec<Id>,
    /// Bytes after the last part of each of these sequences.
    run: Vec<u8>,
}

/// Element of a sequence.
#[derive(Clone, Copy)]
enum Element {
    Byte(u8),
    Node(Id),
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn accept(&mut self, text: &[u8]) -> bool {
        let found = self.text[self.at..].starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// Reads up to the end or the closing parenthesis. Flags stay in force until there.
    fn alternation(&mut self, caseless: &mut bool) -> Option<Id> {
        let first = self.parts.len();
        loop {
            let part = self.sequence(caseless)?;
            self.parts.push(part);
            if !self.accept(b"|") {
                break;
            }
        }
        let id = match &self.parts[first..] {
            [part] => *part,
            parts => self.structures.node(Node::Alternation(parts)),
        };
        self.parts.truncate(first);
        Some(id)
    }

    fn sequence(&mut self, caseless: &mut bool) -> Option<Id> {
        let (first, run) = (self.parts.len(), self.run.len());
        while let Some(byte) = self.peek().filter(|byte| !matches!(byte, b'|' | b')')) {
            if byte == b'(' && self.flags()? {
                self.end_run(run, *caseless);
                *caseless = true;
                continue;
            }
            let mut element = self.element(*caseless)?;
            while let Some((min, max)) = self.repetition()? {
                let greedy = !self.accept(b"?");
                if greedy && self.peek() == Some(b'+') {
                    // Possessive.
                    return None;
                }
                let sub = self.id_of(element, *caseless);
                element =
                    Element::Node(self.structures.node(Node::Repetition { min, max, greedy, sub }));
            }
            match element {
                Element::Byte(byte) => self.run.push(byte),
                Element::Node(id) => {
                    self.end_run(run, *caseless);
                    self.parts.push(id);
                }
            }
        }
        self.end_run(run, *caseless);
        let id = match &self.parts[first..] {
            [] => self.structures.node(Node::Text(&[], false)),
            [part] => *part,
            parts => self.structures.node(Node::Concat(parts)),
        };
        self.parts.truncate(first);
        Some(id)
    }

    fn id_of(&mut self, element: Element, caseless: bool) -> Id {
        match element {
            Element::Byte(byte) => self.structures.text(&[byte], caseless),
            Element::Node(id) => id,
        }
    }

    /// Makes the bytes of the run that starts at `start` a part.
    fn end_run(&mut self, start: usize, caseless: bool) {
        if self.run.len() > start {
            self.parts.push(self.structures.text(&self.run[start..], caseless));
            self.run.truncate(start);
        }
    }

    /// Reads `(?i)`; `None` for other flags, and for a following repetition, which is an error.
    fn flags(&mut self) -> Option<bool> {
        let rest = &self.text[self.at..];
        if !rest.starts_with(b"(?") || rest.starts_with(b"(?:") {
            return Some(false);
        }
        let repeated = rest.get(4).is_some_and(|next| matches!(next, b'*' | b'+' | b'?' | b'{'));
        (self.accept(b"(?i)") && !repeated).then_some(true)
    }

    fn element(&mut self, caseless: bool) -> Option<Element> {
        let byte = self.peek()?;
        self.at += 1;
        let node = match byte {
            b'(' => {
                let captures = !self.accept(b"?:");
                if captures && self.peek() == Some(b'?') || self.depth == DEPTH_MAX {
                    return None;
                }
                self.depth += 1;
                let mut inner = caseless;
                let sub = self.alternation(&mut inner)?;
                self.depth -= 1;
                if !self.accept(b")") {
                    return None;
                }
                if !captures {
                    return Some(Element::Node(sub));
                }
                Node::Capture(sub)
            }
            b'[' => Node::Class(self.class(caseless)?),
            b'.' => Node::Class(Bytes::default().complement()),
            b'^' => Node::Look(Look::StartLF.as_repr()),
            b'$' => Node::Look(Look::EndLF.as_repr()),
            b'\\' => match self.peek()? {
                b'b' if self.text.get(self.at + 1) != Some(&b'{') => {
                    self.assertion(Look::WordAscii)
                }
                b'B' => self.assertion(Look::WordAsciiNegate),
                b'A' => self.assertion(Look::Start),
                b'z' => self.assertion(Look::End),
                _ => match self.escape()? {
                    Escape::Byte(byte) => return Some(Element::Byte(byte)),
                    Escape::Class(set) => Node::Class(set),
                },
            },
            b'*' | b'+' | b'?' | b'{' | b'}' | b']' | b'|' | b')' | 0x80.. => return None,
            _ => return Some(Element::Byte(byte)),
        };
        Some(Element::Node(self.structures.node(node)))
    }

    fn assertion(&mut self, look: Look) -> NodeRef<'static> {
        self.at += 1;
        Node::Look(look.as_repr())
    }

    /// Reads the part after a backslash, in or outside of a class.
    fn escape(&mut self) -> Option<Escape> {
        let byte = self.peek()?;
        self.at += 1;
        let perl = |set: Bytes| Some(Escape::Class(set));
        let digits = Bytes::range(b'0', b'9');
        let word = || alphanumeric().union(Bytes::of(b"_"));
        let space = Bytes::of(b"\t\n\x0b\x0c\r ");
        match byte {
            b'd' => perl(digits),
            b'D' => perl(digits.complement()),
            b'w' => perl(word()),
            b'W' => perl(word().complement()),
            b's' => perl(space),
            b'S' => perl(space.complement()),
            b'x' => {
                let digits = self.text.get(self.at..self.at + 2)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                self.at += 2;
                let digits = std::str::from_utf8(digits).ok()?;
                Some(Escape::Byte(u8::from_str_radix(digits, 16).ok()?))
            }
            b'a' => Some(Escape::Byte(0x07)),
            b'f' => Some(Escape::Byte(0x0c)),
            b't' => Some(Escape::Byte(b'\t')),
            b'n' => Some(Escape::Byte(b'\n')),
            b'r' => Some(Escape::Byte(b'\r')),
            b'<' | b'>' => None,
            _ if byte.is_ascii_alphanumeric() || !byte.is_ascii() => None,
            _ => Some(Escape::Byte(byte)),
        }
    }

    /// Reads `*`, `+`, `?` or `{1,2}`; `None` inside if there is none.
    fn repetition(&mut self) -> Option<Option<(u32, Option<u32>)>> {
        let range = match self.peek() {
            Some(b'*') => (0, None),
            Some(b'+') => (1, None),
            Some(b'?') => (0, Some(1)),
            Some(b'{') => {
                self.at += 1;
                let min = self.number()?;
                let max = match self.peek()? {
                    b'}' => Some(min),
                    b',' => {
                        self.at += 1;
                        if self.peek()? == b'}' { None } else { Some(self.number()?) }
                    }
                    _ => return None,
                };
                if self.peek()? != b'}' || max.is_some_and(|max| max < min) {
                    return None;
                }
                (min, max)
            }
            _ => return Some(None),
        };
        self.at += 1;
        Some(Some(range))
    }

    fn number(&mut self) -> Option<u32> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = std::str::from_utf8(&self.text[self.at..self.at + digits]).ok()?;
        self.at += digits.len();
        digits.parse().ok().filter(|&number| number <= REPETITIONS_MAX)
    }

    /// Reads a class after its opening bracket.
    fn class(&mut self, caseless: bool) -> Option<Bytes> {
        let negated = self.accept(b"^");
        let mut set = Bytes::default();
        let mut first = true;
        if self.peek()? == b']' {
            return None;
        }
        while !self.accept(b"]") {
            let rest = &self.text[self.at..];
            // A hyphen at the start stands for itself.
            let literal = first && rest.first() == Some(&b'-');
            let doubled = |byte| rest.starts_with(&[byte, byte]);
            if doubled(b'-') || doubled(b'&') || doubled(b'~') || rest.starts_with(b"[") {
                return None;
            }
            first = false;
            let start = match self.class_item()? {
                Escape::Byte(byte) => byte,
                Escape::Class(class) if self.peek() != Some(b'-') => {
                    set = set.union(class);
                    continue;
                }
                Escape::Class(_) => return None,
            };
            let rest = &self.text[self.at..];
            if literal || !rest.starts_with(b"-") || rest.get(1) == Some(&b']') {
                set.insert(start);
                continue;
            }
            self.at += 1;
            if self.peek()? == b'-' || self.peek()? == b'[' {
                return None;
            }
            match self.class_item()? {
                Escape::Byte(end) if start <= end => set = set.union(Bytes::range(start, end)),
                _ => return None,
            }
        }
        if caseless {
            set = set.fold_case();
        }
        if negated {
            set = set.complement();
        }
        (!set.is_empty()).then_some(set)
    }

    fn class_item(&mut self) -> Option<Escape> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b'\\' => self.escape(),
            0x80.. => None,
            _ => Some(Escape::Byte(byte)),
        }
    }
}

#[derive(Clone, Copy)]
enum Escape {
    Byte(u8),
    Class(Bytes),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex_syntax::hir::{Capture, ClassBytes, ClassBytesRange, Repetition};

    impl Structures {
        /// Converts the regex to the form of `regex-syntax`.
        fn hir(&self, id: Id, captures: &mut u32) -> Hir {
            let node = self.nodes.get_index(id as usize).unwrap();
            let class = |set: Bytes| {
                let ranges = set.iter().map(|byte| ClassBytesRange::new(byte, byte));
                Hir::class(Class::Bytes(ClassBytes::new(ranges)))
            };
            match node {
                Node::Text(text, caseless) => Hir::concat(
                    text.iter()
                        .map(|&byte| Bytes::of(&[byte]))
                        .map(|set| class(if *caseless { set.fold_case() } else { set }))
                        .collect(),
                ),
                Node::Look(look) => Hir::look(Look::from_repr(*look).unwrap()),
                Node::Class(set) => class(*set),
                Node::Repetition { min, max, greedy, sub } => Hir::repetition(Repetition {
                    min: *min,
                    max: *max,
                    greedy: *greedy,
                    sub: Box::new(self.hir(*sub, captures)),
                }),
                Node::Capture(sub) => {
                    *captures += 1;
                    let index = *captures;
                    let sub = Box::new(self.hir(*sub, captures));
                    Hir::capture(Capture { index, name: None, sub })
                }
                Node::Concat(parts) => {
                    Hir::concat(parts.iter().map(|&part| self.hir(part, captures)).collect())
                }
                Node::Alternation(parts) => {
                    Hir::alternation(parts.iter().map(|&part| self.hir(part, captures)).collect())
                }
            }
        }
    }

    /// True if the regex was read here, and as `regex-syntax` reads it.
    fn is_read(pattern: &str) -> bool {
        let mut structures = Structures::default();
        let Some(id) = structures.parse(&crate::pcre::portable(pattern)) else { return false };
        let expected = crate::regex::structure(&crate::pcre::portable(pattern));
        let expected = expected.unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert_eq!(structures.hir(id, &mut 0), expected, "{pattern}");
        true
    }

    #[test]
    fn reads_what_regex_syntax_reads() {
        for pattern in [
            r"(?i)\bunion\s+(?:all|distinct)?[\s\x0b]*select\b",
            r"^[^\x00-\x1f\]a-f_-]+$|()|a{2}b{3,}?c{0,1}",
            r"(a|b(c))*?(?:(?i)x[y-z]|w)Q(?:[-\w]|\W)\.\/\-",
            r"[.\d]+(?:|x)\A\B\z[^\n]",
        ] {
            assert!(is_read(pattern), "{pattern}");
        }
        for pattern in [r"(?=a)", r"a(?-i)b", r"*a", r"[a&&b]", r"\pL", "(a", "a)", r"\1", "[b-a]"]
        {
            assert!(Structures::default().parse(pattern).is_none(), "{pattern}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn reads_nothing_otherwise_than_regex_syntax(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "a", "B", "9", "_", "-", "^", "$", ".", "|", "(", "(?:", "(?i)", ")", ")", "[", "[^", "]", "]",
                "*", "+", "?", "{2}", "{1,3}", "{2,}", "\\b", "\\d", "\\W", "\\s", "\\x41", "\\]", "\\-", "\\n",
                "a-z", "&", "~", " ", "<", "\\<", "=", "{", "}", "{,2}", "\\A", "\\z", "\\B", "(?s)", "(?i:",
            ]), 0..12)
        ) {
            is_read(&parts.concat());
        }
    }
}
