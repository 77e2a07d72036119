//! An experiment from names of systems, for `tollgate run SYSTEM...` and `tollgate init`.

use crate::toml_file::Source;
use std::fmt::Write as _;
use std::path::Path;
use tollgate_records::units::Span;

/// Systems side by side under one load.
#[derive(Debug, Clone, Copy)]
pub struct SideBySide<'a> {
    /// `SYSTEM` or `SYSTEM:OPTION=VALUE,...`. The first one is the baseline.
    pub systems: &'a [String],
    /// A name, or a path that ends in `.toml`.
    pub mix: &'a str,
    pub connections: u32,
    pub duration: Span,
}

/// Limit of the name of an experiment made from names of systems, in bytes.
const LONGEST_NAME: usize = 60;

impl SideBySide<'_> {
    /// Returns the experiment as a TOML file with comments.
    pub fn source(&self) -> Source {
        let names: Vec<String> = self.systems.iter().map(|system| plain(system)).collect();
        let title = match &names[..] {
            [alone] => alone.clone(),
            several => format!("{} side by side", several.join(", ")),
        };
        let case = Path::new(self.mix).file_stem().map_or(self.mix.into(), |s| s.to_string_lossy());
        let mut text = format!(
            "\
# An experiment for `tollgate run FILE`. docs/experiments.md describes all keys.

title    = {}
baseline = {} # prices are over this subject

# A workload. `tollgate list` shows the mixes; a file is \"./mine.toml\".
[[case]]
name = {}
mix  = {}
load = {{ connections = {}, duration = {}, warmup = \"400ms\" }}
# An open loop sends on a schedule, to find the latency at a known rate:
# load = {{ connections = 50, rate = 2000, duration = \"10s\" }}

# The systems. `tollgate systems show NAME` lists the options for `with`.
",
            string(&title),
            string(names.first().map_or("", String::as_str)),
            string(&plain(&case)),
            string(self.mix),
            self.connections,
            string(&self.duration.to_string()),
        );
        for (system, name) in self.systems.iter().zip(&names) {
            text += &subject(system, name);
        }
        text += "\
[design]
blocks = 8 # each runs every subject once; fewer than 6 give no interval
# width = \"2%\" # instead: until all intervals are this narrow
";
        Source { name: Source::COMMAND_LINE.to_owned(), text }
    }

    pub fn name(&self) -> String {
        let names: Vec<String> = self.systems.iter().map(|system| plain(system)).collect();
        let mut name = names.join("-");
        name.truncate(LONGEST_NAME);
        name
    }
}

fn subject(text: &str, name: &str) -> String {
    let (system, options) = match text.split_once(':') {
        Some((system, options)) => (system, Some(options)),
        None => (text, None),
    };
    let mut lines =
        format!("[[subject]]\nname   = {}\nsystem = {}\n", string(name), string(system));
    let options: Vec<String> = options
        .into_iter()
        .flat_map(|options| options.split(','))
        .map(|option| {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let value = match value.parse::<i64>() {
                Ok(number) => number.to_string(),
                Err(_) => string(value),
            };
            format!("{} = {value}", string(key))
        })
        .collect();
    if !options.is_empty() {
        // Writing to a String cannot fail.
        writeln!(lines, "with   = {{ {} }}", options.join(", ")).ok();
    }
    lines + "\n"
}

/// Replaces what a name of a subject or case may not contain.
fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.chars().map(|c| if is_plain(c) { c } else { '-' }).collect()
}

/// Quotes a TOML string.
fn string(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adjust::Adjustments;
    use crate::catalog::Catalog;
    use crate::experiment::Experiment;
    use crate::load_shape::Window;
    use std::time::Duration;
    use tollgate_records::subject::OptionValue;

    fn load(systems: &[&str], mix: &str) -> anyhow::Result<Experiment> {
        let systems: Vec<String> = systems.iter().map(|&system| system.to_owned()).collect();
        let duration = Span(Duration::from_millis(1_500));
        let sides = SideBySide { systems: &systems, mix, connections: 7, duration };
        let (catalog, adjustments) = (Catalog::new(vec![]), Adjustments::default());
        Experiment::from_source(&catalog, &sides.name(), sides.source(), &adjustments)
    }

    #[test]
    fn systems_are_subjects_and_the_first_is_the_baseline() {
        let experiment =
            load(&["nginx", "haproxy", "nginx-modsecurity:rules=crs,workers=2"], "browse").unwrap();
        let names: Vec<&str> = experiment.subjects.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["nginx", "haproxy", "nginx-modsecurity-rules-crs-workers-2"]);
        assert_eq!(experiment.baseline, 0);
        assert_eq!(experiment.name, "nginx-haproxy-nginx-modsecurity-rules-crs-workers-2");
        let options = &experiment.subjects[2].options;
        assert_eq!(options["rules"], OptionValue::Text("crs".to_owned()));
        assert_eq!(options["workers"], OptionValue::Integer(2));
        let load = &experiment.cases[0].load;
        assert_eq!(load.connections, 7);
        assert_eq!(load.window(), Window::For(Duration::from_millis(1_500)));
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
            (&["nginx", "nginx"], "browse", "two subjects are named `nginx`"),
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
        let (catalog, adjustments) = (Catalog::new(vec![]), Adjustments::default());
        let load = Experiment::from_source(&catalog, "nginx", sides.source(), &adjustments);
        let error = format!("{:#}", load.unwrap_err());
        assert_eq!(error, "--duration: expected 150ms to 1h, got 1day");
    }
}
