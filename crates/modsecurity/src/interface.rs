//! The functions of libmodsecurity's C interface, by its headers (`include/modsecurity/`).
//!
//! A handle belongs to the caller from the function that returns it to the one that frees it. Parameters have types of Rust with
//! the form of C's pointers: `Option<&T>` and `Option<&mut T>` are a handle or null, `Option<Box<T>>` one that is passed on with its ownership,
//! [`Text`] and [`Octets`] are the caller's bytes. Their common contract is that of the headers: handles are null, or from this
//! library, and not freed; threads may share servers and rules for new transactions, and one at a time uses a transaction or changes
//! a handle; texts end with NUL; lengths are right.
//!
//! A panic never reaches the caller, since every function runs in [`guard`]: it is logged once on standard error, and the
//! transaction in which it happened then blocks or passes, as `TOLLGATE_WAF_ON_FAULT` says.

#![expect(
    unsafe_code,
    reason = "the C interface: pointers of the caller are read and written here, and nowhere else"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use tollgate_firewall::OnFault;

use crate::NAME_WITH_NUL as NAME;
use crate::inspection::{Decision, Inspection};
use crate::rules::{NO_REMOTE_RULES, RuleSources};
use crate::workers;

/// Writes a line of text into the server's log. The first argument is the one given with the transaction.
type LogCallback = unsafe extern "C" fn(*mut c_void, *const c_void);

/// Settings of a server process.
struct ModSecurity {
    log: Option<LogCallback>,
    connector: Arc<str>,
    on_fault: OnFault,
}

/// A request with its response.
struct Transaction {
    state: State,
    /// The caller's function for log lines, and its argument.
    log: Option<(LogCallback, *mut c_void)>,
    on_fault: OnFault,
}

enum State {
    Running(Box<Inspection>),
    /// A panic ended the inspection, and the caller does not know yet.
    Faulted,
    /// The caller knows.
    FaultReported,
}

/// Reaction of the server to a rule, filled in by [`msc_intervention`]. `url` and `log` are allocated with `malloc`, for the
/// caller to free.
#[repr(C)]
struct ModSecurityIntervention {
    /// Status of the response.
    status: c_int,
    /// Always 0.
    pause: c_int,
    /// Target of a redirect, or null.
    url: *mut c_char,
    /// Text for the server's log, or null.
    log: *mut c_char,
    /// 1 if the transaction is to end.
    disruptive: c_int,
}

/// A text of the caller that ends with NUL, or null.
#[repr(transparent)]
struct Text(*const c_char);

impl Text {
    fn bytes(&self) -> &[u8] {
        if self.0.is_null() {
            return b"";
        }
        // SAFETY: the caller's contract. The parameter lives as long as the call.
        unsafe { CStr::from_ptr(self.0) }.to_bytes()
    }
}

/// The first of some bytes of the caller, or null.
#[repr(transparent)]
struct Octets(*const c_uchar);

impl Octets {
    fn bytes(&self, length: usize) -> &[u8] {
        if self.0.is_null() || length == 0 {
            return b"";
        }
        // SAFETY: the caller's contract, by which the next parameter is the number of bytes. The parameter lives as long as the
        // call.
        unsafe { std::slice::from_raw_parts(self.0, length) }
    }
}

/// Place of the caller for an error text.
type ErrorSlot<'a> = Option<&'a mut MaybeUninit<*const c_char>>;

/// Runs a function of the interface; `None` if it panics.
fn guard<R>(call: impl FnOnce() -> R) -> Option<R> {
    tollgate_firewall::guard(|| {
        #[cfg(test)]
        tests::panic_if_planted();
        call()
    })
}

/// Returns a copy that the caller frees with `free`, cut at the first NUL; null without memory.
fn allocated(text: &[u8]) -> *mut c_char {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    // SAFETY: the new memory has room for the text and its NUL.
    unsafe {
        let copy = libc::malloc(end + 1).cast::<c_char>();
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), copy, end);
            *copy.add(end) = 0;
        }
        copy
    }
}

