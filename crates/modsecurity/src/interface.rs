//! The functions of libmodsecurity's C interface, by its headers (`include/modsecurity/`).
//!
//! Handles are pointers to boxes that the caller owns from `msc_init`, `msc_create_rules_set` and `msc_new_transaction` to the
//! function that frees them. A null handle is accepted everywhere. A panic never reaches the caller: it is logged once on
//! standard error, and the transaction in which it happened then blocks or passes, as `TOLLGATE_WAF_ON_FAULT` says.

#![expect(
    unsafe_code,
    reason = "the C interface: pointers of the caller are read and written here, and nowhere else"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use crate::NAME_WITH_NUL as NAME;
use crate::inspection::{Decision, Inspection, OnFault};
use crate::rules::RuleSources;
use crate::workers;

/// Writes a line of text into the server's log. The first argument is the one given with the transaction.
pub type LogCallback = unsafe extern "C" fn(*mut c_void, *const c_void);

/// Settings of a server process.
#[derive(Debug)]
pub struct ModSecurity {
    log: Option<LogCallback>,
    connector: Arc<str>,
    on_fault: OnFault,
}

/// Rules of one place in the server's configuration.
#[derive(Debug, Default)]
pub struct RulesSet {
    sources: RuleSources,
}

/// A request with its response.
#[derive(Debug)]
pub struct Transaction {
    state: State,
    log: Option<LogSink>,
    on_fault: OnFault,
}

#[derive(Debug)]
enum State {
    Running(Box<Inspection>),
    /// A panic ended the inspection, and the caller does not know yet.
    Faulted,
    /// The caller knows.
    FaultReported,
}

/// The caller's function for log lines, and its argument.
#[derive(Clone, Copy, Debug)]
struct LogSink {
    callback: LogCallback,
    data: *mut c_void,
}

impl Transaction {
    /// Runs a call on the inspection and writes the log lines that it made. After a panic nothing is inspected any more.
    fn run<R>(&mut self, call: impl FnOnce(&mut Inspection) -> R) -> Option<R> {
        let State::Running(inspection) = &mut self.state else { return None };
        let (result, lines) = guard(None, || {
            let result = call(inspection);
            Some((result, inspection.take_lines()))
        })
        .map_or((None, Vec::new()), |(result, lines)| (Some(result), lines));
        if result.is_none() {
            self.state = State::Faulted;
            workers::discard();
        }
        if let Some(LogSink { callback, data }) = self.log {
            for line in lines {
                let line = CString::new(line).unwrap_or_default();
                // SAFETY: the caller of `msc_set_log_cb` gave the function for this use, with the argument of the
                // transaction. It copies the text.
                unsafe { callback(data, line.as_ptr().cast()) };
            }
        }
        result
    }
}

/// Reaction of the server to a rule, filled in by [`msc_intervention`]. `url` and `log` are allocated with `malloc`, for the
/// caller to free.
#[repr(C)]
#[derive(Debug)]
pub struct ModSecurityIntervention {
    /// Status of the response.
    pub status: c_int,
    /// Always 0.
    pub pause: c_int,
    /// Target of a redirect, or null.
    pub url: *mut c_char,
    /// Text for the server's log, or null.
    pub log: *mut c_char,
    /// 1 if the transaction is to end.
    pub disruptive: c_int,
}

// ---- pointers of the caller

/// Runs a call of the caller, and returns `fallback` if it panics.
fn guard<R>(fallback: R, call: impl FnOnce() -> R) -> R {
    static REPORT: Once = Once::new();
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_panic| {
        REPORT.call_once(|| {
            eprintln!("tollgate: bug in the firewall, see above; the transaction ends; further bugs are not logged");
        });
        fallback
    })
}

