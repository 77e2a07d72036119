//! A gateway as a whole: its threads, listeners and background services.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollgate_accesslog::{LogFile, stderr_log};
use tollgate_acme::{Event, Renewal, StateError, Store};
use tollgate_admin::AdminServer;
use tollgate_config::chain;

use crate::admin::AdminState;
use crate::cluster::PoolHealth;
use crate::cluster::health_check::HealthChecks;
use crate::command::{Command, CommandQueue};
use crate::config::{AccessLog, Acme, Address, AuditLog, Config, LogFormat, LogTarget, Service};
use crate::counters::Counters;
use crate::generation::{ConfigGeneration, Logs};
use crate::listener::{BoundListener, ThreadListener};
use crate::log;
use crate::resolve::NameWatch;
use crate::worker::Worker;

/// Error that prevents a start or reload, or ends a gateway.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address}; {}", .address.listen_advice(.source))]
    Listen { address: Address, source: io::Error },
    #[error(
        "the admin server cannot listen on {address}; stop the program that uses it or choose another address"
    )]
    Admin { address: SocketAddr, source: io::Error },
    #[error("cannot start the health checks; raise the limits on open files and processes")]
    HealthChecks(#[source] io::Error),
    #[error(transparent)]
    Certificates(#[from] StateError),
    #[error("cannot open the {name} `{target}`; {}", advice(.target))]
    Log { name: &'static str, target: LogTarget, source: io::Error },
    #[error("cannot start a gateway thread; raise the limits on open files and processes")]
    Start(#[source] io::Error),
    #[error(
        "cannot change `threads` from {running} to {configured} on reload; restart the gateway"
    )]
    Threads { running: usize, configured: usize },
    #[error("a gateway thread cannot wait for events; restart the gateway")]
    Wait(#[source] io::Error),
    #[error("cannot wake a gateway thread; end the process")]
    Wake(#[source] io::Error),
    #[error("a gateway thread panicked; see its message on standard error")]
    Panicked,
}

/// A running gateway. Dropping it starts a drain and does not wait.
#[derive(Debug)]
pub struct Gateway {
    threads: Vec<Thread>,
    listeners: Vec<BoundListener>,
    /// Listeners of earlier configurations whose port a thread may still occupy.
    closing: Vec<BoundListener>,
    counters: Arc<Counters>,
    background: Background,
    /// `None`: no backend has a name.
    names: Option<NameWatch>,
    generation: Arc<ConfigGeneration>,
}

#[derive(Debug)]
struct Thread {
    commands: Arc<CommandQueue>,
    handle: Option<JoinHandle<Result<(), Error>>>,
}

impl Gateway {
    pub fn start(mut config: Config) -> Result<Self, Error> {
        stderr_log::start("tollgate gateway").map_err(Error::Start)?;
        if let Some(warning) = reserve_descriptors(&mut config) {
            log(warning);
        }
        config.warnings.iter().for_each(log);
        let count = config.threads.get();
        let (listeners, by_thread) = open_listeners(&config, &[], &[], count)?;
        let logs = open_logs(&config, None)?;
        let names = watch_names(&config)?;
        let counters = Arc::new(Counters::new(count));
        let generation = ConfigGeneration::new(config, logs, &counters, None, Instant::now());
        counters.add_generation(Arc::clone(&generation.counters));
        let background =
            Background::start(Arc::clone(&counters), &generation.config, &generation.health)?;
        // Dropped on an error, which drains the threads started so far.
        let mut gateway = Self {
            threads: Vec::with_capacity(count),
            listeners,
            closing: Vec::new(),
            counters,
            background,
            names,
            generation: Arc::new(generation),
        };
        for (index, listeners) in by_thread.into_iter().enumerate() {
            let thread = gateway.start_thread(index, listeners)?;
            gateway.threads.push(thread);
        }
        Ok(gateway)
    }

    fn start_thread(&self, index: usize, listeners: Vec<ThreadListener>) -> Result<Thread, Error> {
        let commands = Arc::new(CommandQueue::new().map_err(Error::Start)?);
        let worker = Worker::new(
            listeners,
            Arc::clone(&self.generation),
            Arc::clone(&self.counters),
            Arc::clone(&commands),
            index,
        )
        .map_err(Error::Start)?;
        let handle = thread::Builder::new()
            .name(format!("gateway-{index}"))
            .spawn(move || worker.run().map_err(Error::Wait))
            .map_err(Error::Start)?;
        Ok(Thread { commands, handle: Some(handle) })
    }

    /// The listening addresses, in the order of the configuration, with actual ports.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(|listener| &listener.actual)
    }

    /// The protocol on one of the [`addresses`](Self::addresses), as in a URL.
    pub fn scheme(&self, address: &Address) -> &'static str {
        let bound = self.listeners.iter().find(|listener| listener.actual == *address);
        let configured = bound.and_then(|bound| {
            let mut listeners = self.generation.config.listeners.iter();
            listeners.find(|listener| listener.address == bound.configured)
        });
        configured.map_or("http", |listener| match (&listener.service, listener.tls.is_some()) {
            (Service::Spoe(_), false) => "spoe",
            (Service::Spoe(_), true) => "spoes",
            (_, false) => "http",
            (_, true) => "https",
        })
    }

    /// Switches to another configuration without interrupting requests, and returns at once. Active requests finish under
    /// the old configuration; client connections and unchanged listeners remain; removed listeners are closed after
    /// their queued connections. After an error other than [`Error::Wake`] the old configuration remains.
    pub fn reload(&mut self, config: Config) -> Result<(), Error> {
        let result = self.try_reload(config);
        self.background.state.count_reload(result.is_ok());
        result
    }

    /// Counts a reload that failed before [`reload`](Self::reload), as by an invalid file.
    pub fn count_rejected_reload(&self) {
        self.background.state.count_reload(false);
    }

    fn try_reload(&mut self, mut config: Config) -> Result<(), Error> {
        let (running, configured) = (self.threads.len(), config.threads.get());
        if configured != running {
            return Err(Error::Threads { running, configured });
        }
        reserve_descriptors(&mut config);
        config.inherit_tickets(&self.generation.config);
        let (added, by_thread) = open_listeners(&config, &self.listeners, &self.closing, running)?;
        let logs = open_logs(&config, Some(&self.generation))?;
        let names = watch_names(&config)?;
        self.switch(config, logs, added, by_thread)?;
        self.names = names;
        self.generation.config.warnings.iter().for_each(log);
        Ok(())
    }

    /// Switches to the current addresses of the names of backends, if they have changed. Call it about once a second: if a
    /// backend has failed since the last call, names are resolved at once. After an error the next call tries again.
    pub fn update_addresses(&mut self) -> Result<(), Error> {
        let Some(watch) = &self.names else { return Ok(()) };
        // Each pool, as this forgets its failures.
        let failed = self.generation.health.iter().filter(|health| health.take_failed()).count();
        if failed > 0 {
            watch.resolve_now();
        }
        let Some(names) = watch.take_changed() else { return Ok(()) };
        let mut config = self.generation.config.clone();
        config.set_addresses(&names);
        let logs = self.generation.logs();
        let none_added = self.threads.iter().map(|_| Vec::new()).collect();
        let result = self.switch(config, logs, Vec::new(), none_added);
        if let (Err(_), Some(watch)) = (&result, &self.names) {
            watch.restore_changed(names);
        }
        result
    }

    /// Switches all threads to another configuration.
    fn switch(
        &mut self,
        config: Config,
        logs: Logs,
        added: Vec<BoundListener>,
        by_thread: Vec<Vec<ThreadListener>>,
    ) -> Result<(), Error> {
        let old = Some(&*self.generation);
        let (counters, now) = (&self.counters, Instant::now());
        let generation = Arc::new(ConfigGeneration::new(config, logs, counters, old, now));
        self.background.reload(&generation.config, &generation.health)?;
        self.counters.add_generation(Arc::clone(&generation.counters));
        self.generation = Arc::clone(&generation);
        let is_removed = |bound: &mut BoundListener| {
            !generation.config.listeners.iter().any(|listener| listener.address == bound.configured)
        };
        self.closing.extend(self.listeners.extract_if(.., is_removed));
        // A listener that was added again uses its port itself.
        self.closing.retain(|bound| {
            bound.holds_port() && added.iter().all(|other| other.configured != bound.configured)
        });
        self.listeners.extend(added);
        for (thread, added) in self.threads.iter().zip(by_thread) {
            let generation = Arc::clone(&generation);
            thread.commands.send(Command::Reload { generation, added }).map_err(Error::Wake)?;
        }
        Ok(())
    }

    /// Reopens log files after a rotation. Returns an error for each log that cannot be reopened: its old file stays
    /// open.
    pub fn reopen_logs(&self) -> Vec<Error> {
        let reopen = |file: &LogFile| {
            let target = file.target().clone();
            file.reopen().map_err(|source| Error::Log { name: file.name(), target, source })
        };
        self.generation.log_files().filter_map(|file| reopen(file).err()).collect()
    }

    /// Stops accepting connections and finishes active requests within `timeouts.drain`. Returns at once.
    pub fn drain(&self) -> Result<(), Error> {
        self.background.state.set_draining();
        for thread in &self.threads {
            thread.commands.send(Command::Drain).map_err(Error::Wake)?;
        }
        Ok(())
    }

    /// True if a thread has ended, drained or with an error.
    pub fn has_ended_thread(&self) -> bool {
        self.threads.iter().filter_map(|thread| thread.handle.as_ref()).any(JoinHandle::is_finished)
    }

    /// Address of the admin server, with the actual port.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.background.admin.as_ref().map(AdminServer::address)
    }

    /// Waits until all threads have ended. If one ends with an error, drains the others and returns the first error.
    pub fn join(mut self) -> Result<(), Error> {
        let mut result = Ok(());
        let handles: Vec<_> =
            self.threads.iter_mut().filter_map(|thread| thread.handle.take()).collect();
        for handle in handles {
            let ended = handle.join().unwrap_or(Err(Error::Panicked));
            if ended.is_err() {
                self.drain()?;
            }
            result = result.and(ended);
        }
        if let Some(api) = &self.generation.local_api {
            api.finish();
        }
        for file in self.generation.log_files() {
            if let Err(error) = file.finish() {
                log(error);
            }
        }
        stderr_log::finish();
        result
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = self.drain() {
            log(error);
        }
    }
}

