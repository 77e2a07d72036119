//! Exclusions as rules in SecLang, which every engine reads before the rules that they exclude.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

/// Engine that reads the exclusions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// This engine.
    Tollgate,
    /// ModSecurity 2, in Apache.
    Modsecurity2,
    /// ModSecurity 3. It takes a pattern of keys in `ctl` for a name.
    Modsecurity3,
    /// Coraza.
    Coraza,
}

/// Exclusion of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize)]
pub struct Exclusion {
    /// Id of the rule.
    pub rule: u64,
    /// Values that the rule no longer inspects.
    pub target: Target,
    /// Requests that it applies to.
    pub place: Place,
}

/// Values that an excluded rule no longer inspects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A variable such as `ARGS:q`.
    Name(String),
    /// Keys of a collection that a regex matches.
    Keys(String, String),
    /// All: the rule does not run.
    All,
}

/// Requests that an exclusion applies to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Path, and method.
    Below(PathPattern, Option<String>),
    Everywhere,
}

/// Path of requests, in which segments may vary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathPattern {
    Literal(String),
    /// A regex, from start to end.
    Regex(String),
}

/// Rules that must stay: setup, evaluation of scores, and the rules of failed bodies in the recommended configuration.
pub(super) fn is_protected(rule: u64) -> bool {
    matches!(rule / 1000, 901 | 949 | 959 | 980) || (200_000..=200_007).contains(&rule)
}

/// The rules of the Core Rule Set that block by a score.
pub(super) fn is_evaluation_of_scores(rule: u64) -> bool {
    matches!(rule / 1000, 949 | 959)
}

impl Exclusion {
    /// Exclusions of one match, from the narrowest to the broadest.
    pub(super) fn candidates(
        rule: u64,
        variable: &str,
        (path, method): (Option<&PathPattern>, Option<&str>),
        engine: Engine,
    ) -> Vec<Self> {
        let below = |method: Option<&str>| {
            path.map(|path| Place::Below(path.clone(), method.map(str::to_owned)))
        };
        let name = is_writable(variable).then(|| Target::Name(variable.to_owned()));
        let keys = keys(variable).filter(|_| engine != Engine::Modsecurity3);
        let found = [
            name.clone().zip(below(method)),
            keys.zip(below(method)),
            name.zip(Some(Place::Everywhere)),
            below(None).map(|place| (Target::All, place)),
            Some((Target::All, Place::Everywhere)),
        ];
        let found = found.into_iter().flatten();
        found.map(|(target, place)| Self { rule, target, place }).collect()
    }

    /// True if it names variables below a path.
    pub(super) fn is_narrow(&self) -> bool {
        matches!(
            (&self.target, &self.place),
            (Target::Name(_) | Target::Keys(..), Place::Below(..))
        )
    }

    /// Weight of what is excluded beside the value that was seen.
    pub(super) fn breadth(&self) -> u64 {
        match (&self.target, &self.place) {
            (Target::Name(_), Place::Below(..)) => 1,
            (Target::Keys(..), Place::Below(..)) => 2,
            (Target::Name(_) | Target::Keys(..), Place::Everywhere) => 8,
            (Target::All, Place::Below(..)) => 16,
            (Target::All, Place::Everywhere) => 64,
        }
    }

    /// True if it silences a match of the rule for a variable of requests with the path and method, which may be unknown.
    pub(super) fn covers(
        &self,
        (rule, variable): &(u64, String),
        (path, method): (Option<&PathPattern>, Option<&str>),
    ) -> bool {
        let target_covers = match &self.target {
            Target::Name(name) => name == variable,
            Target::Keys(collection, pattern) => keys(variable)
                .is_some_and(|keys| keys == Target::Keys(collection.clone(), pattern.clone())),
            Target::All => true,
        };
        let place_covers = match &self.place {
            Place::Everywhere => true,
            Place::Below(own, of) => {
                path == Some(own) && of.as_deref().is_none_or(|of| Some(of) == method)
            }
        };
        self.rule == *rule && target_covers && place_covers
    }

