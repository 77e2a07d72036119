//! `tollgate gateway`: the reverse proxy.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::Signal;
use sd_notify::NotifyState;
use signal_hook::iterator::Signals;
use tollgate_gateway::config::Address;
use tollgate_gateway::{Config, ConfigError, Gateway, check_logs, stderr_log};
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

--example prints one with every key, `--example waf` the shortest with the web
application firewall; `tollgate schema gateway` is a JSON Schema for editors.

Signals:
  HUP              reload the configuration and reopen the logs without
                   interrupting requests. An invalid configuration is reported
                   and the old one stays. `threads` cannot change
  USR1             reopen the log files
  TERM, INT, QUIT  stop accepting connections, finish active requests within
                   `timeouts.drain` (default: 30s), and exit; a second signal
                   exits at once
  USR2             ignored

Under systemd, the readiness, reloads and the end are reported by sd_notify(3).

Exit codes:
  0    ended by a signal, or --check found no error
  1    cannot listen, or a thread failed
  2    the configuration cannot be read or is invalid
  130  ended by a second signal; active requests were aborted

Examples:
  tollgate gateway --from 127.0.0.1:8080 --to 127.0.0.1:8000
  tollgate gateway --example waf > gateway.yaml
  tollgate gateway --check gateway.yaml
  tollgate gateway gateway.yaml &
  kill -HUP $!")]
pub(crate) struct Args {
    /// Configuration file
    #[arg(value_name = "FILE", required_unless_present_any = ["config", "example", "from"])]
    file: Option<PathBuf>,
    /// The same as FILE
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Without a file: listen on this address; `:8080` is port 8080 of all
    #[arg(long, value_name = "ADDRESS", requires = "to")]
    #[arg(conflicts_with_all = ["file", "config", "example"])]
    from: Option<String>,
    /// With --from: forward to this backend (may be repeated)
    #[arg(long, value_name = "ADDRESS", requires = "from")]
    to: Vec<String>,
    /// Validate the configuration, open its certificates, rules and logs, and exit
    #[arg(long)]
    check: bool,
    /// Print a commented configuration with every key, or of KIND `waf`, and exit
    #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "full")]
    #[arg(conflicts_with_all = ["file", "config", "check"], hide_possible_values = true)]
    example: Option<Example>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Example {
    Full,
    Waf,
}

impl Example {
    fn text(self) -> &'static str {
        match self {
            Self::Full => include_str!("../../../../examples/gateway.yaml"),
            Self::Waf => include_str!("../../../../examples/gateway-waf.yaml"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignalEvent {
    Reload,
    ReopenLogs,
    Terminate,
    Ignored(Signal),
}

const SIGNALS: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
];

/// Interval of checks for a thread that has failed, and for new addresses of names.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let name = "tollgate gateway";
    if let Some(from) = &args.from {
        let text = forwarding(from, &args.to);
        let read = |path: &Path| Config::parse(&text, path);
        return Service { name, path: Path::new("--from, --to"), read: &read }.run(args.check);
    }
    let Some(path) = args.file.as_ref().or(args.config.as_ref()) else {
        console::print(args.example.unwrap_or(Example::Full).text())?;
        return Ok(Exit::Success);
    };
    Service { name, path, read: &Config::read }.run(args.check)
}

/// Returns the configuration that forwards everything. A text of JSON is one of YAML. A port alone is that of all addresses.
fn forwarding(from: &str, to: &[String]) -> String {
    let from = if from.starts_with(':') { format!("0.0.0.0{from}") } else { from.to_owned() };
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let backends: Vec<String> =
        to.iter().map(|backend| format!("{{ address: {} }}", quoted(backend))).collect();
    format!(
        "listeners: [{{ address: {} }}]\npools: [{{ name: site, backends: [{}] }}]\n",
        quoted(&from),
        backends.join(", ")
    )
}

/// A server of the gateway's kind: `tollgate gateway` or `tollgate waf serve`. A signal ends it.
pub(super) struct Service<'a> {
    /// In messages.
    pub(super) name: &'static str,
    /// The configuration file.
    pub(super) path: &'a Path,
    pub(super) read: &'a dyn Fn(&Path) -> Result<Config, ConfigError>,
}

impl Service<'_> {
    /// With `check`, validates the configuration only.
    pub(super) fn run(&self, check: bool) -> Result<Exit, Failure> {
        let config = (self.read)(self.path).map_err(Failure::bad_input)?;
        if check {
            return self.check(&config);
        }
        process::raise_file_limit().context("cannot raise the limit on open files")?;
        let events = signal_events().context("cannot handle signals")?;
        stderr_log::start(self.name).context("cannot start a thread")?;
        let mut gateway = Gateway::start(config)?;
        console::print(&addresses(&gateway))?;
        self.notify(&[NotifyState::Ready]);
        loop {
            match events.recv_timeout(CHECK_INTERVAL) {
                Ok(SignalEvent::Reload) => self.reload(&mut gateway),
                Ok(SignalEvent::ReopenLogs) => self.reopen_logs(&gateway),
                Ok(SignalEvent::Ignored(signal)) => self.log(&format!("{signal} ignored")),
                Err(RecvTimeoutError::Timeout) if !gateway.has_ended_thread() => {
                    if let Err(error) = gateway.update_addresses() {
                        let error = anyhow::Error::from(error);
                        self.log(&format!("cannot change the addresses of backends: {error:#}"));
                    }
                }
                Ok(SignalEvent::Terminate) | Err(_) => break,
            }
        }
        self.notify(&[NotifyState::Stopping]);
        gateway.drain()?;
        exit_on_second_signal(self.name, events).context("cannot start a thread")?;
        gateway.join()?;
        Ok(Exit::Success)
    }

