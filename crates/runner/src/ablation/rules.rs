//! Dependencies between rule files in ModSecurity's language. Pure.
//!
//! Source: ModSecurity's reference manual, "Configuration Directives" and "Actions".

use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use tollgate_records::error::bad_input;
use tollgate_waf::source::{self, Directive};

/// The parts of a rule file that other files may depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuleFile {
    /// File name without folder.
    pub(super) name: String,
    /// True if the file has any directive.
    has_rules: bool,
    pub(super) ids: BTreeSet<u64>,
    tags: BTreeSet<String>,
    /// Transaction variables (TX) that it sets, in lower case: engines ignore case.
    sets: BTreeSet<String>,
    /// Transaction variables that it increments or decrements.
    counts: BTreeSet<String>,
    /// Transaction variables that it reads.
    reads: BTreeSet<String>,
    /// Transaction variables read by its blocking rules.
    blocks_by: BTreeSet<String>,
    markers: BTreeSet<String>,
    /// Markers that it skips to.
    skips_to: BTreeSet<String>,
    /// Rules that it changes or removes.
    exceptions: BTreeSet<RuleSelector>,
}

/// Rules that an exception applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum RuleSelector {
    /// Range of ids, both ends included.
    Ids(u64, u64),
    Tag(String),
}

impl RuleFile {
    pub(super) fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut file = Self { name: name.to_owned(), ..Self::default() };
        let mut chain = Chain::default();
        for directive in directives(name, text)? {
            file.has_rules = true;
            file.add(&directive, &mut chain);
        }
        Ok(file)
    }

    fn add(&mut self, directive: &Directive, chain: &mut Chain) {
        match (directive.name.as_str(), &directive.arguments[..]) {
            ("secmarker", [marker, ..]) => {
                self.markers.insert(marker.clone());
            }
            ("secruleupdatetargetbyid" | "secruleupdateactionbyid", [id, ..]) => {
                self.exceptions.extend(ids(id));
            }
            ("secruleremovebyid", all) => {
                self.exceptions.extend(all.iter().filter_map(|id| ids(id)));
            }
            ("secruleupdatetargetbytag" | "secruleremovebytag", [tag, ..]) => {
                self.exceptions.insert(RuleSelector::Tag(tag.clone()));
            }
            _ => {}
        }
        let read: BTreeSet<String> =
            directive.arguments.iter().flat_map(|argument| variables(argument)).collect();
        for (name, value) in &directive.actions {
            self.add_action(name, value);
            chain.blocks |= ["deny", "drop", "redirect"].contains(&name.as_str());
            chain.continues |= name == "chain";
        }
        self.reads.extend(read.iter().cloned());
        chain.reads.extend(read);
        if !std::mem::take(&mut chain.continues) {
            let Chain { reads, blocks, .. } = std::mem::take(chain);
            self.blocks_by.extend(reads.into_iter().filter(|_| blocks));
        }
    }

    fn add_action(&mut self, name: &str, value: &str) {
        match name {
            "id" => self.ids.extend(value.parse::<u64>()),
            "tag" => {
                self.tags.insert(value.to_owned());
            }
            "skipafter" => {
                self.skips_to.insert(value.to_owned());
            }
            "setvar" => {
                let setting = value.trim_start_matches('!').to_lowercase();
                let (variable, to) = setting.split_once('=').unwrap_or((&setting, ""));
                let variable = variable.strip_prefix("tx.").filter(|v| !v.contains('%'));
                self.sets.extend(variable.map(str::to_owned));
                let is_count = to.trim_start().starts_with(['+', '-']);
                self.counts.extend(variable.filter(|_| is_count).map(str::to_owned));
            }
            "ctl" => {
                let (what, target) = value.split_once('=').unwrap_or((value, ""));
                let target = target.split(';').next().unwrap_or(target);
                match what.to_lowercase().as_str() {
                    "ruleremovebyid" | "ruleremovetargetbyid" => {
                        self.exceptions.extend(ids(target));
                    }
                    "ruleremovebytag" | "ruleremovetargetbytag" => {
                        self.exceptions.insert(RuleSelector::Tag(target.to_owned()));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

fn directives(name: &str, text: &str) -> anyhow::Result<Vec<Directive>> {
    source::directives(name, text).map_err(|error| bad_input(error.to_string()))
}

/// State of a chain of rules, which blocks by the variables that any of its rules reads.
#[derive(Debug, Default)]
struct Chain {
    reads: BTreeSet<String>,
    blocks: bool,
    continues: bool,
}

/// Parses an id or a range such as `100-199`.
fn ids(text: &str) -> Option<RuleSelector> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(RuleSelector::Ids(first.trim().parse().ok()?, last.trim().parse().ok()?))
}

/// Returns the transaction variables in a word: `TX:name`, or `%{tx.name}` in a text. Numbers are captures of a
/// pattern, not variables.
fn variables(word: &str) -> Vec<String> {
    let named = |captures: regex::Captures<'_>| {
        captures.iter().skip(1).flatten().next().map(|name| name.as_str().to_lowercase())
    };
    let is_captured = |name: &String| name.chars().all(|c| c.is_ascii_digit());
    VARIABLE.captures_iter(word).filter_map(named).filter(|name| !is_captured(name)).collect()
}

#[expect(clippy::expect_used, reason = "the pattern is constant")]
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)%\{tx\.([^}%]+)\}|(?:^|[|&!])tx:([\w.-]+)").expect("valid pattern")
});

