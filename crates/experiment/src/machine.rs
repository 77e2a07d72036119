//! The machine of a run: its fingerprint, and the CPUs of each role.

use crate::experiment::CpusFile;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Fingerprint of a machine. `None` is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Name, release and architecture.
    pub kernel: String,
    pub cpu_model: Option<String>,
    /// CPUs online.
    pub cpus: usize,
    /// The kernel's mitigation of each CPU vulnerability.
    pub mitigations: BTreeMap<String, String>,
    pub hypervisor: Option<String>,
    pub governor: Option<String>,
    pub clock_source: Option<String>,
    /// Soft and hard limit of a process.
    pub open_files: (u64, u64),
    pub somaxconn: Option<String>,
    /// Ports of outgoing connections.
    pub port_range: Option<String>,
}

impl Environment {
    /// Describes the machine in one line.
    pub fn in_short(&self) -> String {
        let model = self.cpu_model.as_deref().unwrap_or("unknown CPU");
        let host = match &self.hypervisor {
            Some(hypervisor) => format!("virtual machine ({hypervisor})"),
            None => "bare metal".to_owned(),
        };
        format!("{} x {model}, {}, {host}", self.cpus, self.kernel)
    }
}

/// CPU numbers of each role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLayout {
    /// Also used by tollgate itself.
    pub generator: Vec<usize>,
    pub origin: Vec<usize>,
    pub system: Vec<usize>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum CpuLayoutError {
    #[error("[cpus] names CPU {0}, which is not available to this process; available: {1:?}")]
    NotAvailable(usize, Vec<usize>),
    #[error("[cpus] names CPU {0} twice for one role")]
    Twice(usize),
    #[error("[cpus] gives CPU {0} to the system and to another role; give the system its own CPUs")]
    Overlap(usize),
    #[error(
        "case `{case}` has `busy_poll`, which needs a CPU without an origin, but generator and origin share CPU {cpu}; \
         give them different CPUs in [cpus], or remove `busy_poll`"
    )]
    BusyPoll { case: String, cpu: usize },
    #[error(
        "a run needs two CPUs, one of them for the system alone, but this process may use only CPU {0:?}; allow it a \
         second CPU"
    )]
    TooFew(Vec<usize>),
}

impl CpuLayout {
    /// Returns the layout of the experiment or, by default, generator and origin on the first available CPU and the
    /// system on the second.
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

    /// Returns all CPUs in use, sorted.
    pub fn all(&self) -> Vec<usize> {
        let all = [&self.generator, &self.origin, &self.system];
        let distinct: BTreeSet<usize> = all.into_iter().flatten().copied().collect();
        distinct.into_iter().collect()
    }

    /// Returns the first CPU that generator and origin share.
    pub fn shared_cpu(&self) -> Option<usize> {
        self.generator.iter().copied().find(|cpu| self.origin.contains(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_has_its_own_cpu_by_default() {
        let layout = CpuLayout::choose(None, &[2, 5, 6]).unwrap();
        assert_eq!((layout.generator.clone(), layout.origin.clone()), (vec![2], vec![2]));
        assert_eq!(layout.system, [5]);
        assert_eq!(layout.all(), [2, 5]);
        assert!(layout.shared_cpu().is_some());
        assert_eq!(CpuLayout::choose(None, &[3]), Err(CpuLayoutError::TooFew(vec![3])));
    }

    #[test]
    fn unavailable_or_shared_cpu_is_an_error() {
        let asked = CpusFile { generator: vec![0], origin: vec![1], system: vec![2] };
        assert_eq!(CpuLayout::choose(Some(&asked), &[0, 1, 2]).unwrap().shared_cpu(), None);
        assert_eq!(
            CpuLayout::choose(Some(&asked), &[0, 1]),
            Err(CpuLayoutError::NotAvailable(2, vec![0, 1]))
        );
        let asked = CpusFile { system: vec![1], ..asked };
        assert_eq!(CpuLayout::choose(Some(&asked), &[0, 1]), Err(CpuLayoutError::Overlap(1)));
    }
}
