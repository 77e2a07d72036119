//! What a subject that blocks attacks missed, by family, which harmless requests any subject blocked, and which
//! requests it answered in neither way: notes, as these are findings that the figures of the whole mix hide.

use super::templates::TemplateFigures;
use crate::record::as_f64;
use crate::report::number::{count, percent};
use tollgate_traffic::Class;

/// What attacks without a family are called where others of the mix have one.
const NO_FAMILY: &str = "other";

/// The notes on one subject, which is called `name` in them. What one that blocked no attack let through
/// is no finding; what it blocked of the harmless is, and so on a mix without attacks.
pub(super) fn notes(name: &str, templates: &[TemplateFigures]) -> Vec<String> {
    let of_class =
        |class| templates.iter().filter(move |one: &&TemplateFigures| one.class == class);
    let mut notes = Vec::new();
    if of_class(Class::Malicious).any(|attack| attack.blocked > 0) {
        notes.extend(missed(name, of_class(Class::Malicious)));
    }
    notes.extend(alarms(name, of_class(Class::Benign)));
    notes.extend(others(name, templates));
    notes
}

/// How many of the attacks of each family were let through; none where the mix names no family.
fn missed<'a>(name: &str, attacks: impl Iterator<Item = &'a TemplateFigures>) -> Option<String> {
    let attacks: Vec<_> = attacks.filter(|attack| attack.told() > 0).collect();
    if attacks.iter().all(|attack| attack.family.is_none()) {
        return None;
    }
    let mut families: Vec<(&str, u64, u64)> = Vec::new();
    for attack in attacks {
        let family = attack.family.as_deref().unwrap_or(NO_FAMILY);
        match families.iter_mut().find(|(known, ..)| *known == family) {
            Some((_, let_through, told)) => {
                *let_through += attack.let_through;
                *told += attack.told();
            }
            None => families.push((family, attack.let_through, attack.told())),
        }
    }
    let all = families.len();
    families.retain(|(_, let_through, _)| *let_through > 0);
    families.sort_by_key(|(family, ..)| *family);
    let words = families.iter().map(|(family, let_through, told)| {
        format!("{} of {family}", percent(as_f64(*let_through) / as_f64(*told)))
    });
    let words: Vec<String> = words.collect();
    let rest = match all - families.len() {
        0 => String::new(),
        1 => "; none of the other family".to_owned(),
        rest => format!("; none of the other {rest} families"),
    };
    (!words.is_empty()).then(|| format!("{name} let attacks through: {}{rest}.", words.join(", ")))
}

/// The harmless templates of which some or all requests were blocked.
fn alarms<'a>(name: &str, harmless: impl Iterator<Item = &'a TemplateFigures>) -> Option<String> {
    let mut templates = 0;
    let mut words = Vec::new();
    for one in harmless.filter(|one| one.told() > 0) {
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
            "{name} blocked harmless requests ({blocked} of {templates} templates): {}.",
            words.join(", ")
        )
    })
}

/// The templates of which some answers were neither a block nor what comes when nothing blocks.
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
            "{name} answered {} requests neither as blocked nor as let through, which are no catch, no miss and no \
             false alarm ({} of {} templates): {}.",
            count(answers),
            odd.len(),
            templates.len(),
            words.join(", ")
        )
    })
}

/// Where a system fails, all templates may be in that list.
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
            answered,
            blocked,
            let_through: answered - blocked,
            other: 0,
            unexpected: 0,
        }
    }

    #[test]
    fn what_is_neither_blocked_nor_let_through_is_told_apart() {
        let failed = |name: &str, class, blocked, let_through, other| TemplateFigures {
            let_through,
            other,
            ..template(name, class, "a", blocked, blocked + let_through + other)
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
                "full let attacks through: 50.0 % of a.",
                "full blocked harmless requests (2 of 3 templates): home (25.0 %), search.",
                "full answered 1021 requests neither as blocked nor as let through, which are no catch, no miss \
                 and no false alarm (4 of 5 templates): script, union, home, search.",
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
    fn what_was_missed_is_told_by_family_and_alarms_by_template() {
        let (attack, harmless) = (Class::Malicious, Class::Benign);
        let templates = [
            template("script", attack, "xss", 3, 3),
            template("cookie", attack, "sql-injection", 1, 4),
            template("union", attack, "sql-injection", 4, 4),
            template("home", harmless, "page", 0, 90),
            template("search", harmless, "search", 1, 4),
            template("delete", harmless, "api", 7, 7),
            template("patch", harmless, "api", 0, 0),
        ];
        assert_eq!(
            notes("full", &templates),
            [
                "full let attacks through: 37.5 % of sql-injection; none of the other family.",
                "full blocked harmless requests (2 of 3 templates): search (25.0 %), delete.",
            ]
        );
        // One that blocks nothing says so in its figures.
        let open: Vec<TemplateFigures> =
            templates.iter().map(|one| TemplateFigures { blocked: 0, ..one.clone() }).collect();
        assert_eq!(notes("nginx", &open), [""; 0]);
    }

    #[test]
    fn harmless_requests_blocked_are_told_without_attacks_in_the_mix() {
        let templates = [
            template("home", Class::Benign, "page", 0, 90),
            template("search", Class::Benign, "search", 4, 4),
        ];
        assert_eq!(
            notes("crs", &templates),
            ["crs blocked harmless requests (1 of 2 templates): search."]
        );
    }

    #[test]
    fn attacks_without_a_family_hide_no_others() {
        let attack = Class::Malicious;
        let templates = [
            template("own", attack, "", 1, 2),
            template("script", attack, "xss", 1, 4),
            template("union", attack, "sql-injection", 4, 4),
        ];
        assert_eq!(
            notes("full", &templates),
            ["full let attacks through: 50.0 % of other, 75.0 % of xss; none of the other family."]
        );
    }

    #[test]
    fn a_mix_without_families_and_a_clean_sheet_need_no_note() {
        let templates = [
            template("script", Class::Malicious, "", 1, 3),
            template("home", Class::Benign, "", 0, 90),
        ];
        assert_eq!(notes("full", &templates), [""; 0]);
        let caught = [template("script", Class::Malicious, "xss", 3, 3)];
        assert_eq!(notes("full", &caught), [""; 0]);
    }
}
