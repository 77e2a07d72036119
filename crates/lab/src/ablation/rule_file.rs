//! What a file of rules in ModSecurity's language has to do with other files: which variables it sets and
//! reads, which rules it holds, and which of others it changes.

use super::directive::{Action, Directive, directives};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A file of rules, as far as other files have to do with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuleFile {
    /// Its name, without folder.
    pub(super) name: String,
    /// Whether it holds any directive.
    pub(super) has_rules: bool,
    /// The numbers of its rules.
    pub(super) ids: BTreeSet<u64>,
    /// The tags of its rules.
    pub(super) tags: BTreeSet<String>,
    /// The variables of a transaction that it sets, in lower case, as the engines compare them.
    pub(super) sets: BTreeSet<String>,
    /// Those of them that it adds to, as who counts does.
    pub(super) adds_to: BTreeSet<String>,
    /// Those that it reads.
    pub(super) reads: BTreeSet<String>,
    /// Those by which it blocks.
    pub(super) blocks_by: BTreeSet<String>,
    /// The marks that it sets.
    pub(super) marks: BTreeSet<String>,
    /// The marks that it goes on at.
    pub(super) goes_to: BTreeSet<String>,
    /// The rules that it takes exceptions from.
    pub(super) excepts: BTreeSet<Excepted>,
}

/// Rules that an exception is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Excepted {
    /// Those with numbers in a range, both ends included.
    Ids(u64, u64),
    /// Those with a tag.
    Tag(String),
}

impl RuleFile {
    pub(super) fn read(name: &str, text: &str) -> Self {
        let mut file = Self { name: name.to_owned(), ..Self::default() };
        // What a chain blocks by may be read in any of its rules.
        let mut chain = Chain::default();
        for directive in directives(text) {
            file.has_rules = true;
            file.take(&directive, &mut chain);
        }
        file
    }

    fn take(&mut self, directive: &Directive, chain: &mut Chain) {
        let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
        match words[..] {
            ["SecMarker", mark, ..] => {
                self.marks.insert(mark.to_owned());
            }
            ["SecRuleUpdateTargetById" | "SecRuleUpdateActionById", id, ..] => {
                self.excepts.extend(ids(id));
            }
            ["SecRuleRemoveById", ..] => {
                self.excepts.extend(words[1..].iter().filter_map(|id| ids(id)));
            }
            ["SecRuleUpdateTargetByTag" | "SecRuleRemoveByTag", tag, ..] => {
                self.excepts.insert(Excepted::Tag(tag.to_owned()));
            }
            _ => {}
        }
        let read: BTreeSet<String> =
            directive.words.iter().flat_map(|word| variables(word)).collect();
        for action in directive.actions() {
            self.act(&action);
            chain.blocks |= ["deny", "drop", "redirect"].contains(&action.name.as_str());
            chain.goes_on |= action.name == "chain";
        }
        self.reads.extend(read.iter().cloned());
        chain.reads.extend(read);
        if !std::mem::take(&mut chain.goes_on) {
            let Chain { reads, blocks, .. } = std::mem::take(chain);
            self.blocks_by.extend(reads.into_iter().filter(|_| blocks));
        }
    }

