//! The experiment of a round: the user's, with one case, and the anchor and some products in the place of
//! its subjects. It is an ordinary experiment, which `tollgate run` takes. Pure.

use super::BatchError;
use crate::inputs::toml_file::Source;
use std::path::Path;
use toml::{Table, Value};

/// What the anchor is called in every round.
pub const ANCHOR: &str = "anchor";

/// A subject of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoundSubject {
    /// Its name.
    pub(super) name: String,
    /// What it is, in a few words.
    pub(super) about: String,
    /// The path that its option gets.
    pub(super) product: String,
}

/// An experiment with one of its cases and one of its subjects left, as TOML. Its margin becomes the one
/// that is given, and what its design says of blocks goes.
///
/// # Errors
///
/// It is no TOML, or has no such case or subject.
pub(super) fn base(
    source: &Source,
    case: &str,
    subject: &str,
    margin: Option<f64>,
) -> Result<String, BatchError> {
    let mut table = parse(&source.text)?;
    let mut kept_case = named(&table, "case", case)?;
    if kept_case.contains_key("rate_of") {
        return Err(damaged(&format!(
            "case `{case}` has its rate of another case, which a round has not; give it a `rate`"
        )));
    }
    // It is for the subjects of a round, whatever they are called.
    kept_case.remove("subjects");
    // Beside the round's own file, a path would lead somewhere else.
    let folder = Path::new(&source.name).parent().unwrap_or(Path::new(""));
    if let Some(Value::String(mix)) = kept_case.get_mut("mix")
        && mix.ends_with(".toml")
    {
        let path = folder.join(&*mix);
        let path = std::path::absolute(&path).map_err(super::io_error("finding", &path))?;
        *mix = path.display().to_string();
    }
    let kept_subject = named(&table, "subject", subject)?;
    table.insert("case".to_owned(), Value::Array(vec![Value::Table(kept_case)]));
    table.insert("subject".to_owned(), Value::Array(vec![Value::Table(kept_subject)]));
    let margin = match (margin, table.get("design").and_then(|design| design.get("margin"))) {
        (Some(margin), _) => Some(Value::String(format!("{}%", (margin * 1e8).round() / 1e6))),
        (None, asked) => asked.cloned(),
    };
    let design = margin.map(|margin| ("margin".to_owned(), margin));
    table.insert("design".to_owned(), Value::Table(design.into_iter().collect()));
    // The subject that would take the baseline's place is none of a round's.
    table.remove("baseline_else");
    write(&table)
}

/// The experiment of a round: the anchor is the first of the subjects.
///
/// # Errors
///
/// The base is no TOML any more.
pub(super) fn experiment(
    base: &str,
    title: &str,
    option: &str,
    subjects: &[RoundSubject],
    blocks: u32,
) -> Result<String, BatchError> {
    let mut table = parse(base)?;
    let pattern = table.get("subject").and_then(|all| all.get(0)).and_then(Value::as_table);
    let pattern = pattern.cloned().ok_or_else(|| damaged("it has no subject"))?;
    let subject = |subject: &RoundSubject| {
        let mut one = pattern.clone();
        one.insert("name".to_owned(), Value::String(subject.name.clone()));
        one.insert("about".to_owned(), Value::String(subject.about.clone()));
        let with = one.entry("with").or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(with) = with {
            with.insert(option.to_owned(), Value::String(subject.product.clone()));
        }
        Value::Table(one)
    };
    table.insert("subject".to_owned(), Value::Array(subjects.iter().map(subject).collect()));
    table.insert("baseline".to_owned(), Value::String(ANCHOR.to_owned()));
    table.insert("title".to_owned(), Value::String(title.to_owned()));
    let design = table.entry("design").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(design) = design {
        design.insert("blocks".to_owned(), Value::Integer(blocks.into()));
    }
    write(&table)
}