/// # Safety
///
/// `text` is null or a string that ends with NUL.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// # Safety
///
/// `data` is null or points to `length` bytes.
unsafe fn slice<'a>(data: *const c_uchar, length: usize) -> &'a [u8] {
    if data.is_null() || length == 0 {
        return b"";
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(data, length) }
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

/// Stores an error text, unless the caller wants none. Returns -1.
///
/// # Safety
///
/// `error` is null or points to a pointer.
unsafe fn fail(error: *mut *const c_char, text: &str) -> c_int {
    if !error.is_null() {
        // SAFETY: the caller's contract.
        unsafe { *error = allocated(text.as_bytes()) };
    }
    -1
}

/// Runs a call on a transaction and returns 1, as libmodsecurity does whatever happens. After a panic the transaction is not
/// inspected any further.
///
/// # Safety
///
/// `transaction` is null or from [`msc_new_transaction`], not freed, and used by this thread only.
unsafe fn with(transaction: *mut Transaction, call: impl FnOnce(&mut Inspection)) -> c_int {
    // SAFETY: the caller's contract.
    let Some(transaction) = (unsafe { transaction.as_mut() }) else { return 0 };
    transaction.run(call);
    1
}

// ---- the server

/// Returns a handle with the settings of a server process, to be freed by [`msc_cleanup`].
#[unsafe(no_mangle)]
pub extern "C" fn msc_init() -> *mut ModSecurity {
    guard(std::ptr::null_mut(), || {
        let on_fault = OnFault::from_environment();
        Box::into_raw(Box::new(ModSecurity { log: None, connector: "".into(), on_fault }))
    })
}

/// Returns the name and version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn msc_who_am_i(_server: *mut ModSecurity) -> *const c_char {
    NAME.as_ptr().cast()
}

/// Sets the name of the connector for audit logs.
///
/// # Safety
///
/// `server` is null or from [`msc_init`] and not freed; `connector` is null or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_set_connector_info(
    server: *mut ModSecurity,
    connector: *const c_char,
) {
    // SAFETY: the caller's contract.
    if let Some(server) = unsafe { server.as_mut() } {
        // SAFETY: the caller's contract.
        server.connector = String::from_utf8_lossy(unsafe { bytes(connector) }).into();
    }
}

/// Sets the function that gets the log lines of transactions.
///
/// # Safety
///
/// `server` is null or from [`msc_init`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_set_log_cb(server: *mut ModSecurity, log: Option<LogCallback>) {
    // SAFETY: the caller's contract.
    if let Some(server) = unsafe { server.as_mut() } {
        server.log = log;
    }
}

/// Frees a handle.
///
/// # Safety
///
/// `server` is null or from [`msc_init`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_cleanup(server: *mut ModSecurity) {
    if !server.is_null() {
        // SAFETY: the caller's contract.
        drop(unsafe { Box::from_raw(server) });
    }
}

// ---- rules

/// Returns an empty set, to be freed by [`msc_rules_cleanup`].
#[unsafe(no_mangle)]
pub extern "C" fn msc_create_rules_set() -> *mut RulesSet {
    guard(std::ptr::null_mut(), || Box::into_raw(Box::default()))
}

/// Adds to a set, and returns the number of added rules, or -1 with an error text that the caller frees.
///
/// # Safety
///
/// As of [`msc_rules_add`].
unsafe fn add(
    rules: *mut RulesSet,
    error: *mut *const c_char,
    source: impl FnOnce(&mut RuleSources) -> Result<usize, String>,
) -> c_int {
    // SAFETY: the caller's contract.
    let Some(rules) = (unsafe { rules.as_mut() }) else {
        // SAFETY: the caller's contract.
        return unsafe { fail(error, "cannot add rules: no rule set") };
    };
    let added = guard(Err("cannot add rules: bug in the firewall, see the log".to_owned()), || {
        source(&mut rules.sources)
    });
    match added {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        // SAFETY: the caller's contract.
        Err(text) => unsafe { fail(error, &text) },
    }
}

/// Adds rules from a text.
///
/// # Safety
///
/// `rules` is null or from [`msc_create_rules_set`] and not freed; `text` is null or ends with NUL; `error` is null or points to
/// a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_rules_add(
    rules: *mut RulesSet,
    text: *const c_char,
    error: *mut *const c_char,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { add(rules, error, |sources| sources.add_text(bytes(text))) }
}

/// Adds rules from a file.
///
/// # Safety
///
/// As of [`msc_rules_add`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_rules_add_file(
    rules: *mut RulesSet,
    file: *const c_char,
    error: *mut *const c_char,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { add(rules, error, |sources| sources.add_file(bytes(file))) }
}

/// Fails: rules are not loaded over the network.
///
/// # Safety
///
/// As of [`msc_rules_add`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_rules_add_remote(
    _rules: *mut RulesSet,
    _key: *const c_char,
    _uri: *const c_char,
    error: *mut *const c_char,
) -> c_int {
    let text = "cannot load rules over the network; download them and use modsecurity_rules_file";
    // SAFETY: the caller's contract.
    unsafe { fail(error, text) }
}

