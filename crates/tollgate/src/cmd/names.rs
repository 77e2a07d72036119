//! Names of `run` and `search`: an experiment, or systems side by side.

use anyhow::bail;
use std::time::Duration;
use tollgate_experiment::catalog::{Catalog, Kind};
use tollgate_experiment::side_by_side::{SideBySide, SystemWord};
use tollgate_records::error::nearest;
use tollgate_traffic::units::Span;

/// Default of `tollgate run`, `search` and `doctor`.
pub(crate) const DEFAULT_EXPERIMENT: &str = "first-look";

#[derive(Debug, clap::Args)]
pub(crate) struct NamesArgs {
    /// Name of an experiment (see `tollgate list`), or a .toml file; or systems, the first of which is the baseline
    ///
    /// Systems may have options, and names of their own: NAME=SYSTEM:OPTION=VALUE,...
    #[arg(default_value = DEFAULT_EXPERIMENT, value_name = "NAME | FILE.toml | SYSTEM")]
    pub(super) names: Vec<String>,
    /// Of systems: mix to send, a name or a .toml file [default: browse]
    #[arg(long, value_name = "NAME | FILE.toml")]
    mix: Option<String>,
    /// Of systems: connections [default: 50]
    #[arg(short, long, value_name = "N")]
    connections: Option<u32>,
    /// Of systems: length of a trial [default: 2s]
    #[arg(short, long, value_name = "TIME", value_parser = span)]
    duration: Option<Span>,
}

/// A duration; a number alone is in seconds.
fn span(text: &str) -> Result<Span, String> {
    let parsed: Result<Span, _> = text.parse();
    parsed.or_else(|error| format!("{text}s").parse().ok().ok_or_else(|| error.to_string()))
}

impl NamesArgs {
    /// The experiment, if the names are not those of systems.
    pub(super) fn experiment(&self) -> &str {
        &self.names[0]
    }

    /// Returns the systems to run side by side; `None` for an experiment.
    pub(super) fn side_by_side(&self, catalog: &Catalog) -> anyhow::Result<Option<SideBySide<'_>>> {
        let options = self.mix.is_some() || self.connections.is_some() || self.duration.is_some();
        let system = |name: &str| SystemWord::split(name).system.to_owned();
        let (systems, experiments) = (catalog.names(Kind::System), catalog.names(Kind::Experiment));
        let is_experiment = |name: &&String| {
            !systems.contains(&system(name))
                && (name.ends_with(".toml") || experiments.contains(name))
        };
        if let Some(name) = self.names.iter().find(is_experiment) {
            if options || self.names.len() > 1 {
                bail!(
                    "{name} is an experiment: --mix, -c, -d and further names apply to systems, such as `nginx haproxy -c 50`"
                );
            }
            return Ok(None);
        }
        let mut names = self.names.iter().enumerate();
        if let Some((_, name)) = names.find(|(at, name)| self.names[..*at].contains(name)) {
            bail!("{name} is named twice; --aa runs the first system twice in each block");
        }
        // A misspelt name counts as the most similar one, which the error then suggests; a system precedes an
        // experiment of the same name.
        let known = systems.iter().chain(&experiments).map(String::as_str);
        let is_system = nearest(&system(&self.names[0]), known)
            .is_some_and(|name| systems.iter().any(|system| system == name));
        Ok((options || self.names.len() > 1 || is_system).then(|| SideBySide {
            systems: &self.names,
            mix: self.mix.as_deref().unwrap_or("browse"),
            connections: self.connections.unwrap_or(50),
            duration: self.duration.unwrap_or(Span(Duration::from_secs(2))),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        names: NamesArgs,
    }

    fn args(line: &str) -> NamesArgs {
        let words = ["tollgate"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().names
    }

    #[test]
    fn names_are_an_experiment_or_systems() {
        let catalog = Catalog::new(vec![]);
        let sides = |line: &str| {
            args(line).side_by_side(&catalog).map(|sides| {
                sides.map(|s| format!("{} {} {}", s.systems.join(" "), s.connections, s.duration))
            })
        };
        for line in ["", "modsecurity", "mine.toml", "unknown"] {
            assert_eq!(sides(line).unwrap(), None, "{line}");
        }
        assert_eq!(sides("nginx").unwrap().unwrap(), "nginx 50 2s");
        assert_eq!(sides("ngnix").unwrap().unwrap(), "ngnix 50 2s");
        let line = "nginx haproxy --mix browse -c 9 -d 2";
        assert_eq!(sides(line).unwrap().unwrap(), "nginx haproxy 9 2s");
        assert_eq!(sides("a=nginx").unwrap().unwrap(), "a=nginx 50 2s");
        let line = "nginx:workers=2 unknown -d 500ms";
        assert_eq!(sides(line).unwrap().unwrap(), "nginx:workers=2 unknown 50 500ms");
        for line in ["-c 9", "modsecurity --mix browse", "nginx mine.toml", "wafs modsecurity"] {
            let error = sides(line).unwrap_err().to_string();
            assert!(error.contains("is an experiment: --mix"), "{line}: {error}");
        }
        let error = sides("haproxy nginx nginx").unwrap_err().to_string();
        assert!(error.starts_with("nginx is named twice; --aa"), "{error}");
    }
}
