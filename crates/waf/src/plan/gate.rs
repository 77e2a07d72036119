//! Runs the gates over the values of a transaction.

use std::cell::Cell;
use std::sync::Arc;

use crate::caches::Caches;
use crate::condition::Condition;
use crate::rule::{Phase, PhaseStep, Test};
use crate::ruleset::RuleSet;
use crate::transaction::entries::Entries;
use crate::transformation::{Transformation, UnicodeMap};
use crate::variable::Variable;

use super::bytes::Bits;
use super::grams::Found;
use super::reach::Windows;
use super::{LENGTHS, PhasePlan, Plan, Probe, SetGate, TestGate};

/// Masks whose result is remembered: pairs of the same hash, a power of two.
const MEMORY: usize = 256;
/// Longest text in which plain literals are searched: longer prose contains some of them anyway.
const PLAIN_LENGTH_MAX: usize = 2048;
/// Shortest text that is searched by windows. The search of a shorter one costs no more than that of a window.
const WINDOWED_LENGTH_MIN: usize = 256;
/// Bytes of transformed texts that are kept between values.
const RETAINED: usize = 64 << 10;

/// Results of the gates for one phase of one transaction, and the memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Entries that each test may match, one variable after the other.
    candidates: Vec<Vec<Candidate>>,
    touched: Vec<usize>,
    tests: Vec<TestGate>,
    /// Steps of the phase that may match.
    runs: Bits,
    /// Steps that may match without candidates, by phase.
    open: [Bits; 5],
    /// Guards that skipped their rules the last time.
    skipped: Vec<Cell<bool>>,
    /// True if one of them changed since `active`, `open` and `idle` were computed.
    changed: Cell<bool>,
    /// Probes to test, by phase.
    active: Vec<Bits>,
    /// Tests that are not gated because a guard skipped them the last time.
    idle: Vec<bool>,
    memories: Vec<Memory>,
    row: Vec<u64>,
    texts: Texts,
}

/// Entry that a test may match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) entry: u32,
    pub(crate) variable: Variable,
    /// Position in its value before which no match begins.
    pub(crate) from: u32,
    /// True if the transformations of the test are known to change nothing.
    pub(crate) is_unchanged: bool,
}

/// Results by collapsed mask.
#[derive(Debug, Default)]
struct Memory {
    keys: Vec<[u128; 2]>,
    /// Index, in each pair, of the entry that was used last.
    last: Vec<u8>,
    rows: Vec<u64>,
}

/// Transformed texts of the value that is being tested.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    texts: Vec<Text>,
    /// Text of each step, with the value for which it was computed.
    by_step: Vec<(u32, u32)>,
    /// Number of the value.
    value: u32,
    spare: Vec<u8>,
    lower: Vec<u8>,
    unicode: Arc<UnicodeMap>,
    found: Vec<u64>,
    /// Windows of the texts that are searched by windows.
    windows: Vec<Windows>,
    /// Number of them that belong to the value.
    windows_used: usize,
    kept: Vec<u64>,
    plain: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Text {
    /// Range of the buffer; `None` for the value itself.
    range: Option<(usize, usize)>,
    /// The text that was transformed, and how: chains of different steps may lead to it.
    origin: Option<(usize, Transformation)>,
    mask: u128,
    /// Search results, if its literals or plain literals were searched.
    found: [Option<Literals>; 2],
}

/// Result of a search of literals.
#[derive(Clone, Copy, Debug)]
struct Literals {
    /// Position of the bits in `found`.
    bits: usize,
    /// Number of the windows.
    windows: Option<usize>,
}

impl Gate {
    pub(crate) fn new(rules: &Arc<RuleSet>) -> Self {
        let plan = &rules.plan;
        Self {
            candidates: vec![Vec::new(); plan.tests.len()],
            tests: plan.tests.clone(),
            skipped: vec![Cell::new(false); plan.guards.len()],
            changed: Cell::new(true),
            active: Vec::new(),
            idle: vec![false; plan.tests.len()],
            memories: plan.phases.iter().map(Memory::new).collect(),
            texts: Texts { unicode: Arc::clone(&rules.settings.unicode), ..Texts::default() },
            ..Self::default()
        }
    }

