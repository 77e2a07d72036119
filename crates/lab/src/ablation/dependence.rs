//! Which files of a rule set the others cannot do without. Pure.

use super::directive::directives;
use super::rule_file::{Excepted, RuleFile};
use std::collections::BTreeSet;

/// Why a file stays in the rule set whatever else is taken out: without it the other files would not do
/// what they do with it, and what the run then finds would not be its price. None, where it may go.
///
/// `setup` is what is read before all rules, and is never taken out.
pub(super) fn why_kept(file: &RuleFile, all: &[RuleFile], setup: &RuleFile) -> Option<String> {
    let others = || all.iter().filter(|other| other.name != file.name);
    if !file.has_rules {
        return Some("it holds no rule".to_owned());
    }
    let is_set_elsewhere =
        |variable: &String| others().chain([setup]).any(|other| other.sets.contains(variable));
    let only_here: BTreeSet<&String> =
        file.sets.iter().filter(|variable| !is_set_elsewhere(variable)).collect();
    let readers = others().filter(|other| other.reads.iter().any(|read| only_here.contains(read)));
    let read = only_here.iter().find(|set| others().any(|other| other.reads.contains(**set)));
    if let Some(example) = read {
        let readers = readers.count();
        let files = if readers == 1 { "another file reads" } else { "other files read" };
        let count = if readers == 1 { String::new() } else { format!("{readers} ") };
        return Some(format!("{count}{files} what it alone sets, such as tx.{example}"));
    }
    let counted = |variable: &&String| others().any(|other| other.adds_to.contains(*variable));
    if let (false, Some(variable)) = (file.blocks_by.is_empty(), file.reads.iter().find(counted)) {
        return Some(format!("it blocks by what other files count, tx.{variable}"));
    }
    if let Some(mark) = file.marks.iter().find(|mark| {
        let is_mark = |other: &RuleFile| other.marks.contains(*mark);
        others().any(|other| other.goes_to.contains(*mark)) && !others().any(is_mark)
    }) {
        return Some(format!("other files go on at its mark {mark}"));
    }
    let of_others = |excepted: &&Excepted| others().any(|other| concerns(excepted, other));
    file.excepts
        .iter()
        .any(|excepted| of_others(&excepted))
        .then(|| "it makes exceptions from rules of other files".to_owned())
}

fn concerns(excepted: &Excepted, file: &RuleFile) -> bool {
    match excepted {
        Excepted::Ids(first, last) => file.ids.range(first..=last).next().is_some(),
        // A tag is a pattern to some engines, and its start to all.
        Excepted::Tag(tag) => file.tags.iter().any(|other| other.contains(tag)),
    }
}

/// A text without its directives that change a rule of these numbers, and how many those were: Coraza
/// refuses to change a rule that is not there.
pub(super) fn without_changes_of(text: &str, gone: &BTreeSet<u64>) -> (String, usize) {
    let changes_it = |words: &[String]| match words {
        [directive, id, ..] => {
            let changes =
                ["SecRuleUpdateTargetById", "SecRuleUpdateActionById", "SecRuleRemoveById"];
            changes.contains(&directive.as_str())
                && (words.len() == 2 || directive != "SecRuleRemoveById")
                && id.parse().is_ok_and(|id| gone.contains(&id))
        }
        _ => false,
    };
    let changing: Vec<_> =
        directives(text).into_iter().filter(|one| changes_it(&one.words)).collect();
    let is_left = |number: &usize| !changing.iter().any(|one| one.lines.contains(number));
    let lines = (0..).zip(text.lines()).filter(|(number, _)| is_left(number));
    let left = lines.map(|(_, line)| format!("{line}\n")).collect();
    (left, changing.len())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            files.iter().map(|(name, text)| RuleFile::read(name, text)).collect();
        let file = all.iter().find(|file| file.name == name).unwrap();
        why_kept(file, &all, &RuleFile::read("setup", SETUP))
    }

    #[test]
    fn what_others_need_stays_and_the_rest_may_go() {
        let files = [("start", START), ("attack", ATTACK), ("other", OTHER), ("verdict", VERDICT)];
        let of = |name: &str| kept(&files, name);
        assert_eq!(of("start").unwrap(), "another file reads what it alone sets, such as tx.level");
        assert_eq!((of("attack"), of("other")), (None, None));
        assert_eq!(of("verdict").unwrap(), "it blocks by what other files count, tx.score");
    }

    #[test]
    fn a_file_that_blocks_by_itself_may_go() {
        let own = "SecRule ARGS \"@rx x\" \"id:50,deny,setvar:tx.mine=1\"\n\
                   SecRule TX:mine \"@eq 1\" \"id:51,deny\"\n\
                   SecRule TX:level \"@ge 1\" \"id:52,deny\"\n";
        // That the level is set by another file makes it no count of what others find.
        assert_eq!(kept(&[("own", own), ("other", OTHER), ("start", START)], "own"), None);
    }

    #[test]
    fn marks_exceptions_and_empty_files_stay() {
        let jump = "SecRule ARGS \"@rx z\" \"id:60,pass,skipAfter:VERDICT\"\n";
        let marks = "SecMarker VERDICT\n";
        assert_eq!(
            kept(&[("jump", jump), ("marks", marks)], "marks").unwrap(),
            "other files go on at its mark VERDICT"
        );
        let why = "it makes exceptions from rules of other files";
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
        // From its own rules it may.
        let own = format!("{OTHER}SecRuleRemoveById 30\n");
        assert_eq!(kept(&[("own", &own), ("attack", ATTACK)], "own"), None);
        let empty = kept(&[("empty", "# no rule\n"), ("other", OTHER)], "empty");
        assert_eq!(empty.unwrap(), "it holds no rule");
    }

    #[test]
    fn changes_of_rules_that_are_gone_go_as_well() {
        let text = "# exceptions\nSecRuleUpdateTargetById 30 \\\n  !ARGS:a\nSecRuleRemoveById 30\n\
                    SecRuleRemoveById 30 31\nSecRuleUpdateTargetById 31 !ARGS:a\n";
        assert_eq!(
            without_changes_of(text, &[30].into()),
            (
                "# exceptions\nSecRuleRemoveById 30 31\nSecRuleUpdateTargetById 31 !ARGS:a\n"
                    .to_owned(),
                2
            )
        );
        assert_eq!(without_changes_of(text, &[7].into()).1, 0);
    }
}
