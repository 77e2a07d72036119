//! `tollgate waf serve` behind nginx, Traefik, Caddy and Envoy, with the configurations of docs/waf-serve.md.

use crate::foreign_server::{ForeignServer, NGINX_FOLDERS, built_program, free_port};
use crate::gateway::GatewayProcess;
use crate::origin::OriginProcess;
use crate::support::{Workspace, wait_until};
use nix::sys::signal::Signal;
use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const ATTACK: &str = "/?q=../../../../etc/passwd";

/// Ports of a test in place of those of the document.
pub(crate) struct Ports {
    site: u16,
    proxy: u16,
    waf: u16,
}

impl Ports {
    /// Replaces the ports of the document in a text.
    pub(crate) fn fill(&self, text: &str) -> String {
        // In two steps, as a port may contain another.
        let named = text.replace("8000", "SITE").replace("8080", "PROXY").replace("7423", "WAF");
        named
            .replace("SITE", &self.site.to_string())
            .replace("PROXY", &self.proxy.to_string())
            .replace("WAF", &self.waf.to_string())
    }
}

/// The code blocks of a section of the document, with these ports.
pub(crate) fn configurations(title: &str, ports: &Ports) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/waf-serve.md");
    let text = fs::read_to_string(path).expect("the document");
    let (mut heading, mut in_section) = (false, false);
    let mut blocks: Vec<String> = Vec::new();
    let mut in_block = false;
    for event in Parser::new(&text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = true,
            Event::End(TagEnd::Heading(_)) => heading = false,
            Event::Text(text) if heading => in_section = *text == *title,
            Event::Start(Tag::CodeBlock(_)) if in_section => {
                in_block = true;
                blocks.push(String::new());
            }
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Text(text) if in_block => blocks.last_mut().expect("a block").push_str(&text),
            _ => {}
        }
    }
    blocks.iter().map(|text| ports.fill(text)).collect()
}

/// The site, the daemon and a proxy before it.
pub(crate) struct Scene {
    pub(crate) workspace: Workspace,
    pub(crate) ports: Ports,
    configurations: Vec<String>,
    pub(crate) daemon: GatewayProcess,
    _site: OriginProcess,
}

impl Scene {
    pub(crate) fn start(title: &str) -> Self {
        Self::with(|_, ports| configurations(title, ports))
    }

    /// Starts with configurations, the first of which is that of the daemon.
    pub(crate) fn with(configurations: impl FnOnce(&Workspace, &Ports) -> Vec<String>) -> Self {
        let workspace = Workspace::concurrent();
        let site = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
        let port = site.listens_on.rsplit_once(':').expect("a port").1;
        let ports =
            Ports { site: port.parse().expect("a port"), proxy: free_port(), waf: free_port() };
        let configurations = configurations(&workspace, &ports);
        workspace.write("waf.yaml", &configurations[0]);
        let daemon = start_daemon(&workspace);
        Self { workspace, ports, configurations, daemon, _site: site }
    }

    /// Writes a file of the proxy. Returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        self.workspace.write(name, text);
        self.workspace.path(name)
    }

    pub(crate) fn proxy(&self, command: &mut Command) -> ForeignServer {
        command.current_dir(self.workspace.path("")).stdout(Stdio::null());
        let log = || fs::read_to_string(self.workspace.path("start.log")).unwrap_or_default();
        ForeignServer::start(command, self.ports.proxy, log)
    }

    /// The status of the response to a request of curl.
    pub(crate) fn status(&self, target: &str, arguments: &[&str]) -> String {
        let url = format!("http://127.0.0.1:{}{target}", self.ports.proxy);
        let output = Command::new("curl")
            .args([
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "--path-as-is",
                "--max-time",
                "60",
            ])
            .args(arguments)
            .arg(url)
            .output()
            .expect("curl");
        String::from_utf8(output.stdout).expect("a status")
    }

    /// Attacks are blocked and benign requests pass; without the daemon nothing passes, and all is as before once it runs again.
    pub(crate) fn check(self, blocks_bodies: bool, when_down: &str) {
        // A proxy may need a moment until its site is up.
        assert!(wait_until(PATIENCE, || self.status("/?q=benign", &[]) == "200"));
        let attack = ["--data", "q=../../../../etc/passwd"];
        let check = || {
            assert_eq!(self.status("/?q=benign", &[]), "200");
            assert_eq!(self.status(ATTACK, &[]), "403");
            assert_eq!(self.status("/", &["-A", "nikto"]), "403");
            assert_eq!(self.status("/", &["--data", "q=benign"]), "200");
            assert_eq!(self.status("/", &attack), if blocks_bodies { "403" } else { "200" });
            assert_eq!(self.status("/", &["-X", "PROPFIND"]), "403");
            // Headers of clients do not describe their requests.
            for name in
                ["X-Original-URI", "X-Original-Method", "X-Forwarded-Uri", "X-Forwarded-Method"]
            {
                assert_eq!(self.status(ATTACK, &["-H", &format!("{name}: GET")]), "403", "{name}");
            }
        };
        check();
        self.daemon.signal(Signal::SIGKILL);
        assert!(wait_until(PATIENCE, || self.status("/?q=benign", &[]) == when_down));
        let again = start_daemon(&self.workspace);
        assert!(wait_until(PATIENCE, || self.status("/?q=benign", &[]) == "200"));
        check();
        again.signal(Signal::SIGTERM);
        assert_eq!(again.wait(), Some(0));
    }
}