    /// Tests all values of a phase.
    pub(crate) fn prepare(
        &mut self,
        rules: &RuleSet,
        entries: &Entries,
        phase: Phase,
        caches: &mut Caches,
    ) {
        for test in self.touched.drain(..) {
            self.candidates[test].clear();
        }
        if self.changed.take() {
            self.activate(&rules.plan);
        }
        let plan = &rules.plan.phases[phase.index()];
        self.runs.0.clone_from(&self.open[phase.index()].0);
        let active = &self.active[phase.index()].0;
        let memory = &mut self.memories[phase.index()];
        let mut run = Run {
            rules,
            phase,
            plan,
            caches,
            memory,
            row: &mut self.row,
            texts: &mut self.texts,
            candidates: &mut self.candidates,
            touched: &mut self.touched,
        };
        let (mut name, mut lower) = (Vec::new(), Vec::new());
        for source in &plan.sources {
            for &index in entries.list(source.variable) {
                run.row.clear();
                run.row.extend_from_slice(&source.all.0);
                if !source.named.is_empty() || !source.patterns.is_empty() {
                    let name = entries.name(index, &mut name);
                    lower.clear();
                    lower.extend(name.iter().map(u8::to_ascii_lowercase));
                    let named = source.named.get(&lower).into_iter().flatten();
                    let patterns = source.patterns.iter();
                    let patterns = patterns.filter(|(selector, _)| selector.accepts(name));
                    for probe in named.chain(patterns.map(|(_, probe)| probe)) {
                        run.row[probe / 64] |= 1 << (probe % 64);
                    }
                }
                run.row.iter_mut().zip(active).for_each(|(word, active)| *word &= active);
                run.value((source.variable, index), entries.value(index));
            }
        }
        for &test in &self.touched {
            self.runs.set(rules.plan.step_of_test[test]);
        }
    }

    /// Computes which probes are tested, from the guards that skipped rules the last time.
    fn activate(&mut self, plan: &Plan) {
        self.active = plan.phases.iter().map(|phase| Bits::all(phase.probes.len())).collect();
        self.open.clone_from(&plan.open);
        self.idle.fill(false);
        for (guard, skipped) in plan.guards.iter().zip(&self.skipped) {
            if skipped.get() {
                self.active[guard.phase.index()].remove(&guard.probes);
                for &test in &guard.tests {
                    self.idle[test] = true;
                    self.open[guard.phase.index()].set(plan.step_of_test[test]);
                }
            }
        }
    }

    /// Records for the next transaction if a guard skips its rules.
    #[inline]
    pub(crate) fn note(&self, guard: u16, skips: bool) {
        if self.skipped[usize::from(guard)].replace(skips) != skips {
            self.changed.set(true);
        }
    }

    /// First step at a position or behind it that may match.
    #[inline]
    pub(crate) fn next_step(&self, from: usize) -> Option<usize> {
        self.runs.next(from)
    }

    /// Entries that the test may match; `None` if it must visit all.
    #[inline]
    pub(crate) fn candidates(&self, test: usize) -> Option<&[Candidate]> {
        let is_gated = matches!(self.tests[test], TestGate::Partial | TestGate::Full);
        (is_gated && !self.idle[test]).then(|| self.candidates[test].as_slice())
    }

    /// Position in an entry that a test visits before which its operator cannot match; `None` if it cannot match at
    /// all.
    pub(crate) fn first_match(&self, test: usize, entry: u32) -> Option<usize> {
        if self.tests[test] != TestGate::Visited || self.idle[test] {
            return Some(0);
        }
        // The candidates are bodies, of which there are two at most.
        let candidate = self.candidates[test].iter().find(|candidate| candidate.entry == entry)?;
        Some(candidate.from as usize)
    }
}

impl Memory {
    fn new(plan: &PhasePlan) -> Self {
        if plan.probes.is_empty() {
            return Self::default();
        }
        // No mask has this bit, as there are at most 127 atoms.
        Self {
            keys: vec![[1 << 127; 2]; MEMORY],
            last: vec![0; MEMORY],
            rows: vec![0; 2 * MEMORY * plan.words()],
        }
    }

