//! Rules that count across requests, in the manner of ModSecurity's handbook: rate limits, brute force, sessions.

use std::sync::Arc;
use std::thread;

use tollgate_waf::{
    CollectionLimits, Collections, Connection, LimitsReached, RuleSet, Transaction, Worker,
};

/// A server with one worker, whose clock the test sets.
struct Server {
    rules: Arc<RuleSet>,
    collections: Arc<Collections>,
    worker: Worker,
}

/// Outcome of a request: the status of a block, and the transaction.
type Outcome = (Option<u16>, Transaction);

impl Server {
    fn new(rules: &str) -> Self {
        let collections = Arc::new(Collections::new(CollectionLimits::default()));
        Self { rules: load(rules), collections, worker: Worker::new() }
    }

    /// A request with its response. Rules of the log run, too.
    fn request(&mut self, now: u64, client: &str, target: &str, status: u16) -> Outcome {
        let mut transaction = Transaction::new(Arc::clone(&self.rules));
        transaction.collections(&self.collections);
        let status = run(&mut transaction, &mut self.worker, (now, client), (target, status));
        (status, transaction)
    }

    /// Status of the response to a client: that of a block, or 200.
    fn get(&mut self, now: u64, client: &str, target: &str) -> u16 {
        self.request(now, client, target, 200).0.unwrap_or(200)
    }
}

fn load(rules: &str) -> Arc<RuleSet> {
    let text = format!("SecRuleEngine On\n{rules}");
    let set = RuleSet::builder().text("t.conf", text).build();
    Arc::new(set.unwrap_or_else(|error| panic!("{error}")))
}

fn run(
    transaction: &mut Transaction,
    worker: &mut Worker,
    (now, client): (u64, &str),
    (target, status): (&str, u16),
) -> Option<u16> {
    transaction.time(now);
    let (client_port, server, server_port) = (40_000, "192.0.2.80", 80);
    transaction.connection(&Connection { client, client_port, server, server_port });
    transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
    transaction.request_header(b"Host", b"example.com");
    let mut block = transaction.process_request_headers(worker).map(|block| block.status);
    if block.is_none() {
        block = transaction.process_request_body(worker).map(|block| block.status);
    }
    transaction.response_line(b"HTTP/1.1", block.unwrap_or(status));
    if block.is_none() {
        block = transaction.process_response_headers(worker).map(|block| block.status);
    }
    transaction.process_logging(worker);
    block
}

fn tx(transaction: &Transaction, name: &str) -> String {
    transaction.tx(name).map_or_else(String::new, |value| String::from_utf8_lossy(&value).into())
}

#[test]
fn collection_that_is_open_stays_as_it_is() {
    let open = "SecRule ARGS \"@rx .\" \"id:ID,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR},setvar:ip.values=+1\"\n";
    let mut server = Server::new(&format!(
        "{}{}{}",
        open.replace("ID", "1"),
        open.replace("ID", "2"),
        "SecAction \"id:3,phase:1,pass,nolog,setvar:'tx.facts=%{ip.is_new} %{ip.values} %{ip.update_counter}'\""
    ));
    let mut facts = || tx(&server.request(0, "192.0.2.1", "/?a=1&b=2&c=3", 200).1, "facts");
    assert_eq!([facts(), facts()], ["1 6 0", "0 12 1"]);
}

/// At most five requests in ten seconds without a pause; then a minute of 429.
const RATE_LIMIT: &str = r#"
SecAction "id:1,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR}"
SecRule IP:BLOCKED "@eq 1" "id:2,phase:1,deny,status:429,nolog"
SecAction "id:3,phase:1,pass,nolog,setvar:ip.requests=+1,expirevar:ip.requests=10"
SecRule IP:REQUESTS "@gt 5" "id:4,phase:1,deny,status:429,setvar:ip.blocked=1,expirevar:ip.blocked=60,setvar:!ip.requests,msg:'%{ip.requests}'"
"#;

#[test]
fn rate_limit_blocks_a_client_for_its_time() {
    let mut server = Server::new(RATE_LIMIT);
    assert_eq!(server.rules.inert().len(), 0);
    for now in 1000..1005 {
        assert_eq!(server.get(now, "192.0.2.1", "/"), 200, "{now}");
    }
    assert_eq!(server.get(1005, "192.0.2.1", "/"), 429);
    assert_eq!(server.get(1064, "192.0.2.1", "/"), 429);
    assert_eq!(server.get(1005, "192.0.2.2", "/"), 200, "another client");
    // A minute after the block, counting begins anew.
    assert_eq!(server.get(1065, "192.0.2.1", "/"), 200);
    // Ten seconds without a request forget those before.
    for now in [1066, 1067, 1068, 1069, 1079, 1080] {
        assert_eq!(server.get(now, "192.0.2.1", "/"), 200, "{now}");
    }
}

/// Failed logins of a user, from any address, fade by one a minute.
const BRUTE_FORCE: &str = r#"
SecRule REQUEST_FILENAME "@streq /login" "id:1,phase:2,pass,nolog,chain"
    SecRule ARGS:name "@rx ^[a-z]+$" "setuid:%{MATCHED_VAR},deprecatevar:user.failures=1/60"
