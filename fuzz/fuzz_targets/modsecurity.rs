//! libmodsecurity's C interface: calls in any order, with null pointers, any lengths and any bytes, do no harm, and every text
//! that the library returns can be freed. A run has several servers, sets and transactions, which are freed in any order.
//!
//! Input: a byte a call, each followed by the arguments that the call takes.

#![no_main]

use std::ffi::{CString, c_char, c_int, c_uchar, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use libfuzzer_sys::fuzz_target;
// For its symbols.
use modsecurity as _;

type Handle = *mut c_void;

#[repr(C)]
struct Intervention {
    status: c_int,
    pause: c_int,
    url: *mut c_char,
    log: *mut c_char,
    disruptive: c_int,
}

// As in crates/modsecurity/include.
unsafe extern "C" {
    fn msc_init() -> Handle;
    fn msc_who_am_i(server: Handle) -> *const c_char;
    fn msc_set_connector_info(server: Handle, connector: *const c_char);
    fn msc_set_log_cb(server: Handle, log: Option<unsafe extern "C" fn(Handle, *const c_void)>);
    fn msc_cleanup(server: Handle);
    fn msc_create_rules_set() -> Handle;
    fn msc_rules_add(rules: Handle, text: *const c_char, error: *mut *const c_char) -> c_int;
    fn msc_rules_add_file(rules: Handle, file: *const c_char, error: *mut *const c_char) -> c_int;
    fn msc_rules_add_remote(
        rules: Handle,
        key: *const c_char,
        uri: *const c_char,
        error: *mut *const c_char,
    ) -> c_int;
    fn msc_rules_merge(rules: Handle, from: Handle, error: *mut *const c_char) -> c_int;
    fn msc_rules_dump(rules: Handle);
    fn msc_rules_error_cleanup(error: *const c_char);
    fn msc_rules_cleanup(rules: Handle) -> c_int;
    fn msc_new_transaction(server: Handle, rules: Handle, data: Handle) -> Handle;
    fn msc_new_transaction_with_id(
        server: Handle,
        rules: Handle,
        id: *mut c_char,
        data: Handle,
    ) -> Handle;
    fn msc_transaction_cleanup(transaction: Handle);
    fn msc_process_connection(
        transaction: Handle,
        client: *const c_char,
        client_port: c_int,
        server: *const c_char,
        server_port: c_int,
    ) -> c_int;
    fn msc_process_uri(
        transaction: Handle,
        uri: *const c_char,
        method: *const c_char,
        version: *const c_char,
    ) -> c_int;
    fn msc_set_request_hostname(transaction: Handle, name: *const c_uchar) -> c_int;
    fn msc_add_request_header(
        transaction: Handle,
        name: *const c_uchar,
        value: *const c_uchar,
    ) -> c_int;
    fn msc_add_n_request_header(
        transaction: Handle,
        name: *const c_uchar,
        name_length: usize,
        value: *const c_uchar,
        value_length: usize,
    ) -> c_int;
    fn msc_process_request_headers(transaction: Handle) -> c_int;
    fn msc_append_request_body(transaction: Handle, body: *const c_uchar, length: usize) -> c_int;
    fn msc_request_body_from_file(transaction: Handle, path: *const c_char) -> c_int;
    fn msc_process_request_body(transaction: Handle) -> c_int;
    fn msc_get_request_body_length(transaction: Handle) -> usize;
    fn msc_add_response_header(
        transaction: Handle,
        name: *const c_uchar,
        value: *const c_uchar,
    ) -> c_int;
    fn msc_add_n_response_header(
        transaction: Handle,
        name: *const c_uchar,
        name_length: usize,
        value: *const c_uchar,
        value_length: usize,
    ) -> c_int;
    fn msc_process_response_headers(
        transaction: Handle,
        status: c_int,
        protocol: *const c_char,
    ) -> c_int;
    fn msc_append_response_body(transaction: Handle, body: *const c_uchar, length: usize) -> c_int;
    fn msc_process_response_body(transaction: Handle) -> c_int;
    fn msc_get_response_body(transaction: Handle) -> *const c_char;
    fn msc_get_response_body_length(transaction: Handle) -> usize;
    fn msc_update_status_code(transaction: Handle, status: c_int) -> c_int;
    fn msc_process_logging(transaction: Handle) -> c_int;
    fn msc_intervention(transaction: Handle, intervention: *mut Intervention) -> c_int;
    fn msc_intervention_cleanup(intervention: *mut Intervention);
}

const RULES: &str = r#"
SecRuleEngine On
SecRequestBodyAccess On
SecResponseBodyAccess On
SecRequestBodyLimit 64
SecResponseBodyMimeType text/html
SecRule ARGS "@contains attack" "id:1,phase:1,deny,status:406,msg:'%{MATCHED_VAR}',logdata:'%{REQUEST_LINE}'"
SecRule ARGS "@rx ^(a+)b" "id:2,phase:2,capture,pass,log,tag:'%{TX.1}'"
SecRule REQUEST_HEADERS "@streq move" "id:3,phase:1,redirect:http://%{REQUEST_HEADERS.Host}/"
SecRule RESPONSE_BODY "@contains secret" "id:4,phase:4,deny,log"
"#;

/// Reads arguments from the input; zeros at its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn number(&mut self) -> i32 {
        i32::from(self.byte()) << 8 | i32::from(self.byte()) - 128
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// A text without NUL, or `None` for a null pointer.
    fn text(&mut self) -> Option<CString> {
        let bytes = self.bytes();
        (bytes.first() != Some(&0)).then(|| {
            let text: Vec<u8> = bytes.iter().copied().filter(|&byte| byte != 0).collect();
            CString::new(text).expect("NUL was removed")
        })
    }
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(null(), |text| text.as_ptr())
}

