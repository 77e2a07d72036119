//! Compiles naxsi rules into rules of the engine.

use std::rc::Rc;

use super::lexer::at;
use super::zone::{PathTest, Zone, Zones, all};
use super::{Action, Check, Naxsi, Pattern, Search, Whitelist};
use crate::condition::{Condition, NumberOperator, TextOperator};
use crate::error::{LoadError, RulePlace};
use crate::load::draft::Draft;
use crate::load::written::{Actions, RuleFilter, WrittenDisruptive, WrittenLink, WrittenRule};
use crate::rule::{
    AllowScope, Assignment, BodyProcessor, Change, Control, Phase, Selector, Target,
};
use crate::settings::BareArgument;
use crate::template::Template;
use crate::transformation::Transformation;
use crate::variable::Variable as V;

/// Ids of the thresholds, which have none in naxsi.
const FIRST_CHECK_ID: u32 = 900;
/// Naxsi's own rules that block in learning mode, too: invalid UTF-8 and illegal hosts.
const FIRST_DROPPING_ID: u64 = 20;
/// Content types whose bodies naxsi parses.
const CONTENT_TYPES: &str = "^(?:application/(?:x-www-form-urlencoded|json|vnd\\.api\\+json|csp-report)|multipart/form-data)";
const JSON_TYPES: &str = "^application/(?:json|vnd\\.api\\+json|csp-report)";
/// Addresses that no client reaches.
const ILLEGAL_HOSTS: &str = "^(?:0(?:\\.[0-9]+){3}|255\\.255\\.255\\.255|\\[[0:]+\\]|\\[ff[0-9a-f]{2}:[^\\]]*\\])(?::[0-9]*)?$";
/// An invalid escape in the path.
const INVALID_ESCAPE: &str = "^[^?]*%(?:[^0-9a-f]|[0-9a-f][^0-9a-f]|[0-9a-f]?\\z)";

impl Naxsi {
    /// Adds the rules of what was read, after all others.
    pub(crate) fn compile(&self, draft: &mut Draft) -> Result<(), LoadError> {
        let Some(place) = &self.first else { return Ok(()) };
        if self.rules.is_empty() && !self.finds_sql && !self.finds_xss {
            let message = "no MainRule or BasicRule has a pattern: naxsi would drop all requests";
            return Err(LoadError::Invalid { place: place.clone(), message: message.into() });
        }
        if draft.entries.is_empty() {
            // Rules of other dialects expect a name.
            draft.settings.bare_argument = BareArgument::Value;
        }
        let mut compiler = Compiler { draft, rules: Vec::new(), is_learning: self.is_learning };
        compiler.internal_rules(place, self)?;
        for rule in &self.rules {
            let compiled = compiler.pattern(rule);
            compiler.draft.skip(compiled)?;
        }
        compiler.whitelists(&self.whitelists)?;
        let Compiler { rules, .. } = compiler;
        self.note_unused_scores(draft);
        // A request that one of them allows is not compared with the others.
        let (allow, others): (Vec<_>, Vec<_>) =
            self.checks.iter().partition(|check| check.action == Action::Allow);
        let checks = allow.into_iter().chain(others);
        let checks: Vec<_> = checks.map(|check| (check, draft.take_id(FIRST_CHECK_ID))).collect();
        // naxsi compares a score whenever it grows. For a lower bound, the last time suffices.
        for (mut rule, _) in rules {
            let raised: Vec<Vec<u8>> = (rule.last().assignments.iter())
                .filter_map(|added| added.name.as_text().map(<[u8]>::to_vec))
                .collect();
            draft.push(rule);
            for &(check, id) in checks.iter().filter(|(check, _)| check.is_upper_bound()) {
                if raised.contains(&variable(&check.score).into_bytes()) {
                    draft.push(check.rule(id, self.is_learning));
                }
            }
        }
        for &(check, id) in checks.iter().filter(|(check, _)| !check.is_upper_bound()) {
            draft.push(check.rule(id, self.is_learning));
        }
        Ok(())
    }

    fn note_unused_scores(&self, draft: &mut Draft) {
        for rule in &self.rules {
            for (score, _) in &rule.scores {
                let message = format!("no CheckRule compares ${}", score.to_ascii_uppercase());
                let is_compared = self.checks.iter().any(|check| check.score == *score);
                if !is_compared && !draft.inert.iter().any(|inert| inert.message == message) {
                    draft.note_inert(&rule.place, message);
                }
            }
        }
    }
}