/// Frees a text from [`allocated`], and sets the caller's pointer to null.
fn free(text: &mut *mut c_char) {
    // SAFETY: the caller's contract, by which the text is one of this library, or null.
    unsafe { libc::free(std::mem::replace(text, null_mut()).cast()) };
}

// ---- the server

/// Returns a handle with the settings of a server process, to be freed by [`msc_cleanup`].
#[unsafe(no_mangle)]
extern "C" fn msc_init() -> Option<Box<ModSecurity>> {
    guard(|| {
        let on_fault = OnFault::from_environment();
        Box::new(ModSecurity { log: None, connector: "".into(), on_fault })
    })
}

/// Returns the name and version of the library.
#[unsafe(no_mangle)]
extern "C" fn msc_who_am_i(_server: Option<&ModSecurity>) -> *const c_char {
    guard(|| NAME.as_ptr().cast()).unwrap_or(null())
}

/// Sets the name of the connector for audit logs.
#[unsafe(no_mangle)]
extern "C" fn msc_set_connector_info(server: Option<&mut ModSecurity>, connector: Text) {
    guard(|| {
        if let Some(server) = server {
            server.connector = String::from_utf8_lossy(connector.bytes()).into();
        }
    });
}

/// Sets the function that gets the log lines of transactions.
#[unsafe(no_mangle)]
extern "C" fn msc_set_log_cb(server: Option<&mut ModSecurity>, log: Option<LogCallback>) {
    guard(|| {
        if let Some(server) = server {
            server.log = log;
        }
    });
}

/// Frees a handle.
#[unsafe(no_mangle)]
extern "C" fn msc_cleanup(server: Option<Box<ModSecurity>>) {
    guard(|| drop(server));
}

// ---- rules

/// Returns an empty set, to be freed by [`msc_rules_cleanup`].
#[unsafe(no_mangle)]
extern "C" fn msc_create_rules_set() -> Option<Box<RuleSources>> {
    guard(Box::default)
}

/// Returns the number of added rules, or -1 with an error text that the caller frees.
fn add(error: ErrorSlot<'_>, call: impl FnOnce() -> Result<usize, String>) -> c_int {
    let added = guard(call)
        .unwrap_or_else(|| Err("cannot add rules: bug in the firewall, see the log".to_owned()));
    match added {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(text) => {
            if let Some(slot) = error {
                slot.write(allocated(text.as_bytes()));
            }
            -1
        }
    }
}

fn given(rules: Option<&mut RuleSources>) -> Result<&mut RuleSources, String> {
    rules.ok_or_else(|| "cannot add rules: no rule set".to_owned())
}

/// Adds rules from a text.
#[unsafe(no_mangle)]
extern "C" fn msc_rules_add(
    rules: Option<&mut RuleSources>,
    text: Text,
    error: ErrorSlot<'_>,
) -> c_int {
    add(error, || given(rules)?.add_text(text.bytes()))
}

/// Adds rules from a file.
#[unsafe(no_mangle)]
extern "C" fn msc_rules_add_file(
    rules: Option<&mut RuleSources>,
    file: Text,
    error: ErrorSlot<'_>,
) -> c_int {
    add(error, || given(rules)?.add_file(file.bytes()))
}

/// Fails: rules are not loaded over the network.
#[unsafe(no_mangle)]
extern "C" fn msc_rules_add_remote(
    _rules: Option<&mut RuleSources>,
    _key: Text,
    _uri: Text,
    error: ErrorSlot<'_>,
) -> c_int {
    add(error, || Err(NO_REMOTE_RULES.to_owned()))
}

/// Adds the rules of `from`, the enclosing place in the configuration, behind those of `rules`, whose settings win. Returns the
/// number of rules, or -1 with an error text.
#[unsafe(no_mangle)]
extern "C" fn msc_rules_merge(
    rules: *mut RuleSources,
    from: *const RuleSources,
    error: ErrorSlot<'_>,
) -> c_int {
    add(error, || {
        // SAFETY: the caller's contract. `from` may be `rules`, so that it is copied before `rules` is borrowed.
        let around = unsafe { from.as_ref() }.cloned().unwrap_or_default();
        // SAFETY: the caller's contract.
        given(unsafe { rules.as_mut() })?.merge(&around)
    })
}

