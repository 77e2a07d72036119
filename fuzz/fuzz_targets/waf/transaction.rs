//! WAF engine: with and without gates, a request of any bytes and its response match the same rules of the Core Rule Set with
//! the same values, logs and scores.
//!
//! Input: the bytes of a request, whose body is all that follows the head, up to a line that begins with `HTTP/1.1 `, if there is
//! one: with it the response begins. `WAF_RULES` names the folder of the rules.
//! `WAF_PLANT` names a lemma of `crates/waf/src/plan/PROOF.md` whose gates are broken, which this target must find.

#![no_main]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use libfuzzer_sys::fuzz_target;
use tollgate_waf::{Lemma, Match, RuleSet, Transaction, Worker};
use tollgate_waf_tools::replay::{self, Request, Response};

/// The paranoia level depends on the method, as the gates remember which rules a level has skipped.
const SETUP: &str = r#"
SecRuleEngine DetectionOnly
SecRequestBodyAccess On
SecResponseBodyAccess On
SecResponseBodyMimeType text/plain text/html application/json
SecRule REQUEST_HEADERS:Content-Type "^(?:application(?:/soap\+|/)|text/)xml" "id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML"
SecRule REQUEST_HEADERS:Content-Type "^application/json" "id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
SecAction "id:900000,phase:1,pass,nolog,setvar:tx.blocking_paranoia_level=4,setvar:tx.crs_validate_utf8_encoding=1"
SecRule REQUEST_METHOD "@streq HEAD" "id:900001,phase:1,pass,nolog,setvar:tx.blocking_paranoia_level=1"
"#;

struct State {
    rules: Arc<RuleSet>,
    gated: Worker,
    plain: Worker,
}

fn state() -> &'static Mutex<State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    STATE.get_or_init(|| {
        let folder = PathBuf::from(
            std::env::var_os("WAF_RULES")
                .expect("WAF_RULES must name the folder of the Core Rule Set's Go module"),
        );
        let mut rules = load(&folder.join("rules"));
        if let Ok(name) = std::env::var("WAF_PLANT") {
            let lemma = Lemma::ALL.into_iter().find(|lemma| lemma.name() == name);
            rules.plant(lemma.unwrap_or_else(|| panic!("unknown lemma \"{name}\"")));
        }
        Mutex::new(State { rules: Arc::new(rules), gated: Worker::new(), plain: Worker::plain() })
    })
}

fn load(folder: &Path) -> RuleSet {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("@owasp_crs"))
        .expect("cannot read the rules")
        .map(|entry| entry.expect("cannot read the folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .collect();
    files.sort();
    let setup =
        RuleSet::builder().text("setup.conf", SETUP).file(folder.join("@crs-setup.conf.example"));
    files
        .iter()
        .fold(setup, |builder, file| builder.file(file))
        .build()
        .expect("cannot load the rules")
}

fuzz_target!(|input: &[u8]| {
    let mut state = state().lock().expect("a run panicked");
    let State { rules, gated, plain } = &mut *state;
    let (request, response) = messages(input);
    let mut outcome = |worker| outcome(rules, worker, &request, response.as_ref());
    let (expected, found) = (outcome(plain), outcome(gated));
    for (expected, found) in expected.0.iter().zip(&found.0) {
        assert_eq!(expected, found, "without and with gates");
    }
    assert_eq!(expected, found, "without and with gates");
});

fn messages(input: &[u8]) -> (Request, Option<Response>) {
    const STATUS_LINE: &[u8] = b"\nHTTP/1.1 ";
    let start = input.windows(STATUS_LINE.len()).position(|window| window == STATUS_LINE);
    let (input, response) = input.split_at(start.map_or(input.len(), |start| start + 1));
    let head = input
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map_or(input.len(), |end| end + 4);
    let mut request = replay::parse_raw(&input[..head]);
    request.body = input[head..].to_vec();
    (request, start.map(|_| replay::parse_raw_response(response)))
}

type Outcome = (Vec<Match>, Vec<(Vec<u8>, Vec<u8>)>);

fn outcome(
    rules: &Arc<RuleSet>,
    worker: &mut Worker,
    request: &Request,
    response: Option<&Response>,
) -> Outcome {
    let mut transaction = Transaction::new(Arc::clone(rules));
    transaction.record_silent(true);
    match response {
        Some(response) => {
            replay::run(&mut transaction, worker, request, response);
        }
        None => {
            replay::run_request(&mut transaction, worker, request);
            transaction.process_logging(worker);
        }
    }
    (transaction.matches().to_vec(), transaction.tx_all())
}