impl Check {
    fn rule(&self, id: u64, is_learning: bool) -> WrittenRule {
        let selector = Selector::Name(variable(&self.score).into_bytes(), None);
        let score = Target { variable: V::Tx, selector, count: false };
        let threshold = Template::literal(self.threshold.to_string().as_bytes());
        let condition = Condition::Number(self.operator, threshold);
        let test = WrittenLink::new(&self.place, vec![score], condition);
        let mut rule = WrittenRule::blocking(id, self.text.as_bytes(), vec![test]);
        rule.head().tags = vec!["naxsi".into()];
        rule.head().disruptive = Some(self.action.disruptive(is_learning));
        rule
    }
}

struct Compiler<'a> {
    draft: &'a mut Draft,
    is_learning: bool,
    /// With the zone by which a whitelist removes the whole rule.
    rules: Vec<(WrittenRule, Option<Zone>)>,
}

impl Compiler<'_> {
    /// Adds the rules of a pattern. Headers and unparsed bodies are decoded here, all others by their parser.
    fn pattern(&mut self, pattern: &Pattern) -> Result<(), LoadError> {
        let zones = &pattern.zones;
        for (is_encoded, group) in [
            (false, [Zone::Args, Zone::Body, Zone::Url, Zone::FileName].as_slice()),
            (true, &[Zone::Headers]),
            (true, &[Zone::RawBody]),
        ] {
            let targets = zones.targets(group, !pattern.negated, &pattern.place)?;
            if targets.is_empty() {
                continue;
            }
            let mut main = self.search(pattern, targets)?.negated(pattern.negated);
            main.per_occurrence = true;
            main.actions.assignments = pattern.scores.iter().map(add).collect();
            if is_encoded {
                main.actions.transformations.insert(0, Transformation::UrlDecode);
            }
            let mut tests = Vec::new();
            if let Some(path) = &zones.path {
                tests.push(self.path(path, &pattern.place)?);
            }
            if group == [Zone::RawBody] {
                tests.push(no_processor(&pattern.place));
            }
            tests.push(main);
            let mut rule = WrittenRule::blocking(pattern.id, pattern.message.as_bytes(), tests);
            rule.head().disruptive = Some(pattern.action.disruptive(self.is_learning));
            rule.head().tags = vec!["naxsi".into()];
            self.rules.push((rule, None));
        }
        Ok(())
    }

    fn search(
        &mut self,
        pattern: &Pattern,
        targets: Vec<Target>,
    ) -> Result<WrittenLink, LoadError> {
        let test = |condition| WrittenLink::new(&pattern.place, targets, condition);
        let condition = match &pattern.search {
            Search::Text(text) => {
                let test = test(contains(text.as_bytes()));
                return Ok(test.transformed(Transformation::Lowercase));
            }
            Search::NullByte => contains(b"\0"),
            Search::Regex(text) => self.regex(text, &pattern.place)?,
            Search::SqlInjection => Condition::SqlInjection,
            Search::CrossSiteScripting => Condition::CrossSiteScripting,
            Search::InvalidUtf8 => Condition::Utf8Encoding,
        };
        Ok(test(condition))
    }

    fn path(&mut self, path: &PathTest, place: &RulePlace) -> Result<WrittenLink, LoadError> {
        let test = |condition| WrittenLink::new(place, vec![all(V::RequestFilename)], condition);
        Ok(match path {
            PathTest::Equals(text) => {
                let text = Template::literal(text.to_ascii_lowercase().as_bytes());
                let test = test(Condition::Text(TextOperator::Equals, text));
                test.transformed(Transformation::Lowercase)
            }
            PathTest::Matches(text) => test(self.regex(text, place)?),
        })
    }

    /// A regex as naxsi compiles it: ignores case, `^` and `$` match at lines, `.` does not match line breaks.
    fn regex(&mut self, text: &str, place: &RulePlace) -> Result<Condition, LoadError> {
        let pattern = self.draft.shared.regex(&format!("(?i-s){text}"));
        pattern.map(Condition::Regex).map_err(|fault| at(place, fault))
    }

    /// Adds naxsi's internal rules.
    fn internal_rules(&mut self, place: &RulePlace, naxsi: &Naxsi) -> Result<(), LoadError> {
        let test = |targets, condition| WrittenLink::new(place, targets, condition);
        let number_test = |target, number| number_test(place, target, number);
        let no_type = || number_test(count(named(V::RequestHeaders, "content-type")), 0);
        let length = || named(V::RequestHeaders, "content-length");
        let header = |draft: &mut Self, name: &str, regex: &str| {
            let condition = draft.regex(regex, place)?;
            Ok::<_, LoadError>(test(vec![named(V::RequestHeaders, name)], condition))
        };
        let post = |compiler: &mut Self| {
            let condition = compiler.regex("^(?:POST|PUT|PATCH)$", place)?;
            Ok::<_, LoadError>(test(vec![all(V::RequestMethod)], condition))
        };
        let processor = |name: &[u8]| {
            let name = Condition::Text(TextOperator::Equals, Template::literal(name));
            test(vec![all(V::ReqbodyProcessor)], name)
        };
        let is_set = |variable: V| number_test(all(variable), 1);
        let some_body = || test(vec![all(V::RequestBodyLength)], above_zero());

        let json = header(self, "content-type", JSON_TYPES)?;
        let controls = vec![Control::RequestBodyProcessor(BodyProcessor::Json)];
        self.control(vec![no_processor(place), json], controls);

        let path = self.regex(INVALID_ESCAPE, place)?;
        let unknown_type = header(self, "content-type", CONTENT_TYPES)?.negated(true);
        let host = header(self, "host", ILLEGAL_HOSTS)?;
        let post = [post(self)?, post(self)?, post(self)?, post(self)?];
        let [post_unknown, post_untyped, post_zero, post_none] = post;
        let invalid = |variable: V| test(vec![all(variable)], Condition::UrlEncoding);
        let internal: [(u64, &str, Zone, Vec<WrittenLink>); 11] = [
            (2, "request too big", Zone::Body, vec![is_set(V::InboundDataError)]),
            (10, "invalid escape", Zone::Args, vec![invalid(V::QueryString)]),
            (10, "invalid escape", Zone::Url, vec![test(vec![all(V::RequestUriRaw)], path)]),
            (
                10,
                "invalid escape",
                Zone::Body,
                vec![processor(b"URLENCODED"), invalid(V::RequestBody)],
            ),
            (11, "unknown content type", Zone::Body, vec![post_unknown, some_body(), unknown_type]),
            (11, "no content type", Zone::Body, vec![post_untyped, some_body(), no_type()]),
            (
                13,
                "invalid multipart body",
                Zone::Body,
                vec![is_set(V::ReqbodyError), processor(b"MULTIPART")],
            ),
            (15, "invalid JSON", Zone::Body, vec![is_set(V::ReqbodyError), processor(b"JSON")]),
            (16, "empty body", Zone::Body, vec![post_zero, number_test(length(), 0)]),
            (
                16,
                "empty body",
                Zone::Body,
                vec![
                    post_none,
                    number_test(count(length()), 0),
                    number_test(count(named(V::RequestHeaders, "transfer-encoding")), 0),
                ],
            ),
            (21, "illegal host", Zone::Headers, vec![host]),
        ];
        for (id, message, zone, tests) in internal {
            let mut rule = WrittenRule::blocking(id, message.as_bytes(), tests);
            rule.head().tags = vec!["naxsi".into(), zone.tag(id)];
            let action = if id < FIRST_DROPPING_ID { Action::Block } else { Action::Drop };
            rule.head().disruptive = Some(action.disruptive(self.is_learning));
            self.rules.push((rule, Some(zone)));
        }
        let everywhere = || {
            let zones = [Zone::Args, Zone::Body, Zone::Headers, Zone::Url];
            Zones { zones: zones.map(|zone| (zone, Selector::All)).to_vec(), ..Zones::default() }
        };
        let (sql, xss) = ("libinjection_sql", "libinjection_xss");
        for (id, message, search, score, action, is_used) in [
            (10, "null byte", Search::NullByte, None, Action::Block, true),
            (20, "invalid UTF-8", Search::InvalidUtf8, None, Action::Drop, true),
            (17, "SQL injection", Search::SqlInjection, Some(sql), Action::Log, naxsi.finds_sql),
            (18, "script", Search::CrossSiteScripting, Some(xss), Action::Log, naxsi.finds_xss),
        ] {
            if is_used {
                self.pattern(&Pattern {
                    id,
                    place: place.clone(),
                    message: message.into(),
                    search,
                    negated: false,
                    zones: everywhere(),
                    scores: score.map(|name| (name.to_owned(), 8)).into_iter().collect(),
                    action,
                })?;
            }
        }
        Ok(())
    }

    /// Applies the whitelists. Those that depend on the path become rules.
    fn whitelists(&mut self, lists: &[Whitelist]) -> Result<(), LoadError> {
        for list in lists {
            for id in list.ids.iter().filter(|&&id| id > 0) {
                if !self.rules.iter().any(|(rule, _)| i64::try_from(rule.id) == Ok(*id)) {
                    self.draft.note_inert(&list.place, format!("no rule has id {id}"));
                }
            }
            let Some(zones) = &list.zones else {
                self.rules.retain(|(rule, _)| !list.selects(rule.id));
                continue;
            };
            let excluded = zones.excluded(&list.place)?;
            let is_whole = |zone: Option<Zone>| {
                zone.is_some_and(|zone| zones.zones.contains(&(zone, Selector::All)))
                    && !zones.is_name
            };
            let Some(path) = &zones.path else {
                self.rules.retain(|(rule, zone)| !(list.selects(rule.id) && is_whole(*zone)));
                for (rule, _) in self.rules.iter_mut().filter(|(rule, _)| list.selects(rule.id)) {
                    let test = rule.links.last_mut().and_then(|link| link.test.as_mut());
                    if let Some(test) = test {
                        test.exclusions.extend(excluded.iter().cloned());
                    }
                }
                continue;
            };
            let selected = self.rules.iter().filter(|(rule, _)| list.selects(rule.id));
            let whole = selected.clone().filter(|(_, zone)| is_whole(*zone));
            let mut controls: Vec<Control<RuleFilter>> = whole
                .filter_map(|(rule, zone)| zone.map(|zone| zone.tag(rule.id)))
                .map(|tag| Control::RemoveRules(RuleFilter::Tag(tag)))
                .collect();
            let ids = RuleFilter::Ids(selected.map(|(rule, _)| (rule.id, rule.id)).collect());
            controls.extend(
                excluded.into_iter().map(|target| Control::RemoveTargets(ids.clone(), target)),
            );
            let test = self.path(path, &list.place)?;
            self.control(vec![test], controls);
        }
        Ok(())
    }

    /// Adds a rule without id that changes which rules run.
    fn control(&mut self, mut tests: Vec<WrittenLink>, controls: Vec<Control<RuleFilter>>) {
        tests[0].actions = Actions {
            log: Some(false),
            audit_log: Some(false),
            disruptive: Some(WrittenDisruptive::Pass),
            controls,
            ..std::mem::take(&mut tests[0].actions)
        };
        let phase = Phase::RequestHeaders;
        self.draft.push(WrittenRule { id: 0, phase, defaults: Rc::default(), links: tests });
    }
}

