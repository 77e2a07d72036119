//! Tuning: exclusions that let benign requests pass, each with the attacks that it lets through.

mod derive;
mod exclusion;
mod logged;
mod proof;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_traffic::import::{mask_body, mask_header};
use tollgate_waf::{EngineMode, LoadError, RuleSet};

pub use derive::{NotReplayed, Origin, Refusal};
pub use exclusion::{Engine, Exclusion, PathPattern, Place, Target, render};
pub use proof::Placed;

use crate::difference::shown;
use crate::log::LoggedMatches;
use crate::replay::Request;
use derive::{Case, CaseKey, Cause, Evidence, Judge};
use logged::{LoggedTransaction, Open};

/// Limit of the value in a sample.
const SAMPLE_CHARS_MAX: usize = 120;

/// Choices of a tuning.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Engine that reads the exclusions.
    pub engine: Engine,
    /// Clients that must have sent a match before it counts as benign, unless somebody vouches for the request.
    pub clients_min: usize,
}

/// Exclusions for the requests so far.
#[derive(Debug)]
pub struct Tuner {
    evidence: Evidence,
    /// Transactions without requests, of which more entries may come.
    open: Open,
}

/// Exclusions with their proof.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Tuning {
    /// Requests that were replayed.
    pub requests: u64,
    /// Requests that the rules block without exclusions.
    pub blocked: u64,
    /// Blocked requests that pass with all exclusions.
    pub saved: u64,
    pub not_replayed: NotReplayed,
    /// Placed attacks that pass with all exclusions, each once.
    pub lost: usize,
    /// Blocked requests for which nothing is proposed, by reason.
    pub refused: BTreeMap<String, u64>,
    pub proposals: Vec<Proposal>,
}

/// An exclusion with its proof.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Proposal {
    pub exclusion: Exclusion,
    /// Requests that it helps to pass, those that are not replayed included.
    pub requests: u64,
    /// Requests of which the log has matches only.
    pub not_replayed: u64,
    pub clients: usize,
    pub days: usize,
    /// Kind of attacks of the rule, as of its tags.
    pub class: Option<String>,
    pub attacks: Placed,
    /// A request that was blocked, with the value, for a person to accept; secrets are masked.
    pub sample: String,
}

/// Error of a tuning: rules or exclusions cannot be loaded.
pub type TuneError = LoadError;

impl Tuner {
    /// Starts without requests.
    ///
    /// # Errors
    ///
    /// The rules of libinjection cannot be loaded.
    pub fn new(rules: Arc<RuleSet>) -> Result<Self, LoadError> {
        Ok(Self { evidence: Evidence::new(rules)?, open: Open::default() })
    }

    /// Replays a request. If the rules block it, it becomes evidence, or is refused.
    ///
    /// # Errors
    ///
    /// An exclusion cannot be loaded.
    pub fn add(&mut self, request: &Request, origin: Origin<'_>) -> Result<(), LoadError> {
        self.evidence.add(request, origin)
    }

    /// Adds matches of a transaction whose request the log does not have. Those of one transaction may come in several calls. If
    /// the log says that it was blocked, it becomes evidence, or is refused.
    pub fn add_matches(
        &mut self,
        client: Option<String>,
        day: Option<Date>,
        logged: LoggedMatches,
    ) {
        if let Some(complete) = self.open.add(LoggedTransaction { client, day, logged }) {
            self.evidence.add_logged(complete);
        }
    }

