//! Foreign clients as processes of this machine.

use crate::bench::MeasureRequest;
use crate::client;
use crate::client::output::{ClientLoad, Printed};
use crate::process::group::{Launch, ProcessGroup};
use crate::system;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tollgate_records::error::bad_input;
use tollgate_records::trial::ClientRecord;
use tollgate_traffic::load_shape::LoadProgram;

/// A client on this machine.
#[derive(Debug)]
pub(super) struct InstalledClient {
    name: LoadProgram,
    program: PathBuf,
    version: String,
}

/// A client that sends its load. Dropping stops it.
pub(super) struct RunningClient {
    process: ProcessGroup,
    log: PathBuf,
    record: ClientRecord,
}

/// A client that has ended successfully, with its output.
pub(super) struct EndedClient {
    log: PathBuf,
    pub(super) record: ClientRecord,
}

impl InstalledClient {
    pub(super) fn find(name: LoadProgram) -> anyhow::Result<Self> {
        let (package, version) = match name {
            LoadProgram::Tollgate => unreachable!("the own generator is a part of tollgate"),
            LoadProgram::Wrk => ("wrk", "-v"),
            LoadProgram::Ab => ("apache2-utils", "-V"),
            LoadProgram::H2load => ("nghttp2-client", "--version"),
        };
        let Some(program) = system::find_program(&name.to_string()) else {
            let message = format!(
                "no program `{name}`, the client of a load; install it: apt-get install -y {package}"
            );
            return Err(bad_input(message));
        };
        let version = system::first_line(&[program.display().to_string(), version.to_owned()])
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("cannot get the version of {}", program.display()))?;
        Ok(Self { name, program, version })
    }

    /// Starts the client on these CPUs.
    pub(super) fn start(
        &self,
        request: &MeasureRequest<'_>,
        cpus: &[usize],
    ) -> anyhow::Result<RunningClient> {
        let log = request.files.log(&self.name.to_string());
        let load = ClientLoad {
            shape: request.expected.load,
            site: request.site,
            message: &request.workload.requests()[request.workload.order()[0] as usize].message,
            log: &log,
        };
        let program = self.program.display().to_string();
        let command: Vec<String> =
            [program].into_iter().chain(client::arguments(self.name, &load)).collect();
        let process = ProcessGroup::start(&Launch {
            name: &self.name.to_string(),
            command: &command,
            env: &BTreeMap::new(),
            dir: &request.files.logs,
            log: &log,
            cpus,
        })?;
        let record = ClientRecord { name: self.name, version: self.version.clone(), command };
        Ok(RunningClient { process, log, record })
    }
}

impl RunningClient {
    pub(super) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.process.exit_status().context("cannot wait for the client")?.is_some())
    }

    /// `limit`: the time that it was given.
    pub(super) fn ended(mut self, limit: Duration) -> anyhow::Result<EndedClient> {
        let (command, client) = (self.record.command.join(" "), self.record.name);
        match self.process.exit_status().context("cannot wait for the client")? {
            Some(status) if status.success() => {
                Ok(EndedClient { log: self.log, record: self.record })
            }
            Some(status) => {
                let log = self.process.log_tail(LOG_LINES)?.join("; ");
                bail!("{client} failed ({status}): {log}; its command was `{command}`")
            }
            None => bail!(
                "{client} did not end within {} s; its command was `{command}`",
                limit.as_secs_f64()
            ),
        }
    }
}

impl EndedClient {
    pub(super) fn read(&self) -> anyhow::Result<Printed> {
        client::read(self.record.name, &self.log)
    }
}

const LOG_LINES: usize = 3;
