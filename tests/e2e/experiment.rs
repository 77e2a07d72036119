//! The texts of short experiments, of which no trial is invalid because the machine is busy.

/// An experiment with one case, on the mix `browse`.
pub(crate) struct Experiment<'a> {
    pub(crate) title: &'a str,
    /// The keys of the case's load.
    pub(crate) load: &'a str,
    /// The first is the baseline.
    pub(crate) subjects: &'a [Subject<'a>],
    pub(crate) blocks: u32,
}

/// A subject: its name, its system, and the options that it chooses, of which there may be none.
pub(crate) type Subject<'a> = (&'a str, &'a str, &'a str);

impl Experiment<'_> {
    pub(crate) fn text(&self) -> String {
        let Self { title, load, subjects, blocks } = self;
        let [(baseline, ..), ..] = subjects else { panic!("an experiment needs a subject") };
        let subjects: String = subjects.iter().map(subject).collect();
        format!(
            r#"
title    = "{title}"
baseline = "{baseline}"

[[case]]
name = "browse"
mix  = "browse"
load = {{ {load} }}

{subjects}[design]
blocks = {blocks}

[limits]
steal       = "100%"
foreign_cpu = "100%"
halt        = "100%"
skew        = "100%"
"#
        )
    }
}

fn subject((name, system, options): &Subject<'_>) -> String {
    let with = match *options {
        "" => String::new(),
        options => format!("with   = {{ {options} }}\n"),
    };
    format!("[[subject]]\nname   = \"{name}\"\nsystem = \"{system}\"\n{with}\n")
}

/// A proxy, and the same with a WAF: for tests that look at something else than the figures.
pub(crate) fn two_subjects() -> String {
    let experiment = Experiment {
        title: "Does the road hold?",
        load: r#"connections = 4, duration = "500ms", warmup = "50ms""#,
        subjects: &[
            ("nginx", "nginx", ""),
            ("full", "nginx-modsecurity", r#"rules = "crs", crs = "packaged""#),
        ],
        blocks: 4,
    };
    experiment.text()
}
