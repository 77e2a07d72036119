//! Normalization of paths. A path can be spelled in many ways, and backends differ in how they read it: another
//! spelling must not bypass the protection of a route.

use std::borrow::Cow;

/// A way to read a path. Servers may decode one kind of slash and not another, so each kind is a separate alternative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    /// `%2F` is a slash.
    encoded_slash: bool,
    /// `\` is a slash.
    backslash: bool,
    /// `%5C` is a slash.
    encoded_backslash: bool,
    parameters: Parameters,
    /// Consecutive slashes are one.
    merge_slashes: bool,
}

/// Treatment of `;` and the following bytes in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parameters {
    /// They are part of the segment.
    Keep,
    /// They end at the next slash in the path as received: `/%2F;%5Cx/a` is `/%2F/a`, as in Tomcat.
    CutBeforeDecoding,
    /// They end at the next slash of this reading.
    CutAfterDecoding,
}

/// The reading that routes are matched by: nginx's, except that `%2F` is not a slash.
const NORMAL: Reading = Reading {
    encoded_slash: false,
    backslash: false,
    encoded_backslash: false,
    parameters: Parameters::Keep,
    merge_slashes: true,
};

struct Segment<'a> {
    raw: &'a str,
    normalized: String,
}

/// The segments of a path after `..` is resolved.
struct Segments<'a> {
    kept: Vec<Segment<'a>>,
    ends_with_slash: bool,
    has_parent: bool,
    /// `.` or `..` was resolved.
    has_dots: bool,
}

/// True if all backends read a path (without its query) in the same way.
pub(crate) fn is_plain(path: &str) -> bool {
    let is_special = |byte: &u8| matches!(byte, b'%' | b'\\' | b';');
    let is_special_pair = |pair: &[u8]| matches!(pair, b"//" | b"/.");
    !path.as_bytes().iter().any(is_special) && !path.as_bytes().windows(2).any(is_special_pair)
}

/// The normalized path (without its query), then all other readings that a backend may have. Slashes are always
/// merged, as nginx does, except in paths with `..`, where their number matters.
pub(crate) fn readings(path: &str) -> impl Iterator<Item = String> + '_ {
    const PARAMETERS: [Parameters; 3] =
        [Parameters::Keep, Parameters::CutBeforeDecoding, Parameters::CutAfterDecoding];
    let slashes = 0..8_u8;
    let all = slashes.flat_map(|kinds| {
        PARAMETERS.into_iter().flat_map(move |parameters| {
            [true, false].map(|merge_slashes| Reading {
                encoded_slash: kinds & 1 != 0,
                backslash: kinds & 2 != 0,
                encoded_backslash: kinds & 4 != 0,
                parameters,
                merge_slashes,
            })
        })
    });
    all.filter_map(move |reading| {
        let path = match reading.parameters {
            Parameters::CutBeforeDecoding => Cow::Owned(without_parameters(path)),
            Parameters::Keep | Parameters::CutAfterDecoding => Cow::Borrowed(path),
        };
        let segments = segments(&path, reading);
        (reading.merge_slashes || segments.has_parent)
            .then(|| segments.join(|segment| &segment.normalized))
    })
}

/// The path (without its query) with `.` and `..` resolved, in its original spelling otherwise. Backends get this path:
/// one that compares prefixes without resolving them would take `/admin/../x` for a part of `/admin`.
pub(crate) fn resolved(path: &str) -> Cow<'_, str> {
    if is_plain(path) {
        return path.into();
    }
    let segments = segments(path, NORMAL);
    if segments.has_dots { segments.join(|segment| segment.raw).into() } else { path.into() }
}

/// Cuts `;` and what follows it from each segment.
fn without_parameters(path: &str) -> String {
    let names = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    names.collect::<Vec<_>>().join("/")
}

/// Returns the rest of a path after its first `count` segments, in its original spelling: empty or starting with a
/// slash.
pub(crate) fn behind(path: &str, count: usize) -> String {
    let mut segments = segments(path, NORMAL);
    segments.kept.drain(..count.min(segments.kept.len()));
    if segments.kept.is_empty() && !segments.ends_with_slash {
        return String::new();
    }
    segments.join(|segment| segment.raw)
}

/// The number of segments of a plain path.
pub(crate) fn segment_count(path: &str) -> usize {
    path.split('/').filter(|segment| !segment.is_empty()).count()
}