/// Adds the rules of `from`, the enclosing place in the configuration, behind those of `rules`, whose settings win. Returns the
/// number of rules, or -1 with an error text.
///
/// # Safety
///
/// `rules` and `from` are null or from [`msc_create_rules_set`] and not freed; `error` is null or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_rules_merge(
    rules: *mut RulesSet,
    from: *mut RulesSet,
    error: *mut *const c_char,
) -> c_int {
    // SAFETY: the caller's contract. `from` may be `rules`, so it is copied before `rules` is borrowed.
    let parent = unsafe { from.as_ref() }.map(|from| from.sources.clone()).unwrap_or_default();
    // SAFETY: the caller's contract.
    unsafe { add(rules, error, |sources| sources.merge(&parent)) }
}

/// Does nothing; `tollgate waf check` prints rules.
#[unsafe(no_mangle)]
pub extern "C" fn msc_rules_dump(_rules: *mut RulesSet) {}

/// Frees an error text.
///
/// # Safety
///
/// `error` is null or points to a text from this library that is not freed, or to null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_rules_error_cleanup(error: *mut *const c_char) {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(error) = error.as_mut() {
            libc::free(error.cast_mut().cast());
            *error = std::ptr::null();
        }
    }
}

/// Frees a set. Transactions that use its rules keep them.
///
/// # Safety
///
/// `rules` is null or from [`msc_create_rules_set`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_rules_cleanup(rules: *mut RulesSet) -> c_int {
    if !rules.is_null() {
        // SAFETY: the caller's contract.
        drop(unsafe { Box::from_raw(rules) });
    }
    1
}

// ---- transactions

/// Returns a transaction, to be freed by [`msc_transaction_cleanup`].
///
/// # Safety
///
/// `server` is null or from [`msc_init`]; `rules` is null or from [`msc_create_rules_set`]; neither is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_new_transaction(
    server: *mut ModSecurity,
    rules: *mut RulesSet,
    log_data: *mut c_void,
) -> *mut Transaction {
    // SAFETY: the caller's contract.
    unsafe { msc_new_transaction_with_id(server, rules, std::ptr::null_mut(), log_data) }
}

/// Like [`msc_new_transaction`], with an identifier.
///
/// # Safety
///
/// As of [`msc_new_transaction`]; `id` is null or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_new_transaction_with_id(
    server: *mut ModSecurity,
    rules: *mut RulesSet,
    id: *mut c_char,
    log_data: *mut c_void,
) -> *mut Transaction {
    // SAFETY: the caller's contract.
    let (server, rules, id) = unsafe { (server.as_ref(), rules.as_ref(), bytes(id)) };
    let (Some(server), Some(rules)) = (server, rules) else { return std::ptr::null_mut() };
    let inspection =
        guard(None, || Some(Box::new(Inspection::new(&rules.sources, id, &server.connector))));
    Box::into_raw(Box::new(Transaction {
        state: inspection.map_or(State::Faulted, State::Running),
        log: server.log.map(|callback| LogSink { callback, data: log_data }),
        on_fault: server.on_fault,
    }))
}

/// Frees a transaction.
///
/// # Safety
///
/// `transaction` is null or from [`msc_new_transaction`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_transaction_cleanup(transaction: *mut Transaction) {
    if !transaction.is_null() {
        // SAFETY: the caller's contract.
        let transaction = unsafe { Box::from_raw(transaction) };
        if let State::Running(inspection) = transaction.state {
            guard((), || inspection.recycle());
        }
    }
}

/// Sets the addresses of the connection.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; the texts are null or end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_process_connection(
    transaction: *mut Transaction,
    client: *const c_char,
    client_port: c_int,
    server: *const c_char,
    server_port: c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        with(transaction, |inspection| {
            inspection.connection((bytes(client), client_port), (bytes(server), server_port));
        })
    }
}

/// Sets the request line. The version is without `HTTP/`.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; the texts are null or end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_process_uri(
    transaction: *mut Transaction,
    uri: *const c_char,
    method: *const c_char,
    http_version: *const c_char,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        with(transaction, |inspection| {
            inspection.request_line(bytes(method), bytes(uri), bytes(http_version));
        })
    }
}

