//! The same subject or case several times, with other values of an option each: what `--matrix` asks for.

use super::check;
use super::file::{CaseFile, SubjectFile};
use crate::options::{OptionSpec, OptionValue};
use crate::toml_file::suggestion;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// An option and the values that it is to have, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The subject, or the case; none for every one that has such an option.
    of: Option<String>,
    /// The option's name; of a case, `connections` or `rate`.
    key: String,
    values: Vec<String>,
}

/// The most subjects, or cases, that a matrix may make.
const VARIANTS_MAX: usize = 256;

/// What a matrix may change of a case.
const CASE_KEYS: [&str; 2] = ["connections", "rate"];

impl Axis {
    /// Whether it changes the load of cases, and not an option of subjects.
    fn is_of_cases(&self, subjects: &[&str]) -> bool {
        let is_subject = self.of.as_deref().is_some_and(|of| subjects.contains(&of));
        CASE_KEYS.contains(&self.key.as_str()) && !is_subject
    }

    fn is_of(&self, name: &str) -> bool {
        self.of.as_deref().is_none_or(|of| of == name)
    }
}

/// Checks that every axis is one of a subject or case that is there.
pub(super) fn check_names(axes: &[Axis], subjects: &[&str], cases: &[&str]) -> Result<(), String> {
    for axis in axes {
        let known = if axis.is_of_cases(subjects) { cases } else { subjects };
        let kind = if axis.is_of_cases(subjects) { "case" } else { "subject" };
        if let Some(of) = axis.of.as_deref().filter(|of| !known.contains(of)) {
            let hint = suggestion(of, known.iter().copied());
            return Err(format!("--matrix {axis}: no {kind} is named `{of}`{hint}"));
        }
    }
    Ok(())
}

/// Checks that every axis of options found a subject whose system has such an option.
pub(super) fn check_use(axes: &[Axis], subjects: &[&str], used: &[&Axis]) -> Result<(), String> {
    let is_unused = |axis: &&Axis| !axis.is_of_cases(subjects) && !used.contains(axis);
    match axes.iter().find(is_unused) {
        Some(axis) => Err(format!(
            "--matrix {axis}: no subject has an option `{}`; `tollgate list` tells those of each system",
            axis.key
        )),
        None => Ok(()),
    }
}

/// The axes that are about a subject whose system offers these options.
pub(super) fn of_subject<'a>(
    axes: &'a [Axis],
    subjects: &[&str],
    subject: &SubjectFile,
    offered: &BTreeMap<String, OptionSpec>,
) -> Vec<&'a Axis> {
    let is_about = |axis: &&Axis| {
        // Of a subject that is named, an option that it lacks is an error, and told as one.
        !axis.is_of_cases(subjects)
            && axis.is_of(&subject.name)
            && (axis.of.is_some() || offered.contains_key(&axis.key))
    };
    axes.iter().filter(is_about).collect()
}

/// A subject with every combination of the values of its axes; itself alone without any.
pub(super) fn subjects(axes: &[&Axis], subject: &SubjectFile) -> Result<Vec<SubjectFile>, String> {
    let variant = |values: &[(&Axis, &str)]| {
        let mut variant = subject.clone();
        for (axis, value) in values {
            variant.with.insert(axis.key.clone(), option_value(value));
        }
        variant.name = name(&subject.name, values);
        variant.about = about(&subject.about, values);
        Ok(variant)
    };
    combinations(axes)?.iter().map(|values| variant(values)).collect()
}

/// A case with every combination of the values of its axes; itself alone without any.
pub(super) fn cases(
    axes: &[Axis],
    subjects: &[&str],
    case: &CaseFile,
    all: &[CaseFile],
) -> Result<Vec<CaseFile>, String> {
    let is_about = |axis: &&Axis| axis.is_of_cases(subjects) && axis.is_of(&case.name);
    let axes: Vec<&Axis> = axes.iter().filter(is_about).collect();
    let follows =
        |other: &&CaseFile| other.rate_of.as_ref().is_some_and(|rate| rate.case == case.name);
    if let (Some(axis), Some(other)) = (axes.first(), all.iter().find(follows)) {
        return Err(format!(
            "--matrix {axis}: the rate of case `{}` follows from case `{}`, which cannot be several then",
            other.name, case.name
        ));
    }
    let variant = |values: &Vec<(&Axis, &str)>| {
        let mut variant = case.clone();
        for (axis, value) in values {
            let set = set_load(&mut variant, &axis.key, value);
            set.map_err(|what| format!("--matrix {axis}: {what}"))?;
        }
        variant.name = name(&case.name, values);
        Ok(variant)
    };
    combinations(&axes)?.iter().map(variant).collect()
}

/// Checks that no two have one name, and that none is too long.
pub(super) fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let names: Vec<&str> = names.collect();
    match names.len() {
        count if count > VARIANTS_MAX => {
            Err(format!("--matrix makes {count} {kind}s, and {VARIANTS_MAX} is the most"))
        }
        _ => check::names(kind, &names).map_err(|flaw| format!("--matrix: {}", flaw.what)),
    }
}