    /// Chooses exclusions and proves them with the requests and the tests. `load` loads the rules with a text before them.
    ///
    /// # Errors
    ///
    /// `load` fails, or an exclusion cannot be loaded.
    pub fn finish<E: From<LoadError>>(
        mut self,
        options: Options,
        tests: &[Request],
        load: impl FnOnce(&[Exclusion]) -> Result<RuleSet, E>,
    ) -> Result<Tuning, E> {
        let evidence = &mut self.evidence;
        while let Some(complete) = self.open.pop() {
            evidence.add_logged(complete);
        }
        evidence.require_clients(options.clients_min);
        let rules = Arc::clone(&evidence.judge.rules);
        let mut before = Judge::new(Arc::clone(&rules));
        let payloads = proof::payloads(&mut before, tests);
        // The exclusions of a match have one of two effects on a placed payload: on the variable, or on the rule.
        let mut known: BTreeMap<(Cause, String), u64> = BTreeMap::new();
        let chosen = evidence.cover(options.engine, |exclusion, variable, example| {
            let silenced = match exclusion.target {
                Target::All => "",
                Target::Name(_) | Target::Keys(..) => variable,
            };
            let cause = (exclusion.rule, silenced.to_owned());
            let key = (cause.clone(), format!("{variable} {}", shown(example)));
            if let Some(lost) = known.get(&key) {
                return Ok(*lost);
            }
            let without = before.without(&BTreeSet::from([cause]))?;
            let passes = |judge: &mut Judge, request: &Request| {
                judge.runs(&without, request, EngineMode::On);
                judge.transaction.intervention().is_none()
            };
            let on = (exclusion.rule, variable);
            let lost = proof::place(&mut before, passes, &payloads, on, example).lost;
            known.insert(key, lost);
            Ok(lost)
        })?;
        let mut after = Judge::new(Arc::new(load(&chosen)?));
        let mut tuning = Tuning {
            requests: evidence.requests,
            blocked: evidence.blocked,
            not_replayed: evidence.not_replayed,
            ..Tuning::default()
        };
        for (refusal, requests) in &evidence.refused {
            tuning.refused.insert(refusal.to_string(), *requests);
        }
        let mut passing: Vec<(&CaseKey, &Case)> = Vec::new();
        for (key, case) in &evidence.cases {
            let passes = if key.is_replayed {
                !after.blocks(&case.example)
            } else {
                key.causes
                    .iter()
                    .all(|cause| chosen.iter().any(|one| one.covers(cause, key.place())))
            };
            if passes {
                let saved = if key.is_replayed {
                    &mut tuning.saved
                } else {
                    &mut tuning.not_replayed.saved
                };
                *saved += case.requests;
                passing.push((key, case));
            } else {
                let refused = "no exclusion that can be written suffices".to_owned();
                *tuning.refused.entry(refused).or_default() += case.requests;
            }
        }
        let mut lost = HashSet::new();
        for exclusion in chosen {
            let passes = |_: &mut Judge, request: &Request| {
                let passes = !after.blocks(request);
                if passes {
                    lost.insert(request.clone());
                }
                passes
            };
            tuning.proposals.extend(Proposal::of(
                exclusion,
                &passing,
                |rule, variable, example| {
                    (
                        proof::class_of(&rules, rule),
                        proof::place(&mut before, passes, &payloads, (rule, variable), example),
                    )
                },
            ));
        }
        tuning.lost = lost.len();
        Ok(tuning)
    }
}

impl Proposal {
    /// `None` if no request passes because of it.
    fn of(
        exclusion: Exclusion,
        cases: &[(&CaseKey, &Case)],
        prove: impl FnOnce(u64, &str, &Request) -> (Option<String>, Placed),
    ) -> Option<Self> {
        let covered = |key: &CaseKey| {
            key.causes.iter().find(|cause| exclusion.covers(cause, key.place())).cloned()
        };
        let helped: Vec<_> =
            cases.iter().filter_map(|(key, case)| Some((*key, covered(key)?, *case))).collect();
        let (_, cause, case) = helped.first()?;
        let clients: HashSet<u64> =
            helped.iter().flat_map(|(.., case)| &case.clients).copied().collect();
        let days: BTreeSet<Date> =
            helped.iter().flat_map(|(.., case)| &case.days).copied().collect();
        let (class, attacks) = prove(exclusion.rule, &cause.1, &case.example);
        Some(Self {
            requests: helped.iter().map(|(.., case)| case.requests).sum(),
            not_replayed: helped
                .iter()
                .filter(|(key, ..)| !key.is_replayed)
                .map(|(.., case)| case.requests)
                .sum(),
            clients: clients.len(),
            days: days.len(),
            class,
            attacks,
            sample: sample(&case.example, &cause.1, &case.values[cause]),
            exclusion,
        })
    }
}

