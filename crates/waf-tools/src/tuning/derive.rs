//! Evidence from benign requests that rules block, and the exclusions that it supports.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use jiff::civil::Date;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_waf::{EngineMode, LoadError, Match, RuleSet, Transaction, Worker};

use super::exclusion::{
    Engine, Exclusion, PathPattern, is_evaluation_of_scores, is_protected, is_writable,
    path_pattern,
};
use super::logged::LoggedTransaction;
use crate::log::LoggedMatches;
use crate::log::error_log::unescaped;
use crate::replay::{self, Request};

/// Rounds in which further rules may appear behind excluded ones.
const ROUNDS_MAX: usize = 32;

/// Limit of distinct cases, and of the clients that are counted for each.
const CASES_MAX: usize = 10_000;
const CLIENTS_MAX: usize = 10_000;

/// Detects attacks in the value of `v` independently of the rules that are tuned.
const JUDGE: &str = r#"
SecRuleEngine On
SecRule ARGS:v "@detectSQLi" "id:1,phase:1,deny,t:none,t:utf8toUnicode,t:urlDecodeUni,t:removeNulls,multiMatch"
SecRule ARGS:v "@detectXSS" "id:2,phase:1,deny,t:none,t:utf8toUnicode,t:urlDecodeUni,t:htmlEntityDecode,t:jsDecode,t:cssDecode,t:removeNulls,multiMatch"
"#;

/// Rules with the memory to run them.
#[derive(Debug)]
pub(super) struct Judge {
    pub(super) rules: Arc<RuleSet>,
    pub(super) transaction: Transaction,
    worker: Worker,
}

/// A match that must be silenced: rule and variable.
pub(super) type Cause = (u64, String);

/// A match that must be silenced at a place: path and method.
type Wanted = (Option<PathPattern>, Option<String>, Cause);

/// Requests that the same matches block at the same place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CaseKey {
    /// `None` if a log without requests does not have it.
    pub(super) method: Option<String>,
    pub(super) path: Option<PathPattern>,
    pub(super) causes: BTreeSet<Cause>,
    /// False if a log has matches and no requests.
    pub(super) is_replayed: bool,
}

impl CaseKey {
    pub(super) fn place(&self) -> (Option<&PathPattern>, Option<&str>) {
        (self.path.as_ref(), self.method.as_deref())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) requests: u64,
    /// Hashes of addresses.
    pub(super) clients: HashSet<u64>,
    pub(super) days: BTreeSet<Date>,
    /// True if somebody vouches for the requests.
    pub(super) is_benign: bool,
    /// A request; of one that is not replayed, the method and the path as far as they are known.
    pub(super) example: Request,
    /// A value of each cause.
    pub(super) values: BTreeMap<Cause, Vec<u8>>,
}

/// Reason why a blocked request supports no exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// libinjection takes a value for an attack.
    Libinjection,
    /// Rules against different kinds of attacks match one value.
    TwoClasses,
    /// A protected rule or a limit blocks it, or a rule that has no variable of the request.
    Protected,
    /// Too few clients sent it, and nobody vouches for it.
    FewClients,
    /// There are too many distinct cases.
    TooMany,
    /// A log without requests has a match of a rule that is not loaded.
    UnknownRule,
    /// A log without requests does not have a whole value, so that nobody can judge it.
    NoValue,
    /// A message of the log is ambiguous, or there are too many.
    Incomplete,
    /// A match of a log without requests has no path or variable that an exclusion can name, or a name is not UTF-8.
    NoPlace,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Libinjection => "a value is an attack by libinjection",
            Self::TwoClasses => "rules against different kinds of attacks match a value",
            Self::Protected => "a rule that must stay, or a limit, blocks it",
            Self::FewClients => "too few clients sent it",
            Self::TooMany => "too many distinct requests",
            Self::UnknownRule => "the log has a match of a rule that is not loaded",
            Self::NoValue => "the log has neither the request nor the whole value",
            Self::Incomplete => "a message of the log is ambiguous, or there are too many",
            Self::NoPlace => "a match has no path or variable that an exclusion can name",
        })
    }
}

