//! The servers of the site, started as in an experiment, and a client of literal bytes.

use crate::support::Workspace;
use assert_cmd::cargo::cargo_bin;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use tollgate_experiment::adjust::Adjustments;
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Experiment, Subject};
use tollgate_http1::RequestText;
use tollgate_load::{Expectation, Request};
use tollgate_net::available_cpus;
use tollgate_records::subject::Installed;
use tollgate_runner::probe::exchange;
use tollgate_runner::process::group::Launch;
use tollgate_runner::process::{Interrupt, Ports};
use tollgate_runner::role::servers::Servers;
use tollgate_runner::system;
use tollgate_runner::system::render::{RenderPlace, render};
use tollgate_traffic::load_shape::{CaseProtocol, Concurrency};

/// A server of the experiment `site`, stopped when dropped.
pub(super) struct Site {
    pub(super) address: SocketAddr,
    /// Name of the subject: `nginx-lua` or `origin`.
    pub(super) name: &'static str,
    _servers: Servers,
}

impl Site {
    /// nginx with its Lua module.
    pub(super) fn nginx_lua(workspace: &Workspace) -> Self {
        Self::start(workspace, "nginx-lua")
    }

    /// `tollgate origin`.
    pub(super) fn origin(workspace: &Workspace) -> Self {
        Self::start(workspace, "origin")
    }

    /// Starts a server; again if another process has taken the port meanwhile.
    fn start(workspace: &Workspace, name: &'static str) -> Self {
        let log = workspace.path("site.log");
        for _ in 0..ATTEMPTS {
            let site = Self::launch(workspace, name, &log);
            let printed = fs::read_to_string(&log).expect("its log");
            if !printed.contains("Address already in use") {
                return site;
            }
            eprintln!("{} was in use:\n{printed}", site.address);
        }
        panic!("no free port in {ATTEMPTS} attempts");
    }

    fn launch(workspace: &Workspace, name: &'static str, log: &Path) -> Self {
        let catalog = Catalog::new(vec![]);
        let experiment = Experiment::load(&catalog, "site", &Adjustments::default());
        let experiment = experiment.expect("the experiment");
        let subject = experiment.subjects.iter().find(|subject| subject.name == name);
        let subject = subject.expect("the subject");
        let mut claimed = Ports::default();
        let address = claimed.free().expect("a port");
        let dir = workspace.path(name);
        fs::create_dir_all(&dir).expect("a folder");
        let installed = installed(&catalog, subject);
        let place = RenderPlace {
            dir: &dir,
            listen: address,
            origins: &[],
            concurrency: Concurrency { connections: 64, requests: 64 },
            protocol: CaseProtocol::H1,
            ports: &BTreeMap::new(),
            installed: &installed,
        };
        let rendered = render(&catalog, subject, &place).expect("its config");
        let cpus = available_cpus().expect("CPUs");
        let mut servers = Servers::default();
        for process in &rendered.processes {
            let launch = Launch {
                name: &process.name,
                command: &process.command,
                env: &process.env,
                dir: &dir,
                log,
                cpus: &cpus,
            };
            servers.start(&launch).expect("the server");
        }
        let headers = [("Host", "a")];
        let text = RequestText { method: "GET", target: "/method", headers: &headers, body: b"" };
        let message = text.render().expect("a valid request");
        let request = Request { message, expect: Expectation::default(), template: 0 };
        let plain = exchange::Site::plain(address);
        let ready = servers.wait_until_ready(&plain, &request, READY, &Interrupt::default());
        ready.expect("the server responds");
        Self { address, name, _servers: servers }
    }
}

const ATTEMPTS: u32 = 3;
const READY: Duration = Duration::from_secs(10);

/// The programs of the subject; `tollgate` is the binary under test, not this process.
fn installed(catalog: &Catalog, subject: &Subject) -> Installed {
    if subject.recipe.name == "tollgate-origin" {
        let tollgate = ("tollgate".to_owned(), cargo_bin!("tollgate").to_path_buf());
        return Installed { programs: BTreeMap::from([tollgate]), ..Installed::default() };
    }
    match system::check(catalog, subject).expect("its recipe") {
        Ok(installed) => installed,
        Err(missing) => panic!("{missing}"),
    }
}

/// A client connection; independent of the code under test.
pub(super) struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self { stream, unread: Vec::new() }
    }

    /// Sends bytes. A server that has rejected the request may have closed the connection.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            eprintln!("cannot send: {error}");
        }
    }

    pub(super) fn shut_down(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("an open connection");
    }

    /// Reads the next response; after HEAD it has no body.
    pub(super) fn response(&mut self, to_head: bool) -> Result<Response, String> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            self.receive()?;
        };
        let head = String::from_utf8_lossy(&self.unread[..end]).into_owned();
        self.unread.drain(..end);
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("no status line: {head}"))?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut response = Response { status, headers, body: Vec::new() };
        let has_body = !to_head && status >= 200 && !matches!(status, 204 | 304);
        if has_body {
            let length = response.header("Content-Length").and_then(|length| length.parse().ok());
            let length: usize = length.ok_or_else(|| format!("no length: {head}"))?;
            while self.unread.len() < length {
                self.receive()?;
            }
            response.body = self.unread.drain(..length).collect();
        }
        Ok(response)
    }

    /// Returns true if the server closes the connection without another byte.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        // Unread bytes may cause a reset.
        let ended =
            self.stream.read_to_end(&mut rest).map_or_else(|error| !is_timeout(&error), |_| true);
        ended && rest.is_empty() && self.unread.is_empty()
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(format!("closed after {:?}", String::from_utf8_lossy(&self.unread))),
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) => Err(format!("{error} after {:?}", String::from_utf8_lossy(&self.unread))),
        }
    }
}

impl Response {
    /// Returns the value of the first header of this name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Deadline on a busy machine, for a server that lingers as well.
const PATIENCE: Duration = Duration::from_secs(20);

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