/// Does nothing; `tollgate waf check` prints rules.
#[unsafe(no_mangle)]
extern "C" fn msc_rules_dump(_rules: Option<&mut RuleSources>) {
    guard(|| ());
}

/// Frees an error text.
#[unsafe(no_mangle)]
extern "C" fn msc_rules_error_cleanup(mut error: *mut c_char) {
    guard(|| free(&mut error));
}

/// Frees a set. Transactions that use its rules keep them.
#[unsafe(no_mangle)]
extern "C" fn msc_rules_cleanup(rules: Option<Box<RuleSources>>) -> c_int {
    guard(|| drop(rules));
    1
}

// ---- transactions

impl Transaction {
    /// Runs a call on the inspection, and passes its log lines on; `None` if it panics or has panicked before.
    fn inspect<R>(&mut self, call: impl FnOnce(&mut Inspection) -> R) -> Option<R> {
        let result = guard(|| {
            let State::Running(inspection) = &mut self.state else { return None };
            let result = call(inspection);
            for line in inspection.take_lines() {
                let Some((callback, data)) = self.log else { break };
                let line = CString::new(line).unwrap_or_default();
                // SAFETY: the caller of `msc_set_log_cb` gave the function for this use, with the argument of the
                // transaction. It copies the text.
                unsafe { callback(data, line.as_ptr().cast()) };
            }
            Some(result)
        });
        if result.is_none() && matches!(self.state, State::Running(_)) {
            guard(|| {
                self.state = State::Faulted;
                workers::discard();
            });
        }
        result.flatten()
    }
}

/// Runs a call on a transaction. Returns 1 as libmodsecurity does, whatever happens, or 0 without a transaction.
fn with(transaction: Option<&mut Transaction>, call: impl FnOnce(&mut Inspection)) -> c_int {
    transaction.map_or(0, |transaction| {
        transaction.inspect(call);
        1
    })
}

/// Returns a transaction, to be freed by [`msc_transaction_cleanup`]; null without a server or rules.
#[unsafe(no_mangle)]
extern "C" fn msc_new_transaction(
    server: Option<&ModSecurity>,
    rules: Option<&RuleSources>,
    log_data: *mut c_void,
) -> Option<Box<Transaction>> {
    msc_new_transaction_with_id(server, rules, Text(null()), log_data)
}

/// Like [`msc_new_transaction`], with an identifier.
#[unsafe(no_mangle)]
extern "C" fn msc_new_transaction_with_id(
    server: Option<&ModSecurity>,
    rules: Option<&RuleSources>,
    id: Text,
    log_data: *mut c_void,
) -> Option<Box<Transaction>> {
    let (server, rules) = (server?, rules?);
    let inspection = guard(|| Box::new(Inspection::new(rules, id.bytes(), &server.connector)));
    Some(Box::new(Transaction {
        state: inspection.map_or(State::Faulted, State::Running),
        log: server.log.map(|callback| (callback, log_data)),
        on_fault: server.on_fault,
    }))
}

/// Frees a transaction.
#[unsafe(no_mangle)]
extern "C" fn msc_transaction_cleanup(transaction: Option<Box<Transaction>>) {
    guard(|| {
        if let Some(State::Running(inspection)) = transaction.map(|transaction| transaction.state) {
            inspection.recycle();
        }
    });
}

/// Sets the addresses of the connection.
#[unsafe(no_mangle)]
extern "C" fn msc_process_connection(
    transaction: Option<&mut Transaction>,
    client: Text,
    client_port: c_int,
    server: Text,
    server_port: c_int,
) -> c_int {
    with(transaction, |inspection| {
        inspection.connection((client.bytes(), client_port), (server.bytes(), server_port));
    })
}

/// Sets the request line. The version is without `HTTP/`.
#[unsafe(no_mangle)]
extern "C" fn msc_process_uri(
    transaction: Option<&mut Transaction>,
    uri: Text,
    method: Text,
    version: Text,
) -> c_int {
    with(transaction, |inspection| {
        inspection.request_line(method.bytes(), uri.bytes(), version.bytes());
    })
}

