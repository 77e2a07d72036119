//! Servers that run already: subjects with a `url` instead of a `system`.

use crate::file::{AttachFile, SubjectFile};
use crate::recipe::{Blocks, Ready, Recipe, RecipeFile};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tollgate_load::{ServerUrl, UrlError};
use tollgate_records::subject::{ExternalManifest, Options};
use tollgate_tls::Trust;
use tollgate_traffic::load_shape::CaseProtocol;
use tollgate_traffic::units::Span;

/// Name in place of a system.
const SYSTEM: &str = "external";

/// Time limit of the first response.
const READY: Duration = Duration::from_secs(10);

/// Default status code of blocked requests.
const FORBIDDEN: u16 = 403;

/// A server that runs already. A run neither starts nor stops it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    pub server: ServerUrl,
    /// Value of `Host` instead of that of the mix.
    pub host: Option<String>,
    pub trust: Trust,
    pub attach: Option<Attach>,
    /// Hosts other than this machine that may be loaded.
    allow_hosts: Vec<String>,
}

/// Processes of a server on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attach {
    /// A process and its descendants.
    Pid(i32),
    /// A unit of systemd.
    Unit(String),
    /// A control group and those below it: a folder, or a path below the mount point.
    Cgroup(String),
    /// A container of Docker or Podman.
    Container(String),
}

impl External {
    /// Returns the server of a subject with a `url`, which was checked.
    pub(crate) fn of(file: &SubjectFile, folder: &Path, allow_hosts: &[String]) -> Option<Self> {
        let server = ServerUrl::parse(file.url.as_deref()?).ok()?;
        // An address in `Host` is not that of a site, and firewalls have rules against it.
        let is_name = server.hostname.parse::<IpAddr>().is_err();
        let host = file.host.clone().or_else(|| is_name.then(|| server.host.clone()));
        let trust = match &file.cacert {
            Some(path) => Trust::File(folder.join(path)),
            None if file.insecure => Trust::All,
            None => Trust::System,
        };
        let attach = file.attach.as_ref().and_then(|attach| attach.checked().ok());
        Some(Self { server, host, trust, attach, allow_hosts: allow_hosts.to_vec() })
    }

    /// Returns the address, unless the user has not allowed the host.
    pub fn resolve(&self) -> Result<SocketAddr, UrlError> {
        self.server.resolve(&self.allow_hosts)
    }

    pub fn manifest(&self) -> ExternalManifest {
        ExternalManifest {
            url: self.server.url.clone(),
            attach: self.attach.as_ref().map(Attach::to_string),
        }
    }

    /// Returns a recipe without processes. The rules of the server are not known, so that it may block any request.
    pub(crate) fn recipe(&self, blocked_status: Option<u16>) -> Recipe {
        let protocols = if self.server.is_tls {
            vec![CaseProtocol::Https, CaseProtocol::HttpsH2]
        } else {
            vec![CaseProtocol::H1, CaseProtocol::H2]
        };
        let blocks = Blocks {
            status: blocked_status.unwrap_or(FORBIDDEN),
            with: Options::new(),
            when: "true".to_owned(),
            families: None,
            benign: Some("true".to_owned()),
            bodies: true,
        };
        Recipe {
            name: SYSTEM.to_owned(),
            found_in: self.server.url.clone(),
            file: RecipeFile {
                title: "A server that runs already".to_owned(),
                apt: Vec::new(),
                need: Vec::new(),
                version: Vec::new(),
                option: BTreeMap::new(),
                options_from: None,
                origin: false,
                balances: true,
                protocols,
                ports: Vec::new(),
                templates: Vec::new(),
                config: None,
                files: Vec::new(),
                copy: Vec::new(),
                prepare: Vec::new(),
                process: Vec::new(),
                ready: Ready { timeout: Span(READY) },
                blocks: Some(blocks),
                detection_log: Vec::new(),
                rule_set: None,
            },
        }
    }
}

impl AttachFile {
    fn checked(&self) -> Result<Attach, String> {
        let Self { pid, unit, cgroup, container } = self.clone();
        let given = [
            pid.map(Attach::Pid),
            unit.map(Attach::Unit),
            cgroup.map(Attach::Cgroup),
            container.map(Attach::Container),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(Attach::Pid(pid)), None) if pid < 2 => {
                Err(format!("expected the number of a process of the server, got {pid}"))
            }
            (Some(attach), None) if attach.text().is_some_and(is_option) => {
                Err("expected a name, which is not empty and does not start with `-`".to_owned())
            }
            (Some(attach), None) => Ok(attach),
            _ => Err("expected one of `pid`, `unit`, `cgroup` and `container`".to_owned()),
        }
    }
}

/// True for a text that a command would take for an option, or for none.
fn is_option(text: &str) -> bool {
    text.is_empty() || text.starts_with('-')
}

impl Attach {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Pid(_) => None,
            Self::Unit(text) | Self::Cgroup(text) | Self::Container(text) => Some(text),
        }
    }
}

impl fmt::Display for Attach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(formatter, "pid {pid}"),
            Self::Unit(name) => write!(formatter, "unit {name}"),
            Self::Cgroup(path) => write!(formatter, "cgroup {path}"),
            Self::Container(name) => write!(formatter, "container {name}"),
        }
    }
}

/// Checks the keys of a subject. The error has the key.
pub(crate) fn check(file: &SubjectFile) -> Result<(), (&'static str, String)> {
    let of_url = [
        ("host", file.host.is_some()),
        ("blocked_status", file.blocked_status.is_some()),
        ("cacert", file.cacert.is_some()),
        ("insecure", file.insecure),
        ("attach", file.attach.is_some()),
    ];
    let url = match (&file.system, &file.url) {
        (Some(_), None) => {
            return match of_url.into_iter().find(|(_, is_set)| *is_set) {
                Some((key, _)) => {
                    Err((key, format!("`{key}` requires a `url` instead of `system`")))
                }
                None => Ok(()),
            };
        }
        (None, Some(url)) => url,
        (Some(_), Some(_)) => {
            return Err(("url", "the subject also has a `system`; remove one of them".to_owned()));
        }
        (None, None) => {
            let message = "no `system` and no `url`; add one of them";
            return Err(("system", message.to_owned()));
        }
    };
    let server = ServerUrl::parse(url).map_err(|error| ("url", with_source(&error)))?;
    if server.path != "/" {
        let path = server.path.trim_end_matches('/');
        let message = format!("the mix has the paths; move `{path}` to `prefix`");
        return Err(("url", message));
    }
    if !file.with.is_empty() {
        let message = "`with` has the options of a `system`, which a `url` does not have";
        return Err(("with", message.to_owned()));
    }
    if let Some((key, _)) = of_url[2..4].iter().find(|(_, is_set)| *is_set && !server.is_tls) {
        return Err((key, format!("`{key}` requires a URL with https")));
    }
    if file.cacert.is_some() && file.insecure {
        let message = "`insecure` accepts any certificate; remove it, or `cacert`";
        return Err(("insecure", message.to_owned()));
    }
    if let Some(status) = file.blocked_status.filter(|status| !(200..=599).contains(status)) {
        return Err(("blocked_status", format!("expected 200 to 599, got {status}")));
    }
    let is_plain = |host: &String| !host.is_empty() && host.chars().all(|c| c.is_ascii_graphic());
    if file.host.as_ref().is_some_and(|host| !is_plain(host)) {
        return Err(("host", "expected a host, and a port if it has one".to_owned()));
    }
    match &file.attach {
        Some(attach) => attach.checked().map(drop).map_err(|message| ("attach", message)),
        None => Ok(()),
    }
}

fn with_source(error: &UrlError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