/// Sets the name of the host in log lines, in place of the server's address.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; `name` is null or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_set_request_hostname(
    transaction: *mut Transaction,
    name: *const c_uchar,
    length: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { with(transaction, |inspection| inspection.hostname(slice(name, length))) }
}

/// Adds a request header.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; the texts are null or end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_add_request_header(
    transaction: *mut Transaction,
    name: *const c_uchar,
    value: *const c_uchar,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        with(transaction, |inspection| {
            inspection.request_header(bytes(name.cast()), bytes(value.cast()));
        })
    }
}

/// Adds a request header.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; the pointers are null or point to that many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_add_n_request_header(
    transaction: *mut Transaction,
    name: *const c_uchar,
    name_length: usize,
    value: *const c_uchar,
    value_length: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        with(transaction, |inspection| {
            inspection.request_header(slice(name, name_length), slice(value, value_length));
        })
    }
}

/// Runs the rules of phase 1.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_process_request_headers(transaction: *mut Transaction) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { with(transaction, Inspection::process_request_headers) }
}

/// Adds a part of the request body.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; `body` is null or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_append_request_body(
    transaction: *mut Transaction,
    body: *const c_uchar,
    length: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { with(transaction, |inspection| inspection.append_request_body(slice(body, length))) }
}

/// Adds the request body from a file. Returns 0 if it cannot be read; the transaction is then blocked, since its body would pass
/// without inspection.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; `path` is null or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_request_body_from_file(
    transaction: *mut Transaction,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller's contract.
    let (transaction, path) = unsafe { (transaction.as_mut(), bytes(path)) };
    let is_read =
        transaction.and_then(|one| one.run(|inspection| inspection.request_body_from_file(path)));
    c_int::from(is_read == Some(true))
}

/// Runs the rules of phase 2.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_process_request_body(transaction: *mut Transaction) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { with(transaction, Inspection::process_request_body) }
}

/// Returns the number of bytes of the request body that are inspected.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_get_request_body_length(transaction: *mut Transaction) -> usize {
    // SAFETY: the caller's contract.
    let transaction = unsafe { transaction.as_mut() };
    transaction.and_then(|one| one.run(|inspection| inspection.request_body().len())).unwrap_or(0)
}

/// Adds a response header.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; the texts are null or end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_add_response_header(
    transaction: *mut Transaction,
    name: *const c_uchar,
    value: *const c_uchar,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        with(transaction, |inspection| {
            inspection.response_header(bytes(name.cast()), bytes(value.cast()));
        })
    }
}

/// Adds a response header.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; the pointers are null or point to that many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_add_n_response_header(
    transaction: *mut Transaction,
    name: *const c_uchar,
    name_length: usize,
    value: *const c_uchar,
    value_length: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        with(transaction, |inspection| {
            inspection.response_header(slice(name, name_length), slice(value, value_length));
        })
    }
}

/// Runs the rules of phase 3. The protocol is as in the status line.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; `protocol` is null or ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_process_response_headers(
    transaction: *mut Transaction,
    status: c_int,
    protocol: *const c_char,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        with(transaction, |inspection| {
            inspection.process_response_headers(status, bytes(protocol));
        })
    }
}

/// Adds a part of the response body.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; `body` is null or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_append_response_body(
    transaction: *mut Transaction,
    body: *const c_uchar,
    length: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { with(transaction, |inspection| inspection.append_response_body(slice(body, length))) }
}

/// Runs the rules of phase 4.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_process_response_body(transaction: *mut Transaction) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { with(transaction, Inspection::process_response_body) }
}

/// Returns the response body that is inspected, followed by NUL. It is valid until the next call for the transaction.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_get_response_body(transaction: *mut Transaction) -> *const c_char {
    // SAFETY: the caller's contract.
    let transaction = unsafe { transaction.as_mut() };
    let text =
        transaction.and_then(|one| one.run(|inspection| inspection.response_body_text().as_ptr()));
    text.map_or(std::ptr::null(), <*const u8>::cast)
}

/// Returns the number of bytes of the response body that are inspected.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_get_response_body_length(transaction: *mut Transaction) -> usize {
    // SAFETY: the caller's contract.
    let transaction = unsafe { transaction.as_mut() };
    transaction.and_then(|one| one.run(|inspection| inspection.response_body().len())).unwrap_or(0)
}

