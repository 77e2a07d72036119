//! Servers that run already: their address, certificate and processes.

use super::servers::Servers;
use crate::probe::exchange::Site;
use crate::process::Interrupt;
use crate::process::attach::{Attached, allowed_cpus};
use crate::process::usage::ProcessTable;
use anyhow::{Context, anyhow};
use std::io;
use std::net::TcpStream;
use std::time::Duration;
use tollgate_experiment::experiment::Experiment;
use tollgate_experiment::external::External;
use tollgate_records::error::bad_input;
use tollgate_tls::{Rejection, Trust, certificate_rejection, describe_failure};
use tollgate_traffic::load_shape::CaseProtocol;

/// Checks, before the first trial, that the servers of an experiment may be loaded, that their certificates are accepted,
/// and that their processes exist. A server that does not respond is reported by its trials.
pub(crate) fn check(experiment: &Experiment) -> anyhow::Result<()> {
    for case in &experiment.cases {
        for subject in case.subjects.iter().map(|at| &experiment.subjects[*at]) {
            let Some(external) = &subject.external else { continue };
            check_server(external, case.load.protocol())
                .map_err(|error| bad_input(format!("subject `{}`: {error:#}", subject.name)))?;
        }
    }
    Ok(())
}

fn check_server(external: &External, protocol: CaseProtocol) -> anyhow::Result<()> {
    let site = site(external, protocol)?;
    attached(external, &Interrupt::default())?;
    let Some(client) = site.tls(false)? else { return Ok(()) };
    let handshake = || -> io::Result<Option<Vec<u8>>> {
        let stream = TcpStream::connect_timeout(&site.address, HANDSHAKE)?;
        stream.set_read_timeout(Some(HANDSHAKE))?;
        stream.set_write_timeout(Some(HANDSHAKE))?;
        client.handshake(stream, false)
    };
    let Err(error) = handshake() else { return Ok(()) };
    let advice = match (certificate_rejection(&error), &external.trust) {
        (None, _) => return Ok(()),
        (Some(Rejection::Untrusted), Trust::System) => {
            "; trust it or its authority with `cacert`, or skip the check with `insecure = true`"
        }
        (Some(_), _) => "; to skip the check, use `insecure = true`",
    };
    let cause = describe_failure(&error);
    Err(anyhow!("cannot load {}: {cause}{advice}", external.server.url))
}

const HANDSHAKE: Duration = Duration::from_secs(5);

/// Returns the server as clients reach it.
pub(crate) fn site(external: &External, protocol: CaseProtocol) -> anyhow::Result<Site> {
    Ok(Site {
        address: external.resolve()?,
        protocol,
        name: external.server.hostname.clone(),
        trust: external.trust.clone(),
    })
}

/// Returns the processes of the server, as far as they are known.
pub(super) fn servers(external: &External, interrupt: &Interrupt) -> anyhow::Result<Servers> {
    Ok(Servers::of_attached(attached(external, interrupt)?))
}

fn attached(external: &External, interrupt: &Interrupt) -> anyhow::Result<Option<Attached>> {
    external.attach.as_ref().map(|attach| Attached::find(attach, interrupt)).transpose()
}

/// Returns the CPUs that an attached server may use; none if its processes are not known.
pub(super) fn cpus(system: &Servers) -> anyhow::Result<Vec<usize>> {
    let table = ProcessTable::read().context("cannot list processes")?;
    Ok(allowed_cpus(&system.pids(&table)).into_iter().collect())
}
