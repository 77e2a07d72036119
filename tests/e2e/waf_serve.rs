//! `tollgate waf serve` behind nginx, Traefik, Caddy, Envoy and HAProxy, with the configurations of docs/waf-serve.md.

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

const PATIENCE: Duration = Duration::from_secs(60);
const ATTACK: &str = "/?q=../../../../etc/passwd";

/// Ports of a test in place of those of the document.
struct Ports {
    site: u16,
    proxy: u16,
    waf: u16,
}

/// The code blocks of a section of the document, with these ports.
fn configurations(title: &str, ports: &Ports) -> Vec<String> {
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
    let fill = |text: &String| {
        // In two steps, as a port may contain another.
        let named = text.replace("8000", "SITE").replace("8080", "PROXY").replace("7423", "WAF");
        named
            .replace("SITE", &ports.site.to_string())
            .replace("PROXY", &ports.proxy.to_string())
            .replace("WAF", &ports.waf.to_string())
    };
    blocks.iter().map(fill).collect()
}

/// The site, the daemon and a proxy before it.
struct Scene {
    workspace: Workspace,
    ports: Ports,
    configurations: Vec<String>,
    daemon: GatewayProcess,
    _site: OriginProcess,
}

impl Scene {
    fn start(title: &str) -> Self {
        let workspace = Workspace::concurrent();
        let site = OriginProcess::start(&workspace, &["127.0.0.1:0"]);
        let port = site.listens_on.rsplit_once(':').expect("a port").1;
        let ports =
            Ports { site: port.parse().expect("a port"), proxy: free_port(), waf: free_port() };
        let configurations = configurations(title, &ports);
        workspace.write("waf.yaml", &configurations[0]);
        let daemon = start_daemon(&workspace);
        Self { workspace, ports, configurations, daemon, _site: site }
    }

    /// Writes a file of the proxy. Returns its path.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        self.workspace.write(name, text);
        self.workspace.path(name)
    }

    fn proxy(&self, command: &mut Command) -> ForeignServer {
        command.current_dir(self.workspace.path("")).stdout(Stdio::null());
        let log = || fs::read_to_string(self.workspace.path("start.log")).unwrap_or_default();
        ForeignServer::start(command, self.ports.proxy, log)
    }

    /// The status of the response to a request of curl.
    fn status(&self, target: &str, arguments: &[&str]) -> String {
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
    fn check(self, blocks_bodies: bool, when_down: &str) {
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

fn start_daemon(workspace: &Workspace) -> GatewayProcess {
    GatewayProcess::start_with(workspace, &["waf", "serve", "waf.yaml"])
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
fn haproxy_asks_by_spoe_with_bodies() {
    let scene = Scene::start("HAProxy");
    let file = scene.write("haproxy.cfg", &scene.configurations[1]);
    scene.write("coraza.cfg", &scene.configurations[2]);
    let mut command = Command::new("haproxy");
    let _haproxy = scene.proxy(command.arg("-f").arg(file));
    scene.check(true, "503");
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
