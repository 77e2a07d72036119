//! Rules of one place in a server's configuration, merged with those of the places around it.
//!
//! A server creates a set for each of its places, thousands perhaps, most of which end up with the same rules. So sources are
//! kept as they were named, and compiled once for all sets that have the same ones ([`Memo`]), before the server forks. A place
//! without rules of its own, which changes settings or excludes rules, shares the compiled rules of the place around.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use tollgate_firewall::Memo;
use tollgate_waf::{AuditEngine, Builder, RuleSet};

use crate::audit_log::{AuditLog, AuditTarget};
use crate::debug_log::DebugLog;
use crate::log_file::LogFile;
use crate::workers::warm_up;

/// Like libmodsecurity, the engine only detects unless a directive sets its mode.
const DEFAULTS: &str = "SecRuleEngine DetectionOnly";

/// Name of rules that have no file, as libmodsecurity logs it.
const NO_FILE: &str = "<<reference missing or not informed>>";

/// Error of rules that a server names by a URL.
pub(crate) const NO_REMOTE_RULES: &str =
    "cannot load rules over the network; download them and use modsecurity_rules_file";

/// A configuration is read in one go.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RuleSource {
    File(PathBuf),
    /// Name for errors and logs, and the rules.
    Text(Arc<str>, Vec<u8>),
}

/// The sources of a set.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSources {
    /// Sources of the place itself, then of the places around it. No list is empty.
    places: Vec<Vec<RuleSource>>,
    compiled: OnceLock<Arc<Compiled>>,
}

/// Rules ready to run, with their logs.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) audit_log: Option<Arc<AuditLog>>,
    pub(crate) debug_log: Option<Arc<DebugLog>>,
    /// The rules that these share, which stay known for further places.
    _around: Option<Arc<Compiled>>,
}

impl RuleSources {
    /// Adds rules from a text. Returns their number.
    pub(crate) fn add_text(&mut self, text: &[u8]) -> Result<usize, String> {
        self.add(RuleSource::Text(NO_FILE.into(), text.to_vec()))
    }

    /// Adds rules from a file. Returns their number.
    pub(crate) fn add_file(&mut self, path: &[u8]) -> Result<usize, String> {
        self.add(RuleSource::File(PathBuf::from(OsStr::from_bytes(path))))
    }

    fn add(&mut self, source: RuleSource) -> Result<usize, String> {
        let count = checked(&source)?;
        match self.places.first_mut() {
            Some(place) => place.push(source),
            None => self.places.push(vec![source]),
        }
        self.compiled = OnceLock::new();
        Ok(count)
    }

    /// Adds the rules of the place around. Returns the number of all rules. After an error the set is as before.
    pub(crate) fn merge(&mut self, around: &Self) -> Result<usize, String> {
        let merged = if self.places.is_empty() {
            around.clone()
        } else {
            let places = [self.places.as_slice(), &around.places].concat();
            Self { places, compiled: OnceLock::new() }
        };
        let count = merged.compile()?.rules.rules().count();
        *self = merged;
        Ok(count)
    }

    /// The compiled rules.
    pub(crate) fn compile(&self) -> Result<Arc<Compiled>, String> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(Arc::clone(compiled));
        }
        let compiled = compiled(&self.places)?;
        Ok(Arc::clone(self.compiled.get_or_init(|| compiled)))
    }
}

/// Checks a source by itself. Returns the number of its rules.
fn checked(source: &RuleSource) -> Result<usize, String> {
    static CHECKED: LazyLock<Memo<RuleSource, usize>> = LazyLock::new(|| Memo::new(CHECK_INTERVAL));
    CHECKED.get(source, |source| {
        let check = with_source(RuleSet::builder(), source).check();
        check.map_err(|error| error.to_string())
    })
}

fn compiled(places: &[Vec<RuleSource>]) -> Result<Arc<Compiled>, String> {
    static COMPILED: LazyLock<Memo<Vec<Vec<RuleSource>>, Weak<Compiled>>> =
        LazyLock::new(|| Memo::new(CHECK_INTERVAL));
    let around = match places {
        [own, around @ ..] if !around.is_empty() && !has_rules(own)? => Some(compiled(around)?),
        _ => None,
    };
    COMPILED.get(&places.to_vec(), |places| {
        let own = || places[0].iter().fold(RuleSet::builder(), with_source);
        let shared = around.as_ref().map(|around| own().build_on(&around.rules));
        let rules = match shared.transpose().map_err(|error| error.to_string())?.flatten() {
            Some(rules) => Arc::new(rules),
            None => whole(places)?,
        };
        let files = rules.files().to_vec();
        let (audit_log, debug_log) = (audit_log(&rules)?, debug_log(&rules)?);
        let compiled = Compiled { rules, audit_log, debug_log, _around: around };
        Ok((Arc::new(compiled), files))
    })
}

fn has_rules(place: &[RuleSource]) -> Result<bool, String> {
    place.iter().try_fold(false, |has_rules, source| Ok(has_rules || checked(source)? > 0))
}

/// Compiles the rules of all places.
fn whole(places: &[Vec<RuleSource>]) -> Result<Arc<RuleSet>, String> {
    let rules = Arc::new(builder(places).build().map_err(|error| error.to_string())?);
    warm_up(&rules);
    Ok(rules)
}

/// Starts with the rules of all places, the inner ones first.
pub(crate) fn builder(places: &[Vec<RuleSource>]) -> Builder {
    let mut builder = RuleSet::builder();
    for place in places {
        builder = place.iter().fold(builder, with_source).around();
    }
    builder.text("defaults", DEFAULTS)
}

