//! What held the throughput of a trial down.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What held the throughput down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// The system's CPUs were spent: the throughput is the system's.
    System,
    /// The generator's CPUs were spent, or it sent late: the throughput is a lower bound.
    Generator,
    /// The origin's CPUs were spent: the throughput is a lower bound.
    Origin,
    /// No CPU was spent: the connections waited for each other.
    None,
}

/// How much of its CPUs each role used: 1 is all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Busy {
    /// The system's share; none for a subject without processes.
    pub system: Option<f64>,
    /// The generator's share.
    pub generator: f64,
    /// The origin's share; 0 where there is none.
    pub origin: f64,
    /// Whether generator and origin run on the same CPUs.
    pub shared: bool,
    /// Open loop: whether the generator was itself late.
    pub late: bool,
}

/// From this share on, the CPUs of a role are spent. Below 1, because a saturated loop still waits
/// for a moment whenever both sides happen to be idle.
const SPENT: f64 = 0.9;

/// Names the role whose CPUs were spent. A generator that was late comes first, because then the
/// latencies are its own; how late it was leaves out what waited for the system. Then comes the system:
/// once it is saturated, more of the others would change nothing.
pub fn name(busy: &Busy) -> Bottleneck {
    if busy.late {
        return Bottleneck::Generator;
    }
    if busy.system.is_some_and(|share| share >= SPENT) {
        return Bottleneck::System;
    }
    let larger =
        if busy.generator >= busy.origin { Bottleneck::Generator } else { Bottleneck::Origin };
    let together =
        if busy.shared { busy.generator + busy.origin } else { busy.generator.max(busy.origin) };
    if together >= SPENT { larger } else { Bottleneck::None }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::System => "system",
            Self::Generator => "generator",
            Self::Origin => "origin",
            Self::None => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(system: Option<f64>, generator: f64, origin: f64, shared: bool) -> Busy {
        Busy { system, generator, origin, shared, late: false }
    }

    #[test]
    fn the_role_whose_cpus_are_spent_is_named() {
        assert_eq!(name(&busy(Some(0.95), 0.6, 0.4, true)), Bottleneck::System);
        assert_eq!(name(&busy(Some(0.7), 0.6, 0.35, true)), Bottleneck::Generator);
        assert_eq!(name(&busy(None, 0.4, 0.55, true)), Bottleneck::Origin);
        assert_eq!(name(&busy(Some(0.5), 0.6, 0.35, false)), Bottleneck::None);
        assert_eq!(name(&busy(Some(0.5), 0.95, 0.35, false)), Bottleneck::Generator);
    }

    #[test]
    fn a_generator_that_was_late_is_named_before_a_saturated_system() {
        let late = Busy { late: true, ..busy(Some(0.95), 0.2, 0.2, true) };
        assert_eq!(name(&late), Bottleneck::Generator);
    }
}
