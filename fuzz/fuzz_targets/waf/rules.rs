//! WAF engine: any text is a rule set or an error with its place, and a rule set runs any request.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tollgate_waf::{LoadError, RuleSet, Transaction, Worker};
use tollgate_waf_tools::replay::{self, Request};

fuzz_target!(|input: &[u8]| {
    // Rules of naxsi name no files.
    let is_naxsi = input.starts_with(b"# naxsi");
    let name = if is_naxsi { "fuzz.rules" } else { "rules.conf" };
    // Files are not read: a name could be that of a device.
    let lower = input.to_ascii_lowercase();
    let names_a_file = ["file", "include", "@pmf", "matchf"]
        .iter()
        .any(|word| lower.windows(word.len()).any(|window| window == word.as_bytes()));
    if names_a_file && !is_naxsi {
        return;
    }
    let lines = 1 + input.iter().filter(|&&byte| byte == b'\n').count();
    match RuleSet::builder().text(name, input).skip_unsupported(true).build() {
        Ok(rules) => run(Arc::new(rules)),
        Err(LoadError::Read { path, .. }) => panic!("reads {}", path.display()),
        Err(error) => {
            let place = error.place().expect("an error without its place");
            assert!(place.line as usize <= lines, "{error}");
        }
    }
});

fn run(rules: Arc<RuleSet>) {
    let request = Request {
        method: b"POST".to_vec(),
        target: b"/a/b?x=1&y=%27".to_vec(),
        protocol: b"HTTP/1.1".to_vec(),
        headers: vec![
            (b"Host".to_vec(), b"a".to_vec()),
            (b"Cookie".to_vec(), b"c=d".to_vec()),
            (b"Content-Type".to_vec(), b"application/x-www-form-urlencoded".to_vec()),
        ],
        body: b"z=<b>&w=\\x41".to_vec(),
    };
    let outcome = |mut worker: Worker| {
        let mut transaction = Transaction::new(Arc::clone(&rules));
        transaction.record_silent(true);
        replay::run(&mut transaction, &mut worker, &request, &replay::Response::default());
        (transaction.matches().to_vec(), transaction.tx_all(), transaction.intervention().cloned())
    };
    assert_eq!(outcome(Worker::plain()), outcome(Worker::new()), "without and with gates");
}
