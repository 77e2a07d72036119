//! Expansion of `--matrix`: one subject or case for each combination of values.

use crate::file::{CaseFile, ExperimentFile, SubjectFile};
use crate::options::{self, option_value};
use crate::recipe::Recipe;
use crate::validate;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use tollgate_records::error::suggestion;

/// Recipes of all subjects, by system.
pub(crate) type Recipes = BTreeMap<String, Recipe>;

/// An option and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// A subject or a case. `None`: all that have the option.
    of: Option<String>,
    /// Name of the option; of a case, one of [`CASE_KEYS`].
    key: String,
    values: Vec<String>,
}

/// Limit of the subjects, and of the cases.
const VARIANTS_MAX: usize = 256;

const CASE_KEYS: [&str; 2] = ["connections", "rate"];

impl Axis {
    fn is_of_cases(&self, subjects: &[&str]) -> bool {
        let is_subject = self.of.as_deref().is_some_and(|names| subjects.contains(&names));
        CASE_KEYS.contains(&self.key.as_str()) && !is_subject
    }

    fn is_of(&self, name: &str) -> bool {
        self.of.as_deref().is_none_or(|names| names == name)
    }
}

pub(crate) fn check_names(axes: &[Axis], subjects: &[&str], cases: &[&str]) -> Result<(), String> {
    for axis in axes {
        let (kind, known) =
            if axis.is_of_cases(subjects) { ("case", cases) } else { ("subject", subjects) };
        if let Some(unknown) = axis.of.as_deref().filter(|unknown| !known.contains(unknown)) {
            let hint = suggestion(unknown, known.iter().copied());
            return Err(format!("--matrix {axis}: unknown {kind} `{unknown}`{hint}"));
        }
    }
    Ok(())
}

/// Replaces subjects and cases by one for each combination of the values of their axes.
pub(crate) fn expand(
    file: ExperimentFile,
    axes: &[Axis],
    recipes: &Recipes,
) -> Result<ExperimentFile, String> {
    if axes.is_empty() {
        return Ok(file);
    }
    let names: Vec<&str> = file.subject.iter().map(|subject| subject.name.as_str()).collect();
    let (of_cases, of_subjects): (Vec<&Axis>, Vec<&Axis>) =
        axes.iter().partition(|axis| axis.is_of_cases(&names));
    let (mut subject, mut case) = (Vec::new(), Vec::new());
    let mut used = Vec::new();
    for one in &file.subject {
        let recipe = &recipes[one.system()];
        // An option that a named subject lacks is an error.
        let applies = |axis: &&Axis| {
            axis.is_of(&one.name)
                && (axis.of.is_some() || recipe.file.option.contains_key(&axis.key))
        };
        let axes: Vec<&Axis> = of_subjects.iter().copied().filter(applies).collect();
        subject.extend(subjects(&axes, one, recipe, one.name == file.baseline)?);
        used.extend(axes);
    }
    if let Some(axis) = of_subjects.iter().find(|axis| !used.contains(axis)) {
        return Err(format!(
            "--matrix {axis}: no subject has an option `{}`; `tollgate systems show NAME` lists the options of a system",
            axis.key
        ));
    }
    for one in &file.case {
        let axes: Vec<&Axis> =
            of_cases.iter().copied().filter(|axis| axis.is_of(&one.name)).collect();
        case.extend(cases(&axes, one, &file.case)?);
    }
    check_unique("subject", subject.iter().map(|one| one.name.as_str()))?;
    check_unique("case", case.iter().map(|one| one.name.as_str()))?;
    Ok(ExperimentFile { subject, case, ..file })
}

/// Expands a subject. Keeps the baseline, because every price needs it, and leaves out a combination equal to it.
fn subjects(
    axes: &[&Axis],
    subject: &SubjectFile,
    recipe: &Recipe,
    is_baseline: bool,
) -> Result<Vec<SubjectFile>, String> {
    if axes.is_empty() {
        return Ok(vec![subject.clone()]);
    }
    // Invalid options are reported when the names are resolved.
    let options = |one: &SubjectFile| {
        options::choose(&recipe.name, &recipe.file.option, &one.with).ok().filter(|_| is_baseline)
    };
    let whole = options(subject);
    let mut all = if is_baseline { vec![subject.clone()] } else { Vec::new() };
    for values in combinations(axes)? {
        let mut variant = SubjectFile {
            name: name(&subject.name, &values),
            about: about(&subject.about, &values),
            variant_of: Some(subject.name.clone()),
            ..subject.clone()
        };
        for (axis, value) in &values {
            variant.with.insert(axis.key.clone(), option_value(value));
        }
        let options = options(&variant);
        if options.is_none() || options != whole {
            all.push(variant);
        }
    }
    Ok(all)
}