/// Returns the reason that a file must stay in the rule set, or `None` if it may be removed. A file that another file
/// depends on must stay, because its absence would change the other file's behavior and cost.
///
/// `setup` is loaded before all rules and always stays.
pub(super) fn reason_to_keep(
    file: &RuleFile,
    all: &[RuleFile],
    setup: &RuleFile,
) -> Option<String> {
    let others = || all.iter().filter(|other| other.name != file.name);
    if !file.has_rules {
        return Some("it has no rules".to_owned());
    }
    let is_set_elsewhere =
        |variable: &String| others().chain([setup]).any(|other| other.sets.contains(variable));
    let only_here: BTreeSet<&String> =
        file.sets.iter().filter(|variable| !is_set_elsewhere(variable)).collect();
    let reads_any = |other: &&RuleFile| other.reads.iter().any(|read| only_here.contains(read));
    let read = only_here.iter().find(|set| others().any(|other| other.reads.contains(**set)));
    if let Some(variable) = read {
        let files = match others().filter(reads_any).count() {
            1 => "another file reads".to_owned(),
            count => format!("{count} other files read"),
        };
        return Some(format!("{files} variables that only this file sets, such as tx.{variable}"));
    }
    let counted = |variable: &&String| others().any(|other| other.counts.contains(*variable));
    if let (false, Some(variable)) = (file.blocks_by.is_empty(), file.reads.iter().find(counted)) {
        return Some(format!("it blocks by tx.{variable}, which other files count"));
    }
    if let Some(marker) = file.markers.iter().find(|marker| {
        let sets_it = |other: &RuleFile| other.markers.contains(*marker);
        others().any(|other| other.skips_to.contains(*marker)) && !others().any(sets_it)
    }) {
        return Some(format!("other files skip to its marker {marker}"));
    }
    let of_others = |selector: &&RuleSelector| others().any(|other| applies_to(selector, other));
    file.exceptions
        .iter()
        .any(|selector| of_others(&selector))
        .then(|| "it has exceptions to rules of other files".to_owned())
}

fn applies_to(selector: &RuleSelector, file: &RuleFile) -> bool {
    match selector {
        RuleSelector::Ids(first, last) => file.ids.range(first..=last).next().is_some(),
        // Some engines take the tag as a pattern, others as a substring.
        RuleSelector::Tag(tag) => file.tags.iter().any(|other| other.contains(tag)),
    }
}

