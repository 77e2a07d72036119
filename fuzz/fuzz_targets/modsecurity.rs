//! libmodsecurity's C interface: calls in any order, with null pointers, any lengths and any bytes, do no harm, and every text
//! that the library returns can be freed.
//!
//! Input: a byte a call, each followed by the arguments that the call takes.

#![no_main]

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};

use libfuzzer_sys::fuzz_target;
use modsecurity::interface as msc;

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

unsafe extern "C" fn on_log(data: *mut c_void, text: *const c_void) {
    assert!(!data.is_null());
    let text = unsafe { std::ffi::CStr::from_ptr(text.cast()) };
    assert!(text.to_bytes().iter().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
}

/// Handles of a run, freed at its end.
struct Handles {
    server: *mut msc::ModSecurity,
    rules: *mut msc::RulesSet,
    transaction: *mut msc::Transaction,
}

impl Drop for Handles {
    fn drop(&mut self) {
        unsafe {
            msc::msc_transaction_cleanup(self.transaction);
            msc::msc_rules_cleanup(self.rules);
            msc::msc_cleanup(self.server);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let rules = CString::new(RULES).expect("no NUL");
    let mut handles = Handles {
        server: msc::msc_init(),
        rules: msc::msc_create_rules_set(),
        transaction: null_mut(),
    };
    let added = unsafe {
        msc::msc_set_log_cb(handles.server, Some(on_log));
        msc::msc_rules_add(handles.rules, rules.as_ptr(), null_mut())
    };
    assert_eq!(added, 4);
    handles.transaction = unsafe { new(&handles, null_mut()) };
    for _ in 0..256 {
        if input.0.is_empty() {
            break;
        }
        unsafe { call(&mut handles, &mut input) };
    }
});

unsafe fn new(handles: &Handles, id: *mut c_char) -> *mut msc::Transaction {
    let data = std::ptr::from_ref(handles).cast_mut().cast();
    unsafe { msc::msc_new_transaction_with_id(handles.server, handles.rules, id, data) }
}

unsafe fn call(handles: &mut Handles, input: &mut Input<'_>) {
    let which = input.byte();
    // Sometimes without a transaction.
    let one = if which & 0x80 == 0 { handles.transaction } else { null_mut() };
    unsafe {
        match which & 0x7f {
            0 => {
                let id = input.text();
                msc::msc_transaction_cleanup(handles.transaction);
                handles.transaction = new(handles, pointer(&id).cast_mut());
            }
            1 => {
                let (client, server) = (input.text(), input.text());
                let ports = (input.number(), input.number());
                msc::msc_process_connection(
                    one,
                    pointer(&client),
                    ports.0,
                    pointer(&server),
                    ports.1,
                );
            }
            2 => {
                let (uri, method, version) = (input.text(), input.text(), input.text());
                msc::msc_process_uri(one, pointer(&uri), pointer(&method), pointer(&version));
            }
            3 => {
                let name = input.bytes();
                msc::msc_set_request_hostname(one, name.as_ptr(), name.len());
            }
            4 => {
                let (name, value) = (input.text(), input.text());
                msc::msc_add_request_header(one, pointer(&name).cast(), pointer(&value).cast());
            }
            5 => {
                let (name, value) = (input.bytes(), input.bytes());
                msc::msc_add_n_request_header(
                    one,
                    name.as_ptr(),
                    name.len(),
                    value.as_ptr(),
                    value.len(),
                );
            }
            6 => drop(msc::msc_process_request_headers(one)),
            7 => {
                let part = input.bytes();
                msc::msc_append_request_body(one, part.as_ptr(), part.len());
            }
            8 => drop(msc::msc_request_body_from_file(one, c"/nonexistent".as_ptr())),
            9 => drop(msc::msc_process_request_body(one)),
            10 => {
                let (name, value) = (input.text(), input.text());
                msc::msc_add_response_header(one, pointer(&name).cast(), pointer(&value).cast());
            }
            11 => {
                let (name, value) = (input.bytes(), input.bytes());
                msc::msc_add_n_response_header(
                    one,
                    name.as_ptr(),
                    name.len(),
                    value.as_ptr(),
                    value.len(),
                );
            }
            12 => {
                let (status, protocol) = (input.number(), input.text());
                msc::msc_process_response_headers(one, status, pointer(&protocol));
            }
            13 => {
                let part = input.bytes();
                msc::msc_append_response_body(one, part.as_ptr(), part.len());
            }
            14 => drop(msc::msc_process_response_body(one)),
            15 => drop(msc::msc_update_status_code(one, input.number())),
            16 => drop(msc::msc_process_logging(one)),
            17 => {
                let length = msc::msc_get_response_body_length(one);
                let text = msc::msc_get_response_body(one);
                assert_eq!(text.is_null(), one.is_null());
                assert!(text.is_null() || *text.add(length) == 0, "a text without its end");
                assert!(msc::msc_get_request_body_length(one) <= 64, "more than the limit is kept");
            }
            18 => check_intervention(one),
            19 => {
                // Files are not read: a name could be that of a device.
                let names_a_file = |text: &CString| {
                    let lower = text.as_bytes().to_ascii_lowercase();
                    ["file", "include", "@pmf", "matchf", "auditlog"].iter().any(|word| {
                        lower.windows(word.len()).any(|window| window == word.as_bytes())
                    })
                };
                let text = input.text().filter(|text| !names_a_file(text));
                let mut error = null();
                let added = msc::msc_rules_add(handles.rules, pointer(&text), &raw mut error);
                assert_eq!(added < 0, !error.is_null());
                msc::msc_rules_error_cleanup(&raw mut error);
                assert!(error.is_null());
            }
            20 => {
                let mut error = null();
                // Ids that occur twice.
                msc::msc_rules_merge(handles.rules, handles.rules, &raw mut error);
                msc::msc_rules_error_cleanup(&raw mut error);
            }
            21 => {
                msc::msc_rules_cleanup(handles.rules);
                handles.rules = msc::msc_create_rules_set();
            }
            _ => {
                msc::msc_add_n_request_header(one, null(), 7, null(), 9);
                msc::msc_append_request_body(one, null(), 9);
                msc::msc_append_response_body(one, null(), 9);
                msc::msc_set_request_hostname(one, null(), 9);
                msc::msc_intervention(one, null_mut());
            }
        }
    }
}

unsafe fn check_intervention(transaction: *mut msc::Transaction) {
    let mut found = msc::ModSecurityIntervention {
        status: 200,
        pause: 0,
        url: null_mut(),
        log: null_mut(),
        disruptive: 0,
    };
    unsafe {
        if msc::msc_intervention(transaction, &raw mut found) == 0 {
            assert_eq!((found.status, found.disruptive), (200, 0));
            assert!(found.url.is_null() && found.log.is_null());
            return;
        }
        assert_eq!(found.disruptive, 1);
        assert_ne!(found.status, 200);
        assert!(!found.log.is_null());
        msc::msc_intervention_cleanup(&raw mut found);
        assert!(found.url.is_null() && found.log.is_null());
        assert_eq!(
            msc::msc_intervention(transaction, &raw mut found),
            0,
            "a decision is reported once"
        );
    }
}
