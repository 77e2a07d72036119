use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const PREFIXES: [&str; 5] = ["/", "/admin", "/admin/open/", "/x/admin", "/shop/"];

fn tree(prefixes: &[&str]) -> PrefixTree {
    let mut prefixes: Vec<(String, RouteId)> = prefixes
        .iter()
        .enumerate()
        .map(|(at, prefix)| ((*prefix).to_owned(), RouteId(at)))
        .collect();
    prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    PrefixTree::new(&prefixes)
}

/// Slashes and parameters as a backend knows them.
#[derive(Clone, Copy, Debug)]
struct Split {
    encoded_slash: bool,
    backslash: bool,
    encoded_backslash: bool,
    parameters: Parameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parameters {
    Keep,
    /// Up to the next `/`.
    CutBeforeSplit,
    CutAfterSplit,
}

impl Split {
    fn all() -> impl Iterator<Item = Self> + Clone {
        (0..24).map(|number| Self {
            encoded_slash: number & 1 != 0,
            backslash: number & 2 != 0,
            encoded_backslash: number & 4 != 0,
            parameters: [Parameters::Keep, Parameters::CutBeforeSplit, Parameters::CutAfterSplit]
                [number / 8],
        })
    }

    fn segments(self, path: &str) -> Vec<String> {
        let cut = |path: &str| -> String {
            let names: Vec<&str> =
                path.split('/').map(|name| name.split(';').next().unwrap()).collect();
            names.join("/")
        };
        let mut path = path.to_owned();
        if self.parameters == Parameters::CutBeforeSplit {
            path = cut(&path);
        }
        if self.encoded_slash {
            path = path.replace("%2f", "/").replace("%2F", "/");
        }
        if self.backslash {
            path = path.replace('\\', "/");
        }
        if self.encoded_backslash {
            path = path.replace("%5c", "/").replace("%5C", "/");
        }
        if self.parameters == Parameters::CutAfterSplit {
            path = cut(&path);
        }
        path.split('/').skip(1).map(str::to_owned).collect()
    }
}

/// Results of each combination of choices for a path, step by step: decode, truncate, resolve dots, split into names.
fn all_readings(path: &str) -> BTreeSet<String> {
    let mut decoded = vec![path.to_owned()];
    for _ in 1..DECODINGS_MAX {
        decoded.push(decoded_again(&decoded[decoded.len() - 1]).into_owned());
    }
    let truncated = decoded.iter().map(|path| {
        let end = ["%00", "?", "#"].iter().filter_map(|end| path.find(end)).min();
        path[..end.unwrap_or(path.len())].to_owned()
    });
    let mut paths: BTreeSet<String> = decoded.iter().cloned().chain(truncated).collect();
    let resolve_all = |path: &String| {
        let resolve =
            |split: Split| [true, false].map(|merges| resolve(split.segments(path), merges));
        Split::all().flat_map(resolve).collect::<Vec<_>>()
    };
    paths = paths.iter().flat_map(resolve_all).chain(paths.iter().cloned()).collect();
    paths.iter().flat_map(|path| Split::all().map(|split| spell(&split.segments(path)))).collect()
}

/// The path of these segments, with names in normal spelling and without empty ones.
fn spell(segments: &[String]) -> String {
    let names: Vec<_> =
        segments.iter().filter(|name| !name.is_empty()).map(|name| normalize(name)).collect();
    let ends_with_slash = segments.last().is_none_or(String::is_empty) && !names.is_empty();
    format!("/{}{}", names.join("/"), if ends_with_slash { "/" } else { "" })
}

fn resolve(segments: Vec<String>, merges: bool) -> String {
    let count = segments.len();
    let mut kept: Vec<String> = Vec::new();
    for (at, segment) in segments.into_iter().enumerate() {
        let is_last = at + 1 == count;
        match &*segment.replace("%2e", ".").replace("%2E", ".") {
            ".." => {
                kept.pop();
            }
            "." => {}
            "" if merges && !is_last => continue,
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push(String::new());
        }
    }
    format!("/{}", kept.join("/"))
}

/// The index of the longest prefix of `path`.
fn route(path: &str) -> usize {
    let matches = |prefix: &str| match path.strip_prefix(prefix) {
        Some(rest) => prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'),
        None => false,
    };
    let found = (0..PREFIXES.len()).filter(|&at| matches(PREFIXES[at]));
    found.max_by_key(|&at| PREFIXES[at].len()).unwrap()
}

fn routes_of_all_readings(path: &str) -> BTreeSet<usize> {
    all_readings(path).iter().map(|path| route(path)).collect()
}

fn found(path: &str) -> Result<Option<usize>, AmbiguousPath> {
    let route = tree(&PREFIXES).find(&decodings(path))?;
    Ok(route.map(|RouteId(at)| at))
}

fn path(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(prop::sample::select(pieces), 0..9);
    pieces.prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// Few, so that they meet often.
const PIECES_OF_PARENTS: &[&str] = &["/", "%2f", "\\", ";", "..", "..", "admin", "admin", "x"];

const PIECES: &[&str] = &[
    "/",
    "/",
    "%2f",
    "\\",
    "%5C",
    ";",
    "..",
    "..",
    ".",
    "%2E%2e",
    "admin",
    "admin",
    "open",
    "shop",
    "x",
    "%61dmin",
    "%25",
    "%252f",
    "%252e.",
    "%2561dmin",
    "%00",
    "%3b",
    "%3F",
    "%c0%af",
    "%c0%ae.",
    "%u002f",
    "%%32%46",
];

const PIECES_WITHOUT_DOTS: &[&str] = &[
    "/", "/", "/", "%2f", "\\", "%5C", ";", ";y", "admin", "admin", "open", "shop", "x", "%20",
    "%61dmin",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn path_with_route_has_no_reading_of_another_route(path in prop_oneof![path(PIECES_OF_PARENTS), path(PIECES)]) {
        if let Ok(found) = found(&path) {
            let routes: Vec<usize> = routes_of_all_readings(&path).into_iter().collect();
            prop_assert_eq!(routes, Vec::from_iter(found));
        }
    }

    #[test]
    fn path_without_dots_is_refused_exactly_if_it_is_read_differently(path in path(PIECES_WITHOUT_DOTS)) {
        let mut readings = BTreeSet::new();
        for path in decodings(&path) {
            readings_by_place(&path, vec![String::new()], false, &mut readings);
        }
        let routes: BTreeSet<usize> = readings.iter().map(|path| route(path)).collect();
        prop_assert_eq!(found(&path).is_err(), routes.len() > 1, "{:?}", routes);
    }
}

/// Adds the results of each combination of choices at each place of a path without dots: `segments` are those before it, the
/// last of which continues; `is_cut`: the rest of that is cut.
fn readings_by_place(
    path: &str,
    segments: Vec<String>,
    is_cut: bool,
    readings: &mut BTreeSet<String>,
) {
    let Some(first) = path.chars().next() else {
        // The first segment is the one before the first slash.
        readings.insert(spell(&segments[1..]));
        return;
    };
    let maybe_slash =
        ["\\", "%2f", "%2F", "%5c", "%5C"].into_iter().find(|&slash| path.starts_with(slash));
    let (piece, behind) = path.split_at(maybe_slash.map_or(first.len_utf8(), str::len));
    if first == '/' || maybe_slash.is_some() {
        let next = [&segments[..], &[String::new()]].concat();
        readings_by_place(behind, next, false, readings);
    }
    if first == ';' {
        readings_by_place(behind, segments.clone(), true, readings);
    }
    if first != '/' {
        let mut segments = segments;
        if !is_cut {
            segments.last_mut().unwrap().push_str(piece);
        }
        readings_by_place(behind, segments, is_cut, readings);
    }
}

#[test]
fn steps_are_linear_in_the_path() {
    let tree = tree(&PREFIXES);
    let unit_bytes = 16 * 1024;
    for unit in [
        "/;",
        ";",
        "/",
        "%2f",
        "\\",
        "..%2f",
        "%2f..;",
        "/x/..;",
        "a/..\\",
        "%2f..;\\x%5c/",
        "/%252f..",
        "/admin%2f..;",
        "%00",
        "/%25252e",
        "x%2f/..;/;",
    ] {
        let steps = |bytes: usize| -> usize {
            let path = format!("/x{}", unit.repeat(bytes / unit.len()));
            decodings(&path)
                .iter()
                .map(|path| {
                    let mut walk = Walk::new(&tree);
                    // An ambiguous path is left early.
                    let (Ok(()) | Err(AmbiguousPath)) = walk.read(path);
                    walk.steps
                })
                .sum()
        };
        let (short, long) = (steps(unit_bytes), steps(8 * unit_bytes));
        assert!(long <= 8 * short + 1000, "{unit}: {short} steps, then {long}");
        assert!(short <= 12 * unit_bytes, "{unit}: {short} steps for {unit_bytes} bytes");
    }
}
