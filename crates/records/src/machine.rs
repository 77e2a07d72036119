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
    /// system on the second.
    pub fn choose(asked: Option<&Self>, available: &[usize]) -> anyhow::Result<Self> {
        let Some(layout) = asked else {
            let [first, second, ..] = available else {
                return Err(bad_input(format!(
                    "a run needs two CPUs, one of them for the system alone, but this process may use only CPU \
                     {available:?}; allow it a second CPU"
                )));
            };
            let first = vec![*first];
            return Ok(Self { generator: first.clone(), origin: first, system: vec![*second] });
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
        let error = CpuLayout::choose(None, &[3]).unwrap_err().to_string();
        assert!(
            error.starts_with("a run needs two CPUs") && error.contains("only CPU [3]"),
            "{error}"
        );
    }

    #[test]
    fn unavailable_or_shared_cpu_is_an_error() {
        let asked = CpuLayout { generator: vec![0], origin: vec![1], system: vec![2] };
        assert_eq!(CpuLayout::choose(Some(&asked), &[0, 1, 2]).unwrap().shared_cpu(), None);
        let error =
            |asked: &CpuLayout| CpuLayout::choose(Some(asked), &[0, 1]).unwrap_err().to_string();
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
