//! The machine of a run: its fingerprint, and the CPUs of each role.

use crate::error::bad_input;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Fingerprint of a machine. `None` is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Name, release and architecture.
    pub kernel: String,
    pub cpu_model: Option<String>,
    /// CPUs online.
    pub cpus: usize,
    /// CPUs that are hardware threads of one core, for each core that has several online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_cores: Option<Vec<Vec<usize>>>,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuLayout {
    /// CPUs of the load generator and of tollgate itself.
    #[schemars(extend("examples" = [[0]]))]
    pub generator: Vec<usize>,
    /// CPUs of the origins.
    #[schemars(extend("examples" = [[0]]))]
    pub origin: Vec<usize>,
    /// CPUs of the system, which no other role may use.
    #[schemars(extend("examples" = [[1]]))]
    pub system: Vec<usize>,
}

impl CpuLayout {
    /// Returns the layout of the experiment or, by default, generator and origin on the first available CPU and the
    /// system on the next one that is of another core, if there is one.
    pub fn choose(
        asked: Option<&Self>,
        available: &[usize],
        shared_cores: &[Vec<usize>],
    ) -> anyhow::Result<Self> {
        let Some(layout) = asked else {
            let system = available.split_first().and_then(|(first, others)| {
                let is_apart = |cpu: &&usize| !are_of_one_core(*first, **cpu, shared_cores);
                Some((*first, *others.iter().find(is_apart).or(others.first())?))
            });
            let Some((first, system)) = system else {
                return Err(bad_input(format!(
                    "a run needs two CPUs, one of them for the system alone, but this process may use only CPU \
                     {available:?}; allow it a second CPU"
                )));
            };
            return Ok(Self { generator: vec![first], origin: vec![first], system: vec![system] });
        };
        for role in [&layout.generator, &layout.origin, &layout.system] {
            let is_twice = |cpu: &&usize| role.iter().filter(|other| other == cpu).count() > 1;
            if let Some(cpu) = role.iter().find(is_twice) {
                return Err(bad_input(format!("[cpus] names CPU {cpu} twice for one role")));
            }
        }
        if let Some(cpu) = layout.all().iter().find(|cpu| !available.contains(cpu)) {
            return Err(bad_input(format!(
                "[cpus] names CPU {cpu}, which is not available to this process; available: {available:?}"
            )));
        }
        let measures = |cpu: &&usize| layout.generator.contains(cpu) || layout.origin.contains(cpu);
        match layout.system.iter().find(measures) {
            Some(cpu) => Err(bad_input(format!(
                "[cpus] gives CPU {cpu} to the system and to another role; give the system its own CPUs"
            ))),
            None => Ok(layout.clone()),
        }
    }

    /// Returns all CPUs in use, sorted.
    pub fn all(&self) -> Vec<usize> {
        let all = [&self.generator, &self.origin, &self.system];
        let distinct: BTreeSet<usize> = all.into_iter().flatten().copied().collect();
        distinct.into_iter().collect()
    }

    /// A CPU of the system and one of another role that are hardware threads of one core.
    pub fn core_shared_with_system(&self, shared_cores: &[Vec<usize>]) -> Option<(usize, usize)> {
        let others = || [&self.generator, &self.origin].into_iter().flatten();
        self.system.iter().find_map(|&system| {
            let other = others().find(|&&other| are_of_one_core(system, other, shared_cores))?;
            Some((system, *other))
        })
    }

    /// Returns the first CPU that generator and origin share.
    pub fn shared_cpu(&self) -> Option<usize> {
        self.generator.iter().copied().find(|cpu| self.origin.contains(cpu))
    }
}

fn are_of_one_core(one: usize, other: usize, shared_cores: &[Vec<usize>]) -> bool {
    one != other && shared_cores.iter().any(|cpus| cpus.contains(&one) && cpus.contains(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_has_a_core_of_its_own_if_there_is_one() {
        let pairs = [vec![0, 1], vec![2, 3]];
        let layout = |available: &[usize]| CpuLayout::choose(None, available, &pairs).unwrap();
        assert_eq!(layout(&[0, 1, 2, 3]).system, [2]);
        assert_eq!(layout(&[0, 1, 2, 3]).core_shared_with_system(&pairs), None);
        assert_eq!(layout(&[1, 2]).system, [2]);
        let shared = layout(&[0, 1]);
        assert_eq!(shared.system, [1]);
        assert_eq!(shared.core_shared_with_system(&pairs), Some((1, 0)));
        let asked = CpuLayout { generator: vec![0], origin: vec![3], system: vec![2] };
        let asked = CpuLayout::choose(Some(&asked), &[0, 1, 2, 3], &pairs).unwrap();
        assert_eq!(asked.core_shared_with_system(&pairs), Some((2, 3)));
    }

    #[test]
    fn system_has_its_own_cpu_by_default() {
        let layout = CpuLayout::choose(None, &[2, 5, 6], &[]).unwrap();
        assert_eq!((layout.generator.clone(), layout.origin.clone()), (vec![2], vec![2]));
        assert_eq!(layout.system, [5]);
        assert_eq!(layout.all(), [2, 5]);
        assert!(layout.shared_cpu().is_some());
        let error = CpuLayout::choose(None, &[3], &[]).unwrap_err().to_string();
        assert!(
            error.starts_with("a run needs two CPUs") && error.contains("only CPU [3]"),
            "{error}"
        );
    }

    #[test]
    fn unavailable_or_shared_cpu_is_an_error() {
        let asked = CpuLayout { generator: vec![0], origin: vec![1], system: vec![2] };
        assert_eq!(CpuLayout::choose(Some(&asked), &[0, 1, 2], &[]).unwrap().shared_cpu(), None);
        let error = |asked: &CpuLayout| {
            CpuLayout::choose(Some(asked), &[0, 1], &[]).unwrap_err().to_string()
        };
        assert_eq!(
            error(&asked),
            "[cpus] names CPU 2, which is not available to this process; available: [0, 1]"
        );
        let shared = CpuLayout { system: vec![1], ..asked.clone() };
        assert_eq!(
            error(&shared),
            "[cpus] gives CPU 1 to the system and to another role; give the system its own CPUs"
        );
        let twice = CpuLayout { system: vec![2, 2], ..asked };
        assert_eq!(error(&twice), "[cpus] names CPU 2 twice for one role");
    }
}