fn segments(path: &str, reading: Reading) -> Segments<'_> {
    let mut segments =
        Segments { kept: Vec::new(), ends_with_slash: false, has_parent: false, has_dots: false };
    let mut parts = split(path.strip_prefix('/').unwrap_or(path), reading).into_iter().peekable();
    while let Some(raw) = parts.next() {
        let normalized = normalize(raw, reading);
        let is_last = parts.peek().is_none();
        segments.ends_with_slash = matches!(&*normalized, "" | "." | "..");
        segments.has_dots |= matches!(&*normalized, "." | "..");
        match &*normalized {
            "." => {}
            ".." => {
                segments.has_parent = true;
                // The parent of the root is the root.
                drop(segments.kept.pop());
            }
            "" if reading.merge_slashes || is_last => {}
            _ => segments.kept.push(Segment { raw, normalized }),
        }
    }
    segments
}

impl Segments<'_> {
    fn join<'a>(&'a self, text_of: impl Fn(&'a Segment<'a>) -> &'a str) -> String {
        let mut path = String::new();
        for segment in &self.kept {
            path.push('/');
            path.push_str(text_of(segment));
        }
        if self.ends_with_slash || path.is_empty() {
            path.push('/');
        }
        path
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

/// Length of the slash at the start; 0 if there is none.
fn slash_bytes(rest: &[u8], reading: Reading) -> usize {
    match rest {
        [b'/', ..] => 1,
        [b'\\', ..] if reading.backslash => 1,
        [b'%', b'2', b'f' | b'F', ..] if reading.encoded_slash => 3,
        [b'%', b'5', b'c' | b'C', ..] if reading.encoded_backslash => 3,
        _ => 0,
    }
}

/// Decodes needless escapes of a segment and writes the others in upper case.
fn normalize(raw: &str, reading: Reading) -> String {
    let raw = match raw.split_once(';') {
        Some((name, _)) if reading.parameters == Parameters::CutAfterDecoding => name,
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
    fn normalizes_like_nginx_except_escaped_slashes() {
        for (path, normalized) in [
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
            assert_eq!(readings(path).next().unwrap(), normalized, "{path}");
        }
    }

    #[test]
    fn readings_cover_other_backends() {
        let all = |path: &str| -> std::collections::BTreeSet<String> { readings(path).collect() };
        let are = |path: &str, expected: &[&str]| {
            assert_eq!(all(path), expected.iter().map(|&text| text.to_owned()).collect(), "{path}");
        };
        are("/a/b", &["/a/b"]);
        are("//a", &["/a"]);
        are("/a%2Fb", &["/a%2Fb", "/a/b"]);
        are("/a/..%2fb", &["/a/..%2Fb", "/b"]);
        are("/a\\..\\b", &["/a\\..\\b", "/b"]);
        // Each kind of slash alone, and together.
        are("/a%5cb\\c", &["/a%5Cb\\c", "/a/b\\c", "/a%5Cb/c", "/a/b/c"]);
        are("/a/..;x/b", &["/a/..;x/b", "/b"]);
        are("/a//../b", &["/b", "/a/b"]);
        are("/a;/..%2f;%2e", &["/a;/..%2F;.", "/a/..%2F", "/;.", "/"]);
        assert!(all("/%2F;%5Cx/admin").contains("/admin"), "as in Tomcat");
    }

    #[test]
    fn dots_are_resolved_in_the_original_spelling() {
        for (path, expected) in [
            ("/a/b", "/a/b"),
            ("/%61//b;c/", "/%61//b;c/"),
            ("/admin/../%78", "/%78"),
            ("/a/%2E%2e/b%2fc/./d;e", "/b%2fc/d;e"),
            ("/a/..%2fb", "/a/..%2fb"),
            ("/..", "/"),
            ("/a/.", "/a/"),
        ] {
            assert_eq!(resolved(path), expected, "{path}");
        }
    }

    #[test]
    fn rest_behind_prefix_keeps_spelling() {
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
    fn plain_path_has_one_reading() {
        for path in ["/", "/a", "/a/b/", "/a.b/c..d", "/a~!$&'()*+,=:@-_"] {
            assert!(is_plain(path));
            assert!(readings(path).all(|reading| reading == path), "{path}");
        }
        for path in ["//", "/.a", "/a/..", "/%61", "/a;b", "/a\\b"] {
            assert!(!is_plain(path), "{path}");
        }
    }
}
