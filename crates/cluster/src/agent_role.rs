//! The servers of an agent's host: recipes of the coordinator, starts, and readings of a window.

use crate::clock;
use crate::protocol::{Command, OriginsPlan, Reply, SubjectPlan, SystemPlan};
use anyhow::{Context, bail};
use std::env::current_exe;
use std::fs;
use std::path::Path;
use std::time::Instant;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Subject;
use tollgate_net::available_cpus;
use tollgate_records::error::io_error;
use tollgate_runner::process::Interrupt;
use tollgate_runner::role::servers::TrialEnd;
use tollgate_runner::role::window::{OpenWindow, PreparedWindow};
use tollgate_runner::role::{OriginStart, Role, ServerFiles, SystemStart};
use tollgate_runner::system;
use tollgate_runner::system::state;
use tollgate_traffic::load_shape::CaseProtocol;

/// Folder with the recipes and mixes of the coordinator's disk, with paths as in the catalog.
pub(crate) const CATALOG: &str = "catalog";

#[derive(Debug)]
pub(crate) struct AgentRole<'a> {
    folder: &'a Path,
    interrupt: &'a Interrupt,
    catalog: Catalog,
    /// CPUs of this host.
    cpus: Vec<usize>,
    role: Role,
    window: Option<OpenWindow>,
}

impl<'a> AgentRole<'a> {
    pub(crate) fn new(folder: &'a Path, interrupt: &'a Interrupt) -> anyhow::Result<Self> {
        let cpus = available_cpus().context("cannot read the available CPUs")?;
        // Not the working directory, which is any folder of the host.
        let catalog = Catalog::new(vec![folder.join(CATALOG)]);
        let role = Role::new(cpus.clone());
        Ok(Self { folder, interrupt, catalog, cpus, role, window: None })
    }

    pub(crate) fn execute(&mut self, command: Command) -> anyhow::Result<Reply> {
        match command {
            Command::State { subject, fixed } => {
                let configs = self.folder.join("configs");
                let state = state::state(&self.catalog, &self.subject(&subject)?, &fixed, &configs);
                Ok(Reply::State(Box::new(state)))
            }
            Command::StartOrigins(plan) => {
                let OriginsPlan { ip, count, busy_poll, responses, ready } = *plan;
                let tollgate = current_exe().context("cannot find the running program")?;
                let start = OriginStart {
                    tollgate: &tollgate,
                    ip,
                    count,
                    protocol: CaseProtocol::H1,
                    certificate: Path::new(""),
                    busy_poll,
                    files: &self.files(self.folder),
                    responses: responses.as_ref(),
                    ready: &ready,
                };
                let started = self.role.start_origins(&start, self.interrupt);
                reply(started, |sites| Reply::Origins {
                    addresses: sites.iter().map(|site| site.address).collect(),
                })
            }
            Command::StartSystem(plan) => {
                let SystemPlan { subject, ip, origins, concurrency, protocol, ready } = *plan;
                let subject = self.subject(&subject)?;
                let installed = match system::check(&self.catalog, &subject)? {
                    Ok(installed) => installed,
                    Err(missing) => bail!("{} is not installed: {missing}", subject.recipe.name),
                };
                let dir = self.folder.join("system");
                fs::create_dir_all(&dir).map_err(io_error("create", &dir))?;
                let start = SystemStart {
                    catalog: &self.catalog,
                    subject: &subject,
                    installed: &installed,
                    ip,
                    origins: &origins,
                    concurrency,
                    protocol,
                    certificate: Path::new(""),
                    files: &self.files(&dir),
                    ready: &ready,
                };
                let started = self.role.start_system(&start, self.interrupt);
                reply(started, |started| Reply::System(Box::new(started)))
            }
            Command::ServersExit => Ok(Reply::Exit(self.role.exit())),
            Command::ServersLog => Ok(Reply::Log(self.role.log_tail())),
            Command::ServersCpu => Ok(Reply::Cpu { us: self.role.cpu_us()? }),
            Command::OpenReadings { at_ns } => {
                let at = clock::to_instant(at_ns);
                let prepared = PreparedWindow::new(&[&self.role], &self.cpus)?;
                self.interrupt.sleep(at.saturating_duration_since(Instant::now()))?;
                self.window = Some(prepared.open(at)?);
                Ok(Reply::Done)
            }
            Command::CloseReadings { at_ns } => {
                let at = clock::to_instant(at_ns);
                let window = self.window.take().context("no window is open")?;
                self.interrupt.sleep(at.saturating_duration_since(Instant::now()))?;
                let readings = window.close(at)?.read(&mut [&mut self.role])?;
                Ok(Reply::Readings(Box::new(readings)))
            }
            Command::StopServers => {
                self.window = None;
                self.role.stop();
                Ok(Reply::Done)
            }
            other => bail!("{other:?} is not a command for servers"),
        }
    }

    /// Files of servers that run in a folder.
    fn files(&self, dir: &Path) -> ServerFiles {
        ServerFiles { dir: dir.to_owned(), logs: self.folder.to_owned(), log_prefix: String::new() }
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

fn reply<T>(started: Result<T, TrialEnd>, done: impl FnOnce(T) -> Reply) -> anyhow::Result<Reply> {
    match started {
        Ok(started) => Ok(done(started)),
        Err(TrialEnd::Failed(failure)) => Ok(Reply::Failed(failure)),
        Err(TrialEnd::Interrupted(interrupted)) => Err(interrupted.into()),
    }
}
