//! Rules of naxsi: verdicts derived by hand from its documentation, and errors.

use std::sync::Arc;

use tollgate_waf::{LoadError, RuleSet, Transaction, Worker};
use tollgate_waf_tools::replay::{self, Request};

const RULES: &str = r#"
# Keywords add 4 for each occurrence.
MainRule "rx:select|union" "msg:keywords" "mz:ARGS|BODY|URL|$HEADERS_VAR:Cookie" "s:$SQL:4" id:1000;
MainRule "str:\"" "msg:double quote" "mz:ARGS|BODY" "s:$SQL:8,$XSS:8" id:1001;
MainRule "str:<" "msg:tag" "mz:ARGS|BODY|URL" "s:$XSS:8" id:1302;
MainRule "str:[" "msg:bracket" "mz:ARGS|BODY" "s:$XSS:4" id:1310;
MainRule "rx:\.php|\.jsp" "msg:upload" "mz:FILE_EXT" "s:$UPLOAD:8" id:1500;
BasicRule "str:probe" "mz:$ARGS_VAR:Only|$URL:/target" s:DROP id:2000;
BasicRule "rx:^[0-9]+$" negative "mz:$ARGS_VAR:number" "s:$EVADE:8" id:2001;
BasicRule "d:libinj_sql" "mz:$BODY_VAR_X:^sql_" "s:DROP" id:2002;
BasicRule id:2003 "str:legacy" "mz:ARGS|NAME" "s:$EVADE:8";
MainRule id:2004 s:DROP str:RANDOMTHINGS mz:RAW_BODY;
CheckRule "$SQL >= 8" BLOCK;
CheckRule "$XSS >= 8" BLOCK;
CheckRule "$UPLOAD >= 8" BLOCK;
CheckRule "$EVADE > 4" DROP;
"#;

fn load(rules: &str) -> Result<RuleSet, LoadError> {
    RuleSet::builder().text("t.rules", rules).build()
}

/// Ids of the rules that match, and the status if the request is blocked; the same with and without gates.
fn run(rules: &Arc<RuleSet>, request: &Request) -> (Vec<u64>, Option<u16>) {
    let [gated, plain] = [Worker::new(), Worker::plain()].map(|mut worker| {
        let mut transaction = Transaction::new(Arc::clone(rules));
        replay::run_request(&mut transaction, &mut worker, request);
        let ids = transaction.matches().iter().map(|found| found.id).collect::<Vec<_>>();
        (ids, transaction.intervention().map(|intervention| intervention.status))
    });
    assert_eq!(gated, plain);
    gated
}

