//! Compilation of regexes as ModSecurity compiles them: bytes, `.` matches newlines, `^` and `$` match at lines.

use std::ops::Range;
use std::sync::OnceLock;

use fancy_regex::{BytesMode, RegexBuilder, RegexInput};
use regex_automata::hybrid::dfa::{self, DFA};
use regex_automata::meta::{self, Config, Regex};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, Match};
use regex_syntax::hir::Hir;

use crate::pcre::{portable, relaxed};
use crate::plan::{Id, Structures};

/// Memory that one compiled regex may take, in bytes.
const SIZE_LIMIT: usize = 16 << 20;
/// Memory of the states that one regex builds while it runs, in bytes for each thread. Texts that are made of pieces of
/// shell commands need up to 1.5 MB of states of one regex; with less memory it builds them again and again.
const CACHE_LIMIT: usize = 4 << 20;
/// Memory of the states of the full regex, which finds the position of a match, in bytes for each direction and thread.
const WHOLE_CACHE_LIMIT: usize = 2 << 20;

/// Steps back of one search with a regex that needs backtracking. `fancy_regex` does not tell how many steps a search
/// took, so a search is tried with the least limit first, and again with the next one after it has failed.
const BACKTRACK_LIMITS: [usize; 7] = [250, 1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000];
/// Steps back of all searches of one transaction; each try counts as its limit. Prose takes about 15 steps a byte with
/// rule 942130 of CRS 3.3.4, and counts as up to 85: 128 KiB of it in fields of 1 kB count as 2.7 million.
pub(crate) const BACKTRACK_BUDGET: usize = 3_000_000;
/// Instructions of such a regex.
const INSTRUCTIONS_MAX: usize = 100_000;

/// Regexes with at least this many states are compiled when rules are loaded, to check their size.
const STATES_CHECKED: u32 = 50_000;

fn options() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false).multi_line(true).dot_matches_new_line(true)
}

fn config() -> Config {
    Config::new()
        .utf8_empty(false)
        .nfa_size_limit(Some(SIZE_LIMIT))
        .hybrid_cache_capacity(WHOLE_CACHE_LIMIT)
        // The gates have looked for literals. Deriving them again takes half of the time of compilation.
        .auto_prefilter(false)
}

/// Regex of an operator.
#[derive(Debug)]
pub(crate) struct Matcher {
    /// The regex itself, or one that matches wherever it matches.
    linear: Linear,
    /// The regex itself, if it has lookaround, backreferences, atomic groups or possessive repetitions.
    backtracking: Option<Box<Backtracking>>,
}

/// Regex that is searched in linear time.
#[derive(Debug)]
struct Linear {
    text: String,
    size_limit: usize,
    /// Lazy DFA that tests whether a value matches; `None` if the regex is too large for one.
    forward: Option<Box<DFA>>,
    /// Full regex, which finds the position and the groups of a match; `None` if it exceeds the size limit. It takes several times the
    /// memory and time of the DFA, and most regexes never match.
    whole: OnceLock<Option<Regex>>,
}

/// Memory of one thread for the searches with a regex.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    forward: Option<Box<dfa::Cache>>,
    whole: Option<Box<meta::Cache>>,
}

/// Regex that needs backtracking, for each of [`BACKTRACK_LIMITS`].
#[derive(Debug)]
struct Backtracking {
    text: String,
    size_limit: usize,
    /// The first is compiled with the regex, so that the others, which differ in the limit alone, compile, too.
    compiled: [OnceLock<Option<fancy_regex::Regex>>; BACKTRACK_LIMITS.len()],
}

/// A search needed more steps back than the last of [`BACKTRACK_LIMITS`] or than the transaction had left, or more memory than
/// a regex may take.
#[derive(Debug)]
pub(crate) struct SearchLimit;