    /// Probes whose sets and alphabets a value of that mask satisfies.
    fn row(&mut self, plan: &PhasePlan, mask: u128) -> &[u64] {
        let key = plan.atoms.collapse(mask);
        let hash = (key as u64 ^ (key >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (hash >> 32) as usize % MEMORY;
        let words = plan.words();
        let pair = &mut self.keys[at];
        let known = pair.iter().position(|&known| known == key);
        let place = known.unwrap_or(1 - usize::from(self.last[at]));
        self.last[at] = place as u8;
        let row = &mut self.rows[(2 * at + place) * words..][..words];
        if known.is_none() {
            pair[place] = key;
            row.fill(!0);
            for &SetGate { set, word, probes } in &plan.sets {
                if key & set == 0 {
                    row[word] &= !probes;
                }
            }
            for (alphabet, impossible) in &plan.alphabets {
                if key & !alphabet == 0 {
                    row.iter_mut().zip(&impossible.0).for_each(|(word, bits)| *word &= !bits);
                }
            }
        }
        row
    }
}

impl PhasePlan {
    fn words(&self) -> usize {
        self.with_literals.0.len()
    }
}

struct Run<'a> {
    rules: &'a RuleSet,
    phase: Phase,
    plan: &'a PhasePlan,
    caches: &'a mut Caches,
    memory: &'a mut Memory,
    /// Probes that are left for the value.
    row: &'a mut Vec<u64>,
    texts: &'a mut Texts,
    candidates: &'a mut Vec<Vec<Candidate>>,
    touched: &'a mut Vec<usize>,
}

impl<'a> Run<'a> {
    fn value(&mut self, (variable, entry): (Variable, u32), value: &[u8]) {
        let plan = self.plan;
        let lengths = &plan.raw_lengths[value.len().min(LENGTHS)].0;
        let mut left = 0;
        for (word, length) in self.row.iter_mut().zip(lengths) {
            *word &= length;
            left |= *word;
        }
        if left == 0 {
            return;
        }
        let mask = plan.atoms.mask(value);
        self.texts.start(plan, mask);
        if is_triggered(mask, plan.chains.triggers) {
            self.row_of_encoded(value, mask);
        } else {
            let passed = self.memory.row(plan, mask);
            let lengths = &plan.lengths[value.len().min(LENGTHS)].0;
            for ((word, passed), length) in self.row.iter_mut().zip(passed).zip(lengths) {
                *word &= passed & length;
            }
        }
        for word in 0..self.row.len() {
            let mut bits = self.row[word];
            while bits != 0 {
                let probe = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(from) = self.first_match(probe, value) {
                    let &Probe { test, whole, .. } = &plan.probes[probe];
                    // A longer value is not transformed for this alone.
                    let is_unchanged = value.len() < WINDOWED_LENGTH_MIN
                        && self.texts.of_step(plan, value, whole) == 0;
                    let candidates = &mut self.candidates[test];
                    if candidates.is_empty() {
                        self.touched.push(test);
                    }
                    // The probes of a test with multiMatch follow each other.
                    if candidates.last().is_none_or(|last| last.entry != entry) {
                        let from = from as u32;
                        candidates.push(Candidate { entry, variable, from, is_unchanged });
                    }
                }
            }
        }
    }

    /// Restricts the row for a value in which something is decoded: each group of probes is tested
    /// on its own text.
    fn row_of_encoded(&mut self, value: &[u8], mask: u128) {
        let plan = self.plan;
        let mut kept = std::mem::take(&mut self.texts.kept);
        let mut plain = std::mem::take(&mut self.texts.plain);
        kept.clear();
        kept.resize(self.row.len(), 0);
        plain.clear();
        plain.extend_from_slice(self.row);
        for (step, triggers, probes) in &plan.chains.decoded {
            if !is_triggered(mask, *triggers)
                || self.row.iter().zip(&probes.0).all(|(row, bits)| row & bits == 0)
            {
                continue;
            }
            let text = self.texts.of_step(plan, value, *step);
            if text == 0 {
                // Nothing is decoded.
                continue;
            }
            let Text { mask, .. } = self.texts.texts[text];
            let length = self.texts.bytes(text, value).len();
            let passed = self.memory.row(plan, mask);
            let lengths = &plan.lengths[length.min(LENGTHS)].0;
            let words = kept.iter_mut().zip(&mut plain).zip(self.row.iter());
            let words = words.zip(&probes.0).zip(passed).zip(lengths);
            for (((((kept, plain), row), probes), passed), length) in words {
                *kept |= row & probes & passed & length;
                *plain &= !probes;
            }
        }
        let passed = self.memory.row(plan, mask);
        let lengths = &plan.lengths[value.len().min(LENGTHS)].0;
        let words = self.row.iter_mut().zip(&kept).zip(&plain).zip(passed).zip(lengths);
        for ((((row, kept), plain), passed), length) in words {
            *row = kept | plain & passed & length;
        }
        self.texts.kept = kept;
        self.texts.plain = plain;
    }

