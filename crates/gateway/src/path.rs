//! Spellings of paths: the normal one, by which routes are matched, and the one that backends get. The ways in which
//! backends may read a path are in [`readings`](crate::readings).

use std::borrow::Cow;

/// True if all backends read a path (without its query) in the same way.
pub(crate) fn is_plain(path: &str) -> bool {
    let is_special = |byte: &u8| matches!(byte, b'%' | b'\\' | b';');
    let is_special_pair = |pair: &[u8]| matches!(pair, b"//" | b"/.");
    !path.as_bytes().iter().any(is_special) && !path.as_bytes().windows(2).any(is_special_pair)
}

/// Compares whole segments. A target that is not a path, such as `*`, matches only `/`.
pub(crate) fn has_prefix(path: &str, prefix: &str) -> bool {
    if prefix == "/" {
        return true;
    }
    let Some(rest) = path.strip_prefix(prefix) else {
        return false;
    };
    prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/')
}

/// A segment that is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dots {
    /// `.`
    Same,
    /// `..`
    Parent,
}

impl Dots {
    /// Dots may be escaped.
    pub(crate) fn of(segment: &str) -> Option<Self> {
        let mut rest = segment.as_bytes();
        let mut count = 0;
        while let [b'.', behind @ ..] | [b'%', b'2', b'e' | b'E', behind @ ..] = rest {
            count += 1;
            rest = behind;
        }
        match (count, rest) {
            (1, []) => Some(Self::Same),
            (2, []) => Some(Self::Parent),
            _ => None,
        }
    }
}

/// The path (without its query) with `.` and `..` resolved, in its original spelling otherwise. Backends get this path:
/// one that compares prefixes without resolving them would take `/admin/../x` for a part of `/admin`.
pub(crate) fn resolved(path: &str) -> Cow<'_, str> {
    if is_plain(path) || !path.split('/').any(|segment| Dots::of(segment).is_some()) {
        return path.into();
    }
    Segments::of(path).join().into()
}

/// Returns the rest of a path after its first `count` segments, in its original spelling: empty or starting with a
/// slash.
pub(crate) fn behind(path: &str, count: usize) -> String {
    let mut segments = Segments::of(path);
    segments.names.drain(..count.min(segments.names.len()));
    if segments.names.is_empty() && !segments.ends_with_slash {
        return String::new();
    }
    segments.join()
}

/// The number of segments of a plain path.
pub(crate) fn segment_count(path: &str) -> usize {
    path.split('/').filter(|segment| !segment.is_empty()).count()
}

/// The segments of a path as nginx reads it, except that `%2F` is not a slash: dots are resolved, consecutive slashes
/// are one.
struct Segments<'a> {
    names: Vec<&'a str>,
    ends_with_slash: bool,
}

impl<'a> Segments<'a> {
    fn of(path: &'a str) -> Self {
        let mut segments = Self { names: Vec::new(), ends_with_slash: false };
        for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
            let dots = Dots::of(segment);
            segments.ends_with_slash = segment.is_empty() || dots.is_some();
            match dots {
                // The parent of the root is the root.
                Some(Dots::Parent) => drop(segments.names.pop()),
                None if !segment.is_empty() => segments.names.push(segment),
                Some(Dots::Same) | None => {}
            }
        }
        segments
    }

    fn join(&self) -> String {
        let mut path = String::new();
        for name in &self.names {
            path.push('/');
            path.push_str(name);
        }
        if self.ends_with_slash || path.is_empty() {
            path.push('/');
        }
        path
    }
}

/// Decodes needless escapes of a name and writes the others in upper case. A `%` that begins no escape stands for
/// itself, like `%25`.
pub(crate) fn normalize(name: &str) -> Cow<'_, str> {
    if !name.contains('%') {
        return name.into();
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (byte, len) = escape(&rest[at..]).map_or((b'%', 1), |byte| (byte, 3));
        if byte.is_ascii_graphic() && !matches!(byte, b'%' | b'/' | b'\\') {
            out.push(char::from(byte));
        } else {
            push_escape(&mut out, byte);
        }
        rest = &rest[at + len..];
    }
    out.push_str(rest);
    out.into()
}

/// Decodes a path once more, for backends that get it from a program that has decoded it, and for those that decode
/// generously: overlong UTF-8 (`%C0%AE`) and `%u002E` are characters, too. Slashes and the zero byte stay
/// escaped, as they can be read in several ways.
pub(crate) fn decoded_again(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return path.into();
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (byte, len) = generous_escape(rest).unwrap_or((b'%', 1));
        match byte {
            b'/' | b'\\' => push_escape(&mut out, byte),
            _ if byte.is_ascii_graphic() => out.push(char::from(byte)),
            0 => out.push_str("%00"),
            _ => out.push_str(&rest[..len]),
        }
        rest = &rest[len..];
    }
    out.push_str(rest);
    out.into()
}

