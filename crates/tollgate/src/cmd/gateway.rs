//! `tollgate gateway`: the reverse proxy.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::Signal;
use signal_hook::iterator::Signals;
use tollgate_gateway::config::Address;
use tollgate_gateway::{Config, Gateway, messages};
use tollgate_lab::process::files;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals;

/// What `tollgate gateway` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The configuration is YAML. The shortest one:

  listeners: [{ address: 127.0.0.1:8080 }]
  pools:
    - name: site
      backends: [{ address: 127.0.0.1:8000 }]

examples/gateway.yaml has every key, with what it does; schemas/gateway.json is its JSON Schema,
which an editor can use.

Signals:
  HUP        read the file again, without losing a request; one that cannot be is refused, told
             with its line, and the old one stays. The access log is opened anew. The number of
             threads cannot change
  TERM, INT  take no new connection, tell what is in flight, finish that within `timeouts.drain`
             (30 s unless set), and end; once more ends it at once

Exit codes:
  0    it was told to end, and did; or the configuration of --check is fine
  1    it cannot listen, or a thread cannot go on
  2    the configuration cannot be read, or something in it cannot be
  130  it was told to end twice, and requests in flight were cut off

Examples:
  tollgate gateway --config examples/gateway.yaml --check
  tollgate gateway --config examples/gateway.yaml &
  kill -HUP $!")]
pub(crate) struct Args {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only say whether the configuration is fine
    #[arg(long)]
    check: bool,
}

/// What the process is told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Reload,
    End,
}

/// How often it is looked whether a thread has ended by itself.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let config = Config::read(&args.config).map_err(Failure::bad_input)?;
    if args.check {
        output::print(&format!("{} is fine\n", args.config.display()))?;
        return Ok(Exit::Done);
    }
    files::raise_limit().context("raising the limit of open files")?;
    let orders = orders().context("asking for signals")?;
    let mut gateway = Gateway::start(config)?;
    output::print(&places(&gateway))?;
    loop {
        match orders.recv_timeout(LOOK_PERIOD) {
            Ok(Order::Reload) => reload(&mut gateway, &args.config),
            Err(RecvTimeoutError::Timeout) if !gateway.has_ended_thread() => {}
            Ok(Order::End) | Err(_) => break,
        }
    }
    gateway.drain()?;
    end_at_once_if_told(orders).context("starting a thread")?;
    gateway.join()?;
    Ok(Exit::Done)
}

/// The orders as they come.
fn orders() -> std::io::Result<Receiver<Order>> {
    // One that is ignored from the start is meant to be, as HUP is by `nohup`.
    let mut signals = Signals::new(signals::heeded().into_iter().map(|signal| signal as i32))?;
    let (told, orders) = mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let order = if signal == Signal::SIGHUP as i32 { Order::Reload } else { Order::End };
            // Nobody listens any more only when the process ends.
            told.send(order).ok();
        }
    })?;
    Ok(orders)
}

/// Reads the file again. Whatever is wrong with it, the gateway goes on as it was.
fn reload(gateway: &mut Gateway, path: &Path) {
    let outcome = match Config::read(path) {
        Ok(config) => gateway.reload(config).map_err(anyhow::Error::from),
        Err(error) => {
            gateway.refused_reload();
            Err(error.into())
        }
    };
    messages::tell(&match outcome {
        Ok(()) => format!("tollgate gateway: {} is in force", path.display()),
        Err(error) => format!("tollgate gateway: the old configuration stays: {error:#}"),
    });
}

/// Ends the process when it is told to once more.
fn end_at_once_if_told(orders: Receiver<Order>) -> std::io::Result<()> {
    std::thread::Builder::new().name("hurry".to_owned()).spawn(move || {
        if orders.iter().any(|order| order == Order::End) {
            messages::tell("tollgate gateway: ended at once; requests in flight were cut off");
            messages::finish();
            std::process::exit(Exit::Interrupted as i32);
        }
    })?;
    Ok(())
}

/// Where it listens, a line each.
fn places(gateway: &Gateway) -> String {
    let clients = gateway.addresses().map(|address| match address {
        Address::Tcp(tcp) => {
            let scheme = if gateway.speaks_tls(address) { "https" } else { "http" };
            format!("listening on {scheme}://{tcp}\n")
        }
        Address::Unix(path) => format!("listening on unix:{}\n", path.display()),
    });
    let admin = gateway.admin_address().map(|address| format!("admin on http://{address}\n"));
    clients.chain(admin).collect()
}
