//! Rule files in ModSecurity's language, and the dependencies between them. Pure.
//!
//! Source: ModSecurity's reference manual, "Configuration Directives" and "Actions".

use regex::Regex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

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
    /// Markers that it sets.
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
    pub(super) fn parse(name: &str, text: &str) -> Self {
        let mut file = Self { name: name.to_owned(), ..Self::default() };
        let mut chain = Chain::default();
        for directive in directives(text) {
            file.has_rules = true;
            file.add(&directive, &mut chain);
        }
        file
    }

    fn add(&mut self, directive: &Directive, chain: &mut Chain) {
        let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
        match words[..] {
            ["SecMarker", marker, ..] => {
                self.markers.insert(marker.to_owned());
            }
            ["SecRuleUpdateTargetById" | "SecRuleUpdateActionById", id, ..] => {
                self.exceptions.extend(ids(id));
            }
            ["SecRuleRemoveById", ..] => {
                self.exceptions.extend(words[1..].iter().filter_map(|id| ids(id)));
            }
            ["SecRuleUpdateTargetByTag" | "SecRuleRemoveByTag", tag, ..] => {
                self.exceptions.insert(RuleSelector::Tag(tag.to_owned()));
            }
            _ => {}
        }
        let read: BTreeSet<String> =
            directive.words.iter().flat_map(|word| variables(word)).collect();
        for action in directive.actions() {
            self.add_action(&action);
            chain.blocks |= ["deny", "drop", "redirect"].contains(&action.name.as_str());
            chain.continues |= action.name == "chain";
        }
        self.reads.extend(read.iter().cloned());
        chain.reads.extend(read);
        if !std::mem::take(&mut chain.continues) {
            let Chain { reads, blocks, .. } = std::mem::take(chain);
            self.blocks_by.extend(reads.into_iter().filter(|_| blocks));
        }
    }

    fn add_action(&mut self, Action { name, value }: &Action) {
        match name.as_str() {
            "id" => self.ids.extend(value.parse::<u64>()),
            "tag" => {
                self.tags.insert(value.clone());
            }
            "skipafter" => {
                self.skips_to.insert(value.clone());
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
                let (what, of) = value.split_once('=').unwrap_or((value, ""));
                let of = of.split(';').next().unwrap_or(of);
                match what.to_lowercase().as_str() {
                    "ruleremovebyid" | "ruleremovetargetbyid" => self.exceptions.extend(ids(of)),
                    "ruleremovebytag" | "ruleremovetargetbytag" => {
                        self.exceptions.insert(RuleSelector::Tag(of.to_owned()));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
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

/// Returns why a file must stay in the rule set, or `None` if it may be removed. Other files behave differently without
/// a file that they depend on, so a run without it would not measure its price.
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
pub(super) fn remove_exceptions(text: &str, ids: &BTreeSet<u64>) -> (String, usize) {
    let changes_it = |words: &[String]| match words {
        [directive, id, ..] => {
            let changes =
                ["SecRuleUpdateTargetById", "SecRuleUpdateActionById", "SecRuleRemoveById"];
            changes.contains(&directive.as_str())
                && (words.len() == 2 || directive != "SecRuleRemoveById")
                && id.parse().is_ok_and(|id| ids.contains(&id))
        }
        _ => false,
    };
    let removed: Vec<_> =
        directives(text).into_iter().filter(|one| changes_it(&one.words)).collect();
    let is_left = |number: &usize| !removed.iter().any(|one| one.lines.contains(number));
    let lines = (0..).zip(text.lines()).filter(|(number, _)| is_left(number));
    let left = lines.map(|(_, line)| format!("{line}\n")).collect();
    (left, removed.len())
}

/// A directive of one or more lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directive {
    /// Line numbers, from 0.
    lines: Range<usize>,
    /// Words without quotes.
    words: Vec<String>,
}

/// An action of a rule: a name in lower case, and a value that may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Action {
    name: String,
    value: String,
}

/// Parses directives. A backslash at the end of a line continues it; lines that begin with `#` are comments.
fn directives(text: &str) -> Vec<Directive> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if open.is_none() && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        let (begin, mut so_far) = open.take().unwrap_or((number, String::new()));
        if let Some(part) = line.strip_suffix('\\') {
            so_far += part;
            open = Some((begin, so_far));
        } else {
            so_far += line;
            found.push(Directive { lines: begin..number + 1, words: words(&so_far) });
        }
    }
    let rest = open.map(|(begin, so_far)| Directive {
        lines: begin..text.lines().count(),
        words: words(&so_far),
    });
    found.extend(rest);
    found
}

impl Directive {
    /// Returns the actions of a rule. Other directives have none.
    fn actions(&self) -> Vec<Action> {
        let list = match self.words.first().map(String::as_str) {
            Some("SecRule") => self.words.get(3),
            Some("SecAction" | "SecDefaultAction") => self.words.get(1),
            _ => None,
        };
        list.map(|list| actions(list)).unwrap_or_default()
    }
}

/// Splits at white space outside of double quotes; `\"` is a literal quote.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&'"') => {
                word.get_or_insert_default().extend(characters.next());
            }
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            space if space.is_whitespace() && !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// Splits at commas outside of single quotes.
fn actions(list: &str) -> Vec<Action> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    for character in list.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ',' if !is_quoted => parts.push(String::new()),
            other => parts.last_mut().into_iter().for_each(|part| part.push(other)),
        }
    }
    let action = |part: &String| {
        let (name, value) = part.split_once(':').unwrap_or((part, ""));
        Action { name: name.trim().to_lowercase(), value: value.trim().to_owned() }
    };
    parts.iter().map(action).filter(|action| !action.name.is_empty()).collect()
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
        );
        assert_eq!(file.ids, [10, 11, 12].into());
        assert_eq!(file.sets, set(["level", "old"]));
        assert!(file.counts.is_empty());
        assert_eq!(file.reads, set(["base", "limit", "most"]));
        assert_eq!((file.markers, file.skips_to), (set(["END"]), set(["END"])));
        assert_eq!(file.tags, set(["a/b"]));
        assert!(file.blocks_by.is_empty());
        assert!(file.has_rules && !RuleFile::parse("none", "# nothing\n\n").has_rules);
    }

    #[test]
    fn chain_blocks_by_variables_of_all_its_rules() {
        let file = RuleFile::parse(
            "two.conf",
            "SecRule TX:score \"@ge 5\" \"id:1,phase:2,deny,chain\"\n    SecRule TX:early \"@eq 1\"\n\
             SecRule TX:other \"@ge 5\" \"id:2,pass,setvar:'tx.other=+%{tx.step}',setvar:tx.n=-1\"\n",
        );
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
        );
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
            files.iter().map(|(name, text)| RuleFile::parse(name, text)).collect();
        let file = all.iter().find(|file| file.name == name).unwrap();
        reason_to_keep(file, &all, &RuleFile::parse("setup", SETUP))
    }

    #[test]
    fn keeps_files_that_others_depend_on() {
        let files = [("start", START), ("attack", ATTACK), ("other", OTHER), ("verdict", VERDICT)];
        let of = |name: &str| kept(&files, name);
        assert_eq!(
            of("start").unwrap(),
            "another file reads variables that only this file sets, such as tx.level"
        );
        assert_eq!((of("attack"), of("other")), (None, None));
        assert_eq!(of("verdict").unwrap(), "it blocks by tx.score, which other files count");
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
            remove_exceptions(text, &[30].into()),
            (
                "# exceptions\nSecRuleRemoveById 30 31\nSecRuleUpdateTargetById 31 !ARGS:a\n"
                    .to_owned(),
                2
            )
        );
        assert_eq!(remove_exceptions(text, &[7].into()).1, 0);
    }

    #[test]
    fn parses_directives_of_several_lines() {
        let text = "# SecAction \\\nSecRule ARGS \"@rx a \\\" b\" \\\n  \"id:1,\\\n  deny\"\n\nSecMarker END\n";
        let found = directives(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].lines, 1..4);
        assert_eq!(found[0].words, ["SecRule", "ARGS", "@rx a \" b", "id:1,deny"]);
        assert_eq!((found[1].lines.clone(), found[1].words.len()), (5..6, 2));
        assert_eq!(directives("SecAction \\\n  \"id:1\\\n")[0].lines, 0..2);
    }

    #[test]
    fn commas_in_quotes_do_not_separate_actions() {
        let found = actions("id:1, phase:2,msg:'a, deny: b',Deny,,setvar:'tx.a=%{MATCHED_VAR}'");
        let of =
            |name: &str, value: &str| Action { name: name.to_owned(), value: value.to_owned() };
        assert_eq!(
            found,
            [
                of("id", "1"),
                of("phase", "2"),
                of("msg", "a, deny: b"),
                of("deny", ""),
                of("setvar", "tx.a=%{MATCHED_VAR}")
            ]
        );
    }
}