#[derive(Debug)]
struct Background {
    state: Arc<AdminState>,
    health_checks: Option<HealthChecks>,
    /// `None`: all certificates are in files.
    renewal: Option<(tollgate_acme::Settings, Renewal)>,
    admin: Option<AdminServer>,
    /// Address of the admin server as configured.
    configured_admin: Option<SocketAddr>,
}

impl Background {
    fn start(
        counters: Arc<Counters>,
        config: &Config,
        health: &[Arc<PoolHealth>],
    ) -> Result<Self, Error> {
        let state = Arc::new(AdminState::new(counters));
        let mut background =
            Self { state, health_checks: None, renewal: None, admin: None, configured_admin: None };
        background.reload(config, health)?;
        Ok(background)
    }

    /// Changes nothing if it fails, unless threads cannot be started.
    fn reload(&mut self, config: &Config, health: &[Arc<PoolHealth>]) -> Result<(), Error> {
        let moves_admin = config.admin != self.configured_admin;
        let new_admin = config.admin.filter(|_| moves_admin);
        let new_admin = new_admin
            .map(|address| {
                AdminServer::start(stderr_log::program(), address, self.state.pages())
                    .map_err(|source| Error::Admin { address, source })
            })
            .transpose()?;
        let settings = config.acme.as_ref().map(|acme| &acme.settings);
        let is_same_authority = settings == self.renewal.as_ref().map(|(settings, _)| settings);
        if let Some(settings) = settings.filter(|_| !is_same_authority) {
            Store::new(settings).prepare()?;
        }
        let needs_checks = config.pools.iter().any(|pool| pool.health.is_some());
        match &self.health_checks {
            Some(checks) if needs_checks && checks.is_running() => {
                checks.reload(&config.pools, health).map_err(Error::HealthChecks)?;
            }
            _ => {
                self.health_checks =
                    HealthChecks::start(&config.pools, health).map_err(Error::HealthChecks)?;
            }
        }
        self.reload_renewal(config.acme.as_ref())?;
        if moves_admin {
            self.admin = new_admin;
            self.configured_admin = config.admin;
        }
        self.state.set_config(config, health);
        Ok(())
    }

