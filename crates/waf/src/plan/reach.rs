//! Windows: the parts of a long text that can hold a match, around the literals of a regex.

use std::ops::Range;

use super::bytes::Bytes;
use super::literal::Literal;

/// Upper bound of a part of a match: any number of bytes of a set, and that many other bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Span {
    set: Bytes,
    /// `u32::MAX` if there is no bound.
    others: u32,
}

impl Span {
    pub(super) fn of_length(length: u32) -> Self {
        Self { set: Bytes::default(), others: length }
    }

    pub(super) fn of_any_number(set: Bytes) -> Self {
        Self { set, others: 0 }
    }

    /// Bound of two parts, one behind the other.
    pub(super) fn with(self, other: Self) -> Self {
        Self { set: self.set.union(other.set), others: self.others.saturating_add(other.others) }
    }

    /// Bound of either part.
    pub(super) fn or(self, other: Self) -> Self {
        Self { set: self.set.union(other.set), others: self.others.max(other.others) }
    }

    /// Bound of that many such parts.
    pub(super) fn times(self, count: u32) -> Self {
        Self { others: self.others.saturating_mul(count), ..self }
    }

    /// True if there is a longest part.
    pub(super) fn is_bounded(&self) -> bool {
        self.set.is_empty() && self.others < u32::MAX
    }

    fn is_unlimited(&self) -> bool {
        self.others == u32::MAX || self.set.complement().is_empty()
    }

    /// Length of the longest such part at the start of `bytes`; `None` if it exceeds the limit.
    fn longest<'a>(
        &self,
        mut bytes: impl ExactSizeIterator<Item = &'a u8>,
        limit: usize,
    ) -> Option<usize> {
        let length = bytes.len();
        let others = self.others as usize;
        let longest = if self.is_unlimited() {
            length
        } else if self.set.is_empty() {
            length.min(others)
        } else {
            let mut others_left = others;
            let end = bytes.by_ref().take(limit.saturating_add(1)).position(|&byte| {
                let is_other = !self.set.contains(byte);
                let ends = is_other && others_left == 0;
                others_left -= usize::from(is_other && !ends);
                ends
            });
            end.unwrap_or(length)
        };
        (longest <= limit).then_some(longest)
    }
}

/// Distances between a literal and the ends of a match that contains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reach {
    pub(super) before: Span,
    pub(super) after: Span,
}

impl Reach {
    pub(super) fn or(self, other: Self) -> Self {
        Self { before: self.before.or(other.before), after: self.after.or(other.after) }
    }

    /// The part of a text that can hold a match around a literal at `place`; `None` if more than that many bytes are on one side.
    pub(super) fn window(
        &self,
        text: &[u8],
        place: &Range<usize>,
        limit: usize,
    ) -> Option<Range<usize>> {
        let before = self.before.longest(text[..place.start].iter().rev(), limit)?;
        let after = self.after.longest(text[place.end..].iter(), limit)?;
        Some(place.start - before..place.end + after)
    }

    /// True if the literal is the start of a match that may be of any length.
    pub(super) fn is_start(&self) -> bool {
        self.before == Span::default() && !self.after.is_bounded()
    }

    /// True if it may be a window smaller than the text.
    pub(super) fn is_limited(&self) -> bool {
        !self.before.is_unlimited() || !self.after.is_unlimited()
    }
}

/// Literal, of which each match contains one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    pub(super) literal: Literal,
    /// A match lies within these distances of an occurrence of its literal; `None` if that is not known.
    pub(super) reach: Option<Reach>,
}

impl Anchor {
    /// A literal of which nothing else is known.
    pub(super) fn of(literal: Literal) -> Self {
        Self { literal, reach: None }
    }

    /// The literal of a text that each match contains, in lower case; if it is only the start of the text, with its reach.
    pub(super) fn of_text(text: &[u8]) -> Self {
        let literal = Literal::lower(text);
        let cut = u32::try_from(text.len() - literal.len()).unwrap_or(u32::MAX);
        let reach = Reach { before: Span::of_length(0), after: Span::of_length(cut) };
        Self { literal, reach: (cut > 0).then_some(reach) }
    }

    /// The literals in their order, each of them once.
    pub(super) fn distinct(mut anchors: Vec<Self>) -> Vec<Self> {
        anchors.sort_by_key(|anchor| anchor.literal);
        anchors.dedup_by(|next, kept| {
            let is_equal = next.literal == kept.literal;
            if is_equal {
                kept.reach = kept.reach.zip(next.reach).map(|(kept, next)| kept.or(next));
            }
            is_equal
        });
        anchors
    }
}

/// Windows of the probes in one text.
#[derive(Debug, Default)]
pub(super) struct Windows {
    windows: Vec<Window>,
    /// By probe.
    lists: Vec<List>,
}

/// Windows of one probe.
#[derive(Clone, Copy, Debug)]
struct List {
    /// Number of the last window, counted from one; 0 for none.
    last: u32,
    /// Cost of searching them.
    cost: u32,
    /// Position before which no literal begins.
    first: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { last: 0, cost: 0, first: u32::MAX }
    }
}

#[derive(Clone, Copy, Debug)]
struct Window {
    start: u32,
    end: u32,
    /// True if a match can only begin where the window begins. Its search mostly ends soon, however long the window is.
    is_anchored: bool,
    /// Number of the window before it of the same probe.
    before: u32,
}

