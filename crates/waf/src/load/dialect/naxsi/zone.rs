//! Match zones: the parts of a request that a rule searches, or that a whitelist exempts.

use std::sync::Arc;

use super::lexer::{Word, at};
use crate::error::{Fault, LoadError, RulePlace, nearest};
use crate::regex::SelectorRegex;
use crate::rule::{Selector, Target};
use crate::variable::Variable as V;

/// `mz:`
#[derive(Debug, Default)]
pub(super) struct Zones {
    pub(super) zones: Vec<(Zone, Selector)>,
    /// Names in place of values.
    pub(super) is_name: bool,
    pub(super) path: Option<PathTest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zone {
    Args,
    Body,
    Headers,
    Url,
    FileName,
    RawBody,
}

/// `$URL:` and `$URL_X:`
#[derive(Debug)]
pub(super) enum PathTest {
    Equals(String),
    Matches(String),
}

impl Zone {
    /// Variables with values, and with names.
    fn variables(self) -> (V, Option<V>) {
        match self {
            Self::Args => (V::ArgsGet, Some(V::ArgsGetNames)),
            Self::Body => (V::ArgsPost, Some(V::ArgsPostNames)),
            Self::Headers => (V::RequestHeaders, Some(V::RequestHeadersNames)),
            Self::Url => (V::RequestFilename, None),
            Self::FileName => (V::Files, None),
            Self::RawBody => (V::RequestBody, None),
        }
    }

    /// Tag of a rule of naxsi itself that belongs to this zone.
    pub(super) fn tag(self, id: u64) -> String {
        format!("naxsi-{id}-{self:?}").to_ascii_lowercase()
    }
}

impl Zones {
    pub(super) fn parse(word: &Word, text: &str) -> Result<Self, LoadError> {
        const WITH_VARIABLES: [(&str, Zone); 3] =
            [("ARGS", Zone::Args), ("BODY", Zone::Body), ("HEADERS", Zone::Headers)];
        let mut parsed = Self::default();
        let (mut has_text, mut has_regex) = (false, false);
        for part in parts(text) {
            let whole = |zone: Zone| (zone, Selector::All);
            let Some((kind, argument)) = part.split_once(':') else {
                match part {
                    "NAME" => parsed.is_name = true,
                    "URL" => parsed.zones.push(whole(Zone::Url)),
                    "FILE_EXT" => parsed.zones.push(whole(Zone::FileName)),
                    "RAW_BODY" => parsed.zones.push(whole(Zone::RawBody)),
                    "ANY" => parsed.zones.extend(
                        [Zone::Args, Zone::Body, Zone::Headers, Zone::Url]
                            .into_iter()
                            .chain([Zone::FileName, Zone::RawBody])
                            .map(whole),
                    ),
                    _ => match WITH_VARIABLES.iter().find(|(name, _)| *name == part) {
                        Some(&(_, zone)) => parsed.zones.push(whole(zone)),
                        None => {
                            let known = ["URL", "FILE_EXT", "RAW_BODY", "ANY", "NAME"];
                            let known =
                                known.into_iter().chain(WITH_VARIABLES.map(|(name, _)| name));
                            let hint = nearest(part, known);
                            return Err(word.invalid(format!("unknown zone \"{part}\"{hint}")));
                        }
                    },
                }
                continue;
            };
            let (name, is_regex) = match kind.strip_suffix("_X") {
                Some(name) => (name, true),
                None => (kind, false),
            };
            (has_text, has_regex) = (has_text || !is_regex, has_regex || is_regex);
            if name == "$URL" {
                let test = if is_regex { PathTest::Matches } else { PathTest::Equals };
                if parsed.path.replace(test(argument.to_owned())).is_some() {
                    return Err(word.invalid("a match zone has one $URL"));
                }
                continue;
            }
            let zone = name.strip_prefix('$').and_then(|name| name.strip_suffix("_VAR"));
            let zone = zone.and_then(|zone| WITH_VARIABLES.iter().find(|(name, _)| *name == zone));
            let Some(&(_, zone)) = zone else {
                let known = ["$URL", "$ARGS_VAR", "$BODY_VAR", "$HEADERS_VAR"];
                let hint = nearest(name, known);
                return Err(word.invalid(format!("unknown zone \"{kind}\"{hint}")));
            };
            let selector = if is_regex {
                pattern(argument).map_err(|fault| at(&word.place, fault))?
            } else {
                Selector::Name(argument.to_ascii_lowercase().into_bytes(), None)
            };
            parsed.zones.push((zone, selector));
        }
        if has_text && has_regex {
            return Err(word.invalid("a match zone cannot have names and regexes at once"));
        }
        let usable = |zone: &Zone| !parsed.is_name || zone.variables().1.is_some();
        if !parsed.zones.iter().any(|(zone, _)| usable(zone)) {
            return Err(word.invalid("the match zone names no part of the request"));
        }
        Ok(parsed)
    }

