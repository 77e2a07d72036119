//! Features of nginx with the drop-in: several workers, HTTP/2, subrequests, bodies in files, redirects, error pages, gzip and
//! reloads. Where it can, a test has libmodsecurity beside it, in the same nginx with the same configuration.

use crate::drop_in::{Nginx, config, get, our_library};
use crate::foreign_server::NGINX_FOLDERS;
use crate::support::{Workspace, show, stdout, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// Blocks arguments, headers and bodies with `attack`, and pages with `secret`.
const RULES: &str = r#"
SecRuleEngine On
SecRequestBodyAccess On
SecResponseBodyAccess On
SecResponseBodyMimeType text/html
SecRule ARGS|REQUEST_HEADERS:X-Test "@contains attack" "id:1,phase:2,deny,status:403,log,msg:'%{MATCHED_VAR_NAME}'"
SecRule REQUEST_BODY "@contains attack" "id:2,phase:2,deny,status:403,log,msg:'body'"
SecRule ARGS:move "@streq permanently" "id:3,phase:1,redirect:https://%{REQUEST_HEADERS.Host}/new?from=%{REQUEST_URI},status:301,log"
SecRule ARGS:move "@streq yes" "id:4,phase:2,redirect:/elsewhere,log"
SecRule RESPONSE_STATUS "@streq 503" "id:5,phase:3,deny,status:502,log"
SecRule RESPONSE_BODY "@contains secret" "id:6,phase:4,deny,status:403,log,msg:'page'"
"#;

struct Both {
    servers: [Nginx; 2],
    _workspace: Workspace,
}

impl Both {
    /// Starts nginx with libmodsecurity, and with the drop-in.
    fn start(blocks: &str, rules: &str) -> Self {
        let workspace = Workspace::concurrent();
        let library = our_library(&workspace);
        let servers = [("theirs", None), ("ours", Some(&*library))].map(|(name, library)| {
            Nginx::start(&workspace, name, library, (&config(blocks), rules))
        });
        Self { servers, _workspace: workspace }
    }

    fn write(&self, name: &str, text: &str) {
        for server in &self.servers {
            fs::write(server.folder.join("site").join(name), text).expect("a file of the site");
        }
    }

    /// The status, target of a redirect and body that both respond with.
    fn request(&self, request: &[u8]) -> (String, String, String) {
        let [theirs, ours] = self.servers.each_ref().map(|server| server.request(request));
        assert_eq!(ours, theirs, "{}", String::from_utf8_lossy(request));
        ours
    }

    fn status(&self, target: &str) -> String {
        self.request(&get(target, "")).0
    }

    /// Waits until both have logged the same requests and rules, and compares the lines. Returns the number of them.
    fn compare_lines(&self) -> usize {
        wait_until(WAIT, || {
            let [theirs, ours] = self.servers.each_ref().map(Nginx::lines);
            theirs.keys().eq(ours.keys())
        });
        let [theirs, ours] = self.servers.each_ref().map(Nginx::lines);
        assert_eq!(ours, theirs);
        ours.len()
    }
}

fn form(target: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {target} HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// The processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

#[test]
fn four_workers_block_and_log_every_attack() {
    let workspace = Workspace::concurrent();
    let library = our_library(&workspace);
    let rules = format!(
        "{RULES}SecAuditEngine RelevantOnly\nSecAuditLogRelevantStatus \"^403\"\nSecAuditLogFormat JSON\nSecAuditLog FOLDER/audit.log\n"
    );
    let config = config("server { listen 127.0.0.1:PORT; }")
        .replace("worker_processes 2", "worker_processes 4");
    let nginx = Nginx::start(&workspace, "four", Some(&library), (&config, &rules));
    thread::scope(|scope| {
        for client in 0..8 {
            let nginx = &nginx;
            scope.spawn(move || {
                for number in 0..40 {
                    let target = format!("/?a=attack{client}-{number}");
                    assert_eq!(nginx.request(&get(&target, "")).0, "403");
                    assert_eq!(nginx.request(&get("/?a=ordinary", "")).0, "200");
                }
            });
        }
    });
    let workers = children(nginx.server.id());
    assert_eq!(workers.len(), 4, "{workers:?}");
    for worker in workers {
        let maps = fs::read_to_string(format!("/proc/{worker}/maps")).expect("a worker's maps");
        assert!(
            maps.contains("libmodsecurity.so")
                && !maps.contains("/usr/lib/x86_64-linux-gnu/libmodsecurity")
        );
    }
    // A worker writes its entry after the response.
    wait_until(WAIT, || nginx.log("audit.log").lines().count() == 320);
    let mut attacks: Vec<String> = nginx
        .log("audit.log")
        .lines()
        .map(|line| {
            let entry: Value = serde_json::from_str(line).expect("a line is one entry");
            entry["transaction"]["request"]["uri"].as_str().expect("a target").to_owned()
        })
        .collect();
    attacks.sort();
    attacks.dedup();
    assert_eq!(attacks.len(), 320);
}

/// A master process of nginx, which the test's process did not start itself. It ends with this.
struct Master(Pid);

impl Master {
    /// The process whose id is in a file, once it is not `old` and has a worker. Before that, nginx would not react to a signal
    /// until the next one.
    fn named_by(file: &Path, old: Option<&Self>) -> Self {
        let mut found = None;
        let is_found = wait_until(WAIT, || {
            let text = fs::read_to_string(file).unwrap_or_default();
            found = text.trim().parse().ok().map(Pid::from_raw);
            found != old.map(|old| old.0)
                && found.is_some_and(|id| !children(id.as_raw().unsigned_abs()).is_empty())
        });
        assert!(is_found, "{}: {found:?}", file.display());
        Self(found.expect("it was found"))
    }

    fn maps(&self) -> String {
        fs::read_to_string(format!("/proc/{}/maps", self.0)).expect("it runs")
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        // It may have ended.
        kill(self.0, Signal::SIGTERM).ok();
        wait_until(WAIT, || kill(self.0, None).is_err());
    }
}

#[test]
fn upgrade_of_the_running_nginx_keeps_the_library_with_a_line_in_its_configuration() {
    let workspace = Workspace::concurrent();
    let library = our_library(&workspace);
    for (name, line, keeps) in [("without", "", false), ("with", "env LD_LIBRARY_PATH;", true)] {
        let folder = workspace.path(name);
        let folder = folder.to_str().expect("UTF-8");
        let config = format!(
            "load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so; {line}\n\
             pid {folder}/pid; error_log {folder}/error.log; events {{}}\n\
             http {{ {NGINX_FOLDERS} access_log off; server {{ listen unix:{folder}/socket; modsecurity on; }} }}\n"
        );
        workspace.write(&format!("{name}/nginx.conf"), &config.replace("FOLDER", folder));
        let conf = format!("{folder}/nginx.conf");
        let check = workspace.run(&["waf", "check", "--for", "modsecurity", &conf]);
        assert_eq!(stdout(&check).contains("`env LD_LIBRARY_PATH;`"), !keeps, "{}", show(&check));
        // The signal has no effect on an nginx that is not a daemon.
        let start = Command::new("/usr/sbin/nginx")
            .args(["-p", folder, "-c", &conf])
            .env("LD_LIBRARY_PATH", &library)
            .output()
            .expect("nginx");
        assert!(start.status.success(), "{}", show(&start));
        let file = workspace.path(&format!("{name}/pid"));
        let old = Master::named_by(&file, None);
        let theirs = "/usr/lib/x86_64-linux-gnu/libmodsecurity";
        assert!(!old.maps().contains(theirs));
        kill(old.0, Signal::SIGUSR2).expect("it runs");
        let new = Master::named_by(&file, Some(&old));
        assert_eq!(new.maps().contains(theirs), !keeps, "{name}");
        assert!(new.maps().contains("libmodsecurity"), "{name}");
    }
}

#[test]
fn http2_requests_are_inspected() {
    let both = Both::start(
        "server { listen 127.0.0.1:PORT http2; location /post { proxy_pass http://127.0.0.1:9; error_page 502 =200 /index.html; proxy_connect_timeout 1s; } }",
        RULES,
    );
    let curl = |server: &Nginx, arguments: &[&str], target: &str| {
        let url = format!("http://{}{target}", server.server.address());
        let output = Command::new("curl")
            .args([
                "-s",
                "--http2-prior-knowledge",
                "-w",
                "%{http_version} %{http_code}",
                "-o",
                "/dev/null",
            ])
            .args(arguments)
            .arg(url)
            .output()
            .expect("curl is not installed; run `apt-get install curl`");
        assert!(output.status.success(), "{}", show(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let long = format!("a={}&b=attack", "x".repeat(40_000));
    for (arguments, target, expected) in [
        (&[][..], "/", "2 200"),
        (&[], "/?a=attack", "2 403"),
        (&["-H", "x-test: attack"], "/", "2 403"),
        (&["-d", "a=b"], "/post", "2 200"),
        (&["-d", "a=attack"], "/post", "2 403"),
        (&["-d", &long], "/post", "2 403"),
        (&[], "/?move=yes", "2 302"),
    ] {
        for server in &both.servers {
            assert_eq!(curl(server, arguments, target), expected, "{target} {arguments:?}");
        }
    }
    assert_eq!(both.compare_lines(), 4);
    // Streams of one connection.
    let ours = &both.servers[1];
    let url = format!("http://{}/?b=attack", ours.server.address());
    let output = Command::new("h2load").args(["-n", "200", "-c", "2", "-m", "20", &url]).output();
    let output = output.expect("h2load is not installed; run `make packages`");
    assert!(show(&output).contains("200 4xx"), "{}", show(&output));
}

#[test]
fn subrequests_are_treated_as_with_libmodsecurity() {
    let both = Both::start(
        r#"
        server {
            listen 127.0.0.1:PORT;
            location /protected { auth_request /auth; try_files /index.html =404; }
            location /refused { auth_request /attack-auth; try_files /index.html =404; }
            location = /auth { internal; proxy_pass http://127.0.0.1:PORT/allowed; proxy_pass_request_body off; proxy_set_header Content-Length ""; }
            location = /attack-auth { internal; proxy_pass http://127.0.0.1:PORT/allowed?a=attack; }
            location /allowed { try_files /index.html =404; }
            location /page { ssi on; try_files /page.html =404; }
            location /part { try_files /index.html =404; }
            location /mirrored { mirror /copy; mirror_request_body on; proxy_pass http://127.0.0.1:PORT/part; }
            location = /copy { internal; proxy_pass http://127.0.0.1:PORT/allowed$request_uri; }
        }
        "#,
        RULES,
    );
    both.write("page.html", "<p>page <!--# include virtual=\"/part?x=1\" --> end</p>\n");
    assert_eq!(both.status("/protected"), "200");
    assert_eq!(both.status("/protected?a=attack"), "403");
    // The backend of the subrequest blocks.
    assert_eq!(both.status("/refused"), "403");
    let (status, _, body) = both.request(&get("/page", ""));
    assert_eq!(status, "200");
    assert!(body.contains("<html><p>page</p></html>"), "{body}");
    assert_eq!(both.status("/page?a=attack"), "403");
    assert_eq!(both.status("/mirrored?b=c"), "200");
    assert_eq!(both.request(&form("/mirrored", "a=attack")).0, "403");
    both.compare_lines();
}

#[test]
fn bodies_in_temporary_files_are_inspected() {
    let both = Both::start(
        r#"
        client_body_buffer_size 1k;
        server {
            listen 127.0.0.1:PORT;
            location /always { client_body_in_file_only clean; proxy_pass http://127.0.0.1:PORT/index.html; proxy_method GET; proxy_set_body ""; }
            location /long { proxy_pass http://127.0.0.1:PORT/index.html; proxy_method GET; proxy_set_body ""; }
            location /echo { proxy_pass http://127.0.0.1:PORT/length; }
            location /length { modsecurity off; client_body_in_single_buffer on; return 200 "$content_length\n"; }
        }
        "#,
        RULES,
    );
    let long = "x=1&".repeat(20_000);
    for target in ["/always", "/long"] {
        for (body, expected) in [
            ("a=b".to_owned(), "200"),
            ("a=attack".to_owned(), "403"),
            (long.clone(), "200"),
            (format!("{long}a=attack"), "403"),
            (format!("a=attack&{long}"), "403"),
        ] {
            assert_eq!(both.request(&form(target, &body)).0, expected, "{target} {}", body.len());
        }
    }
    // The backend gets the whole body.
    assert_eq!(both.request(&form("/echo", &long)).2, "80000\n");
    // Lines of the two targets.
    assert_eq!(both.compare_lines(), 2);
}

#[test]
fn rules_redirect() {
    let both = Both::start("server { listen 127.0.0.1:PORT; absolute_redirect off; }", RULES);
    let moved = both.request(&get("/a?move=permanently", ""));
    assert_eq!(
        (&*moved.0, &*moved.1),
        ("301", "https://www.example.com/new?from=/a?move=permanently")
    );
    let moved = both.request(&get("/a?move=yes", ""));
    assert_eq!((&*moved.0, &*moved.1), ("302", "/elsewhere"));
    assert_eq!(both.compare_lines(), 2);
}

#[test]
fn error_pages_replace_blocked_and_intercepted_responses() {
    let both = Both::start(
        r#"
        server {
            listen 127.0.0.1:PORT;
            error_page 403 /blocked.html;
            error_page 404 = @missing;
            error_page 500 502 503 /failed.html;
            location / { }
            location @missing { return 410 gone; }
            location /backend { proxy_intercept_errors on; proxy_pass http://127.0.0.1:PORT/broken; }
            location /as-is { proxy_pass http://127.0.0.1:PORT/broken; }
            location /broken { error_page 500 503 = @none; return 500 "backend"; }
            location /broken/busy { error_page 500 503 = @none; return 503 "backend"; }
            location @none { return 500; }
        }
        "#,
        RULES,
    );
    both.write("failed.html", "failed\n");
    let blocked = both.request(&get("/?a=attack", ""));
    assert_eq!((&*blocked.0, &*blocked.2), ("403", "blocked\n"));
    assert_eq!(both.status("/missing"), "410");
    let failed = both.request(&get("/backend", ""));
    assert_eq!((&*failed.0, &*failed.2), ("500", "failed\n"));
    // Rules see the response before the page that replaces it.
    both.request(&get("/backend/busy", ""));
    both.request(&get("/as-is/busy", ""));
    assert_eq!(both.status("/backend?a=attack"), "403");
    assert!(both.compare_lines() >= 2);
}

#[test]
fn gzip_compresses_inspected_pages() {
    let both = Both::start(
        "gzip on; gzip_min_length 1; gzip_types text/html; server { listen 127.0.0.1:PORT; }",
        RULES,
    );
    let page = format!("<p>{}</p>\n", "words ".repeat(500));
    both.write("long.html", &page);
    both.write("secret.html", &format!("{page}secret"));
    for server in &both.servers {
        let fetch = |name: &str| {
            let url = format!("http://{}/{name}", server.server.address());
            let output = Command::new("curl")
                .args(["-s", "-D", "-", "--compressed", &url])
                .output()
                .expect("curl is not installed; run `apt-get install curl`");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let text = fetch("long.html");
        assert!(text.contains("Content-Encoding: gzip"), "{}", &text[..200]);
        assert!(text.ends_with(&page), "{}", text.len());
        assert!(!fetch("secret.html").contains("words"), "sent");
    }
    both.compare_lines();
}

/// Resident memory of some processes in KiB.
fn memory_kib(processes: &[u32]) -> u64 {
    let of = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    processes.iter().map(of).sum()
}

/// Ends the clients of a load when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn fifty_reloads_under_load_lose_no_request_and_no_memory() {
    let workspace = Workspace::quiet();
    let library = our_library(&workspace);
    // Each server has rules of its own, and names the file again.
    let blocks: String = (0..10)
        .map(|number| {
            format!(
                "server {{ listen 127.0.0.1:PORT; server_name s{number}; modsecurity_rules 'SecRule ARGS:own \"@streq {number}\" \"id:{},phase:1,deny,status:418\"'; }}\n",
                100 + number
            )
        })
        .collect();
    let nginx = Nginx::start(&workspace, "reloads", Some(&library), (&config(&blocks), RULES));
    let master = nginx.server.id();
    // The socket is open before the workers run.
    assert!(wait_until(WAIT, || children(master).len() == 2));
    let is_over = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (nginx, is_over) = (&nginx, &is_over);
                scope.spawn(move || {
                    let mut sent = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        for (target, expected) in
                            [("/?a=attack", "403"), ("/?a=b", "200"), ("/?own=0", "418")]
                        {
                            let status = nginx.request(&get(target, "")).0;
                            assert_eq!(
                                status, expected,
                                "client {client}, request {sent}: {target}"
                            );
                            sent += 1;
                        }
                    }
                    sent
                })
            })
            .collect();
        // The clients end, too, if an assertion fails.
        let end = End(&is_over);
        let mut after_fifth = (0, 0);
        for reload in 1..=50 {
            let before = children(master);
            assert!(!before.is_empty());
            Command::new("kill").args(["-HUP", &master.to_string()]).status().expect("kill");
            let are_new = wait_until(WAIT, || {
                let now = children(master);
                now.len() == 2 && now.iter().all(|worker| !before.contains(worker))
            });
            assert!(are_new, "reload {reload}: {}", nginx.log("error.log"));
            if reload == 5 {
                after_fifth = (memory_kib(&[master]), memory_kib(&children(master)));
            }
        }
        let after = (memory_kib(&[master]), memory_kib(&children(master)));
        drop(end);
        let sent: usize =
            clients.into_iter().map(|client| client.join().expect("no request is lost")).sum();
        for (before, after) in [(after_fifth.0, after.0), (after_fifth.1, after.1)] {
            assert!(after * 10 < before * 15, "{before} KiB after 5 reloads, {after} KiB after 50");
        }
        sent
    });
    assert!(sent > 50, "{sent}");
}

#[test]
fn audit_log_that_was_rotated_is_opened_again() {
    let workspace = Workspace::concurrent();
    let library = our_library(&workspace);
    let rules = format!(
        "{RULES}SecAuditEngine RelevantOnly\nSecAuditLogRelevantStatus \"^403\"\nSecAuditLogFormat JSON\nSecAuditLog FOLDER/logs/audit.log\n"
    );
    let folder = workspace.path("rotated/logs");
    fs::create_dir_all(&folder).expect("a folder");
    // Workers of a master that root starts run as another user, who may create files here.
    Command::new("chmod").arg("a+rwx").arg(&folder).status().expect("chmod");
    let config = config("server { listen 127.0.0.1:PORT; }");
    let nginx = Nginx::start(&workspace, "rotated", Some(&library), (&config, &rules));
    let lines = |name: &str| nginx.log(name).lines().count();
    nginx.request(&get("/?a=attack", ""));
    assert!(wait_until(WAIT, || lines("logs/audit.log") == 1));
    let [log, old] = ["audit.log", "audit.log.1"].map(|name| folder.join(name));
    fs::rename(log, old).expect("rotated");
    // The path is compared again after a second.
    assert!(wait_until(WAIT, || {
        nginx.request(&get("/?a=attack", ""));
        lines("logs/audit.log") > 0
    }));
    assert!(lines("logs/audit.log.1") >= 1);
}

#[test]
fn debug_log_says_why_rules_matched() {
    let workspace = Workspace::concurrent();
    let library = our_library(&workspace);
    let rules = r#"
SecRuleEngine On
SecDebugLog FOLDER/debug.log
SecDebugLogLevel 3
SecAction "id:1,phase:1,pass,nolog,setvar:tx.score=1"
SecRule ARGS "@rx at+ack" "id:2,phase:1,pass,nolog,t:lowercase,setvar:tx.score=+5"
SecRule TX:score "@ge %{ARGS.limit}" "id:3,phase:2,deny,status:406,log"
"#;
    let config = config(
        "server { listen 127.0.0.1:PORT; location /quiet { modsecurity_rules 'SecDebugLogLevel 1'; try_files /index.html =404; } }",
    );
    let nginx = Nginx::start(&workspace, "debug", Some(&library), (&config, rules));
    assert_eq!(nginx.request(&get("/index.html?q=An%20ATTack&limit=6", "")).0, "406");
    assert_eq!(nginx.request(&get("/index.html?q=a&limit=6", "")).0, "200");
    assert_eq!(nginx.request(&get("/quiet?q=attack&limit=6", "")).0, "406");
    let log = nginx.log("debug.log").replace(nginx.folder.to_str().expect("UTF-8"), "FOLDER");
    let lines: Vec<&str> = log
        .lines()
        .map(|line| line.split_once("] ").expect("an id before the target").1)
        .map(|line| line.split(" [file ").next().unwrap_or(line))
        .collect();
    let ends = "Ends with status 406: [client 127.0.0.1] ModSecurity: Access denied with code 406 (phase 2). Matched \"Operator `Ge' with parameter `6' against variable `TX:score' (Value: `6' )";
    let expected = [
        "[/index.html?q=An%20ATTack&limit=6] [3] Rule 1 (FOLDER/rules.conf:5:1, phase 1) matched without a condition",
        "[/index.html?q=An%20ATTack&limit=6] [3] Rule 2 (FOLDER/rules.conf:6:1, phase 1) matched ARGS:q: @Rx \"at+ack\" on \"an attack\", sent as \"An ATTack\", by \"attack\", tx.score +5",
        "[/index.html?q=An%20ATTack&limit=6] [3] Rule 3 (FOLDER/rules.conf:7:1, phase 2) matched TX:score: @Ge \"6\" on \"6\"",
        &format!("[/index.html?q=An%20ATTack&limit=6] [1] {ends}"),
        "[/index.html?q=a&limit=6] [3] Rule 1 (FOLDER/rules.conf:5:1, phase 1) matched without a condition",
        &format!("[/quiet?q=attack&limit=6] [1] {ends}"),
    ];
    assert_eq!(lines, expected);
    // Rules with nolog stay out of the error log.
    assert!(!nginx.log("error.log").contains("[id \"2\"]"));
}
