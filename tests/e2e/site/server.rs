//! The servers that have the site, started as an experiment starts them.

use crate::support::Workspace;
use assert_cmd::cargo::cargo_bin;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tollgate_lab::inputs::catalog::Catalog;
use tollgate_lab::inputs::experiment::{Adjustments, Experiment, Subject};
use tollgate_lab::interrupt::Interrupt;
use tollgate_lab::layout::available_cpus;
use tollgate_lab::process::group::Launch;
use tollgate_lab::process::ports::Ports;
use tollgate_lab::system::installed::{self, Installed};
use tollgate_lab::system::render::{Place, render};
use tollgate_lab::trial::servers::Servers;
use tollgate_load::{Expectation, Request};

/// A server of the experiment `site`, stopped when dropped.
pub(super) struct Site {
    pub(super) address: SocketAddr,
    /// The subject's name.
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

    /// Starts a server, again where something else on this machine took the port before it could.
    fn start(workspace: &Workspace, name: &'static str) -> Self {
        let log = workspace.path("site.log");
        for _ in 0..ATTEMPTS {
            let site = Self::launch(workspace, name, &log);
            let printed = fs::read_to_string(&log).expect("its log");
            if !printed.contains("Address already in use") {
                return site;
            }
            eprintln!("{} was taken:\n{printed}", site.address);
        }
        panic!("no port that stays free");
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
        let place = Place {
            dir: &dir,
            listen: address,
            origins: &[],
            connections: 64,
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
        let request = Request {
            bytes: b"GET /method HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            is_head: false,
            expect: Expectation::default(),
            template: 0,
        };
        let ready = servers.wait_until_ready(address, &request, READY, &Interrupt::default());
        ready.expect("the server answers");
        Self { address, name, _servers: servers }
    }
}

const ATTEMPTS: u32 = 3;
const READY: Duration = Duration::from_secs(10);

/// What the subject needs. Of `tollgate` it is the one under test, which this is not.
fn installed(catalog: &Catalog, subject: &Subject) -> Installed {
    if subject.recipe.name == "tollgate-origin" {
        let tollgate = ("tollgate".to_owned(), cargo_bin!("tollgate").to_path_buf());
        return Installed { programs: BTreeMap::from([tollgate]), ..Installed::default() };
    }
    match installed::check(catalog, subject).expect("its recipe") {
        Ok(installed) => installed,
        Err(missing) => panic!("{missing}"),
    }
}