    fn control(&self) -> String {
        let rule = self.rule;
        match &self.target {
            Target::Name(name) => format!("ctl:ruleRemoveTargetById={rule};{name}"),
            Target::Keys(collection, pattern) => {
                format!("ctl:ruleRemoveTargetById={rule};{collection}:/{pattern}/")
            }
            Target::All => format!("ctl:ruleRemoveById={rule}"),
        }
    }
}

impl std::fmt::Display for Exclusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.target {
            Target::Name(name) => write!(f, "{} for {name}", self.rule)?,
            Target::Keys(collection, pattern) => {
                write!(f, "{} for {collection}:/{pattern}/", self.rule)?;
            }
            Target::All => write!(f, "{}", self.rule)?,
        }
        match &self.place {
            Place::Everywhere => f.write_str(" everywhere"),
            Place::Below(path, method) => {
                let (PathPattern::Literal(path) | PathPattern::Regex(path)) = path;
                match method {
                    Some(method) => write!(f, " in {method} {path}"),
                    None => write!(f, " in {path}"),
                }
            }
        }
    }
}

/// Renders exclusions as rules of phase 1 with ids from `first_id` on, one for each place. The text belongs before the rules.
pub fn render(exclusions: &[Exclusion], first_id: u64) -> String {
    let mut places: BTreeMap<&Place, Vec<String>> = BTreeMap::new();
    for exclusion in exclusions {
        places.entry(&exclusion.place).or_default().push(exclusion.control());
    }
    let mut text = String::new();
    for ((place, controls), id) in places.into_iter().zip(first_id..) {
        let controls = controls.join(",\\\n        ");
        let head = format!("id:{id},phase:1,pass,t:none,nolog");
        let written = match place {
            Place::Everywhere => {
                writeln!(text, "SecAction \\\n    \"{head},\\\n        {controls}\"")
            }
            Place::Below(path, method) => {
                let condition = match path {
                    PathPattern::Literal(path) => format!("@streq {path}"),
                    PathPattern::Regex(regex) => format!("@rx {regex}"),
                };
                match method {
                    None => writeln!(
                        text,
                        "SecRule REQUEST_FILENAME \"{condition}\" \\\n    \"{head},\\\n        {controls}\""
                    ),
                    Some(method) => writeln!(
                        text,
                        "SecRule REQUEST_FILENAME \"{condition}\" \\\n    \"{head},chain\"\n    \
                         SecRule REQUEST_METHOD \"@streq {method}\" \\\n        \"t:none,\\\n        {controls}\""
                    ),
                }
            }
        };
        written.expect("a string takes all text");
    }
    text
}

/// Returns the path of a target, with numbers and hexadecimal identifiers as variable segments. `None` if a condition of a rule
/// cannot name it in every engine.
pub(super) fn path_pattern(target: &[u8]) -> Option<PathPattern> {
    let path = std::str::from_utf8(target.split(|&byte| byte == b'?').next()?).ok()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~@:+$".contains(c);
    if !path.starts_with('/') || path.len() > 512 || !path.chars().all(is_plain) {
        return None;
    }
    let mut varies = false;
    let segments = path.split('/').map(|segment| {
        let is_all =
            |test: fn(&u8) -> bool| !segment.is_empty() && segment.bytes().all(|byte| test(&byte));
        let has_digit = segment.bytes().any(|byte| byte.is_ascii_digit());
        let variable = if is_all(u8::is_ascii_digit) {
            Some("[0-9]+")
        } else if has_digit
            && segment.len() >= 8
            && is_all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
        {
            Some("[0-9a-fA-F-]+")
        } else {
            None
        };
        varies |= variable.is_some();
        variable.map_or_else(|| literal(segment), str::to_owned)
    });
    let regex = segments.collect::<Vec<_>>().join("/");
    Some(if varies {
        PathPattern::Regex(format!("^{regex}$"))
    } else {
        PathPattern::Literal(path.to_owned())
    })
}

