//! `tollgate load`: load on one server, and what came of it.

mod args;
mod content;
mod course;
#[cfg(test)]
mod examples;
mod live;
mod millis;
mod report;
mod result;
mod settings;
mod target;
mod verdict;
mod warm_up;

pub(crate) use args::Args;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals;
use anyhow::Context;
use live::Live;
use result::LoadResult;
use settings::Settings;
use tollgate_lab::layout::available_cpus;
use tollgate_lab::process::files;
use tollgate_load::{Generator, Outcome};
use verdict::{TOO_MANY, share_overdue};

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = args.catalog.open()?;
    let settings = Settings::of(args, &catalog).map_err(Failure::bad_input)?;
    let files_max = files::raise_limit().context("raising the limit of open files")?;
    let cpus = available_cpus().context("asking for the CPUs")?;
    settings.check_machine(files_max, &cpus).map_err(Failure::bad_input)?;
    // Nothing that the load sends outlives the program.
    let at_once = || std::process::exit(Exit::Interrupted as i32);
    let interrupt = signals::interrupt(at_once).context("asking for signals")?;
    let generator = Generator::start(settings.plan())?;
    let mut live = Live::new();
    let course = course::run(&settings, &generator, &mut live, &interrupt);
    generator.close_window();
    live.end();
    let outcome = generator.finish()?;
    let result = LoadResult::of(&settings, course, &outcome)?;
    let report = report::render(&settings, &outcome, &result)?;
    output::print(&report)?;
    Ok(match course.is_interrupted {
        true => Exit::Interrupted,
        false => exit(&outcome),
    })
}

/// Whether the load was delivered.
fn exit(outcome: &Outcome) -> Exit {
    if outcome.answered == 0 {
        return Exit::Nothing;
    }
    match share_overdue(outcome) > TOO_MANY {
        true => Exit::Partial,
        false => Exit::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_of_which_too_much_was_never_sent_is_delivered_in_part() {
        let overdue = |overdue| Outcome { sent: 9_900, overdue, ..examples::outcome() };
        assert_eq!(exit(&overdue(0)), Exit::Done);
        // 100 of 10,000 are one in a hundred, 101 of 10,001 more.
        assert_eq!(exit(&overdue(100)), Exit::Done);
        assert_eq!(exit(&overdue(101)), Exit::Partial);
        assert_eq!(exit(&Outcome { answered: 0, ..examples::outcome() }), Exit::Nothing);
    }
}
