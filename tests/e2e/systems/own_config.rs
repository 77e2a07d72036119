//! Configurations of the user in place of those of the recipes.

use crate::support::{NO_LIMITS, Workspace, flat, show, stderr, stdout, without_limits};

/// As a distribution or a tutorial writes them, but for one line of nginx with a variable, which then needs all.
const NGINX: &str = r#"worker_processes 1;
pid "{{ dir }}/nginx.pid";
error_log stderr;
include /etc/nginx/modules-enabled/*.conf;
events { worker_connections 512; }
http {
    access_log off;
    log_format json '{"path": "$uri"}';
    upstream app {
        server 10.0.0.5:8080;
    }
    server {
        listen 80;
        location / {
            proxy_pass http://app;
            add_header X-Mine yes;
        }
    }
}
"#;
const HAPROXY: &str = "defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend site
    bind :80
    http-response set-header X-Mine yes
    default_backend app
backend app
    server one 10.0.0.5:8080 check
";
const APACHE: &str = r#"ServerRoot "/tmp"
ErrorLog /dev/stderr
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
LogFormat "%{%Y-%m-%d}t %r" mine
Mutex pthread default
ServerName localhost
PidFile /run/apache2.pid
Listen 80
AllowEncodedSlashes NoDecode
ProxyPass / http://10.0.0.5:8080/ nocanon
"#;
const CADDY: &str = "{
    email me@example.org
}
example.org {
    encode gzip
    header X-Mine yes
    reverse_proxy 10.0.0.5:8080
}
";

const EXPERIMENT: &str = r#"
title    = "What does my configuration cost?"
baseline = "built-in"

[[case]]
name = "browse"
mix  = "browse"
load = { connections = 4, duration = "200ms", warmup = "50ms", busy_poll = false }

[[subject]]
name   = "built-in"
system = "nginx"

[[subject]]
name   = "nginx"
system = "nginx"
with   = { config = "nginx.conf" }

[[subject]]
name   = "haproxy"
system = "haproxy"
with   = { config = "haproxy.cfg" }

[[subject]]
name   = "apache"
system = "apache"
with   = { config = "apache.conf" }

[[subject]]
name   = "caddy"
system = "caddy"
with   = { config = "Caddyfile" }

[design]
blocks = 1
"#;

fn workspace() -> Workspace {
    let workspace = Workspace::concurrent();
    workspace.write("mine/mine.toml", &format!("{EXPERIMENT}{NO_LIMITS}"));
    let files = [
        ("nginx.conf", NGINX),
        ("haproxy.cfg", HAPROXY),
        ("apache.conf", APACHE),
        ("Caddyfile", CADDY),
    ];
    for (name, text) in files {
        workspace.write(&format!("mine/{name}"), text);
    }
    workspace
}

/// The error names the lines to write; with them, the files run.
#[test]
fn existing_configurations_run_once_they_have_the_named_lines() {
    let workspace = workspace();
    let run = |out: &str| workspace.run(&["run", "mine/mine.toml", "--out", out]);
    let output = run("without");
    let message = stderr(&output);
    let edits = [
        ("nginx.conf", "", "daemon off;", None),
        ("nginx.conf", "listen 80;", "listen {{ listen.address }};", Some(13)),
        ("nginx.conf", "server 10.0.0.5:8080;", "server {{ origin.address }};", Some(10)),
        ("haproxy.cfg", "bind :80", "bind {{ listen.address }}", Some(7)),
        (
            "haproxy.cfg",
            "server one 10.0.0.5:8080 check",
            "server origin {{ origin.address }}",
            Some(11),
        ),
        ("apache.conf", "PidFile /run/apache2.pid", r#"PidFile "{{ dir }}/apache.pid""#, Some(10)),
        ("apache.conf", "Listen 80", "Listen {{ listen.address }}", Some(11)),
        (
            "apache.conf",
            "ProxyPass / http://10.0.0.5:8080/ nocanon",
            "ProxyPass / http://{{ origin.address }}/",
            Some(13),
        ),
        ("Caddyfile", "email me@example.org", "admin off    # in the global options", None),
        (
            "Caddyfile",
            "example.org {",
            "http://:{{ listen.port }} {    # as the address of the site",
            None,
        ),
        ("Caddyfile", "encode gzip", "bind {{ listen.host }}", None),
        ("Caddyfile", "reverse_proxy 10.0.0.5:8080", "reverse_proxy {{ origin.address }}", Some(7)),
    ];
    for (file, old, new, line) in edits {
        let expected = match line {
            Some(line) => format!("\n    {new}    in place of line {line}: {old}\n"),
            None => format!("\n    {new}\n"),
        };
        assert!(message.contains(&expected), "no {expected:?} in {message}");
        let name = format!("mine/{file}");
        match old {
            "" => workspace.write(&name, &format!("{new}\n{}", workspace.read(&name))),
            _ => workspace.change(&name, old, new),
        }
    }
    let output = run("with");
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let configs =
        ["nginx/nginx.conf", "haproxy/haproxy.cfg", "apache/apache.conf", "caddy/Caddyfile"];
    for config in configs {
        let text = workspace.read(&format!("with/configs/{config}"));
        assert!(!text.contains("{{") && text.contains("127.0.0.1"), "{text}");
    }
    let kept = workspace.read("with/configs/nginx/nginx.conf");
    assert!(kept.contains("add_header X-Mine yes;"), "{kept}");
    workspace.assert_nothing_runs();
}

#[test]
fn check_takes_a_configuration_and_names_unknown_variables() {
    let workspace = workspace();
    let check =
        || workspace.run(&["systems", "check", "haproxy", "--with", "config=mine/haproxy.cfg"]);
    let output = check();
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(
        stderr(&output).contains("bind {{ listen.address }}    in place of line 7"),
        "{}",
        show(&output)
    );
    workspace.change("mine/haproxy.cfg", "bind :80", "bind {{ listen.address }}");
    workspace.change("mine/haproxy.cfg", "10.0.0.5:8080 check", "{{ origin.addres }}");
    let message = flat(&stderr(&check()));
    assert!(message.contains("mine/haproxy.cfg:11"), "{message}");
    workspace.change("mine/haproxy.cfg", "origin.addres ", "origin.address ");
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(stdout(&output).contains(super::SOUND), "{}", show(&output));
    let missing = workspace.run(&["systems", "check", "nginx", "--with", "config=none.conf"]);
    assert_eq!(missing.status.code(), Some(2), "{}", show(&missing));
    assert!(
        stderr(&missing).contains("cannot be `none.conf`; expected one of built-in, or a path")
    );
    workspace.assert_nothing_runs();
}

const MODSECURITY: &str = r#"load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so;
daemon off;
pid "{{ dir }}/nginx.pid";
error_log stderr;
events { worker_connections 512; }
http {
    access_log off;
    server {
        listen {{ listen.address }};
        location / {
            modsecurity on;
            modsecurity_rules '
                SecRuleEngine On
                SecRule ARGS "@rx <script|passwd" "id:1,phase:2,deny,status:403"
            ';
            proxy_pass http://{{ origin.address }};
        }
    }
}
"#;

/// A server as Debian has it: sites in files of their own, TLS, a redirect, logs, a path that leads elsewhere.
const SERVER: &str = r#"user www-data;
worker_processes 1;
pid /run/nginx.pid;
error_log /nowhere/error.log;
events { worker_connections 512; }
http {
    log_format json '{"path": "$uri"}';
    access_log /nowhere/access.log json;
    map $http_upgrade $upgrade { default upgrade; "" close; }
    include sites/*.conf;
}
stream { server { listen 80; proxy_pass 10.0.0.5:22; } }
"#;
const SITE: &str = r#"upstream app { server 10.0.0.5:8080 weight=5; server 10.0.0.6:8080 backup; keepalive 16; }
server { listen 80 default_server; return 301 https://$host$request_uri; }
server {
    listen 443 ssl http2;
    listen [::]:443 ssl http2;
    server_name example.org;
    ssl_certificate /nowhere/certificate.pem;
    ssl_certificate_key /nowhere/key.pem;
    location / {
        if ($request_method = "TRACE") { return 405; }
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_pass http://app;
        add_header X-Mine yes;
    }
    location /old { proxy_pass https://10.0.0.7:8443/new; }
}
"#;

const SERVERS: &str = r#"
title    = "What does my server cost?"
baseline = "built-in"

[[case]]
name = "clear"
mix  = "browse"
load = { connections = 2, duration = "200ms", warmup = "50ms", busy_poll = false }

[[case]]
name     = "tls"
mix      = "browse"
protocol = "https-h2"
subjects = ["built-in", "plain"]
load     = { connections = 2, duration = "200ms", warmup = "50ms", busy_poll = false }

[[subject]]
name   = "built-in"
system = "nginx"

[[subject]]
name   = "plain"
system = "nginx"
with   = { config = "etc/nginx.conf" }

[[subject]]
name   = "waf"
system = "nginx-modsecurity"
with   = { config = "site.txt" }

[design]
blocks = 1
"#;

#[test]
fn nginx_runs_with_the_configuration_of_a_server_as_it_is() {
    let workspace = Workspace::concurrent();
    workspace.write("etc/nginx.conf", SERVER);
    workspace.write("etc/sites/site.conf", SITE);
    let folder = workspace.path("etc").display().to_string();
    let dump = format!(
        "# configuration file /etc/nginx/nginx.conf:\n{SERVER}\n\
         # configuration file /etc/nginx/sites/site.conf:\n{}\n",
        SITE.replace("location / {", "location / { modsecurity on; modsecurity_rules '\n\
             SecRuleEngine On\nSecRule ARGS \"@rx <script|passwd\" \"id:1,phase:2,deny,status:403\"';")
    );
    let module = "load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so;";
    workspace.write("site.txt", &dump.replacen("user www-data;", module, 1));
    workspace.write("servers.toml", &format!("{SERVERS}{NO_LIMITS}"));
    let output = workspace.run(&["run", "servers.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let shown = flat(&stdout(&workspace.run(&["report", "out"])));
    assert!(shown.contains("site.txt, blocks 3 of 4 attacks"), "{shown}");
    let text = workspace.read("out/configs/plain/nginx.conf");
    assert!(!text.contains("10.0.0."), "{text}");
    for line in [
        format!("add_header X-Mine yes;  # {folder}/sites/site.conf:14"),
        format!("map $http_upgrade $upgrade {{  # {folder}/nginx.conf:9"),
    ] {
        assert!(text.contains(&line), "no {line:?} in {text}");
    }
    assert_eq!(workspace.read("etc/nginx.conf"), SERVER);
    // Faults name the user's files.
    for (old, new, expected) in [
        (
            "add_header X-Mine yes;",
            "fastcgi_pass php;",
            "sites/site.conf:14: `fastcgi_pass` cannot lead to",
        ),
        (
            "proxy_pass http://app;",
            "proxy_pass http://$app/new;",
            "sites/site.conf:13: cannot find the host in `proxy_pass http://$app/new`",
        ),
    ] {
        workspace.write("etc/sites/site.conf", &SITE.replace(old, new));
        let check = ["systems", "check", "nginx", "--with", "config=etc/nginx.conf"];
        let output = workspace.run(&check);
        assert_eq!(output.status.code(), Some(1), "{}", show(&output));
        let expected = format!("{folder}/{expected}");
        assert!(flat(&stderr(&output)).contains(&expected), "no {expected:?} in {}", show(&output));
    }
    workspace.assert_nothing_runs();
}

const GATEWAY: &str = "\
listeners:
  - address: {{ listen.address }}
pools:
  - name: app
    backends:
      - address: {{ origin.address }}
waf:
  mode: on
  rules: [RULES]
";

#[test]
fn own_firewalls_are_measured_and_their_blocks_are_counted() {
    let workspace = Workspace::concurrent();
    workspace.write("modsecurity.conf", MODSECURITY);
    let rules = workspace.path("own.conf").display().to_string();
    workspace.write("gateway.yaml", &GATEWAY.replace("RULES", &rules));
    workspace.write(
        "own.conf",
        "SecRuleEngine On\nSecRule ARGS \"@rx <script\" \"id:1,phase:2,deny,status:403\"\n",
    );
    let mine = [
        "mine=nginx-modsecurity:config=modsecurity.conf",
        "gateway=tollgate-waf:config=gateway.yaml",
    ];
    let run = ["run", "nginx", mine[0], mine[1], "-d", "200ms", "-c", "2", "--blocks", "1"];
    let output = workspace.run(&without_limits(&[&run[..], &["--out", "out"]].concat()));
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let text = flat(&stdout(&workspace.run(&["report", "out"])));
    for (name, file, count) in [("mine", "modsecurity.conf", 3), ("gateway", "gateway.yaml", 1)] {
        let path = workspace.path(file);
        let path = path.canonicalize().expect("a file");
        let expected = format!(
            "{name}: its own configuration, {}, blocks {count} of 4 attacks",
            path.display()
        );
        assert!(text.contains(&expected), "no {expected:?} in {text}");
    }
    // A configuration that forwards nothing is refused, and one that lacks a line ends the run.
    workspace.change("modsecurity.conf", "<script|passwd", ".");
    let refused = ["run", "nginx", mine[0], "-d", "200ms", "-c", "2", "--blocks", "1"];
    let output = workspace.run(&without_limits(&[&refused[..], &["--out", "refused"]].concat()));
    let shown = flat(&stdout(&output));
    assert!(shown.contains("responds 403 to every benign request"), "{}", show(&output));
    workspace.change("modsecurity.conf", "listen {{ listen.address }}", "listen 80");
    let output = workspace.run(&without_limits(&[&refused[..], &["--out", "broken"]].concat()));
    let message = flat(&stderr(&output));
    assert!(
        message.contains("only the baseline nginx can run; see above why mine cannot"),
        "{message}"
    );
    assert!(message.contains("listen {{ listen.address }}; in place of line 9"), "{message}");
    workspace.assert_nothing_runs();
}