    /// Reports files that a start or reload could not open, after the configuration was read.
    fn check(&self, config: &Config) -> Result<Exit, Failure> {
        let path = self.path.display();
        let errors = check_logs(config);
        config.warnings.iter().for_each(|warning| self.log(warning));
        if errors.is_empty() {
            console::print(&format!("{path}: the configuration is valid\n"))?;
            return Ok(Exit::Success);
        }
        let line = |error| format!("{path}: {:#}", anyhow::Error::from(error));
        let lines: Vec<String> = errors.into_iter().map(line).collect();
        Err(Failure::bad_input(anyhow::anyhow!(lines.join("\n"))))
    }

    /// Reloads the configuration. After an error the gateway continues with the old one.
    fn reload(&self, gateway: &mut Gateway) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(_) => self.notify(&[NotifyState::Reloading]),
        }
        let result = match (self.read)(self.path) {
            Ok(config) => gateway.reload(config).map_err(anyhow::Error::from),
            Err(error) => {
                gateway.count_rejected_reload();
                Err(error.into())
            }
        };
        self.log(&match result {
            Ok(()) => format!("reloaded {}", self.path.display()),
            Err(error) => format!("reload failed, the old configuration stays: {error:#}"),
        });
        self.notify(&[NotifyState::Ready]);
    }

    fn reopen_logs(&self, gateway: &Gateway) {
        let errors = gateway.reopen_logs();
        if errors.is_empty() {
            self.log("reopened the logs");
        }
        for error in errors {
            self.log(&format!("{:#}; its old file stays open", anyhow::Error::from(error)));
        }
    }

    /// Reports a state to systemd. Does nothing unless it has started the gateway.
    fn notify(&self, state: &[NotifyState]) {
        if let Err(error) = sd_notify::notify(state) {
            self.log(&format!("cannot notify systemd: {error}"));
        }
    }

    fn log(&self, message: &str) {
        log(self.name, message);
    }
}

fn signal_events() -> std::io::Result<Receiver<SignalEvent>> {
    let handled = signals::not_ignored(&SIGNALS);
    let mut signals = Signals::new(handled.iter().map(|signal| *signal as i32))?;
    let (sender, events) = mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for number in signals.forever() {
            let Some(signal) = handled.iter().find(|signal| **signal as i32 == number) else {
                continue;
            };
            let event = match signal {
                Signal::SIGHUP => SignalEvent::Reload,
                Signal::SIGUSR1 => SignalEvent::ReopenLogs,
                Signal::SIGUSR2 => SignalEvent::Ignored(*signal),
                _ => SignalEvent::Terminate,
            };
            // The receiver is gone only at the end of the process.
            sender.send(event).ok();
        }
    })?;
    Ok(events)
}

fn exit_on_second_signal(name: &'static str, events: Receiver<SignalEvent>) -> std::io::Result<()> {
    std::thread::Builder::new().name("second-signal".to_owned()).spawn(move || {
        if events.iter().any(|event| event == SignalEvent::Terminate) {
            log(name, "second signal; active requests aborted");
            stderr_log::finish();
            std::process::exit(Exit::Interrupted as i32);
        }
    })?;
    Ok(())
}

fn log(name: &str, message: &str) {
    stderr_log::write(&format!("{name}: {message}"));
}

/// The listening addresses, one per line.
fn addresses(gateway: &Gateway) -> String {
    let clients = gateway.addresses().map(|address| match address {
        Address::Tcp(tcp) => {
            format!("listening on {}://{tcp}\n", gateway.scheme(address))
        }
        Address::Unix(path) => format!("listening on unix:{}\n", path.display()),
    });
    let admin = gateway.admin_address().map(|address| format!("admin on http://{address}\n"));
    clients.chain(admin).collect()
}