/// Sets the name of the host in log lines, in place of the server's address.
#[unsafe(no_mangle)]
extern "C" fn msc_set_request_hostname(transaction: Option<&mut Transaction>, name: Text) -> c_int {
    with(transaction, |inspection| inspection.hostname(name.bytes()))
}

/// Adds a request header.
#[unsafe(no_mangle)]
extern "C" fn msc_add_request_header(
    transaction: Option<&mut Transaction>,
    name: Text,
    value: Text,
) -> c_int {
    with(transaction, |inspection| inspection.request_header(name.bytes(), value.bytes()))
}

/// Adds a request header.
#[unsafe(no_mangle)]
extern "C" fn msc_add_n_request_header(
    transaction: Option<&mut Transaction>,
    name: Octets,
    name_length: usize,
    value: Octets,
    value_length: usize,
) -> c_int {
    with(transaction, |inspection| {
        inspection.request_header(name.bytes(name_length), value.bytes(value_length));
    })
}

/// Runs the rules of phase 1.
#[unsafe(no_mangle)]
extern "C" fn msc_process_request_headers(transaction: Option<&mut Transaction>) -> c_int {
    with(transaction, Inspection::process_request_headers)
}

/// Adds a part of the request body.
#[unsafe(no_mangle)]
extern "C" fn msc_append_request_body(
    transaction: Option<&mut Transaction>,
    body: Octets,
    length: usize,
) -> c_int {
    with(transaction, |inspection| inspection.append_request_body(body.bytes(length)))
}

/// Adds the request body from a file. Returns 0 if it cannot be read; the transaction is then blocked, since its body would pass
/// without inspection.
#[unsafe(no_mangle)]
extern "C" fn msc_request_body_from_file(
    transaction: Option<&mut Transaction>,
    path: Text,
) -> c_int {
    let read = |inspection: &mut Inspection| inspection.request_body_from_file(path.bytes());
    let is_read = transaction.and_then(|transaction| transaction.inspect(read));
    c_int::from(is_read == Some(true))
}

/// Runs the rules of phase 2.
#[unsafe(no_mangle)]
extern "C" fn msc_process_request_body(transaction: Option<&mut Transaction>) -> c_int {
    with(transaction, Inspection::process_request_body)
}

/// Returns the number of bytes of the request body that are inspected.
#[unsafe(no_mangle)]
extern "C" fn msc_get_request_body_length(transaction: Option<&mut Transaction>) -> usize {
    let length = |inspection: &mut Inspection| inspection.request_body().len();
    transaction.and_then(|transaction| transaction.inspect(length)).unwrap_or(0)
}

/// Adds a response header.
#[unsafe(no_mangle)]
extern "C" fn msc_add_response_header(
    transaction: Option<&mut Transaction>,
    name: Text,
    value: Text,
) -> c_int {
    with(transaction, |inspection| inspection.response_header(name.bytes(), value.bytes()))
}

/// Adds a response header.
#[unsafe(no_mangle)]
extern "C" fn msc_add_n_response_header(
    transaction: Option<&mut Transaction>,
    name: Octets,
    name_length: usize,
    value: Octets,
    value_length: usize,
) -> c_int {
    with(transaction, |inspection| {
        inspection.response_header(name.bytes(name_length), value.bytes(value_length));
    })
}

/// Runs the rules of phase 3. The protocol is as in the status line.
#[unsafe(no_mangle)]
extern "C" fn msc_process_response_headers(
    transaction: Option<&mut Transaction>,
    status: c_int,
    protocol: Text,
) -> c_int {
    with(transaction, |inspection| inspection.process_response_headers(status, protocol.bytes()))
}

/// Adds a part of the response body.
#[unsafe(no_mangle)]
extern "C" fn msc_append_response_body(
    transaction: Option<&mut Transaction>,
    body: Octets,
    length: usize,
) -> c_int {
    with(transaction, |inspection| inspection.append_response_body(body.bytes(length)))
}