    /// Tests the letters and the literals that a probe needs. Returns the position before which no match begins; `None` if
    /// there is no match.
    fn first_match(&mut self, probe: usize, value: &[u8]) -> Option<usize> {
        let plan = self.plan;
        let needs = &plan.probes[probe];
        let decoded = self.texts.of_step(plan, value, needs.decoded);
        let mask = self.texts.texts[decoded].mask;
        if needs.sets.iter().any(|set| mask & set == 0) {
            return None;
        }
        if needs.not_one_word && mask & !plan.word == 0 {
            // One word or one number is one token, and no fingerprint of one token is an injection.
            let text = self.texts.bytes(decoded, value);
            let numeric = text.first().is_some_and(u8::is_ascii_digit);
            if !numeric || text.iter().all(u8::is_ascii_digit) {
                return None;
            }
        }
        let plain = !plan.with_literals.get(probe);
        if plain && (!plan.with_plain.get(probe) || mask & (plan.quoting | needs.plain_bytes) != 0)
        {
            return Some(0);
        }
        if needs.is_text && value.len() >= WINDOWED_LENGTH_MIN && needs.searched != 0 {
            // The operator finds a text faster than the gate.
            let is_possible = needs.spread.as_ref().is_none_or(|spread| spread.is_in(value));
            return is_possible.then_some(0);
        }
        let searched = self.texts.of_step(plan, value, needs.searched);
        if plain && self.texts.bytes(searched, value).len() > PLAIN_LENGTH_MAX {
            return Some(0);
        }
        let Literals { bits, windows } =
            self.texts.literals(plan, value, searched, plain, self.row);
        let is_found = self.texts.found[bits + probe / 64] >> (probe % 64) & 1 == 1;
        let Some(windows) = windows else { return is_found.then_some(0) };
        if !is_found && !self.matches_in_windows(probe, value, windows) {
            return None;
        }
        let is_phrases = |test: &Test| matches!(test.condition, Condition::Phrases(_));
        let begins_with_literal = self.test(probe).is_some_and(|t| is_phrases(t) && !t.multi_match);
        Some(if begins_with_literal { self.texts.windows[windows].first(probe) } else { 0 })
    }

    /// True if one of the windows of a probe may hold a match.
    fn matches_in_windows(&mut self, probe: usize, value: &[u8], windows: usize) -> bool {
        if self.texts.windows[windows].of(probe).next().is_none() {
            return false;
        }
        let Some(test) = self.test(probe) else { return true };
        let text = self.texts.of_step(self.plan, value, self.plan.probes[probe].last);
        let text = self.texts.bytes(text, value);
        let caches = &mut *self.caches;
        let mut windows = self.texts.windows[windows].of(probe);
        windows.any(|(window, is_anchored)| match &test.condition {
            Condition::Regex(pattern) => {
                caches.may_match_within(pattern, text, window, is_anchored)
            }
            Condition::Phrases(set) => set.find(&text[window]).is_some(),
            _ => true,
        })
    }

    /// Test that a probe belongs to.
    fn test(&self, probe: usize) -> Option<&'a Test> {
        let number = self.plan.probes[probe].test;
        let step = self.rules.plan.step_of_test[number];
        let PhaseStep::Rule(rule) = self.rules.steps[self.phase.index()][step] else { return None };
        let links = self.rules.rules[rule].links.iter();
        links.filter_map(|link| link.test.as_ref()).find(|test| test.index == number)
    }
}