SecRule USER:failures "@ge 3" "id:2,phase:2,deny,status:403,msg:'%{USERID}: %{user.failures} failures'"
SecRule RESPONSE_STATUS "@streq 401" "id:3,phase:5,pass,nolog,chain"
    SecRule REQUEST_FILENAME "@streq /login" "setvar:user.failures=+1"
SecRule RESPONSE_STATUS "@streq 200" "id:4,phase:5,pass,nolog,chain"
    SecRule REQUEST_FILENAME "@streq /login" "setvar:!user.failures"
"#;

#[test]
fn failed_logins_lock_a_user_until_they_fade() {
    let mut server = Server::new(BRUTE_FORCE);
    let mut login = |now, client, status| {
        let (block, transaction) = server.request(now, client, "/login?name=jane", status);
        let message = transaction.matches().first().map(|found| found.message.clone());
        (block, message.map(|text| String::from_utf8_lossy(&text).into_owned()))
    };
    for (now, client) in [(0, "192.0.2.1"), (10, "192.0.2.2"), (20, "192.0.2.3")] {
        assert_eq!(login(now, client, 401), (None, None));
    }
    let locked = (Some(403), Some("jane: 3 failures".to_owned()));
    assert_eq!(login(59, "192.0.2.4", 200), locked);
    // One has faded; the next failure locks again, for the rest of the second minute.
    assert_eq!(login(60, "192.0.2.4", 401), (None, None));
    assert_eq!(login(119, "192.0.2.4", 200), locked);
    assert_eq!(login(120, "192.0.2.4", 200), (None, None));
    // The success has reset them.
    for now in 121..124 {
        assert_eq!(login(now, "192.0.2.4", 401), (None, None), "{now}");
    }
    assert_eq!(login(124, "192.0.2.4", 401), locked);
    assert_eq!(server.get(124, "192.0.2.4", "/login?name=john"), 200);
}

#[test]
fn sessions_have_facts_and_names() {
    let mut server = Server::new(
        r#"
SecWebAppId shop
SecCollectionTimeout 100
SecRule ARGS:sid "!@rx ^$" "id:1,phase:1,pass,nolog,setsid:%{MATCHED_VAR},setvar:session.hits=+1,setvar:session.Page-%{ARGS.page}=seen"
SecRule SESSION:IS_NEW "@eq 1" "id:2,phase:1,pass,nolog,setvar:tx.new=1"
SecAction "id:3,phase:1,pass,nolog,setvar:'tx.facts=%{WEBAPPID} %{SESSIONID} %{session.key} %{session.create_time} %{session.last_update_time} %{session.timeout} %{session.update_counter} %{session.update_rate} %{session.hits}'"
SecRule &SESSION "@ge 3" "id:4,phase:1,pass,nolog,setvar:tx.pages=1"
SecRule SESSION:/^page-/ "@streq seen" "id:5,phase:1,pass,nolog,setvar:tx.seen=+1"
SecRule SESSION "@rx ^[0-9]+$" "id:6,phase:1,pass,nolog,setvar:tx.numbers=+1"
SecRule &SESSION:update_rate "@eq 1" "id:7,phase:1,pass,nolog,setvar:tx.rate=1"
"#,
    );
    let mut facts = |now, target: &str| {
        let (_, transaction) = server.request(now, "192.0.2.1", target, 200);
        ["new", "facts", "pages", "seen", "numbers", "rate"].map(|name| tx(&transaction, name))
    };
    let of = |new: &str, text: &str, rest: [&str; 4]| {
        let [pages, seen, numbers, rate] = rest.map(str::to_owned);
        [new.to_owned(), text.to_owned(), pages, seen, numbers, rate]
    };
    assert_eq!(
        facts(1000, "/?sid=Ab&page=1"),
        of("1", "shop Ab Ab 1000  100 0 0 1", ["", "1", "1", "1"])
    );
    // One update in 30 seconds: 2 a minute.
    assert_eq!(
        facts(1030, "/?sid=Ab&page=2"),
        of("", "shop Ab Ab 1000 1000 100 1 2 2", ["1", "2", "1", "1"])
    );
    // Keys are compared with their case.
    assert_eq!(
        facts(1030, "/?sid=AB&page=2"),
        of("1", "shop AB AB 1030  100 0 0 1", ["", "1", "1", "1"])
    );
    assert_eq!(
        facts(1129, "/?sid=Ab&page=2"),
        of("", "shop Ab Ab 1000 1030 100 2 0 3", ["1", "2", "1", "1"])
    );
    assert_eq!(
        facts(1229, "/?sid=Ab&page=2"),
        of("1", "shop Ab Ab 1229  100 0 0 1", ["", "1", "1", "1"])
    );
    assert_eq!(facts(1229, "/"), of("", "shop        ", ["", "", "", ""]));
}

