//! What stands before a backend in a test: the gateway, or a peer for comparison.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_gateway::config::Address;

use crate::client::{Client, PATIENCE};

/// A peer that runs until dropped, in a folder of its own.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) address: Address,
    process: Child,
    /// Holds its configuration and its socket.
    _dir: TempDir,
}

impl Peer {
    /// nginx as a reverse proxy that passes on as much as it can: HTTP/1.1 to the backend, no buffering of
    /// requests, connections kept, and a client that has sent its last request is still answered.
    pub(crate) fn nginx(backend: SocketAddr) -> Self {
        let upstream = format!("upstream backend {{ server {backend}; keepalive 16; }}");
        let pass = "location / {\n\
              proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Host $http_host;\n\
              proxy_set_header Connection \"\"; proxy_request_buffering off;\n\
              proxy_ignore_client_abort on; proxy_next_upstream off;\n\
            }\n";
        Self::nginx_of(&upstream, pass)
    }

    /// nginx as a server with these locations.
    pub(crate) fn nginx_with(locations: &str) -> Self {
        Self::nginx_of("", locations)
    }

    fn nginx_of(upstream: &str, locations: &str) -> Self {
        Self::start("nginx", &["-e", "stderr", "-c", "{config}"], |dir| {
            format!(
                "daemon off; master_process off; pid {dir}/pid; error_log /dev/null;\n\
                events {{ worker_connections 512; }}\n\
                http {{\n\
                  access_log off;\n\
                  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
                  fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;\n\
                  {upstream}\n\
                  server {{\n\
                    listen unix:{dir}/socket;\n\
                    {locations}\n\
                  }}\n\
                }}\n"
            )
        })
    }

    /// HAProxy as a reverse proxy, with its defaults and connections kept.
    pub(crate) fn haproxy(backend: SocketAddr) -> Self {
        Self::start("haproxy", &["-db", "-q", "-f", "{config}"], |dir| {
            format!(
                "global\n  nbthread 1\n  maxconn 512\n\
                defaults\n  mode http\n  http-reuse always\n  retries 0\n\
                \x20 timeout connect 5s\n  timeout client 10s\n  timeout server 10s\n\
                frontend front\n  bind unix@{dir}/socket\n  default_backend back\n\
                backend back\n  server backend {backend} pool-max-conn 16\n"
            )
        })
    }

    fn start(name: &'static str, arguments: &[&str], config: impl Fn(&str) -> String) -> Self {
        let dir = tempfile::tempdir().expect("a folder for the peer");
        let folder = dir.path().to_str().expect("a name in UTF-8");
        let file = format!("{folder}/config");
        fs::write(&file, config(folder)).expect("a file for the peer");
        // The kernel stops it should the test be killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", name]);
        command.args(arguments.iter().map(|argument| argument.replace("{config}", &file)));
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap_or_else(|error| {
                panic!("{name} does not start ({error}): run scripts/setup")
            });
        let socket = dir.path().join("socket");
        let mut peer = Self { name, address: Address::Unix(socket.clone()), process, _dir: dir };
        peer.wait_for(&socket);
        peer
    }

    fn wait_for(&mut self, socket: &Path) {
        let address = Address::Unix(socket.to_owned());
        let start = Instant::now();
        while Client::connect(&address).is_err() {
            let ended = self.process.try_wait().expect("the state of a child");
            assert!(ended.is_none(), "{} ended ({ended:?}): run scripts/setup", self.name);
            assert!(start.elapsed() < PATIENCE, "{} does not listen", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.process.kill().expect("a child to kill");
        self.process.wait().expect("a child that ends");
    }
}