/// Origin of a request.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Address of the client.
    pub client: Option<&'a str>,
    /// Day on which it was sent.
    pub day: Option<Date>,
    /// True if somebody vouches for the request.
    pub is_benign: bool,
}

/// Transactions of which logs have matches and no requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct NotReplayed {
    pub transactions: u64,
    /// Transactions that were blocked, or would have been, by the log.
    pub blocked: u64,
    /// Blocked ones of which the exclusions silence all matches in the log.
    pub saved: u64,
}

/// Collects evidence.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) judge: Judge,
    libinjection: Judge,
    hasher: RandomState,
    /// Kinds of attacks, by rule.
    classes: HashMap<u64, Option<String>>,
    pub(super) requests: u64,
    pub(super) blocked: u64,
    pub(super) not_replayed: NotReplayed,
    pub(super) cases: BTreeMap<CaseKey, Case>,
    pub(super) refused: BTreeMap<Refusal, u64>,
}

impl Judge {
    pub(super) fn new(rules: Arc<RuleSet>) -> Self {
        let mut worker = Worker::new();
        let mut transaction = worker.warm_up(&rules);
        transaction.record_details(true);
        Self { rules, transaction, worker }
    }

    /// True if the rules block the request.
    pub(super) fn blocks(&mut self, request: &Request) -> bool {
        let rules = Arc::clone(&self.rules);
        self.runs(&rules, request, EngineMode::On);
        self.transaction.intervention().is_some()
    }

    /// True if the rules of [`JUDGE`] take the value for an attack.
    fn is_injection(&mut self, value: &[u8]) -> bool {
        let target = format!("/?v={}", percent_encode(value, NON_ALPHANUMERIC));
        let request = Request {
            method: b"GET".to_vec(),
            target: target.into_bytes(),
            protocol: b"HTTP/1.1".to_vec(),
            ..Request::default()
        };
        self.blocks(&request)
    }

    /// Runs a variant of the rules.
    pub(super) fn runs(&mut self, rules: &Arc<RuleSet>, request: &Request, mode: EngineMode) {
        self.transaction.reset_with(rules);
        self.transaction.record_details(true);
        self.transaction.engine_mode(mode);
        replay::run_request(&mut self.transaction, &mut self.worker, request);
    }

    /// The rules without these matches.
    pub(super) fn without(&self, causes: &BTreeSet<Cause>) -> Result<Arc<RuleSet>, LoadError> {
        let line = |(rule, variable): &Cause| match variable.as_str() {
            "" => format!("SecRuleRemoveById {rule}\n"),
            variable => {
                format!("SecRuleUpdateTargetById {rule} \"!{}\"\n", written_target(variable))
            }
        };
        let text: String = causes.iter().map(line).collect();
        let built = RuleSet::builder().text("exclusions", text).build_on(&self.rules)?;
        Ok(built.map_or_else(|| Arc::clone(&self.rules), Arc::new))
    }
}

/// Kind of attacks that the rule of a match detects.
pub(super) fn class(rules: &RuleSet, found: &Match) -> Option<String> {
    class_of_tags(rules.rule(found.rule)?.tags)
}

/// Kind of attacks, as of the tags of a rule; none for rules of protocols.
pub(super) fn class_of_tags(tags: &[String]) -> Option<String> {
    const GENERAL: [&str; 6] = [
        "protocol",
        "generic",
        "reputation-ip",
        "reputation-scanner",
        "disclosure",
        "deprecated-header",
    ];
    let mut kinds = tags.iter().filter_map(|tag| tag.strip_prefix("attack-"));
    kinds.find(|kind| !GENERAL.contains(kind)).map(str::to_owned)
}

/// True if the match adds to a score or blocks, and may be excluded.
pub(super) fn is_cause(found: &Match) -> bool {
    let scores = found.details.as_ref().is_some_and(|details| !details.scores.is_empty());
    (scores || found.disruptive) && !is_protected(found.id)
}

/// The variable of the request that the match is about; empty if there is none, `None` if its name is not UTF-8.
pub(super) fn variable(found: &Match) -> Option<String> {
    let source = found.details.as_ref().map_or(&[][..], |details| &details.source);
    std::str::from_utf8(source).ok().map(named_variable)
}