fn set_load(case: &mut CaseFile, key: &str, value: &str) -> Result<(), String> {
    let no_number = |kind: &str| Err(format!("`{value}` is no {kind}"));
    if key == "rate" {
        let Ok(rate) = value.parse() else { return no_number("number") };
        case.load.rate = Some(rate);
    } else {
        let Ok(connections) = value.parse() else { return no_number("whole number") };
        case.load.connections = connections;
        // What is asked for is asked for of a quick run, too.
        case.load.quick_connections = None;
    }
    check::load(&case.load, case.rate_of.is_some()).map_err(|(key, what)| format!("{key}: {what}"))
}

/// Every combination of one value of each axis, the last axis the fastest; one empty combination of
/// none.
fn combinations<'a>(axes: &[&'a Axis]) -> Result<Vec<Vec<(&'a Axis, &'a str)>>, String> {
    let count = axes.iter().try_fold(1_usize, |count, axis| count.checked_mul(axis.values.len()));
    if count.is_none_or(|count| count > VARIANTS_MAX) {
        return Err(format!(
            "--matrix has more than {VARIANTS_MAX} combinations; give fewer values, or run it in parts"
        ));
    }
    let mut all = vec![Vec::new()];
    for axis in axes {
        let with = |so_far: &Vec<(&'a Axis, &'a str)>| {
            let so_far = so_far.clone();
            axis.values.iter().map(move |value| {
                let mut longer = so_far.clone();
                longer.push((*axis, value.as_str()));
                longer
            })
        };
        all = all.iter().flat_map(with).collect();
    }
    Ok(all)
}

/// A whole number, or a text.
fn option_value(text: &str) -> OptionValue {
    text.parse().map_or_else(|_| OptionValue::Text(text.to_owned()), OptionValue::Integer)
}

/// `full-paranoia-2`; of a path, its last part.
fn name(name: &str, values: &[(&Axis, &str)]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let part = |(axis, value): &(&Axis, &str)| {
        let last = value.trim_end_matches('/').rsplit('/').next().unwrap_or(value);
        format!("-{}-{}", axis.key, last.chars().map(plain).collect::<String>())
    };
    values.iter().fold(name.to_owned(), |name, value| name + &part(value))
}

fn about(about: &str, values: &[(&Axis, &str)]) -> String {
    let words = values.iter().map(|(axis, value)| format!("{} = {value}", axis.key));
    let about = Some(about.to_owned()).filter(|about| !about.is_empty());
    about.into_iter().chain(words).collect::<Vec<_>>().join(", ")
}

impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (what, values) = text.split_once('=').ok_or_else(|| SHAPE.to_owned())?;
        let (of, key) = match what.rsplit_once('.') {
            Some((of, key)) => (Some(of.to_owned()), key),
            None => (None, what),
        };
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        let is_empty = key.is_empty() || of.as_ref().is_some_and(String::is_empty);
        if is_empty || values.iter().any(String::is_empty) {
            return Err(SHAPE.to_owned());
        }
        match (1..values.len()).find(|&i| values[..i].contains(&values[i])) {
            Some(i) => Err(format!("`{}` is there twice", values[i])),
            None => Ok(Self { of, key: key.to_owned(), values }),
        }
    }
}

const SHAPE: &str = "it has to be SUBJECT.OPTION=VALUE,VALUE,... as in full.paranoia=1,2, or \
                     CASE.connections=NUMBER,NUMBER,...; without a name, it is about all";