/// Cost of the start of a search, in bytes that are searched in the same time.
const SEARCH_COST: usize = 100;
/// Cost of a byte that is tested for the end of a window, in bytes that are searched in the same time.
const EXTENSION_COST: usize = 4;
/// Share of a text that an anchored window costs: two of them at most are searched in place of the text.
const ANCHORED_SHARE: usize = 4;
/// Length up to which a window that can be anchored is measured.
const ANCHORED_MEASURED: usize = 256;

impl Windows {
    /// Removes all windows, for a text that is tested with that many probes.
    pub(super) fn clear(&mut self, probes: usize) {
        self.windows.clear();
        self.lists.clear();
        self.lists.resize(probes, List::default());
    }

    /// Adds the window of a literal at `place`; false if it is cheaper to search the whole text.
    pub(super) fn add(
        &mut self,
        probe: u32,
        reach: &Reach,
        text: &[u8],
        place: Range<usize>,
    ) -> bool {
        let list = &mut self.lists[probe as usize];
        let Some(left) = (text.len() / 2).checked_sub(list.cost as usize + SEARCH_COST) else {
            return false;
        };
        let limit = if reach.is_start() { ANCHORED_MEASURED } else { left / EXTENSION_COST };
        let window = reach.window(text, &place, limit.min(left / EXTENSION_COST));
        let is_anchored = window.is_none() && reach.is_start();
        let window = if is_anchored { Some(place.start..text.len()) } else { window };
        let Some(window) = window else { return false };
        let last = list.last.checked_sub(1).map(|last| &mut self.windows[last as usize]);
        let (Ok(from), Ok(to)) = (u32::try_from(window.start), u32::try_from(window.end)) else {
            return false;
        };
        match last {
            Some(last)
                if !(last.is_anchored || is_anchored) && from <= last.end && last.start <= to =>
            {
                let length = last.end - last.start;
                last.start = last.start.min(from);
                last.end = last.end.max(to);
                list.cost += last.end - last.start - length;
            }
            _ => {
                let Ok(number) = u32::try_from(self.windows.len() + 1) else { return false };
                self.windows.push(Window { start: from, end: to, is_anchored, before: list.last });
                list.last = number;
                list.cost += if is_anchored {
                    (text.len() / ANCHORED_SHARE) as u32
                } else {
                    to - from + SEARCH_COST as u32
                };
            }
        }
        true
    }

    /// Keeps a position before which no literal of a probe begins that is found later.
    pub(super) fn note(&mut self, probe: u32, position: usize) {
        let first = &mut self.lists[probe as usize].first;
        *first = (*first).min(u32::try_from(position).unwrap_or(0));
    }

    /// Position before which no literal of a probe begins.
    pub(super) fn first(&self, probe: usize) -> usize {
        self.lists[probe].first as usize
    }

    /// Windows of a probe, the last one first, and for each if a match can only begin where it begins.
    pub(super) fn of(&self, probe: usize) -> impl Iterator<Item = (Range<usize>, bool)> {
        let number = |number: u32| self.windows.get(number.checked_sub(1)? as usize);
        std::iter::successors(number(self.lists[probe].last), move |window| number(window.before))
            .map(|window| (window.start as usize..window.end as usize, window.is_anchored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_the_longest_parts() {
        let quoted = Span::of_any_number(Bytes::of(b"\"").complement());
        let reach = Reach {
            before: Span::of_length(2),
            after: quoted.with(Span::of_length(1)).or(Span::of_length(1)),
        };
        let text = b"abcd=efg\"h\"ij";
        let window = |place, limit| reach.window(text, &place, limit);
        assert_eq!(window(4..5, 9), Some(2..10));
        assert_eq!(window(1..2, 9), Some(0..10));
        assert_eq!(window(9..10, 9), Some(7..13));
        assert_eq!(window(4..5, 5), Some(2..10));
        assert_eq!(window(4..5, 4), None);
        assert_eq!(window(4..5, 1), None);
        assert_eq!(Span::of_length(3).times(u32::MAX).longest(text.iter(), 13), Some(13));
    }

    #[test]
    fn windows_of_a_probe_are_united_up_to_half_of_the_text() {
        let text = [b'x'; 1000];
        let reach = Reach { before: Span::of_length(10), after: Span::of_length(20) };
        let mut windows = Windows::default();
        windows.clear(2);
        let mut add = |probe, start| windows.add(probe, &reach, &text, start..start + 5);
        assert!(add(1, 5) && add(1, 30) && add(1, 500) && add(0, 990));
        // Three searches and 135 bytes cost more than half of the text.
        assert!(add(1, 700) && !add(1, 900));
        let found: Vec<_> = windows.of(1).collect();
        assert_eq!(found, [(690..725, false), (490..525, false), (0..55, false)]);
        assert_eq!((windows.of(0).next(), windows.of(0).count()), (Some((980..1000, false)), 1));
    }

    #[test]
    fn two_starts_of_long_matches_have_windows() {
        let text = [b'x'; 1000];
        let any = Span::of_any_number(Bytes::default().complement());
        let reach = Reach { before: Span::default(), after: any };
        let mut windows = Windows::default();
        windows.clear(1);
        assert!(windows.add(0, &reach, &text, 5..9) && windows.add(0, &reach, &text, 7..11));
        assert!(!windows.add(0, &reach, &text, 9..13));
        assert_eq!(windows.of(0).collect::<Vec<_>>(), [(7..1000, true), (5..1000, true)]);
    }
}
