//! Rules of naxsi: patterns with scores, thresholds and whitelists, read into the same rules as SecLang.
//!
//! A rule runs in phase 2 and adds its scores once for each occurrence of its pattern. A `CheckRule` becomes a rule
//! after all others that compares a score. A whitelist becomes an exclusion of targets or, if it is limited to a path,
//! a rule of phase 1 that removes targets.

use std::sync::Arc;

use crate::condition::NumberOperator;
use crate::error::{LoadError, RulePlace, nearest};
use crate::load::draft::Draft;

mod compile;
mod lexer;
mod zone;

use lexer::{Word, directives};
use zone::Zones;

/// Lower ids are reserved for naxsi's own rules; a negative whitelist does not select them.
const FIRST_USER_ID: u64 = 1000;
const DIRECTIVES: [(&str, NaxsiDirective); 22] = [
    ("MainRule", NaxsiDirective::Rule),
    ("BasicRule", NaxsiDirective::Rule),
    ("CheckRule", NaxsiDirective::Check),
    ("LearningMode", NaxsiDirective::Learning),
    ("LibInjectionSql", NaxsiDirective::Sql),
    ("LibInjectionXss", NaxsiDirective::Xss),
    ("SecRulesEnabled", NaxsiDirective::Enabled),
    ("DeniedUrl", NaxsiDirective::DeniedUrl),
    ("SecRulesDisabled", NaxsiDirective::Unsupported),
    ("IgnoreIP", NaxsiDirective::Unsupported),
    ("IgnoreCIDR", NaxsiDirective::Unsupported),
    ("main_rule", NaxsiDirective::Rule),
    ("basic_rule", NaxsiDirective::Rule),
    ("check_rule", NaxsiDirective::Check),
    ("learning_mode", NaxsiDirective::Learning),
    ("libinjection_sql", NaxsiDirective::Sql),
    ("libinjection_xss", NaxsiDirective::Xss),
    ("rules_enabled", NaxsiDirective::Enabled),
    ("denied_url", NaxsiDirective::DeniedUrl),
    ("rules_disabled", NaxsiDirective::Unsupported),
    ("ignore_ip", NaxsiDirective::Unsupported),
    ("ignore_cidr", NaxsiDirective::Unsupported),
];

#[derive(Clone, Copy)]
enum NaxsiDirective {
    Rule,
    Check,
    Learning,
    Sql,
    Xss,
    Enabled,
    DeniedUrl,
    Unsupported,
}

/// Rules, checks and whitelists of all files, before they are compiled.
#[derive(Debug, Default)]
pub(crate) struct Naxsi {
    /// Place of the first directive.
    first: Option<RulePlace>,
    rules: Vec<Pattern>,
    whitelists: Vec<Whitelist>,
    checks: Vec<Check>,
    is_learning: bool,
    finds_sql: bool,
    finds_xss: bool,
}

impl Naxsi {
    /// True if no directive of naxsi was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

#[derive(Debug)]
struct Pattern {
    id: u64,
    place: RulePlace,
    message: String,
    search: Search,
    negated: bool,
    zones: Zones,
    scores: Vec<(String, i64)>,
    action: Action,
}

#[derive(Debug)]
enum Search {
    /// In lower case.
    Text(String),
    Regex(String),
    SqlInjection,
    CrossSiteScripting,
    InvalidUtf8,
    NullByte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Log,
    /// Unless in learning mode.
    Block,
    Drop,
    Allow,
}

#[derive(Debug)]
struct Whitelist {
    place: RulePlace,
    ids: Vec<i64>,
    /// `None`: everywhere.
    zones: Option<Zones>,
}

#[derive(Debug)]
struct Check {
    place: RulePlace,
    text: String,
    score: String,
    operator: NumberOperator,
    threshold: i64,
    action: Action,
}

/// True for the name of a file with rules of naxsi.
pub(crate) fn is_name(name: &str) -> bool {
    name.ends_with(".rules")
}

impl Naxsi {
    /// Reads a file. The engine is on, and bodies are inspected, unless directives say otherwise.
    pub(crate) fn read(
        &mut self,
        draft: &mut Draft,
        name: &Arc<str>,
        text: &[u8],
    ) -> Result<(), LoadError> {
        for words in directives(name, text)? {
            let read = self.directive(draft, &words);
            draft.skip(read)?;
        }
        Ok(())
    }