/// Request and value for a person, without secrets and control characters.
fn sample(request: &Request, variable: &str, value: &[u8]) -> String {
    let value = String::from_utf8_lossy(value);
    let (collection, key) = variable.split_once(':').unwrap_or((variable, ""));
    let masked = match collection {
        "REQUEST_COOKIES" => mask_header("Cookie", &format!("{key}={value}")),
        "REQUEST_HEADERS" => mask_header(key, &value),
        _ => mask_body(&format!("{key}={value}")),
    };
    let masked = masked.strip_prefix(&format!("{key}=")).unwrap_or(&masked);
    let text = masked.chars().flat_map(char::escape_debug).take(SAMPLE_CHARS_MAX);
    let variable = variable.escape_debug();
    format!("{}, {variable}: {}", shown(request).trim_start(), text.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LoggedMatch;
    use crate::replay::parse_raw;

    const RULES: &str = r#"
SecRuleEngine On
SecRequestBodyAccess On
SecRule ARGS "@rx (?i)\bselect\b.*\bfrom\b" "id:942100,phase:2,pass,log,msg:'SQL',tag:attack-sqli,setvar:tx.score=+5"
SecRule ARGS "@rx (?i)\bunion\b" "id:942200,phase:2,pass,log,msg:'SQL',tag:attack-sqli,setvar:tx.score=+5"
SecRule ARGS "@rx (?i)etc/passwd" "id:930100,phase:2,pass,log,msg:'Files',tag:attack-lfi,setvar:tx.score=+5"
SecRule ARGS "@rx (?i)cat /" "id:932100,phase:2,pass,log,msg:'Shell',tag:attack-rce,setvar:tx.score=+5"
SecRule TX:score "@ge 5" "id:949110,phase:2,deny,log,msg:'Score'"
"#;

    fn rules(text: &str) -> RuleSet {
        let built =
            RuleSet::builder().text("exclusions.conf", text).text("rules.conf", RULES).build();
        built.unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn post(path: &str, body: &str) -> Request {
        let head = "Host: a\r\nContent-Type: application/x-www-form-urlencoded";
        let length = body.len();
        parse_raw(
            format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}")
                .as_bytes(),
        )
    }

    fn tuning(requests: &[(Request, &str)], engine: Engine, tests: &[Request]) -> Tuning {
        let mut tuner = Tuner::new(Arc::new(rules(""))).unwrap_or_else(|error| panic!("{error}"));
        for (request, client) in requests {
            let origin = Origin { client: Some(client), day: None, is_benign: false };
            tuner.add(request, origin).unwrap_or_else(|error| panic!("{error}"));
        }
        let options = Options { engine, clients_min: 2 };
        let load = |chosen: &[Exclusion]| Ok::<_, LoadError>(rules(&render(chosen, 100)));
        tuner.finish(options, tests, load).unwrap_or_else(|error| panic!("{error}"))
    }

    fn shown(tuning: &Tuning) -> Vec<String> {
        tuning.proposals.iter().map(|proposal| proposal.exclusion.to_string()).collect()
    }

    /// Clients choose names: one that a rule cannot hold must neither end a directive nor hide the values under other names.
    #[test]
    fn names_of_variables_are_no_directives() {
        let benign = "please+select+a+shirt+from+the+list";
        for name in [
            "a b",
            "%22",
            "%22%0aSecRuleEngine+Off%0a%23",
            "a'",
            "a\\",
            "a/",
            "gr%C3%B6%C3%9Fe",
            "",
            "%ff",
        ] {
            let attacked = format!("{name}={benign}&q=1'+union+select+password+from+users--+-");
            let requests = ["a", "b"].map(|client| (post("/x", &attacked), client));
            let found = tuning(&requests, Engine::Tollgate, &[]);
            assert_eq!(shown(&found), [""; 0], "{name}");
            let harmless = format!("{name}={benign}");
            let requests = ["a", "b"].map(|client| (post("/x", &harmless), client));
            let found = tuning(&requests, Engine::Tollgate, &[]);
            let expected: &[&str] = if name == "%ff" { &[] } else { &["942100 in /x"] };
            assert_eq!(shown(&found), expected, "{name}");
        }
    }

    #[test]
    fn narrowest_exclusion_is_proposed_with_its_proof() {
        let text = "text=please+select+a+shirt+from+the+list";
        let requests = [
            (post("/shop/note", text), "a"),
            (post("/shop/note", text), "b"),
            (post("/shop/note", "text=hi"), "c"),
        ];
        let attack = |value: &str| post("/", &format!("q={value}"));
        let tests = [
            attack("1+union+select+a+from+b"),
            attack("select+password+from+users"),
            attack("union+all"),
            attack("cat+/etc/passwd"),
        ];
        let tuning = tuning(&requests, Engine::Tollgate, &tests);
        assert_eq!(shown(&tuning), ["942100 for ARGS:text in POST /shop/note"]);
        assert_eq!((tuning.requests, tuning.blocked, tuning.saved), (3, 2, 2));
        let proposal = &tuning.proposals[0];
        assert_eq!(
            (proposal.requests, proposal.clients, proposal.class.as_deref()),
            (2, 2, Some("sqli"))
        );
        // Three SQL payloads are blocked there; the one that no other rule matches is lost.
        let attacks = &proposal.attacks;
        assert_eq!((attacks.blocked, attacks.lost, attacks.not_placed), (3, 1, 0));
        assert_eq!(tuning.lost, 1);
        assert_eq!(attacks.examples, ["select password from users"]);
        assert!(
            proposal.sample.ends_with("ARGS:text: please select a shirt from the list"),
            "{}",
            proposal.sample
        );
    }

    #[test]
    fn poisoned_log_yields_nothing() {
        let attacks =
            ["1' union select password from users--", "cat /etc/passwd", "x' or 1=1 union all --"];
        let mut requests = Vec::new();
        let clients: Vec<String> = (0..50).map(|client| format!("192.0.2.{client}")).collect();
        for client in &clients {
            for attack in attacks {
                let encoded = percent_encoding::percent_encode(
                    attack.as_bytes(),
                    percent_encoding::NON_ALPHANUMERIC,
                );
                requests.push((post("/blog", &format!("q={encoded}")), client.as_str()));
            }
        }
        let tuning = tuning(&requests, Engine::Tollgate, &[]);
        assert_eq!((tuning.blocked, tuning.saved), (150, 0));
        assert_eq!(shown(&tuning), [""; 0]);
        assert_eq!(tuning.refused.values().sum::<u64>(), 150, "{:?}", tuning.refused);
    }

    #[test]
    fn match_of_one_client_is_no_evidence() {
        let text = "text=please+select+a+shirt+from+the+list";
        let tuning =
            tuning(&[(post("/", text), "a"), (post("/", text), "a")], Engine::Tollgate, &[]);
        assert_eq!((tuning.saved, tuning.proposals.len()), (0, 0));
        assert_eq!(tuning.refused.values().sum::<u64>(), 2);
    }

    #[test]
    fn many_keys_become_a_pattern_where_the_engine_takes_one() {
        let mut requests = Vec::new();
        for key in 0..6 {
            for client in ["a", "b"] {
                let body = format!("line_{key}=select+it+from+here");
                requests.push((post("/order", &body), client));
            }
        }
        let pattern = "942100 for ARGS:/^line_[0-9]+$/ in POST /order";
        assert_eq!(shown(&tuning(&requests, Engine::Coraza, &[])), [pattern]);
        let third = tuning(&requests, Engine::Modsecurity3, &[]);
        assert_eq!((third.proposals.len(), third.saved), (6, 12));
    }

    fn logged(transaction: &str, matches: &[(u64, &str, &str)]) -> LoggedMatches {
        let of = |&(id, variable, value): &(u64, &str, &str)| LoggedMatch {
            id,
            variable: variable.to_owned(),
            value: value.as_bytes().to_vec(),
        };
        LoggedMatches {
            transaction: transaction.to_owned(),
            target: "/shop/note".to_owned(),
            matches: matches.iter().map(of).collect(),
            ..LoggedMatches::default()
        }
    }

    fn tuning_of_matches(entries: &[(&str, LoggedMatches)], tests: &[Request]) -> Tuning {
        let mut tuner = Tuner::new(Arc::new(rules(""))).unwrap_or_else(|error| panic!("{error}"));
        for (client, logged) in entries {
            tuner.add_matches(Some((*client).to_owned()), None, logged.clone());
        }
        let options = Options { engine: Engine::Modsecurity3, clients_min: 2 };
        let load = |chosen: &[Exclusion]| Ok::<_, LoadError>(rules(&render(chosen, 100)));
        tuner.finish(options, tests, load).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn matches_of_a_log_without_requests_are_evidence_that_is_not_replayed() {
        let found = (942_100, "ARGS:text", "please select a shirt from the list");
        let score = (949_110, "TX:score", "5");
        let entries = [
            ("a", logged("1", &[found])),
            ("b", logged("2", &[found])),
            ("b", logged("2", &[score])),
            ("a", logged("1", &[score])),
            // Not blocked.
            ("c", logged("3", &[found])),
        ];
        let tests = [post("/", "q=select+password+from+users")];
        let tuning = tuning_of_matches(&entries, &tests);
        assert_eq!(shown(&tuning), ["942100 for ARGS:text in /shop/note"]);
        let expected = NotReplayed { transactions: 3, blocked: 2, saved: 2 };
        assert_eq!((tuning.requests, tuning.not_replayed), (0, expected));
        let proposal = &tuning.proposals[0];
        assert_eq!((proposal.requests, proposal.not_replayed, proposal.clients), (2, 2, 2));
        assert_eq!((proposal.attacks.blocked, proposal.attacks.lost), (1, 1));
        assert!(
            proposal.sample.starts_with("/shop/note, ARGS:text: please"),
            "{}",
            proposal.sample
        );
    }

    #[test]
    fn matches_that_nobody_can_judge_are_no_evidence() {
        let blocked = |client: &'static str, matches: &[(u64, &str, &str)]| {
            let logged = logged(client, matches);
            (client, LoggedMatches { was_blocked: true, ..logged })
        };
        for (matches, refusal) in [
            (
                vec![(942_100, "ARGS:q", "1' union select password from users--")],
                Refusal::Libinjection,
            ),
            (vec![(930_100, "ARGS:q", "cat a"), (932_100, "ARGS:q", "cat a")], Refusal::TwoClasses),
            (vec![(942_100, "ARGS:q", "")], Refusal::NoValue),
            (vec![(942_999, "ARGS:q", "a")], Refusal::UnknownRule),
            (vec![(949_110, "TX:score", "5")], Refusal::Protected),
            (vec![(942_100, "", "a")], Refusal::NoPlace),
            (vec![(942_100, "ARGS:a b", "a")], Refusal::NoPlace),
            (
                vec![(942_100, "ARGS:q", r"1\' union select password from users--")],
                Refusal::Libinjection,
            ),
        ] {
            let entries = [blocked("a", &matches), blocked("b", &matches)];
            let tuning = tuning_of_matches(&entries, &[]);
            assert_eq!(tuning.refused, BTreeMap::from([(refusal.to_string(), 2)]), "{matches:?}");
            assert_eq!(shown(&tuning), [""; 0]);
        }
    }

    #[test]
    fn transactions_without_a_whole_log_are_no_evidence() {
        let found = (942_100, "ARGS:text", "select a shirt from here");
        let blocked = |name: &str| LoggedMatches { was_blocked: true, ..logged(name, &[found]) };
        let incomplete = LoggedMatches { is_incomplete: true, ..blocked("1") };
        let elsewhere = LoggedMatches { others: vec!["1".to_owned()], ..logged("9", &[]) };
        let ids: Vec<(u64, String)> =
            (0..=100).map(|number| (942_100, format!("ARGS:q{number}"))).collect();
        let many: Vec<_> = ids.iter().map(|(id, variable)| (*id, variable.as_str(), "a")).collect();
        let many = LoggedMatches { was_blocked: true, ..logged("1", &many) };
        let nowhere = LoggedMatches { target: "/a b".to_owned(), ..blocked("1") };
        for (entries, refusal) in [
            (vec![("a", incomplete)], Refusal::Incomplete),
            (vec![("a", blocked("1")), ("a", elsewhere)], Refusal::Incomplete),
            (vec![("a", many.clone()), ("a", blocked("1"))], Refusal::Incomplete),
            (vec![("a", nowhere)], Refusal::NoPlace),
        ] {
            let tuning = tuning_of_matches(&entries, &[]);
            assert_eq!(tuning.refused, BTreeMap::from([(refusal.to_string(), 1)]), "{entries:?}");
        }
    }

    #[test]
    fn methods_that_no_rule_can_name_are_left_out() {
        let text = "text=please+select+a+shirt+from+the+list";
        let mut requests = [(post("/note", text), "a"), (post("/note", text), "b")];
        for (request, _) in &mut requests {
            request.method = b"POST\" \"t:none\"\nSecRuleEngine Off\n#".to_vec();
        }
        let tuning = tuning(&requests, Engine::Tollgate, &[]);
        assert_eq!(shown(&tuning), ["942100 for ARGS:text in /note"]);
        let exclusions: Vec<Exclusion> =
            tuning.proposals.iter().map(|one| one.exclusion.clone()).collect();
        assert!(!render(&exclusions, 1).contains("SecRuleEngine"));
        assert!(!tuning.proposals[0].sample.contains('\n'));
    }

    #[test]
    fn secrets_of_samples_are_masked() {
        let text = "password=select+it+from+here";
        let requests = [(post("/?token=abc", text), "a"), (post("/?token=abc", text), "b")];
        let tuning = tuning(&requests, Engine::Tollgate, &[]);
        let sample = &tuning.proposals[0].sample;
        assert!(!sample.contains("select") && !sample.contains("abc"), "{sample}");
    }
}