/// The variable as a target of a rule of this engine. Clients choose names, which could end the directive: each byte of such
/// a name is written as an escape of a pattern. The path in `XML:PATH` is that of a rule.
fn written_target(variable: &str) -> Cow<'_, str> {
    match variable.split_once(':') {
        Some((collection, name)) if collection != "XML" && !is_writable(variable) => {
            let escapes: String = name.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("{collection}:/^(?-u){escapes}$/").into()
        }
        _ => variable.into(),
    }
}

fn named_variable(text: &str) -> String {
    let is_of_request = !text.starts_with(['&', '!']) && !text.starts_with("TX");
    if is_of_request { text.to_owned() } else { String::new() }
}

impl Evidence {
    pub(super) fn new(rules: Arc<RuleSet>) -> Result<Self, LoadError> {
        let libinjection = RuleSet::builder().text("libinjection", JUDGE).build()?;
        let classes = rules.rules().map(|rule| (rule.id, class_of_tags(rule.tags))).collect();
        Ok(Self {
            classes,
            not_replayed: NotReplayed::default(),
            judge: Judge::new(rules),
            libinjection: Judge::new(Arc::new(libinjection)),
            hasher: RandomState::new(),
            requests: 0,
            blocked: 0,
            cases: BTreeMap::new(),
            refused: BTreeMap::new(),
        })
    }

    pub(super) fn add(&mut self, request: &Request, origin: Origin<'_>) -> Result<(), LoadError> {
        self.requests += 1;
        if !self.judge.blocks(request) {
            return Ok(());
        }
        self.blocked += 1;
        match self.causes(request)? {
            Ok(values) => self.note(request.clone(), values, origin, true),
            Err(refusal) => self.refuse(refusal, 1),
        }
        Ok(())
    }

    /// Notes the matches of a blocked transaction as those that must be silenced for its request to pass.
    pub(super) fn add_logged(&mut self, transaction: LoggedTransaction) {
        let LoggedTransaction { client, day, logged } = transaction;
        self.not_replayed.transactions += 1;
        let is_blocked = logged.was_blocked
            || logged.matches.iter().any(|found| is_evaluation_of_scores(found.id));
        if !is_blocked {
            return;
        }
        self.not_replayed.blocked += 1;
        match self.logged_causes(&logged) {
            Ok(values) => {
                let example = Request {
                    method: logged.method.into_bytes(),
                    target: logged.target.into_bytes(),
                    protocol: b"HTTP/1.1".to_vec(),
                    ..Request::default()
                };
                let origin = Origin { client: client.as_deref(), day, is_benign: false };
                self.note(example, values, origin, false);
            }
            Err(refusal) => self.refuse(refusal, 1),
        }
    }

    /// Notes what must be silenced for a request to pass, with the values.
    fn note(
        &mut self,
        request: Request,
        values: BTreeMap<Cause, Vec<u8>>,
        origin: Origin<'_>,
        is_replayed: bool,
    ) {
        // Others cannot be written into a rule.
        let is_name = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
        let method = (!request.method.is_empty() && request.method.iter().all(is_name))
            .then(|| String::from_utf8_lossy(&request.method).into_owned());
        let key = CaseKey {
            method,
            path: path_pattern(&request.target),
            causes: values.keys().cloned().collect(),
            is_replayed,
        };
        if self.cases.len() == CASES_MAX && !self.cases.contains_key(&key) {
            self.refuse(Refusal::TooMany, 1);
            return;
        }
        let case = self.cases.entry(key).or_insert_with(|| Case {
            requests: 0,
            clients: HashSet::new(),
            days: BTreeSet::new(),
            is_benign: false,
            example: request,
            values,
        });
        case.requests += 1;
        case.is_benign |= origin.is_benign;
        case.days.extend(origin.day);
        if case.clients.len() < CLIENTS_MAX {
            case.clients.extend(origin.client.map(|client| self.hasher.hash_one(client)));
        }
    }

