//! `--threshold`: conditions that a run has to keep, for `tollgate run` and `tollgate report`.

use crate::exit::{Exit, Failure};
use crate::output::{self, tell};
use anyhow::Context;
use std::path::Path;
use tollgate_lab::analysis::Analysis;
use tollgate_lab::gate::{self, Gate, Judged, Outcome};
use tollgate_lab::report;
use tollgate_lab::report::layout::Screen;
use tollgate_lab::run_dir::RunRecords;

/// What a subcommand is told of gates.
#[derive(Debug, clap::Args)]
pub(crate) struct GateArgs {
    /// A condition on the 95 % interval of a figure, such as 'cpu(full/off)<60': exits with 99 when
    /// it is broken and with 75 when it is not settled; may be given several times
    ///
    /// METRIC(SUBJECT/SUBJECT) is a ratio, METRIC(SUBJECT) the figure itself; METRIC(SUBJECT @ CASE)
    /// asks of one case, else every case has to hold. Metrics and the units of their bounds, the
    /// first of which may be left out: cpu (us, ns, ms), throughput (/s), p50, p99, mean, startup (ms,
    /// us, s), memory (MiB, KiB, GiB), caught and alarms (%); ratios (x, %). Compared by < <= > >=.
    #[arg(long = "threshold", value_name = "GATE")]
    threshold: Vec<String>,
}

impl GateArgs {
    /// The gates, for a run with these subjects and cases.
    ///
    /// # Errors
    ///
    /// One cannot be read, or names what the run does not have.
    pub(crate) fn gates(&self, subjects: &[&str], cases: &[&str]) -> Result<Vec<Gate>, Failure> {
        let gate = |text: &String| {
            let gate: Gate = text.parse()?;
            gate.check(subjects, cases)?;
            Ok(gate)
        };
        let gates: Result<_, gate::GateError> = self.threshold.iter().map(gate).collect();
        gates.context("--threshold").map_err(Failure::bad_input)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.threshold.is_empty()
    }

    /// The words of a command line that asks the same.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        self.threshold.iter().flat_map(|gate| ["--threshold".to_owned(), gate.clone()])
    }

    /// The gates, for a run that has been analysed.
    ///
    /// # Errors
    ///
    /// As those of [`Self::gates`].
    pub(crate) fn of(&self, analysis: &Analysis) -> Result<Vec<Gate>, Failure> {
        let cases: Vec<&str> = analysis.cases.iter().map(|case| &*case.case.name).collect();
        let subjects = analysis.cases.iter().flat_map(|case| &case.subjects);
        let mut subjects: Vec<&str> = subjects.map(|subject| &*subject.name).collect();
        subjects.sort_unstable();
        subjects.dedup();
        self.gates(&subjects, &cases)
    }
}

/// Judges a run by its gates, prints them, and tells how the subcommand ends that would have ended
/// with `exit`. With a format that is for programs, they go to standard error.
///
/// # Errors
///
/// The run's directory cannot be read.
pub(crate) fn judge(
    gates: &[Gate],
    dir: &Path,
    analysis: &Analysis,
    format: report::Format,
    exit: Exit,
) -> Result<Exit, Failure> {
    if gates.is_empty() {
        return Ok(exit);
    }
    let run = RunRecords::read(dir)?;
    let judged: Vec<Judged> =
        gates.iter().flat_map(|gate| gate::judge(gate, &run, analysis)).collect();
    let as_table = |screen| gate::render(&judged, gate::Format::Table { screen });
    match format {
        report::Format::Table => output::print(&format!("\n{}", as_table(output::screen())))?,
        report::Format::Markdown => {
            output::print(&format!("\n{}", gate::render(&judged, gate::Format::Markdown)))?;
        }
        _ => tell(as_table(Screen::PLAIN).trim_end()),
    }
    Ok(match gate::overall(&judged) {
        Outcome::Broken => Exit::Broken,
        Outcome::NotSettled => Exit::NotSettled,
        Outcome::Held => exit,
    })
}
