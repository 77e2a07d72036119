//! `tollgate waf serve`: verdicts on the requests of other proxies.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use tollgate_gateway::Config;
use tollgate_gateway::config::{Address, SpoeListener};

use super::gateway::Service;
use crate::console::{self, Exit, Failure};

/// Arguments of `tollgate waf serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The configuration is YAML; --example prints one. docs/waf-serve.md has the
configuration of each proxy. Signals and exit codes are those of
`tollgate gateway`: HUP reloads the configuration without losing a request, and
after an error the old one stays.

Examples:
  tollgate waf serve --example > waf.yaml
  tollgate waf serve --check waf.yaml
  tollgate waf serve --print-haproxy messages waf.yaml > coraza.cfg
  tollgate waf serve --print-haproxy proxy waf.yaml > haproxy.cfg
  tollgate waf serve waf.yaml &
  kill -HUP $!")]
pub(super) struct Args {
    /// Configuration file
    #[arg(value_name = "FILE", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Validate the configuration, open its rules and logs, and exit
    #[arg(long)]
    check: bool,
    /// Print a commented configuration and exit
    #[arg(long, conflicts_with_all = ["file", "check"])]
    example: bool,
    /// Print a file of a HAProxy that asks the listener `spoe` of FILE, and exit
    #[arg(long, value_name = "WHICH", requires = "file", conflicts_with = "check")]
    print_haproxy: Option<HaproxyFile>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum HaproxyFile {
    /// haproxy.cfg: waits for bodies, and denies without an answer
    Proxy,
    /// coraza.cfg: the messages to the firewall
    Messages,
}

impl HaproxyFile {
    /// The file for a listener. Lines that begin with `#responses` are those for responses.
    fn of(self, listener: &SpoeListener<'_>) -> String {
        let text = match self {
            Self::Proxy => include_str!("../../../../examples/haproxy.cfg"),
            Self::Messages => include_str!("../../../../examples/coraza.cfg"),
        };
        let address = match listener.address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => format!("unix@{}", path.display()),
        };
        let processing = listener.budget + Duration::from_millis(100);
        let lines = text.lines().filter_map(|line| match line.strip_prefix("#responses") {
            Some(line) => listener.inspects_responses.then_some(line),
            None => Some(line),
        });
        lines
            .fold(String::new(), |file, line| file + line + "\n")
            .replace("127.0.0.1:7423", &address)
            .replace(
                "app=str(site)",
                &format!("app=str({})", listener.application.unwrap_or("site")),
            )
            .replace("500ms", &format!("{}ms", processing.as_millis()))
    }
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let Some(path) = &args.file else {
        console::print(include_str!("../../../../examples/waf-serve.yaml"))?;
        return Ok(Exit::Success);
    };
    if let Some(file) = args.print_haproxy {
        let config = Config::read_serve(path).map_err(Failure::bad_input)?;
        let Some(listener) = config.spoe_listeners().next() else {
            let path = path.display();
            return Err(Failure::bad_input(anyhow!(
                "`{path}` has no listener with `spoe`; add one"
            )));
        };
        console::print(&file.of(&listener))?;
        return Ok(Exit::Success);
    }
    Service { name: "tollgate waf serve", path, read: &Config::read_serve }.run(args.check)
}
