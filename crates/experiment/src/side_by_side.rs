//! An experiment from names of systems, for `tollgate run SYSTEM...` and `tollgate init`.

use crate::file::{CaseFile, DesignFile, ExperimentFile, SubjectFile};
use crate::load_file::{LoadFile, WarmUpFile};
use crate::loading::WrittenExperiment;
use crate::options::option_value;
use crate::toml_file::NamedText;
use std::path::Path;
use std::time::Duration;
use tollgate_records::error::bad_input;
use tollgate_records::subject::Options;
use tollgate_traffic::units::Span;

/// Systems side by side under one load.
#[derive(Debug, Clone, Copy)]
pub struct SideBySide<'a> {
    /// Words that [`SystemWord::split`] splits. The first one is the baseline.
    pub systems: &'a [String],
    /// A name, or a path that ends in `.toml`.
    pub mix: &'a str,
    pub connections: u32,
    pub duration: Span,
}

/// Parts of `NAME=SYSTEM:OPTION=VALUE,...`, of which name and options may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemWord<'a> {
    /// Name of the subject.
    pub name: Option<&'a str>,
    pub system: &'a str,
    /// Without the colon.
    pub options: Option<&'a str>,
}

impl<'a> SystemWord<'a> {
    pub fn split(word: &'a str) -> Self {
        let (front, options) = match word.split_once(':') {
            Some((front, options)) => (front, Some(options)),
            None => (word, None),
        };
        let (name, system) = match front.split_once('=') {
            Some((name, system)) => (Some(name), system),
            None => (None, front),
        };
        Self { name, system, options }
    }
}

/// Limit of the name of an experiment made from names of systems, in bytes.
const LONGEST_NAME: usize = 60;

/// Comments of [`SideBySide::commented`], each before the first line that equals its key.
const COMMENTS: [(&str, &str); 4] = [
    ("[[case]]", "# A workload. `tollgate list` shows the mixes; a file is \"./mine.toml\".\n"),
    (
        "[case.load]",
        "# Each connection sends when its last response is complete. With a `rate`, such as 2000 requests per second, requests\n\
         # are sent on a schedule, to find the latency at a known load.\n",
    ),
    ("[[subject]]", "# The systems. `tollgate systems show NAME` lists the options for `with`.\n"),
    (
        "[design]",
        "# Each block runs every subject once; fewer than 6 give no interval. Instead of `blocks`, `width = \"2%\"` runs until all\n\
         # intervals are this narrow.\n",
    ),
];

const WARM_UP: Duration = Duration::from_millis(400);
const BLOCKS: u32 = 8;

impl<'a> SideBySide<'a> {
    pub fn experiment(&self) -> anyhow::Result<WrittenExperiment> {
        WrittenExperiment::new(&self.name(), NamedText::COMMAND_LINE, self.file()?)
    }

    /// Returns the experiment as TOML with comments.
    pub fn commented(&self) -> anyhow::Result<String> {
        let mut text = "# An experiment for `tollgate run FILE`. docs/experiments.md describes all keys. Prices are over the \
                        baseline.\n\n"
            .to_owned();
        let mut comments = COMMENTS.to_vec();
        for line in self.file()?.to_toml()?.lines() {
            if let Some(at) = comments.iter().position(|(before, _)| *before == line) {
                text += comments.remove(at).1;
            }
            text += line;
            text.push('\n');
        }
        Ok(text)
    }

    fn name(&self) -> String {
        let mut name = self.subject_names().join("-");
        name.truncate(LONGEST_NAME);
        name
    }

    /// Returns the chosen names, and otherwise the shortest that distinguish: the system, with the options that differ
    /// between the subjects of one system.
    fn subject_names(&self) -> Vec<String> {
        let words: Vec<_> = self.systems.iter().map(|word| SystemWord::split(word)).collect();
        let pairs = |word: &SystemWord<'a>| -> Vec<&'a str> {
            word.options.into_iter().flat_map(|options| options.split(',')).collect()
        };
        let name = |word: &SystemWord<'a>| {
            if let Some(name) = word.name {
                return name.to_owned();
            }
            let same: Vec<Vec<&str>> = words
                .iter()
                .filter(|other| other.name.is_none() && other.system == word.system)
                .map(pairs)
                .collect();
            let differs = |pair: &&str| !same.iter().all(|pairs| pairs.contains(pair));
            let chosen = pairs(word).into_iter().filter(differs);
            plain(&[word.system].into_iter().chain(chosen).collect::<Vec<_>>().join("-"))
        };
        words.iter().map(name).collect()
    }

    fn file(&self) -> anyhow::Result<ExperimentFile> {
        let names = self.subject_names();
        let title = match &names[..] {
            [alone] => alone.clone(),
            several => format!("{} side by side", several.join(", ")),
        };
        let mix_name = Path::new(self.mix).file_stem();
        let case = CaseFile::new(
            &plain(&mix_name.map_or(self.mix.into(), |stem| stem.to_string_lossy())),
            self.mix,
            LoadFile {
                warmup: WarmUpFile::For(WARM_UP),
                ..LoadFile::closed(self.connections, self.duration)
            },
        );
        let subject = |(system, name): (&String, &String)| subject(system, name);
        let subjects = self.systems.iter().zip(&names).map(subject);
        let baseline = names.first().cloned().unwrap_or_default();
        Ok(ExperimentFile {
            design: DesignFile { blocks: Some(BLOCKS), ..DesignFile::default() },
            ..ExperimentFile::new(title, baseline, vec![case], subjects.collect::<Result<_, _>>()?)
        })
    }
}