/// Sets the status that the server sends in place of the one of [`msc_process_response_headers`].
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_update_status_code(
    transaction: *mut Transaction,
    status: c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { with(transaction, |inspection| inspection.update_status(status)) }
}

/// Runs the rules of phase 5.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_process_logging(transaction: *mut Transaction) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { with(transaction, Inspection::process_logging) }
}

/// Returns 1 and fills in the intervention if the transaction is to end, once for each decision. Otherwise returns 0 and leaves
/// it alone.
///
/// # Safety
///
/// As of [`msc_transaction_cleanup`]; `intervention` is null or points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_intervention(
    transaction: *mut Transaction,
    intervention: *mut ModSecurityIntervention,
) -> c_int {
    // SAFETY: the caller's contract.
    let (Some(transaction), Some(intervention)) =
        (unsafe { transaction.as_mut() }, unsafe { intervention.as_mut() })
    else {
        return 0;
    };
    let mut verdict = transaction.run(Inspection::take_verdict).flatten();
    if matches!(transaction.state, State::Faulted) {
        transaction.state = State::FaultReported;
        verdict = transaction.on_fault.verdict();
    }
    let Some(Decision { status, url, log }) = verdict else { return 0 };
    intervention.status = c_int::from(status);
    intervention.pause = 0;
    intervention.url = url.map_or(std::ptr::null_mut(), |url| allocated(url.as_bytes()));
    intervention.log = allocated(log.as_bytes());
    intervention.disruptive = 1;
    1
}

/// Frees the texts of an intervention.
///
/// # Safety
///
/// `intervention` is null or points to one that [`msc_intervention`] filled in, or whose texts are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msc_intervention_cleanup(intervention: *mut ModSecurityIntervention) {
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(intervention) = intervention.as_mut() {
            libc::free(intervention.url.cast());
            libc::free(intervention.log.cast());
            intervention.url = std::ptr::null_mut();
            intervention.log = std::ptr::null_mut();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleSources;

    fn transaction(on_fault: OnFault) -> Transaction {
        let inspection = Inspection::new(&RuleSources::default(), b"", &"".into());
        Transaction { state: State::Running(Box::new(inspection)), log: None, on_fault }
    }

    fn intervention(transaction: &mut Transaction) -> (c_int, c_int) {
        let (url, log) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut found = ModSecurityIntervention { status: 200, pause: 0, url, log, disruptive: 0 };
        // SAFETY: both are valid, and the texts are freed once.
        let answer = unsafe { msc_intervention(transaction, &raw mut found) };
        unsafe { msc_intervention_cleanup(&raw mut found) };
        (answer, found.status)
    }

    #[test]
    fn panic_ends_the_transaction_as_configured() {
        for (on_fault, expected) in [(OnFault::Deny, (1, 500)), (OnFault::Pass, (0, 200))] {
            let mut transaction = transaction(on_fault);
            assert_eq!(intervention(&mut transaction), (0, 200));
            assert_eq!(transaction.run(|_| panic!("planted")), None::<()>);
            assert_eq!(intervention(&mut transaction), expected);
            // Once.
            assert_eq!(intervention(&mut transaction), (0, 200));
            assert_eq!(transaction.run(|_| ()), None);
        }
    }

    #[test]
    fn rules_that_cannot_be_loaded_end_each_transaction() {
        let mut rules = RulesSet::default();
        let mut server = ModSecurity { log: None, connector: "".into(), on_fault: OnFault::Deny };
        // Found when the set is complete, which only a merge or a transaction shows.
        for _ in 0..2 {
            assert_eq!(rules.sources.add_text(b"SecAction \"id:1,phase:1,pass\""), Ok(1));
        }
        // SAFETY: the handles are valid, and the transaction is freed once.
        unsafe {
            let transaction =
                msc_new_transaction(&raw mut server, &raw mut rules, std::ptr::null_mut());
            assert_eq!(intervention(&mut *transaction), (1, 500));
            msc_transaction_cleanup(transaction);
        }
    }

    #[test]
    fn texts_for_the_caller_end_at_their_first_zero_byte() {
        for (text, expected) in [(&b"a\0b"[..], c"a"), (b"", c""), (b"ab", c"ab")] {
            let copy = allocated(text);
            // SAFETY: `copy` is a text of this library, freed once.
            unsafe {
                assert_eq!(CStr::from_ptr(copy), expected);
                libc::free(copy.cast());
            }
        }
    }
}
