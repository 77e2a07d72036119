//! `tollgate gateway`: the reverse proxy.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::Signal;
use signal_hook::iterator::Signals;
use tollgate_gateway::config::Address;
use tollgate_gateway::{Config, Gateway, stderr_log};
use tollgate_runner::process;

use crate::console::{self, Exit, Failure};
use crate::signals;

/// Arguments of `tollgate gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The configuration is YAML. A minimal one:

  listeners: [{ address: 127.0.0.1:8080 }]
  pools:
    - name: site
      backends: [{ address: 127.0.0.1:8000 }]

examples/gateway.yaml documents every key; schemas/gateway.json is a JSON Schema for editors.

Signals:
  HUP        reload the configuration and reopen the access log without interrupting requests. An
             invalid configuration is reported and the old one stays. `threads` cannot change
  TERM, INT  stop accepting connections, finish active requests within `timeouts.drain` (default:
             30s), and exit; a second signal exits at once

Exit codes:
  0    ended by a signal, or --check found no error
  1    cannot listen, or a thread failed
  2    the configuration cannot be read or is invalid
  130  ended by a second signal; active requests were aborted

Examples:
  tollgate gateway --config examples/gateway.yaml --check
  tollgate gateway --config examples/gateway.yaml &
  kill -HUP $!")]
pub(crate) struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Validate the configuration and exit
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Reload,
    Terminate,
}

/// Interval of checks for a thread that has failed.
const THREAD_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let config = Config::read(&args.config).map_err(Failure::bad_input)?;
    if args.check {
        console::print(&format!("{}: the configuration is valid\n", args.config.display()))?;
        return Ok(Exit::Success);
    }
    process::raise_file_limit().context("cannot raise the limit on open files")?;
    let events = signal_events().context("cannot handle signals")?;
    let mut gateway = Gateway::start(config)?;
    console::print(&addresses(&gateway))?;
    loop {
        match events.recv_timeout(THREAD_CHECK_INTERVAL) {
            Ok(Event::Reload) => reload(&mut gateway, &args.config),
            Err(RecvTimeoutError::Timeout) if !gateway.has_ended_thread() => {}
            Ok(Event::Terminate) | Err(_) => break,
        }
    }
    gateway.drain()?;
    exit_on_second_signal(events).context("cannot start a thread")?;
    gateway.join()?;
    Ok(Exit::Success)
}

fn signal_events() -> std::io::Result<Receiver<Event>> {
    let mut signals = Signals::new(signals::handled().into_iter().map(|signal| signal as i32))?;
    let (sender, events) = mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let is_reload = signal == Signal::SIGHUP as i32;
            let event = if is_reload { Event::Reload } else { Event::Terminate };
            // The receiver is gone only at the end of the process.
            sender.send(event).ok();
        }
    })?;
    Ok(events)
}

/// Reloads the configuration. After an error the gateway continues with the old one.
fn reload(gateway: &mut Gateway, path: &Path) {
    let result = match Config::read(path) {
        Ok(config) => gateway.reload(config).map_err(anyhow::Error::from),
        Err(error) => {
            gateway.count_rejected_reload();
            Err(error.into())
        }
    };
    stderr_log::write(&match result {
        Ok(()) => format!("tollgate gateway: reloaded {}", path.display()),
        Err(error) => {
            format!("tollgate gateway: reload failed, the old configuration stays: {error:#}")
        }
    });
}

fn exit_on_second_signal(events: Receiver<Event>) -> std::io::Result<()> {
    std::thread::Builder::new().name("second-signal".to_owned()).spawn(move || {
        if events.iter().any(|event| event == Event::Terminate) {
            stderr_log::write("tollgate gateway: second signal; active requests aborted");
            stderr_log::finish();
            std::process::exit(Exit::Interrupted as i32);
        }
    })?;
    Ok(())
}

/// The listening addresses, one per line.
fn addresses(gateway: &Gateway) -> String {
    let clients = gateway.addresses().map(|address| match address {
        Address::Tcp(tcp) => {
            let scheme = if gateway.is_tls(address) { "https" } else { "http" };
            format!("listening on {scheme}://{tcp}\n")
        }
        Address::Unix(path) => format!("listening on unix:{}\n", path.display()),
    });
    let admin = gateway.admin_address().map(|address| format!("admin on http://{address}\n"));
    clients.chain(admin).collect()
}
