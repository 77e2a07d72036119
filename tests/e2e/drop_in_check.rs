//! `tollgate waf check --for modsecurity` on configurations in Debian's layout, and nginx with the library on the same ones.

use crate::drop_in::{Nginx, get, our_library};
use crate::support::{Workspace, show, stdout};
use std::fs;
use std::process::Command;

const NGINX: &str = r#"
include FOLDER/modules-enabled/*.conf;
daemon off;
pid FOLDER/nginx.pid;
error_log FOLDER/error.log info;
events { worker_connections 64; }
http {
    access_log off;
    NGINX_FOLDERS
    types { text/html html; }
    map $http_upgrade $upgraded { default upgrade; '' close; }
    modsecurity_rules_file FOLDER/rules.conf;
    include FOLDER/sites-enabled/*;
}
"#;

const SITE: &str = r#"
# A comment with { and ;
server {
    listen 127.0.0.1:PORT;
    server_name _;
    root FOLDER/site;
    modsecurity on;
    modsecurity_rules 'SecRuleEngine On';

    location / { }
    location /removed {
        modsecurity_rules '
            SecRuleRemoveById 1
        ';
        try_files /index.html =404;
    }
    location /detect {
        modsecurity_rules 'SecRuleEngine DetectionOnly';
        location ~ ^/detect/in(ner)?$ {
            modsecurity_rules "SecRule ARGS:b \"@streq 2\" id:2,phase:1,deny,status:418";
            try_files /index.html =404;
        }
        try_files /index.html =404;
    }
    location /off {
        modsecurity off;
        if ($arg_a = never) { return 404; }
        try_files /index.html =404;
    }
    location /off/on { modsecurity on; try_files /index.html =404; }
}
"#;

const RULES: &str = r#"SecRule ARGS:a "@streq 1" "id:1,phase:1,deny,status:406"
SecRule ARGS:c "@streq 1" "id:3,phase:1,deny,status:406,multiMatch,t:lowercase"
"#;

/// A place in the output.
fn place<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(title));
    let line =
        lines.find(|rest| rest.starts_with("  ")).unwrap_or_else(|| panic!("{title}: {text}"));
    line.split_whitespace().collect()
}

#[test]
fn report_of_each_location_is_what_nginx_does() {
    let workspace = Workspace::concurrent();
    let library = our_library(&workspace);
    let folder = workspace.path("debian");
    workspace.write(
        "debian/modules-enabled/50-mod-http-modsecurity.conf",
        "load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so;\n",
    );
    // Starts nginx with the rest of the files.
    workspace.write("debian/sites-enabled/default", "");
    fs::remove_file(folder.join("sites-enabled/default")).expect("removed");
    let nginx = Nginx::start_with(&workspace, "debian", Some(&library), (NGINX, RULES), |fill| {
        workspace.write("debian/sites-enabled/default", &fill(SITE));
        workspace.write("debian/sites-enabled/.hidden", "not read");
    });
    let config = folder.join("nginx.conf");
    let output =
        workspace.run(&["waf", "check", "--for", "modsecurity", config.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let text = stdout(&output);
    assert!(text.ends_with("nginx starts with the library\n"), "{text}");
    assert!(text.contains("rules with multiMatch"), "{text}");

    for (title, target, expected, blocks) in [
        ("server _", "/index.html", "on On 2 2", &["a=1", "c=1"][..]),
        ("location /", "/", "on On 2 2", &["a=1", "c=1"]),
        ("location /removed", "/removed", "on On 1 3", &["c=1"]),
        ("location /detect", "/detect", "on DetectionOnly 2 4", &[]),
        ("location ~ ^/detect/in(ner)?$", "/detect/in", "on DetectionOnly 3 5", &[]),
        ("location /off", "/off", "off On 2 2", &[]),
        ("location /off/on", "/off/on", "on On 2 2", &["a=1", "c=1"]),
    ] {
        assert_eq!(place(&text, title).join(" "), expected, "{title}\n{text}");
        for argument in ["a=1", "c=1", "b=2", "d=4"] {
            let (status, ..) = nginx.request(&get(&format!("{target}?{argument}"), ""));
            let is_blocked = status != "200";
            assert_eq!(is_blocked, blocks.contains(&argument), "{target}?{argument}: {status}");
        }
    }
    assert_eq!(place(&text, "http").join(" "), "off DetectionOnly 2 1");
}

#[test]
fn check_and_nginx_refuse_the_same_configurations() {
    let workspace = Workspace::concurrent();
    let library = our_library(&workspace);
    for (name, location, expected) in [
        (
            "lua",
            "modsecurity_rules_file FOLDER/lua.conf;",
            "lua.conf:2:1: SecRuleScript is not supported: it runs Lua",
        ),
        (
            "remote",
            "modsecurity_rules_remote key https://example.com/;",
            "nginx.conf:6: cannot load rules over the network; download them and use modsecurity_rules_file",
        ),
        (
            "missing",
            "modsecurity_rules_file FOLDER/missing.conf;",
            "nginx.conf:6: modsecurity_rules_file: cannot read rule file \"FOLDER/missing.conf\": No such file or directory (os error 2)",
        ),
        (
            "unknown",
            "modsecurity_rules '\n  SecRuel ARGS a';",
            "nginx.conf:7:3: unknown directive \"SecRuel\"; did you mean \"SecRule\"?",
        ),
        (
            "twice",
            "modsecurity_rules 'SecAction \"id:1,phase:1,pass\"';",
            "rule id 1 is used twice",
        ),
    ] {
        let folder = workspace.path(name);
        let fill = |text: &str| text.replace("FOLDER", folder.to_str().expect("UTF-8"));
        workspace
            .write(&format!("{name}/lua.conf"), "\nSecRuleScript test.lua \"id:9,phase:1,deny\"\n");
        workspace.write(&format!("{name}/nginx.conf"), &fill(&format!(
            "load_module /usr/lib/nginx/modules/ngx_http_modsecurity_module.so; pid FOLDER/pid; error_log FOLDER/log;\nevents {{ }}\nhttp {{\n modsecurity_rules 'SecAction \"id:1,phase:1,pass\"';\n server {{ listen 127.0.0.1:9; location / {{\n{location}\n}} }} }}\n"
        )));
        let config = folder.join("nginx.conf");
        let output = workspace.run(&[
            "waf",
            "check",
            "--for",
            "modsecurity",
            config.to_str().expect("UTF-8"),
        ]);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", show(&output));
        let text = stdout(&output);
        let refused = text.lines().find(|line| line.starts_with("refused: ")).unwrap_or("");
        assert!(refused.contains(&fill(expected)), "{name}: {text}");
        assert!(text.ends_with("nginx does not start with the library\n"), "{name}: {text}");

        let nginx = Command::new("/usr/sbin/nginx")
            .args(["-t", "-c"])
            .arg(&config)
            .env("LD_LIBRARY_PATH", &library)
            .output()
            .expect("nginx is not installed; run `make packages`");
        assert!(!nginx.status.success(), "{name}: {}", show(&nginx));
        let reason = expected.rsplit(": ").next().expect("a reason");
        assert!(show(&nginx).contains(&fill(reason)), "{name}: {}", show(&nginx));
    }
}

#[test]
fn configuration_that_nginx_cannot_read_is_bad_input() {
    let workspace = Workspace::concurrent();
    for (text, expected) in [
        ("http {\n server {\n", "nginx.conf:3: unexpected end of file, expected \"}\""),
        (
            "http {\n modsecurity maybe;\n}",
            "nginx.conf:2: \"modsecurity\" is on or off, not \"maybe\"",
        ),
        (
            "http {\n modsecurity on;\n modsecurity on;\n}",
            "nginx.conf:3: \"modsecurity\" is given twice",
        ),
        (
            "http { server { location / {\n if ($a) {\n modsecurity off; } } } }",
            "nginx.conf:3: \"modsecurity\" is not allowed here",
        ),
        ("modsecurity on;", "nginx.conf:1: \"modsecurity\" is not allowed here"),
        (
            "http {\n modsecurity_rules_remote key;\n}",
            "nginx.conf:2: \"modsecurity_rules_remote\" takes 2 arguments",
        ),
        ("\ninclude missing.conf;", "missing.conf\": No such file or directory"),
    ] {
        workspace.write("nginx.conf", text);
        let output = workspace.run(&["waf", "check", "--for", "modsecurity", "nginx.conf"]);
        assert_eq!(output.status.code(), Some(2), "{}", show(&output));
        assert!(show(&output).contains(expected), "{}", show(&output));
    }
}
