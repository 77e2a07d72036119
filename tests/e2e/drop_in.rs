//! The library for ModSecurity's connectors in Debian's nginx, beside libmodsecurity in the same nginx with the same configuration:
//! the same responses, the same lines in the error log, the same audit log.

use crate::foreign_server::{ForeignServer, NGINX_FOLDERS, free_port};
use crate::support::{Workspace, show, stdout, wait_until, without_limits};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Configuration of nginx, in which [`Nginx::start`] replaces `FOLDER` and `PORT`, without its end.
const HEAD: &str = r#"
load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so;
daemon off;
worker_processes 2;
pid FOLDER/nginx.pid;
error_log FOLDER/error.log info;
events { worker_connections 256; }
http {
    access_log off;
    NGINX_FOLDERS
    root FOLDER/site;
    modsecurity on;
    modsecurity_rules_file FOLDER/rules.conf;
"#;

/// Configuration of nginx with blocks of `http`.
pub(crate) fn config(blocks: &str) -> String {
    format!("{HEAD}{blocks}}}\n")
}

const SERVER: &str = r#"
    client_body_buffer_size 1k;
    server {
        listen 127.0.0.1:PORT;
        location / { }
        location /post { proxy_pass http://127.0.0.1:PORT/index.html; proxy_method GET; proxy_pass_request_body off; proxy_set_header Content-Length ""; }
        location /off { modsecurity off; return 200 off; }
        location /own {
            modsecurity_rules 'SecRuleRemoveById 941100 941110 941160 941390
                SecRule ARGS:own "@streq yes" "id:100,phase:1,deny,status:418,msg:own"';
            try_files /index.html =404;
        }
        location /detect {
            modsecurity_rules 'SecRuleEngine DetectionOnly';
            try_files /index.html =404;
        }
        error_page 406 /blocked.html;
    }
"#;

const RULES: &str = r#"
SecRuleEngine On
SecRequestBodyAccess On
SecRequestBodyLimit 20000
SecRequestBodyLimitAction Reject
SecRequestBodyNoFilesLimit 20000
SecResponseBodyAccess On
SecResponseBodyMimeType text/html
SecAuditEngine RelevantOnly
SecAuditLogRelevantStatus "^(?:4|5)"
SecAuditLogParts ABCEFHZ
SecAuditLogFormat JSON
SecAuditLog FOLDER/audit.log
Include /etc/modsecurity/crs/crs-setup.conf
SecRule ARGS:denied "@rx ^(y|n)" "id:1,phase:1,deny,status:406,msg:'denied %{MATCHED_VAR}',logdata:'%{TX.0} %{MATCHED_VAR}',capture,severity:WARNING,ver:'1.2',rev:'3',maturity:'4',accuracy:'5',tag:'a',tag:'b/c'"
SecRule ARGS:moved "@streq yes" "id:2,phase:2,redirect:http://www.example.com/%{ARGS.moved},log"
SecRule RESPONSE_HEADERS:Content-Type "@beginsWith text/html" "id:3,phase:3,pass,log,msg:'page',chain"
    SecRule ARGS:page "@within %{ARGS.page} other" "t:none"
SecAction "id:4,phase:2,pass,nolog,setvar:tx.four=4"
SecRule TX:four "@ge %{tx.four}" "id:5,phase:2,pass,log,msg:'four'"
SecRule &ARGS "@gt 2" "id:6,phase:2,pass,log"
"#;

/// Rules, and those of the Core Rule Set behind them.
pub(crate) fn with_crs(rules: &str) -> String {
    let mut files: Vec<PathBuf> = fs::read_dir("/usr/share/modsecurity-crs/rules")
        .expect("modsecurity-crs is not installed; run `make packages`")
        .map(|entry| entry.expect("a file, process or socket of the test").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .collect();
    files.sort();
    let mut text = rules.to_owned();
    for file in files {
        text.push_str(&format!("Include {}\n", file.display()));
    }
    text
}

/// nginx with one of the libraries.
pub(crate) struct Nginx {
    pub(crate) server: ForeignServer,
    pub(crate) folder: PathBuf,
}

impl Nginx {
    /// Starts it with a configuration and rules, in which `FOLDER` and `PORT` are replaced.
    pub(crate) fn start(
        workspace: &Workspace,
        name: &str,
        library: Option<&Path>,
        files: (&str, &str),
    ) -> Self {
        Self::start_with(workspace, name, library, files, |_fill| ())
    }

    /// As [`Self::start`], with further files, which a function writes.
    pub(crate) fn start_with(
        workspace: &Workspace,
        name: &str,
        library: Option<&Path>,
        (config, rules): (&str, &str),
        write_others: impl FnOnce(&dyn Fn(&str) -> String),
    ) -> Self {
        let folder = workspace.path(name);
        let port = free_port();
        let fill = |text: &str| {
            text.replace("FOLDER", folder.to_str().expect("a file, process or socket of the test"))
                .replace("PORT", &port.to_string())
        };
        let config = config.replace("NGINX_FOLDERS", NGINX_FOLDERS);
        workspace.write(&format!("{name}/rules.conf"), &fill(rules));
        workspace.write(&format!("{name}/nginx.conf"), &fill(&config));
        workspace.write(&format!("{name}/site/index.html"), "<html><p>page</p></html>\n");
        workspace.write(&format!("{name}/site/blocked.html"), "blocked\n");
        write_others(&fill);
        // The workers of a master that root starts run as another user.
        Command::new("chmod")
            .args(["-R", "a+rX"])
            .arg(&folder)
            .status()
            .expect("a file, process or socket of the test");
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-e").arg(folder.join("start.log")).arg("-p").arg(&folder);
        command.arg("-c").arg(folder.join("nginx.conf"));
        if let Some(library) = library {
            command.env("LD_LIBRARY_PATH", library);
        }
        let log = || fs::read_to_string(folder.join("start.log")).unwrap_or_default();
        let server = ForeignServer::start(&mut command, port, log);
        let nginx = Self { server, folder };
        let maps = fs::read_to_string(format!("/proc/{}/maps", nginx.server.id()))
            .expect("a file, process or socket of the test");
        let expected = library.map_or("/usr/lib/", |_| "libmodsecurity.so");
        let loaded = maps.lines().find(|line| line.contains("libmodsecurity.so")).unwrap_or("");
        assert!(loaded.contains(expected), "{loaded}");
        assert_eq!(loaded.contains("/usr/lib/"), library.is_none(), "{loaded}");
        nginx
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Sends a request and returns the response's status, the header `Location` and the body.
    pub(crate) fn request(&self, request: &[u8]) -> (String, String, String) {
        let mut stream = TcpStream::connect(self.server.address())
            .expect("a file, process or socket of the test");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a file, process or socket of the test");
        stream.write_all(request).expect("a file, process or socket of the test");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("a file, process or socket of the test");
        let text = String::from_utf8_lossy(&response).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let location = head.lines().find_map(|line| line.strip_prefix("Location: "));
        let status = head.split(' ').nth(1).unwrap_or("").to_owned();
        (status, location.unwrap_or("").to_owned(), body.to_owned())
    }

    /// The last line of the error log for each request and rule. libmodsecurity writes several for a rule with `multiMatch`, and
    /// runs rules of later phases behind one that blocks.
    pub(crate) fn lines(&self) -> BTreeMap<(String, String), String> {
        let (mut lines, mut blocked) = (BTreeMap::new(), HashSet::new());
        for line in self.shown("error.log").lines() {
            let Some(at) = line.find("ModSecurity: ") else { continue };
            let level = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            let level = level.map_or("", |(level, _)| level);
            let line = without(&without(&line[at..], "ref"), "unique_id");
            let part = |before: &str, end: char| {
                let rest = line.split_once(before).map_or("", |(_, rest)| rest);
                rest.split(end).next().unwrap_or("").to_owned()
            };
            let (request, id) = (part("request: \"", '"'), part("[id \"", '"'));
            if blocked.contains(&request) || level.is_empty() || id.is_empty() {
                continue;
            }
            if line.contains("Access denied") {
                blocked.insert(request.clone());
            }
            lines.insert((request, id), format!("[{level}] {line}"));
        }
        lines
    }

    /// A log without what differs from process to process.
    fn shown(&self, name: &str) -> String {
        let log = self.log(name).replace(
            self.folder.to_str().expect("a file, process or socket of the test"),
            "FOLDER",
        );
        let log = log.replace(&self.server.address(), "127.0.0.1:PORT");
        log.lines().map(|line| with_lower_tx(line) + "\n").collect()
    }

    /// The entries in the order of their requests: workers write them after the response.
    fn audit_entries(&self) -> Vec<Value> {
        let entry = |line: &str| {
            let mut entry: Value = serde_json::from_str(line).expect(line);
            let transaction = &mut entry["transaction"];
            for member in ["time_stamp", "server_id", "unique_id", "client_port", "host_port"] {
                transaction[member] = Value::Null;
            }
            transaction["producer"]["modsecurity"] = Value::Null;
            // libmodsecurity keeps a quote of the directive.
            transaction["producer"]["components"] = Value::Null;
            for message in transaction["messages"]
                .as_array_mut()
                .expect("a file, process or socket of the test")
            {
                message["details"]["reference"] = Value::Null;
            }
            // libmodsecurity leaves out a body above the limit.
            if transaction["request"]["headers"]["Content-Length"] == "24000" {
                transaction["request"]["body"] = Value::Null;
            }
            for header in ["Date", "ETag", "Last-Modified"] {
                transaction["response"]["headers"][header] = Value::Null;
            }
            entry
        };
        let log = self.shown("audit.log");
        let mut entries: Vec<Value> = log.lines().map(entry).collect();
        entries.sort_by_cached_key(|entry| entry["transaction"]["request"].to_string());
        entries
    }
}

/// Lowers the names of TX variables, which libmodsecurity logs as the rule has them.
fn with_lower_tx(text: &str) -> String {
    let mut parts = text.split("variable `TX:");
    let mut lowered = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let (name, end) = part.split_once('\'').unwrap_or((part, ""));
        lowered.push_str(&format!("variable `TX:{}'{end}", name.to_lowercase()));
    }
    lowered
}

/// Removes the value of `[name "value"]`.
fn without(line: &str, name: &str) -> String {
    let start = format!("[{name} \"");
    let Some(at) = line.find(&start) else { return line.to_owned() };
    let value = at + start.len();
    let end = line[value..].find('"').map_or(line.len(), |length| value + length);
    format!("{}{}", &line[..value], &line[end..])
}

pub(crate) fn get(target: &str, headers: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: test\r\nAccept: */*\r\nConnection: close\r\n{headers}\r\n").into_bytes()
}

fn post(content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST /post HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: test\r\nAccept: */*\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

#[test]
fn crate_of_crates_io_uses_the_installed_library() {
    let workspace = Workspace::concurrent();
    let prefix = workspace.path("installed");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut install = Command::new(folder.join("scripts/install"));
    install.arg(assert_cmd::cargo::cargo_bin!("tollgate")).env("PREFIX", &prefix);
    let output = install.output().expect("scripts/install");
    assert!(output.status.success(), "{}", show(&output));
    let library = prefix.join("lib/tollgate");
    let output = Command::new("cargo")
        .args(["run", "--quiet", "--locked"])
        .current_dir(folder.join("tests/modsecurity-crate"))
        .env("PKG_CONFIG_PATH", library.join("pkgconfig"))
        .env("LD_LIBRARY_PATH", &library)
        .env("CARGO_TARGET_DIR", workspace.path("target"))
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", show(&output));
    let text = stdout(&output);
    let lines: Vec<&str> =
        text.lines().map(|line| line.split(" [file").next().unwrap_or(line)).collect();
    assert_eq!(
        lines,
        [
            concat!(
                "Tollgate v",
                env!("CARGO_PKG_VERSION"),
                " (compatible with ModSecurity v3.0.13)"
            ),
            "refused: Error adding plain rules to rule set: <<reference missing or not informed>>:1:1: unknown directive \"SecRuel\"; did you mean \"SecRule\"?",
            "log: ModSecurity: Warning. Matched \"Operator `Contains' with parameter `admin' against variable `REQUEST_URI' (Value: `/admin' )",
            "early: false",
            "body: 3",
            "301 https://www.example.com/",
        ]
    );
}

/// At most five failures in a minute.
const COUNTING: &str = r#"
SecRuleEngine On
SecAction "id:1,phase:1,pass,nolog,initcol:ip=%{ARGS.client}"
SecRule IP:failures "@ge 5" "id:2,phase:1,deny,status:429,log,msg:'%{ip.failures} failures'"
SecRule RESPONSE_STATUS "@streq 404" "id:3,phase:5,pass,nolog,setvar:ip.failures=+1,expirevar:ip.failures=60"
"#;

#[test]
fn lab_starts_a_fresh_nginx_with_the_library_in_every_block() {
    let workspace = Workspace::concurrent();
    let drop_in = "drop-in=nginx-modsecurity:library=tollgate";
    let run = ["run", "nginx", drop_in, "-d", "200ms", "-c", "2", "--blocks", "2"];
    let output = workspace.run(&without_limits(&run));
    let text = stdout(&output);
    assert!(text.contains("drop-in"), "{}", show(&output));
    assert!(!text.contains("did not start"), "{}", show(&output));
}

/// A folder with our library.
pub(crate) fn our_library(workspace: &Workspace) -> PathBuf {
    let library = workspace.path("library");
    fs::create_dir(&library).expect("a file, process or socket of the test");
    let built = assert_cmd::cargo::cargo_bin!("tollgate").with_file_name("deps/libmodsecurity.so");
    assert!(
        built.exists(),
        "no {}; run `cargo test --workspace`, which builds it",
        built.display()
    );
    std::os::unix::fs::symlink(built, library.join("libmodsecurity.so.3"))
        .expect("a file, process or socket of the test");
    library
}

#[test]
fn rules_count_across_requests_of_a_worker() {
    let workspace = Workspace::concurrent();
    let library = our_library(&workspace);
    let one_worker = config(SERVER).replace("worker_processes 2", "worker_processes 1");
    let nginx = Nginx::start(&workspace, "counting", Some(&library), (&one_worker, COUNTING));
    let status = |target: &str| nginx.request(&get(target, "")).0;
    // Rules of phase 5 run before nginx closes the connection.
    for _ in 0..4 {
        assert_eq!(status("/missing?client=a"), "404");
    }
    assert_eq!(status("/?client=a"), "200");
    assert_eq!(status("/missing?client=a"), "404");
    assert_eq!(status("/?client=a"), "429");
    // Another rule set of the same worker.
    assert_eq!(status("/own?client=a"), "429");
    assert_eq!(status("/?client=b"), "200");
    wait_until(Duration::from_secs(60), || nginx.log("error.log").contains("5 failures"));
    assert!(nginx.log("error.log").contains("[msg \"5 failures\"]"), "{}", nginx.log("error.log"));
}

#[test]
fn nginx_responds_and_logs_as_with_libmodsecurity() {
    let workspace = Workspace::concurrent();
    let library = our_library(&workspace);
    let rules = with_crs(RULES);
    let both = [("theirs", None), ("ours", Some(&*library))]
        .map(|(name, library)| Nginx::start(&workspace, name, library, (&config(SERVER), &rules)));
    // Larger than the buffer: in a file. Larger than the limit: refused.
    let (in_file, too_long) = ("x=1&".repeat(2_000), "x=1&".repeat(6_000));
    let requests = [
        get("/", ""),
        get("/?q=%3Cscript%3Ealert(1)%3C/script%3E", ""),
        get("/own?q=%3Cscript%3Ealert(1)%3C/script%3E", ""),
        get("/own?own=yes", ""),
        get("/detect?q=1'+or+'1'='1", ""),
        get("/off?q=%3Cscript%3Ealert(1)%3C/script%3E", ""),
        get("/?denied=y%22%5C%0a", ""),
        get("/?moved=yes", ""),
        get("/?page=p&a=1&b=2", ""),
        get("/p%20q?q=..%2f..%2fetc%2fpasswd", ""),
        get("/missing", "Cookie: a=b; c=%3Cimg%20src%3Dx%20onerror%3Da%3E\r\n"),
        get("/", "Content-Type: \r\nX-Forwarded-For: 192.0.2.1\r\n"),
        post("application/x-www-form-urlencoded", "q=1+union+select+1,2,3&r=%27"),
        post("application/x-www-form-urlencoded", &in_file),
        post("application/x-www-form-urlencoded", &format!("{in_file}q=;cat+/etc/passwd")),
        post("application/x-www-form-urlencoded", &too_long),
        post("text/plain", "hello"),
    ];
    for request in &requests {
        let [theirs, ours] = both.each_ref().map(|nginx| nginx.request(request));
        let shown = String::from_utf8_lossy(&request[..request.len().min(200)]);
        assert!(!theirs.0.is_empty(), "{shown}");
        assert_eq!(ours, theirs, "{shown}");
    }
    // A worker writes the last lines of a request after the response.
    let lines = || both.each_ref().map(Nginx::lines);
    wait_until(Duration::from_secs(60), || {
        let [theirs, ours] = lines();
        theirs.keys().eq(ours.keys())
    });
    let [theirs, ours] = lines();
    assert!(theirs.len() > 30, "{theirs:#?}");
    for (key, theirs) in &theirs {
        let ours = ours.get(key).unwrap_or_else(|| panic!("no line for {key:?}"));
        // For rules with `multiMatch` libmodsecurity logs another value, without tags.
        if !theirs.contains("OWASP_CRS/") || theirs.contains("[tag ") {
            assert_eq!(ours, theirs, "{key:?}");
        }
    }
    assert_eq!(ours.len(), theirs.len());
    let entries = || both.each_ref().map(Nginx::audit_entries);
    wait_until(Duration::from_secs(30), || entries()[0].len() == entries()[1].len());
    let [theirs, ours] = entries();
    assert!(theirs.len() > 8, "{theirs:#?}");
    assert_eq!(ours.len(), theirs.len());
    for (mut ours, mut theirs) in ours.into_iter().zip(theirs) {
        let messages = |entry: &mut Value| match entry["transaction"]["messages"].take() {
            Value::Array(messages) => messages,
            other => panic!("{other}"),
        };
        let (our_messages, their_messages) = (messages(&mut ours), messages(&mut theirs));
        assert_eq!(ours, theirs);
        // libmodsecurity runs rules behind one that blocks, and has other messages for rules with `multiMatch`.
        let id = |message: &Value| message["details"]["ruleId"].clone();
        for message in &our_messages {
            let mut same =
                their_messages.iter().filter(|theirs| id(theirs) == id(message)).peekable();
            assert!(same.peek().is_some(), "{message}");
            if same.all(|theirs| theirs["details"]["tags"] == message["details"]["tags"]) {
                assert!(their_messages.contains(message), "{message}\n{their_messages:#?}");
            }
        }
        assert_eq!(our_messages.is_empty(), their_messages.is_empty());
    }
}
