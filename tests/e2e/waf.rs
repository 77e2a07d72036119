//! `tollgate waf`: rules checked, matches explained, tests run.

use crate::support::{Workspace, show, stderr, stdout};

const RULES: &str = r#"
SecRuleEngine On
SecTmpDir /tmp
SecRule ARGS "@rx un[a-z]+ select" "id:7,phase:1,deny,status:406,t:lowercase,msg:'Union',tag:paranoia-level/1,setvar:tx.score=+5"
SecRule REQUEST_URI "@contains /x" "id:8,phase:2,pass,nolog,tag:paranoia-level/2"
"#;

fn workspace() -> Workspace {
    let workspace = Workspace::concurrent();
    workspace.write("a.conf", RULES);
    workspace.write("attack.http", "GET /?q=1+UNION+SELECT+2 HTTP/1.1\r\nHost: a\r\n\r\n");
    workspace.write("benign.http", "GET /?q=union HTTP/1.1\r\nHost: a\r\n\r\n");
    workspace
}

#[test]
fn check_counts_rules_and_names_errors() {
    let workspace = workspace();
    let output = workspace.run(&["waf", "check", "a.conf"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(
        text.contains("2 rules with 2 conditions, 0 of which never match; 0 removed"),
        "{text}"
    );
    assert!(text.contains("without effect: a.conf:3:1: SecTmpDir has no effect"), "{text}");
    workspace.write("b.conf", "SecRule ARG x \"id:1\"\n");
    let output = workspace.run(&["waf", "check", "b.conf"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("b.conf:1:9: unknown variable \"ARG\"; did you mean \"ARGS\"?")
    );
    workspace.write(
        "c.conf",
        "SecRule ARGS \"@pmFromUrl x\" \"id:1\"\nSecRule ARGS \"@rbl x\" \"id:2\"\n",
    );
    let output = workspace.run(&["waf", "check", "c.conf", "--skip-unsupported"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(text.contains("left out: c.conf:1:16: operator @pmFromUrl is not supported"), "{text}");
    assert!(text.contains("1 rule with 1 condition, 1 of which never match"), "{text}");
    assert!(text.contains("never matches: c.conf:2:16: operator @rbl needs DNS lookups"), "{text}");
    workspace.write("d.conf", "SecRule AR\u{1b}[31mG x \"id:1\"\n");
    for options in [&[][..], &["--skip-unsupported"]] {
        let output = workspace.run(&[&["waf", "check", "d.conf"], options].concat());
        let text = stdout(&output) + &stderr(&output);
        assert!(text.contains("\\u{1b}") && !text.contains('\u{1b}'), "{text:?}");
    }
}

#[test]
fn check_lists_bodies_that_pass_uninspected() {
    let workspace = workspace();
    let args = "SecRule ARGS \"@contains union\" \"id:1,phase:2,deny\"\n";
    workspace.write("args.conf", args);
    let bodies = "SecRule REQUEST_HEADERS:Content-Type json id:2,phase:1,pass,ctl:requestBodyProcessor=JSON\n\
        SecRule REQUEST_HEADERS:Content-Type xml id:3,phase:1,pass,ctl:requestBodyProcessor=XML\n\
        SecRule REQBODY_ERROR \"!@eq 0\" id:4,phase:2,deny,status:400\n";
    workspace.write("bodies.conf", bodies);
    let listed = |files: &[&str]| {
        let text = stdout(&workspace.run(&[&["waf", "check"], files].concat()));
        text.matches("uninspected: ").count()
    };
    assert_eq!(listed(&["args.conf"]), 3);
    assert_eq!(listed(&["bodies.conf", "args.conf"]), 0);
}

#[test]
fn explain_names_the_match_and_its_exclusion() {
    let workspace = workspace();
    let output = workspace.run(&["waf", "explain", "a.conf", "--request", "attack.http"]);
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let text = stdout(&output);
    for line in [
        "rule 7 at a.conf:4:1: Union",
        "  variable   ARGS:q",
        "  value      1 union select 2",
        "  matched    union select",
        "  score      tx.score +5",
        "  exclusion  SecRuleUpdateTargetById 7 \"!ARGS:q\"",
        "blocked with status 406",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    // The exclusion silences it.
    workspace.write("b.conf", "SecRuleUpdateTargetById 7 \"!ARGS:q\"\n");
    let output = workspace.run(&["waf", "explain", "a.conf", "b.conf", "--request", "attack.http"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let output = workspace.run(&["waf", "explain", "a.conf", "--request", "benign.http"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "not blocked; 0 matches\n")
    );
    workspace.write("empty.http", "\r\n");
    let output = workspace.run(&["waf", "explain", "a.conf", "--request", "empty.http"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(stderr(&output).contains("expected a first line such as"), "{}", show(&output));
}

#[test]
fn verdicts_are_those_of_the_gateway_whatever_mode_the_rules_set() {
    let workspace = workspace();
    let rule = "SecRule ARGS:a \"@streq b\" \"id:7,phase:2,deny,log\"\n";
    workspace.write("rule.conf", rule);
    workspace.write("off.conf", &format!("SecRuleEngine Off\n{rule}"));
    workspace.write("detect.conf", &format!("SecRuleEngine DetectionOnly\n{rule}"));
    workspace.write(
        "get.log",
        "::1 - - [21/Nov/2026:20:38:08 +0100] \"GET /?a=b HTTP/1.1\" 200 2 \"-\" \"x\"\n",
    );
    let note = "the rules set SecRuleEngine to block nothing";
    let form = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=b";
    workspace.write("form.http", form);
    for (rules, is_overridden) in [("rule.conf", false), ("off.conf", true), ("detect.conf", true)]
    {
        let output = workspace.run(&["waf", "explain", rules, "--request", "form.http"]);
        assert_eq!(output.status.code(), Some(1), "{rules}: {}", show(&output));
        assert_eq!(stderr(&output).contains(note), is_overridden, "{rules}: {}", show(&output));
        let output = workspace.run(&["waf", "replay", rules, "--log", "get.log"]);
        assert!(stdout(&output).contains("1 requests, 1 would"), "{rules}: {}", show(&output));
        assert_eq!(stderr(&output).contains(note), is_overridden, "{rules}: {}", show(&output));
        let gateway = format!(
            "listeners: [{{ address: '127.0.0.1:0' }}]\npools: [{{ name: site, backends: [{{ address: '127.0.0.1:1' }}] }}]\n\
             waf: {{ rules: [{rules}] }}\n"
        );
        workspace.write("gateway.yaml", &gateway);
        let output = workspace.run(&["gateway", "gateway.yaml", "--check"]);
        assert_eq!(output.status.code(), Some(0), "{rules}: {}", show(&output));
        let is_warned = stderr(&output).contains("`mode` takes precedence");
        assert_eq!(is_warned, is_overridden, "{rules}: {}", show(&output));
    }
    // A test sees every rule that matches, also behind one that would block.
    workspace.write("both.conf", &format!("{rule}{}", rule.replace('7', "8")));
    let tests = "rule_id: 7\ntests:\n - test_id: 1\n   stages:\n    - input: {headers: {Host: a}, uri: '/?a=b'}\n\
                 \x20     output: {log: {expect_ids: [7, 8]}}\n";
    workspace.write("tests.yaml", tests);
    let output = workspace.run(&["waf", "test", "both.conf", "--tests", "tests.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
}

#[test]
fn rules_of_naxsi_are_checked_explained_and_tested() {
    let workspace = workspace();
    let rules = "MainRule \"rx:select|union\" \"msg:keyword\" mz:ARGS \"s:$SQL:4\" id:1000;\n\
                 MainRule str:x mz:ARGS \"s:$XSS:4\" id:1001;\nCheckRule \"$SQL >= 8\" BLOCK;\n";
    workspace.write("naxsi/core.rules", rules);
    let output = workspace.run(&["waf", "check", "naxsi"]);
    let note = "without effect: naxsi/core.rules:2:1: no CheckRule compares $XSS";
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(stdout(&output).contains(note), "{}", show(&output));
    let output = workspace.run(&["waf", "explain", "naxsi", "--request", "attack.http"]);
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let text = stdout(&output);
    for line in [
        "rule 1000 at naxsi/core.rules:1:1: keyword",
        "  variable   ARGS_GET:q",
        "  score      tx.naxsi_sql +4",
        "  exclusion  SecRuleUpdateTargetById 1000 \"!ARGS_GET:q\"",
        "rule 900 at naxsi/core.rules:3:1: $SQL >= 8",
        "blocked with status 403",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    let tests = "rule_id: 1000\ntests:\n - test_id: 1\n   stages:\n    - input: {headers: {Host: a}, uri: '/?q=union'}\n\
                 \x20     output: {log: {expect_ids: [1000], no_expect_ids: [900]}}\n";
    workspace.write("tests.yaml", tests);
    let output = workspace.run(&["waf", "test", "naxsi", "--tests", "tests.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
}

#[test]
fn test_judges_go_ftw_files() {
    let workspace = workspace();
    let stage = |number: u8, id: &str| {
        format!(
            "  - test_id: {number}\n    stages:\n      - input: {{uri: \"/?q=1+union+select+2\", headers: {{Host: a}}}}\n        output: {{log: {{{id}: [7]}}}}\n"
        )
    };
    let file =
        format!("rule_id: 7\ntests:\n{}{}", stage(1, "expect_ids"), stage(2, "no_expect_ids"));
    workspace.write("tests.yaml", &file);
    let output = workspace.run(&["waf", "test", "a.conf", "--tests", "tests.yaml"]);
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(stdout(&output).contains("7-2: failed: unexpected rule 7"));
    assert!(stdout(&output).contains("1 passed, 1 failed"));
    workspace.write("known.txt", "7-2: a planted failure\n");
    let arguments = ["waf", "test", "a.conf", "--tests", "tests.yaml", "--known", "known.txt"];
    let output = workspace.run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(stdout(&output).contains("7-2: known difference: a planted failure"));
}

#[test]
fn replay_counts_what_would_have_been_blocked() {
    let workspace = workspace();
    let line = |target: &str| {
        format!(
            "::1 - - [21/Nov/2026:20:38:08 +0100] \"GET {target} HTTP/1.1\" 200 2 \"-\" \"x\"\n"
        )
    };
    let log = [line("/?q=union+select"), line("/?q=union"), line("/?a=UNION+SELECT"), "?\n".into()];
    workspace.write("access.log", &log.concat());
    let output = workspace.run(&["waf", "replay", "a.conf", "--log", "access.log"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let text = stdout(&output);
    for line in [
        "3 requests, 2 would be blocked",
        "Lines that are not understood: 1",
        "         7        2        2  Union",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    // A log without headers does not say that one was missing.
    workspace.write(
        "length.conf",
        "SecRule REQUEST_METHOD POST \"id:9,phase:1,deny,chain\"\nSecRule &REQUEST_HEADERS:Content-Length \"@eq 0\" t:none\n",
    );
    workspace.write("access.log", &line("/").replace("GET", "POST"));
    let all = r#"{"method":"POST","target":"/","status":200,"headers":[["Host","a"]]}"#;
    workspace.write("audit.log", all);
    for (log, blocked) in
        [("access.log", "1 requests, 0 would"), ("audit.log", "1 requests, 1 would")]
    {
        let output = workspace.run(&["waf", "replay", "length.conf", "--log", log]);
        assert!(stdout(&output).contains(blocked), "{log}: {}", show(&output));
    }
    let output = workspace.run(&["waf", "replay", "a.conf", "--log", "attack.http"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(stderr(&output).contains("no entry that is understood"));
}

#[test]
fn diff_names_rules_that_change_verdicts() {
    let workspace = workspace();
    workspace.write("old/rules.conf", RULES);
    let new = RULES.replace("un[a-z]+ select", "drop table").replace("id:7,", "id:9,");
    workspace.write("new/rules.conf", &new);
    let line = |target: &str| {
        format!(
            "::1 - - [21/Nov/2026:20:38:08 +0100] \"GET {target} HTTP/1.1\" 200 2 \"-\" \"x\"\n"
        )
    };
    workspace.write("a.log", &(line("/?q=union+select&token=ab") + "?\n"));
    workspace.write("b.log", &(line("/?q=drop+table") + &line("/?q=none")));
    let diff = |further: &[&str]| {
        let command = ["waf", "diff", "old", "new", "--log", "a.log", "b.log"];
        let output = workspace.run(&[&command, further].concat());
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        stdout(&output)
    };
    let text = diff(&[]);
    for part in [
        "3 requests: 1 newly blocked, 1 no longer blocked, 0 blocked by both.",
        "Lines that are not understood: 1.",
        "7 Union\n    GET /?q=union+select&token=xx\n",
        "9 Union\n    GET /?q=drop+table\n",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let text = diff(&["--format", "markdown"]);
    assert!(text.contains("\n| 9 | 0 | 1 | 1 | 0 |\n"), "{text}");
    let report: serde_json::Value =
        serde_json::from_str(&diff(&["--format", "json"])).expect("JSON");
    assert_eq!(report["rules"]["7"]["no_longer_blocked"], 1, "{report}");
    assert_eq!(report["newly_blocked"], 1, "{report}");
    let output = workspace.run(&["waf", "diff", "old", "new", "--log", "attack.http"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
}

#[test]
fn replay_reads_audit_logs_of_modsecurity() {
    let workspace = workspace();
    let entry = |boundary: &str, target: &str| {
        format!(
            "--{boundary}-A--\n[21/Nov/2026:20:38:08 +0100] id 192.0.2.7 1 127.0.0.1 80\n--{boundary}-B--\nGET {target} HTTP/1.1\n\
             Host: a\n\n--{boundary}-F--\nHTTP/1.1 403 Forbidden\n\n--{boundary}-H--\nAction: Intercepted (phase 1)\n\n--{boundary}-Z--\n\n"
        )
    };
    let index = "a 192.0.2.7 - - [x] \"GET / HTTP/1.1\" 403 8 \"-\" \"-\" id \"-\" /20261121/1 0 812 md5:0123456789abcdef0123456789abcdef\n";
    workspace.write("log/index", index);
    workspace.write("log/20261121/1", &entry("0a1b2c3d", "/?q=union+select"));
    workspace.write("log/20261121/2", &entry("0a1b2c3e", "/?q=none"));
    workspace.write("log/20261121/3", &entry("0a1b2c3f", "/")[..40]);
    let output = workspace.run(&["waf", "replay", "a.conf", "--log", "log"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let text = stdout(&output);
    for line in [
        "2 requests, 1 would be blocked",
        "compared with the log: 0 newly blocked, 1 no longer",
        "Entries that are truncated: 1",
        "Lines of an index, whose entries are read from their folder: 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    let error = r#"2026/01/09 20:05:48 [error] 7#7: *1 [client ::1] ModSecurity: Warning. x [file "a"] [id "7"] [uri "/"]"#;
    workspace.write("error.log", error);
    let output = workspace.run(&["waf", "replay", "a.conf", "--log", "error.log"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(stderr(&output).contains("matches and no requests"), "{}", show(&output));
}

#[test]
fn check_warns_of_rules_that_block_nothing() {
    let workspace = workspace();
    let scoring = "SecRule ARGS x \"id:942100,phase:2,pass,tag:OWASP_CRS,setvar:tx.score=+5\"\n";
    let evaluation = "SecRule TX:score \"@ge 5\" \"id:949110,phase:2,deny,tag:OWASP_CRS\"\n";
    let removal = "SecRuleRemoveById 949110\n";
    let missing = "blocks nothing: rule 949110, which evaluates the scores of requests, is missing";
    let on = "SecRuleEngine On\n";
    for (rules, warning) in [
        (format!("{on}{scoring}{evaluation}"), None),
        (format!("{on}{scoring}"), Some(missing)),
        (format!("{on}{scoring}{evaluation}{removal}"), Some(missing)),
        (
            format!("SecRuleEngine DetectionOnly\n{scoring}{evaluation}"),
            Some("blocks nothing: SecRuleEngine is DetectionOnly"),
        ),
        (
            format!("{scoring}{evaluation}"),
            Some(
                "blocks nothing: SecRuleEngine is Off or not set; in the gateway, `mode` takes precedence",
            ),
        ),
    ] {
        workspace.write("scores.conf", &rules);
        let output = workspace.run(&["waf", "check", "scores.conf"]);
        let text = stdout(&output);
        let found = text.lines().find(|line| line.starts_with("blocks nothing"));
        assert_eq!(found, warning, "{rules}{}", show(&output));
    }
}

#[test]
fn check_warns_of_broad_rules_and_of_exclusions_without_effect() {
    let workspace = workspace();
    let rules = r#"SecRuleEngine On
SecAction "id:1,phase:1,allow"
SecRule REQUEST_HEADERS:User-Agent "@contains monitor" "id:2,phase:1,pass,ctl:ruleEngine=Off"
SecRule REQUEST_URI "@contains /static/" "id:3,phase:1,allow"
SecRule REMOTE_ADDR "!@ipMatch 192.0.2.0/24" "id:4,phase:1,allow"
SecRule REQUEST_FILENAME "@beginsWith /" "id:5,phase:1,allow"
SecRule REMOTE_ADDR "@ipMatch 192.0.2.0/24" "id:6,phase:1,allow"
SecRule REQUEST_FILENAME "@beginsWith /static/" "id:7,phase:1,allow,t:normalizePath"
SecRule REQUEST_HEADERS:X-Check "@streq a" "id:8,phase:1,allow,chain"
    SecRule REMOTE_ADDR "@ipMatch 127.0.0.1" "t:none"
SecRule ARGS x "id:9,phase:2,deny"
SecAction "id:10,phase:1,pass,ctl:ruleRemoveById=77,ctl:ruleRemoveTargetById=9;ARGS:a"
SecRuleRemoveById 78 80-90
SecRuleRemoveByTag none
SecRuleUpdateTargetById 9 "!ARGS_GET:b|!REQUEST_COOKIES:c"
"#;
    workspace.write("broad.conf", rules);
    let output = workspace.run(&["waf", "check", "broad.conf"]);
    let text = stdout(&output);
    let found = |title: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(title));
        lines.map(|line| line.splitn(2, "broad.conf:").last().unwrap_or(line).to_owned()).collect()
    };
    assert_eq!(
        found("too broad: "),
        [
            "2:1: rule 1 ends inspection of every request",
            "3:1: rule 2 ends inspection under a condition on REQUEST_HEADERS:user-agent that every client can meet",
            "4:1: rule 3 ends inspection under a condition on REQUEST_URI that every client can meet",
            "5:1: rule 4 ends inspection under a condition on REMOTE_ADDR that every client can meet",
            "6:1: rule 5 ends inspection under a condition on REQUEST_FILENAME that every client can meet",
        ],
        "{}",
        show(&output)
    );
    assert_eq!(
        found("excludes nothing: "),
        [
            "13:19: selects no rule: none has id 78",
            "13:22: selects no rule: none has id 80-90",
            "14:20: selects no rule: none has tag none",
            "15:1: no rule with id 9 inspects REQUEST_COOKIES:c",
            "12:1: selects no rule: none has id 77",
        ],
        "{}",
        show(&output)
    );
    assert!(text.ends_with("no rule of the Core Rule Set is loaded\n"), "{}", show(&output));
}

/// Each condition of a rule that ends inspection is one that many clients can meet, or is not.
#[test]
fn check_knows_narrow_conditions() {
    let workspace = workspace();
    let broad = [
        r#"REQUEST_FILENAME "@rx ^/.*""#,
        r#"REQUEST_FILENAME "@rx ^/a|b""#,
        r#"REQUEST_FILENAME "@streq %{REQUEST_FILENAME}""#,
        r#"REQUEST_FILENAME "@endsWith .css""#,
        r#"REQUEST_URI "@beginsWith /static/""#,
        r#"REMOTE_ADDR "@ipMatch 10.0.0.1,0.0.0.0/0""#,
        r#"REMOTE_ADDR "@rx .""#,
        r#"SERVER_PORT "@streq 443""#,
        r#"MATCHED_VAR "@rx a""#,
        r#"REQBODY_ERROR "@eq 0""#,
        r#"FILES_NAMES "@rx a""#,
    ];
    let narrow = [
        r#"REQUEST_FILENAME "@streq /health""#,
        r#"REMOTE_ADDR "@ipMatch 10.0.0.0/8""#,
        r#"TX:sampling "!@lt 50""#,
        r#"IP:blocked "@eq 1""#,
    ];
    for (conditions, expected) in [(&broad[..], 1), (&narrow[..], 0)] {
        for condition in conditions {
            let rule = format!("SecRuleEngine On\nSecRule {condition} \"id:1,phase:2,allow\"\n");
            workspace.write("one.conf", &rule);
            let output = workspace.run(&["waf", "check", "one.conf"]);
            let found = stdout(&output).matches("too broad: ").count();
            assert_eq!(found, expected, "{condition}: {}", show(&output));
        }
    }
}