impl Action {
    fn disruptive(self, is_learning: bool) -> WrittenDisruptive {
        match self {
            Self::Block if is_learning => WrittenDisruptive::Pass,
            Self::Log => WrittenDisruptive::Pass,
            Self::Block | Self::Drop => WrittenDisruptive::Deny,
            Self::Allow => WrittenDisruptive::Allow(AllowScope::Request),
        }
    }
}

fn named(variable: V, name: &str) -> Target {
    Target { variable, selector: Selector::Name(name.into(), None), count: false }
}

fn count(target: Target) -> Target {
    Target { count: true, ..target }
}

fn number_test(place: &RulePlace, target: Target, number: i64) -> WrittenLink {
    let number = Template::literal(number.to_string().as_bytes());
    WrittenLink::new(place, vec![target], Condition::Number(NumberOperator::Equal, number))
}

fn no_processor(place: &RulePlace) -> WrittenLink {
    number_test(place, count(all(V::ReqbodyProcessor)), 0)
}

fn above_zero() -> Condition {
    Condition::Number(NumberOperator::Greater, Template::literal(b"0"))
}

fn contains(text: &[u8]) -> Condition {
    Condition::Text(TextOperator::Contains, Template::literal(text))
}

/// The TX variable of a score.
fn variable(score: &str) -> String {
    format!("naxsi_{score}")
}

fn add((score, amount): &(String, i64)) -> Assignment {
    Assignment {
        variable: V::Tx,
        name: Template::literal(variable(score).as_bytes()),
        slot: None,
        change: Change::Add(Template::literal(amount.to_string().as_bytes())),
    }
}