fn get(target: &str) -> Request {
    replay::parse_raw(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
}

fn post(target: &str, content_type: &str, body: &str) -> Request {
    let (header, length) = (format!("Content-Type: {content_type}\r\n"), body.len());
    let header = if content_type.is_empty() { "" } else { &header };
    let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\n{header}Content-Length: {length}");
    replay::parse_raw(format!("{head}\r\n\r\n{body}").as_bytes())
}

fn with_header(header: &str) -> Request {
    replay::parse_raw(format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n").as_bytes())
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
/// Thresholds have ids from here, in their order.
const CHECK: u64 = 900;

#[track_caller]
fn expect(rules: &str, cases: &[(&str, Request, &[u64], bool)]) {
    let rules = Arc::new(load(rules).unwrap_or_else(|error| panic!("{error}")));
    for (name, request, ids, is_blocked) in cases {
        let found = run(&rules, request);
        assert_eq!(found, (ids.to_vec(), is_blocked.then_some(403)), "{name}");
    }
}

#[test]
fn scores_add_up_by_occurrence_and_block_from_their_threshold() {
    expect(
        RULES,
        &[
            ("one keyword: 4 of 8", get("/?q=select"), &[1000], false),
            ("two keywords in one value", get("/?q=UNION+SELECT"), &[1000, CHECK], true),
            ("in two values", get("/?a=select&b=select"), &[1000, CHECK], true),
            ("in path and value", get("/select?a=select"), &[1000, CHECK], true),
            ("decoded", get("/?a=%73elect%20unio%6e"), &[1000, CHECK], true),
            ("in a name", get("/?select[]=[select"), &[1000, 1310, CHECK], true),
            ("two scores", get("/?a=%22"), &[1001, CHECK], true),
            ("line break in a keyword", get("/?a=sel%0aect+union"), &[1000], false),
            (
                "a header that is named",
                with_header("Cookie: a=union%20select"),
                &[1000, CHECK],
                true,
            ),
            ("another header", with_header("X-Other: union select"), &[], false),
            ("harmless", get("/shop?q=shoes&page=2"), &[], false),
        ],
    );
}

#[test]
fn zones_select_names_paths_files_and_bodies() {
    let upload = |name: &str| {
        let part =
            format!("--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"");
        post("/", "multipart/form-data; boundary=b", &format!("{part}\r\n\r\n<select\r\n--b--\r\n"))
    };
    expect(
        RULES,
        &[
            ("form", post("/", FORM, "a=%3Cscript"), &[1302, CHECK + 1], true),
            ("JSON", post("/", JSON, r#"{"a":{"b":["<"]}}"#), &[1302, CHECK + 1], true),
            ("path", get("/%3Cb"), &[1302, CHECK + 1], true),
            ("file name", upload("a.PHP"), &[1500, CHECK + 2], true),
            ("contents of a file", upload("a.png"), &[], false),
            ("argument and path", get("/Target?ONLY=probe"), &[2000], true),
            ("argument, other path", get("/targets?only=probe"), &[], false),
            ("path, other argument", get("/target?other=probe"), &[], false),
            ("negative, matched", get("/?number=12"), &[], false),
            ("negative, not matched", get("/?number=12a"), &[2001, CHECK + 3], true),
            ("libinjection", post("/", FORM, "sql_a=1'+or+1=1--"), &[2002], true),
            ("libinjection, other name", post("/", FORM, "a=1'+or+1=1--"), &[], false),
            ("name", get("/?legacy=1"), &[2003, CHECK + 3], true),
            ("value, not name", get("/?a=legacy"), &[], false),
        ],
    );
}

/// The rules with more lines.
fn and(more: &str) -> String {
    format!("{RULES}\n{more}\n")
}

#[test]
fn whitelists_remove_rules_by_zone_name_and_path() {
    let two = "/?q=select+union";
    expect(&and("BasicRule wl:1000;"), &[("everywhere", get(two), &[], false)]);
    expect(
        &and("BasicRule wl:1000 \"mz:$ARGS_VAR:q\";"),
        &[
            ("argument", get(two), &[], false),
            ("other argument", get("/?p=select+union"), &[1000, CHECK], true),
            ("its name", get("/?selectunion=1"), &[1000, CHECK], true),
        ],
    );
    expect(
        &and("BasicRule wl:1000,1302 \"mz:$URL:/search|ARGS\";"),
        &[
            ("path", get("/Search?q=select+union<"), &[], false),
            ("name on the path", get("/search?selectunion=1"), &[1000, CHECK], true),
            ("other path", get(two), &[1000, CHECK], true),
        ],
    );
    expect(
        &and("BasicRule wl:1310 \"mz:$URL_X:^/form/[0-9]+$|$BODY_VAR_X:^row|NAME\";"),
        &[
            ("names", post("/form/12", FORM, "row[[1=1"), &[], false),
            ("values", post("/form/12", FORM, "row=[["), &[1310, CHECK + 1], true),
            ("other path", post("/form/x", FORM, "row[[1=1"), &[1310, CHECK + 1], true),
        ],
    );
    expect(
        &and("BasicRule wl:-1302 \"mz:ARGS\";"),
        &[
            ("all but one", get(two), &[], false),
            ("that one", get("/?q=select+union<"), &[1302, CHECK + 1], true),
        ],
    );
    expect(
        &and("MainRule wl:0 \"mz:$BODY_VAR:free\";"),
        &[
            ("all rules", post("/", FORM, "free=select+union<%22"), &[], false),
            ("member of JSON", post("/", JSON, r#"{"a":{"free":["<","<"]}}"#), &[], false),
            ("another member", post("/", JSON, r#"{"free":{"b":"<"}}"#), &[1302, CHECK + 1], true),
        ],
    );
}

#[test]
fn arguments_without_an_equals_sign_are_values() {
    expect(
        &and("BasicRule wl:1000 \"mz:ARGS|NAME\"; BasicRule wl:1302 \"mz:BODY\";"),
        &[
            ("name", get("/?select+union=1"), &[], false),
            ("value", get("/?select+union"), &[1000, CHECK], true),
            ("not a name", get("/?legacy"), &[], false),
            ("in a form", post("/", FORM, "<b"), &[], false),
            ("not of a form", get("/?<b"), &[1302, CHECK + 1], true),
        ],
    );
    // Rules of other dialects expect a name.
    let rules = RuleSet::builder()
        .text("t.rules", RULES)
        .text("t.conf", "SecRule ARGS_NAMES \"@streq legacy\" \"id:1,phase:1,pass\"")
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(run(&Arc::new(rules), &get("/?legacy")).0, [1, 2003, CHECK + 3]);
}

#[test]
fn whitelist_of_a_field_and_file_names_exempts_the_file_of_that_field() {
    let upload = |field: &str| {
        let part = format!(
            "--b\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"a.php\"\r\n\r\nx\r\n--b--\r\n"
        );
        post("/", "multipart/form-data; boundary=b", &part)
    };
    let found: &[u64] = &[1500, CHECK + 2];
    expect(
        &and("BasicRule wl:1500 \"mz:$BODY_VAR:free|FILE_EXT\";"),
        &[("this field", upload("free"), &[], false), ("another field", upload("f"), found, true)],
    );
    expect(
        &and("BasicRule wl:1500 \"mz:$BODY_VAR_X:^fr|FILE_EXT|$URL_X:^/\";"),
        &[("regex", upload("free"), &[], false), ("not it", upload("unfree"), found, true)],
    );
    expect(&and("BasicRule wl:1500 \"mz:FILE_EXT\";"), &[("all", upload("f"), &[], false)]);
}

#[test]
fn regexes_of_zones_select_keys_of_json_and_contain_bars() {
    let json = |text: &str| post("/", JSON, text);
    expect(
        &and("BasicRule wl:1302 \"mz:$BODY_VAR_X:^row(_a|_b)[|x]?$\";"),
        &[
            ("form", post("/", FORM, "row_a=<"), &[], false),
            ("nested key", json(r#"{"a":{"row_b":"<"}}"#), &[], false),
            ("array", json(r#"{"row_a":["<",["<"]]}"#), &[], false),
            ("bar in a class", post("/", FORM, "row_a|=<"), &[], false),
            ("other key", json(r#"{"row_a":{"row_c":"<"}}"#), &[1302, CHECK + 1], true),
            ("part of a key", json(r#"{"a_row_a":"<"}"#), &[1302, CHECK + 1], true),
        ],
    );
    expect(
        &and("BasicRule wl:1302 \"mz:$URL_X:^/(a|b)$|$ARGS_VAR_X:^q\";"),
        &[
            ("first path", get("/a?q=<"), &[], false),
            ("second path", get("/b?q=<"), &[], false),
            ("other name", get("/b?r=<"), &[1302, CHECK + 1], true),
        ],
    );
}

#[test]
fn upper_bounds_are_compared_whenever_the_score_grows() {
    expect(
        r#"
        MainRule id:1001 "str:a" "mz:ARGS" "s:$X:4";
        MainRule id:1002 "str:b" "mz:ARGS" "s:$X:8";
        CheckRule "$X <= 4" BLOCK;
        "#,
        &[
            ("none", get("/?q=x"), &[], false),
            ("at most", get("/?q=a"), &[1001, CHECK], true),
            ("more", get("/?q=b"), &[1002], false),
            ("at first", get("/?q=ab"), &[1001, CHECK], true),
        ],
    );
}

#[test]
fn learning_mode_passes_block_and_not_drop() {
    expect(
        &and("LearningMode;"),
        &[
            ("BLOCK", get("/?q=select+union"), &[1000, CHECK], false),
            ("DROP of a threshold", get("/?legacy="), &[2003, CHECK + 3], true),
            ("DROP of a rule", get("/target?only=probe"), &[2000], true),
            ("internal rule", post("/", "text/plain", "a"), &[11], false),
            ("internal rule of a value", get("/?a=%00"), &[10], false),
            ("internal rule that drops", get("/?a=%c0%af"), &[20], true),
            ("illegal host", with_header("Host: 255.255.255.255"), &[21], true),
        ],
    );
}

#[test]
fn internal_rules_block_what_cannot_be_inspected() {
    expect(
        RULES,
        &[
            ("invalid escape in a value", get("/?a=10%"), &[10], true),
            ("invalid escape in the path", get("/%zz"), &[10], true),
            ("invalid escape in a form", post("/", FORM, "a=%g1"), &[10], true),
            ("null byte", get("/?a=%00"), &[10], true),
            ("unknown content type", post("/", "text/plain", "a"), &[11], true),
            ("no content type", post("/", "", "a"), &[11], true),
            (
                "parameters of the type",
                post("/", "application/json; charset=utf-8", "{}"),
                &[],
                false,
            ),
            ("multipart", post("/", "multipart/form-data; boundary=b", "--b\r\nx"), &[13], true),
            ("JSON", post("/", JSON, "{\"a\":"), &[15], true),
            ("empty", post("/", FORM, ""), &[16], true),
            ("UTF-8", get("/?a=%c0%af"), &[20], true),
            ("host", with_header("Host: 0.0.0.0:80"), &[21], true),
            ("host of version 6", with_header("Host: [FF02::1]"), &[21], true),
            ("no address", with_header("Host: 0.example.com"), &[], false),
            ("host outside of ff00::/8", with_header("Host: [ff::1]"), &[], false),
        ],
    );
    expect(
        &and(
            "BasicRule wl:11 \"mz:$URL:/raw|BODY\"; BasicRule wl:10 \"mz:ARGS\"; BasicRule wl:16;",
        ),
        &[
            ("raw body without a match", post("/raw", "text/plain", "a"), &[], false),
            ("raw body", post("/raw", "text/plain", "random%74hings"), &[2004], true),
            ("other path", post("/", "text/plain", "a"), &[11], true),
            ("escape in a value", get("/?a=10%"), &[], false),
            ("escape in the path", get("/%zz"), &[10], true),
            ("empty", post("/", FORM, ""), &[], false),
        ],
    );
}

#[test]
fn libinjection_scores_all_values_if_it_is_enabled() {
    let rules =
        and("LibInjectionSql; libinjection_xss; CheckRule \"$LIBINJECTION_SQL >= 8\" BLOCK; \
         CheckRule \"$LIBINJECTION_XSS >= 16\" BLOCK;");
    let check = CHECK + 4;
    expect(
        &rules,
        &[
            ("SQL", get("/?a=1'+or+1=1--"), &[17, check], true),
            ("two scripts", with_header("Cookie: <script>\r\nX: <script>"), &[18, check + 1], true),
            ("one script", with_header("X: <script>"), &[18], false),
        ],
    );
}

#[test]
fn thresholds_allow_and_log() {
    let rules = r#"
        MainRule id:1 wl:0;
    "#;
    assert!(load(rules).unwrap_err().to_string().contains("a whitelist has"));
    expect(
        r#"
        MainRule id:1001 "str:token" "mz:ARGS" "s:$TRUST:1";
        MainRule id:1002 "str:bad" "mz:ARGS" "s:$BAD:1,$NOTE:1";
        CheckRule "$BAD >= 1" BLOCK;
        CheckRule "$NOTE >= 1" LOG;
        CheckRule "$TRUST >= 1" ALLOW;
        "#,
        &[
            ("blocked", get("/?a=bad"), &[1002, CHECK + 1], true),
            ("allowed", get("/?a=bad&b=token"), &[1001, 1002, CHECK], false),
        ],
    );
}

#[test]
fn errors_name_their_place() {
    for (rules, message) in [
        ("MainRul id:1;", "t.rules:1:1: unknown directive \"MainRul\"; did you mean \"MainRule\"?"),
        ("\n  MainRule \"strr:a\";", "t.rules:2:12: unknown key \"strr\"; did you mean \"str\"?"),
        ("MainRule id:1000 \"str:a\" \"mz:ARG\" s:DROP;", "t.rules:1:26: unknown zone \"ARG\""),
        ("MainRule id:1000 \"str:a\" s:DROP;", "t.rules:1:1: a rule needs `mz`"),
        ("MainRule id:12 \"str:a\" s:DROP mz:ARGS;", "ids below 1000"),
        ("MainRule id:1000 \"rx:a(\" s:DROP mz:ARGS;", "t.rules:1:1: cannot compile regex"),
        (
            "MainRule wl:1 \"mz:$URL:/a\";",
            "t.rules:1:15: the match zone names no part of the request",
        ),
        ("MainRule wl:1,-2;", "negative and other ids"),
        ("MainRule wl:1 \"mz:$URL_X:^/a|$ARGS_VAR:b\";", "names and regexes at once"),
        ("MainRule wl:1", "t.rules:1:1: the directive does not end with `;`"),
        ("MainRule \"wl:1;", "t.rules:1:10: the quoted word has no end"),
        ("location / { }", "blocks are not supported"),
        ("CheckRule \"$SQL = 8\" BLOCK;", "expected `$NAME >= NUMBER`"),
        ("CheckRule \"$SQL >= 8\" BLOK;", "unknown action \"BLOK\"; did you mean \"BLOCK\"?"),
        ("BasicRule wl:1;", "naxsi would drop all requests"),
        ("IgnoreIP \"192.0.2.1\";", "IgnoreIP is not supported"),
    ] {
        let error = load(rules).unwrap_err().to_string();
        assert!(error.contains(message), "{rules}: {error}");
    }
}

#[test]
fn scores_and_whitelists_without_effect_are_listed() {
    let rules = "MainRule id:1000 \"str:a\" mz:ARGS s:$SQL:4;\nBasicRule wl:1001;\nDeniedUrl /no;\n\
                 MainRule id:1002 str:b mz:ARGS s:42;";
    let found = load(rules).unwrap();
    let inert: Vec<String> =
        found.inert().iter().map(|note| format!("{}: {}", note.place, note.message)).collect();
    assert_eq!(
        inert,
        [
            "t.rules:3:1: DeniedUrl has no effect: a blocked request gets status 403",
            "t.rules:4:32: score 42 has no effect: no CheckRule can name it",
            "t.rules:2:1: no rule has id 1001",
            "t.rules:1:1: no CheckRule compares $SQL",
        ]
    );
}

#[test]
fn seclang_directives_change_rules_of_naxsi() {
    let more = "SecRuleUpdateTargetById 1000 \"!ARGS_GET:q\"\nSecRuleRemoveById 16\n";
    let rules = RuleSet::builder().text("t.rules", RULES).text("t.conf", more).build().unwrap();
    let rules = Arc::new(rules);
    assert_eq!(run(&rules, &get("/?q=select+union")), (vec![], None));
    assert_eq!(run(&rules, &get("/?p=select+union")).1, Some(403));
    assert_eq!(run(&rules, &post("/", FORM, "")).1, None);
}

#[test]
fn words_are_quoted_as_for_nginx() {
    let rules = r#"
        MainRule "str:c:\\" mz:ARGS s:DROP id:1001; MainRule 'rx:^[\.a-z0-9_\- ]+$' negative
            "mz:FILE_EXT" "s:DROP" id:1002; # MainRule id:1003;
        MainRule "str:\"a\'\t" "mz:ARGS" "s:DROP" id:1004;
    "#;
    expect(
        rules,
        &[
            ("backslash", get("/?a=C:\\"), &[1001], true),
            ("quotes", get("/?a=%22a'%09"), &[1004], true),
            ("one backslash less", get("/?a=c:"), &[], false),
        ],
    );
}