    /// Its folder must be prepared.
    fn reload_renewal(&mut self, acme: Option<&Acme>) -> Result<(), Error> {
        let Some(Acme { settings, certificates, proofs }) = acme.cloned() else {
            self.renewal = None;
            return Ok(());
        };
        let previous = self.renewal.as_ref();
        if let Some((_, renewal)) = previous.filter(|(old, _)| *old == settings) {
            renewal.replace(certificates, proofs);
            return Ok(());
        }
        let previous = previous.map(|(_, renewal)| renewal);
        let state = Arc::clone(&self.state);
        let report = move |event: &Event<'_>| report(event, &state);
        let renewal = Renewal::start(settings.clone(), certificates, proofs, previous, report)
            .map_err(Error::Start)?;
        self.renewal = Some((settings, renewal));
        Ok(())
    }
}

fn report(event: &Event<'_>, state: &AdminState) {
    let pause = |after: &Duration| humantime::format_duration(*after).to_string();
    match event {
        Event::Issued { names, facts } => {
            state.count_order(true);
            let end = humantime::format_rfc3339_seconds(facts.not_after());
            log(format_args!("the certificate of {} was issued, until {end}", names.join(", ")));
        }
        Event::Failed { names, error, retry_after } => {
            state.count_order(false);
            let (names, pause, reason) = (names.join(", "), pause(retry_after), reason(error));
            log(format_args!(
                "no certificate of {names} was issued; trying again in {pause}: {reason}"
            ));
        }
        Event::NotKept { names, error, retry_after } => {
            let (names, pause, reason) = (names.join(", "), pause(retry_after), reason(error));
            log(format_args!(
                "the certificate of {names} is in use, but not kept; trying again in {pause}: {reason}"
            ));
        }
    }
}

