//! Notes on detection: attacks that passed, by family; benign requests that were blocked; responses that are neither.

use super::templates::TemplateFigures;
use tollgate_experiment::record::as_f64;
use tollgate_stats::number::{count, percent};
use tollgate_traffic::Class;

/// The name for attacks without a family, if others of the mix have one.
const NO_FAMILY: &str = "other";

/// The notes on one subject. A subject that blocks no attack gets no note on passed attacks.
pub(super) fn notes(name: &str, templates: &[TemplateFigures]) -> Vec<String> {
    let of_class =
        |class| templates.iter().filter(move |one: &&TemplateFigures| one.class == class);
    let mut notes = Vec::new();
    if of_class(Class::Malicious).any(|attack| attack.blocked > 0) {
        notes.extend(missed(name, of_class(Class::Malicious)));
    }
    notes.extend(false_positives(name, of_class(Class::Benign)));
    notes.extend(others(name, templates));
    notes
}

/// The shares of attacks that passed, by family. `None` if the mix names no family.
fn missed<'a>(name: &str, attacks: impl Iterator<Item = &'a TemplateFigures>) -> Option<String> {
    let attacks: Vec<_> = attacks.filter(|attack| attack.told() > 0).collect();
    if attacks.iter().all(|attack| attack.family.is_none()) {
        return None;
    }
    let mut families: Vec<(&str, u64, u64)> = Vec::new();
    for attack in attacks {
        let family = attack.family.as_deref().unwrap_or(NO_FAMILY);
        match families.iter_mut().find(|(known, ..)| *known == family) {
            Some((_, passed, told)) => {
                *passed += attack.passed;
                *told += attack.told();
            }
            None => families.push((family, attack.passed, attack.told())),
        }
    }
    let all = families.len();
    families.retain(|(_, passed, _)| *passed > 0);
    families.sort_by_key(|(family, ..)| *family);
    let words = families.iter().map(|(family, passed, told)| {
        format!("{} of {family}", percent(as_f64(*passed) / as_f64(*told)))
    });
    let words: Vec<String> = words.collect();
    let rest = match all - families.len() {
        0 => String::new(),
        1 => "; none of the other family".to_owned(),
        rest => format!("; none of the other {rest} families"),
    };
    (!words.is_empty()).then(|| format!("{name} passed attacks: {}{rest}.", words.join(", ")))
}

/// The benign templates of which some or all requests were blocked.
fn false_positives<'a>(
    name: &str,
    benign: impl Iterator<Item = &'a TemplateFigures>,
) -> Option<String> {
    let mut templates = 0;
    let mut words = Vec::new();
    for one in benign.filter(|one| one.told() > 0) {
        templates += 1;
        if one.blocked == one.told() {
            words.push(one.name.clone());
        } else if one.blocked > 0 {
            let share = percent(as_f64(one.blocked) / as_f64(one.told()));
            words.push(format!("{} ({share})", one.name));
        }
    }
    (!words.is_empty()).then(|| {
        let blocked = words.len();
        format!(
            "{name} blocked benign requests ({blocked} of {templates} templates): {}.",
            words.join(", ")
        )
    })
}

/// The templates with responses that are neither a block nor the expected response.
fn others(name: &str, templates: &[TemplateFigures]) -> Option<String> {
    let odd: Vec<&TemplateFigures> = templates.iter().filter(|one| one.other > 0).collect();
    let answers: u64 = odd.iter().map(|one| one.other).sum();
    let mut words: Vec<&str> = odd.iter().take(NAMES_MAX).map(|one| one.name.as_str()).collect();
    let rest = format!("{} more", odd.len().saturating_sub(NAMES_MAX));
    if odd.len() > NAMES_MAX {
        words.push(&rest);
    }
    (!odd.is_empty()).then(|| {
        format!(
            "{name} sent {} responses that count neither as blocked nor as passed ({} of {} templates): {}.",
            count(answers),
            odd.len(),
            templates.len(),
            words.join(", ")
        )
    })
}