fn parse(text: &str) -> Result<Table, BatchError> {
    text.parse().map_err(|error: toml::de::Error| damaged(error.message()))
}

fn write(table: &Table) -> Result<String, BatchError> {
    toml::to_string(table).map_err(|error| damaged(&error.to_string()))
}

fn named(table: &Table, kind: &str, name: &str) -> Result<Table, BatchError> {
    let all = table.get(kind).and_then(Value::as_array).into_iter().flatten();
    let mut tables = all.filter_map(Value::as_table);
    let found = tables.find(|one| one.get("name").and_then(Value::as_str) == Some(name));
    found.cloned().ok_or_else(|| damaged(&format!("it has no {kind} `{name}`")))
}

fn damaged(what: &str) -> BatchError {
    BatchError::Asked(format!("the experiment of the batch cannot be used: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::file::BatchFile;
    use crate::batch::settings::{Settings, Wanted};
    use crate::inputs::catalog::Catalog;
    use crate::inputs::experiment::{Adjustments, Experiment};
    use crate::inputs::toml_file;

    #[test]
    fn a_round_is_an_experiment_that_loads() {
        let catalog = Catalog::new(vec![]);
        let mut source = catalog.experiment("modsecurity").unwrap();
        source.text = source.text.replace("[[case]]\n", "[[case]]\nsubjects = ['full']\n");
        let case = Experiment::load(&catalog, "modsecurity", &Adjustments::default()).unwrap();
        let base = base(&source, &case.cases[0].name, "full", Some(0.07)).unwrap();
        let subject = |name: &str| RoundSubject {
            name: name.to_owned(),
            about: format!("{name}: \"quoted\""),
            product: format!("/products/{name}"),
        };
        let subjects = [subject(ANCHOR), subject("v4.7.0")];
        let text = experiment(&base, "A round", "crs", &subjects, 6).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("001.toml");
        std::fs::write(&path, &text).unwrap();
        let adjustments = Adjustments::default();
        let round = Experiment::load(&catalog, path.to_str().unwrap(), &adjustments).unwrap();
        assert_eq!((round.title.as_str(), round.baseline, round.stop.blocks), ("A round", 0, 6));
        assert!((round.margin - 0.07).abs() < 1e-12);
        assert_eq!(round.cases.len(), 1);
        let told: Vec<(String, String)> = round
            .subjects
            .iter()
            .map(|subject| (subject.name.clone(), subject.options["crs"].to_string()))
            .collect();
        let expected = [(ANCHOR, "/products/anchor"), ("v4.7.0", "/products/v4.7.0")];
        assert_eq!(told, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(round.subjects[1].options["site"].to_string(), "locations", "the rest stays");
    }

    #[test]
    fn each_file_of_revisions_is_a_batch_whose_rounds_load() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../revisions");
        let catalog = Catalog::new(vec![]);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let source =
                Source { name: name.clone(), text: std::fs::read_to_string(&path).unwrap() };
            let file: BatchFile = toml_file::parse(&source).unwrap();
            let settings = Settings::of(&file, &folder, &catalog).unwrap();
            Wanted::of(&file, &folder).unwrap();
            let subject = |name: &str| RoundSubject {
                name: name.to_owned(),
                about: String::new(),
                product: "/products/one".to_owned(),
            };
            let subjects = [subject(ANCHOR), subject("one")];
            let text =
                experiment(&settings.base, "t", &settings.option, &subjects, settings.blocks);
            let dir = tempfile::tempdir().unwrap();
            let round = dir.path().join("001.toml");
            std::fs::write(&round, text.unwrap()).unwrap();
            let adjustments = Adjustments::default();
            let round = Experiment::load(&catalog, round.to_str().unwrap(), &adjustments).unwrap();
            assert_eq!(round.subjects.len(), 2, "{name}");
            names.push(name);
        }
        names.sort();
        assert_eq!(names, ["coraza", "crs", "gateway"]);
    }
}