pub(crate) fn with_source(builder: Builder, source: &RuleSource) -> Builder {
    match source {
        RuleSource::File(path) => builder.file(path),
        RuleSource::Text(name, text) => builder.text(name, text.clone()),
    }
}

fn audit_log(rules: &RuleSet) -> Result<Option<Arc<AuditLog>>, String> {
    let settings = rules.settings();
    let Some(path) = &settings.audit_log else { return Ok(None) };
    if settings.audit_engine == AuditEngine::Off {
        return Ok(None);
    }
    let folder = match (settings.audit_log_concurrent, &settings.audit_log_folder) {
        (false, _) => None,
        (true, Some(folder)) => Some(PathBuf::from(folder)),
        (true, None) => {
            return Err(
                "cannot open audit log: SecAuditLogType Concurrent needs SecAuditLogStorageDir"
                    .to_owned(),
            );
        }
    };
    let target = AuditTarget {
        path: PathBuf::from(path),
        folder,
        is_json: settings.audit_log_json,
        folder_mode: settings.audit_log_folder_mode,
        file_mode: settings.audit_log_file_mode,
    };
    AuditLog::open(target).map(|log| Some(Arc::new(log)))
}

fn debug_log(rules: &RuleSet) -> Result<Option<Arc<DebugLog>>, String> {
    let settings = rules.settings();
    let Some(path) = settings.debug_log.as_ref().filter(|_| settings.debug_log_level > 0) else {
        return Ok(None);
    };
    let file = LogFile::open(path.into(), settings.audit_log_file_mode)
        .map_err(|error| format!("cannot open debug log {path}: {error}"))?;
    Ok(Some(Arc::new(DebugLog { file, level: settings.debug_log_level })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_waf::EngineMode;

    fn sources(texts: &[&str]) -> RuleSources {
        let mut sources = RuleSources::default();
        for text in texts {
            sources.add_text(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        }
        sources
    }

    fn compiled(sources: &RuleSources) -> Arc<Compiled> {
        sources.compile().unwrap_or_else(|error| panic!("{error}"))
    }

    fn ids(sources: &RuleSources) -> Vec<u64> {
        compiled(sources).rules.rules().map(|rule| rule.id).collect()
    }

    const A: &str = "SecAction \"id:1,phase:1,pass\"";
    const B: &str = "SecAction \"id:2,phase:1,pass\"";

    #[test]
    fn engine_only_detects_unless_a_place_sets_its_mode() {
        let mode = |sources: &RuleSources| compiled(sources).rules.settings().engine;
        assert_eq!(mode(&sources(&[A])), EngineMode::DetectionOnly);
        let mut inner = sources(&[A]);
        let merged = inner.merge(&sources(&["SecRuleEngine On"]));
        assert_eq!((merged, mode(&inner)), (Ok(1), EngineMode::On));
        let mut inner = sources(&["SecRuleEngine Off"]);
        assert_eq!(inner.merge(&sources(&["SecRuleEngine On", A])), Ok(1));
        assert_eq!(mode(&inner), EngineMode::Off);
    }

    #[test]
    fn rules_of_the_place_around_follow() {
        let mut inner = sources(&[B]);
        assert_eq!(inner.merge(&sources(&[A])), Ok(2));
        assert_eq!(ids(&inner), [2, 1]);
        let mut innermost = sources(&["SecRuleRemoveById 1"]);
        assert_eq!(innermost.merge(&inner), Ok(1));
        assert_eq!(ids(&innermost), [2]);
    }

    #[test]
    fn merge_that_fails_changes_nothing() {
        let mut inner = sources(&[A]);
        let error = inner.merge(&sources(&[B, A])).unwrap_err();
        assert!(error.contains("rule id 1 is used twice"), "{error}");
        assert_eq!(ids(&inner), [1]);
        assert!(inner.add_text(b"SecRuel").is_err());
        assert_eq!(ids(&inner), [1]);
    }

    #[test]
    fn equal_rules_are_compiled_once() {
        let around = sources(&[A]);
        let merged = |own: &[&str]| {
            let mut inner = sources(own);
            inner.merge(&around).unwrap_or_else(|error| panic!("{error}"));
            compiled(&inner)
        };
        let (first, second, other) = (merged(&[B]), merged(&[B]), merged(&[]));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &other));
        assert!(Arc::ptr_eq(&other, &compiled(&around)));
    }

    #[test]
    fn place_without_rules_shares_those_of_the_place_around() {
        let around = sources(&[A, B]);
        let merged = |own: &str, around: &RuleSources| {
            let mut inner = sources(&[own]);
            inner.merge(around).unwrap_or_else(|error| panic!("{error}"));
            inner
        };
        let is_shared = |one: &RuleSources, other: &RuleSources| {
            compiled(one).rules.shares_rules_with(&compiled(other).rules)
        };
        let server = merged("SecRuleRemoveById 1", &around);
        let location = merged("SecRuleEngine On\nSecRuleUpdateTargetById 2 \"!ARGS:a\"", &server);
        assert!(is_shared(&server, &around) && is_shared(&location, &server));
        assert_eq!((ids(&around).as_slice(), ids(&location).as_slice()), (&[1, 2][..], &[2][..]));
        let mode = |sources: &RuleSources| compiled(sources).rules.settings().engine;
        assert_eq!((mode(&server), mode(&location)), (EngineMode::DetectionOnly, EngineMode::On));
        for own in ["SecAction \"id:3,phase:1,pass\"", "SecRuleUpdateActionById 2 \"nolog\""] {
            let place = merged(own, &location);
            assert!(!is_shared(&place, &location), "{own}");
            // Exclusions of the places around remain.
            assert!(!ids(&place).contains(&1), "{own}");
        }
    }
}