    /// Returns the targets to search: the values or names of some zones, or both for a whole zone.
    pub(super) fn targets(
        &self,
        wanted: &[Zone],
        and_names: bool,
        place: &RulePlace,
    ) -> Result<Vec<Target>, LoadError> {
        let mut targets = Vec::new();
        for (zone, selector) in self.zones.iter().filter(|(zone, _)| wanted.contains(zone)) {
            let (values, names) = zone.variables();
            let both = and_names && *selector == Selector::All;
            let values = (!self.is_name).then_some(values);
            let names = names.filter(|_| self.is_name || both);
            for variable in [values, names].into_iter().flatten() {
                targets.push(Target { variable, selector: selector.clone(), count: false });
                // naxsi names a JSON member without its parents, and elements by the name of their array.
                let key = match (zone, selector) {
                    (Zone::Body, Selector::Name(name, _)) => {
                        format!("^{}$", regex_syntax::escape(&String::from_utf8_lossy(name)))
                    }
                    (Zone::Body, Selector::Pattern(regex)) => regex.text.clone(),
                    _ => continue,
                };
                let regex = SelectorRegex::of_json_key(key)
                    .map_err(|message| at(place, Fault::invalid(0, message)))?;
                let selector = Selector::Pattern(Arc::new(regex));
                targets.push(Target { variable, selector, count: false });
            }
        }
        Ok(targets)
    }

    /// The targets that a whitelist excludes.
    pub(super) fn excluded(&self, place: &RulePlace) -> Result<Vec<Target>, LoadError> {
        let fields = self
            .zones
            .iter()
            .filter(|(zone, selector)| *zone == Zone::Body && *selector != Selector::All);
        let fields: Vec<&Selector> = fields.map(|(_, selector)| selector).collect();
        let mut every = self.zones.iter().map(|(zone, _)| *zone).collect::<Vec<_>>();
        let mut targets = Vec::new();
        if !fields.is_empty() && !self.is_name && every.contains(&Zone::FileName) {
            // The file names of these fields alone.
            every.retain(|zone| *zone != Zone::FileName);
            targets.extend(fields.into_iter().map(|field| Target {
                variable: V::Files,
                selector: field.clone(),
                count: false,
            }));
        }
        targets.extend(self.targets(&every, false, place)?);
        if !self.is_name && self.zones.contains(&(Zone::Body, Selector::All)) {
            targets.push(all(V::RequestBody));
        }
        Ok(targets)
    }
}

/// Splits a match zone at each `|`, but for those within the groups and classes of a regex.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), Some(text));
    while let Some(text) = rest {
        let is_regex = text.split('|').next().is_some_and(|part| part.contains("_X:"));
        let end = if is_regex { end_of_regex(text) } else { text.find('|') };
        parts.push(end.map_or(text, |end| &text[..end]));
        rest = end.map(|end| &text[end + 1..]);
    }
    parts
}

/// Position of the first `|` outside of groups and classes.
fn end_of_regex(text: &str) -> Option<usize> {
    let (mut depth, mut in_class, mut is_escaped) = (0usize, false, false);
    text.bytes().position(|byte| {
        match byte {
            _ if is_escaped => {
                is_escaped = false;
                return false;
            }
            b'\\' => is_escaped = true,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'(' if !in_class => depth += 1,
            b')' if !in_class => depth = depth.saturating_sub(1),
            _ => {}
        }
        byte == b'|' && !in_class && depth == 0
    })
}

pub(super) fn all(variable: V) -> Target {
    Target { variable, selector: Selector::All, count: false }
}

fn pattern(text: &str) -> Result<Selector, Fault> {
    let regex =
        SelectorRegex::new(text.to_owned()).map_err(|message| Fault::invalid(0, message))?;
    Ok(Selector::Pattern(Arc::new(regex)))
}