/// Runs the rules of phase 4.
#[unsafe(no_mangle)]
extern "C" fn msc_process_response_body(transaction: Option<&mut Transaction>) -> c_int {
    with(transaction, Inspection::process_response_body)
}

/// Returns the response body that is inspected, followed by NUL. It is valid until the next call for the transaction.
#[unsafe(no_mangle)]
extern "C" fn msc_get_response_body(transaction: Option<&mut Transaction>) -> *const c_char {
    let text = |inspection: &mut Inspection| inspection.response_body_text().as_ptr();
    transaction.and_then(|transaction| transaction.inspect(text)).map_or(null(), <*const u8>::cast)
}

/// Returns the number of bytes of the response body that are inspected.
#[unsafe(no_mangle)]
extern "C" fn msc_get_response_body_length(transaction: Option<&mut Transaction>) -> usize {
    let length = |inspection: &mut Inspection| inspection.response_body().len();
    transaction.and_then(|transaction| transaction.inspect(length)).unwrap_or(0)
}

/// Sets the status that the server sends in place of the one of [`msc_process_response_headers`].
#[unsafe(no_mangle)]
extern "C" fn msc_update_status_code(
    transaction: Option<&mut Transaction>,
    status: c_int,
) -> c_int {
    with(transaction, |inspection| inspection.update_status(status))
}

/// Runs the rules of phase 5.
#[unsafe(no_mangle)]
extern "C" fn msc_process_logging(transaction: Option<&mut Transaction>) -> c_int {
    with(transaction, Inspection::process_logging)
}

/// Returns 1 and fills in the intervention if the transaction is to end, once for each decision. Otherwise returns 0 and leaves
/// it alone.
#[unsafe(no_mangle)]
extern "C" fn msc_intervention(
    transaction: Option<&mut Transaction>,
    intervention: Option<&mut MaybeUninit<ModSecurityIntervention>>,
) -> c_int {
    let (Some(transaction), Some(intervention)) = (transaction, intervention) else { return 0 };
    let mut decision = transaction.inspect(Inspection::take_verdict).flatten();
    let is_ended = guard(|| {
        if matches!(transaction.state, State::Faulted) {
            transaction.state = State::FaultReported;
            decision = Decision::of_fault(transaction.on_fault);
        }
        let Some(Decision { status, url, log }) = decision else { return false };
        intervention.write(ModSecurityIntervention {
            status: c_int::from(status),
            pause: 0,
            url: url.map_or(null_mut(), |url| allocated(url.as_bytes())),
            log: allocated(log.as_bytes()),
            disruptive: 1,
        });
        true
    });
    c_int::from(is_ended == Some(true))
}

