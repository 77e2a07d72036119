//! The servers of an agent's host: recipes of the coordinator, starts, and readings of a window.

use crate::clock;
use crate::protocol::{Command, OriginsPlan, Reply, SubjectPlan, SystemPlan};
use anyhow::{Context, bail};
use std::env::current_exe;
use std::path::Path;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Subject;
use tollgate_net::available_cpus;
use tollgate_runner::process::Interrupt;
use tollgate_runner::run;
use tollgate_runner::system;
use tollgate_runner::trial::role::{Role, SystemStart};
use tollgate_runner::trial::servers::Stop;

/// Folder with the recipes and mixes of the coordinator's disk, with paths as in the catalog.
pub(crate) const CATALOG: &str = "catalog";

#[derive(Debug)]
pub(crate) struct AgentRole<'a> {
    folder: &'a Path,
    interrupt: &'a Interrupt,
    catalog: Catalog,
    role: Role,
}

impl<'a> AgentRole<'a> {
    pub(crate) fn new(folder: &'a Path, interrupt: &'a Interrupt) -> anyhow::Result<Self> {
        let cpus = available_cpus().context("cannot read the available CPUs")?;
        // Not the working directory, which is any folder of the host.
        let catalog = Catalog::new(vec![folder.join(CATALOG)]);
        Ok(Self { folder, interrupt, catalog, role: Role::new(folder, cpus) })
    }

    pub(crate) fn execute(&mut self, command: Command) -> anyhow::Result<Reply> {
        match command {
            Command::State { subject, fixed } => {
                let configs = self.folder.join("configs");
                let state = run::state(&self.catalog, &self.subject(&subject)?, &fixed, &configs);
                Ok(Reply::State(Box::new(state)))
            }
            Command::StartOrigins(plan) => {
                let OriginsPlan { ip, count, busy_poll, ready } = *plan;
                let tollgate = current_exe().context("cannot find the running program")?;
                let started = self.role.start_origins(
                    &tollgate,
                    ip,
                    count,
                    busy_poll,
                    &ready,
                    self.interrupt,
                );
                reply(started, |addresses| Reply::Origins { addresses })
            }
            Command::StartSystem(plan) => {
                let SystemPlan { subject, ip, origins, connections, protocol, ready } = *plan;
                let subject = self.subject(&subject)?;
                let installed = match system::check(&self.catalog, &subject)? {
                    Ok(installed) => installed,
                    Err(missing) => bail!("{} is not installed: {missing}", subject.recipe.name),
                };
                let start = SystemStart {
                    catalog: &self.catalog,
                    subject: &subject,
                    installed: &installed,
                    ip,
                    origins: &origins,
                    connections,
                    protocol,
                    ready: &ready,
                };
                let started = self.role.start_system(&start, self.interrupt);
                reply(started, |started| Reply::System(Box::new(started)))
            }
            Command::ServersExit => Ok(Reply::Exit(self.role.exit())),
            Command::ServersCpu => Ok(Reply::Cpu { us: self.role.cpu_us()? }),
            Command::OpenReadings { at_ns } => {
                self.role.open_window(clock::to_instant(at_ns), self.interrupt)?;
                Ok(Reply::Done)
            }
            Command::CloseReadings { at_ns } => {
                let at = clock::to_instant(at_ns);
                Ok(Reply::Readings(Box::new(self.role.close_window(at, self.interrupt)?)))
            }
            Command::StopServers => {
                self.role.stop();
                Ok(Reply::Done)
            }
            other => bail!("{other:?} is not a command for servers"),
        }
    }

    fn subject(&self, plan: &SubjectPlan) -> anyhow::Result<Subject> {
        let SubjectPlan { name, system, options, prefix } = plan;
        let is_name =
            !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
        if !is_name {
            bail!("invalid name of a subject `{name}`");
        }
        let subject = Subject::new(name, self.catalog.recipe(system)?, options)?;
        Ok(Subject { prefix: prefix.clone(), ..subject })
    }
}

fn reply<T>(started: Result<T, Stop>, done: impl FnOnce(T) -> Reply) -> anyhow::Result<Reply> {
    match started {
        Ok(started) => Ok(done(started)),
        Err(Stop::Failed(failure)) => Ok(Reply::Failed(failure)),
        Err(Stop::Interrupted(interrupted)) => Err(interrupted.into()),
    }
}
