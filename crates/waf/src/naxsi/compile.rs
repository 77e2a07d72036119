//! Compiles naxsi rules into rules of the engine.

use super::zone::{PathTest, Zone, Zones, all};
use super::{Action, Check, Naxsi, Pattern, Search, Whitelist, at};
use crate::condition::{Condition, NumberOperator, TextOperator};
use crate::error::{LoadError, Place, Skipped};
use crate::rule::{
    AllowScope, Assignment, BodyProcessor, Change, Control, Disruptive, Phase, Rule, RuleFilter,
    Selector, Target, Test, WrittenOperator,
};
use crate::seclang::directive::{Draft, Entry};
use crate::template::Template;
use crate::transformation::Transformation;
use crate::variable::Variable as V;

/// Ids of the thresholds, which have none in naxsi.
const FIRST_CHECK_ID: u32 = 900;
/// Content types whose bodies naxsi parses.
const CONTENT_TYPES: &str = "^(?:application/(?:x-www-form-urlencoded|json|vnd\\.api\\+json|csp-report)|multipart/form-data)";
const JSON_TYPES: &str = "^application/(?:json|vnd\\.api\\+json|csp-report)";
/// Addresses that no client reaches.
const ILLEGAL_HOSTS: &str =
    "^(?:0\\.[0-9.]+|255\\.255\\.255\\.255|\\[[0:]+\\]|\\[ff[0-9a-f]{0,2}:[^\\]]*\\])(?::[0-9]*)?$";
/// An invalid escape in the path.
const INVALID_ESCAPE: &str = "^[^?]*%(?:[^0-9a-f]|[0-9a-f][^0-9a-f]|[0-9a-f]?\\z)";

impl Draft {
    /// Compiles what was read.
    pub(crate) fn finish_naxsi(&mut self) -> Result<(), LoadError> {
        let naxsi = std::mem::take(&mut self.naxsi);
        let Some(place) = &naxsi.first else { return Ok(()) };
        if naxsi.rules.is_empty() && !naxsi.finds_sql && !naxsi.finds_xss {
            let message = "no MainRule or BasicRule has a pattern: naxsi would drop all requests";
            return Err(LoadError::Invalid { place: place.clone(), message: message.into() });
        }
        let mut compiler =
            Compiler { draft: self, rules: Vec::new(), is_learning: naxsi.is_learning };
        compiler.internal_rules(place, &naxsi)?;
        for rule in &naxsi.rules {
            match compiler.pattern(rule) {
                Err(LoadError::Unsupported { place, message })
                    if compiler.draft.skip_unsupported =>
                {
                    compiler.draft.skipped.push(Skipped { place, message });
                }
                other => other?,
            }
        }
        let before = compiler.whitelists(&naxsi.whitelists)?;
        let rules: Vec<Rule> = compiler.rules.into_iter().map(|(rule, _)| rule).collect();
        self.entries.extend(before.into_iter().map(|rule| Entry::Rule(Box::new(rule), None)));
        self.note_unused_scores(&naxsi);
        // A request that one of them allows is not compared with the others.
        let (allow, others): (Vec<_>, Vec<_>) =
            naxsi.checks.iter().partition(|check| check.action == Action::Allow);
        let checks = allow.into_iter().chain(others);
        let checks: Vec<_> = checks.map(|check| (check, self.take_id(FIRST_CHECK_ID))).collect();
        // naxsi compares a score whenever it grows. For a lower bound, the last time suffices.
        for rule in rules {
            let raised: Vec<Vec<u8>> = (rule.links.iter().flat_map(|link| &link.assignments))
                .filter_map(|added| added.name.as_text().map(<[u8]>::to_vec))
                .collect();
            self.entries.push(Entry::Rule(Box::new(rule), None));
            for &(check, id) in checks.iter().filter(|(check, _)| check.is_upper_bound()) {
                if raised.contains(&variable(&check.score).into_bytes()) {
                    self.naxsi_check(check, id, naxsi.is_learning);
                }
            }
        }
        for &(check, id) in checks.iter().filter(|(check, _)| !check.is_upper_bound()) {
            self.naxsi_check(check, id, naxsi.is_learning);
        }
        Ok(())
    }