/// Longest reason that is logged, in characters.
const REASON_CHARS_MAX: usize = 1000;

/// An error with its causes, in one line. Others may have written parts of it, such as the host that answers for a name.
fn reason(error: &dyn std::error::Error) -> String {
    let text = chain(error);
    let is_unsafe = |c: char| c.is_control();
    text.chars().take(REASON_CHARS_MAX).map(|c| if is_unsafe(c) { ' ' } else { c }).collect()
}

/// Descriptors of logs, health checks and the admin server.
const DESCRIPTORS_BASE: usize = 32;

/// Raises the limit on open files as far as possible. If it does not suffice for all clients, lowers their number, so that
/// every fourth descriptor remains for connections to backends. Returns a warning if the limit is low.
fn reserve_descriptors(config: &mut Config) -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    // A failure leaves the limit as it is.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
    let limit = getrlimit(Resource::Nofile).current?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let threads = config.threads.get();
    let wanted = config.limits.connections.saturating_mul(threads);
    let base = DESCRIPTORS_BASE + threads * (config.listeners.len() + 2);
    let available = limit.saturating_sub(base) / 4 * 3;
    config.limits.connections = config.limits.connections.min(available / threads).max(1);
    (limit / 2 < wanted).then(|| {
        format!(
            "the limit on open files ({limit}) is below twice `limits.connections` ({wanted}): at most {} clients are \
             connected at a time; raise it (ulimit -n, or LimitNOFILE of systemd) or lower `limits.connections`",
            config.limits.connections * threads
        )
    })
}

/// Opens the listeners that are not `open` already, taking over open sockets of those that are `closing`. Returns the
/// new listeners, and their sockets by thread.
fn open_listeners(
    config: &Config,
    open: &[BoundListener],
    closing: &[BoundListener],
    threads: usize,
) -> Result<(Vec<BoundListener>, Vec<Vec<ThreadListener>>), Error> {
    let mut by_thread: Vec<Vec<ThreadListener>> = (0..threads).map(|_| Vec::new()).collect();
    let mut opened = Vec::new();
    for listener in &config.listeners {
        let is_same = |bound: &&BoundListener| bound.configured == listener.address;
        if open.iter().any(|bound| is_same(&bound)) {
            continue;
        }
        let (bound, sockets) = BoundListener::open(listener, threads, closing.iter().find(is_same))
            .map_err(|source| Error::Listen { address: listener.address.clone(), source })?;
        opened.push(bound);
        for (thread, socket) in by_thread.iter_mut().zip(sockets) {
            thread.push(socket);
        }
    }
    Ok((opened, by_thread))
}

fn watch_names(config: &Config) -> Result<Option<NameWatch>, Error> {
    let names = config.names();
    if names.is_empty() {
        return Ok(None);
    }
    NameWatch::start(names, &config.resolve).map(Some).map_err(Error::Start)
}

/// Opens the log files as a start or a reload does. Returns those that cannot be opened.
pub fn check_logs(config: &Config) -> Vec<Error> {
    let access = open_access_log(config, None).err();
    access.into_iter().chain(open_audit_log(config, None).err()).collect()
}

fn open_logs(config: &Config, previous: Option<&ConfigGeneration>) -> Result<Logs, Error> {
    let access = open_access_log(config, previous)?;
    Ok(Logs { access, audit: open_audit_log(config, previous)? })
}

fn open_access_log(
    config: &Config,
    previous: Option<&ConfigGeneration>,
) -> Result<Option<LogFile>, Error> {
    let previous = previous.and_then(|previous| previous.access_log.as_ref());
    let open =
        |AccessLog { to, format }: &AccessLog| open_log(to, format.clone(), "access log", previous);
    config.access_log.as_ref().map(open).transpose()
}

fn open_audit_log(
    config: &Config,
    previous: Option<&ConfigGeneration>,
) -> Result<Option<LogFile>, Error> {
    let previous = previous.and_then(|previous| previous.audit_log.as_ref());
    let open = |AuditLog { to, .. }: &AuditLog| {
        open_log(to, LogFormat::Json, "audit log", previous.map(|audit| &audit.file))
    };
    config.audit_log.as_ref().map(open).transpose()
}

fn advice(target: &LogTarget) -> &'static str {
    match target {
        LogTarget::Stdout | LogTarget::File(_) => "choose a file in a writable folder",
        LogTarget::Syslog(_) => "check that it runs there, or choose a file",
    }
}

fn open_log(
    to: &LogTarget,
    format: LogFormat,
    name: &'static str,
    previous: Option<&LogFile>,
) -> Result<LogFile, Error> {
    LogFile::open(to, format, stderr_log::program(), name, previous).map_err(|source| Error::Log {
        name,
        target: to.clone(),
        source,
    })
}
