//! The machine that a run was made on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The fingerprint of a machine. What it does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The kernel's name, release and architecture.
    pub kernel: String,
    /// The CPU's model.
    pub cpu_model: Option<String>,
    /// How many CPUs are online.
    pub cpus: usize,
    /// What the kernel does against each known flaw of the CPU.
    pub mitigations: BTreeMap<String, String>,
    /// The hypervisor, when there is one.
    pub hypervisor: Option<String>,
    /// The frequency governor, where the CPU has one.
    pub governor: Option<String>,
    /// The clock source.
    pub clock_source: Option<String>,
    /// How many files a process may open: soft and hard limit.
    pub open_files: (u64, u64),
    /// The longest queue of connections that wait to be accepted.
    pub somaxconn: Option<String>,
    /// The ports that outgoing connections get.
    pub port_range: Option<String>,
}

impl Environment {
    /// The fingerprint in one short line.
    pub fn in_short(&self) -> String {
        let model = self.cpu_model.as_deref().unwrap_or("unknown CPU");
        let host = match &self.hypervisor {
            Some(hypervisor) => format!("virtual machine ({hypervisor})"),
            None => "bare metal".to_owned(),
        };
        format!("{} x {model}, {}, {host}", self.cpus, self.kernel)
    }
}