impl Texts {
    fn start(&mut self, plan: &PhasePlan, mask: u128) {
        for buffer in [&mut self.bytes, &mut self.lower] {
            buffer.clear();
            buffer.shrink_to(RETAINED);
        }
        self.texts.clear();
        self.texts.push(Text { range: None, origin: None, mask, found: [None; 2] });
        if self.value == u32::MAX || self.by_step.len() < plan.chains.steps.len() {
            self.by_step.clear();
            self.by_step.resize(plan.chains.steps.len().max(self.by_step.len()), (0, 0));
            self.value = 0;
        }
        self.value += 1;
        self.by_step[0] = (self.value, 0);
        self.found.clear();
        self.windows_used = 0;
    }

    fn bytes<'a>(&'a self, text: usize, value: &'a [u8]) -> &'a [u8] {
        match self.texts[text].range {
            None => value,
            Some((start, end)) => &self.bytes[start..end],
        }
    }

    /// Text after a step, computed once.
    #[inline]
    fn of_step(&mut self, plan: &PhasePlan, value: &[u8], step: usize) -> usize {
        let (known, text) = self.by_step[step];
        if known == self.value { text as usize } else { self.of_new_step(plan, value, step) }
    }

    #[inline(never)]
    fn of_new_step(&mut self, plan: &PhasePlan, value: &[u8], step: usize) -> usize {
        let chain = &plan.chains.steps[step];
        let parent = self.of_step(plan, value, chain.parent);
        let mut text = parent;
        if is_triggered(self.texts[parent].mask, chain.triggers)
            && let Some(transformation) = chain.transformation
        {
            let origin = Some((parent, transformation));
            text = match self.texts.iter().position(|text| text.origin == origin) {
                Some(known) => known,
                None => self.transformed(plan, value, parent, transformation),
            };
        }
        self.by_step[step] = (self.value, text as u32);
        text
    }

    /// Transforms a text and returns the result, which is the text itself if nothing changes.
    fn transformed(
        &mut self,
        plan: &PhasePlan,
        value: &[u8],
        parent: usize,
        transformation: Transformation,
    ) -> usize {
        let mut spare = std::mem::take(&mut self.spare);
        let mut text = parent;
        if transformation.apply(self.bytes(parent, value), &mut spare, &self.unicode) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&spare);
            self.texts.push(Text {
                range: Some((start, self.bytes.len())),
                origin: Some((parent, transformation)),
                mask: plan.atoms.mask(&spare),
                found: [None; 2],
            });
            text = self.texts.len() - 1;
        }
        self.spare = spare;
        text
    }

    /// Searches the literals in a text, once.
    fn literals(
        &mut self,
        plan: &PhasePlan,
        value: &[u8],
        text: usize,
        plain: bool,
        row: &[u64],
    ) -> Literals {
        if let Some(found) = self.texts[text].found[usize::from(plain)] {
            return found;
        }
        let grams = if plain { &plan.plain_grams } else { &plan.grams };
        let bits = self.found.len();
        let mut found = std::mem::take(&mut self.found);
        let mut windows = std::mem::take(&mut self.windows);
        let mut lower = std::mem::take(&mut self.lower);
        let bytes = self.bytes(text, value);
        let is_windowed = !plain && bytes.len() >= WINDOWED_LENGTH_MIN;
        let number = is_windowed.then_some(self.windows_used);
        if let Some(number) = number {
            windows.resize_with(windows.len().max(number + 1), Windows::default);
            windows[number].clear(plan.probes.len());
        }
        // The literals of already excluded probes do not matter.
        found.extend(row.iter().map(|word| !word));
        let probes = &mut found[bits..];
        let windows_of_text = number.map(|number| &mut windows[number]);
        grams.find(bytes, &mut lower, Found { probes, windows: windows_of_text });
        self.found = found;
        self.lower = lower;
        self.windows = windows;
        self.windows_used += usize::from(is_windowed);
        let found = Literals { bits, windows: number };
        self.texts[text].found[usize::from(plain)] = Some(found);
        found
    }
}

/// True if a value of that mask has one of the bytes, or if any value is affected.
#[inline]
fn is_triggered(mask: u128, triggers: u128) -> bool {
    mask & triggers != 0 || triggers == u128::MAX
}
