//! Entries of ModSecurity's Native format: sections between lines with a boundary, from A to Z.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read as _};

use super::entry::{Content, Entry, LoggedMatches, Recorded, day};
use super::error_log;
use crate::replay::parse_head;

/// Limit of an entry; longer ones are truncated.
pub const ENTRY_BYTES_MAX: usize = 4 << 20;

/// Lines of a log, of which some may be read again.
pub(super) struct Lines<R> {
    log: R,
    again: VecDeque<Vec<u8>>,
}

pub(super) enum Line {
    /// With its end, if it has one.
    Whole(Vec<u8>),
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(log: R) -> Self {
        Self { log, again: VecDeque::new() }
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        if let Some(line) = self.again.pop_front() {
            return Ok(Some(Line::Whole(line)));
        }
        let mut line = Vec::new();
        if (&mut self.log).take(ENTRY_BYTES_MAX as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.len() < ENTRY_BYTES_MAX || line.ends_with(b"\n") {
            return Ok(Some(Line::Whole(line)));
        }
        self.log.skip_until(b'\n')?;
        Ok(Some(Line::TooLong))
    }
}

pub(super) enum Read {
    Entry(Box<Entry>),
    NotUnderstood,
    Truncated,
}

/// Returns boundary and letter of a line such as `--0a1b2c3d-A--` (ModSecurity 2) or `---aBcDeFg1---A--` (3).
pub(super) fn boundary(line: &[u8]) -> Option<(Vec<u8>, u8)> {
    let of = |open: &[u8], close: &[u8]| {
        let rest = line.strip_prefix(open)?;
        let (id, rest) =
            rest.split_at_checked(8).filter(|(id, _)| id.iter().all(u8::is_ascii_alphanumeric))?;
        match rest.strip_prefix(close)? {
            [letter @ b'A'..=b'Z', b'-', b'-'] => Some((id.to_vec(), *letter)),
            _ => None,
        }
    };
    of(b"---", b"---").or_else(|| of(b"--", b"-"))
}

/// True for a line of the index of a concurrent log, which ends with the hash of an entry.
pub(super) fn is_index(line: &[u8]) -> bool {
    let last = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    let hash = last.strip_prefix(b"md5:").or_else(|| last.strip_prefix(b"sha256:"));
    hash.is_some_and(|hash| hash.len() >= 32 && hash.iter().all(u8::is_ascii_hexdigit))
}

/// Reads an entry behind its first boundary. Only lines with the same boundary divide it, so that no body can imitate an entry.
pub(super) fn read(id: &[u8], lines: &mut Lines<impl BufRead>) -> io::Result<Read> {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    // Starts of sections, and the first line that may belong to the next entry.
    let (mut starts, mut other) = (vec![(b'A', 0)], None);
    let mut bytes = 0;
    loop {
        let line = match lines.next()? {
            Some(Line::Whole(line)) if bytes + line.len() <= ENTRY_BYTES_MAX => line,
            Some(Line::Whole(line)) => {
                taken.push(line);
                return Ok(truncated(taken, other, lines));
            }
            Some(Line::TooLong) | None => return Ok(truncated(taken, other, lines)),
        };
        bytes += line.len();
        match boundary(line.trim_ascii_end()) {
            Some((found, b'Z')) if found == id => break,
            Some((found, letter)) if found == id => starts.push((letter, taken.len() + 1)),
            Some((_, b'A')) => other = other.or(Some(taken.len())),
            _ => {}
        }
        taken.push(line);
    }
    let section = |letter: u8| -> Option<Vec<u8>> {
        let at = starts.iter().position(|(found, _)| *found == letter)?;
        let end = starts.get(at + 1).map_or(taken.len(), |(_, next)| next - 1);
        Some(taken[starts[at].1..end].concat())
    };
    Ok(entry(section).map_or(Read::NotUnderstood, |entry| Read::Entry(Box::new(entry))))
}

/// Has the lines from the next entry on read again, and later ones of an entry that is too long.
fn truncated(
    mut taken: Vec<Vec<u8>>,
    other: Option<usize>,
    lines: &mut Lines<impl BufRead>,
) -> Read {
    if let Some(other) = other {
        let again = taken.split_off(other);
        again.into_iter().rev().for_each(|line| lines.again.push_front(line));
    }
    Read::Truncated
}

fn entry(section: impl Fn(u8) -> Option<Vec<u8>>) -> Option<Entry> {
    let head = String::from_utf8_lossy(&section(b'A')?).into_owned();
    let (time, rest) = head.split_once("] ")?;
    let mut words = rest.split_ascii_whitespace();
    let (transaction, client) = (words.next()?, words.next()?);
    let content = match section(b'B').filter(|head| head.contains(&b' ')) {
        Some(head) => {
            let body = section(b'C').map(without_line_ends);
            let was_blocked = section(b'H').map(|messages| {
                String::from_utf8_lossy(&messages).lines().any(error_log::is_block)
            });
            Content::Request(Recorded::of(parse_head(&head), body, was_blocked))
        }
        None => {
            let text = String::from_utf8_lossy(&section(b'H')?).into_owned();
            let mut logged =
                LoggedMatches { transaction: transaction.to_owned(), ..Default::default() };
            text.lines().for_each(|line| logged.add(line));
            Content::Matches(logged)
        }
    };
    Some(Entry { client: Some(client.to_owned()), day: day(time), content })
}

/// Removes the line ends behind a body: two of ModSecurity 3, one of 2. A length in the head of the request decides if the body
/// itself ends with a line.
fn without_line_ends(mut body: Vec<u8>) -> Vec<u8> {
    for _ in 0..2 {
        body.pop_if(|last| *last == b'\n');
    }
    body
}