/// Frees the texts of an intervention.
#[unsafe(no_mangle)]
extern "C" fn msc_intervention_cleanup(intervention: Option<&mut ModSecurityIntervention>) {
    guard(|| {
        if let Some(intervention) = intervention {
            free(&mut intervention.url);
            free(&mut intervention.log);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    thread_local! {
        static IS_PLANTED: Cell<bool> = const { Cell::new(false) };
    }

    /// Panics in place of the next guarded call.
    pub(super) fn panic_if_planted() {
        assert!(!IS_PLANTED.replace(false), "planted");
    }

    fn server(on_fault: OnFault) -> ModSecurity {
        ModSecurity { log: None, connector: "".into(), on_fault }
    }

    fn transaction(on_fault: OnFault) -> Box<Transaction> {
        let (server, rules) = (server(on_fault), RuleSources::default());
        msc_new_transaction(Some(&server), Some(&rules), null_mut()).expect("a transaction")
    }

    fn intervention(transaction: &mut Transaction) -> (c_int, c_int) {
        let (url, log) = (null_mut(), null_mut());
        let unset = ModSecurityIntervention { status: 200, pause: 0, url, log, disruptive: 0 };
        let mut found = MaybeUninit::new(unset);
        let answer = msc_intervention(Some(transaction), Some(&mut found));
        // SAFETY: initialised above.
        let mut found = unsafe { found.assume_init() };
        msc_intervention_cleanup(Some(&mut found));
        (answer, found.status)
    }

    #[test]
    fn panic_ends_the_transaction_as_configured() {
        for (on_fault, expected) in [(OnFault::Deny, (1, 500)), (OnFault::Pass, (0, 200))] {
            let mut transaction = transaction(on_fault);
            assert_eq!(intervention(&mut transaction), (0, 200));
            assert_eq!(transaction.inspect(|_| panic!("planted")), None::<()>);
            assert_eq!(intervention(&mut transaction), expected);
            // Once.
            assert_eq!(intervention(&mut transaction), (0, 200));
            assert_eq!(transaction.inspect(|_| ()), None);
        }
    }

    #[test]
    fn panic_in_any_function_stays_inside() {
        type OnTransaction = fn(&mut Transaction) -> c_int;
        type Call = fn(&mut Transaction, &mut ModSecurity, &mut RuleSources);
        const A: fn() -> Text = || Text(c"a".as_ptr());
        const B: fn() -> Octets = || Octets(c"b".as_ptr().cast());
        fn freed(error: impl FnOnce(ErrorSlot<'_>) -> c_int) {
            let mut text = MaybeUninit::uninit();
            assert_eq!(error(Some(&mut text)), -1);
            // SAFETY: written with the error.
            free(&mut unsafe { text.assume_init() }.cast_mut());
        }
        let on_transactions: &[(&str, c_int, OnTransaction)] = &[
            ("msc_process_connection", 1, |t| msc_process_connection(Some(t), A(), 1, A(), 2)),
            ("msc_process_uri", 1, |t| msc_process_uri(Some(t), A(), A(), A())),
            ("msc_set_request_hostname", 1, |t| msc_set_request_hostname(Some(t), A())),
            ("msc_add_request_header", 1, |t| msc_add_request_header(Some(t), A(), A())),
            ("msc_add_n_request_header", 1, |t| msc_add_n_request_header(Some(t), B(), 1, B(), 1)),
            ("msc_process_request_headers", 1, |t| msc_process_request_headers(Some(t))),
            ("msc_append_request_body", 1, |t| msc_append_request_body(Some(t), B(), 1)),
            ("msc_request_body_from_file", 0, |t| msc_request_body_from_file(Some(t), A())),
            ("msc_process_request_body", 1, |t| msc_process_request_body(Some(t))),
            ("msc_get_request_body_length", 0, |t| msc_get_request_body_length(Some(t)) as c_int),
            ("msc_add_response_header", 1, |t| msc_add_response_header(Some(t), A(), A())),
            ("msc_add_n_response_header", 1, |t| {
                msc_add_n_response_header(Some(t), B(), 1, B(), 1)
            }),
            ("msc_process_response_headers", 1, |t| {
                msc_process_response_headers(Some(t), 200, A())
            }),
            ("msc_append_response_body", 1, |t| msc_append_response_body(Some(t), B(), 1)),
            ("msc_process_response_body", 1, |t| msc_process_response_body(Some(t))),
            ("msc_get_response_body", 1, |t| c_int::from(msc_get_response_body(Some(t)).is_null())),
            ("msc_get_response_body_length", 0, |t| msc_get_response_body_length(Some(t)) as c_int),
            ("msc_update_status_code", 1, |t| msc_update_status_code(Some(t), 404)),
            ("msc_process_logging", 1, |t| msc_process_logging(Some(t))),
        ];
        let others: &[(&str, Call)] = &[
            ("msc_init", |_, _, _| assert!(msc_init().is_none())),
            ("msc_who_am_i", |_, s, _| assert!(msc_who_am_i(Some(s)).is_null())),
            ("msc_set_connector_info", |_, s, _| msc_set_connector_info(Some(s), A())),
            ("msc_set_log_cb", |_, s, _| msc_set_log_cb(Some(s), None)),
            ("msc_cleanup", |_, _, _| msc_cleanup(Some(Box::new(server(OnFault::Deny))))),
            ("msc_create_rules_set", |_, _, _| assert!(msc_create_rules_set().is_none())),
            ("msc_rules_add", |_, _, r| freed(|error| msc_rules_add(Some(r), A(), error))),
            ("msc_rules_add_file", |_, _, r| {
                freed(|error| msc_rules_add_file(Some(r), A(), error));
            }),
            ("msc_rules_add_remote", |_, _, r| {
                freed(|error| msc_rules_add_remote(Some(r), A(), A(), error));
            }),
            ("msc_rules_merge", |_, _, r| freed(|error| msc_rules_merge(r, r, error))),
            ("msc_rules_dump", |_, _, r| msc_rules_dump(Some(r))),
            ("msc_rules_error_cleanup", |_, _, _| msc_rules_error_cleanup(null_mut())),
            ("msc_rules_cleanup", |_, _, _| assert_eq!(msc_rules_cleanup(Some(Box::default())), 1)),
            ("msc_new_transaction", |_, s, r| {
                let transaction = msc_new_transaction(Some(s), Some(r), null_mut());
                assert_eq!(intervention(&mut transaction.expect("one that blocks")), (1, 500));
            }),
            ("msc_new_transaction_with_id", |_, s, r| {
                let transaction = msc_new_transaction_with_id(Some(s), Some(r), A(), null_mut());
                assert_eq!(intervention(&mut transaction.expect("one that blocks")), (1, 500));
            }),
            ("msc_transaction_cleanup", |_, _, _| {
                IS_PLANTED.set(false);
                let transaction = transaction(OnFault::Deny);
                IS_PLANTED.set(true);
                msc_transaction_cleanup(Some(transaction));
            }),
            ("msc_intervention", |t, _, _| assert_eq!(intervention(t), (1, 500))),
            ("msc_intervention_cleanup", |_, _, _| {
                let (url, log) = (null_mut(), null_mut());
                msc_intervention_cleanup(Some(&mut ModSecurityIntervention {
                    status: 0,
                    pause: 0,
                    url,
                    log,
                    disruptive: 0,
                }));
            }),
        ];
        let mut names = BTreeSet::new();
        let mut run = |name, call: &dyn Fn(&mut Transaction), verdict| {
            let mut transaction = transaction(OnFault::Deny);
            IS_PLANTED.set(true);
            call(&mut transaction);
            assert!(!IS_PLANTED.get(), "{name} runs outside the guard");
            assert_eq!(intervention(&mut transaction), verdict, "{name}");
            names.insert(name);
        };
        for (name, answer, call) in on_transactions {
            run(*name, &|transaction| assert_eq!(call(transaction), *answer, "{name}"), (1, 500));
        }
        for (name, call) in others {
            let call = |transaction: &mut Transaction| {
                call(transaction, &mut server(OnFault::Deny), &mut RuleSources::default());
            };
            run(*name, &call, (0, 200));
        }
        let headers = [
            include_str!("../include/modsecurity/modsecurity.h"),
            include_str!("../include/modsecurity/rules_set.h"),
            include_str!("../include/modsecurity/transaction.h"),
        ];
        let declared =
            headers.iter().flat_map(|text| text.match_indices("msc_").map(|(at, _)| &text[at..]));
        let declared = declared
            .filter_map(|rest| rest.split_once('('))
            .filter(|(_, rest)| !rest.starts_with(')'));
        assert_eq!(names, declared.map(|(name, _)| name).collect());
    }

    #[test]
    fn rules_that_cannot_be_loaded_end_each_transaction() {
        let (server, mut rules) = (server(OnFault::Deny), RuleSources::default());
        // Found when the set is complete, which only a merge or a transaction shows.
        for _ in 0..2 {
            assert_eq!(rules.add_text(b"SecAction \"id:1,phase:1,pass\""), Ok(1));
        }
        let transaction = msc_new_transaction(Some(&server), Some(&rules), null_mut());
        assert_eq!(intervention(&mut transaction.expect("one that blocks")), (1, 500));
    }

    #[test]
    fn texts_for_the_caller_end_at_their_first_zero_byte() {
        for (text, expected) in [(&b"a\0b"[..], c"a"), (b"", c""), (b"ab", c"ab")] {
            let mut copy = allocated(text);
            assert_eq!(Text(copy).bytes(), expected.to_bytes());
            free(&mut copy);
            assert!(copy.is_null());
        }
    }
}
