//! Servers of others that a test starts: nginx, Apache, HAProxy, Caddy.

use crate::support::{Started, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::env;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Directives of `http` for the folders of nginx, all below the placeholder `FOLDER`.
pub(crate) const NGINX_FOLDERS: &str = "
    client_body_temp_path FOLDER/body;
    proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi;
    scgi_temp_path FOLDER/scgi;
";

/// A server on loopback, ended by TERM or another signal.
pub(crate) struct ForeignServer {
    child: Started,
    pub(crate) port: u16,
    ends_by: Signal,
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A program of a build, as made by the suites of systems.
pub(crate) fn built_program(build: &str, program: &str) -> PathBuf {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let folder = cache.map(|cache| cache.join("tollgate/builds").join(build));
    let builds = folder.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let mut paths = builds.flatten().map(|build| build.path().join(program));
    let found = paths.find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{build} is not built; run `make systems`"))
}

impl ForeignServer {
    /// Starts it and waits until it listens. A server that ends before fails with what `log` returns.
    pub(crate) fn start(command: &mut Command, port: u16, log: impl FnOnce() -> String) -> Self {
        let child = command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = child
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}; run `make packages`"));
        let mut server = Self { child: Started::new(child), port, ends_by: Signal::SIGTERM };
        let is_up = wait_until(PATIENCE, || {
            TcpStream::connect(("127.0.0.1", port)).is_ok() || server.has_ended()
        });
        assert!(is_up && !server.has_ended(), "{command:?} does not listen\n{}", log());
        server
    }

    /// Lets it end by a signal with which it logs all requests: nginx logs some only once their clients have closed, and
    /// drops them by TERM.
    pub(crate) fn ended_by(mut self, signal: Signal) -> Self {
        self.ends_by = signal;
        self
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for ForeignServer {
    fn drop(&mut self) {
        // A server that ends itself stops its workers, too. `Started` kills what does not end.
        kill(Pid::from_raw(self.child.id().cast_signed()), self.ends_by).ok();
        let server = RefCell::new(self);
        wait_until(PATIENCE, || server.borrow_mut().has_ended());
    }
}
