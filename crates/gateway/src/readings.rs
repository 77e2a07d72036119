//! The routes to which a path leads in all ways in which backends may read it: another spelling must not bypass
//! the protection of a route.
//!
//! Backends read a path differently in these points:
//!
//! - `%2F`, `\` and `%5C` are slashes, or a part of a segment.
//! - `;` and what follows it are a part of the segment, or are cut: up to the next slash of any kind, or up to the next `/`.
//! - `..` leads to the parent, or is a name like any other. Likewise `.`.
//! - Consecutive slashes are one; for a `..` behind them, they may also be several.
//! - `%00` ends the path, or is a part of it. If the path is decoded again, this is true of `?` and `#`, too.
//! - The path is decoded once, or up to [`DECODINGS_MAX`] times, as by a chain of programs of which each decodes it
//!   (`%252e`), or generously ([`decoded_again`]).
//!
//! A backend that removes `..` and then splits the result by more kinds of slash, as in a chain of proxies, makes
//! these choices differently at two places of one path. So a reading here is any combination of choices at each
//! place, and a path is ambiguous if two readings lead to different routes. They are not enumerated: the path is read once,
//! with all places of the [`PrefixTree`] where a reading may be.
//!
//! Properties of names are none of these points: upper and lower case, Unicode normalization, and what Windows ignores
//! (trailing dots and spaces, `::$DATA`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem;

use crate::config::RouteId;
use crate::path::{Dots, decoded_again, normalize};

/// A path whose readings lead to different routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmbiguousPath;

const DECODINGS_MAX: usize = 3;

/// Paths with readings at more places at once are ambiguous: it bounds the time per segment.
const PLACES_MAX: usize = 16;

/// The path, and what it is after each further decoding that changes it.
pub(crate) fn decodings(path: &str) -> Vec<Cow<'_, str>> {
    let mut paths = vec![Cow::Borrowed(path)];
    while paths.len() < DECODINGS_MAX
        && let Some(last) = paths.last()
        && let decoded = decoded_again(last)
        && decoded != *last
    {
        let decoded = Cow::Owned(decoded.into_owned());
        paths.push(decoded);
    }
    paths
}

/// Path prefixes of routes, by segment. The root is the first place.
#[derive(Clone, Debug)]
pub(crate) struct PrefixTree(Vec<TreeNode>);

#[derive(Clone, Debug, Default)]
struct TreeNode {
    /// The root is its own parent.
    parent: usize,
    children: HashMap<String, usize>,
    /// Route of this path without a slash at the end.
    here: Option<RouteId>,
    /// Route of this path with a slash at the end, and of those below that have no place.
    inside: Option<RouteId>,
}

impl Default for PrefixTree {
    fn default() -> Self {
        Self(vec![TreeNode::default()])
    }
}

impl PrefixTree {
    pub(crate) fn new(prefixes: &[(String, RouteId)]) -> Self {
        let mut tree = Self::default();
        for (prefix, route) in prefixes {
            let place =
                prefix.split('/').filter(|name| !name.is_empty()).fold(0, |parent, name| {
                    let next = tree.0.len();
                    let place = *tree.0[parent].children.entry(name.to_owned()).or_insert(next);
                    if place == next {
                        tree.0.push(TreeNode { parent, ..TreeNode::default() });
                    }
                    place
                });
            if !prefix.ends_with('/') || place == 0 {
                tree.0[place].here.get_or_insert(*route);
            } else {
                tree.0[place].inside.get_or_insert(*route);
            }
        }
        // Parents precede their children.
        for place in 0..tree.0.len() {
            let outer = tree.0[tree.0[place].parent].inside;
            let TreeNode { here, inside, .. } = &mut tree.0[place];
            *here = here.or(outer);
            *inside = inside.or(*here);
        }
        tree
    }

    /// Returns the route to which all readings of a path lead.
    pub(crate) fn find(
        &self,
        decodings: &[Cow<'_, str>],
    ) -> Result<Option<RouteId>, AmbiguousPath> {
        if let [root] = &*self.0 {
            return Ok(root.inside);
        }
        let mut walk = Walk::new(self);
        for path in decodings {
            walk.read(path)?;
        }
        walk.route.ok_or(AmbiguousPath)
    }
}

/// Readings that are at, or below, the same place of the tree.
#[derive(Clone, Copy, Debug)]
struct Position {
    place: usize,
    /// Least and largest number of segments below that place.
    depth_min: usize,
    depth_max: usize,
    /// The path ends with the name of the place, so far without a slash. Then the depth is 0.
    is_here: bool,
}

impl Position {
    fn at(place: usize, is_here: bool) -> Self {
        Self { place, depth_min: 0, depth_max: 0, is_here }
    }
}

/// At most one for each place and `is_here`.
type Positions = Vec<Position>;

/// End of a piece of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Slash,
    MaybeSlash,
    Parameters,
    MaybeEnd,
    End,
}

struct Walk<'t> {
    tree: &'t PrefixTree,
    /// The route of the readings that are complete or cannot change any more.
    route: Option<Option<RouteId>>,
    /// There was an empty segment, which a `..` may remove.
    has_empty: bool,
    /// Work so far: pieces and positions.
    steps: usize,
}

impl<'t> Walk<'t> {
    fn new(tree: &'t PrefixTree) -> Self {
        Self { tree, route: None, has_empty: false, steps: 0 }
    }