    fn note_unused_scores(&mut self, naxsi: &Naxsi) {
        for rule in &naxsi.rules {
            for (score, _) in &rule.scores {
                let message = format!("no CheckRule compares ${}", score.to_ascii_uppercase());
                let is_compared = naxsi.checks.iter().any(|check| check.score == *score);
                if !is_compared && !self.inert.iter().any(|inert| inert.message == message) {
                    self.inert.push(Skipped { place: rule.place.clone(), message });
                }
            }
        }
    }

    fn naxsi_check(&mut self, check: &Check, id: u64, is_learning: bool) {
        let selector = Selector::Name(variable(&check.score).into_bytes(), None);
        let score = Target { variable: V::Tx, selector, count: false };
        let threshold = Template::literal(check.threshold.to_string().as_bytes());
        let test = test(vec![score], Condition::Number(check.operator, threshold));
        let mut rule = self.new_rule(id, &check.place, check.text.as_bytes(), vec![test]);
        rule.tags = vec!["naxsi".into()];
        rule.disruptive = check.action.disruptive(is_learning);
        self.entries.push(Entry::Rule(Box::new(rule), None));
    }
}

struct Compiler<'a> {
    draft: &'a mut Draft,
    is_learning: bool,
    /// With the zone by which a whitelist removes the whole rule.
    rules: Vec<(Rule, Option<Zone>)>,
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
            let mut main = self.search(pattern, targets)?;
            main.negated = pattern.negated;
            if is_encoded {
                main.transformations.insert(0, Transformation::UrlDecode);
            }
            let mut tests = Vec::new();
            if let Some(path) = &zones.path {
                tests.push(self.path(path, &pattern.place)?);
            }
            if group == [Zone::RawBody] {
                tests.push(no_processor());
            }
            tests.push(main);
            let message = pattern.message.as_bytes();
            let mut rule = self.draft.new_rule(pattern.id, &pattern.place, message, tests);
            rule.disruptive = pattern.action.disruptive(self.is_learning);
            if let Some(link) = rule.links.last_mut() {
                link.per_occurrence = true;
                link.assignments = pattern.scores.iter().map(add).collect();
            }
            rule.tags = vec!["naxsi".into()];
            self.rules.push((rule, None));
        }
        Ok(())
    }

    fn search(&mut self, pattern: &Pattern, targets: Vec<Target>) -> Result<Test, LoadError> {
        let condition = match &pattern.search {
            Search::Text(text) => {
                let mut test = test(targets, contains(text.as_bytes()));
                test.transformations.push(Transformation::Lowercase);
                return Ok(test);
            }
            Search::NullByte => contains(b"\0"),
            Search::Regex(text) => self.regex(text, &pattern.place)?,
            Search::SqlInjection => Condition::SqlInjection,
            Search::CrossSiteScripting => Condition::CrossSiteScripting,
            Search::InvalidUtf8 => Condition::Utf8Encoding,
        };
        Ok(test(targets, condition))
    }

    fn path(&mut self, path: &PathTest, place: &Place) -> Result<Test, LoadError> {
        let targets = vec![all(V::RequestFilename)];
        Ok(match path {
            PathTest::Equals(text) => {
                let text = Template::literal(text.to_ascii_lowercase().as_bytes());
                let mut test = test(targets, Condition::Text(TextOperator::Equals, text));
                test.transformations.push(Transformation::Lowercase);
                test
            }
            PathTest::Matches(text) => test(targets, self.regex(text, place)?),
        })
    }

    /// A regex as naxsi compiles it: ignores case, `^` and `$` match at lines, `.` does not match line breaks.
    fn regex(&mut self, text: &str, place: &Place) -> Result<Condition, LoadError> {
        let pattern = self.draft.shared.regex(&format!("(?i-s){text}"));
        pattern.map(Condition::Regex).map_err(|fault| at(place, fault))
    }

    /// Adds naxsi's internal rules.
    fn internal_rules(&mut self, place: &Place, naxsi: &Naxsi) -> Result<(), LoadError> {
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
        let rule = self.control(place, vec![no_processor(), json], controls);
        self.draft.entries.push(Entry::Rule(Box::new(rule), None));

        let path = self.regex(INVALID_ESCAPE, place)?;
        let mut unknown_type = header(self, "content-type", CONTENT_TYPES)?;
        unknown_type.negated = true;
        let host = header(self, "host", ILLEGAL_HOSTS)?;
        let post = [post(self)?, post(self)?, post(self)?, post(self)?];
        let [post_unknown, post_untyped, post_zero, post_none] = post;
        let invalid = |variable: V| test(vec![all(variable)], Condition::UrlEncoding);
        let internal: [(u64, &str, Zone, Vec<Test>); 11] = [
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
            let mut rule = self.draft.new_rule(id, place, message.as_bytes(), tests);
            rule.tags = vec!["naxsi".into(), zone.tag(id)];
            rule.disruptive = Action::Block.disruptive(self.is_learning);
            self.rules.push((rule, Some(zone)));
        }
        let everywhere = || {
            let zones = [Zone::Args, Zone::Body, Zone::Headers, Zone::Url];
            Zones { zones: zones.map(|zone| (zone, Selector::All)).to_vec(), ..Zones::default() }
        };
        for (id, message, search, score, is_used) in [
            (10, "null byte", Search::NullByte, None, true),
            (20, "invalid UTF-8", Search::InvalidUtf8, None, true),
            (17, "SQL injection", Search::SqlInjection, Some("libinjection_sql"), naxsi.finds_sql),
            (18, "script", Search::CrossSiteScripting, Some("libinjection_xss"), naxsi.finds_xss),
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
                    action: if score.is_some() { Action::Log } else { Action::Block },
                })?;
            }
        }
        Ok(())
    }

    /// Applies the whitelists, and returns the rules of those that depend on the path.
    fn whitelists(&mut self, lists: &[Whitelist]) -> Result<Vec<Rule>, LoadError> {
        let mut before = Vec::new();
        for list in lists {
            for id in list.ids.iter().filter(|&&id| id > 0) {
                if !self.rules.iter().any(|(rule, _)| i64::try_from(rule.id) == Ok(*id)) {
                    let message = format!("no rule has id {id}");
                    self.draft.inert.push(Skipped { place: list.place.clone(), message });
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
            let mut controls: Vec<Control> = whole
                .filter_map(|(rule, zone)| zone.map(|zone| zone.tag(rule.id)))
                .map(|tag| Control::RemoveRules(RuleFilter::Tag(tag)))
                .collect();
            let ids = RuleFilter::Ids(selected.map(|(rule, _)| (rule.id, rule.id)).collect());
            controls.extend(
                excluded.into_iter().map(|target| Control::RemoveTargets(ids.clone(), target)),
            );
            let test = self.path(path, &list.place)?;
            let rule = self.control(&list.place, vec![test], controls);
            before.push(rule);
        }
        Ok(before)
    }

    /// A rule without id that changes which rules run.
    fn control(&mut self, place: &Place, tests: Vec<Test>, controls: Vec<Control>) -> Rule {
        let mut rule = self.draft.new_rule(0, place, b"", tests);
        (rule.phase, rule.log, rule.audit_log) = (Phase::RequestHeaders, false, false);
        rule.disruptive = Disruptive::Pass;
        rule.links[0].controls = controls;
        rule
    }
}

impl Action {
    fn disruptive(self, is_learning: bool) -> Disruptive {
        match self {
            Self::Block if is_learning => Disruptive::Pass,
            Self::Log => Disruptive::Pass,
            Self::Block | Self::Drop => Disruptive::Deny,
            Self::Allow => Disruptive::Allow(AllowScope::Request),
        }
    }
}

fn named(variable: V, name: &str) -> Target {
    Target { variable, selector: Selector::Name(name.into(), None), count: false }
}

fn count(target: Target) -> Target {
    Target { count: true, ..target }
}

fn test(targets: Vec<Target>, condition: Condition) -> Test {
    Test {
        targets,
        exclusions: Vec::new(),
        transformations: Vec::new(),
        multi_match: false,
        negated: false,
        condition,
        operator: WrittenOperator::default(),
        index: 0,
    }
}

fn number_test(target: Target, number: i64) -> Test {
    let number = Template::literal(number.to_string().as_bytes());
    test(vec![target], Condition::Number(NumberOperator::Equal, number))
}

fn no_processor() -> Test {
    number_test(count(all(V::ReqbodyProcessor)), 0)
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
