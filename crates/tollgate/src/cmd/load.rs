//! `tollgate load`: load on one server, and what came of it.

mod args;
mod content;
#[cfg(test)]
mod examples;
mod live;
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
use settings::{End, Settings};
use std::sync::atomic::Ordering;
use std::time::Instant;
use tollgate_lab::interrupt::{Interrupt, Interrupted};
use tollgate_lab::process::files;
use tollgate_load::{Arrivals, Error, Generator, Outcome};
use verdict::{TOO_MANY, share_of_due};
use warm_up::WarmedUp;

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let catalog = args.catalog.open()?;
    let settings = Settings::of(args, &catalog).map_err(Failure::bad_input)?;
    files::raise_limit().context("raising the limit of open files")?;
    let interrupt = interrupt_on_signals()?;
    let generator = Generator::start(settings.plan()).map_err(|error| match error {
        Error::Cpus { .. } => Failure::bad_input(error),
        _ => Failure::from(error),
    })?;
    let mut live = Live::new(settings.end);
    let warmed_up = measure(&settings, &generator, &mut live, &interrupt);
    generator.close_window();
    live.end();
    let outcome = generator.finish()?;
    let result = LoadResult::of(&settings, warmed_up, &outcome)?;
    output::print(&report::render(&settings, &outcome, &result)?)?;
    Ok(match interrupt.check() {
        Err(Interrupted) => Exit::Interrupted,
        Ok(()) => exit(&outcome),
    })
}

/// A flag that the first signal sets; the second one ends the program at once.
fn interrupt_on_signals() -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::default();
    let wish = interrupt.flag();
    signals::listen(move |count| match count {
        1 => wish.store(true, Ordering::Relaxed),
        _ => std::process::exit(Exit::Interrupted as i32),
    })
    .context("asking for signals")?;
    Ok(interrupt)
}

/// Warms up and measures, until the load is delivered, the time is up, or a signal asks for an end.
fn measure(
    settings: &Settings,
    generator: &Generator,
    live: &mut Live,
    interrupt: &Interrupt,
) -> WarmedUp {
    let mut warmed_up = WarmedUp::default();
    let mut deliver = || {
        live.watch(generator, Some(generator.begins_at()), interrupt)?;
        let is_open_loop = matches!(settings.arrivals, Arrivals::Open { .. });
        warmed_up = warm_up::run(settings.warm_up, is_open_loop, generator, live, interrupt)?;
        generator.open_window();
        let until = match settings.end {
            End::Requests(_) => None,
            End::After(duration) => Some(Instant::now() + duration),
        };
        live.watch(generator, until, interrupt)
    };
    // An interrupted load has a result too; the exit code tells what happened to it.
    deliver().err();
    warmed_up
}

/// Whether the load was delivered.
fn exit(outcome: &Outcome) -> Exit {
    if outcome.answered == 0 {
        return Exit::Nothing;
    }
    match share_of_due(outcome.overdue, outcome) > TOO_MANY {
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
