//! The same subject or case several times, with other values of an option each: what `--matrix` asks for.

use super::check;
use super::file::{CaseFile, SubjectFile};
use crate::inputs::options::{OptionSpec, OptionValue};
use crate::inputs::toml_file::suggestion;
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

/// The cases, each with every combination of the values of its axes.
pub(super) fn cases(
    axes: &[Axis],
    subjects: &[&str],
    cases: &[CaseFile],
) -> Result<Vec<CaseFile>, String> {
    let mut all = Vec::new();
    for case in cases {
        let axes: Vec<&Axis> = axes
            .iter()
            .filter(|axis| axis.is_of_cases(subjects) && axis.is_of(&case.name))
            .collect();
        for values in combinations(&axes)? {
            let mut variant = case.clone();
            for (axis, value) in &values {
                let set = set_load(&mut variant, &axis.key, value);
                set.map_err(|what| format!("--matrix {axis}: {what}"))?;
            }
            variant.name = name(&case.name, &values);
            all.push(variant);
        }
    }
    unique("case", all.iter().map(|case| case.name.as_str()))?;
    Ok(all)
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
    let no_number = |kind: &str| format!("`{value}` is no {kind}");
    if key == "rate" {
        let rate = value.parse().map_err(|_: std::num::ParseFloatError| no_number("number"))?;
        case.load.rate = Some(rate);
    } else {
        case.load.connections =
            value.parse().map_err(|_: std::num::ParseIntError| no_number("whole number"))?;
    }
    check::load(&case.load).map_err(|(key, what)| format!("{key}: {what}"))
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
    fn a_path_is_named_after_its_last_part() {
        let axis = axis("crs=/rules/crs 4.7.0/");
        let values = [(&axis, axis.values[0].as_str())];
        assert_eq!(name("full", &values), "full-crs-crs-4.7.0");
        assert_eq!(about("ModSecurity", &values), "ModSecurity, crs = /rules/crs 4.7.0/");
        assert_eq!(about("", &values), "crs = /rules/crs 4.7.0/");
    }
}
