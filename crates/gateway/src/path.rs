//! Paths as routes see them. One path can be written in many ways, and a backend may read it in more ways than
//! one: what is behind a route must not be reached past it by another spelling.

/// A way to read a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// `%2F`, `\` and `%5C` stand for `/`.
    slashes: bool,
    /// Several slashes stand for one.
    merges: bool,
    /// What follows a `;` is no part of its segment.
    parameters: bool,
}

/// How routes are matched, which is nginx's way but for `%2F`, which stays apart.
pub(crate) const PLAIN: Reading = Reading { slashes: false, merges: true, parameters: false };

/// A part of a path between two slashes.
struct Segment<'a> {
    /// As it came.
    raw: &'a str,
    /// Without escapes that it needs not have.
    read: String,
}

/// The segments of a path after those that climb have been followed, and whether a slash ends it.
struct Segments<'a> {
    kept: Vec<Segment<'a>>,
    is_open: bool,
    climbs: bool,
}

/// Whether a path, without its query, is read in one way by everybody.
pub(crate) fn is_plain(path: &str) -> bool {
    let is_odd = |byte: &u8| matches!(byte, b'%' | b'\\' | b';');
    let is_odd_pair = |pair: &[u8]| matches!(pair, b"//" | b"/.");
    !path.as_bytes().iter().any(is_odd) && !path.as_bytes().windows(2).any(is_odd_pair)
}

/// A path, without its query, as it is read first, and then in every other way that a backend may have. Slashes
/// are always merged, as they are by nginx, unless the path climbs: then it counts how many there are.
pub(crate) fn readings(path: &str) -> impl Iterator<Item = String> + '_ {
    let both = [false, true];
    let all = both.into_iter().flat_map(move |slashes| {
        both.into_iter().flat_map(move |parameters| {
            [true, false].map(|merges| Reading { slashes, merges, parameters })
        })
    });
    all.filter_map(|reading| {
        let segments = segments(path, reading);
        (reading.merges || segments.climbs).then(|| segments.text(|segment| &segment.read))
    })
}

/// What is left of a path behind so many segments, in the spelling in which it came; it begins with a slash, unless
/// nothing is left.
pub(crate) fn behind(path: &str, count: usize) -> String {
    let mut segments = segments(path, PLAIN);
    segments.kept.drain(..count.min(segments.kept.len()));
    if segments.kept.is_empty() && !segments.is_open {
        return String::new();
    }
    segments.text(|segment| segment.raw)
}

/// How many segments a path has that is read in one way.
pub(crate) fn segment_count(path: &str) -> usize {
    path.split('/').filter(|segment| !segment.is_empty()).count()
}

fn segments(path: &str, reading: Reading) -> Segments<'_> {
    let mut segments = Segments { kept: Vec::new(), is_open: false, climbs: false };
    let mut parts = split(path.strip_prefix('/').unwrap_or(path), reading).into_iter().peekable();
    while let Some(raw) = parts.next() {
        let read = read(raw, reading);
        let is_last = parts.peek().is_none();
        segments.is_open = matches!(&*read, "" | "." | "..");
        match &*read {
            "." => {}
            ".." => {
                segments.climbs = true;
                // Above the top there is nothing.
                drop(segments.kept.pop());
            }
            "" if reading.merges || is_last => {}
            _ => segments.kept.push(Segment { raw, read }),
        }
    }
    segments
}

impl Segments<'_> {
    fn text<'a>(&'a self, of: impl Fn(&'a Segment<'a>) -> &'a str) -> String {
        let mut text = String::new();
        for segment in &self.kept {
            text.push('/');
            text.push_str(of(segment));
        }
        if self.is_open || text.is_empty() {
            text.push('/');
        }
        text
    }
}

fn split(path: &str, reading: Reading) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < path.len() {
        match slash_bytes(&path.as_bytes()[at..], reading) {
            0 => at += 1,
            bytes => {
                parts.push(&path[start..at]);
                at += bytes;
                start = at;
            }
        }
    }
    parts.push(&path[start..]);
    parts
}

