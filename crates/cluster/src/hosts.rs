//! The hosts of a layout: from a carrier to running agents.

use crate::carrier::{AgentPlace, Carrier};
use crate::connection::{Agent, AgentError};
use crate::slurm::{Allocation, NodeChoice};
use crate::staging::Binary;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use tollgate_runner::process::Interrupt;

/// Hosts without agents yet. Dropping gives the nodes of Slurm back.
#[derive(Debug)]
pub struct Hosts {
    pub carrier: Carrier,
    pub hosts: Vec<Host>,
    /// `None` but for Slurm.
    pub allocation: Option<Allocation>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub place: AgentPlace,
    /// Address in the configuration of the carrier, if it has one.
    pub address: Option<IpAddr>,
    /// Features in the configuration of the carrier, such as roles.
    pub features: Vec<String>,
}

impl Hosts {
    /// Takes the hosts of a carrier. `count` is the number of hosts where the carrier does not say it.
    pub fn take(
        carrier: &Carrier,
        count: Option<usize>,
        choice: &NodeChoice,
        interrupt: &Interrupt,
        waiting: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Self> {
        let plain = |place: AgentPlace| Host { place, address: None, features: Vec::new() };
        let mut allocation = None;
        let hosts = match carrier {
            Carrier::Slurm { nodes } => {
                let taken = Allocation::take(nodes.or(count), choice, interrupt, waiting)?;
                let job = taken.job;
                let host = |node: &crate::slurm::Node| Host {
                    place: AgentPlace::Slurm { job, node: node.name.clone() },
                    address: node.address,
                    features: node.features.clone(),
                };
                let hosts = taken.nodes.iter().map(host).collect();
                allocation = Some(taken);
                hosts
            }
            Carrier::Ssh { hosts } => {
                hosts.iter().map(|host| plain(AgentPlace::Ssh { host: host.clone() })).collect()
            }
            Carrier::Kubectl { pods } => {
                pods.iter().map(|pod| plain(AgentPlace::Kubectl { pod: pod.clone() })).collect()
            }
            Carrier::Local { agents } => {
                let count = agents.or(count).unwrap_or(1);
                let address = Some(Ipv4Addr::LOCALHOST.into());
                let host = |number| Host { address, ..plain(AgentPlace::Local { number }) };
                (1..=count).map(host).collect()
            }
        };
        Ok(Self { carrier: carrier.clone(), hosts, allocation })
    }

    /// Starts an agent on each host, all at once.
    pub fn start_agents(
        &self,
        binary: &Binary,
        interrupt: &Interrupt,
    ) -> Result<Vec<Agent>, AgentError> {
        let started: Vec<_> = thread::scope(|scope| {
            let start = |host: &Host| {
                let place = host.place.clone();
                scope.spawn(move || Agent::start(&place, binary, interrupt))
            };
            let threads: Vec<_> = self.hosts.iter().map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        started.into_iter().collect()
    }
}