/// A regex for the text, whose special characters are in classes.
fn literal(text: &str) -> String {
    let special = |c: char| if ".+$".contains(c) { format!("[{c}]") } else { c.to_string() };
    text.chars().map(special).collect()
}

/// Returns the pattern of keys that differ from this one in numbers only.
fn keys(variable: &str) -> Option<Target> {
    let (collection, key) = variable.split_once(':').filter(|_| is_writable(variable))?;
    if !key.bytes().any(|byte| byte.is_ascii_digit()) || key.contains(['[', ']']) {
        return None;
    }
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let parts = key.as_bytes().chunk_by(|a, b| is_digit(a) == is_digit(b));
    let pattern: String = parts
        .map(|part| match std::str::from_utf8(part) {
            Ok(text) if !part.iter().all(is_digit) => literal(text),
            _ => "[0-9]+".to_owned(),
        })
        .collect();
    Some(Target::Keys(collection.to_owned(), format!("^{pattern}$")))
}

/// True if the name can be written in `ctl` for every engine.
pub(super) fn is_writable(variable: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.[]@".contains(c);
    let (collection, key) = variable.split_once(':').unwrap_or((variable, "_"));
    !key.is_empty()
        && key.chars().all(is_plain)
        && collection.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        && !matches!(collection, "TX" | "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_waf::RuleSet;

    #[test]
    fn paths_have_variable_segments() {
        let shown = |target: &str| match path_pattern(target.as_bytes()) {
            Some(PathPattern::Literal(path) | PathPattern::Regex(path)) => path,
            None => "none".to_owned(),
        };
        for (target, pattern) in [
            ("/blog/comment?a=1", "/blog/comment"),
            ("/blog/12/a.b", "^/blog/[0-9]+/a[.]b$"),
            ("/u/0f8fad5b-d9cb-469f-a165-70867728950e", "^/u/[0-9a-fA-F-]+$"),
            ("/deadline", "/deadline"),
            ("/a%20b", "none"),
            ("/a\"b", "none"),
            ("*", "none"),
        ] {
            assert_eq!(shown(target), pattern, "{target}");
        }
    }

    #[test]
    fn candidates_are_from_narrow_to_broad_and_parse() {
        let path = path_pattern(b"/a/1");
        let of = |variable: &str, engine| {
            Exclusion::candidates(1, variable, (path.as_ref(), Some("POST")), engine)
        };
        let all = of("ARGS:json.items.3.text", Engine::Tollgate);
        let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "1 for ARGS:json.items.3.text in POST ^/a/[0-9]+$",
                "1 for ARGS:/^json[.]items[.][0-9]+[.]text$/ in POST ^/a/[0-9]+$",
                "1 for ARGS:json.items.3.text everywhere",
                "1 in ^/a/[0-9]+$",
                "1 everywhere",
            ]
        );
        assert!(all.is_sorted_by_key(Exclusion::breadth));
        assert_eq!(of("ARGS:json.items.3.text", Engine::Modsecurity3).len(), 4);
        assert_eq!(of("ARGS:a'b", Engine::Tollgate).len(), 2);
        let other = (1, "ARGS:json.items.47.text".to_owned());
        let covering: Vec<bool> =
            all.iter().map(|one| one.covers(&other, (path.as_ref(), Some("POST")))).collect();
        assert_eq!(covering, [false, true, false, true, true]);
        let text = render(&all, 100);
        assert_eq!(text.matches("id:10").count(), 3, "{text}");
        let rules = "SecRule ARGS \"@rx x\" \"id:1,phase:2,deny\"";
        let built =
            RuleSet::builder().text("exclusions.conf", text).text("rules.conf", rules).build();
        assert!(built.is_ok(), "{:?}", built.err());
    }

    #[test]
    fn control_rules_are_protected() {
        for rule in [901_100, 949_110, 959_100, 980_130, 200_002] {
            assert!(is_protected(rule), "{rule}");
        }
        assert!(![942_100, 200_008, 920_350].into_iter().any(is_protected));
    }
}