/// How long the slash is that stands at the start; 0 where there is none.
fn slash_bytes(rest: &[u8], reading: Reading) -> usize {
    match rest {
        [b'/', ..] => 1,
        [b'\\', ..] if reading.slashes => 1,
        [b'%', b'2', b'f' | b'F', ..] | [b'%', b'5', b'c' | b'C', ..] if reading.slashes => 3,
        _ => 0,
    }
}

/// A segment without its parameters, if they are none of it, and without the escapes that say nothing: those of
/// what may stand there as it is. Others are written in one way.
fn read(raw: &str, reading: Reading) -> String {
    let raw = match raw.split_once(';') {
        Some((name, _)) if reading.parameters => name,
        _ => raw,
    };
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let code =
            rest.get(at + 1..at + 3).filter(|code| code.bytes().all(|it| it.is_ascii_hexdigit()));
        let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) else {
            out.push('%');
            rest = &rest[at + 1..];
            continue;
        };
        if byte.is_ascii_graphic() && !matches!(byte, b'%' | b'/' | b'\\') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        rest = &rest[at + 3..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_nginx_reads_it_but_for_escaped_slashes() {
        for (path, read) in [
            ("/", "/"),
            ("//", "/"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/../../a", "/a"),
            ("/a//b///", "/a/b/"),
            ("/a//../b", "/b"),
            ("/%61/%2E%2e/b", "/b"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2F..%2Fb", "/a%2F..%2Fb"),
            ("/a%5c..", "/a%5C.."),
            ("/a%20%c3%a9%00%25", "/a%20%C3%A9%00%25"),
            ("/%2561", "/%2561"),
            ("/a%4", "/a%4"),
            ("/a%zz%61", "/a%zza"),
            ("/a;b/..;/c", "/a;b/..;/c"),
            ("/...", "/..."),
            ("/.a/..b", "/.a/..b"),
        ] {
            assert_eq!(readings(path).next().unwrap(), read, "{path}");
        }
    }

    #[test]
    fn other_readings_are_those_of_backends_that_know_more() {
        let all = |path: &str| -> std::collections::BTreeSet<String> { readings(path).collect() };
        let are = |path: &str, expected: &[&str]| {
            assert_eq!(all(path), expected.iter().map(|&text| text.to_owned()).collect(), "{path}");
        };
        are("/a/b", &["/a/b"]);
        are("//a", &["/a"]);
        are("/a%2Fb", &["/a%2Fb", "/a/b"]);
        are("/a/..%2fb", &["/a/..%2Fb", "/b"]);
        are("/a\\..\\b", &["/a\\..\\b", "/b"]);
        are("/a/..;x/b", &["/a/..;x/b", "/b"]);
        are("/a//../b", &["/b", "/a/b"]);
        are("/a;/..%2f;%2e", &["/a;/..%2F;.", "/a/..%2F", "/;.", "/"]);
    }

    #[test]
    fn what_is_behind_a_prefix_keeps_its_spelling() {
        for (path, count, rest) in [
            ("/a/%62?", 1, "/%62?"),
            ("/x/../%61/b%2fc/./d;e", 1, "/b%2fc/d;e"),
            ("/a/", 1, "/"),
            ("//a", 1, ""),
            ("/a/b//", 2, "/"),
            ("/%61", 0, "/%61"),
            ("/a", 9, ""),
        ] {
            assert_eq!(behind(path, count), rest, "{path}");
        }
        assert_eq!((segment_count("/"), segment_count("/a/b"), segment_count("/a/b/")), (0, 2, 2));
    }

    #[test]
    fn a_plain_path_has_one_reading() {
        for path in ["/", "/a", "/a/b/", "/a.b/c..d", "/a~!$&'()*+,=:@-_"] {
            assert!(is_plain(path));
            assert!(readings(path).all(|read| read == path), "{path}");
        }
        for path in ["//", "/.a", "/a/..", "/%61", "/a;b", "/a\\b"] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