fn cases(axes: &[&Axis], case: &CaseFile, all: &[CaseFile]) -> Result<Vec<CaseFile>, String> {
    let dependent = all.iter().find(|other| other.depends_on(case));
    if let (Some(axis), Some(other)) = (axes.first(), dependent) {
        return Err(format!(
            "--matrix {axis}: cannot expand case `{}`, because the rate of case `{}` depends on it",
            case.name, other.name
        ));
    }
    let variant = |values: &Vec<(&Axis, &str)>| {
        let mut variant = CaseFile { name: name(&case.name, values), ..case.clone() };
        for (axis, value) in values {
            let set = set_load(&mut variant, &axis.key, value);
            set.map_err(|message| format!("--matrix {axis}: {message}"))?;
        }
        Ok(variant)
    };
    combinations(axes)?.iter().map(variant).collect()
}

fn check_unique<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let names: Vec<&str> = names.collect();
    match names.len() {
        count if count > VARIANTS_MAX => {
            Err(format!("--matrix makes {count} {kind}s; the limit is {VARIANTS_MAX}"))
        }
        _ => validate::names(kind, &names).map_err(|flaw| format!("--matrix: {}", flaw.message)),
    }
}

fn set_load(case: &mut CaseFile, key: &str, value: &str) -> Result<(), String> {
    let invalid = |kind: &str| Err(format!("`{value}` is not a {kind}"));
    if key == "rate" {
        let Ok(rate) = value.parse() else { return invalid("number") };
        case.load.rate = Some(rate);
    } else {
        let Ok(connections) = value.parse() else { return invalid("whole number") };
        case.load.connections = connections;
    }
    case.shape().map(drop).map_err(|(key, message)| format!("{key}: {message}"))
}