/// Removes directives that change a rule with one of these ids, and returns their number. Coraza rejects changes to
/// missing rules.
pub(super) fn remove_exceptions(
    name: &str,
    text: &str,
    ids: &BTreeSet<u64>,
) -> anyhow::Result<(String, usize)> {
    let changed = |directive: &Directive| match (directive.name.as_str(), &directive.arguments[..])
    {
        ("secruleupdatetargetbyid" | "secruleupdateactionbyid", [id, ..])
        | ("secruleremovebyid", [id]) => id.parse().ok(),
        _ => None,
    };
    let mut removed = directives(name, text)?;
    removed.retain(|directive| changed(directive).is_some_and(|id| ids.contains(&id)));
    let is_left = |number: &usize| !removed.iter().any(|one| one.lines.contains(number));
    let lines = (0..).zip(text.lines()).filter(|(number, _)| is_left(number));
    let left = lines.map(|(_, line)| format!("{line}\n")).collect();
    Ok((left, removed.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<const N: usize>(words: [&str; N]) -> BTreeSet<String> {
        words.map(str::to_owned).into()
    }

    #[test]
    fn parses_variables_markers_and_ids() {
        let file = RuleFile::parse(
            "one.conf",
            "# SecAction \"id:1,setvar:tx.not=1\"\n\
             SecAction \\\n    \"id:10,\\\n    pass,\\\n    setvar:'tx.Level=%{TX.base}',setvar:!tx.old\"\n\
             SecRule &TX:limit|ARGS \"@ge %{tx.most}\" \"id:11,skipAfter:END,tag:'a/b',setvar:tx.x_%{rule.id}=1\"\n\
             SecMarker \"END\"\n\
             SecRule TX:1 \"@rx deny,drop\" \"id:12,pass,msg:'deny, tx:no'\"\n",
        )
        .unwrap();
        assert_eq!(file.ids, [10, 11, 12].into());
        assert_eq!(file.sets, set(["level", "old"]));
        assert!(file.counts.is_empty());
        assert_eq!(file.reads, set(["base", "limit", "most"]));
        assert_eq!((file.markers, file.skips_to), (set(["END"]), set(["END"])));
        assert_eq!(file.tags, set(["a/b"]));
        assert!(file.blocks_by.is_empty());
        assert!(file.has_rules && !RuleFile::parse("none", "# nothing\n\n").unwrap().has_rules);
    }

    #[test]
    fn chain_blocks_by_variables_of_all_its_rules() {
        let file = RuleFile::parse(
            "two.conf",
            "SecRule TX:score \"@ge 5\" \"id:1,phase:2,deny,chain\"\n    SecRule TX:early \"@eq 1\"\n\
             SecRule TX:other \"@ge 5\" \"id:2,pass,setvar:'tx.other=+%{tx.step}',setvar:tx.n=-1\"\n",
        )
        .unwrap();
        assert_eq!(file.counts, set(["other", "n"]));
        assert_eq!(file.blocks_by, set(["score", "early"]));
        assert_eq!(file.reads, set(["score", "early", "other", "step"]));
    }

    #[test]
    fn parses_exceptions_in_directives_and_actions() {
        let file = RuleFile::parse(
            "three.conf",
            "SecRuleUpdateTargetById 942100 \"!ARGS:a\"\nSecRuleRemoveById 1 \"3-5\"\n\
             SecRule ARGS \"@rx x\" \"id:7,pass,ctl:ruleRemoveTargetById=9;ARGS:b,ctl:ruleRemoveByTag=CRS,ctl:auditEngine=Off\"\n",
        )
        .unwrap();
        let expected = [
            RuleSelector::Ids(1, 1),
            RuleSelector::Ids(3, 5),
            RuleSelector::Ids(9, 9),
            RuleSelector::Ids(942_100, 942_100),
            RuleSelector::Tag("CRS".to_owned()),
        ];
        assert_eq!(file.exceptions, expected.into());
    }

    const SETUP: &str = "SecAction \"id:1,phase:1,pass,setvar:tx.version=1\"\n";
    const START: &str = "SecRule &TX:level \"@eq 0\" \"id:10,pass,setvar:tx.level=1\"\n\
                         SecAction \"id:11,pass,setvar:tx.score=0\"\n";
    const ATTACK: &str = "SecRule TX:level \"@lt 1\" \"id:20,pass,skipAfter:END-20\"\n\
                          SecRule ARGS \"@rx x\" \"id:21,block,tag:attack,setvar:tx.score=+5\"\n\
                          SecMarker END-20\n";
    const OTHER: &str = "SecRule ARGS \"@rx y\" \"id:30,block,tag:other,setvar:tx.score=+5\"\n";
    const VERDICT: &str = "SecRule TX:score \"@ge 5\" \"id:40,deny\"\nSecMarker VERDICT\n";

    fn kept(files: &[(&str, &str)], name: &str) -> Option<String> {
        let all: Vec<RuleFile> =
            files.iter().map(|(name, text)| RuleFile::parse(name, text).unwrap()).collect();
        let file = all.iter().find(|file| file.name == name).unwrap();
        reason_to_keep(file, &all, &RuleFile::parse("setup", SETUP).unwrap())
    }

    #[test]
    fn keeps_files_that_others_depend_on() {
        let files = [("start", START), ("attack", ATTACK), ("other", OTHER), ("verdict", VERDICT)];
        let kept_of = |name: &str| kept(&files, name);
        assert_eq!(
            kept_of("start").unwrap(),
            "another file reads variables that only this file sets, such as tx.level"
        );
        assert_eq!((kept_of("attack"), kept_of("other")), (None, None));
        assert_eq!(kept_of("verdict").unwrap(), "it blocks by tx.score, which other files count");
    }

    #[test]
    fn file_that_blocks_by_its_own_variables_may_be_removed() {
        let own = "SecRule ARGS \"@rx x\" \"id:50,deny,setvar:tx.mine=1\"\n\
                   SecRule TX:mine \"@eq 1\" \"id:51,deny\"\n\
                   SecRule TX:level \"@ge 1\" \"id:52,deny\"\n";
        // Another file sets the level, but does not count with it.
        assert_eq!(kept(&[("own", own), ("other", OTHER), ("start", START)], "own"), None);
    }

    #[test]
    fn keeps_markers_exceptions_and_empty_files() {
        let jump = "SecRule ARGS \"@rx z\" \"id:60,pass,skipAfter:VERDICT\"\n";
        let markers = "SecMarker VERDICT\n";
        assert_eq!(
            kept(&[("jump", jump), ("markers", markers)], "markers").unwrap(),
            "other files skip to its marker VERDICT"
        );
        let why = "it has exceptions to rules of other files";
        for exception in [
            "SecRuleUpdateTargetById 30 !ARGS:a\n",
            "SecRule ARGS \"@rx q\" \"id:70,pass,ctl:ruleRemoveByTag=oth\"\n",
            "SecRuleRemoveById 25-35\n",
        ] {
            assert_eq!(
                kept(&[("except", exception), ("other", OTHER)], "except").as_deref(),
                Some(why),
                "{exception}"
            );
        }
        // An exception to its own rule.
        let own = format!("{OTHER}SecRuleRemoveById 30\n");
        assert_eq!(kept(&[("own", &own), ("attack", ATTACK)], "own"), None);
        let empty = kept(&[("empty", "# no rule\n"), ("other", OTHER)], "empty");
        assert_eq!(empty.unwrap(), "it has no rules");
    }

    #[test]
    fn removes_exceptions_to_removed_rules() {
        let text = "# exceptions\nSecRuleUpdateTargetById 30 \\\n  !ARGS:a\nSecRuleRemoveById 30\n\
                    SecRuleRemoveById 30 31\nSecRuleUpdateTargetById 31 !ARGS:a\n";
        assert_eq!(
            remove_exceptions("text", text, &[30].into()).unwrap(),
            (
                "# exceptions\nSecRuleRemoveById 30 31\nSecRuleUpdateTargetById 31 !ARGS:a\n"
                    .to_owned(),
                2
            )
        );
        assert_eq!(remove_exceptions("text", text, &[7].into()).unwrap().1, 0);
    }
}