impl fmt::Display for Axis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(of) = &self.of {
            write!(formatter, "{of}.")?;
        }
        write!(formatter, "{}={}", self.key, self.values.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::experiment::{Adjustments, Experiment};

    fn axis(text: &str) -> Axis {
        text.parse().unwrap()
    }

    #[test]
    fn an_axis_is_written_as_it_is_read() {
        for text in ["full.paranoia=1,2", "workers=1,2,4", "a.b.crs=/x/crs-4.7.0,packaged"] {
            assert_eq!(axis(text).to_string(), text);
        }
        for odd in ["", "workers", "workers=", "=1", ".workers=1", "full.=1", "workers=1,,2"] {
            assert_eq!(odd.parse::<Axis>(), Err(SHAPE.to_owned()), "{odd}");
        }
        assert_eq!("workers=1,2,1".parse::<Axis>(), Err("`1` is there twice".to_owned()));
    }

    #[test]
    fn combinations_are_counted_through() {
        let (one, other) = (axis("a=1,2"), axis("b=x,y"));
        let names: Vec<String> =
            combinations(&[&one, &other]).unwrap().iter().map(|values| name("s", values)).collect();
        assert_eq!(names, ["s-a-1-b-x", "s-a-1-b-y", "s-a-2-b-x", "s-a-2-b-y"]);
        assert_eq!(combinations(&[]).unwrap(), [[]]);
        let long =
            axis(&format!("a={}", (0..17).map(|i| i.to_string()).collect::<Vec<_>>().join(",")));
        assert!(combinations(&[&long, &long]).unwrap_err().contains("256 combinations"));
    }

    #[test]
    fn a_quick_run_has_the_connections_that_it_is_asked_for() {
        let connections = |axes: &[&str]| -> Vec<u32> {
            let matrix = axes.iter().map(|text| axis(text)).collect();
            let adjustments = Adjustments { matrix, quick: true, ..Adjustments::default() };
            let catalog = Catalog::new(vec![]);
            let experiment = Experiment::load(&catalog, "crowdsec-stress", &adjustments).unwrap();
            experiment.cases.iter().map(|case| case.load.connections).collect()
        };
        // Without being asked, those that the experiment has for it.
        assert!(connections(&[]).contains(&100), "{:?}", connections(&[]));
        let asked = connections(&["connections=50,200"]);
        assert!(asked.len() >= 2 && asked.iter().all(|one| [50, 200].contains(one)), "{asked:?}");
        assert!(asked.contains(&50) && asked.contains(&200), "{asked:?}");
    }

    fn load(experiment: &str, axes: &[&str]) -> Result<Experiment, String> {
        let matrix = axes.iter().map(|text| axis(text)).collect();
        let adjustments = Adjustments { matrix, ..Adjustments::default() };
        Experiment::load(&Catalog::new(vec![]), experiment, &adjustments)
            .map_err(|error| error.to_string())
    }

    fn subjects_of(axes: &[&str]) -> Vec<String> {
        let experiment = load("first-look", axes).unwrap();
        assert_eq!(experiment.subjects[experiment.baseline].name, "nginx");
        experiment.subjects.into_iter().map(|subject| subject.name).collect()
    }

    #[test]
    fn a_subject_becomes_one_for_each_value() {
        assert_eq!(
            subjects_of(&["full.paranoia=1,3"]),
            ["nginx", "direct", "light", "full-paranoia-1", "full-paranoia-3", "gateway"]
        );
        let experiment = load("first-look", &["full.paranoia=1,3"]).unwrap();
        assert_eq!(experiment.subjects[4].options["paranoia"], OptionValue::Integer(3));
        assert_eq!(
            experiment.subjects[4].about,
            "ModSecurity with the full Core Rule Set, paranoia = 3"
        );
        assert_eq!(experiment.cases[0].subjects, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn without_a_name_all_that_have_the_option_are_several_and_the_baseline_stays() {
        // The baseline has one worker by default, so that value is itself; `direct` has no workers.
        assert_eq!(
            subjects_of(&["workers=1,2"]),
            [
                "nginx",
                "nginx-workers-2",
                "direct",
                "light-workers-1",
                "light-workers-2",
                "full-workers-1",
                "full-workers-2",
                "gateway"
            ]
        );
    }

    #[test]
    fn a_case_becomes_one_for_each_load() {
        let experiment = load("first-look", &["connections=10,200"]).unwrap();
        let cases: Vec<(&str, u32)> = experiment
            .cases
            .iter()
            .map(|case| (case.name.as_str(), case.load.connections))
            .collect();
        assert_eq!(cases, [("browse-connections-10", 10), ("browse-connections-200", 200)]);
        let experiment = load("first-look", &["browse.rate=50.5"]).unwrap();
        assert_eq!(experiment.cases[0].load.rate, Some(50.5));
    }

    #[test]
    fn what_a_matrix_cannot_be_is_told() {
        let error = |axis: &str| load("first-look", &[axis]).unwrap_err();
        assert_eq!(
            error("fulll.crs=packaged"),
            "--matrix fulll.crs=packaged: no subject is named `fulll`; did you mean `full`?"
        );
        assert_eq!(
            error("brows.rate=1"),
            "--matrix brows.rate=1: no case is named `brows`; did you mean `browse`?"
        );
        assert_eq!(
            error("full.crz=packaged"),
            "--matrix, for full-crz-packaged: system `nginx-modsecurity` has no option `crz`; did you mean `crs`?"
        );
        assert!(error("paranoja=1").contains("no subject has an option `paranoja`"));
        assert!(error("full.paranoia=5").contains("it is a whole number from 1 to 4"));
        assert_eq!(error("connections=x"), "--matrix connections=x: `x` is no whole number");
        assert!(error("connections=0").contains("connections: 0: it has to be between 1 and"));
        assert!(error("rate=-1").contains("it has to be above 0"));
        // Two folders of one name would be two subjects of one name.
        assert!(error("full.crs=/a/x,/b/x").contains("two subjects are named `full-crs-x`"));
    }

    #[test]
    fn a_path_is_named_after_its_last_part() {
        let axis = axis("crs=/rules/crs 4.7.0/");
        let values = [(&axis, axis.values[0].as_str())];
        assert_eq!(name("full", &values), "full-crs-crs-4.7.0");
        assert_eq!(about("ModSecurity", &values), "ModSecurity, crs = /rules/crs 4.7.0/");
        assert_eq!(about("", &values), "crs = /rules/crs 4.7.0/");
    }
}