fn subject(text: &str, name: &str) -> anyhow::Result<SubjectFile> {
    let SystemWord { system, options, .. } = SystemWord::split(text);
    let mut with = Options::new();
    for option in options.into_iter().flat_map(|options| options.split(',')) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if with.insert(key.to_owned(), option_value(value)).is_some() {
            return Err(bad_input(format!(
                "{}: `{text}` sets option `{key}` twice; remove one",
                NamedText::COMMAND_LINE
            )));
        }
    }
    let about = match options {
        Some(options) => format!("{system}: {}", options.replace('=', " = ").replace(',', ", ")),
        None if name != system => system.to_owned(),
        None => String::new(),
    };
    Ok(SubjectFile { with, about, ..SubjectFile::new(name, system) })
}

/// Replaces what a name of a subject or case may not contain.
fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.chars().map(|c| if is_plain(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adjust::Adjustments;
    use crate::catalog::Catalog;
    use crate::experiment::Experiment;
    use crate::toml_file;
    use std::time::Duration;
    use tollgate_records::subject::OptionValue;
    use tollgate_traffic::load_shape::Window;

    fn load(systems: &[&str], mix: &str) -> anyhow::Result<Experiment> {
        let systems: Vec<String> = systems.iter().map(|&system| system.to_owned()).collect();
        let duration = Span(Duration::from_millis(1_500));
        let sides = SideBySide { systems: &systems, mix, connections: 7, duration };
        let (catalog, adjustments) = (Catalog::new(vec![]), Adjustments::default());
        Experiment::from_written(&catalog, sides.experiment()?, &adjustments)
    }

    #[test]
    fn systems_are_subjects_and_the_first_is_the_baseline() {
        let experiment =
            load(&["nginx", "haproxy", "nginx-modsecurity:rules=crs,workers=2"], "browse").unwrap();
        let names: Vec<&str> = experiment.subjects.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["nginx", "haproxy", "nginx-modsecurity"]);
        assert_eq!(experiment.subjects[2].about, "nginx-modsecurity: rules = crs, workers = 2");
        assert_eq!(experiment.baseline, 0);
        assert_eq!(experiment.name, "nginx-haproxy-nginx-modsecurity");
        let options = &experiment.subjects[2].options;
        assert_eq!(options["rules"], OptionValue::Text("crs".to_owned()));
        assert_eq!(options["workers"], OptionValue::Integer(2));
        let load = &experiment.cases[0].load;
        assert_eq!(load.connections(), 7);
        assert_eq!(load.window, Window::For(Duration::from_millis(1_500)));
    }

    #[test]
    fn names_are_chosen_or_the_shortest_that_distinguish() {
        for (systems, expected) in [
            (&["nginx:workers=2"][..], &["nginx"][..]),
            (&["nginx", "nginx:workers=2"], &["nginx", "nginx-workers-2"]),
            (
                &["nginx-modsecurity:rules=crs,workers=1", "nginx-modsecurity:rules=crs,workers=2"],
                &["nginx-modsecurity-workers-1", "nginx-modsecurity-workers-2"],
            ),
            (&["old=nginx:workers=1", "nginx:workers=2"], &["old", "nginx"]),
            (&["a=nginx", "b=nginx"], &["a", "b"]),
        ] {
            let experiment = load(systems, "browse").unwrap();
            let names: Vec<_> = experiment.subjects.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, expected, "{systems:?}");
        }
        let word = SystemWord::split("a=b:c=d,e=f");
        let expected = SystemWord { name: Some("a"), system: "b", options: Some("c=d,e=f") };
        assert_eq!(word, expected);
    }

    #[test]
    fn errors_name_the_system() {
        for (systems, mix, reason) in [
            (
                &["nginx", "haprox"][..],
                "browse",
                "unknown system `haprox`; did you mean `haproxy`?",
            ),
            (&["nginx:worker=2"], "browse", "system `nginx` has no option `worker`"),
            (&["nginx:"], "browse", "system `nginx` has no option ``"),
            (&["nginx:workers=2,"], "browse", "system `nginx` has no option ``"),
            (&["nginx:workers=2,workers=3"], "browse", "sets option `workers` twice"),
            (&["nginx", "nginx"], "browse", "two subjects are named `nginx`"),
            (&["nginx", "nginx=haproxy"], "browse", "two subjects are named `nginx`"),
            (&["nginx", "a b=haproxy"], "browse", "`a b`"),
            (&["nginx"], "brows", "unknown mix `brows`; did you mean `browse`?"),
            (&["nginx"], "./none.toml", "cannot read ./none.toml"),
        ] {
            let error = format!("{:#}", load(systems, mix).unwrap_err());
            assert!(error.contains(reason), "{systems:?}: {error}");
            let place = if mix == "browse" { "systems on the command line: " } else { "--mix: " };
            assert!(error.starts_with(place), "{error}");
        }
        let systems = ["nginx".to_owned()];
        let duration = Span(Duration::from_secs(86_400));
        let sides = SideBySide { systems: &systems, mix: "browse", connections: 7, duration };
        let error = format!("{:#}", sides.experiment().unwrap_err());
        assert_eq!(error, "--duration: expected 150ms to 1h, got 1day");
    }

    #[test]
    fn commented_text_is_the_experiment() {
        let systems = ["nginx", "nginx-modsecurity:rules=crs,workers=2"].map(str::to_owned);
        let duration = Span(Duration::from_secs(2));
        let sides = SideBySide { systems: &systems, mix: "browse", connections: 50, duration };
        let text = sides.commented().unwrap();
        let source = NamedText { name: "mine.toml".to_owned(), text: text.clone() };
        assert_eq!(toml_file::parse::<ExperimentFile>(&source).unwrap(), sides.file().unwrap());
        for (before, comment) in COMMENTS {
            assert!(text.contains(&format!("{comment}{before}\n")), "{before}: {text}");
        }
    }
}