    fn directive(&mut self, draft: &mut Draft, words: &[Word]) -> Result<(), LoadError> {
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        if draft.open_chain.is_some() {
            return Err(name.invalid("a chain must continue with SecRule or SecAction"));
        }
        if self.first.is_none() {
            self.first = Some(name.place.clone());
            draft.turn_on();
        }
        let found = DIRECTIVES.iter().find(|(known, _)| *known == name.text);
        let Some(&(_, directive)) = found else {
            let hint = nearest(&name.text, DIRECTIVES.iter().map(|&(known, _)| known));
            return Err(name.invalid(format!("unknown directive \"{}\"{hint}", name.text)));
        };
        match directive {
            NaxsiDirective::Rule => return self.rule(draft, name, arguments),
            NaxsiDirective::Check => self.checks.push(Check::parse(name, arguments)?),
            NaxsiDirective::Learning => self.is_learning = true,
            NaxsiDirective::Sql => self.finds_sql = true,
            NaxsiDirective::Xss => self.finds_xss = true,
            NaxsiDirective::Enabled => {}
            NaxsiDirective::DeniedUrl => {
                let message = "DeniedUrl has no effect: a blocked request gets status 403";
                draft.note_inert(&name.place, message);
            }
            NaxsiDirective::Unsupported => {
                let message = format!("{} is not supported", name.text);
                return Err(LoadError::Unsupported { place: name.place.clone(), message });
            }
        }
        Ok(())
    }

