//! Which CPUs each role runs on.

use crate::experiment::CpusFile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// The CPUs of each role, by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLayout {
    /// The load generator's, and the lab's own.
    pub generator: Vec<usize>,
    /// The origin's.
    pub origin: Vec<usize>,
    /// The system's.
    pub system: Vec<usize>,
}

/// A layout that this machine cannot give.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CpuLayoutError {
    /// A CPU that is not there, or that this process may not use.
    #[error("[cpus] names CPU {0}, and this process may run on {1:?} only")]
    NotAvailable(usize, Vec<usize>),
    /// A role has a CPU twice.
    #[error("[cpus] names CPU {0} twice for one role")]
    Twice(usize),
    /// The system would compete with what measures it.
    #[error(
        "[cpus] gives CPU {0} to the system and to what measures it; give the system CPUs of its own"
    )]
    Overlap(usize),
    /// The generator would take the origin's CPU.
    #[error(
        "case {case:?} has `busy_poll`, for which the generator needs a CPU of its own, and CPU {cpu} is the origin's too: give them different ones in [cpus], or leave `busy_poll` out"
    )]
    BusyPoll {
        /// The case.
        case: String,
        /// A CPU that both have.
        cpu: usize,
    },
    /// There is no CPU for the system alone.
    #[error(
        "this process may run on CPU {0:?} only; the system under test needs one of its own, so allow it a second"
    )]
    TooFew(Vec<usize>),
}

impl CpuLayout {
    /// The experiment's layout, or the default: generator and origin on the first CPU, the system
    /// on the second, the same for every subject.
    ///
    /// # Errors
    ///
    /// This machine cannot give it.
    pub fn choose(asked: Option<&CpusFile>, available: &[usize]) -> Result<Self, CpuLayoutError> {
        let Some(asked) = asked else {
            let [first, second, ..] = available else {
                return Err(CpuLayoutError::TooFew(available.to_vec()));
            };
            return Ok(Self {
                generator: vec![*first],
                origin: vec![*first],
                system: vec![*second],
            });
        };
        let layout = Self {
            generator: asked.generator.clone(),
            origin: asked.origin.clone(),
            system: asked.system.clone(),
        };
        for role in [&layout.generator, &layout.origin, &layout.system] {
            if let Some(cpu) = role.iter().find(|cpu| role.iter().filter(|c| c == cpu).count() > 1)
            {
                return Err(CpuLayoutError::Twice(*cpu));
            }
        }
        if let Some(cpu) = layout.all().iter().find(|cpu| !available.contains(cpu)) {
            return Err(CpuLayoutError::NotAvailable(*cpu, available.to_vec()));
        }
        let measures = |cpu: &&usize| layout.generator.contains(cpu) || layout.origin.contains(cpu);
        match layout.system.iter().find(measures) {
            Some(cpu) => Err(CpuLayoutError::Overlap(*cpu)),
            None => Ok(layout),
        }
    }

    /// Every CPU in use, once.
    pub fn all(&self) -> Vec<usize> {
        let all = [&self.generator, &self.origin, &self.system];
        let distinct: BTreeSet<usize> = all.into_iter().flatten().copied().collect();
        distinct.into_iter().collect()
    }

    /// Whether generator and origin have CPUs in common.
    pub fn shared(&self) -> bool {
        self.shared_cpu().is_some()
    }

    /// A CPU that generator and origin have in common.
    pub fn shared_cpu(&self) -> Option<usize> {
        self.generator.iter().copied().find(|cpu| self.origin.contains(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_the_system_has_a_cpu_of_its_own() {
        let layout = CpuLayout::choose(None, &[2, 5, 6]).unwrap();
        assert_eq!((layout.generator.clone(), layout.origin.clone()), (vec![2], vec![2]));
        assert_eq!(layout.system, [5]);
        assert_eq!(layout.all(), [2, 5]);
        assert!(layout.shared());
        assert_eq!(CpuLayout::choose(None, &[3]), Err(CpuLayoutError::TooFew(vec![3])));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let asked = CpusFile { generator: vec![0], origin: vec![1], system: vec![2] };
        assert!(!CpuLayout::choose(Some(&asked), &[0, 1, 2]).unwrap().shared());
        assert_eq!(
            CpuLayout::choose(Some(&asked), &[0, 1]),
            Err(CpuLayoutError::NotAvailable(2, vec![0, 1]))
        );
        let asked = CpusFile { system: vec![1], ..asked };
        assert_eq!(CpuLayout::choose(Some(&asked), &[0, 1]), Err(CpuLayoutError::Overlap(1)));
    }
}