/// The byte of an escape at the start, and the escape's length.
fn generous_escape(text: &str) -> Option<(u8, usize)> {
    if let Some(code) =
        text.get(..6).and_then(|text| text.strip_prefix("%u").or(text.strip_prefix("%U")))
    {
        let code = u16::from_str_radix(code, 16).ok().filter(|_| is_hex(code))?;
        return Some((u8::try_from(code).ok().filter(u8::is_ascii)?, 6));
    }
    let first = escape(text)?;
    let continuation = |at: usize| {
        let byte = escape(text.get(3 * at..)?)?;
        (byte & 0xc0 == 0x80).then_some(byte & 0x3f)
    };
    // The bits of the longer forms before the last two bytes are zero.
    let (high, len) = match first {
        0xc0 | 0xc1 => (first & 0x1f, 2),
        0xe0 => (continuation(1).unwrap_or(u8::MAX), 3),
        0xf0 if continuation(1) == Some(0) => (continuation(2).unwrap_or(u8::MAX), 4),
        _ => return Some((first, 3)),
    };
    match continuation(len - 1) {
        Some(low) if high <= 1 => Some((high << 6 | low, 3 * len)),
        _ => Some((first, 3)),
    }
}

/// The byte of the escape at the start.
fn escape(text: &str) -> Option<u8> {
    let code = text.strip_prefix('%')?.get(..2).filter(|code| is_hex(code))?;
    u8::from_str_radix(code, 16).ok()
}

fn is_hex(code: &str) -> bool {
    code.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn push_escape(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Returns another spelling of a path, or another path as which a backend may read it.
pub(crate) fn other_reading(path: &str) -> Option<String> {
    let normal = |path: &str| {
        let segments = Segments::of(path);
        let names: Vec<Cow<'_, str>> = segments.names.iter().map(|name| normalize(name)).collect();
        let names = names.iter().map(Cow::as_ref).collect();
        Segments { names, ..segments }.join()
    };
    let spelled = normal(path);
    let slashes = spelled.replace("%2F", "/").replace("%5C", "/").replace('\\', "/");
    let names: Vec<&str> =
        slashes.split('/').map(|segment| segment.split(';').next().unwrap_or_default()).collect();
    let split = names.join("/");
    let truncated = path.split("%00").next().unwrap_or_default();
    let decoded = normal(&decoded_again(path));
    let mut others = [&*spelled, &*split, truncated, &*decoded].into_iter();
    others.find(|other| *other != path).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_resolved_in_the_original_spelling() {
        for (path, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/%61//b;c/", "/%61//b;c/"),
            ("/a//./b///", "/a/b/"),
            ("/a//../b", "/b"),
            ("/admin/../%78", "/%78"),
            ("/a/%2E%2e/b%2fc/./d;e", "/b%2fc/d;e"),
            ("/a/..%2fb", "/a/..%2fb"),
            ("/a%5c..", "/a%5c.."),
            ("/a;b/..;/c", "/a;b/..;/c"),
            ("/..", "/"),
            ("/../../a", "/a"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/...", "/..."),
            ("/.a/..b/.%2e.", "/.a/..b/.%2e."),
        ] {
            assert_eq!(resolved(path), expected, "{path}");
        }
    }

    #[test]
    fn needless_escapes_of_names_are_decoded() {
        for (name, normalized) in [
            ("a", "a"),
            ("%61%2d%7E", "a-~"),
            ("%20%c3%a9%00", "%20%C3%A9%00"),
            ("%2f%5c%25", "%2F%5C%25"),
            ("a%", "a%25"),
            ("%4", "%254"),
            ("%zz%61", "%25zza"),
            ("%é", "%25é"),
        ] {
            assert_eq!(normalize(name), normalized, "{name}");
        }
    }

    #[test]
    fn decoding_again_reveals_hidden_characters() {
        for (path, decoded) in [
            ("/a", "/a"),
            ("/%61%20%", "/a%20%"),
            ("/%252e%25%35c", "/%2e%5c"),
            ("/%%32%66", "/%2f"),
            ("/%2f%5c%3b%3f%00", "/%2F%5C;?%00"),
            ("/%c0%ae%C1%9C%c1%a1", "/.%5Ca"),
            ("/%e0%80%ae%e0%81%a1%f0%80%80%af", "/.a%2F"),
            ("/%c3%a9%e2%82%ac%f0%9f%98%80", "/%c3%a9%e2%82%ac%f0%9f%98%80"),
            ("/%c0%2f%c0", "/%c0%2F%c0"),
            ("/%e0%80%2e%f0%80", "/%e0%80.%f0%80"),
            ("/%u002e%U002F%u00e9%u00", "/.%2F%u00e9%u00"),
            ("/%u+02e", "/%u+02e"),
        ] {
            assert_eq!(decoded_again(path), decoded, "{path}");
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
    fn plain_path_has_no_other_reading() {
        for path in ["/", "/a", "/a/b/", "/a.b/c..d", "/a~!$&'()*+,=:@-_"] {
            assert!(is_plain(path));
            assert_eq!(other_reading(path), None, "{path}");
        }
        for path in ["/%20", "/%C3%A9", "/a%25b"] {
            assert!(!is_plain(path));
            assert_eq!(other_reading(path), None, "{path}");
        }
        for (path, other) in [
            ("//", "/"),
            ("/.", "/"),
            ("/a/..", "/"),
            ("/%61", "/a"),
            ("/%c3", "/%C3"),
            ("/a%", "/a%25"),
            ("/a;b", "/a"),
            ("/a\\b", "/a/b"),
            ("/a%2Fb", "/a/b"),
            ("/a%5Cb", "/a/b"),
            ("/a%00b", "/a"),
            ("/a%2561", "/aa"),
            ("/a%C0%AE", "/a."),
        ] {
            assert!(!is_plain(path), "{path}");
            assert_eq!(other_reading(path).as_deref(), Some(other), "{path}");
        }
    }
}