/// If a system fails, every template may be in that list.
const NAMES_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn template(
        name: &str,
        class: Class,
        family: &str,
        blocked: u64,
        answered: u64,
    ) -> TemplateFigures {
        TemplateFigures {
            name: name.to_owned(),
            class,
            family: (!family.is_empty()).then(|| family.to_owned()),
            responses: answered,
            blocked,
            passed: answered - blocked,
            other: 0,
            unexpected: 0,
        }
    }

    #[test]
    fn reports_responses_that_are_neither_blocked_nor_passed() {
        let failed = |name: &str, class, blocked, passed, other| TemplateFigures {
            passed,
            other,
            ..template(name, class, "a", blocked, blocked + passed + other)
        };
        let templates = [
            failed("script", Class::Malicious, 2, 2, 1_000),
            failed("union", Class::Malicious, 0, 0, 7),
            failed("home", Class::Benign, 1, 3, 5),
            failed("search", Class::Benign, 2, 0, 9),
            failed("page", Class::Benign, 0, 4, 0),
        ];
        assert_eq!(
            notes("full", &templates),
            [
                "full passed attacks: 50.0 % of a.",
                "full blocked benign requests (2 of 3 templates): home (25.0 %), search.",
                "full sent 1021 responses that count neither as blocked nor as passed (4 of 5 templates): script, union, home, search.",
            ]
        );
        let many: Vec<TemplateFigures> =
            (1..=14).map(|n| failed(&format!("t{n}"), Class::Benign, 0, 0, 1)).collect();
        let note = notes("full", &many).join("");
        assert!(note.ends_with(
            "(14 of 14 templates): t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, 2 more."
        ));
    }

    #[test]
    fn lists_missed_attacks_by_family_and_false_positives_by_template() {
        let (attack, benign) = (Class::Malicious, Class::Benign);
        let templates = [
            template("script", attack, "xss", 3, 3),
            template("cookie", attack, "sql-injection", 1, 4),
            template("union", attack, "sql-injection", 4, 4),
            template("home", benign, "page", 0, 90),
            template("search", benign, "search", 1, 4),
            template("delete", benign, "api", 7, 7),
            template("patch", benign, "api", 0, 0),
        ];
        assert_eq!(
            notes("full", &templates),
            [
                "full passed attacks: 37.5 % of sql-injection; none of the other family.",
                "full blocked benign requests (2 of 3 templates): search (25.0 %), delete.",
            ]
        );
        // One that blocks nothing says so in its figures.
        let open: Vec<TemplateFigures> =
            templates.iter().map(|one| TemplateFigures { blocked: 0, ..one.clone() }).collect();
        assert_eq!(notes("nginx", &open), [""; 0]);
    }

    #[test]
    fn lists_false_positives_of_a_mix_without_attacks() {
        let templates = [
            template("home", Class::Benign, "page", 0, 90),
            template("search", Class::Benign, "search", 4, 4),
        ];
        assert_eq!(
            notes("crs", &templates),
            ["crs blocked benign requests (1 of 2 templates): search."]
        );
    }

    #[test]
    fn groups_attacks_without_a_family_as_other() {
        let attack = Class::Malicious;
        let templates = [
            template("own", attack, "", 1, 2),
            template("script", attack, "xss", 1, 4),
            template("union", attack, "sql-injection", 4, 4),
        ];
        assert_eq!(
            notes("full", &templates),
            ["full passed attacks: 50.0 % of other, 75.0 % of xss; none of the other family."]
        );
    }

    #[test]
    fn no_note_without_families_or_without_missed_attacks() {
        let templates = [
            template("script", Class::Malicious, "", 1, 3),
            template("home", Class::Benign, "", 0, 90),
        ];
        assert_eq!(notes("full", &templates), [""; 0]);
        let all_blocked = [template("script", Class::Malicious, "xss", 3, 3)];
        assert_eq!(notes("full", &all_blocked), [""; 0]);
    }
}