/// Returns all combinations of one value of each axis; the last axis changes fastest. Without axes, one empty
/// combination.
fn combinations<'a>(axes: &[&'a Axis]) -> Result<Vec<Vec<(&'a Axis, &'a str)>>, String> {
    let count = axes.iter().try_fold(1_usize, |count, axis| count.checked_mul(axis.values.len()));
    if count.is_none_or(|count| count > VARIANTS_MAX) {
        return Err(format!(
            "--matrix has more than {VARIANTS_MAX} combinations; use fewer values, or several runs"
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

/// `full-paranoia-2`; of a path, the last part is used.
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
        let (what, values) = text.split_once('=').ok_or_else(|| SYNTAX.to_owned())?;
        let (of, key) = match what.rsplit_once('.') {
            Some((of, key)) => (Some(of.to_owned()), key),
            None => (None, what),
        };
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        let is_empty = key.is_empty() || of.as_ref().is_some_and(String::is_empty);
        if is_empty || values.iter().any(String::is_empty) {
            return Err(SYNTAX.to_owned());
        }
        match (1..values.len()).find(|&i| values[..i].contains(&values[i])) {
            Some(i) => Err(format!("`{}` is listed twice", values[i])),
            None => Ok(Self { of, key: key.to_owned(), values }),
        }
    }
}

const SYNTAX: &str = "expected SUBJECT.OPTION=VALUE,VALUE,... such as full.paranoia=1,2, or \
                      CASE.connections=NUMBER,NUMBER,...; without a name, it applies to all";

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
    use crate::adjust::Adjustments;
    use crate::catalog::Catalog;
    use crate::experiment::Experiment;
    use crate::tests::TEST_EXPERIMENT;
    use tollgate_records::subject::OptionValue;
    use tollgate_traffic::load_shape::CaseRate;

    fn axis(text: &str) -> Axis {
        text.parse().unwrap()
    }

    #[test]
    fn axis_round_trips() {
        for text in ["full.paranoia=1,2", "workers=1,2,4", "a.b.crs=/x/crs-4.7.0,packaged"] {
            assert_eq!(axis(text).to_string(), text);
        }
        for odd in ["", "workers", "workers=", "=1", ".workers=1", "full.=1", "workers=1,,2"] {
            assert_eq!(odd.parse::<Axis>(), Err(SYNTAX.to_owned()), "{odd}");
        }
        assert_eq!("workers=1,2,1".parse::<Axis>(), Err("`1` is listed twice".to_owned()));
    }

    #[test]
    fn combinations_are_complete_and_limited() {
        let (one, other) = (axis("a=1,2"), axis("b=x,y"));
        let names: Vec<String> =
            combinations(&[&one, &other]).unwrap().iter().map(|values| name("s", values)).collect();
        assert_eq!(names, ["s-a-1-b-x", "s-a-1-b-y", "s-a-2-b-x", "s-a-2-b-y"]);
        assert_eq!(combinations(&[]).unwrap(), [[]]);
        let long =
            axis(&format!("a={}", (0..17).map(|i| i.to_string()).collect::<Vec<_>>().join(",")));
        assert!(combinations(&[&long, &long]).unwrap_err().contains("256 combinations"));
    }

    fn load(axes: &[&str]) -> Result<Experiment, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, TEST_EXPERIMENT).unwrap();
        let matrix = axes.iter().map(|text| axis(text)).collect();
        let adjustments = Adjustments { matrix, ..Adjustments::default() };
        Experiment::load(&Catalog::new(vec![]), path.to_str().unwrap(), &adjustments)
            .map_err(|error| error.to_string())
    }

    fn subjects_of(axes: &[&str]) -> Vec<String> {
        let experiment = load(axes).unwrap();
        assert_eq!(experiment.subjects[experiment.baseline].name, "nginx");
        experiment.subjects.into_iter().map(|subject| subject.name).collect()
    }

    #[test]
    fn subject_is_expanded_to_one_for_each_value() {
        assert_eq!(
            subjects_of(&["full.paranoia=1,3"]),
            ["nginx", "direct", "light", "full-paranoia-1", "full-paranoia-3", "gateway"]
        );
        let experiment = load(&["full.paranoia=1,3"]).unwrap();
        assert_eq!(experiment.subjects[4].options["paranoia"], OptionValue::Integer(3));
        assert_eq!(
            experiment.subjects[4].about,
            "ModSecurity with the full Core Rule Set, paranoia = 3"
        );
        assert_eq!(experiment.cases[0].subjects, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn axis_without_name_expands_all_subjects_with_the_option_and_keeps_the_baseline() {
        // The baseline has one worker by default, so one variant equals it; `direct` has no workers.
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
    fn case_is_expanded_to_one_for_each_load() {
        let experiment = load(&["connections=10,200"]).unwrap();
        let cases: Vec<(&str, usize)> = experiment
            .cases
            .iter()
            .map(|case| (case.name.as_str(), case.load.connections()))
            .collect();
        assert_eq!(cases, [("browse-connections-10", 10), ("browse-connections-200", 200)]);
        let experiment = load(&["browse.rate=50.5"]).unwrap();
        assert_eq!(experiment.cases[0].load.open_loop().unwrap().rate, CaseRate::PerS(50.5));
    }

    #[test]
    fn invalid_matrix_is_an_error() {
        let error = |axis: &str| load(&[axis]).unwrap_err();
        assert_eq!(
            error("fulll.crs=packaged"),
            "--matrix fulll.crs=packaged: unknown subject `fulll`; did you mean `full`?"
        );
        assert_eq!(
            error("brows.rate=1"),
            "--matrix brows.rate=1: unknown case `brows`; did you mean `browse`?"
        );
        assert_eq!(
            error("full.crz=packaged"),
            "--matrix, for full-crz-packaged: system `nginx-modsecurity` has no option `crz`; did you mean `crs`?"
        );
        assert!(error("paranoja=1").contains("no subject has an option `paranoja`"));
        assert!(error("full.paranoia=5").contains("expected a whole number from 1 to 4"));
        assert_eq!(error("connections=x"), "--matrix connections=x: `x` is not a whole number");
        assert!(error("connections=0").contains("connections: expected 1 to"));
        assert!(error("rate=-1").contains("expected a rate above 0"));
        // Folders with equal names give subjects with equal names.
        assert!(error("full.crs=/a/x,/b/x").contains("two subjects are named `full-crs-x`"));
    }

    #[test]
    fn path_is_named_after_its_last_part() {
        let axis = axis("crs=/rules/crs 4.7.0/");
        let values = [(&axis, axis.values[0].as_str())];
        assert_eq!(name("full", &values), "full-crs-crs-4.7.0");
        assert_eq!(about("ModSecurity", &values), "ModSecurity, crs = /rules/crs 4.7.0/");
        assert_eq!(about("", &values), "crs = /rules/crs 4.7.0/");
    }
}