#[test]
fn other_rules_find_what_earlier_ones_have_written() {
    let count = "SecAction \"id:1,phase:1,pass,nolog,initcol:global=all,setvar:global.count=+1\"";
    let mut server = Server::new(count);
    server.get(0, "192.0.2.1", "/");
    // A reload, which other applications do not notice.
    let read = "SecRule GLOBAL:count \"@ge 2\" \"id:2,phase:1,deny,status:429\"";
    server.rules = load(&format!("SecWebAppId other\n{count}\n{read}"));
    assert_eq!(server.get(0, "192.0.2.1", "/"), 200);
    server.rules = load(&format!("{count}\n{read}"));
    assert_eq!(server.get(0, "192.0.2.1", "/"), 429);
    // A transaction that is used again keeps the collections, also with other rules.
    let mut transaction = Transaction::new(load(read));
    transaction.collections(&server.collections);
    for _ in 0..2 {
        transaction.reset_with(&server.rules);
        let mut worker = Worker::new();
        assert_eq!(run(&mut transaction, &mut worker, (0, "192.0.2.1"), ("/", 200)), Some(429));
        transaction.reset();
    }
}

#[test]
fn collections_of_one_transaction_end_with_it() {
    let rules = load(
        r#"
SecAction "id:1,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR},setvar:ip.count=+1,setvar:user.count=+1"
SecRule IP:count|USER:count "@gt 1" "id:2,phase:1,deny"
SecRule IP:IS_NEW "@eq 0" "id:3,phase:1,deny"
"#,
    );
    let user = "USER lasts for one transaction: no rule opens it with initcol";
    let notes: Vec<_> = rules.inert().iter().map(|found| found.message.as_str()).collect();
    assert_eq!(notes, [user]);
    let mut transaction = Transaction::new(rules);
    let mut worker = Worker::new();
    for now in 0..3 {
        transaction.reset();
        assert_eq!(run(&mut transaction, &mut worker, (now, "192.0.2.1"), ("/", 200)), None);
    }
}

#[test]
fn values_that_do_not_fit_are_counted() {
    let mut server = Server::new(
        r#"
SecAction "id:1,phase:1,pass,nolog,initcol:session=%{ARGS.key},setvar:session.a=%{ARGS.value}"
SecRule LIMITS_REACHED "@contains not kept" "id:2,phase:1,pass,log"
"#,
    );
    let mut limits = |target: &str| {
        let (block, transaction) = server.request(0, "192.0.2.1", target, 200);
        assert_eq!(block, None);
        let limits: LimitsReached = transaction.limits_reached();
        assert_eq!(transaction.matches().len(), usize::from(limits.collections > 0));
        limits.collections
    };
    assert_eq!(limits("/?key=a&value=b"), 0);
    assert_eq!(limits(&format!("/?key=a&value={}", "b".repeat(100_000))), 1);
    assert_eq!(limits(&format!("/?key={}&value=b", "a".repeat(2000))), 1);
}

#[test]
fn threads_share_what_they_count() {
    const THREADS: usize = 4;
    const REQUESTS: usize = 500;
    let rules = load(
        "SecAction \"id:1,phase:1,pass,nolog,initcol:ip=%{REMOTE_ADDR},setvar:ip.count=+1\"
         SecRule IP:count \"@gt 1000\" \"id:2,phase:1,deny,status:429\"",
    );
    let collections = Arc::new(Collections::new(CollectionLimits::default()));
    let blocked = || {
        let mut worker = Worker::new();
        let mut transaction = Transaction::new(Arc::clone(&rules));
        transaction.collections(&collections);
        let requests = (0..REQUESTS).filter(|_| {
            transaction.reset();
            run(&mut transaction, &mut worker, (0, "192.0.2.1"), ("/", 200)).is_some()
        });
        requests.count()
    };
    let blocked: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(blocked)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread of the test")).sum()
    });
    // Each request counted before it was compared, so at least as many as there are beyond the limit.
    assert!((THREADS * REQUESTS - 1000..THREADS * REQUESTS).contains(&blocked), "{blocked}");
    assert_eq!(collections.usage().entries, 1);
}

#[test]
fn collections_need_their_form() {
    let error = |action: &str| {
        let set = RuleSet::builder().text("t.conf", format!("SecAction \"id:1,{action}\"")).build();
        set.map(|_| ()).unwrap_err().to_string()
    };
    let form = "expected deprecatevar:COLLECTION.NAME=AMOUNT/SECONDS";
    for (action, message) in [
        ("initcol:tx=1", "t.conf:1:25: unknown collection \"tx\""),
        ("initcol:ip", "t.conf:1:25: expected initcol:COLLECTION=KEY"),
        ("expirevar:ip.a", "t.conf:1:27: expected expirevar:COLLECTION.NAME=SECONDS"),
        ("expirevar:ip.a=soon", "t.conf:1:27: expected expirevar:COLLECTION.NAME=SECONDS"),
        ("expirevar:args.a=1", "t.conf:1:27: \"args\" is not a collection that rules can write"),
        ("deprecatevar:ip.a=1", &format!("t.conf:1:30: {form}")),
        ("deprecatevar:ip.a=1/0", "t.conf:1:30: a period of 0 seconds never passes"),
        ("deprecatevar:ip.a=1/x", &format!("t.conf:1:30: {form}")),
    ] {
        assert_eq!(error(action), message);
    }
}
