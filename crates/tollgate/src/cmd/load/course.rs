//! The course of a load: its warm-up, its measurement, and its end.

use super::args::WarmUp;
use super::live::{Live, Phase};
use super::settings::{End, Settings};
use super::warm_up::{self, WarmedUp};
use std::time::Instant;
use tollgate_lab::interrupt::{Interrupt, Interrupted};
use tollgate_load::{Arrivals, Generator};

/// How a load went, besides its figures.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Course {
    /// What came of the warm-up.
    pub(crate) warm_up: WarmedUp,
    /// Whether it was asked to stop before it was delivered.
    pub(crate) is_interrupted: bool,
}

/// Warms up and measures, until the load is delivered, the time is up, or a signal asks for an end.
/// An interrupted load has a result too.
pub(super) fn run(
    settings: &Settings,
    generator: &Generator,
    live: &mut Live,
    interrupt: &Interrupt,
) -> Course {
    let mut warm_up = WarmedUp::default();
    let delivered = deliver(settings, generator, live, interrupt, &mut warm_up);
    Course { warm_up, is_interrupted: delivered.is_err() }
}

fn deliver(
    settings: &Settings,
    generator: &Generator,
    live: &mut Live,
    interrupt: &Interrupt,
    warmed_up: &mut WarmedUp,
) -> Result<(), Interrupted> {
    live.watch(generator, Some(generator.begins_at()), interrupt)?;
    if settings.warm_up != WarmUp::None {
        let is_open_loop = matches!(settings.arrivals, Arrivals::Open { .. });
        *warmed_up = warm_up::run(settings.warm_up, is_open_loop, generator, live, interrupt);
        interrupt.check()?;
        generator.open_window();
    }
    match settings.end {
        End::Requests(requests) => {
            live.enter(Phase::Requests(requests));
            live.watch(generator, None, interrupt)
        }
        End::After(duration) => {
            let until = Instant::now() + duration;
            live.enter(Phase::Until(until));
            live.watch(generator, Some(until), interrupt)
        }
    }
}
