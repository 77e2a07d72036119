//! Tests of transactions.

use std::sync::atomic::Ordering;

use super::*;
use crate::Builder;

fn run(settings: &str, target: &str) -> (Option<u16>, LimitsReached, usize) {
    let text = format!(
        "SecRuleEngine On\nSecRequestBodyAccess On\n{settings}\n\
         SecRule ARGS \"@rx [a-z]\" \"id:1,phase:2,pass\"\n\
         SecRule ARGS \"@rx [a-z]\" \"id:2,phase:2,pass\""
    );
    let rules = RuleSet::builder().text("t.conf", text).build().unwrap();
    let mut transaction = Transaction::new(Arc::new(rules));
    let mut worker = Worker::new();
    transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
    transaction.process_request_headers(&mut worker);
    transaction.process_request_body(&mut worker);
    let status = transaction.intervention().map(|intervention| intervention.status);
    (status, transaction.limits_reached(), transaction.matches().len())
}

#[test]
fn no_rule_runs_once_the_inspection_is_cancelled() {
    let rules = "SecRuleEngine On\nSecRule ARGS \"@contains a\" \"id:1,phase:1,pass\"\n\
                 SecRule ARGS \"@contains a\" \"id:2,phase:2,deny\"";
    let rules = Arc::new(RuleSet::builder().text("t.conf", rules).build().unwrap());
    let (mut worker, mut transaction) = (Worker::new(), Transaction::new(rules));
    let flag = Arc::new(AtomicBool::new(false));
    transaction.cancel_by(Arc::clone(&flag));
    transaction.request_line(b"GET", b"/?q=a", b"HTTP/1.1");
    transaction.process_request_headers(&mut worker);
    flag.store(true, Ordering::Relaxed);
    assert_eq!(transaction.process_request_body(&mut worker), None);
    transaction.process_logging(&mut worker);
    assert_eq!(transaction.matches().len(), 1);
    assert_eq!(transaction.limits_reached().to_string(), "inspection cancelled");
    transaction.reset();
    transaction.request_line(b"GET", b"/?q=a", b"HTTP/1.1");
    transaction.process_request_headers(&mut worker);
    assert!(transaction.process_request_body(&mut worker).is_some());
}

#[test]
fn inspection_limit_blocks_or_ends_the_inspection() {
    let none = LimitsReached::default();
    let reached = LimitsReached { inspection: true, ..none };
    assert_eq!(run("SecInspectionLimit 8", "/?q=abc"), (None, none, 2));
    assert_eq!(run("SecInspectionLimit 7", "/?q=abc"), (Some(403), reached, 1));
    let partial = "SecInspectionLimit 3\nSecInspectionLimitAction ProcessPartial";
    assert_eq!(run(partial, "/?q=abc"), (None, reached, 0));
    assert_eq!(reached.to_string(), "inspection limit");
}

#[test]
fn arguments_beyond_the_limit_are_never_ignored() {
    let (status, limits, _) = run("SecArgumentsLimit 1", "/?q=1&r=2");
    assert_eq!((status, limits.values, limits.request_body), (Some(413), 1, true));
    let partial = "SecArgumentsLimit 1\nSecRequestBodyLimitAction ProcessPartial";
    let (status, limits, matches) = run(partial, "/?q=a&r=b");
    assert_eq!((status, limits.values, matches), (None, 1, 2));
}

/// Inspects a body, and returns the transaction.
fn post(rules: &Arc<RuleSet>, content_type: &str, body: &[u8]) -> Transaction {
    let mut transaction = Transaction::new(Arc::clone(rules));
    let mut worker = Worker::new();
    transaction.request_line(b"POST", b"/", b"HTTP/1.1");
    transaction.request_header(b"Content-Type", content_type.as_bytes());
    transaction.process_request_headers(&mut worker);
    transaction.append_request_body(body);
    transaction.process_request_body(&mut worker);
    transaction
}

fn ids(transaction: &Transaction) -> Vec<u64> {
    transaction.matches().iter().map(|found| found.id).collect()
}

#[test]
fn match_has_its_value_before_and_after_transformations() {
    let text = "SecRuleEngine On\nSecRule ARGS \"@streq a\" \"id:1,phase:1,pass,t:lowercase,t:trim\"\n\
        SecRule ARGS \"@streq b\" \"id:2,phase:1,pass,t:lowercase\"\n\
        SecRule ARGS:p \"@streq a\" \"id:3,phase:1,pass,t:lowercase,chain\"\nSecRule MATCHED_VAR \"@streq a\"";
    let rules = RuleSet::builder().text("test", text).build();
    let mut transaction = Transaction::new(Arc::new(rules.unwrap_or_else(|e| panic!("{e}"))));
    transaction.request_line(b"GET", b"/?q=%20A&p=A&r=b", b"HTTP/1.1");
    transaction.process_request_headers(&mut Worker::new());
    let values =
        transaction.matches().iter().map(|found| (&*found.value, found.original.as_deref()));
    // The last value that matched; `b` is as it was sent, and so is what the chain looks at.
    let expected = [(&b"a"[..], Some(&b"A"[..])), (b"b", None), (b"a", None)];
    assert_eq!(values.collect::<Vec<_>>(), expected);
}

const PARSERS: &str = "SecRequestBodyAccess On\nSecArgumentsLimit 200000\n\
    SecRule REQUEST_HEADERS:Content-Type json \"id:900,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON\"\n\
    SecRule REQUEST_HEADERS:Content-Type xml \"id:901,phase:1,pass,nolog,ctl:requestBodyProcessor=XML\"\n";

