//! Starts of an origin and of a system, on this machine.

use super::exchange::Site;
use super::servers::{self, Ready, Servers, Stop};
use crate::process::Interrupt;
use crate::process::group::Launch;
use crate::system::render::{self, Place, Rendered};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Subject;
use tollgate_load::{Expectation, Request};
use tollgate_records::trial::Step;

const ORIGIN_READY: Duration = Duration::from_secs(10);

/// One origin to start.
pub(crate) struct OriginLaunch<'a> {
    /// The `tollgate` binary.
    pub(crate) tollgate: &'a Path,
    /// From 1.
    pub(crate) number: u16,
    pub(crate) site: Site,
    /// Certificate and key, if the site has TLS.
    pub(crate) certificate: &'a Path,
    pub(crate) busy_poll: bool,
    /// Working directory.
    pub(crate) dir: &'a Path,
    pub(crate) log: &'a Path,
    pub(crate) cpus: &'a [usize],
    pub(crate) ready: &'a Request,
    pub(crate) interrupt: &'a Interrupt,
}

/// A system to start.
pub(crate) struct SystemLaunch<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) subject: &'a Subject,
    pub(crate) place: Place<'a>,
    pub(crate) site: &'a Site,
    /// Log file of a process.
    pub(crate) log: &'a dyn Fn(&str) -> PathBuf,
    pub(crate) cpus: &'a [usize],
    pub(crate) ready: &'a Request,
    pub(crate) interrupt: &'a Interrupt,
}

pub(crate) fn origin_name(number: u16) -> String {
    match number {
        1 => "origin".to_owned(),
        number => format!("origin-{number}"),
    }
}

impl OriginLaunch<'_> {
    /// Starts the origin and waits for a response.
    pub(crate) fn start(self, origin: &mut Servers) -> Result<Site, Stop> {
        let Self { site, .. } = self;
        let mut command = vec![
            self.tollgate.display().to_string(),
            "origin".to_owned(),
            "--listen".to_owned(),
            site.address.to_string(),
        ];
        command.extend(self.busy_poll.then(|| "--busy-poll".to_owned()));
        if site.protocol.is_tls() {
            let certificate = self.certificate.display().to_string();
            command.extend(["--cert", &certificate, "--key", &certificate].map(str::to_owned));
        }
        let launch = Launch {
            name: &origin_name(self.number),
            command: &command,
            env: &BTreeMap::new(),
            dir: self.dir,
            log: self.log,
            cpus: self.cpus,
        };
        origin.start(&launch)?;
        // Expectations apply to the subject; the origin may respond with anything.
        let request = Request { expect: Expectation::default(), ..self.ready.clone() };
        origin.wait_until_ready(&site, &request, ORIGIN_READY, self.interrupt)?;
        Ok(site)
    }
}

impl SystemLaunch<'_> {
    /// Renders the configuration, starts the processes and waits for a response. Returns the time to the first expected
    /// one.
    pub(crate) fn start(&self) -> Result<(Servers, Option<Duration>), Stop> {
        let Rendered { prepare, processes, .. } =
            render::render(self.catalog, self.subject, &self.place)
                .map_err(|error| Stop::at(Step::Configure, &error, Vec::new()))?;
        let within = self.subject.recipe.file.ready.timeout.0;
        for (number, command) in (1..).zip(&prepare) {
            let name = format!("prepare-{number}");
            let log = (self.log)(&name);
            let launch = Launch {
                name: &name,
                command,
                env: &BTreeMap::new(),
                dir: self.place.dir,
                log: &log,
                cpus: self.cpus,
            };
            servers::run_to_end(&launch, within, self.interrupt)?;
        }
        let mut system = Servers::of_system();
        let start = Instant::now();
        for process in &processes {
            let log = (self.log)(&process.name);
            let launch = Launch {
                name: &process.name,
                command: &process.command,
                env: &process.env,
                dir: self.place.dir,
                log: &log,
                cpus: self.cpus,
            };
            system.start(&launch)?;
            if let Some(at) = process.listens {
                system.wait_until_listening(at, within, self.interrupt)?;
            }
        }
        let ready = system.wait_until_ready(self.site, self.ready, within, self.interrupt)?;
        Ok((system, (ready == Ready::AsExpected).then(|| start.elapsed())))
    }
}