impl Matcher {
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        Self::with_size_limit(pattern, SIZE_LIMIT)
    }

    /// Compiles a regex that may take at most that many bytes.
    pub(crate) fn with_size_limit(pattern: &str, size_limit: usize) -> Result<Self, String> {
        let text = portable(pattern);
        let Some(relaxed) = relaxed(&text) else {
            return Ok(Self { linear: Linear::new(text, size_limit)?, backtracking: None });
        };
        let linear = Linear::new(relaxed, size_limit)?;
        let backtracking = Some(Box::new(Backtracking::new(text, size_limit)?));
        Ok(Self { linear, backtracking })
    }

    /// Compiles the full regex, which is otherwise compiled at the first match.
    pub(crate) fn compile_whole(&self) {
        self.linear.whole.get_or_init(|| self.linear.compile().ok());
    }

    /// Matches every value.
    pub(crate) fn all() -> Self {
        let whole = OnceLock::from(Some(match_all()));
        let linear = Linear { text: String::new(), size_limit: SIZE_LIMIT, forward: None, whole };
        Self { linear, backtracking: None }
    }

    /// Takes the steps of a search that needs backtracking from the budget, as the other searches do.
    #[inline]
    pub(crate) fn is_match_with(
        &self,
        cache: &mut Cache,
        value: &[u8],
        budget: &mut usize,
    ) -> Result<bool, SearchLimit> {
        if !self.linear.is_match(cache, &Input::new(value).earliest(true)) {
            return Ok(false);
        }
        let Some(backtracking) = &self.backtracking else { return Ok(true) };
        let Some(first) = self.linear.find(cache, value)? else { return Ok(false) };
        let input = RegexInput::new(value).from_pos(first.start());
        backtracking.search(budget, |regex| regex.is_match_input(input.clone()))
    }

    /// False if no match lies within that part of the value, or begins where it begins if the part is anchored. Assertions at
    /// its ends see the bytes around it.
    pub(crate) fn may_match_within(
        &self,
        cache: &mut Cache,
        value: &[u8],
        part: Range<usize>,
        is_anchored: bool,
    ) -> bool {
        let anchored = if is_anchored { Anchored::Yes } else { Anchored::No };
        let input = Input::new(value).range(part).anchored(anchored).earliest(true);
        self.linear.is_match(cache, &input)
    }

    /// Writes up to `count` groups of the first match, if there is one.
    pub(crate) fn captures_with(
        &self,
        cache: &mut Cache,
        value: &[u8],
        budget: &mut usize,
        slots: &mut Vec<Option<NonMaxUsize>>,
        count: usize,
        groups: &mut Vec<Option<(usize, usize)>>,
    ) -> Result<(), SearchLimit> {
        groups.clear();
        if let Some(backtracking) = &self.backtracking {
            let Some(first) = self.linear.find(cache, value)? else { return Ok(()) };
            let input = RegexInput::new(value).from_pos(first.start());
            let found = backtracking.search(budget, |regex| regex.captures_input(input.clone()))?;
            let found = found.iter().flat_map(|found| found.iter().take(count));
            groups.extend(found.map(|group| group.map(|group| (group.start(), group.end()))));
            return Ok(());
        }
        let (whole, cache) = self.linear.whole_with(cache)?;
        slots.clear();
        slots.resize(2 * whole.captures_len().min(count), None);
        if whole.search_slots_with(cache, &Input::new(value), slots).is_some() {
            groups.extend(slots.chunks_exact(2).map(|pair| Some((pair[0]?.get(), pair[1]?.get()))));
        }
        Ok(())
    }

    /// Calls `visit` with the matches in a value, one after the other, until it returns true.
    pub(crate) fn visit(
        &self,
        value: &[u8],
        budget: &mut usize,
        mut visit: impl FnMut(Range<usize>) -> bool,
    ) -> Result<(), SearchLimit> {
        if self.backtracking.is_none() {
            let mut matches = self.linear.whole()?.find_iter(value).map(|found| found.range());
            matches.find(|range| visit(range.clone()));
            return Ok(());
        }
        let mut at = 0;
        let mut last_end = None;
        while at <= value.len() {
            let Some(found) = self.find_from(value, at, budget)? else { break };
            at = found.end + usize::from(found.is_empty());
            // An empty match right behind another one does not count.
            if found.is_empty() && last_end == Some(found.end) {
                continue;
            }
            last_end = Some(found.end);
            if visit(found) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the first match that `is_wanted`. Behind one that is not the search goes on from its second byte, so matches may
    /// overlap; the length of such a match is taken from the budget.
    pub(crate) fn find_wanted(
        &self,
        value: &[u8],
        budget: &mut usize,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Range<usize>>, SearchLimit> {
        let mut at = 0;
        while at <= value.len() {
            let Some(found) = self.find_from(value, at, budget)? else { break };
            if is_wanted(&value[found.clone()]) {
                return Ok(Some(found));
            }
            *budget = budget.checked_sub(found.len()).ok_or(SearchLimit)?;
            at = found.start + 1;
        }
        Ok(None)
    }

    /// Returns the first match that starts at a position or behind it.
    fn find_from(
        &self,
        value: &[u8],
        at: usize,
        budget: &mut usize,
    ) -> Result<Option<Range<usize>>, SearchLimit> {
        let input = Input::new(value).range(at..);
        let Some(first) = self.linear.whole()?.find(input) else { return Ok(None) };
        let Some(backtracking) = &self.backtracking else { return Ok(Some(first.range())) };
        let input = RegexInput::new(value).from_pos(first.start());
        let found = backtracking.search(budget, |regex| regex.find_input(input.clone()))?;
        Ok(found.map(|found| found.range()))
    }

    /// True if the value matches; false, too, if the search needs too many steps.
    pub(crate) fn is_match(&self, value: &[u8]) -> bool {
        let mut found = false;
        let visited = self.visit(value, &mut { BACKTRACK_BUDGET }, |_range| {
            found = true;
            true
        });
        visited.is_ok() && found
    }
}

impl Linear {
    fn new(text: String, size_limit: usize) -> Result<Self, String> {
        let structure = structure(&text)?;
        let config = thompson::Config::new()
            .utf8(false)
            .nfa_size_limit(Some(size_limit))
            .which_captures(WhichCaptures::None);
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(&structure);
        let nfa = nfa.map_err(|error| explain(&error.to_string()))?;
        let config = dfa::Config::new()
            .cache_capacity(CACHE_LIMIT)
            .unicode_word_boundary(true)
            // The search gives up where building states is slower than the searches without them.
            .minimum_cache_clear_count(Some(3))
            .minimum_bytes_per_state(Some(10));
        let forward = dfa::Builder::new().configure(config).build_from_nfa(nfa);
        let forward = forward.ok().map(Box::new);
        let linear = Self { text, size_limit, forward, whole: OnceLock::new() };
        if linear.forward.is_none() {
            let _new = linear.whole.set(linear.compile().ok());
        }
        Ok(linear)
    }

    fn compile(&self) -> Result<Regex, String> {
        Regex::builder()
            .syntax(options())
            .configure(config().nfa_size_limit(Some(self.size_limit)))
            .build(&self.text)
            .map_err(|error| explain(&reason(&error)))
    }

    fn whole(&self) -> Result<&Regex, SearchLimit> {
        self.whole.get_or_init(|| self.compile().ok()).as_ref().ok_or(SearchLimit)
    }

    fn whole_with<'a>(
        &self,
        cache: &'a mut Cache,
    ) -> Result<(&Regex, &'a mut meta::Cache), SearchLimit> {
        let whole = self.whole()?;
        Ok((whole, cache.whole.get_or_insert_with(|| Box::new(whole.create_cache()))))
    }

    #[inline]
    fn is_match(&self, cache: &mut Cache, input: &Input<'_>) -> bool {
        if let Some(forward) = &self.forward {
            let cache = cache.forward.get_or_insert_with(|| Box::new(forward.create_cache()));
            if let Ok(end) = forward.try_search_fwd(cache, input) {
                return end.is_some();
            }
        }
        match self.whole_with(cache) {
            Ok((whole, cache)) => whole.search_half_with(cache, input).is_some(),
            // A regex that cannot be searched counts as a match, so that nothing passes uninspected.
            Err(SearchLimit) => true,
        }
    }

    fn find(&self, cache: &mut Cache, value: &[u8]) -> Result<Option<Match>, SearchLimit> {
        let (whole, cache) = self.whole_with(cache)?;
        Ok(whole.search_with(cache, &Input::new(value)))
    }
}

/// Matches every value.
fn match_all() -> Regex {
    let all = Regex::builder().build_from_hir(&Hir::empty());
    all.unwrap_or_else(|error| unreachable!("{error}"))
}

impl Backtracking {
    fn new(text: String, size_limit: usize) -> Result<Self, String> {
        let new = Self { text, size_limit, compiled: Default::default() };
        let first =
            new.compile(BACKTRACK_LIMITS[0]).map_err(|error| explain(&error.to_string()))?;
        let _empty = new.compiled[0].set(Some(first));
        Ok(new)
    }

    fn compile(&self, limit: usize) -> fancy_regex::Result<fancy_regex::Regex> {
        RegexBuilder::new(&self.text)
            .bytes_mode(BytesMode::Ascii)
            .multi_line(true)
            .dot_matches_new_line(true)
            .backtrack_limit(limit)
            .delegate_size_limit(self.size_limit)
            .delegate_dfa_size_limit(CACHE_LIMIT)
            .max_prog_size(INSTRUCTIONS_MAX)
            .build()
    }

    /// Searches with one limit after the other, as long as the budget allows it.
    fn search<T>(
        &self,
        budget: &mut usize,
        search: impl Fn(&fancy_regex::Regex) -> fancy_regex::Result<T>,
    ) -> Result<T, SearchLimit> {
        for (limit, compiled) in BACKTRACK_LIMITS.into_iter().zip(&self.compiled) {
            *budget = budget.checked_sub(limit).ok_or(SearchLimit)?;
            let regex = compiled.get_or_init(|| self.compile(limit).ok());
            if let Some(Ok(found)) = regex.as_ref().map(&search) {
                return Ok(found);
            }
        }
        Err(SearchLimit)
    }
}

/// Checks that a regex compiles and returns the structure of one that matches wherever it matches: itself, unless it
/// needs backtracking. Compiles it only then, or if it may exceed the size limit.
pub(crate) fn check(pattern: &str, structures: &mut Structures) -> Result<Id, String> {
    let text = portable(pattern);
    let relaxed = relaxed(&text);
    let linear = relaxed.as_deref().unwrap_or(&text);
    let id = match structures.parse(linear) {
        Some(id) => id,
        None => structures.add(&structure(linear)?),
    };
    if relaxed.is_some() || structures.facts(id).states >= STATES_CHECKED {
        Matcher::new(pattern)?.linear.compile()?;
    }
    Ok(id)
}

/// Checks that a regex does not need backtracking.
pub(crate) fn check_linear(pattern: &str) -> Result<(), String> {
    match relaxed(&portable(pattern)) {
        None => Ok(()),
        Some(_) => Err(
            "regex uses lookaround, a backreference, an atomic group or a possessive repetition, \
            which is not supported here: rewrite it without"
                .into(),
        ),
    }
}

/// Regex of a selector, which ignores case. It is compiled at its first use.
#[derive(Debug)]
pub(crate) struct SelectorRegex {
    pub(crate) text: String,
    /// True if it is compared with the last key in the name of a JSON value.
    is_of_json_key: bool,
    compiled: OnceLock<Regex>,
    /// Slots of the TX variables whose names it matches.
    slots: OnceLock<Vec<u32>>,
}

impl PartialEq for SelectorRegex {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl SelectorRegex {
    pub(crate) fn new(text: String) -> Result<Self, String> {
        check_linear(&text)?;
        check(&format!("(?i){text}"), &mut Structures::default())?;
        Ok(Self { text, is_of_json_key: false, compiled: OnceLock::new(), slots: OnceLock::new() })
    }

    /// A regex of the last key in the name of a JSON value: `b` in `json.a.b.array_0`.
    pub(crate) fn of_json_key(text: String) -> Result<Self, String> {
        Ok(Self { is_of_json_key: true, ..Self::new(text)? })
    }

    /// The properties by which two regexes differ.
    pub(crate) fn key(&self) -> (&str, bool) {
        (&self.text, self.is_of_json_key)
    }

    fn compile(pattern: &str) -> Result<Regex, String> {
        Regex::builder()
            .syntax(options().case_insensitive(true))
            .configure(config())
            .build(&portable(pattern))
            .map_err(|error| explain(&reason(&error)))
    }

    /// Slots of the TX variables of the rule set whose names it matches.
    pub(crate) fn slots(&self, names: &[Vec<u8>]) -> &[u32] {
        self.slots.get_or_init(|| {
            let matching = (0..).zip(names).filter(|(_, name)| self.is_match(name));
            matching.map(|(slot, _)| slot).collect()
        })
    }

    pub(crate) fn is_match(&self, name: &[u8]) -> bool {
        let name = if self.is_of_json_key { json_key(name) } else { Some(name) };
        let Some(name) = name else { return false };
        let compiled = self
            .compiled
            .get_or_init(|| Self::compile(&self.text).unwrap_or_else(|_reason| match_all()));
        compiled.is_match(name)
    }
}

/// The last key in the name of a JSON value. Elements of arrays have the key of their array.
fn json_key(name: &[u8]) -> Option<&[u8]> {
    let is_element = |part: &[u8]| {
        part.strip_prefix(b"array_").is_some_and(|number| number.iter().all(u8::is_ascii_digit))
    };
    let mut parts = name.strip_prefix(b"json.")?.rsplit(|&byte| byte == b'.');
    Some(parts.find(|part| !is_element(part)).unwrap_or_default())
}

/// Structure of a portable regex as `regex-syntax` parses it.
pub(crate) fn structure(text: &str) -> Result<Hir, String> {
    regex_syntax::ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .multi_line(true)
        .dot_matches_new_line(true)
        .build()
        .parse(text)
        .map_err(|error| explain(&error.to_string()))
}

fn reason(error: &meta::BuildError) -> String {
    error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string)
}

fn explain(reason: &str) -> String {
    let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    format!("cannot compile regex: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(pattern: &str) -> Matcher {
        Matcher::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"))
    }

    fn matches(pattern: &str, text: &[u8]) -> bool {
        compiled(pattern).is_match(text)
    }

    /// Asserts for each pattern that it matches the first text and not the second.
    fn assert_tell_apart(cases: &[(&str, &[u8], &[u8])]) {
        for (pattern, matching, other) in cases {
            assert!(matches(pattern, matching), "{pattern}");
            assert!(!matches(pattern, other), "{pattern}");
        }
    }

    #[test]
    fn a_search_that_needs_too_many_states_is_finished_by_another_one() {
        let regex = compiled("a[ab]{18}c").linear;
        // By xorshift: nearly each byte needs another state.
        let mut state = 1_u32;
        let mut text: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            if state & 1 == 0 { b'a' } else { b'b' }
        })
        .take(200_000)
        .collect();
        let forward = regex.forward.as_ref().expect("it is small");
        let input = Input::new(&text).earliest(true);
        forward.try_search_fwd(&mut forward.create_cache(), &input).expect_err("it gives up");
        let cache = &mut Cache::default();
        assert!(!regex.is_match(cache, &input));
        text.extend(b"abababababababababac");
        assert!(regex.is_match(cache, &Input::new(&text).earliest(true)));
    }

    #[test]
    fn dot_matches_newlines_and_anchors_match_lines() {
        assert!(matches("^a.b$", b"x\na\nb\ny"));
        assert!(matches(r"[\xff]", b"\xff"));
    }

    #[test]
    fn reads_literal_braces_and_brackets_as_pcre() {
        assert!(matches("{a}{2}", b"{a}}"));
        assert!(matches("[]a]+$", b"]a"));
        assert!(matches("^[[(]$", b"["));
        assert!(matches("^[a&&b]$", b"&"));
        assert!(matches(r"^\<[[:digit:]]$", b"<7"));
        assert!(matches(r"^[\x7f-\x{ff}]é$", b"\xfe\xc3\xa9"));
    }

    #[test]
    fn escapes_match_as_in_pcre() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let bytes = |pattern: &str| -> Vec<u8> {
            all.iter().copied().filter(|&byte| matches(pattern, &[byte])).collect()
        };
        let without = |set: &[u8]| -> Vec<u8> {
            all.iter().copied().filter(|byte| !set.contains(byte)).collect()
        };
        let (vertical, horizontal) = (b"\n\x0b\x0c\r\x85", b"\t \xa0");
        for (pattern, expected) in [
            (r"\v", vertical.to_vec()),
            (r"[\v]", vertical.to_vec()),
            (r"\V", without(vertical)),
            (r"[^\V]", vertical.to_vec()),
            (r"\h", horizontal.to_vec()),
            (r"[\hx]", b"\t x\xa0".to_vec()),
            (r"\H", without(horizontal)),
            (r"\N", without(b"\n")),
            (r"^\R\z", vertical.to_vec()),
            (
                r"\p{Lu}",
                all.iter()
                    .copied()
                    .filter(|b| matches!(b, b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde))
                    .collect(),
            ),
            (
                r"[\P{L}\d]",
                all.iter().copied().filter(|&b| !char::from(b).is_alphabetic()).collect(),
            ),
            (r"\pN", b"0123456789\xb2\xb3\xb9\xbc\xbd\xbe".to_vec()),
            (
                r"\p{^Ll}",
                all.iter()
                    .copied()
                    .filter(|&b| !char::from(b).is_lowercase() || matches!(b, 0xaa | 0xba))
                    .collect(),
            ),
            (r"\012", b"\n".to_vec()),
            (r"\0", b"\0".to_vec()),
        ] {
            assert_eq!(bytes(pattern), expected, "{pattern}");
        }
        assert_tell_apart(&[
            (r"^\R$", b"\r\n".as_slice(), b"ab".as_slice()),
            (r"^(?P<n>a+)$", b"aa", b"ab"),
            (r"^(?P<n>a|b)(?P=n)$", b"bb", b"ab"),
            (r"^(?<n>a|b)\k<n>\k{n}$", b"bbb", b"aba"),
            (r"^\Qa.(b\E[\Q]^\E]$", b"a.(b]", b"axb]"),
            (r"a(?#comment (x)b", b"ab", b"a"),
        ]);
    }

    #[test]
    fn reset_of_the_start_shortens_the_match() {
        let regex = compiled(r"a\Kb+");
        let (mut cache, mut slots, mut groups) = (Cache::default(), Vec::new(), Vec::new());
        let mut budget = BACKTRACK_BUDGET;
        let found =
            regex.captures_with(&mut cache, b"xabb", &mut budget, &mut slots, 1, &mut groups);
        assert!(found.is_ok());
        assert_eq!(groups, [Some((2, 4))]);
    }

    #[test]
    fn a_rejected_match_is_followed_by_one_that_overlaps_it() {
        let regex = compiled("[0-9]{3}");
        let find = |value: &[u8], budget: &mut usize| {
            regex.find_wanted(value, budget, |found| found == b"234").map_err(|SearchLimit| ())
        };
        let mut budget = 10;
        assert_eq!(find(b"12345", &mut budget), Ok(Some(1..4)));
        assert_eq!((find(b"0000", &mut budget), budget), (Ok(None), 1));
        assert_eq!(find(b"000", &mut budget), Err(()));
    }

    #[test]
    fn lookaround_and_backreferences_match_as_in_pcre() {
        assert_tell_apart(&[
            (r"<\?(?!xml)", b"<?xml <?php".as_slice(), b"<?xml ".as_slice()),
            (r"(?<!&(?:[aou]uml)|&(?:amp));", b"a;", b"&auml;&amp;"),
            (r"(?i)\b([\d\w]+)\b\s*=\s*\b\1\b", b"x=1 or B=b", b"x=1 or b=c"),
            (r"\b(\w+)\b<>(?!\b\1\b)\w+", b"a<>b", b"a<>a"),
            (r"^(?>a|ab)c", b"ac", b"abc"),
            (r"^a++b", b"aab", b"aa"),
            (r"^a{1,2}+ab", b"aaab", b"aab"),
            (r"^[)(?=\]]\((?=\xff)", b"](\xff", b"a(\xff"),
            (r"a.(?=^b$)", b"\xe9a\nb", b"ab"),
        ]);
    }

    #[test]
    fn a_search_takes_a_limited_number_of_steps() {
        let regex = compiled(r"x(a|aa)+\1c");
        let mut cache = Cache::default();
        let text = [b"x", b"a".repeat(60).as_slice(), b"bc"].concat();
        let mut budget = BACKTRACK_BUDGET;
        assert!(regex.is_match_with(&mut cache, &text, &mut budget).is_err());
        assert_eq!(budget, BACKTRACK_BUDGET - BACKTRACK_LIMITS.iter().sum::<usize>());
        assert!(!regex.is_match(&text));
    }

    #[test]
    fn matches_that_need_backtracking_are_visited_once() {
        let found = |pattern: &str, text: &str| {
            let regex = compiled(pattern);
            let mut found = Vec::new();
            let visited = regex.visit(text.as_bytes(), &mut { BACKTRACK_BUDGET }, |range| {
                found.push((range.start, range.end));
                false
            });
            assert!(visited.is_ok());
            found
        };
        assert_eq!(found("a(?!c)", "abaca"), [(0, 1), (4, 5)]);
        // Empty matches, but for those right behind another match.
        assert_eq!(found("(?=a)b*|bb", "xabba"), [(1, 1), (2, 4)]);
        // The second match needs 2^13 tries or more.
        let text = format!("xac x{}b xac", "a".repeat(18));
        assert_eq!(found(r"x(a|aa)+c(?!\d)", &text), [(0, 3), (text.len() - 3, text.len())]);
    }

    #[test]
    fn names_unsupported_constructs() {
        let error = |pattern: &str| Matcher::new(pattern).map(|_| ()).unwrap_err();
        assert!(error("a(?P=b)").contains("cannot compile regex"));
        assert!(error("a(?=b").contains("cannot compile regex"));
        assert!(SelectorRegex::new("a(?=b)".into()).unwrap_err().contains("lookaround"));
    }

    #[test]
    fn a_regex_that_passes_the_check_compiles() {
        let check = |pattern: &str| check(pattern, &mut Structures::default()).map(drop);
        for pattern in ["a**?+", "(?:a+)*++", "x{2}{3}?+", r"(?>a)**?+"] {
            assert_eq!(check(pattern).is_ok(), Matcher::new(pattern).is_ok(), "{pattern}");
        }
        assert!(check("a**?+").unwrap_err().contains("cannot compile regex"));
        // Both cases of its letters make the regex of a name larger.
        let large = format!("(?:{}){{900}}", "[a-z]".repeat(900));
        assert!(SelectorRegex::new(large).is_err());
    }
}