#[test]
fn a_transaction_takes_memory_and_work_in_proportion_to_its_body() {
    let rules = rules(&format!(
        "{PARSERS}SecRequestBodyNoFilesLimit 1000000\n\
         SecRule ARGS|ARGS_NAMES|REQUEST_BODY|XML:/* \"@rx (?i)<script\" \"id:1,phase:2,pass,nolog\""
    ));
    let key = "k".repeat(5_700);
    let field = "------b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n".repeat(1_500);
    let json_part = format!(
        "------b\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: application/json\r\n\r\n\
         {{\"{}\":[[1],[1],[1],[1],[1],[1],[1],[1]]}}\r\n",
        &key[..60]
    );
    for (kind, body) in [
        ("application/json", format!("{{\"{key}\":[{}]}}", ["1"; 900].join(","))),
        ("application/json", format!("{{\"{key}\":[{}]}}", ["[1]"; 900].join(","))),
        ("application/json", format!("[{}]", ["1"; 60_000].join(","))),
        ("application/json", format!("[{}]", ["[]"; 40_000].join(","))),
        ("application/json", format!("{}1{}", "[".repeat(400), "]".repeat(400))),
        ("application/x-www-form-urlencoded", "a&".repeat(100_000)),
        ("application/x-www-form-urlencoded", "&".repeat(100_000)),
        (
            "text/xml",
            format!("<a {}/>", (0..9_000).map(|i| format!("a{i}='' ")).collect::<String>()),
        ),
        ("multipart/form-data; boundary=----b", format!("{field}------b--\r\n")),
        ("multipart/form-data; boundary=----b", format!("{}------b--\r\n", json_part.repeat(500))),
        ("text/xml", format!("<a>{}</a>", "<b>x</b>".repeat(9_000))),
        ("text/xml", format!("<a>{}</a>", "<?p?>".repeat(9_000))),
    ] {
        let transaction = post(&rules, kind, body.as_bytes());
        let (size, memory) = (body.len(), transaction.memory());
        let name = &body[..body.len().min(20)];
        assert!(memory <= 20 * size + 200_000, "{name}: {memory} bytes for {size}");
        let work = transaction.state.request_work.unwrap();
        assert!(work <= 12 * size + 20_000, "{name}: work {work} for {size}");
    }
}