    fn read(&mut self, path: &str) -> Result<(), AmbiguousPath> {
        self.has_empty = false;
        let mut rest = path.strip_prefix('/').unwrap_or(path);
        // Readings at the start of a segment, within one, and behind its parameters' `;`.
        let mut fresh = vec![Position::at(0, false)];
        let (mut within, mut cut) = (Positions::new(), Positions::new());
        // Readings by which the segment ends with this piece, and those at the start of the next one.
        let (mut ended, mut opened) = (Positions::new(), Positions::new());
        loop {
            let (piece, mark, behind) = next_piece(rest);
            rest = behind;
            self.steps += 1;
            self.end_segment(&fresh, piece, &mut ended)?;
            for position in &within {
                self.enter_name(*position, None, &mut ended)?;
            }
            match mark {
                Mark::Slash | Mark::MaybeSlash => {
                    for position in ended.iter().chain(&cut) {
                        self.add(&mut opened, Position { is_here: false, ..*position })?;
                    }
                    if mark == Mark::Slash {
                        fresh.clear();
                        within.clear();
                        cut.clear();
                    }
                    self.merge(&mut fresh, &mut within)?;
                    mem::swap(&mut fresh, &mut opened);
                }
                Mark::Parameters => {
                    self.merge(&mut ended, &mut cut)?;
                    self.merge(&mut fresh, &mut within)?;
                }
                Mark::MaybeEnd | Mark::End => {
                    for position in ended.iter().chain(&cut) {
                        self.complete(position)?;
                    }
                    if mark == Mark::End {
                        return Ok(());
                    }
                    self.merge(&mut fresh, &mut within)?;
                }
            }
            ended.clear();
        }
    }

    fn merge(&mut self, from: &mut Positions, into: &mut Positions) -> Result<(), AmbiguousPath> {
        from.drain(..).try_for_each(|position| self.add(into, position))
    }

    /// Reads `piece` as a whole segment.
    fn end_segment(
        &mut self,
        from: &[Position],
        piece: &str,
        into: &mut Positions,
    ) -> Result<(), AmbiguousPath> {
        let dots = Dots::of(piece);
        let name = normalize(piece);
        for &position in from {
            match dots {
                None if piece.is_empty() => self.add(into, position)?,
                None => self.enter_name(position, Some(&name), into)?,
                Some(dots) => {
                    self.enter_name(position, None, into)?;
                    if dots == Dots::Same || self.has_empty {
                        self.add(into, position)?;
                    }
                    if dots == Dots::Parent {
                        self.leave(position, into)?;
                    }
                }
            }
        }
        self.has_empty |= piece.is_empty() && !from.is_empty();
        Ok(())
    }

    /// `name` is `None` if no prefix has it.
    fn enter_name(
        &mut self,
        position: Position,
        name: Option<&str>,
        into: &mut Positions,
    ) -> Result<(), AmbiguousPath> {
        let Position { place, mut depth_min, depth_max, .. } = position;
        if depth_min == 0
            && let Some(name) = name
            && let Some(&child) = self.tree.0[place].children.get(name)
        {
            self.add(into, Position::at(child, true))?;
            if depth_max == 0 {
                return Ok(());
            }
            depth_min = 1;
        }
        let below =
            Position { place, depth_min: depth_min + 1, depth_max: depth_max + 1, is_here: false };
        // As any `..` that follows may be a name, one reading stays below this place.
        self.complete(&below)?;
        self.add(into, below)
    }

    /// Goes to the parent.
    fn leave(&mut self, position: Position, into: &mut Positions) -> Result<(), AmbiguousPath> {
        let Position { place, depth_min, depth_max, .. } = position;
        if depth_min == 0 {
            self.add(into, Position::at(self.tree.0[place].parent, false))?;
        }
        if depth_max > 0 {
            let depth_min = depth_min.max(1) - 1;
            self.add(
                into,
                Position { place, depth_min, depth_max: depth_max - 1, is_here: false },
            )?;
        }
        Ok(())
    }

    fn add(&mut self, positions: &mut Positions, new: Position) -> Result<(), AmbiguousPath> {
        self.steps += 1;
        let is_same = |old: &&mut Position| (old.place, old.is_here) == (new.place, new.is_here);
        if let Some(old) = positions.iter_mut().find(is_same) {
            old.depth_min = old.depth_min.min(new.depth_min);
            old.depth_max = old.depth_max.max(new.depth_max);
        } else if positions.len() < PLACES_MAX {
            positions.push(new);
        } else {
            return Err(AmbiguousPath);
        }
        Ok(())
    }

    /// Notes the route of readings that end at this position.
    fn complete(&mut self, position: &Position) -> Result<(), AmbiguousPath> {
        let place = &self.tree.0[position.place];
        let route = if position.is_here { place.here } else { place.inside };
        if *self.route.get_or_insert(route) == route { Ok(()) } else { Err(AmbiguousPath) }
    }
}

/// Splits a path at the first byte that backends read in different ways: the piece before it and the rest behind it.
fn next_piece(path: &str) -> (&str, Mark, &str) {
    let bytes = path.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let (mark, len) = match byte {
            b'/' => (Mark::Slash, 1),
            b'\\' => (Mark::MaybeSlash, 1),
            b';' => (Mark::Parameters, 1),
            b'?' | b'#' => (Mark::MaybeEnd, 1),
            b'%' => match bytes[at + 1..] {
                [b'2', b'f' | b'F', ..] | [b'5', b'c' | b'C', ..] => (Mark::MaybeSlash, 3),
                [b'0', b'0', ..] => (Mark::MaybeEnd, 3),
                _ => continue,
            },
            _ => continue,
        };
        return (&path[..at], mark, &path[at + len..]);
    }
    (path, Mark::End, "")
}

#[cfg(test)]
mod tests;