    fn act(&mut self, Action { name, value }: &Action) {
        match name.as_str() {
            "id" => self.ids.extend(value.parse::<u64>()),
            "tag" => {
                self.tags.insert(value.clone());
            }
            "skipafter" => {
                self.goes_to.insert(value.clone());
            }
            "setvar" => {
                let setting = value.trim_start_matches('!').to_lowercase();
                let (variable, to) = setting.split_once('=').unwrap_or((&setting, ""));
                let variable = variable.strip_prefix("tx.").filter(|v| !v.contains('%'));
                self.sets.extend(variable.map(str::to_owned));
                let counts = to.trim_start().starts_with(['+', '-']);
                self.adds_to.extend(variable.filter(|_| counts).map(str::to_owned));
            }
            "ctl" => {
                let (what, of) = value.split_once('=').unwrap_or((value, ""));
                let of = of.split(';').next().unwrap_or(of);
                match what.to_lowercase().as_str() {
                    "ruleremovebyid" | "ruleremovetargetbyid" => self.excepts.extend(ids(of)),
                    "ruleremovebytag" | "ruleremovetargetbytag" => {
                        self.excepts.insert(Excepted::Tag(of.to_owned()));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// What was seen of a chain of rules so far.
#[derive(Debug, Default)]
struct Chain {
    reads: BTreeSet<String>,
    blocks: bool,
    goes_on: bool,
}

/// A number, or two with a dash between.
fn ids(text: &str) -> Option<Excepted> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(Excepted::Ids(first.trim().parse().ok()?, last.trim().parse().ok()?))
}

/// The variables of a transaction that a word reads: `TX:name`, or `%{tx.name}` in a text. What is
/// named by a number is what a pattern has captured.
fn variables(word: &str) -> Vec<String> {
    let named = |captures: regex::Captures<'_>| {
        captures.iter().skip(1).flatten().next().map(|name| name.as_str().to_lowercase())
    };
    let is_captured = |name: &String| name.chars().all(|c| c.is_ascii_digit());
    VARIABLE.captures_iter(word).filter_map(named).filter(|name| !is_captured(name)).collect()
}

#[expect(clippy::expect_used, reason = "a pattern that is written here is right or never was")]
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)%\{tx\.([^}%]+)\}|(?:^|[|&!])tx:([\w.-]+)").expect("the pattern is right")
});

#[cfg(test)]
mod tests {
    use super::*;

    fn set<const N: usize>(words: [&str; N]) -> BTreeSet<String> {
        words.map(str::to_owned).into()
    }

    #[test]
    fn variables_marks_and_numbers_are_seen() {
        let file = RuleFile::read(
            "one.conf",
            "# SecAction \"id:1,setvar:tx.not=1\"\n\
             SecAction \\\n    \"id:10,\\\n    pass,\\\n    setvar:'tx.Level=%{TX.base}',setvar:!tx.old\"\n\
             SecRule &TX:limit|ARGS \"@ge %{tx.most}\" \"id:11,skipAfter:END,tag:'a/b',setvar:tx.x_%{rule.id}=1\"\n\
             SecMarker \"END\"\n\
             SecRule TX:1 \"@rx deny,drop\" \"id:12,pass,msg:'deny, tx:no'\"\n",
        );
        assert_eq!(file.ids, [10, 11, 12].into());
        assert_eq!(file.sets, set(["level", "old"]));
        assert!(file.adds_to.is_empty());
        assert_eq!(file.reads, set(["base", "limit", "most"]));
        assert_eq!((file.marks, file.goes_to), (set(["END"]), set(["END"])));
        assert_eq!(file.tags, set(["a/b"]));
        assert!(file.blocks_by.is_empty());
        assert!(file.has_rules && !RuleFile::read("none", "# nothing\n\n").has_rules);
    }

    #[test]
    fn a_chain_blocks_by_what_any_of_its_rules_reads() {
        let file = RuleFile::read(
            "two.conf",
            "SecRule TX:score \"@ge 5\" \"id:1,phase:2,deny,chain\"\n    SecRule TX:early \"@eq 1\"\n\
             SecRule TX:other \"@ge 5\" \"id:2,pass,setvar:'tx.other=+%{tx.step}',setvar:tx.n=-1\"\n",
        );
        assert_eq!(file.adds_to, set(["other", "n"]));
        assert_eq!(file.blocks_by, set(["score", "early"]));
        assert_eq!(file.reads, set(["score", "early", "other", "step"]));
    }

    #[test]
    fn exceptions_are_seen_wherever_they_stand() {
        let file = RuleFile::read(
            "three.conf",
            "SecRuleUpdateTargetById 942100 \"!ARGS:a\"\nSecRuleRemoveById 1 \"3-5\"\n\
             SecRule ARGS \"@rx x\" \"id:7,pass,ctl:ruleRemoveTargetById=9;ARGS:b,ctl:ruleRemoveByTag=CRS,ctl:auditEngine=Off\"\n",
        );
        let expected = [
            Excepted::Ids(1, 1),
            Excepted::Ids(3, 5),
            Excepted::Ids(9, 9),
            Excepted::Ids(942_100, 942_100),
            Excepted::Tag("CRS".to_owned()),
        ];
        assert_eq!(file.excepts, expected.into());
    }
}