pub(crate) fn start_daemon(workspace: &Workspace) -> GatewayProcess {
    GatewayProcess::start_with(workspace, &["waf", "serve", "waf.yaml"])
}

#[test]
fn messages_name_the_command_and_the_protocol_of_each_listener() {
    let workspace = Workspace::concurrent();
    workspace.write("a.conf", "SecAction \"id:1,pass,nolog\"");
    workspace.write(
        "waf.yaml",
        "listeners: [{ forward-auth: '127.0.0.1:0', proxy: caddy }, { spoe: '127.0.0.2:0' }]\n\
         waf: { rules: [a.conf] }\nlimits: { connections: 100 }\n",
    );
    let daemon = start_daemon(&workspace);
    let spoe = daemon.printed.recv_timeout(PATIENCE).expect("a second listener");
    assert!(spoe.starts_with("listening on spoe://127.0.0.2:"), "{spoe}");
    let warning = daemon.message();
    assert!(warning.starts_with("tollgate waf serve: "), "{warning}");
    assert!(warning.contains("Caddy sends no bodies"), "{warning}");
    daemon.signal(Signal::SIGHUP);
    let warning = daemon.message();
    assert!(warning.starts_with("tollgate waf serve: "), "{warning}");
}

#[test]
fn nginx_asks_by_auth_request() {
    let scene = Scene::start("nginx");
    let folder = scene.workspace.path("nginx");
    fs::create_dir(&folder).expect("a folder");
    let folders = NGINX_FOLDERS.replace("FOLDER", folder.to_str().expect("text"));
    let config = format!(
        "daemon off;\npid nginx.pid;\nerror_log error.log;\nevents {{}}\nhttp {{ access_log off; {folders} {} }}\n",
        scene.configurations[1]
    );
    let file = scene.write("nginx.conf", &config);
    let mut command = Command::new("/usr/sbin/nginx");
    command
        .arg("-e")
        .arg(scene.workspace.path("start.log"))
        .arg("-p")
        .arg(&folder)
        .arg("-c")
        .arg(file);
    let _nginx = scene.proxy(&mut command);
    scene.check(false, "500");
}

#[test]
fn traefik_asks_by_forward_auth_with_bodies() {
    let scene = Scene::start("Traefik");
    let file = scene.write("traefik.yaml", &scene.configurations[1]);
    scene.write("site.yaml", &scene.configurations[2]);
    let mut command = Command::new(built_program("traefik", "bin/traefik"));
    let _traefik = scene.proxy(command.arg(format!("--configFile={}", file.display())));
    scene.check(true, "500");
}

#[test]
fn caddy_asks_by_forward_auth() {
    let scene = Scene::start("Caddy");
    let file =
        scene.write("Caddyfile", &format!("{{\n    admin off\n}}\n{}", scene.configurations[1]));
    let mut command = Command::new(built_program("caddy", "caddy"));
    command.env("HOME", scene.workspace.path("home")).args(["run", "--adapter", "caddyfile"]);
    let _caddy = scene.proxy(command.arg("--config").arg(file));
    scene.check(false, "502");
}

#[test]
fn envoy_asks_by_ext_authz_with_bodies() {
    let scene = Scene::start("Envoy");
    let file = scene.write("envoy.yaml", &scene.configurations[1]);
    let mut command = Command::new(built_program("envoy", "envoy/_bin/envoy"));
    command.args(["--disable-hot-restart", "--log-level", "off", "--config-path"]);
    let _envoy = scene.proxy(command.arg(file));
    scene.check(true, "403");
}