#[test]
fn rules_see_every_name_of_a_json_body() {
    let rules = rules(&format!(
        "{PARSERS}SecRule ARGS_NAMES \"@contains $ne\" \"id:1,phase:2,pass\"\n\
         SecRule ARGS \"@contains <script\" \"id:2,phase:2,pass\"\n\
         SecRule ARGS:json.a.array_1 \"@streq x\" \"id:3,phase:2,pass,setvar:tx.name=%{{matched_var_name}}\"\n\
         SecRule ARGS|!ARGS:json.a.array_2 \"@streq y\" \"id:4,phase:2,pass\"\n\
         SecRule &ARGS:/array_/ \"@eq 4\" \"id:5,phase:2,pass\"\n\
         SecRule ARGS_NAMES \"@streq json.a.array_0\" \"id:6,phase:2,pass\""
    ));
    for (body, expected) in [
        (r#"{"password":{"$ne":{}}}"#, vec![1]),
        (r#"{"q":"\ud83d\u003cscript src=//evil.example/x.js>"}"#, vec![2]),
        (r#"{"a":["w","x","y",["z"]]}"#, vec![3, 5, 6]),
    ] {
        let transaction = post(&rules, "application/json", body.as_bytes());
        assert_eq!(ids(&transaction), expected, "{body}");
        if expected.contains(&3) {
            assert_eq!(transaction.tx("name").unwrap(), b"ARGS:json.a.array_1");
        }
    }
}

#[test]
fn rules_see_the_raw_body_of_every_kind() {
    let rules = rules(&format!(
        "{PARSERS}SecRule REQUEST_BODY \"@contains needle\" \"id:1,phase:2,pass\"\n\
         SecRule FILES \"@endsWith .php\" \"id:2,phase:2,pass\"\n\
         SecRule REQBODY_ERROR \"!@eq 0\" \"id:3,phase:2,pass\"\n\
         SecRule XML://@* \"@contains evil\" \"id:4,phase:2,pass\"\n\
         SecRule REQUEST_BODY|XML:/* \"@contains needle\" \"id:5,phase:2,pass\""
    ));
    let part = |headers: &str| format!("--b\r\n{headers}\r\n\r\nneedle\r\n--b--\r\n");
    let disposition = "Content-Disposition: form-data; name=\"a\"; filename=\"a.gif\"";
    for (kind, body, expected) in [
        ("application/json", r#"{"a":"needle"}"#.to_owned(), vec![1, 5]),
        ("text/xml", "<a xmlns:x='evil'>needle</a>".to_owned(), vec![1, 4, 5]),
        // Rule 5 reads the document in its place.
        ("text/xml", "<needle/>".to_owned(), vec![1]),
        ("text/xml", "<needle>".to_owned(), vec![1, 3, 5]),
        ("multipart/form-data; boundary=b", part(disposition), vec![1, 5]),
        (
            "multipart/form-data; boundary=b",
            part(&format!("{disposition}; filename*=UTF-8''shell.php")),
            vec![1, 2, 5],
        ),
        (
            "multipart/form-data; boundary=b",
            part(&format!("{disposition}\r\nContent-Type: a/b\r\nContent-Type: c/d")),
            vec![1, 3, 5],
        ),
    ] {
        assert_eq!(ids(&post(&rules, kind, body.as_bytes())), expected, "{kind} {body}");
    }
}

#[test]
fn hidden_values_are_those_that_servers_read() {
    let rules = rules(&format!(
        "{PARSERS}SecRule REQUEST_COOKIES \"@contains <script\" \"id:1,phase:1,pass\"\n\
         SecRule ARGS|XML:/* \"@rx ^<script\" \"id:2,phase:2,pass\"\n\
         SecRule ARGS_NAMES \"@rx <script\" \"id:3,phase:2,pass\"\n\
         SecRule FILES \"@endsWith .php\" \"id:4,phase:2,pass\"\n\
         SecRule REQBODY_ERROR \"!@eq 0\" \"id:5,phase:2,pass\"\n\
         SecRule XML:/* \"@rx <script\" \"id:6,phase:2,pass\""
    ));
    for (cookie, expected) in [
        ("=<script", vec![1]),
        ("a=b; =<script", vec![1]),
        ("a=\"\\074script\"", vec![1]),
        ("a=\"<s\\cript\"", vec![1]),
        ("a=\"b\"; c=<p", vec![]),
    ] {
        let mut transaction = Transaction::new(Arc::clone(&rules));
        transaction.request_line(b"GET", b"/", b"HTTP/1.1");
        transaction.request_header(b"Cookie", cookie.as_bytes());
        transaction.process_request_headers(&mut Worker::new());
        assert_eq!(ids(&transaction), expected, "{cookie}");
    }
    let part = |headers: &str, body: &str| {
        let disposition = "Content-Disposition: form-data";
        format!("--b\r\n{disposition}; {headers}\r\n\r\n{body}\r\n--b--\r\n")
    };
    let typed = |kind: &str, body: &str| part(&format!("name=\"a\"\r\nContent-Type: {kind}"), body);
    let multipart = "multipart/form-data; boundary=b";
    for (kind, body, expected) in [
        (multipart, typed("application/json", r#"{"q":"\u003cscript"}"#), vec![2]),
        (multipart, typed("application/json", r#"{"\u003cscript":1}"#), vec![3]),
        (multipart, typed("application/json", "{"), vec![5]),
        (multipart, typed("application/json", ""), vec![]),
        (multipart, typed("text/xml", "<a>&lt;script</a>"), vec![2, 6]),
        (multipart, typed("multipart/mixed; boundary=c", "--c--"), vec![5]),
        (multipart, part("name=\"=?utf-8?B?PHNjcmlwdA==?=\"", "v"), vec![3]),
        (multipart, part("name=\"a\"; filename=\"=?utf-8?q?a=2Ephp?=\"", "v"), vec![4]),
        (multipart, part("name=\"a\"; filename=\"a\"; filename*=utf-7''a+AC4-php", "v"), vec![5]),
        ("text/xml", "<a><b>x</b><c>&lt;script</c></a>".to_owned(), vec![2, 6]),
        ("text/xml", "<a>&lt;scr<b/>ipt</a>".to_owned(), vec![2, 6]),
        ("text/xml", "<a><?p <script?></a>".to_owned(), vec![2, 6]),
        ("text/xml", "<a><b>&lt;scr</b><b>ipt</b></a>".to_owned(), vec![]),
    ] {
        assert_eq!(ids(&post(&rules, kind, body.as_bytes())), expected, "{kind} {body}");
    }
}

#[test]
fn negated_operators_compare_variables_that_are_not_set() {
    let rules = rules(
        "SecRequestBodyAccess On\n\
         SecRule AUTH_TYPE \"!@streq Basic\" \"id:1,phase:1,pass\"\n\
         SecRule AUTH_TYPE \"@streq Basic\" \"id:2,phase:1,pass\"\n\
         SecRule REQUEST_HEADERS:X \"!@streq Basic\" \"id:3,phase:1,pass\"\n\
         SecRule REMOTE_USER \"@streq me\" \"id:4,phase:1,pass\"\n\
         SecRule REQUEST_BODY \"!@rx ^\\{\" \"id:5,phase:2,pass\"\n\
         SecRule SESSIONID \"!@streq x\" \"id:6,phase:2,pass\"",
    );
    for (authorization, expected) in
        [(None, vec![1, 5, 6]), (Some("Basic bWU6c2VjcmV0"), vec![2, 4, 5, 6])]
    {
        for mut worker in [Worker::plain(), Worker::new()] {
            let mut transaction = Transaction::new(Arc::clone(&rules));
            transaction.request_line(b"GET", b"/", b"HTTP/1.1");
            if let Some(value) = authorization {
                transaction.request_header(b"Authorization", value.as_bytes());
            }
            transaction.process_request_headers(&mut worker);
            transaction.process_request_body(&mut worker);
            assert_eq!(ids(&transaction), expected);
        }
    }
}

#[test]
fn body_processor_is_visible_once_it_is_selected() {
    let rules = rules(
        "SecAction \"id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=XML\"\n\
         SecRule REQBODY_PROCESSOR \"@streq XML\" \"id:2,phase:1,pass,logdata:'%{reqbody_processor}'\"\n\
         SecRule &REQBODY_PROCESSOR \"@eq 1\" \"id:3,phase:1,pass\"",
    );
    assert_eq!(matches(&mut Worker::new(), &rules, "/").0, [2, 3]);
}

#[test]
fn status_line_is_visible() {
    let rules = rules("SecRule STATUS_LINE \"@streq HTTP/1.1 500\" \"id:1,phase:3,pass\"");
    let mut transaction = Transaction::new(rules);
    transaction.response_line(b"HTTP/1.1", 500);
    transaction.process_response_headers(&mut Worker::new());
    assert_eq!(ids(&transaction), [1]);
}

#[test]
fn phase_4_runs_without_a_body() {
    let rules = rules("SecRule RESPONSE_STATUS \"@streq 500\" \"id:1,phase:4,deny\"");
    let mut transaction = Transaction::new(rules);
    let mut worker = Worker::new();
    transaction.response_line(b"HTTP/1.1", 500);
    transaction.process_response_headers(&mut worker);
    assert_eq!(transaction.process_response_body(&mut worker).unwrap().status, 403);
}

#[test]
fn content_coding_of_a_decoded_body_is_hidden_from_phase_4() {
    let rules = rules(
        "SecResponseBodyAccess On\n\
         SecRule RESPONSE_HEADERS:Content-Encoding gzip \"id:1,phase:3,pass\"\n\
         SecRule RESPONSE_HEADERS:Content-Encoding gzip \"id:2,phase:4,pass,skipAfter:END\"\n\
         SecRule RESPONSE_BODY leak \"id:3,phase:4,pass\"\nSecMarker END",
    );
    let mut transaction = Transaction::new(rules);
    let mut worker = Worker::new();
    transaction.response_line(b"HTTP/1.1", 200);
    transaction.response_header(b"Content-Type", b"text/html");
    transaction.response_header(b"Content-Encoding", b"gzip");
    transaction.process_response_headers(&mut worker);
    transaction.append_response_body(b"leak");
    transaction.response_body_is_decoded();
    transaction.process_response_body(&mut worker);
    assert_eq!(ids(&transaction), [1, 3]);
}

#[test]
fn nothing_drops_in_silence() {
    let rules = rules(
        "SecRequestBodyAccess On\nSecRequestBodyNoFilesLimit 9000000\n\
         SecRule ARGS:a \"@rx (?s)^(.*)$\" \"id:1,phase:2,pass,nolog,capture\"\n\
         SecRule LIMITS_REACHED \"@contains not written\" \"id:2,phase:2,pass\"",
    );
    let body = format!("a={}", "x".repeat(3 << 20));
    let transaction = post(&rules, "application/x-www-form-urlencoded", body.as_bytes());
    assert_eq!(transaction.limits_reached().variables, 1);
    assert_eq!(transaction.intervention().unwrap().status, 413);
    let rules = RuleSet::builder().text("t.conf", "SecRuleEngine DetectionOnly\nSecRequestBodyAccess On\nSecRequestBodyNoFilesLimit 9000000\n\
         SecRule ARGS:a \"@rx (?s)^(.*)$\" \"id:1,phase:2,pass,nolog,capture\"\n\
         SecRule LIMITS_REACHED \"@contains not written\" \"id:2,phase:2,pass\"").build().unwrap();
    let transaction = post(&Arc::new(rules), "application/x-www-form-urlencoded", body.as_bytes());
    assert_eq!(ids(&transaction), [2]);
}

#[test]
fn separators_hide_no_argument() {
    let rules = rules(
        "SecRequestBodyLimitAction ProcessPartial\n\
         SecRule ARGS:q \"@contains attack\" \"id:1,phase:1,pass\"",
    );
    let target = format!("/?{}q=attack", "&".repeat(100_001));
    let (ids, limits) = matches(&mut Worker::new(), &rules, &target);
    assert_eq!((ids, limits), (vec![1], LimitsReached::default()));
}

#[test]
fn fields_of_multipart_bodies_obey_the_limit_of_what_is_no_file() {
    let text = "SecRequestBodyAccess On\nSecRequestBodyNoFilesLimit 300\n\
        SecRule ARGS:/^[ab]$/ \"@contains x\" \"id:1,phase:2,pass,setvar:tx.name=%{matched_var_name}\"";
    let part = |name: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\n{value}\r\n")
    };
    let kind = "multipart/form-data; boundary=b";
    let file = part("name=\"f\"; filename=\"f\"", &"x".repeat(1000));
    let body = format!("{file}{}--b--\r\n", part("name=\"a\"", "x"));
    let transaction = post(&rules(text), kind, body.as_bytes());
    assert_eq!((ids(&transaction), transaction.intervention()), (vec![1], None));
    let long = part("name=\"b\"", &"x".repeat(1000));
    let body = format!("{}{long}--b--\r\n", part("name=\"a\"", "x"));
    let transaction = post(&rules(text), kind, body.as_bytes());
    assert_eq!(transaction.intervention().unwrap().status, 413);
    let partial = format!("{text}\nSecRequestBodyLimitAction ProcessPartial");
    let transaction = post(&rules(&partial), kind, body.as_bytes());
    assert_eq!(transaction.tx("name").unwrap(), b"ARGS:a");
    assert!(transaction.limits_reached().values > 0);
}

#[test]
fn inspection_limit_does_not_depend_on_gates_or_on_the_request_before() {
    let rules = rules(
        "SecInspectionLimit 40\n\
         SecAction \"id:1,phase:1,pass,nolog,setvar:tx.level=1\"\n\
         SecRule ARGS:l \"@streq 2\" \"id:2,phase:1,pass,nolog,setvar:tx.level=2\"\n\
         SecRule TX:level \"@lt 2\" \"id:3,phase:1,pass,nolog,skipAfter:END\"\n\
         SecRule ARGS \"@contains abc\" \"id:4,phase:1,pass,nolog\"\n\
         SecRule ARGS \"@contains abd\" \"id:5,phase:1,pass,nolog\"\nSecMarker END",
    );
    let targets =
        ["/?q=abcdefgh&l=1", "/?q=abcdefgh&l=2", "/?q=abcdefghijkl&l=2", "/?q=12345678&l=2"];
    let reached = |worker: &mut Worker, target| matches(worker, &rules, target).1.inspection;
    let alone = targets.map(|target| reached(&mut Worker::plain(), target));
    assert_eq!(alone, [false, false, true, false]);
    for before in targets {
        for (target, expected) in targets.into_iter().zip(alone) {
            let mut worker = Worker::new();
            reached(&mut worker, before);
            assert_eq!(reached(&mut worker, target), expected, "{target} after {before}");
        }
    }
}

/// Ids that match a request, and the limits that it reached.
fn matches(worker: &mut Worker, rules: &Arc<RuleSet>, target: &str) -> (Vec<u64>, LimitsReached) {
    let mut transaction = Transaction::new(Arc::clone(rules));
    transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
    transaction.process_request_headers(worker);
    let ids = transaction.matches().iter().map(|found| found.id).collect();
    (ids, transaction.limits_reached())
}

fn rules(text: &str) -> Arc<RuleSet> {
    let text = format!("SecRuleEngine On\n{text}");
    Arc::new(RuleSet::builder().text("t.conf", text).build().unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn lookups_without_their_service_never_match_and_are_counted() {
    let rules = rules(
        "SecRule ARGS \"@rbl a.example\" \"id:1,phase:1,pass\"\n\
         SecRule ARGS:a \"@geoLookup\" \"id:2,phase:1,pass,chain\"\nSecRule GEO:COUNTRY_CODE .",
    );
    let places: Vec<String> = rules
        .never_matching()
        .iter()
        .map(|note| format!("{} {}", note.place, note.message))
        .collect();
    assert_eq!(
        places,
        [
            "t.conf:2:16 operator @rbl needs DNS lookups",
            "t.conf:3:18 operator @geoLookup needs a geographic database",
            "t.conf:3:1 GEO:country_code is never set: there are no geographic lookups",
        ]
    );
    let (ids, limits) = matches(&mut Worker::new(), &rules, "/?a=1&b=2");
    assert_eq!((ids, limits.operators), (vec![], 3));
    assert_eq!(limits.to_string(), "3 operators without their service");
}

#[test]
fn targets_that_a_control_removes_are_those_of_the_head_of_a_chain() {
    let rules = rules(
        "SecAction \"id:1,phase:1,pass,ctl:ruleRemoveTargetById=2;ARGS:q,ctl:ruleRemoveTargetByTag=t;ARGS:q\"\n\
         SecRule REQUEST_METHOD GET \"id:2,phase:1,pass,chain\"\nSecRule ARGS attack\n\
         SecRule ARGS attack \"id:3,phase:1,pass,tag:t,chain\"\nSecRule REQUEST_METHOD GET",
    );
    let found = |target: &str| matches(&mut Worker::new(), &rules, target).0;
    assert_eq!(found("/?q=attack"), [1, 2]);
    assert_eq!(found("/?p=attack"), [1, 2, 3]);
}

#[test]
fn check_digits_are_tried_at_every_offset() {
    let rules = rules(
        "SecRule ARGS \"@verifyCC [0-9]{13,16}\" \"id:1,phase:1,pass\"\n\
         SecRule ARGS \"@verifySSN [0-9]{9}\" \"id:2,phase:1,pass\"\n\
         SecRule ARGS \"@verifyCPF [0-9]{11}\" \"id:3,phase:1,pass\"",
    );
    let found = |value: &str| matches(&mut Worker::new(), &rules, &format!("/?q={value}"));
    assert_eq!(found("14111111111111111").0, [1, 2]);
    assert_eq!(found("9078051120").0, [2]);
    assert_eq!(found("152998224725").0, [2, 3]);
    // Each offset costs the length of its match: the searches end, and say so.
    let (ids, limits) = found(&"1".repeat(200_000));
    assert_eq!((ids, limits.regexes), (vec![], 3));
}

#[test]
fn macros_read_values_that_no_target_names() {
    let rules = rules(
        "SecAction \"id:1,phase:1,pass,setvar:tx.a=%{request_line}|%{args.q}|%{time_year}|%{unique_id}|\
         %{request_headers.x}|%{request_cookies.c}\"",
    );
    let mut transaction = Transaction::new(rules);
    transaction.time(0);
    transaction.unique_id("u");
    transaction.request_line(b"GET", b"/?q=1", b"HTTP/1.1");
    transaction.request_header(b"X", b"y");
    transaction.request_header(b"Cookie", b"c=d");
    transaction.process_request_headers(&mut Worker::new());
    let text = transaction.tx("a").unwrap_or_default();
    assert_eq!(text.escape_ascii().to_string(), "GET /?q=1 HTTP/1.1|1|1970|u|y|d");
}

#[test]
fn response_bodies_are_inspected_if_a_rule_depends_on_them() {
    let access = "SecResponseBodyAccess On\nSecResponseBodyMimeType text/html";
    for (text, expected) in [
        ("SecResponseBodyLimitAction ProcessPartial", false),
        ("SecResponseBodyLimitAction Reject", true),
        ("SecResponseBodyLimitAction ProcessPartial\nSecAction \"id:1,phase:4,pass\"", true),
        (
            "SecResponseBodyLimitAction ProcessPartial\n\
             SecRule RESPONSE_BODY x \"id:1,phase:5,pass\"",
            true,
        ),
    ] {
        let mut transaction = Transaction::new(rules(&format!("{access}\n{text}")));
        transaction.response_line(b"HTTP/1.1", 200);
        transaction.response_header(b"Content-Type", b"text/html");
        assert_eq!(transaction.inspects_response_body(), expected, "{text}");
    }
}

#[test]
fn gates_change_neither_skips_nor_phases_that_a_limit_has_blocked() {
    let rules = rules(
        "SecArgumentsLimit 2\n\
         SecRule ARGS:q \"@rx ^none$\" \"id:1,phase:1,pass\"\n\
         SecRule ARGS:q \"@rx ^two$\" \"id:2,phase:1,pass,skip:2\"\n\
         SecRule ARGS:q \"@rx ^none$\" \"id:3,phase:1,pass\"\n\
         SecMarker M\n\
         SecRule ARGS:q \"@rx t\" \"id:4,phase:1,pass\"\n\
         SecRule ARGS:q \"@rx t\" \"id:5,phase:1,pass,skip:9\"\n\
         SecRule ARGS:q \"@rx t\" \"id:6,phase:1,pass\"",
    );
    for (target, expected) in [
        ("/?q=two", vec![2, 5]),
        ("/?q=ten", vec![4, 5]),
        ("/?q=ten&a=1&b=2", vec![]),
        ("/?q=none&a=1&b=2", vec![1]),
    ] {
        for mut worker in [Worker::plain(), Worker::new()] {
            assert_eq!(matches(&mut worker, &rules, target).0, expected, "{target}");
        }
    }
}

#[test]
fn regexes_may_contain_macros() {
    let rules = rules(
        "SecAction \"id:1,phase:1,pass,nolog,setvar:tx.allowed=a|b{2}\"\n\
         SecRule ARGS:q \"!@rx ^(?:%{tx.allowed})$\" \"id:2,phase:1,pass\"\n\
         SecRule ARGS:r \"@rx ^(%{args.s})$\" \"id:3,phase:1,pass,capture,chain\"\n\
         SecRule TX:1 \"@streq \u{e9}x\"",
    );
    let mut worker = Worker::new();
    for (target, expected) in [
        ("/?q=bb", vec![]),
        ("/?q=b", vec![2]),
        ("/?r=%C3%A9x&s=%C3%A9.", vec![3]),
        ("/?r=ax&s=b.", vec![]),
    ] {
        let (ids, limits) = matches(&mut worker, &rules, target);
        assert_eq!((ids, limits.regexes), (expected, 0), "{target}");
    }
    // More texts than a worker keeps.
    for text in 0..150 {
        let (ids, _) = matches(&mut worker, &rules, &format!("/?r=x{text}&s=x{text}"));
        assert_eq!(ids, []);
    }
    assert_eq!(matches(&mut worker, &rules, "/?r=%C3%A9x&s=%C3%A9.").0, [3]);
    for invalid in ["(".to_owned(), "x".repeat(5000)] {
        let (ids, limits) = matches(&mut worker, &rules, &format!("/?r=x&s={invalid}"));
        assert_eq!((ids, limits.regexes), (vec![], 1));
    }
}

#[test]
fn rules_see_that_a_search_was_given_up() {
    let rules = rules(
        "SecRule ARGS \"@rx x(a|aa)+\\1c\" \"id:1,phase:1,pass\"\n\
         SecRule TX:/^MSC_/ \"!@streq 0\" \"id:2,phase:1,pass\"\n\
         SecRule MSC_PCRE_LIMITS_EXCEEDED \"@eq 1\" \"id:3,phase:1,pass\"",
    );
    let mut worker = Worker::new();
    assert_eq!(matches(&mut worker, &rules, "/?q=xaac"), (vec![1], LimitsReached::default()));
    let target = format!("/?q=x{}bc", "a".repeat(60));
    let (ids, limits) = matches(&mut worker, &rules, &target);
    assert_eq!((ids, limits.regexes), (vec![2, 3], 1));
    assert_eq!(limits.to_string(), "1 regex searches given up");
}

#[test]
fn all_searches_of_a_transaction_share_their_steps() {
    // Rule 942130 of CRS 3.3.4, shortened.
    let rules = rules(
        "SecRequestBodyAccess On\n\
         SecRule ARGS \"@rx (?i:[\\s'\\\"`()]*?\\b([\\d\\w]+)\\b[\\s'\\\"`()]*?=[\\s'\\\"`()]*?(?:\\b\\1\\b))\" \
         \"id:1,phase:2,pass\"",
    );
    let mut worker = Worker::new();
    let mut limits = |value: &str, count: usize| {
        let body: Vec<String> = (0..count).map(|at| format!("{at}={value}")).collect();
        let body = body.join("&");
        let mut transaction = Transaction::new(Arc::clone(&rules));
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        transaction.request_header(b"Content-Type", b"application/x-www-form-urlencoded");
        transaction.process_request_headers(&mut worker);
        transaction.append_request_body(body.as_bytes());
        transaction.process_request_body(&mut worker);
        transaction.limits_reached().regexes
    };
    let quotes = format!("{}a%3Db", "'".repeat(1300));
    assert_eq!(limits(&quotes, 1), 0);
    // Each takes about 845,000 steps.
    assert_eq!(limits(&quotes, 95), 93);
    // Texts of 1 kB, one long text, and short values.
    let prose = format!("a%3Db+{}", "the+quick+brown+fox+is+like+a+hare%2C+and+".repeat(24));
    assert_eq!(limits(&prose, 125), 0);
    assert_eq!(limits(&prose.repeat(60), 1), 0);
    assert_eq!(limits("a%3Db", 6500), 0);
}

#[test]
fn kept_transaction_has_no_long_names_and_values() {
    let rules = rules(
        "SecRequestBodyAccess On\n\
         SecRule ARGS|ARGS_NAMES \"@rx (.*)\" \"id:1,phase:2,pass,capture,setvar:tx.a=%{matched_var}\"",
    );
    let mut worker = Worker::new();
    let mut transaction = Transaction::new(Arc::clone(&rules));
    for count in 0..16 {
        let long = "x".repeat(10_000);
        let body = format!("{}{long}={long}", "a=1&".repeat(count));
        transaction.request_line(b"POST", b"/", b"HTTP/1.1");
        transaction.request_header(b"Content-Type", b"application/x-www-form-urlencoded");
        transaction.process_request_headers(&mut worker);
        transaction.append_request_body(body.as_bytes());
        transaction.process_request_body(&mut worker);
        assert_eq!(transaction.matches().len(), 1);
        transaction.reset();
    }
    let values = &transaction.state.matched.values;
    assert!(!values.is_empty());
    for value in values {
        assert!(value.key.capacity() <= RETAINED_VALUE, "{}", value.key.capacity());
        assert!(value.value.capacity() <= RETAINED_VALUE, "{}", value.value.capacity());
    }
}

#[test]
fn civil_dates() {
    assert_eq!(civil_date(0), (1970, 1, 1));
    assert_eq!(civil_date(11_016), (2000, 2, 29));
    assert_eq!(civil_date(20_779), (2026, 11, 22));
}

#[test]
fn match_names_the_last_operator_of_its_chain() {
    let text = "SecRuleEngine On\n\
        SecRule ARGS:q \"@rx ^a\" \"id:1,phase:1,pass,ver:'V',rev:'2',maturity:3,accuracy:4,noauditlog,chain,setvar:tx.a=%{ARGS.q}\"\n\
        SecRule ARGS:r \"!@streq %{tx.a}\" \"t:none\"\n\
        SecAction \"id:2,phase:1,pass\"\n\
        SecRule ARGS:q \"@rx \\\"|a|\\\"\" \"id:3,phase:1,pass\"";
    let rules = RuleSet::builder().text("t.conf", text).build().unwrap_or_else(|e| panic!("{e}"));
    let mut transaction = Transaction::new(Arc::new(rules));
    transaction.request_line(b"GET", b"/?q=ab&r=c", b"HTTP/1.1");
    transaction.process_request_headers(&mut Worker::new());
    let [chain, action, quoted] = transaction.matches() else {
        panic!("{:?}", transaction.matches())
    };
    assert_eq!(chain.argument.as_deref(), Some(&b"ab"[..]));
    assert_eq!(action.argument, None);
    let info = |index| transaction.rules().rule(index).unwrap_or_else(|| panic!("no rule {index}"));
    let first = info(chain.rule);
    assert_eq!((first.operator, first.argument), ("StrEq", &b"%{tx.a}"[..]));
    assert_eq!((first.version, first.revision, first.maturity, first.accuracy), ("V", "2", 3, 4));
    assert!(!first.audit_log);
    assert_eq!(info(quoted.rule).argument, b"\\\"|a|\\\"");
    let second = info(action.rule);
    assert_eq!((second.operator, second.argument), ("", &b""[..]));
    assert!(second.audit_log);
}

#[test]
fn rules_around_run_after_those_of_a_place_whose_settings_win() {
    let rules = RuleSet::builder()
        .text("location", "SecRuleEngine On\nSecRule ARGS \"@streq b\" \"id:1,phase:1,block\"\nSecRuleRemoveById 4")
        .around()
        .text("server", "SecRuleEngine Off\nSecResponseBodyLimit 7\nSecAction \"id:2,phase:1,pass\"")
        .around()
        .text("http", "SecDefaultAction \"phase:1,deny,status:406\"\nSecResponseBodyLimit 9\nSecRule ARGS \"@streq a\" \"id:3,phase:1,block\"\nSecAction \"id:4,phase:1,pass\"")
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        (rules.settings().engine, rules.settings().response_body_limit),
        (EngineMode::On, 7)
    );
    let mut transaction = Transaction::new(Arc::new(rules));
    transaction.request_line(b"GET", b"/?x=a&y=b", b"HTTP/1.1");
    transaction.process_request_headers(&mut Worker::new());
    let matched: Vec<u64> = transaction.matches().iter().map(|matched| matched.id).collect();
    assert_eq!(matched, [1, 2, 3]);
    // The default action of its own place.
    assert_eq!(
        transaction.intervention().map(|found| (found.rule, found.status)),
        Some((Some(3), 406))
    );
}

const AROUND: &str = "SecRuleEngine On\nSecResponseBodyLimit 9\n\
    SecRule ARGS attack \"id:1,phase:1,pass,tag:t,msg:'m',chain\"\nSecRule REQUEST_METHOD GET t:none\n\
    SecRule ARGS|REQUEST_URI attack \"id:2,phase:1,pass,skipAfter:END\"\nSecAction \"id:3,phase:1,pass\"\nSecMarker END\n\
    SecRule TX:a|ARGS_NAMES q \"id:4,phase:1,deny\"";

#[test]
fn sources_without_rules_share_those_of_the_place_around() {
    let builder = |own: &str| RuleSet::builder().text("location", own);
    let build = |builder: Builder| builder.build().unwrap_or_else(|e| panic!("{e}"));
    let around = build(RuleSet::builder().text("server", AROUND));
    // One worker for all of them, which keeps its caches.
    let mut worker = Worker::new();
    for own in [
        "",
        "SecRuleEngine DetectionOnly\nSecResponseBodyLimit 7\nSecAuditLogRelevantStatus ^5",
        "SecRuleRemoveById 1 2\nSecRuleRemoveById 3",
        "SecRuleRemoveByTag t",
        "SecRuleRemoveByMsg m",
        "SecRuleUpdateTargetById 1 \"!ARGS:q\"\nSecRuleUpdateTargetById 2-4 \"!REQUEST_URI,!ARGS_NAMES\"",
        "SecRuleUpdateTargetByTag t \"!ARGS:/^[pq]$/\"\nSecRuleUpdateTargetByMsg m \"!ARGS:r\"",
    ] {
        let shared = builder(own).build_on(&around).unwrap_or_else(|e| panic!("{own}: {e}"));
        let shared = Arc::new(shared.unwrap_or_else(|| panic!("not shared: {own}")));
        assert!(shared.shares_rules_with(&around));
        let whole = Arc::new(build(builder(own).around().text("server", AROUND)));
        let settings =
            |rules: &RuleSet| format!("{:?} {}", rules.settings(), rules.is_relevant_status(503));
        assert_eq!(settings(&shared), settings(&whole), "{own}");
        assert_eq!(shared.removed(), whole.removed(), "{own}");
        for target in ["/", "/?q=attack", "/?p=attack&q=a", "/attack?r=attack"] {
            let found = matches(&mut worker, &shared, target);
            assert_eq!(found, matches(&mut Worker::new(), &whole, target), "{own}: {target}");
        }
    }
    for own in [
        "SecAction \"id:9,phase:1,pass\"",
        "SecMarker M",
        "SecRuleUpdateTargetById 1 REQUEST_URI",
        "SecRuleUpdateActionById 1 deny",
    ] {
        let shared = builder(own).build_on(&around).unwrap_or_else(|e| panic!("{own}: {e}"));
        assert!(shared.is_none(), "{own}");
    }
    // Fewer rules are skipped if one of them is removed.
    let skipping = RuleSet::builder().text("server", "SecAction \"id:1,phase:1,pass,skip:1\"");
    assert!(
        builder("SecRuleRemoveById 1").build_on(&build(skipping)).is_ok_and(|set| set.is_none())
    );
    // Sources on top of those that share rules.
    let server = builder("SecRuleRemoveById 1").build_on(&around).ok().flatten();
    let server = server.unwrap_or_else(|| panic!("not shared"));
    let location = builder("SecRuleRemoveById 3").build_on(&server).ok().flatten();
    let location = Arc::new(location.unwrap_or_else(|| panic!("not shared")));
    assert_eq!(matches(&mut worker, &location, "/?q=a").0, [4]);
    assert_eq!(location.removed(), 2);
    // A transaction goes from one set to another.
    let mut transaction = Transaction::new(Arc::new(around));
    transaction.reset_with(&location);
    transaction.request_line(b"GET", b"/?q=a", b"HTTP/1.1");
    transaction.process_request_headers(&mut worker);
    assert_eq!(transaction.matches().iter().map(|found| found.id).collect::<Vec<_>>(), [4]);
}

#[test]
fn place_ends_with_its_chains() {
    let error = RuleSet::builder()
        .text("location", "SecRule ARGS b \"t:none\"")
        .around()
        .text("server", "SecRule ARGS a \"id:1,phase:1,pass,chain\"")
        .build();
    let error = error.map(drop).unwrap_err().to_string();
    assert_eq!(error, "server:1:1: chain without a following rule");
}

#[test]
fn rules_in_memory_take_their_files_from_a_folder_and_settings_from_the_caller()
-> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("words.data"), "attack\n")?;
    let text = "SecRule ARGS \"@pmFromFile words.data\" \"id:1,phase:1,deny\"";
    let mut rules = RuleSet::builder().text_in(folder.path(), "t.conf", text).build()?;
    rules.settings_mut().engine = EngineMode::On;
    let mut transaction = Transaction::new(Arc::new(rules));
    transaction.request_line(b"GET", b"/?q=attack", b"HTTP/1.1");
    assert!(transaction.process_request_headers(&mut Worker::new()).is_some());
    Ok(())
}

#[test]
fn rule_set_names_the_files_that_it_depends_on() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(
        path("main.conf"),
        "Include rules/*.conf\nSecRule ARGS \"@pmFromFile a.data b.data\" \"id:1\"",
    )?;
    std::fs::create_dir(path("rules"))?;
    std::fs::write(
        path("rules/one.conf"),
        "SecRule REMOTE_ADDR \"@ipMatchFromFile ips\" \"id:2\"",
    )?;
    for name in ["a.data", "b.data", "rules/ips"] {
        std::fs::write(path(name), "10.0.0.1\n")?;
    }
    let rules = RuleSet::builder().file(path("main.conf")).build()?;
    let names = ["main.conf", "rules", "rules/one.conf", "rules/ips", "a.data", "b.data"];
    assert_eq!(rules.files(), names.map(path));
    Ok(())
}

#[test]
fn request_body_hides_no_response_body_of_the_same_test() {
    let rules = rules(
        "SecRequestBodyAccess On\nSecResponseBodyAccess On\n\
         SecRule RESPONSE_STATUS 200 \"id:1,phase:4,pass,chain\"\n\
         SecRule RESPONSE_BODY|REQUEST_BODY \"@rx \\bleaked\\b\"\n\
         SecRule RESPONSE_BODY|REQUEST_BODY \"!@rx \\bleaked\\b\" \"id:2,phase:4,pass,logdata:'%{MATCHED_VAR_NAME}',setvar:tx.n=+1\"\n\
         SecRule TX:n \"!@eq 1\" \"id:3,phase:4,pass\"",
    );
    // The gate cannot exclude the first of these bodies of a request, which has no match either.
    for body in [&b"leakeded"[..], b"other", b""] {
        let mut transaction = post(&rules, "text/plain", body);
        let mut worker = Worker::new();
        transaction.response_line(b"HTTP/1.1", 200);
        transaction.response_header(b"Content-Type", b"text/html");
        transaction.process_response_headers(&mut worker);
        transaction.append_response_body(b"leaked");
        transaction.process_response_body(&mut worker);
        assert_eq!(ids(&transaction), [1, 2], "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn captured_texts_are_those_of_the_last_value_that_matched() {
    let rules = rules(
        "SecRule ARGS \"@rx a\\d\" \"id:1,phase:1,pass,capture,t:lowercase,logdata:'%{TX.0}'\"\n\
         SecRule ARGS \"@rx a\\d\" \"id:2,phase:1,pass,capture,setvar:'tx.all=%{tx.all},%{tx.0}',logdata:'%{TX.all}'\"\n\
         SecRule ARGS \"@rx a\\d\" \"id:3,phase:1,pass,capture,setvar:tx.0=7,logdata:'%{TX.0}'\"\n\
         SecRule ARGS \"@rx (a)(\\d)?\" \"id:4,phase:1,pass,capture,logdata:'%{TX.0}%{TX.2}'\"\n\
         SecRule ARGS \"@rx a(?=\\d)\" \"id:5,phase:1,pass,capture,chain,logdata:'%{TX.0}'\"\n\
         SecRule TX:0 \"@streq a\"\n\
         SecRule ARGS|TX:0 \"@rx [a-z]\\d?\" \"id:6,phase:1,pass,capture,logdata:'%{MATCHED_VAR_NAME}'\"",
    );
    let mut transaction = Transaction::new(rules);
    transaction.request_line(b"GET", b"/?p=a1&q=xa2y&r=a", b"HTTP/1.1");
    transaction.process_request_headers(&mut Worker::new());
    let logged = transaction
        .matches()
        .iter()
        .map(|found| (found.id, String::from_utf8_lossy(&found.log_data).into_owned()));
    let expected = [(1, "a2"), (2, ",a1,a2"), (3, "7"), (4, "a2"), (5, "a"), (6, "TX:0")];
    assert_eq!(logged.collect::<Vec<_>>(), expected.map(|(id, text)| (id, text.to_owned())));
}