    fn rule(
        &mut self,
        draft: &mut Draft,
        name: &Word,
        arguments: &[Word],
    ) -> Result<(), LoadError> {
        let place = name.place.clone();
        let (mut id, mut message, mut search, mut zones, mut ids) = (None, None, None, None, None);
        let (mut scores, mut action, mut negated) = (Vec::new(), None, false);
        for word in arguments {
            if word.text == "negative" {
                negated = true;
                continue;
            }
            let Some((key, value)) = word.text.split_once(':') else {
                return Err(word.invalid(format!("expected `key:value`, found \"{}\"", word.text)));
            };
            match key {
                "id" => id = Some(number::<u64>(word, value)?),
                "msg" => message = Some(value.to_owned()),
                "str" => search = Some(Search::Text(value.to_ascii_lowercase())),
                "rx" => search = Some(Search::Regex(value.to_owned())),
                "d" => {
                    search = Some(match value {
                        "libinj_sql" => Search::SqlInjection,
                        "libinj_xss" => Search::CrossSiteScripting,
                        _ => return Err(word.invalid("expected d:libinj_sql or d:libinj_xss")),
                    });
                }
                "mz" => zones = Some(Zones::parse(word, value)?),
                "s" => {
                    for part in value.split(',') {
                        match part.split_once(':') {
                            Some((score, amount)) => {
                                scores.push((score_name(word, score)?, number(word, amount)?));
                            }
                            None if part.parse::<i64>().is_ok() => {
                                let message =
                                    format!("score {part} has no effect: no CheckRule can name it");
                                draft.note_inert(&word.place, message);
                                action.get_or_insert(Action::Log);
                            }
                            None => action = Some(Action::parse(word, part)?),
                        }
                    }
                }
                "wl" => {
                    let list: Result<Vec<i64>, _> =
                        value.split(',').map(|id| number(word, id)).collect();
                    let list = list?;
                    if list.iter().any(|&id| id < 0) && list.iter().any(|&id| id >= 0) {
                        let message = "a whitelist cannot have negative and other ids at once";
                        return Err(word.invalid(message));
                    }
                    ids = Some(list);
                }
                _ => {
                    let hint = nearest(key, ["id", "msg", "str", "rx", "d", "mz", "s", "wl"]);
                    return Err(word.invalid(format!("unknown key \"{key}\"{hint}")));
                }
            }
        }
        if let Some(ids) = ids {
            if search.is_some() || id.is_some() || !scores.is_empty() || action.is_some() {
                return Err(name.invalid("a whitelist has `wl` and `mz` only"));
            }
            self.whitelists.push(Whitelist { place, ids, zones });
            return Ok(());
        }
        let missing = |what: &str| name.invalid(format!("a rule needs {what}"));
        let id = id.ok_or_else(|| missing("`id`"))?;
        if id < FIRST_USER_ID {
            return Err(
                name.invalid(format!("ids below {FIRST_USER_ID} are those of naxsi itself"))
            );
        }
        if scores.is_empty() && action.is_none() {
            return Err(missing("`s`"));
        }
        let known = self.rules.iter().any(|rule| rule.id == id);
        if !draft.ids.insert(id) && !known {
            return Err(name.invalid(format!("id {id} is that of a SecLang or AppSec rule")));
        }
        self.rules.push(Pattern {
            id,
            place,
            message: message.unwrap_or_default(),
            search: search.ok_or_else(|| missing("`str`, `rx` or `d`"))?,
            negated,
            zones: zones.ok_or_else(|| missing("`mz`"))?,
            scores,
            action: action.unwrap_or(Action::Log),
        });
        Ok(())
    }
}

impl Whitelist {
    fn selects(&self, id: u64) -> bool {
        let listed = |wanted: i64| wanted.unsigned_abs() == id;
        if self.ids.iter().any(|&id| id < 0) {
            id >= FIRST_USER_ID && !self.ids.iter().any(|&id| listed(id))
        } else {
            self.ids.iter().any(|&wanted| wanted == 0 || listed(wanted))
        }
    }
}

impl Action {
    fn parse(word: &Word, text: &str) -> Result<Self, LoadError> {
        Ok(match text {
            "LOG" => Self::Log,
            "BLOCK" => Self::Block,
            "DROP" => Self::Drop,
            "ALLOW" => Self::Allow,
            _ => {
                let hint = nearest(text, ["LOG", "BLOCK", "DROP", "ALLOW"]);
                return Err(word.invalid(format!("unknown action \"{text}\"{hint}")));
            }
        })
    }
}

impl Check {
    /// True if the check holds for small scores.
    fn is_upper_bound(&self) -> bool {
        matches!(self.operator, NumberOperator::Less | NumberOperator::LessOrEqual)
    }

    fn parse(name: &Word, arguments: &[Word]) -> Result<Self, LoadError> {
        let [condition, action] = arguments else {
            return Err(name.invalid("expected CheckRule \"$NAME >= NUMBER\" ACTION"));
        };
        let text = condition.text.as_str();
        let found = [
            (">=", NumberOperator::GreaterOrEqual),
            ("<=", NumberOperator::LessOrEqual),
            (">", NumberOperator::Greater),
            ("<", NumberOperator::Less),
        ]
        .into_iter()
        .find_map(|(sign, operator)| Some((text.split_once(sign)?, operator)));
        let Some(((score, threshold), operator)) = found else {
            return Err(condition.invalid("expected `$NAME >= NUMBER`, or another comparison"));
        };
        Ok(Self {
            place: name.place.clone(),
            text: text.to_owned(),
            score: score_name(condition, score.trim())?,
            operator,
            threshold: number(condition, threshold.trim())?,
            action: Action::parse(action, &action.text)?,
        })
    }
}

/// The name of a score without `$`, in lower case.
fn score_name(word: &Word, text: &str) -> Result<String, LoadError> {
    match text.strip_prefix('$') {
        Some(name) if !name.is_empty() => Ok(name.to_ascii_lowercase()),
        _ => Err(word.invalid(format!("expected a score such as $SQL, found \"{text}\""))),
    }
}

fn number<T: std::str::FromStr>(word: &Word, text: &str) -> Result<T, LoadError>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| word.invalid(format!("\"{text}\" is not a number: {error}")))
}