    fn refuse(&mut self, refusal: Refusal, requests: u64) {
        *self.refused.entry(refusal).or_default() += requests;
    }

    /// Finds the matches that must be silenced for the request to pass, with their values: those before the block, then those that
    /// appear without them. A rule reports one of the variables that it matches.
    fn causes(
        &mut self,
        request: &Request,
    ) -> Result<Result<BTreeMap<Cause, Vec<u8>>, Refusal>, LoadError> {
        let mut values: BTreeMap<Cause, Vec<u8>> = BTreeMap::new();
        let mut classes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            let without = self.judge.without(&values.keys().cloned().collect())?;
            self.judge.runs(&without, request, EngineMode::On);
            if self.judge.transaction.intervention().is_none() {
                return Ok(Ok(values));
            }
            let found: Vec<Match> = self.judge.transaction.matches().to_vec();
            let mut is_new = false;
            for found in found.iter().filter(|found| is_cause(found)) {
                let Some(variable) = variable(found) else { return Ok(Err(Refusal::NoPlace)) };
                if let Some(class) = class(&self.judge.rules, found) {
                    let known = classes.entry(variable.clone()).or_default();
                    known.insert(class);
                    if known.len() > 1 {
                        return Ok(Err(Refusal::TwoClasses));
                    }
                }
                if self.libinjection.is_injection(&found.value) {
                    return Ok(Err(Refusal::Libinjection));
                }
                let cause = (found.id, variable);
                is_new |= values.insert(cause, found.value.clone()).is_none();
            }
            if !is_new {
                return Ok(Err(Refusal::Protected));
            }
        }
        Ok(Err(Refusal::Protected))
    }

    /// Returns the matches of a log with their values.
    fn logged_causes(
        &mut self,
        logged: &LoggedMatches,
    ) -> Result<BTreeMap<Cause, Vec<u8>>, Refusal> {
        let mut values: BTreeMap<Cause, Vec<u8>> = BTreeMap::new();
        let mut kinds: BTreeMap<String, &String> = BTreeMap::new();
        if logged.is_incomplete {
            return Err(Refusal::Incomplete);
        }
        // Without a replay, what is not known must not make an exclusion broader.
        if path_pattern(logged.target.as_bytes()).is_none() {
            return Err(Refusal::NoPlace);
        }
        for found in logged.matches.iter().filter(|found| !is_protected(found.id)) {
            let Some(class) = self.classes.get(&found.id) else { return Err(Refusal::UnknownRule) };
            if found.value.is_empty() {
                return Err(Refusal::NoValue);
            }
            let variable = named_variable(&found.variable);
            if !is_writable(&variable) {
                return Err(Refusal::NoPlace);
            }
            if let Some(class) = class
                && *kinds.entry(variable.clone()).or_insert(class) != class
            {
                return Err(Refusal::TwoClasses);
            }
            values.insert((found.id, variable), found.value.clone());
        }
        if values.is_empty() {
            return Err(Refusal::Protected);
        }
        // The log may have the value with or without escapes.
        let mut forms = values.values().flat_map(|value| [value.clone(), unescaped(value)]);
        let is_injection = forms.any(|value| self.libinjection.is_injection(&value));
        if is_injection { Err(Refusal::Libinjection) } else { Ok(values) }
    }

    /// Moves cases of too few clients to the refused ones.
    pub(super) fn require_clients(&mut self, clients_min: usize) {
        let mut clients: BTreeMap<Cause, HashSet<u64>> = BTreeMap::new();
        for (key, case) in &self.cases {
            for cause in &key.causes {
                clients.entry(cause.clone()).or_default().extend(&case.clients);
            }
        }
        let is_spread = |key: &CaseKey, case: &Case| {
            case.is_benign || key.causes.iter().all(|cause| clients[cause].len() >= clients_min)
        };
        let (kept, refused) = std::mem::take(&mut self.cases)
            .into_iter()
            .partition(|(key, case)| is_spread(key, case));
        self.cases = kept;
        let refused: BTreeMap<CaseKey, Case> = refused;
        let requests: u64 = refused.values().map(|case| case.requests).sum();
        if requests > 0 {
            self.refuse(Refusal::FewClients, requests);
        }
    }

    /// Chooses exclusions for all causes by greedy cover: the most causes for the least breadth and the fewest attacks lost. Then
    /// leaves out those without which the cases pass, too.
    pub(super) fn cover(
        &mut self,
        engine: Engine,
        mut lost: impl FnMut(&Exclusion, &str, &Request) -> Result<u64, LoadError>,
    ) -> Result<Vec<Exclusion>, LoadError> {
        // Each cause at each place once, with a request.
        let mut wanted: BTreeMap<Wanted, (&Request, bool)> = BTreeMap::new();
        for (key, case) in &self.cases {
            for cause in &key.causes {
                let place = (key.path.clone(), key.method.clone(), cause.clone());
                let known = wanted.entry(place).or_insert((&case.example, key.is_replayed));
                if key.is_replayed {
                    *known = (&case.example, true);
                }
            }
        }
        let mut costs: BTreeMap<Exclusion, u64> = BTreeMap::new();
        for ((path, method, (rule, variable)), (example, is_replayed)) in &wanted {
            let place = (path.as_ref(), method.as_deref());
            for candidate in Exclusion::candidates(*rule, variable, place, engine) {
                if !is_replayed && !candidate.is_narrow() {
                    continue;
                }
                if !costs.contains_key(&candidate) {
                    let lost = lost(&candidate, variable, example)?;
                    costs.insert(candidate.clone(), candidate.breadth() + 10 * lost);
                }
            }
        }
        let wanted: Vec<_> = wanted.into_keys().collect();
        let covered = |one: &Exclusion| -> Vec<usize> {
            let covers = |(_, (path, method, cause)): &(usize, &Wanted)| {
                one.covers(cause, (path.as_ref(), method.as_deref()))
            };
            wanted.iter().enumerate().filter(covers).map(|(at, _)| at).collect()
        };
        let candidates: Vec<(&Exclusion, u64, Vec<usize>)> =
            costs.iter().map(|(one, &cost)| (one, cost, covered(one))).collect();
        let mut is_open = vec![true; wanted.len()];
        let mut chosen = Vec::new();
        loop {
            let gain = |covered: &[usize]| covered.iter().filter(|&&at| is_open[at]).count() as u64;
            let gains =
                candidates.iter().map(|(one, cost, covered)| (*one, *cost, covered, gain(covered)));
            // The most covered for the cost: compared without division.
            let best = gains.filter(|(.., gain)| *gain > 0).max_by(|a, b| {
                (a.3 * b.1).cmp(&(b.3 * a.1)).then(b.0.breadth().cmp(&a.0.breadth()))
            });
            let Some((best, _, covered, _)) = best else { break };
            covered.iter().for_each(|&at| is_open[at] = false);
            chosen.push(best.clone());
        }
        self.leave_out_needless(chosen)
    }

    fn leave_out_needless(
        &mut self,
        mut chosen: Vec<Exclusion>,
    ) -> Result<Vec<Exclusion>, LoadError> {
        let mut at = chosen.len();
        while at > 0 {
            at -= 1;
            let candidate = chosen.remove(at);
            if !self.all_pass(&chosen, &candidate)? {
                chosen.insert(at, candidate);
            }
        }
        chosen.sort();
        Ok(chosen)
    }

    /// True if all cases that `left_out` covers pass with the chosen exclusions.
    fn all_pass(&mut self, chosen: &[Exclusion], left_out: &Exclusion) -> Result<bool, LoadError> {
        for (key, case) in &self.cases {
            let place = key.place();
            if !key.causes.iter().any(|cause| left_out.covers(cause, place)) {
                continue;
            }
            let is_covered = |cause: &&Cause| chosen.iter().any(|one| one.covers(cause, place));
            if !key.is_replayed {
                if !key.causes.iter().all(|cause| is_covered(&cause)) {
                    return Ok(false);
                }
                continue;
            }
            let covered = key.causes.iter().filter(is_covered).cloned().collect();
            let rules = self.judge.without(&covered)?;
            self.judge.runs(&rules, &case.example, EngineMode::On);
            if self.judge.transaction.intervention().is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
