//! The library as C programs see it: its symbols, its headers, and the behaviour of every function.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder with the shared library that this test was built with.
fn library_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_else(|e| panic!("{e}"));
    program.parent().map(Path::to_owned).unwrap_or_default()
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    format!("{stdout}{stderr}")
}

/// Folder with the library under the name that programs load, and a C program that is linked to it.
struct CProgram {
    folder: tempfile::TempDir,
}

impl CProgram {
    fn new(source: &str) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
        let library = library_folder().join("libmodsecurity.so");
        std::os::unix::fs::symlink(&library, folder.path().join("libmodsecurity.so.3"))
            .unwrap_or_else(|e| panic!("{e}"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-result", "-Werror", "-I"])
            .arg(root.join("include"))
            .arg(root.join("tests").join(source))
            .arg("-o")
            .arg(folder.path().join("program"))
            .arg(folder.path().join("libmodsecurity.so.3"));
        output(&mut cc);
        Self { folder }
    }

    fn run(&self, arguments: &[&Path]) -> String {
        let mut program = Command::new(self.folder.path().join("program"));
        output(program.args(arguments).env("LD_LIBRARY_PATH", self.folder.path()))
    }
}

#[test]
fn library_exports_exactly_the_functions_of_the_headers() {
    let library = library_folder().join("libmodsecurity.so");
    let listing = output(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let mut exported: Vec<&str> =
        listing.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.sort_unstable();
    let expected = [
        "msc_add_n_request_header",
        "msc_add_n_response_header",
        "msc_add_request_header",
        "msc_add_response_header",
        "msc_append_request_body",
        "msc_append_response_body",
        "msc_cleanup",
        "msc_create_rules_set",
        "msc_get_request_body_length",
        "msc_get_response_body",
        "msc_get_response_body_length",
        "msc_init",
        "msc_intervention",
        "msc_intervention_cleanup",
        "msc_new_transaction",
        "msc_new_transaction_with_id",
        "msc_process_connection",
        "msc_process_logging",
        "msc_process_request_body",
        "msc_process_request_headers",
        "msc_process_response_body",
        "msc_process_response_headers",
        "msc_process_uri",
        "msc_request_body_from_file",
        "msc_rules_add",
        "msc_rules_add_file",
        "msc_rules_add_remote",
        "msc_rules_cleanup",
        "msc_rules_dump",
        "msc_rules_error_cleanup",
        "msc_rules_merge",
        "msc_set_connector_info",
        "msc_set_log_cb",
        "msc_set_request_hostname",
        "msc_transaction_cleanup",
        "msc_update_status_code",
        "msc_who_am_i",
    ];
    assert_eq!(exported, expected);
    let dynamic = output(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("Library soname: [libmodsecurity.so.3]"), "{dynamic}");
}

const RULES: &str = r#"SecRuleEngine On
SecRequestBodyAccess On
SecResponseBodyAccess On
SecResponseBodyMimeType text/html
SecAuditEngine RelevantOnly
SecAuditLog AUDIT
SecAuditLogFormat JSON
SecAuditLogParts ABCEFHZ
SecRule ARGS:q "@streq attack" "id:1,phase:1,deny,status:406,log,msg:'attack'"
SecRule ARGS:b "@streq 2" "id:2,phase:2,pass,log,severity:CRITICAL,tag:'t'"
SecRule RESPONSE_BODY "@contains secret" "id:3,phase:4,redirect:http://%{REQUEST_HEADERS.Host}/,log"
SecAction "id:4,phase:5,pass,log,msg:'%{RESPONSE_STATUS}'"
"#;

#[test]
fn c_program_uses_every_function() -> Result<(), Box<dyn std::error::Error>> {
    let program = CProgram::new("every_function.c");
    let folder = tempfile::tempdir()?;
    let (rules, audit) = (folder.path().join("rules.conf"), folder.path().join("audit.log"));
    std::fs::write(&rules, RULES.replace("AUDIT", &audit.display().to_string()))?;
    let text = program.run(&[&rules]).replace(&rules.display().to_string(), "rules.conf");
    let line = |effect: &str, cause: &str, rule: (u32, u32, &str, u8, &str), uri: &str| {
        let (line, id, message, severity, tags) = rule;
        let file = if id == 100 { "<<reference missing or not informed>>" } else { "rules.conf" };
        format!(
            "ModSecurity: {effect} {cause} [file \"{file}\"] [line \"{line}\"] [id \"{id}\"] [rev \"\"] [msg \"{message}\"] \
             [data \"\"] [severity \"{severity}\"] [ver \"\"] [maturity \"0\"] [accuracy \"0\"]{tags} \
             [hostname \"www.example.com\"] [uri \"{uri}\"] [unique_id \"id-1\"] [ref \"\"]"
        )
    };
    let matched = |operator: &str, parameter: &str, variable: &str, value: &str| {
        format!(
            "Matched \"Operator `{operator}' with parameter `{parameter}' against variable `{variable}' (Value: `{value}' )"
        )
    };
    let expected = [
        concat!("Tollgate v", env!("CARGO_PKG_VERSION"), " (compatible with ModSecurity v3.0.13)").to_owned(),
        "file 4".into(),
        "text 1".into(),
        "merge 5".into(),
        "twice -1 rules.conf:9:33: rule id 1 is used twice".into(),
        "wrong -1 <<reference missing or not informed>>:1:1: unknown directive \"SecRuel\"; did you mean \"SecRule\"?".into(),
        "remote -1 cannot load rules over the network; download them and use modsecurity_rules_file".into(),
        format!(
            "request headers: status 406, pause 0, disruptive 1, url -, log [client 192.0.2.7] {}",
            line(
                "Access denied with code 406 (phase 1).",
                &matched("StrEq", "attack", "ARGS:q", "attack"),
                (9, 1, "attack", 0, ""),
                "/p x"
            )
        ),
        "bodies 4 13 <p>secret</p>".into(),
        format!("log data: {}", line("Warning.", "", (12, 4, "404", 0, ""), "/p x")),
        "file 1".into(),
        format!("log data: {}", line("Warning.", &matched("StrEq", "2", "ARGS:b", "2"), (1, 100, "child", 0, ""), "/")),
        format!(
            "log data: {}",
            line("Warning.", &matched("StrEq", "2", "ARGS:b", "2"), (10, 2, "", 2, " [tag \"t\"]"), "/")
        ),
        format!(
            "response body: status 302, pause 0, disruptive 1, url http://www.example.com/, log [client 192.0.2.7] {}",
            line(
                "Access denied with code 302 (phase 4).",
                &matched("Contains", "secret", "RESPONSE_BODY", "<p>secret</p>"),
                (11, 3, "", 0, ""),
                "/"
            )
        ),
        "bodies 7 13 <p>secret</p>".into(),
        format!("log data: {}", line("Warning.", "", (12, 4, "404", 0, ""), "/")),
        "null rules -1 cannot add rules: no rule set".into(),
        "null transaction 0".into(),
        "null bodies 0 0 0".into(),
        "null intervention 0".into(),
    ];
    let mut lines = text.lines();
    for expected in &expected {
        assert_eq!(lines.next(), Some(&**expected));
    }
    // Calls in any order: what comes out is not specified, except for the body that cannot be read.
    let rest: Vec<&str> = lines.collect();
    assert!(rest.contains(&"missing file 0"), "{rest:?}");
    let unreadable = "missing file: status 500, pause 0, disruptive 1, url -, log request body cannot be read from its file, so that it is not inspected";
    assert!(rest.contains(&unreadable), "{rest:?}");
    assert!(rest.contains(&"null target 0"), "{rest:?}");
    assert!(rest.last().is_some_and(|last| last.starts_with("last: status 406,")), "{rest:?}");

    let entries = std::fs::read_to_string(&audit)?;
    assert!(entries.lines().count() >= 2, "{entries}");
    assert!(entries.contains("\"connector\":\"every_function v1\""), "{entries}");
    Ok(())
}