unsafe extern "C" fn on_log(data: Handle, text: *const c_void) {
    assert!(!data.is_null());
    let text = unsafe { std::ffi::CStr::from_ptr(text.cast()) };
    assert!(text.to_bytes().iter().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
}

/// Handles of a run; null where none is. All are freed at its end.
struct Handles {
    servers: [Handle; 2],
    rules: [Handle; 3],
    transactions: [Handle; 3],
}

impl Drop for Handles {
    fn drop(&mut self) {
        unsafe {
            self.servers.iter().for_each(|&server| msc_cleanup(server));
            self.rules.iter().for_each(|&rules| drop(msc_rules_cleanup(rules)));
            self.transactions.iter().for_each(|&transaction| msc_transaction_cleanup(transaction));
        }
    }
}

/// Keeps the sets that most runs have, so that they are compiled once.
fn keep_rules(text: &CString) {
    static KEPT: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
    if !KEPT[0].load(Ordering::Relaxed).is_null() {
        return;
    }
    for (kept, text) in KEPT.iter().zip([text.as_ptr(), null()]) {
        unsafe {
            let (server, rules) = (msc_init(), msc_create_rules_set());
            if !text.is_null() {
                msc_rules_add(rules, text, null_mut());
            }
            msc_transaction_cleanup(msc_new_transaction(server, rules, null_mut()));
            msc_cleanup(server);
            kept.store(rules, Ordering::Relaxed);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let rules = CString::new(RULES).expect("no NUL");
    keep_rules(&rules);
    let mut handles = unsafe {
        Handles {
            servers: [msc_init(), null_mut()],
            rules: [msc_create_rules_set(), msc_create_rules_set(), null_mut()],
            transactions: [null_mut(); 3],
        }
    };
    let added = unsafe {
        msc_set_log_cb(handles.servers[0], Some(on_log));
        msc_rules_add(handles.rules[0], rules.as_ptr(), null_mut())
    };
    assert_eq!(added, 4);
    handles.transactions[0] = unsafe { new(&handles, 0, null_mut()) };
    for _ in 0..256 {
        if input.0.is_empty() {
            break;
        }
        unsafe { call(&mut handles, &mut input) };
    }
});

/// The handles that a byte names.
fn chosen(handles: &Handles, which: u8) -> [Handle; 2] {
    let which = usize::from(which);
    [handles.servers[which & 1], handles.rules[which / 2 % 3]]
}

unsafe fn new(handles: &Handles, which: u8, id: *mut c_char) -> Handle {
    let data = std::ptr::from_ref(handles).cast_mut().cast();
    let [server, rules] = chosen(handles, which);
    unsafe {
        if which & 0x40 == 0 {
            msc_new_transaction_with_id(server, rules, id, data)
        } else {
            msc_new_transaction(server, rules, data)
        }
    }
}

unsafe fn call(handles: &mut Handles, input: &mut Input<'_>) {
    let which = input.byte();
    // One of four transactions, of which the last is null.
    let slot = usize::from(which >> 6);
    let one = handles.transactions.get(slot).copied().unwrap_or(null_mut());
    unsafe {
        match which & 0x3f {
            0 => {
                let (which, id) = (input.byte(), input.text());
                if let Some(place) = handles.transactions.get_mut(slot) {
                    msc_transaction_cleanup(std::mem::replace(place, null_mut()));
                    handles.transactions[slot] = new(handles, which, pointer(&id).cast_mut());
                }
            }
            1 => {
                let (client, server) = (input.text(), input.text());
                let ports = (input.number(), input.number());
                msc_process_connection(one, pointer(&client), ports.0, pointer(&server), ports.1);
            }
            2 => {
                let (uri, method, version) = (input.text(), input.text(), input.text());
                msc_process_uri(one, pointer(&uri), pointer(&method), pointer(&version));
            }
            3 => {
                let name = input.text();
                msc_set_request_hostname(one, pointer(&name).cast());
            }
            4 => {
                let (name, value) = (input.text(), input.text());
                msc_add_request_header(one, pointer(&name).cast(), pointer(&value).cast());
            }
            5 => {
                let (name, value) = (input.bytes(), input.bytes());
                msc_add_n_request_header(
                    one,
                    name.as_ptr(),
                    name.len(),
                    value.as_ptr(),
                    value.len(),
                );
            }
            6 => drop(msc_process_request_headers(one)),
            7 => {
                let part = input.bytes();
                msc_append_request_body(one, part.as_ptr(), part.len());
            }
            8 => {
                msc_request_body_from_file(one, c"/nonexistent".as_ptr());
                msc_request_body_from_file(one, c"/proc/self/stat".as_ptr());
                msc_request_body_from_file(one, null());
            }
            9 => drop(msc_process_request_body(one)),
            10 => {
                let (name, value) = (input.text(), input.text());
                msc_add_response_header(one, pointer(&name).cast(), pointer(&value).cast());
            }
            11 => {
                let (name, value) = (input.bytes(), input.bytes());
                msc_add_n_response_header(
                    one,
                    name.as_ptr(),
                    name.len(),
                    value.as_ptr(),
                    value.len(),
                );
            }
            12 => {
                let (status, protocol) = (input.number(), input.text());
                msc_process_response_headers(one, status, pointer(&protocol));
            }
            13 => {
                let part = input.bytes();
                msc_append_response_body(one, part.as_ptr(), part.len());
            }
            14 => drop(msc_process_response_body(one)),
            15 => drop(msc_update_status_code(one, input.number())),
            16 => drop(msc_process_logging(one)),
            17 => {
                let length = msc_get_response_body_length(one);
                let text = msc_get_response_body(one);
                assert_eq!(text.is_null(), one.is_null());
                assert!(text.is_null() || *text.add(length) == 0, "a text without its end");
                msc_get_request_body_length(one);
            }
            18 => check_intervention(one),
            19 => {
                // Files are not read: a name could be that of a device.
                let names_a_file = |text: &CString| {
                    let lower = text.as_bytes().to_ascii_lowercase();
                    ["file", "include", "@pmf", "matchf", "auditlog", "debuglog"].iter().any(
                        |word| lower.windows(word.len()).any(|window| window == word.as_bytes()),
                    )
                };
                let [_, rules] = chosen(handles, input.byte());
                let text = input.text().filter(|text| !names_a_file(text));
                let mut error = null();
                let added = msc_rules_add(rules, pointer(&text), &raw mut error);
                assert_eq!(added < 0, !error.is_null());
                msc_rules_error_cleanup(error);
            }
            20 => {
                let which = input.byte();
                let ([_, rules], [_, from]) = (chosen(handles, which), chosen(handles, which / 6));
                let mut error = null();
                // Also one with itself, which has ids twice.
                msc_rules_merge(rules, from, &raw mut error);
                msc_rules_error_cleanup(error);
            }
            21 => {
                let slot = usize::from(input.byte() % 3);
                msc_rules_cleanup(std::mem::replace(&mut handles.rules[slot], null_mut()));
                if input.byte() % 4 > 0 {
                    handles.rules[slot] = msc_create_rules_set();
                }
            }
            22 => {
                let slot = usize::from(input.byte() % 2);
                msc_cleanup(std::mem::replace(&mut handles.servers[slot], null_mut()));
                if input.byte() % 4 > 0 {
                    handles.servers[slot] = msc_init();
                    let name = input.text();
                    msc_set_connector_info(handles.servers[slot], pointer(&name));
                    msc_set_log_cb(handles.servers[slot], (slot == 0).then_some(on_log));
                }
                assert!(!msc_who_am_i(handles.servers[slot]).is_null());
            }
            23 => {
                if let Some(place) = handles.transactions.get_mut(slot) {
                    msc_transaction_cleanup(std::mem::replace(place, null_mut()));
                }
            }
            24 => {
                let [_, rules] = chosen(handles, input.byte());
                let mut error = null();
                msc_rules_dump(rules);
                assert_eq!(msc_rules_add_remote(rules, null(), null(), &raw mut error), -1);
                msc_rules_error_cleanup(error);
                assert_eq!(msc_rules_add_file(rules, c"/nonexistent".as_ptr(), null_mut()), -1);
                msc_rules_add_file(rules, null(), null_mut());
            }
            _ => {
                msc_add_n_request_header(one, null(), 7, null(), 9);
                msc_append_request_body(one, null(), 9);
                msc_append_response_body(one, null(), 9);
                msc_set_request_hostname(one, null());
                msc_intervention(one, null_mut());
            }
        }
    }
}

unsafe fn check_intervention(transaction: Handle) {
    let mut found =
        Intervention { status: 200, pause: 0, url: null_mut(), log: null_mut(), disruptive: 0 };
    unsafe {
        if msc_intervention(transaction, &raw mut found) == 0 {
            assert_eq!((found.status, found.disruptive), (200, 0));
            assert!(found.url.is_null() && found.log.is_null());
            return;
        }
        assert_eq!(found.disruptive, 1);
        assert_eq!(found.pause, 0);
        assert_ne!(found.status, 200);
        assert!(!found.log.is_null());
        msc_intervention_cleanup(&raw mut found);
        assert!(found.url.is_null() && found.log.is_null());
        assert_eq!(msc_intervention(transaction, &raw mut found), 0, "a decision is reported once");
    }
}
