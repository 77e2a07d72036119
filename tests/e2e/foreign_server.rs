//! Servers of others that a test starts: nginx, Apache, HAProxy, Caddy.

use crate::support::{Started, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::net::{TcpListener, TcpStream};
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

/// A server on loopback, ended by TERM.
pub(crate) struct ForeignServer {
    child: Started,
    pub(crate) port: u16,
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

impl ForeignServer {
    /// Starts it and waits until it listens. A server that ends before fails with what `log` returns.
    pub(crate) fn start(command: &mut Command, port: u16, log: impl FnOnce() -> String) -> Self {
        let child = command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = child
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}; run `make packages`"));
        let mut server = Self { child: Started::new(child), port };
        let is_up = wait_until(PATIENCE, || {
            TcpStream::connect(("127.0.0.1", port)).is_ok() || server.has_ended()
        });
        assert!(is_up && !server.has_ended(), "{command:?} does not listen\n{}", log());
        server
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
        // After TERM, a server stops its workers, too. `Started` kills what does not end.
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).ok();
        let server = RefCell::new(self);
        wait_until(PATIENCE, || server.borrow_mut().has_ended());
    }
}
